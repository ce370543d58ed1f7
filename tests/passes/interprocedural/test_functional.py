"""Tail calls as loops, references as values: on programs made at random, what is run before and after is the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.structure import CALL, LOOP_BEGIN
from deepx_graph.ops import add, and_, compare, divide, multiply, ref_create, ref_read, ref_write, remainder, subtract
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.types import I32, STATE, FunctionType, RefType, scalar
from deepx_graph.verify import verify

I = scalar(I32)  # noqa: E741  the type of every value here


def after(module: Module, pipeline: str) -> Module:
    found = run_pipeline(module, parse_pipeline(pipeline))
    verify(found)
    return found


def run(module: Module, *args: int) -> list[int]:
    return [int(x) for x in dx.compile(module, optimize=False)(*map(np.int32, args))]


def has(module: Module, op: object) -> bool:
    return any(n.op is op for f in module.functions for n in f.nodes)


# --- tail calls -----------------------------------------------------------------------------------------------------


def recursive(name: str, count: int, body: Callable[..., Sequence[Node]], results: int = 1) -> Function:
    """A function of `count` integers whose body is given a way to call it."""
    type = FunctionType((I,) * count, (I,) * results)
    b = Builder()
    return b.function(name, [(f"p{k}", I) for k in range(count)],
                      lambda *p: body(b, lambda *a: b.call((name, type), *a), *p), public=False)


def program(*functions: Function) -> Module:
    b = Builder()
    first = functions[0]
    main = b.function("main", [(p.name, p.type) for p in first.params], lambda *p: b.call(first, *p))
    return Module((main, *functions))


def gcd(b: Builder, call: Callable[..., Sequence[Node]], x: Node, y: Node) -> Sequence[Node]:
    zero = b.constant(0, I32)
    return b.branch(b(compare, y, zero, direction="EQ"), [x], list(call(y, b(remainder, x, y))))


def collatz(b: Builder, call: Callable[..., Sequence[Node]], n: Node, steps: Node) -> Sequence[Node]:
    """Three ways: done, down, up."""
    one, two = b.constant(1, I32), b.constant(2, I32)
    more = b(add, steps, one)
    odd = b(compare, b(and_, n, one), one, direction="EQ")
    up = call(b(add, b(multiply, n, b.constant(3, I32)), one), more)
    down = call(b(divide, n, two), more)
    return b.branch(b(compare, n, one, direction="LE"), [steps], list(b.branch(odd, list(up), list(down))))


def test_euclid_becomes_a_while() -> None:
    m = after(program(recursive("gcd", 2, gcd)), "tail-calls")
    assert not any(n.op is CALL for n in m["gcd"].nodes) and has(m, LOOP_BEGIN)
    for x, y in [(48, 36), (17, 5), (0, 9), (9, 0), (1 << 20, 12)]:
        assert run(m, x, y) == [int(np.gcd(x, y))]


def test_mutual_recursion_of_three_functions_becomes_a_loop_with_a_test() -> None:
    plain = program(recursive("collatz", 2, collatz))
    m = after(plain, "tail-calls")
    assert not any(n.op is CALL for n in m["collatz"].nodes)
    assert run(m, 27, 0) == run(plain, 27, 0) == [111]


def test_functions_that_call_each_other() -> None:
    """even(n) = n == 0 or odd(n - 1)."""
    one_type = FunctionType((I,), (I,))
    b = Builder()

    def parity(name: str, other: str, at_end: int) -> Function:
        def body(n: Node) -> Sequence[Node]:
            stop = b(compare, n, b.constant(0, I32), direction="EQ")
            again = b.call((other, one_type), b(subtract, n, b.constant(1, I32)))
            return b.branch(stop, [b.constant(at_end, I32)], list(again))

        return b.function(name, [("n", I)], body, public=False)

    plain = program(parity("even", "odd", 1), parity("odd", "even", 0))
    m = after(plain, "tail-calls")
    assert [f.name for f in m.functions] == ["main", "even"] and not any(n.op is CALL for n in m["even"].nodes)
    assert [run(m, k) for k in range(5)] == [run(plain, k) for k in range(5)] == [[1], [0], [1], [0], [1]]


def test_what_is_done_after_the_call_stays_recursive() -> None:
    def fact(b: Builder, call: Callable[..., Sequence[Node]], n: Node) -> Sequence[Node]:
        stop = b(compare, n, b.constant(1, I32), direction="LE")
        return b.branch(stop, [b.constant(1, I32)], [b(multiply, n, call(b(subtract, n, b.constant(1, I32)))[0])])

    plain = program(recursive("fact", 1, fact))
    assert after(plain, "tail-calls") is plain
    assert run(plain, 6) == [720]


def test_a_call_whose_argument_is_a_call_stays_recursive() -> None:
    """J. McCarthy's function, which is 91 for all numbers up to 101."""
    def ninety_one(b: Builder, call: Callable[..., Sequence[Node]], n: Node) -> Sequence[Node]:
        above = b(compare, n, b.constant(100, I32), direction="GT")
        return b.branch(above, [b(subtract, n, b.constant(10, I32))], list(call(*call(b(add, n, b.constant(11, I32))))))

    m = after(program(recursive("f", 1, ninety_one)), "tail-calls")
    assert [run(m, n) for n in (-3, 40, 100, 101, 105)] == [[91], [91], [91], [91], [95]]


