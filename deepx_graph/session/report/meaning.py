"""Whether two programs compute the same, and in which modules of the model they do not: whatever language each was written in.

Both are brought to one form before `diff` compares them. First exactly: calls inlined, kernels taken apart, simplified. Where that
leaves differences, up to rounding too: laws of real numbers are applied, every elementwise operation is spelt by its kernel
expression, products contract the last axis with the first, operands of commutative operations stand in any order. Inputs and
outputs are matched first (`interfaces.py`). Equal forms are a proof of equal mathematics; different forms prove nothing, so then
the values of small programs are looked at (`landmarks.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import starmap

from deepx_graph.analysis.name_scopes import ROOT, NameScope, name_scopes
from deepx_graph.errors import counted, printable
from deepx_graph.ir import Module, Node
from deepx_graph.ir.function import InNotebook
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.progress import stage
from deepx_graph.session.programs import optimise
from deepx_graph.session.report.diff import Difference, diff, pairs
from deepx_graph.session.report.interfaces import alike, prepared, same_size, weights_taken
from deepx_graph.session.report.landmarks import Landmarks, landmarks
from deepx_graph.types import TensorType

EXACT = "inline,unfuse,inline,simplify,cse,dce,internalize,dce"
"""What two programs go through before they are compared, so that calls, fusion and spelling do not count."""

CLOSE = "simplify{fast-math=true},cse,dce,legalise{target=primitive},fold,cse,dce"
"""What they go through then, so that what is equal up to rounding is mostly written alike."""


class Sameness(Enum):
    """What a comparison of two programs has shown. The value is a sentence."""

    EXACT = "same mathematics: operation by operation, with calls inlined and kernels taken apart"
    CLOSE = "same mathematics up to rounding: equal by laws of real numbers, with operations spelt by their primitives"
    VALUES = "same mathematics as far as values tell: equal outputs on generated inputs, in double precision"
    UNKNOWN = "not shown to be the same"


PROVED = (Sameness.EXACT, Sameness.CLOSE)
"""Verdicts that rest on more than values."""


@dataclass(frozen=True)
class ScopeDifference:
    """A scope of the first program and the one of the second that most of its nodes are paired with, either empty where there is
    none; how many operations are the same in both, and only in the first, only in the second, or not the same."""

    first: str
    second: str
    same: int
    removed: int
    added: int
    changed: int

    @property
    def differs(self) -> bool:
        """Whether anything does."""
        return bool(self.removed or self.added or self.changed)


@dataclass(frozen=True)
class Meaning(InNotebook):
    """What two programs have in common: a verdict, what is different in the form that leaves least, and where in the models."""

    verdict: Sameness
    difference: Difference
    scopes: tuple[ScopeDifference, ...]
    aligned: tuple[Module, Module]
    """The two programs as they were given, but the second with the inputs in the order of the first one's, and transposed where
    they are, as its results; what was `given` and `prepared` are inputs."""
    forms: tuple[Module, Module]
    """The two programs as they were compared."""
    landmarks: Landmarks | None = None
    """What values tell, where forms do not and looking at values costs little."""
    given: int = 0
    """How many constants of one program were taken for inputs that the other has in their place."""
    prepared: int = 0
    """How many weights, and values that the programs compute from weights alone, were taken for inputs, too."""

    def taken(self) -> Iterator[str]:
        """What was taken for inputs."""
        if self.given:
            yield f"{counted(self.given, 'constant')} of one program taken for inputs of the other: this holds for any values"
        if self.prepared:
            yield (f"{counted(self.prepared, 'constant')} and values computed from weights alone taken for inputs: "
                   "this holds for any values of these, and how they are computed is not compared")

    def lines(self) -> Iterator[str]:
        """A report, without the verdict."""
        yield from self.taken()
        yield from self.difference.lines()
        differing = [s for s in self.scopes if s.differs and (s.first or s.second)]
        if differing:
            yield "by module of the models (same, removed, added, changed):"
            yield from (f"  {row}" for row in _rows(differing))
        if self.landmarks is not None:
            yield from self.landmarks.lines()

    def __repr__(self) -> str:
        return f"<Meaning: {self.verdict.value}; {counted(len(self.difference.changes), 'change')}>"

    def __bool__(self) -> bool:
        """Whether they are different."""
        return bool(self.difference)

    def __str__(self) -> str:
        if self.verdict is not Sameness.UNKNOWN:
            return str(self.verdict.value)
        counts = Counter(c.kind for c in self.difference.changes)
        whole = [s for s in self.scopes if s.first or s.second]
        equal = sum(not s.differs for s in whole)
        where = f"; {equal} of {counted(len(whole), 'module')} of the models are the same" if whole else ""
        listed = ", ".join(f"{n} {kind}" for kind, n in counts.items())
        return f"{self.verdict.value}: {listed}{where}"


def _rows(scopes: Sequence[ScopeDifference]) -> Iterator[str]:
    """Scopes that are alike but for their numbers in one line."""
    groups: dict[tuple[object, ...], list[ScopeDifference]] = {}
    for s in scopes:
        names = (re.sub(r"\d+", "#", s.first), re.sub(r"\d+", "#", s.second))
        groups.setdefault((*names, s.same, s.removed, s.added, s.changed), []).append(s)
    for group in groups.values():
        s = group[0]
        name = f"{s.first or '-'} = {s.second or '-'}" if s.first != s.second else s.first
        many = f" and {len(group) - 1} more like it" if len(group) > 1 else ""
        yield printable(f"{name}: {s.same}, {s.removed}, {s.added}, {s.changed}{many}")


def compare_meaning(a: Module, b: Module, *, any_weights: bool = True) -> Meaning:
    """Compares what two programs compute, by the first guess of which inputs are which that shows them to be the same, else by the
    first one. With `any_weights`, constants of the one count as the inputs that the other has for them, and so may what one that
    takes its weights as inputs computes from these alone (`interfaces.py`). Raises what passes raise.
    """
    first = None
    for found in _comparisons(a, b, any_weights):
        if found.verdict is not Sameness.UNKNOWN:
            return found
        first = first or found
    assert first is not None, "there is always a guess"
    return first


def _comparisons(a: Module, b: Module, any_weights: bool) -> Iterator[Meaning]:
    yield from starmap(_compared, alike(a, b, any_weights=any_weights))
    weights = [weights_taken(x, y) for x, y in ((a, b), (b, a))] if any_weights else []
    if any(weights):
        sizes = set(map(same_size, set().union(*weights)))
        (c, n), (d, m) = (prepared(x, some, sizes, f"{EXACT},{CLOSE}") for x, some in zip((a, b), weights, strict=True))
        yield from (replace(found, prepared=n + m) for found in starmap(_compared, alike(c, d, any_weights=False)))


def _compared(original: Module, aligned: Module, given: int) -> Meaning:
    a, b = original, aligned
    stage("canonicalise", 0, 2)
    a, b = (optimise(m, EXACT).module for m in (a, aligned))
    found = diff(a, b)
    if not found:
        return Meaning(Sameness.EXACT, found, (), (original, aligned), (a, b), None, given)
    stage("canonicalise", 1, 2)
    c, d = (optimise(m, CLOSE).module for m in (a, b))
    close = diff(c, d, commutative=True)
    if not close:
        return Meaning(Sameness.CLOSE, close, (), (original, aligned), (c, d), None, given)
    if len(close.changes) <= len(found.changes):
        a, b, found = c, d, close
    stage("pair")
    told = landmarks(original, aligned)
    same = told is not None and told.outputs and _precision(original) == _precision(aligned)
    verdict = Sameness.VALUES if same else Sameness.UNKNOWN
    return Meaning(verdict, found, _by_scope(a, b, found), (original, aligned), (a, b), told, given)


def _precision(module: Module) -> int:
    """The fewest bits of the floating-point numbers that a program computes with: values in double precision do not show these."""
    types = (n.type.dtype for f in module.functions for n in f.nodes if isinstance(n.type, TensorType) and n.type.dtype.is_float)
    return min((t.bits for t in types), default=0)


# --- where -----------------------------------------------------------------------------------------------------------


def _by_scope(a: Module, b: Module, difference: Difference) -> tuple[ScopeDifference, ...]:
    """The scopes of both programs, each with the one of the other that most of its nodes are paired with."""
    here, there = _scopes(a), _scopes(b)
    partner = pairs(a, b)
    votes: dict[str, Counter[str]] = {}
    for x, y in partner.items():
        if x in here and y in there:
            votes.setdefault(str(here[x]), Counter())[str(there[y])] += 1
    of_first = {scope: most.most_common(1)[0][0] for scope, most in votes.items()}
    of_second = {second: first for first, second in reversed(of_first.items())}
    rows: dict[tuple[str, str], Counter[str]] = {}

    def row(first: str | None, second: str | None) -> Counter[str]:
        key = (first, of_first.get(first, "")) if first is not None else (of_second.get(second or "", ""), second or "")
        return rows.setdefault(key, Counter())

    told: set[Node] = set()
    for change in difference.changes:
        before, after = change.before, change.after
        told |= {n for n in (before, after) if n is not None}
        first = _touched(before, a, here)
        for name in sorted(first):
            row(name, None)[change.kind] += 1
        for name in sorted(_touched(after, b, there)) if not first else ():
            row(None, name)[change.kind] += 1
    for x, scope in here.items():
        if x in partner and x not in told:
            row(str(scope), None)["same"] += 1
    return tuple(ScopeDifference(*key, c["same"], c["removed"], c["added"], c["changed"]) for key, c in rows.items())


def _touched(node: Node | None, module: Module, scopes: Mapping[Node, NameScope]) -> set[str]:
    """The scope of an operation; those that take it of a constant, which has none."""
    if node is None:
        return set()
    at = module.entry.users.get(node, ()) if node.op is CONSTANT else (node,)
    return {str(scopes[n]) for n in at if n in scopes}


def _scopes(module: Module) -> dict[Node, NameScope]:
    """The scope of every operation of the entry whose text tells one."""
    found = name_scopes(module.entry)
    return {n: s for n, s in found.items() if n.op is not PARAM and n.op is not CONSTANT and s != ROOT}
