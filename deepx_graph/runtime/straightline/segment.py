"""A straight run of kernels described for an engine that runs them in one call: what they read and write, with no names left.

Views and projections vanish: they are other shapes of the same memory. Memory between kernels is bound once, so a segment is one
activation: it is never run by two threads at once. Nothing is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deepx_graph.forking import renew_after_fork
from deepx_graph.ir import Node
from deepx_graph.ir.structure import PROJ, index_of, value_of
from deepx_graph.literal import Array
from deepx_graph.runtime.bytecode.code import Run
from deepx_graph.runtime.memory.donation import DonatedBuffers
from deepx_graph.runtime.program import Outs, Unit
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
