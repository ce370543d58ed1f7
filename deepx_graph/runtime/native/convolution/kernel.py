"""The kernel of a convolution: packed weights, shares for the workers, their scratch memory.

What a share computes depends on shapes alone, so results do not depend on threads.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from operator import mul
from typing import Any

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import PARAM
from deepx_graph.ops.contract.convolution import convolution
from deepx_graph.rewrite.epilogue import WithEpilogue, split_epilogue
from deepx_graph.runtime.array_type import ArrayType
from deepx_graph.runtime.cost.counts import parts_alone
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.memory.pool import room
from deepx_graph.runtime.native.call_image import rounded
from deepx_graph.runtime.native.convolution import winograd
from deepx_graph.runtime.native.convolution.choice import plan
from deepx_graph.runtime.native.convolution.emit import ConvolutionOperands, DirectShareCode, ShareCode, module_text
from deepx_graph.runtime.native.convolution.plan import ConvolutionPlan
from deepx_graph.runtime.native.convolution.problem import problems_of
from deepx_graph.runtime.native.convolution.weights import pack_shares
from deepx_graph.runtime.native.convolution.winograd import WinogradPlan
from deepx_graph.runtime.native.convolution.winograd_share import WinogradShareCode
from deepx_graph.runtime.native.dispatch import TableSlot
from deepx_graph.runtime.native.gemm import microkernel
from deepx_graph.runtime.native.joined import JoinedKernel, JoinedOperands
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.machine_code import FunctionReference
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.loop_program import epilogue
from deepx_graph.runtime.native.loop_program.epilogue import Epilogue
from deepx_graph.runtime.native.threads import SHARED, run_shared


def planned(node: Node) -> Sequence[ConvolutionPlan]:
    """The plans of a convolution node for this machine: one for each residue class of results. Constant weights can be transformed.
    Raises Declined."""
    machine = this_machine()
    registers = microkernel.registers(machine.register_bytes, machine.triple)
    found = [plan(problem, machine.register_bytes, registers) for problem in problems_of(node)]
    return [winograd.plan(p, registers) for p in found] if len(found) == 1 and node.inputs[1].op is not PARAM else found


def build(function: Function, threads: int) -> JoinedKernel:
    """The kernel of a function of one convolution and its epilogue. Raises Declined."""
    parts = split_epilogue(function, convolution)
    if parts is None:
        raise Declined("more than a convolution and its epilogue")
    plans = planned(parts.node)
    return kernel_of(function, parts, plans, _epilogue(parts, plans), threads)


def _epilogue(parts: WithEpilogue, plans: Sequence[ConvolutionPlan]) -> Epilogue | None:
    """The kernel of the epilogue, one loop over rows of which none belongs to two shares. Raises Declined."""
    if parts.epilogue is None:
        return None
    if len(plans) > 1:
        raise Declined("the results of a share are no rows")
    plan = plans[0]
    if parts.epilogue.results[0].type != parts.node.type:
        raise Declined("the epilogue is not in place")
    rows = math.prod(extent.size for extent in plan.extents[: plan.apart])
    built = epilogue.build(parts.epilogue, _axes_of(parts.node.type.shape, rows))  # type: ignore[attr-defined]
    if plan.cuts_rows and built.needs_rows:
        raise Declined("the epilogue has no whole rows in a share")
    return built


def _axes_of(shape: Sequence[int], rows: int) -> int:
    """How many axes of a result number so many rows, those of size 1 not counted: a plan may have two of them as one."""
    return next(k for k, n in enumerate(accumulate((n for n in shape if n != 1), mul, initial=1)) if n == rows)


def kernel_of(function: Function, parts: WithEpilogue, plans: Sequence[ConvolutionPlan], then: Epilogue | None,
              threads: int) -> JoinedKernel:
    """Packs weights that are no constants, then takes shares of the results: those of one plan, or of one for each residue class.
    `then` is the kernel of the epilogue."""
    joined, called, dtype = JoinedOperands.of(function, parts, then), list[tuple[FunctionReference, int]](), plans[0].problem.dtype
    x, given = joined.sources
    w = _transformed(joined, given, plans[0])
    *starts, packed_bytes = accumulate((rounded(p.products.packed_size * dtype.itemsize) for p in plans), initial=0)
    known = None if w.is_object or machine_code.is_collecting() else room(packed_bytes)
    for p, start in zip(plans, starts, strict=True):
        (first, _), (begin, results) = ([dtype.itemsize * n for n in q.problem.begin] for q in (p.products, p))
        packed = replace(joined.own, offset=start)
        operands = ConvolutionOperands(x, replace(w, offset=first), packed, packed if known is None else replace(w, offset=start),
                            replace(given, offset=begin), replace(joined.result, offset=results), joined)
        at = machine_code.functions(module_text(_share_code(p, operands)), ["work", "pack"], joined)
        pack_threads = min(threads, pack_shares(p.products))
        if known is None:
            called.append((at["pack"], pack_threads))
        else:
            _pack(at["pack"].address, {w.number: joined.constants[w.number - joined.first], packed.number: known}, pack_threads)
        called.append((at["work"], min(threads, p.shares)))
    if known is not None:
        joined.constants[w.number - joined.first] = known
    largest, shares = max(plans, key=lambda p: p.problem.depth), max(p.shares for p in plans)
    result = ArrayType(dtype, parts.node.type.shape)  # type: ignore[attr-defined]
    return JoinedKernel(joined, result, called, own_bytes=[] if known is not None else [packed_bytes],
                        scratch_bytes=max(p.thread_bytes for p in plans), predicted=parts_alone(parts.node, min(threads, shares)),
                        lowering=_lowering(largest, len(plans), then))


def _transformed(joined: JoinedOperands, given: TableSlot, plan: ConvolutionPlan) -> TableSlot:
    """The weights that a plan reads: others than were given, one more constant, where it wants them transformed."""
    if not isinstance(plan, WinogradPlan):
        return given
    joined.constants.append(plan.transformed(joined.constants[given.number - joined.first]))
    return TableSlot(joined.own.number - 1)


def _share_code(plan: ConvolutionPlan, operands: ConvolutionOperands) -> ShareCode[Any]:
    if isinstance(plan, WinogradPlan):
        return WinogradShareCode(plan, operands)
    return DirectShareCode(plan.products, operands)


def _lowering(plan: ConvolutionPlan, classes: int, then: Epilogue | None) -> str:
    tile, several = plan.method.tile, f"{classes} classes of results, " if classes > 1 else ""
    lanes = f"{several}{plan.method.lanes.value} in the lanes, tiles of {tile.rows} x {tile.vectors} vectors"
    how = "convolution by transforms of squares" if isinstance(plan, WinogradPlan) else "direct convolution"
    return f"{how}{'' if then is None else ' with epilogue'}, {lanes}"


def _pack(function: int, arrays: dict[int, Array], threads: int) -> None:
    """Lays weights, now, as tiles read them: both arrays by their slots of the table."""
    table = (ctypes.c_void_p * (max(arrays) + 1))()
    for slot, array in arrays.items():
        table[slot] = array.ctypes.data
    run_shared(SHARED(function), ctypes.addressof(table), threads)
