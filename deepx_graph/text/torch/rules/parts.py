"""Operators that take parts of tensors, split them, join them, or replace a part."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.elements import part_of, taken
from deepx_graph.text.common.steps import axis_of
from deepx_graph.text.torch.context import CallContext, Rule, Rules
from deepx_graph.types import I64

# --- parts ----------------------------------------------------------------------------------------------------------


def bounds_of(size: int, start: int, end: int) -> tuple[int, int]:
    """Where a slice begins and ends, as Python reads its numbers."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


def _slice(c: CallContext) -> Node:
    x, axis, step = c.node(), c.axis("dim", 0), c.number("step", 1)
    dims = c.dims_of(x)
    start, end = c.get("start", 0), c.get("end", 1 << 62)
    whole = (step == 1 and isinstance(start, int) and start == 0 and not c.has("end")) or (
        isinstance(end, int) and end >= 1 << 62 and start == 0 and step == 1
    )
    if whole:
        return x
    size = c.static((dims[axis],))[0]
    first, last = bounds_of(size, c.whole(start), c.whole(end))
    others = [d if k != axis else last for k, d in enumerate(dims)]
    if not all(isinstance(d, int) for d in dims):
        return _slice_one(c, x, axis, first, last, step)
    return c.sliced(
        x,
        [first if k == axis else 0 for k in range(len(dims))],
        others,  # type: ignore[arg-type]
        [step if k == axis else 1 for k in range(len(dims))],
    )


def _slice_one(c: CallContext, x: Node, axis: int, first: int, last: int, step: int) -> Node:
    """Along an axis of known size, the sizes of others not being known."""
    return taken(c, x, axis, np.arange(first, last, step))


def _select(c: CallContext) -> Node:
    x, axis = c.node(), c.axis(1)
    dims = c.dims_of(x)
    rest = [d for k, d in enumerate(dims) if k != axis]
    if not isinstance(dims[axis], int) and c.number(2) >= 0:
        return c.shaped(taken(c, x, axis, np.array([c.number(2)])), rest)
    size = c.static((dims[axis],))[0]
    index = c.number(2)
    if not -size <= index < size:
        raise InferError(f"element {index} along an axis of {size}")
    index %= size
    part = part_of(c, x, axis, index, index + 1) if all(isinstance(d, int) for d in dims) else taken(c, x, axis, np.array([index]))
    return c.shaped(part, rest)


def _narrow(c: CallContext) -> Node:
    axis = c.axis(1)
    size = c.shape_of(c.node())[axis]
    start = c.number(2)
    start = start + size if start < 0 else start
    return part_of(c, c.node(), axis, start, start + c.number(3))


def parts_of(c: CallContext, x: Node, axis: int, sizes: Sequence[int]) -> list[Node]:
    """Neighbouring parts along an axis."""
    found, at = [], 0
    for n in sizes:
        found.append(part_of(c, x, axis, at, at + n))
        at += n
    return found


def _split(c: CallContext) -> list[Node]:
    x, axis = c.node(), c.axis("dim", 0)
    size = c.shape_of(x)[axis]
    if isinstance(c.get(1), tuple):
        sizes = list(c.ints(1))
    else:
        step = max(1, c.number(1))
        sizes = [min(step, size - k) for k in range(0, size, step)] or [0]
    return parts_of(c, x, axis, sizes)


