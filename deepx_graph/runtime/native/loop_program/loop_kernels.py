"""Which loops of a function become kernels, each in the place of a loop or of the whole function.

A loop whose elements are independent is one, whatever stands around it. Of what is left, a function with loops of short iterations
is one, or else each such loop. One thread does all of these: longer iterations gain more from kernels of their own.

A loop that may run long becomes a loop over kernels that do some of its iterations each (strip-mining): so it can be interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import copied, opened, rebuild, with_results
from deepx_graph.ir.structure import LOOP_END, PARAM, PHI, REGION, index_of
from deepx_graph.loops.passes.pipeline import optimised
from deepx_graph.loops.program import For, LoopProgram, Statement, While, blocks_of, walk
from deepx_graph.loops.scalar import NotExpressible
from deepx_graph.loops.weight import UNKNOWN_TRIPS
from deepx_graph.lowering.control import lower_control, small_fusion
from deepx_graph.lowering.groups import lower_masked
from deepx_graph.lowering.masked_loop import MaskedLoop, recognise
from deepx_graph.ops.data.fusion import fused_body, fusion
from deepx_graph.ops.math.elementwise import add, and_, compare
from deepx_graph.rewrite.flat_loop import flat_loop, varying_with
from deepx_graph.rewrite.control.outline import outlined
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


# --- strip-mining


def with_loops(function: Function, made: KernelOfLoop, length: Callable[[Function], int]) -> Function:
    """The function with each loop for which `made` has a kernel as that, or as a loop over kernels of so many iterations; outer
    loops first. `length` may raise Declined."""
    strips: dict[Function, Function] = {}

    def accepts(body: Function) -> bool:
        if made(body, None, ITERATION_NANOSECONDS) is not None:
            return True
        try:
            strips[body] = in_strips(body, made, length(body))
        except Declined:
            return False
        return True

    return opened(outlined(function, accepts), lambda n: strips.get(body) if (body := fused_body(n)) else None)


def in_strips(function: Function, made: KernelOfLoop, length: int) -> Function:
    """A function that is one loop as a loop over kernels that do up to `length` iterations each. Raises Declined."""
    function = opened(function, small_fusion)
    flat = flat_loop(function)
    if flat is None:
        raise Declined("not one loop")
    longest = ITERATION_NANOSECONDS if flat is function else STAGE_NANOSECONDS
    function, end = flat, flat.results[0].inputs[0]
    begin = end.inputs[0]
    varying = varying_with(function.nodes, begin)
    iteration = [n for n in Function("iteration", (), end.inputs[1:]).nodes if n in varying - {begin} or _is_source(n)]
    read = {i for n in (*iteration, end) for i in n.inputs} - varying
    outside = [n for n in function.nodes if n in read and not _is_source(n)]
    b = Builder()

    def some(*params: Node) -> Sequence[Node]:
        """The variables after up to so many iterations, and how many these were: others may follow where they are all."""
        def whole(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            phis = {n: v[index_of(n)] for n in iteration if n.op is PHI and n.inputs[0] is begin}
            new = rebuild(iteration, {**dict(zip(outside, params, strict=False)), **phis}, copied)
            test, *nexts = (new[i] for i in end.inputs[1:])
            is_within = b(compare, v[-1], b.like(length, v[-1]), direction="LT")
            return b(and_, test, is_within), [*nexts, b(add, v[-1], b.like(1, v[-1]))]

        return b.loop((*params[len(outside) :], b.constant(np.int32(0))), whole)

    strip = b.function("strip", [(f"x{k}", n.type) for k, n in enumerate((*outside, *begin.inputs))], some)
    if made(strip, length, longest) is None:
        raise Declined("iterations that are not short")

    def all_strips(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        found = b(fusion, *outside, *v[:-1], body=strip)
        return b(compare, v[-1], b.like(length, v[-1]), direction="EQ"), [b.proj(found, k) for k in range(len(v))]

    last = b.loop((*begin.inputs, b.constant(np.int32(length))), all_strips)
    return with_results(function, tuple(last[index_of(r)] for r in function.results))


def _is_source(node: Node) -> bool:
    """Whether the node is made of nothing: a constant, or positions along an axis."""
    return not node.inputs and node.op is not PARAM
