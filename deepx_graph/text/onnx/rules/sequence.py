"""Sequences and optional values: tuples of values while a model is lowered."""

from __future__ import annotations

from typing import Any

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.elements import part_of
from deepx_graph.text.common.steps import axis_of
from deepx_graph.text.onnx.context import NodeContext, Rules, Value
from deepx_graph.text.onnx.rules.shape import split_at
from deepx_graph.types import BOOL, I64, TupleType


def _construct(c: NodeContext) -> list[Value]:
    return [tuple(c.nodes())]


def _empty(c: NodeContext) -> list[Value]:
    return [()]


def _place(c: NodeContext, k: int, size: int) -> int:
    """Operand k as a place in a sequence, counted from the end where it is negative."""
    at = int(c.number_at(k))
    if not -size <= at < max(size, 1):
        raise InferError(f"item {at} of a sequence of {size}")
    return at % size if size else 0


def _at(c: NodeContext) -> list[Value]:
    items = c.sequence()
    if not items:
        raise InferError("an item of an empty sequence")
    return [items[_place(c, 1, len(items))]]


def _insert(c: NodeContext) -> list[Value]:
    items = list(c.sequence())
    at = int(c.number_at(2)) if c.has(2) else len(items)
    if not -len(items) <= at <= len(items):
        raise InferError(f"place {at} in a sequence of {len(items)}")
    items.insert(at + len(items) if at < 0 else at, c.inputs[1])
    return [tuple(items)]


def _erase(c: NodeContext) -> list[Value]:
    items = list(c.sequence())
    if not items:
        raise InferError("an item of an empty sequence")
    del items[_place(c, 1, len(items)) if c.has(1) else -1]
    return [tuple(items)]


def _length(c: NodeContext) -> Node:
    return c.scalar(len(c.sequence()), I64)


def _concat(c: NodeContext) -> Node:
    items = list(c.sequence())
    if not items:
        raise InferError("an empty sequence", expected="one tensor or more")
    rank = len(c.dims_of(items[0]))
    if c.flag("new_axis"):
        axis = axis_of(c.number("axis"), rank + 1)
        items = [c.add_axes(x, (axis,)) for x in items]
    else:
        axis = axis_of(c.number("axis"), rank)
    return c(ops.concatenate, *items, dimension=axis)


def _split(c: NodeContext) -> list[Value]:
    axis = c.axis(default=0)
    x, size = c.node(), c.shape()[axis]
    if not c.has(1):
        parts = [part_of(c, x, axis, k, k + 1) for k in range(size)]
        if c.flag("keepdims", True):
            return [tuple(parts)]
        return [tuple(c.shaped(p, [d for k, d in enumerate(c.dims()) if k != axis]) for p in parts)]
    given = c.ints_at(1)
    if c.rank(1) == 0:
        (chunk,) = given
        if chunk < 1:
            raise InferError(f"parts of {chunk}", expected="1 or more")
        given = tuple(min(chunk, size - at) for at in range(0, size, chunk))
    return [tuple(split_at(c, x, axis, given))]


def _map(c: NodeContext) -> list[Value]:
    """The body for each item; operands that are no sequences are the same for all of them."""
    body, count = c.graph("body"), len(c.sequence())
    rows = []
    for k in range(count):
        args = [v if isinstance(v, Node) and not _is_sequence(v) else c.sequence(j)[k] for j, v in enumerate(c.inputs)]
        rows.append(c.body(body, args))
    return [tuple(row[j] for row in rows) for j in range(len(body.outputs))]


def _is_sequence(v: Node) -> bool:
    return isinstance(v.type, TupleType)


def _optional(c: NodeContext) -> list[Value]:
    return [c.inputs[0] if c.inputs else None]


def _has_element(c: NodeContext) -> Node:
    return c.scalar(c.has(0), BOOL)


def _get_element(c: NodeContext) -> list[Any]:
    if not c.has(0):
        raise InferError("an optional value that is none")
    return [c.inputs[0]]


SEQUENCE: Rules = {
    "SequenceConstruct": _construct, "SequenceEmpty": _empty, "SequenceAt": _at, "SequenceInsert": _insert, "SequenceErase": _erase,
    "SequenceLength": _length, "ConcatFromSequence": _concat, "SplitToSequence": _split, "SequenceMap": _map,
    "Optional": _optional, "OptionalHasElement": _has_element, "OptionalGetElement": _get_element,
}  # fmt: skip
