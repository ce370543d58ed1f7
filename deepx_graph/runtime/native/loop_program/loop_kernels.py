"""Which loops of a function become kernels, each in the place of a loop or of the whole function.

A loop whose elements are independent is one, whatever stands around it. Of what is left, a function with loops of short iterations
is one, or else each such loop. One thread does all of these: longer iterations gain more from kernels of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from deepx_graph.ir import Function
from deepx_graph.ir.structure import LOOP_END, REGION
from deepx_graph.loops.passes.pipeline import optimised
from deepx_graph.loops.program import For, LoopProgram, Statement, While, blocks_of, walk
from deepx_graph.loops.scalar import NotExpressible
from deepx_graph.loops.weight import UNKNOWN_TRIPS
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.outline import as_kernel
from deepx_graph.runtime.native.loop_program.control import lower_control
from deepx_graph.runtime.native.loop_program.groups import lower_masked
from deepx_graph.runtime.native.loop_program.kernel import LoopKernel, nanoseconds
from deepx_graph.runtime.native.loop_program.masked_loop import MaskedLoop, recognise
from deepx_graph.runtime.native.loop_program.strips import with_loops

ELEMENT_BY_ELEMENT, IN_REGISTERS = "machine code: a loop, element by element", "machine code: loops with scalars in registers"
"""How such kernels run, in words."""

CALL_NANOSECONDS = 20_000_000
"""About how long one call of a thread takes at most: nothing interrupts it."""

ITERATION_NANOSECONDS = 20_000
"""About what an iteration of an outermost loop may take that one thread does."""

STRIP = 20_000
"""So many of these are done before others have the floor, where nobody knows how many there are."""

Build = Callable[[Function, int], LoopKernel]
Tried = Callable[[Build, Function], object]
"""Gives the kernel that a builder has for a function, or None."""


def with_loop_kernels(function: Function, tried: Tried, threads: int, declines: Callable[[Function], bool]) -> Function:
    """The function as one kernel, or with loops as kernels; none of functions that `declines` would have otherwise."""
    if not any(n.op is LOOP_END or n.op is REGION for n in function.nodes):
        return function
    function = with_loops(function, lambda body, bound: tried(partial(build_masked, bound=bound), body),
                          lambda body: masked_strip(body, threads))

    def short(body: Function, bound: int | None = None) -> object:
        return None if declines(body) else tried(partial(build_short, bounded=bound is not None), body)

    def required(body: Function) -> None:
        if short(body) is None:
            raise Declined

    try:
        return as_kernel(function, required)
    except Declined:
        return with_loops(function, short, lambda body: STRIP)


def _masked(function: Function) -> tuple[MaskedLoop, LoopProgram, float]:
    """A function that is one loop of independent elements, its program, and what an iteration takes. Raises Declined."""
    loop = recognise(function)
    try:
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


def build_short(function: Function, threads: int, *, bounded: bool = False) -> LoopKernel:
    """The kernel of a function with loops of short iterations; `bounded` says that it has one, of few. Raises Declined."""
    try:
        program = lower_control(function)
    except NotExpressible as e:
        raise Declined(str(e)) from None
    if (longest := max((nanoseconds(i, vectors=False) for i in _iterations(program)), default=0.0)) > ITERATION_NANOSECONDS:
        raise Declined(f"iterations of about {longest / 1000:.0f} microseconds")
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
