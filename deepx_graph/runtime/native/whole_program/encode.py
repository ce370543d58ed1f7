"""The instructions of a plan, which `dispatch` goes through, and the words on which they work.

What the activations of a function change stands together: where its caller goes on, where that has the results, cells and marks.
So a recursive call puts one piece of words on the stack, and the memory of an activation behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepx_graph.runtime.bytecode import Instruction, Jump, Move, Return, Select, Skip, Test
from deepx_graph.runtime.native.call_image import CallImage, ImageWriter, Label, rounded
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


class _Encoder:
    def __init__(self, plan: ProgramPlan, params: int) -> None:
        self.plan, self.params = plan, params
        self.w = ImageWriter(params + len(plan.results))
        self.code = self.w.code
        self.labels = [Label() for _ in plan.code.instructions]
        self.marks: dict[int, int] = {}
        self.cells: list[int] = []
        self.pieces: list[tuple[int, int]] = []
        """Of each function that is called, the words of an activation: where they are, and their bytes."""
        self._words(self._first(0))
        for number, f in enumerate(plan.functions):
            start = self.w.words(1 + len(f.results))
            self._words(self._first(number + 1))
            self.pieces.append((start, self.w.words(0) - start))
        self.results = self.w.words(len(plan.results))
        self.held = self.w.words(max((len(f.params) + len(f.results) for f in plan.functions), default=0))
        """What a call is given, while its activation is made."""
        self._workspaces = iter(plan.workspaces)

    def _first(self, number: int) -> tuple[int, int]:
        """The position and the storage up to which a part goes: the body, then functions that are called."""
        if number < len(self.plan.functions):
            return self.plan.functions[number].start, self.plan.functions[number].low
        return len(self.plan.code.instructions), len(self.plan.storages)

    def _words(self, end: tuple[int, int]) -> None:
        """Cells and marks of the next part of the plan."""
        storages = self.plan.storages[len(self.cells) : end[1]]
        self.cells += [self.w.words(1) for _ in storages]
        for i in self.plan.code.instructions[: end[0]]:
            if isinstance(i, Skip) and i.mark not in self.marks:
                self.marks[i.mark] = self.w.words(1)

    def image(self, limit: int) -> CallImage:
        """All of it."""
        self._begin()
        for at, (i, actions) in enumerate(zip(self.plan.code.instructions, self.plan.actions, strict=True)):
            self.w.bind(self.labels[at])
            for action in actions:
                self._action(action, at)
            self._control(i, at)
        return self.w.image(self.plan.nbytes, limit)

    def _begin(self) -> None:
        """Cells that are in arguments or results; those of constants and of the plan's memory have it from the start."""
        plan, cells = self.plan, self.cells
        for k in range(len(plan.results)):
            self.code(Opcode.OBJECT, self.results + 8 * k, HEAD + 8 * (self.params + k), 0)
        params: dict[int, int] = {}
        for number, s in enumerate(plan.storages):
            if s.param is not None and s.param not in params and number < self._first(0)[1]:
                params[s.param] = number
                self.code(Opcode.OBJECT, cells[number], HEAD + 8 * s.param, 0)
            elif s.inside is not None:
                self.code(Opcode.BEHIND, cells[number], cells[s.inside], s.start)
            elif s.array is not None:
                self.w.constant(cells[number], s.array)
        for number, home in plan.homes.items():
            if home.result is not None:
                self.code(Opcode.BEHIND, cells[number], self.results + 8 * home.result, home.offset)
                continue
            self.w.value(cells[number], home.offset)
            if number in plan.exchanged:  # it may hold what was a result's in the call before
                own = self.w.words(1)
                self.w.value(own, home.offset)
                self.code(Opcode.BEHIND, cells[number], own, 0)

    # --- actions

    def _action(self, action: Action, at: int) -> None:
        match action:
            case Invoked():
                self._invoke(action, at)
            case Called(kernel, objects):
                slots, (*own, scratch) = self.w.words(len(objects)), next(self._workspaces)
                for k, storage in enumerate(objects):
                    self.w.point(slots + 8 * k, self.cells[storage] - DATA)
                kernel.write(self.w, slots, own, scratch)
            case Copied(source, target):
                self.code(Opcode.COPY, self.cells[target], self.cells[source], self.plan.storages[target].nbytes)
            case Swapped(one, other):
                self.code(Opcode.SWAP, self.cells[one], self.cells[other])

    def _invoke(self, action: Invoked, at: int) -> None:
        """Lets a function read the arguments where they are, and go on there."""
        f, (words, nbytes), back = self.plan.functions[action.function], self.pieces[action.function], Label()
        if f.is_recursive:
            again = Label()
            self.code(Opcode.BACK, again)
            self.w.bind(again)
        for k, storage in enumerate((*action.arguments, *action.results)):
            self.code(Opcode.BEHIND, self.held + 8 * k, self.cells[storage], 0)
        if f.is_recursive:
            self.code(Opcode.PUSH, words, nbytes, _record_bytes(f, nbytes), at)
            for storage in range(f.low, f.high):
                if (home := self.plan.homes.get(storage)) is not None:
                    self.code(Opcode.BEHIND, self.cells[storage], RECORD, rounded(nbytes) + home.offset)
        for k, cell in enumerate((*(self.cells[p] for p in f.params), *(words + 8 * k for k in range(1, 1 + len(f.results))))):
            self.code(Opcode.BEHIND, cell, self.held + 8 * k, 0)
        self.code(Opcode.SET, words, back)
        self.code(Opcode.JUMP, self.labels[f.start])
        self.w.bind(back)

    def _back(self, f: CalledFunction, words: int, nbytes: int) -> None:
        """Gives the results of a function to its caller, which goes on."""
        for k, storage in enumerate(f.results, 1):
            self.code(Opcode.COPY, words + 8 * k, self.cells[storage], self.plan.storages[storage].nbytes)
        if f.is_recursive:
            self.code(Opcode.POP, words, nbytes, _record_bytes(f, nbytes))
        else:
            self.code(Opcode.GO, words)

    # --- control

    def _control(self, i: Instruction, at: int) -> None:
        match i:
            case Jump(to):
                self.code(Opcode.BACK if to <= at else Opcode.JUMP, self.labels[to])
            case Test(_, _, to):
                self._select(at, [to, at + 1])
            case Select(_, _, targets):
                is_bool = self.plan.storages[self.plan.tested[at]].dtype == np.bool_
                self._select(at, targets[1::-1] if is_bool else targets)
            case Skip(mark, to):
                self.code(Opcode.SKIP, self.marks[mark], self.labels[to])
            case Move(_, _, clears):
                for mark in clears:
                    self.code(Opcode.SET, self.marks[mark], 0)
            case Return():
                called = next((k for k, f in enumerate(self.plan.functions) if f.start <= at < f.stop), None)
                if called is None:
                    self._return()
                else:
                    self._back(self.plan.functions[called], *self.pieces[called])

    def _select(self, at: int, targets: Sequence[int]) -> None:
        """On to the target of the number that is tested."""
        storage = self.plan.tested[at]
        dtype = self.plan.storages[storage].dtype
        size, is_signed = dtype.itemsize, int(dtype.kind == "i")
        labels = [self.labels[to] for to in targets]
        self.code(Opcode.SELECT, self.cells[storage], size, 64 - 8 * size, is_signed, len(labels) - 1, *labels)

    def _return(self) -> None:
        """Copies what is elsewhere into the results: last those in which other values may be, as buffers were exchanged."""
        plan = self.plan
        late = {k for k, s in enumerate(plan.results) if s in plan.exchanged and plan.homes[s] == Home(0, k)}
        for k in sorted(set(range(len(plan.results))) - plan.direct, key=lambda k: k in late):
            self.code(Opcode.COPY, self.results + 8 * k, self.cells[plan.results[k]], plan.storages[plan.results[k]].nbytes)
        self.code(Opcode.RETURN)


def _record_bytes(f: CalledFunction, nbytes: int) -> int:
    """The bytes of a record: words, then the memory of an activation."""
    return rounded(nbytes) + rounded(f.nbytes)
