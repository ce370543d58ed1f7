"""What is drawn inside of what: functions opened where they are called, blocks of the schedule as frames, and the forward and
backward halves of a gradient program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from deepx_graph.analysis.schedule import Block, Eval, IfStep, LoopStep, Once, schedule
from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import CALL, PARTIAL, callee_of
from deepx_graph.viz.view.labels import loop_name, selects_by_bool, side_name
from deepx_graph.viz.view.model import Canvas, Cluster, View, ViewEdge, ViewNode

SMALL = 32
"""A function that is drawn as at most so many nodes is opened wherever it is called."""

MOST_COPIES = 20_000
"""Nodes drawn because helpers are opened more than once, at most; else only functions that are called once are."""


class Helpers:
    """The functions of a module that are drawn where they are called."""

    def __init__(self, module: Module) -> None:
        self._module = module
        named = {f.name: list(_named(f)) for f in module.functions}
        times = Counter(name for f in module.functions for name in _called(f))
        closed = Counter(name for names in named.values() for name in names)
        self._opened: set[str] = set()
        size: dict[str, int] = {}
        copies = 0
        for f in _callees_first(module, named):
            size[f.name] = len(f.nodes) + sum(size[c] for c in _called(f) if c in self._opened)
            often = times[f.name] > 1
            by_call_only = closed[f.name] == times[f.name] > 0
            if f.name == module.entry_name or not by_call_only or (often and size[f.name] > SMALL):
                continue
            copies += size[f.name] * (times[f.name] - 1)
            if not often or copies <= MOST_COPIES:
                self._opened.add(f.name)

    def opened(self, call: Node) -> Function | None:
        """The function to draw in place of a call; None to draw the call."""
        return self._module[callee_of(call)] if call.op is CALL and callee_of(call) in self._opened else None

    def drawn(self) -> list[Function]:
        """The functions with a frame of their own: the entry and what it reaches, without those that are opened."""
        alive: set[str] = set()
        stack = [self._module.entry_name]
        while stack:
            name = stack.pop()
            if name not in alive and name in self._module:
                alive.add(name)
                stack += _named(self._module[name])
        return [f for f in self._module.functions if f.name in alive and f.name not in self._opened]


def _called(function: Function) -> Iterator[str]:
    """The functions that it calls, once for each call."""
    return (callee_of(n) for n in function.nodes if n.op is CALL)


def _named(function: Function) -> Iterator[str]:
    """The functions that it calls, or makes values of."""
    return (callee_of(n) for n in function.nodes if n.op in (CALL, PARTIAL))


def _callees_first(module: Module, named: dict[str, list[str]]) -> Iterator[Function]:
    """Functions after all that they name; those that reach themselves, and what needs them, never."""
    waiting = {name: len({c for c in callees if c in named}) for name, callees in named.items()}
    callers: dict[str, list[str]] = {name: [] for name in named}
    for name, callees in named.items():
        for c in {c for c in callees if c in named}:
            callers[c].append(name)
    ready = [name for name, count in waiting.items() if not count]
    while ready:
        name = ready.pop()
        yield module[name]
        for caller in callers[name]:
            waiting[caller] -= 1
            if not waiting[caller]:
                ready.append(caller)


Head = Node | tuple[Node, int] | None
"""What leads to a branch or loop: the side of an If, as `(region, branch)`, the head of a loop, None for the function's start."""


@dataclass
class Frames:
    """The schedule's blocks as nested clusters of a function; a node that is in none of the maps stands in `root`.

    A branch and a loop are a cluster each, the test and the body of a loop share one. What a loop needs once stands outside its
    frame where it runs for certain, and else in a frame `once` inside.
    """

    root: int
    home: dict[Node, int] = field(default_factory=dict)
    sides: dict[Node, tuple[int, ...]] = field(default_factory=dict)
    """The cluster of each branch of a region."""
    control: dict[Node, Head] = field(default_factory=dict)
    """What leads to a region or loop_end."""


@dataclass(frozen=True)
class _Frame:
    """Where the nodes of a block are drawn, what leads there, and the loops of which each run reaches the block for certain."""

    cluster: int
    head: Head
    sure: frozenset[Node] = frozenset()


def frames(function: Function, canvas: Canvas, root: int) -> Frames:
    """Adds the clusters of a function inside the cluster `root`. Raises VerifyError where the function has no schedule."""
    found = Frames(root)
    around: dict[Node, _Frame] = {}
    stack = [(schedule(function).root, _Frame(root, None))]
    while stack:
        block, place = stack.pop()
        inner: list[tuple[Block, _Frame]] = []
        for step in block.steps:
            match step:
                case Eval(node):
                    found.home[node] = place.cluster
                case Once(block=once, loop=loop):
                    inner.append((once, around[loop] if loop in place.sure else _once(place, canvas)))
                case IfStep():
                    inner += _branches(step, place, found, canvas)
                case LoopStep():
                    around[step.node] = place
                    inner += _loop(step, place, found, canvas)
        stack += reversed(inner)
    return found


def _once(place: _Frame, canvas: Canvas) -> _Frame:
    """The frame of what runs at most once while the loop around it goes on, and perhaps never."""
    return _Frame(canvas.cluster("once", "once", place.cluster), place.head)


