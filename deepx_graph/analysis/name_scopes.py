"""Name scopes: the hierarchy of a model as the names in its texts tell it, one tree for pictures, queries and reports.

Frameworks write the path of modules into what they export: JAX `jit(f)/jvp(GPT)/Blk_3/Dense_0/dot_general` as the label of an
operation and `p['params']['Blk_3']['Dense_0']['bias']` as the name of an argument, ONNX and MindIR `/layers.3/attn/MatMul`, others
dotted names. A scope is such a path without its last part, which names the operation. What transformations wrapped around it
(`jit(..)`, `jvp(..)`, `while/body`) is no level: differentiation is kept as the phase of the node, the rest is dropped.

The words of JAX are those of its name stack (jax/_src/source_info_util.py); "name scope" is TensorFlow's and JAX's term.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops.data.fusion import kernel_body
from deepx_graph.types import is_state

Phase = Literal["", "forward", "backward"]
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NameScope:
    """Where an operation belongs: the modules around it, outermost first, and its part of a differentiated program."""

    path: Path = ()
    phase: Phase = ""

    def __str__(self) -> str:
        return "/".join(self.path)

    def inside(self, path: Path) -> bool:
        """Whether `path` is this scope or one around it."""
        return self.path[: len(path)] == path


ROOT = NameScope()

_WRAPPER = re.compile(r"(\w+)\((.*)\)", re.DOTALL)

WRAPPERS = frozenset((
    "jit", "pjit", "jvp", "transpose", "vmap", "pmap", "xmap", "checkpoint", "remat", "rematted_computation", "custom_jvp",
    "custom_vjp", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "shard_map", "core_call", "closed_call",
    "linearize",
))  # fmt: skip
"""Transformations that JAX writes around the name of what they are applied to."""

NO_LEVELS = WRAPPERS | frozenset(("while", "body", "cond", "scan", "body_fun", "cond_fun", "map", "lambda"))
"""Parts of a path that say how an operation came about, not where it belongs."""

_NO_MODULE = re.compile(r"branch_\d+_fun|[\w,.]*->[\w.]*")
"""A branch; the subscripts of an `einsum`."""
_METHOD = re.compile(r"\.(?:<\w+>|__call__|\w*<locals>.*)$")
_INDEX = re.compile(r"""\[(?:'([^']*)'|"([^"]*)"|(\d+))\]|\.?([^.\[\]]+)""")
_INDEXED = re.compile(r"""\w+(?:\[(?:'[^']*'|"[^"]*"|\d+)\]|\.\w+)+""")
_MANGLED = re.compile(r"_{4,}")
_MANGLED_ONCE = re.compile(r"[A-Za-z]\w*?__(\w+?)__(?:\.\d+)?")


def split_path(label: str) -> list[str]:
    """The parts of a label between slashes outside of parentheses: `a/f(b/c)/d` has three."""
    parts: list[str] = []
    depth = start = 0
    for k, c in enumerate(label):
        if c == "(":
            depth += 1
        elif c == ")":
            depth = max(0, depth - 1)
        elif c == "/" and not depth:
            parts.append(label[start:k])
            start = k + 1
    return [*parts, label[start:]]


@lru_cache(maxsize=65536)
def scope_of_label(label: str) -> NameScope:
    """The scope in the name of an operation, whose last part names the operation itself; the root where it has no slash."""
    parts = split_path(label)
    levels: list[str] = []
    phase: Phase = ""
    for k, part in enumerate(parts):
        named, wrapped = _unwrapped(part)
        if "transpose" in wrapped:
            phase = "backward"
        elif "jvp" in wrapped and not phase:
            phase = "forward"
        if k < len(parts) - 1 and not {"jit", "pjit"} & wrapped:
            for level in _levels(named):
                if levels and _again(levels[-1], level):
                    levels.pop()
                levels.append(level)
    return NameScope(tuple(levels), phase)


def _again(before: str, level: str) -> bool:
    """Whether a level is a method of the module that follows, or the same again. `layers.0` is none of `layers`."""
    (a, _, first), (b, _, second) = before.partition("."), level.partition(".")
    return a == b and not any(p.replace(".", "").isdigit() for p in (first, second))


