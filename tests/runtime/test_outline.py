"""Which operations a loop takes along that becomes one kernel: not those that a loop around it has computed once."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.rebuild import opened
from deepx_graph.ir.structure import LOOP_END
from deepx_graph.ops import add, and_, compare, divide, dynamic_slice, multiply, reshape, sine
from deepx_graph.ops.data.fusion import fused_body
from deepx_graph.rewrite.control.outline import outlined
from deepx_graph.types import type_of_array
from deepx_graph.verify import verify
from tests.support.generate import random_inputs, random_module

X = np.linspace(-1, 2, 7).astype("f4")
Variables = tuple[Node, ...]


def counted(b: Builder, times: int, inits: Sequence[Node], step: Callable[[Variables], Sequence[Node]],
            may: Node | None = None) -> Variables:
    """A loop that runs so often, where it may: without such a condition the count is known."""
    def body(v: Variables) -> tuple[Node, Sequence[Node]]:
        goes_on = b(compare, v[0], b.like(times, v[0]), direction="LT")
        return goes_on if may is None else b(and_, goes_on, may), (b(add, v[0], b.like(1, v[0])), *step(v))

    return b.loop((b.constant(np.int32(0)), *inits), body)


def until_small(b: Builder, x: Node) -> Node:
    """Halved until it is below one: nobody knows how often."""

    def body(v: Variables) -> tuple[Node, Sequence[Node]]:
        return b(compare, v[0], b.like(1.0, v[0]), direction="GT"), (b(multiply, v[0], b.like(0.5, v[0])),)

    return b.loop((x,), body)[0]


def nested(of_element: Callable[[Builder, Node], Node], *, is_bounded: bool = True, is_sure: bool = True) -> Function:
    """Sums of `table[j]`, over and over; the table, and a number that a loop makes, are read by the inner loop alone. Whether that
    runs is known where it `is_sure`."""
    b = Builder()
    x = b.param(0, type_of_array(X), name="x")
    table = of_element(b, x)
    (first,) = (b(reshape, b(dynamic_slice, x, b.constant(np.int32(0)), slice_sizes=(1,)), shape=()),)
    may = None if is_sure else b(compare, first, b.like(5.0, first), direction="LT")
    number = counted(b, 5, (first,), lambda v: (b(sine, v[1]),))[1] if is_bounded else until_small(b, first)

    def inner(v: Variables) -> Sequence[Node]:
        element = b(reshape, b(dynamic_slice, table, v[0], slice_sizes=(1,)), shape=())
        return (b(add, v[1], b(multiply, element, number)),)

    total = counted(b, 3, (b.constant(np.float32(0)),),
                    lambda v: (b(divide, counted(b, len(X), (v[1],), inner, may)[1], b.like(2.0, v[1])),))[1]
    return Function("main", (x,), (total,))


def inner_loop(function: Function) -> Function:
    """The innermost loop that sums, as a kernel would have it."""
    def accepts(body: Function) -> bool:
        return any(n.op is dynamic_slice for n in body.nodes) and not any(n.op is divide for n in body.nodes)

    (found,) = [body for n in outlined(function, accepts).nodes if (body := fused_body(n)) is not None]
    return found


def test_what_is_computed_once_for_all_iterations_around_is_no_part_of_an_inner_loop() -> None:
    body = inner_loop(nested(lambda b, x: b(sine, x)))
    assert not any(n.op is sine for n in body.nodes)
    assert sum(n.op is LOOP_END for n in body.nodes) == 1


def test_what_may_not_end_runs_only_where_it_is_needed() -> None:
    body = inner_loop(nested(lambda b, x: b(sine, x), is_bounded=False, is_sure=False))
    assert sum(n.op is LOOP_END for n in body.nodes) == 2


def test_what_may_not_end_is_no_part_of_a_loop_that_is_known_to_run() -> None:
    body = inner_loop(nested(lambda b, x: b(sine, x), is_bounded=False))
    assert sum(n.op is LOOP_END for n in body.nodes) == 1


@pytest.mark.parametrize("engine", ["numexpr", "native"])
@pytest.mark.parametrize("is_sure", [True, False])
@pytest.mark.parametrize("is_bounded", [True, False])
def test_outlined_loops_compute_what_they_did(engine: str, is_bounded: bool, is_sure: bool) -> None:
    if engine == "native":
        pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")
    module = Module((nested(lambda b, x: b(sine, x), is_bounded=is_bounded, is_sure=is_sure),), "main")
    number = X[0]
    for _ in range(5 if is_bounded else 0):
        number = np.sin(number)
    want = np.float32(0)
    for _ in range(3):
        want = (want + np.sin(X).sum() * number) / 2
    np.testing.assert_allclose(dx.compile(module, engine=engine, optimize=False)(X)[0], want, rtol=1e-5)


def with_dead_column() -> Function:
    """A loop that halves the sum of a table, which an inner loop makes anew each time; another variable of that looks at the outer
    loop's, and nobody reads it."""
    b = Builder()
    table = b.param(0, type_of_array(X), name="x")

    def step(v: Variables) -> Sequence[Node]:
        def inner(w: Variables) -> Sequence[Node]:
            element = b(reshape, b(dynamic_slice, table, w[0], slice_sizes=(1,)), shape=())
            return b(add, w[1], element), b(multiply, w[2], v[1])

        total = counted(b, len(X), (b.constant(np.float32(0)), b.constant(np.float32(1))), inner)[1]
        return (b(divide, b(add, v[1], total), b.like(2.0, v[1])),)

    return Function("main", (table,), (counted(b, 3, (b.constant(np.float32(0)),), step)[1],))


def test_a_column_that_nobody_reads_looks_at_no_variable_of_a_loop_that_went() -> None:
    function = with_dead_column()
    found = outlined(function, lambda body: any(n.op is divide for n in body.nodes))
    assert found is not function
    module = Module((found,), "main")
    verify(module)
    want = np.float32(0)
    for _ in range(3):
        want = (want + X.sum()) / 2
    np.testing.assert_allclose(dx.compile(module, engine="numpy", optimize=False)(X)[0], want, rtol=1e-5)


def is_innermost(body: Function) -> bool:
    return sum(n.op is LOOP_END for n in body.nodes) == 1


@pytest.mark.parametrize("accepts", [lambda body: True, is_innermost], ids=["outermost", "innermost"])
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_outlined_and_opened_random_programs_are_well_formed_and_compute_what_they_did(
        first: int, accepts: Callable[[Function], bool]) -> None:
    tried = 0
    for seed in range(first, first + 20):
        rng = random.Random(seed)
        module = random_module(rng)
        inputs, entry = random_inputs(rng, module), module.entry
        function = outlined(entry, accepts)
        tried += function is not entry
        want = dx.compile(module, engine="numpy", optimize=False)(*inputs)
        for changed in (function, opened(function, fused_body)) if function is not entry else ():
            other = replace(module, functions=tuple(changed if f is entry else f for f in module.functions))
            verify(other)
            for x, y in zip(want, dx.compile(other, engine="numpy", optimize=False)(*inputs), strict=True):
                assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), f"seed {seed}"
    assert tried
