"""A small layered layout: which layer each node lies in, in which order, and at which column, in whole characters.

Nets that span several layers get a slot in each of those between. Orders come from a few sweeps by means of neighbours, columns
from the nearest places to those means that keep the order and the gaps (isotonic regression). For a few dozen nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from deepx_graph.ir import Node

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
