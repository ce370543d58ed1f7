"""Where the elements of a result come from: the index semantics of operations that only move elements.

`Op.place(s, shapes, attrs, at)` says for one element of the result, at the subscripts `at`, which element of which operand it is,
by the shapes of the operands and the attribute values. It is written apart from `eval` and from the loop programs, as a third
definition to hold the others against, and in terms of arithmetic `s` that is given to it: of numbers (`Integers`), so that it can
be tried, or of symbols, so that rules about places can be proved for all sizes (`tests/passes/test_place_proofs.py`). Sizes and
subscripts may be symbols, ranks are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from deepx_graph.literal import Array


@dataclass(frozen=True)
class Element:
    """An element of an operand."""

    operand: int
    index: tuple[Any, ...]


@dataclass(frozen=True)
class Either:
    """One place where a condition holds, another where it does not."""

    condition: Any
    then: Place
    otherwise: Place


Place = Element | Either


class Arithmetic(Protocol):
    """What a place is written in, beside `+ - *` and comparisons of subscripts."""

    def quotient(self, x: Any, y: Any) -> Any:
        """Rounded down, of a positive divisor."""
        ...

    def remainder(self, x: Any, y: Any) -> Any:
        """Not negative, of a positive divisor."""
        ...

    def both(self, *conditions: Any) -> Any:
        """Whether all hold."""
        ...

    def choose(self, condition: Any, x: Any, y: Any) -> Any:
        """One of two subscripts."""
        ...

    def value(self, operand: int, index: Sequence[Any]) -> Any:
        """The integer that stands in an operand."""
        ...


Placing = Callable[[Arithmetic, Sequence[tuple[Any, ...]], Sequence[Any], Sequence[Any]], Place]


def clamped(s: Arithmetic, x: Any, low: Any, high: Any) -> Any:
    """The subscript, moved into a range that is not empty."""
    below = s.choose(x > high, high, x)
    return s.choose(below < low, low, below)


@dataclass(frozen=True)
class Integers:
    """Numbers; `operands` are arrays, of which those of integers may be asked for values."""

    operands: Sequence[Array]

    def quotient(self, x: int, y: int) -> int:
        """Rounded down."""
        return x // y

    def remainder(self, x: int, y: int) -> int:
        """Not negative."""
        return x % y

    def both(self, *conditions: bool) -> bool:
        """Whether all hold."""
        return all(conditions)

    def choose(self, condition: bool, x: int, y: int) -> int:
        """One of two."""
        return x if condition else y

    def value(self, operand: int, index: Sequence[int]) -> int:
        """The integer there."""
        return int(self.operands[operand][tuple(index)])


def element(place: Place) -> Element:
    """The element that a place of numbers is."""
    while isinstance(place, Either):
        place = place.then if place.condition else place.otherwise
    return place
