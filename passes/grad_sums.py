"""Sums of cotangents and their parts: what the sweep does with them beside `ops.pullback`.

Pure functions over a builder. A cotangent of a tuple is a tuple; None is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph.ir import Builder, Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ops import add, dynamic_slice, dynamic_update_slice
from deepx_graph.ops.pullback import Cotangent, is_nonzero, zeros
from deepx_graph.ops.tape import cotangent_type
from deepx_graph.passes.grad_trips import rows_apart
from deepx_graph.types import TensorType, TupleType, Type

MAX_ADDENDS = 64
"""A sum of more values than this is taken as one."""


def onto(b: Builder, total: Node, g: Node, end: Node) -> Node:
    """`total + g` in the body of the loop that `end` closes, where the total starts as zero.

    What `g` puts into a box of zeros is added to that box of the total alone; where no turn has written to it, it is put there.
    """
    parts = _addends(g)
    if len(parts) == 1 and _is_box(g):
        box, whole, starts = g.inputs[1], g.type, g.inputs[2:]
        assert isinstance(box.type, TensorType) and isinstance(whole, TensorType)
        if rows_apart(end, starts, box.type.shape, whole.shape):
            return b(dynamic_update_slice, total, box, *starts)
    for x in parts if any(map(_is_box, parts)) else [g]:
        if not _is_box(x):
            total = b(add, total, x)
            continue
        box, starts = x.inputs[1], x.inputs[2:]
        assert isinstance(box.type, TensorType)
        old = b(dynamic_slice, total, *starts, slice_sizes=box.type.shape)
        total = b(dynamic_update_slice, total, b(add, old, box), *starts)
    return total


def _addends(g: Node) -> list[Node]:
    parts: list[Node] = []
    stack = [g]
    while stack:
        x = stack.pop()
        if x.op is add and len(stack) + len(parts) < MAX_ADDENDS:
            stack += reversed(x.inputs)
        else:
            parts.append(x)
    return parts


def _is_box(g: Node) -> bool:
    """Whether it is zero but for a box at computed indices."""
    if g.op is not dynamic_update_slice:
        return False
    value = splat_of(g.inputs[0])
    return value is not None and not value


def one_node(b: Builder, g: Cotangent, type: Type, like: Node) -> Node:
    """A cotangent as one node, zeros where it is zero; `like` is a value whose cotangent it is."""
    if isinstance(g, Node):
        return g
    if isinstance(type, TupleType):
        parts = g if isinstance(g, tuple) else (None,) * len(type.items)
        return b.pack(*(one_node(b, x, t, like) for x, t in zip(parts, type.items, strict=True)))
    return zeros(b, cotangent_type(type) or type, like)


def numbered(type: Type, sides: Sequence[Cotangent], columns: list[list[Node]], b: Builder, like: Node) -> Cotangent:
    """Appends a column for each part of a cotangent that some side gives; the cotangent with column numbers for nodes."""
    if not any(map(is_nonzero, sides)):
        return None
    if isinstance(type, TupleType):
        parts = [s if isinstance(s, tuple) else (None,) * len(type.items) for s in sides]
        return tuple(numbered(t, [p[k] for p in parts], columns, b, like) for k, t in enumerate(type.items))
    given = next(s for s in sides if s is not None)
    for values, side in zip(columns, sides, strict=True):
        values.append(zeros(b, given.type, like) if side is None else side)
    return len(columns[0]) - 1


def mapped(shape: Cotangent, make: Callable[[int], Node]) -> Cotangent:
    """The cotangent with `make(k)` for each number k in it."""
    if isinstance(shape, tuple):
        return tuple(mapped(s, make) for s in shape)
    return None if shape is None else make(shape)
