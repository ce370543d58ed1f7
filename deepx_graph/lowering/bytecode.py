"""A schedule as flat code over numbered slots, which `BufferAssignment` measures and the interpreter walks, and its lowering.

Nested blocks become jumps, so that neither recursion nor nesting depth costs anything at run time. Every slot has one life: from
`first` to `last` position, the loops that it crosses included; it is dropped there (`frees`). A value whose definition lies
outside a loop or branch and whose last use lies inside lives to the end of that construct, as the code may come by again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

from deepx_graph.analysis.schedule import Block, Eval, IfStep, LoopStep, Once, Schedule
from deepx_graph.ir import Node
from deepx_graph.ir.structure import LOOP_END, PHI, PROJ, REGION, index_of
from deepx_graph.types import BOOL, TupleType, Type, scalar


@final
@dataclass(slots=True)
class Run:
    """Compute a node (an op with `eval`, a call or a closure) into `target`."""

    node: Node
    target: int
    sources: tuple[int, ...]
    frees: tuple[int, ...] = ()


@dataclass(slots=True)
class Move:
    """Copy references, all at once; then drop. `clears` are slots to empty first (the marks of `once` blocks)."""

    targets: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    clears: tuple[int, ...] = ()
    frees: tuple[int, ...] = ()


@dataclass(slots=True)
class Pack:
    """Make a tuple, for a region or loop whose values are used as one."""

    target: int
    sources: tuple[int, ...]
    frees: tuple[int, ...] = ()


@dataclass(slots=True)
class Jump:
    """Go on at position `to`."""

    to: int = -1


@dataclass(slots=True)
class Select:
    """Go on at the position that the selector names: the first for true, else by number and the last when out of range."""

    node: Node
    source: int
    to: list[int]
    frees: tuple[int, ...] = ()


@dataclass(slots=True)
class Test:
    """Go on at `to` when the condition is false."""

    node: Node
    source: int
    to: int = -1
    frees: tuple[int, ...] = ()


@dataclass(slots=True)
class Skip:
    """Go on at `to` when `mark` is set; set it otherwise."""

    mark: int
    to: int = -1


@final
@dataclass(slots=True)
class Return:
    """Give the results to the caller."""

    sources: tuple[int, ...]


Instruction = Run | Move | Pack | Jump | Select | Test | Skip | Return


def reads(i: Instruction) -> tuple[int, ...]:
    """The slots whose values an instruction uses."""
    match i:
        case Run(sources=sources) | Move(sources=sources) | Pack(sources=sources) | Return(sources=sources):
            return sources
        case Select(source=source) | Test(source=source):
            return (source,)
        case Skip(mark=mark):
            return (mark,)
    return ()


def writes(i: Instruction) -> tuple[int, ...]:
    """The slots to which an instruction gives values."""
    match i:
        case Run(target=target) | Pack(target=target):
            return (target,)
        case Move(targets=targets):
            return targets
    return ()


def successors(i: Instruction, at: int) -> list[int]:
    """The positions at which the code may go on behind an instruction."""
    match i:
        case Return():
            return []
        case Jump(to=to):
            return [to]
        case Select(to=to):
            return to
        case Test(to=to) | Skip(to=to):
            return [at + 1, to]
    return [at + 1]


def alive_behind(code: Sequence[Instruction], read: Sequence[int], written: Sequence[int]) -> list[int]:
    """What is read later before it is written, behind each instruction, as bits, of what each reads and writes, as bits. Backward
    data flow, until nothing changes."""
    before, behind = [0] * len(code), [0] * len(code)
    changed = True
    while changed:
        changed = False
        for at in range(len(code) - 1, -1, -1):
            out = 0
            for to in successors(code[at], at):
                out |= before[to]
            into = read[at] | (out & ~written[at])
            if out != behind[at] or into != before[at]:
                behind[at], before[at], changed = out, into, True
    return behind


@dataclass(slots=True, eq=False)
class PositionRange:
    """The positions of a construct, `end` included. `outer` of a once block: how many spans lie around the loops it outlives."""

    start: int
    loop: Node | None = None
    outer: int = -1
    end: int = -1


@dataclass(slots=True, eq=False)
class FrameSlot:
    """What is known of a slot: its node and type, and the positions from which and to which it holds its value."""

    node: Node
    type: Type
    first: int
    last: int = -1
    loop: Node | None = None
    """The loop whose variable it is."""
    span: PositionRange | None = None
    depth: int = 0
    until: PositionRange | None = None


@dataclass(frozen=True, eq=False)
class Code:
    """Flat code. `constants` are slots filled before the start, `params` those of the arguments, in order."""

    schedule: Schedule
    instructions: tuple[Instruction, ...]
    slots: tuple[FrameSlot, ...]
    params: tuple[int, ...]
    constants: tuple[tuple[int, Node], ...]
    loops: dict[Node, PositionRange]


def lower(schedule: Schedule) -> Code:
    """The code of a schedule."""
    return _Lowering(schedule).code()


Task = Block | Eval | IfStep | LoopStep | Once | Callable[[], None]


class _Lowering:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.instructions: list[Instruction] = []
        self.slots: list[FrameSlot] = []
        self.slot_of: dict[Node, int] = {}
        self.columns: dict[tuple[Node, int], int] = {}
        self.marks: dict[Block, int] = {}
        self.spans: list[PositionRange] = []
        self.loops: dict[Node, PositionRange] = {}
        self.loop_depth: dict[Node, int] = {}
        users = (n for n in schedule.order if n.op is not PHI and n.op is not PROJ)
        self.whole = {i for n in users for i in n.inputs if i.op is REGION or i.op is LOOP_END}
        self.whole.update(r for r in schedule.function.results if r.op is REGION or r.op is LOOP_END)
        self.todo: list[Task] = []

    def code(self) -> Code:
        params = tuple(self.slot_for(p) for p in self.schedule.function.params)
        constants = tuple((self.slot_for(c), c) for c in self.schedule.constants)
        self.todo = [self.finish, self.schedule.root]
        while self.todo:
            task = self.todo.pop()
            match task:
                case Eval():
                    self.eval(task.node)
                case Block():
                    self.todo += reversed(task.steps)
                case IfStep():
                    self.branches(task)
                case LoopStep():
                    self.loop(task)
                case Once():
                    self.once(task)
                case _:
                    task()
        self.settle(frozenset(slot for slot, _ in constants))
        return Code(self.schedule, tuple(self.instructions), tuple(self.slots), params, constants, self.loops)

    def finish(self) -> None:
        self.emit(Return(self.uses(self.schedule.function.results)))

    # --- slots

    @property
    def here(self) -> int:
        return len(self.instructions)

    def emit(self, instruction: Instruction) -> None:
        self.instructions.append(instruction)

    def new_slot(self, node: Node, type: Type, loop: Node | None = None) -> int:
        """A slot defined here, inside the spans that are open now."""
        here, spans, number = self.here, self.spans, len(self.slots)
        self.slots.append(FrameSlot(node, type, here, here, loop, spans[-1] if spans else None, len(spans)))
        return number

    def slot_for(self, node: Node) -> int:
        """The new slot that holds the value of `node`."""
        number = self.slot_of[node] = self.new_slot(node, node.type)
        return number

    def uses(self, nodes: Sequence[Node]) -> tuple[int, ...]:
        slot_of = self.slot_of
        return tuple([self.use(slot_of[n]) for n in nodes])

    def use(self, number: int) -> int:
        """Records that the slot is read here."""
        slot, spans = self.slots[number], self.spans
        if slot.span is not None and (len(spans) < slot.depth or spans[slot.depth - 1] is not slot.span):
            # Made in a once block and read after it: it holds for as long as the loops iterate which that block outlives.
            slot.depth = slot.span.outer
            slot.span = spans[slot.depth - 1] if slot.depth else None
            slot.first = spans[slot.depth].start
        slot.last, slot.until = len(self.instructions), spans[slot.depth] if len(spans) > slot.depth else None
        return number

    def settle(self, constants: frozenset[int]) -> None:
        """Final lifetimes, and where each slot is dropped."""
        frees: dict[int, list[int]] = {}
        for number, slot in enumerate(self.slots):
            if slot.until is not None:
                slot.last = slot.until.end
            if number not in constants:
                frees.setdefault(slot.last, []).append(number)
        for at, numbers in frees.items():
            instruction = self.instructions[at]
            if isinstance(instruction, (Run, Move, Pack, Select, Test)):
                instruction.frees = tuple(numbers)

    # --- steps

    def eval(self, node: Node) -> None:
        if (node.op is PHI or node.op is PROJ) and (node.inputs[0].op is REGION or node.inputs[0].op is LOOP_END):
            self.slot_of[node] = self.columns[node.inputs[0], index_of(node)]
            return
        sources = self.uses(node.inputs)
        self.emit(Run(node, self.slot_for(node), sources))

    def open(self, loop: Node | None = None, outer: int = -1) -> PositionRange:
        self.spans.append(PositionRange(self.here, loop, outer))
        return self.spans[-1]

    def close(self) -> None:
        """Ends the innermost construct with an instruction to drop what lives as long as it."""
        self.spans.pop().end = self.here
        self.emit(Move())

    def pack(self, node: Node, columns: Sequence[int]) -> None:
        if node in self.whole:
            sources = tuple(map(self.use, columns))
            self.emit(Pack(self.slot_for(node), sources))

    def branches(self, step: IfStep) -> None:
        select = Select(step.node, self.use(self.slot_of[step.selector]), [])
        targets = tuple(self.new_slot(step.node, t) for t in _types(step))
        self.columns.update({(step.node, k): number for k, number in zip(step.columns, targets, strict=True)})
        self.open()
        self.emit(select)
        jumps: list[Jump] = []

        def begin() -> None:
            select.to.append(self.here)

        def give(values: Sequence[Node]) -> None:
            self.emit(Move(targets, self.uses(values)))
            jumps.append(Jump())
            self.emit(jumps[-1])

        def join() -> None:
            for jump in jumps:
                jump.to = self.here
            self.close()
            self.pack(step.node, targets)

        tasks: list[Task] = []
        for branch in step.branches:
            tasks += (begin, branch.block, partial(give, branch.values))
        self.todo += reversed([*tasks, join])

    def loop(self, step: LoopStep) -> None:
        end = step.node
        sources = self.uses(step.inits)
        targets = tuple(self.new_slot(end, t, end) for t in _types(step))
        for number, k, phis in zip(targets, step.columns, step.phis, strict=True):
            self.columns[end, k] = number
            self.slot_of.update(dict.fromkeys(phis, number))
        for block in step.renews:
            self.marks[block] = self.new_slot(end, scalar(BOOL))
        self.emit(Move(targets, sources, tuple(self.marks[b] for b in step.renews)))
        self.loop_depth[end] = len(self.spans)
        self.loops[end] = span = self.open(end)
        test = Test(end, -1)

        def check() -> None:
            test.source = self.use(self.slot_of[step.condition])
            self.emit(test)

        def again() -> None:
            self.emit(Move(targets, self.uses(step.nexts)))
            self.emit(Jump(span.start))

        def leave() -> None:
            test.to = self.here
            for number in targets:
                self.use(number)
            self.close()
            self.pack(end, targets)

        self.todo += reversed([step.header, check, step.body, again, leave])

    def once(self, step: Once) -> None:
        skip = Skip(self.use(self.marks[step.block]))
        self.open(outer=self.loop_depth[step.loop])
        self.emit(skip)

        def after() -> None:
            skip.to = self.here
            self.close()

        self.todo += reversed([step.block, after])


def _types(step: IfStep | LoopStep) -> list[Type]:
    """The types of the columns of a region or loop."""
    whole = step.node.type
    assert isinstance(whole, TupleType)
    return [whole.items[k] for k in step.columns]
