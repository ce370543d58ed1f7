"""What a value is: element types, shapes with symbolic dimensions, and the types built from them.

A dimension is an int, or a name (`"?1"`) that stands for an unknown but fixed size; `dims=None` is an unknown rank.
Types are frozen values, compared by content and printed as `f32[2,3]`. Sizes are Python ints, in elements or bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import ml_dtypes
import numpy as np

from deepx_graph.errors import InferError

Kind = Literal["bool", "int", "uint", "float", "complex", "any"]
Dim = int | str
Dims = tuple[Dim, ...]


@dataclass(frozen=True, eq=False)
class DType:
    """An element type; there is one object for each, so identity is equality.

    `bits` is the width of an element as specified; `np` its numpy form (None for `any`, the dtype not yet known).
    """

    name: str
    kind: Kind
    bits: int
    np: np.dtype[Any] | None

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_differentiable(self) -> bool:
        return self.kind in ("float", "complex")

    @cached_property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return 1 if self.np is None else self.np.itemsize

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype_named, (self.name,)


def _make(name: str, kind: Kind, bits: int, np_type: Any) -> DType:
    return DType(name, kind, bits, None if np_type is None else np.dtype(np_type))


BOOL = _make("bool", "bool", 8, np.bool_)
I2, U2 = _make("i2", "int", 2, ml_dtypes.int2), _make("u2", "uint", 2, ml_dtypes.uint2)
I4, U4 = _make("i4", "int", 4, ml_dtypes.int4), _make("u4", "uint", 4, ml_dtypes.uint4)
I8, I16, I32, I64 = (_make(f"i{b}", "int", b, f"int{b}") for b in (8, 16, 32, 64))
U8, U16, U32, U64 = (_make(f"u{b}", "uint", b, f"uint{b}") for b in (8, 16, 32, 64))
F16, F32, F64 = (_make(f"f{b}", "float", b, f"float{b}") for b in (16, 32, 64))
BF16 = _make("bf16", "float", 16, ml_dtypes.bfloat16)
F4E2M1FN = _make("f4e2m1fn", "float", 4, ml_dtypes.float4_e2m1fn)
F6E2M3FN = _make("f6e2m3fn", "float", 6, ml_dtypes.float6_e2m3fn)
F6E3M2FN = _make("f6e3m2fn", "float", 6, ml_dtypes.float6_e3m2fn)
F8E8M0FNU = _make("f8e8m0fnu", "float", 8, ml_dtypes.float8_e8m0fnu)
F8E5M2 = _make("f8e5m2", "float", 8, ml_dtypes.float8_e5m2)
F8E4M3FN = _make("f8e4m3fn", "float", 8, ml_dtypes.float8_e4m3fn)
F8E4M3 = _make("f8e4m3", "float", 8, ml_dtypes.float8_e4m3)
F8E3M4 = _make("f8e3m4", "float", 8, ml_dtypes.float8_e3m4)
F8E4M3B11FNUZ = _make("f8e4m3b11fnuz", "float", 8, ml_dtypes.float8_e4m3b11fnuz)
F8E4M3FNUZ = _make("f8e4m3fnuz", "float", 8, ml_dtypes.float8_e4m3fnuz)
F8E5M2FNUZ = _make("f8e5m2fnuz", "float", 8, ml_dtypes.float8_e5m2fnuz)
C64, C128 = _make("c64", "complex", 64, np.complex64), _make("c128", "complex", 128, np.complex128)
ANY = _make("any", "any", 0, None)
"""The dtype of a tensor whose element type the text does not say (a loaded file); known once specialised."""

DTYPES: tuple[DType, ...] = (
    BOOL, I2, I4, I8, I16, I32, I64, U2, U4, U8, U16, U32, U64, F4E2M1FN, F6E2M3FN, F6E3M2FN, F8E8M0FNU, F8E5M2, F8E4M3FN,
    F8E4M3, F8E3M4, F8E4M3B11FNUZ, F8E4M3FNUZ, F8E5M2FNUZ, F16, BF16, F32, F64, C64, C128, ANY,
)  # fmt: skip
_BY_NAME = {d.name: d for d in DTYPES}
_BY_NP = {d.np: d for d in DTYPES if d.np is not None}


def dtype_named(name: str) -> DType:
    """The dtype of that name. Raises KeyError for a name that is none."""
    return _BY_NAME[name]


def dtype_names() -> tuple[str, ...]:
    """All dtype names."""
    return tuple(_BY_NAME)


def dtype_of(np_dtype: np.dtype[Any]) -> DType:
    """The dtype that numpy calls `np_dtype`, in native byte order. Raises KeyError for one with no counterpart."""
    return _BY_NP[np.dtype(np_dtype).newbyteorder("=")]


class Type:
    """Base of all types."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TensorType(Type):
    """An array of `dtype`; `dims=None` means that not even the rank is known."""

    dtype: DType
    dims: Dims | None

    @property
    def rank(self) -> int | None:
        return None if self.dims is None else len(self.dims)

    @property
    def is_static(self) -> bool:
        """Dtype and every dimension are known."""
        return self.dims is not None and self.dtype is not ANY and all(isinstance(d, int) for d in self.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions as ints. Raises InferError when one is not known."""
        if self.dims is None or not all(isinstance(d, int) for d in self.dims):
            raise InferError(f"the shape of {self} is not known", hint="give the inputs' shapes first")
        return self.dims  # type: ignore[return-value]

    @property
    def size(self) -> int:
        """Number of elements. Raises InferError when a dimension is not known."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in memory. Raises InferError when a dimension is not known."""
        return self.size * self.dtype.itemsize

    def with_dtype(self, dtype: DType) -> TensorType:
        return tensor(dtype, self.dims)

    def with_dims(self, dims: Iterable[Dim] | None) -> TensorType:
        return tensor(self.dtype, None if dims is None else tuple(dims))

    def __str__(self) -> str:
        return f"{self.dtype}[{'*' if self.dims is None else ','.join(map(str, self.dims))}]"


@dataclass(frozen=True, slots=True)
class TupleType(Type):
    """Several values in one; also the type of an op with several results."""

    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


@dataclass(frozen=True, slots=True)
class FunctionType(Type):
    """A callable value, or the signature of a function."""

    params: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.params))}) -> ({', '.join(map(str, self.results))})"


