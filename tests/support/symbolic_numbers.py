"""Integers with a value and a term of z3: what is decided by them is noted, for `tests/support/symbolic.py`."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import z3

from deepx_graph.types.symbols import FUNCTIONS, windows_along

Decision = tuple[Any, bool]
"""A condition, and whether it held."""

PATH: list[Decision] = []
"""What has been decided on the way that is gone at the moment: symbols outlive it in types, which are shared."""


_FORCED: list[tuple[tuple[bool, ...], list[Any]]] = []
"""What is to be decided instead of what holds, and the conditions that were asked for, where a function is run on all ways."""


class Sym(int):
    """An integer that knows its term, and notes what is decided by it."""

    term: Any

    def __new__(cls, value: int, term: Any) -> Sym:
        made = super().__new__(cls, value)
        made.term = term
        return made

    def _with(self, other: Any, value: Callable[[int, int], int], term: Callable[[Any, Any], Any], swapped: bool = False) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        pair, terms = (int(self), int(other)), (self.term, raw(other))
        if swapped:
            pair, terms = pair[::-1], terms[::-1]
        return Sym(value(*pair), z3.simplify(term(*terms)))

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a + b, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b, lambda a, b: a - b, swapped=True)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a * b, lambda a, b: a * b)

    def __floordiv__(self, other: Any) -> Any:
        assert other > 0  # noted, too: then z3 divides as Python does
        return self._with(other, lambda a, b: a // b, lambda a, b: a / b)

    def __mod__(self, other: Any) -> Any:
        assert other > 0
        return self._with(other, lambda a, b: a % b, lambda a, b: a % b)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return Sym(-int(self), -self.term)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and Truth(int(self) == int(other), self.term == raw(other))

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, int) or Truth(int(self) != int(other), self.term != raw(other))

    def __lt__(self, other: int) -> bool:
        return Truth(int(self) < int(other), self.term < raw(other))

    def __le__(self, other: int) -> bool:
        return Truth(int(self) <= int(other), self.term <= raw(other))

    def __gt__(self, other: int) -> bool:
        return Truth(int(self) > int(other), self.term > raw(other))

    def __ge__(self, other: int) -> bool:
        return Truth(int(self) >= int(other), self.term >= raw(other))

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __hash__(self) -> int:
        return hash(self.term)


class Truth(int):
    """What a comparison gives: it is noted as a decision when somebody asks which it is."""

    term: Any

    def __new__(cls, outcome: bool, term: Any) -> Any:
        term = z3.simplify(term)
        if z3.is_true(term) or z3.is_false(term):
            return outcome
        made = super().__new__(cls, outcome)
        made.term = term
        return made

    def __bool__(self) -> bool:
        outcome = int(self) == 1
        if _FORCED:
            outcomes, taken = _FORCED[-1]
            outcome = outcomes[len(taken)] if len(taken) < len(outcomes) else outcome
            taken.append(self.term)
        else:
            PATH.append((self.term, outcome))
        return outcome


def _any(values: Iterable[Any]) -> bool:
    """As `any`, but one decision for all comparisons, where it is one for each otherwise, and ways multiply with the axes."""
    open_ = []
    for v in values:
        if isinstance(v, Truth):
            open_.append(v)
        elif v:
            return True
    return bool(Truth(1 in map(int, open_), z3.Or(*(v.term for v in open_)))) if open_ else False


def _all(values: Iterable[Any]) -> bool:
    open_ = []
    for v in values:
        if isinstance(v, Truth):
            open_.append(v)
        elif not v:
            return False
    return bool(Truth(0 not in map(int, open_), z3.And(*(v.term for v in open_)))) if open_ else True


def _extreme(ordinary: Callable[..., Any], is_better: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """As `min` and `max`, without a decision: which it is goes into the term."""

    def chosen(*values: Any, **options: Any) -> Any:
        given = values if len(values) > 1 else tuple(values[0])
        if options or not any(isinstance(v, Sym) for v in given):
            return ordinary(given, **options)
        term = raw(given[0])
        for v in given[1:]:
            term = z3.If(is_better(raw(v), term), raw(v), term)
        return Sym(ordinary(map(int, given)), z3.simplify(term))

    return chosen


def _in_one_term(function: Callable[..., int]) -> Callable[..., Any]:
    """As the function, run on all of its ways and without a decision: which way is taken goes into the term."""

    def called(*values: Any) -> Any:
        def term(outcomes: tuple[bool, ...]) -> Any:
            taken = list[Any]()
            _FORCED.append((outcomes, taken))
            try:
                found = raw(function(*values))
            finally:
                _FORCED.pop()
            if len(taken) == len(outcomes):
                return as_term(found)
            return z3.If(taken[len(outcomes)], term((*outcomes, True)), term((*outcomes, False)))

        plain = function(*map(int, values))
        return Sym(plain, z3.simplify(term(()))) if any(isinstance(v, Sym) for v in values) else plain

    return called


@contextmanager
def few_ways() -> Iterator[None]:
    """Within it, `any`, `all`, `min` and `max` of symbols are one decision, or none, and numbers of windows are none."""
    names = {"any": _any, "all": _all, "min": _extreme(min, lambda a, b: a < b), "max": _extreme(max, lambda a, b: a > b)}
    with pytest.MonkeyPatch.context() as patch:
        for name, function in names.items():
            patch.setattr(builtins, name, function)
        patch.setitem(FUNCTIONS, "window", (6, _in_one_term(windows_along)))
        yield


def raw(x: Any) -> Any:
    """The term of a number, which may be one; of several, theirs."""
    if isinstance(x, tuple):
        return tuple(map(raw, x))
    return x.term if isinstance(x, Sym) else x


def as_term(x: Any) -> Any:
    """The term of a number that may be one already, or a plain one."""
    return z3.IntVal(x) if isinstance(x, int) else x
