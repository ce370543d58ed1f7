"""The pretty forms of Shardy's operations: collectives with a sharding of the result, and computations with a body."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from deepx_graph.text.stablehlo.syntax import Operation

if TYPE_CHECKING:
    from deepx_graph.text.stablehlo.reader.parser import MlirParser

_SHARDINGS = ("in_shardings", "out_shardings")


def _collective(p: MlirParser, op: Operation) -> None:
    """`sdy.all_gather [{"x"}, {}] %x out_sharding=<@mesh, [..]> : type`; axes in braces, or none, for some."""
    c = p.cursor
    for word in ("sum", "max", "min"):
        if c.accept(word):
            op.extra["by"] = word
    for open_, close in (("[", "]"), ("{", "}")):
        if c.peek(open_):
            start, c.at = c.at, c.closing(open_, close)
            op.extra["axes"] = c.text[start : c.at]
    op.operands.append(c.need_value("the operand", "%name"))
    if c.accept("{"):
        op.attributes |= c.dictionary("}")
    c.expect("out_sharding")
    c.expect("=")
    if not c.peek("<"):
        c.fail("expected a sharding", expected="<@mesh, [..]>")
    start, c.at = c.at, c.closing("<", ">")
    op.extra["form"] = c.text[start : c.at]
    if c.accept("{"):
        op.attributes |= c.dictionary("}")
    c.expect(":", "before the type")
    p.signature(op)


def _shardings(p: MlirParser, op: Operation, word: str) -> None:
    """`word=[..]` or `word={..}` as it stands."""
    c = p.cursor
    c.expect(word)
    c.expect("=")
    open_, close = "[]" if word in _SHARDINGS else "{}"
    if not c.peek(open_):
        c.fail(f"expected '{open_}'", expected=open_)
    start, c.at = c.at, c.closing(open_, close)
    op.extra[word] = c.text[start : c.at]


def _body(p: MlirParser, op: Operation) -> None:
    """`(%a: type) {..} {attributes} : (types) -> types`."""
    c = p.cursor
    c.expect("(", "before the arguments")
    args = p.block_args()
    c.expect("{")
    op.regions.append(p.region(args))
    if c.accept("{"):
        op.attributes |= c.dictionary("}")
    c.expect(":", "before the types")
    p.signature(op)


def _manual_computation(p: MlirParser, op: Operation) -> None:
    """`sdy.manual_computation(%x) in_shardings=[..] out_shardings=[..] manual_axes={..} (%a: type) {..} : (types) -> types`."""
    p.cursor.expect("(", "before the operands")
    op.operands = p.operands()
    for word in (*_SHARDINGS, "manual_axes"):
        _shardings(p, op, word)
    _body(p, op)


def _named_computation(p: MlirParser, op: Operation) -> None:
    """`sdy.named_computation<"name">(%x) in_shardings=[..] out_shardings=[..] (%a: type) {..} : (types) -> types`."""
    c = p.cursor
    if c.peek("<"):
        start, c.at = c.at, c.closing("<", ">")
        op.extra["form"] = c.text[start : c.at]
    c.expect("(", "before the operands")
    op.operands = p.operands()
    for word in _SHARDINGS:
        if c.peek(word):
            _shardings(p, op, word)
    _body(p, op)


def _edge(p: MlirParser, op: Operation) -> None:
    """`sdy.data_flow_edge %x sharding=<@mesh, [..]> : type`."""
    c = p.cursor
    op.operands.append(c.need_value("the operand", "%name"))
    if c.accept("sharding"):
        c.expect("=")
        start, c.at = c.at, c.closing("<", ">")
        op.extra["form"] = c.text[start : c.at]
    if c.accept("{"):
        op.attributes |= c.dictionary("}")
    c.expect(":", "before the type")
    p.signature(op)


COLLECTIVES = ("sdy.all_gather", "sdy.all_slice", "sdy.all_to_all", "sdy.all_reduce", "sdy.reduce_scatter",
               "sdy.collective_permute", "sdy.replicated_to_unreduced", "sdy.sharded_to_unreduced")  # fmt: skip

FORMS: dict[str, Callable[[MlirParser, Operation], None]] = {
    **dict.fromkeys(COLLECTIVES, _collective),
    **dict.fromkeys(("sdy.data_flow_edge", "sdy.func_data_flow_edge"), _edge),
    "sdy.manual_computation": _manual_computation,
    "sdy.named_computation": _named_computation,
}
