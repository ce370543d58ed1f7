"""The neighbourhood of a node as boxes and lines of characters: layers from operands down to users, at most `MOST` boxes.

Values are drawn as nets: one line leaves the box that makes a value and splits to all that use it. A net that spans several layers
passes through the ones between. Of two nets that cross the vertical one is drawn; lines of one net meet in tees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deepx_graph.ir import Function, Node
from deepx_graph.viz.listing.layers import Layer, LayerSlot, layers_of, place
from deepx_graph.viz.view.labels import scalar_text, short

MOST = 60
"""Boxes of a map."""

HUB = 12
"""Users above which a node is a hub: a weight or a mask that half of the program reads."""

LABEL = 30

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LINES = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"
_CORNERS = {"op": "┌┐└┘─│", "param": "╭╮╰╯─│", "control": "╔╗╚╝═║", "kernel": "┏┓┗┛━┃"}


@dataclass(frozen=True)
class Box:
    """A node of the map and where it stands, in characters."""

    node: Node
    label: str
    x: int
    y: int
    width: int
    layer: int

    @property
    def middle(self) -> int:
        return self.x + self.width // 2


@dataclass(frozen=True, slots=True)
class MapCell:
    """One character: `net` is the node whose value the line carries, `box` the node whose box it belongs to."""

    char: str = " "
    net: Node | None = None
    box: Node | None = None


BLANK = MapCell()


@dataclass
class BoxMap:
    """The map: boxes by node, and the characters row by row."""

    centre: Node
    boxes: dict[Node, Box]
    rows: list[list[MapCell]]
    left_out: int = 0
    """Nodes within the depth that found no place."""
    layers: list[list[Node]] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join("".join(c.char for c in row).rstrip() for row in self.rows)


def neighbourhood(function: Function, centre: Node, depth: int, most: int = MOST) -> tuple[list[Node], int]:
    """The nodes within `depth` edges of the centre, the nearest first and at most `most`, and how many more there are.

    Numbers, which stand in the boxes that use them, are left out; what is beside a hub (a node of more than `HUB` users) is not
    beside one another.
    """
    seen = {centre: 0}
    border = [centre]
    for step in range(1, depth + 1):
        beside = (n for b in border for n in _beside(function, b, centre))
        border = [n for n in dict.fromkeys(beside) if n not in seen and scalar_text(n) is None]
        seen.update(dict.fromkeys(border, step))
    chosen = list(seen)[:most]
    return sorted(chosen, key=lambda n: n.serial), len(seen) - len(chosen)


def _beside(function: Function, node: Node, centre: Node) -> tuple[Node, ...]:
    users = function.users.get(node, ())
    return (*node.inputs, *users) if node is centre or len(users) <= HUB else ()


def box_map(function: Function, centre: Node, depth: int, labels: Mapping[Node, str], kinds: Mapping[Node, str] | None = None,
            most: int = MOST) -> BoxMap:
    """The map around a node. `labels` and `kinds` (`op`, `param`, `control`, `kernel`) are looked up for the nodes chosen."""
    nodes, left_out = neighbourhood(function, centre, depth, most)
    chosen = set(nodes)
    texts = {n: _label(function, n, chosen, labels) for n in nodes}
    edges = [(i, n) for n in nodes for i in dict.fromkeys(n.inputs) if i in chosen]
    inputs = {n: sum(t is n for _, t in edges) for n in nodes}
    widths = {n: max(len(texts[n]) + 4, 2 * inputs[n] + 3) for n in nodes}
    layers = layers_of(nodes, edges)
    place(layers, widths)
    return _Drawing(centre, layers, texts, kinds or {}, left_out).map()


def _label(function: Function, node: Node, chosen: set[Node], labels: Mapping[Node, str]) -> str:
    """The label, with how many operands and users are not on the map."""
    above = sum(i not in chosen and scalar_text(i) is None for i in dict.fromkeys(node.inputs))
    below = sum(u not in chosen for u in dict.fromkeys(function.users.get(node, ())))
    text = short(labels.get(node, node.op.name), LABEL)
    return text + (f" ▴{above}" if above else "") + (f" ▾{below}" if below else "")


@dataclass
class _Net:
    """The way of one value from one layer to the next: columns where it starts and ends, and the track of its horizontal part."""

    source: Node
    start: int
    ends: list[int]
    track: int = -1

    @property
    def low(self) -> int:
        return min(self.start, *self.ends)

    @property
    def high(self) -> int:
        return max(self.start, *self.ends)


class _Drawing:
    def __init__(self, centre: Node, layers: list[Layer], texts: Mapping[Node, str], kinds: Mapping[Node, str],
                 left_out: int) -> None:
        self.centre, self.layers, self.texts, self.kinds, self.left_out = centre, layers, texts, kinds, left_out
        self.rows: list[list[MapCell]] = []
        self.width = max((s.x + s.width for layer in layers for s in layer), default=1) + 1
        self.lines: dict[tuple[int, int], tuple[int, Node]] = {}
        self.arrows: list[tuple[int, int, Node]] = []

    def map(self) -> BoxMap:
        """Boxes first, then the nets between each layer and the next."""
        boxes: dict[Node, Box] = {}
        top = 0
        for number, layer in enumerate(self.layers):
            self._extend(top + 3)
            for slot in layer:
                if slot.real:
                    boxes[slot.node] = self._box(slot, top, number)
                else:
                    for y in range(top, top + 3):
                        self._line(slot.middle, y, _UP | _DOWN, slot.node)
            top += 3
            if number + 1 < len(self.layers):
                top += self._nets(layer, self.layers[number + 1], top)
        for (x, y), (bits, net) in self.lines.items():
            if self.rows[y][x].box is None:
                self.rows[y][x] = MapCell(_LINES[bits], net)
        for x, y, node in self.arrows:
            self._put(x, y, "▼", node)
        return BoxMap(self.centre, boxes, self.rows, self.left_out, [[s.node for s in la if s.real] for la in self.layers])

    def _extend(self, height: int) -> None:
        self.rows += [[BLANK] * self.width for _ in range(height - len(self.rows))]

    def _put(self, x: int, y: int, text: str, node: Node) -> None:
        for k, char in enumerate(text):
            if 0 <= x + k < self.width:
                self.rows[y][x + k] = MapCell(char, None, node)

    def _box(self, slot: LayerSlot, top: int, layer: int) -> Box:
        node, text = slot.node, self.texts[slot.node]
        a, b, c, d, h, v = (*_CORNERS[self.kinds.get(node, "op")],)
        inner = slot.width - 2
        self._put(slot.x, top, a + h * inner + b, node)
        self._put(slot.x, top + 1, v + text.center(inner) + v, node)
        self._put(slot.x, top + 2, c + h * inner + d, node)
        return Box(node, text, slot.x, top, slot.width, layer)

    def _line(self, x: int, y: int, bits: int, net: Node) -> None:
        old = self.lines.get((x, y))
        if old is None or old[1] is net:
            self.lines[x, y] = ((old[0] if old else 0) | bits, net)
        elif bits & (_UP | _DOWN):  # of two that cross the vertical one is seen
            self.lines[x, y] = (bits, net)

    def _nets(self, upper: Layer, lower: Layer, top: int) -> int:
        """Draws the nets between two layers from row `top` on; how many rows they took."""
        nets = _nets_between(upper, lower)
        tracks = _give_tracks(nets)
        height = max(1, tracks)
        self._extend(top + height)
        for net in nets:
            self._net(net, top, top + height)
        for slot in upper:
            if slot.real and any(n.source is slot.node for n in nets):
                self._put(slot.middle, top - 1, "┬", slot.node)
        self.arrows += [(x, top + height, s.node) for s in lower for x in s.ports.values()]
        return height

    def _net(self, net: _Net, top: int, bottom: int) -> None:
        row = top + max(0, net.track)
        for y in range(top, row):
            self._line(net.start, y, _UP | _DOWN, net.source)
        if net.low == net.high:
            for y in range(row, bottom):
                self._line(net.start, y, _UP | _DOWN, net.source)
            return
        self._line(net.start, row, _UP, net.source)
        for x in range(net.low, net.high + 1):
            self._line(x, row, (_LEFT if x > net.low else 0) | (_RIGHT if x < net.high else 0), net.source)
        for end in net.ends:
            self._line(end, row, _DOWN, net.source)
            for y in range(row + 1, bottom):
                self._line(end, y, _UP | _DOWN, net.source)


def _nets_between(upper: Layer, lower: Layer) -> list[_Net]:
    """One net for each value that goes from one layer to the next."""
    ends: dict[Node, list[int]] = {}
    for slot in lower:
        if not slot.real:
            ends.setdefault(slot.node, []).append(slot.middle)
        for source, x in slot.ports.items():
            ends.setdefault(source, []).append(x)
    return [_Net(s.node, s.middle, ends[s.node]) for s in upper if s.node in ends]


def _give_tracks(nets: Iterable[_Net]) -> int:
    """Rows for the horizontal parts: no two on one track overlap, and a net that starts where another ends lies above it."""
    bent = [n for n in nets if n.low != n.high]
    below = {id(n): [m for m in bent if m is not n and n.start in m.ends] for n in bent}
    order: list[_Net] = []
    waiting = sorted(bent, key=lambda n: n.high - n.low)
    while waiting:
        held = {id(m) for n in waiting for m in below[id(n)]}
        ready = [n for n in waiting if id(n) not in held] or waiting[:1]
        order += ready
        waiting = [n for n in waiting if n not in ready]
    above: dict[int, int] = {}
    tracks: list[list[_Net]] = []
    for net in order:
        t = above.get(id(net), 0)
        while t < len(tracks) and any(m.low <= net.high and net.low <= m.high for m in tracks[t]):
            t += 1
        tracks += [[] for _ in range(t + 1 - len(tracks))]
        tracks[t].append(net)
        net.track = t
        for m in below[id(net)]:
            above[id(m)] = max(above.get(id(m), 0), t + 1)
    return len(tracks)
