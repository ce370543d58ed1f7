"""Which loops of a function become kernels, each in the place of a loop or of the whole function.

A loop whose elements are independent is one, whatever stands around it. Of what is left, a function with loops of short iterations
is one, or else each such loop. One thread does all of these: longer iterations gain more from kernels of their own.

A loop that may run long becomes a loop over kernels that do some of its iterations each: so it can be interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from deepx_graph.ir import Function
from deepx_graph.ir.rebuild import opened
from deepx_graph.ir.structure import LOOP_END, REGION
from deepx_graph.loops.passes.pipeline import optimised
from deepx_graph.loops.program import For, LoopProgram, Statement, While, blocks_of, walk
from deepx_graph.loops.scalar import NotExpressible
from deepx_graph.loops.weight import UNKNOWN_TRIPS
from deepx_graph.lowering.control import lower_control, small_fusion
from deepx_graph.lowering.groups import lower_masked
from deepx_graph.lowering.masked_loop import MaskedLoop, recognise
from deepx_graph.ops.data.fusion import fused_body
from deepx_graph.rewrite.control.outline import outlined
from deepx_graph.rewrite.control.strip_mining import in_strips
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.whole_function import as_kernel
from deepx_graph.runtime.native.loop_program.kernel import LoopKernel
from deepx_graph.runtime.native.loop_program.timing import nanoseconds
from deepx_graph.runtime.native.machine_kernel import MachineKernel

ELEMENT_BY_ELEMENT, IN_REGISTERS = "machine code: a loop, element by element", "machine code: loops with scalars in registers"
"""How such kernels run, in words."""

CALL_NANOSECONDS = 20_000_000
"""About how long one call of a thread takes at most: nothing interrupts it."""

ITERATION_NANOSECONDS = 20_000
"""About what an iteration of an outermost loop may take that one thread does."""

STRIP = 20_000
"""So many of these are done before others have the floor, where nobody knows how many there are."""

STAGE_NANOSECONDS = 100
"""About what an iteration may take of a loop that is one in the place of several: what it saves is a few calls of kernels."""

KernelOfLoop = Callable[[Function, int | None, float], object]
"""Gives the kernel of a function of one loop, which does so many iterations at most, of up to so many nanoseconds each; None where
there is none. Without a number of iterations the loop is known not to run long."""

Build = Callable[[Function, int], MachineKernel]
Tried = Callable[[Build, Function], object]
"""Gives the kernel that a builder has for a function, or None."""


def with_loop_kernels(function: Function, tried: Tried, threads: int, declines: Callable[[Function], bool]) -> Function:
    """The function as one kernel, or with loops as kernels; none of functions that `declines` would have otherwise."""
    if not any(n.op is LOOP_END or n.op is REGION for n in function.nodes):
        return function
    function = with_loops(function, lambda body, bound, _: tried(partial(build_masked, bound=bound), body),
                          lambda body: masked_strip(body, threads))

    def short(body: Function, bound: int | None = None, longest: float = ITERATION_NANOSECONDS) -> object:
        return None if declines(body) else tried(partial(build_short, bounded=bound is not None, longest=longest), body)

    def required(body: Function) -> None:
        if short(body) is None:
            raise Declined

    try:
        return as_kernel(function, required)
    except Declined:
        return with_loops(function, short, lambda body: STRIP)


def _masked(function: Function) -> tuple[MaskedLoop, LoopProgram, float]:
    """A function that is one loop of independent elements, its program, and what an iteration takes. Raises Declined."""
    try:
        loop = recognise(function)
        program = optimised(lower_masked(loop))
    except NotExpressible as e:
        raise Declined(str(e)) from None
    return loop, program, nanoseconds(program.body) / UNKNOWN_TRIPS


def masked_strip(function: Function, threads: int) -> int:
    """How many iterations of such a loop a kernel does that is not to run too long. Raises Declined."""
    return max(16, int(CALL_NANOSECONDS * threads / _masked(function)[2]))


def build_masked(function: Function, threads: int, bound: int | None = None) -> LoopKernel:
    """The kernel of such a function, whose iterations are `bound` at most, or known to be few. Raises Declined."""
    loop, program, iteration = _masked(function)
    times = loop.bound if bound is None else bound
    if times is None or (bound is None and times * iteration / threads > CALL_NANOSECONDS):
        raise Declined("a loop that may run long")
    kernel = _kernel(loop.body, program, threads, ELEMENT_BY_ELEMENT)
    kernel.nanoseconds *= max(1.0, times / UNKNOWN_TRIPS)
    return kernel


def build_short(function: Function, threads: int, *, bounded: bool = False, longest: float = ITERATION_NANOSECONDS) -> LoopKernel:
    """The kernel of a function with loops of short iterations; `bounded` says that it has one, of few. Raises Declined."""
    try:
        program = lower_control(function)
    except NotExpressible as e:
        raise Declined(str(e)) from None
    if (time := max((nanoseconds(i, vectors=False) for i in _iterations(program)), default=0.0)) > longest:
        raise Declined(f"iterations of about {time / 1000:.3g} microseconds")
    loops = [s for s in walk(program.body) if isinstance(s, While)]
    if len(loops) > bounded or (not bounded and nanoseconds(program.body, vectors=False) > CALL_NANOSECONDS):
        raise Declined("a loop that may run long")
    kernel = _kernel(function, optimised(program), threads, IN_REGISTERS)
    kernel.nanoseconds *= STRIP if bounded else 1
    return kernel


def _kernel(function: Function, program: LoopProgram, threads: int, lowering: str) -> LoopKernel:
    try:
        kernel = LoopKernel(function, program, threads)
    except NotExpressible as e:
        raise Declined(str(e)) from None
    kernel.lowering = lowering
    return kernel


def _iterations(program: LoopProgram) -> Iterator[list[Statement]]:
    """The bodies of the outermost loops that are not parallel, whose statements are one loop of one iteration."""
    stack = [s for whole in program.body if isinstance(whole, For) for s in whole.body]
    while stack:
        s = stack.pop()
        if isinstance(s, While) or (isinstance(s, For) and not s.parallel):
            yield s.body
        else:
            stack += (each for block in blocks_of(s) for each in block)


def with_loops(function: Function, made: KernelOfLoop, length: Callable[[Function], int]) -> Function:
    """The function with each loop for which `made` has a kernel as that, or as a loop over kernels of so many iterations; outer
    loops first. `length` may raise Declined."""
    strips: dict[Function, Function] = {}

    def strip_mined(body: Function) -> Function | None:
        most = length(body)
        return in_strips(opened(body, small_fusion), most, lambda strip, is_flattened: made(
            strip, most, STAGE_NANOSECONDS if is_flattened else ITERATION_NANOSECONDS) is not None)

    def accepts(body: Function) -> bool:
        if made(body, None, ITERATION_NANOSECONDS) is not None:
            return True
        with suppress(Declined):
            if (found := strip_mined(body)) is not None:
                strips[body] = found
        return body in strips

    return opened(outlined(function, accepts), lambda n: strips.get(body) if (body := fused_body(n)) else None)
