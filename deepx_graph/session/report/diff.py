"""What is different between two modules, by structure: names and the order of lines do not count.

Equal subgraphs get equal numbers, so that nodes match across modules by what they compute. From the results, inputs and names that
match, the rest is paired; only nodes that differ in themselves are listed, those that differ because an operand does are counted.
Functions are the same when they are isomorphic as graphs.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Literal

from deepx_graph.errors import TextReport, counted, printable
from deepx_graph.ir import Function, Module, Node, describe
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, PARAM

Kind = Literal["removed", "added", "changed"]
SIGNS: dict[Kind, str] = {"removed": "-", "added": "+", "changed": "~"}
IN_ORDER_LIMIT = 2000
"""Nodes left over that are paired by their order; more take too long."""

ISOMORPHISM_LIMIT = 20_000
"""Nodes of a function above which equal numbers of equal subgraphs are enough to be called the same."""


@dataclass(frozen=True)
class Change:
    """One node, or function, that is only in one module, or is not the same in both. Texts are safe to show."""

    kind: Kind
    function: str
    text: str
    before: Node | None = None
    after: Node | None = None

    def __str__(self) -> str:
        return f"{SIGNS[self.kind]} {self.text}"


@dataclass(frozen=True, repr=False)
class Difference(TextReport):
    """All changes, and how many nodes differ only because one that they need does. False when there is nothing."""

    changes: tuple[Change, ...] = ()
    affected: int = 0
    same: int = 0
    operations: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Op name to how many there were and are, for ops whose number changed."""

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __repr__(self) -> str:
        return f"<Difference: {counted(len(self.changes), 'change')}, {counted(self.same, 'node')} the same>"

    def folded(self) -> list[tuple[Change, int]]:
        """The first of changes that are alike, and how many there are: of one kind, operation and types, as in the equal layers of
        a network; constants by their types."""
        alike: dict[tuple[Any, ...], list[Change]] = {}
        for c in self.changes:
            nodes = [None if n is None else (n.op, n.type, None if n.op is CONSTANT else n.attrs, *(i.type for i in n.inputs))
                     for n in (c.before, c.after)]
            alike.setdefault((c.function, c.kind, *nodes) if any(nodes) else (c,), []).append(c)
        return [(group[0], len(group)) for group in alike.values()]

    def lines(self) -> Iterator[str]:
        """A report: the changes by function, those that are alike once, then the counts."""
        last = None
        for change, count in self.folded():
            if change.function != last:
                last = change.function
                yield f"function {printable(last)}:"
            yield f"  {change}" + (f"  (and {count - 1} more like it)" if count > 1 else "")
        if self.changes:
            counts = Counter(c.kind for c in self.changes)
            listed = ", ".join(f"{counts[k]} {k}" for k in SIGNS if counts[k])
            yield f"{listed}; {self.affected} more differ only through these, {self.same} are the same"
            for name, (before, after) in self.operations.items():
                yield f"  {name}: {before} -> {after}"


def diff(a: Module, b: Module, *, commutative: bool = False, in_order: bool = False) -> Difference:
    """What is in `b` and not in `a`, and the other way round. Functions are compared by name, the entries with each other. With
    `commutative` the order of the operands of such operations does not count; with `in_order` what is left is paired as in `pairs`,
    so that what stands beside another counts as changed, not as removed and added."""
    numbers: dict[Any, int] = {}
    changes: list[Change] = []
    affected = same = 0
    for f, g in _function_pairs(a, b):
        if f is None or g is None:
            changes += _lone(f, g)
            continue
        found = _Pairing(f, g, numbers, commutative).difference(in_order)
        changes += found.changes
        affected += found.affected
        same += found.same
    return Difference(tuple(changes), affected, same, _operations(a, b) if changes else {})


def pairs(a: Module, b: Module) -> dict[Node, Node]:
    """Which node of `a` is which of `b`: nodes that compute the same, those that only became another in the same place, and of what
    is left operations of one kind and type in the same order, as two exporters of one model write them.
    """
    numbers: dict[Any, int] = {}
    found: dict[Node, Node] = {}
    for f, g in _function_pairs(a, b):
        if f is not None and g is not None:
            pairing = _Pairing(f, g, numbers)
            pairing.pair_equal()
            pairing.pair_rest()
            pairing.pair_in_order()
            found.update(pairing.partner)
    return found


