"""A function without control flow, calls and effects, run with the least between its kernels.

It computes what `execute` computes, for arguments that need no conversion; whatever else comes, or goes wrong,
is left to `execute`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.literal import Array
from deepx_graph.runtime.code import Return, Run
from deepx_graph.runtime.donation import Places, places
from deepx_graph.runtime.kernels.recycle import owned
from deepx_graph.runtime.program import Outs, Unit
from deepx_graph.types import TensorType

NONE: frozenset[int] = frozenset()


class Straight:
    """The instructions of one unit as plain tuples. Not to be run by two threads at once."""

    def __init__(self, unit: Unit, last: Return) -> None:
        code = unit.plan.code
        self._unit = unit
        self._steps = tuple((kernel, i.sources, i.target, at, i.frees) for at, (i, kernel) in
                            enumerate(zip(unit.instructions, unit.kernels, strict=True)) if isinstance(i, Run) and kernel)
        self._params, self._last = code.params, last.sources
        self._copied = tuple(k in unit.plan.copied for k in range(len(last.sources)))
        self._places: dict[frozenset[int], Places] = {}
        self._types = tuple((p.type.dtype.np, p.type.shape) for p in unit.function.params if isinstance(p.type, TensorType))

    def takes(self, arrays: Sequence[Any]) -> bool:
        """Whether the arguments are arrays of the very types of the parameters, in the order of C."""
        if len(arrays) != len(self._types):
            return False
        for array, (dtype, shape) in zip(arrays, self._types, strict=True):
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
                return False
        return True

    def __call__(self, arrays: Sequence[Array], given: frozenset[int] = NONE) -> tuple[Array, ...]:
        """The results, arrays of the caller's own; they may lie in the memory of the arguments `given` away."""
        unit = self._unit
        slots: list[Any] = unit.frame.copy()
        for number, array in zip(self._params, arrays, strict=True):
            slots[number] = array
        arena = unit.take_outs()
        outs = self._with_given(arena, arrays, given) if given else arena
        for kernel, sources, target, at, frees in self._steps:
            values = [slots[s] for s in sources]
            if at in unit.taken:
                slots[sources[0]] = None
            slots[target] = kernel(values, outs[at])
            for s in frees:
                slots[s] = None
        unit.give_back(arena)
        return tuple([owned(slots[s]) if copied else np.asarray(slots[s])
                      for s, copied in zip(self._last, self._copied, strict=True)])

    def _with_given(self, outs: Outs, arrays: Sequence[Array], given: frozenset[int]) -> Outs:
        """Where results go when those arguments are given away: such as share no memory with another argument."""
        free = frozenset(k for k in given if arrays[k].flags.writeable and not any(
            j != k and np.may_share_memory(arrays[k], a) for j, a in enumerate(arrays)))
        if free not in self._places:
            self._places[free] = places(self._unit, free)
        found = self._places[free]
        return [o if at not in found else tuple(None if k is None else arrays[k] for k in found[at])  # type: ignore[misc]
                for at, o in enumerate(outs)]


def straight(unit: Unit) -> Straight | None:
    """The unit's function that way, or None where it has more than kernels in it or is given anything but tensors."""
    *body, last = unit.instructions
    kernels_alone = all(isinstance(i, Run) and k is not None for i, k in zip(body, unit.kernels, strict=False))
    if not isinstance(last, Return) or not kernels_alone:
        return None
    return Straight(unit, last) if _has_tensors_alone(unit.function) else None


def _has_tensors_alone(function: Function) -> bool:
    return all(isinstance(n.type, TensorType) for n in (*function.params, *function.results))
