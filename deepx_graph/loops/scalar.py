"""Scalars of a loop program: variables, numbers, and subscripts that are affine in variables.

A variable is assigned once. A subscript is kept as a sum of multiples of variables and a number, so that composed subscripts stay
short and what their ranges decide is decided while a program is built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.errors import slot_setters
from deepx_graph.loops import primitives
from deepx_graph.types import BOOL, I64, DType


class NotExpressible(Exception):
    """A function that has no loop program: says why."""


@dataclass(frozen=True, slots=True, eq=False, init=False)
class ScalarVar:
    """A value computed once in each iteration of the loops around it. `low` and `high` bound an integer's value, where known."""

    number: int
    dtype: DType
    low: int | None
    high: int | None

    def __init__(self, number: int, dtype: DType, low: int | None = None, high: int | None = None) -> None:
        set_number, set_dtype, set_low, set_high = _VARIABLE
        set_number(self, number)
        set_dtype(self, dtype)
        set_low(self, low)
        set_high(self, high)

    def __repr__(self) -> str:
        return f"%{self.number}"


_VARIABLE = slot_setters(ScalarVar)


@dataclass(frozen=True, slots=True)
class ScalarConst:
    """A number of a dtype."""

    value: Any
    dtype: DType

    def __repr__(self) -> str:
        return f"{self.dtype}({self.value})"


