"""A function of the program as one function of Python: kernels as calls, branches and loops as Python's own.

It computes what the interpreter computes, and fails as that does, with the least between its kernels. Calls, effects and what
devices do together are left to the interpreter. The memory that kernels write to is bound once, so a function of this kind is
one activation: it is never run by two threads at once. Results may lie over arguments that are given away. A function of one kernel
is one call of machine code, where the engine has an entry to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context
from operator import itemgetter
from typing import Any

import numpy as np

from deepx_graph.forking import renew_after_fork
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, PARAM, PARTIAL, PROJ, index_of, taken_branch
from deepx_graph.literal import Array
from deepx_graph.lowering.bytecode import Instruction, Jump, Move, Pack, Return, Run, Select, Skip, Test
from deepx_graph.runtime.array_type import checker, has_tensors_alone, tensor_forms
from deepx_graph.runtime.engines.base import EntryFn
from deepx_graph.runtime.memory.donation import DonatedBuffers, donated_buffers
from deepx_graph.runtime.memory.pool import owned
from deepx_graph.runtime.program import Unit, fail, is_kernel
from deepx_graph.runtime.python_code import PythonFunction, statement_at
from deepx_graph.types import BOOL, StateType, TensorType, leaves

MOST_KERNELS = 20_000
"""A function of more is interpreted: Python would compile it for longer than it runs."""

SCALARS = frozenset("?bhilqBHILQfd")
"""The dtypes whose tensors of rank 0 are passed on as numpy's scalars, with which Python computes several times faster."""

to_scalar = itemgetter(())


NONE: frozenset[int] = frozenset()


class NotPython(Exception):
    """A function that is left to the interpreter."""


class UnitCode:
    """The code of one unit. Not to be run by two threads at once; what `entry` gives may be."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self.takes = checker(tensor_forms(unit.function))
        """Whether the arguments are arrays of the very types of the parameters, in the order of C."""
        *body, last = unit.instructions
        assert isinstance(last, Return)
        self._copied = unit.plan.copied
        self.is_straight = all(isinstance(i, Run) for i in body)
        """Whether it has neither loops nor branches."""
        self.has_run = False
        """Whether it has been called: what a second call needs is made then."""
        self._functions: dict[frozenset[int], Callable[..., Any]] = {}
        self._over: dict[frozenset[int], DonatedBuffers] = {}
        self._entries: dict[frozenset[int], EntryFn | None] = {}
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Another thread of the parent may have been in the context, which one at a time may be."""
        self._silent = Context()
        """In which numpy warns of nothing: to enter it costs a tenth of `np.errstate`."""
        self._silent.run(np.seterr, all="ignore")

    def entry(self, donated: frozenset[int] = NONE) -> EntryFn | None:
        """All of it as one call of machine code, with the arguments `donated` away; None where there is more to it than one kernel,
        or no entry.

        It is made for what has been called once. It gives None, with nothing done, for arguments that `takes` would refuse, and
        for some others.
        """
        return self._entry(donated) if self.has_run else None

    def _entry(self, donated: frozenset[int]) -> EntryFn | None:
        if donated not in self._entries:
            function, engine, found = self._unit.function, self._unit.entering, None
            if engine is not None and (node := one_kernel(function)) is not None:
                found = engine.entry(node, function.params, next(iter(self._buffers(donated).values()), ()))
            self._entries[donated] = found
        return self._entries[donated]

    @property
    def steps(self) -> Sequence[Instruction]:
        """What Python runs in every call but the first: nothing where all of it is one call of machine code."""
        return () if self._entry(NONE) is not None else self._unit.instructions[:-1]

    def __call__(self, arrays: Sequence[Array], donated: frozenset[int] = NONE) -> tuple[Array, ...]:
        """The results, arrays of the caller's own; they may lie in the memory of the arguments `donated` away."""
        self.has_run = True
        function = self.function(self._free(arrays, donated) if donated and self._buffers(donated) else NONE)
        try:
            results = self._silent.run(function, *arrays)
        except Exception as e:  # told with its source position, or raised again
            at = statement_at(e, function)
            fail(e, None if at is None else getattr(self._unit.instructions[at], "node", None))
        return tuple([owned(r) if k in self._copied else np.asarray(r) for k, r in enumerate(results)])

    def function(self, free: frozenset[int] = NONE) -> Callable[..., Any]:
        """The function of Python, for arguments of which those are free to be written over. Raises NotPython."""
        if free not in self._functions:
            self._functions[free] = _Writer(self._unit, self._buffers(free)).function()
        return self._functions[free]

    def _buffers(self, donated: frozenset[int]) -> DonatedBuffers:
        """Where results take the memory of the arguments `donated`: nowhere within loops and branches."""
        if donated not in self._over:
            is_any = donated and self.is_straight
            self._over[donated] = donated_buffers(self._unit.plan, self._overwrites, donated) if is_any else {}
        return self._over[donated]

    def _overwrites(self, node: Node) -> tuple[frozenset[int], ...]:
        """As the engine says; what is staged gives values of its own."""
        staging = self._unit.staging
        return () if staging is not None and staging.staged(node) is not None else self._unit.engine.overwrites(node)

    def _free(self, arrays: Sequence[Array], donated: frozenset[int]) -> frozenset[int]:
        """Those of the arguments donated that share no memory with another."""
        return frozenset(k for k in donated if arrays[k].flags.writeable and not any(
            j != k and np.may_share_memory(arrays[k], a) for j, a in enumerate(arrays)))


