"""From loop programs to LLVM IR: scalar loops, of which LLVM's passes make vectors.

Each parallel loop that needs nothing from outside becomes a function of its own with `noalias` pointers, and so does each run of
other statements; a table of addresses is what they are called with (`machine_kernel`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from deepx_graph.ir.scalar_expr import FUNCTION_PRICE
from deepx_graph.loops.primitives import price
from deepx_graph.loops.program import (
    Buffer,
    Combine,
    Copy,
    For,
    Let,
    Load,
    LoopProgram,
    Statement,
    Store,
    While,
    blocks_of,
    free,
    position_in,
    walk,
)
from deepx_graph.loops.scalar import Affine
from deepx_graph.runtime.native.dispatch import TableSlot
from deepx_graph.runtime.native.llvm.builder import IRBuilder, VectorValue, branch, each_share, memory_type, scalar_type
from deepx_graph.runtime.native.llvm.target import Target
from deepx_graph.runtime.native.loop_program.outer_loop import OuterLoop, leaves_few_rows, outer_plan, rows_at_once
from deepx_graph.runtime.native.loop_program.primitives import np_dtype
from deepx_graph.runtime.native.loop_program.statements import StatementEmitter, named, traffic_of
from deepx_graph.runtime.native.loop_program.vector_loop import MOST_LANES, VectorLoop
from deepx_graph.runtime.native.loop_program.vector_plan import plan

LEAST_VECTOR = 8
"""A loop of so many iterations is made of vectors, where it can be."""

FREE = 2
"""The first number of metadata; those before are of `IRBuilder`."""

LONGEST_ROW = 400
"""Loads, stores and operations of the elements of a row that is kept in registers."""


WHOLE_LINES = 64
"""Shares of a long loop begin at multiples of so many iterations: vectors then lie on cache lines as results do."""


@dataclass(frozen=True)
class CodePart:
    """What one machine function does: a parallel loop in `chunks` shares, or statements in order (no chunks)."""

    body: tuple[Statement, ...]
    chunks: int = 0


def parts(program: LoopProgram) -> Iterator[list[Statement]]:
    """The top level cut into parallel loops that need nothing from outside, and the statements between them."""
    serial: list[Statement] = []
    for s in program.body:
        if isinstance(s, Copy) or (isinstance(s, For) and s.parallel and not free(s)):
            if serial:
                yield serial
            serial = []
            yield [s]
        else:
            serial.append(s)
    if serial:
        yield serial


class FunctionEmitter(StatementEmitter):
    """One function, `define void @name(pointers, i64 low, i64 high)`; the bounds are those of a parallel loop's share.

    It is not for LLVM to inline: pointers known to be apart cost nothing only as parameters, and code is optimised once.
    """

    def function(self, name: str, body: Sequence[Statement], *, shared: bool, more: Sequence[str] = ()) -> str:
        """The text of the function; `used` are then the buffers that it takes, in order; `more` are integers behind its bounds.
        Raises NoPrimitive."""
        if shared:
            (loop,) = body
            assert isinstance(loop, For)
            self._loop(loop, "%low", "%high")
        else:
            self.block(body)
        if self.traffic.streams:
            self.t.line("fence seq_cst")
        self.t.line("ret void")
        pointers = [f"ptr {'' if b in self.traffic.near else 'noalias '}nocapture {named(b)}" for b in self.used]
        head = [f"  {slot} = alloca {scalar_type(np_dtype(c.dtype))}" for c, slot in self.slots.items()]
        head += [f"  {slot} = alloca [{b.size + MOST_LANES} x {memory_type(np_dtype(b.dtype))}], align 64"
                 for b, slot in self.locals.items()]
        params = ", ".join([*pointers, *(f"i64 {x}" for x in (["%low", "%high", *more] if shared else []))])
        text = [f"define internal void @{name}({params}) nounwind noinline {{", "entry:", *head, *self.t.lines, "}"]
        return "\n".join(text)

    def _loop(self, s: For, low: str, high: str) -> None:
        t = self.t
        if (across := outer_plan(s, self.machine)) is not None:
            low = OuterLoop(self, s, across).write(low, high)
        times = None if "%" in low + high else int(high) - int(low)
        if times is not None and times <= 1:
            self.env[s.axis] = low
            self.block(s.body if times == 1 else [])
            return
        vectors = None if _is_row(s) else plan(s, self.machine)
        if vectors is not None and times is not None:
            VectorLoop(self, s, vectors).write(low, high)
            return
        if vectors is not None:
            branch(t, t.let(f"icmp slt i64 {low}, {high}"), lambda: VectorLoop(self, s, vectors).write(low, high))
            return

        def iteration(axis: str, carried: Sequence[VectorValue]) -> Sequence[VectorValue]:
            self.env[s.axis] = axis
            self.block(s.body)
            return carried

        around, own = self.group, ""
        if self.traffic.near and s.parallel and all(not blocks_of(e) or _is_short(e) for e in _opened(s.body)):
            own = self._metadata("distinct !{}")
            self.group = self._metadata(f"!{{{around}, {own}}}") if around else own
        t.loop(low, high, (), iteration, is_sure=times is not None, hint=lambda: self._hint(s, own))
        self.group = around

    def _metadata(self, text: str) -> str:
        """New metadata of that text."""
        name = f"!{next(self.metadata)}"
        self.t.declare(f"{name} = {text}")
        return name

    def _hint(self, s: For, group: str) -> str:
        """What LLVM is told of a loop, where anything is; iterations do not depend on one another by the accesses of a group."""
        hints = ["vectorize.enable\", i1 false"] if _is_around_vectors(s) else []
        if _is_vectors(s):
            hints.append("unroll.disable\"")
        elif _is_row(s):
            hints.append("unroll.full\"")
        elif _length(s) >= LEAST_VECTOR and _is_around_wide(s, self.machine):
            hints.append("unroll.disable\"")
        if group:
            hints.append(f"parallel_accesses\", {group}")
        if not hints:
            return ""
        loop, *ids = (f"!{next(self.metadata)}" for _ in range(len(hints) + 1))
        for each, text in zip(ids, hints, strict=True):
            self.t.declare(f'{each} = !{{!"llvm.loop.{text}}}')
        self.t.declare(f"{loop} = distinct !{{{', '.join([loop, *ids])}}}")
        return f", !llvm.loop {loop}"

def _is_around_vectors(loop: For) -> bool:
    """Whether loops within store elements: these become vectors, not the serial loop around them."""
    within = [each for each in walk(loop.body) if isinstance(each, For)]
    return not loop.parallel and any(isinstance(s, Store) for each in within for s in each.body)


def _is_vectors(loop: For) -> bool:
    """Whether iterations are independent, and enough for vectors: LLVM is not to unroll the loop before it makes vectors of it."""
    is_free = loop.parallel or any(isinstance(each, Combine) for each in loop.body)
    return is_free and _length(loop) >= LEAST_VECTOR and not any(blocks_of(each) for each in loop.body)


def is_all_vectors(body: Sequence[Statement], machine: Target) -> bool:
    """Whether all innermost loops of statements are written as vectors, along rows or, but for few of them, across, so that nothing
    is left to LLVM's passes."""
    def is_left(s: Statement) -> bool:
        if leaves_few_rows(s, machine):
            return False
        if isinstance(s, (For, While)) and not any(isinstance(x, (For, While)) for block in blocks_of(s) for x in walk(block)):
            return not isinstance(s, For) or _is_row(s) or plan(s, machine) is None
        return any(is_left(each) for block in blocks_of(s) for each in block)

    return not any(map(is_left, body))


