"""Folding by name scopes: one box for each module of the model, as its names tell, in an order that data takes.

Boxes are convex: no path leaves one and comes back, so the picture has no cycle but those of loops. Where a module is entered twice
it is two boxes. Weights, constants, what is computed of these alone, and loop variables go
into the box that uses them. Equal siblings are one box with a count, the
first of them open.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from deepx_graph.analysis.name_scopes import NO_LEVELS, Path, common_prefix
from deepx_graph.viz.folding.blocks import LISTED, contents, op_of
from deepx_graph.viz.folding.convex import convex_rows, joined_boxes
from deepx_graph.viz.folding.quotient import FoldGroup, Quotient
from deepx_graph.viz.folding.runs import join_neighbours
from deepx_graph.viz.view.labels import short
from deepx_graph.viz.view.model import Cluster, SourceOperator, ViewNode

FOLLOWERS = frozenset({"param", "constant", "phi", "proj"})
"""Kinds that go into the box of what uses them."""

ACTING = frozenset({"random", "effects", "linear"})
"""Families whose operations stay in sight although weights and constants are all that they take."""

FIXED = frozenset({"start", "if", "side", "region", "loop_begin", "loop_end", "result"})
"""Kinds that stay in sight."""

STANDING = FIXED | FOLLOWERS
"""Kinds that make no box of a scope by themselves."""

MANY = {"result": "results", "proj": "values of a loop"}
"""What many of a kind that stay in sight are together."""

INPUTS = 8
"""So many parameters without a path in their name are inputs to be seen; more are weights."""

LOOSE = 6
"""Of so many operations right in a scope each stays a box; more are one."""

MOST = 0.8
"""The share of a block's operations that its modules must have for it to be called after them."""

ROW = 3
"""So many equal siblings are drawn as one box."""

ENOUGH = 6
"""So many boxes, a row of equal ones among them, show how a model is built."""

Key = tuple[int | None, bool, Path, str]
"""Of a box: the frame it stands in, whether it is of the backward part, the scope, and what of the scope where not all of it."""


def by_scope(q: Quotient, limit: int) -> bool:
    """One box for each scope, as deep as the limit allows; False where names tell no scopes."""
    if not any(n.scope for n in q.view.nodes):
        return False
    scopes = {n.scope: n.scope for n in q.view.nodes}
    _close_loops(q)
    best = _deepest(q, limit, scopes)
    if len(best) > limit and (prefixed := _by_prefix(scopes)) != scopes:
        best = min(best, _deepest(q, limit, prefixed), key=len)
    if len(best) > limit:
        join_neighbours(best, limit)
    q.items, q.clusters = best.items, best.clusters
    q.sort()
    return True


def _close_loops(q: Quotient) -> None:
    """One box for each loop in which no module is: how random bits are made, say, or the recurrence of one module of several."""
    modules = {n.scope for n in q.view.nodes if n.kind == "op" and n.scope}
    frames = {c.id: c for c in q.clusters}
    heads = {i.cluster: q.view.nodes[i.members[0]] for i in q.items if q.view.nodes[i.members[0]].kind == "loop_begin"}
    inside: dict[int, list[int]] = {}
    for k, item in enumerate(q.items):
        at = item.cluster
        while at is not None:
            if at in heads:
                inside.setdefault(at, []).append(k)
            at = frames[at].parent
    parts, closed = [], set[int]()
    for frame, numbers in sorted(inside.items(), key=lambda f: -len(f[1])):  # outer ones first
        nodes = [q.view.nodes[m] for k in numbers for m in q.items[k].members]
        scopes = {n.scope for n in nodes if n.kind == "op"}
        helper = heads[frame].address.rpartition("#")[0]
        if len(scopes) <= 1 and (helper or (len(modules) > 1 and scopes <= modules)) and closed.isdisjoint(numbers):
            parts.append(FoldGroup(numbers, _helper(helper) or frames[frame].title, frames[frame].parent))
            closed.update(numbers)
    q.merge(parts)


