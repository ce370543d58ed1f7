"""A loop program as a callable of machine code.

A parallel loop with work enough is shared out among the threads in chunks that depend on shapes alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.loops.elements import tensor_type
from deepx_graph.loops.in_place import Accesses
from deepx_graph.loops.lower import lower, reads_of
from deepx_graph.loops.passes.pipeline import optimised
from deepx_graph.loops.program import Buffer, Copy, For, Load, LoopProgram, Statement, Store, walk
from deepx_graph.loops.scalar import NotExpressible
from deepx_graph.runtime.array_type import ArrayType
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.cost.model import ForecastParts
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.loop_program.emit import CodePart, is_all_vectors, module_text, parts
from deepx_graph.runtime.native.loop_program.outer_loop import rows_at_once
from deepx_graph.runtime.native.loop_program.primitives import array_dtype
from deepx_graph.runtime.native.loop_program.timing import nanoseconds
from deepx_graph.runtime.native.machine_kernel import MachineKernel, data_is_where_expected
from deepx_graph.types import leaves

MOST_CHUNKS = 64


def build(function: Function, threads: int) -> LoopKernel:
    """The kernel of a function. Raises Declined where a declaration says no element, or a primitive has no machine code."""
    if not data_is_where_expected():
        raise Declined("arrays of this Python are not laid out as kernels expect")
    try:
        return LoopKernel(function, optimised(lower(function)), threads)
    except NotExpressible as e:
        raise Declined(str(e)) from None


class LoopKernel(MachineKernel):
    """Compiled loops and how to call them. Raises NotExpressible for a primitive that has no machine code."""

    lowering = "machine code of loops"

    def __init__(self, function: Function, program: LoopProgram, threads: int) -> None:
        self.program, self.threads = program, threads
        self.constants = tuple(np.ascontiguousarray(b.array) for b in program.constants)
        self.params = tuple(range(len(program.arguments)))
        types = [tensor_type(t) for r in function.results for t in leaves(r.type)]
        self.results = tuple(ArrayType(array_dtype(t.dtype), t.shape) for t in types)
        accesses = Accesses(program)
        self.in_place = tuple(frozenset((*accesses.copied_only(r), *accesses.written_over(r))) for r in program.results)
        over = [[a for k in may if accesses.is_read(a := program.arguments[k])] for may in self.in_place]
        near = {a for may in over for a in may} | {r for r, may in zip(program.results, over, strict=True) if may}
        timed = [(tuple(p), nanoseconds(p)) for p in parts(program)]
        self.shares = [CodePart(body, _chunks(body, whole)) for body, whole in timed]
        self.own_bytes, self.own_spans = tuple(b.nbytes for b in program.scratch), _spans(program.scratch, self.shares)
        self.nanoseconds = sum(whole for _, whole in timed)
        read = reads_of(list(program.body), dict.fromkeys(program.arguments, 1))
        self.moved_bytes = sum(min(b.nbytes, int(n)) for b, n in read.items()) + sum(r.nbytes for r in program.results)
        """What a call reads and writes: of an operand of which few elements are picked, these alone."""
        self._functions(module_text(program, self.shares, this_machine(), frozenset(near)))

    def _functions(self, ir: str) -> None:
        called = [(f"work{k}", min(self.threads, s.chunks)) if s.chunks else (f"whole{k}", 0) for k, s in enumerate(self.shares)]
        plain = all(is_all_vectors(s.body, this_machine()) for s in self.shares)
        at = machine_code.functions(ir, [name for name, _ in called], self, optimise=not plain)
        self.called = tuple((at[name], threads) for name, threads in called)

    def predicted(self) -> ForecastParts:
        """How long a call takes by the cost model."""
        threads = self.threads if any(s.chunks for s in self.shares) else 1
        c = constants()
        return ForecastParts(c.native_call_ns, self.nanoseconds / threads, cost.memory_ns(c, self.moved_bytes, threads))


def _chunks(body: Sequence[Statement], whole: float) -> int:
    """In how many shares a part is done that takes one thread so many nanoseconds; 0 for one that one thread does."""
    loop = body[0]
    if not isinstance(loop, For) or not loop.parallel or len(body) > 1:
        return 0
    least = cost.chunk_ns(constants())
    chunks = min(MOST_CHUNKS, loop.high.constant // rows_at_once(loop, this_machine()), int(3 * whole / least))
    return chunks if whole > 2 * least and chunks > 1 else 0


def _spans(buffers: Sequence[Buffer], shares: Sequence[CodePart]) -> tuple[tuple[int, int], ...]:
    """The first and the last part that touches each buffer: in one part pointers are known to be apart."""
    touched: dict[Buffer, list[int]] = {b: [] for b in buffers}
    for k, share in enumerate(shares):
        for s in walk(list(share.body)):
            used = (s.source, s.target) if isinstance(s, Copy) else (s.buffer,) if isinstance(s, (Load, Store)) else ()
            for buffer in used:
                touched.get(buffer, []).append(k)
    return tuple((min(at, default=0), max(at, default=0)) for at in touched.values())
