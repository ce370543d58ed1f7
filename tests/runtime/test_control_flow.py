"""Control, functions and effects as they run: what is computed how often, and in which order effects happen."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import LimitError, RunError, Source, Span
from deepx_graph.ir import Builder, Function, Module, Node, Op, Operand, Origin
from deepx_graph.ir.structure import TUPLE
from deepx_graph.ops import (
    add,
    and_,
    compare,
    multiply,
    print_,
    reduction,
    reshape,
    slice_,
    subtract,
    torch_index_select,
    transpose,
)
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines import has_native
from deepx_graph.types import BOOL, F32, I32, STATE, FunctionType, Type, scalar, tensor

INT = scalar(I32)
Body = Callable[..., Sequence[Node]]


class Counter:
    """An operation of its own that counts how often it runs; it gives its operand plus one."""

    def __init__(self) -> None:
        self.count = 0
        self.op = Op("count_me", "A test operation.", operands=(Operand("x"),), infer=lambda types: types[0], eval=self.evaluate)

    def evaluate(self, xs: Sequence[Any]) -> Any:
        self.count += 1
        return np.asarray(xs[0] + 1, xs[0].dtype)


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
def b() -> Builder:
    return Builder()


def run(b: Builder, body: Body, *args: int, functions: Sequence[Function] = (), **options: Any) -> tuple[Any, ...]:
    """The results of a body over i32 scalars."""
    f = b.function("main", [(f"x{k}", INT) for k in range(len(args))], body)
    results = compile(Module((f, *functions)), engine="numpy", **options)(*map(np.int32, args))
    return tuple(r.item() for r in results)


def number(b: Builder, value: int) -> Node:
    return b.constant(value, I32)


def less(b: Builder, x: Node, y: Node) -> Node:
    return b(compare, x, y, direction="LT")


def plus(b: Builder, x: Node, value: int) -> Node:
    return b(add, x, number(b, value))


def count_to(b: Builder, iterations: Node, inits: Sequence[Node], body: Callable[..., Sequence[Node]]) -> tuple[Node, ...]:
    """A loop of `iterations` iterations; `body(i, *variables)` gives the variables' next values."""
    def iteration(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        return less(b, v[0], iterations), [plus(b, v[0], 1), *body(*v)]

    return b.loop([number(b, 0), *inits], iteration)[1:]


# --- what runs how often -------------------------------------------------------------------------------------------


def test_an_untaken_branch_does_not_run(b: Builder, counter: Counter) -> None:
    def body(x: Node, y: Node) -> Sequence[Node]:
        return b.branch(less(b, x, y), [b(counter.op, x)], [y])

    assert run(b, body, 5, 3) == (3,)
    assert counter.count == 0
    assert run(b, body, 3, 5) == (4,)
    assert counter.count == 1


@pytest.mark.parametrize(("selector", "taken"), [(0, 10), (1, 11), (2, 12), (7, 12), (-1, 12)])
def test_an_integer_selects_and_out_of_range_is_the_last(b: Builder, selector: int, taken: int) -> None:
    def body(s: Node) -> Sequence[Node]:
        return b.branch(s, *([number(b, 10 + k)] for k in range(3)))

    assert run(b, body, selector) == (taken,)


def test_loop_invariant_code_runs_once(b: Builder, counter: Counter) -> None:
    def body(x: Node) -> Sequence[Node]:
        return count_to(b, number(b, 10), [x], lambda i, total: [b(add, total, b(counter.op, x))])

    assert run(b, body, 4) == (4 + 10 * 5,)
    assert counter.count == 1


def test_code_that_only_the_outer_loop_changes_runs_once_in_each_iteration_of_it(b: Builder, counter: Counter) -> None:
    def inner(i: Node, total: Node) -> Sequence[Node]:
        return count_to(b, number(b, 5), [total], lambda j, t: [b(add, t, b(counter.op, i))])

    assert run(b, lambda x: count_to(b, number(b, 3), [x], inner), 0) == (5 * (1 + 2 + 3),)
    assert counter.count == 3


def test_code_that_neither_loop_changes_runs_once_for_all_iterations_of_both(b: Builder, counter: Counter) -> None:
    def inner(i: Node, total: Node) -> Sequence[Node]:
        return count_to(b, number(b, 5), [total], lambda j, t: [b(add, t, b(counter.op, b(add, x[0], x[0])))])

    x: list[Node] = []

    def body(given: Node) -> Sequence[Node]:
        x.append(given)
        return count_to(b, number(b, 3), [number(b, 0)], inner)

    assert run(b, body, 4) == (3 * 5 * 9,)
    assert counter.count == 1


def test_invariant_code_of_a_branch_in_a_loop_runs_when_the_branch_is_first_taken(b: Builder, counter: Counter) -> None:
    def body(x: Node, start: Node) -> Sequence[Node]:
        def iteration(i: Node, total: Node) -> Sequence[Node]:
            return b.branch(less(b, i, start), [total], [b(add, total, b(counter.op, x))])

        return count_to(b, number(b, 6), [number(b, 0)], iteration)

    assert run(b, body, 1, 6) == (0,)
    assert counter.count == 0
    assert run(b, body, 1, 4) == (4,)
    assert counter.count == 1


def test_a_loop_of_no_iteration_runs_nothing_of_its_body(b: Builder, counter: Counter) -> None:
    def body(x: Node) -> Sequence[Node]:
        return count_to(b, x, [x], lambda i, v: [b(add, b(counter.op, v), b(counter.op, x))])

    assert run(b, body, 0) == (0,)
    assert counter.count == 0


def test_the_body_does_not_run_on_the_last_test(b: Builder, counter: Counter) -> None:
    assert run(b, lambda x: count_to(b, number(b, 3), [x], lambda i, v: [b(counter.op, v)]), 0) == (3,)
    assert counter.count == 3


def test_the_test_of_a_loop_runs_once_more_than_its_body(b: Builder, counter: Counter) -> None:
    def body(x: Node) -> Sequence[Node]:
        return b.loop([x], lambda v: (less(b, b(counter.op, v[0]), number(b, 5)), [plus(b, v[0], 1)]))

    assert run(b, body, 0) == (4,)
    assert counter.count == 5


def test_variables_are_exchanged_at_once(b: Builder) -> None:
    assert run(b, lambda x, y: count_to(b, number(b, 3), [x, y], lambda i, p, q: [q, p]), 1, 2) == (2, 1)


def test_a_loop_used_as_a_whole(b: Builder) -> None:
    def body(x: Node) -> Sequence[Node]:
        first, _ = count_to(b, number(b, 2), [x, x], lambda i, p, q: [plus(b, p, 1), plus(b, q, 2)])
        return [b(TUPLE, first.inputs[0], b(TUPLE, first))]

    assert run(b, body, 10) == (2, 12, 14, 12)


@pytest.mark.parametrize("engine", ["numpy", *(["native"] if has_native() else [])])
def test_what_a_loop_hands_to_a_branch_that_nobody_reads_is_left_out(b: Builder, engine: str) -> None:
    """The first loop becomes a kernel of the variables that are read; the second is none, as it does not end by counting alone."""

    def body(x: Node) -> Sequence[Node]:
        read, unread = count_to(b, number(b, 3), [x, x], lambda i, p, q: [b(add, p, p), b(add, q, p)])

        def iteration(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            count, go, value = v
            _, kept = b.branch(go, (value, b(add, value, read)), (unread, value))
            return b(and_, less(b, count, number(b, 4)), go), [plus(b, count, 1), less(b, count, number(b, 1)), kept]

        return b.loop([number(b, 0), b.constant(True), read], iteration)[2:]

    f = b.function("main", [("x", tensor(F32, (3,)))], body)
    np.testing.assert_array_equal(compile(Module((f,)), engine=engine)(np.ones(3, np.float32))[0], [24, 24, 24])


def test_two_loops_of_equal_shape_do_not_share_variables(b: Builder) -> None:
    def body(x: Node) -> Sequence[Node]:
        return [count_to(b, number(b, n), [x], lambda i, v: [plus(b, v, 1)])[0] for n in (2, 3)]

    assert run(b, body, 0) == (2, 3)


# --- functions -----------------------------------------------------------------------------------------------------

EVEN_TYPE = FunctionType((INT,), (scalar(BOOL),))


def parity(b: Builder) -> list[Function]:
    """is_even and is_odd, each by the other."""
    def define(name: str, other: str, at_zero: bool) -> Function:
        def body(n: Node) -> Sequence[Node]:
            zero = b(compare, n, number(b, 0), direction="EQ")
            return b.branch(zero, [b.constant(at_zero)], b.call((other, EVEN_TYPE), plus(b, n, -1)))

        return b.function(name, [("n", INT)], body)

    return [define("is_even", "is_odd", True), define("is_odd", "is_even", False)]


def test_mutual_recursion(b: Builder) -> None:
    def body(n: Node) -> Sequence[Node]:
        return [*b.call(("is_even", EVEN_TYPE), n), *b.call(("is_odd", EVEN_TYPE), n)]

    assert run(b, body, 7, functions=parity(b)) == (False, True)
    assert run(b, body, 1000, functions=parity(b)) == (True, False)


def test_recursion_without_end_is_an_error_at_the_call(b: Builder) -> None:
    source = Source("endless.txt", "f = f(x)")
    spanned = Builder(origin=Origin("", (Span(source, 4, 8),)))
    endless = spanned.function("f", [("x", INT)], lambda x: spanned.call(("f", FunctionType((INT,), (INT,))), x))
    with pytest.raises(LimitError, match="nest more than 2000 deep") as caught:
        run(b, lambda x: b.call(endless, x), 1, functions=[endless], max_depth=2000)
    assert caught.value.diagnostics[0].span == Span(source, 4, 8)
    assert run(b, lambda n: b.call(("is_even", EVEN_TYPE), n), 3, functions=parity(b), max_depth=5) == (False,)


def test_recursion_inside_a_loop_that_guards_it(b: Builder) -> None:
    """f(n) = 1 + the sum over i < n of f(n - 1): the call is the same in every iteration, and must not run for n = 0."""
    type = FunctionType((INT,), (INT,))

    def body(n: Node) -> Sequence[Node]:
        return count_to(b, n, [number(b, 1)], lambda i, total: [b(add, total, b.call(("f", type), plus(b, n, -1))[0])])

    f = b.function("f", [("n", INT)], body)
    assert run(b, lambda n: b.call(f, n), 4, functions=[f]) == (1 + 4 * (1 + 3 * (1 + 2 * (1 + 1))),)


def test_closures(b: Builder) -> None:
    scale = b.function("scale", [("k", INT), ("x", INT)], lambda k, x: [b(multiply, k, x)])
    shift = b.function("shift", [("k", INT), ("x", INT)], lambda k, x: [b(add, k, x)])

    def body(p: Node, k: Node, x: Node) -> Sequence[Node]:
        (chosen,) = b.branch(less(b, p, number(b, 0)), [b.partial(scale, k)], [b.partial(shift, k)])
        return b.call_value(chosen, x)

    assert run(b, body, -1, 3, 5, functions=[scale, shift]) == (15,)
    assert run(b, body, 1, 3, 5, functions=[scale, shift]) == (8,)


def test_a_closure_outlives_the_call_that_made_it(b: Builder) -> None:
    inner = b.function("inner", [("k", INT), ("x", INT)], lambda k, x: [b(subtract, x, k)])
    maker = b.function("maker", [("k", INT)], lambda k: [b.partial(inner, plus(b, k, 1))])

    def body(x: Node) -> Sequence[Node]:
        first, second = b.call(maker, number(b, 10))[0], b.call(maker, number(b, 20))[0]
        return [*b.call_value(first, x), *b.call_value(second, x)]

    assert run(b, body, 100, functions=[inner, maker]) == (89, 79)


# --- effects -------------------------------------------------------------------------------------------------------


def printed(b: Builder, body: Body, *args: int, functions: Sequence[Function] = ()) -> list[str]:
    """What a body prints, the numbers alone; it takes the arguments, then the state, and gives the state last."""
    params: list[tuple[str, Type]] = [(f"x{k}", INT) for k in range(len(args))] + [("state", STATE)]
    out = StringIO()
    module = Module((b.function("main", params, body), *functions))
    compile(module, engine="numpy", out=out)(*map(np.int32, args))
    return [line.strip("[]") for line in out.getvalue().splitlines() if not line.startswith("shape")]


def test_effects_happen_in_their_order(b: Builder) -> None:
    def body(x: Node, state: Node) -> Sequence[Node]:
        values = [plus(b, x, k) for k in (3, 1, 2)]
        for value in values:
            state = b(print_, state, value)
        return [state]

    assert printed(b, body, 10) == ["13", "11", "12"]


def test_effects_in_loops_and_branches(b: Builder) -> None:
    def iteration(i: Node, state: Node) -> Sequence[Node]:
        return b.branch(less(b, i, number(b, 2)), [b(print_, state, i)], [b(print_, state, b(multiply, i, number(b, 100)))])

    def body(n: Node, state: Node) -> Sequence[Node]:
        state = b(print_, state, number(b, -1))
        (state,) = count_to(b, n, [state], iteration)
        return [b(print_, state, number(b, -2))]

    assert printed(b, body, 4) == ["-1", "0", "1", "200", "300", "-2"]
    assert printed(b, body, 0) == ["-1", "-2"]


def test_effects_in_a_called_function(b: Builder) -> None:
    say = b.function("say", [("x", INT), ("state", STATE)], lambda x, s: [plus(b, x, 1), b(print_, s, x)])

    def body(x: Node, state: Node) -> Sequence[Node]:
        once, state = b.call(say, x, state)
        twice, state = b.call(say, once, state)
        return [twice, state]

    assert printed(b, body, 5, functions=[say]) == ["5", "6"]


def test_an_effect_that_nobody_needs_does_not_happen(b: Builder) -> None:
    def body(x: Node, state: Node) -> Sequence[Node]:
        b(print_, state, x)
        return [b(print_, state, plus(b, x, 1))]

    assert printed(b, body, 1) == ["2"]


# --- failures ------------------------------------------------------------------------------------------------------


def test_a_failing_operation_is_an_error_with_its_location(b: Builder) -> None:
    source = Source("fails.txt", "y = pick(x)")

    def fail(xs: Sequence[Any]) -> Any:
        raise IndexError("no such element")

    op = Op("pick", "A test operation.", operands=(Operand("x"),), infer=lambda types: types[0], eval=fail)
    b.origin = Origin("y", (Span(source, 4, 11),))
    with pytest.raises(RunError) as caught:
        run(b, lambda x: [b(op, x)], 1)
    assert str(caught.value).startswith("fails.txt:1:5: error: pick: no such element")


def test_an_operation_that_would_fail_does_not_run_ahead_of_its_branch(b: Builder) -> None:
    """The index is out of range; the operation does not change from iteration to iteration, and its branch is never taken."""
    def body(n: Node) -> Sequence[Node]:
        table = b.constant(np.arange(3), I32)

        def iteration(i: Node, total: Node) -> Sequence[Node]:
            element = reduction(b, add, b(torch_index_select, table, b(reshape, n, shape=(1,)), dim=0), (0,))
            return b.branch(b(and_, less(b, n, number(b, 3)), less(b, i, n)), [b(add, total, element)], [total])

        return count_to(b, number(b, 4), [number(b, 0)], iteration)

    assert run(b, body, 2) == (2 * 2,)
    assert run(b, body, 9) == (0,)


def test_values_are_dropped_when_dead(b: Builder) -> None:
    """A chain of large values never has more than two alive."""
    alive: list[Any] = []
    most = 0

    def note(xs: Sequence[Any]) -> Any:
        nonlocal most
        result = xs[0] + 1
        alive.append(weakref.ref(result))
        most = max(most, sum(r() is not None for r in alive))
        return result

    op = Op("noted", "A test operation.", operands=(Operand("x"),), infer=lambda types: types[0], eval=note)

    def body(x: Node) -> Sequence[Node]:
        for _ in range(10):
            x = b(transpose, b(op, x), permutation=(0,))
        return [b(slice_, x, start_indices=(0,), limit_indices=(2,), strides=(1,))]

    f = b.function("main", [("x", tensor(F32, (4,)))], body)
    np.testing.assert_array_equal(compile(Module((f,)), engine="numpy")(np.zeros(4, "f4"))[0], [10, 10])
    assert most == 2