def _deepest(q: Quotient, limit: int, scopes: Mapping[Path, Path]) -> Quotient:
    """The deepest folding within the limit, or the first that shows equal layers as one box; the shallowest where there is none."""
    grouping = _Grouping(q, scopes)
    paths = [p for p in scopes.values() if p]
    shallow = len(common_prefix(paths))
    best: Quotient | None = None
    for depth in range(shallow + 1, max(map(len, [*paths, *((*p, "") for p in grouping.holding)])) + 1):
        trial = q.copy()
        trial.merge(grouping.parts(range(len(q)), depth))
        rows = _fold_rows(trial, limit, depth, scopes)
        if best is not None and len(trial) > limit:
            break
        best = trial
        if rows and len(trial) >= ENOUGH:
            break
    if best is not None and len(best) > limit:
        _fold_series(best, limit, shallow + 1, scopes)
    return best or q


def _fold_series(q: Quotient, limit: int, depth: int, scopes: Mapping[Path, Path]) -> None:
    """Siblings of one name and successive numbers, whatever they hold, as one box, or as several where there is little else:
    `conv2_1 to conv2_6`."""
    inputs, outputs = q.neighbours()
    series: dict[Hashable, list[int]] = {}
    last: dict[int, str] = {}
    order = q.order(inputs, outputs)
    for k in order:
        item = q.items[k]
        nodes = [q.view.nodes[m] for m in item.members]
        path = common_prefix([scopes[n.scope] for n in nodes if n.scope])[:depth]
        if len(path) == depth and nodes[0].kind not in STANDING:
            last[k] = item.title if item.title is not None and "/" in item.title else path[-1]
            series.setdefault((item.cluster, nodes[0].backward, path[:-1], stem(path[-1])), []).append(k)
    rows = [row for same in series.values() if len(same) > 1 for row in convex_rows(same, order, inputs) if len(row) > 1]
    if len(q) - sum(len(row) - 1 for row in rows) < ENOUGH:
        rows = [list(part) for row in rows for part in _batches(row, max(2, -(-len(row) // (limit // 2))))]
    q.merge([FoldGroup(row, f"{last[row[0]]} to {last[row[-1]]}", q.items[row[0]].cluster) for row in rows])


def _batches(row: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (row[k : k + size] for k in range(0, len(row), size))


def next_level(q: Quotient, limit: int) -> bool:
    """One box for each scope right below the one that all have in common; False where that makes no picture within the limit."""
    scopes = {n.scope: n.scope for n in q.view.nodes}
    grouping = _Grouping(q, scopes)
    paths = [p for p in scopes if p]
    for depth in range(len(common_prefix(paths)) + 1, max(map(len, paths), default=0) + 1):
        trial = q.copy()
        trial.merge(grouping.parts(range(len(q)), depth))
        if len(trial) > limit:
            _fold_rows(trial, limit, depth, scopes)
        if len(trial) > limit:
            _fold_series(trial, limit, depth, scopes)
        if 1 < len(trial) <= limit:
            q.items, q.clusters = trial.items, trial.clusters
            q.sort()
            return True
    return False


def _by_prefix(paths: Iterable[Path]) -> dict[Path, Path]:
    """Paths in which siblings `down_conv` and `down_norm` are `conv` and `norm` of a scope `down`; a number is no name."""
    known = dict.fromkeys(paths)
    children = {p[: k + 1] for p in known for k in range(len(p))}
    shared = Counter((c[:-1], _PREFIX.match(c[-1])[1]) for c in children if _PREFIX.match(c[-1]))  # type: ignore[index]
    found = {}
    for path in known:
        parts: list[str] = []
        for k, part in enumerate(path):
            match = _PREFIX.match(part)
            parts += (match[1], match[2]) if match and shared[path[:k], match[1]] > 1 else (part,)
        found[path] = tuple(parts)
    return found


_PREFIX = re.compile(r"([A-Za-z]\w*?(?:_\d+)?)_([A-Za-z]\w*)$")


def many_of_a_kind(q: Quotient, numbers: Iterable[int]) -> list[FoldGroup]:
    """One box for many results among these items, and one for many values of one loop."""
    inputs, _ = q.neighbours()
    found: dict[Hashable, list[int]] = {}
    for k in numbers:
        kind, item = q.outer(k).kind, q.items[k]
        if kind in MANY and item.title is None:
            found.setdefault((item.cluster, kind, *(inputs[k] if kind == "proj" else ())), []).append(k)
    return [FoldGroup(some, f"{len(some):,} {MANY[q.outer(some[0]).kind]}", q.items[some[0]].cluster)
            for some in found.values() if INPUTS < len(some) < len(q)]


class _Grouping:
    """The scopes of the items of a quotient, and the boxes that they make."""

    def __init__(self, q: Quotient, scopes: Mapping[Path, Path]) -> None:
        self.q, self.scopes = q, scopes
        self.inputs, self.outputs = q.neighbours()
        self.order = q.order(self.inputs, self.outputs)
        self.first = [q.view.nodes[i.members[0]] for i in q.items]
        self.fixed = [i.structural if i.title else n.kind in STANDING for i, n in zip(q.items, self.first, strict=True)]
        self.home = self._homes()
        self.operator = [None if i.title is None else self._one_operator(i.members) for i in q.items]
        self.holding = {self._common(i.members) for i, o in zip(q.items, self.operator, strict=True) if o is not None}
        """Scopes of operators of the source that are boxes by themselves, which are a level more."""
        self.around = {p[:k] for p in scopes.values() for k in range(len(p))} | self.holding

    def _common(self, members: Sequence[int]) -> Path:
        return common_prefix([self.scopes[scope] for m in members if (scope := self.q.view.nodes[m].scope)])

    def _one_operator(self, members: Sequence[int]) -> SourceOperator | None:
        """The operator of the source that all of these were read from."""
        found = {n.operator for m in members if (n := self.q.view.nodes[m]).kind == "op"}
        return found.pop() if len(found) == 1 else None

    def _homes(self) -> list[int]:
        """For each item the one that it follows into its box; itself for what stays where it is."""
        home = list(range(len(self.q)))
        inputs = sum(n.kind == "param" and not n.weight for n in self.first)
        few = inputs <= INPUTS
        given: set[int] = set()
        steady: set[int] = set()
        for k in self.order:
            node = self.first[k]
            follows = node.kind in FOLLOWERS and (node.kind != "param" or node.weight or not few)
            derived = inputs and node.kind == "op" and node.family not in ACTING and node.id not in self.q.view.fed and \
                steady.issuperset(self.inputs[k])
            if self.q.items[k].title is None and (follows or derived):
                given.add(k)
                if node.kind in ("param", "constant", "op"):
                    steady.add(k)
        for k in reversed(self.order):
            if k in given:
                users = [home[u] for u in self.outputs[k] if not self.fixed[home[u]]]
                if users:
                    home[k] = min(users, key=lambda u: (self.first[u].backward, u))
        return home

    def key(self, k: int, depth: int) -> Key | None:
        """What items must share to be of one box with this one, which follows none; None for one that stands for itself."""
        if self.fixed[k]:
            return None
        node, item, operator = self.first[k], self.q.items[k], self.operator[k]
        path = self.scopes[node.scope] if item.title is None else self._common(item.members)
        if operator is not None and len(path) < depth:
            return item.cluster, node.backward, path, f"operator {operator.start}"
        whole = len(path) >= depth or (path and path not in self.around)
        return item.cluster, node.backward, path[:depth], "" if whole else "rest"

    def _keys(self, numbers: Iterable[int], depth: int) -> dict[int, Key | None]:
        """The key of each item: that of the one that it follows into its box."""
        found: dict[int, Key | None] = {}
        of: dict[int, Key | None] = {}
        for k in numbers:
            home = self.home[k]
            if home not in of:
                of[home] = self.key(home, depth)
            found[k] = of[home]
        return found

    def parts(self, numbers: Iterable[int], depth: int, cluster: Cluster | None = None) -> list[FoldGroup]:
        """The boxes of these items at a depth, convex, in the order of data; few operations right in a scope stay apart."""
        keys = self._keys(numbers, depth)
        self._draw_in(keys)
        loose: dict[Key, set[Hashable]] = {}
        for k, key in keys.items():
            if key and key[3] and self.home[k] == k:
                loose.setdefault(key, set()).add(self._unit(k))
        found: list[FoldGroup] = []
        many = many_of_a_kind(self.q, [k for k in keys if self.first[k].kind == "result" or keys[k] is None])
        for k, key in keys.items():
            if key and key[3].startswith("rest") and len(loose.get(key, ())) <= LOOSE:
                keys[k] = (*key[:3], f"rest {self._unit(self.home[k])}")
        boxes = self._convex(keys)
        names = _names({key[2] for key, _ in boxes})
        for key, members in boxes:
            if len(members) > 1:
                ops = [k for k in members if self.home[k] == k]
                title = names[key[2]] if key[2] and not key[3] else \
                    _title([self.q.view.nodes[m] for k in ops for m in self.q.items[k].members])
                follow = [k for k in members if self.home[k] != k]
                found.append(FoldGroup(ops + follow, title, cluster.id if cluster else key[0]))
        return found + many

    def _unit(self, k: int) -> Hashable:
        """What stays together of what lies right in a scope: an operator of the source whose sort is told, else the item itself."""
        operator = self.first[k].operator
        return operator if operator is not None and operator.kind and self.q.items[k].title is None else k

    def _draw_in(self, keys: dict[int, Key | None]) -> None:
        """What lies right in a scope, comes from one box in it and feeds nothing else goes into that box: a sum between two parts
        of it, which else would be two boxes."""
        loose = {k for k, key in keys.items() if key and key[3]}
        if not loose:
            return
        feeds: dict[int, Key | None] = {}
        for k in reversed(self.order):
            if k in loose:
                users = {feeds.get(u) if u in loose else keys.get(u) for u in self.outputs[k]}
                feeds[k] = users.pop() if len(users) == 1 else None
        moved = set()
        for k in self.order:
            goal, key = feeds.get(k), keys.get(k)
            if goal is not None and key is not None and key[:2] == goal[:2] and any(keys.get(i) == goal for i in self.inputs[k]):
                keys[k] = goal
                moved.add(k)
        for k in keys:
            if self.home[k] in moved:
                keys[k] = keys[self.home[k]]

    def _convex(self, keys: dict[int, Key | None]) -> list[tuple[Key, list[int]]]:
        """Items of equal keys, apart where a path leads out of them and back.

        The level of an item is how often a path to it changes the key: between boxes of one key and level it only grows, so there
        is no cycle. What follows another goes to the level of that, unless a box below takes it too.
        """
        code: dict[Key, int] = {}
        names = {k: ~k if key is None else code.setdefault(key, len(code)) for k, key in keys.items()}
        level: dict[int, int] = {}
        for k in self.order:
            if k in names:
                own, at = names[k], 0
                for i in self.inputs[k]:
                    if i in names:
                        below = level[i] + (names[i] != own)
                        if below > at:
                            at = below
                level[k] = at
        for k in reversed(self.order):
            if self.home[k] != k and k in names:
                lifted = level.get(self.home[k], 0)
                if all(level[u] >= lifted + (names[u] != names[k]) for u in self.outputs[k] if u in names):
                    level[k] = lifted
        boxes: dict[tuple[int, int], list[int]] = {}
        for k, name in names.items():
            boxes.setdefault((name, level[k]), []).append(k)
        told = list(code)
        return [(told[name], members) for name, members in joined_boxes(boxes, self.inputs, names) if name >= 0]


def _names(paths: Iterable[Path]) -> dict[Path, str]:
    """The last part of each path, or as many of the last as tell it from the others, `encoder/layers.0`, down to one that is no
    number."""
    alike: dict[str, list[Path]] = {}
    for path in filter(None, paths):
        alike.setdefault(path[-1], []).append(path)
    found: dict[Path, str] = {}
    for same in alike.values():
        count = next(k for k in range(1, max(map(len, same)) + 1) if len({p[-k:] for p in same}) == len(same))
        for path in same:
            named = next((k for k in range(count, len(path)) if not path[-k].isdigit()), len(path))
            found[path] = "/".join(path[-named:])
    return found


def _title(nodes: Sequence[ViewNode]) -> str:
    """Of what lies right in a scope: the helpers that most of it is the code of, else its operations."""
    helpers = Counter(name for n in nodes if (name := _helper(n.address.rpartition("#")[0])) not in NO_LEVELS)
    if helpers.total() > 2 * helpers.pop("", 0):
        return short(" + ".join(name for name, _ in helpers.most_common(LISTED)), 48)
    return contents(nodes)


def _helper(name: str) -> str:
    """A function as the program calls it: `relu` of `_relu_3`, a copy that the compiler numbered."""
    return _COPY.sub("", name).lstrip("_")


_COPY = re.compile(r"[._]\d+$")
_NUMBER = re.compile(r"\d+$")


def stem(title: str) -> str:
    """A name without the number at its end, by which siblings differ: `Blk` of `Blk_3`."""
    return _NUMBER.sub("", title).rstrip("_.-") or title


def block_name(q: Quotient, nodes: Sequence[ViewNode]) -> str:
    """Of operations that repeat: the modules that most of them are of, `norm + layers` of `norm_1` and `layers_1`; else what they
    are."""
    around = len(common_prefix([n.scope for n in q.view.nodes if n.scope]))
    modules = [n.scope[around : around + 1] for n in nodes if n.kind == "op"]
    names = dict.fromkeys(stem(path[0]) for path in modules if path)
    if names and len(names) <= LISTED and sum(map(bool, modules)) > MOST * len(modules):
        return short(" + ".join(names), 48)
    return contents(nodes)


def _look(q: Quotient, k: int) -> Hashable:
    """What equal siblings have in common."""
    item = q.items[k]
    nodes = [q.view.nodes[m] for m in item.members]
    ops = Counter([(op_of(n), n.shape) for n in nodes if n.kind not in FOLLOWERS])
    return item.cluster, stem(item.title or ""), frozenset(ops.items())


def _fold_rows(q: Quotient, limit: int, depth: int, scopes: Mapping[Path, Path]) -> bool:
    """Equal siblings as one box, the first of each row open where the limit allows; whether there are any."""
    inputs, outputs = q.neighbours()
    alike: dict[Hashable, list[int]] = {}
    order = q.order(inputs, outputs)
    for k in order:
        item = q.items[k]
        if item.title is not None and len(item.members) > ROW and q.view.nodes[item.members[0]].scope:
            alike.setdefault(_look(q, k), []).append(k)
    rows = [row for same in alike.values() if len(same) >= ROW for row in convex_rows(same, order, inputs) if len(row) >= ROW]
    firsts = [q.items[row[0]] for row in rows]
    groups = []
    for row in rows:
        first = q.items[row[0]]
        groups.append(FoldGroup(row[1:], _row_title(q, row), first.cluster, (), len(row) - 1))
    q.merge(groups)
    for first in firsts:
        trial = q.copy()
        _open_by_scope(trial, next(k for k, i in enumerate(trial.items) if i is first), depth + 1, scopes)
        if len(trial) <= limit:
            q.items, q.clusters = trial.items, trial.clusters
    return bool(rows)


def _row_title(q: Quotient, row: Sequence[int]) -> str:
    """Of all but the first of a row: `Blk_1 to Blk_11`."""
    first, last = (q.items[k].title or "" for k in (row[1], row[-1]))
    return first if first == last else f"{first} to {last}"


def _open_by_scope(q: Quotient, number: int, depth: int, scopes: Mapping[Path, Path]) -> None:
    """Draws what a box holds as the boxes of the scopes in it, in a frame of its name."""
    q.open(number)
    opened = q.clusters[-1]
    inside = [k for k, i in enumerate(q.items) if i.cluster == opened.id]
    grouping = _Grouping(q, scopes)
    q.merge(grouping.parts(inside, depth, opened))
