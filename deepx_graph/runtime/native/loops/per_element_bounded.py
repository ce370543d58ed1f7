"""A loop whose elements go their own way and that ends soon, by a count: one call of machine code, as for any kernel.

What `element_kernel` does in rounds is done in one here, since the iterations are few; so such a loop can stand in a row of kernels
that Python enters once. Its results are arrays alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.kernels.program import Array, KernelProgram
from deepx_graph.runtime.memory.pool import delivered, result_memory
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.loopnest.table import Layout
from deepx_graph.runtime.native.loops import per_element_kernel
from deepx_graph.runtime.native.loops.per_element import MaskedLoop
from deepx_graph.runtime.native.loops.per_element_emit import module_text, plain_table_slots, row_bytes
from deepx_graph.runtime.native.loops.per_element_kernel import Shares, source_of
from deepx_graph.runtime.native.machine_kernel import ALONE, SHARED, MachineCode, Workspace, run_shared
from deepx_graph.runtime.straightline.segment import ArrayType


def is_bounded(loop: MaskedLoop, shares: Shares, threads: int) -> bool:
    """Whether one round is enough, and there is nothing to give but arrays."""
    if loop.bound is None or not set(loop.columns) <= set(loop.arrays):
        return False
    known = loop.flag is None or loop.inits[loop.flag].op is CONSTANT
    return known and loop.bound * shares.iteration_ns / min(threads, shares.pieces) <= per_element_kernel.ROUND_NANOSECONDS


class BoundedLoop(MachineCode):
    """A compiled loop and how to call it."""

    lowering = per_element_kernel.MaskedLoopKernel.lowering

    def __init__(self, loop: MaskedLoop, program: KernelProgram, shares: Shares, threads: int) -> None:
        assert loop.bound is not None
        self.threads = min(threads, shares.pieces)
        slots = plain_table_slots(loop)
        sources = [source_of(n) for n in (*(loop.inits[k] for k in (*loop.arrays, *loop.scalars)), *loop.given)]
        self.params = tuple(s for s in sources if isinstance(s, int))
        live = loop.flag is None or bool(value_of(loop.inits[loop.flag]).array) != loop.asks_all
        control = np.array([loop.bound, 1, live], np.int64)
        self.constants = (*(s for s in sources if not isinstance(s, int)), control)
        dtypes = [program.registers[r].dtype for r in program.results]
        self.results = tuple(ArrayType(dtypes[loop.arrays.index(k)], loop.shape) for k in loop.columns)
        extra = [dtypes[k].itemsize * shares.size for k, number in enumerate(loop.arrays) if number not in loop.columns]
        self.own_bytes = (*extra, shares.size // 2 + 64, shares.pieces * row_bytes(loop))
        self.layout = Layout({}, {}, {}, 0, 0, slots.objects, slots.size)
        self.in_place = (frozenset[int](),) * len(self.results)
        self.nanoseconds = loop.bound * shares.iteration_ns
        self._sweep = cost.NestWork(shares.size * loop.bound, shares.work, shares.pieces)
        at = machine_code.functions(module_text(loop, program, shares.piece, slots, this_machine()), ["work0", "whole"], self)
        self.calls = ((at["whole"], 0),) if self.threads == 1 else ((at["work0"], self.threads),)
        self._whole, self._work = ALONE(at["whole"]), SHARED(at["work0"])

    def predicted(self) -> cost.ForecastParts:
        """How long a call takes by the cost model, if no element ends before the count."""
        return cost.machine_code(constants(), [self._sweep], 0, self.threads)

    def reads_plainly(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """It reads all its arguments as they lie."""
        return True

    def __call__(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Array]:
        """The results for the arguments; in the arrays of `out`, where one is given."""
        arrays = [np.ascontiguousarray(args[k]) if np.ndim(args[k]) else np.asarray(args[k]) for k in self.params]
        results = [result_memory(f.shape, f.dtype, args, None if out is None else out[k], frozenset())
                   for k, f in enumerate(self.results)]
        workspace = self.workspace()
        workspace.fill([*arrays, *results])
        self._run(workspace)
        self.give_back(workspace)
        return delivered(results, out)

    def _run(self, workspace: Workspace) -> None:
        if self.threads == 1:
            self._whole(workspace.address, None)
        else:
            none, scratches = [None] * self.threads, ctypes.addressof(workspace.memory.scratches)
            run_shared(self._work, workspace.address, none, scratches, self.threads)
