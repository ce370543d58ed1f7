"""Matrix products in machine code against sums in double; and that BLAS keeps to the threads that a program was given."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import deepx_graph as dx
from deepx_graph import blas
from deepx_graph.ir import Builder, Function, Module, Node, Op
from deepx_graph.loops import cache
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    convert,
    divide,
    exponential,
    maximum,
    multiply,
    negate,
    subtract,
    tanh,
    transpose,
)
from deepx_graph.ops.contract.linear import dot_general, matmul
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.native import vectors
from deepx_graph.runtime.native.gemm import kernel, plan, shares
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.types import F32, type_of_array
from tests.support.widths import has_native

Array = np.ndarray[Any, Any]
BOUND = {"f4": 2e-6, "f8": 1e-14, "c8": 2e-6}


def made(seed: int, shape: tuple[int, ...], dtype: str) -> Array:
    rng = np.random.default_rng(seed)
    real = rng.normal(size=shape)
    return np.asarray(real + 1j * rng.normal(size=shape) if dtype == "c8" else real).astype(dtype)


def close(found: Array, x: Array, y: Array) -> None:
    """Within rounding of the sums of absolute products, the usual bound of a product in any order."""
    wide = "c16" if x.dtype.kind == "c" else "f8"
    expected = np.matmul(x.astype(wide), y.astype(wide))
    scale = np.matmul(np.abs(x).astype("f8"), np.abs(y).astype("f8")) + 1e-30
    assert found.shape == expected.shape
    assert found.size == 0 or np.max(np.abs(found - expected) / scale) < BOUND[x.dtype.str[1:]]


def dot(*types: Any, batch: tuple[Any, Any] = ((), ()), sums: tuple[Any, Any] = ((1,), (0,)),
        then: Callable[[Builder, Node, Sequence[Node]], Node] | None = None) -> Module:
    b = Builder()
    x, y, *extra = params = tuple(b.param(k, t) for k, t in enumerate(types))
    found = b(dot_general, x, y, lhs_batching_dimensions=batch[0], rhs_batching_dimensions=batch[1],
              lhs_contracting_dimensions=sums[0], rhs_contracting_dimensions=sums[1])
    return Module((Function("main", params, (then(b, found, extra) if then else found,)),))


@pytest.fixture(autouse=True, params=[True])
def packed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether panels of both operands are copied, however small they are, by several workers: unless a test asks for what is done
    with small ones."""
    whether = bool(request.param)
    if whether and has_native():
        kernel.kernel_of.cache_clear()  # of products whose shares are others
        monkeypatch.setattr(shares, "SHARES_OF_CHUNK", 1e9)
        monkeypatch.setattr(cache, "SET_LINES", 0)
        for name in ("LARGE_BYTES", "LEAST_READERS", "SHARED_READERS", "LEAST_LANES_READ"):
            monkeypatch.setattr(plan, name, name != "LARGE_BYTES")
    return whether


# --- the machine code itself

SHAPES = [
    (1, 14, 32, 64), (1, 13, 7, 5), (1, 100, 65, 33), (3, 31, 40, 70), (1, 1, 1, 1), (2, 200, 33, 2100), (1, 1500, 300, 40),
    (1, 64, 64, 64), (8, 128, 128, 64), (2, 15, 17, 16), (1, 29, 129, 1025), (1, 3, 2, 50), (2, 64, 33, 700), (2, 31, 40, 1024),
]


def laid(array: Array, form: str) -> Array:
    """The same values, otherwise in memory."""
    if form == "turned":
        return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
    if form == "padded":
        wide = np.zeros((*array.shape[:-2], array.shape[-2] + 2, array.shape[-1] + 3), array.dtype)
        wide[..., 1:-1, 2:-1] = array
        return wide[..., 1:-1, 2:-1]
    if form == "strided":
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    return np.ascontiguousarray(array[..., ::-1])[..., ::-1] if form == "reversed" else array


def product(x: Array, y: Array, threads: int = 2, turned: tuple[bool, bool] = (False, False)) -> Any:
    """The kernel for operands like these, batches of matrices, which may be `turned`."""
    node = transposed_product(x, y, turned)
    found = plan.plan_of(node)
    assert found is not None
    shape = x.shape[0], x.shape[2 if turned[0] else 1], y.shape[1 if turned[1] else 2]
    return kernel.kernel_of.__wrapped__(found, shape, this_machine(), threads)


