"""Graphs of every shape that a picture must stand: long, wide, tangled, with many loops or functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops import add, compare, tanh
from deepx_graph.types import I32, scalar
from deepx_graph.viz import View
from deepx_graph.viz.view.model import LOOSE
from tests.support import viz_modules as programs


def loops(count: int, nested: bool) -> Module:
    """Loops one after another, or each in the one before."""
    b = Builder()

    def one(x: Node, n: Node, depth: int) -> Node:
        def iteration(now: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            inner = one(now[1], n, depth - 1) if depth else b(add, now[1], now[1])
            return b(compare, now[0], n, direction="LT"), [b(add, now[0], b.constant(1, I32)), inner]

        return b.loop([b.constant(0, I32), x], iteration)[1]

    def body(x: Node, n: Node) -> list[Node]:
        if nested:
            return [one(x, n, count)]
        for _ in range(count):
            x = one(x, n, 0)
        return [x]

    return programs.module(b.function("main", [("x", programs.MATRIX), ("n", scalar(I32))], body))


def many_functions(count: int) -> Module:
    b = Builder()
    return programs.module(*(b.function(f"f{k}", [("x", programs.MATRIX)], lambda x: [b(tanh, x)]) for k in range(count)))


SHAPES: Mapping[str, Callable[[], Module]] = {
    "chain": lambda: programs.chain(3000),
    "chain of one op": lambda: programs.chain(3000, ops=1),
    "dotted": lambda: programs.chain(3000, names="net.{layer}.op{k}"),
    "wide": lambda: programs.wide(1500),
    "tangle": lambda: programs.tangle(2500),
    "loops": lambda: loops(300, nested=False),
    "nested loops": lambda: loops(120, nested=True),
    "functions": lambda: many_functions(700),
}


def has_cycle(view: View) -> bool:
    """Whether boxes form a circle, but for the back edges of loops."""
    targets: dict[int, list[int]] = {n.id: [] for n in view.nodes}
    waiting = dict.fromkeys(targets, 0)
    for e in view.edges:
        if e.kind not in LOOSE:
            targets[e.source].append(e.target)
            waiting[e.target] += 1
    ready = [n for n, count in waiting.items() if not count]
    for n in ready:
        for t in targets[n]:
            waiting[t] -= 1
            if not waiting[t]:
                ready.append(t)
    return len(ready) < len(targets)
