"""Layered layout of a view with frames: boxes in layers along the flow of data, frames as graphs of their own inside their parents.

The method of Sugiyama, Tagawa and Toda (IEEE SMC-11, 1981), once per frame, innermost first: layers by longest paths, dummy
nodes where an edge crosses a layer, barycentre sweeps against crossings, and coordinates by quadratic minimisation along each
layer, which pooling of neighbours that are too near solves exactly (Best and Chakravarti, Mathematical Programming 47, 1990). An
edge that leaves or enters a frame passes its border at a port. Near-linear in boxes and crossings of layers; lengths are points, y
grows downwards.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from deepx_graph.viz.picture.svg import shown
from deepx_graph.viz.view.model import LOOSE, View, ViewEdge, ViewNode

Place = tuple[float, float, float, float]
"""Left, top, width, height."""

Point = tuple[float, float]

TITLE_CHAR, TEXT_CHAR, LINE = 7.2, 5.6, 14.0
"""Widths of a letter in a box's first line and in the others, and the height of a line."""

GAP, EDGE_GAP, LAYER_GAP = 20.0, 12.0, 40.0
"""Between boxes of a layer, beside an edge that passes, and between layers."""

PADDING, HEAD = 14.0, 22.0
"""Inside a frame: around everything, and for its title."""

SWEEPS = 8
"""Passes over all layers to order them, and as many to place them."""

STRAIGHT = 8.0
"""How much more an edge that passes layers wants to be straight than one wants to be short."""

MOST_DUMMIES = 5_000
"""Of so many layers that edges pass in a view they take account; the longest edges beyond that are drawn straight."""


@dataclass(frozen=True)
class SceneEdge:
    """An edge: the points that it passes, first to last, and where its label stands."""

    edge: ViewEdge
    points: tuple[Point, ...]
    at: Point | None = None


@dataclass(frozen=True)
class Scene:
    """A view with places: of boxes by id of the node, of frames by id of the cluster."""

    view: View
    width: float
    height: float
    boxes: dict[int, Place]
    frames: dict[int, Place]
    lines: tuple[SceneEdge, ...]


def text_lines(node: ViewNode) -> list[str]:
    """What stands in a box, line by line."""
    return [line for text in (node.title, node.subtitle) if text for line in shown(text).split("\n")] or [" "]


def box_size(node: ViewNode) -> tuple[float, float]:
    """Width and height that the texts of a box and its form need."""
    first, *rest = text_lines(node)
    width = max([TITLE_CHAR * len(first), *(TEXT_CHAR * len(line) for line in rest)]) + 22
    height = LINE * (1 + len(rest)) + 10
    if node.kind in ("if", "loop_begin", "loop_end", "region", "start"):
        return width + 34, height + 12
    return (width + 8, height + 8) if node.kind in ("param", "result", "phi", "proj", "side") else (width, height)


def lay_out(view: View) -> Scene:
    """The places of everything in a view."""
    return _Layout(view).scene()


Unit = tuple[str, int]
"""What a layer of a frame holds: `("box", id)`, `("frame", id)`, `("in", id)` and `("out", id)` for the port of the value of a box
outside or inside, `("dummy", number)` where an edge crosses."""


Join = tuple[Unit, Unit, int]
"""Two units that an edge joins, and the box whose value it carries; edges that agree in these are one wire."""


@dataclass
class _Cell:
    """A unit in a layer: its extent across the flow and along it, and where it stands."""

    unit: Unit
    size: float
    length: float
    layer: int = 0
    at: float = 0.0
    """The middle across the flow, from the left of the frame."""


@dataclass
class _Wire:
    """An edge between two units of a frame: how far from their middles it meets them, its weight, and the cells it passes."""

    source: Unit
    target: Unit
    out: float = 0.0
    into: float = 0.0
    weight: float = 1.0
    upwards: bool = False
    """It is laid out from its target to its source, as it would go up otherwise."""
    cells: list[_Cell] = field(default_factory=list)

    def flip(self) -> None:
        """Lays it out the other way round."""
        self.source, self.target, self.out, self.into = self.target, self.source, self.into, self.out
        self.upwards = not self.upwards


