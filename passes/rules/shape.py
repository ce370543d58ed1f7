"""Rules that shorten chains of reshape, transpose, broadcast, slice, pad, concatenate and reverse. All are exact.

A scalar is kept a scalar as long as it can be: elementwise ops take rank-0 operands for all elements, so broadcasts of
scalars beside a full operand are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from deepx_graph.ir import Builder, Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.literal import Literal
from deepx_graph.ops import (
    broadcast_in_dim,
    concatenate,
    ensure_type,
    get_dimension_size,
    identity,
    pad,
    reduce,
    reshape,
    reverse,
    slice_,
    transpose,
)
from deepx_graph.ops.tensor.layout import reshape_axes
from deepx_graph.rewrite.engine import Rule, rule
from deepx_graph.rewrite.pattern import X, is_number, op_of
from deepx_graph.types import ANY, Dims, TensorType, as_tensor


def dims_of(node: Node) -> Dims | None:
    """The dims of a tensor-typed node; None when there are none or the rank is not known."""
    return node.type.dims if isinstance(node.type, TensorType) else None


def static_dims(node: Node) -> tuple[int, ...] | None:
    """The dims of a node when all are known."""
    dims = dims_of(node)
    return None if dims is None or any(isinstance(d, str) for d in dims) else dims  # type: ignore[return-value]


def is_scalar(node: Node) -> bool:
    return dims_of(node) == ()


@rule(lambda op: op in (reshape, ensure_type))
def same_type(node: Node) -> Node | None:
    """reshape(x) = x, ensure_type(x) = x where x has that type"""
    known = isinstance(node.type, TensorType) and node.type.dims is not None and node.type.dtype is not ANY
    return node.inputs[0] if node.inputs[0].type == node.type and (known or node.op is ensure_type) else None


@rule(op_of(identity, X))
def identity_of_anything(x: Node) -> Node:
    """identity(x) = x"""
    return x


@rule(op_of(get_dimension_size, X))
def known_size(b: Builder, node: Node, x: Node) -> Node | None:
    """get_dimension_size(x) = a constant where the size is known"""
    dims = dims_of(x)
    size = None if dims is None else dims[node.attr("dimension")]
    return b.constant(np.int32(size)) if isinstance(size, int) else None


@rule(op_of(reshape, op_of(reshape, X)))
def reshape_twice(b: Builder, node: Node, x: Node) -> Node:
    """reshape(reshape(x)) = reshape(x)"""
    return b(reshape, x, shape=node.attr("shape"))


@rule(transpose)
def transpose_nothing(node: Node) -> Node | None:
    """transpose(x) = x for the permutation 0, 1, 2, ..."""
    return node.inputs[0] if node.attr("permutation") == tuple(range(len(node.attr("permutation")))) else None


@rule(op_of(transpose, op_of(transpose, X)))
def transpose_twice(b: Builder, node: Node, x: Node) -> Node:
    """transpose(transpose(x)) = transpose(x) by both permutations"""
    inner = node.inputs[0].attr("permutation")
    return b(transpose, x, permutation=tuple(inner[p] for p in node.attr("permutation")))


@rule(op_of(transpose, X))
def transpose_of_ones(b: Builder, node: Node, x: Node) -> Node | None:
    """transpose(x) = reshape(x) where only axes of size 1 move"""
    permutation = node.attr("permutation")
    dims = static_dims(x)
    if dims is None or not _moves_ones(dims, permutation):
        return None
    return b(reshape, x, shape=tuple(dims[p] for p in permutation))


def _moves_ones(dims: Sequence[int], permutation: Sequence[int]) -> bool:
    """Whether a permutation of axes moves those of size 1 alone."""
    moved = [p for p in permutation if dims[p] != 1]
    return moved == sorted(moved)


# --- broadcasts -----------------------------------------------------------------------------------------------------


@rule(op_of(broadcast_in_dim, X))
def broadcast_nothing(b: Builder, node: Node, x: Node) -> Node | None:
    """broadcast_in_dim(x) = x, or reshape(x), where nothing is repeated"""
    shape, at = node.attrs
    dims = static_dims(x)
    if x.type == node.type and at == tuple(range(len(shape))):
        return x
    if dims is None or x.op is CONSTANT or list(at) != sorted(at) or _size(dims) != _size(shape) or not dims:
        return None
    return b(reshape, x, shape=shape)


def _size(dims: Dims) -> int:
    return -1 if any(isinstance(d, str) for d in dims) else math.prod(dims)  # type: ignore[arg-type]


@rule(op_of(broadcast_in_dim, op_of(broadcast_in_dim, X)))
def broadcast_twice(b: Builder, node: Node, x: Node) -> Node:
    """broadcast_in_dim(broadcast_in_dim(x)) = broadcast_in_dim(x)"""
    (shape, at), (_, inner) = node.attrs, node.inputs[0].attrs
    return b(broadcast_in_dim, x, shape=shape, broadcast_dimensions=tuple(at[k] for k in inner))


@rule(op_of(transpose, op_of(broadcast_in_dim, X)))
def transpose_of_broadcast(b: Builder, node: Node, x: Node) -> Node:
    """transpose(broadcast_in_dim(x)) = broadcast_in_dim(x)"""
    permutation, (shape, at) = node.attr("permutation"), node.inputs[0].attrs
    moved = tuple(permutation.index(k) for k in at)
    return b(broadcast_in_dim, x, shape=tuple(shape[p] for p in permutation), broadcast_dimensions=moved)


@rule(op_of(broadcast_in_dim, op_of(transpose, X)))
def broadcast_of_transpose(b: Builder, node: Node, x: Node) -> Node:
    """broadcast_in_dim(transpose(x)) = broadcast_in_dim(x)"""
    shape, at = node.attrs
    permutation = node.inputs[0].attr("permutation")
    return b(broadcast_in_dim, x, shape=shape, broadcast_dimensions=tuple(at[permutation.index(k)] for k in range(len(at))))


@rule(op_of(broadcast_in_dim, op_of(reshape, X)))
def broadcast_of_reshape(b: Builder, node: Node, x: Node) -> Node | None:
    """broadcast_in_dim(reshape(x)) = broadcast_in_dim(x) where reshape only adds axes of size 1"""
    old, new = static_dims(x), static_dims(node.inputs[0])
    axes = None if old is None or new is None else reshape_axes(old, new)
    if axes is None or None in axes:
        return None
    shape, at = node.attrs
    return b(broadcast_in_dim, x, shape=shape, broadcast_dimensions=tuple(at[k] for k in axes))


@rule(lambda op: op in (reshape, slice_, reverse), over=(broadcast_in_dim,))
def move_of_filled(b: Builder, node: Node) -> Node | None:
    """reshape, slice and reverse of a broadcast scalar are broadcast scalars"""
    whole = node.inputs[0]
    if whole.op is not broadcast_in_dim or not is_scalar(whole.inputs[0]) or dims_of(node) is None:
        return None
    return b(broadcast_in_dim, whole.inputs[0], shape=dims_of(node), broadcast_dimensions=())


# --- elementwise ops on scalars that were made large ----------------------------------------------------------------


def as_scalar(b: Builder, node: Node) -> Node | None:
    """The rank-0 node that stands for this one in an elementwise op; None when its elements are not known to be equal."""
    if is_scalar(node):
        return node
    if node.op is broadcast_in_dim and is_scalar(node.inputs[0]):
        return node.inputs[0]
    value = splat_of(node)
    return None if value is None else b.literal(Literal(np.asarray(value)))


@rule(lambda op: op.elementwise and len(op.operands) > 1, over=(broadcast_in_dim, CONSTANT))
def scalar_operand(b: Builder, node: Node) -> Node | None:
    """op(x, broadcast_in_dim(s)) = op(x, s) where x has the shape of the result"""
    shape = dims_of(node)
    if not shape:
        return None
    scalars = [None if is_scalar(i) else as_scalar(b, i) for i in node.inputs]
    full = any(s is None and dims_of(i) == shape for s, i in zip(scalars, node.inputs, strict=True))
    if not full or not any(scalars):
        return None
    return b.make(node.op, tuple([s or i for s, i in zip(scalars, node.inputs, strict=True)]), node.attrs, node.type)


@rule(lambda op: op.elementwise and bool(op.operands), over=(broadcast_in_dim, CONSTANT))
def all_scalars(b: Builder, node: Node) -> Node | None:
    """op(broadcast_in_dim(s), broadcast_in_dim(t)) = broadcast_in_dim(op(s, t)) for scalars s, t"""
    if not dims_of(node) or static_dims(node) is None or all(i.op is CONSTANT for i in node.inputs):
        return None
    scalars = [as_scalar(b, i) for i in node.inputs]
    if None in scalars:
        return None
    attrs = node.named_attrs
    one = b(node.op, *scalars, **attrs)  # type: ignore[arg-type]
    return b(broadcast_in_dim, one, shape=dims_of(node), broadcast_dimensions=())


# --- cutting and joining --------------------------------------------------------------------------------------------


@rule(slice_)
def slice_everything(node: Node) -> Node | None:
    """slice(x) = x where all of x is taken"""
    start, limit, strides = node.attrs
    whole = dims_of(node.inputs[0]) == limit and not any(start) and all(s == 1 for s in strides)
    return node.inputs[0] if whole else None


@rule(op_of(slice_, op_of(slice_, X)))
def slice_twice(b: Builder, node: Node, x: Node) -> Node:
    """slice(slice(x)) = slice(x)"""
    first, second = node.inputs[0].attrs, node.attrs
    along = list(zip(first[0], first[2], *second, strict=True))
    # of an axis of which nothing is left, any place within x will do
    start = tuple(s + lo * t if lo < hi else s for s, t, lo, hi, _ in along)
    strides = tuple(t * u for _, t, _, _, u in along)
    # the last element taken, plus one: within x, and the stride does not reach past it
    limit = tuple(s + ((hi - lo - 1) // u) * u * t + 1 if lo < hi else s for s, (_, t, lo, hi, u) in zip(start, along, strict=True))
    return b(slice_, x, start_indices=start, limit_indices=limit, strides=strides)


@rule(slice_, over=(concatenate,))
def slice_of_part(b: Builder, node: Node) -> Node | None:
    """slice(concatenate(x, y)) = slice(x) where the slice lies in x"""
    x = node.inputs[0]
    axis, before = x.attr("dimension"), 0
    start, limit, strides = node.attrs
    for part in x.inputs:
        dims = static_dims(part)
        if dims is None:
            return None
        if before <= start[axis] and limit[axis] <= before + dims[axis]:
            low, high = (tuple(v - before if k == axis else v for k, v in enumerate(at)) for at in (start, limit))
            return b(slice_, part, start_indices=low, limit_indices=high, strides=strides)
        before += dims[axis]
    return None


@rule(pad)
def pad_nothing(node: Node) -> Node | None:
    """pad(x) = x where nothing is added or cut"""
    return node.inputs[0] if not any(map(any, node.attrs)) else None


@rule(concatenate)
def concatenate_one(b: Builder, node: Node) -> Node | None:
    """concatenate(x) = x, and parts without elements are left out"""
    axis = node.attr("dimension")
    kept = [i for i in node.inputs if (dims_of(i) or (None,) * (axis + 1))[axis] != 0]
    if len(node.inputs) == 1:
        return node.inputs[0]
    return b(concatenate, *kept, dimension=axis) if kept and len(kept) < len(node.inputs) else None


@rule(concatenate)
def concatenate_nested(b: Builder, node: Node) -> Node | None:
    """concatenate(concatenate(x, y), z) = concatenate(x, y, z)"""
    inner = node.inputs[0]
    if inner.op is not concatenate or inner.attrs != node.attrs or len(inner.inputs) > 64:
        return None
    return b(concatenate, *inner.inputs, *node.inputs[1:], dimension=node.attr("dimension"))


@rule(transpose, over=(concatenate,))
def transpose_of_concatenate(b: Builder, node: Node) -> Node | None:
    """transpose(concatenate(x, y)) = concatenate(reshape(x), reshape(y)) where only axes of size 1 of x and y move"""
    whole, permutation = node.inputs[0], node.attr("permutation")
    dims = map(static_dims, whole.inputs)
    if not all(d is not None and _moves_ones(d, permutation) for d in dims):
        return None
    parts = [b(transpose, x, permutation=permutation) for x in whole.inputs]
    return b(concatenate, *parts, dimension=permutation.index(whole.attr("dimension")))


@rule(reverse)
def reverse_ones(b: Builder, node: Node) -> Node | None:
    """reverse(x) = x along axes of size 1"""
    x, axes = node.inputs[0], node.attr("dimensions")
    kept = tuple(sorted(a for a in axes if (dims_of(x) or (2,) * (a + 1))[a] != 1))
    if not kept:
        return x
    return b(reverse, x, dimensions=kept) if kept != axes else None


@rule(reduce)
def reduce_of_ones(b: Builder, node: Node) -> Node | None:
    """reduce(x, init) = op(init, reshape(x)) along axes of size 1"""
    op = node.attr("body").reducer
    if op is None or len(node.inputs) != 2:
        return None
    x, init = node.inputs
    dims = static_dims(x)
    if dims is None or any(dims[d] != 1 for d in node.attr("dimensions")):
        return None
    flat = b(reshape, x, shape=dims_of(node))
    if op.identity is not None and is_number(init, op.identity_for(as_tensor(init.type).dtype)):
        return flat
    return b(op, flat, init)


SHAPES: tuple[Rule, ...] = tuple(v for v in dict(globals()).values() if isinstance(v, Rule))
"""All rules of this file, in order."""
