"""The schedule: its text, what it leaves out, and code motion compared with direct execution of structured programs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from deepx_graph.analysis.schedule import schedule
from deepx_graph.analysis.scopes import Scope, common_scope
from deepx_graph.errors import VerifyError
from deepx_graph.ir import Builder, Function, Module, Node, Op, Operand
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PHI
from deepx_graph.ops import add, compare, exponential, multiply, negate, subtract
from deepx_graph.runtime.compile import compile
from deepx_graph.types import F32, I32, I64, scalar, tensor

INT, VECTOR = scalar(I32), tensor(F32, (3,))


def text(params: Sequence[tuple[str, Any]], body: Any) -> str:
    return str(schedule(Builder().function("main", params, body)))


def test_straight_line() -> None:
    b = Builder()
    f = b.function("main", [("x", VECTOR), ("unused", INT)], lambda x, n: [b(add, b(multiply, x, x), b.like(1, x))])
    assert str(schedule(f)) == (
        "schedule main\n"
        "start(%0 x: f32[3], %1 unused: i32[])\n"
        "%2: f32[3] = multiply(%0, %0)\n"
        "%3: f32[3] = add(%2, 1.:f32[])\n"
        "return %3\n"
    )


def test_branches_and_loops_stand_explicitly() -> None:
    b = Builder()

    def body(x: Node, n: Node) -> Sequence[Node]:
        def iteration(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            i, total, unused = v
            square = b(multiply, x, x)
            even = b(compare, i, b.constant(2, I32), direction="LT")
            (next_total,) = b.branch(even, [b(add, total, square)], [b(subtract, total, b(exponential, x))])
            return b(compare, i, b(add, n, n), direction="LT"), [b(add, i, b.constant(1, I32)), next_total, b(negate, unused)]

        return [b.loop([b.constant(0, I32), x, x], iteration)[1]]

    assert str(schedule(b.function("main", [("x", VECTOR), ("n", INT)], body))) == (
        "schedule main\n"
        "start(%0 x: f32[3], %1 n: i32[])\n"
        "%2: i32[] = add(%1, %1)\n"
        "%3 = loop(0: %4 = 0:i32[], 1: %5 = %0):\n"
        "  test:\n"
        "    %6: bool[] = compare(%4, %2) {direction=LT}\n"
        "    while %6\n"
        "  body:\n"
        "    %7: bool[] = compare(%4, 2:i32[]) {direction=LT}\n"
        "    %8 = if %7:\n"
        "      proj true:\n"
        "        once:\n"
        "          %9: f32[3] = multiply(%0, %0)\n"
        "        %10: f32[3] = add(%5, %9)\n"
        "        give 0: %10\n"
        "      proj false:\n"
        "        once:\n"
        "          %11: f32[3] = exponential(%0)\n"
        "        %12: f32[3] = subtract(%5, %11)\n"
        "        give 0: %12\n"
        "    %13: f32[3] = phi(%8) {index=0}\n"
        "    %14: i32[] = add(%4, 1:i32[])\n"
        "    next 0: %14, 1: %13\n"
        "%15: f32[3] = proj(%3) {index=1}\n"
        "return %15\n"
    )


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_what_a_loop_that_runs_does_not_change_is_computed_before_it(trips: int) -> None:
    """It ends what it reads, too; of a loop that may have no iteration it waits for the first."""
    b = Builder()

    def body(x: Node) -> Sequence[Node]:
        def iteration(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            i, total = v
            going_on = b(compare, i, b.constant(trips, I32), direction="LT")
            return going_on, [b(add, i, b.constant(1, I32)), b(add, total, b(exponential, x))]

        return [b.loop([b.constant(0, I32), x], iteration)[1]]

    lines = text([("x", VECTOR)], body).splitlines()
    (made,) = (k for k, line in enumerate(lines) if "exponential" in line)
    assert lines[made].startswith(" ") == (trips == 0) and ("once:" in lines[made - 1]) == (trips == 0)


def test_a_branch_value_that_nobody_reads_is_not_computed() -> None:
    b = Builder()

    def body(x: Node, p: Node) -> Sequence[Node]:
        selector = b(compare, p, p, direction="EQ")
        return [b.branch(selector, [b(negate, x), b(exponential, x)], [b(add, x, x), b(multiply, x, x)])[1]]

    shown = text([("x", VECTOR), ("p", INT)], body)
    assert "exponential" in shown
    assert "multiply" in shown
    assert "negate" not in shown
    assert "add" not in shown


def test_code_of_one_side_goes_into_that_side() -> None:
    b = Builder()

    def body(x: Node, p: Node) -> Sequence[Node]:
        one_sided, both = b(exponential, x), b(negate, x)
        return b.branch(b(compare, p, p, direction="LT"), [b(add, one_sided, both)], [both])

    lines = text([("x", VECTOR), ("p", INT)], body).splitlines()
    depth = {word: len(line) - len(line.lstrip()) for line in lines for word in ("exponential", "negate") if word in line}
    assert depth == {"exponential": 4, "negate": 0}


def test_names_from_files_are_escaped() -> None:
    shown = text([("x\x1b[31m\u202e", VECTOR)], lambda x: [x])
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_a_loop_variable_outside_its_loop_is_refused() -> None:
    b = Builder()
    x = b.param(0, INT, "x")
    begin = b(LOOP_BEGIN, x, loop=12345)
    phi = b(PHI, begin, index=0)
    with pytest.raises(VerifyError, match="never closed"):
        schedule(Function("f", (x,), (phi,)))
    end = b(LOOP_END, begin, b(compare, phi, x, direction="LT"), b(add, phi, x))
    with pytest.raises(VerifyError, match="outside its loop"):
        schedule(Function("f", (x,), (b(add, phi, b.proj(end, 0)),)))


@pytest.mark.parametrize("kind", ["branch", "loop"])
def test_deep_nesting_costs_no_stack(kind: str) -> None:
    b, depth = Builder(), 3000

    def body(x: Node) -> Sequence[Node]:
        value, selector = x, b(compare, x, x, direction="EQ")
        if kind == "branch":
            for _ in range(depth):
                (value,) = b.branch(selector, [b(add, value, b.constant(1, I32))], [x])
            return [value]
        outer = [b(LOOP_BEGIN, x, loop=-k) for k in range(1, depth + 1)]
        for begin in reversed(outer):
            phi = b(PHI, begin, index=0)
            end = b(LOOP_END, begin, b(compare, phi, value, direction="LT"), b(add, value, b.constant(1, I32)))
            value = b.proj(end, 0)
        return [value]

    f = b.function("main", [("x", INT)], body)
    str(schedule(f))
    assert compile(Module((f,)), engine="numpy")(np.int32(7))[0] == 7 + (depth if kind == "branch" else 0)


# --- random structured programs, run directly and through the sea -------------------------------------------------

EVALS: list[str] = []


def modular(name: str, function: Any) -> Op:
    def evaluate(xs: Sequence[Any]) -> Any:
        EVALS.append(name)
        return np.asarray(function(int(xs[0]), int(xs[1])), np.int64)

    return Op(name, "A test operation.", operands=(Operand("a"), Operand("b")), infer=lambda types: scalar(I64), eval=evaluate)


ARITHMETIC = {
    "add": lambda a, b: (a + b) % 1009,
    "mul": lambda a, b: a * b % 1009,
    "sub": lambda a, b: (a - b) % 1009,
}
MODULAR = {name: modular(f"{name}_mod", function) for name, function in ARITHMETIC.items()}
Statement = tuple[Any, ...]


def random_program(rng: random.Random, depth: int = 0) -> list[Statement]:
    """Statements over the variables 0 to 3: operations, assignments, branches on a comparison, counted loops."""
    out: list[Statement] = []
    for _ in range(rng.randint(2, 5)):
        kind = rng.random()
        if depth < 3 and kind < 0.25:
            inner = random_program(rng, depth + 1), random_program(rng, depth + 1)
            out.append(("if", rng.randrange(4), rng.randrange(4), *inner))
        elif depth < 3 and kind < 0.45:
            out.append(("loop", rng.randint(0, 4), random_program(rng, depth + 1)))
        elif rng.random() < 0.8:
            out.append(("op", rng.choice(list(ARITHMETIC)), rng.randrange(4), rng.randrange(4), rng.randrange(4)))
        else:
            out.append(("set", rng.randrange(4), rng.randrange(9)))
    return out


def direct(program: Sequence[Statement], values: Sequence[int], count: list[int]) -> list[int]:
    v = list(values)
    for s in program:
        match s:
            case ("op", name, a, b, to):
                count[0] += 1
                v[to] = ARITHMETIC[name](v[a], v[b])
            case ("set", to, number):
                v[to] = number
            case ("if", a, b, yes, no):
                v = direct(yes if v[a] < v[b] else no, v, count)
            case ("loop", iterations, inner):
                for _ in range(iterations):
                    v = direct(inner, v, count)
    return v


def build(b: Builder, program: Sequence[Statement], values: Sequence[Node]) -> list[Node]:
    v = list(values)
    for s in program:
        match s:
            case ("op", name, x, y, to):
                v[to] = b(MODULAR[name], v[x], v[y])
            case ("set", to, number):
                v[to] = b.constant(number, I64)
            case ("if", x, y, yes, no):
                v = list(b.branch(b(compare, v[x], v[y], direction="LT"), build(b, yes, v), build(b, no, v)))
            case ("loop", iterations, inner):
                v = _loop(b, iterations, inner, v)
    return v


def _loop(b: Builder, iterations: int, inner: Sequence[Statement], v: Sequence[Node]) -> list[Node]:
    def body(phis: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        more = b(compare, phis[0], b.constant(iterations, I64), direction="LT")
        return more, [b(add, phis[0], b.constant(1, I64)), *build(b, inner, phis[1:])]

    return list(b.loop([b.constant(0, I64), *v], body)[1:])


SAMPLED = (0, 600)
"""One of each kind: nodes made anew, nodes shared."""
STARTS = [k if k in SAMPLED else pytest.param(k, marks=pytest.mark.conformance) for k in range(0, 1000, 100)]


@pytest.mark.parametrize("start", STARTS)
def test_random_structured_programs(start: int) -> None:
    """Equal results, and never more operations than direct execution does: code motion does not speculate."""
    intern = start >= 600
    for seed in range(start, start + 100):
        rng = random.Random(seed)
        program = random_program(rng)
        inputs = [rng.randrange(50) for _ in range(4)]
        count = [0]
        want = direct(program, inputs, count)
        b = Builder(intern=intern)
        f = b.function("main", [(f"v{k}", scalar(I64)) for k in range(4)], lambda *v, p=program, b=b: build(b, p, v))
        run = compile(Module((f,)), engine="numpy")
        EVALS.clear()
        assert [int(r) for r in run(*map(np.int64, inputs))] == want, seed
        if not intern:
            assert len(EVALS) <= count[0], seed


def test_the_innermost_scope_around_two() -> None:
    """Against the lists of all places around each."""
    rng = random.Random(0)
    tree = [Scope()]
    around = {tree[0]: [tree[0]]}
    for _ in range(400):
        parent = rng.choice(tree[-9:])
        tree.append(Scope("branch", parent))
        around[tree[-1]] = [*around[parent], tree[-1]]
    for _ in range(2000):
        a, b = rng.choices(tree, k=2)
        assert common_scope(a, b) is [p for p, q in zip(around[a], around[b], strict=False) if p is q][-1]
        assert a.within(b) == (b in around[a])


def test_a_loop_that_only_its_inner_loop_ties_to_the_outer_one_stays_inside() -> None:
    """Nothing of the middle loop reads the variable of the outer one, but for the loop within it."""
    b = Builder()

    def repeated(count: int, start: Node, step: Any) -> Node:
        def body(v: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            return b(compare, v[0], b.constant(count, I64), direction="LT"), [b(add, v[0], b.constant(1, I64)), step(*v)]

        return b.loop([b.constant(0, I64), start], body)[1]

    def middle(i: Node) -> Node:
        def inner(j: Node) -> Node:
            return repeated(4, b.constant(0, I64), lambda k, r: b(add, r, b(multiply, b(add, k, j), b(subtract, k, i))))

        return repeated(2, b.constant(0, I64), lambda j, acc: b(add, acc, inner(j)))

    f = b.function("main", [("x", scalar(I64))], lambda x: [repeated(3, x, lambda i, total: b(add, total, middle(i)))])
    want = 5 + sum((k + j) * (k - i) for i in range(3) for j in range(2) for k in range(4))
    assert int(compile(Module((f,)), engine="numpy")(np.int64(5))[0]) == want
