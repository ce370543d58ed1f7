"""A whole loop or a whole program as one callable: instructions, which call the kernels of its operations.

One call has as many iterations as take some milliseconds; then Python has the floor for a moment, so that an endless loop can be
interrupted, and the next call goes on; the trampoline does so, too. A loop of few iterations, by its count, needs one call.
The words are memory of a call: several calls may run at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.errors import Diagnostic, LimitError
from deepx_graph.ir import Function
from deepx_graph.ir.structure import LOOP_END, callee_of
from deepx_graph.runtime.array_type import form_of
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.whole_function import is_program, is_whole
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.memory.pool import Allowance
from deepx_graph.runtime.native.call_image import CallImage
from deepx_graph.runtime.native.dispatch import DEPTH, STACK_END, STACK_START
from deepx_graph.runtime.native.machine_kernel import CallMemory, MachineKernel
from deepx_graph.runtime.native.whole_program.calls import TAG, CalledFunctions, CallLimits, planned_with_calls
from deepx_graph.runtime.native.whole_program.encode import encoded
from deepx_graph.runtime.native.whole_program.plan import Called, Invoked, MachineOf, ProgramPlan, called
from deepx_graph.runtime.native.whole_program.planner import MOST_BYTES, MOST_PROGRAM_BYTES

CALL_NANOSECONDS = 20_000_000
"""About how long one call takes at most."""

WHOLE_PROGRAM, CLUSTER, WHOLE_LOOP = (
    "machine code: the whole program", "machine code: a part of the program as a whole", "machine code: a loop as a whole")
"""How such a kernel runs, in words."""

STEP_NANOSECONDS = 5.0
"""What a step costs beside its kernel."""


STACK_BYTES, STACK_GROWTH, KEPT_STACK = 1 << 20, 16, 32 << 20
"""Memory for the records of recursive calls at first, how many times as much there is when that is not enough, and the most that is
kept."""


def build(body: Function, machine_of: MachineOf, allowance: Allowance, called: CalledFunctions) -> WholeProgramKernel:
    """The kernel of a body with loops, or with calls of functions that are there. Raises Declined. `machine_of` gives the machine
    code of a node, if it has any; the memory that it keeps is taken from the allowance."""
    most = MOST_PROGRAM_BYTES if is_whole(body) else MOST_BYTES
    kernel = WholeProgramKernel(body, planned_with_calls(body, called.functions, machine_of, most), called.limits)
    if not is_whole(body) and not allowance.take(kernel.workspace_bytes):
        raise Declined("no memory left that kernels may keep")
    return kernel


class WholeProgramKernel(MachineKernel):
    """The plan of a body, and how to make its words."""

    is_program = True

    def __init__(self, body: Function, plan: ProgramPlan, limits: CallLimits) -> None:
        kernels = [c.kernel for part in plan.parts for _, c in called(part.actions)]
        self.threads = max((k.team for k in kernels), default=0) or 1
        self.lowering = WHOLE_PROGRAM if is_whole(body) else CLUSTER if is_program(body) else WHOLE_LOOP
        self.params = tuple(range(len(body.params)))
        self.results = tuple(form_of(r.type) for r in body.results)
        self.in_place = plan.in_place
        if plan.giving is not None:
            self.giving = WholeProgramKernel(body, replace(plan.giving, functions=plan.functions), limits)
        iteration_ns = STEP_NANOSECONDS * sum(len(part.actions) for part in plan.parts) + sum(k.nanoseconds for k in kernels)
        trips = [trip_count(n) for n in body.nodes if n.op is LOOP_END]
        known = math.prod(max(1, n) for n in trips if n is not None)
        own_ns = [STEP_NANOSECONDS + sum(a.kernel.nanoseconds for a in some if isinstance(a, Called)) for some in plan.actions]
        together = sum(ns * times for ns, times in zip(own_ns, _times(plan), strict=True))
        self.nanoseconds = together + max(0.0, iteration_ns - sum(own_ns)) * known  # functions as often as all loops iterate
        self.is_one_call = not plan.functions and None not in trips and self.nanoseconds <= CALL_NANOSECONDS
        self._plan, self._limits, self._stack_bytes = plan, limits, min(STACK_BYTES, limits.max_bytes)
        self._jumps = 1 << 60 if self.is_one_call else max(1, int(CALL_NANOSECONDS / iteration_ns))
        self.is_kept = True

    @cached_property
    def image(self) -> CallImage:
        """As for every kernel; waits for the code of the kernels that it has the addresses of."""
        return encoded(self._plan, len(self.params), self._jumps)

    @property
    def workspace_bytes(self) -> int:
        """The memory of the plan."""
        return self._plan.offsets[-1]

    @property
    def team(self) -> int:
        """Its own kernels share their work."""
        return self.threads

    def keep(self, allowance: Allowance) -> None:
        """Its memory was taken when it was made."""

    def new_memory(self) -> CallMemory:
        """With memory for the records of recursive calls."""
        is_recursive = any(f.is_recursive for f in self._plan.functions)
        return CallMemory(self.image.in_memory(self._stack_bytes if is_recursive else 0, self._limits.max_depth))

    @property
    def calls_functions(self) -> bool:
        """Whether functions of the module are called in it, which may need more memory than there is."""
        return bool(self._plan.functions)

    def give_back(self, memory: CallMemory) -> None:
        """One is kept, as it is large."""
        if not self._spare and self._stack_bytes <= KEPT_STACK:
            self._spare.append(memory)

    def predicted(self) -> cost.ForecastParts:
        """How long a call takes by the cost model; of a loop whose iterations are not known, one iteration."""
        return cost.ForecastParts(0.0, self.nanoseconds, 0.0)

    def run(self, memory: CallMemory, args: Sequence[Any], results: Sequence[Array]) -> None:
        """All iterations; Python has the floor between calls."""
        super().run(memory, args, results)
        if memory.failed is not None:
            self._run_with_more(memory, args, results)

    def _run_with_more(self, memory: CallMemory, args: Sequence[Any], results: Sequence[Array]) -> None:
        """All of it again, with more memory for calls. Raises LimitError, at the call, where there may be no more."""
        words, at = memory.words, memory.failed
        assert at is not None
        call = [a for p in self._plan.parts for some in p.actions for a in some if isinstance(a, Invoked)][at]
        name = callee_of(call.node).partition(TAG)[0]
        if words[DEPTH // 8] >= self._limits.max_depth:
            raise LimitError(Diagnostic(f"calls nest more than {self._limits.max_depth} deep, in '{name}'", call.node.span))
        stack_bytes = int(words[STACK_END // 8] - words[STACK_START // 8])
        if stack_bytes >= self._limits.max_bytes:
            message = f"the levels of the recursion of '{name}' need more than {self._limits.max_bytes} bytes"
            raise LimitError(Diagnostic(message, call.node.span))
        self._stack_bytes = max(self._stack_bytes, min(STACK_GROWTH * stack_bytes, self._limits.max_bytes))
        self._spare.clear()
        more = self.new_memory()
        self.run(more, args, results)
        self.give_back(more)


def _times(plan: ProgramPlan) -> list[int]:
    """How often each position of the code runs, as far as the loops around it tell; what they leave open counts once."""
    times = [1] * len(plan.actions)
    for end, span in plan.code.loops.items():
        trips = trip_count(end)
        if trips is not None and trips > 1:
            times[span.start : span.end] = [t * trips for t in times[span.start : span.end]]
    return times
