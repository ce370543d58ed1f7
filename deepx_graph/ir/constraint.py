"""Constraints: named conditions of a declaration, which speak in their own words when they do not hold.

A `Constraint` is about one thing: the type of an operand or result, or the value of an attribute. Two are composed with `&` and
`|`. A `Relation` is about several operands and attributes of one op at once. What is not known yet (`any`, an unknown rank, a
symbolic size) breaks no constraint. Nothing here knows a particular operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from deepx_graph.types import (
    ANY,
    DataType,
    Dims,
    DType,
    FunctionType,
    Kind,
    RefType,
    StateType,
    TapeType,
    TensorType,
    TupleType,
    VarType,
    same_dim,
)


@dataclass(frozen=True, eq=False)
class Constraint:
    """A condition on one type or attribute value: `words` follows "is not" or "expected:"."""

    words: str
    holds: Callable[[Any], bool]

    def __and__(self, other: Constraint) -> Constraint:
        return Constraint(f"{self.words}, {other.words}", lambda v: self.holds(v) and other.holds(v))

    def __or__(self, other: Constraint) -> Constraint:
        return Constraint(f"{self.words} or {other.words}", lambda v: self.holds(v) or other.holds(v))

    def __repr__(self) -> str:
        return f"<{self.words}>"


# --- types --------------------------------------------------------------------------------------------------------

VALUE = Constraint("any value", lambda t: True)
TENSOR = Constraint("a tensor", lambda t: isinstance(t, TensorType))
STATE_VALUE = Constraint("the state", lambda t: isinstance(t, StateType))
DATA_VALUE = Constraint("a value of a data type", lambda t: isinstance(t, (DataType, VarType)))
TAPE_VALUE = Constraint("a tape", lambda t: isinstance(t, TapeType))
REF_VALUE = Constraint("a reference", lambda t: isinstance(t, (RefType, VarType)))
FUNCTION_VALUE = Constraint("a function value", lambda t: isinstance(t, FunctionType))
TUPLE_VALUE = Constraint("a tuple or several results", lambda t: isinstance(t, TupleType))


@cache
def tensor_of(*kinds: Kind) -> Constraint:
    """A tensor whose elements are of one of these kinds."""
    allowed = frozenset((*kinds, "any"))
    return Constraint(f"a tensor of {' or '.join(kinds)}", lambda t: isinstance(t, TensorType) and t.dtype.kind in allowed)


@cache
def element(*kinds: Kind) -> Constraint:
    """An element type of one of these kinds."""
    return Constraint(f"an element type of {' or '.join(kinds)}", lambda d: d.kind in kinds)


def dtypes(*allowed: DType) -> Constraint:
    """A tensor of one of these element types."""
    return Constraint(f"a tensor of {' or '.join(map(str, allowed))}",
                      lambda t: isinstance(t, TensorType) and t.dtype in (*allowed, ANY))


BOOLS, FLOATS, INTEGERS = tensor_of("bool"), tensor_of("float"), tensor_of("int", "uint")
BOOLS_OR_INTEGERS = tensor_of("bool", "int", "uint")
FLOATS_OR_COMPLEX = tensor_of("float", "complex")
REALS = tensor_of("int", "uint", "float")
ORDERED = tensor_of("bool", "int", "uint", "float")
NUMBERS = tensor_of("int", "uint", "float", "complex")
ELEMENTS = tensor_of("bool", "int", "uint", "float", "complex")


def rank(least: int, most: int | None = None) -> Constraint:
    """A rank from `least` to `most`, or of at least `least`."""
    words = f"of rank {least}" if most == least else f"of rank {least} or more" if most is None else f"of rank {least} to {most}"
    return Constraint(words, lambda t: not isinstance(t, TensorType) or t.rank is None or (
        least <= t.rank and (most is None or t.rank <= most)))


SCALAR = rank(0, 0)
SQUARE = Constraint("square in the last two dimensions", lambda t: not isinstance(t, TensorType) or t.dims is None or (
    len(t.dims) >= 2 and same_dim(t.dims[-1], t.dims[-2])))

# --- attribute values ---------------------------------------------------------------------------------------------


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def one_of(*allowed: str) -> Constraint:
    """The value is one of these words."""
    return Constraint(f"one of {', '.join(a or repr(a) for a in allowed)}", lambda v: v in allowed)


def at_least(minimum: int) -> Constraint:
    """The int, or every int of the tuple, is not below `minimum`."""
    return Constraint(f"at least {minimum}", lambda v: all(i >= minimum for i in _each(v)))


def at_most(maximum: int) -> Constraint:
    """The int, or every int of the tuple, is not above `maximum`."""
    return Constraint(f"at most {maximum}", lambda v: all(i <= maximum for i in _each(v)))


def length(least: int, most: int) -> Constraint:
    """The tuple has so many values."""
    return Constraint(f"of {least} to {most} values", lambda v: least <= len(v) <= most)


SIZES = Constraint("sizes of at least 0", lambda v: all(isinstance(d, str) or d >= 0 for d in v))
NON_NEGATIVE, POSITIVE = at_least(0), at_least(1)
DISTINCT = Constraint("without a value twice", lambda v: len(set(v)) == len(v))
PERMUTATION = Constraint("an order of 0, 1, 2, ...", lambda v: sorted(v) == list(range(len(v))))

# --- several operands and attributes ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Relation:
    """A condition on the operands and attributes of these names: `words` follows "expected:".

    `holds` takes, in that order, the type of an operand, a tuple of types of a variadic one, the value of an attribute.
    """

    words: str
    names: tuple[str, ...]
    holds: Callable[..., bool]

    def __repr__(self) -> str:
        return f"<{self.words}>"


def listed(names: Sequence[str]) -> str:
    """`lhs`, `lhs and rhs`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _tensors(given: Sequence[Any]) -> list[TensorType]:
    """The tensors among types and tuples of types."""
    return [t for g in given for t in _each(g) if isinstance(t, TensorType)]


