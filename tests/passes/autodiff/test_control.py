"""Gradients through branches and loops: against finite differences, of first and second order, on the reference and the engine."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.analysis.schedule import Block, Eval, IfStep, LoopStep, Once, schedule
from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, REGION
from deepx_graph.ops import (
    add,
    compare,
    dynamic_slice,
    dynamic_update_slice,
    exponential,
    load,
    logistic,
    matmul,
    maximum,
    multiply,
    print_,
    reshape,
    sine,
    subtract,
    tape_push,
)
from deepx_graph.ops.host.host import Host
from deepx_graph.passes.autodiff.grad import choices, grad
from deepx_graph.types import F64, I32, STATE, TensorType, tensor
from deepx_graph.verify import verify
from tests.support.grad_programs import (
    PROGRAMS,
    M,
    S,
    check,
    counted,
    data_dependent,
    less,
    module,
    nested,
    real,
    rows,
    sampled,
    total,
)
from tests.support.reference import evaluate


@pytest.mark.parametrize("seed", [0, 1, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_finite_differences(name: str, seed: int) -> None:
    body, types = PROGRAMS[name]
    check(module(body, *types), 1, seed)


@pytest.mark.parametrize("name", PROGRAMS)
def test_second_order_equals_finite_differences_of_the_first(name: str) -> None:
    body, types = PROGRAMS[name]
    check(module(body, *types), 2, 0, rtol=1e-4)


def steps_of(block: Block) -> list[Any]:
    found: list[Any] = []
    stack: list[Any] = [block]
    while stack:
        step = stack.pop()
        found.append(step)
        if isinstance(step, Block):
            stack += step.steps
        elif isinstance(step, IfStep):
            stack += (b.block for b in step.branches)
        elif isinstance(step, LoopStep):
            stack += (step.header, step.body)
        elif isinstance(step, Once):
            stack.append(step.block)
    return found


def places(m: Module, op: Any) -> list[str]:
    """The kinds of the blocks in which an op is computed."""
    root = schedule(m.entry).root
    blocks = [s for s in steps_of(root) if isinstance(s, Block)]
    return sorted(s.kind for s in blocks for e in s.steps if isinstance(e, Eval) and e.node.op is op)


def test_only_the_taken_side_is_computed_and_only_once() -> None:
    def body(b: Builder, x: Node, p: Node) -> list[Node]:
        return list(b.branch(less(b, p, b.like(0, p)), [b(exponential, b(exponential, x))], [x]))

    g = dx.optimize(grad(module(body, M, S)), "simplify,cse,dce")
    assert places(g, exponential) == ["branch", "branch"]
    assert len([n for n in g.entry.nodes if n.op is REGION]) == 2


def test_a_known_trip_count_needs_no_tape_and_prints_as_hlo() -> None:
    g = dx.optimize(grad(module(nested, M, M)), "clean")
    assert not any(n.op is tape_push for n in g.entry.nodes)
    args = [*sampled((M, M)), *sampled((M,), 1)]
    for form in ("hlo", "stablehlo", "sea"):
        again = dx.compile(dx.loads(dx.dumps(g, form)), optimize=False)(*args)
        for x, y in zip(again, dx.compile(g, optimize=False)(*args), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12)


def test_a_tape_is_read_back_from_sea_and_refused_where_there_are_none() -> None:
    g = grad(module(data_dependent, M, M))
    assert dx.dumps(dx.loads(dx.dumps(g, "sea")), "sea") == dx.dumps(g, "sea")
    for form in ("hlo", "stablehlo"):
        with pytest.raises(dx.VerifyError) as refused:
            dx.dumps(g, form)
        first = refused.value.diagnostics[0]
        assert "'tape_empty'" in first.message
        assert "number of iterations is not known" in str(first.hint)
        dx.dumps(dx.optimize(dx.grad(module(nested, M, M), loop="recompute"), "clean"), form)


def test_counters_and_invariants_are_not_kept() -> None:
    g = grad(module(lambda b, x, w: counted(b, 5, [x], lambda i, y: [b(multiply, y, b(multiply, b(sine, w), real(b, i)))]), M, M))
    kept = [t for n in g.entry.nodes if n.op is LOOP_BEGIN for t in (i.type for i in n.inputs) if t.dims and t.dims[0] == 5]
    assert kept == [tensor(F64, (5, 2, 3))]  # y alone
    assert places(dx.optimize(g, "clean"), sine) in (["root"], ["once"])


def test_a_gradient_of_what_a_loop_reads_row_by_row_is_written_row_by_row() -> None:
    g = dx.optimize(grad(module(rows, M)), "clean")
    sums = [n for n in g.entry.nodes if n.op is add and n.type == M]
    assert sums == []


@pytest.mark.parametrize(("first", "step", "direction", "limit", "iterations"), [
    (0, 1, "LT", 5, 5), (0, 1, "LE", 5, 6), (0, 2, "LT", 5, 3), (5, -1, "GT", 0, 5), (5, -2, "GE", 0, 3), (0, 1, "LT", 0, 0),
    (0, 1, "NE", 7, 7), (0, 2, "NE", 7, None), (0, 0, "LT", 1, None), (3, 1, "LT", 1, 0), (0, 1, "EQ", 0, 1),
    (2**31 - 2, 1, "GE", 0, None), (0, -1, "LT", 5, None),
])  # fmt: skip
def test_trip_counts(first: int, step: int, direction: str, limit: int, iterations: int | None) -> None:
    b = Builder()
    f = b.function("f", [], lambda: b.loop([b.constant(first, I32)], lambda v: (
        b(compare, v[0], b.constant(limit, I32), direction=direction), [b(add, v[0], b.constant(step, I32))])))
    end = next(n for n in f.nodes if n.op is LOOP_END)
    assert trip_count(end) == iterations
    if iterations is not None:
        value, = evaluate(Module((f,), "f"), [])
        assert int(value) == first + iterations * step


NEVER_RUNS = """sea 1
entry @main
func public @main(%x: f32[3]) -> (%y: f32[3]) {{
  %0 = constant dense<0> : i32[]
  %2 = constant dense<2> : i32[]
  %a = acos %x : f32[3]
  {first}
  %b = loop_begin %2, %c, %x {{loop = 0}} : (i32[], bool[], f32[3])
  %k = phi %b[0] : i32[]
  %t = phi %b[1] : bool[]
  %n = add %k, %2 : i32[]
  %m = compare LT, %n, %0 : bool[]
  %s = compare LT, %k, %0 : bool[]
  %e = loop_end %b, {test}, %n, %m, %a : (i32[], bool[], f32[3])
  %y = proj %e[2] : f32[3]
  return %y
}}
"""

@pytest.mark.parametrize(("first", "test"), [
    ("%c = constant dense<false> : bool[]", "%s"), ("%c = constant dense<false> : bool[]", "%t"),
    ("%c = compare LT, %2, %0 : bool[]", "%t"),
    ("%d = add %2, %2 : i32[]\n  %c = compare LT, %d, %0 : bool[]", "%t"),
])  # fmt: skip
def test_a_loop_that_never_runs_passes_gradients_by(first: str, test: str) -> None:
    """However its test is said: the derivative of what no iteration reads is not even multiplied by zero, as it may be NaN."""
    m = dx.loads(NEVER_RUNS.format(first=first, test=test))
    g = np.float32([1, 2, 3])
    found, = evaluate(grad(m), [np.float32([0.5, 2, -2]), g])
    np.testing.assert_array_equal(found, g)


def test_a_tie_in_a_loop() -> None:
    m = module(lambda b, x: counted(b, 2, [x], lambda i, y: [b(maximum, y, b.like(0.5, y))]), M)
    x = np.array([[0.1, 0.9, 0.5], [1, 2, 0.2]])
    found, = evaluate(grad(m), [x, np.ones((2, 3))])
    np.testing.assert_allclose(found[[0, 0, 1], [0, 1, 2]], [0, 1, 0])


def test_deeply_nested_branches_end() -> None:
    def body(b: Builder, x: Node, p: Node) -> list[Node]:
        test = less(b, p, b.like(0, p))
        y = x
        for _ in range(300):
            y, = b.branch(test, [b(sine, y)], [x])
        return [y]

    m = module(body, S, S)
    assert float(evaluate(grad(m), [np.float64(0.5), np.float64(1), np.float64(2)])[0]) == 2.0


def random_program(seed: int) -> Module:
    """A smooth program of float tensors of one shape with loops and branches inside each other."""
    rng = random.Random(seed)

    def step(b: Builder, values: list[Node], depth: int) -> Node:
        x, y = rng.choice(values), rng.choice(values)
        kind = rng.random()
        if depth < 3 and kind < 0.2:
            test = less(b, total(b, x), b.constant(rng.uniform(-3, 3)))
            return b.branch(test, [block(b, values, depth + 1)], [block(b, values, depth + 1)])[0]
        if depth < 3 and kind < 0.35:
            return counted(b, rng.randint(0, 3), [x, y], lambda i, u, v: [
                block(b, [*values, u, v], depth + 1), rng.choice([u, v, *values])])[rng.randint(0, 1)]
        if depth < 3 and kind < 0.45:
            limit = b.constant(rng.uniform(-2, 6))
            bump = b.splat(rng.uniform(1, 2), M)
            return b.loop([x, b.splat(0, M)], lambda v: (less(b, total(b, v[1]), limit), [
                b(sine, block(b, [*values, v[0]], depth + 1)), b(add, v[1], bump)]))[0]
        if kind < 0.7:
            return b(rng.choice((sine, logistic)), x)
        return b(multiply, b(sine, x), y) if kind < 0.85 else b(rng.choice((add, subtract)), x, y)

    def block(b: Builder, values: list[Node], depth: int) -> Node:
        values = list(values)
        for _ in range(rng.randint(1, 4)):
            values.append(step(b, values, depth))
        return values[-1]

    def body(b: Builder, *params: Node) -> list[Node]:
        return [block(b, [*params, block(b, list(params), 0)], 0), block(b, list(params), 0)]

    return module(body, M, M)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    check(random_program(seed), 1, seed)


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_random_programs(seed: int) -> None:
    check(random_program(seed), 1, seed)


# --- what loops keep ----------------------------------------------------------------------------------------------


def rnn(iterations: int) -> Module:
    def body(b: Builder, x: Node, w: Node) -> list[Node]:
        return list(counted(b, iterations, [x], lambda i, h: [b(sine, b(add, matmul(b, h, w), b(sine, b(multiply, h, h))))]))

    return module(body, tensor(F64, (4, 8)), tensor(F64, (8, 8)))


@pytest.mark.parametrize("strategy", ["recompute", "sqrt"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_loop_strategies_agree(name: str, strategy: str) -> None:
    body, types = PROGRAMS[name]
    m = module(body, *types)
    args = [*sampled(types), *sampled([t for t in m.entry.type.results if isinstance(t, TensorType)], 1)]
    g = grad(m, loop=strategy)
    verify(g)
    want = evaluate(grad(m, loop="keep"), args)
    for found in (evaluate(g, args), dx.compile(g)(*args)):
        for x, y in zip(found, want, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12)


def test_the_memory_of_sqrt_grows_with_the_square_root() -> None:
    """On an engine that interprets loops: in a loop that is one kernel, what is kept is the kernel's own memory."""
    peaks = {n: [dx.compile(c.module, engine="numexpr", optimize=False).plan.peak_bytes for c in choices(rnn(n))]
             for n in (250, 1000)}
    keep, recompute, sqrt = (peaks[1000][k] / peaks[250][k] for k in range(3))
    assert keep > 3.5
    assert recompute > 3.5
    assert sqrt < 2.2
    assert peaks[1000][2] * 10 < peaks[1000][0]


