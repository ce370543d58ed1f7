"""Gradients of sort and top_k: the cotangent goes back to the positions that the elements came from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.op import Cotangents
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.ops.math.elementwise import add
from deepx_graph.ops.tensor.index import scatter
from deepx_graph.ops.tensor.shape import iota
from deepx_graph.ops.tensor.sort import sort
from deepx_graph.types import I32, as_tensor, scalar


def sort_vjp(b: Builder, node: Node, g: Any) -> Cotangents:
    """A further operand that counts along the axis is sorted with the rest, and tells where each element came from."""
    items: Sequence[Node | None] = g if isinstance(g, tuple) else (g,)
    shape, axis = as_tensor(node.inputs[0].type).shape, node.attr("dimension")
    if not shape:
        return items
    positions = b(iota, dtype=I32, shape=shape, iota_dimension=axis)
    whole = b(sort, *node.inputs, positions, dimension=axis, is_stable=node.attr("is_stable"),
              comparator=_wider(node.attr("comparator")))
    order = b.proj(whole, len(node.inputs))
    return [None if item is None else _put_back(b, item, order, axis, x) for item, x in zip(items, node.inputs, strict=True)]


def top_k_vjp(b: Builder, node: Node, g: Sequence[Node | None]) -> Cotangents:
    """The second result has the positions."""
    axis = len(as_tensor(node.inputs[0].type).shape) - 1
    return (None if g[0] is None else _put_back(b, g[0], b.proj(node, 1), axis, node.inputs[0]),)


@lru_cache(maxsize=256)
def _wider(comparator: Function) -> Function:
    """The comparator with a further pair of operands, which it does not look at."""
    count = len(comparator.params)
    more = tuple(Builder().param(count + k, scalar(I32), f"position{k}") for k in range(2))
    return Function(comparator.name, (*comparator.params, *more), comparator.results, public=False)


def _put_back(b: Builder, g: Node, order: Node, axis: int, x: Node) -> Node:
    """Zeros shaped as `x` with `g` added at the positions `order` along the axis."""
    type = as_tensor(x.type)
    others = tuple(k for k in range(len(type.shape)) if k != axis)
    return b(scatter, b.splat(0, type), order, g, inserted_window_dims=(axis,), input_batching_dims=others,
             scatter_indices_batching_dims=others, scatter_dims_to_operand_dims=(axis,), index_vector_dim=len(type.shape),
             update_computation=monoid_body(add, type.dtype))  # fmt: skip
