"""A convolution as a callable of machine code: packed weights, shares for the workers, their scratch memory.

A kernel may be called from several threads at once: each call has its own workspace. What a share computes depends on shapes alone,
so results do not depend on threads.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import PARAM, value_of
from deepx_graph.ops.contract.convolution import convolution
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.cost.counts import parts_alone
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.epilogue import WithEpilogue, split_epilogue
from deepx_graph.runtime.kernels.memory import ALIGNMENT
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.memory.pool import RESULTS, room
from deepx_graph.runtime.native.convolution.emit import EPILOGUE, SLOTS, module_text
from deepx_graph.runtime.native.convolution.pack import pack_shares, packed_size
from deepx_graph.runtime.native.convolution.plan import ConvolutionPlan, offsets_of, offsets_start, plan
from deepx_graph.runtime.native.convolution.problem import problems_of
from deepx_graph.runtime.native.gemm import microkernel
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.loop_program import epilogue
from deepx_graph.runtime.native.loop_program.epilogue import EpilogueKernel
from deepx_graph.runtime.native.machine_kernel import SHARED, KernelMemory, MachineCode, MachineKernel, address_of, run_shared
from deepx_graph.runtime.native.prepared import (
    Address,
    Base,
    FunctionAddress,
    PreparedKernel,
    PreparedStep,
    Word,
    epilogue_table,
)
from deepx_graph.runtime.native.transpose import contiguous
from deepx_graph.runtime.straightline import ArrayType


def planned(node: Node) -> list[PartialPlan]:
    """The plans of a convolution node for this machine: one for each residue class of results. Raises Declined."""
    machine = this_machine()
    registers = microkernel.registers(machine.register_bytes, machine.triple)
    return [PartialPlan(plan(p.problem, machine.register_bytes, registers), p.w, p.y) for p in problems_of(node)]


def build(function: Function, threads: int) -> ConvolutionKernel:
    """The kernel of a function of one convolution and its epilogue. Raises Declined."""
    parts = split_epilogue(function, convolution)
    found = planned(parts.node)
    return ConvolutionKernel(found, parts, _epilogue(parts, found), threads, function)


def _epilogue(parts: WithEpilogue, plans: Sequence[PartialPlan]) -> EpilogueKernel | None:
    """The kernel of the epilogue, one loop over rows of which none belongs to two shares. Raises Declined."""
    if parts.epilogue is None:
        return None
    if len(plans) > 1:
        raise Declined("the results of a share are no rows")
    plan = plans[0].plan
    if parts.epilogue.results[0].type != parts.node.type:
        raise Declined("the epilogue is not in place")
    built = epilogue.build(parts.epilogue, plan.apart)
    if plan.cuts_rows and built.needs_rows:
        raise Declined("the epilogue has no whole rows in a share")
    return built


@dataclass(frozen=True)
class PartialPlan:
    """A plan for some of the results; where, in elements, its weights and its results begin."""

    plan: ConvolutionPlan
    w: int = 0
    y: int = 0


class _Workspace:
    """The tables and the scratch memory of one call."""

    def __init__(self, kernel: ConvolutionKernel) -> None:
        self.table = bytearray(8 * SLOTS)
        self.address = address_of(self.table)
        own = [room(kernel.scratch_bytes) for _ in range(kernel.threads)]
        self.scratch = [s.ctypes.data for s in own]
        self.scratches = (ctypes.c_void_p * len(own))(*self.scratch)
        self._own = own
        if kernel.then is not None:
            self._memory = KernelMemory([kernel.then])
            self.then = self._memory.table(kernel.then)
            struct.pack_into("2N", self.table, 8 * EPILOGUE, kernel.then.address, address_of(self.then))


class _Part:
    """The machine code of a plan, and its weights."""

    def __init__(self, found: PartialPlan, kernel: ConvolutionKernel, weights: Node, function: Function) -> None:
        plan, self.size = found.plan, found.plan.problem.dtype.itemsize
        at = machine_code.functions(module_text(plan, has_epilogue=kernel.then is not None), ["work", "pack"], kernel)
        self.address, self.pack = at["work"], at["pack"]
        self.work = SHARED(self.address)
        self.w, self.y = self.size * found.w, self.size * found.y
        """Where weights and results begin, in bytes."""
        self.threads = min(kernel.threads, plan.shares)
        self.pack_threads = min(kernel.threads, pack_shares(plan))
        self.packed_bytes = packed_size(plan) * self.size
        self.weights = _Source(function, weights, WeightPacker(plan, SHARED(self.pack), kernel.threads, self.w))


class ConvolutionKernel(MachineKernel):
    """Compiled shares and how to call them: those of one plan, or of one for each residue class of results. `then` is the kernel
    of the epilogue."""

    in_place: tuple[frozenset[int], ...] = (frozenset(),)

    def __init__(self, plans: Sequence[PartialPlan], parts: WithEpilogue, then: EpilogueKernel | None, threads: int,
                 function: Function) -> None:
        self.plans, self.then, self.threads = [p.plan for p in plans], then, threads
        largest, node = max(self.plans, key=lambda p: p.problem.depth), parts.node
        tile, classes = largest.method.tile, f"{len(plans)} classes of results, " if len(plans) > 1 else ""
        lanes = f"{classes}{largest.method.lanes.value} in the lanes, tiles of {tile.rows} x {tile.vectors} vectors"
        self.lowering = f"direct convolution{'' if then is None else ' with epilogue'}, {lanes}"
        self.scratch_bytes = max(offsets_start(p) + 8 * offsets_of(p) for p in self.plans)
        self.results = (ArrayType(largest.problem.dtype, node.type.shape),)  # type: ignore[attr-defined]
        self._params = parts.params
        self._parts = [_Part(p, self, node.inputs[1], function) for p in plans]
        self._x = _Source(function, node.inputs[0], lambda array: contiguous(array, threads))
        self._node = node

    @property
    def workspace_bytes(self) -> int:
        """What each thread has, and the memory of the epilogue."""
        return self.threads * self.scratch_bytes + (0 if self.then is None else self.then.workspace_bytes)

    def new_workspace(self) -> _Workspace:
        """The tables and the scratch memory of one call."""
        return _Workspace(self)

    def scratch(self, loose: Mapping[int, int]) -> int:
        """What each thread has, packed weights, copies of operands that may not lie in order, and the memory of the epilogue."""
        then = 0 if self.then is None else self.then.scratch({k + 1: loose[p] for k, p in enumerate(self._params) if p in loose})
        return self.threads * self.scratch_bytes + sum(p.packed_bytes for p in self._parts) + sum(loose.values()) + then

    def predicted(self) -> cost.ForecastParts:
        """How long a call takes by the cost model; the epilogue is done while it is in cache."""
        return parts_alone(self._node, max(p.threads for p in self._parts))

    @cached_property
    def code(self) -> MachineCode | None:
        """The same for callers in machine code."""
        then, first = self.then, self._parts[0].weights
        objects = [p for p in (self._x.param, first.param) if p is not None]
        params, result = (*objects, *self._params), len(objects) + len(self._params)
        fixed = [s.constant for s in (self._x, *(p.weights for p in self._parts)) if s.param is None]
        x = Address(Base.CONSTANT, 0) if self._x.param is None else Address(Base.ELEMENTS, objects.index(self._x.param))
        steps, own = list[PreparedStep](), list[int]()
        for k, part in enumerate(self._parts):
            base, number = (Base.CONSTANT, k + (self._x.param is None)) if first.param is None else (
                Base.ELEMENTS, objects.index(first.param))
            w = Address(base, number)
            if not part.weights.is_made:
                w = Address(Base.OWN, len(own))
                own.append(part.packed_bytes)
                steps.append(PreparedStep(part.pack, (Address(base, number, part.w), w), part.pack_threads))
            words: list[Word] = [x, w, Address(Base.ELEMENTS, result, part.y), 0, 0]
            if then is not None:
                table = epilogue_table(then, [result, *range(len(objects), result)], result, len(fixed))
                words[EPILOGUE:] = [FunctionAddress(then.address), table]
            steps.append(PreparedStep(part.address, tuple(words), part.threads))
        return PreparedKernel(params, self.results, steps, constants=[*fixed, *(then.constants if then else ())], own_bytes=own,
                              scratch_bytes=self.scratch_bytes, predicted=parts_alone(self._node, 1), kept=self)

    def run(self, workspace: _Workspace, args: Sequence[Any], results: Sequence[Array]) -> None:
        """The convolution and its epilogue, share by share."""
        x, (y,) = self._x(args), results
        if self.then is not None:
            arrays = [y, *(np.asarray(args[k], order="C") for k in self._params), y]
            struct.pack_into(f"{len(arrays)}N", workspace.then, 0, *map(id, arrays))
        for part in self._parts:
            w = part.weights(args)
            struct.pack_into("3N", workspace.table, 0, x.ctypes.data, w.ctypes.data, y.ctypes.data + part.y)
            run_shared(part.work, workspace.address, workspace.scratch, ctypes.addressof(workspace.scratches), part.threads)


class _Source:
    """An operand as shares read it: made of an argument in every call, of a constant once."""

    def __init__(self, function: Function, node: Node, make: Callable[[Array], Array]) -> None:
        self._make = make
        self.param = function.params.index(node) if node.op is PARAM else None
        self.is_made = self.param is None and not machine_code.is_collecting()
        """Whether it is made already."""
        given = None if node.op is PARAM else value_of(node).array
        self._constant = given if given is None or not self.is_made else make(given)

    @property
    def constant(self) -> Array:
        """Of a constant, what is known: what shares read where that is made already."""
        assert self._constant is not None
        return self._constant

    def __call__(self, args: Sequence[Any]) -> Array:
        return self.constant if self.param is None else self._make(np.asarray(args[self.param]))


class WeightPacker:
    """Brings weights, from so many bytes on, into the order in which tiles read them."""

    def __init__(self, plan: ConvolutionPlan, pack: Any, threads: int, start: int) -> None:
        self._pack, self._threads, self._start = pack, min(threads, pack_shares(plan)), start
        self._size, self._dtype = packed_size(plan), plan.problem.dtype

    def __call__(self, w: Array) -> Array:
        """An array of the packed weights, on a cache line."""
        w = contiguous(w, self._threads)
        room = RESULTS.empty((self._size + ALIGNMENT // self._dtype.itemsize,), self._dtype)
        start = -room.ctypes.data % ALIGNMENT // self._dtype.itemsize
        packed = room[start : start + self._size]
        table = (ctypes.c_void_p * 2)(w.ctypes.data + self._start, packed.ctypes.data)
        scratch = (ctypes.c_void_p * self._threads)()
        run_shared(self._pack, ctypes.addressof(table), list(scratch), ctypes.addressof(scratch), self._threads)
        return packed
