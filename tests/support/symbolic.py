"""Rules about places run on symbolic sizes, and proved: for all sizes, offsets and paddings of tensors of a given rank.

A `Sym` is an integer with a value and a term of z3. A rule runs on nodes whose sizes and attributes are such numbers; every
comparison that it makes is noted (concolic execution: Godefroid, Klarlund, Sen, DART, PLDI 2005). Whatever the outcome, the others
are tried with values that lead there, until there are none: so the rule itself is proved, with its guards, and no transcript of it.
On each way, z3 is asked for an element of the result that is not what it was before, by the index semantics of the operations
(`ir/place.py`), with elements of leaves and elementwise operations uninterpreted.

What a rule takes from a number as a plain integer (a `range`, an index of a tuple) has the value that it has: ranks and axes are
given, and not proved for all; neither are strides and gaps, by which there would be products of symbols.
"""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import z3

from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Builder, Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.place import Either, Place
from deepx_graph.ir.structure import CONSTANT, PARAM, value_of
from deepx_graph.ops import concatenate, dynamic_slice, dynamic_update_slice, iota, pad, reduce_window, slice_
from deepx_graph.rewrite.engine import Rule
from deepx_graph.types import F32, I32, DType, scalar, tensor

Decision = tuple[Any, bool]
"""A condition, and whether it held."""

SECONDS = 20


_PATH: list[Decision] = []
"""What has been decided on the way that is gone at the moment: symbols outlive it in types, which are shared."""


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
        _PATH.append((self.term, outcome))
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


@contextmanager
def few_ways() -> Iterator[None]:
    """Within it, `any`, `all`, `min` and `max` of symbols are one decision, or none."""
    names = {"any": _any, "all": _all, "min": _extreme(min, lambda a, b: a < b), "max": _extreme(max, lambda a, b: a > b)}
    with pytest.MonkeyPatch.context() as patch:
        for name, function in names.items():
            patch.setattr(builtins, name, function)
        yield


def raw(x: Any) -> Any:
    """The term of a number, which may be one; of several, theirs."""
    if isinstance(x, tuple):
        return tuple(map(raw, x))
    return x.term if isinstance(x, Sym) else x


# --- programs with symbols -------------------------------------------------------------------------------------------


@dataclass
class Scene:
    """What a case is built of: symbols that have the values of a model, and operations with symbolic attributes."""

    rank: int
    steps: tuple[int, ...] = (1,)
    """Strides, and gaps of padding plus one, of one operation after the other, from the first again when they end: plain numbers,
    as z3 does not decide products of symbols."""
    model: Any = None
    known: list[Any] = field(default_factory=list)
    """What holds of the symbols."""
    b: Builder = field(default_factory=Builder)
    _names: Iterator[int] = field(default_factory=itertools.count)
    _step: Iterator[int] = field(default_factory=itertools.count)

    def number(self, low: int | None = 0, high: int | None = None) -> Sym:
        """A new symbol, of at least and at most so much."""
        term = z3.Int(f"n{next(self._names)}")
        self.known += [] if low is None else [term >= low]
        self.known += [] if high is None else [term <= high]
        value = low or 0 if self.model is None else self.model.eval(term, model_completion=True).as_long()
        return Sym(value, term)

    def numbers(self, low: int | None = 0, high: int | None = None) -> tuple[Sym, ...]:
        """One for each axis."""
        return tuple(self.number(low, high) for _ in range(self.rank))

    def step(self) -> int:
        """The next of the steps."""
        return self.steps[next(self._step) % len(self.steps)]

    def tensor(self, dims: Sequence[int] | None = None, dtype: DType = F32) -> Node:
        """A parameter."""
        return self.b.param(next(self._names), tensor(dtype, self.numbers() if dims is None else tuple(dims)))

    def value(self, dtype: DType = F32) -> Node:
        """A scalar parameter."""
        return self.b.param(next(self._names), scalar(dtype))

    def slice(self, x: Node) -> Node:
        """Any slice that is well formed."""
        start, limit = self.numbers(), self.numbers()
        for low, high, n in zip(raw(start), raw(limit), raw(shape(x)), strict=True):
            self.known += [low <= high, high <= n]
        steps = (self.step(),) * self.rank
        return self.b(slice_, x, start_indices=start, limit_indices=limit, strides=steps)

    def pad(self, x: Node, y: Node, low: int | None = None) -> Node:
        """Any padding that leaves no negative size, of at least so much at each edge."""
        gaps = (self.step() - 1,) * self.rank
        before, after = self.numbers(low), self.numbers(low)
        return self.b(pad, x, y, edge_padding_low=before, edge_padding_high=after, interior_padding=gaps)

    def concatenate(self, *parts: Node) -> Node:
        """Along the last axis."""
        return self.b(concatenate, *parts, dimension=self.rank - 1)

    def beside(self, x: Node) -> Node:
        """A parameter that may stand next to x."""
        return self.tensor((*shape(x)[:-1], self.number()))

    def dynamic_slice(self, x: Node) -> Node:
        """Any slice at starts that may be anywhere."""
        sizes = self.numbers()
        self.known += [size <= n for size, n in zip(raw(sizes), raw(shape(x)), strict=True)]
        return self.b(dynamic_slice, x, *(self.value(I32) for _ in sizes), slice_sizes=sizes)

    def dynamic_update_slice(self, x: Node) -> Node:
        """Any update at starts that may be anywhere."""
        update = self.tensor()
        self.known += [size <= n for size, n in zip(raw(shape(update)), raw(shape(x)), strict=True)]
        return self.b(dynamic_update_slice, x, update, *(self.value(I32) for _ in shape(x)))


