"""Two programs with one interface: which input of the one is which of the other, in which layout, and which weights are constants.

Inputs are matched by their names as paths, then by type. Where the one program takes weights that the other has as constants, these
become inputs, too, so that what is shown holds for all weights. Results that are the others' transposed are transposed back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from deepx_graph.analysis.name_scopes import parameter_name, parameter_path
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.rebuild import inlined, rebuild, replaced, with_results
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops import transpose
from deepx_graph.types import TensorType, Type, as_tensor


def alike(a: Module, b: Module, *, any_weights: bool) -> Iterator[tuple[Module, Module, int]]:
    """The two programs, the second with its inputs in the order and the layout of the first one's, and results in that layout; and
    how many constants of either have become inputs (with `any_weights`). Once for each guess of which inputs are which, where types
    and sizes say different things."""
    inputs = len(a.entry.params) + len(b.entry.params)
    if any_weights:
        a, b = _with_weights_given(a, b), _with_weights_given(b, a)
    given = len(a.entry.params) + len(b.entry.params) - inputs
    guesses = [_partners(a.entry, b.entry, kinds) for kinds in ((_same_type, _same_role, _same_size), (_same_role, _same_size))]
    for partner in guesses[:1] if guesses[0] == guesses[1] else guesses:
        yield a, _results_turned(a, _aligned(a, b, partner)), given


# --- weights that are constants ---------------------------------------------------------------------------------------


def _with_weights_given(a: Module, b: Module) -> Module:
    """`a` with those of its constants as parameters for which `b` has parameters: of each size, in any order of its extents, as
    many as are missing. Itself where there are not so many constants of a size."""
    f, g = a.entry, b.entry
    missing = Counter(_same_size(q) for q in g.params if q in _used(g)) - Counter(_same_size(p) for p in f.params if p in _used(f))
    lifted: list[Node] = []
    for size, count in missing.items():
        some = [n for n in f.nodes if n.op is CONSTANT and isinstance(n.type, TensorType) and n.type.dims and _same_size(n) == size]
        found = next((c for c in (some, [n for n in some if not n.attr("value").is_splat]) if len(c) == count), None)
        if found is None:
            return a
        lifted += found
    if not lifted:
        return a
    fresh = Builder()
    made = {n: fresh.param(len(f.params) + k, n.type, n.name) for k, n in enumerate(lifted)}
    new = rebuild(f.nodes, {**dict(zip(f.params, f.params, strict=True)), **made})
    after = replaced(f, new)
    return a.with_functions(after.with_(params=(*after.params, *made.values())) if h is f else h for h in a.functions)


# --- results -----------------------------------------------------------------------------------------------------------


def _results_turned(a: Module, b: Module) -> Module:
    """`b` with those results transposed whose sizes are those of `a`'s in another order."""
    f, g = a.entry, b.entry
    if len(f.results) != len(g.results):
        return b
    fresh = Builder()
    results = []
    for r, s in zip(f.results, g.results, strict=True):
        permutation = _permutation(s.type, r) if r.type != s.type else ()
        results.append(_transposed(fresh, s, permutation) if permutation else s)
    return b.with_functions(with_results(g, tuple(results)) if h is g else h for h in b.functions)


# --- parameters --------------------------------------------------------------------------------------------------------


def _aligned(a: Module, b: Module, partner: Mapping[Node, Node]) -> Module:
    """`b` with the parameters of its entry in the order of those of `a`'s that they stand for, and of their types; with those that
    `a` does not use, without those that `b` does not use."""
    f, g = a.entry, b.entry
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
            ends = (_role(p), _role(q))
            if len(set(p.type.dims or ())) == 2:
                turned.setdefault(ends, set()).add(p.type != q.type)
            else:
                square.append((ends, q))
    yield from (q for ends, q in square if turned.get(ends) == {True})


def _role(node: Node) -> str:
    """What the last part of a parameter's path says that it is; empty where it says nothing."""
    return last if (last := next(reversed(_path(node)), "")) in ROLES else ""


def _used(f: Function) -> set[Node]:
    """What something is computed from, or is a result."""
    return {i for n in f.nodes for i in n.inputs} | set(f.results)


def _partners(f: Function, g: Function, kinds: Sequence[Callable[[Node], Hashable]]) -> dict[Node, Node]:
    """The parameters that stand for each other, as they are or in another layout: of the same path; else of the same place where
    all types agree; else of a type that only they have, or, of those of another kind, in the order in which the programs use them.

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
    for kind in kinds:
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
    return (_same_size(p), _role(p))


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