@dataclass(frozen=True, slots=True)
class RefType(Type):
    """A mutable cell; read and written through the state."""

    item: Type

    def __str__(self) -> str:
        return f"ref({self.item})"


@dataclass(frozen=True, slots=True)
class DataType(Type):
    """A value of an algebraic data type that the module declares, applied to types: `List<f32[]>`."""

    name: str
    args: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}<{', '.join(map(str, self.args))}>" if self.args else self.name


@dataclass(frozen=True, slots=True)
class VarType(Type):
    """A type variable: any type, the same one throughout a function; known once the function is specialised to arguments."""

    name: str

    def __str__(self) -> str:
        return f"${self.name}"


@dataclass(frozen=True, slots=True)
class StateType(Type):
    """The state of the world, threaded through effects so that their order is an edge."""

    def __str__(self) -> str:
        return "state"


STATE = StateType()


@dataclass(frozen=True, slots=True)
class TapeType(Type):
    """Values on top of one another, of any types: what a gradient program keeps where sizes are not known beforehand."""

    def __str__(self) -> str:
        return "tape"


TAPE = TapeType()


@lru_cache(maxsize=65536)
def tensor(dtype: DType, dims: Dims | None = ()) -> TensorType:
    """The tensor type, shared: asking twice gives the same object while it is cached."""
    return TensorType(dtype, dims)


def scalar(dtype: DType) -> TensorType:
    """The rank-0 tensor type of `dtype`."""
    return tensor(dtype, ())


def type_of_array(array: np.ndarray[Any, Any] | np.generic) -> TensorType:
    """The type of a numpy array. Raises KeyError when its dtype has no counterpart (object, datetime, ...)."""
    return tensor(dtype_of(array.dtype), tuple(int(d) for d in array.shape))


