"""Loops by their arithmetic: trip counts are those of Python; loops are unrolled, variables that are always equal merged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END
from deepx_graph.ops import OPS, add, compare, multiply, subtract
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.passes.scalar.loops import loops, merge_equal_variables, once, trip_count
from deepx_graph.rewrite.base import RewriteControl
from deepx_graph.types import F32, I8, I32, U8, DType, scalar
from deepx_graph.verify import verify
from tests.support.reference import evaluate, same


def counting(start: int, step: int, limit: int, direction: str, dtype: DType = I8, *, swapped: bool = False,
             op: Any = add) -> Function:
    """`for (k = start; k <direction> limit; k += step) x = x * 3 + k`, giving k and x."""
    b = Builder()

    def body(v: tuple[Node, ...]) -> tuple[Node, list[Node]]:
        limit_node, step_node = b.constant(limit, dtype), b.constant(step, dtype)
        pair = (limit_node, v[0]) if swapped else (v[0], limit_node)
        x = b(add, b(multiply, v[1], b.constant(3, dtype)), v[0])
        return b(compare, *pair, direction=direction), [b(op, v[0], step_node), x]

    return b.function("main", [("x", scalar(dtype))], lambda x: b.loop([b.constant(start, dtype), x], body))


def module_of(function: Function) -> Module:
    return Module((function,), function.name)


def end_of(function: Function) -> Node:
    return next(n for n in function.nodes if n.op is LOOP_END)


def has_loop(m: Module) -> bool:
    return any(n.op is LOOP_BEGIN for n in m.entry.nodes)


HOLDS = {"LT": lambda a, b: a < b, "LE": lambda a, b: a <= b, "GT": lambda a, b: a > b, "GE": lambda a, b: a >= b,
         "EQ": lambda a, b: a == b, "NE": lambda a, b: a != b}  # fmt: skip
MIRROR = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ", "NE": "NE"}


def by_hand(start: int, step: int, limit: int, direction: str, low: int, high: int) -> tuple[int | None, bool]:
    """Turns, by going round (None when there is no end), and whether the counter wrapped."""
    k, iterations, wrapped = start, 0, False
    while HOLDS[direction](k, limit):
        if iterations > 300:
            return None, wrapped
        after = (k + step - low) % (high - low + 1) + low
        k, iterations, wrapped = after, iterations + 1, wrapped or after != k + step
    return iterations, wrapped


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_trip_counts_are_those_that_python_counts(data: st.DataObject) -> None:
    dtype, low, high = data.draw(st.sampled_from(((I8, -128, 127), (U8, 0, 255))))
    near = st.integers(low, high) | st.sampled_from((low, high, 0, 1, 5))
    start, limit = data.draw(near), data.draw(near)
    step = data.draw(st.integers(-3, 3).filter(lambda s: low <= s <= high))
    direction, swapped = data.draw(st.sampled_from(sorted(HOLDS))), data.draw(st.booleans())
    op = data.draw(st.sampled_from((add, subtract)))
    function = counting(start, step, limit, direction, dtype, swapped=swapped, op=op)
    moved = step if op is add else -step
    counted, wrapped = by_hand(start, moved, limit, MIRROR[direction] if swapped else direction, low, high)
    found = trip_count(end_of(function))
    assert found == counted or (found is None and wrapped)


def test_a_variable_that_is_taken_from_a_constant_is_no_counter() -> None:
    """9 - k swings between two values, and is no step by -9."""
    b = Builder()

    def body(v: tuple[Node, ...]) -> tuple[Node, list[Node]]:
        return b(compare, v[0], b.constant(3, I32), direction="GT"), [b(subtract, b.constant(9, I32), v[0])]

    function = b.function("main", [("x", scalar(I32))], lambda x: b.loop([b.constant(8, I32)], body))
    assert trip_count(end_of(function)) is None
    assert int(evaluate(module_of(function), [np.int32(0)])[0]) == 1


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.integers(-5, 5), st.integers(-3, 3), st.integers(-5, 5), st.sampled_from(sorted(HOLDS)), st.integers(-128, 127))
def test_a_loop_written_out_gives_the_same(start: int, step: int, limit: int, direction: str, x: int) -> None:
    m = module_of(counting(start, step, limit, direction))
    iterations = trip_count(end_of(m.entry))
    assume(iterations is not None and iterations <= 8)
    after = run_pipeline(m, parse_pipeline("unroll"))
    verify(after)
    assert not has_loop(after)
    for got, want in zip(evaluate(after, [np.int8(x)]), evaluate(m, [np.int8(x)]), strict=True):
        assert same(got, want)


@pytest.mark.parametrize(("limit", "pipeline", "left"), [
    (8, "unroll", False), (9, "unroll", True), (9, "unroll{max-trips=9}", False), (8, "unroll{max-nodes=10}", True),
    (1, "simplify", False), (0, "simplify", False), (2, "simplify", True),
])  # fmt: skip
def test_how_far_loops_are_written_out(limit: int, pipeline: str, left: bool) -> None:
    assert has_loop(run_pipeline(module_of(counting(0, 1, limit, "LT")), parse_pipeline(pipeline))) is left


def nested(inner: int, outer: int, *, invariant: bool) -> Module:
    """A loop in a loop; the inner one starts from what the outer one holds, or from a constant."""
    b = Builder()

    def count(n: int, x: Node, step: Any) -> Node:
        def body(v: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            return b(compare, v[0], b.constant(n, I32), direction="LT"), [b(add, v[0], b.constant(1, I32)), step(v[1], v[0])]
        return b.loop([b.constant(0, I32), x], body)[1]

    def around(x: Node, k: Node) -> Node:
        return b(add, x, count(inner, b.constant(1, I32) if invariant else x, lambda y, j: b(add, b(multiply, y, k), j)))

    return module_of(b.function("main", [("x", scalar(I32))], lambda x: (count(outer, x, around),)))


@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize(("inner", "outer"), [(3, 4), (1, 20), (20, 1), (20, 3), (0, 2), (20, 2)])
def test_loops_in_loops(inner: int, outer: int, invariant: bool) -> None:
    m = nested(inner, outer, invariant=invariant)
    for pipeline in ("unroll", "simplify", "unroll,simplify"):
        after = run_pipeline(m, parse_pipeline(pipeline))
        verify(after)
        for x in (0, 3, -7):
            assert same(evaluate(after, [np.int32(x)])[0], evaluate(m, [np.int32(x)])[0])
    assert has_loop(run_pipeline(m, parse_pipeline("unroll"))) == (inner == 20 or outer == 20)


def test_the_loops_of_a_function_are_listed_inner_ones_first() -> None:
    found = loops(nested(3, 4, invariant=False).entry)
    assert [trip_count(f.end) for f in found] == [3, 4]
    assert [f.holds_loops for f in found] == [False, True]


def twins(*, same_step: bool) -> Function:
    """Two counters that start alike, and a sum over both."""
    b = Builder()

    def body(v: tuple[Node, ...]) -> tuple[Node, list[Node]]:
        one, two = b.constant(1, I32), b.constant(1 if same_step else 2, I32)
        ahead = b(add, v[0], one)
        total = b(add, v[2], b(multiply, v[0], v[1]))
        return b(compare, v[0], n[0], direction="LT"), [ahead, b(add, v[1], one if same_step else two), total]

    n: list[Node] = []

    def main(limit: Node) -> tuple[Node, ...]:
        n.append(limit)
        zero = b.constant(0, I32)
        return b.loop([zero, zero, b.constant(5, I32)], body)

    return b.function("main", [("n", scalar(I32))], main)


@pytest.mark.parametrize("same_step", [True, False])
def test_variables_that_are_always_equal_become_one(same_step: bool) -> None:
    m = run_pipeline(module_of(twins(same_step=same_step)), parse_pipeline("cse"))
    after = run_pipeline(m, parse_pipeline("simplify"))
    verify(after)
    begin = next(n for n in after.entry.nodes if n.op is LOOP_BEGIN)
    assert len(begin.inputs) == (2 if same_step else 3)
    for limit in (0, 1, 6):
        for got, want in zip(evaluate(after, [np.int32(limit)]), evaluate(m, [np.int32(limit)]), strict=True):
            assert same(got, want)


def test_nothing_is_done_where_there_is_nothing_to_do() -> None:
    b = Builder()
    f = b.function("main", [("x", scalar(F32))], lambda x: (b(OPS["tanh"], x),))
    assert once(f, RewriteControl()) is f
    assert merge_equal_variables(f, RewriteControl()) is f
