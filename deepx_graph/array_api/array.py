"""`Array`: an array of the standard, which is a node of a graph.

A constant node is an array with values. An operation on such nodes alone is evaluated at once, by the meaning of its declaration;
any other operation becomes a node, at the line of the caller. So one set of functions serves programs that run and programs that
are traced.

Source: Python array API standard 2024.12, https://data-apis.org/array-api/2024.12/.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from deepx_graph.array_api.dtypes import default_dtype, joint_dtype, with_number
from deepx_graph.array_api.errors import ArrayTypeError, ArrayValueError, calling_place
from deepx_graph.errors import Diagnostic, Source, Span, UsageError
from deepx_graph.ir import Builder, Node, Op
from deepx_graph.ir.evaluation import evaluation
from deepx_graph.ir.node import Origin
from deepx_graph.ir.structure import CONSTANT, PROJ, TUPLE, value_of
from deepx_graph.literal import Literal
from deepx_graph.text.common.known_steps import KnownSteps
from deepx_graph.types import DType, TensorType, Type, as_tensor, dtype_of, is_static

Number = bool | int | float | complex
Operator = Callable[["Array", Any], "Array"]
SOURCE = Source("<traced>")
KEPT = 1 << 12
"""How many signatures keep their inferred types."""


class EagerBuilder(Builder):
    """Makes nodes; of operations on constants alone, their values."""

    def __call__(self, op: Op, *inputs: Node, **attrs: Any) -> Node:
        if len(self._inferred) > KEPT:
            self._inferred.clear()
        return super().__call__(op, *inputs, **attrs)

    def make(self, op: Op, inputs: tuple[Node, ...], attrs: tuple[Any, ...], type: Type) -> Node:
        if op is PROJ and inputs[0].op is TUPLE:
            item: int = attrs[0]
            return inputs[0].inputs[item]
        if op.eval is None or not is_static(type) or any(i.op is not CONSTANT for i in inputs):
            return Node(op, inputs, attrs, type, caller())
        with np.errstate(all="ignore"):
            value = evaluation(op, attrs, type)([value_of(i).array for i in inputs])
        if isinstance(value, tuple):
            return Node(TUPLE, tuple(self.literal(Literal(v)) for v in value), (), type)
        return self.literal(Literal(value))


def caller() -> Origin:
    """The line outside this package that is being run."""
    return Origin(spans=(Span(SOURCE, 0, 0, calling_place()),))


C = KnownSteps(EagerBuilder(), lambda node: value_of(node).array if node.op is CONSTANT else None)
"""What the functions of the standard build with."""


class Array:
    """An array: `shape`, `dtype` and the operators of Python, which broadcast and promote as the standard says.

    Numbers of Python take the dtype of the array beside them. In a program that is traced an array has no value: what asks for one,
    as `if x > 0` does, raises UsageError.
    """

    __slots__ = ("node",)
    __hash__ = None  # type: ignore[assignment]

    # the functions of `elementwise` and `linalg` that operators are; those modules put them here
    __add__: ClassVar[Operator]
    __radd__: ClassVar[Operator]
    __sub__: ClassVar[Operator]
    __rsub__: ClassVar[Operator]
    __mul__: ClassVar[Operator]
    __rmul__: ClassVar[Operator]
    __truediv__: ClassVar[Operator]
    __rtruediv__: ClassVar[Operator]
    __floordiv__: ClassVar[Operator]
    __rfloordiv__: ClassVar[Operator]
    __mod__: ClassVar[Operator]
    __rmod__: ClassVar[Operator]
    __pow__: ClassVar[Operator]
    __rpow__: ClassVar[Operator]
    __matmul__: ClassVar[Operator]
    __rmatmul__: ClassVar[Operator]
    __and__: ClassVar[Operator]
    __rand__: ClassVar[Operator]
    __or__: ClassVar[Operator]
    __ror__: ClassVar[Operator]
    __xor__: ClassVar[Operator]
    __rxor__: ClassVar[Operator]
    __lshift__: ClassVar[Operator]
    __rshift__: ClassVar[Operator]
    __lt__: ClassVar[Operator]
    __le__: ClassVar[Operator]
    __gt__: ClassVar[Operator]
    __ge__: ClassVar[Operator]
    __neg__: ClassVar[Callable[[Array], Array]]
    __pos__: ClassVar[Callable[[Array], Array]]
    __abs__: ClassVar[Callable[[Array], Array]]
    __invert__: ClassVar[Callable[[Array], Array]]
    # what `indexing` makes of parts, and `numpy_functions` of numpy's functions
    __getitem__: ClassVar[Operator]
    __setitem__: ClassVar[Callable[[Array, Any, Any], None]]
    __array_ufunc__: ClassVar[Callable[..., Any]]
    __array_function__: ClassVar[Callable[..., Any]]

    def __init__(self, node: Node) -> None:
        self.node = node

    # --- what it is

    @property
    def type(self) -> TensorType:
        return as_tensor(self.node.type)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return self.type.shape

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements there are."""
        return self.type.size

    @property
    def device(self) -> str:
        """Always `cpu`."""
        return "cpu"

    @property
    def T(self) -> Array:  # noqa: N802
        """The transposed matrix. Raises ArrayValueError for another rank than 2."""
        if self.ndim != 2:
            raise ArrayValueError(f"T is of matrices, and this array has {self.ndim} axes")
        return self.mT

    @property
    def mT(self) -> Array:  # noqa: N802
        """The last two axes exchanged. Raises ArrayValueError below rank 2."""
        if self.ndim < 2:
            raise ArrayValueError(f"mT is of matrices, and this array has {self.ndim} axes")
        return Array(C.transposed(self.node, (*range(self.ndim - 2), self.ndim - 1, self.ndim - 2)))

    def __repr__(self) -> str:
        if self.node.op is not CONSTANT:
            return f"<traced {self.type}>"
        return f"Array({np.array2string(self.value, separator=', ', threshold=40, prefix='Array(')}, {self.dtype})"

    def __len__(self) -> int:
        if not self.shape:
            raise ArrayTypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        for k in range(len(self)):
            yield self[k]

    # --- values

    @property
    def value(self) -> np.ndarray[Any, Any]:
        """The elements, read-only. Raises UsageError in a program that is traced."""
        if self.node.op is not CONSTANT:
            place = calling_place()
            asked = "the value of an array is asked for while its program is traced"
            raise UsageError(Diagnostic(f"{place.file}:{place.line}: {asked}",
                                        hint="xp.where chooses between arrays by their elements"))
        return value_of(self.node).array

    def _number(self, kind: Callable[[Any], Any]) -> Any:
        if self.shape:
            raise ArrayTypeError(f"an array of shape {self.shape} is no number")
        return kind(self.value[()])

    def __bool__(self) -> bool:
        return bool(self._number(bool))

    def __int__(self) -> int:
        return int(self._number(int))

    def __float__(self) -> float:
        return float(self._number(float))

    def __complex__(self) -> complex:
        return complex(self._number(complex))

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise ArrayTypeError(f"an array of {self.dtype} is no index")
        return int(self._number(operator.index))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.value, dtype=dtype, copy=True if copy is None else copy)

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[Any, int] | None = None, copy: bool | None = None) -> Any:
        return np.array(self.value).__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ArrayValueError(f"version {api_version} of the standard is not known")
        return sys.modules[__package__]

    def to_device(self, device: str, /, *, stream: Any = None) -> Array:
        """The array itself: the only device is `cpu`. Raises ArrayValueError for another."""
        if device != "cpu" or stream is not None:
            raise ArrayValueError(f"there is no device {device!r}")
        return self

    def astype(self, dtype: Any, **options: Any) -> Array:
        """The elements converted, as numpy's method."""
        return cast(self, as_dtype(dtype))