@dataclass
class _Frame:
    """A frame that is laid out: its cells, its extents, and where values enter and leave it, from its left."""

    size: float = 0.0
    length: float = 0.0
    cells: dict[Unit, _Cell] = field(default_factory=dict)
    tops: dict[Unit, float] = field(default_factory=dict)
    """How far along the flow each cell begins."""
    wires: dict[Join, _Wire] = field(default_factory=dict)
    layers: list[tuple[float, float]] = field(default_factory=list)
    """Where each layer begins and ends along the flow."""


class _Layout:
    def __init__(self, view: View) -> None:
        self.view = view
        self.sizes = {n.id: box_size(n)[:: -1 if view.sideways else 1] for n in view.nodes}
        self.parent = {c.id: c.parent for c in view.clusters}
        self.chain = {n.id: self._chain(n.cluster) for n in view.nodes}
        self.position = {n.id: k for k, n in enumerate(view.nodes)}
        self.frames: dict[int | None, _Frame] = {}
        self.routes = [self._route(e) for e in view.edges]
        self.dummies = 0

    def _chain(self, cluster: int | None) -> tuple[int | None, ...]:
        """The frames around a box, outermost first."""
        chain: list[int | None] = [cluster]
        while chain[-1] is not None:
            chain.append(self.parent[chain[-1]])
        return tuple(reversed(chain))

    def _route(self, e: ViewEdge) -> list[tuple[int | None, Unit, Unit]]:
        """The parts of an edge, from the source outwards and inwards to the target: the frame, and the units that it joins there.

        A back edge is laid out as if it went down.
        """
        source, target = (e.source, e.target) if e.kind != "back" else (e.target, e.source)
        a, b = self.chain[source], self.chain[target]
        common = 0
        while common < min(len(a), len(b)) and a[common] == b[common]:
            common += 1
        parts: list[tuple[int | None, Unit, Unit]] = []
        unit: Unit = ("box", source)
        for frame in reversed(a[common:]):
            parts.append((frame, unit, ("out", source)))
            unit = ("frame", frame or 0)
        inside = b[common:]
        parts.append((a[common - 1], unit, ("frame", inside[0] or 0) if inside else ("box", target)))
        for k, frame in enumerate(inside):
            last = k + 1 == len(inside)
            parts.append((frame, ("in", source), ("box", target) if last else ("frame", inside[k + 1] or 0)))
        return parts

    def scene(self) -> Scene:
        members: dict[int | None, list[Unit]] = {None: []}
        for c in self.view.clusters:
            members.setdefault(c.id, [])
            members.setdefault(c.parent, []).append(("frame", c.id))
        for n in self.view.nodes:
            members.setdefault(n.cluster, []).append(("box", n.id))
        wires: dict[int | None, dict[Join, float]] = {f: {} for f in members}
        for e, route in zip(self.view.edges, self.routes, strict=True):
            for frame, a, b in route:
                if a != b:
                    key = (a, b, e.source if e.kind != "back" else e.target)
                    wires[frame][key] = max(wires[frame].get(key, 0.0), 0.2 if e.kind in LOOSE or e.kind == "residual" else 1.0)
        for c in reversed(self.view.clusters):
            self.frames[c.id] = self._frame(c.id, members[c.id], wires[c.id])
        self.frames[None] = self._frame(None, members[None], wires[None])
        return self._placed()

    # --- one frame

    def _frame(self, id: int | None, units: list[Unit], found: dict[Join, float]) -> _Frame:
        frame = _Frame()
        for unit in units:
            size, length = self.sizes[unit[1]] if unit[0] == "box" else (self.frames[unit[1]].size, self.frames[unit[1]].length)
            frame.cells[unit] = _Cell(unit, size, length)
        for a, b, _ in found:
            for port in (a, b):
                if port[0] in ("in", "out"):
                    frame.cells.setdefault(port, _Cell(port, 2.0, 0.0))
        for (a, b, s), weight in found.items():
            frame.wires[a, b, s] = _Wire(a, b, self._port(a, ("out", s)), self._port(b, ("in", s)), weight)
        _assign_layers(frame.cells, list(frame.wires.values()), self._first)
        layers = self._with_dummies(frame, frame.wires)
        above, below = _links(frame.wires.values())
        _order(layers, above, below)
        _straighten(layers, above, below)
        self._measure(frame, layers, titled=id is not None)
        return frame

    def _first(self, unit: Unit) -> int:
        """The place of a unit in the order of the view."""
        if unit[0] != "frame":
            return self.position[unit[1]]
        inside = self.frames[unit[1]].cells
        return min((self._first(u) for u in inside if u[0] in ("box", "frame")), default=0)

    def _port(self, unit: Unit, port: Unit) -> float:
        """How far from the middle of a unit an edge meets it."""
        if unit[0] != "frame":
            return 0.0
        frame = self.frames[unit[1]]
        return frame.cells[port].at - frame.size / 2 if port in frame.cells else 0.0

    def _with_dummies(self, frame: _Frame, wires: dict[Join, _Wire]) -> list[list[_Cell]]:
        """The layers of a frame; where an edge passes one it has a dummy there, shared by all edges that carry the same value."""
        layers: list[list[_Cell]] = [[] for _ in range(1 + max((c.layer for c in frame.cells.values()), default=-1))]
        for cell in frame.cells.values():
            layers[cell.layer].append(cell)
        passing: dict[tuple[Unit, int, bool, int], _Cell] = {}
        spans = {join: frame.cells[w.target].layer - frame.cells[w.source].layer for join, w in wires.items()}
        for join in sorted(wires, key=spans.__getitem__):
            wire, value = wires[join], join[2]
            a, b = frame.cells[wire.source], frame.cells[wire.target]
            wire.cells = [a]
            for k in range(a.layer + 1, b.layer):
                key = (wire.target if wire.upwards else wire.source, value, wire.upwards, k)
                if key not in passing and self.dummies < MOST_DUMMIES:
                    self.dummies += 1
                    passing[key] = _Cell(("dummy", 0), 2.0, 0.0, k)
                    layers[k].append(passing[key])
                if key in passing:
                    wire.cells.append(passing[key])
            wire.cells.append(b)
        return layers

    def _measure(self, frame: _Frame, layers: list[list[_Cell]], *, titled: bool) -> None:
        """Extents of the frame; cells from its left and top."""
        left = min((c.at - c.size / 2 for layer in layers for c in layer), default=0.0)
        right = max((c.at + c.size / 2 for layer in layers for c in layer), default=0.0)
        padding = PADDING if titled else 0.0
        head = HEAD if titled and not self.view.sideways else padding
        side = HEAD if titled and self.view.sideways else padding
        along = head
        for k, layer in enumerate(layers):
            length = max((c.length for c in layer), default=0.0)
            for c in layer:
                c.at += side - left
                if c.unit[0] != "dummy":
                    frame.tops[c.unit] = along + (length - c.length) / 2
            frame.layers.append((along, along + length))
            if k + 1 < len(layers):
                at_border = any(c.unit[0] in ("in", "out") for c in (*layer, *layers[k + 1]))
                length += PADDING if at_border else LAYER_GAP
            along += length
        frame.size = right - left + side + padding
        frame.length = along + padding

    # --- everything together

    def _placed(self) -> Scene:
        origin: dict[int | None, Point] = {None: (PADDING, PADDING)}
        boxes: dict[int, Place] = {}
        frames: dict[int, Place] = {}
        for id in (None, *(c.id for c in self.view.clusters)):
            frame = self.frames[id]
            x0, y0 = origin[id]
            for unit, cell in frame.cells.items():
                place = (x0 + cell.at - cell.size / 2, y0 + frame.tops[unit], cell.size, cell.length)
                if unit[0] == "box":
                    boxes[unit[1]] = place
                elif unit[0] == "frame":
                    frames[unit[1]] = place
                    origin[unit[1]] = place[:2]
        lines = [self._line(e, route, origin) for e, route in zip(self.view.edges, self.routes, strict=True)]
        whole = self.frames[None]
        width, height = whole.size + 2 * PADDING, whole.length + 2 * PADDING
        scene = Scene(self.view, width, height, boxes, frames, tuple(lines))
        return _labelled(_sideways(scene) if self.view.sideways else scene)

    def _line(self, e: ViewEdge, route: list[tuple[int | None, Unit, Unit]], origin: dict[int | None, Point]) -> SceneEdge:
        """The points of an edge through all frames that it crosses."""
        source = e.source if e.kind != "back" else e.target
        points: list[Point] = []
        for id, a, b in route:
            if a == b:
                continue
            frame, (x0, y0) = self.frames[id], origin[id]
            wire = frame.wires[a, b, source]
            first, last = frame.cells[wire.source], frame.cells[wire.target]
            part = [(x0 + first.at + wire.out, y0 + frame.tops[wire.source] + first.length)]
            for cell in wire.cells[1:-1]:
                top, bottom = frame.layers[cell.layer]
                part += [(x0 + cell.at, y0 + top), (x0 + cell.at, y0 + bottom)]
            part.append((x0 + last.at + wire.into, y0 + frame.tops[wire.target]))
            points += reversed(part) if wire.upwards else part
        return SceneEdge(e, tuple(dict.fromkeys(reversed(points) if e.kind == "back" else points)))


