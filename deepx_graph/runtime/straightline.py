"""A function without control flow, calls and effects, run with the least between its kernels.

It computes what the interpreter computes, and fails as that does, for arguments that need no conversion; anything else is left
to the interpreter. Where the engine joins kernels, those that follow each other are a `Segment`: what they read and write, with no
names left, for one call; a function of nothing else is that call. Views and projections vanish: they are other shapes of the same
memory. Memory between kernels is bound once, so a segment is one activation: it is never run by two threads at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from deepx_graph.forking import renew_after_fork
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import PROJ, index_of, value_of
from deepx_graph.literal import Array
from deepx_graph.runtime.bytecode import Return, Run
from deepx_graph.runtime.engines.base import EntryFn, KernelFn
from deepx_graph.runtime.memory.in_place import DonatedBuffers, donated_buffers
from deepx_graph.runtime.memory.pool import owned
from deepx_graph.runtime.program import Outs, Unit, fail
from deepx_graph.types import TensorType, leaves


@dataclass(frozen=True)
class ArgBuffer:
    """The memory of an argument of the call."""

    number: int


@dataclass(frozen=True)
class ResultBuffer:
    """The memory of a result of the call."""

    number: int


Buffer = ArgBuffer | ResultBuffer | Array
"""An array is memory of the segment's own."""


@dataclass(frozen=True)
class ArrayType:
    """The dtype and shape of an argument or result."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class SegmentResult:
    """A result: a fresh array, the argument whose number is `over`, or the array `own`, which stays the segment's."""

    form: ArrayType
    over: int | None = None
    own: Array | None = None


@dataclass(frozen=True)
class KernelUse:
    """A kernel's use: the memory of each operand and each result."""

    operands: tuple[Buffer, ...]
    results: tuple[Buffer, ...]


@dataclass(frozen=True)
class Segment:
    """Kernels in order, then copies of so many bytes into results.

    Arguments are C-contiguous. Those in `alone` are written over, and share no memory with others, unless one of `under` lies
    in the very same buffer.
    """

    params: tuple[ArrayType, ...]
    results: tuple[SegmentResult, ...]
    uses: tuple[KernelUse, ...]
    nodes: tuple[Node, ...] = ()
    copies: tuple[tuple[Buffer, ResultBuffer, int], ...] = ()
    alone: frozenset[int] = frozenset()
    under: frozenset[int] = frozenset()


@dataclass(frozen=True, eq=False)
class SegmentGroup:
    """What segments over the same memory have in common: one of them runs at a time."""

    busy: Array = field(default_factory=lambda: np.zeros(1, np.int64))
    """A word that is not 0 while one runs."""
    memory: dict[Any, Any] = field(default_factory=dict)
    """What an engine keeps for them, by its kernels."""

    def __post_init__(self) -> None:
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Whoever was running one is not in the child."""
        self.busy[:] = 0


@dataclass(frozen=True)
class _Leaf:
    """The memory of a kernel's result that the plan has no buffer for."""

    at: int
    leaf: int


@dataclass(frozen=True, eq=False)
class _Value:
    """What a slot holds: memory, seen as an array of that form."""

    buffer: ArgBuffer | _Leaf | Array
    form: ArrayType


def joins(unit: Unit, at: int) -> bool:
    """Whether the instruction at a position may be part of a segment."""
    run, engine = unit.instructions[at], unit.joining
    if not isinstance(run, Run) or engine is None or at in unit.plan.forwarded:
        return False
    return engine.joins(run.node) if makes_kernel(run.node) else run.node.op is PROJ or _views_the_same(run.node)


def makes_kernel(node: Node) -> bool:
    """Whether the node computes something, rather than be a projection or view."""
    return node.op is not PROJ and not node.op.view


def _views_the_same(node: Node) -> bool:
    """Whether a view has the first elements of its operand, in order."""
    if len(node.inputs) != 1 or not isinstance(node.inputs[0].type, TensorType):
        return False
    return _viewed(node, _Value(ArgBuffer(0), form_of(node.inputs[0].type))) is not None