def transposed_product(x: Array, y: Array, turned: tuple[bool, bool]) -> Node:
    """The product of batches of matrices, which may be `turned`."""
    module = dot(*map(type_of_array, (x, y)), batch=((0,), (0,)), sums=((1 if turned[0] else 2,), (2 if turned[1] else 1,)))
    return module.functions[0].results[0]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_shape_and_layout_of_a_gemm(shape: tuple[int, int, int, int], dtype: str, threads: int) -> None:
    _native()
    count, rows, columns, depth = shape
    x, y = made(1, (count, rows, depth), dtype), made(2, (count, depth, columns), dtype)
    for turned in itertools.product((False, True), repeat=2):
        left, right = (np.ascontiguousarray(v.swapaxes(1, 2)) if t else v for v, t in zip((x, y), turned, strict=True))
        multiply = product(left, right, threads, turned)
        assert 1 <= multiply.threads <= threads
        for forms in [("plain", "plain"), ("turned", "padded"), ("strided", "reversed")]:
            around = np.full((count * rows * columns + 64,), 7.0, dtype)
            into = around[32:-32].reshape(count, rows, columns)
            into[...] = np.nan
            multiply([laid(left, forms[0]), laid(right, forms[1])], [into])
            close(into, x, y)
            assert np.all(around[:32] == 7.0) and np.all(around[-32:] == 7.0)


@pytest.mark.parametrize("packed", [False], indirect=True)
def test_rows_are_packed_only_where_their_lines_meet_in_the_cache(packed: bool) -> None:
    _native()
    x, y = np.empty((1, 900, 700), "f4"), np.empty((1, 700, 600), "f4")
    assert product(x, y).scratch_bytes == 0
    wide = np.empty((1, 1024, 1024), "f4")
    assert 0 < product(wide, wide, turned=(True, False)).scratch_bytes <= 1 << 20


