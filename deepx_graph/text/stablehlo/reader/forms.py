"""Operations of MLIR text with pretty forms of their own: modules, functions, `while`, `reduce`, `reduce_precision`.

Each is called with its name read, and fills in the same that the generic form would.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deepx_graph.text.stablehlo.reader import shardy_forms as shardy
from deepx_graph.text.stablehlo.reader.scanner import MlirCursor
from deepx_graph.text.stablehlo.syntax import BlockArgument, Operation
from deepx_graph.types import Type

if TYPE_CHECKING:
    from deepx_graph.text.stablehlo.reader.parser import MlirParser

_FORMAT = re.compile(r"e(\d+)m(\d+)")


def _attributes(c: MlirCursor) -> dict[str, Any]:
    """`attributes {..}`, if it stands here."""
    if not c.accept("attributes"):
        return {}
    c.expect("{")
    return c.dictionary("}")


def module(p: MlirParser, op: Operation) -> None:
    """`module @name attributes {..} { functions }`."""
    op.extra["symbol"] = p.cursor.symbol() or ""
    op.attributes = _attributes(p.cursor)
    p.cursor.expect("{", "to open the module")
    op.regions.append(p.region())


def function(p: MlirParser, op: Operation) -> None:
    """`func.func private @name(parameters) -> results attributes {..} { body }`."""
    c = p.cursor
    visibility = "public"
    for word in ("public", "private", "nested"):
        if c.accept(word + " "):
            visibility = word
    symbol = c.symbol()
    if symbol is None:
        c.fail("expected the function's name", expected="@name")
    op.extra["symbol"] = symbol
    c.expect("(", "before the parameters")
    args = p.block_args()
    op.operand_types = [a.type for a in args]
    if c.accept("->"):
        results = c.items(")", lambda: _result(c)) if c.accept("(") else [(c.type(), {})]
        op.result_types = [type for type, _ in results]
        op.extra["results"] = [attributes for _, attributes in results]
    op.attributes = {**_attributes(c), "sym_visibility": visibility}
    if c.peek("{") or visibility != "private":  # what is private may be declared only
        c.expect("{", "to open the function")
        op.regions.append(p.region(args))


def _result(c: MlirCursor) -> tuple[Type, dict[str, Any]]:
    """The type of a result, and its attributes."""
    type = c.type()
    attributes = c.dictionary("}") if c.accept("{") else {}
    c.location()
    return type, attributes


def while_(p: MlirParser, op: Operation) -> None:
    """`while(%a = %x, ...) : types [attributes {..}] cond {..} do {..}`."""
    c, args = p.cursor, []

    def variable() -> None:
        args.append(c.need_value("a loop variable", "%variable = %initial"))
        c.expect("=", "after the loop variable")
        op.operands.append(c.need_value("a loop variable", "%variable = %initial"))

    c.expect("(", "before the loop variables")
    c.items(")", variable)
    if c.accept(":"):
        op.result_types = c.types()
    op.operand_types = op.result_types
    op.attributes = _attributes(c)
    for word in ("cond", "do"):
        c.expect(word)
        c.expect("{")
        op.regions.append(p.region([BlockArgument(n, t, at) for (n, at), t in zip(args, op.result_types, strict=False)]))


def reduce(p: MlirParser, op: Operation) -> None:
    """`reduce(%x init: %c), ... [applies op] across dimensions = [..] {..} : types [reducer(..) {..}]`."""
    c, inits = p.cursor, []
    while c.accept("("):
        op.operands.append(c.need_value("an operand and its initial value", "(%x init: %c)"))
        c.expect("init:", "before the initial value")
        inits.append(c.need_value("an operand and its initial value", "(%x init: %c)"))
        c.expect(")")
        c.accept(",")
    op.operands += inits
    if c.accept("applies"):
        op.extra["applies"] = p.known(c.name("an operation"), c.at)
    for word in ("across", "dimensions", "="):
        c.expect(word)
    op.attributes["dimensions"] = c.attribute()
    if c.accept("{"):
        op.attributes |= c.dictionary("}")
    c.expect(":", "before the types")
    p.signature(op)
    op.location = c.location()
    if c.accept("reducer"):
        pairs: list[list[BlockArgument]] = []
        while c.accept("("):
            pairs.append(p.block_args())
        c.location()
        c.expect("{")
        op.regions.append(p.region([pair[k] for k in range(2) for pair in pairs]))


def precision(p: MlirParser, op: Operation) -> None:
    """`reduce_precision %x, format = e5m10 : type`."""
    c = p.cursor
    if operand := c.value_name():
        op.operands.append(operand)
    for word in (",", "format", "="):
        c.expect(word)
    found = c.match(_FORMAT) or c.fail("expected a format", expected="e5m10")
    op.attributes = {"exponent_bits": int(found[1]), "mantissa_bits": int(found[2])}
    if c.accept("{"):
        op.attributes |= c.dictionary("}")
    c.expect(":")
    p.signature(op)


FORMS: dict[str, Callable[[MlirParser, Operation], None]] = {
    "builtin.module": module, "func.func": function, **shardy.FORMS,
    "stablehlo.while": while_, "stablehlo.reduce": reduce,
    "stablehlo.reduce_precision": precision,
}  # fmt: skip
"""Every operation that is not read by the common scheme."""
