"""The steps of layered graph drawing on one graph: layers, order within layers, coordinates.

Sugiyama, Tagawa and Toda (IEEE SMC-11, 1981): layers by longest paths, barycentre sweeps against crossings, and coordinates by
quadratic minimisation along each layer, which pooling of neighbours that are too near solves exactly (Best and Chakravarti,
Mathematical Programming 47, 1990).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

GAP, EDGE_GAP, LAYER_GAP = 20.0, 12.0, 40.0
"""Between boxes of a layer, beside an edge that passes, and between layers."""

SWEEPS = 8
"""Passes over all layers to order them, and as many to place them."""

STRAIGHT = 8.0
"""How much more an edge that passes layers wants to be straight than one wants to be short."""


Unit = tuple[str, int]
"""What a layer of a frame holds: `("box", id)`, `("frame", id)`, `("in", id)` and `("out", id)` for the port of the value of a box
outside or inside, `("dummy", number)` where an edge crosses."""




@dataclass
class LayerNode:
    """A unit in a layer: its extent across the flow and along it, and where it stands."""

    unit: Unit
    size: float
    length: float
    layer: int = 0
    at: float = 0.0
    """The middle across the flow, from the left of the frame."""


@dataclass
class LayerEdge:
    """An edge between two units of a frame: how far from their middles it meets them, its weight, and the cells it passes."""

    source: Unit
    target: Unit
    out: float = 0.0
    into: float = 0.0
    weight: float = 1.0
    upwards: bool = False
    """It is laid out from its target to its source, as it would go up otherwise."""
    cells: list[LayerNode] = field(default_factory=list)

    def flip(self) -> None:
        """Lays it out the other way round."""
        self.source, self.target, self.out, self.into = self.target, self.source, self.into, self.out
        self.upwards = not self.upwards


def assign_layers(cells: dict[Unit, LayerNode], wires: list[LayerEdge], first: Callable[[Unit], int]) -> None:
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


def _acyclic_order(cells: dict[Unit, LayerNode], wires: list[LayerEdge], first: Callable[[Unit], int]) -> list[Unit]:
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


Link = tuple[LayerNode, float, float, float]
"""A neighbour in the layer above or below, how far from its middle and from one's own the edge is, and its weight."""


def links(wires: Iterable[LayerEdge]) -> tuple[dict[int, list[Link]], dict[int, list[Link]]]:
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


def order(layers: list[list[LayerNode]], above: dict[int, list[Link]], below: dict[int, list[Link]]) -> None:
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


def _mean(links: Sequence[Link], cell: LayerNode) -> float:
    return sum(other.at + there - here for other, there, here, _ in links) / len(links) if links else cell.at


def _pack(layer: list[LayerNode]) -> None:
    at = 0.0
    for k, c in enumerate(layer):
        at += _apart(layer[k - 1], c) if k else 0.0
        c.at = at
    for c in layer:
        c.at -= at / 2


def _apart(a: LayerNode, b: LayerNode) -> float:
    """How far the middles of two neighbours are apart at least."""
    passing = "dummy" in (a.unit[0], b.unit[0])
    return (a.size + b.size) / 2 + (EDGE_GAP if passing else GAP)


def _crossings(layers: list[list[LayerNode]], above: dict[int, list[Link]]) -> int:
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


def straighten(layers: list[list[LayerNode]], above: dict[int, list[Link]], below: dict[int, list[Link]]) -> None:
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


def _nearest(layer: list[LayerNode], wanted: list[tuple[float, float]]) -> None:
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
