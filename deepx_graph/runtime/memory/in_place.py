"""Results that take the memory of an operand: operands forwarded by the plan, and inputs that the caller has donated.

A product that a last step only adds to needs no memory beside it: it is made in memory of its own, and the kernel that reads it
last, which says that it may write over it, gives it on as its result. Worth it for large results alone, as such a kernel runs by
itself. A donated input is written over only by the last kernel that reads it, only where that kernel says that it may, and only by
a result of the caller's. What cannot be used is left alone. Nothing is decided here about the arrays themselves: `StraightLine`
looks at them. Takes time linear in the code, as all here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deepx_graph.ir import Node
from deepx_graph.literal import Array
from deepx_graph.runtime.bytecode import Code, Return, Run
from deepx_graph.runtime.engines.base import InPlace, KernelFn
from deepx_graph.runtime.memory.alias import AliasAnalysis, held
from deepx_graph.types import TensorType, leaves

if TYPE_CHECKING:
    from deepx_graph.runtime.program import Unit

LEAST_BYTES = 1 << 20
"""Smaller results are not worth a call of their own."""

Overwrites = Callable[[Node], tuple[frozenset[int], ...]]
"""For each result of a node, the operands over whose memory its kernel may write it."""


def nothing(node: Node) -> tuple[frozenset[int], ...]:
    """No kernel writes over an operand."""
    return ()


def forwarded_buffers(code: Code, flow: AliasAnalysis, pieces: Sequence[tuple[Any, bool]], overwrites: Overwrites) -> dict[int,
                                                                                                                           int]:
    """The positions of kernels whose one result takes the memory of an operand, with the operand's number.

    `pieces` are those of the plan, each with whether it may be in a shared buffer.
    """
    makers = {run.target: piece for piece, shared in pieces if shared and isinstance(run := code.instructions[piece.at], Run)
              and isinstance(run.node.type, TensorType)}  # fmt: skip
    found: dict[int, int] = {}
    for piece, shared in pieces:
        run = code.instructions[piece.at]
        if shared or not piece.escapes or piece.copies > 1 or piece.bytes < LEAST_BYTES or not isinstance(run, Run):
            continue
        if not isinstance(run.node.type, TensorType) or run.node.op.view or flow.borrowed[run.target]:
            continue
        may = overwrites(run.node)
        for k in sorted(may[0]) if may else ():
            s = run.sources[k]
            fits = s in makers and makers[s].bytes == piece.bytes and code.slots[s].type == run.node.type
            if fits and flow.last[s] == piece.at and not flow.to[s] and run.sources.count(s) == 1:
                found[piece.at] = k
                makers.pop(s)
                break
    return found


def with_forwarding(code: Code, pieces: Sequence[tuple[Any, bool]], given: dict[int, int]) -> list[tuple[Any, bool]]:
    """The pieces when operands are forwarded: such an operand has memory of its own, for as long as the result lives."""
    until = {code.instructions[p.at].sources[given[p.at]]: p for p, _ in pieces if p.at in given}
    made: list[tuple[Any, bool]] = []
    for piece, shared in pieces:
        run = code.instructions[piece.at]
        result = until.get(run.target) if isinstance(run, Run) else None
        if piece.at in given:
            made.append((replace(piece, in_place=True), False))
        elif result is not None:
            made.append((replace(piece, last=max(piece.last, result.last)), False))
        else:
            made.append((piece, shared))
    return made


def over_operand(kernel: KernelFn, k: int) -> KernelFn:
    """The kernel, its result in the memory of operand `k` where no other memory is given."""

    def run(values: Sequence[Any], out: Sequence[Array] | None) -> Any:
        return kernel(values, (values[k],) if out is None else out)

    return run


NOTHING: frozenset[int] = frozenset()

DonatedBuffers = dict[int, tuple[int | None, ...]]
"""For the position of a kernel, the number of the parameter whose memory each of its results takes."""


def donated_buffers(unit: Unit, donated: Set[int]) -> DonatedBuffers:
    """The results that take the memory of the parameters `donated`."""
    if not isinstance(unit.engine, InPlace):
        return {}
    code = unit.plan.code
    param_of = {slot: k for k, slot in enumerate(code.params) if k in donated}
    last = _last_reads(unit)
    own = {(p.at, p.leaf) for p in unit.plan.pieces if p.escapes and p.buffer is None}
    found: DonatedBuffers = {}
    for at, run in enumerate(unit.instructions):
        if not isinstance(run, Run) or unit.kernels[at] is None:
            continue
        dying = [(k, param_of[s]) for k, s in enumerate(run.sources)
                 if s in param_of and last[s] == (at, 1)]
        if not dying:
            continue
        allowed = unit.engine.overwrites(run.node)
        free = [(run.node.inputs[k].type, k, param) for k, param in dying]
        taken: list[int | None] = []
        for leaf, type in enumerate(leaves(run.node.type)):
            may = allowed[leaf] if allowed and isinstance(type, TensorType) and (at, leaf) in own else NOTHING
            fit = next((f for f in free if f[0] == type and f[1] in may), None)
            if fit is not None:
                free.remove(fit)
            taken.append(None if fit is None else fit[2])
        if any(t is not None for t in taken):
            found[at] = tuple(taken)
    return found


def _last_reads(unit: Unit) -> dict[int, tuple[int, int]]:
    """For each parameter's slot, the position of the last instruction that reads it or what holds it, and how many times."""
    roots = {s: {s} for s in unit.plan.code.params}
    last: dict[int, tuple[int, int]] = {}
    for at, instruction in enumerate(unit.instructions):
        if not isinstance(instruction, (Run, Return)):
            continue
        for root in (r for s in instruction.sources for r in roots.get(s, ())):
            seen, times = last.get(root, (at, 0))
            last[root] = (at, times + 1 if seen == at else 1)
        if isinstance(instruction, Run):
            roots[instruction.target] = set[int]().union(*(roots.get(s, ()) for s in held(instruction)))
    return last
