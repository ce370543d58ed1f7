"""A `dot_general` of any batching and contracting axes as one batched matrix product (GEMM) on views, where strides allow it."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.ir import Node
from deepx_graph.literal import Array
from deepx_graph.ops.contract.linear import is_copied
from deepx_graph.types import TensorType, is_static

MatrixView = tuple[tuple[int, ...], tuple[int, ...]]
"""The axis order and the shape by which an operand becomes a batch of matrices: batch, rows, columns."""


@dataclass(frozen=True)
class BatchedGemm:
    """The operands and the result of a `dot_general` as batches of matrices."""

    dtype: np.dtype[Any]
    left: MatrixView
    right: MatrixView
    batch: tuple[int, ...]
    reorders: tuple[bool, bool]
    """Whether an operand in the order of C becomes a batch of matrices by a copy."""

    @property
    def matrices(self) -> int:
        return math.prod(self.batch)

    @property
    def rows(self) -> int:
        return self.left[1][-2]

    @property
    def columns(self) -> int:
        return self.right[1][-1]

    @property
    def depth(self) -> int:
        return self.left[1][-1]

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape of the result as a batch of matrices."""
        return *self.batch, self.rows, self.columns

    def operands(self, x: Any, y: Any) -> tuple[Array, Array]:
        """The operands as batches of matrices: views, or copies where strides allow none."""
        left, right = (np.asarray(v).transpose(order).reshape(shape) for v, (order, shape) in ((x, self.left), (y, self.right)))
        return left, right

    def copied(self, loose: Collection[int]) -> int:
        """The bytes of operands that become matrices by copies, where those numbered `loose` may not lie in the order of C."""
        views = zip(self.reorders, (self.left, self.right), strict=True)
        return sum(math.prod(shape) * self.dtype.itemsize for reorders, (_, shape) in views if reorders or loose)


def batched_gemm_of(node: Node) -> BatchedGemm | None:
    """The matrix product of a `dot_general`; None where a type is not static, or numpy has no such type."""
    for each in (node, *node.inputs):
        if not isinstance(each.type, TensorType) or not is_static(each.type):
            return None
    assert isinstance(node.type, TensorType)
    if node.type.dtype.np is None:
        return None
    (left, copies_left), (right, copies_right) = _view(node, 0), _view(node, 1)
    batch = left[1][: len(node.attr("lhs_batching_dimensions"))]
    return BatchedGemm(node.type.dtype.np, left, right, batch, (copies_left, copies_right))


def _view(node: Node, side: int) -> tuple[MatrixView, bool]:
    """The view of an operand, and whether it is a copy."""
    batch, contract = (node.attr(f"{('lhs', 'rhs')[side]}_{kind}_dimensions") for kind in ("batching", "contracting"))
    type = node.inputs[side].type
    assert isinstance(type, TensorType)
    shape = type.shape
    free = tuple(k for k in range(len(shape)) if k not in batch and k not in contract)
    depth, width = (math.prod(shape[k] for k in axes) for axes in (contract, free))
    order = batch + free + contract if side == 0 else batch + contract + free
    matrix = (width, depth) if side == 0 else (depth, width)
    return (order, tuple(shape[k] for k in batch) + matrix), is_copied(shape, free, contract)
