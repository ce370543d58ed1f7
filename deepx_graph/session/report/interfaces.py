"""Two programs with one interface: which input of the one is which of the other, in which layout, and which weights are constants.

Inputs are matched by their names as paths, then by type. Where the one program takes weights that the other has as constants, these
become inputs, too, so that what is shown holds for all weights. Results that are the others' transposed are transposed back.

One exporter folds a normalisation into a convolution, another works out `1 / sqrt(variance)`, or lays three matrices side by side:
the network is the same, given other weights. So both may be `prepared`: scales and shifts are folded into weights, and what is then
computed from weights alone is an input.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence

from deepx_graph.analysis.name_scopes import parameter_name, parameter_path
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.rebuild import inlined, rebuild, replaced, with_results
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops import convert, reshape, transpose
from deepx_graph.session.programs import optimise
from deepx_graph.types import TensorType, Type, as_tensor


def alike(a: Module, b: Module, *, any_weights: bool) -> Iterator[tuple[Module, Module, int]]:
    """The two programs, the second with its inputs in the order and the layout of the first one's, and results in that layout; and
    how many constants of either have become inputs (with `any_weights`). Once for each guess of which inputs are which, where types
    and sizes say different things, and of how these are turned, where nothing says it."""
    inputs = len(a.entry.params) + len(b.entry.params)
    if any_weights:
        a, b = _with_weights_given(a, b), _with_weights_given(b, a)
    given = len(a.entry.params) + len(b.entry.params) - inputs
    guesses = [matched(a.entry, b.entry, kinds) for kinds in ((_same_type, _same_role, same_size), (_same_role, same_size))]
    for partner in guesses[:1] if guesses[0] == guesses[1] else guesses:
        usual, other = _turns(partner, 0), _turns(partner, -1)
        for turns in [usual] if usual == other else [usual, other]:
            yield a, _results_turned(a, _aligned(a, b, partner, turns)), given


# --- weights that are constants ---------------------------------------------------------------------------------------


def _with_weights_given(a: Module, b: Module) -> Module:
    """`a` with those of its constants as parameters for which `b` has parameters: of each size, in any order of its extents, as
    many as are missing. Itself where there are not so many constants of a size."""
    f, g = a.entry, b.entry
    missing = Counter(same_size(q) for q in g.params if q in _used(g)) - Counter(same_size(p) for p in f.params if p in _used(f))
    lifted: list[Node] = []
    for size, count in missing.items():
        some = [n for n in f.nodes if n.op is CONSTANT and isinstance(n.type, TensorType) and n.type.dims and same_size(n) == size]
        found = next((c for c in (some, [n for n in some if not n.attr("value").is_splat]) if len(c) == count), None)
        if found is None:
            return a
        lifted += found
    return with_inputs_for(a, {n: n.name for n in lifted}) if lifted else a


def with_inputs_for(module: Module, names: Mapping[Node, str], *, vectors: bool = False) -> Module:
    """The module with more inputs, of these names, in the place of nodes of its entry; as vectors where one axis alone is longer
    than 1 and that is asked for."""
    f, fresh = module.entry, Builder()
    types = [_vector(n.type) if vectors else n.type for n in names]
    params = [fresh.param(len(f.params) + k, *given) for k, given in enumerate(zip(types, names.values(), strict=True))]
    made = {n: p if p.type == n.type else fresh(reshape, p, shape=as_tensor(n.type).dims)
            for n, p in zip(names, params, strict=True)}
    after = replaced(f, rebuild(f.nodes, {**dict(zip(f.params, f.params, strict=True)), **made}))
    return module.with_functions(after.with_(params=(*after.params, *params)) if h is f else h for h in module.functions)


def _vector(type: Type) -> Type:
    longer = [d for d in type.dims or () if d != 1] if isinstance(type, TensorType) else []
    return TensorType(as_tensor(type).dtype, tuple(longer)) if len(longer) == 1 else type


# --- what is computed from weights ------------------------------------------------------------------------------------


OPENED = "inline,unfuse,inline"
"""Brings all constants into the entry as they stand."""

FOLDED = "fold-scale-axis,simplify{fast-math=true},cse,dce"
"""Where every scale and shift is part of the weights."""


def weights_taken(module: Module, other: Module) -> set[Node]:
    """The inputs that are weights: those named so, those for which the other program has none, and what is of one variable with
    such (`p['w']` with `p['mean']`)."""
    partner = matched(module.entry, other.entry)
    found = {p for p in module.entry.params if role(p) or p not in partner}
    variables = {_variable(p) for p in found} - {""}
    return found | {p for p in module.entry.params if _variable(p) in variables}


def _variable(p: Node) -> str:
    variable, indexed, _ = parameter_name(p).partition("[")
    return variable if indexed else ""


def prepared(module: Module, weights: Collection[Node], sizes: Collection[Hashable], form: str) -> tuple[Module, int]:
    """A program, in the form that a pipeline gives, with what it computes from weights alone as inputs, and how many of its inputs
    are none of the program's. Beside the inputs that are weights there are constants of floating-point numbers: that differ from
    each other, are named so, or are of one of the sizes. Raises what passes raise."""
    taken = {k for k, p in enumerate(module.entry.params) if p in weights}
    count = len(module.entry.params)
    module = optimise(module, OPENED).module
    constants = {n: n.name for n in module.entry.nodes if n.op is CONSTANT and _is_weight(n, sizes)}
    module = optimise(with_inputs_for(module, constants, vectors=True), f"{form},{FOLDED}").module
    f = module.entry
    sources = _from_weights(f, [p for k, p in enumerate(f.params) if k in taken or k >= count])
    names = {n: _name(n, sources[n]) for n in _met_by_data(f, sources) if n.op is not PARAM}
    after = with_inputs_for(module, names)
    used = {i for n in after.entry.nodes for i in n.inputs}
    return after, sum(p in used for p in after.entry.params[count:])


def _is_weight(constant: Node, sizes: Collection[Hashable]) -> bool:
    is_float = isinstance(constant.type, TensorType) and constant.type.dims and constant.type.dtype.is_float
    return bool(is_float) and bool(not constant.attr("value").is_splat or role(constant) or same_size(constant) in sizes)


def _from_weights(f: Function, weights: Sequence[Node]) -> dict[Node, frozenset[Node]]:
    """What is computed from weights alone, and from which; but a weight that meets itself prepares none: a bias added
    twice is not one bias."""
    found = {w: frozenset((w,)) for w in weights}
    for n in f.nodes:
        given = frozenset[Node]().union(*(found.get(i, frozenset()) for i in n.inputs))
        twice = len(set(n.inputs)) < len(n.inputs)
        if given and not twice and n.op.total and isinstance(n.type, TensorType) and \
                all(i in found or i.op is CONSTANT for i in n.inputs):
            found[n] = given
    return found


def _met_by_data(f: Function, sources: dict[Node, frozenset[Node]]) -> list[Node]:
    """The values computed from weights that others are computed with, before they are only moved."""
    found: dict[Node, None] = {}
    for n in f.nodes:
        for i in n.inputs if n not in sources else ():
            while i in sources and i.op.place is not None and len(i.inputs) == 1 and i.inputs[0] in sources:
                (i,) = i.inputs
            if i in sources:
                found[i] = None
    return list(found)


def _name(n: Node, weights: frozenset[Node]) -> str:
    """The name of what is computed from weights: that of the shift among those of its size, else of the first."""
    alike = sorted((w for w in weights if same_size(w) == same_size(n)), key=lambda w: (role(w) != "bias", w.serial))
    return parameter_name(alike[0]) if alike else ""


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
        results.append(_as(fresh, s, r, permutation) if permutation else s)
    return b.with_functions(with_results(g, tuple(results)) if h is g else h for h in b.functions)


# --- parameters --------------------------------------------------------------------------------------------------------


def _aligned(a: Module, b: Module, partner: Mapping[Node, Node], turns: Mapping[Node, tuple[int, ...]]) -> Module:
    """`b` with the parameters of its entry in the order of those of `a`'s that they stand for, and of their types, turned so, and
    integers of their width (JAX counts in 32 bits what PyTorch does in 64); with those that `a` does not use, without those that
    `b` does not use."""
    f, g = a.entry, b.entry
    known, used_by_f, used_by_g = set(partner.values()), _used(f), _used(g)
    rest = (q for q in g.params if q not in known and q in used_by_g)
    given_to_f = [partner.get(p) or (next(rest, None) if p in used_by_f else p) for p in f.params]
    params = [q for q in given_to_f if q is not None] + list(rest)
    if params == list(g.params) and not turns and all(p.type == q.type for p, q in partner.items()):
        return b
    fresh = Builder()
    types = {q: p.type for p, q in partner.items()}
    made = {q: fresh.param(k, types.get(q, q.type), q.name) for k, q in enumerate(params)}
    given = [_as(fresh, made[q], q, turns.get(q, ())) if q in made else q for q in g.params]
    moved = g.with_(params=tuple(made.values()), results=tuple(inlined(g, given)))
    return b.with_functions(moved if h is g else h for h in b.functions)


def _turns(partner: Mapping[Node, Node], choice: int) -> dict[Node, tuple[int, ...]]:
    """How a value of the first type is transposed to be the input that stands for it, where it is: where sizes do not tell, as all
    others of its rank are whose names end alike (of `weight` and `kernel`, say), else in this one of the usual ways; but as it is
    where it may be and is no weight of another spelling, as `x` for `x`."""
    fitting = {q: _permutations(p.type, q) for p, q in partner.items()}
    ends = {q: (role(p), role(q)) for p, q in partner.items()}
    known: dict[Hashable, set[tuple[int, ...]]] = {}
    for q, some in fitting.items():
        if len(some) == 1:
            known.setdefault((*ends[q], len(some[0])), set()).update(some)
    found = {}
    for first, q in partner.items():
        some = fitting[q]
        others = known.get((*ends[q], len(some[0])), set()) if some else set()
        as_others = [p for p in some if p in others]
        is_weight = any(role(p) or _variable(p) for p in (first, q))
        is_open = first.type != q.type or (is_weight and _spelling(first) != _spelling(q))
        found[q] = as_others[0] if len(as_others) == 1 else some[choice if is_open else 0] if some else ()
    return {q: p for q, p in found.items() if p != tuple(range(len(p)))}


def _spelling(p: Node) -> str:
    """The last part of a parameter's path, as it is written."""
    return next(reversed(parameter_path(parameter_name(p))), "")