def scan(iterations: int) -> Module:
    """A recurrence as array languages write it: inputs and results of all iterations are loop variables."""

    def body(b: Builder, x: Node, w: Node, rows: Node) -> list[Node]:
        def iteration(i: Node, h: Node, given: Node, outs: Node) -> list[Node]:
            zero = b.constant(0, I32)
            row = b(reshape, b(dynamic_slice, given, i, zero, zero, slice_sizes=(1, 4, 8)), shape=(4, 8))
            after = b(sine, b(add, matmul(b, h, w), b(sine, b(multiply, row, h))))
            return [after, given, b(dynamic_update_slice, outs, b(reshape, after, shape=(1, 4, 8)), i, zero, zero)]

        outs = b.splat(0, tensor(F64, (iterations, 4, 8)))
        return [counted(b, iterations, [x, rows, outs], iteration)[2]]

    return module(body, tensor(F64, (4, 8)), tensor(F64, (8, 8)), tensor(F64, (iterations, 4, 8)))


@pytest.mark.parametrize("name", [*PROGRAMS, "rnn", "scan"])
def test_checkpoints_keep_no_more_than_every_iteration_does(name: str) -> None:
    m = {"rnn": rnn, "scan": scan}[name](50) if name not in PROGRAMS else module(PROGRAMS[name][0], *PROGRAMS[name][1])
    kept = {c.loop: c.row_bytes for c in choices(m)}
    assert kept["sqrt"] <= kept["keep"]
    if name == "scan":  # the state before each of 7 + 1 runs, in one run the state and the product, and counters
        assert kept["sqrt"] <= 4 * 8 * 8 * (7 + 1 + 2 * 7 + 2 * 1) + 4 * 50