def unit_code(unit: Unit) -> UnitCode | None:
    """The unit's code; None where it has more than kernels, or more than kernels, branches and loops for an engine that stages
    kernels: others gain nothing by functions of Python with loops."""
    runs = [i.node for i in unit.instructions if isinstance(i, Run)]
    if not has_tensors_alone(unit.function) or len(runs) > MOST_KERNELS or _need_interpreter(runs):
        return None
    code = UnitCode(unit)
    if not code.is_straight:
        if unit.staging is None:
            return None
        try:
            code.function()
        except (NotPython, SyntaxError):  # Python compiles only so many blocks in one another
            return None
    return code


def _need_interpreter(nodes: Sequence[Node]) -> bool:
    """Whether one of the nodes is no kernel, or handles a state."""
    held = {n for node in nodes for n in (node, *node.inputs)}  # one node may have hundreds of results
    return any(not is_kernel(n) or n.op is PARTIAL for n in nodes) or any(
        isinstance(t, StateType) for n in held for t in leaves(n.type))


def one_kernel(function: Function) -> Node | None:
    """The node that computes all results of a function, in order, from its parameters; None where there is none."""
    first = function.results[0] if function.results else None
    node = first.inputs[0] if first is not None and first.op is PROJ else first
    if node is None or node.op in (PARAM, CONSTANT) or node.op.view or any(i.op is not PARAM for i in node.inputs):
        return None
    count = len(leaves(node.type))
    whole = (node,) if isinstance(node.type, TensorType) else ()
    parts = len(function.results) == count and all(
        r.op is PROJ and r.inputs[0] is node and index_of(r) == k for k, r in enumerate(function.results))
    return node if function.results == whole or parts else None