def _branches(step: IfStep, place: _Frame, found: Frames, canvas: Canvas) -> list[tuple[Block, _Frame]]:
    region = step.node
    found.home[region], found.control[region] = place.cluster, place.head
    names = [side_name(b, len(step.branches), selects_by_bool(region)) for b in range(len(step.branches))]
    found.sides[region] = tuple(canvas.cluster("branch", f"branch {name}", place.cluster) for name in names)
    return [(b.block, _Frame(found.sides[region][k], (region, k))) for k, b in enumerate(step.branches)]


def _loop(step: LoopStep, place: _Frame, found: Frames, canvas: Canvas) -> list[tuple[Block, _Frame]]:
    begin = step.node.inputs[0]
    inside = canvas.cluster("loop", loop_name(step), place.cluster)
    found.control[step.node] = place.head
    found.home[begin] = found.home[step.node] = inside
    for column in step.phis:
        for phi in column:
            found.home[phi] = inside
    sure = place.sure | {step.node}
    goes_round = bool(trip_count(step.node))
    return [(step.header, _Frame(inside, begin, sure)), (step.body, _Frame(inside, begin, sure if goes_round else frozenset()))]


_OUTSIDE = ("param", "constant", "result", "start")


def in_halves(view: View) -> View:
    """The view of a gradient program with a frame for each half of every function that has both, and residuals marked.

    Which boxes are of the backward part is told by the origin of their nodes. A loop goes, with all that it holds, where its own
    begin goes, whatever it computes again of the forward part; another frame as most of what it holds. Inputs and results stand
    outside.
    """
    if not any(n.backward for n in view.nodes):
        return view
    tops = {c.id: c for c in view.clusters if c.parent is None}
    top_of = _children_of_tops(view, tops)
    votes: dict[int, Counter[bool]] = {}
    for n in view.nodes:
        if n.cluster in top_of:
            votes.setdefault(top_of[n.cluster], Counter())[n.backward] += 1
    free = max(tops | {c.id: c for c in view.clusters}) + 1
    half = {(top, back): free + 2 * k + back for k, top in enumerate(tops) for back in (False, True)}
    moved = {c: max((True, False), key=lambda b: v[b]) for c, v in votes.items()}
    moved |= {n.cluster: n.backward for n in view.nodes if n.kind == "loop_begin" and n.cluster in moved}
    clusters = [c if c.parent not in tops or c.parent is None else c._replace(parent=half[c.parent, moved.get(c.id, False)])
                for c in view.clusters if c.parent is not None]  # fmt: skip
    frames = [Cluster(id, "backward" if back else "forward", "half", top) for (top, back), id in half.items()]
    after = _after_backward(view)
    nodes = {n.id: n if n.id in after else _placed(n, half, moved.get(top_of.get(n.cluster or 0, -1))) for n in view.nodes}
    used = {n.cluster for n in nodes.values()} | {c.parent for c in clusters}
    kept = (*tops.values(), *(f for f in frames if f.id in used), *clusters)
    return replace(view, nodes=tuple(nodes.values()), edges=tuple(_marked(e, nodes) for e in view.edges), clusters=kept)


def _after_backward(view: View) -> set[int]:
    """Boxes right in a function's frame that take from the backward part and are no part of it, with what only these take: the
    update of the weights."""
    tops = {c.id for c in view.clusters if c.parent is None}
    backward = {n.id for n in view.nodes if n.backward}
    found: set[int] = set()
    by_id = {n.id: n for n in view.nodes}
    for e in view.edges:  # in the order of their sources, so that one pass reaches all
        node = by_id[e.target]
        if (e.source in backward or e.source in found) and not node.backward and node.cluster in tops:
            found.add(e.target)
    users: dict[int, set[int]] = {}
    for e in view.edges:
        if by_id[e.target].kind != "result":
            users.setdefault(e.source, set()).add(e.target)
    for node in reversed(view.nodes):
        if not node.backward and node.cluster in tops and node.id in users and users[node.id] <= found:
            found.add(node.id)
    return found


def _children_of_tops(view: View, tops: dict[int, Cluster]) -> dict[int, int]:
    """For each cluster the one around it, or itself, that stands right inside a function's frame."""
    found: dict[int, int] = {}
    for c in view.clusters:
        if c.parent is not None:
            found[c.id] = c.id if c.parent in tops else found[c.parent]
    return found


def _placed(node: ViewNode, half: dict[tuple[int, bool], int], backward: bool | None) -> ViewNode:
    """The node in the half of its frame; or, outside all frames, in its own."""
    if backward is not None:
        return node._replace(backward=backward)
    if node.kind in _OUTSIDE or node.cluster is None or (node.cluster, node.backward) not in half:
        return node
    return node._replace(cluster=half[node.cluster, node.backward])


def _marked(edge: ViewEdge, nodes: Mapping[int, ViewNode]) -> ViewEdge:
    """The edge, as a residual when a value of the forward part goes into the backward part."""
    source, target = nodes[edge.source], nodes[edge.target]
    crosses = target.backward and not source.backward and source.kind not in _OUTSIDE
    return edge._replace(kind="residual") if crosses and edge.kind == "data" else edge