def role(node: Node) -> str:
    """What the last part of a parameter's path says that it is; empty where it says nothing."""
    return last if (last := next(reversed(_path(node)), "")) in ROLES else ""


def _used(f: Function) -> set[Node]:
    """What something is computed from, or is a result."""
    return {i for n in f.nodes for i in n.inputs} | set(f.results)


def matched(f: Function, g: Function, kinds: Sequence[Callable[[Node], Hashable]] = ()) -> dict[Node, Node]:
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
    for kind in kinds or (_same_type, _same_role, same_size):
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
    return (same_size(p), role(p))


def same_size(p: Node) -> Hashable:
    """The element type, that of integers of any width, and the sizes in any order."""
    return (_sort(p.type), *sorted(map(str, p.type.dims))) if isinstance(p.type, TensorType) and p.type.dims else p.type


def _sort(type: TensorType) -> Hashable:
    """The element type; of integers only that they are signed ones."""
    return type.dtype.kind if type.dtype.kind == "int" else type.dtype


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
    return next(iter(_permutations(type, node)), ())


def _permutations(type: Type, node: Node) -> tuple[tuple[int, ...], ...]:
    """All ways to transpose a value of a type to what a node is, of the usual ones where sizes do not tell; the identity first."""
    if not (isinstance(type, TensorType) and isinstance(node.type, TensorType) and _sort(type) == _sort(node.type)):
        return ()
    have, want = type.dims or (), node.type.dims or ()
    if len(have) != len(want) or sorted(map(str, have)) != sorted(map(str, want)):
        return ()
    if len(set(have)) == len(have):
        return (tuple(have.index(d) for d in want),)
    usual = (tuple(range(len(have))), *LAYOUTS)
    return tuple(p for p in usual if len(p) == len(have) and tuple(have[k] for k in p) == tuple(want))


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


def _as(b: Builder, x: Node, like: Node, permutation: tuple[int, ...]) -> Node:
    """A value transposed, and of the element type of another node."""
    turned = x if permutation == tuple(range(len(permutation))) else b(transpose, x, permutation=permutation)
    if not isinstance(like.type, TensorType) or as_tensor(turned.type).dtype is like.type.dtype:
        return turned
    return b(convert, turned, dtype=like.type.dtype)
