"""Effects in branches: passes keep each where it is, however alike those of other branches are."""

from __future__ import annotations

import io
import itertools
import random

import numpy as np
import pytest

from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops import print_, ref_create, ref_read, ref_write
from deepx_graph.passes.observer import Verify
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.runtime.compile import compile
from deepx_graph.types import F32, I32, STATE, scalar

PIPELINES = ("cse", "simplify", "fix(cse,simplify,dce)", "clean", "default")
PLACES = 3


class Effects:
    """Nests of branches of two or three sides. There are so few effects that sides start with equal ones, or only hand on."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.b = Builder()

    def program(self) -> Module:
        types = [("x", scalar(F32)), *((f"at{k}", scalar(I32)) for k in range(PLACES)), ("state", STATE)]
        return Module((self.b.function("main", types, self._body),))

    def _body(self, x: Node, *rest: Node) -> tuple[Node, ...]:
        *self.selectors, state = rest
        self.reference, state = self.b.items(self.b(ref_create, state, x))
        value, state = self._steps(x, state, 3)
        last, state = self.b.items(self.b(ref_read, state, self.reference))
        return value, last, state

    def _steps(self, x: Node, state: Node, depth: int) -> tuple[Node, Node]:
        for _ in range(self.rng.randint(0, 2)):
            x, state = self._step(x, state, depth)
        return x, state

    def _step(self, x: Node, state: Node, depth: int) -> tuple[Node, Node]:
        kind = self.rng.randrange(6 if depth else 3)
        if kind == 0:
            return x, self.b(print_, state, x, format="%g;")
        if kind == 1:
            return x, self.b(ref_write, state, self.reference, self.b.constant(self.rng.randint(0, 1), F32))
        if kind == 2:
            value, state = self.b.items(self.b(ref_read, state, self.reference))
            return value, state
        sides = [self._steps(x, state, depth - 1) for _ in range(self.rng.randint(2, 3))]
        value, state = self.b.branch(self.rng.choice(self.selectors), *sides)
        return value, state


def runs(module: Module) -> dict[tuple[int, ...], tuple[list[float], str]]:
    """What a program gives and prints, by the sides that its branches take."""
    out = io.StringIO()
    f = compile(module, engine="numpy", out=out)
    found = {}
    for at in itertools.product(range(3), repeat=PLACES):
        given = [float(v) for v in f(np.float32(2), *map(np.int32, at))]
        found[at] = given, out.getvalue()
        out.seek(0)
        out.truncate()
    return found


@pytest.mark.parametrize("seeds", [range(24), pytest.param(range(24, 300), marks=pytest.mark.conformance)])
def test_effects_of_branches_that_are_alike_stay_apart(seeds: range) -> None:
    """Made one, they would happen before a branch is taken, and after the same state as those of the sides that differ."""
    for seed in seeds:
        module = Effects(seed).program()
        expected = runs(module)
        for pipeline in PIPELINES:
            after = run_pipeline(module, parse_pipeline(pipeline), [Verify()])
            assert runs(after) == expected, (seed, pipeline)