def test_a_thousand_steps_with_checkpoints_have_the_same_gradient() -> None:
    m = rnn(1000)
    args = [*sampled(m.entry.type.params), *sampled(m.entry.type.results, 1)]
    by_sqrt, kept = (dx.compile(grad(m, loop=how), optimize=False)(*args) for how in ("sqrt", "keep"))
    for x, y in zip(by_sqrt, kept, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9)


def test_the_budget_decides() -> None:
    m = rnn(100)
    kept = {c.loop: c.row_bytes for c in choices(m)}
    assert kept["keep"] == 2 * kept["recompute"] == 2 * 100 * 4 * 8 * 8  # the sum and the state against the state alone
    assert kept["sqrt"] < kept["recompute"]
    sizes = [dx.compile(grad(m, budget=n), optimize=False).plan.peak_bytes for n in (1 << 20, kept["recompute"], 0)]
    strategies = ("keep", "recompute", "sqrt")
    assert sizes == [dx.compile(grad(m, loop=s), optimize=False).plan.peak_bytes for s in strategies]
    with pytest.raises(dx.UsageError, match="did you mean 'keep'"):
        grad(m, loop="kep")


# --- effects, and forward mode ------------------------------------------------------------------------------------


class Files(Host):
    """A world with one file and no output."""

    def __init__(self, array: Any) -> None:
        super().__init__(None, None, None)
        self.array = array

    def load(self, path: str, type: TensorType) -> Any:
        return self.array

    def print(self, array: Any, format: str) -> None:
        """Nothing is written."""


