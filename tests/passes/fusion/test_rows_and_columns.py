"""Fusion of reductions over different axes of one shape, their results used as rows, columns, or with axes of size 1.

Square shapes let a row be taken for a column; small integers make sums exact, so that every engine has to agree to the bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import PARAM
from deepx_graph.ops import add, broadcast_in_dim, fusion, maximum, minimum, negate, reduce, reduction, reshape, subtract
from deepx_graph.passes.fusion.fuse import Fuse
from deepx_graph.types import F32, TensorType, tensor
from deepx_graph.verify import verify
from tests.support.reference import evaluate

Step = Callable[[], Node | None]


class Writer:
    """A program over a matrix, its row and column sums, and vectors; every value is a small integer."""

    def __init__(self, seed: int, shape: tuple[int, int]) -> None:
        self.rng, self.b, self.shape = random.Random(seed), Builder(), shape
        self.values: list[Node] = []

    def module(self) -> Module:
        rows, columns = self.shape
        types = [tensor(F32, dims) for dims in ((rows, columns), (rows,), (columns,), (rows, 1), (1, columns), (1,), ())]
        return Module((self.b.function("main", [(f"x{k}", t) for k, t in enumerate(types)], self._body),))

    def _body(self, *params: Node) -> list[Node]:
        self.values += params
        steps: list[Step] = [*[self._binary, self._total, self._spread] * 2, self._unary, self._kept]
        while len(self.values) < 26:
            found = self.rng.choice(steps)()
            if found is not None:
                self.values.append(found)
        made = self.values[len(params) :]
        return [*self.rng.sample(made[:-3], 3), *made[-3:]]

    def _one(self, *shapes: tuple[int, ...]) -> Node | None:
        found = [v for v in self.values if v.type.shape in shapes]  # type: ignore[attr-defined]
        return self.rng.choice(found[-6:]) if found else None

    def _unary(self) -> Node:
        return self.b(negate, self.rng.choice(self.values[-8:]))

    def _binary(self) -> Node | None:
        x = self.rng.choice(self.values[-8:])
        y = self._one(x.type.shape, ())  # type: ignore[attr-defined]
        return None if y is None else self.b(self.rng.choice((add, subtract, maximum, minimum)), x, y)

    def _total(self) -> Node | None:
        x = self._one(self.shape)
        op = self.rng.choice((add, maximum, minimum))
        return None if x is None else reduction(self.b, op, x, self.rng.choice(((0,), (1,), (0, 1))))

    def _spread(self) -> Node | None:
        """A value along the axes that it fits, to the full shape or to one with an axis of size 1."""
        rows, columns = self.shape
        to = self.rng.choice((self.shape, self.shape, (rows, 1), (1, columns)))
        x = self.rng.choice(self.values[1:])
        shape = x.type.shape  # type: ignore[attr-defined]
        ways = [at for at in ((), (0,), (1,), (0, 1)) if len(at) == len(shape)
                and all(d in (1, to[k]) for d, k in zip(shape, at, strict=True))]  # fmt: skip
        return self.b(broadcast_in_dim, x, shape=to, broadcast_dimensions=self.rng.choice(ways)) if ways else None

    def _kept(self) -> Node | None:
        """A vector with an axis of size 1, or without it."""
        rows, columns = self.shape
        x = self._one((rows,), (columns,), (rows, 1), (1, columns))
        if x is None:
            return None
        shape = x.type.shape  # type: ignore[attr-defined]
        vector = tuple(d for d in shape if d != 1) or (1,)
        wanted = vector if len(shape) == 2 else self.rng.choice(((*vector, 1), (1, *vector)))
        return self.b(reshape, x, shape=wanted)


def inputs(module: Module, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-4, 5, p.type.shape).astype(np.float32) for p in module.entry.params]  # type: ignore[attr-defined]


def check_normal_form(kernel: Node) -> None:
    """Members have the full shape or that of a row; reductions over other axes than those of the rows are read by nothing."""
    body = kernel.attr("body")
    totals = [n for n in body.nodes if n.op is reduce]
    full = totals[0].inputs[0].type if totals else next(n.type for n in body.nodes if n.op.elementwise)
    read = {i for n in body.nodes for i in n.inputs}
    over = {n.attr("dimensions") for n in totals if n in read}
    assert len(over) <= 1, "reductions over several axes are read in one kernel"
    assert isinstance(full, TensorType)
    dropped = over or {n.attr("dimensions") for n in totals}
    rows = [tuple(d for k, d in enumerate(full.shape) if k not in axes) for axes in dropped]
    for n in body.nodes:
        if totals and n.op is not PARAM and splat_of(n) is None and (n.op is not reduce or n in read):
            assert n.type.shape in (full.shape, *rows)  # type: ignore[attr-defined]


@pytest.mark.parametrize("shape", [(4, 4), (3, 5)], ids=str)
@pytest.mark.parametrize("options", [Fuse(), Fuse(duplicate=True)], ids=str)
def test_kernels_keep_values_and_their_form(shape: tuple[int, int], options: Fuse) -> None:
    made = 0
    for seed in range(40):
        module = Writer(seed, shape).module()
        args, fused = inputs(module, seed), options.run(module)
        verify(fused)
        for kernel in (n for n in fused.entry.nodes if n.op is fusion):
            check_normal_form(kernel)
            made += any(n.op is reduce for n in kernel.attr("body").nodes)
        for want, got in zip(evaluate(module, args), evaluate(fused, args), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=str(seed))
    assert made > 20


@pytest.mark.parametrize("engine", ["numexpr", "native"])
def test_engines_run_them_alike(engine: str) -> None:
    for seed in range(12):
        module = Writer(seed, (4, 4)).module()
        args = inputs(module, seed)
        found = dx.compile(Fuse().run(module), engine=engine, optimize=False)(*args)
        for want, got in zip(evaluate(module, args), found, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=str(seed))