@dataclass(frozen=True, slots=True, init=False)
class Affine:
    """A subscript: `constant` and multiples of i64 variables, each of which stands there once."""

    terms: tuple[tuple[ScalarVar, int], ...]
    constant: int

    def __init__(self, terms: tuple[tuple[ScalarVar, int], ...] = (), constant: int = 0) -> None:
        set_terms, set_constant = _AFFINE
        set_terms(self, terms)
        set_constant(self, constant)

    @property
    def dtype(self) -> DType:
        return I64

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.constant + other) if other else self
        if not other.terms:
            return self + other.constant
        if not self.terms:
            return other + self.constant
        factors = dict(self.terms)
        for var, factor in other.terms:
            factors[var] = factors.get(var, 0) + factor
        return Affine(tuple([(v, f) for v, f in factors.items() if f]), self.constant + other.constant)

    __radd__ = __add__

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Affine | int) -> Affine:
        return self + -other

    def __rsub__(self, other: int) -> Affine:
        return -self + other

    def __mul__(self, factor: int) -> Affine:
        if factor == 0 or factor == 1:
            return self if factor else Affine()
        return Affine(tuple([(v, f * factor) for v, f in self.terms]), self.constant * factor)

    __rmul__ = __mul__

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The least and the greatest value; None where the range of a variable is not known."""
        low = high = self.constant
        for var, factor in self.terms:
            if var.low is None or var.high is None:
                return None
            ends = (var.low * factor, var.high * factor)
            low, high = low + min(ends), high + max(ends)
        return low, high

    def stride(self, var: ScalarVar) -> int:
        """How far the subscript moves with a variable."""
        return dict(self.terms).get(var, 0)

    def __repr__(self) -> str:
        parts = [f"{v}" if f == 1 else f"{f} * {v}" for v, f in self.terms]
        return " + ".join([*parts, *([str(self.constant)] if self.constant or not parts else [])])


_AFFINE = slot_setters(Affine)


def split_quotient(x: Affine, divisor: int) -> tuple[Affine, Affine]:
    """What is known of a subscript, which is not negative, divided by a positive number and rounded down; and what remains to be
    divided and added to it."""
    if divisor < 2:  # of no elements nobody asks for one
        return x, Affine()
    if (ends := x.bounds) is not None and ends[0] // divisor == ends[1] // divisor:
        return Affine((), ends[0] // divisor), Affine()
    for terms in (((v, f) for v, f in x.terms if f % divisor), ((v, f % divisor) for v, f in x.terms if f % divisor)):
        rest = Affine(tuple(terms), x.constant % divisor)
        if (ends := rest.bounds) is not None and ends[0] >= 0:  # a negative rest is not rounded down
            multiple = x - rest
            known = Affine(tuple((v, f // divisor) for v, f in multiple.terms), multiple.constant // divisor)
            return (known, Affine()) if ends[1] < divisor else (known, rest)
    return Affine(), x


def reduced_quotient(x: Affine, divisor: int) -> tuple[Affine, int]:
    """A subscript, which is not negative, and a positive divisor of the same quotient, of fewer axes where there are such. What is
    less than a common factor of the rest and the divisor decides nothing: (64 i + k) / 256 = i / 4 for k below 64."""
    for factor in sorted({math.gcd(f, divisor) for _, f in x.terms}, reverse=True):
        rest = Affine(tuple((v, f) for v, f in x.terms if f % factor), x.constant % factor)
        if factor > 1 and (ends := rest.bounds) is not None and 0 <= ends[0] <= ends[1] < factor:
            whole = x - rest
            return Affine(tuple((v, f // factor) for v, f in whole.terms), whole.constant // factor), divisor // factor
    return x, divisor


Scalar = ScalarVar | ScalarConst | Affine
Index = Sequence[Affine]

TRUE, FALSE = (ScalarConst(BOOL.np.type(v), BOOL) for v in (True, False))  # type: ignore[union-attr]


def affine(x: Scalar | int) -> Affine:
    """An integer as a subscript. Raises TypeError for a scalar of another dtype than i64."""
    if isinstance(x, Affine):
        return x
    if isinstance(x, int):
        return Affine((), x)
    if x.dtype is not I64:
        raise TypeError(f"a subscript of type {x.dtype}")
    return Affine((), int(x.value)) if isinstance(x, ScalarConst) else Affine(((x, 1),))


def compared(x: Scalar, y: Scalar) -> ScalarConst | None:
    """Whether one subscript is less than another, where their ranges say so; None also for what is no subscript."""
    if x.dtype is not I64 or y.dtype is not I64:
        return None
    ends = (affine(x) - affine(y)).bounds
    return None if ends is None or ends[0] < 0 <= ends[1] else TRUE if ends[1] < 0 else FALSE


class Induction:
    """Which variables of a program hold a subscript as an integer of some dtype, as those that count do (induction variables)."""

    def __init__(self) -> None:
        self._subscripts: dict[ScalarVar, Affine] = {}

    def applied(self, primitive: str, args: Sequence[Scalar], dtype: DType, cast: Callable[[Affine], ScalarVar]) -> Any:
        """The result of a primitive of such integers where it is one, too, or decided, else None. `cast` makes an integer of the
        dtype of a subscript."""
        if primitive not in _KNOWN or all(isinstance(a, ScalarConst) for a in args):
            return None
        found = [self.subscript(a) for a in args]
        if None in found:
            return None
        at = _affine(primitive, found)
        if isinstance(at, bool):
            return ScalarConst(primitives.cast(at, BOOL), BOOL)
        ends = None if at is None or not dtype.is_integer else at.bounds
        if at is None or ends is None or any(int(primitives.cast(x, dtype)) != x for x in ends):
            return None
        if not at.terms:
            return ScalarConst(primitives.cast(at.constant, dtype), dtype)
        if dtype is I64:
            return at
        made = cast(at)
        self._subscripts[made] = at
        return made

    def subscript(self, x: Scalar) -> Affine | None:
        """The subscript that an integer is; None where none is known of known range."""
        if isinstance(x, ScalarVar):
            return self._subscripts.get(x)
        if isinstance(x, ScalarConst):
            return Affine((), int(x.value)) if x.dtype.is_integer else None
        return x if x.bounds is not None else None


def _affine(primitive: str, found: Sequence[Any]) -> Affine | bool | None:
    """What the primitive gives, without wrapping."""
    x, y = found[0], found[-1]
    if primitive == "cast":
        return x  # type: ignore[no-any-return]
    if primitive in _ORDERS:
        ends = (x - y).bounds
        return None if ends is None else _ORDERS[primitive](*ends)
    if primitive == "mul":
        return None if x.terms and y.terms else x * y.constant if x.terms else y * x.constant
    return x + y if primitive == "add" else x - y  # type: ignore[no-any-return]


def _decided(*, holds: bool, fails: bool) -> bool | None:
    return True if holds else False if fails else None


_ORDERS: dict[str, Callable[[int, int], bool | None]] = {
    "lt": lambda low, high: _decided(holds=high < 0, fails=low >= 0),
    "le": lambda low, high: _decided(holds=high <= 0, fails=low > 0),
    "gt": lambda low, high: _decided(holds=low > 0, fails=high <= 0),
    "ge": lambda low, high: _decided(holds=low >= 0, fails=high < 0),
    "eq": lambda low, high: _decided(holds=low == high == 0, fails=low > 0 or high < 0),
    "ne": lambda low, high: _decided(holds=low > 0 or high < 0, fails=low == high == 0),
}  # fmt: skip
"""Comparisons of two integers, by the least and the greatest difference."""

_KNOWN = frozenset({"cast", "add", "sub", "mul", *_ORDERS})


def identity(primitive: str, dtype: DType) -> ScalarConst | None:
    """What changes nothing that it is combined with; None where a primitive has no such number."""
    value = _IDENTITIES.get(primitive)
    if value is None:
        return None
    if primitive in ("max", "min") and dtype.is_integer:
        assert dtype.np is not None
        value = np.iinfo(dtype.np).min if primitive == "max" else np.iinfo(dtype.np).max
    elif dtype is BOOL:
        value = primitive in ("mul", "and", "min")
    elif primitive == "add" and dtype.is_float:
        value = -0.0
    elif primitive == "and":
        return None if dtype.is_float else ScalarConst(np.invert(primitives.cast(0, dtype)), dtype)
    return ScalarConst(primitives.cast(value, dtype), dtype)


_IDENTITIES: dict[str, Any] = {"add": 0, "mul": 1, "max": -np.inf, "min": np.inf, "and": -1, "or": 0, "xor": 0}
