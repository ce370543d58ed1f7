"""Nests cut where conditions on subscripts change: the same values, and no conditions where the ranges decide them."""

from __future__ import annotations

import numpy as np
import pytest

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.loops.builder import LoopBuilder
from deepx_graph.loops.index_sets import filled
from deepx_graph.loops.interpret import interpret
from deepx_graph.loops.lower import lower
from deepx_graph.loops.program import Conditional, For, LoopProgram, walk
from deepx_graph.loops.scalar import Affine, Index
from deepx_graph.ops import concatenate, multiply, pad, reverse, slice_
from deepx_graph.types import C64, F32, tensor


def padded(b: Builder, x: Node, low: tuple[int, ...], high: tuple[int, ...], interior: int = 0) -> Node:
    return b(pad, x, b.constant(np.float32(-1)), edge_padding_low=low, edge_padding_high=high,
             interior_padding=(interior,) * len(low))


def check(b: Builder, x: Node, result: Node, expected: np.ndarray, array: np.ndarray) -> LoopProgram:
    program = lower(Function("f", (x,), (result,)))
    found = interpret(program, [array.view("f4").reshape(*array.shape, -1) if array.dtype.kind == "c" else array])[0]
    np.testing.assert_array_equal(found.view(array.dtype).reshape(expected.shape), expected)
    return program


@pytest.mark.parametrize(("low", "high"), [((3,), (5,)), ((-3,), (4,)), ((0,), (7,)), ((2,), (-2,))])
def test_a_padded_row_is_loops_without_conditions(low: tuple[int, ...], high: tuple[int, ...]) -> None:
    b, array = Builder(), np.arange(100, dtype="f4")
    x = b.param(0, tensor(F32, (100,)))
    cut = array[max(0, -low[0]) : 100 + min(0, high[0])]
    expected = np.pad(cut, (max(0, low[0]), max(0, high[0])), constant_values=-1)
    program = check(b, x, padded(b, x, low, high), expected, array)
    assert not any(isinstance(s, Conditional) for s in walk(program.body))


def test_rows_within_a_padded_matrix_have_no_conditions() -> None:
    """One question for each row: then its innermost loop asks nothing."""
    b, array = Builder(), np.arange(600, dtype="f4").reshape(20, 30)
    x = b.param(0, tensor(F32, (20, 30)))
    program = check(b, x, padded(b, x, (2, 1), (1, 3)), np.pad(array, ((2, 1), (1, 3)), constant_values=-1), array)
    (question,) = [s for s in program.body[0].body if isinstance(s, Conditional)]  # type: ignore[union-attr]
    loops = [s for s in question.then if isinstance(s, For)]
    assert [(s.low.constant, s.high.constant) for s in loops] == [(0, 1), (1, 31), (31, 34)]
    assert not any(isinstance(s, Conditional) for s in walk(question.then))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_joined_parts_are_told_apart_along_any_axis(axis: int) -> None:
    b, array = Builder(), np.arange(6 * 7 * 8, dtype="f4").reshape(6, 7, 8)
    x = b.param(0, tensor(F32, (6, 7, 8)))
    joined = b(concatenate, x, b(reverse, x, dimensions=(axis,)), x, dimension=axis)
    check(b, x, joined, np.concatenate([array, np.flip(array, axis), array], axis), array)


@pytest.mark.parametrize("size", [1000, 40])
def test_an_element_is_written_again_only_where_it_asks_about_subscripts(size: int) -> None:
    """Of 1000 elements the first 500 are others than the rest; of 40 all are alike, as their range says when they are written."""
    b, times = LoopBuilder(), 0

    def write(b: LoopBuilder, at: Index) -> None:
        nonlocal times
        times += 1
        b.when(b.less(at[-1], Affine((), 500)), lambda: None)

    filled(b, (30, size), write)
    assert (times == 1) == (size == 40)
    assert len(b.body) == 1 and not any(isinstance(s, Conditional) for s in walk(b.body))


def test_interior_padding_keeps_its_condition() -> None:
    b, array = Builder(), np.arange(60, dtype="f4")
    x = b.param(0, tensor(F32, (60,)))
    expected = np.full(125, -1, "f4")
    expected[3:122:2] = array
    check(b, x, padded(b, x, (3,), (3,), 1), expected, array)


def joined_windows(starts: list[int], axis: int, array: np.ndarray, width: int, scale: list[float] | None = None) -> LoopProgram:
    b, n = Builder(), array.shape[1]
    x = b.param(0, tensor(C64 if array.dtype.kind == "c" else F32, array.shape))
    parts, expected = [], []
    for k, start in enumerate(starts):
        part = b(slice_, x, start_indices=(0, start), limit_indices=(array.shape[0], start + width), strides=(1, 1))
        factor = array.dtype.type(1.0 if scale is None else scale[k])
        parts.append(part if scale is None else b(multiply, part, b.constant(factor)))
        expected.append(array[:, start : start + width] * factor)
    assert max(starts) + width <= n
    return check(b, x, b(concatenate, *parts, dimension=axis), np.concatenate(expected, axis), array)


def conditions(program: LoopProgram) -> int:
    return sum(isinstance(s, Conditional) for s in walk(program.body))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("starts", "width"), [([0, 3, 6, 9], 5), ([12, 9, 6], 4), ([2, 2, 2, 2], 6), ([1, 2, 3, 4, 5, 6], 1)])
@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_neighbouring_windows_are_one_subscript(starts: list[int], width: int, axis: int, dtype: str) -> None:
    array = (np.arange(60) * (1.0 if dtype == "f4" else 1 - 2j)).reshape(3, 20).astype(dtype)
    assert not conditions(joined_windows(starts, axis, array, width))


@pytest.mark.parametrize(("starts", "scale"), [([0, 3, 6, 10], None), ([0, 3, 6, 9], [2.0, 2.0, 2.0, 3.0]), ([0, 3, 5], None)])
def test_windows_that_differ_by_more_than_a_step_are_chosen_among(starts: list[int], scale: list[float] | None) -> None:
    """The last one alone out of step, or computed otherwise."""
    array = np.arange(60, dtype="f4").reshape(3, 20)
    joined_windows(starts, 0, array, 5, scale)
    joined_windows(starts, 1, array, 5, scale)
    assert not conditions(joined_windows([0, 3, 6, 9], 0, array, 5, [2.0] * 4))


@pytest.mark.parametrize("count", [2, 7, 9, 20])
def test_rows_of_stacked_arrays_have_no_conditions(count: int) -> None:
    """However many there are: which one it is, is asked around the rows."""
    array = np.arange(900, dtype="f4").reshape(1, 900)
    program = joined_windows([k * k for k in range(count)], 0, array, 40, [1.0 + k for k in range(count)])
    rows = [s for s in walk(program.body) if isinstance(s, For) and not any(isinstance(e, For) for e in walk(s.body))]
    assert len(rows) == count
    assert not any(isinstance(e, Conditional) for row in rows for e in walk(row.body))
