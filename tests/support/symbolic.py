"""Rules about places run on symbolic sizes, and proved: for all sizes, offsets and paddings of tensors of a given rank.

A rule runs on nodes whose sizes and attributes are integers with a term of z3 (`symbolic_numbers.py`); every
comparison that it makes is noted (concolic execution: Godefroid, Klarlund, Sen, DART, PLDI 2005). Whatever the outcome, the others
are tried with values that lead there, until there are none: so the rule itself is proved, with its guards, and no transcript of it.
On each way, z3 is asked for an element of the result that is not what it was before, by the index semantics of the operations
(`ir/place.py`), with elements of leaves and elementwise operations uninterpreted.

Of windows each position is asked for by itself, and of these each subscript and each bound of one, with the facts that share
symbols with it: as axes have no symbols in common, these are questions about one axis, the same ones at every rank.

What a rule takes from a number as a plain integer (a `range`, an index of a tuple) has the value that it has: ranks and axes are
given, and not proved for all; neither are strides and gaps, by which there would be products of symbols.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import z3

from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Builder, Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.place import Either, Place
from deepx_graph.ir.structure import CONSTANT, PARAM, value_of
from deepx_graph.ops import concatenate, dynamic_slice, dynamic_update_slice, iota, pad, reduce_window, slice_
from deepx_graph.rewrite.engine import Rule
from deepx_graph.types import F32, I32, DType, scalar, tensor
from tests.support.symbolic_numbers import PATH, Decision, Sym, as_term, few_ways, raw

SECONDS = 20


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
        return as_term(x) / y

    def remainder(self, x: Any, y: Any) -> Any:
        return as_term(x) % y

    def both(self, *conditions: Any) -> Any:
        return z3.And(*conditions) if conditions else z3.BoolVal(True)

    def choose(self, condition: Any, x: Any, y: Any) -> Any:
        return z3.If(condition, as_term(x), as_term(y))

    def value(self, operand: int, index: Sequence[Any]) -> Any:
        return element_term(self.node.inputs[operand], index)


def element_term(node: Node, at: Sequence[Any]) -> Any:
    """One element of a node's value, as an integer that stands for whatever it is."""
    if node.op is PARAM:
        return _function(f"leaf{id(node)}", [as_term(i) for i in at])
    if node.op is CONSTANT:
        splat = splat_of(node)
        if splat is not None:
            return z3.IntVal(int(splat)) if splat.dtype.kind in "iu" else z3.Int(f"constant {splat!r}")
        return _listed(value_of(node).array, at)
    if node.op is iota:
        return as_term(at[node.attr("iota_dimension")])
    if node.op is reduce_window:
        return _window(node, at)
    if node.op.place is not None:
        shapes, attrs = [raw(shape(i)) for i in node.inputs], [raw(a) for a in node.attrs]
        return _placed(node, node.op.place(Terms(node), shapes, attrs, [as_term(i) for i in at]))
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
        found = z3.If(as_term(at[0]) == k, _listed(array[k], at[1:]), found)
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
            place = as_term(i * s + o * w - lo)
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
    questions: set[str] = field(default_factory=set, repr=False)
    """What z3 was asked of single axes."""


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
        PATH.clear()
        with few_ways():
            before = _built(case, now)
            after = apply(before, now.b) if before is not None else None
        same = after is not None and before is not None and after.type == before.type
        path = list(PATH)
        if same and after is not None and before is not None:
            proof.applied += 1
            proof.refuted = proof.refuted or _refutation(before, after, [*now.known, *map(_fact, path)], proof.questions)
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


def _refutation(before: Node, after: Node, known: Sequence[Any], questions: set[str]) -> str:
    """An element that is another one, in words; empty where there is none. What is asked of single axes is noted, too."""
    at = [z3.Int(f"i{k}") for k in range(len(shape(before)))]
    inside = [c for i, n in zip(at, raw(shape(before)), strict=True) for c in (i >= 0, i < n)]
    facts = [*known, *inside]
    for one, other in _pairs(before, after, at):
        axes = _by_axes(one, other) if before.op is reduce_window else ()
        if axes and all(_follows(claim, [*facts, *given], questions) for given, claim in axes):
            continue
        solver = _solver([*facts, one != other])
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


def _by_axes(one: Any, other: Any) -> Iterator[tuple[list[Any], Any]]:
    """What makes two terms equal, a small question for each subscript and each bound of one: what is given, and what is claimed.

    Of two elements of one tensor, each inside of some bounds, and of the same value outside: that the bounds of each follow from
    those of the other, and that within them each subscript is the same. For other terms it is that they are equal.
    """
    bounds, element, outside = _bounded(one)
    other_bounds, other_element, other_outside = _bounded(other)
    if not z3.eq(outside, other_outside) or element.decl() != other_element.decl():
        yield [], one == other
        return
    yield from ((bounds, b) for b in other_bounds)
    yield from ((other_bounds, b) for b in bounds)
    yield from ((bounds, i == j) for i, j in zip(element.children(), other_element.children(), strict=True))


def _bounded(term: Any) -> tuple[list[Any], Any, Any]:
    """A term as an element where bounds hold, and another one elsewhere: choices within each other with the same rest are one."""
    bounds, outside = list[Any](), z3.BoolVal(True)
    while z3.is_app_of(term, z3.Z3_OP_ITE) and (not bounds or z3.eq(term.arg(2), outside)):
        bounds += _conjuncts(term.arg(0))
        term, outside = term.arg(1), term.arg(2)
    return bounds, term, outside


def _conjuncts(fact: Any) -> Iterator[Any]:
    """The facts that a fact says all at once."""
    if z3.is_and(fact):
        yield from (c for part in fact.children() for c in _conjuncts(part))
    elif z3.is_not(fact) and z3.is_or(fact.arg(0)):
        yield from (c for part in fact.arg(0).children() for c in _conjuncts(z3.Not(part)))
    else:
        yield fact


def _follows(claim: Any, facts: Sequence[Any], questions: set[str]) -> bool:
    """Whether z3 proves the claim by those of the facts that share symbols with it, or with others of these: leaving facts out is
    right whatever they say, and without those of other axes a question is the same one for each axis, at every rank."""
    rest, near, about = [c for f in facts for c in _conjuncts(f)], list[Any](), _symbols(claim)
    while found := [f for f in rest if about & _symbols(f)]:
        near += found
        rest = [f for f in rest if not about & _symbols(f)]
        about = about.union(*map(_symbols, found))
    question = _named_anew([claim, *near])
    if question not in _ANSWERS:
        _ANSWERS[question] = bool(_solver([*near, z3.Not(claim)]).check() == z3.unsat)
    questions.add(question)
    return _ANSWERS[question]


_ANSWERS: dict[str, bool] = {}
"""Whether the claim of a question follows."""


def _named_anew(terms: Sequence[Any]) -> str:
    """The terms as a text, in which symbols are numbered as they occur: the first is a claim, the order of the others says
    nothing."""
    names = dict[str, str]()

    def number(name: re.Match[str]) -> str:
        return names.setdefault(name[0], f"s{len(names)}")

    return " | ".join(re.sub(r"\b(?:n|i|leaf)\d+\b|'[^']*'|\|[^|]*\|", number, t.sexpr()) for t in terms)


@cache
def _symbols(term: Any) -> frozenset[str]:
    """The names of what a term is about."""
    own = {term.decl().name()} if z3.is_app_of(term, z3.Z3_OP_UNINTERPRETED) else set()
    return frozenset(own.union(*map(_symbols, term.children())))
