"""Who may hold whose memory: references that flow from slot to slot without a copy.

A view, tuple, closure, data value, reference, branch value, loop variable or call result may hold what its sources hold, and a
state what was written under it. `AliasAnalysis` says for every slot how long its memory is reachable, whether the caller gets it,
whether it may belong to somebody else, and how many generations of it the variables of a loop keep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from deepx_graph.ir import Node
from deepx_graph.ir.structure import CALL, CALL_VALUE, CONSTANT, PARAM, PARTIAL, PROJ, TUPLE, index_of, value_of
from deepx_graph.lowering.bytecode import Code, Move, Pack, Return, Run
from deepx_graph.ops import construct, field, ref_create, ref_read, ref_write
from deepx_graph.ops.data.fusion import fused_body
from deepx_graph.ops.tensor.layout import keeps_order
from deepx_graph.ops.tensor.parallel import run_parallel
from deepx_graph.types import StateType, TensorType, TupleType, leaves

_PASSED_ON = frozenset({TUPLE, PROJ, PARTIAL, construct, field, ref_create, ref_read, ref_write})
_HOLDERS = _PASSED_ON | {CALL, CALL_VALUE}
_CALLS = frozenset({CALL, CALL_VALUE, run_parallel})


def is_call(node: Node) -> bool:
    """Whether the node runs another function of the module."""
    return node.op in _CALLS


def makes_memory(node: Node) -> bool:
    """Whether the node has results of its own, rather than only passing on what it is given."""
    return node.op not in _PASSED_ON


def held(run: Run) -> tuple[int, ...]:
    """The sources whose memory the result may hold. A state holds all that was ever written into a reference."""
    if run.node.op in _HOLDERS:
        return run.sources
    if run.node.op.view:
        return run.sources[:1]
    return tuple([s for s, i in zip(run.sources, run.node.inputs, strict=True) if isinstance(i.type, StateType)])


@dataclass(frozen=True)
class AliasAnalysis:
    """`first`, `last`: the positions between which a slot's memory is reachable. `to`: slots that may hold what a slot holds."""

    code: Code
    to: tuple[tuple[int, ...], ...]
    first: tuple[int, ...]
    last: tuple[int, ...]
    escapes: tuple[bool, ...]
    borrowed: tuple[bool, ...]
    """Whether the slot may hold memory of an input or constant, or a view of anything."""
    contiguous: tuple[bool, ...]

    @cached_property
    def _made_by(self) -> dict[int, Run]:
        return {i.target: i for i in self.code.instructions if isinstance(i, Run)}

    def made_as(self, slot: int) -> int:
        """The slot of all results of the kernel of which a slot has one."""
        run = self._made_by.get(slot)
        return slot if run is None or run.node.op is not PROJ else run.sources[0]

    def is_sole_holder(self, slot: int) -> bool:
        """Whether a slot has a result of a kernel, and no other slot ever holds its memory."""
        run, all_results = self._made_by.get(slot), self.made_as(slot)
        maker = self._made_by.get(all_results)
        if run is None or maker is None or self.borrowed[slot] or self.to[slot] or not _makes_arrays(maker.node):
            return False
        others = [self._made_by.get(s) for s in self.to[all_results] if s != slot]
        return all(o is not None and o.node.op is PROJ and index_of(o.node) != index_of(run.node) for o in others)

    def copies(self, slot: int) -> int:
        """How many generations of a slot's memory may live at once: one, and one for each loop variable that carries it on."""
        slots, loops = self.code.slots, self.code.loops
        if not self.to[slot] or not loops:
            return 1
        count, at, seen, stack = 1, slots[slot].first, {slot}, [slot]
        while stack:
            for target in self.to[stack.pop()]:
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
                    loop = slots[target].loop
                    if loop is not None and loops[loop].start <= at <= loops[loop].end:
                        count += max(1, len(leaves(slots[target].type)))
        return count

    def borrowed_results(self, sources: Sequence[int]) -> Iterator[int]:
        """The numbers of the results that do not own their memory, or share it with an earlier result."""
        seen: set[int] = set()
        for k, s in enumerate(sources):
            if self.borrowed[s] or s in seen:
                yield k
            seen.add(s)