def same_element_type(*names: str) -> Relation:
    """The operands have one element type."""
    return Relation(f"one element type of {listed(names)}", names,
                    lambda *given: len({t.dtype for t in _tensors(given)} - {ANY}) <= 1)


def same_element_types(a: str, b: str) -> Relation:
    """Each of a variadic operand has the element type of its partner in the other."""
    return Relation(f"the element types of {a} for {b}", (a, b),
                    lambda xs, ys: all(x.dtype is y.dtype or ANY in (x.dtype, y.dtype) for x, y in zip(xs, ys, strict=True)))


def same_shape(*names: str) -> Relation:
    """The operands have one shape."""
    def holds(*given: Any) -> bool:
        dims: Dims | None = None
        for t in _tensors(given):
            if dims is not None and t.dims is not None and (len(dims) != len(t.dims) or not all(map(same_dim, dims, t.dims))):
                return False
            dims = t.dims if dims is None else dims
        return True

    return Relation(f"one shape of {listed(names)}", names, holds)


def some(name: str) -> Relation:
    """The variadic operand has at least one value."""
    return Relation(f"at least one of {name}", (name,), lambda given: len(given) > 0)


def equally_many(*names: str) -> Relation:
    """The attributes have equally many values."""
    return Relation(f"equally many {listed(names)}", names, lambda *given: len({len(v) for v in given}) == 1)


def one_for_each_axis(operand: str, *names: str) -> Relation:
    """The attributes, or variadic operands, have as many values as the operand (the first one of a variadic operand) has axes."""
    def holds(given: Any, *values: Sequence[Any]) -> bool:
        first = _tensors((given,))[:1]
        return not first or first[0].rank is None or all(first[0].rank == len(v) for v in values)

    return Relation(f"one value of {listed(names)} for each axis of {operand}", (operand, *names), holds)


def axes_of(operand: str, *attrs: str) -> Relation:
    """The attributes together name axes of the operand (the first one of a variadic operand), none of them twice."""
    def holds(given: Any, *values: Any) -> bool:
        axes = [axis for v in values for axis in _each(v)]
        first = _tensors((given,))[:1]
        bound = first[0].rank if first else None
        return len(set(axes)) == len(axes) and all(a >= 0 and (bound is None or a < bound) for a in axes)

    return Relation(f"{listed(attrs)} to name different axes of {operand}", (operand, *attrs), holds)


def combines(body: str, *inputs: str) -> Relation:
    """The function takes the totals, then the elements, of the operands and gives new totals."""
    def holds(function: Any, *given: Any) -> bool:
        count = sum(len(_each(g)) for g in given)
        return len(function.params) == 2 * count and len(function.results) == count

    return Relation(f"{body} to take two values and give one for each of {listed(inputs)}", (body, *inputs), holds)
