"""The neighbourhood of a node as boxes and lines of characters: layers from operands to users, at most `MOST` boxes.

The layers lie below or, `sideways`, beside one another: what is worked out across them and along them is then rows and columns.

Values are drawn as nets: one line leaves the box that makes a value and splits to all that use it. A net that spans several layers
has a slot in each of those between. Of two nets that cross the vertical one is drawn; lines of one net meet in tees. The order in a
layer comes from a few sweeps by means of neighbours, columns from the nearest to those means that keep the order and the gaps
(isotonic regression): a layout for a few dozen nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from deepx_graph.ir import Function, Node
from deepx_graph.viz.view.labels import scalar_text, short

MOST = 60
"""Boxes of a map."""

HUB = 12
"""Users above which a node is a hub: a weight or a mask that half of the program reads."""

LABEL = 30

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LINES = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"
_TURNED = {_UP: _LEFT, _DOWN: _RIGHT, _LEFT: _UP, _RIGHT: _DOWN}
_CORNERS = {"op": "┌┐└┘─│", "param": "╭╮╰╯─│", "control": "╔╗╚╝═║", "kernel": "┏┓┗┛━┃"}


@dataclass(frozen=True)
class Box:
    """A node of the map and where it stands, in characters."""

    node: Node
    label: str
    x: int
    y: int
    width: int
    height: int
    layer: int

    @property
    def middle(self) -> int:
        return self.x + self.width // 2

    @property
    def centre(self) -> int:
        """The row in the middle."""
        return self.y + self.height // 2


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
    sideways: bool = False

    def __str__(self) -> str:
        return "\n".join("".join(c.char for c in row).rstrip() for row in self.rows)


def neighbourhood(function: Function, centre: Node, depth: int) -> tuple[list[Node], int]:
    """The nodes within `depth` edges of the centre, the nearest first and at most `MOST`, and how many more there are.

    Numbers, which stand in the boxes that use them, are left out; what is beside a hub (a node of more than `HUB` users) is not
    beside one another.
    """
    seen = {centre: 0}
    border = [centre]
    for step in range(1, depth + 1):
        beside = (n for b in border for n in _beside(function, b, centre))
        border = [n for n in dict.fromkeys(beside) if n not in seen and scalar_text(n) is None]
        seen.update(dict.fromkeys(border, step))
    chosen = list(seen)[:MOST]
    return sorted(chosen, key=lambda n: n.serial), len(seen) - len(chosen)


def _beside(function: Function, node: Node, centre: Node) -> tuple[Node, ...]:
    users = function.users.get(node, ())
    return (*node.inputs, *users) if node is centre or len(users) <= HUB else ()


def box_map(function: Function, centre: Node, depth: int, label: Callable[[Node], str], kind: Callable[[Node], str],
            *, sideways: bool = False) -> BoxMap:
    """The map around a node. Each box has the label and the form (`op`, `param`, `control`, `kernel`) that these give."""
    nodes, left_out = neighbourhood(function, centre, depth)
    chosen = set(nodes)
    texts = {n: short(label(n), LABEL) + _beyond(function, n, chosen, "◂▸" if sideways else "▴▾") for n in nodes}
    edges = [(i, n) for n in nodes for i in dict.fromkeys(n.inputs) if i in chosen]
    inputs = {n: sum(t is n for _, t in edges) for n in nodes}
    widths = {n: max(3, inputs[n] + 2) if sideways else max(len(texts[n]) + 4, 2 * inputs[n] + 3) for n in nodes}
    layers = layers_of(nodes, edges)
    place(layers, widths)
    return _Drawing(centre, layers, texts, kind, left_out, sideways).map()


def _beyond(function: Function, node: Node, chosen: set[Node], marks: str) -> str:
    """How many operands and users of a node are not on the map."""
    above = sum(i not in chosen and scalar_text(i) is None for i in dict.fromkeys(node.inputs))
    below = sum(u not in chosen for u in dict.fromkeys(function.users.get(node, ())))
    return (f" {marks[0]}{above}" if above else "") + (f" {marks[1]}{below}" if below else "")


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
    """Places are `(across, along)` the layers until they are written: columns and rows, or sideways rows and columns."""

    def __init__(self, centre: Node, layers: list[Layer], texts: Mapping[Node, str], kind: Callable[[Node], str],
                 left_out: int, sideways: bool) -> None:
        self.centre, self.layers, self.texts, self.kind, self.left_out = centre, layers, texts, kind, left_out
        self.sideways = sideways
        self.cells: dict[tuple[int, int], MapCell] = {}
        self.lines: dict[tuple[int, int], tuple[int, Node]] = {}
        self.arrows: list[tuple[int, int, Node]] = []

    def map(self) -> BoxMap:
        """Boxes first, then the nets between each layer and the next."""
        boxes: dict[Node, Box] = {}
        top = 0
        for number, layer in enumerate(self.layers):
            thickness = max((len(self.texts[s.node]) + 4 for s in layer if s.real), default=1) if self.sideways else 3
            for slot in layer:
                if slot.real:
                    boxes[slot.node] = self._box(slot, top, thickness, number)
                else:
                    for along in range(top, top + thickness):
                        self._line(slot.middle, along, _UP | _DOWN, slot.node)
            top += thickness
            if number + 1 < len(self.layers):
                top += self._nets(layer, self.layers[number + 1], top)
        for (across, along), (bits, net) in self.lines.items():
            at = self._at(across, along)
            if at not in self.cells or self.cells[at].box is None:
                self.cells[at] = MapCell(_LINES[self._turned(bits)], net)
        for across, along, node in self.arrows:
            self._put(*self._at(across, along), "▶" if self.sideways else "▼", node)
        layers = [[s.node for s in la if s.real] for la in self.layers]
        return BoxMap(self.centre, boxes, self._rows(), self.left_out, layers, self.sideways)

    def _at(self, across: int, along: int) -> tuple[int, int]:
        return (along, across) if self.sideways else (across, along)

    def _turned(self, bits: int) -> int:
        return sum(_TURNED[b] for b in _TURNED if bits & b) if self.sideways else bits

    def _rows(self) -> list[list[MapCell]]:
        width, height = (1 + max((at[k] for at in self.cells), default=0) for k in (0, 1))
        return [[self.cells.get((x, y), BLANK) for x in range(width + 1)] for y in range(height)]

    def _put(self, x: int, y: int, text: str, node: Node) -> None:
        self.cells.update(((x + k, y), MapCell(char, None, node)) for k, char in enumerate(text))

    def _box(self, slot: LayerSlot, top: int, thickness: int, layer: int) -> Box:
        node, text = slot.node, self.texts[slot.node]
        x, y = self._at(slot.x, top)
        width, height = self._at(slot.width, thickness)
        a, b, c, d, h, v = (*_CORNERS[self.kind(node)],)
        self._put(x, y, a + h * (width - 2) + b, node)
        for row in range(1, height - 1):
            self._put(x, y + row, v + (text if row == height // 2 else "").center(width - 2) + v, node)
        self._put(x, y + height - 1, c + h * (width - 2) + d, node)
        return Box(node, text, x, y, width, height, layer)

    def _line(self, x: int, y: int, bits: int, net: Node) -> None:
        old = self.lines.get((x, y))
        if old is None or old[1] is net:
            self.lines[x, y] = ((old[0] if old else 0) | bits, net)
        elif bits & (_UP | _DOWN):  # of two that cross the one along the layers is seen
            self.lines[x, y] = (bits, net)

    def _nets(self, upper: Layer, lower: Layer, top: int) -> int:
        """Draws the nets between two layers from row (sideways: column) `top` on; how many rows they took."""
        nets = _nets_between(upper, lower)
        tracks = _give_tracks(nets)
        height = max(1, tracks)
        for net in nets:
            self._net(net, top, top + height)
        for slot in upper:
            if slot.real and any(n.source is slot.node for n in nets):
                self._put(*self._at(slot.middle, top - 1), "├" if self.sideways else "┬", slot.node)
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


GAP = 2
SWEEPS = 6


@dataclass(eq=False)
class LayerSlot:
    """A place in a layer: of a node, or (not `real`) of a net that passes. `ports` are columns where operands come in."""

    node: Node
    real: bool
    above: list[LayerSlot] = field(default_factory=list)
    below: list[LayerSlot] = field(default_factory=list)
    x: int = 0
    width: int = 1
    ports: dict[Node, int] = field(default_factory=dict)

    @property
    def middle(self) -> int:
        return self.x + self.width // 2


Layer = list[LayerSlot]


def layers_of(nodes: Sequence[Node], edges: Sequence[tuple[Node, Node]]) -> list[Layer]:
    """The layers, top down, of nodes in topological order; every edge leads from one layer to the next, by passing slots."""
    level: dict[Node, int] = {}
    into: dict[Node, list[Node]] = {}
    out: dict[Node, list[Node]] = {}
    for source, target in edges:
        into.setdefault(target, []).append(source)
        out.setdefault(source, []).append(target)
    for n in nodes:
        level[n] = 1 + max((level[s] for s in into.get(n, ())), default=-1)
    for n in reversed(nodes):  # what has no operands here stands just above its first user
        if n not in into and n in out:
            level[n] = min(level[t] for t in out[n]) - 1
    layers: list[Layer] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    slots = {n: LayerSlot(n, True) for n in nodes}
    for n in nodes:
        layers[level[n]].append(slots[n])
    for n in nodes:
        _connect(n, slots, out.get(n, []), level, layers)
    for _ in range(SWEEPS):
        _order(layers)
    return layers


def _connect(node: Node, slots: Mapping[Node, LayerSlot], targets: Sequence[Node], level: Mapping[Node, int],
             layers: list[Layer]) -> None:
    """Links a node to its users, with one passing slot in each layer between."""
    passing = slots[node]
    deepest = max((level[t] for t in targets), default=level[node])
    for k in range(level[node] + 1, deepest + 1):
        for t in targets:
            if level[t] == k:
                _link(passing, slots[t])
        if k < deepest:
            further = LayerSlot(node, False)
            layers[k].append(further)
            _link(passing, further)
            passing = further


def _link(above: LayerSlot, below: LayerSlot) -> None:
    above.below.append(below)
    below.above.append(above)


def _order(layers: list[Layer]) -> None:
    """One sweep down and one up: each slot near the mean place of its neighbours."""
    for way, chosen in (("above", layers[1:]), ("below", layers[-2::-1])):
        place = {id(s): k / max(1, len(layer) - 1) for layer in layers for k, s in enumerate(layer)}
        for layer in chosen:
            means = {id(s): _mean([place[id(o)] for o in getattr(s, way)], place[id(s)]) for s in layer}
            layer.sort(key=lambda s: means[id(s)])
            place.update((id(s), k / max(1, len(layer) - 1)) for k, s in enumerate(layer))


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def place(layers: list[Layer], widths: Mapping[Node, int]) -> None:
    """Gives every slot its column, and every box the ports of its operands."""
    for layer in layers:
        x = 0
        for s in layer:
            s.width = widths[s.node] if s.real else 1
            s.x = x
            x += s.width + GAP
    for _ in range(SWEEPS):
        for way, chosen in (("above", layers[1:]), ("below", layers[-2::-1])):
            for layer in chosen:
                _settle(layer, [_mean([o.middle for o in getattr(s, way)], s.middle) for s in layer])
    left = min((s.x for layer in layers for s in layer), default=0)
    for layer in layers:
        for s in layer:
            s.x -= left
    for layer in layers:
        for s in layer:
            if s.real:
                _give_ports(s)


def _settle(layer: Layer, wanted: Sequence[float]) -> None:
    """Middles as near to the wanted ones as the order and the gaps allow: pools of neighbours that push one another."""
    offsets, at = [], 0.0
    for k, s in enumerate(layer):
        if k:
            at += layer[k - 1].width - layer[k - 1].width // 2 + GAP + s.width // 2
        offsets.append(at)
    pools: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        pools.append((want - offset, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
    levels = [level for level, count in pools for _ in range(count)]
    for s, level, offset in zip(layer, levels, offsets, strict=True):
        s.x = round(level + offset) - s.width // 2
    for before, s in pairwise(layer):  # rounding may have cost a column
        s.x = max(s.x, before.x + before.width + GAP)


def _give_ports(slot: LayerSlot) -> None:
    """Columns on the top of a box, from left to right as the operands lie; straight below the operand where that fits."""
    operands = sorted(slot.above, key=lambda o: o.middle)
    low, high = slot.x + 1, slot.x + slot.width - 2
    free = low
    for k, o in enumerate(operands):
        last = high - (len(operands) - 1 - k)
        x = min(max(o.middle, free), last) if len(operands) > 1 else min(max(o.middle, low), high)
        slot.ports[o.node] = x
        free = x + 2 if x + 2 <= high - (len(operands) - 2 - k) else x + 1
