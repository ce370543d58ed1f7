"""A function without control flow, calls and effects, for arguments that need no conversion.

It is one frame of the interpreter, whose results may lie over arguments that are given away; a function of one kernel is one call
of machine code, where the engine has an entry to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, PARAM, PROJ, index_of
from deepx_graph.literal import Array
from deepx_graph.runtime.bytecode import Instruction, Return, Run
from deepx_graph.runtime.engines.base import EntryFn
from deepx_graph.runtime.interpreter import Activation, step
from deepx_graph.runtime.memory.in_place import DonatedBuffers, donated_buffers
from deepx_graph.runtime.memory.pool import owned
from deepx_graph.runtime.program import Outs, Unit
from deepx_graph.types import TensorType, leaves


@dataclass(frozen=True)
class ArrayType:
    """The dtype and shape of an argument or result."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize


def form_of(type: Any) -> ArrayType:
    """The form of a tensor of a static type."""
    assert isinstance(type, TensorType) and type.dtype.np is not None
    return ArrayType(type.dtype.np, type.shape)


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


NONE: frozenset[int] = frozenset()


class StraightLine:
    """The instructions of one unit. Not to be run by two threads at once; what `entry` gives may be."""

    def __init__(self, unit: Unit, last: Return) -> None:
        self._unit = unit
        self._copied = tuple(k in unit.plan.copied for k in range(len(last.sources)))
        self._forms = tensor_forms(unit.function)
        self._calls = 0
        self._donated_buffers: dict[frozenset[int], DonatedBuffers] = {NONE: {}}
        self._entries: dict[frozenset[int], EntryFn | None] = {}

    def takes(self, arrays: Sequence[Any]) -> bool:
        """Whether the arguments are arrays of the very types of the parameters, in the order of C."""
        return takes(self._forms, arrays)

    def entry(self, donated: frozenset[int] = NONE) -> EntryFn | None:
        """All of it as one call, with the arguments `donated` away; None where there is more to it than one kernel, or no entry.

        It is made for what has been called once. It gives None, with nothing done, for arguments that `takes` would refuse, and
        for some others.
        """
        return self._entry(donated) if self._calls else None

    def _entry(self, donated: frozenset[int]) -> EntryFn | None:
        if donated not in self._entries:
            function, engine, found = self._unit.function, self._unit.entering, None
            if engine is not None and (node := one_kernel(function)) is not None:
                found = engine.entry(node, function.params, next(iter(self._over(donated).values()), ()))
            self._entries[donated] = found
        return self._entries[donated]

    @property
    def steps(self) -> Sequence[Instruction]:
        """What Python runs one after the other in every call but the first: nothing where all of it is one call."""
        return () if self._entry(NONE) is not None else self._unit.instructions[:-1]

    def __call__(self, arrays: Sequence[Array], donated: frozenset[int] = NONE) -> tuple[Array, ...]:
        """The results, arrays of the caller's own; they may lie in the memory of the arguments `donated` away."""
        self._calls += 1
        free = self._free(arrays, donated) if donated else NONE
        frame = Activation(self._unit, arrays, None)
        arena = frame.outs
        frame.outs = self._with_donated(arena, arrays, free) if free else arena
        last = step(frame)
        assert isinstance(last, Return)
        frame.outs = arena
        return tuple([owned(r) if copied else np.asarray(r) for r, copied in zip(frame.finish(last), self._copied, strict=True)])

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