def _unwrapped(part: str) -> tuple[str, frozenset[str]]:
    """What transformations are applied to, and their names: `transpose(jvp(GPT))` is `GPT`."""
    names: set[str] = set()
    while (found := _WRAPPER.fullmatch(part)) and found[1] in WRAPPERS:
        names.add(found[1])
        part = found[2]
    return part, frozenset(names)


def _levels(name: str) -> list[str]:
    parts = (_METHOD.sub("", p) for p in split_path(name))
    return [p for p in parts if p and p not in NO_LEVELS and not _NO_MODULE.fullmatch(p)]


def parameter_name(node: Node) -> str:
    """What the user's program calls a parameter, where the text tells it; else its name."""
    labels = (s.place.label for s in node.origin.spans if s.place is not None)
    return next(filter(None, labels), node.name)


@lru_cache(maxsize=65536)
def parameter_path(name: str) -> Path:
    """The path in the name of an argument, without the variable it starts with: of `p['params']['Blk_0']['bias']`, `blk.bias`.

    Also as HLO writes it, with every other character an underscore. The last part names the argument itself.
    """
    if "[" in name and _INDEXED.fullmatch(name):
        parts = [next(filter(None, m.groups()), "") for m in _INDEX.finditer(name.removesuffix(".value"))]  # a variable of Flax NNX
        return tuple(parts[1:]) or (name,)
    if _MANGLED.search(name):
        parts = [p.strip("_") for p in _MANGLED.split(name.rpartition(".")[0] or name)]
        return tuple(p for p in parts[0].split("__")[1:] + parts[1:] if p)
    if found := _MANGLED_ONCE.fullmatch(name):  # `p['bias']`
        return (found[1],)
    path = [p for p in re.split(r"[./]", name) if p]
    while len(path) > 1 and path[-1].isdigit():  # `input.1` is the first of its name
        path.pop()
    return tuple(path)


def dotted_path(name: str) -> Path:
    """The parts of a dotted name; numbers at its end only tell namesakes apart and do not count."""
    parts = name.strip(".").split(".")
    while parts and parts[-1].isdigit():
        parts.pop()
    return tuple(parts)


def name_scopes(function: Function) -> Mapping[Node, NameScope]:
    """The scope of every node of a function; of one whose text tells none that of its nearest user, else of its nearest operand."""
    known = {n: s for n in function.nodes if (s := _told(n)) is not None}
    if not any(s.path for s in known.values()):
        known |= _by_weights(function, known)
    if not known:
        return dict.fromkeys(function.nodes, ROOT)
    found = dict(known)
    for n in reversed(function.nodes):
        if n not in found:
            users = [found[u] for u in function.users[n] if u in found]
            if users and (n.op in (PARAM, CONSTANT) or not n.inputs):
                found[n] = min(users, key=lambda s: (s.phase == "backward", -len(s.path)))
            elif users:
                found[n] = users[0]
    for n in function.nodes:
        if n not in found and n.inputs:
            found[n] = next((found.get(i, ROOT) for i in reversed(n.inputs) if i in found or _of_the_model(i)), ROOT)
    for n in function.nodes:
        if n not in found:
            found[n] = next((found[u] for u in function.users[n]), ROOT)
    return found


def _by_weights(function: Function, told: Mapping[Node, NameScope]) -> dict[Node, NameScope]:
    """Scopes where only the names of weights tell modules, `p['down'][0]['conv']['kernel']`. Empty where weights tell fewer than
    two modules, or are only taken element by element, as by the steps of an optimiser.

    What is computed with a weight is of its module, and so is what follows, up to what is computed with the next one; but what only
    leads to where a weight is taken element by element is of that module already, as the statistics of a normalisation. In the
    backward part what takes a value of the forward part is of the module that took it there.
    """
    moved = {p: path for p in function.params if (path := parameter_path(parameter_name(p))[:-1])}
    if len(set(moved.values())) < 2:
        return {}
    found: dict[Node, Path] = {}
    own: set[Node] = set()
    backward = {n for n in function.nodes if told.get(n, ROOT).phase == "backward"}
    forward = [n for n in function.nodes if n not in backward]
    taken: dict[Node, Path] = {}
    for nodes in (forward, [n for n in function.nodes if n in backward]):
        for n in nodes:
            weights = [moved[i] for i in n.inputs if i in moved]
            if weights and n.op.place is not None and len(weights) == len(n.inputs):
                moved[n] = weights[-1]
            elif weights:
                found[n] = weights[-1]
                own.add(n)
            elif before := [i for i in n.inputs if i in found]:
                source = max(before, key=lambda i: (i not in backward, i.serial))
                found[n] = taken.get(source, found[source])
        if nodes is forward:
            _lead_up(function, forward, found, own)
            taken = _taken_by(forward, found)
    is_model = any(not n.op.elementwise for n in own)
    return {n: NameScope(path, told.get(n, ROOT).phase) for n, path in found.items()} if is_model else {}


