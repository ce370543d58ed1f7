"""A matrix product of any size, with or without an epilogue, as machine code that other machine code may call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deepx_graph.ir import Node
from deepx_graph.runtime.cost.counts import parts_alone
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.gemm import BatchedGemm, batched_gemm_of
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native.gemm import small
from deepx_graph.runtime.native.gemm.emit import Fields
from deepx_graph.runtime.native.gemm.kernel import LEAST_WORK, GemmKernel, StridedMatrices, fits, is_thin, strided
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.machine_kernel import MachineKernel
from deepx_graph.runtime.native.prepared import Address, Base, FunctionAddress, PreparedKernel, PreparedStep, Word
from deepx_graph.runtime.native.transpose import LEAST_SHARED, copy_table, text
from deepx_graph.runtime.straightline import ArrayType
from deepx_graph.types import TensorType

PACKED = 0
"""The number of the memory of a call for the packed left operand."""


def build(node: Node, threads: int) -> MachineKernel | None:
    """The kernel of a `dot_general` of floats; None for other types."""
    gemm = batched_gemm_of(node)
    if (direct := small_product(node, threads)) is not None:
        return direct
    if gemm is not None and fits(gemm):
        with suppress(Declined):
            return packed(node, gemm, threads)
    return small.build(node, threads, is_thin=gemm is not None and is_thin(gemm))


def worth_a_call(node: Node, threads: int) -> MachineKernel | None:
    """The kernel of a product that BLAS, called alone, does not do as well. None for others. Raises Declined."""
    gemm = batched_gemm_of(node)
    if gemm is not None and is_thin(gemm):
        return small.build(node, threads, is_thin=True)
    if (direct := small_product(node, threads)) is not None:
        return direct
    return packed(node, gemm, threads) if gemm is not None and fits(gemm) else None


def packed(node: Node, gemm: BatchedGemm, threads: int) -> PreparedKernel:
    """The kernel of a product that packs its operands. Raises Declined where one of them cannot be copied."""
    assert isinstance(node.type, TensorType)
    operands = operands_of(node, gemm, [Address(Base.ELEMENTS, k) for k in (0, 1)], threads)
    multiply = GemmKernel.of(gemm, threads, None, operands.matrices[0])
    return PreparedKernel((0, 1), [ArrayType(gemm.dtype, node.type.shape)], steps_of(multiply, operands, Address(Base.ELEMENTS, 2)),
                          own_bytes=own_bytes(multiply, operands), scratch_bytes=0,
                          predicted=parts_alone(node, multiply.threads), kept=(multiply, operands))


def small_product(node: Node, threads: int) -> MachineKernel | None:
    """The kernel of a product of small matrices that all together are worth a call, and that fill registers; None for others."""
    plan = small.plan_of(node)
    if plan is None or plan.work < LEAST_WORK or not plan.is_small or plan.is_narrow:
        return None
    return small.build(node, threads)


def is_scattered(node: Node) -> bool:
    """Whether the operands of a product that is worth packing lie so that most lanes would be idle."""
    plan, gemm = small.plan_of(node), batched_gemm_of(node)
    return plan is not None and plan.is_narrow and gemm is not None and fits(gemm)


@dataclass(eq=False)
class GemmOperands:
    """Where both operands begin, how their matrices lie from there, and the steps that copy those which do not lie as matrices."""

    addresses: list[Address] = field(default_factory=list)
    matrices: list[StridedMatrices] = field(default_factory=list)
    steps: list[PreparedStep] = field(default_factory=list)
    copied_bytes: list[int] = field(default_factory=list)


def own_bytes(multiply: GemmKernel, operands: GemmOperands) -> list[int]:
    """The sizes of the memory of a call: for the packed left operand, and for copies."""
    return [multiply.packed_bytes, *operands.copied_bytes]


def operands_of(node: Node, gemm: BatchedGemm, sources: Sequence[Address], threads: int) -> GemmOperands:
    """The operands of a kernel from arrays in the order of C. Raises Declined where there is no copy of one that must be copied."""
    found = GemmOperands()
    for given, (order, shape), reorders, source in zip(node.inputs, (gemm.left, gemm.right), gemm.reorders, sources, strict=True):
        array = _phantom(given.type.shape, gemm.dtype) if isinstance(given.type, TensorType) else None
        if array is None:
            raise Declined("an operand is larger than memory")
        matrices = None if reorders else strided(array.transpose(order).reshape(shape))
        if matrices is not None:
            found.matrices.append(matrices)
            found.addresses.append(source)
            continue
        copy = Address(Base.OWN, PACKED + 1 + len(found.copied_bytes))
        table = copy_table(array.transpose(order), source, copy)
        if table is None:
            raise Declined("an operand cannot be copied")
        copied = machine_code.functions(text(array.itemsize), ["copied"], found)["copied"]
        found.steps.append(PreparedStep(copied, table, threads if array.size >= LEAST_SHARED else 1))
        found.copied_bytes.append(array.nbytes)
        found.addresses.append(copy)
        whole = shape[-2] * shape[-1] * gemm.dtype.itemsize
        found.matrices.append((np.arange(gemm.matrices) * whole, shape[-1], 1))
    return found


def _phantom(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
    """An array that lies in the order of C but has no memory: to look at views of it, never at elements. None where numpy has no
    such array."""
    strides = [dtype.itemsize * math.prod(shape[k + 1 :]) for k in range(len(shape))]
    try:
        return np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides)
    except (ValueError, OverflowError):
        return None


def steps_of(multiply: GemmKernel, operands: GemmOperands, result: Address, epilogue_table: Word = 0) -> list[PreparedStep]:
    """The steps of a product whose operands lie so: copies, and groups of products."""
    each = [np.broadcast_to(start, (multiply.count,)) for start, _, _ in operands.matrices]
    whole = multiply.rows * multiply.columns * multiply.dtype.itemsize
    pointers: list[Word] = []
    for k in range(multiply.count):
        pointers += [Address(o.base, o.number, int(starts[k])) for o, starts in zip(operands.addresses, each, strict=True)]
        pointers.append(Address(result.base, result.number, k * whole))
    (_, left_row, left_depth), (_, right_depth, right_column) = operands.matrices
    known: dict[Fields, Word] = {
        Fields.POINTERS: tuple(pointers), Fields.PACKED: Address(Base.OWN, PACKED) if multiply.packs_left else 0,
        Fields.LEFT_ROW: left_row, Fields.LEFT_DEPTH: left_depth, Fields.RIGHT_DEPTH: right_depth,
        Fields.RIGHT_COLUMN: right_column, Fields.RESULT_ROW: multiply.columns, Fields.EPILOGUE_TABLE: epilogue_table,
    }  # fmt: skip
    if multiply.epilogue is not None:
        known[Fields.EPILOGUE] = FunctionAddress(multiply.epilogue.address)
    tables = [tuple(known.get(f, table[f]) for f in Fields) for table in multiply.tables]
    return operands.steps + [PreparedStep(multiply.address, table, multiply.threads) for table in tables]
