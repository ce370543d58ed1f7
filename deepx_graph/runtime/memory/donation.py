"""Results in the memory of inputs that the caller has donated.

Such an input is written over only by the last kernel that reads it, only where that kernel says that it may, and only by a result
of the caller's. What cannot be used is left alone. Nothing is decided here about the arrays themselves: whoever runs the code looks
at them. Takes time linear in the code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from deepx_graph.lowering.bytecode import Code, Return, Run
from deepx_graph.runtime.memory.alias import held
from deepx_graph.runtime.memory.assignment import BufferAssignment
from deepx_graph.runtime.memory.in_place import Overwrites
from deepx_graph.types import TensorType, leaves

DonatedBuffers = dict[int, tuple[int | None, ...]]
"""For the position of a kernel, the number of the parameter whose memory each of its results takes."""


Donatable = tuple[tuple[int, ...], ...]
"""For each result of a kernel, the parameters whose memory it may take where they are donated."""


def donated_buffers(plan: BufferAssignment, overwrites: Overwrites, donated: Set[int]) -> DonatedBuffers:
    """The results that take the memory of the parameters `donated`, by kernels that write over operands as `overwrites` says."""
    found = {at: chosen(may, donated) for at, may in donatable(plan, overwrites).items()}
    return {at: taken for at, taken in found.items() if any(t is not None for t in taken)}


def chosen(may: Donatable, donated: Set[int]) -> tuple[int | None, ...]:
    """For each result of a kernel, the parameter among those `donated` whose memory it takes; each gives its memory once.

    Results of fewest parameters choose first, and that which fewest others may have: most of them get one, as who comes later may
    have all that ended before.
    """
    wanted = Counter(p for params in may for p in params)
    taken: dict[int, int] = {}
    for result in sorted(range(len(may)), key=lambda k: len(may[k])):
        free = [p for p in may[result] if p in donated and p not in taken]
        if free:
            taken[min(free, key=wanted.__getitem__)] = result
    over = {result: param for param, result in taken.items()}
    return tuple(over.get(k) for k in range(len(may)))


def donatable(plan: BufferAssignment, overwrites: Overwrites) -> dict[int, Donatable]:
    """For the position of a kernel, what each of its results may lie over."""
    code = plan.code
    param_of = {slot: k for k, slot in enumerate(code.params)}
    last = _last_reads(code)
    own = {(p.at, p.leaf) for p in plan.pieces if p.escapes and p.offset is None}
    found: dict[int, Donatable] = {}
    for at, run in enumerate(code.instructions):
        if not isinstance(run, Run):
            continue
        dying = [(run.node.inputs[k].type, k, param_of[s]) for k, s in enumerate(run.sources)
                 if s in param_of and last[s] == (at, 1)]
        if not dying:
            continue
        allowed = overwrites(run.node)
        may: list[tuple[int, ...]] = []
        for leaf, type in enumerate(leaves(run.node.type)):
            over = allowed[leaf] if allowed and isinstance(type, TensorType) and (at, leaf) in own else frozenset()
            may.append(tuple(param for operand, k, param in dying if operand == type and k in over))
        found[at] = tuple(may)
    return found


def _last_reads(code: Code) -> dict[int, tuple[int, int]]:
    """For each parameter's slot, the position of the last instruction that reads it or what holds it, and how many times."""
    roots = {s: {s} for s in code.params}
    last: dict[int, tuple[int, int]] = {}
    for at, instruction in enumerate(code.instructions):
        if not isinstance(instruction, (Run, Return)):
            continue
        for root in (r for s in instruction.sources for r in roots.get(s, ())):
            seen, times = last.get(root, (at, 0))
            last[root] = (at, times + 1 if seen == at else 1)
        if isinstance(instruction, Run):
            roots[instruction.target] = set[int]().union(*(roots.get(s, ()) for s in held(instruction)))
    return last
