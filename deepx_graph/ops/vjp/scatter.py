"""The gradient of scatter where updates are added, subtracted or multiplied, replace the old, or compete as an extreme.

What scatter writes, gather reads. Gather moves slices inside where scatter drops elements, so it reads from a copy with a margin of
zeros. Of several updates put in one position the last takes the cotangent; those that equal an extreme share it, the old value too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.ir.op import Cotangents
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.ops.contract.reduce import broadcast_in_dim, monoid_body
from deepx_graph.ops.math.elementwise import (
    add,
    clamp,
    compare,
    convert,
    divide,
    maximum,
    minimum,
    multiply,
    negate,
    select,
    subtract,
)
from deepx_graph.ops.tensor.index import gather, replacing, scatter
from deepx_graph.ops.tensor.layout import reshape
from deepx_graph.ops.tensor.shape import iota, pad
from deepx_graph.types import I32, I64, DType, as_tensor

Axes = tuple[int, ...]


def scatter_vjp(b: Builder, node: Node, g: Node | Sequence[Node | None]) -> Cotangents:
    """See the module. Raises InferError for another body, and for several inputs that are not simply replaced."""
    count = len(node.inputs) // 2
    body: Function = node.attr("update_computation")
    items = g if isinstance(g, Sequence) else (g,)
    if body.results == body.params[count:]:
        pairs = [(None, None) if i is None else _replaced(b, node, i, as_tensor(u.type).dtype)
                 for i, u in zip(items, node.inputs[count + 1 :], strict=True)]  # fmt: skip
        return *(p[0] for p in pairs), None, *(p[1] for p in pairs)
    rule = _RULES.get(body.results[0].op) if count == 1 and (body.reducer or _subtracts(body)) else None
    if rule is None or items[0] is None:
        raise InferError(f"scatter has no gradient for the body '{body.name}'")
    by_operand, by_updates = rule(b, node, items[0])
    return by_operand, None, by_updates


def _subtracts(body: Function) -> bool:
    return body.results[0].op is subtract and body.results[0].inputs == body.params


def _again(b: Builder, node: Node, x: Node, updates: Node, body: Function) -> Node:
    """The same positions of `x` combined with other updates."""
    attrs = node.named_attrs
    return b(scatter, x, _indices(node), updates, **{**attrs, "update_computation": body})


def _indices(node: Node) -> Node:
    return node.inputs[len(node.inputs) // 2]


# --- reading where scatter writes ---------------------------------------------------------------------------------


def _read(b: Builder, node: Node, x: Node) -> Node:
    """For each update element the element of `x`, shaped as the operand, at its position; 0 where it is dropped."""
    sizes, axes = _slice_sizes(node), node.attr("scatter_dims_to_operand_dims")
    indices, shape = _indices(node), as_tensor(x.type).shape
    if not _surely_inside(indices, node.attr("index_vector_dim"), [shape[a] - sizes[a] for a in axes]):
        margin = tuple(sizes[k] if k in axes else 0 for k in range(len(shape)))
        x = b(pad, x, b.like(0, x), edge_padding_low=margin, edge_padding_high=margin, interior_padding=(0,) * len(shape))
        indices = _shifted(b, node, [sizes[a] for a in axes], [shape[a] for a in axes])
    return b(gather, x, indices, offset_dims=node.attr("update_window_dims"),
             collapsed_slice_dims=node.attr("inserted_window_dims"), operand_batching_dims=node.attr("input_batching_dims"),
             start_index_map=axes, slice_sizes=sizes,
             start_indices_batching_dims=node.attr("scatter_indices_batching_dims"),
             index_vector_dim=node.attr("index_vector_dim"))  # fmt: skip


def _slice_sizes(node: Node) -> Axes:
    """How much of each operand axis one update covers."""
    single = node.attr("inserted_window_dims") + node.attr("input_batching_dims")
    update = as_tensor(node.inputs[-1].type).shape
    window = iter(node.attr("update_window_dims"))
    return tuple(1 if k in single else update[next(window)] for k in range(len(as_tensor(node.inputs[0].type).shape)))


def _surely_inside(indices: Node, vector_dim: int, limits: Sequence[int]) -> bool:
    if indices.op is not CONSTANT:
        return False
    array = value_of(indices).array
    vectors = array[..., None] if vector_dim == array.ndim else np.moveaxis(array, vector_dim, -1)
    return bool(np.all((vectors >= 0) & (vectors <= np.asarray(limits))))


def _shifted(b: Builder, node: Node, sizes: Sequence[int], whole: Sequence[int]) -> Node:
    """Start indices into the operand with a margin: those that hit nothing moved just outside."""
    indices, vector_dim = _indices(node), node.attr("index_vector_dim")
    if as_tensor(indices.type).dtype not in (I32, I64):
        indices = b(convert, indices, dtype=I64)
    margin = _vector(b, indices, vector_dim, sizes)
    lowest = _vector(b, indices, vector_dim, [-s for s in sizes])
    return b(add, b(clamp, lowest, indices, _vector(b, indices, vector_dim, whole)), margin)


def _vector(b: Builder, indices: Node, vector_dim: int, values: Sequence[int]) -> Node:
    """The same values for every index vector."""
    type = as_tensor(indices.type)
    if len(set(values)) == 1:
        return b.like(values[0], indices)
    return b(broadcast_in_dim, b.constant(values, type.dtype), shape=type.shape, broadcast_dimensions=(vector_dim,))


# --- one rule for each body ---------------------------------------------------------------------------------------


def _added(b: Builder, node: Node, g: Node) -> tuple[Node, Node]:
    return g, _read(b, node, g)


def _subtracted(b: Builder, node: Node, g: Node) -> tuple[Node, Node]:
    return g, b(negate, _read(b, node, g))


def _replaced(b: Builder, node: Node, g: Node, dtype: DType) -> tuple[Node, Node]:
    updates = as_tensor(node.inputs[-1].type).with_dtype(dtype)
    by_operand = _again(b, node, g, b.splat(0, updates), replacing(dtype))
    by_updates = _read(b, node, g)
    if _is_one_slice(node):
        return by_operand, by_updates
    count = math.prod(updates.shape)
    numbers = b(add, b(reshape, b(iota, dtype=I32, shape=(count,)), shape=updates.shape), b.constant(1, I32))
    nobody = b.splat(0, as_tensor(node.inputs[0].type).with_dtype(I32))
    last = _read(b, node, _again(b, node, nobody, numbers, replacing(I32)))
    return by_operand, b(select, b(compare, last, numbers, direction="EQ"), by_updates, b.like(0, g))


def _is_one_slice(node: Node) -> bool:
    """Whether there is but one start index, so that no two updates meet."""
    sizes = as_tensor(_indices(node).type).shape
    return math.prod(s for k, s in enumerate(sizes) if k != node.attr("index_vector_dim")) == 1


def _multiplied(b: Builder, node: Node, g: Node) -> tuple[Node, Node]:
    """By an update the product of the old value and the other updates: zeros are counted, and left out of the division."""
    x, _, u = node.inputs
    dtype = as_tensor(x.type).dtype
    by_operand = _again(b, node, g, u, node.attr("update_computation"))
    if _is_one_slice(node):
        return by_operand, _read(b, node, b(multiply, g, x))
    zero, one = b.like(0, u), b.like(1, u)
    is_zero = b(compare, u, zero, direction="EQ")
    nonzero = b(select, is_zero, one, u)
    nothing = b.splat(0, as_tensor(x.type))
    zeros = _again(b, node, nothing, b(convert, is_zero, dtype=dtype), monoid_body(add, dtype))
    product = _read(b, node, _again(b, node, b(multiply, g, x), nonzero, node.attr("update_computation")))
    others_are_zero = b(compare, b(select, is_zero, one, zero), _read(b, node, zeros), direction="NE")
    return by_operand, b(select, others_are_zero, zero, b(divide, product, nonzero))


def _extreme(b: Builder, node: Node, g: Node) -> tuple[Node, Node]:
    x, _, u = node.inputs
    dtype, zero = as_tensor(x.type).dtype, b.like(0, g)
    stays, wins = b(compare, x, node, direction="EQ"), b(compare, u, _read(b, node, node), direction="EQ")
    winners = _again(b, node, b(convert, stays, dtype=dtype), b(convert, wins, dtype=dtype), monoid_body(add, dtype))
    share = b(divide, g, winners)
    return b(select, stays, share, zero), b(select, wins, _read(b, node, share), zero)


_RULES: dict[Op, Callable[[Builder, Node, Node], tuple[Node, Node]]] = {
    add: _added, subtract: _subtracted, multiply: _multiplied, maximum: _extreme, minimum: _extreme,
}  # fmt: skip