def _innermost(body: Sequence[Statement]) -> Iterator[For | While]:
    """The loops within statements that have no loops within."""
    loops = (s for s in walk(body) if isinstance(s, (For, While)))
    return (s for s in loops if not any(isinstance(x, (For, While)) for block in blocks_of(s) for x in walk(block)))


def _is_around_wide(loop: For, machine: Target) -> bool:
    """Whether there are loops within, and LLVM makes vectors of all the innermost: then the loop around them is a short one to it,
    which it is not."""
    inner = list(_innermost(loop.body))
    return bool(inner) and all(
        isinstance(s, For) and _length(s) >= LEAST_VECTOR and (_is_row(s) or plan(s, machine) is None) for s in inner)


def _length(loop: For) -> int:
    """How many iterations a loop has at most; 0 where nobody knows."""
    trips = (loop.high - loop.low).bounds
    return 0 if trips is None else trips[1]


def _opened(body: Sequence[Statement]) -> Iterator[Statement]:
    """Statements, those of loops of one iteration instead of these."""
    for s in body:
        if isinstance(s, For) and s.high - s.low == Affine((), 1):
            yield from _opened(s.body)
        else:
            yield s


def _is_short(s: Statement) -> bool:
    """Whether a statement is a loop of nothing but a few iterations, which LLVM unrolls, to make vectors of the loop around it."""
    if not isinstance(s, For) or any(map(blocks_of, _opened(s.body))):
        return False
    trips = s.high - s.low
    return not trips.terms and trips.constant < LEAST_VECTOR


