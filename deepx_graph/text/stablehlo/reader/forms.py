"""Operations of MLIR text with pretty forms of their own: modules, functions, `while`, `reduce`, `reduce_precision`.

Each is called with its name read, and gives the same tree that the generic form would.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deepx_graph.text.stablehlo.syntax import BlockArgument, Operation
from deepx_graph.types import Type

if TYPE_CHECKING:
    from deepx_graph.text.stablehlo.reader.parser import MlirParser

_FORMAT = re.compile(r"e(\d+)m(\d+)")


def _attributes(p: MlirParser) -> dict[str, Any]:
    """`attributes {..}`, if it stands here."""
    if not p.accept("attributes"):
        return {}
    p.expect("{")
    return p.dictionary("}")


def module(p: MlirParser, name: str, results: list[str], start: int) -> Operation:
    """`module @name attributes {..} { functions }`."""
    symbol = p.symbol() or ""
    attributes = _attributes(p)
    p.expect("{", "to open the module")
    op = Operation(name, results, [], attributes, [], [p.region()], [], [], start, p.at)
    op.extra["symbol"] = symbol
    return op


def function(p: MlirParser, name: str, results: list[str], start: int) -> Operation:
    """`func.func private @name(parameters) -> results attributes {..} { body }`."""
    visibility = "public"
    for word in ("public", "private", "nested"):
        if p.accept(word + " "):
            visibility = word
    symbol = p.symbol()
    if symbol is None:
        p.fail("expected the function's name", expected="@name")
    p.expect("(", "before the parameters")
    args = p.block_args()
    types: list[Type] = []
    if p.accept("->"):
        types = _function_results(p)
    attributes = _attributes(p)
    p.expect("{", "to open the function")
    blocks = p.region()
    blocks[0].args = args
    attributes |= {"sym_visibility": visibility}
    op = Operation(name, results, [], attributes, [], [blocks], [a.type for a in args], types, start, p.at)
    op.extra["symbol"] = symbol
    return op


def _function_results(p: MlirParser) -> list[Type]:
    if not p.accept("("):
        return [p.type()]
    types: list[Type] = []
    while not p.accept(")"):
        types.append(p.type())
        if p.accept("{"):
            p.dictionary("}")
        p.location()
        if not p.accept(","):
            p.expect(")")
            break
    return types


def while_(p: MlirParser, name: str, results: list[str], start: int) -> Operation:
    """`while(%a = %x, ...) : types [attributes {..}] cond {..} do {..}`."""
    op = Operation(name, results, [], {}, [], [], [], [], start, start)
    p.expect("(", "before the loop variables")
    args: list[tuple[str, int]] = []
    while not p.accept(")"):
        arg = p.value_name()
        p.expect("=", "after the loop variable")
        init = p.value_name()
        if not arg or not init:
            p.fail("expected a loop variable", expected="%variable = %initial")
        args.append(arg)
        op.operands.append(init)
        if not p.accept(","):
            p.expect(")")
            break
    if p.accept(":"):
        op.result_types = [p.type()]
        while p.accept(","):
            op.result_types.append(p.type())
    op.operand_types = op.result_types
    op.attributes = _attributes(p)
    for word in ("cond", "do"):
        p.expect(word)
        p.expect("{")
        blocks = p.region()
        blocks[0].args = [BlockArgument(n, t, at) for (n, at), t in zip(args, op.result_types, strict=False)]
        op.regions.append(blocks)
    return op


def reduce(p: MlirParser, name: str, results: list[str], start: int) -> Operation:
    """`reduce(%x init: %c), ... [applies op] across dimensions = [..] {..} : types [reducer(..) {..}]`."""
    op = Operation(name, results, [], {}, [], [], [], [], start, start)
    inits: list[tuple[str, int]] = []
    while p.accept("("):
        operand = p.value_name()
        p.expect("init:", "before the initial value")
        init = p.value_name()
        if not operand or not init:
            p.fail("expected an operand and its initial value", expected="(%x init: %c)")
        op.operands.append(operand)
        inits.append(init)
        p.expect(")")
        p.accept(",")
    op.operands += inits
    if p.accept("applies"):
        op.extra["applies"] = p.known(p.name("an operation"), p.at)
    p.expect("across")
    p.expect("dimensions")
    p.expect("=")
    op.attributes["dimensions"] = p.attribute()
    if p.accept("{"):
        op.attributes |= p.dictionary("}")
    p.expect(":", "before the types")
    p.signature(op)
    p.location()
    if p.accept("reducer"):
        pairs: list[list[BlockArgument]] = []
        while p.accept("("):
            pairs.append(p.block_args())
        p.location()
        p.expect("{")
        blocks = p.region()
        blocks[0].args = [p[0] for p in pairs] + [p[1] for p in pairs]
        op.regions.append(blocks)
    return op


def precision(p: MlirParser, name: str, results: list[str], start: int) -> Operation:
    """`reduce_precision %x, format = e5m10 : type`."""
    op = Operation(name, results, [], {}, [], [], [], [], start, start)
    if operand := p.value_name():
        op.operands.append(operand)
    p.expect(",")
    p.expect("format")
    p.expect("=")
    found = p.match(_FORMAT)
    if not found:
        p.fail("expected a format", expected="e5m10")
    op.attributes = {"exponent_bits": int(found[1]), "mantissa_bits": int(found[2])}
    if p.accept("{"):
        op.attributes |= p.dictionary("}")
    p.expect(":")
    p.signature(op)
    return op


def manual_computation(p: MlirParser, name: str, results: list[str], start: int) -> Operation:
    """`sdy.manual_computation(%x) in_shardings=[..] out_shardings=[..] manual_axes={..} (%a: type) {..} : (types) -> types`."""
    op = Operation(name, results, [], {}, [], [], [], [], start, start)
    p.expect("(", "before the operands")
    op.operands = p.operand_list(")")
    for word, open_, close in (("in_shardings", "[", "]"), ("out_shardings", "[", "]"), ("manual_axes", "{", "}")):
        p.expect(word)
        p.expect("=")
        op.extra[word] = _bracketed(p, open_, close)
    p.expect("(", "before the arguments")
    args = p.block_args()
    p.expect("{")
    blocks = p.region()
    blocks[0].args = args
    op.regions.append(blocks)
    p.expect(":", "before the types")
    p.signature(op)
    return op


def _bracketed(p: MlirParser, open_: str, close: str) -> str:
    """The text of a bracket and all that stands in it."""
    if not p.peek(open_):
        p.fail(f"expected '{open_}'", expected=open_)
    p.skip()
    start = p.at
    p.at = p.closing(open_, close)
    return p.text[start : p.at]


FORMS: dict[str, Callable[[MlirParser, str, list[str], int], Operation]] = {
    "builtin.module": module, "func.func": function, "sdy.manual_computation": manual_computation,
    "stablehlo.while": while_, "stablehlo.reduce": reduce,
    "stablehlo.reduce_precision": precision,
}  # fmt: skip
"""Every operation that is not read by the common scheme."""
