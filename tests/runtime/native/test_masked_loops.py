"""Loops whose elements go their own way, as one kernel, against the reference; and loops that look like them and are not."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.ir import Builder, Function, Module, Node, Op
from deepx_graph.ops import (
    abs_,
    add,
    and_,
    compare,
    convert,
    iota,
    multiply,
    not_,
    or_,
    remainder,
    select,
    shift_right_logical,
    subtract,
)
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.native.loop_program import loop_kernels
from deepx_graph.types import F32, I32, TensorType, type_of_array
from tests.support.kernel_store import kernel_store

Array = np.ndarray[Any, Any]
Vars = tuple[Node, ...]
SIZES = [(2,), (16,), (17,), (1003,), (5, 7), (20_011,)]


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with kernel_store(monkeypatch, tmp_path_factory.mktemp("kernels")):
        yield


def module_of(make: Callable[..., Sequence[Node]], *arrays: Array) -> Module:
    b = Builder()
    params = tuple(b.param(k, type_of_array(np.asarray(a))) for k, a in enumerate(arrays))
    return Module((Function("main", params, tuple(make(b, *params))),), "main")


def check(make: Callable[..., Sequence[Node]], *arrays: Array, taken: bool = True) -> list[Array]:
    """The results, equal to the last bit on both engines; and whether the loop became kernels of groups of elements."""
    module = module_of(make, *arrays)
    with patch.object(loop_kernels, "_kernel", wraps=loop_kernels._kernel) as made:
        fast = compile(module, engine="native", threads=2)
    kept = [a.copy() for a in map(np.asarray, arrays)]
    found, wanted = fast(*arrays), compile(module, engine="numpy")(*arrays)
    assert any(loop_kernels.ELEMENT_BY_ELEMENT in call.args for call in made.call_args_list) == taken
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes() or (np.isnan(b).any() and np.array_equal(a, b, equal_nan=True)), f"result {k}"
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(kept, arrays, strict=True)), "an argument has changed"
    return list(found)


def everywhere(b: Builder, value: float, like: Node) -> Node:
    assert isinstance(like.type, TensorType)
    return b.splat(value, like.type)


def whole(b: Builder, x: Node, op: Op) -> Node:
    assert isinstance(x.type, TensorType)
    return reduction(b, op, x, tuple(range(len(x.type.shape))))


@pytest.mark.parametrize("flagged", [False, True])
def test_a_zero_that_is_done_changes_its_sign_as_in_the_program(flagged: bool) -> None:
    """`x + 0.0` is for all elements, those that are done too: -0.0 becomes 0.0 while any other goes on."""
    def make(b: Builder, x: Node, left: Node) -> Sequence[Node]:
        def on(v: Node) -> Node:
            return b(compare, v, everywhere(b, 0, x), direction="GT")

        def step(x: Node, left: Node) -> list[Node]:
            fewer = b(subtract, left, everywhere(b, 1, left))
            twice = b(add, x, x)
            return [b(add, b(select, on(left), twice, x), everywhere(b, 0.0, x)), b(select, on(left), fewer, left)]

        if flagged:
            return b.loop([x, left, b.constant(np.True_)], lambda v: (v[2], [*step(v[0], v[1]), whole(b, on(v[1]), or_)]))[:2]
        return b.loop([x, left], lambda v: (whole(b, on(v[1]), or_), step(*v)))

    x = np.array([-0.0, 3.0, -2.0, -0.0] * 500, np.float32)
    for left in (np.arange(2000) % 4, np.zeros(2000), np.arange(2000) == 1999):  # the last has work alone, far from the others
        arrays = [x, left.astype(np.float32)]
        module = module_of(make, *arrays)
        found, wanted = (compile(module, engine=engine)(*arrays)[0] for engine in ("native", "numpy"))
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


def escape(b: Builder, cr: Node, ci: Node, n0: Node, *, steps: int = 50, first: bool = True,
           asks_all: bool = False) -> Sequence[Node]:
    """Escape times, with a flag that the iteration before has set."""

    def body(v: Vars) -> tuple[Node, Sequence[Node]]:
        k, zr, zi, n, flag = v
        r, i = b(multiply, zr, zr), b(multiply, zi, zi)
        live = b(compare, b(add, r, i), b.like(4, r), direction="LT")
        xr = b(add, b(subtract, r, i), cr)
        xi = b(add, b(multiply, b(multiply, zr, b.like(2, zr)), zi), ci)
        any_ = whole(b, b(not_, live), and_) if asks_all else whole(b, live, or_)
        goes_on = b(not_, flag) if asks_all else flag
        test = b(and_, b(compare, k, b.like(steps, k), direction="LT"), goes_on)
        return test, (b(add, k, b.like(1, k)), b(select, live, xr, zr), b(select, live, xi, zi),
                      b(add, n, b(convert, live, dtype=F32)), any_)

    return b.loop((b.constant(np.int32(0)), cr, ci, n0, b.constant(np.bool_(first != asks_all))), body)


def points(shape: tuple[int, ...], seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    c = [rng.uniform(-2.2, 0.8, shape).astype("f4"), rng.uniform(-1.3, 1.3, shape).astype("f4")]
    return [*c, np.where(rng.random(shape) < 0.3, -0.0, 0.0).astype("f4")]


@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("asks_all", [False, True])
def test_escape_times_with_every_variable_as_a_result(shape: tuple[int, ...], asks_all: bool) -> None:
    check(lambda b, *p: escape(b, *p, asks_all=asks_all), *points(shape))


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
@pytest.mark.parametrize("first", [False, True])
def test_few_iterations_and_none(steps: int, first: bool) -> None:
    check(lambda b, *p: escape(b, *p, steps=steps, first=first), *points((100,)))


def test_every_point_escapes_before_the_count_is_up() -> None:
    cr, ci, n = points((300,))
    found = check(lambda b, *p: escape(b, *p), cr + 9, ci, n)
    assert int(found[0]) < 50 and not found[4]


def test_points_that_are_not_numbers() -> None:
    cr, ci, n = points((200,))
    cr[::7], ci[::11], cr[5] = np.nan, np.inf, -np.inf
    check(lambda b, *p: escape(b, *p), cr, ci, n)


@pytest.mark.parametrize("which", [[0], [3], [4], [1, 3], [3, 0], [4, 2]])
def test_some_of_the_variables_as_results(which: list[int]) -> None:
    check(lambda b, *p: [escape(b, *p)[k] for k in which], *points((20_011,)))


def test_rounds_take_the_loop_up_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_kernels, "CALL_NANOSECONDS", 1)
    for shape in ((40,), (20_011,)):
        for steps in (15, 16, 17, 31, 32, 33, 50, 100):
            check(lambda b, *p: escape(b, *p, steps=steps), *points(shape))  # noqa: B023
            check(lambda b, *p: [escape(b, *p, steps=steps)[3]], *points(shape))  # noqa: B023


def collatz(b: Builder, x0: Node, n0: Node) -> Sequence[Node]:
    """Steps to 1 for each number: the test looks at the elements as they are, as a batched loop has it."""

    def body(v: Vars) -> tuple[Node, Sequence[Node]]:
        x, n = v
        live = b(compare, x, b.like(1, x), direction="GT")
        odd = b(compare, b(and_, x, b.like(1, x)), b.like(1, x), direction="EQ")
        tripled = b(add, b(multiply, x, b.like(3, x)), b.like(1, x))
        after = b(select, odd, tripled, b(shift_right_logical, x, b.like(1, x)))
        return whole(b, live, or_), (b(select, live, after, x), b(select, live, b(add, n, b.like(1, n)), n))

    return b.loop((x0, n0), body)


@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("dtype", ["i4", "i8", "u4"])
def test_a_batched_loop_whose_test_looks_at_the_elements(shape: tuple[int, ...], dtype: str,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(1).integers(1, 2000, shape).astype(dtype)
    found = check(collatz, x, np.zeros(shape, dtype))
    assert (found[0] == 1).all()
    monkeypatch.setattr(loop_kernels, "CALL_NANOSECONDS", 1)
    check(collatz, x, np.zeros(shape, dtype))
    check(collatz, np.ones(shape, dtype), np.zeros(shape, dtype))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("steps", [0, 1, 100])
def test_a_counted_loop_over_elements(dtype: str, steps: int) -> None:
    def logistic_map(b: Builder, x0: Node, r: Node) -> Sequence[Node]:
        def body(v: Vars) -> tuple[Node, Sequence[Node]]:
            k, x, _ = v
            turned = b(multiply, b(multiply, r, x), b(subtract, everywhere(b, 1, x), x))
            return b(compare, k, b.like(steps, k), direction="LT"), (b(add, k, b.like(1, k)), turned, x)

        return b.loop((b.constant(np.int64(0)), x0, x0), body)

    rng = np.random.default_rng(2)
    check(logistic_map, rng.random(1000).astype(dtype), rng.uniform(3, 4, 1000).astype(dtype))
    check(logistic_map, rng.random(33).astype(dtype), np.asarray(3.7, dtype))


@pytest.mark.parametrize("size", [40, 1003, 20_011])
@pytest.mark.parametrize("start", [2, 1000])
def test_positions_are_in_no_memory_where_all_elements_end_together(size: int, start: int) -> None:
    """A sieve, which ends by a scalar alone: that, too, is noted once."""
    def sieve(b: Builder, start: Node, prime: Node) -> Sequence[Node]:
        def body(v: Vars) -> tuple[Node, Sequence[Node]]:
            p, prime = v
            positions: Node = b(iota, dtype=I32, shape=(size,), iota_dimension=0)
            rest = b(remainder, positions, p)
            multiples = b(and_, b(compare, rest, everywhere(b, 0, rest), direction="EQ"), b(compare, positions, p, direction="GT"))
            test = b(compare, b(multiply, p, p), b.like(size, p), direction="LT")
            return test, (b(add, p, b.like(1, p)), b(and_, prime, b(not_, multiples)))

        return b.loop((start, prime), body)

    arguments = np.int32(start), np.ones(size, bool)
    last, prime = check(sieve, *arguments)
    n = np.arange(size)
    divisors = range(start, max(start, int(np.ceil(np.sqrt(size)))))
    assert last == divisors.stop
    np.testing.assert_array_equal(prime, [not any(k % p == 0 and k > p for p in divisors) for k in n])
    plan = compile(module_of(sieve, *map(np.asarray, arguments)), engine="native", threads=2).plan
    assert plan.peak_bytes < 3 * size + 64


def test_a_bool_variable_says_who_is_live() -> None:
    def halving(b: Builder, x0: Node, live0: Node) -> Sequence[Node]:
        def body(v: Vars) -> tuple[Node, Sequence[Node]]:
            x, live = v
            half = b(multiply, x, b.like(0.5, x))
            return whole(b, live, or_), (b(select, live, half, x),
                                               b(and_, live, b(compare, half, b.like(1, half), direction="GT")))

        return b.loop((x0, live0), body)

    rng = np.random.default_rng(3)
    check(halving, rng.uniform(1, 1e6, 1000).astype("f4"), rng.random(1000) < 0.7)


def test_a_bool_variable_says_who_is_done() -> None:
    def halving(b: Builder, x0: Node, done0: Node) -> Sequence[Node]:
        def body(v: Vars) -> tuple[Node, Sequence[Node]]:
            x, done = v
            half = b(multiply, x, b.like(0.5, x))
            return b(not_, whole(b, done, and_)), (b(select, done, x, half),
                                                   b(or_, b(compare, half, b.like(1, half), direction="LE"), done))

        return b.loop((x0, done0), body)

    rng = np.random.default_rng(3)
    check(halving, rng.uniform(1, 1e6, 1000).astype("f4"), rng.random(1000) < 0.3)


# --- loops that look alike and are not


def drift(b: Builder, x: Node, *, kind: str) -> Sequence[Node]:
    """While any element is below 10, iteration by iteration; `kind` says in which way dead elements matter."""

    def body(v: Vars) -> tuple[Node, Sequence[Node]]:
        k, x = v
        limit = b(convert, k, dtype=F32) if kind == "moving" else b.like(10, x)
        live = b(compare, x, limit, direction="LT" if kind != "moving" else "GT")
        more = b(add, x, b.like(1, x))
        after = {"free": more, "almost": b(select, live, more, b(add, x, b.like(0, x)))}.get(kind, b(select, live, more, x))
        count = b(add, k, b.like(1, k))
        if kind == "counted":
            count = b(add, k, b(convert, whole(b, live, or_), dtype=I32))
        test = b(and_, b(compare, k, b.like(40, k), direction="LT"), whole(b, live, or_))
        return test, (count, after)

    return b.loop((b.constant(np.int32(0)), x), body)


@pytest.mark.parametrize("kind", ["free", "almost", "moving", "counted"])
def test_loops_in_which_dead_elements_change_are_run_iteration_by_iteration(kind: str) -> None:
    x = np.random.default_rng(4).uniform(-5, 15, 100).astype("f4")
    x[::5] = -0.0
    check(lambda b, p: drift(b, p, kind=kind), x, taken=False)


def test_the_same_with_dead_elements_kept_is_one_kernel() -> None:
    check(lambda b, p: drift(b, p, kind="kept"), np.random.default_rng(4).uniform(-5, 15, 100).astype("f4"))


def test_an_inner_loop_is_a_kernel_of_its_own() -> None:
    def nested(b: Builder, x0: Node) -> Sequence[Node]:
        def outer(v: Vars) -> tuple[Node, Sequence[Node]]:
            k, x = v

            def inner(w: Vars) -> tuple[Node, Sequence[Node]]:
                j, y = w
                return b(compare, j, k, direction="LE"), (b(add, j, b.like(1, j)), b(multiply, y, b(add, b.like(1, y), y)))

            _, y = b.loop((b.constant(np.int32(0)), x), inner)
            total = b(multiply, reduction(b, add, y, (0,)), b.constant(np.float32(1e-3)))
            return b(compare, k, b.like(3, k), direction="LT"), (b(add, k, b.like(1, k)), b(subtract, y, total))

        return b.loop((b.constant(np.int32(0)), x0), outer)

    x = (np.arange(64) / 64).astype("f4")
    module = module_of(nested, x)
    found, wanted = compile(module, engine="native")(x), compile(module, engine="numpy")(x)
    assert int(found[0]) == int(wanted[0]) and np.allclose(found[1], wanted[1], rtol=1e-4)


def test_an_endless_loop_can_be_interrupted() -> None:
    def endless(b: Builder, x: Node) -> Sequence[Node]:
        return b.loop((x,), lambda v: (b.constant(np.True_), (b(multiply, v[0], b.like(0.5, v[0])),)))

    class Stop(BaseException):
        pass

    def stop(*_: Any) -> None:
        raise Stop

    f = compile(module_of(endless, np.ones(40, "f4")), engine="native")
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Stop):
            f(np.ones(40, "f4"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("seed", range(12))
def test_random_trip_counts(seed: int) -> None:
    """A random straight line of exact operations on random variables, frozen where an element is done."""
    rng = np.random.default_rng(seed)
    count, shape = int(rng.integers(1, 4)), SIZES[int(rng.integers(len(SIZES)))]
    iterations, carried = int(rng.integers(1, 30)), bool(rng.integers(2))

    def make(b: Builder, *given: Node) -> Sequence[Node]:
        chance = np.random.default_rng(seed)

        def body(v: Vars) -> tuple[Node, Sequence[Node]]:
            k, flag, *xs = v
            live = b(compare, xs[0], given[-1], direction="LT")
            pool = [*xs, given[-1]]
            for _ in range(int(chance.integers(1, 8))):
                x, y = (pool[int(chance.integers(len(pool)))] for _ in range(2))
                pool.append(b((add, subtract, multiply)[int(chance.integers(3))], x, y))
            new = [pool[-1 - int(chance.integers(min(3, len(pool))))] for _ in xs]
            new[0] = b(add, b(select, b(compare, xs[0], new[0], direction="NE"), xs[0], new[0]), b.like(1, xs[0]))
            any_ = whole(b, live, or_)
            below = b(compare, k, b.like(iterations, k), direction="LT")
            return (b(and_, flag if carried else any_, below),
                    (b(add, k, b.like(1, k)), any_ if carried else flag,
                     *(b(select, live, n, x) for n, x in zip(new, xs, strict=True))))

        return b.loop((b.constant(np.int32(0)), b.constant(np.True_), *given[:-1]), body)

    arrays = [rng.integers(-9, 9, shape).astype("i4") for _ in range(count)]
    check(make, *arrays, rng.integers(0, 20, shape).astype("i4"))



def test_complex_elements_whose_size_an_iteration_computes_before_and_behind_its_step() -> None:
    """The size of a point is known from the iteration before; what was true of it is kept, not computed again."""
    def make(b: Builder, c: Node, n0: Node) -> Sequence[Node]:
        def inside(z: Node) -> Node:
            size = b(abs_, z)
            return b(compare, size, everywhere(b, 1000, size), direction="LT")

        def body(v: Vars) -> tuple[Node, Sequence[Node]]:
            k, z, n = v
            after = b(select, inside(z), b(add, b(multiply, z, z), c), z)
            return b(compare, k, b.like(30, k), direction="LT"), (
                b(add, k, b.like(1, k)), after, b(add, n, b(convert, inside(after), dtype=I32)))

        return b.loop((b.constant(np.int32(0)), c, n0), body)

    rng = np.random.default_rng(0)
    for shape in ((2,), (1003,), (5, 7)):
        c = (rng.integers(-2, 3, shape) + 1j * rng.integers(-2, 3, shape)).astype(np.complex64)  # all of it is exact
        check(make, c, np.zeros(shape, "i4"))


def test_a_table_and_a_scalar_of_outside_are_read_in_every_iteration() -> None:
    table = np.arange(35, dtype=np.float32).reshape(5, 7)

    def make(b: Builder, x: Node, scale: Node) -> Sequence[Node]:
        def body(v: Vars) -> tuple[Node, Sequence[Node]]:
            k, y = v
            return b(compare, k, b.like(9, k), direction="LT"), (
                b(add, k, b.like(1, k)), b(add, b(multiply, y, scale), b(multiply, x, b.constant(table))))

        return b.loop((b.constant(np.int32(0)), x), body)

    check(make, np.ones((5, 7), np.float32), np.full((5, 7), 0.5, np.float32))


@pytest.mark.parametrize("dtype", ["f2", "f8"])
def test_a_loop_of_halves_rounds_in_every_step(dtype: str) -> None:
    def make(b: Builder, x: Node, r: Node) -> Sequence[Node]:
        def body(v: Vars) -> tuple[Node, Sequence[Node]]:
            k, y = v
            turned = b(multiply, b(multiply, r, y), b(subtract, everywhere(b, 1, y), y))
            return b(compare, k, b.like(40, k), direction="LT"), (b(add, k, b.like(1, k)), turned)

        return b.loop((b.constant(np.int32(0)), x), body)

    rng = np.random.default_rng(5)
    check(make, rng.random(200).astype(dtype), rng.uniform(3, 4, 200).astype(dtype))