def _lone(f: Function | None, g: Function | None) -> Iterator[Change]:
    kind: Kind = "added" if f is None else "removed"
    one = g if f is None else f
    assert one is not None
    yield Change(kind, one.name, printable(f"the whole function: {one.type}, {len(one.nodes)} nodes"))


def _function_pairs(a: Module, b: Module) -> Iterator[tuple[Function | None, Function | None]]:
    yield a.entry, b.entry
    names = dict.fromkeys(f.name for m in (a, b) for f in m.functions if f is not m.entry)
    for name in names:
        f, g = (m[name] if name in m and name != m.entry_name else None for m in (a, b))
        yield f, g


def _operations(a: Module, b: Module) -> dict[str, tuple[int, int]]:
    old, new = (Counter(n.op.name for f in m.functions for n in f.nodes if n.op is not PARAM) for m in (a, b))
    return {name: (old[name], new[name]) for name in sorted(old | new) if old[name] != new[name]}


def numbered(function: Function, numbers: dict[Any, int], commutative: bool = False) -> dict[Node, int]:
    """A number for every node, equal for nodes that compute the same from the parameters. `numbers` is shared by all functions
    that are compared; two loops are the same when they start alike and are met in the same order.
    """
    of: dict[Node, int] = {}
    loops: Counter[tuple[int, ...]] = Counter()
    for n in function.nodes:
        inputs = tuple(of[i] for i in n.inputs)
        if commutative and n.op.commutative:
            inputs = tuple(sorted(inputs))
        attrs: tuple[Any, ...] = n.attrs
        if n.op is LOOP_BEGIN:
            attrs = (loops[inputs],)
            loops[inputs] += 1
        of[n] = numbers.setdefault((n.op, attrs, n.type, inputs), len(numbers))
    return of


