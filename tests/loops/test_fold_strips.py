"""The law of sums over all rows of a matrix, made in strips of rows: of generated functions, what the `eval` of their ops gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.loops.fold import fold_strips
from deepx_graph.loops.interpret import interpret
from deepx_graph.loops.lower import lower
from deepx_graph.loops.passes.pipeline import optimised
from deepx_graph.ops import add, broadcast_in_dim, maximum, minimum, multiply, subtract
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.ops.interpret import evaluate
from deepx_graph.ops.loops import contract
from deepx_graph.types import F32, F64, I32, TensorType

COLUMNS = (4, 5, 8, 9, 16)


def function(rng: np.random.Generator) -> Function:
    """Sums, and greatest or least values, down the columns and along the rows of what is computed of a matrix and a row; some of it
    is a result as well."""
    b = Builder()
    dtype = (F32, F64, I32)[int(rng.integers(3))]
    leading = (int(rng.integers(1, 40)),) if rng.random() < 0.6 else (int(rng.integers(1, 5)), int(rng.integers(1, 12)))
    shape = (*leading, int(rng.choice(COLUMNS)))
    x, y = b.param(0, TensorType(dtype, shape)), b.param(1, TensorType(dtype, shape[-1:]))
    row = b(broadcast_in_dim, y, shape=shape, broadcast_dimensions=(len(shape) - 1,))
    values: list[Node] = [x, row]
    for _ in range(int(rng.integers(1, 5))):
        one, other = (values[int(rng.integers(len(values)))] for _ in range(2))
        values.append(b((add, subtract, multiply, maximum)[int(rng.integers(4))], one, other))
    results: list[Node] = []
    for _ in range(int(rng.integers(1, 4))):
        value = values[-1 - int(rng.integers(min(3, len(values))))]
        op = (add, maximum, minimum)[int(rng.integers(3))]
        dims: Any = range(len(leading)) if rng.random() < 0.7 else (len(leading),)
        results.append(reduction(b, op, value, tuple(dims)))
    if rng.random() < 0.5:
        results.append(values[-1])
    if rng.random() < 0.3 and len(shape) == 2:
        down = reduction(b, add, values[-1], (0,))
        results.append(b(subtract, values[-1], b(broadcast_in_dim, down, shape=shape, broadcast_dimensions=(1,))))
    return Function("f", (x, y), tuple(results))


def along_any_axes(rng: np.random.Generator) -> Function:
    """Sums of one tensor along several sets of its axes, whose rows are not the same in number; each may go on."""
    b = Builder()
    rank = int(rng.integers(2, 5))
    shape = tuple(int(d) for d in rng.integers(2, 7, rank))
    x = b.param(0, TensorType(F32, shape))
    results: list[Node] = []
    for _ in range(int(rng.integers(2, 5))):
        axes = tuple(k for k in range(rank) if rng.random() < 0.5) or (0,)
        value = reduction(b, add, b(multiply, x, x) if rng.random() < 0.3 else x, axes)
        rest = tuple(k for k in range(rank) if k not in axes)
        whole = b(subtract, x, b(broadcast_in_dim, value, shape=shape, broadcast_dimensions=rest))
        results += [whole] if rng.random() < 0.5 else [value, whole]
    return Function("f", (x,), tuple(results))


def check(seed: int, function: Callable[[np.random.Generator], Function] = function) -> None:
    """Small integers: every order of adding them up gives the same."""
    rng = np.random.default_rng(seed)
    f = function(rng)
    arrays = [rng.integers(-2, 3, p.type.shape).astype(p.type.dtype.np) for p in f.params]  # type: ignore[attr-defined]
    for program in (lower(f), optimised(lower(f))):
        for got, want in zip(interpret(program, arrays), evaluate(f, arrays), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}")


@pytest.fixture(autouse=True)
def _small_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "STRIP", 24)
    monkeypatch.setattr(contract, "LEAST_STRIP_ROWS", 2)


def test_sums_in_strips_are_what_eval_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(contract, "fold_strips", lambda *args: made.append(1) or fold_strips(*args))  # type: ignore[func-returns-value]
    for seed in range(60):
        check(seed)
    assert len(made) > 30, "most of them have strips"


def test_sums_along_several_sets_of_axes_stay_within_their_results() -> None:
    for seed in range(120):
        check(seed, along_any_axes)


@pytest.mark.conformance
@pytest.mark.parametrize("first", range(1000, 5000, 500))
def test_sums_of_many_functions_in_strips(first: int) -> None:
    for seed in range(first, first + 500):
        check(seed)