def _chunk(c: CallContext) -> list[Node]:
    x, axis = c.node(), c.axis("dim", 0)
    size = c.shape_of(x)[axis]
    step = max(1, -(-size // c.number(1)))
    return parts_of(c, x, axis, [min(step, size - k) for k in range(0, size, step)] or [0])


def _tensor_split(c: CallContext) -> list[Node]:
    return _split_at(c, c.axis("dim", 0))


def _split_along(axis: int) -> Rule:
    """vsplit and its kin; of a vector, hsplit cuts the only axis."""
    return lambda c: _split_at(c, min(axis, len(c.dims_of(c.node())) - 1))


def _at_least(rank: int) -> Rule:
    """With so many axes: new ones before, and the third behind."""

    def build(c: CallContext) -> Any:
        def wide(x: Node) -> Node:
            dims = c.dims_of(x)
            if len(dims) < min(rank, 2):
                dims = (*(1,) * (min(rank, 2) - len(dims)), *dims)
            return c.shaped(x, (*dims, *(1,) * (rank - len(dims))))

        return [wide(x) for x in c.nodes()] if isinstance(c.get(0), tuple) else wide(c.node())

    return build


def _split_at(c: CallContext, axis: int) -> list[Node]:
    x = c.node()
    size = c.shape_of(x)[axis]
    if isinstance(c.get(1), tuple):
        places = [0, *(slice(0, p).indices(size)[1] for p in c.ints(1)), size]
        return [part_of(c, x, axis, a, max(a, b)) for a, b in pairwise(places)]
    count = c.number(1)
    return parts_of(c, x, axis, [size // count + (k < size % count) for k in range(count)])


def _unbind(c: CallContext) -> list[Node]:
    x, axis = c.node(), c.axis("dim", 0)
    shape = c.shape_of(x)
    rest = [d for k, d in enumerate(shape) if k != axis]
    return [c.shaped(part_of(c, x, axis, k, k + 1), rest) for k in range(shape[axis])]


def _cat(c: CallContext) -> Node:
    nodes = [c.to(n, c.result_type()) for n in c.nodes()]
    kept = [n for n in nodes if c.dims_of(n) != (0,)] or nodes[:1]
    axis = c.axis("dim", 0, kept[0])
    return c(ops.concatenate, *kept, dimension=axis) if len(kept) > 1 else kept[0]


def _stack(c: CallContext) -> Node:
    nodes = [c.to(n, c.result_type()) for n in c.nodes()]
    axis = axis_of(c.number("dim", 0), len(c.dims_of(nodes[0])) + 1)
    nodes = [c.add_axes(n, (axis,)) for n in nodes]
    return c(ops.concatenate, *nodes, dimension=axis) if len(nodes) > 1 else nodes[0]


def _stacked(axis_for: int) -> Rule:
    """hstack, vstack and dstack: tensors of at least so many axes, joined along one."""

    def build(c: CallContext) -> Node:
        nodes = [c.to(n, c.result_type()) for n in c.nodes()]
        if axis_for == 1:
            nodes = [n if c.dims_of(n) else c.shaped(n, (1,)) for n in nodes]
            axis = 0 if len(c.dims_of(nodes[0])) == 1 else 1
        else:
            nodes = [n if len(c.dims_of(n)) > 1 else c.shaped(n, (1, *(c.dims_of(n) or (1,)))) for n in nodes]
            axis = 0
        return c(ops.concatenate, *nodes, dimension=axis) if len(nodes) > 1 else nodes[0]

    return build


# --- parts replaced -------------------------------------------------------------------------------------------------


def placed(c: CallContext, base: Node, new: Node, axis: int, start: int, end: int, step: int) -> Node:
    """The base with a slice along an axis replaced."""
    shape = c.shape_of(base)
    first, last = bounds_of(shape[axis], start, end)
    count = len(range(first, last, step))
    new = c.filled(c.to(new, c.dtype_of(base)), tuple(count if k == axis else d for k, d in enumerate(shape)))
    if step == 1:
        return c(ops.dynamic_update_slice, base, new, *(c.scalar(first if k == axis else 0, I64) for k in range(len(shape))))
    places = np.full(shape[axis], count)
    places[first:last:step] = np.arange(count)
    joined = c(ops.concatenate, new, base, dimension=axis)
    rest = np.where(places < count, places, count + np.arange(shape[axis]))
    return taken(c, joined, axis, rest)


def _slice_scatter(c: CallContext) -> Node:
    axis = c.axis("dim", 0)
    size = c.shape_of(c.node())[axis]
    return placed(c, c.node(), c.node(1), axis, c.number("start", 0), c.number("end", size), c.number("step", 1))


def _select_scatter(c: CallContext) -> Node:
    axis = c.axis("dim")
    index = c.number("index") % max(1, c.shape_of(c.node())[axis])
    return placed(c, c.node(), c.add_axes(c.node(1), (axis,)), axis, index, index + 1, 1)


PARTS: Rules = {
    **dict.fromkeys(("slice", "slice_copy"), _slice), **dict.fromkeys(("select", "select_copy"), _select),
    **dict.fromkeys(("narrow", "narrow_copy"), _narrow),
    **dict.fromkeys(("split", "split_with_sizes", "split_copy", "split_with_sizes_copy", "unsafe_split"), _split),
    **dict.fromkeys(("chunk", "unsafe_chunk"), _chunk), "tensor_split": _tensor_split, "hsplit": _split_along(1),
    "vsplit": _split_along(0), "dsplit": _split_along(2), "atleast_1d": _at_least(1), "atleast_2d": _at_least(2),
    "atleast_3d": _at_least(3), **dict.fromkeys(("unbind", "unbind_copy"), _unbind),
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat), "stack": _stack, "hstack": _stacked(1), "vstack": _stacked(0),
    "slice_scatter": _slice_scatter, "select_scatter": _select_scatter,
}  # fmt: skip