def alias_analysis(code: Code) -> AliasAnalysis:
    """The flow of references in some code."""
    edges = list(_edges(code))
    passed: dict[int, list[int]] = {}
    for source, target in edges:
        passed.setdefault(source, []).append(target)
    to: list[tuple[int, ...]] = [()] * len(code.slots)
    for source, targets in passed.items():
        to[source] = tuple(targets)
    first, last = [s.first for s in code.slots], [s.last for s in code.slots]
    escapes = [False] * len(code.slots)
    final = code.instructions[-1]
    assert isinstance(final, Return)
    for s in final.sources:
        escapes[s] = True
    changed = True
    while changed:  # once for straight code, again for what loops carry
        changed = False
        for a, b in reversed(edges):
            if first[b] < first[a] or last[b] > last[a] or (escapes[b] and not escapes[a]):
                first[a], last[a] = min(first[a], first[b]), max(last[a], last[b])
                escapes[a] = escapes[a] or escapes[b]
                changed = True
    return AliasAnalysis(code, tuple(to), tuple(first), tuple(last), tuple(escapes), _borrowed(code, edges),
                         _contiguous(code))


def _edges(code: Code) -> Iterator[tuple[int, int]]:
    for instruction in code.instructions:
        match instruction:
            case Run(target=target):
                yield from [(s, target) for s in held(instruction)]
            case Move():
                yield from zip(instruction.sources, instruction.targets, strict=True)
            case Pack():
                for s in instruction.sources:
                    yield s, instruction.target


def _makes_arrays(node: Node) -> bool:
    """Whether what the node gives are arrays that it has made."""
    return node.op.eval is not None and node.op not in _HOLDERS and not node.op.view and not is_call(node)


def _owned_items(source: Node) -> Sequence[bool]:
    """Which items of a kernel's results are arrays that only this item holds."""
    body = fused_body(source)
    if body is None:
        return [_makes_arrays(source)] * (len(source.type.items) if isinstance(source.type, TupleType) else 1)
    made = [_viewed(r) for r in body.results]
    held_by = Counter(made)
    return [held_by[m] == 1 and m.op is not PARAM and m.op is not CONSTANT and not m.op.view for m in made]


def _viewed(node: Node) -> Node:
    """What a node is in memory: of all elements of an operand in order, that operand."""
    while node.op.view and keeps_order(node):
        node = node.inputs[0]
    return node


def _borrowed(code: Code, edges: Sequence[tuple[int, int]]) -> tuple[bool, ...]:
    borrowed = [s.node.op is PARAM or s.node.op is CONSTANT for s in code.slots]
    taken: set[tuple[int, int]] = set()
    owned = cache(_owned_items)
    for instruction in code.instructions:
        if isinstance(instruction, Run):
            node = instruction.node
            borrowed[instruction.target] = node.op.view or node.op in _HOLDERS
            if node.op is PROJ and owned(node.inputs[0])[index_of(node)]:
                item = (instruction.sources[0], index_of(node))
                borrowed[instruction.target] = item in taken  # a second projection of one item shares the first one's memory
                taken.add(item)
    changed = True
    while changed:
        changed = False
        for a, b in edges:
            if borrowed[a] and not borrowed[b]:
                borrowed[b] = changed = True
    return tuple(borrowed)


def _contiguous(code: Code) -> tuple[bool, ...]:
    """Slots whose arrays are surely C-contiguous, so that a view of them copies nothing."""
    known = [s.node.op is PARAM or (s.node.op is CONSTANT and value_of(s.node).array.flags.c_contiguous) for s in code.slots]
    for instruction in code.instructions:
        if isinstance(instruction, Run) and instruction.node.op.elementwise:
            loose = [s for s in instruction.sources
                     if not known[s] and not (isinstance(t := code.slots[s].type, TensorType) and t.dims == ())]
            known[instruction.target] = not loose
    return tuple(known)