# --- steps of the method ------------------------------------------------------------------------------------------------


def _assign_layers(cells: dict[Unit, _Cell], wires: list[_Wire], first: Callable[[Unit], int]) -> None:
    """Layers by longest paths, sources as near to their first user as may be, ports at the borders; wires that go up flip."""
    order = _acyclic_order(cells, wires, first)
    place = {u: k for k, u in enumerate(order)}
    above: dict[Unit, list[Unit]] = {u: [] for u in cells}
    below: dict[Unit, list[Unit]] = {u: [] for u in cells}
    for w in wires:
        if place[w.source] > place[w.target]:
            w.flip()
        above[w.target].append(w.source)
        below[w.source].append(w.target)
    top = int(any(u[0] == "in" for u in cells))
    for u in order:
        cells[u].layer = 0 if u[0] == "in" else max((cells[a].layer + 1 for a in above[u]), default=top)
    for u in reversed(order):
        if not above[u] and below[u] and u[0] != "in":
            cells[u].layer = min(cells[b].layer for b in below[u]) - 1
    deepest = max((c.layer for u, c in cells.items() if u[0] != "out"), default=0)
    for u, cell in cells.items():
        if u[0] == "out":
            cell.layer = deepest + 1


def _acyclic_order(cells: dict[Unit, _Cell], wires: list[_Wire], first: Callable[[Unit], int]) -> list[Unit]:
    """The units, each after those above it; where wires make a cycle, the earliest of the view breaks it."""
    rank = {u: (0 if u[0] == "in" else 2 if u[0] == "out" else 1, first(u)) for u in cells}
    waiting = dict.fromkeys(cells, 0)
    below: dict[Unit, list[Unit]] = {u: [] for u in cells}
    for w in wires:
        waiting[w.target] += 1
        below[w.source].append(w.target)
    heap = [(rank[u], u) for u, n in waiting.items() if not n]
    heapq.heapify(heap)
    left = sorted(cells, key=rank.__getitem__, reverse=True)
    done: dict[Unit, None] = {}
    while len(done) < len(cells):
        if heap:
            u = heapq.heappop(heap)[1]
        else:
            while left[-1] in done:
                left.pop()
            u = left.pop()
        if u in done:
            continue
        done[u] = None
        for b in below[u]:
            waiting[b] -= 1
            if not waiting[b] and b not in done:
                heapq.heappush(heap, (rank[b], b))
    return list(done)


