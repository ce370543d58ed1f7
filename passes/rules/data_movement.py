"""Rules of what moves, cuts and joins whole tensors, beyond the shortest chains of `shape`. All are exact.

Reshapes between elementwise operations sink below them, where they meet others and cancel. iota takes the
shape that is asked of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold
from typing import Any

from deepx_graph.ir import Builder, Node, Op
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import PARAM, PHI
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    concatenate,
    convert,
    dynamic_slice,
    dynamic_update_slice,
    iota,
    pad,
    reduce,
    reshape,
    reverse,
    slice_,
    transpose,
)
from deepx_graph.ops.tensor.layout import reshape_axes
from deepx_graph.passes.rules.arithmetic import is_integer
from deepx_graph.passes.rules.shape import dims_of, is_scalar, static_dims
from deepx_graph.rewrite.engine import Rule, rule
from deepx_graph.rewrite.pattern import X, op_of
from deepx_graph.types import BF16, F16, F32, F64, DType

Axes = tuple[int, ...]

MOST_PARTS = 32
"""A sum of more tensors is not looked at for where it is zero."""


# --- reshape --------------------------------------------------------------------------------------------------------


@rule(op_of(broadcast_in_dim, op_of(reshape, X)))
def broadcast_of_squeeze(b: Builder, node: Node, x: Node) -> Node | None:
    """broadcast_in_dim(reshape(x)) = broadcast_in_dim(x) where reshape drops axes of size 1 and the result has room for them"""
    old, new = static_dims(x), static_dims(node.inputs[0])
    kept = reshape_axes(new, old) if old is not None and new else None  # a scalar stays one: elementwise ops take it as it is
    if old is None or kept is None or None in kept:
        return None
    shape, at = node.attrs
    free = iter(k for k in range(len(shape)) if k not in at)
    placed = dict(zip(kept, at, strict=True))
    axes = [placed[k] if k in placed else next(free, None) for k in range(len(old))]
    return None if None in axes else b(broadcast_in_dim, x, shape=shape, broadcast_dimensions=tuple(axes))


@rule(op_of(reshape, op_of(broadcast_in_dim, X)))
def reshape_of_broadcast(b: Builder, node: Node, x: Node) -> Node | None:
    """reshape(broadcast_in_dim(x)) = broadcast_in_dim(x) where reshape only adds or drops axes of size 1 that x does not have"""
    old, new = static_dims(node.inputs[0]), static_dims(node)
    if old is None or new is None:
        return None
    moved = _moved_axes(old, new)
    at = node.inputs[0].attr("broadcast_dimensions")
    if moved is None or any(k not in moved for k in at):
        return None
    return b(broadcast_in_dim, x, shape=new, broadcast_dimensions=tuple(moved[k] for k in at))


def _moved_axes(old: Axes, new: Axes) -> dict[int, int] | None:
    """The axes of `old` that are not of size 1, as axes of `new`; None when more than axes of size 1 differ."""
    axes = reshape_axes(old, new)
    return None if axes is None else {k: axis for k, axis in enumerate(axes) if axis is not None and old[k] != 1}


@rule(lambda op: op.elementwise and bool(op.operands), over=(reshape,))
def reshape_sinks(b: Builder, node: Node) -> Node | None:
    """op(reshape(x), reshape(y)) = reshape(op(x, y)) where x and y have one shape, and with scalars"""
    moved = {i for i in node.inputs if i.op is reshape and not is_scalar(i)}
    if any(i.inputs[0].op is dynamic_slice for i in moved):
        return None  # a row that a loop reads: below, it meets values without the row's axis, and one kernel with them
    shapes = {dims_of(i.inputs[0]) for i in moved}
    if len(shapes) != 1 or None in shapes or () in shapes or static_dims(node) is None:
        return None
    if not all(i in moved or is_scalar(i) for i in node.inputs):
        return None
    attrs = node.named_attrs
    return b(reshape, b(node.op, *(i.inputs[0] if i in moved else i for i in node.inputs), **attrs), shape=dims_of(node))


MOST_ROWS = 4
"""Elementwise operations are done for each row of a stack of at most so many."""


@rule(lambda op: op.elementwise and bool(op.operands), over=(concatenate,))
def elementwise_of_stack(b: Builder, node: Node) -> Node | None:
    """op(concatenate(x, y), z) = concatenate(op(x, slice(z)), op(y, slice(z))) of rows: what takes rows again meets elements"""
    shape = static_dims(node)
    if shape is None or len(shape) < 2 or not 1 < shape[0] <= MOST_ROWS or not any(_is_stack(i) for i in node.inputs):
        return None
    if not all(is_scalar(i) or (static_dims(i) == shape and (_is_stack(i) or i.op in (PARAM, PHI))) for i in node.inputs):
        return None  # what was computed whole would be read again, row by row
    rows = [b(node.op, *(i if is_scalar(i) else _row(b, i, k) for i in node.inputs), **node.named_attrs) for k in range(shape[0])]
    return b(concatenate, *rows, dimension=0)


def _is_stack(x: Node) -> bool:
    """Whether a tensor is made of its rows."""
    return x.op is concatenate and x.attr("dimension") == 0 and all((static_dims(i) or (0,))[0] == 1 for i in x.inputs)


def _row(b: Builder, x: Node, k: int) -> Node:
    if _is_stack(x):
        return x.inputs[k]
    rest = (static_dims(x) or ())[1:]
    return b(slice_, x, start_indices=(k, *(0 for _ in rest)), limit_indices=(k + 1, *rest), strides=(1, *(1 for _ in rest)))


MOST_PARTS = 16
"""A reduction of so many parts at most is said as operations on them."""


@rule(reduce, over=(concatenate,))
def reduce_of_stack(b: Builder, node: Node) -> Node | None:
    """reduce(concatenate(x, y), init) = op(op(init, x), y) of single elements along the axis, where order does not matter"""
    stack, op = node.inputs[0], node.attr("body").reducer
    if stack.op is not concatenate or op is None or op.monoid is None or len(node.inputs) != 2:
        return None
    axis, shape = stack.attr("dimension"), static_dims(node)
    if shape is None or node.attr("dimensions") != (axis,) or not (op.idempotent or is_integer(stack)):
        return None
    if len(stack.inputs) > MOST_PARTS or any((static_dims(part) or (0,) * (axis + 1))[axis] != 1 for part in stack.inputs):
        return None
    return fold(lambda x, part: b(op, x, b(reshape, part, shape=shape)), stack.inputs, node.inputs[1])


# --- iota -----------------------------------------------------------------------------------------------------------


@rule(lambda op: op in (broadcast_in_dim, reshape, transpose), over=(iota,))
def iota_in_shape(b: Builder, node: Node) -> Node | None:
    """broadcast_in_dim(iota) = iota, reshape(iota) = iota, transpose(iota) = iota where its axis stays whole"""
    steps, shape = node.inputs[0], static_dims(node)
    if steps.op is not iota or shape is None:
        return None
    dtype, old, axis = steps.attrs
    if node.op is broadcast_in_dim:
        to: int | None = node.attr("broadcast_dimensions")[axis]
    elif node.op is transpose:
        to = node.attr("permutation").index(axis)
    else:
        moved = _moved_axes(old, shape) if all(isinstance(d, int) for d in old) else None
        to = None if moved is None else moved.get(axis)
    return None if to is None or shape[to] != old[axis] else b(iota, dtype=dtype, shape=shape, iota_dimension=to)


@rule(op_of(convert, op_of(iota)))
def convert_of_iota(b: Builder, node: Node) -> Node | None:
    """convert(iota) = iota where both types hold all its numbers"""
    dtype, shape, axis = node.inputs[0].attrs
    to: DType = node.attr("dtype")
    count = shape[axis]
    fits = isinstance(count, int) and to.kind in ("int", "uint", "float") and dtype.kind in ("int", "uint", "float")
    if not fits or count - 1 > min(_whole_numbers(dtype), _whole_numbers(to)):
        return None
    return b(iota, dtype=to, shape=shape, iota_dimension=axis)


_PRECISION = {F64: 53, F32: 24, BF16: 8, F16: 11}


def _whole_numbers(dtype: DType) -> int:
    """Up to this number, every whole number is a value of the type; -1 for one of which it is not known here."""
    if dtype.is_integer:
        return (1 << (dtype.bits - (dtype.kind == "int"))) - 1
    return (1 << _PRECISION[dtype]) if dtype in _PRECISION else -1


# --- reverse --------------------------------------------------------------------------------------------------------


@rule(reverse, over=(reverse,))
def reverse_twice(b: Builder, node: Node) -> Node | None:
    """reverse(reverse(x)) = reverse(x) along the axes of one of both"""
    x = node.inputs[0].inputs[0]
    axes = tuple(sorted(set(node.attr("dimensions")) ^ set(node.inputs[0].attr("dimensions"))))
    return b(reverse, x, dimensions=axes) if axes else x


@rule(reverse, over=(broadcast_in_dim,))
def reverse_of_repeated(b: Builder, node: Node) -> Node | None:
    """reverse(broadcast_in_dim(x)) = broadcast_in_dim(x) along axes that repeat x"""
    at, dims = node.inputs[0].attr("broadcast_dimensions"), dims_of(node.inputs[0].inputs[0])
    if dims is None:
        return None
    varying = {place for place, size in zip(at, dims, strict=True) if size != 1}
    kept = tuple(a for a in node.attr("dimensions") if a in varying)
    if len(kept) == len(node.attr("dimensions")):
        return None
    return b(reverse, node.inputs[0], dimensions=kept) if kept else node.inputs[0]


# --- slice, concatenate, pad ----------------------------------------------------------------------------------------


@rule(slice_, over=(concatenate,))
def slice_of_some_parts(b: Builder, node: Node) -> Node | None:
    """slice(concatenate(x, y, z)) = slice(concatenate(x, y)) where nothing of z is taken"""
    whole = node.inputs[0]
    axis = whole.attr("dimension")
    start, limit, strides = node.attrs
    sizes = [(static_dims(p) or ())[axis : axis + 1] for p in whole.inputs]
    if () in sizes or start[axis] >= limit[axis]:
        return None
    ends = [0]
    for (size,) in sizes:
        ends.append(ends[-1] + size)
    kept = [k for k in range(len(sizes)) if ends[k + 1] > start[axis] and ends[k] < limit[axis]]
    if len(kept) in (len(sizes), 0):
        return None
    before = ends[kept[0]]
    part = b(concatenate, *(whole.inputs[k] for k in kept), dimension=axis)
    low, high = (tuple(v - before if k == axis else v for k, v in enumerate(at)) for at in (start, limit))
    return b(slice_, part, start_indices=low, limit_indices=high, strides=strides)


@rule(concatenate, over=(slice_,))
def concatenate_of_neighbours(b: Builder, node: Node) -> Node | None:
    """concatenate(slice(x, 0:2), slice(x, 2:5)) = slice(x, 0:5)"""
    axis = node.attr("dimension")
    joined: list[Node] = []
    for part in node.inputs:
        if joined and _continues(joined[-1], part, axis):
            start, _, strides = joined[-1].attrs
            joined[-1] = b(slice_, part.inputs[0], start_indices=start, limit_indices=part.attr("limit_indices"), strides=strides)
            if joined[-1].op is not slice_:
                return joined[-1] if len(joined) == 1 and part is node.inputs[-1] else None
        else:
            joined.append(part)
    if len(joined) == len(node.inputs):
        return None
    return b(concatenate, *joined, dimension=axis) if len(joined) > 1 else joined[0]


def _continues(first: Node, second: Node, axis: int) -> bool:
    """Whether two slices of one tensor lie side by side along the axis, and alike along all others."""
    if first.op is not slice_ or second.op is not slice_ or first.inputs[0] is not second.inputs[0]:
        return False
    (low, high, step), (start, limit, strides) = first.attrs, second.attrs
    same = all(k == axis or (low[k], high[k], step[k]) == (start[k], limit[k], strides[k]) for k in range(len(low)))
    return same and step[axis] == strides[axis] == 1 and high[axis] == start[axis]


@rule(pad, over=(pad,))
def pad_twice(b: Builder, node: Node) -> Node | None:
    """pad(pad(x, y), y) = pad(x, y) where nothing is put between, and nothing cut and put back"""
    if node.inputs[0].op is not pad or node.inputs[0].inputs[1] is not node.inputs[1]:
        return None
    (x, y), inner = node.inputs[0].inputs, node.inputs[0].attrs
    low, high, interior = node.attrs
    if any(interior) or any(a < 0 < c for first, second in ((inner[0], low), (inner[1], high))
                            for a, c in zip(first, second, strict=True)):
        return None
    return _repadded(b, node, x, y, _sum(inner[0], low), _sum(inner[1], high), inner[2])


def _repadded(b: Builder, node: Node, x: Node, value: Node, low: Axes, high: Axes, interior: Axes) -> Node | None:
    """`x` padded to the type of `node`; None where so much is cut that nothing of x is left, as then sizes do not add up."""
    dims = static_dims(x)
    if dims is None or any(d + max(0, d - 1) * i + min(lo, 0) + min(hi, 0) < 0
                           for d, lo, hi, i in zip(dims, low, high, interior, strict=True)):
        return None
    return b(pad, x, value, edge_padding_low=low, edge_padding_high=high, interior_padding=interior)


def _sum(a: Sequence[int], c: Sequence[int]) -> Axes:
    return tuple(x + y for x, y in zip(a, c, strict=True))


@rule(lambda op: op.elementwise and len(op.operands) > 1, over=(pad,))
def elementwise_of_padded(b: Builder, node: Node) -> Node | None:
    """op(pad(x, p), pad(y, q)) = pad(op(x, y), op(p, q)) where both are padded alike; scalars may stand beside them"""
    padded = [i for i in node.inputs if i.op is pad]
    if len(padded) < 2 or len({i.attrs for i in padded}) > 1 or not all(i.op is pad or is_scalar(i) for i in node.inputs):
        return None
    return _padded_alike(b, node.op, node.inputs, padded[0], **node.named_attrs)


def _padded_alike(b: Builder, op: Op, inputs: Sequence[Node], like: Node, **attrs: Any) -> Node | None:
    """What an elementwise operation makes of tensors padded alike, and of scalars; None where tensors differ in their shape."""
    if len({i.inputs[0].type.dims for i in inputs if i.op is pad}) > 1:  # type: ignore[attr-defined]
        return None
    x, value = (b(op, *(i.inputs[k] if i.op is pad else i for i in inputs), **attrs) for k in (0, 1))
    return b(pad, x, value, **like.named_attrs)


@rule(add, over=(pad,))
def sum_with_padded(b: Builder, node: Node) -> Node | None:
    """(x + pad(y, 0)) + pad(z, 0) = x + pad(y + z, 0) where both are padded alike, and x is zero there or of integers"""
    for inner, last in (node.inputs, node.inputs[::-1]):
        for x, first in (inner.inputs, inner.inputs[::-1]) if inner.op is add and last.op is pad else ():
            are_alike = first.op is pad and first.attrs == last.attrs and all(_is_zero(i.inputs[1]) for i in (first, last))
            if are_alike and (is_integer(x) or _is_zero_where(x, last)):
                both = _padded_alike(b, add, (first, last), last)
                return None if both is None else b(add, x, both)
    return None


def _is_zero(node: Node) -> bool:
    return splat_of(node) == 0


def _is_zero_where(x: Node, padded: Node) -> bool:
    """Whether `x`, a sum of tensors padded with zeros, is zero wherever there are elements of another padded tensor."""
    parts = [x]
    for part in parts:
        if part.op is add:
            parts += part.inputs
        elif not _is_zero(part) and not (part.op is pad and _is_zero(part.inputs[1]) and _are_apart(part, padded)):
            return False
        if len(parts) > MOST_PARTS:
            return False
    return True


def _are_apart(first: Node, second: Node) -> bool:
    """Whether elements of two tensors that are padded to one shape stand apart along an axis."""
    ranges = []
    for node in (first, second):
        dims, (low, _, interior) = static_dims(node.inputs[0]), node.attrs
        if dims is None:
            return False
        ranges.append([(lo, lo + d + (d - 1) * i) for lo, d, i in zip(low, dims, interior, strict=True)])
    return any(a[1] <= c[0] or c[1] <= a[0] for a, c in zip(*ranges, strict=True))


@rule(slice_, over=(pad,))
def slice_of_padded(b: Builder, node: Node) -> Node | None:
    """slice(pad(x, y)) = pad(x, y), or slice(x) where only x is taken"""
    padded = node.inputs[0]
    x, value = padded.inputs
    low, high, interior = padded.attrs
    start, limit, strides = node.attrs
    dims, whole = static_dims(x), static_dims(padded)
    if dims is None or whole is None or any(interior):
        return None
    if all(s >= lo and e <= lo + d for s, e, lo, d in zip(start, limit, low, dims, strict=True)):
        inside = (tuple(v - lo for v, lo in zip(at, low, strict=True)) for at in (start, limit))
        return b(slice_, x, **dict(zip(("start_indices", "limit_indices"), inside, strict=True)), strides=strides)
    if any(s != 1 for s in strides):
        return None
    return _repadded(b, node, x, value, _sum(low, tuple(-s for s in start)),
                     tuple(h + e - w for h, e, w in zip(high, limit, whole, strict=True)), interior)


# --- slices at computed indices ---------------------------------------------------------------------------------------


@rule(dynamic_slice)
def dynamic_slice_at_known(b: Builder, node: Node) -> Node | None:
    """dynamic_slice(x, 1, 2) = slice(x), and x where all of it is taken"""
    x, dims, sizes = node.inputs[0], static_dims(node.inputs[0]), node.attr("slice_sizes")
    if dims is None:
        return None
    if dims == sizes:
        return x
    starts = _known_starts(node.inputs[1:], dims, sizes)
    if starts is None:
        return None
    return b(slice_, x, start_indices=starts, limit_indices=_sum(starts, sizes), strides=(1,) * len(sizes))


@rule(dynamic_update_slice)
def update_everything(node: Node) -> Node | None:
    """dynamic_update_slice(x, y) = y where y is as large as x"""
    return node.inputs[1] if node.inputs[1].type == node.type and static_dims(node) is not None else None


def _known_starts(starts: Sequence[Node], dims: Axes, sizes: Axes) -> Axes | None:
    """Where a slice starts, moved inside; None where that is not known. An axis taken whole starts at 0, whatever is asked."""
    found = []
    for start, whole, size in zip(starts, dims, sizes, strict=True):
        value = 0 if whole == size else splat_of(start)
        if value is None:
            return None
        found.append(min(max(0, int(value)), whole - size))
    return tuple(found)


MOVES: tuple[Rule, ...] = tuple(v for v in dict(globals()).values() if isinstance(v, Rule))
"""All rules of this file, in order."""