def test_shares_cover_every_element_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, lanes and batches that are cut into parts of every size."""
    _native()
    monkeypatch.setattr(shares, "PACKED_BYTES", 40_000)
    monkeypatch.setattr(shares, "MOST_ROWS", 40)
    for count, rows, depth, columns in [(1, 256, 200, 50), (5, 128, 100, 300), (3, 131, 1000, 77), (1, 67, 20, 600)]:
        x, y = made(1, (count, rows, depth), "f4"), made(2, (count, depth, columns), "f4")
        close(product(x, y)([x, y])[0], x, y)
        turned = np.ascontiguousarray(x.swapaxes(1, 2))
        close(product(turned, y, turned=(True, False))([turned, y])[0], x, y)


def test_nan_and_infinity_stay_where_they_belong() -> None:
    _native()
    x, y = np.ones((1, 20, 70), "f4"), np.ones((1, 70, 40), "f4")
    x[0, 3, 5], y[0, 6, 7], x[0, 13, 0] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(product(x, y)([x, y])[0], np.matmul(x, y))


def test_one_gemm_may_be_called_from_several_threads_at_once() -> None:
    _native()
    operands = [(made(k, (1, 150, 130), "f4"), made(k + 9, (1, 130, 140), "f4")) for k in range(4)]
    multiply = product(*operands[0])
    found: dict[int, Array] = {}

    def call(k: int) -> None:
        for _ in range(20):
            (found[k],) = multiply(operands[k])

    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k, (x, y) in enumerate(operands):
        close(found[k], x, y)


def test_wide_and_narrow_machines() -> None:
    """The text for registers of 32 bytes compiles, and is right, on machines with wider ones."""
    _native()
    x, y = made(1, (1, 50, 41), "f4"), made(2, (1, 41, 37), "f4")
    with vectors(256):
        narrow = product(x, y)
    close(narrow([x, y])[0], x, y)


def _native() -> None:
    pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")


# --- through the engines


@pytest.mark.parametrize("engine", ["auto", "numexpr", "numpy"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
@pytest.mark.parametrize("sizes", [(80, 70, 90), (0, 5, 6), (5, 0, 6), (5, 6, 0), (1, 300, 900), (200, 1, 300), (300, 200, 1)],
                         ids=str)
def test_matmuls_of_any_size_by_any_engine(sizes: tuple[int, int, int], dtype: str, engine: str) -> None:
    rows, depth, columns = sizes
    x, y = made(1, (rows, depth), dtype), made(2, (depth, columns), dtype)
    f = dx.compile(dot(type_of_array(x), type_of_array(y)), engine=engine, optimize=False)
    close(f(x, y)[0], x, y)


@pytest.mark.parametrize("engine", ["auto", "numexpr"])
def test_batched_heads_are_read_where_they_lie(engine: str) -> None:
    x, y = made(1, (90, 4, 64), "f4"), made(2, (80, 4, 64), "f4")
    f = dx.compile(dot(type_of_array(x), type_of_array(y), batch=((1,), (1,)), sums=((2,), (2,))), engine=engine, optimize=False)
    close(f(x, y)[0], x.transpose(1, 0, 2), y.transpose(1, 2, 0))


@pytest.mark.parametrize("engine", ["auto", "numexpr"])
def test_sums_over_several_axes(engine: str) -> None:
    x, y = made(1, (8, 60, 50), "f4"), made(2, (50, 70, 8), "f4")
    f = dx.compile(dot(type_of_array(x), type_of_array(y), sums=((0, 2), (2, 0))), engine=engine, optimize=False)
    close(f(x, y)[0], x.transpose(1, 0, 2).reshape(60, 400), y.transpose(2, 0, 1).reshape(400, 70))


def test_a_transposed_matmul_and_both_operands_alike() -> None:
    x = made(1, (120, 120), "f4")
    product = dot(type_of_array(x), type_of_array(x), then=lambda b, n, _: b(transpose, n, permutation=(1, 0)))
    f = dx.compile(product, optimize=False)
    close(f(x, x)[0], x.T, x.T)


def test_of_several_axes_of_terms_the_rest_of_a_line_is_read_next() -> None:
    """Elements that are read one by one, 64 rows of a matrix apart, would take a line of the cache each."""
    x, y = made(1, (40, 48, 64), "f4"), made(2, (64, 48, 32), "f4")
    found = plan.planned(np.dtype("f4"), x.shape, y.shape, (), (), (2, 1), (0, 1))
    assert not found.by_panels and [a.steps[found.spread] for a in found.terms] == [64, 1]
    f = dx.compile(dot(type_of_array(x), type_of_array(y), sums=((2, 1), (0, 1))), optimize=False)
    np.testing.assert_allclose(f(x, y)[0], np.einsum("nji,ijk->nk", x.astype("f8"), y), rtol=1e-4, atol=1e-3)


def test_operands_given_away_are_read_before_they_are_written_over() -> None:
    x, y = made(1, (100, 100), "f4"), made(2, (100, 100), "f4")
    f = dx.compile(dot(type_of_array(x), type_of_array(y)), optimize=False)
    names = [p.name for p in f.inputs]
    close(f(x.copy(), y.copy(), donate=names)[0], x, y)


def test_the_profile_says_who_multiplies() -> None:
    _native()
    for sizes in [(80, 90), (8, 9)]:
        x = made(1, sizes, "f4")
        f = dx.compile(dot(type_of_array(x), type_of_array(x.T.copy())), profile=True, engine="native", optimize=False)
        f(x, x.T.copy())
        assert "machine code" in str(f.profile)


# --- what follows a product


def biased(b: Builder, x: Node, extra: Sequence[Node]) -> Node:
    rows = b(broadcast_in_dim, extra[0], shape=x.type.dims, broadcast_dimensions=(len(x.type.dims) - 1,))
    return b(maximum, b(add, x, rows), b.like(0, x))


def updated(b: Builder, x: Node, extra: Sequence[Node]) -> Node:
    return b(subtract, extra[0], b(multiply, x, b.like(0.125, x)))


def softmax(b: Builder, x: Node, extra: Sequence[Node]) -> Node:
    last = len(x.type.dims) - 1

    def along(values: Node, op: Op) -> Node:
        return b(broadcast_in_dim, reduction(b, op, values, (last,)), shape=x.type.dims, broadcast_dimensions=tuple(range(last)))

    powers = b(exponential, b(subtract, x, along(x, maximum)))
    return b(divide, powers, along(powers, add))


FOLLOWING: dict[str, tuple[Callable[..., Node], Callable[[Array, Array], Array], Callable[..., tuple[int, ...]]]] = {
    "bias": (biased, lambda p, e: np.maximum(p + e, 0), lambda *dims: dims[-1:]),
    "update": (updated, lambda p, e: e - 0.125 * p, lambda *dims: dims),
    "softmax": (softmax, lambda p, e: np.exp(p) / np.exp(p).sum(-1, keepdims=True), lambda *dims: (1,)),
}


def followed(x: Array, y: Array, name: str, batched: bool) -> tuple[Module, Array]:
    """The program, and its further argument."""
    make, _, shape = FOLLOWING[name]
    batch = ((0,), (0,)) if batched else ((), ())
    extra = made(3, shape(*x.shape[:-1], y.shape[-1]), x.dtype.str[1:])
    return dot(*map(type_of_array, (x, y, extra)), batch=batch, sums=((x.ndim - 1,), (y.ndim - 2,)), then=make), extra


@pytest.mark.parametrize("name", FOLLOWING)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("dims", [(1, 150, 64, 300), (1, 301, 1100, 77), (4, 130, 64, 131), (1, 2000, 70, 40), (3, 33, 60, 129)],
                         ids=str)
def test_the_epilogue_is_computed_chunk_by_chunk(dims: tuple[int, int, int, int], dtype: str, name: str) -> None:
    _native()
    count, rows, depth, columns = dims
    batched = count > 1
    x, y = made(1, (count, rows, depth), dtype) / 8, made(2, (count, depth, columns), dtype)
    x, y = (x, y) if batched else (x[0], y[0])
    module, extra = followed(x, y, name, batched)
    f = dx.compile(module, engine="native", profile=True)
    found = f(x, y, extra)[0]
    with np.errstate(all="ignore"):
        expected = FOLLOWING[name][1](np.matmul(x.astype("f8"), y.astype("f8")), extra.astype("f8"))
    np.testing.assert_allclose(found, expected, rtol=2e-5 if dtype == "f4" else 1e-12, atol=2e-5 if dtype == "f4" else 1e-12)
    assert ("with epilogue" in str(f.profile)) == (name != "update")  # which is added by the product itself


@pytest.mark.parametrize("last", ["x + p", "p + x", "x - p", "x + s p", "p s + x", "x - p s", "p - x", "s p - x"])
@pytest.mark.parametrize("dims", [(60, 50, 70), (70, 1, 70), (9, 4000, 5), (200, 2500, 65), (3, 70, 1)], ids=str)
def test_a_multiple_of_a_product_is_added_where_the_other_operand_lies(dims: tuple[int, int, int], last: str) -> None:
    _native()
    rows, depth, columns = dims
    x, y, extra = made(1, (rows, depth), "f4"), made(2, (depth, columns), "f4"), made(3, (rows, columns), "f4")
    scale = -0.375

    def then(b: Builder, p: Node, others: Sequence[Node]) -> Node:
        sides = [others[0] if side == "x" else p if side == "p" else b(multiply, p, b.like(scale, p))
                 for side in last.replace("s p", "q").replace("p s", "q").split() if side in "xpq"]
        return b(add if "+" in last else subtract, *sides)

    f = dx.compile(dot(*map(type_of_array, (x, y, extra)), sums=((1,), (0,)), then=then), engine="native")
    product = x.astype("f8") @ y.astype("f8") * (scale if "s" in last else 1)
    expected = product + extra if "+" in last else extra - product if last[0] == "x" else product - extra
    given = [x.copy(), y.copy(), extra.copy()]
    for donated in ((), [p.name for p in f.inputs]):
        (found,) = f(*given, donate=donated)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * math.sqrt(depth))
    if last[0] == "x" and math.prod(dims) > 1 << 18:
        assert np.shares_memory(found, given[2])


def test_a_result_in_the_buffer_of_an_operand_of_the_epilogue() -> None:
    _native()
    x, y = made(1, (200, 64), "f4"), made(2, (64, 300), "f4")
    module, extra = followed(x, y, "update", False)
    f = dx.compile(module, engine="native")
    expected = f(x, y, extra)[0]
    names = [p.name for p in f.inputs]
    np.testing.assert_array_equal(f(x.copy(), y.copy(), extra.copy(), donate=names)[0], expected)
    square = made(4, (120, 120), "f4")
    module, _ = followed(square, square, "update", False)
    g = dx.compile(module, engine="native")
    close((square - g(square, square, square)[0]) * 8, square, square)


def test_what_two_read_is_computed_once_and_kept() -> None:
    x, y = made(1, (100, 64), "f4"), made(2, (64, 90), "f4")
    b = Builder()
    p, q = b.param(0, type_of_array(x)), b.param(1, type_of_array(y))
    product = b(dot_general, p, q, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))
    f = dx.compile(Module((Function("main", (p, q), (product, b(exponential, product))),)))
    first, second = f(x, y)
    close(first, x, y)
    np.testing.assert_allclose(second, np.exp(first), rtol=1e-5)


def test_weights_that_are_constants() -> None:
    x, w = made(1, (100, 64), "f4"), made(2, (64, 90), "f4")
    b = Builder()
    p = b.param(0, type_of_array(x))
    product = b(dot_general, p, b.constant(w), lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))
    f = dx.compile(Module((Function("main", (p,), (b(negate, product),)),)))
    close(-f(x)[0], x, w)


# --- the threads of BLAS


def threads_of_blas() -> list[int]:
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


@pytest.fixture
def two_threads() -> Any:
    """At least two threads for BLAS, whatever the machine has."""
    with threadpool_limits(2, user_api="blas"):
        if max(threads_of_blas(), default=1) < 2:
            pytest.skip("this BLAS has one thread")
        yield


def test_blas_is_limited_for_the_time_of_a_call_and_after_an_error(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "available_cores", lambda: 2)
    seen: list[list[int]] = []

    def look(*_: Any, **__: Any) -> None:
        seen.append(threads_of_blas())
        raise ZeroDivisionError

    before = threads_of_blas()
    x = made(1, (30, 30), "c8")
    f = dx.compile(dot(type_of_array(x), type_of_array(x)), engine="numpy", threads=1, optimize=False)
    close(f(x, x)[0], x, x)
    assert threads_of_blas() == before
    monkeypatch.setattr(f._runner, "takes", lambda *_: False)
    monkeypatch.setattr("deepx_graph.runtime.compile.execute_all", look)
    with pytest.raises(ZeroDivisionError):
        f(x, x)
    assert seen and set(seen[0]) == {1}
    assert threads_of_blas() == before


@pytest.mark.parametrize("large", [False, True])
def test_gemms_that_run_at_once_are_on_one_thread_each(two_threads: None, large: bool) -> None:
    before, seen = threads_of_blas(), list[list[int]]()
    inside, leave = threading.Event(), threading.Event()

    def waits() -> None:
        seen.append(threads_of_blas())
        inside.set()
        assert leave.wait(60)

    thread = threading.Thread(target=lambda: blas._LIMITS.alone(waits, large=large))
    thread.start()
    assert inside.wait(60)
    blas._LIMITS.alone(lambda: seen.append(threads_of_blas()), large=True)
    leave.set()
    thread.join()
    assert seen[0] == (before if large else [1] * len(before))
    assert set(seen[1]) == {1}
    assert threads_of_blas() == before


def test_limits_nest_and_restore_in_any_order(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "available_cores", lambda: 8)
    before = threads_of_blas()
    outer, inner = blas.limited(2), blas.limited(1)
    outer.__enter__()
    inner.__enter__()
    assert set(threads_of_blas()) == {1}
    outer.__exit__(None, None, None)
    assert set(threads_of_blas()) == {1}
    inner.__exit__(None, None, None)
    assert threads_of_blas() == before


def test_a_users_own_limit_is_kept(monkeypatch: pytest.MonkeyPatch, two_threads: None) -> None:
    monkeypatch.setattr(blas, "available_cores", lambda: 8)
    with threadpool_limits(1, user_api="blas"), blas.limited(2):
        assert set(threads_of_blas()) == {1}  # never raised
    before = threads_of_blas()
    limit = blas.limited(1)
    limit.__enter__()
    with threadpool_limits(1, user_api="blas"):
        pass
    limit.__exit__(None, None, None)
    assert threads_of_blas() == before


def test_the_limit_holds_for_a_library_that_is_loaded_later() -> None:
    """scipy has a BLAS of its own, which its special functions bring along."""
    program = """if True:
        import numpy, threadpoolctl
        from deepx_graph import blas
        blas.available_cores = lambda: 8
        threads = lambda: {each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"}
        threadpoolctl.threadpool_limits(2, user_api="blas")
        with blas.limited(1):
            print(threads())
        import scipy.special
        threadpoolctl.threadpool_limits(2, user_api="blas")
        with blas.limited(1):
            print(threads())
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["{1}", "{1}"]


def test_programs_with_every_core_leave_blas_alone() -> None:
    assert blas.limited(None) is blas.FREE
    assert blas.limited(blas.available_cores()) is blas.FREE


# --- called from machine code


def product_of(x: Array, y: Array, batch: Any, sums: Any, threads: int = 2) -> tuple[Node, Any]:
    node = dot(type_of_array(x), type_of_array(y), batch=batch, sums=sums).functions[0].results[0]
    found = kernel.build(node, threads)
    assert found is not None
    return node, found


LAYOUTS: list[Any] = [
    ((80, 70), (70, 90), ((), ()), ((1,), (0,))),
    ((70, 80), (90, 70), ((), ()), ((0,), (1,))),
    ((300, 200), (200, 111), ((), ()), ((1,), (0,))),
    ((4, 64, 2, 32), (4, 70, 2, 32), ((0, 2), (0, 2)), ((3,), (3,))),
    ((3, 33, 2, 301), (3, 70, 2, 301), ((), ()), ((0, 2, 3), (0, 2, 3))),
    ((3, 40, 9, 300), (3, 300, 9, 64), ((2,), (2,)), ((0, 3), (0, 1))),
]
"""Shapes, batching and contracting dimensions; all are matrices as they lie (others: `test_canonical_gemm.py`)."""


@pytest.mark.parametrize("packed", [False, True], indirect=True)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("left", "right", "batch", "sums"), LAYOUTS, ids=str)
def test_every_layout_of_a_product(left: Any, right: Any, batch: Any, sums: Any, dtype: str, packed: bool) -> None:
    _native()
    x, y = made(1, left, dtype), made(2, right, dtype)
    node, multiply = product_of(x, y, batch, sums)
    assert node.op.eval is not None
    want = node.op.eval([x.astype("f8"), y.astype("f8")], *node.attrs)
    size = node.op.eval([abs(x).astype("f8"), abs(y).astype("f8")], *node.attrs)
    for _ in range(2):
        assert np.max(np.abs(multiply([x, y])[0] - want) / size) < BOUND[dtype]


