"""The memory plan of a schedule: where every result lies, and the most bytes alive at once, before anything is allocated.

A result lives from its definition to the last use of anything that may hold it: a view, a tuple, a branch value, a loop variable, a
closure. Results that are not alive together share memory (`sharing.py`); an elementwise one goes over an operand of the same bytes
that dies there. What the caller gets is never in shared memory, and neither is what a loop carries to its next iteration.
A kernel's own memory (`scratch`) is counted while it runs: the temporaries of an eval, packed panels, temporaries of a fusion,
copies of operands that do not lie in order. Sizes are Python ints. Inputs and constants belong to others and are not counted.
`largest` names what is in memory when most is, for messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, groupby
from typing import NamedTuple

from deepx_graph.analysis.schedule import Schedule
from deepx_graph.errors import printable, sized
from deepx_graph.ir import Node
from deepx_graph.ir.evaluation import scratch_of
from deepx_graph.ir.structure import PROJ
from deepx_graph.lowering.bytecode import Code, Return, Run, lower
from deepx_graph.ops.data.fusion import fused_body
from deepx_graph.ops.data.fusion import is_pointwise as is_pointwise_body
from deepx_graph.ops.tensor.layout import keeps_order
from deepx_graph.runtime.memory.alias import AliasAnalysis, alias_analysis, is_call, makes_memory
from deepx_graph.runtime.memory.in_place import Overwrites, nothing
from deepx_graph.runtime.memory.sharing import Handover, Sharing, most_alive, packed
from deepx_graph.types import TensorType, Type, leaves, nbytes


class Allocation(NamedTuple):
    """Memory of one tensor result, `copies` of which may live at once: at `offset` of the shared memory, or its own."""

    node: Node
    leaf: int
    bytes: int
    at: int
    first: int
    last: int
    offset: int | None = None
    in_place: bool = False
    copies: int = 1
    escapes: bool = False


@dataclass(frozen=True)
class BufferAssignment:
    """The plan of one function. `str()` is a table.

    `peak_bytes` bounds what one activation has alive at once, shared memory, results, called functions and the scratch memory of
    kernels included, `value_bytes` the same without that scratch memory; where a function calls itself (`recursive`) they hold
    for one level.
    """

    code: Code
    pieces: tuple[Allocation, ...]
    shared_bytes: int
    output_bytes: int
    copied: frozenset[int]
    """The numbers of the results that must be copied for the caller, being (views of) inputs, constants or one another."""
    peak_bytes: int
    value_bytes: int
    recursive: bool = False
    scratch: dict[int, int] = field(default_factory=dict)
    """Bytes that the kernel at a position has beside operands and results, while it runs."""
    donated: dict[int, frozenset[int]] = field(default_factory=dict)
    """The operands of the collective at a position that are arrays of their own, and end there: its results may be in them."""

    @property
    def total_bytes(self) -> int:
        """What all results would need without any reuse."""
        return sum(p.bytes for p in self.pieces)

    @cached_property
    def of(self) -> dict[int, tuple[Allocation, ...]]:
        """The pieces in shared memory, by the position of their instruction."""
        found: dict[int, list[Allocation]] = {}
        for piece in self.pieces:
            if piece.offset is not None:
                found.setdefault(piece.at, []).append(piece)
        return {at: tuple(p) for at, p in found.items()}

    @property
    def scratch_bytes(self) -> int:
        """The most that one kernel has for itself."""
        return max(self.scratch.values(), default=0)

    def __str__(self) -> str:
        lines = [
            f"plan {printable(self.code.schedule.function.name)}: peak {self.peak_bytes} bytes"
            f"{' for each level of recursion' if self.recursive else ''},"
            f" {self.shared_bytes} shared, {self.output_bytes} for results,"
            f" {self.total_bytes} without reuse{f', at most {self.scratch_bytes} of scratch' if self.scratch_bytes else ''}",
            f"{'at':>5} {'until':>5} {'place':>8} {'bytes':>12}  value",
        ]
        for p in self.pieces:
            where = "result" if p.escapes else "own" if p.offset is None else f"@{p.offset}"
            name = f" {printable(p.node.name)}" if p.node.name else ""
            note = " in place" if p.in_place else f" x{p.copies}" if p.copies > 1 else ""
            lines.append(f"{p.at:>5} {p.last:>5} {where:>8} {p.bytes:>12}  {p.node.op.name}{name}: {p.node.type}{note}")
        return "\n".join(lines) + "\n"


Scratch = Callable[[Node, frozenset[int]], int]


def of_eval(node: Node, loose: frozenset[int]) -> int:
    """The scratch of a node whose kernel is its eval, which says it for operands that lie in any order. What a collective has
    beside its results is a matter of how devices meet."""
    return 0 if node.op.exchange is not None else scratch_of(node)


def always(node: Node) -> bool:
    """Every kernel writes where it is told to."""
    return True


def no_scratch(node: Node, loose: frozenset[int]) -> int:
    """For a plan of the values alone, which is the same for every engine."""
    return 0


class CallNeeds(NamedTuple):
    """What a call has in memory at the most, beside its results: values, and the same with the scratch memory of its kernels."""

    values: int = 0
    peak: int = 0


def plan(schedule: Schedule, *, writes: Callable[[Node], bool] = always, call_needs: Callable[[Node], CallNeeds] | None = None,
         recursive: bool = False, overwrites: Overwrites = nothing, scratch: Scratch = of_eval) -> BufferAssignment:
    """The plan of a schedule whose types are static.

    `writes(node)` says whether the engine puts the node's result where it is told; `call_needs(node)` is what a call needs
    beside its results; `overwrites(node)` over which operands, beside those of pointwise nodes, each result may go;
    `scratch(node, loose)` what its kernel has for itself where the operands numbered `loose` may not lie in the order of C.
    Raises InferError when a size is not known.
    """
    code = lower(schedule)
    flow = alias_analysis(code)
    own = {} if scratch is no_scratch else dict(_scratches(code, flow, scratch))
    donated = dict(_donated(code, flow))
    pieces, shared = _placed(code, flow, overwrites, _pieces(code, flow, writes, donated))
    final, end = code.instructions[-1], len(code.instructions) - 1
    assert isinstance(final, Return)
    sizes = [nbytes(r.type) for r in schedule.function.results]
    copied = frozenset(flow.borrowed_results(final.sources))
    alive = [(p.first, p.last, p.bytes * p.copies) for p in pieces if p.offset is None]
    alive.append((end, end, sum(sizes[k] for k in copied)))
    needs = [(at, call_needs(run.node)) for at, run in _runs(code) if is_call(run.node)] if call_needs is not None else []
    values = most_alive([*alive, *((at, at, n.values) for at, n in needs)])
    peak = most_alive([*alive, *((at, at, n.peak) for at, n in needs), *((at, at, bytes_) for at, bytes_ in own.items())])
    return BufferAssignment(code, tuple(pieces), shared, sum(sizes), copied, shared + peak, shared + values, recursive, own,
                            donated)


def _runs(code: Code) -> Iterator[tuple[int, Run]]:
    return ((at, i) for at, i in enumerate(code.instructions) if isinstance(i, Run))


def _scratches(code: Code, flow: AliasAnalysis, scratch: Scratch) -> Iterator[tuple[int, int]]:
    """The positions of kernels that have memory of their own, with its bytes."""
    ordered = {s for s, known in enumerate(flow.contiguous) if known}  # slots that lie in the order of C
    for at, run in _runs(code):
        node = run.node
        if run.sources and (node.op is PROJ or node.op.view):
            lies = run.sources[0] in ordered and (node.op is PROJ or keeps_order(node))
        else:
            lies = makes_memory(node) and not node.op.view and not is_call(node)
        if lies:
            ordered.add(run.target)
        if node.op.eval is not None:
            bytes_ = scratch(node, frozenset(k for k, s in enumerate(run.sources) if s not in ordered))
            if bytes_:
                yield at, bytes_


def _donated(code: Code, flow: AliasAnalysis) -> Iterator[tuple[int, frozenset[int]]]:
    """The positions of collectives, with the operands that they may write over as nothing else holds them."""
    for at, run in _runs(code):
        if run.node.op.exchange is not None:
            yield at, frozenset(k for k, s in enumerate(run.sources)
                                if flow.last[s] == at and run.sources.count(s) == 1 and flow.is_sole_holder(s))


def _pieces(code: Code, flow: AliasAnalysis, writes: Callable[[Node], bool], donated: Mapping[int, frozenset[int]],
            ) -> Iterator[tuple[Allocation, bool]]:
    """Every tensor result that needs memory, and whether it may be in shared memory: what a collective may give to its caller is
    not."""
    given = {flow.made_as(run.sources[k]) for at, run in _runs(code) for k in donated.get(at, ())}
    dense: set[int] = set()  # slots in memory that is C-contiguous, so that a view of them copies nothing
    for at, run in _runs(code):
        node, target = run.node, run.target
        viewed = run.sources[0] if node.op.view and run.sources else None
        if not makes_memory(node):
            continue
        if viewed is not None and (viewed in dense or flow.contiguous[viewed]):
            if keeps_order(node):
                dense.add(target)
            continue
        copies = flow.copies(target)
        parts = leaves(node.type)
        tensors = [(k, t, t.nbytes) for k, t in enumerate(parts) if isinstance(t, TensorType)]
        shared = (
            copies == 1 and not flow.escapes[target] and target not in given and not node.op.view and not is_call(node)
            and bool(tensors) and len(tensors) == len(parts) and all(n for _, _, n in tensors) and writes(node)
        )  # fmt: skip
        if shared:
            dense.add(target)
        first, last = min(at, flow.first[target]), flow.last[target]
        for k, _, bytes_ in tensors:
            yield Allocation(node, k, bytes_, at, first, last, None, False, copies, flow.escapes[target]), shared


def is_pointwise(node: Node) -> bool:
    """Whether element i of the one result depends on element i of the operands alone: such a kernel may write over one."""
    body = fused_body(node)
    return node.op.elementwise if body is None else is_pointwise_body(body)


def _placed(code: Code, flow: AliasAnalysis, overwrites: Overwrites, found: Iterable[tuple[Allocation, bool]],
            ) -> tuple[list[Allocation], int]:
    """The pieces, with places in shared memory for those that may be there; and its size."""
    pieces, may = zip(*found, strict=True) if (found := list(found)) else ((), ())
    shared = [k for k, m in enumerate(may) if m]
    number = {k: n for n, k in enumerate(shared)}
    whole = {code.instructions[pieces[k].at].target: number[k] for k in shared
             if isinstance(pieces[k].node.type, TensorType)}
    handovers = [Handover(at, number[k], whole[s]) for at, made in groupby(shared, key=lambda k: pieces[k].at)
                 for k, s in _operands_to_overwrite(code, flow, overwrites, {k: pieces[k] for k in made}) if s in whole]
    sharing = Sharing([((pieces[k].first, pieces[k].last),) for k in shared], handovers)
    in_place = {h.value for h in handovers if sharing.join(h.value, h.over)}
    groups = sorted(set(map(sharing.group, range(len(shared)))))
    offsets, size = packed(list(map(sharing.span, groups)), [pieces[shared[g]].bytes for g in groups])
    offset_of = dict(zip(groups, offsets, strict=True))
    placed = list(pieces)
    for k, n in number.items():
        p, offset = pieces[k], offset_of[sharing.group(n)]
        placed[k] = Allocation(p.node, p.leaf, p.bytes, p.at, p.first, p.last, offset, n in in_place)  # one copy, for nobody else
    return placed, size


def _operands_to_overwrite(code: Code, flow: AliasAnalysis, overwrites: Overwrites, pieces: dict[int, Allocation],
                           ) -> Iterator[tuple[int, int]]:
    """For the pieces that one kernel makes, the numbers of the pieces with the slots of a like type, known by no other name, over
    which it may write them if they end there."""
    at = next(iter(pieces.values())).at
    run = code.instructions[at]
    assert isinstance(run, Run)
    ending = [(k, s) for k, s in enumerate(run.sources) if flow.last[s] == at and not flow.to[s]]
    if not ending:
        return
    types, pointwise = leaves(run.node.type), is_pointwise(run.node)
    may = () if pointwise else overwrites(run.node)
    for number, piece in pieces.items():
        type = types[piece.leaf]
        if piece.first != at or not (pointwise or may):
            continue
        for k, s in ending:
            held = code.slots[s].type
            if (held is type or _is_like(held, type)) and (pointwise or k in may[piece.leaf]):
                yield number, s


def _is_like(one: Type, other: Type) -> bool:
    """Whether two tensors have one shape and as many bytes."""
    return (isinstance(one, TensorType) and isinstance(other, TensorType) and one.dims == other.dims
            and one.dtype.itemsize == other.dtype.itemsize)


SHOWN = 3
"""How many values a message names."""


def in_words(values: int, peak: int) -> str:
    """A peak, and how much of it is there for values alone."""
    return f"{sized(peak)} at the peak: {sized(values)} of values, {sized(peak - values)} of scratch memory"


def changes(plan: BufferAssignment) -> list[int]:
    """By how many bytes what is in memory grows or shrinks at each instruction, kernels' scratch memory included."""
    found = [0] * (len(plan.code.instructions) + 1)
    for p in plan.pieces:
        found[p.first] += p.bytes * p.copies
        found[p.last + 1] -= p.bytes * p.copies
    for at, scratch in plan.scratch.items():
        found[at] += scratch
        found[at + 1] -= scratch
    return found