def _lead_up(function: Function, forward: Sequence[Node], found: dict[Node, Path], own: Collection[Node]) -> None:
    """Gives what only leads to operations that take a weight element by element to the module of that weight, and with it what is
    computed for the backward part alone."""
    inside = set(forward)
    leading = {n for n in own if n.op.elementwise}
    kept: set[Node] = set()
    for n in reversed(forward):
        users = [u for u in function.users[n] if u in inside and u not in kept]
        if n in found and n not in own:
            if function.users[n] and not users:
                kept.add(n)
            elif users and leading.issuperset(users) and len({found[u] for u in users}) == 1:
                found[n] = found[users[0]]
                leading.add(n)
    for n in forward:
        if n in kept:
            found[n] = found[max((i for i in n.inputs if i in found), key=lambda i: i.serial)]


def _taken_by(forward: Sequence[Node], found: Mapping[Node, Path]) -> dict[Node, Path]:
    """For each value its own module where that takes it, too, else the last that does."""
    taken: dict[Node, Path] = {}
    for n in forward:
        for i in n.inputs if n in found else ():
            if i in found and taken.get(i) != found[i]:
                taken[i] = found[n]
    return taken


def _of_the_model(node: Node) -> bool:
    """Whether it is a constant of the program's own, of a name that tells no scope: what takes it has none either.

    One that an operator of the source was read with says nothing.
    """
    place = node.span.place if node.span is not None else None
    return node.op is CONSTANT and not (place is not None and place.kind)


def _told(node: Node) -> NameScope | None:
    """The scope that the text tells of a node; None where it tells none. A parameter belongs to what uses it."""
    if node.op is PARAM or is_state(node.type):
        return None
    body = kernel_body(node)
    if body is not None:
        return common_scope(_told(n) for n in body.nodes)
    made_by_grad = "grad" in node.origin.rewrites
    for label in _labels(node):
        if node.op is CONSTANT and "/" not in label:  # a weight is named after where it is kept
            continue
        scope = scope_of_label(label) if "/" in label else _scope_at(dotted_path(label)[:-1])
        if scope.path or "/" in label:
            return NameScope(scope.path, "backward") if made_by_grad else scope
    return None


@lru_cache(maxsize=65536)
def _scope_at(path: Path) -> NameScope:
    """The scope of a path: one object for all that is in it, which compares quickly."""
    return NameScope(path)


def _labels(node: Node) -> Iterable[str]:
    for span in node.origin.spans:
        if span.place is not None and span.place.label:
            yield span.place.label
    yield node.name


def common_scope(scopes: Iterable[NameScope | None]) -> NameScope | None:
    """The innermost scope around all of them; the phase that most have. None where none is known."""
    known = [s for s in scopes if s is not None]
    if not known:
        return None
    path = known[0].path
    for s in known[1:]:
        path = common_prefix((path, s.path))
    return NameScope(path, Counter(s.phase for s in known).most_common(1)[0][0])


def within(outer: NameScope, inner: NameScope) -> NameScope:
    """The scope `inner` of a function's node where the function is called in `outer`; names that start there again are joined."""
    if outer is ROOT or outer == ROOT:
        return inner
    path = inner.path if inner.inside(outer.path) else outer.path + inner.path
    return NameScope(path, inner.phase or outer.phase)


def common_prefix(paths: Sequence[Path]) -> Path:
    """The longest path that all of these begin with."""
    if not paths:
        return ()
    low, high = min(paths), max(paths)
    k = 0
    while k < min(len(low), len(high)) and low[k] == high[k]:
        k += 1
    return low[:k]


def shares(function: Function) -> Counter[NameScope]:
    """How many operations of a kernel's body belong to each scope."""
    scopes = name_scopes(function)
    return Counter(scopes[n] for n in function.nodes if n.op not in (PARAM, CONSTANT))
