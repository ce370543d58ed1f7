"""Programs that the tests of pictures draw, built by hand."""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.ir import Builder, Function, Module, Node, Origin
from deepx_graph.ops import add, compare, exponential, fusion, multiply, negate, print_, reduction, sine, tanh
from deepx_graph.types import F32, I32, STATE, scalar, tensor

MATRIX = tensor(F32, (4, 8))


def module(*functions: Function) -> Module:
    return Module(functions, functions[0].name)


def straight() -> Module:
    """y = tanh(x + w) * 0.125; x and w are 4x8."""
    b = Builder()

    def body(x: Node, w: Node) -> list[Node]:
        b.origin = Origin("s")
        total = b(add, x, w)
        b.origin = Origin("y")
        return [b(multiply, b(tanh, total), b.constant(0.125, F32))]

    return module(b.function("main", [("x", MATRIX), ("w", MATRIX)], body))


def branch() -> Module:
    """sin(x) where the first condition holds, else -x, and 2 or 3 beside it."""
    b = Builder()

    def body(x: Node, n: Node) -> Sequence[Node]:
        positive = b(compare, n, b.constant(0, I32), direction="GT")
        return b.branch(positive, [b(sine, x), b.constant(2.0, F32)], [b(negate, x), b.constant(3.0, F32)])

    return module(b.function("main", [("x", MATRIX), ("n", scalar(I32))], body))


def loop() -> Module:
    """i from 0 to n, acc doubled each time and printed; an exponential that does not change inside."""
    b = Builder()

    def body(x: Node, n: Node, state: Node) -> list[Node]:
        def iteration(now: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            i, acc, world = now
            grown = b(add, b(add, acc, acc), b(exponential, x))
            return b(compare, i, n, direction="LT"), [b(add, i, b.constant(1, I32)), grown, b(print_, world, grown, format="")]

        _, acc, world = b.loop([b.constant(0, I32), x, state], iteration)
        return [acc, world]

    return module(b.function("main", [("x", MATRIX), ("n", scalar(I32)), ("state", STATE)], body))


def fused() -> Module:
    """exp(x * 2) and its row sums in one kernel."""
    b = Builder()

    def inside(a: Node, s: Node) -> list[Node]:
        e = b(exponential, b(multiply, a, s))
        return [e, reduction(b, add, e, (1,))]

    body = b.function("body", [("a", MATRIX), ("s", scalar(F32))], inside)

    def main(x: Node) -> list[Node]:
        whole, rows = b.items(b(fusion, x, b.constant(2.0, F32), body=body))
        return [b(negate, whole), rows]

    return module(b.function("main", [("x", MATRIX)], main))


def calls() -> Module:
    """main(x) = twice(x) and its negative, from a second function."""
    b = Builder()
    twice = b.function("twice", [("a", MATRIX)], lambda a: [b(add, a, a)])
    return module(b.function("main", [("x", MATRIX)], lambda x: [b(negate, b.call(twice, x)[0])]), twice)


def chain(length: int, ops: int = 3, names: str = "") -> Module:
    """`length` elementwise ops one after another, going through the first `ops` of four kinds in turn."""
    b = Builder()

    def body(x: Node) -> list[Node]:
        for k in range(length):
            b.origin = Origin(names.format(k=k, layer=k // 10))
            x = b((tanh, exponential, negate, sine)[k % ops], x)
        return [x]

    return module(b.function("main", [("x", MATRIX)], body))


def wide(width: int) -> Module:
    """x + 0, x + 1, ..., each a result."""
    b = Builder()
    return module(b.function("main", [("x", MATRIX)], lambda x: [b(add, x, b.constant(float(k), F32)) for k in range(width)]))


def tangle(size: int, seed: int = 1) -> Module:
    """Ops on operands from far and near, with no pattern."""
    import random

    rng, b = random.Random(seed), Builder()

    def body(*xs: Node) -> list[Node]:
        values = list(xs)
        for _ in range(size):
            values.append(b(rng.choice((add, multiply)), rng.choice(values[-200:]), rng.choice(values[-200:])))
        return values[-200:]

    return module(b.function("main", [(f"x{k}", MATRIX) for k in range(8)], body))


def named(name: str) -> Module:
    """The same name on a function, a parameter, a node and a result."""
    b = Builder(origin=Origin(name))
    return module(Function(name, (p := b.param(0, MATRIX, name),), (b(negate, b(tanh, p)),), (name,)))
