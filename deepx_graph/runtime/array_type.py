"""The dtypes and shapes of arrays that functions of tensors alone take and give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.types import TensorType


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