def segment(unit: Unit, positions: Sequence[int], inputs: Sequence[int], outputs: Sequence[int], outs: Outs,
            donated: DonatedBuffers | None = None, *, whole: bool) -> Segment | None:
    """The segment of the instructions at `positions`, all of which join, from the slots `inputs` to the slots `outputs`.

    `outs` is the memory that they share, `donated` where results go over arguments. Outputs of a `whole` function are the caller's:
    such as are no kernel's are copied. None where an input or output is no tensor, or two outputs would have to share memory.
    """
    found = _Tracing(unit, outs, donated or {})
    return found.segment(positions, inputs, outputs, whole)


class _Tracing:
    def __init__(self, unit: Unit, outs: Outs, donated: DonatedBuffers) -> None:
        self.unit, self.outs, self.donated = unit, outs, donated
        self.values: dict[int, tuple[_Value, ...]] = {}
        self.buffers: dict[_Leaf, Buffer] = {}

    def segment(self, positions: Sequence[int], inputs: Sequence[int], outputs: Sequence[int], whole: bool) -> Segment | None:
        types = [self.unit.plan.code.slots[s].type for s in inputs]
        if not all(isinstance(t, TensorType) for t in types):
            return None
        params = tuple(map(form_of, types))
        self.values = {s: (_Value(ArgBuffer(k), form),) for k, (s, form) in enumerate(zip(inputs, params, strict=True))}
        runs = [(at, run) for at in positions if isinstance(run := self.unit.instructions[at], Run)]
        for at, run in runs:
            self._trace(at, run)
        if any(len(self._of(s)) != 1 for s in outputs):
            return None
        results, copies = self._results([self._of(s)[0] for s in outputs], whole)
        if copies and not whole:
            return None
        kernels = [run for _, run in runs if makes_kernel(run.node)]
        uses, nodes = tuple(map(self._use, kernels)), tuple(run.node for run in kernels)
        alone = frozenset(p for taken in self.donated.values() for p in taken if p is not None)
        return Segment(params, results, uses, nodes, tuple((self._buffer(v), ResultBuffer(k), v.form.nbytes) for k, v in copies),
                       alone)

    def _of(self, slot: int) -> tuple[_Value, ...]:
        """What a slot holds."""
        if slot not in self.values:
            array = np.asarray(value_of(self.unit.constants[slot]).array, order="C")
            self.values[slot] = (_Value(array, ArrayType(array.dtype, array.shape)),)
        return self.values[slot]

    def _trace(self, at: int, run: Run) -> None:
        node, sources = run.node, [self._of(s) for s in run.sources]
        if node.op is PROJ:
            self.values[run.target] = (sources[0][index_of(node)],)
        elif makes_kernel(node):
            self.values[run.target] = tuple(
                _Value(self._target(at, k, form_of(t), node, [s[0] for s in sources]), form_of(t))
                for k, t in enumerate(leaves(node.type)))
        else:
            viewed = _viewed(node, sources[0][0])
            assert viewed is not None
            self.values[run.target] = (viewed,)

    def _target(self, at: int, leaf: int, form: ArrayType, node: Node, operands: Sequence[_Value]) -> _Leaf | Array:
        """Where a kernel's result goes. What would be written over an operand too early goes to memory of its own."""
        outs = self.outs[at]
        if outs is None:
            return _Leaf(at, leaf)
        overwrites = self.unit.overwriting.overwrites(node) if self.unit.overwriting else ()
        free = overwrites[leaf] if overwrites else ()
        harmed = any(k not in free and isinstance(o.buffer, np.ndarray) and np.may_share_memory(outs[leaf], o.buffer)
                     for k, o in enumerate(operands))
        return np.empty(form.shape, form.dtype) if harmed else outs[leaf]

    def _results(self, values: Sequence[_Value], whole: bool) -> tuple[tuple[SegmentResult, ...], list[tuple[int, _Value]]]:
        """Where the outputs are; and those that are copied from where they are."""
        results, copies = [], []
        for k, value in enumerate(values):
            leaf, over = value.buffer, self._over(value.buffer)
            if isinstance(leaf, _Leaf) and leaf not in self.buffers and self._is_whole(leaf, value.form, over):
                self.buffers[leaf] = ResultBuffer(k) if over is None else ArgBuffer(over)
                results.append(SegmentResult(value.form, over))
            elif isinstance(leaf, np.ndarray) and not whole:
                results.append(SegmentResult(value.form, own=leaf))
            else:
                results.append(SegmentResult(value.form))
                copies.append((k, value))
        return tuple(results), copies

    def _over(self, buffer: ArgBuffer | _Leaf | Array) -> int | None:
        return self.donated[buffer.at][buffer.leaf] if isinstance(buffer, _Leaf) and buffer.at in self.donated else None

    def _form_of(self, leaf: _Leaf) -> ArrayType:
        run = self.unit.instructions[leaf.at]
        assert isinstance(run, Run)
        return form_of(leaves(run.node.type)[leaf.leaf])

    def _is_whole(self, leaf: _Leaf, form: ArrayType, over: int | None) -> bool:
        """Whether an array of that form holds all of the kernel's result; over an argument, which has a form of its own."""
        made = self._form_of(leaf)
        return form == made if over is not None else form.nbytes == made.nbytes

    def _use(self, run: Run) -> KernelUse:
        operands = tuple(self._buffer(self._of(s)[0]) for s in run.sources)
        return KernelUse(operands, tuple(map(self._buffer, self.values[run.target])))

    def _buffer(self, value: _Value) -> Buffer:
        """Where a value is, all outputs having their buffers: what no output wants is in memory of its own."""
        leaf = value.buffer
        if not isinstance(leaf, _Leaf):
            return leaf
        if leaf not in self.buffers:
            over, form = self._over(leaf), self._form_of(leaf)
            self.buffers[leaf] = np.empty(form.shape, form.dtype) if over is None else ArgBuffer(over)
        return self.buffers[leaf]