Link = tuple[_Cell, float, float, float]
"""A neighbour in the layer above or below, how far from its middle and from one's own the edge is, and its weight."""


def _links(wires: Iterable[_Wire]) -> tuple[dict[int, list[Link]], dict[int, list[Link]]]:
    """For each cell, by identity, its neighbours above and below."""
    above: dict[int, list[Link]] = {}
    below: dict[int, list[Link]] = {}
    known: set[tuple[int, int, float, float]] = set()
    for w in wires:
        last = len(w.cells) - 2
        for k in range(len(w.cells) - 1):
            a, b = w.cells[k], w.cells[k + 1]
            out, into = w.out if k == 0 else 0.0, w.into if k == last else 0.0
            if (id(a), id(b), out, into) in known:
                continue
            known.add((id(a), id(b), out, into))
            weight = w.weight * (STRAIGHT if 0 < k < last else 1.0)
            above.setdefault(id(b), []).append((a, out, into, weight))
            below.setdefault(id(a), []).append((b, into, out, weight))
    return above, below


def _order(layers: list[list[_Cell]], above: dict[int, list[Link]], below: dict[int, list[Link]]) -> None:
    """Orders the layers so that few edges cross: each cell at the mean of its neighbours, downwards and upwards in turn."""
    for layer in layers:
        _pack(layer)
    best, fewest = [list(layer) for layer in layers], _crossings(layers, above)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        beside = below if sweep % 2 else above
        for layer in layers[::-1] if sweep % 2 else layers:
            wanted = {id(c): _mean(beside.get(id(c), ()), c) for c in layer}
            layer.sort(key=lambda c: wanted[id(c)])
            _pack(layer)
        count = _crossings(layers, above)
        if count < fewest:
            best, fewest = [list(layer) for layer in layers], count
    for layer, kept in zip(layers, best, strict=True):
        layer[:] = kept
        _pack(layer)


