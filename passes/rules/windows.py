"""Rules of windows, contractions, gathers, scatters and sorts: what they do themselves need not be done before. All are exact.

Padding that stands before a window operation becomes its own padding; transposes before a contraction become dimension numbers;
a gather or scatter at one known place is a slice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from deepx_graph.ir import Builder, Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import CONSTANT, PARAM, TUPLE, value_of
from deepx_graph.ops import (
    compare,
    convolution,
    dot_general,
    dynamic_slice,
    dynamic_update_slice,
    gather,
    pad,
    reduce,
    reduce_window,
    reshape,
    scatter,
    slice_,
    sort,
    transpose,
)
from deepx_graph.ops.contract.linear import transposed
from deepx_graph.passes.rules.arithmetic import is_integer
from deepx_graph.passes.rules.shape import dims_of, static_dims
from deepx_graph.rewrite.engine import Rule, rule
from deepx_graph.types import as_tensor

Axes = tuple[int, ...]


def attrs_of(node: Node, **changed: Any) -> dict[str, Any]:
    """The attributes of a node by name, some of them changed."""
    return node.named_attrs | changed


# --- padding before windows -----------------------------------------------------------------------------------------


@rule(reduce_window, over=(pad,))
def window_of_padded(b: Builder, node: Node) -> Node | None:
    """reduce_window(pad(x, init), init) = reduce_window(x, init) with more padding"""
    if len(node.inputs) != 2 or node.inputs[0].op is not pad or node.inputs[0].inputs[1] is not node.inputs[1]:
        return None
    x, init = node.inputs[0].inputs
    given = _more_padding(node.inputs[0].attrs, node.attr("padding_low"), node.attr("padding_high"), node.attr("base_dilations"))
    if given is None:
        return None
    low, high, base = given
    return b(reduce_window, x, init, **attrs_of(node, padding_low=low, padding_high=high, base_dilations=base))


def _more_padding(padded: Sequence[Axes], low: Axes, high: Axes, base: Axes) -> tuple[Axes, Axes, Axes] | None:
    """Padding and dilation of a window operation together with the pad before it; None where one cannot say both.

    A gap put in before the window's own padding is dilation; edges may not be dilated, nor cut and put back.
    """
    inner_low, inner_high, interior = padded
    for values in zip(inner_low, inner_high, low, high, interior, base, strict=True):
        first, last, more_low, more_high, gap, dilation = values
        if min(first, last, more_low, more_high) < 0 or (dilation != 1 and (first or last or gap)):
            return None
    return (tuple(map(sum, zip(inner_low, low, strict=True))), tuple(map(sum, zip(inner_high, high, strict=True))),
            tuple(d if d != 1 else g + 1 for d, g in zip(base, interior, strict=True)))


@rule(convolution, over=(pad,))
def convolution_of_padded(b: Builder, node: Node) -> Node | None:
    """convolution(pad(x, 0), y) = convolution(x, y) with more padding, where only spatial axes are padded"""
    padded = node.inputs[0]
    spatial: Axes = node.attr("input_spatial_dimensions")
    if padded.op is not pad or not _is_plus_zero(padded.inputs[1]):
        return None
    if any(values[k] for values in padded.attrs for k in range(len(padded.attr("edge_padding_low"))) if k not in spatial):
        return None
    on_spatial = [tuple(values[k] for k in spatial) for values in padded.attrs]
    given = _more_padding(on_spatial, node.attr("padding_low"), node.attr("padding_high"), node.attr("lhs_dilation"))
    if given is None:
        return None
    low, high, dilation = given
    changed = attrs_of(node, padding_low=low, padding_high=high, lhs_dilation=dilation)
    return b(convolution, padded.inputs[0], node.inputs[1], **changed)


def _is_plus_zero(node: Node) -> bool:
    value = splat_of(node)
    return value is not None and as_tensor(node.type).dtype.kind != "complex" and value == 0 and math.copysign(1.0, value) > 0


@rule(reduce_window)
def window_of_ones(b: Builder, node: Node) -> Node | None:
    """reduce_window(x, init) = op(x, init), or x, for windows of one element side by side"""
    op = node.attr("body").reducer
    if op is None or op.monoid is None or len(node.inputs) != 2:
        return None
    if dims_of(node) is None or dims_of(node.inputs[0]) != dims_of(node):
        return None
    ones = ("window_dimensions", "window_strides", "base_dilations")
    if any(v != 1 for name in ones for v in node.attr(name)) or any((*node.attr("padding_low"), *node.attr("padding_high"))):
        return None
    x, init = node.inputs
    value = splat_of(init)
    unit = op.identity_for(as_tensor(init.type).dtype)
    same = value is not None and unit is not None and bool(value == unit)
    return x if same and (value != 0 or math.copysign(1, value.real) == math.copysign(1, unit)) else b(op, x, init)


@rule(reshape, over=(reduce_window,))
def window_of_everything(b: Builder, node: Node) -> Node | None:
    """reshape(reduce_window(x, init)) = reshape(reduce(x, init)) for one window over all of an axis, where order does not matter"""
    window = node.inputs[0]
    x = window.inputs[0]
    op, dims = window.attr("body").reducer, static_dims(x)
    plain = all(v == 1 for name in ("base_dilations", "window_dilations") for v in window.attr(name))
    padded = any((*window.attr("padding_low"), *window.attr("padding_high")))
    if op is None or dims is None or len(window.inputs) != 2 or padded or not plain or not (op.idempotent or is_integer(x)):
        return None
    sizes, strides = window.attr("window_dimensions"), window.attr("window_strides")
    axes = tuple(k for k, (d, s) in enumerate(zip(dims, sizes, strict=True)) if d == s and d > 1)
    if not axes or any(k not in axes and (sizes[k], strides[k]) != (1, 1) for k in range(len(dims))):
        return None
    total = b(reduce, x, window.inputs[1], dimensions=axes, body=window.attr("body"))
    return b(reshape, total, shape=node.attr("shape"))


# --- contractions ---------------------------------------------------------------------------------------------------


@rule(dot_general, over=(transpose,))
def dot_of_transposed(b: Builder, node: Node) -> Node | None:
    """dot_general(transpose(x), y) = dot_general(x, y) where the axes that stay keep their order"""
    operands, attrs = list(node.inputs), attrs_of(node)
    for k, side in enumerate(("lhs", "rhs")):
        batch, contract = f"{side}_batching_dimensions", f"{side}_contracting_dimensions"
        if operands[k].op is not transpose:
            continue
        order = operands[k].attr("permutation")
        free = [order[d] for d in range(len(order)) if d not in attrs[batch] + attrs[contract]]
        if free == sorted(free):
            operands[k] = operands[k].inputs[0]
            attrs |= {name: tuple(order[d] for d in attrs[name]) for name in (batch, contract)}
    return b(dot_general, *operands, **attrs) if tuple(operands) != node.inputs else None


@rule(transpose, over=(dot_general,), exact=is_integer)
def transpose_of_dot(b: Builder, node: Node) -> Node | None:
    """transpose(dot_general(x, y)) = dot_general(y, x) for integers, where the axes of x and y change places"""
    return transposed(b, node.inputs[0], node.attr("permutation"))


transpose_of_float_dot = transpose_of_dot.under_fast_math("transpose-of-float-dot")


# --- gathers and scatters that are slices ---------------------------------------------------------------------------


@rule(gather, over=(CONSTANT,))
def gather_at_known(b: Builder, node: Node) -> Node | None:
    """gather(x, c) = slice(x) for one known place and no axis left out"""
    x, indices = node.inputs
    dims = static_dims(x) if static_dims(node) is not None else None
    if dims is None or _is_batched(node, indices) or node.attr("collapsed_slice_dims"):
        return None
    starts = _starts(indices, node.attr("start_index_map"), dims)
    sizes: Axes = node.attr("slice_sizes")
    if starts is None or node.attr("offset_dims") != tuple(range(len(dims))):
        return None
    inside = tuple(min(max(0, s), d - n) for s, d, n in zip(starts, dims, sizes, strict=True))
    return b(slice_, x, start_indices=inside, limit_indices=tuple(s + n for s, n in zip(inside, sizes, strict=True)),
             strides=(1,) * len(dims))


@rule(gather, over=(reshape,))
def gather_of_one(b: Builder, node: Node) -> Node | None:
    """gather(x, reshape(i)) = reshape(dynamic_slice(x, i)) for one index i"""
    x, indices = node.inputs
    dims = static_dims(x) if static_dims(node) is not None else None
    index_map: Axes = node.attr("start_index_map")
    if dims is None or indices.op is not reshape or _is_batched(node, indices) or len(index_map) != 1:
        return None
    i = indices.inputs[0]
    if dims_of(i) != () or node.attr("offset_dims") != tuple(range(len(dims_of(node) or ()))):
        return None
    zero = b.like(0, i)
    part = b(dynamic_slice, x, *(i if k == index_map[0] else zero for k in range(len(dims))), slice_sizes=node.attr("slice_sizes"))
    return part if part.type == node.type else b(reshape, part, shape=dims_of(node))


@rule(scatter, over=(CONSTANT,))
def scatter_at_known(b: Builder, node: Node) -> Node | None:
    """scatter(x, c, y) = dynamic_update_slice(x, y) where y replaces what stands at one known place, and fits"""
    if len(node.inputs) != 3 or node.attr("inserted_window_dims"):
        return None
    x, indices, updates = node.inputs
    body = node.attr("update_computation")
    dims, sizes = static_dims(x), static_dims(updates)
    if dims is None or sizes is None or body.results[0] is not body.params[1] or _is_batched(node, indices):
        return None
    starts = _starts(indices, node.attr("scatter_dims_to_operand_dims"), dims)
    if starts is None or node.attr("update_window_dims") != tuple(range(len(dims))):
        return None
    if any(s < 0 or s + n > d for s, n, d in zip(starts, sizes, dims, strict=True)):
        return None
    return b(dynamic_update_slice, x, updates, *(b.like(s, indices) for s in starts))


def _is_batched(node: Node, indices: Node) -> bool:
    """Whether there is more than one index vector, or may be."""
    shape = static_dims(indices)
    batching = "operand_batching_dims" if node.op is gather else "input_batching_dims"
    return shape is None or len(shape) != 1 or node.attr("index_vector_dim") != 0 or bool(node.attr(batching))


def _starts(indices: Node, index_map: Axes, dims: Axes) -> list[int] | None:
    """Where the one slice starts on every axis of a tensor of those dims; None when that is not known."""
    if indices.op is not CONSTANT:
        return None
    starts = [0] * len(dims)
    for axis, value in zip(index_map, value_of(indices).array.reshape(-1).tolist(), strict=True):
        starts[axis] = int(value)
    return starts


# --- sort -----------------------------------------------------------------------------------------------------------


@rule(sort)
def sort_of_ones(b: Builder, node: Node) -> Node | None:
    """sort(x) = x along an axis of size 1"""
    dims = dims_of(node.inputs[0])
    if dims is None or (dims and dims[node.attr("dimension")] not in (0, 1)):
        return None
    return node.inputs[0] if len(node.inputs) == 1 else b(TUPLE, *node.inputs)


@rule(sort, over=(sort,))
def sort_twice(node: Node) -> Node | None:
    """sort(sort(x)) = sort(x) for integers, by the same comparison along the same axis"""
    inner = node.inputs[0]
    if inner.op is not sort or len(node.inputs) != 1 or not is_integer(inner) or inner.attr("dimension") != node.attr("dimension"):
        return None
    comparator = node.attr("comparator")
    simple = comparator.results[0].op is compare and all(i.op is PARAM for i in comparator.results[0].inputs)
    return inner if simple and inner.attr("comparator") == comparator else None


WINDOWS: tuple[Rule, ...] = tuple(v for v in dict(globals()).values() if isinstance(v, Rule))
"""All rules of this file, in order."""
