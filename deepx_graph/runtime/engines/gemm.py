"""The kernel of a `dot_general` by BLAS, on views of its operands where strides allow them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import methodcaller
from typing import Any

import numpy as np

from deepx_graph import blas
from deepx_graph.analysis.batched_gemm import MatrixView, batched_gemm_of
from deepx_graph.ir import Node
from deepx_graph.literal import Array
from deepx_graph.ops.helpers import wider
from deepx_graph.runtime.cost.counts import parts_alone
from deepx_graph.runtime.cost.model import ForecastParts
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.memory.pool import RESULTS
from deepx_graph.types import TensorType

BLAS = frozenset(map(np.dtype, ("f4", "f8", "c8", "c16")))
"""The dtypes that BLAS knows."""


class GemmNodeKernel:
    """The kernel of a `dot_general` by BLAS. Raises Declined for types that it does not know."""

    in_place: tuple[frozenset[int], ...] = (frozenset(),)
    lowering = "BLAS"

    def __init__(self, node: Node, threads: int) -> None:
        gemm = batched_gemm_of(node)
        if gemm is None or gemm.dtype not in BLAS:
            raise Declined("no product of matrices of floats")
        self._node, self._gemm, self._threads = node, gemm, threads
        self._shape: tuple[int, ...] = node.type.shape  # type: ignore[attr-defined]

    def predicted(self) -> ForecastParts:
        """How long a call takes by the cost model."""
        return parts_alone(self._node, self._threads)

    def scratch(self, loose: Collection[int]) -> int:
        """Copies of operands that do not lie as matrices, those numbered `loose` perhaps not in order."""
        return self._gemm.copied(loose)

    def __call__(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Array]:
        """The product; in the array of `out`, where one is given."""
        gemm = self._gemm
        x, y = gemm.operands(*args)
        into: Array = RESULTS.empty(self._shape, gemm.dtype) if out is None else out[0]
        if out is not None and (np.may_share_memory(into, x) or np.may_share_memory(into, y)):
            np.copyto(into, self(args)[0])
        else:
            _by_blas(x, y, into.reshape(gemm.result_shape))
        return [into]


FEW_TERMS = 1 << 10
"""Sums of so many terms lose little precision in whatever order they are added."""


def small_product(node: Node) -> Callable[[Any, Any], Any] | None:
    """A `dot_general` as a function of the operands alone; None for one that needs more than a call of BLAS."""
    gemm = batched_gemm_of(node)
    if gemm is None:
        return None
    shape, *given = (t.type.shape for t in (node, *node.inputs) if isinstance(t.type, TensorType))
    if gemm.dtype not in BLAS or gemm.depth > FEW_TERMS or gemm.matrices * gemm.rows * gemm.columns * gemm.depth > blas.SMALL:
        return None
    left, right = (_shown(view, old) for view, old in zip((gemm.left, gemm.right), given, strict=True))
    multiply = np.matmul if gemm.batch else np.dot
    if left is None and right is None and gemm.result_shape == shape:
        return multiply
    left, right = left or np.asarray, right or np.asarray
    return lambda x, y: multiply(left(x), right(y)).reshape(shape)


def _shown(view: MatrixView, given: tuple[int, ...]) -> Callable[[Any], Array] | None:
    """What shows an operand of that shape as a batch of matrices; None where it is one."""
    order, shape = view
    if order == tuple(range(len(order))):
        return None if given == shape else methodcaller("reshape", shape)
    if tuple(given[k] for k in order) == shape:
        return methodcaller("transpose", order)
    return lambda x: x.transpose(order).reshape(shape)


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