def _mean(links: Sequence[Link], cell: _Cell) -> float:
    return sum(other.at + there - here for other, there, here, _ in links) / len(links) if links else cell.at


def _pack(layer: list[_Cell]) -> None:
    at = 0.0
    for k, c in enumerate(layer):
        at += _apart(layer[k - 1], c) if k else 0.0
        c.at = at
    for c in layer:
        c.at -= at / 2


def _apart(a: _Cell, b: _Cell) -> float:
    """How far the middles of two neighbours are apart at least."""
    passing = "dummy" in (a.unit[0], b.unit[0])
    return (a.size + b.size) / 2 + (EDGE_GAP if passing else GAP)


def _crossings(layers: list[list[_Cell]], above: dict[int, list[Link]]) -> int:
    """How many pairs of edges cross, by counting inversions with a binary indexed tree (Barth, Juenger and Mutzel, 2002)."""
    total = 0
    for layer in layers[1:]:
        ends = [other.at + there for c in layer for other, there in sorted(((o, t) for o, t, _, _ in above.get(id(c), ())),
                                                                        key=lambda p: p[0].at + p[1])]  # fmt: skip
        ranks = {x: k + 1 for k, x in enumerate(sorted(set(ends)))}
        tree = [0] * (len(ranks) + 1)
        for seen, x in enumerate(ends):
            k, smaller = ranks[x], 0
            while k:
                smaller += tree[k]
                k -= k & -k
            total += seen - smaller
            k = ranks[x]
            while k <= len(ranks):
                tree[k] += 1
                k += k & -k
    return total


def _straighten(layers: list[list[_Cell]], above: dict[int, list[Link]], below: dict[int, list[Link]]) -> None:
    """Places the cells of each layer, in their order, as near to their neighbours as they get without touching."""
    for sweep in range(SWEEPS + 2):
        sides = (above, below) if sweep >= SWEEPS else (below,) if sweep % 2 else (above,)
        for layer in layers[::-1] if sweep % 2 else layers:
            wanted: list[tuple[float, float]] = []
            for c in layer:
                links = [link for beside in sides for link in beside.get(id(c), ())]
                weight = sum(link[3] for link in links)
                if weight:
                    wanted.append((sum(link[3] * (link[0].at + link[1] - link[2]) for link in links) / weight, weight))
                else:
                    wanted.append((c.at, 0.1))
            _nearest(layer, wanted)


