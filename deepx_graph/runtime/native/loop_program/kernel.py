"""A loop program as a callable of machine code.

A parallel loop with work enough is shared out among the threads in chunks that depend on shapes alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.loops.elements import tensor_type
from deepx_graph.loops.lower import lower
from deepx_graph.loops.passes.pipeline import optimised
from deepx_graph.loops.program import Buffer, Copy, For, Load, LoopProgram, Statement, walk
from deepx_graph.loops.scalar import NotExpressible
from deepx_graph.loops.weight import price_of, weighted
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.cost.model import ForecastParts
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.loop_program.emit import CodePart, module_text, parts
from deepx_graph.runtime.native.loop_program.primitives import array_dtype
from deepx_graph.runtime.native.machine_kernel import (
    Layout,
    MachineCode,
)
from deepx_graph.runtime.straightline import ArrayType
from deepx_graph.types import leaves

SCALAR = 6.0
"""What a statement costs here, beside the same as part of a kernel of whole vectors: not all loops become vectors."""

MOST_CHUNKS = 64


def build(function: Function, threads: int) -> LoopKernel:
    """The kernel of a function. Raises Declined where a declaration says no element, or a primitive has no machine code."""
    try:
        return LoopKernel(function, optimised(lower(function)), threads)
    except NotExpressible as e:
        raise Declined(str(e)) from None


class LoopKernel(MachineCode):
    """Compiled loops and how to call them. Raises NotExpressible for a primitive that has no machine code."""

    lowering = "machine code of loops"

    def __init__(self, function: Function, program: LoopProgram, threads: int) -> None:
        self.program, self.threads = program, threads
        self.constants = tuple(np.ascontiguousarray(b.array) for b in program.constants)
        self.own_bytes = tuple(b.nbytes for b in program.scratch)
        objects = len(program.arguments) + len(program.results)
        size = objects + len(self.constants) + len(self.own_bytes)
        self.layout = Layout({}, {}, {}, 0, 0, objects, size)
        self.params = tuple(range(len(program.arguments)))
        types = [tensor_type(t) for r in function.results for t in leaves(r.type)]
        self.results = tuple(ArrayType(array_dtype(t.dtype), t.shape) for t in types)
        self.in_place = tuple(frozenset(copied_only(program, r)) for r in program.results)
        self.shares = [CodePart(tuple(p), self._chunks(p)) for p in parts(program)]
        self.nanoseconds = sum(nanoseconds(s.body) for s in self.shares)
        self._functions(module_text(program, self.shares, this_machine()))

    def _chunks(self, body: Sequence[Statement]) -> int:
        """In how many shares a part is done; 0 for one that one thread does."""
        loop = body[0]
        if not isinstance(loop, For) or not loop.parallel or len(body) > 1:
            return 0
        least, whole = cost.chunk_ns(constants()), nanoseconds(body)
        count = loop.high.constant
        chunks = min(MOST_CHUNKS, count, int(3 * whole / least))
        return chunks if whole > 2 * least and chunks > 1 else 0

    def _functions(self, ir: str) -> None:
        shares = [("work", min(self.threads, s.chunks)) if s.chunks else ("whole", 0) for s in self.shares]
        alone = not any(threads for _, threads in shares)
        called = [("all", 0)] if alone else [(f"{name}{k}", threads) for k, (name, threads) in enumerate(shares)]
        at = machine_code.functions(ir, [name for name, _ in called], self, optimise=True)
        self.calls = tuple((at[name], threads) for name, threads in called)

    def predicted(self) -> ForecastParts:
        """How long a call takes by the cost model."""
        nbytes = sum(b.nbytes for b in (*self.program.arguments, *self.program.results))
        threads = self.threads if any(s.chunks for s in self.shares) else 1
        return ForecastParts(0.0, self.nanoseconds / threads, cost.memory_ns(constants(), nbytes, threads))


def copied_only(program: LoopProgram, result: Buffer) -> list[int]:
    """The arguments that are only copied into a result, before anything else: it may lie in their memory, with nothing copied."""
    read = {s.buffer for s in walk(program.body) if isinstance(s, Load)}
    copies = [s for s in walk(program.body) if isinstance(s, Copy)]
    sources = [s.source for s in copies if s.target is result and s.source not in read]
    return [k for k, a in enumerate(program.arguments) if a in sources and sum(s.source is a for s in copies) == 1]


def nanoseconds(body: Sequence[Statement]) -> float:
    """About how long one thread works on statements."""
    work = sum(times * price_of(s) for s, times in weighted(list(body)))
    return cost.nest_ns(constants(), 1, SCALAR * work)