def shape(x: Node) -> tuple[int, ...]:
    return x.type.dims  # type: ignore[attr-defined, no-any-return]


# --- what an element is ----------------------------------------------------------------------------------------------


class Terms:
    """The arithmetic of places, of z3's integers."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def quotient(self, x: Any, y: Any) -> Any:
        return _term(x) / y

    def remainder(self, x: Any, y: Any) -> Any:
        return _term(x) % y

    def both(self, *conditions: Any) -> Any:
        return z3.And(*conditions) if conditions else z3.BoolVal(True)

    def choose(self, condition: Any, x: Any, y: Any) -> Any:
        return z3.If(condition, _term(x), _term(y))

    def value(self, operand: int, index: Sequence[Any]) -> Any:
        return element_term(self.node.inputs[operand], index)


def _term(x: Any) -> Any:
    return z3.IntVal(x) if isinstance(x, int) else x


def element_term(node: Node, at: Sequence[Any]) -> Any:
    """One element of a node's value, as an integer that stands for whatever it is."""
    if node.op is PARAM:
        return _function(f"leaf{id(node)}", [_term(i) for i in at])
    if node.op is CONSTANT:
        splat = splat_of(node)
        if splat is not None:
            return z3.IntVal(int(splat)) if splat.dtype.kind in "iu" else z3.Int(f"constant {splat!r}")
        return _listed(value_of(node).array, at)
    if node.op is iota:
        return _term(at[node.attr("iota_dimension")])
    if node.op is reduce_window:
        return _window(node, at)
    if node.op.place is not None:
        shapes, attrs = [raw(shape(i)) for i in node.inputs], [raw(a) for a in node.attrs]
        return _placed(node, node.op.place(Terms(node), shapes, attrs, [_term(i) for i in at]))
    assert node.op.elementwise, node.op
    return _function(f"{node.op.name} {node.attrs}", [element_term(i, at if shape(i) else ()) for i in node.inputs])


def _placed(node: Node, place: Place) -> Any:
    if isinstance(place, Either):
        return z3.If(place.condition, _placed(node, place.then), _placed(node, place.otherwise))
    return element_term(node.inputs[place.operand], place.index)


def _function(name: str, args: list[Any]) -> Any:
    return z3.Function(name, *[z3.IntSort()] * (len(args) + 1))(*args) if args else z3.Int(name)


def _listed(array: Any, at: Sequence[Any]) -> Any:
    if not at:
        return z3.IntVal(int(array))
    found = _listed(array[-1], at[1:])
    for k in reversed(range(len(array) - 1)):
        found = z3.If(_term(at[0]) == k, _listed(array[k], at[1:]), found)
    return found