def as_tensor(type: Type, operand: int | None = None) -> TensorType:
    """`type` itself. Raises InferError when it is not a tensor type."""
    if not isinstance(type, TensorType):
        raise InferError(f"operand {operand or 0} is a {type}", operand=operand, expected="a tensor")
    return type


def is_state(type: Type) -> bool:
    """The state, or a tuple that holds it."""
    return isinstance(type, StateType) or (isinstance(type, TupleType) and any(map(is_state, type.items)))


def is_static(type: Type) -> bool:
    """Nothing in the type is unknown."""
    match type:
        case TensorType():
            return type.is_static
        case TupleType(items):
            return all(map(is_static, items))
        case FunctionType(params, results):
            return all(map(is_static, params + results))
        case RefType(item):
            return is_static(item)
        case DataType(_, args):
            return all(map(is_static, args))
    return not isinstance(type, VarType)


def nbytes(type: Type) -> int:
    """Bytes that a value of `type` needs; 0 for states, functions and data. Raises InferError when a size is not known."""
    match type:
        case TensorType():
            return type.nbytes
        case TupleType(items):
            return sum(map(nbytes, items))
    return 0


def leaves(type: Type) -> tuple[Type, ...]:
    """The non-tuple types inside, left to right."""
    return tuple(leaf for item in type.items for leaf in leaves(item)) if isinstance(type, TupleType) else (type,)


# --- dimensions: arithmetic and agreement -------------------------------------------------------------------------


def same_dim(a: Dim, b: Dim) -> bool:
    """Whether the two may be equal: only two different ints are known not to be."""
    return not (isinstance(a, int) and isinstance(b, int)) or a == b


def merge_dims(a: Dims | None, b: Dims | None) -> Dims | None:
    """The more precise of two shapes that must agree. Raises InferError where they cannot."""
    if a is None or b is None:
        return b if a is None else a
    if a == b:
        return a
    if len(a) != len(b) or not all(map(same_dim, a, b)):
        raise InferError(f"shapes [{','.join(map(str, a))}] and [{','.join(map(str, b))}] differ")
    return tuple(y if isinstance(x, str) else x for x, y in zip(a, b, strict=True))


def merge_types(a: Type, b: Type) -> Type:
    """The more precise of two types that must agree. Raises InferError where they cannot."""
    if a == b:
        return a
    match a, b:
        case TensorType(), TensorType():
            if a.dtype is not b.dtype and ANY not in (a.dtype, b.dtype):
                raise InferError(f"dtypes {a.dtype} and {b.dtype} differ")
            return tensor(b.dtype if a.dtype is ANY else a.dtype, merge_dims(a.dims, b.dims))
        case TupleType(x), TupleType(y) if len(x) == len(y):
            return TupleType(tuple(map(merge_types, x, y)))
        case FunctionType(p, r), FunctionType(q, s) if len(p) == len(q) and len(r) == len(s):
            return FunctionType(tuple(map(merge_types, p, q)), tuple(map(merge_types, r, s)))
        case RefType(x), RefType(y):
            return RefType(merge_types(x, y))
        case DataType(), DataType() if a.name == b.name and len(a.args) == len(b.args):
            return DataType(a.name, tuple(map(merge_types, a.args, b.args)))
        case VarType(), _:
            return b
        case _, VarType():
            return a
    raise InferError(f"types {a} and {b} differ")


def compatible(a: Type, b: Type) -> bool:
    """Whether a value may have both types at once."""
    try:
        merge_types(a, b)
    except InferError:
        return False
    return True


def add_dims(*dims: Dim) -> Dim:
    """The sum of dimensions; symbolic where one is."""
    known = sum(d for d in dims if isinstance(d, int))
    names = sorted(d for d in dims if isinstance(d, str))
    if not names:
        return known
    return "+".join(names + ([str(known)] if known else []))


def mul_dims(dims: Sequence[Dim]) -> Dim:
    """The product of dimensions; symbolic where one is."""
    known = math.prod(d for d in dims if isinstance(d, int))
    names = sorted(f"({d})" if "+" in d else d for d in dims if isinstance(d, str))
    if not names or known == 0:
        return known
    return "*".join(names + ([str(known)] if known != 1 else []))