def form_of(type: Any) -> ArrayType:
    """The form of a tensor of a static type."""
    assert isinstance(type, TensorType) and type.dtype.np is not None
    return ArrayType(type.dtype.np, type.shape)


def _viewed(node: Node, value: _Value) -> _Value | None:
    """The value that a view of another is; None where its elements are not the first of the other's, in the same order."""
    assert node.op.eval is not None
    array = value.buffer if isinstance(value.buffer, np.ndarray) else np.empty(value.form.shape, value.form.dtype)
    seen = node.op.eval((array,), *node.attrs)
    if type(seen) is not np.ndarray or not seen.flags.c_contiguous or seen.ctypes.data != array.ctypes.data:
        return None
    return _Value(seen if array is value.buffer else value.buffer, ArrayType(seen.dtype, seen.shape))


@dataclass(frozen=True, slots=True)
class KernelStep:
    """The kernel at a position of the code. `takes`: its first operand leaves the frame before the call."""

    node: Node
    kernel: KernelFn
    sources: tuple[int, ...]
    target: int
    at: int
    takes: bool
    frees: tuple[int, ...]

    def run(self, slots: list[Any], outs: Outs) -> None:
        """Computes the target, and drops what ends here."""
        values = [slots[s] for s in self.sources]
        if self.takes:
            slots[self.sources[0]] = None
        try:
            slots[self.target] = self.kernel(values, outs[self.at])
        except Exception as e:  # told with its source position, or raised again
            fail(e, self.node)
        for s in self.frees:
            slots[s] = None


