"""A matrix product of any size, with or without an epilogue, as machine code that other machine code may call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from deepx_graph.ir import Function, Node
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.runtime.array_type import form_of
from deepx_graph.runtime.cost.counts import parts_alone
from deepx_graph.runtime.cost.model import ForecastParts
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.epilogue import WithEpilogue, split_epilogue
from deepx_graph.runtime.engines.gemm import BatchedGemm, batched_gemm_of
from deepx_graph.runtime.engines.numexpr_engine import alone
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native.gemm import small
from deepx_graph.runtime.native.gemm.emit import Fields
from deepx_graph.runtime.native.gemm.kernel import LEAST_WORK, GemmKernel, StridedMatrices, fits, is_thin, strided
from deepx_graph.runtime.native.loop_program.epilogue import EpilogueKernel
from deepx_graph.runtime.native.machine_kernel import MachineKernel
from deepx_graph.runtime.native.prepared import Address, Base, JoinedOperands, PreparedKernel, PreparedStep, Word
from deepx_graph.types import TensorType


def build(node: Node, threads: int) -> MachineKernel | None:
    """The kernel of a `dot_general` of floats; None for other types."""
    gemm = batched_gemm_of(node)
    if (direct := small_product(node, threads)) is not None:
        return direct
    if gemm is not None and fits(gemm):
        with suppress(Declined):
            function = alone(node)
            return packed(function, split_epilogue(function, dot_general), gemm, None, threads)
    return small.build(node, threads, is_thin=gemm is not None and is_thin(gemm))


def packed(function: Function, parts: WithEpilogue, gemm: BatchedGemm, then: EpilogueKernel | None, threads: int) -> PreparedKernel:
    """The kernel of a product that packs its operands, with the epilogue on each chunk of it. Raises Declined where an operand is
    no matrix as it lies."""
    joined, node = JoinedOperands(function, parts, then), parts.node
    left, right = matrices_of(node, gemm)
    multiply = GemmKernel(gemm, threads, then, left[1:])
    steps = steps_of(multiply, (left, right), [*joined.sources, joined.result], joined.table)
    return PreparedKernel(joined.params, [form_of(node.type)], steps, constants=joined.constants,
                          own_bytes=[multiply.packed_bytes], scratch_bytes=0, predicted=predicted(node, multiply.threads, then),
                          kept=multiply, lowering=lowering(then))


def predicted(node: Node, threads: int, then: EpilogueKernel | None) -> ForecastParts:
    """How long a call takes by the cost model; the epilogue is done while it is in cache."""
    parts = parts_alone(node, threads)
    return parts if then is None else replace(parts, arithmetic=parts.arithmetic + then.nanoseconds / threads)


def lowering(then: EpilogueKernel | None) -> str:
    """How it runs, in words."""
    return "machine code" if then is None else "machine code, with epilogue"


def small_product(node: Node, threads: int) -> MachineKernel | None:
    """The kernel of a product of small matrices that all together are worth a call, and that fill registers; None for others."""
    plan = small.plan_of(node)
    if plan is None or plan.work < LEAST_WORK or not plan.is_small or plan.is_narrow:
        return None
    return small.build(node, threads)


def transposed_before(node: Node) -> tuple[bool, ...]:
    """Which operands of a product are transposed by a kernel of their own before it packs them: those that are no matrices as they
    lie, unless small ones are read where they are and fill registers."""
    gemm, plan = batched_gemm_of(node), small.plan_of(node)
    if gemm is None or not fits(gemm) or (plan is not None and plan.is_small and not plan.is_narrow):
        return (False, False)
    return tuple(m is None for m in _matrices(node, gemm))


def matrices_of(node: Node, gemm: BatchedGemm) -> tuple[StridedMatrices, StridedMatrices]:
    """How the operands, in the order of C, lie as matrices. Raises Declined for one that does not."""
    left, right = _matrices(node, gemm)
    if left is None or right is None:
        raise Declined("an operand that is no matrix as it lies")
    return left, right


def _matrices(node: Node, gemm: BatchedGemm) -> list[StridedMatrices | None]:
    found = []
    for given, (order, shape), reorders in zip(node.inputs, (gemm.left, gemm.right), gemm.reorders, strict=True):
        array = _phantom(given.type.shape, gemm.dtype) if isinstance(given.type, TensorType) and not reorders else None
        found.append(None if array is None else strided(array.transpose(order).reshape(shape)))
    return found


def _phantom(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
    """An array that lies in the order of C but has no memory: to look at views of it, never at elements. None where numpy has no
    such array."""
    strides = [dtype.itemsize * math.prod(shape[k + 1 :]) for k in range(len(shape))]
    try:
        return np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides)
    except (ValueError, OverflowError):
        return None


def steps_of(multiply: GemmKernel, matrices: tuple[StridedMatrices, StridedMatrices], addresses: Sequence[Address],
             epilogue_table: Word = 0) -> list[PreparedStep]:
    """The steps of a product: groups of products. `addresses` are those of operands and result."""
    left, right = matrices
    whole = multiply.rows * multiply.columns * multiply.dtype.itemsize
    each = [np.broadcast_to(starts, (multiply.count,)) for starts in (left[0], right[0], np.arange(multiply.count) * whole)]
    pointers = [replace(a, offset=int(starts[k])) for k in range(multiply.count) for a, starts in zip(addresses, each, strict=True)]
    known: dict[Fields, Word] = {
        Fields.POINTERS: tuple(pointers), Fields.PACKED: Address(Base.OWN, 0) if multiply.packs_left else 0,
        Fields.LEFT_ROW: left[1], Fields.LEFT_DEPTH: left[2], Fields.RIGHT_DEPTH: right[1], Fields.RIGHT_COLUMN: right[2],
        Fields.RESULT_ROW: multiply.columns, Fields.EPILOGUE_TABLE: epilogue_table,
    }  # fmt: skip
    if multiply.epilogue is not None:
        known[Fields.EPILOGUE] = multiply.epilogue.function
    tables = [tuple(known.get(f, table[f]) for f in Fields) for table in multiply.tables]
    return [PreparedStep(multiply.function, table, multiply.threads) for table in tables]