def _window(node: Node, at: Sequence[Any]) -> Any:
    """The elements of a window of known size one after the other, gaps and padding the initial value."""
    total = element_term(node.inputs[1], ())
    for term in _window_terms(node, at):
        total = _function("combine", [total, term])
    return total


def _window_terms(node: Node, at: Sequence[Any]) -> Iterator[Any]:
    x, init = node.inputs
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations", "padding_low")
    size, stride, base, dilation, low = (raw(node.attr(n)) for n in names)
    for offsets in itertools.product(*(range(int(n)) for n in size)):
        inside, index = [], []
        for i, o, s, w, lo, d, n in zip(at, offsets, stride, dilation, low, base, raw(shape(x)), strict=True):
            place = _term(i * s + o * w - lo)
            index.append(place / d)
            inside += [place >= 0, place % d == 0, place / d < n]
        yield z3.If(z3.And(*inside), element_term(x, index), element_term(init, ()))


# --- proofs ----------------------------------------------------------------------------------------------------------


@dataclass
class Proof:
    """How many ways through a rule there are, on how many of them it applies, and a counterexample where one was found."""

    ways: int = 0
    applied: int = 0
    refuted: str = ""


def prove(rule: Rule | Callable[[Node, Builder], Node | None], case: Callable[[Scene], Node], rank: int,
          steps: tuple[int, ...] = (1,), ways: int = 20_000) -> Proof:
    """Runs the rule on the case in all ways. Raises AssertionError where z3 does not know, or there are too many ways."""
    apply = rule.apply if isinstance(rule, Rule) else rule
    proof, waiting = Proof(), list[list[Decision]]([[]])
    scene = Scene(rank, steps)
    _built(case, scene)
    while waiting:
        prefix = waiting.pop()
        solver = _solver([*scene.known, *map(_fact, prefix)])
        found = solver.check()
        assert found != z3.unknown, f"z3 does not know: {solver.reason_unknown()}"
        if found == z3.unsat:
            continue
        proof.ways += 1
        assert proof.ways <= ways, f"more than {ways} ways"
        now = Scene(rank, steps, solver.model())
        _PATH.clear()
        with few_ways():
            before = _built(case, now)
            after = apply(before, now.b) if before is not None else None
        same = after is not None and before is not None and after.type == before.type
        path = list(_PATH)
        if same and after is not None and before is not None:
            proof.applied += 1
            proof.refuted = proof.refuted or _refutation(before, after, [*now.known, *map(_fact, path)])
        scene.known = now.known
        waiting += [[*path[:k], (path[k][0], not path[k][1])] for k in range(len(prefix), len(path))]
    return proof


def _built(case: Callable[[Scene], Node], scene: Scene) -> Node | None:
    try:
        return case(scene)
    except DeepxGraphError:  # no program at all
        return None


def _solver(facts: Sequence[Any]) -> Any:
    solver = z3.Solver()
    solver.set("timeout", SECONDS * 1000)
    solver.add(*facts)
    return solver


def _fact(decision: Decision) -> Any:
    return decision[0] if decision[1] else z3.Not(decision[0])


def _refutation(before: Node, after: Node, known: Sequence[Any]) -> str:
    """An element that is another one, in words; empty where there is none."""
    at = [z3.Int(f"i{k}") for k in range(len(shape(before)))]
    inside = [c for i, n in zip(at, raw(shape(before)), strict=True) for c in (i >= 0, i < n)]
    for one, other in _pairs(before, after, at):
        solver = _solver([*known, *inside, one != other])
        found = solver.check()
        assert found != z3.unknown, f"z3 does not know: {solver.reason_unknown()}"
        if found == z3.sat:
            return f"{before!r} -> {after!r}: {solver.model()}"
    return ""


def _pairs(before: Node, after: Node, at: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """What has to be equal for the elements to be: of two windows of as many positions, in the same order, each position, which is
    a small question instead of a large one."""
    both_windows = before.op is reduce_window and after.op is reduce_window
    if both_windows and before.attr("window_dimensions") == after.attr("window_dimensions"):
        yield element_term(before.inputs[1], ()), element_term(after.inputs[1], ())
        yield from zip(_window_terms(before, at), _window_terms(after, at), strict=True)
    else:
        yield element_term(before, at), element_term(after, at)