def _nearest(layer: list[_Cell], wanted: list[tuple[float, float]]) -> None:
    """The places nearest to those wanted, in weighted squares, of cells that keep their order and distance."""
    blocks: list[list[float]] = []  # weight, weighted sum of where its first cell would be, cells
    offsets: list[float] = []
    offset = 0.0
    for k, (c, (at, weight)) in enumerate(zip(layer, wanted, strict=True)):
        offset += _apart(layer[k - 1], c) if k else 0.0
        offsets.append(offset)
        blocks.append([weight, weight * (at - offset), 1.0])
        while len(blocks) > 1 and blocks[-2][1] / blocks[-2][0] > blocks[-1][1] / blocks[-1][0]:
            last = blocks.pop()
            blocks[-1] = [x + y for x, y in zip(blocks[-1], last, strict=True)]
    k = 0
    for weight, total, cells in blocks:
        for _ in range(int(cells)):
            layer[k].at = total / weight + offsets[k]
            k += 1


# --- finish --------------------------------------------------------------------------------------------------------------


def _sideways(scene: Scene) -> Scene:
    """The same scene with x and y exchanged: from left to right instead of downwards."""
    def swapped(p: Place) -> Place:
        return p[1], p[0], p[3], p[2]

    lines = tuple(replace(line, points=tuple((y, x) for x, y in line.points)) for line in scene.lines)
    boxes, frames = ({k: swapped(p) for k, p in places.items()} for places in (scene.boxes, scene.frames))
    return replace(scene, width=scene.height, height=scene.width, boxes=boxes, frames=frames, lines=lines)


def _labelled(scene: Scene) -> Scene:
    """The scene with a place for each label: on its edge, on none before it where that can be."""
    taken: dict[tuple[int, int], list[Place]] = {}
    lines = []
    for line in scene.lines:
        at = None
        if line.edge.label:
            width = 5.0 * len(line.edge.label)
            spots = [((x1 + x2) / 2 + 3, (y1 + y2) / 2 + 3) for (x1, y1), (x2, y2) in pairwise(line.points)]
            free = (s for s in spots if not any(_touch((s[0], s[1] - 8, width, 10), p) for p in _near(taken, s)))
            at = next(free, spots[0] if spots else None)
            if at is not None:
                for key in _squares(at):
                    taken.setdefault(key, []).append((at[0], at[1] - 8, width, 10))
        lines.append(replace(line, at=at))
    return replace(scene, lines=tuple(lines))


def _squares(p: Point) -> list[tuple[int, int]]:
    x, y = int(p[0] // 200), int(p[1] // 40)
    return [(x + i, y + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]


def _near(taken: dict[tuple[int, int], list[Place]], p: Point) -> list[Place]:
    return taken.get((int(p[0] // 200), int(p[1] // 40)), [])


def _touch(a: Place, b: Place) -> bool:
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


def path(line: SceneEdge, *, sideways: bool) -> str:
    """The words of an SVG path through the points of an edge, smooth, in the direction of the flow at each of them."""
    (x, y), *rest = line.points
    words = [f"M{x:.1f},{y:.1f}"]
    for x2, y2 in rest:
        if (y if sideways else x) == (y2 if sideways else x2):
            words.append(f"L{x2:.1f},{y2:.1f}")
        elif sideways:
            words.append(f"C{(x + x2) / 2:.1f},{y:.1f} {(x + x2) / 2:.1f},{y2:.1f} {x2:.1f},{y2:.1f}")
        else:
            words.append(f"C{x:.1f},{(y + y2) / 2:.1f} {x2:.1f},{(y + y2) / 2:.1f} {x2:.1f},{y2:.1f}")
        x, y = x2, y2
    return "".join(words)
