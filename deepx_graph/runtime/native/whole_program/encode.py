"""The instructions of a plan, which `dispatch` goes through, and the words on which they work.

What the activations of a function change stands together: where its caller goes on, where that has the results, cells and marks.
So a recursive call puts one piece of words on the stack, and the memory of an activation behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from deepx_graph.lowering.bytecode import Instruction, Jump, Move, Return, Select, Skip, Test
from deepx_graph.runtime.native.call_image import CallImage, CellOffset, ImageWriter, Label, MemoryOffset, rounded
from deepx_graph.runtime.native.dispatch import DATA, HEAD, RECORD, Opcode
from deepx_graph.runtime.native.whole_program.plan import (
    Action,
    Called,
    CalledFunction,
    Copied,
    Home,
    Invoked,
    ProgramPlan,
    Swapped,
)


def encoded(plan: ProgramPlan, params: int, limit: int) -> CallImage:
    """The memory of a call of a plan with so many parameters, which does so many jumps back in one call."""
    return _Encoder(plan, params).image(limit)


class _Part:
    """The words and labels of the body, or of a function that is called: where its caller goes on and has the results, then cells
    and marks."""

    def __init__(self, w: ImageWriter, plan: ProgramPlan, memory: int, function: CalledFunction | None) -> None:
        self.plan, self.memory, self.function = plan, memory, function
        self.words = w.words(0 if function is None else 1 + len(plan.results))
        self.cells = [w.words(1) for _ in plan.storages]
        self.marks = {mark: w.words(1) for mark in dict.fromkeys(i.mark for i in plan.code.instructions if isinstance(i, Skip))}
        self.nbytes = w.words(0) - self.words
        self.labels = [Label() for _ in plan.code.instructions]

    @property
    def record(self) -> tuple[int, int, int]:
        """What a recursive call keeps: words, their bytes, and those of a record, in which the memory of an activation follows."""
        return self.words, self.nbytes, rounded(self.nbytes) + rounded(self.plan.record_bytes)


class _Encoder:
    def __init__(self, plan: ProgramPlan, params: int) -> None:
        self.plan, self.params = plan, params
        self.w = ImageWriter(params + len(plan.results))
        self.code = self.w.code
        self.parts = [_Part(self.w, *each) for each in zip(plan.parts, plan.offsets, (None, *plan.functions), strict=False)]
        self.results = self.w.words(len(plan.results))
        self.held = self.w.words(max((len(p.plan.parameters) + len(p.plan.results) for p in self.parts[1:]), default=0))
        """What a call is given, while its activation is made."""
        self.calls = 0

    def image(self, limit: int) -> CallImage:
        """All of it."""
        for k in range(len(self.plan.results)):
            self.code(Opcode.OBJECT, self.results + 8 * k, HEAD + 8 * (self.params + k))
        for number, storage in self.plan.parameters.items():
            self.code(Opcode.OBJECT, self.parts[0].cells[storage], HEAD + 8 * number)
        for part in self.parts:
            self._begin(part)
        for part in self.parts:
            workspaces = iter(part.plan.workspaces)
            for at, (i, actions) in enumerate(zip(part.plan.code.instructions, part.plan.actions, strict=True)):
                self.w.bind(part.labels[at])
                for action in actions:
                    self._action(part, action, workspaces)
                self._control(part, i, at)
        return self.w.image(self.plan.offsets[-1], limit)

    def _begin(self, part: _Part) -> None:
        """Cells that are in arguments or results; those of constants and of the plan's memory have it from the start."""
        plan, cells = part.plan, part.cells
        for number, s in enumerate(plan.storages):
            if s.inside is not None:
                self.code(Opcode.BEHIND, cells[number], cells[s.inside], s.start)
            elif s.array is not None:
                self.w.constant(cells[number], s.array)
        for number, home in plan.homes.items():
            self.w.memory(cells[number], self._memory(part, home))
            if home.result is None and number in plan.exchanged:  # it may hold what was a result's in the call before
                own = self.w.words(1)
                self.w.value(own, part.memory + home.offset)
                self.code(Opcode.BEHIND, cells[number], own, 0)

    def _memory(self, part: _Part, home: Home) -> MemoryOffset:
        return part.memory + home.offset if home.result is None else CellOffset(self.results + 8 * home.result, home.offset)

    # --- actions

    def _action(self, part: _Part, action: Action, workspaces: Iterator[tuple[Home, ...]]) -> None:
        cells = part.cells
        match action:
            case Invoked():
                self._invoke(part, action)
            case Called(kernel, objects):
                slots, (*own, scratch) = self.w.words(len(objects)), next(workspaces)
                for k, storage in enumerate(objects):
                    self.w.point(slots + 8 * k, cells[storage] - DATA)
                kernel.write(self.w, slots, [self._memory(part, home) for home in own], part.memory + scratch.offset)
            case Copied(source, target):
                self.code(Opcode.COPY, cells[target], cells[source], part.plan.storages[target].nbytes)
            case Swapped(one, other):
                self.code(Opcode.SWAP, cells[one], cells[other])

    def _invoke(self, caller: _Part, action: Invoked) -> None:
        """Lets a function read the arguments where they are, and go on there."""
        part, back = self.parts[1 + action.function], Label()
        is_recursive = part.function is not None and part.function.is_recursive
        if is_recursive:
            again = Label()
            self.code(Opcode.BACK, again)
            self.w.bind(again)
        for k, storage in enumerate((*action.arguments, *action.results)):
            self.code(Opcode.BEHIND, self.held + 8 * k, caller.cells[storage], 0)
        if is_recursive:
            self.code(Opcode.PUSH, *part.record, self.calls)
            for storage, home in part.plan.homes.items():
                self.code(Opcode.BEHIND, part.cells[storage], RECORD, rounded(part.nbytes) + home.offset)
        params = (part.cells[storage] for _, storage in sorted(part.plan.parameters.items()))
        for k, cell in enumerate((*params, *(part.words + 8 * k for k in range(1, 1 + len(part.plan.results))))):
            self.code(Opcode.BEHIND, cell, self.held + 8 * k, 0)
        self.code(Opcode.SET, part.words, back)
        self.code(Opcode.JUMP, part.labels[0])
        self.w.bind(back)
        self.calls += 1

    # --- control

    def _control(self, part: _Part, i: Instruction, at: int) -> None:
        match i:
            case Jump(to):
                self.code(Opcode.BACK if to <= at else Opcode.JUMP, part.labels[to])
            case Test(_, _, to):
                self._select(part, at, [to, at + 1])
            case Select(_, _, targets):
                is_bool = part.plan.storages[part.plan.tested[at]].dtype == np.bool_
                self._select(part, at, targets[1::-1] if is_bool else targets)
            case Skip(mark, to):
                self.code(Opcode.SKIP, part.marks[mark], part.labels[to])
            case Move(_, _, clears):
                for mark in clears:
                    self.code(Opcode.SET, part.marks[mark], 0)
            case Return():
                self._return(part)

    def _select(self, part: _Part, at: int, targets: Sequence[int]) -> None:
        """On to the target of the number that is tested."""
        storage = part.plan.tested[at]
        dtype = part.plan.storages[storage].dtype
        size, is_signed = dtype.itemsize, int(dtype.kind == "i")
        labels = [part.labels[to] for to in targets]
        self.code(Opcode.SELECT, part.cells[storage], size, 64 - 8 * size, is_signed, len(labels) - 1, *labels)

    def _return(self, part: _Part) -> None:
        """Copies what is elsewhere into the results, or to the caller, which goes on: last those in which other values may be, as
        buffers were exchanged."""
        plan, first = part.plan, self.results if part.function is None else part.words + 8
        late = {k for k, s in enumerate(plan.results) if s in plan.exchanged and plan.homes[s] == Home(0, k)}
        for k in sorted(set(range(len(plan.results))) - plan.direct, key=lambda k: k in late):
            self.code(Opcode.COPY, first + 8 * k, part.cells[plan.results[k]], plan.storages[plan.results[k]].nbytes)
        if part.function is None:
            self.code(Opcode.RETURN)
        elif part.function.is_recursive:
            self.code(Opcode.POP, *part.record)
        else:
            self.code(Opcode.GO, part.words)
