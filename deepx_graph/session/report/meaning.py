"""Whether two programs compute the same, and in which modules of the model they do not: whatever language each was written in.

Both are brought to one form before `diff` compares them. First exactly: calls inlined, kernels taken apart, simplified. Where that
leaves differences, up to rounding too: laws of real numbers are applied, every elementwise operation is spelt by its kernel
expression, products contract the last axis with the first, operands of commutative operations stand in any order. Inputs are
matched by their names as paths, then by type. Equal forms are a proof of equal mathematics; different forms prove nothing, so then
the values of small programs are looked at (`landmarks.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
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
from deepx_graph.session.report.landmarks import Landmarks, landmarks
from deepx_graph.types import TensorType, Type, as_tensor

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
    aligned: Module
    """The second program as it was given, but with the inputs in the order of the first one's, and transposed where they are."""
    forms: tuple[Module, Module]
    """The two programs as they were compared."""
    landmarks: Landmarks | None = None
    """What values tell, where forms do not and looking at values costs little."""

    def lines(self) -> Iterator[str]:
        """A report, without the verdict."""
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


def compare_meaning(a: Module, b: Module) -> Meaning:
    """Compares what two programs compute. Raises what passes raise."""
    original, aligned = a, _aligned(a, b)
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
    told = landmarks(original, aligned)
    verdict = Sameness.VALUES if told is not None and told.outputs else Sameness.UNKNOWN
    return Meaning(verdict, found, _by_scope(a, b, found), aligned, (a, b), told)


# --- which input is which --------------------------------------------------------------------------------------------


def _aligned(a: Module, b: Module) -> Module:
    """`b` with the parameters of its entry in the order of those of `a`'s that they stand for, and of their types; with those that
    `a` does not use, without those that `b` does not use."""
    f, g = a.entry, b.entry
    partner = _partners(f, g)
    known, used_by_f, used_by_g = set(partner.values()), _used(f), _used(g)
    rest = (q for q in g.params if q not in known and q in used_by_g)
    given_to_f = [partner.get(p) or (next(rest, None) if p in used_by_f else p) for p in f.params]
    params = [q for q in given_to_f if q is not None] + list(rest)
    turned = {q: as_tensor(q.type) for q in _square_ones(partner)}
    if params == list(g.params) and not turned and all(p.type == q.type for p, q in partner.items()):
        return b
    fresh = Builder()
    turned |= {q: as_tensor(p.type) for p, q in partner.items() if p.type != q.type}
    made = {q: fresh.param(k, turned.get(q, q.type), q.name) for k, q in enumerate(params)}
    given = [_transposed(fresh, made[q], _permutation(turned[q], q)) if q in turned else made.get(q, q) for q in g.params]
    moved = g.with_(params=tuple(made.values()), results=tuple(inlined(g, given)))
    return b.with_functions(moved if h is g else h for h in b.functions)


def _square_ones(partner: Mapping[Node, Node]) -> Iterator[Node]:
    """The square matrices that are transposed, as all others are whose names end alike: of `weight` and `kernel`, say."""
    turned: dict[tuple[str, str], set[bool]] = {}
    square: list[tuple[tuple[str, str], Node]] = []
    for p, q in partner.items():
        if isinstance(p.type, TensorType) and len(p.type.dims or ()) == 2:
            ends = (_last(p), _last(q))
            if len(set(p.type.dims or ())) == 2:
                turned.setdefault(ends, set()).add(p.type != q.type)
            else:
                square.append((ends, q))
    yield from (q for ends, q in square if turned.get(ends) == {True})


def _last(node: Node) -> str:
    return next(reversed(parameter_path(parameter_name(node))), "")


def _used(f: Function) -> set[Node]:
    """What something is computed from, or is a result."""
    return {i for n in f.nodes for i in n.inputs} | set(f.results)


