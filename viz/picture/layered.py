"""Layered layout of a view with frames: boxes in layers along the flow of data, frames as graphs of their own inside their parents.

Each frame is drawn by the steps of `sugiyama.py`, innermost first, with dummy nodes where an edge crosses a layer. An edge that
leaves or enters a frame passes its border at a port. Near-linear in boxes and crossings of layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deepx_graph.viz.picture.scene import LETTER, Place, Point, Scene, SceneEdge, box_size, labelled, transposed
from deepx_graph.viz.picture.sugiyama import LAYER_GAP, LayerEdge, LayerNode, Unit, assign_layers, links, order, straighten
from deepx_graph.viz.view.model import LOOSE, View, ViewEdge

PADDING, HEAD = 14.0, 22.0
"""Inside a frame: around everything, and for its title."""

MOST_DUMMIES = 5_000
"""Of so many layers that edges pass in a view they take account; the longest edges beyond that are drawn straight."""


MOST_GAP = 130.0
"""The most that labels drive layers apart."""


def lay_out(view: View) -> Scene:
    """The places of everything in a view."""
    return _Layout(view).scene()


Join = tuple[Unit, Unit, int]
"""Two units that an edge joins, and the box whose value it carries; edges that agree in these are one wire."""


@dataclass
class _Frame:
    """A frame that is laid out: its cells, its extents, and where values enter and leave it, from its left."""

    size: float = 0.0
    length: float = 0.0
    cells: dict[Unit, LayerNode] = field(default_factory=dict)
    tops: dict[Unit, float] = field(default_factory=dict)
    """How far along the flow each cell begins."""
    wires: dict[Join, LayerEdge] = field(default_factory=dict)
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
        longest = max((len(e.label) for e in view.edges), default=0) if view.sideways else 0
        self.gap = min(max(LAYER_GAP, LETTER * longest + 6), MOST_GAP)
        """Between two layers: sideways the labels of edges have to fit in."""

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
            frame.cells[unit] = LayerNode(unit, size, length)
        for a, b, _ in found:
            for port in (a, b):
                if port[0] in ("in", "out"):
                    frame.cells.setdefault(port, LayerNode(port, 2.0, 0.0))
        for (a, b, s), weight in found.items():
            frame.wires[a, b, s] = LayerEdge(a, b, self._port(a, ("out", s)), self._port(b, ("in", s)), weight)
        assign_layers(frame.cells, list(frame.wires.values()), self._first)
        layers = self._with_dummies(frame, frame.wires)
        above, below = links(frame.wires.values())
        order(layers, above, below)
        straighten(layers, above, below)
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

    def _with_dummies(self, frame: _Frame, wires: dict[Join, LayerEdge]) -> list[list[LayerNode]]:
        """The layers of a frame; where an edge passes one it has a dummy there, shared by all edges that carry the same value."""
        layers: list[list[LayerNode]] = [[] for _ in range(1 + max((c.layer for c in frame.cells.values()), default=-1))]
        for cell in frame.cells.values():
            layers[cell.layer].append(cell)
        passing: dict[tuple[Unit, int, bool, int], LayerNode] = {}
        spans = {join: frame.cells[w.target].layer - frame.cells[w.source].layer for join, w in wires.items()}
        for join in sorted(wires, key=spans.__getitem__):
            wire, value = wires[join], join[2]
            a, b = frame.cells[wire.source], frame.cells[wire.target]
            wire.cells = [a]
            for k in range(a.layer + 1, b.layer):
                key = (wire.target if wire.upwards else wire.source, value, wire.upwards, k)
                if key not in passing and self.dummies < MOST_DUMMIES:
                    self.dummies += 1
                    passing[key] = LayerNode(("dummy", 0), 2.0, 0.0, k)
                    layers[k].append(passing[key])
                if key in passing:
                    wire.cells.append(passing[key])
            wire.cells.append(b)
        return layers

    def _measure(self, frame: _Frame, layers: list[list[LayerNode]], *, titled: bool) -> None:
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
                length += PADDING if at_border else self.gap
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
        return labelled(transposed(scene) if self.view.sideways else scene)

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
