"""Functions of the standard that make arrays, and those about dtypes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.array_api.array import Array, C, as_array, as_dtype, as_matrices, cast, constant, joint
from deepx_graph.array_api.array import Number as PythonNumber
from deepx_graph.array_api.dtypes import (
    FloatLimits,
    IntegerLimits,
    default_dtype,
    float_limits,
    integer_limits,
    is_kind,
    joint_dtype,
)
from deepx_graph.array_api.errors import ArrayTypeError, ArrayValueError
from deepx_graph.array_api.manipulation import stack
from deepx_graph.errors import UsageError
from deepx_graph.types import DType, tensor
from deepx_graph.types.dtypes import C128, F64, I64


def check_device(device: Any) -> None:
    """Raises ArrayValueError for another device than `cpu`."""
    if device not in (None, "cpu"):
        raise ArrayValueError(f"there is no device {device!r}")


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Array:
    """An array of what is given: an array, a number, nested sequences of numbers, or what has `__array__`.

    Without `dtype` numbers become bool, int64, float64 or complex128. Raises ArrayTypeError for what is no number.
    """
    check_device(device)
    chosen = None if dtype is None else as_dtype(dtype)
    if isinstance(obj, Array):
        found = obj
    elif isinstance(obj, PythonNumber):
        return constant(obj, chosen or default_dtype(obj))
    elif isinstance(obj, (list, tuple)) and any(isinstance(o, Array) for o in obj):
        found = stack([asarray(o) for o in obj])
    else:
        found = constant(obj if not isinstance(obj, (list, tuple)) else _nested(obj))
    found = found if chosen in (None, found.dtype) else cast(found, chosen)
    return Array(found.node) if copy else found


def _nested(obj: Any) -> Any:
    try:
        return np.asarray(obj)
    except ValueError as e:
        raise ArrayTypeError(str(e)) from None


def _shape(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if hasattr(shape, "__index__") else tuple(int(d) for d in shape)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """An array filled with one number."""
    check_device(device)
    if isinstance(fill_value, Array):
        value = fill_value if dtype is None else cast(fill_value, as_dtype(dtype))
        return Array(C.filled(value.node, _shape(shape)))
    chosen = default_dtype(fill_value) if dtype is None else as_dtype(dtype)
    return Array(C.b.splat(fill_value, tensor(chosen, _shape(shape))))


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """An array of zeros, float64 unless a dtype is given."""
    return full(shape, 0, dtype=F64 if dtype is None else dtype, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """An array of ones, float64 unless a dtype is given."""
    return full(shape, 1, dtype=F64 if dtype is None else dtype, device=device)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """An array of no particular values: zeros."""
    return zeros(shape, dtype=dtype, device=device)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """An array of the shape of x, and of its dtype unless one is given, filled with one number."""
    x = as_array(x)
    return full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype, device=device)


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Array:
    """Zeros in the shape and dtype of x."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Array:
    """Ones in the shape and dtype of x."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Array:
    """An array of no particular values in the shape and dtype of x: zeros."""
    return full_like(x, 0, dtype=dtype, device=device)


def arange(start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None) -> Array:
    """start, start + step, ... below stop; from 0 where only one number is given."""
    check_device(device)
    first, last = (0, start) if stop is None else (start, stop)
    if dtype is None:
        dtype = I64 if all(isinstance(v, int) for v in (first, last, step)) else F64
    count = max(0, math.ceil((last - first) / step))
    return constant(first + np.arange(count) * step, as_dtype(dtype))


def linspace(start: complex, stop: complex, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True) -> Array:
    """`num` numbers at equal distances from start to stop, which is the last one, or with `endpoint=False` behind it."""
    check_device(device)
    is_complex = isinstance(start, complex) or isinstance(stop, complex)
    chosen = (C128 if is_complex else F64) if dtype is None else as_dtype(dtype)
    return constant(np.linspace(start, stop, num, endpoint=endpoint, dtype=np.complex128 if is_complex else None), chosen)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Array:
    """A matrix with ones on its k-th diagonal."""
    check_device(device)
    return constant(np.eye(n_rows, n_cols, k), F64 if dtype is None else as_dtype(dtype))


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Array]:
    """The coordinates of a grid: one array for each axis, in its whole shape. Raises ArrayValueError for another indexing."""
    if indexing not in ("xy", "ij"):
        raise ArrayValueError(f"indexing {indexing!r} is neither 'xy' nor 'ij'")
    lines = [as_array(a) for a in arrays]
    axes = list(range(len(lines)))
    if indexing == "xy" and len(lines) > 1:
        axes[:2] = [1, 0]
    dims = tuple(lines[axes.index(k)].size for k in range(len(lines)))
    return [Array(C.along(C.shaped(a.node, (a.size,)), dims, (axis,))) for a, axis in zip(lines, axes, strict=True)]


def _triangle(x: Any, k: int, direction: str) -> Array:
    x = as_matrices(x)
    rows, columns = (C.indices(I64, x.shape, x.ndim - j) for j in (2, 1))
    inside = C(ops.compare, C(ops.subtract, columns, rows), C.like(k, rows), direction=direction)
    return Array(C(ops.select, inside, x.node, C.full(0, x.type)))


def tril(x: Any, /, *, k: int = 0) -> Array:
    """The lower triangles of matrices, up to the k-th diagonal; zeros elsewhere."""
    return _triangle(x, k, "LE")


def triu(x: Any, /, *, k: int = 0) -> Array:
    """The upper triangles of matrices, from the k-th diagonal; zeros elsewhere."""
    return _triangle(x, k, "GE")


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array of another library, copied."""
    check_device(device)
    return x if isinstance(x, Array) else constant(np.from_dlpack(x))


# --- dtypes ---------------------------------------------------------------------------------------------------------------


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
    """The elements converted: numbers that do not fit are some number of that dtype. Raises ArrayTypeError from complex to real."""
    check_device(device)
    x, chosen = as_array(x), as_dtype(dtype)
    if x.dtype.kind == "complex" and chosen.kind not in ("complex", "bool"):
        raise ArrayTypeError(f"{x.dtype} does not become {chosen}: take xp.real or xp.imag")
    return Array(x.node) if copy and x.dtype is chosen else cast(x, chosen)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion may make one dtype of the other."""
    dtype = from_.dtype if isinstance(from_, Array) else as_dtype(from_)
    try:
        return joint_dtype(dtype, as_dtype(to)) is as_dtype(to)
    except TypeError:
        return False


def finfo(type: Any, /) -> FloatLimits:
    """The limits of a floating dtype, or of that of an array. Raises ArrayValueError for another."""
    return float_limits(type.dtype if isinstance(type, Array) else as_dtype(type))


def iinfo(type: Any, /) -> IntegerLimits:
    """The limits of an integer dtype, or of that of an array. Raises ArrayValueError for another."""
    return integer_limits(type.dtype if isinstance(type, Array) else as_dtype(type))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: `numeric`, `integral`, `real floating`, ..., a dtype, or a tuple of them."""
    return is_kind(as_dtype(dtype), kind)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that an elementwise function of these arrays, numbers and dtypes has. Raises ArrayTypeError where there is none."""
    if not arrays_and_dtypes:
        raise UsageError("result_type of nothing")
    return joint([v.dtype if isinstance(v, Array) else v if isinstance(v, PythonNumber) else as_dtype(v)
                  for v in arrays_and_dtypes])