def test_results_in_another_order_are_no_tail_call() -> None:
    def swap(b: Builder, call: Callable[..., Sequence[Node]], n: Node, x: Node) -> Sequence[Node]:
        again = call(b(subtract, n, b.constant(1, I32)), b(add, x, x))
        return b.branch(b(compare, n, b.constant(0, I32), direction="LE"), [n, x], [again[1], again[0]])

    plain = program(recursive("swap", 2, swap, results=2))
    m = after(plain, "tail-calls")
    assert run(m, 3, 5) == run(plain, 3, 5)


def test_recursion_a_hundred_thousand_deep() -> None:
    def total(b: Builder, call: Callable[..., Sequence[Node]], n: Node) -> Sequence[Node]:
        stop = b(compare, n, b.constant(0, I32), direction="LE")
        return b.branch(stop, [b.constant(0, I32)], [b(add, n, call(b(subtract, n, b.constant(1, I32)))[0])])

    assert run(program(recursive("total", 1, total)), 100_000) == [100_000 * 100_001 // 2 - (1 << 32)]


# --- references -----------------------------------------------------------------------------------------------------


class Writer:
    """Writes a random program over a few references and integers."""

    def __init__(self, seed: int) -> None:
        self.rng, self.b = random.Random(seed), Builder()
        self.refs: list[Node] = []

    def function(self) -> Function:
        return self.b.function("main", [("x", I), ("y", I), ("state", STATE)], self.body)

    def body(self, x: Node, y: Node, state: Node) -> Sequence[Node]:
        for start in (x, y, self.b.constant(3, I32)):
            ref, state = self.b.items(self.b(ref_create, state, start))
            self.refs.append(ref)
        state = self.steps([x, y], state, 6, 2)
        results = []
        for ref in self.refs:
            value, state = self.b.items(self.b(ref_read, state, ref))
            results.append(value)
        return [*results, state]

    def steps(self, values: list[Node], state: Node, count: int, depth: int) -> Node:
        for _ in range(count):
            state = self.rng.choice([self.read, self.write, self.write, self.branch, self.loop])(values, state, depth)
        return state

    def read(self, values: list[Node], state: Node, depth: int) -> Node:
        value, state = self.b.items(self.b(ref_read, state, self.rng.choice(self.refs)))
        values.append(value)
        return state

    def write(self, values: list[Node], state: Node, depth: int) -> Node:
        value = self.b(self.rng.choice([add, subtract]), self.rng.choice(values), self.rng.choice(values))
        return self.b(ref_write, state, self.rng.choice(self.refs), value)

    def branch(self, values: list[Node], state: Node, depth: int) -> Node:
        if not depth:
            return state
        count = self.rng.choice((2, 2, 3))
        selector = self.rng.choice(values)
        if count == 2:
            selector = self.b(compare, selector, self.rng.choice(values), direction="LT")
        sides = [[self.steps(list(values), state, self.rng.randint(0, 3), depth - 1)] for _ in range(count)]
        return self.b.branch(selector, *sides)[0]

    def loop(self, values: list[Node], state: Node, depth: int) -> Node:
        if not depth:
            return state

        def body(variables: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            k, s = variables
            more = self.b(compare, k, self.b.constant(3, I32), direction="LT")
            after = self.steps([*values, k], s, self.rng.randint(1, 3), depth - 1)
            return more, [self.b(add, k, self.b.constant(1, I32)), after]

        return self.b.loop([self.b.constant(0, I32), state], body)[1]


@pytest.mark.parametrize("start", range(0, 200, 20))
def test_references_become_the_values_they_hold(start: int) -> None:
    for seed in range(start, start + 20):
        plain = Module((Writer(seed).function(),))
        verify(plain)
        m = after(plain, "promote")
        assert not has(m, ref_create) and not has(m, ref_read) and not has(m, ref_write)
        assert run(m, 2, 7) == run(plain, 2, 7), seed


def test_a_reference_that_is_given_away_stays() -> None:
    b = Builder()

    def write(ref: Node, state: Node) -> Sequence[Node]:
        return [b(ref_write, state, ref, b.constant(5, I32))]

    inner = b.function("inner", [("r", RefType(I)), ("state", STATE)], write, public=False)

    def body(x: Node, state: Node) -> Sequence[Node]:
        ref, state = b.items(b(ref_create, state, x))
        (state,) = b.call(inner, ref, state)
        value, state = b.items(b(ref_read, state, ref))
        return [value, state]

    plain = Module((b.function("main", [("x", I), ("state", STATE)], body), inner))
    verify(plain)
    assert has(after(plain, "promote"), ref_create)
    m = after(plain, "inline,promote,dce")
    assert not has(m, ref_create) and run(m, 1) == run(plain, 1) == [5]
