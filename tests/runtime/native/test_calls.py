"""Functions that call one another inside one machine function: recursion, what calls keep and give back, and its bounds."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.errors import LimitError, Source, Span
from deepx_graph.ir import Builder, Function, Module, Node, Origin
from deepx_graph.ops import add, compare, multiply, subtract
from deepx_graph.ops.contract.linear import matmul
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.native.whole_program import kernel as whole_program
from deepx_graph.types import F64, I64, FunctionType, scalar, tensor

Array = np.ndarray[Any, Any]
INT = scalar(I64)
FIB = FunctionType((INT,), (INT,))


@pytest.fixture(params=["one round", "many rounds"], autouse=True)
def _rounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program also with one call or jump back in each call of the machine function."""
    if request.param == "many rounds":
        monkeypatch.setattr(whole_program, "CALL_NANOSECONDS", 1)


def number(b: Builder, value: int) -> Node:
    return b.constant(np.int64(value))


def module(*functions: Function) -> Module:
    return Module(functions, "main")


def fibonacci(b: Builder) -> Function:
    def body(n: Node) -> Sequence[Node]:
        small = b(compare, n, number(b, 2), direction="LT")
        parts = [b.call(("fib", FIB), b(subtract, n, number(b, k)))[0] for k in (1, 2)]
        return b.branch(small, [n], [b(add, *parts)])

    return b.function("fib", [("n", INT)], body)


def calling(b: Builder, function: Function) -> Function:
    return b.function("main", [(f"x{k}", p.type) for k, p in enumerate(function.params)],
                      lambda *xs: b.call(function, *xs))


def check(program: Module, *inputs: Sequence[Any]) -> Any:
    """The compiled program, which is one call of machine code and gives what the reference gives."""
    fast, reference = compile(program, engine="native"), compile(program, engine="numpy")
    for args in (*inputs, *inputs):
        for got, want in zip(fast(*args), reference(*args), strict=True):
            np.testing.assert_array_equal(got, want)
    assert fast.python_steps == ()
    return fast


def test_a_function_that_calls_itself_twice() -> None:
    b = Builder()
    check(module(fibonacci(b), calling(b, fibonacci(b))), *([np.int64(n)] for n in (0, 1, 2, 9)))


def test_functions_that_call_each_other() -> None:
    b = Builder()
    type = FunctionType((INT,), (INT,))

    def define(name: str, other: str, at_zero: int) -> Function:
        return b.function(name, [("n", INT)], lambda n: b.branch(
            b(compare, n, number(b, 0), direction="EQ"), [number(b, at_zero)], b.call((other, type), b(subtract, n, number(b, 1)))))

    main = b.function("main", [("n", INT)], lambda n: [*b.call(("even", type), n), *b.call(("odd", type), n)])
    check(module(define("even", "odd", 1), define("odd", "even", 0), main), [np.int64(6)], [np.int64(101)])


def test_a_recursion_in_a_loop_that_keeps_values_across_the_calls() -> None:
    """f(n, x) = x + the sum over i < n of f(n - 1, i x): matrices that live on while others of their kind are made."""
    b = Builder()
    box = tensor(F64, (3, 3))
    type = FunctionType((INT, box), (box,))

    def body(n: Node, x: Node) -> Sequence[Node]:
        def step(v: Sequence[Node]) -> tuple[Node, Sequence[Node]]:
            i, total = v
            (inner,) = b.call(("f", type), b(subtract, n, number(b, 1)), b(multiply, matmul(b, total, x), b.like(0.125, x)))
            return b(compare, i, n, direction="LT"), [b(add, i, number(b, 1)), b(add, total, inner)]

        return b.loop((number(b, 0), x), step)[1:]

    f = b.function("f", [("n", INT), ("x", box)], body)
    x = np.arange(9.0).reshape(3, 3) - 4
    program = module(f, calling(b, f))
    fast, reference = compile(program, engine="native"), compile(program, engine="numpy")
    for n in (0, 1, 4, 4):
        np.testing.assert_allclose(fast(np.int64(n), x)[0], reference(np.int64(n), x)[0], rtol=1e-12)
    assert fast.python_steps == ()


def test_a_function_called_from_several_sites_that_gives_what_it_takes() -> None:
    b = Builder()
    box = tensor(F64, (4,))
    swap = b.function("swap", [("x", box), ("y", box)], lambda x, y: [y, b(add, x, y), y])

    def body(x: Node, y: Node) -> Sequence[Node]:
        first = b.call(swap, x, y)
        return [*b.call(swap, first[1], first[0]), *b.call(swap, first[2], first[2])]

    main = b.function("main", [("x", box), ("y", box)], body)
    check(module(swap, main), [np.arange(4.0), np.ones(4)])


def endless(b: Builder) -> Function:
    return b.function("f", [("x", INT)], lambda x: b.call(("f", FIB), x))


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_recursion_without_end_is_an_error_at_the_call(calls: int) -> None:
    """By the depth; and by memory, which grows until there may be no more."""
    source = Source("endless.txt", "f = f(x)")
    f = endless(Builder(origin=Origin("", (Span(source, 4, 8),))))
    program = module(f, calling(Builder(), f))
    for options, words in (({"max_depth": 2000}, "calls nest more than 2000 deep, in 'f'"),
                           ({"max_bytes": 1 << 24}, f"the levels of the recursion of 'f' need more than {1 << 24} bytes")):
        fast = compile(program, engine="native", **options)  # type: ignore[arg-type]
        for _ in range(calls):
            with pytest.raises(LimitError, match=words) as caught:
                fast(np.int64(1))
        assert caught.value.diagnostics[0].span == Span(source, 4, 8)


def count(b: Builder) -> Function:
    """f(n) = n > 0 ? 1 + f(n - 1) : 0, which is no tail call."""
    return b.function("f", [("n", INT)], lambda n: b.branch(
        b(compare, n, number(b, 0), direction="GT"),
        [b(add, number(b, 1), b.call(("f", FIB), b(subtract, n, number(b, 1)))[0])], [number(b, 0)]))


def test_deep_recursion_gets_the_memory_that_it_needs() -> None:
    b = Builder()
    f = compile(module(count(b), calling(b, count(b))), engine="native")
    for depth in (10, 60_000, 100_000, 10, 60_000):
        assert f(np.int64(depth))[0] == depth
    assert f.python_steps == ()


def test_calls_from_several_threads() -> None:
    b = Builder()
    f = compile(module(fibonacci(b), calling(b, fibonacci(b))), engine="native")
    want, wrong = [f(np.int64(n))[0] for n in range(16)], list[int]()

    def work() -> None:
        wrong.extend(n for n in range(16) for _ in range(5) if f(np.int64(n))[0] != want[n])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_long_recursion_can_be_interrupted() -> None:
    b = Builder()
    f = compile(module(fibonacci(b), calling(b, fibonacci(b))), engine="native")
    f(np.int64(1)), f(np.int64(1))

    class Stop(BaseException):
        pass

    def stop(*_: Any) -> None:
        raise Stop

    handler = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Stop):
            f(np.int64(80))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert f(np.int64(9))[0] == 34