@dataclass(frozen=True, slots=True)
class Partition:
    """Steps that follow each other, cut for one call: views before and after it, the steps inside, and slots in and out."""

    before: tuple[KernelStep, ...]
    inside: tuple[KernelStep, ...]
    after: tuple[KernelStep, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SegmentCall:
    """The steps of a cut as one call."""

    partition: Partition
    entry: EntryFn
    frees: tuple[int, ...]

    def run(self, slots: list[Any], outs: Outs) -> None:
        """Computes all targets that are read elsewhere, and drops what ends within."""
        partition = self.partition
        for step in partition.before:
            _compute(step, slots, outs)
        try:
            found = self.entry(*[slots[s] for s in partition.inputs])
        except MemoryError:  # for one of its results, before it began: the steps will say which
            found = None
        if found is None:
            for step in partition.inside:
                _compute(step, slots, outs)
        else:
            for slot, value in zip(partition.outputs, found, strict=True):
                slots[slot] = value
        for step in partition.after:
            _compute(step, slots, outs)
        for s in self.frees:
            slots[s] = None


def _compute(step: KernelStep, slots: list[Any], outs: Outs) -> None:
    try:
        slots[step.target] = step.kernel([slots[s] for s in step.sources], outs[step.at])
    except Exception as e:  # told with its source position, or raised again
        fail(e, step.node)


def partition(unit: Unit, steps: Sequence[KernelStep]) -> Partition | None:
    """Steps that join, in order, cut for one call. None where there is no kernel among them."""
    before, rest, made = list[KernelStep](), list[KernelStep](), set[int]()
    for step in steps:
        if makes_kernel(step.node) or step.sources[0] in made:
            rest.append(step)
            made.add(step.target)
        else:
            before.append(step)
    inside, after, read = list[KernelStep](), list[KernelStep](), set[int]()
    for step in reversed(rest):
        if step.node.op.view and step.target not in read:
            after.append(step)
        else:
            inside.append(step)
            read.update(step.sources)
    own = {s.at for s in inside}
    inputs = dict.fromkeys(s for step in reversed(inside) for s in step.sources if s not in made and s not in unit.constants)
    outputs = tuple(s.target for s in reversed(inside) if any(at not in own for at in unit.readers.get(s.target, ())))
    found = Partition(tuple(before), tuple(reversed(inside)), tuple(reversed(after)), tuple(inputs), outputs)
    return found if made else None


NONE: frozenset[int] = frozenset()


class StraightLine:
    """The instructions of one unit. Not to be run by two threads at once; what `entry` gives may be."""

    def __init__(self, unit: Unit, last: Return) -> None:
        self._unit, self._params, self._last = unit, unit.plan.code.params, last.sources
        self._copied = tuple(k in unit.plan.copied for k in range(len(last.sources)))
        self._forms = tensor_forms(unit.function)
        self._steps = tuple(KernelStep(i.node, kernel, i.sources, i.target, at, at in unit.taken, i.frees) for at, (i, kernel) in
                            enumerate(zip(unit.instructions, unit.kernels, strict=True)) if isinstance(i, Run) and kernel)
        self._calls = 0
        self._shared = SegmentGroup()
        self._donated_buffers: dict[frozenset[int], DonatedBuffers] = {NONE: {}}
        self._entries: dict[frozenset[int], EntryFn | None] = {}
        self._programs: dict[frozenset[int], Sequence[KernelStep | SegmentCall]] = {}

    @cached_property
    def _joins(self) -> tuple[bool, ...]:
        """The steps that join. To find out may compile kernels, so nobody asks before the second call."""
        return tuple(joins(self._unit, s.at) for s in self._steps)

    @cached_property
    def _memory(self) -> Outs:
        """The arrays between kernels, those of joined ones with them."""
        return self._unit.take_outs()

    def takes(self, arrays: Sequence[Any]) -> bool:
        """Whether the arguments are arrays of the very types of the parameters, in the order of C."""
        return takes(self._forms, arrays)

    def entry(self, donated: frozenset[int] = NONE) -> EntryFn | None:
        """All of it as one call, with the arguments `donated` away; None where there is more to it than kernels that join.

        It is made for what has been called once. It gives None, with nothing done, for arguments that `takes` would refuse, and
        for some others.
        """
        return self._entry(donated) if self._calls else None

    def _entry(self, donated: frozenset[int]) -> EntryFn | None:
        if donated not in self._entries:
            self._entries[donated] = (
                self._joined(self._steps, self._params, self._last, donated, whole=True) if all(self._joins) else None)
        return self._entries[donated]

    @property
    def steps(self) -> Sequence[KernelStep | SegmentCall]:
        """What Python runs one after the other in every call but the first: nothing where all of it is one call."""
        if all(self._joins):
            return () if self._entry(NONE) is not None else self._steps
        return self._program(NONE)

    def __call__(self, arrays: Sequence[Array], donated: frozenset[int] = NONE) -> tuple[Array, ...]:
        """The results, arrays of the caller's own; they may lie in the memory of the arguments `donated` away."""
        unit = self._unit
        alone = not self._calls or all(self._joins)  # another thread may be in the entry, whose memory is `_memory`
        self._calls += 1
        free = self._free(arrays, donated) if donated else NONE
        slots: list[Any] = unit.frame.copy()
        for number, array in zip(self._params, arrays, strict=True):
            slots[number] = array
        arena = unit.take_outs() if alone else self._memory
        outs = self._with_donated(arena, arrays, free) if free else arena
        for item in self._steps if alone else self._program(free):
            item.run(slots, outs)
        if alone:
            unit.give_back(arena)
        return tuple([owned(slots[s]) if copied else np.asarray(slots[s])
                      for s, copied in zip(self._last, self._copied, strict=True)])

    def _free(self, arrays: Sequence[Array], donated: frozenset[int]) -> frozenset[int]:
        """Those of the arguments donated that share no memory with another."""
        return frozenset(k for k in donated if arrays[k].flags.writeable and not any(
            j != k and np.may_share_memory(arrays[k], a) for j, a in enumerate(arrays)))

    def _over(self, free: frozenset[int]) -> DonatedBuffers:
        """Where results go over those arguments."""
        if free not in self._donated_buffers:
            self._donated_buffers[free] = donated_buffers(self._unit, free)
        return self._donated_buffers[free]

    def _with_donated(self, outs: Outs, arrays: Sequence[Array], free: frozenset[int]) -> Outs:
        found = self._over(free)
        return [o if at not in found else tuple(None if k is None else arrays[k] for k in found[at])  # type: ignore[misc]
                for at, o in enumerate(outs)]

    def _joined(self, steps: Sequence[KernelStep], inputs: Sequence[int], outputs: Sequence[int], free: frozenset[int], *,
                whole: bool = False) -> EntryFn | None:
        """Some steps as one call, from slots to slots."""
        engine, positions = self._unit.joining, [s.at for s in steps]
        number = {slot: k for k, slot in enumerate(inputs)}
        over = self._over(free)
        donated = {at: tuple(None if k is None else number[self._params[k]] for k in over[at]) for at in positions if at in over}
        if engine is None:
            return None
        found = segment(self._unit, positions, inputs, outputs, self._memory, donated, whole=whole)
        return None if found is None else engine.joined(found, self._shared)

    def _program(self, free: frozenset[int]) -> Sequence[KernelStep | SegmentCall]:
        """The steps, those joined that follow each other."""
        if free not in self._programs:
            program: list[KernelStep | SegmentCall] = []
            for together, group in groupby(zip(self._joins, self._steps, strict=True), key=lambda pair: pair[0]):
                steps = [s for _, s in group]
                found = partition(self._unit, steps) if together else None
                entry = None if found is None else self._joined(found.inside, found.inputs, found.outputs, free)
                frees = tuple(slot for s in steps for slot in s.frees)
                program += steps if found is None or entry is None else [SegmentCall(found, entry, frees)]
            self._programs[free] = program
        return self._programs[free]


def straight_line(unit: Unit) -> StraightLine | None:
    """The unit's function as such, or None where it has more than kernels in it or is donated anything but tensors."""
    *body, last = unit.instructions
    kernels_alone = all(isinstance(i, Run) and k is not None for i, k in zip(body, unit.kernels, strict=False))
    if not isinstance(last, Return) or not kernels_alone:
        return None
    return StraightLine(unit, last) if has_tensors_alone(unit.function) else None


def has_tensors_alone(function: Function) -> bool:
    """Whether a function takes and gives nothing else."""
    return all(isinstance(n.type, TensorType) for n in (*function.params, *function.results))


def tensor_forms(function: Function) -> tuple[ArrayType, ...]:
    """The forms of the parameters that are tensors."""
    return tuple(form_of(p.type) for p in function.params if isinstance(p.type, TensorType))


def takes(forms: Sequence[ArrayType], arrays: Sequence[Any]) -> bool:
    """Whether the arrays are of these very forms, in the order of C."""
    if len(arrays) != len(forms):
        return False
    for array, form in zip(arrays, forms, strict=True):
        if type(array) is not np.ndarray or array.dtype != form.dtype or array.shape != form.shape or not array.flags.c_contiguous:
            return False
    return True
