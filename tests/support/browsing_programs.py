"""Programs whose lists fold, and whose values have NaN."""

from __future__ import annotations

import deepx_graph as dx
from deepx_graph.ir import Module, Node, Origin
from deepx_graph.ops import add, exponential, log, multiply, subtract, tanh
from deepx_graph.types import F32, tensor

X = tensor(F32, (4, 8))


def foldable() -> Module:
    """y = (x * 1 + 0) + (x * 1 + 0): two rules, a merge and a fusion await it."""
    b = dx.Builder()

    def half(x: Node, name: str) -> Node:
        b.origin = Origin(name + "1")
        scaled = b(multiply, x, b.constant(1.0, F32))
        b.origin = Origin(name + "2")
        return b(tanh, scaled)

    def body(x: Node) -> list[Node]:
        left, right = half(x, "a"), half(x, "b")
        b.origin = Origin("y")
        return [b(exponential, b(add, left, right))]

    return Module((b.function("main", [("x", X)], body),))


def hunted() -> Module:
    """log(x - x) is -inf, and times 0 a NaN; its exponential beside it is finite."""
    b = dx.Builder()

    def body(x: Node, y: Node) -> list[Node]:
        b.origin = Origin("gone")
        low = b(log, b(subtract, x, x))
        b.origin = Origin("worse")
        bad = b(multiply, low, b.constant(0.0, F32))
        b.origin = Origin("fine")
        return [b(add, bad, y), b(exponential, y)]

    return Module((b.function("main", [("x", X), ("y", X)], body),))