def _partners(f: Function, g: Function) -> dict[Node, Node]:
    """The parameters that stand for each other, as they are or in another layout: of the same path; else of the same place where
    all types agree; else of a type that only they have; else, of those of one size, in the order in which the programs use them.

    The last is a guess, which the comparison proves or does not.
    """
    there = {_path(q): q for q in g.params}
    if [p.type for p in f.params] == [q.type for q in g.params] and not any(_path(p) in there for p in f.params):
        return dict(zip(f.params, g.params, strict=True))
    found: dict[Node, Node] = {}
    for p in f.params:
        q = there.get(_path(p))
        if q is not None and (p.type == q.type or _permutation(p.type, q)):
            found[p] = there.pop(_path(p))
    used_by_f, used_by_g = _used(f), _used(g)
    for kind in (_same_type, _same_role, _same_size):
        known = set(found.values())
        left = _by_kind([p for p in f.params if p not in found and p in used_by_f], kind)
        right = _by_kind([q for q in g.params if q not in known and q in used_by_g], kind)
        first_f, first_g = _first_uses(f), _first_uses(g)
        for key, some in left.items():
            others = right.get(key, [])
            if len(some) == len(others) and (len(some) == 1 or kind is not _same_type):
                pairs_ = zip(sorted(some, key=first_f.__getitem__), sorted(others, key=first_g.__getitem__), strict=True)
                found |= {p: q for p, q in pairs_ if p.type == q.type or _permutation(p.type, q)}
    return found


def _by_kind(params: Sequence[Node], kind: Callable[[Node], Hashable]) -> dict[Hashable, list[Node]]:
    found: dict[Hashable, list[Node]] = {}
    for p in params:
        found.setdefault(kind(p), []).append(p)
    return found


def _same_type(p: Node) -> Hashable:
    return p.type


def _same_role(p: Node) -> Hashable:
    """Size, and what the last part of the path says that it is, where it says so."""
    role = _path(p)[-1:]
    return (_same_size(p), role if role and role[0] in ROLES else ())


def _same_size(p: Node) -> Hashable:
    """The element type and the sizes in any order."""
    return (p.type.dtype, *sorted(map(str, p.type.dims))) if isinstance(p.type, TensorType) and p.type.dims else p.type


def _first_uses(f: Function) -> dict[Node, int]:
    """Where in the order of the program each parameter is first computed with; what only moves its elements does not count."""
    found = dict.fromkeys(f.params, len(f.nodes))
    place = {n: k for k, n in enumerate(f.nodes)}
    stands: dict[Node, frozenset[Node]] = {p: frozenset((p,)) for p in f.params}
    for n in f.nodes:
        given = frozenset().union(*(stands.get(i, frozenset()) for i in n.inputs))
        if given and n.op is not PARAM:
            if n.op.place is not None and len(given) == 1:
                stands[n] = given
            else:
                for p in given:
                    found[p] = min(found[p], place[n])
    return found


LAYOUTS = ((1, 0), (3, 2, 0, 1), (2, 3, 1, 0), (0, 3, 1, 2), (0, 2, 3, 1), (2, 1, 0), (0, 2, 1))
"""How values are turned between frameworks, where their sizes do not tell: weights of products and of convolutions (HWIO and OIHW),
images (NHWC and NCHW), the same of one dimension."""


def _permutation(type: Type, node: Node) -> tuple[int, ...]:
    """The one way to transpose a value of a type to what a node is, or the usual one of several; empty where there is none."""
    if not (isinstance(type, TensorType) and isinstance(node.type, TensorType) and type.dtype is node.type.dtype):
        return ()
    have, want = type.dims or (), node.type.dims or ()
    if len(have) != len(want) or sorted(map(str, have)) != sorted(map(str, want)):
        return ()
    if len(set(have)) != len(have):
        return next((p for p in LAYOUTS if len(p) == len(have) and tuple(have[k] for k in p) == tuple(want)), ())
    return tuple(have.index(d) for d in want)


COLLECTIONS = frozenset(("params", "batch_stats"))
"""What Flax calls the trees that all its variables are in."""

ROLES = frozenset(("weight", "bias", "mean", "var"))
"""What the last part of a parameter's path may say of it, in PyTorch's words."""

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