class _Writer:
    """Writes the function; where results are put over parameters is `donated`."""

    def __init__(self, unit: Unit, donated: DonatedBuffers) -> None:
        self.unit, self.engine, self.donated = unit, unit.staging, donated
        self.code, self.outs = unit.instructions, unit.take_outs()
        self.loops = {span.start: span.end for span in unit.plan.code.loops.values()}
        params = list(map(_name, unit.plan.code.params))
        self.out = PythonFunction(params)
        self.constants = unit.constants

    def function(self) -> Callable[..., Any]:
        """The function, of the arguments in order."""
        slots = self.unit.plan.code.slots
        for s in self.unit.plan.code.params:
            if self._is_scalar(slots[s].type):
                self.out.call(_name(s), to_scalar, _name(s))
        self._write(0, len(self.code))
        return self.out.finished()

    def _write(self, at: int, end: int) -> None:
        """The statements of the instructions from `at` up to before `end`."""
        while at < end:
            self.out.at = at
            at = self._loop(at) if at in self.loops else self._instruction(self.code[at], at)

    def _instruction(self, i: Instruction, at: int) -> int:
        """The statements of an instruction, and of those within it; the position behind them."""
        match i:
            case Run():
                self._run(i, at)
            case Move(targets, sources, clears, frees):
                self.out.move([_name(t) for t in targets], self._sources(sources))
                self._drop([s for s in (*clears, *frees) if s not in targets])
            case Pack(target, sources, frees):
                self._pack(_name(target), self._sources(sources))
                self._drop(frees)
            case Select():
                return self._select(i)
            case Skip(mark, to):
                with self.out.block(f"if not {_name(mark)}"):
                    self.out.move([_name(mark)], [self.out.bind(True)])
                    self._write(at + 1, to)
                return to
            case Return(sources):
                self.out.give(self._sources(sources))
            case _:
                raise NotPython
        return at + 1

    def _run(self, run: Run, at: int) -> None:
        node, kernel = run.node, self.unit.kernels[at]
        staged = self.engine.staged(node) if self.engine is not None and at not in self.donated else None
        if staged is not None:
            self.out.call(_name(run.target), staged, *self._sources(run.sources))
        else:
            self._pack("given", self._sources(run.sources))
            if at in self.unit.taken:
                self.out.drop([_name(run.sources[0])])
            self.out.call(_name(run.target), kernel, "given", self._into(at))
        if self._is_scalar(node.type) and (staged is None or not all(self._is_scalar(i.type) for i in node.inputs)):
            self.out.call(_name(run.target), to_scalar, _name(run.target))
        self._drop(run.frees)

    def _into(self, at: int) -> str:
        """The name of the arrays that the kernel at a position is to put its results into."""
        if at not in self.donated:
            return self.out.bind(self.outs[at])
        params, slots = self.unit.plan.code.params, self.unit.plan.code.slots
        free = [None if k is None or self._is_scalar(slots[params[k]].type) else params[k] for k in self.donated[at]]
        self._pack("into", [self.out.bind(None) if s is None else _name(s) for s in free])
        return "into"

    def _loop(self, start: int) -> int:
        """A loop; the position behind it."""
        test = next(at for at in range(start, self.loops[start]) if self._is_test_of(at, start))
        found = self.code[test]
        assert isinstance(found, Test)
        with self.out.block("while True"):
            del self.loops[start]
            self._write(start, test)
            self.out.add(f"if not {self._source(found.source)}: break")
            self._drop(found.frees)
            self._write(test + 1, found.to - 1)
        self._drop(found.frees)
        return found.to

    def _is_test_of(self, at: int, start: int) -> bool:
        """Whether the instruction at a position ends the loop that begins at `start`: behind its body stands the jump back."""
        i = self.code[at]
        back = self.code[i.to - 1] if isinstance(i, Test) else None
        return isinstance(back, Jump) and back.to == start

    def _select(self, i: Select) -> int:
        """The branches, each of which ends with a jump behind the last; the position there."""
        jump = self.code[i.to[1] - 1] if len(i.to) > 1 else None
        if not isinstance(jump, Jump):
            raise NotPython
        ends = [*(to - 1 for to in i.to[1:]), jump.to - 1]
        spans = list(zip(i.to, ends, strict=True))
        taken = self._source(i.source)
        if isinstance(i.node.inputs[0].type, TensorType) and i.node.inputs[0].type.dtype is BOOL:
            self.out.add(f"taken = 0 if {taken} else 1")
        else:
            self.out.call("taken", taken_branch, taken, self.out.bind(len(spans)))
        self._branches(spans, i)
        return jump.to

    def _branches(self, spans: Sequence[tuple[int, int]], i: Select) -> None:
        """The branch that `taken` numbers, found by halving."""
        if len(spans) == 1:
            self._drop(i.frees)
            self._write(*spans[0])
            return
        middle = len(spans) // 2
        with self.out.block(f"if taken < {middle}"):
            self._branches(spans[:middle], i)
        with self.out.block("else"):
            if len(spans) > 2:
                self.out.add(f"taken -= {middle}")
            self._branches(spans[middle:], i)

    def _pack(self, target: str, sources: Sequence[str]) -> None:
        self.out.add(f"{target} = [{', '.join(sources)}]")

    def _sources(self, slots: Sequence[int]) -> list[str]:
        return [self._source(s) for s in slots]

    def _source(self, slot: int) -> str:
        """The name of a slot's value; constants are bound."""
        if slot not in self.constants:
            return _name(slot)
        value = self.unit.frame[slot]
        if self._is_scalar(self.unit.plan.code.slots[slot].type):
            value = self.unit.frame[slot] = to_scalar(value)
        return self.out.bind(value)

    def _drop(self, slots: Sequence[int]) -> None:
        self.out.drop([_name(s) for s in slots])

    def _is_scalar(self, type: Any) -> bool:
        """Whether values of a type are numpy's scalars between kernels, as those that are staged take them."""
        is_staged = self.engine is not None and isinstance(type, TensorType) and type.dims == ()
        return is_staged and type.dtype.np is not None and type.dtype.np.char in SCALARS


def _name(slot: int) -> str:
    return f"v{slot}"
