"""Matrix products: operands as stacks of matrices, and who multiplies them.

A product of any batching and contracting axes becomes a product of two stacks, views wherever strides allow it; the result is
written where it is wanted. BLAS multiplies, unless the engine has something better for the shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.ir import Node
from deepx_graph.literal import Array
from deepx_graph.runtime.kernels.recycle import RESULTS
from deepx_graph.types import TensorType, is_static

BLAS = frozenset(map(np.dtype, ("f4", "f8", "c8", "c16")))
"""The dtypes that BLAS knows."""

Multiply = Callable[[Array, Array, Array], None]
"""`multiply(left, right, result)`: stacks of matrices, the last one C-contiguous and sharing no memory with an operand."""


@dataclass(frozen=True)
class Shape:
    """So many `matrices` of `rows` x `columns`, sums of `depth` terms."""

    dtype: np.dtype[Any]
    matrices: int
    rows: int
    columns: int
    depth: int


class ProductKernel:
    """The kernel of a `dot_general` of static types that BLAS knows, without a copy of the result. `way` tells who multiplies."""

    def __init__(self, node: Node, better: Callable[[Shape], Multiply | None]) -> None:
        self._dtype, self._shape = _type(node).dtype.np, _type(node).shape
        assert self._dtype is not None
        self._operands = tuple(_operand(node, side) for side in (0, 1))
        (_, left), (_, right) = self._operands
        batch = left[: len(node.attr("lhs_batching_dimensions"))]
        self._form = (*batch, left[-2], right[-1])
        found = better(Shape(self._dtype, math.prod(batch), left[-2], right[-1], left[-1]))
        self._multiply = found or _by_blas
        self.way = "BLAS" if found is None else "machine code"

    def __call__(self, values: Sequence[Any], out: Sequence[Any] | None) -> Any:
        """The product; in the array of `out`, where one is given."""
        x, y = (np.asarray(v).transpose(order).reshape(stack) for v, (order, stack) in zip(values, self._operands, strict=True))
        into = RESULTS.empty(self._shape, self._dtype) if out is None else out[0]  # type: ignore[arg-type]
        if out is not None and (np.may_share_memory(into, x) or np.may_share_memory(into, y)):
            np.copyto(into, self(values, None))
        else:
            self._multiply(x, y, into.reshape(self._form))
        return into


def product(node: Node, better: Callable[[Shape], Multiply | None]) -> ProductKernel | None:
    """The kernel of a product, by `better` where that has something; None for types that BLAS does not know."""
    static = all(isinstance(n.type, TensorType) and is_static(n.type) for n in (node, *node.inputs))
    return ProductKernel(node, better) if static and _type(node).dtype.np in BLAS else None


def _by_blas(left: Array, right: Array, result: Array) -> None:
    np.matmul(left, right, out=result)


def _type(node: Node) -> TensorType:
    assert isinstance(node.type, TensorType)
    return node.type


def _operand(node: Node, side: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axis order and the shape by which an operand of a dot becomes a stack of matrices: batch, rows, columns."""
    batch, contract = (node.attr(f"{('lhs', 'rhs')[side]}_{kind}_dimensions") for kind in ("batching", "contracting"))
    shape = _type(node.inputs[side]).shape
    free = tuple(k for k in range(len(shape)) if k not in batch and k not in contract)
    depth, width = (math.prod(shape[k] for k in axes) for axes in (contract, free))
    order = batch + free + contract if side == 0 else batch + contract + free
    matrix = (width, depth) if side == 0 else (depth, width)
    return order, tuple(shape[k] for k in batch) + matrix