def test_loads_in_a_loop_are_kept_and_values_after_prints_are_right() -> None:
    def body(b: Builder, x: Node, state: Node) -> list[Node]:
        def iteration(v: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            w, after = b.items(b(load, v[2], path="w", type=M))
            nexts = [b(add, v[0], b.constant(1, I32)), b(sine, b(multiply, v[1], w)), b(print_, after, v[1])]
            return less(b, v[0], b.constant(3, I32)), nexts

        _, y, last = b.loop([b.constant(0, I32), x, state], iteration)
        return [y, b(print_, last, y)]

    g = grad(module(body, M, STATE, names=("x", "state")))
    verify(g)
    x, w = sampled((M, M), 3)
    found, _ = evaluate(g, [x, np.ones((2, 3)), Files(w)])

    def f(x: Any) -> Any:
        for _ in range(3):
            x = np.sin(x * w)
        return x

    np.testing.assert_allclose(found, (f(x + 1e-6) - f(x - 1e-6)) / 2e-6, rtol=1e-6)


def test_effects_of_a_branch_stay_in_it() -> None:
    def body(b: Builder, x: Node, state: Node) -> list[Node]:
        w, after = b.items(b(load, state, path="w", type=M))
        test = less(b, total(b, x), b.constant(1.0))
        return list(b.branch(test, [b(sine, b(multiply, x, w)), b(print_, after, x)], [x, state]))

    g = grad(module(body, M, STATE, names=("x", "state")))
    verify(g)
    x, w = sampled((M, M), 3)
    for sign in (1, -1):
        found, _ = evaluate(g, [sign * x, np.ones((2, 3)), Files(w)])
        want = np.ones((2, 3)) if np.sum(sign * x) >= 1 else np.cos(sign * x * w) * w
        np.testing.assert_allclose(found, want, rtol=1e-12)


@pytest.mark.parametrize("seed", range(30, 42))
def test_forward_and_reverse_mode_are_transposes(seed: int) -> None:
    m = random_program(seed)
    args, tangents = sampled((M, M), seed), sampled((M, M), seed + 1)
    cts = sampled(m.entry.type.results, seed + 2)
    pushed = evaluate(dx.jvp(m), [*args, *tangents])
    pulled = evaluate(grad(m), [*args, *cts])
    left = sum(float(np.sum(c * p)) for c, p in zip(cts, pushed, strict=True))
    right = sum(float(np.sum(t * p)) for t, p in zip(tangents, pulled, strict=True))
    assert left == pytest.approx(right, rel=1e-9, abs=1e-12)
