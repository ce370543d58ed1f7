"""Gradients of loops that read or write boxes of a tensor at computed places: apart, overlapping, or moved inside at the ends.

All programs are linear, so that derivatives are exact: the gradient is the transpose of the matrix that the program is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops import add, compare, dynamic_slice, dynamic_update_slice, multiply
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.types import F64, I32, tensor
from tests.support.reference import evaluate

SIZE, TURNS = 6, 3

Body = Callable[[Builder, Node, Node, Node, int], list[Node]]
"""Of a place, two variables, and the size of a box: the next variables."""


def reads(b: Builder, at: Node, x: Node, y: Node, box: int) -> list[Node]:
    """Adds a box of x to y."""
    whole = b(dynamic_slice, x, at, slice_sizes=(box,))
    return [x, b(add, b(multiply, y, b.constant(2.0)), b(dynamic_update_slice, y, whole, b.constant(1, I32)))]


def writes(b: Builder, at: Node, x: Node, y: Node, box: int) -> list[Node]:
    """Puts the first elements of x into y, which nothing else changes."""
    row = b(multiply, b(dynamic_slice, x, b.constant(0, I32), slice_sizes=(box,)), b.constant(3.0))
    return [b(multiply, x, b.constant(-2.0)), b(dynamic_update_slice, y, row, at)]


def moves(b: Builder, at: Node, x: Node, y: Node, box: int) -> list[Node]:
    """A box of y goes into x, and one of x into y."""
    there, here = (b(dynamic_slice, z, at, slice_sizes=(box,)) for z in (y, x))
    return [b(dynamic_update_slice, x, there, at), b(dynamic_update_slice, y, here, b.constant(2, I32))]


def program(body: Body, start: int, step: int, box: int, *, outside: bool) -> Module:
    """`y` after the iterations, from `x` and `y`; with `outside`, x does not change and is no variable."""
    b = Builder()

    def main(x: Node, y: Node) -> tuple[Node, ...]:
        def iteration(v: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            k, at, *rest = v
            found = body(b, at, x if outside else rest[0], rest[-1], box)
            go_on = b(compare, k, b.constant(TURNS, I32), direction="LT")
            return go_on, [b(add, k, b.constant(1, I32)), b(add, at, b.constant(step, I32)), *found[outside:]]

        return b.loop([b.constant(0, I32), b.constant(start, I32), *([] if outside else [x]), y], iteration)[-1:]

    return Module((b.function("main", [("x", tensor(F64, (SIZE,))), ("y", tensor(F64, (SIZE,)))], main),))


def matrices(module: Module) -> list[Any]:
    """The derivative by each parameter, column by column."""
    units, nothing = np.eye(SIZE), np.zeros(SIZE)
    return [np.stack([evaluate(module, [nothing, u][::way])[0] for u in units], 1) for way in (-1, 1)]


@pytest.mark.parametrize("box", [1, 2])
@pytest.mark.parametrize("step", [-2, -1, 0, 1, 2])
@pytest.mark.parametrize("body", [reads, writes, moves])
def test_gradients_are_transposes(body: Body, step: int, box: int) -> None:
    rng = np.random.default_rng(box)
    for start in (-1, 0, 2, 4):
        for outside in (False, True) if body is reads else (False,):
            module = program(body, start, step, box, outside=outside)
            x, y, g = rng.standard_normal((3, SIZE))
            found = evaluate(grad(module), [x, y, g])
            for got, matrix in zip(found, matrices(module), strict=True):
                np.testing.assert_allclose(got, matrix.T @ g, rtol=1e-12, atol=1e-12)


def test_the_first_value_of_what_is_written_by_rows_has_a_derivative() -> None:
    """Elements that no iteration writes are those of the first value."""
    module = program(writes, 0, 1, 1, outside=False)
    x, y, g = np.ones(SIZE), np.ones(SIZE), np.arange(1.0, SIZE + 1)
    np.testing.assert_array_equal(evaluate(grad(module), [x, y, g])[1], [0, 0, 0, 4, 5, 6])
