"""The dtypes and shapes of arrays that functions of tensors alone take and give."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.types import TensorType


class ArrayType(NamedTuple):
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


def has_tensors_alone(function: Function) -> bool:
    """Whether a function takes and gives nothing else."""
    return all(isinstance(n.type, TensorType) for n in (*function.params, *function.results))


def tensor_forms(function: Function) -> tuple[ArrayType, ...]:
    """The forms of the parameters that are tensors."""
    return tuple(form_of(p.type) for p in function.params if isinstance(p.type, TensorType))


def checker(forms: Sequence[ArrayType]) -> Callable[[Sequence[Any]], bool]:
    """What says whether arrays are of these very forms, in the order of C."""
    kinds, wanted = [np.ndarray] * len(forms), [(*form, True) for form in forms]
    return lambda arrays: [*map(type, arrays)] == kinds and [*map(_LAID_OUT, arrays)] == wanted


_LAID_OUT = attrgetter("dtype", "shape", "flags.c_contiguous")
