"""The types of values: tensors, and what is built from them.

A dimension is an int, or a name (`"?1"`) that stands for an unknown but fixed size; `dims=None` is an unknown rank.
Types are frozen values, compared by content and printed as `f32[2,3]`. Sizes are Python ints, in elements or bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from deepx_graph.errors import InferError, an
from deepx_graph.types.dtypes import ANY, DType, dtype_named, dtype_names, dtype_of

Dim = int | str
Dims = tuple[Dim, ...]

MAX_PARTS = 1 << 17
"""Types within one type, each counted as often as it stands there: parts are shared in memory, but not when they are written."""


class Type:
    """Base of all types. `parts` are the types that one is made of, `count` how many there are; `map` makes the same of others.
    `holds_state`: the state of the world is the type, or an item of it."""

    __slots__ = ()
    count: int = 1
    holds_state: bool = False

    @property
    def parts(self) -> tuple[Type, ...]:
        return ()

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        """A type of this kind made of these, of which there must be as many."""
        return self

    def map(self, change: Callable[[Type], Type]) -> Type:
        """The type with every part changed; itself when it has none."""
        return self.with_parts(tuple(map(change, self.parts))) if self.parts else self


@dataclass(frozen=True, slots=True)
class TensorType(Type):
    """An array of `dtype`; `dims=None` means that not even the rank is known.

    Its hash and size are worked out once: every node is looked up by the types of its operands. Hashes differ between processes.
    """

    dtype: DType
    dims: Dims | None
    _hash: int = field(init=False, compare=False, repr=False)
    _size: int | None = field(init=False, compare=False, repr=False)
    """Number of elements; None where a dimension is not known."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.dtype, self.dims)))
        sizes = [d for d in self.dims or () if isinstance(d, int)]
        known = self.dims is not None and len(sizes) == len(self.dims)
        object.__setattr__(self, "_size", math.prod(sizes) if known else None)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorType, (self.dtype, self.dims)

    @property
    def rank(self) -> int | None:
        return None if self.dims is None else len(self.dims)

    @property
    def is_static(self) -> bool:
        """Dtype and every dimension are known."""
        return self._size is not None and self.dtype is not ANY

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions as ints. Raises InferError when one is not known."""
        if self._size is None:
            raise InferError(f"the shape of {self} is not known", hint="give the inputs' shapes first")
        return self.dims  # type: ignore[return-value]

    @property
    def size(self) -> int:
        """Number of elements. Raises InferError when a dimension is not known."""
        return math.prod(self.shape) if self._size is None else self._size

    @property
    def nbytes(self) -> int:
        """Bytes in memory. Raises InferError when a dimension is not known."""
        return (self.size if self._size is None else self._size) * self.dtype.itemsize

    def with_dtype(self, dtype: DType) -> TensorType:
        return tensor(dtype, self.dims)

    def with_dims(self, dims: Iterable[Dim] | None) -> TensorType:
        return tensor(self.dtype, None if dims is None else tuple(dims))

    def __str__(self) -> str:
        return f"{self.dtype}[{'*' if self.dims is None else ','.join(map(str, self.dims))}]"


@dataclass(frozen=True, slots=True)
class Compound(Type):
    """Base of the types that are made of others. Raises InferError for one of more than `MAX_PARTS`.

    Its hash is worked out once: a node of many results is looked up for each of them. Hashes differ between processes.
    """

    count: int = field(init=False, compare=False, repr=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        count = 1 + sum([part.count for part in self.parts])
        if count > MAX_PARTS:
            raise InferError(f"a type of {count} types", expected=f"at most {MAX_PARTS}")
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "_hash", hash((type(self), self._given())))

    def _given(self) -> tuple[Any, ...]:
        names: Sequence[str] = self.__match_args__
        return tuple([getattr(self, name) for name in names])

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._given()


@dataclass(frozen=True, slots=True)
class TupleType(Compound):
    """Several values in one; also the type of an op with several results."""

    __hash__ = Compound.__hash__

    items: tuple[Type, ...]
    holds_state: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        Compound.__post_init__(self)  # `super` would look for the class that slots have replaced
        object.__setattr__(self, "holds_state", any(i.holds_state for i in self.items))

    @property
    def parts(self) -> tuple[Type, ...]:
        return self.items

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        return TupleType(parts)

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


@dataclass(frozen=True, slots=True)
class FunctionType(Compound):
    """A callable value, or the signature of a function."""

    __hash__ = Compound.__hash__

    params: tuple[Type, ...]
    results: tuple[Type, ...]

    @property
    def parts(self) -> tuple[Type, ...]:
        return self.params + self.results

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        return FunctionType(parts[: len(self.params)], parts[len(self.params) :])

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.params))}) -> ({', '.join(map(str, self.results))})"


@dataclass(frozen=True, slots=True)
class RefType(Compound):
    """A mutable cell; read and written through the state."""

    __hash__ = Compound.__hash__

    item: Type

    @property
    def parts(self) -> tuple[Type, ...]:
        return (self.item,)

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        return RefType(*parts)

    def __str__(self) -> str:
        return f"ref({self.item})"


@dataclass(frozen=True, slots=True)
class DataType(Compound):
    """A value of an algebraic data type that the module declares, applied to types: `List<f32[]>`."""

    __hash__ = Compound.__hash__

    name: str
    args: tuple[Type, ...] = ()

    @property
    def parts(self) -> tuple[Type, ...]:
        return self.args

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        return DataType(self.name, parts)

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

    holds_state = True

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


_NAMED = re.compile(r"([a-z]+\d*[a-z0-9]*)?\s*\[([\d\s,]*)\]")


def names_tensor(text: str) -> bool:
    """Whether a text has the form of a type such as `f32[2,3]` or `[2,3]`."""
    return _NAMED.fullmatch(text) is not None


def tensor_named(text: str, dtype: DType | None = None) -> TensorType:
    """The type that a text such as `f32[2,3]` names, or `[2,3]` where a dtype is known. Raises ValueError where it names none."""
    m = _NAMED.fullmatch(text.strip())
    if m is None or (m[1] not in dtype_names() if m[1] else dtype is None):
        raise ValueError(f"'{text.strip()}' is no type of a tensor")
    known = dtype_named(m[1]) if m[1] else dtype
    assert known is not None
    return tensor(known, tuple(int(d) for d in m[2].replace(" ", "").split(",") if d))


def scalar(dtype: DType) -> TensorType:
    """The rank-0 tensor type of `dtype`."""
    return tensor(dtype, ())


def type_of_array(array: np.ndarray[Any, Any] | np.generic) -> TensorType:
    """The type of a numpy array. Raises KeyError when its dtype has no counterpart (datetime, objects that are no texts, ...)."""
    if array.dtype.hasobject and not all(isinstance(t, str) for t in array.reshape(-1).tolist()):
        raise KeyError(array.dtype)
    return tensor(dtype_of(array.dtype), tuple(int(d) for d in array.shape))


def as_tensor(type: Type, operand: int | None = None) -> TensorType:
    """`type` itself. Raises InferError when it is not a tensor type."""
    if not isinstance(type, TensorType):
        raise InferError(f"operand {operand or 0} is {an(type)}", operand=operand, expected="a tensor")
    return type


def is_state(type: Type) -> bool:
    """The state, or a tuple that holds it."""
    return type.holds_state


def is_static(type: Type) -> bool:
    """Nothing in the type is unknown."""
    if isinstance(type, TensorType):
        return type.is_static
    return not isinstance(type, VarType) and all(map(is_static, type.parts))


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
    if not isinstance(type, TupleType):
        return (type,)
    if any(isinstance(item, TupleType) for item in type.items):
        return tuple([leaf for item in type.items for leaf in leaves(item)])
    return type.items