def _is_row(loop: For) -> bool:
    """Whether an innermost loop goes along a short row of local memory, and along memory elsewhere: unrolled, it is vectors in
    registers. (LLVM says on standard error what it was asked to unroll and did not, such as a loop around others.)"""
    if any(isinstance(each, (For, While)) for each in walk(loop.body)):
        return False
    size, accesses = loop.high - loop.low, [s for s in loop.body if isinstance(s, (Load, Store))]
    steps = {position_in(s.buffer, s.index).stride(loop.axis) for s in accesses}
    local = any(s.buffer.role == "local" and any(i.stride(loop.axis) for i in s.index) for s in accesses)
    cheap = all(price(s.primitive) < FUNCTION_PRICE for s in loop.body if isinstance(s, Let))
    return local and cheap and steps <= {0, 1} and not size.terms and size.constant * len(loop.body) <= LONGEST_ROW


def module_text(program: LoopProgram, shares: Sequence[CodePart], machine: Target, near: frozenset[Buffer] = frozenset()) -> str:
    """The IR of a program: for each part `work<k>(table, counter, scratch)`, which threads share, or `whole<k>(table, scratch)`.
    `near` buffers may be the same memory as others. Raises NoPrimitive."""
    slot = {b: k for k, b in enumerate((*program.arguments, *program.results, *program.constants, *program.scratch))}
    objects = len(program.arguments) + len(program.results)
    functions, declarations, metadata = [], dict[str, None](), count(FREE)
    for k, part in enumerate(shares):
        used: Iterable[Buffer]
        if isinstance(copy := part.body[0], Copy):
            used = copy.target, copy.source
            declarations["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"] = None
        else:
            e = FunctionEmitter(machine, metadata, traffic_of(program, part.body, near))
            functions.append(e.function(f"part{k}", part.body, shared=part.chunks > 0))
            declarations |= e.t.declarations
            used = e.used
        functions.append(_caller(k, part, used, slot, objects, machine))
    return "\n".join([*functions, *declarations, *_kept(declarations), ""])


def _kept(declarations: Iterable[str]) -> Iterator[str]:
    """Keeps LLVM from dropping the vector functions that it may call in the place of scalar ones."""
    vectors = [f"ptr {name}" for d in declarations for name in re.findall(r"@_ZGV\w+", d)]
    if vectors:
        yield f'@llvm.compiler.used = appending global [{len(vectors)} x ptr] [{", ".join(vectors)}], section "llvm.metadata"'


def pointers(t: IRBuilder, used: Iterable[Buffer], slot: Mapping[Buffer, int], objects: int) -> list[str]:
    """The arguments of a call with buffers, which are found by the table."""
    return [f"ptr {TableSlot(slot[b], is_object=slot[b] < objects).address(t)}" for b in used]


def _caller(k: int, part: CodePart, used: Iterable[Buffer], slot: Mapping[Buffer, int], objects: int, machine: Target) -> str:
    """What is called with a table to do a part: on one thread, or on each that takes chunks from a counter until there are none. A
    copy is done here, unless it is of the same memory."""
    t, first = IRBuilder(1), part.body[0]
    arguments = pointers(t, used, slot, objects)
    if part.chunks:
        _take_chunks(t, k, part, arguments, machine)
        return t.function(f"void @work{k}(ptr %table, ptr %counter, ptr %scratch) nounwind")
    if isinstance(first, Copy):
        target, source = arguments
        copied = f"call void @llvm.memcpy.p0.p0.i64({target}, {source}, i64 {first.target.nbytes}, i1 false)"
        branch(t, t.let(f"icmp ne {target}, {source.removeprefix('ptr ')}"), lambda: t.line(copied))
    else:
        t.line(f"call void @part{k}({', '.join(arguments)})")
    return t.function(f"void @whole{k}(ptr %table, ptr %scratch) nounwind")


def _take_chunks(t: IRBuilder, k: int, part: CodePart, arguments: Sequence[str], machine: Target) -> None:
    """Does chunks of a part as long as there are any."""
    (loop,) = part.body
    assert isinstance(loop, For)
    chunks, size = part.chunks, loop.high.constant
    unit = WHOLE_LINES if size >= chunks * WHOLE_LINES * 16 else rows_at_once(loop, machine)

    def begin(chunk: str) -> str:
        exact = t.let(f"udiv i64 {t.let(f'mul i64 {chunk}, {size}')}, {chunks}")
        return t.let(f"and i64 {exact}, -{unit}")

    def take(chunk: str) -> None:
        low, behind = begin(chunk), begin(t.let(f"add i64 {chunk}, 1"))
        high = t.let(f"select i1 {t.let(f'icmp eq i64 {chunk}, {chunks - 1}')}, i64 {size}, i64 {behind}")
        t.line(f"call void @part{k}({', '.join([*arguments, f'i64 {low}', f'i64 {high}'])})")

    each_share(t, chunks, take)
