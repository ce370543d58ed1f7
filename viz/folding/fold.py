"""Folding: a picture of any size brought down to as many boxes as a reader and a layout engine can take.

Steps run in order and only as far as needed: frames of fusions, the scopes that names tell, blocks that repeat, chains of
elementwise ops, small frames when there are too many, and last runs of nodes in source order. Every step is near-linear. The bound
always holds, no path leaves a box and comes back, and what was done is said in the notes of the view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby, pairwise
from typing import NamedTuple

from deepx_graph.errors import counted
from deepx_graph.viz.folding.blocks import QUIET, best_period, contents
from deepx_graph.viz.folding.operators import by_chain, by_kernel, by_operator, with_loops
from deepx_graph.viz.folding.parallel import by_part, open_first
from deepx_graph.viz.folding.quotient import AFTER, FoldGroup, Quotient
from deepx_graph.viz.folding.runs import between_joins, cut_in_runs
from deepx_graph.viz.folding.scopes import INPUTS, MANY, ROW, block_name, by_scope, many_of_a_kind, next_level
from deepx_graph.viz.view.labels import short
from deepx_graph.viz.view.model import Cluster, View

Steps = tuple[tuple[str, Callable[[Quotient, int], bool]], ...]
"""What may be done to a view, by name."""

MAX_NODES = 500
"""Up to here a layout engine is quick and a picture still readable, to one who looks for something in it."""

OVERVIEW = 40
"""The boxes of a first picture: as many as a reader takes in."""


ROUNDS = 6
"""How often repeats are looked for again, each time among the blocks found before."""


ALMOST = 0.9
"""A box of a larger share of a view says nothing of it: opened, it would be that view again."""


def fold(view: View, max_nodes: int = MAX_NODES) -> View:
    """The view itself when it has at most `max_nodes` (4 or more) nodes, else a coarser one that has, with a note saying so."""
    max_nodes = max(4, max_nodes)
    return view if len(view.nodes) <= max_nodes else _coarser(_Start(Quotient(view)), max_nodes).view()


def fold_inside(view: View, max_nodes: int) -> View:
    """What a box holds, as `fold` does it, but for a view that would be little else than one box: a row of equal blocks is several
    boxes then, and what is no row is cut in runs."""
    if len(view.nodes) <= max_nodes:
        return view
    whole = Quotient(view)
    whole.order(*whole.neighbours())  # known to all copies
    found = _coarser(_Start(whole.copy()), max_nodes)
    if found.rows is not None and 2 * _largest(found.q) > len(view.nodes):
        found = _coarser(found.rows._replace(q=found.rows.q.copy(apart=True)), max_nodes)
    return (_coarser(_Start(whole, LAST), max_nodes) if _largest(found.q) > ALMOST * len(view.nodes) else found).view()


def _largest(q: Quotient) -> int:
    return max(len(i.members) for i in q.items)


class _Start(NamedTuple):
    """Where folding begins: what there is, the steps that may be taken (None for all of them), and what was done before these."""

    q: Quotient
    steps: Steps | None = None
    done: tuple[str, ...] | None = None


class _Coarser(NamedTuple):
    """A folded quotient, what was done to it, and where the step began that first met rows of equal parts; None where none did."""

    q: Quotient
    done: tuple[str, ...]
    rows: _Start | None

    def view(self) -> View:
        """The picture of it. To make it takes about as long as to fold, so only what is shown is made."""
        folded, total = self.q.to_view(), sum([n.size for n in self.q.view.nodes])
        drawn = counted(len(folded.nodes), "box", "boxes")
        return folded.noted(f"folded: {total:,} nodes drawn as {drawn} ({', '.join(self.done)})")


def _coarser(start: _Start, max_nodes: int) -> _Coarser:
    """A quotient made coarser, to at most so many items."""
    q, rows = start.q, None
    looped = "operators with loops"
    done = list(start.done) if start.done is not None else [looped] if with_loops(q) else []
    steps = start.steps or STEPS
    for k, (name, step) in enumerate(steps):
        if len(q) > max_nodes or done == [looped]:
            before = None if q.rows else _Start(q.copy(), steps[k:], tuple(done))
            if step(q, max_nodes):
                done.append(name)
            rows = rows or (before if q.rows else None)
    if not {*done} <= {"parts alike", "scopes"}:
        _show_one(q, max_nodes)
    open_first(q, max_nodes)
    _condense(q)
    return _Coarser(q, tuple(done), rows)


def open_scope(view: View, max_nodes: int) -> View | None:
    """The view, of one scope, as the scopes in it; None where names tell none, or too many to draw."""
    if len({n.scope for n in view.nodes if n.scope}) < 2:
        return None
    q = Quotient(view)
    if not next_level(q, max_nodes):
        return None
    _condense(q)
    return q.to_view() if len(q) > 1 else None


def _cones(q: Quotient, limit: int) -> bool:
    """What one operation alone takes, with it: first constants and what only moves elements, then what is computed element by
    element, then all (fanout-free cones). False, and nothing done, above the limit."""
    if _fewest_cones(q) > limit:
        return False
    trial = q.copy()
    for heaviest in range(3):
        if len(trial) > limit:
            _with_users(trial, heaviest)
            _weights(trial, limit)
    if len(trial) > limit:
        return False
    q.items, q.clusters = trial.items, trial.clusters
    return True


def _with_users(q: Quotient, heaviest: int) -> None:
    """Each item that is as light as that, and has one user, with the user."""
    inside: dict[int, list[int]] = {}
    for k, user in enumerate(_homes(q, heaviest)):
        if user != k:
            inside.setdefault(user, []).append(k)
    q.merge(q.joined(user, some, _called(q, user, some if heaviest else ())) for user, some in inside.items())


def _homes(q: Quotient, heaviest: int) -> list[int]:
    """For each item the one whose box it goes into: that of its only user where it is as light as that, else its own."""
    inputs, outputs = q.neighbours()
    items, nodes = q.items, q.view.nodes
    home = list(range(len(items)))
    for k in reversed(q.order(inputs, outputs)):
        some = outputs[k]
        if not some or (len(some) > 1 and len({home[u] for u in some}) > 1):
            continue
        item, user = items[k], home[some[0]]
        node = nodes[item.members[0]]
        moves = node.kind == "constant" or (node.kind == "op" and node.family in QUIET)
        weight = 0 if moves and item.title is None else 1 if moves or item.elementwise else 2 if node.kind == "op" else 3
        if weight <= heaviest and items[user].cluster == item.cluster and not items[user].structural:
            home[k] = user
    return home


def _fewest_cones(q: Quotient) -> int:
    """What `_cones` leaves at least, known before any box is made and named. Weights and constants beside what takes them only give
    a cone more users; 0 where other kinds are many, whose boxes may make one user of several."""
    nodes = [q.view.nodes[item.members[0]] for item in q.items]
    if max(Counter(n.kind for n in nodes if n.kind in ("phi", *MANY)).values(), default=0) > INPUTS:
        return 0
    return sum(user == k and (n.kind not in ("param", "constant") or item.title is not None)
               for k, (user, n, item) in enumerate(zip(_homes(q, 2), nodes, q.items, strict=True)))  # fmt: skip


def _called(q: Quotient, number: int, others: Iterable[int] = ()) -> str:
    """What an item is called: as before, else by what it holds and others hold."""
    return q.items[number].title or contents([q.view.nodes[m] for k in (number, *others) for m in q.items[k].members])


def _condense(q: Quotient) -> None:
    q.condense(lambda members: contents([q.view.nodes[m] for m in members]))


def _repeats(q: Quotient, limit: int) -> bool:
    """One box for every repeat of a block, with what only it takes; then one box for a row of equal blocks.

    Where too much is left, one box for what lies between two joins instead; where one box holds most of the program, small cones.
    """
    before, plain = q.copy(), q.copy()
    found = _repeated(q, limit)
    if len(q) > limit and between_joins(before, limit):
        q.items, q.clusters = before.items, before.clusters
        q.merge(_rows(q, limit))
        found = True
    most = max((len(i.members) for i in q.items if i.times < ROW), default=0)
    if len(q) <= limit and 2 * most > len(q.view.nodes) and _cones(plain, limit):
        q.items, q.clusters = plain.items, plain.clusters
    return found


def _repeated(q: Quotient, limit: int) -> bool:
    """One box for every repeat of a block, and for a row of equal blocks."""
    found = False
    for _ in range(ROUNDS):
        parts = [part for sequence in q.sequences() for part in _blocks(q, sequence)]
        if not parts:
            break
        q.merge(parts)
        q.merge(_own(q))
        found = True
        if len(q) > limit:
            q.merge(_rows(q, limit))
        if len(q) <= limit:
            break
    if found:
        q.merge(_rows(q, limit, show_first=True))
    return found


def _blocks(q: Quotient, sequence: list[int]) -> Iterator[FoldGroup]:
    """The repeats of the block that explains most of a sequence."""
    free = [k for k in sequence if not q.items[k].structural]
    period, places = best_period([q.items[k].token for k in free])
    if sum(n * period for _, n in places) < max(4, len(free) // 4):
        return
    for start, repeats in places:
        name = block_name(q, [q.view.nodes[m] for k in free[start : start + period] for m in q.items[k].members])
        for r in range(repeats):
            block = free[start + r * period : start + (r + 1) * period]
            yield FoldGroup(block, name, q.items[block[0]].cluster, place=f"{r + 1} of {repeats:,}")


def _own(q: Quotient) -> Iterator[FoldGroup]:
    """Each block, where it stands, with the parameters and constants that nothing else takes: its weights.

    Weights come in any order, so they have no say in where a block stands, nor their order in how it looks.
    """
    users: dict[int, set[int]] = {}
    for s, t in q.links():
        users.setdefault(s, set()).add(t)
    taken: dict[int, list[int]] = {}
    for k, into in users.items():
        if len(into) == 1 and q.items[k].title is None and q.outer(k).kind in ("param", "constant"):
            (user,) = into
            if q.items[user].title is not None and q.items[user].cluster == q.items[k].cluster:
                taken.setdefault(user, []).append(k)
    common: dict[Hashable, Counter[Hashable]] = {}
    for k, item in enumerate(q.items):
        if item.title is not None:  # what only some of the equal blocks take is no part of them: the input of the first one
            own = Counter(q.items[w].token for w in taken.get(k, ()))
            common[item.token] = common[item.token] & own if item.token in common else own
    for block, weights in taken.items():
        left = Counter(common[q.items[block].token])
        own_weights = []
        for w in reversed(weights):
            if left[q.items[w].token] > 0:
                left[q.items[w].token] -= 1
                own_weights.append(w)
        if own_weights:
            own_weights.sort(key=lambda w: repr(q.items[w].token))
            yield q.joined(block, own_weights)


def _rows(q: Quotient, limit: int, show_first: bool = False) -> list[FoldGroup]:
    """Equal groups that stand in a row; with `show_first` all but the first, where that can be opened.

    A view that is itself such a row is cut into runs of blocks, so that opening it leads on.
    """
    rows: list[FoldGroup] = []
    for sequence in q.sequences():
        free = [k for k in sequence if not q.items[k].structural]
        for _, same in groupby(free, key=lambda k: q.items[k].token):
            row = list(same)
            title = q.items[row[0]].title
            if len(row) < 2 or title is None:
                continue
            cluster = q.items[row[0]].cluster
            q.rows.append(row)
            if q.apart:
                rows += _runs_of(row, title, cluster, max(2, limit // 2))
            elif show_first and len(row) > 2 and len(q) - len(row) + 2 + len(q.items[row[0]].members) <= limit:
                rows.append(FoldGroup(row[1:], title, cluster, times=len(row) - 1, place=AFTER))
            else:
                rows.append(FoldGroup(row, title, cluster, times=len(row)))
    return rows


def _runs_of(row: list[int], name: str, cluster: int | None, most: int) -> Iterator[FoldGroup]:
    """The row in at most `most` runs of neighbours; itself when it is no longer."""
    if len(row) <= most:
        return
    cuts = [len(row) * k // most for k in range(most + 1)]
    for a, b in pairwise(cuts):
        yield FoldGroup(row[a:b], name, cluster, place=f"{a + 1:,} to {b:,} of {len(row):,}")


def _weights(q: Quotient, limit: int) -> bool:
    """Many parameters, the constants beside them and many loop variables, each with the first that takes it; many results, and many
    values of one loop, as one box."""
    outer = [q.outer(k) for k in range(len(q))]
    params = sum(n.kind == "param" for n in outer)
    given = [kind for kind, some in (("param", params), ("constant", params + sum(n.kind == "constant" for n in outer)),
                                     ("phi", sum(n.kind == "phi" for n in outer))) if some > INPUTS]  # fmt: skip
    groups: dict[int, list[int]] = {}
    if given:
        inputs, outputs = q.neighbours()
        place = {k: i for i, k in enumerate(q.order(inputs, outputs))}
        for k, item in enumerate(q.items):
            if outer[k].kind in given and item.title is None and outputs[k]:
                user = min(outputs[k], key=place.__getitem__)
                if q.items[user].cluster == item.cluster and not q.items[user].structural:
                    groups.setdefault(user, []).append(k)
    q.merge([
        *(q.joined(user, given, _called(q, user)) for user, given in groups.items()),
        *many_of_a_kind(q, range(len(q))),
    ])  # fmt: skip
    return bool(groups)


def _frames(q: Quotient, limit: int) -> bool:
    """When there are too many frames: one box for each of those that stand too deep; of many functions the largest stays open."""
    sequences = q.sequences()
    if len(sequences) <= max(1, limit // 4):
        return False
    depth: dict[int | None, int] = {None: -1}
    for c in q.clusters:
        depth[c.id] = depth[c.parent] + 1
    open_down_to = -1
    counts = Counter(depth[q.items[s[0]].cluster] for s in sequences)
    total = 0
    for level in range(max(counts) + 1):
        total += counts[level]
        if total > limit // 4:
            break
        open_down_to = level
    closed: dict[int | None, Cluster] = {}
    for c in q.clusters:
        if depth[c.id] == open_down_to + 1:
            closed[c.id] = c
        elif c.parent in closed:
            closed[c.id] = closed[c.parent]
    groups: dict[int, list[int]] = {}
    for k, item in enumerate(q.items):
        if item.cluster in closed:
            groups.setdefault(closed[item.cluster].id, []).append(k)
    if open_down_to < 0:
        groups.pop(max(groups, key=lambda id: len(groups[id])))
    by_id = {c.id: c for c in q.clusters}
    q.merge([FoldGroup(g, by_id[id].title, by_id[id].parent) for id, g in groups.items()])
    return True


def _show_one(q: Quotient, limit: int) -> None:
    """Opens the first of several boxes that look the same, or that says it is the first, where the limit allows."""
    alike: dict[object, list[int]] = {}
    rows = {i.title for i in q.items if i.place == AFTER}
    for k, item in enumerate(q.items):
        operators = {q.view.nodes[m].operator for m in item.members if q.view.nodes[m].kind == "op"}
        if item.title is not None and (None in operators or len(operators) > 1):
            alike.setdefault(item.title if item.title in rows else (item.token, item.title), []).append(k)
    first = next((ks[0] for ks in alike.values()
                  if (len(ks) > 1 or q.items[ks[0]].title in rows) and q.outer(ks[0]).kind != "result"), None)
    if first is not None and len(q) + len(q.items[first].members) <= limit:
        q.open(first)
        by_operator(q, limit)


STEPS: Steps = (
    ("fusions", by_kernel), ("parts alike", by_part), ("scopes", by_scope), ("operators", by_operator),
    ("repeated blocks", _repeats), ("chains", by_chain), ("weights with their users", _weights), ("frames", _frames),
    ("runs in source order", cut_in_runs),
)  # fmt: skip

LAST: Steps = STEPS[-1:]
"""The step that always finds boxes."""


# --- hubs -----------------------------------------------------------------------------------------------------------


USERS = 12
"""A parameter or constant with more edges than this is a hub."""


def inline_hubs(view: View) -> View:
    """The view with hubs written into their users as `takes x`, and a note that says so; itself when there is none."""
    fans: dict[int, int] = {}
    for e in view.edges:
        fans[e.source] = fans.get(e.source, 0) + 1
    hubs = {n.id: n.title for n in view.nodes if n.kind in ("param", "constant") and fans.get(n.id, 0) > USERS}
    if not hubs:
        return view
    taken: dict[int, dict[str, None]] = {}
    for e in view.edges:
        if e.source in hubs:
            taken.setdefault(e.target, {})[hubs[e.source]] = None
    nodes = tuple(
        n._replace(below=f"{n.subtitle}\n{short('takes ' + ', '.join(taken[n.id]))}".strip()) if n.id in taken
        else n._replace(below=f"{n.subtitle}\nfeeds {fans[n.id]} boxes".strip()) if n.id in hubs else n
        for n in view.nodes
    )  # fmt: skip
    edges = tuple(e for e in view.edges if e.source not in hubs)
    names = short(", ".join(hubs.values()), 60)
    return replace(view, nodes=nodes, edges=edges).noted(f"{names}: written into the boxes that take it, not drawn as edges")