def test_outer_axes_of_long_sums_are_passes_that_add_to_the_result() -> None:
    """The gradient of a convolution of 1 x 1 by its weights sums over images and the windows of each."""
    _native()
    found = plan.planned(np.dtype("f4"), (4, 96, 2100), (4, 64, 2100), (), (), (0, 2), (0, 2))
    assert ([a.size for a in found.passes], [a.size for a in found.terms], found.by_panels) == ([4], [2100], True)
    x, y, c = made(1, (4, 96, 2100), "f4"), made(2, (4, 64, 2100), "f4"), made(3, (96, 64), "f4")
    module = dot(*map(type_of_array, (x, y, c)), sums=((0, 2), (0, 2)), then=lambda b, p, e: b(subtract, e[0], p))
    (got,) = kernel.build_with_epilogue(module.functions[0], 2)([x, y, c])
    want, size = (c - np.einsum("nit,njt->ij", *pair) for pair in ((x.astype("f8"), y.astype("f8")), (abs(x), -abs(y))))
    assert np.max(np.abs(got - want) / size.max()) < BOUND["f4"]
    narrow, other = (np.random.default_rng(k).integers(-128, 128, (3, n, 1037)).astype(np.int8) for k, n in ((0, 64), (1, 70)))
    text = """func.func @main(%x: tensor<3x64x1037xi8>, %y: tensor<3x70x1037xi8>) -> tensor<64x70xi32> {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [0, 2] x [0, 2]
    : (tensor<3x64x1037xi8>, tensor<3x70x1037xi8>) -> tensor<64x70xi32>
  return %0 : tensor<64x70xi32>
}"""
    (sums,) = dx.compile(dx.loads(text), engine="native")(narrow, other)
    np.testing.assert_array_equal(sums, np.einsum("nit,njt->ij", narrow.astype(np.int64), other.astype(np.int64)))


