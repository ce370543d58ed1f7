"""Matrix products: written where they are wanted, by BLAS unless the engine has something better for the shape."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from deepx_graph import blas
from deepx_graph.ir import Node
from deepx_graph.literal import Array
from deepx_graph.ops.helpers import wider
from deepx_graph.runtime.engines.gemm_operands import BatchedGemm, batched_gemm_of
from deepx_graph.runtime.memory.pool import RESULTS
from deepx_graph.types import TensorType

BLAS = frozenset(map(np.dtype, ("f4", "f8", "c8", "c16")))
"""The dtypes that BLAS knows."""

Multiply = Callable[[Array, Array, Array], None]
"""`multiply(left, right, result)`: stacks of matrices, the last one C-contiguous and sharing no memory with an operand."""


class ProductKernel:
    """The kernel of a `dot_general`. `lowering` tells who multiplies."""

    def __init__(self, shape: tuple[int, ...], stacks: BatchedGemm, better: Multiply | None) -> None:
        self._shape, self._stacks = shape, stacks
        self._multiply = better or _by_blas
        self.lowering = "BLAS" if better is None else "machine code"

    def scratch(self, loose: Collection[int]) -> int:
        """Copies of operands that do not lie as stacks, those numbered `loose` perhaps not in order, and packed panels."""
        packed = getattr(self._multiply, "workspace_bytes", 0)
        return self._stacks.copied(loose) + int(packed)

    def __call__(self, values: Sequence[Any], out: Sequence[Any] | None) -> Any:
        """The product; in the array of `out`, where one is given."""
        stacks = self._stacks
        x, y = stacks.operands(*values)
        into = RESULTS.empty(self._shape, stacks.dtype) if out is None else out[0]
        if out is not None and (np.may_share_memory(into, x) or np.may_share_memory(into, y)):
            np.copyto(into, self(values, None))
        else:
            self._multiply(x, y, into.reshape(stacks.form))
        return into


def product(node: Node, better: Callable[[BatchedGemm], Multiply | None]) -> ProductKernel | None:
    """The kernel of a product, by `better` where that has something; None for types that BLAS does not know."""
    stacks = batched_gemm_of(node)
    if stacks is None or stacks.dtype not in BLAS:
        return None
    assert isinstance(node.type, TensorType)
    return ProductKernel(node.type.shape, stacks, better(stacks))


LONG, PIECE = 1 << 18, 1 << 16
"""Sums of more terms than that are made in pieces of so many, whose totals are added in double precision."""

COPIED = 1 << 20
"""Elements of an operand that are copied at a time."""


def _by_blas(left: Array, right: Array, result: Array) -> None:
    """By BLAS whatever the strides are: those that it does not take, of a broadcast say, numpy multiplies with one sum in a row."""
    depth = left.shape[-1]
    step = PIECE if depth > LONG else max(1, depth)
    if not (_suits(left) and _suits(right)):
        step = min(step, max(1, COPIED * depth // max(1, left.size, right.size)))
    if step >= depth:
        blas.matmul(_suited(left), _suited(right), result)
        return
    total = np.zeros(result.shape, wider(result.dtype))
    for k in range(0, depth, step):
        total += blas.matmul(_suited(left[..., k : k + step]), _suited(right[..., k : k + step, :]))
    np.copyto(result, total, casting="same_kind")


def _suited(x: Array) -> Array:
    return x if _suits(x) else np.ascontiguousarray(x)


def _suits(x: Array) -> bool:
    """Whether BLAS takes the matrices as they lie: rows or columns apart by a fixed distance, and no longer than that."""
    (rows, columns), (down, across), size = x.shape[-2:], x.strides[-2:], x.itemsize
    if rows == 1 or columns == 1:
        along = across if rows == 1 else down
        return rows == columns or (along > 0 and along % size == 0)
    outer, inner, length = (down, across, columns) if across == size else (across, down, rows)
    return inner == size and outer >= length * size and outer % size == 0