def cast(x: Array, dtype: DType) -> Array:
    """The elements converted."""
    return Array(C.cast(x.node, dtype))


def as_dtype(dtype: Any) -> DType:
    """An element type, also given as numpy or Python does. Raises ArrayTypeError for what is none."""
    if isinstance(dtype, DType):
        return dtype
    try:
        return dtype_of(np.dtype(dtype))
    except (KeyError, TypeError):
        raise ArrayTypeError(f"{dtype!r} is no dtype") from None


def constant(value: Any, dtype: DType | None = None) -> Array:
    """An array with values, copied. Raises UsageError for elements of a type that there is not."""
    found = np.array(value, dtype=None if dtype is None else dtype.np)
    if found.dtype.newbyteorder("=") not in _known():
        raise UsageError(Diagnostic(f"no array has elements of type {found.dtype}", expected="bool, numbers"))
    return Array(C.b.literal(Literal(found)))


def _known() -> Any:
    from deepx_graph.types.dtypes import DTYPES

    return {d.np for d in DTYPES if d.np is not None}


def as_array(value: Any) -> Array:
    """The array itself, or a number or an array of numpy as one."""
    if isinstance(value, Array):
        return value
    return constant(value, default_dtype(value) if isinstance(value, Number) else None)


def as_matrices(value: Any) -> Array:
    """An array whose last two axes are rows and columns. Raises ArrayValueError below rank 2."""
    found = as_array(value)
    if found.ndim < 2:
        raise ArrayValueError(f"matrices are asked for, and this array has the shape {found.shape}")
    return found


def promoted(*values: Any) -> list[Array]:
    """Arrays and numbers as arrays of one dtype. Raises ArrayTypeError where the standard has none."""
    arrays = [v if isinstance(v, Number) else as_array(v) for v in values]
    dtype = joint([a if isinstance(a, Number) else a.dtype for a in arrays])
    return [constant(a, dtype) if isinstance(a, Number) else cast(a, dtype) for a in arrays]


def joint(given: list[Any]) -> DType:
    """The dtype of dtypes and numbers together; numbers count by their kind alone."""
    if not given:
        raise ArrayValueError("no arrays are given")
    dtypes = [d for d in given if isinstance(d, DType)]
    if not dtypes:
        dtypes, given = [default_dtype(given[0])], given[1:]
    found = dtypes[0]
    for d in dtypes[1:]:
        found = joint_dtype(found, d)
    for number in given:
        if not isinstance(number, DType):
            found = with_number(found, number)
    return found


def shaped_alike(*arrays: Array) -> list[Node]:
    """The nodes in one shape; those without axes stand for all elements."""
    return C.broadcast(*(a.node for a in arrays))


def elementwise(op: Op, *values: Any, **attrs: Any) -> Array:
    """The operation on promoted and broadcast operands."""
    return Array(C(op, *shaped_alike(*promoted(*values)), **attrs))
