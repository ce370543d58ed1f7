"""Faults planted in random programs and found again: 125 NaNs in lines, loops, scans, branches and gradients; 50 cancellations."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node, Origin
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    compare,
    cosine,
    divide,
    dynamic_slice,
    dynamic_update_slice,
    exponential,
    log,
    multiply,
    negate,
    reshape,
    reverse,
    sine,
    sqrt,
    subtract,
    tanh,
)
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.types import BOOL, F32, I32, scalar, tensor

SIZE = 5
VECTOR = tensor(F32, (SIZE,))
SAMPLED = 12
"""So many of each kind in the short suite."""


class Planted:
    """A program of harmless operations on a vector, and one that is not, which bears the name `planted`."""

    def __init__(self, seed: int) -> None:
        self.rng, self.b = random.Random(seed), Builder()
        self.x, self.go = self.b.param(0, VECTOR, "x"), self.b.param(1, scalar(BOOL), "go")
        array = np.random.default_rng(seed).uniform(0.5, 2, SIZE).astype(np.float32)
        self.inputs = {"x": array, "go": np.asarray(self.rng.random() < 0.5)}

    def harmless(self, v: Node, count: int) -> Node:
        """What hides nothing: of values of middling size such values, of errors such errors."""
        for _ in range(count):
            kind = self.rng.randrange(5)
            if kind == 0:
                v = self.b(self.rng.choice((sine, cosine, tanh, negate)), v)
            elif kind == 1:
                v = self.b(add, v, self.b(tanh, self.x))
            elif kind == 2:
                v = self.b(reverse, v, dimensions=(0,))
            else:
                v = self.b(multiply, self.b(tanh, v), self.b(cosine, self.x))
        return v

    def named(self, make: Callable[[], Node]) -> Node:
        self.b.origin = Origin("planted")
        made = make()
        self.b.origin = Origin()
        return made

    def nan(self, v: Node) -> Node:
        """NaN of every element, by one of the ways in which it comes about."""
        b = self.b
        kind = self.rng.randrange(5)
        zero = b(subtract, v, v)
        if kind == 0:
            return self.named(lambda: b(divide, zero, zero))
        below = b(subtract, b(negate, b(multiply, v, v)), b.like(1, v))
        if kind == 1:
            return self.named(lambda: b(log, below))
        if kind == 2:
            return self.named(lambda: b(sqrt, below))
        large = b(exponential, b(subtract, b.like(1000, v), v))
        if kind == 3:
            return self.named(lambda: b(subtract, large, large))
        return self.named(lambda: b(multiply, large, zero))

    def in_a_line(self, bad: Callable[[Node], Node]) -> Node:
        return self.harmless(bad(self.harmless(self.x, 4)), 3)

    def in_a_branch(self, bad: Callable[[Node], Node]) -> Node:
        v = self.harmless(self.x, 3)
        sides = [bad(v), self.harmless(v, 2)]
        return self.harmless(self.b.branch(self.go, *([s] for s in (sides if self.inputs["go"] else sides[::-1])))[0], 2)

    def in_a_loop(self, bad: Callable[[Node], Node]) -> Node:
        """In one iteration of five."""
        b, when, v = self.b, self.rng.randrange(5), self.harmless(self.x, 2)

        def body(variables: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            count, value = variables
            value = self.harmless(value, 2)
            now = b(compare, count, b.constant(when, I32), direction="EQ")
            after = b.branch(now, [bad(value)], [value])[0]
            return b(compare, count, b.constant(5, I32), direction="LT"), [b(add, count, b.constant(1, I32)), after]

        return self.harmless(b.loop([b.constant(0, I32), v], body)[1], 2)

    def in_a_scan(self, bad: Callable[[Node], Node]) -> Node:
        """In a branch for one row of four, each of which is read in its iteration and stored."""
        b, when, zero = self.b, self.rng.randrange(4), self.b.constant(0, I32)
        rows = b(broadcast_in_dim, self.harmless(self.x, 2), shape=(4, SIZE), broadcast_dimensions=(1,))

        def body(variables: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            count, done = variables
            row = self.harmless(b(reshape, b(dynamic_slice, rows, count, zero, slice_sizes=(1, SIZE)), shape=(SIZE,)), 2)
            now = b(compare, count, b.constant(when, I32), direction="EQ")
            row = b.branch(now, [bad(row)], [row])[0]
            stored = b(dynamic_update_slice, done, b(reshape, row, shape=(1, SIZE)), count, zero)
            return b(compare, count, b.constant(4, I32), direction="LT"), [b(add, count, b.constant(1, I32)), stored]

        return self.harmless(reduction(b, add, b.loop([zero, b.splat(0, tensor(F32, (4, SIZE)))], body)[1], (0,)), 2)

    def module(self, result: Node) -> Module:
        return Module((Function("main", (self.x, self.go), (result,), ("y",)),))


PLACES = (Planted.in_a_line, Planted.in_a_branch, Planted.in_a_loop, Planted.in_a_scan)


def seeds(count: int) -> list[object]:
    return [n if n < SAMPLED else pytest.param(n, marks=pytest.mark.conformance) for n in range(count)]


@pytest.mark.parametrize("seed", seeds(100))
def test_a_planted_nan_is_named(seed: int) -> None:
    program = Planted(seed)
    module = program.module(PLACES[seed % len(PLACES)](program, program.nan))
    report = dx.explain_nan(module, program.inputs)
    assert report.outputs and [o.node.name for o in report.origins if o.kind == "NaN"][:1] == ["planted"]


@pytest.mark.parametrize("seed", seeds(25))
def test_a_nan_of_the_backward_part_is_named(seed: int) -> None:
    """The slope of a root at 0 is infinite, and what it is multiplied by is 0."""
    program = Planted(1000 + seed)
    b, v = program.b, program.harmless(program.x, 3)
    zero = b(subtract, v, v)
    module = program.module(program.harmless(b(add, program.named(lambda: b(sqrt, b(multiply, zero, zero))), v), 2))
    assert not dx.explain_nan(module, program.inputs).outputs
    back = dx.grad(module, wrt=["x"])
    report = dx.explain_nan(back, program.inputs | {p.name: np.ones(SIZE, np.float32) for p in back.entry.params[2:]})
    first = next(o for o in report.origins if o.kind == "NaN")
    assert report.outputs and first.backward and {"0.0", "inf"} & {v.lstrip("-") for v in first.operands}


@pytest.mark.parametrize("seed", seeds(50))
def test_a_planted_cancellation_is_ranked_first(seed: int) -> None:
    """A large number is added and taken away."""
    program = Planted(2000 + seed)
    b = program.b

    def cancel(v: Node) -> Node:
        large = b.like(float(program.rng.choice((1 << 12, 1 << 15, 50_000))), v)
        high = b(add, b(tanh, v), large)
        return program.named(lambda: b(subtract, high, large))

    module = program.module((Planted.in_a_line, Planted.in_a_branch)[seed % 2](program, cancel))
    report = dx.explain_error(module, program.inputs)
    assert [n.node.name for n in report.cancellations][:1] == ["planted"]
