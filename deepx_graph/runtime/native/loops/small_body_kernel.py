"""A loop over small tensors as one callable: a machine function that calls the kernels of an iteration and iterates by itself.

One call has as many iterations as take some milliseconds; then Python has the floor for a moment, so that an endless loop can be
interrupted, and the next call goes on. A loop of few iterations, by its count, needs one call and can stand in a row of kernels.
The words of a kernel are its own: it runs once at a time, as kernels of an engine do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.ir import Function
from deepx_graph.ir.structure import LOOP_END
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.kernels.memory import ALIGNMENT, aligned
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.memory.pool import RESULTS, Allowance, delivered
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.loopnest.table import DATA, Layout
from deepx_graph.runtime.native.loops import small_body_emit
from deepx_graph.runtime.native.loops.small_body import LoopPlan, MachineOf, NotSmallBody, planned
from deepx_graph.runtime.native.machine_kernel import ALONE, KernelMemory, MachineCode, Workspace, address_of, workspace_bytes
from deepx_graph.runtime.straightline.segment import form_of

CALL_NANOSECONDS = 20_000_000
"""About how long one call takes at most."""

KERNEL_NANOSECONDS = 50_000
"""A kernel that takes longer gains nothing by being called from machine code, and more from several threads."""

STEP_NANOSECONDS = 5.0
"""What a step costs beside its kernel."""


def attempt(body: Function, machine_of: MachineOf, allowance: Allowance) -> SmallBodyKernel | str:
    """The kernel of a body with loops, or why there is none. `machine_of` gives the machine code of a node, if it has any; the
    memory that it keeps is taken from the allowance."""
    try:
        kernel = SmallBodyKernel(body, planned(body, machine_of))
    except NotSmallBody as e:
        return str(e)
    return kernel if allowance.take(kernel.workspace_bytes) else "no memory left that kernels may keep"


class SmallBodyKernel(MachineCode):
    """The compiled function and its words."""

    lowering = "machine code: a loop as a whole"

    def __init__(self, body: Function, loops: LoopPlan) -> None:
        kernels = [c.kernel for c in small_body_emit.kernels_of(loops)]
        if any(k.nanoseconds > KERNEL_NANOSECONDS for k in kernels):
            raise NotSmallBody("kernels that take long")
        self.params = tuple(range(len(body.params)))
        self._forms = tuple(form_of(p.type) for p in body.params)
        self.results = tuple(form_of(r.type) for r in body.results)
        self.in_place = (frozenset[int](),) * len(self.results)
        self._iteration_ns = STEP_NANOSECONDS * len(loops.actions) + sum(k.nanoseconds for k in kernels)
        trips = [trip_count(n) for n in body.nodes if n.op is LOOP_END]
        known = math.prod(n for n in trips if n is not None)
        self.nanoseconds = self._iteration_ns * max(1, known)
        self.is_short = None not in trips and self.nanoseconds <= CALL_NANOSECONDS
        """Whether one call does it all."""
        self._words = _Words(loops, kernels, 1 << 60 if self.is_short else max(1, int(CALL_NANOSECONDS / self._iteration_ns)))
        self.constants: tuple[Array, ...] = (self._words.array,)
        self.own_bytes = ()
        objects = len(self.params) + len(self.results)
        self.layout = Layout({}, {}, {}, 0, 0, objects, objects + 1)
        self.threads = 1
        address = machine_code.functions(small_body_emit.function_text(loops, self.params), ["iterate"], self)["iterate"]
        self.calls = ((address, 0),)
        self._call = ALONE(address)
        self._workspace = Workspace(self)

    @property
    def workspace_bytes(self) -> int:
        """The words and what they point to."""
        return self._words.bytes

    def keep(self, allowance: Allowance) -> None:
        """All of it is the kernel's own, and was taken when it was made."""

    def scratch(self, loose: Mapping[int, int]) -> int:
        """That, results before they are copied to where they go, and copies of arguments that may not lie in order."""
        return self.workspace_bytes + sum(form.nbytes for form in self.results) + sum(loose.values())

    def predicted(self) -> cost.ForecastParts:
        """How long a call takes by the cost model; of a loop whose iterations are not known, one iteration."""
        return cost.ForecastParts(0.0, self.nanoseconds, 0.0)

    def reads_plainly(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """It reads all its arguments as they lie; but one call of it may not be all."""
        return self.is_short

    def __call__(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Array]:
        """The results for the arguments; in the arrays of `out`, where one is given."""
        arrays = [np.asarray(args[k], order="C") for k in self.params]
        results = [RESULTS.empty(form.shape, form.dtype) for form in self.results]
        self._workspace.fill([*arrays, *results])
        self._words.array[small_body_emit.RESUME // 8] = 0
        while True:
            self._call(self._workspace.address, None)
            if not self._words.array[small_body_emit.RESUME // 8]:
                break
        return delivered(results, out)


class _Words:
    """The words of a kernel, and everything that they point to."""

    def __init__(self, loops: LoopPlan, kernels: Sequence[MachineCode], limit: int) -> None:
        self.array = aligned(small_body_emit.words_bytes(loops)).view(np.int64)
        self.array[:] = 0
        base = self.array.ctypes.data
        memory = KernelMemory(kernels)
        self.bytes = self.array.nbytes + workspace_bytes(kernels)
        self._kept: list[Any] = [memory, kernels]
        self.array[small_body_emit.LIMIT // 8] = limit
        self.array[small_body_emit.SCRATCH // 8] = memory.scratch[0]
        self._fill_storages(loops)
        at = small_body_emit.calls_at(loops) // 8
        for called in small_body_emit.kernels_of(loops):
            table = memory.table(called.kernel)
            objects = np.frombuffer(table, np.int64)
            objects[: len(called.objects)] = [base + small_body_emit.cell(s) for s in called.objects]
            self._kept.append(table)
            for function, _ in called.kernel.calls:
                self.array[at : at + 2] = function, address_of(table)
                at += 2

    def _fill_storages(self, loops: LoopPlan) -> None:
        sizes = [-(-s.nbytes // ALIGNMENT) * ALIGNMENT if s.is_owned else 0 for s in loops.storages]
        buffers = aligned(sum(sizes) + ALIGNMENT)
        self._kept.append(buffers)
        self.bytes += buffers.nbytes
        start = buffers.ctypes.data
        for number, (storage, size) in enumerate(zip(loops.storages, sizes, strict=True)):
            if storage.param is None:
                where = start if storage.array is None else storage.array.ctypes.data
                self.array[(small_body_emit.cell(number) + DATA) // 8] = where
            start += size
            self._kept.append(storage)