def test_calls_from_several_threads_at_once() -> None:
    _native()
    x, y = made(1, (150, 130), "f4"), made(2, (130, 140), "f4")
    multiply = product_of(x, y, ((), ()), ((1,), (0,)))[1]
    found: dict[int, Array] = {}

    def call(k: int) -> None:
        for _ in range(10):
            found[k] = multiply([x * k, y])[0]

    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in range(4):
        close(found[k], x * k, y)


@pytest.mark.parametrize("packed", [False, True], indirect=True)
@pytest.mark.parametrize("name", FOLLOWING)
@pytest.mark.parametrize("batched", [False, True])
def test_epilogues_of_products(name: str, batched: bool, packed: bool) -> None:
    _native()
    x, y = made(1, (3, 90, 64), "f4") / 8, made(2, (3, 64, 77), "f4")
    x, y = (x, y) if batched else (x[0], y[0])
    module, extra = followed(x, y, name, batched)
    fused = kernel.build_with_epilogue(module.functions[0], 2)
    assert packed == (fused.scratch_bytes > 0)
    with np.errstate(all="ignore"):
        want = FOLLOWING[name][1](np.matmul(x.astype("f8"), y.astype("f8")), extra.astype("f8"))
    np.testing.assert_allclose(fused([x, y, extra])[0], want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("packed", [False, True], indirect=True)
@pytest.mark.parametrize("name", ["plain", *FOLLOWING])
@pytest.mark.parametrize("narrow", [False, True])
def test_products_are_stored_in_any_order(name: str, narrow: bool, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that a transpose alone reads, whatever that is worth, with what follows it and with operands that it converts."""
    _native()
    monkeypatch.setattr(kernel, "memory_ns", lambda *_: 1e9)
    x, y = made(1, (2, 18, 5, 40), "f4") / 8, made(2, (2, 40, 70), "f4")
    x, y = (v.astype("f2").astype("f4") for v in (x, y)) if narrow else (x, y)
    product = np.einsum("bijk,bkl->bijl", x.astype("f8"), y.astype("f8"))
    make, values, shape = FOLLOWING.get(name, (None, lambda p, e: p, lambda *_: (1,)))
    counted = 0
    for order in itertools.permutations(range(4)):
        want = product.transpose(order)
        extra = made(3, shape(*want.shape), "f4")
        b = Builder()
        given = x.astype("f2") if narrow else x, y.astype("f2") if narrow else y, extra
        p, q, e = params = tuple(b.param(k, type_of_array(v)) for k, v in enumerate(given))
        p, q = (b(convert, v, dtype=F32) for v in (p, q)) if narrow else (p, q)
        found = b(dot_general, p, q, lhs_batching_dimensions=(0,), rhs_batching_dimensions=(0,), lhs_contracting_dimensions=(3,),
                  rhs_contracting_dimensions=(1,))
        found = b(transpose, found, permutation=order) if order != (0, 1, 2, 3) else found
        function = Function("main", params, (make(b, found, [e]) if make else found,))
        try:
            got = kernel.build_with_epilogue(function, 2)(given)[0]
            counted += 1
        except Declined:
            (got,) = dx.compile(Module((function,)), engine="native")(*given)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(got, values(want, extra.astype("f8")), rtol=2e-5, atol=2e-5)
    assert counted >= (8 if narrow else 12)


@pytest.mark.parametrize("packed", [False, True], indirect=True)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("dims", [(1, 150, 64, 300), (1, 33, 5000, 40), (4, 130, 64, 131), (1, 600, 2000, 2), (3, 33, 60, 129)],
                         ids=str)
def test_a_product_is_added_to_an_operand_in_its_place(dims: tuple[int, int, int, int], dtype: str, packed: bool) -> None:
    _native()
    count, rows, depth, columns = dims
    shapes = (count, rows, depth), (count, depth, columns), (count, rows, columns)
    x, y, c = (made(k, shape, dtype) for k, shape in enumerate(shapes))
    for then in (lambda b, p, e: b(add, p, e[0]), lambda b, p, e: b(add, e[0], p)):
        module = dot(*map(type_of_array, (x, y, c)), batch=((0,), (0,)), sums=((2,), (1,)), then=then)
        multiply = kernel.build_with_epilogue(module.functions[0], 2)
        assert 2 in multiply.in_place[0]
        want = np.matmul(x.astype("f8"), y.astype("f8")) + c
        size = np.matmul(abs(x).astype("f8"), abs(y).astype("f8")) + abs(c)
        apart, over = multiply([x, y, c])[0], c.copy()
        assert np.max(np.abs(apart - want) / size) < BOUND[dtype]
        assert multiply([x, y, over], [over])[0] is over
        np.testing.assert_array_equal(over, apart)


def test_what_is_added_to_and_multiplied_is_not_written_over() -> None:
    _native()
    x, y = made(1, (120, 120), "f4"), made(2, (120, 120), "f4")
    b = Builder()
    p, q = b.param(0, type_of_array(x)), b.param(1, type_of_array(y))
    function = Function("main", (p, q), (b(add, matmul(b, p, q), p),))
    multiply = kernel.build_with_epilogue(function, 2)
    assert 0 not in multiply.in_place[0]
    close(multiply([x, y])[0] - x, x, y)


@pytest.mark.parametrize("is_constant", [False, True])
def test_a_small_product_that_converts_takes_no_counter(is_constant: bool) -> None:
    """Its function has one share, and takes none, be the operand an argument or a constant."""
    _native()
    x, y = made(1, (32, 64), "f4"), made(2, (64, 64), "f4").astype("f2")
    b = Builder()
    p, q = b.param(0, type_of_array(x)), b.constant(y) if is_constant else b.param(1, type_of_array(y))
    product = b(dot_general, p, b(convert, q, dtype=F32), lhs_batching_dimensions=(), rhs_batching_dimensions=(),
                lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(1,))
    multiply = kernel.build_with_epilogue(Function("main", (p,) if is_constant else (p, q), (product,)), 2)
    assert [threads for _, threads in multiply.called] == [0]
    np.testing.assert_allclose(multiply([x] if is_constant else [x, y])[0], x @ y.astype("f4").T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("packed", [False], indirect=True)
def test_sums_of_products_lie_in_one_place(packed: bool) -> None:
    _native()
    x, y, c = (made(k, (150, 150), "f4") for k in range(3))
    b = Builder()
    p, q, r = (b.param(k, type_of_array(x)) for k in range(3))
    total = b(add, matmul(b, q, p), b(add, r, matmul(b, p, q)))
    f = dx.compile(Module((Function("main", (p, q, r), (total,)),)), engine="native", optimize=False)
    np.testing.assert_allclose(f(x, y, c)[0], c + x @ y + y @ x, rtol=1e-4, atol=1e-4)
    assert f.plan.peak_bytes < 1.5 * c.nbytes


@pytest.mark.parametrize("packed", [False, True], indirect=True)
@pytest.mark.parametrize("side", [8, 24, 100, 1500])
def test_a_product_in_the_place_of_its_left_operand(side: int, packed: bool) -> None:
    """Which it may have only where a tile takes whole rows."""
    _native()
    x, y = made(1, (3, 70, side), "f4"), made(2, (3, side, side), "f4")
    multiply = product_of(x, y, ((0,), (0,)), ((2,), (1,)))[1]
    assert side != 8 or multiply.in_place == (frozenset({0}),)
    if 0 in multiply.in_place[0]:
        want, over = multiply([x, y])[0], x.copy()
        assert multiply([over, y], [over])[0] is over
        np.testing.assert_array_equal(over, want)


def test_a_program_of_large_products_is_one_machine_function() -> None:
    _native()
    x, y = made(1, (150, 130), "f4"), made(2, (130, 150), "f4")
    b = Builder()
    p, q = b.param(0, type_of_array(x)), b.param(1, type_of_array(y))
    whole = Function("main", (p, q), (matmul(b, b(tanh, matmul(b, p, q)), p),))
    f = dx.compile(Module((whole,)), engine="native", optimize=False)
    want = np.tanh(x.astype("f8") @ y) @ x
    for left, right in ((x, y), (np.asfortranarray(x), np.asfortranarray(y))):
        np.testing.assert_allclose(f(left, right)[0], want, rtol=1e-4, atol=1e-4)
    assert f.python_steps == ()
    apart = dx.compile(Module((whole,)), engine="native", profile=True, optimize=False)
    apart(x, y)
    assert apart.profile is not None and len(apart.profile.rows()) == 2, "each product, where each is measured"
