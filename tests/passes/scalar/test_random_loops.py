"""Passes keep what loops of integers give, whichever way their variables hand values on.

The loops are of the kind that tells passes apart which look at variables one by one: variables that start alike or not, stay as
they are, take each other's values, or those of branches, and results that only some of them reach.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import add, compare, multiply, select, subtract
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.passes.scalar.loops import merge_equal_variables
from deepx_graph.rewrite.base import RewriteControl
from deepx_graph.types import I32, scalar
from deepx_graph.verify import verify
from tests.support.reference import evaluate

PIPELINES = ("sccp", "dce", "canonicalize", "cse", "simplify", "unroll", "cse,canonicalize,sccp,dce", "default")
TURNS = (0, 1, 2, 5)


class RandomLoop:
    """`for i in range(n)` over two to five more variables; `n` is a parameter, or the number 3."""

    def __init__(self, seed: int) -> None:
        self.rng, self.b = random.Random(seed), Builder()

    def function(self) -> Function:
        return self.b.function("main", [(name, scalar(I32)) for name in ("n", "x", "y")], self._main)

    def _main(self, n: Node, x: Node, y: Node) -> Sequence[Node]:
        b, rng = self.b, self.rng
        atoms = [x, y, b.constant(0, I32), b.constant(1, I32)]
        limit = n if rng.random() < 0.8 else b.constant(3, I32)
        inits = [rng.choice(atoms[: rng.randint(1, 4)]) for _ in range(rng.randint(2, 5))]

        def turn(v: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            nexts = [self._value([*v[1:], *v[1:], *atoms], v[1 + k]) for k in range(len(inits))]
            return b(compare, v[0], limit, direction="LT"), [b(add, v[0], b.constant(1, I32)), *nexts]

        final = b.loop([b.constant(0, I32), *inits], turn)[1:]
        return rng.sample(final, rng.randint(1, len(final)))

    def _value(self, atoms: Sequence[Node], own: Node) -> Node:
        """A next value: often the variable itself or another one."""
        b, rng = self.b, self.rng
        one, two, three = (rng.choice(atoms) for _ in range(3))
        match rng.randrange(8):
            case 0 | 1:
                return own
            case 2 | 3:
                return one
            case 4:
                return b(rng.choice((add, subtract, multiply)), one, two)
            case 5:
                return b(add, own, b.constant(1, I32))
            case 6:
                return b(select, b(compare, one, two, direction="LT"), own, three)
        sides = [[one, two], [one if rng.random() < 0.4 else three, own]]
        return rng.choice(b.branch(b(compare, two, three, direction="EQ"), *sides))


def results(module: Module) -> list[list[int]]:
    return [[int(r) for r in evaluate(module, [np.int32(n), np.int32(3), np.int32(-2)])] for n in TURNS]


@pytest.mark.parametrize("seed", range(60))
def test_passes_keep_what_a_loop_gives(seed: int) -> None:
    module = Module((RandomLoop(seed).function(),))
    want = results(module)
    for pipeline in PIPELINES:
        after = run_pipeline(module, parse_pipeline(pipeline))
        verify(after)
        assert results(after) == want, pipeline
    assert results(Module((merge_equal_variables(module.entry, RewriteControl()),))) == want