class _Pairing:
    """Which node of `f` is which of `g`."""

    def __init__(self, f: Function, g: Function, numbers: dict[Any, int], commutative: bool = False) -> None:
        self.f, self.g, self.commutative = f, g, commutative
        self.number_f, self.number_g = numbered(f, numbers, commutative), numbered(g, numbers, commutative)
        self.partner: dict[Node, Node] = {}
        self.taken: set[Node] = set()

    def difference(self, in_order: bool = False) -> Difference:
        """What differs between the two functions."""
        if self.is_same():
            return Difference(same=len(self.f.nodes))
        self.pair_equal()
        equal = len(self.partner)
        self.pair_rest()
        if in_order:
            self.pair_in_order()
        changes: list[Change] = []
        for n in self.f.nodes:
            other = self.partner.get(n)
            what = "" if other is None else self.how(n, other)
            if other is None:
                changes.append(Change("removed", self.f.name, describe(n), n, None))
            elif what:
                changes.append(Change("changed", self.f.name, what, n, other))
        changes += (Change("added", self.f.name, describe(n), None, n) for n in self.g.nodes if n not in self.taken)
        changes += self.result_changes()
        if not changes:
            changes.append(Change("changed", self.f.name, "operations that compute the same are shared in another way"))
        changed = sum(c.kind == "changed" and c.before is not None for c in changes)
        return Difference(tuple(changes), len(self.partner) - equal - changed, equal)

    def is_same(self) -> bool:
        """Isomorphic, results and parameters in order."""
        f, g = self.f, self.g
        if [self.number_f[r] for r in f.results] != [self.number_g[r] for r in g.results]:
            return False
        counts = Counter(self.number_f.values())
        if counts != Counter(self.number_g.values()):
            return False
        return len(counts) == len(f.nodes) or len(f.nodes) > ISOMORPHISM_LIMIT or self.is_isomorphic()

    def is_isomorphic(self) -> bool:
        """Decides where equal nodes occur several times: their users may be spread over them in another way."""
        import networkx

        graphs = []
        for function, number in ((self.f, self.number_f), (self.g, self.number_g)):
            graph: networkx.DiGraph[Any] = networkx.DiGraph()
            graph.add_nodes_from((n, {"number": number[n]}) for n in function.nodes)
            graph.add_edges_from((i, n) for n in function.nodes for i in n.inputs)
            graphs.append(graph)
        return bool(networkx.vf2pp_is_isomorphic(graphs[0], graphs[1], node_label="number"))

    def pair(self, x: Node, y: Node) -> None:
        self.partner[x] = y
        self.taken.add(y)

    def pair_equal(self) -> None:
        """Nodes of equal number, in order."""
        there: dict[int, deque[Node]] = defaultdict(deque)
        for n in self.g.nodes:
            there[self.number_g[n]].append(n)
        for n in self.f.nodes:
            if there[self.number_f[n]]:
                self.pair(n, there[self.number_f[n]].popleft())

    def pair_in_order(self) -> None:
        """Of what is left, the longest stretches of equal operations and types, one after another."""
        left, right = [n for n in self.f.nodes if n not in self.partner], [n for n in self.g.nodes if n not in self.taken]
        if max(len(left), len(right)) > IN_ORDER_LIMIT:
            return
        here, there = ([(n.op.name, n.type) for n in side] for side in (left, right))
        for a, b, size in SequenceMatcher(a=here, b=there, autojunk=False).get_matching_blocks():
            for x, y in zip(left[a : a + size], right[b : b + size], strict=True):
                self.pair(x, y)

    def pair_rest(self) -> None:
        """From results, parameters and equal names on: nodes of the same op, then their operands."""
        stack = list(zip(self.f.params, self.g.params, strict=False))
        stack += self.by_name()
        stack += list(zip(self.f.results, self.g.results, strict=False))[::-1]
        while stack:
            x, y = stack.pop()
            if x in self.partner or y in self.taken or (x.op is not y.op and not self.same_name(x, y)):
                continue
            self.pair(x, y)
            stack.extend(zip(x.inputs, self.operands(x, y), strict=False))

    def operands(self, x: Node, y: Node) -> tuple[Node, ...]:
        """Those of `y` in the order of those of `x`, where that may be chosen."""
        if self.commutative and y.op.commutative and x.op is y.op and len(x.inputs) == len(y.inputs) == 2:
            a, b = y.inputs
            given = [self.likeness(i, j) for i, j in zip(x.inputs, (a, b), strict=True)]
            swapped = [self.likeness(i, j) for i, j in zip(x.inputs, (b, a), strict=True)]
            return (b, a) if sum(swapped) > sum(given) else (a, b)
        return y.inputs

    def likeness(self, x: Node, y: Node) -> int:
        """How much speaks for two operands being each other's partner."""
        if self.partner.get(x) is y or self.number_f[x] == self.number_g[y]:
            return 2
        return int(x.op is y.op and x not in self.partner and y not in self.taken)

    def same_name(self, x: Node, y: Node) -> bool:
        return bool(x.name) and x.name == y.name

    def by_name(self) -> list[tuple[Node, Node]]:
        there: dict[str, Node] = {}
        for n in self.g.nodes:
            if n.name and n not in self.taken:
                there.setdefault(n.name, n)
        return [(n, there[n.name]) for n in self.f.nodes if n.name in there and n not in self.partner]

    def how(self, x: Node, y: Node) -> str:
        """In what the two differ themselves; nothing when only what they need differs."""
        if x.op is not y.op or len(x.inputs) != len(y.inputs):
            return f"{describe(x)}  ->  {describe(y)}"
        parts = []
        if x.op is not LOOP_BEGIN:
            for attr, v, w in zip(x.op.attrs, x.attrs, y.attrs, strict=True):
                if v != w:
                    parts.append(f"{attr.name} {_short(v)} -> {_short(w)}")
        if x.type != y.type:
            parts.append(f"type {x.type} -> {y.type}")
        for k, (i, j) in enumerate(zip(x.inputs, self.operands(x, y), strict=True)):
            if self.partner.get(i) is not j and self.number_f[i] != self.number_g[j]:
                parts.append(f"operand {k} {_name(i)} -> {_name(j)}")
        return printable(f"{describe(x)}: {', '.join(parts)}") if parts else ""

    def result_changes(self) -> Iterator[Change]:
        """Results that are another node than the partner of the old one, more or fewer of them; equal nodes shared otherwise."""
        f, g = self.f, self.g
        if len(f.results) != len(g.results):
            yield Change("changed", f.name, f"{len(f.results)} results -> {len(g.results)} results")
        for k, (x, y) in enumerate(zip(f.results, g.results, strict=False)):
            if self.partner.get(x) is not y and self.number_f[x] != self.number_g[y]:
                yield Change("changed", f.name, printable(f"result {k} {_name(x)} -> {_name(y)}"))


def _name(node: Node) -> str:
    return node.reference or f"#{node.serial} ({node.op.name})"


def _short(value: Any) -> str:
    text = str(value) if not isinstance(value, Sequence) or isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
