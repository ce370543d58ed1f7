"""Scatters as loops: what `eval` gives, whichever way updates are shared out, by the interpreter and by machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Op
from deepx_graph.loops.interpret import interpret
from deepx_graph.loops.lower import lower
from deepx_graph.loops.program import Conditional, For, LoopProgram, walk
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.ops.loops import index
from deepx_graph.ops.math.elementwise import add, maximum, minimum, multiply
from deepx_graph.ops.tensor.index import scatter
from deepx_graph.ops.tensor.index_select import index_add
from deepx_graph.types import DTYPES, type_of_array

RNG = np.random.default_rng(17)
COMBINERS = {"add": add, "multiply": multiply, "maximum": maximum, "minimum": minimum}


def made(op: Op, arrays: list[Any], **attrs: Any) -> Function:
    """A function of one operation."""
    b = Builder()
    params = tuple(b.param(k, type_of_array(a)) for k, a in enumerate(arrays))
    return Function("main", params, (b(op, *params, **attrs),))


def check(op: Op, arrays: list[Any], **attrs: Any) -> LoopProgram:
    """The loop program, which gives what `eval` does, interpreted and compiled."""
    function = made(op, arrays, **attrs)
    (node,) = function.results
    assert op.eval is not None
    program, expected = lower(function), op.eval(arrays, *node.attrs)
    (compiled,) = dx.compile(Module((function,)), engine="native", threads=2, optimize=False)(*arrays)
    for found in (interpret(program, arrays)[0], compiled):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    return program


def parallel(program: LoopProgram) -> list[int]:
    """The iterations of the parallel loops of several."""
    return [n for s in program.body if isinstance(s, For) and s.parallel and (n := s.high.constant) > 1]


def combiner(name: str, dtype: Any) -> Function:
    """The function by which old elements and updates are combined; "" for that which takes the update."""
    if name:
        return monoid_body(COMBINERS[name], dtype)
    b = Builder()
    t = type_of_array(np.zeros((), dtype.np))
    return b.function("last", (("old", t), ("new", t)), lambda x, y: [y], public=False)


def floats(*shape: int) -> Any:
    return RNG.random(shape).astype("f4") - np.float32(0.5)


@pytest.mark.parametrize("name", ["", *COMBINERS])
@pytest.mark.parametrize("corner", [(1, 2), (0, 0), (-1, 3), (3, 9)], ids=str)
def test_a_box_is_written_by_all_threads(name: str, corner: tuple[int, int]) -> None:
    """Also one that lies partly or wholly outside."""
    program = check(scatter, [floats(7, 9), np.array(corner, "i4"), floats(5, 6)], update_window_dims=(0, 1),
                    scatter_dims_to_operand_dims=(0, 1), update_computation=combiner(name, type_of_array(floats(1)).dtype))
    assert parallel(program) == [5]


@pytest.mark.parametrize(("width", "columns"), [(64, [2]), (128, [2]), (32, []), (72, [])])
def test_long_rows_are_cut_at_cache_lines(width: int, columns: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "LEAST_SHARED", 1)
    program = check(scatter, [floats(6, width), RNG.integers(-2, 8, (20, 1), "i4"), floats(20, width)], update_window_dims=(1,),
                    inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1,
                    update_computation=combiner("", type_of_array(floats(1)).dtype))
    assert parallel(program) == columns


@pytest.mark.parametrize("name", ["", "add", "maximum"])
def test_rows_may_meet_and_lie_outside(name: str) -> None:
    program = check(scatter, [floats(6, 5), RNG.integers(-2, 8, (20, 1), "i4"), floats(20, 5)], update_window_dims=(1,),
                    inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1,
                    update_computation=combiner(name, type_of_array(floats(1)).dtype))
    assert parallel(program) == []
    assert not any(isinstance(s, Conditional) and s.otherwise for s in walk(program.body)), "a row is inside, or it is outside"


def test_what_operands_and_updates_go_over_together_is_done_by_all_threads() -> None:
    program = check(scatter, [floats(4, 6), RNG.integers(0, 6, (4, 9), "i4"), floats(4, 9)], inserted_window_dims=(1,),
                    input_batching_dims=(0,), scatter_indices_batching_dims=(0,), scatter_dims_to_operand_dims=(1,),
                    index_vector_dim=2, update_computation=combiner("add", type_of_array(floats(1)).dtype))
    assert parallel(program) == [4]


@pytest.mark.parametrize("name", COMBINERS)
@pytest.mark.parametrize("dtype", ["f32", "i32", "u8"])
def test_many_updates_of_few_elements_are_combined_in_shares(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "LEAST_SHARED", 1)
    number = next(d for d in DTYPES if d.name == dtype)
    operand, updates = (RNG.integers(0, 9, shape).astype(number.np) for shape in ((3, 2), (150, 2)))
    program = check(scatter, [operand, RNG.integers(-1, 4, (150, 1), "i4"), updates], update_window_dims=(1,),
                    inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1,
                    update_computation=combiner(name, number))
    assert parallel(program)[0] == 3  # 300 updates, 16 for each of 6 elements


def test_no_updates_leave_the_operand() -> None:
    check(scatter, [floats(3, 2), np.zeros((0, 1), "i4"), floats(0, 2)], update_window_dims=(1,), inserted_window_dims=(0,),
          scatter_dims_to_operand_dims=(0,), index_vector_dim=1, update_computation=combiner("add", type_of_array(floats(1)).dtype))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_slices_are_added_along_any_dimension(dim: int) -> None:
    shape = [4, 3, 5]
    updates = [*shape]
    updates[dim] = 7
    check(index_add, [floats(*shape), RNG.integers(0, shape[dim], 7, "i4"), floats(*updates)], dim=dim)