def peak_at(plan: BufferAssignment) -> int:
    """The instruction at which most bytes are in memory. Takes time linear in the code."""
    alive = list(accumulate(changes(plan)))
    return max(range(len(alive)), key=alive.__getitem__)


def at_peak(plan: BufferAssignment) -> list[Allocation]:
    """The values in memory there, the largest first."""
    at = peak_at(plan)
    return sorted((p for p in plan.pieces if p.first <= at <= p.last), key=lambda p: -p.bytes * p.copies)


def largest(plan: BufferAssignment) -> str:
    """The largest values in memory at the peak, in words, and the scratch memory of the kernel there; "" where there is none."""
    alive = at_peak(plan)
    named = [f"{printable(p.node.name or p.node.op.name)}: {p.node.type}{f' x{p.copies}' if p.copies > 1 else ''}"
             f"{f' (line {p.node.span.line})' if p.node.span else ''}" for p in alive[:SHOWN]]
    more = f" and {len(alive) - SHOWN} more" if len(alive) > SHOWN else ""
    values = f"the largest at the peak are {', '.join(named)}{more}" if named else ""
    return "; ".join(filter(None, (values, _scratch(plan, peak_at(plan)))))


def _scratch(plan: BufferAssignment, at: int) -> str:
    run = plan.code.instructions[at] if at in plan.scratch else None
    if not isinstance(run, Run):
        return ""
    span = run.node.span
    where = f" (line {span.line})" if span else ""
    return f"{printable(run.node.name or run.node.op.name)}{where} needs {plan.scratch[at]} bytes of scratch memory while it runs"
