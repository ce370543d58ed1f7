"""Whether two programs compute the same, and in which modules of the model they do not: whatever language each was written in.

Both are brought to one form before `diff` compares them. First exactly: calls inlined, kernels taken apart, simplified. Where that
leaves differences, up to rounding too: laws of real numbers are applied, every elementwise operation is spelt by its kernel
expression, products contract the last axis with the first, operands of commutative operations stand in any order. Inputs are
matched by their names as paths, then by type. Equal forms are a proof of equal mathematics; different forms prove nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from deepx_graph.analysis.name_scopes import ROOT, NameScope, name_scopes, parameter_name, parameter_path
from deepx_graph.errors import counted, printable
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.function import InNotebook
from deepx_graph.ir.rebuild import inlined
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops import transpose
from deepx_graph.progress import stage
from deepx_graph.session.programs import optimise
from deepx_graph.session.report.diff import Difference, diff, pairs
from deepx_graph.types import TensorType, Type, as_tensor

EXACT = "inline,unfuse,inline,simplify,cse,dce,internalize,dce"
"""What two programs go through before they are compared, so that calls, fusion and spelling do not count."""

CLOSE = "simplify{fast-math=true},cse,dce,legalise{target=primitive},fold,cse,dce"
"""What they go through then, so that what is equal up to rounding is mostly written alike."""


class Sameness(Enum):
    """What a comparison of two programs has shown. The value is a sentence."""

    EXACT = "same mathematics: operation by operation, with calls inlined and kernels taken apart"
    CLOSE = "same mathematics up to rounding: equal by laws of real numbers, with operations spelt by their primitives"
    UNKNOWN = "not shown to be the same"


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
    aligned: Module
    """The second program as it was given, but with the inputs in the order of the first one's, and transposed where they are."""
    forms: tuple[Module, Module]
    """The two programs as they were compared."""

    def lines(self) -> Iterator[str]:
        """A report, without the verdict."""
        yield from self.difference.lines()
        differing = [s for s in self.scopes if s.differs and (s.first or s.second)]
        if differing:
            yield "by module of the models (same, removed, added, changed):"
            yield from (f"  {row}" for row in _rows(differing))

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


def compare_meaning(a: Module, b: Module) -> Meaning:
    """Compares what two programs compute. Raises what passes raise."""
    aligned = _aligned(a, b)
    stage("canonicalise", 0, 2)
    a, b = (optimise(m, EXACT).module for m in (a, aligned))
    found = diff(a, b)
    if not found:
        return Meaning(Sameness.EXACT, found, (), aligned, (a, b))
    stage("canonicalise", 1, 2)
    c, d = (optimise(m, CLOSE).module for m in (a, b))
    close = diff(c, d, commutative=True)
    if not close:
        return Meaning(Sameness.CLOSE, close, (), aligned, (c, d))
    if len(close.changes) <= len(found.changes):
        a, b, found = c, d, close
    stage("pair")
    return Meaning(Sameness.UNKNOWN, found, _by_scope(a, b, found), aligned, (a, b))


# --- which input is which --------------------------------------------------------------------------------------------


def _aligned(a: Module, b: Module) -> Module:
    """`b` with the parameters of its entry in the order of those of `a`'s that they stand for, and of their types."""
    f, g = a.entry, b.entry
    partner = _partners(f, g)
    known = {id(p) for p in partner.values()}
    order = [partner.get(p) for p in f.params]
    rest = (q for q in g.params if id(q) not in known)
    new: list[Node] = [q if q is not None else next(rest, None) for q in order]  # type: ignore[misc]
    params = [q for q in new if q is not None] + list(rest)
    if params == list(g.params) and all(p.type == q.type for p, q in partner.items()):
        return b
    fresh = Builder()
    turned = {q: as_tensor(p.type) for p, q in partner.items() if p.type != q.type}
    made = {q: fresh.param(k, turned.get(q, q.type), q.name) for k, q in enumerate(params)}
    given = [_transposed(fresh, made[q], _permutation(turned[q], q)) if q in turned else made[q] for q in g.params]
    moved = g.with_(params=tuple(made.values()), results=tuple(inlined(g, given)))
    return b.with_functions(moved if h is g else h for h in b.functions)


def _partners(f: Function, g: Function) -> dict[Node, Node]:
    """The parameters that stand for each other: of the same path, as they are or transposed; else of the same place where all types
    agree; else of a type that only they have."""
    there = {_path(q): q for q in g.params}
    if [p.type for p in f.params] == [q.type for q in g.params] and not any(_path(p) in there for p in f.params):
        return dict(zip(f.params, g.params, strict=True))
    found: dict[Node, Node] = {}
    for p in f.params:
        q = there.get(_path(p))
        if q is not None and (p.type == q.type or _permutation(p.type, q)):
            found[p] = there.pop(_path(p))
    left, right = ([p for p in params if p not in known] for params, known in ((f.params, found), (g.params, set(found.values()))))
    for p in left:
        alike = [q for q in right if q.type == p.type]
        if len(alike) == 1 and sum(o.type == p.type for o in left) == 1:
            found[p] = alike[0]
    return found


def _permutation(type: Type, node: Node) -> tuple[int, ...]:
    """The one way to transpose a value of a type to what a node is; empty where there is none, or several."""
    if not (isinstance(type, TensorType) and isinstance(node.type, TensorType) and type.dtype is node.type.dtype):
        return ()
    have, want = type.dims or (), node.type.dims or ()
    if len(set(have)) != len(have) or len(have) != len(want) or set(have) != set(want):
        return ()
    return tuple(have.index(d) for d in want)


COLLECTIONS = frozenset(("params", "batch_stats"))
"""What Flax calls the trees that all its variables are in."""

SYNONYMS = {"kernel": "weight", "scale": "weight", "gamma": "weight", "embedding": "weight", "beta": "bias",
            "running_mean": "mean", "running_var": "var"}  # fmt: skip
"""Names of Flax and others for what PyTorch calls otherwise."""


def _path(node: Node) -> tuple[str, ...]:
    """A parameter's path in one spelling: `blocks.0.fc.weight` and `p['params']['blocks_0']['fc']['kernel']` are the same."""
    parts = [p for p in parameter_path(parameter_name(node)) if p not in COLLECTIONS]
    last = [SYNONYMS.get(parts[-1], parts[-1])] if parts else []
    return tuple(re.split(r"[_./]+", "_".join((*parts[:-1], *last)).lower()))


def _transposed(b: Builder, x: Node, permutation: tuple[int, ...]) -> Node:
    return x if permutation == tuple(range(len(permutation))) else b(transpose, x, permutation=permutation)


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
        if before is not None and before in here:
            row(str(here[before]), None)[change.kind] += 1
        elif after is not None and after in there:
            row(None, str(there[after]))[change.kind] += 1
    for x, scope in here.items():
        if x in partner and x not in told:
            row(str(scope), None)["same"] += 1
    return tuple(ScopeDifference(*key, c["same"], c["removed"], c["added"], c["changed"]) for key, c in rows.items())


def _scopes(module: Module) -> dict[Node, NameScope]:
    """The scope of every operation of the entry whose text tells one."""
    found = name_scopes(module.entry)
    return {n: s for n, s in found.items() if n.op is not PARAM and n.op is not CONSTANT and s != ROOT}
