"""Loops over small tensors as one machine function, against the reference: what changes hands, branches, nested loops, rows."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import add, compare, dynamic_slice, dynamic_update_slice, multiply, reshape, select, slice_, subtract
from deepx_graph.ops.reduce import reduction
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.native import cache
from deepx_graph.runtime.native.loops import turns_kernel
from deepx_graph.types import type_of_array

Array = np.ndarray[Any, Any]
Vars = tuple[Node, ...]


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    monkeypatch.setenv("DEEPX_GRAPH_CACHE", str(tmp_path_factory.mktemp("kernels")))
    cache._folder.cache_clear()
    yield
    cache._folder.cache_clear()


@pytest.fixture(params=["one call", "many calls"], autouse=True)
def _calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every loop also with a single jump back in each call."""
    if request.param == "many calls":
        monkeypatch.setattr(turns_kernel, "CALL_NANOSECONDS", 1)


def check(make: Callable[..., Sequence[Node]], *arrays: Array, taken: bool = True) -> list[Array]:
    """The results of two calls, equal to the last bit to the reference's; and whether the loop was one function."""
    b = Builder()
    params = tuple(b.param(k, type_of_array(np.asarray(a))) for k, a in enumerate(arrays))
    module = Module((Function("main", params, tuple(make(b, *params))),), "main")
    fast = compile(module, engine="native", profile=True)
    plain = compile(module, engine="native")
    kept = [np.array(a) for a in arrays]
    wanted = compile(module, engine="numpy")(*arrays)
    for f in (fast, plain, plain):
        for k, (x, y) in enumerate(zip(f(*arrays), wanted, strict=True)):
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            assert np.array_equal(x, y, equal_nan=x.dtype.kind == "f"), f"result {k}"
    assert all(np.asarray(a).tobytes() == k.tobytes() for a, k in zip(arrays, kept, strict=True)), "an argument has changed"
    assert fast.profile is not None
    assert any(row.way == turns_kernel.TurnsKernel.way for row in fast.profile.rows()) == taken
    return list(wanted)


def counted(b: Builder, turns: int, inits: Sequence[Node], body: Callable[..., Sequence[Node]]) -> tuple[Node, ...]:
    def whole(v: Vars) -> tuple[Node, Sequence[Node]]:
        return b(compare, v[0], b.like(turns, v[0]), direction="LT"), (b(add, v[0], b.like(1, v[0])), *body(*v))

    return b.loop((b.constant(np.int32(0)), *inits), whole)


def total(b: Builder, x: Node) -> Node:
    return reduction(b, add, x, (0,))


INTS = np.arange(-3, 5, dtype=np.int32)


@pytest.mark.parametrize("turns", [0, 1, 2, 7])
def test_values_that_change_hands(turns: int) -> None:
    """Fibonacci: each variable takes the other's old value; sums keep the loop from being one of elements."""
    check(lambda b, x, y: counted(b, turns, (x, y), lambda k, p, q: (q, b(add, p, b(add, q, total(b, p))))),
          INTS, INTS[::-1].copy())


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_one_value_for_several_variables_and_values_from_outside(turns: int) -> None:
    def make(b: Builder, x: Node, y: Node) -> Sequence[Node]:
        def body(k: Node, p: Node, q: Node, r: Node, s: Node) -> Sequence[Node]:
            new = b(add, p, total(b, q))
            return new, new, q, y

        return counted(b, turns, (x, x, y, x), body)

    check(make, INTS, INTS[::-1].copy())


@pytest.mark.parametrize("turns", [3, 8])
def test_rotation(turns: int) -> None:
    check(lambda b, x, y, z: counted(b, turns, (x, y, z), lambda k, p, q, r: (q, r, b(subtract, p, total(b, q)))),
          INTS, INTS + 1, INTS * 2)


def test_a_loop_until_something_small() -> None:
    def make(b: Builder, x: Node) -> Sequence[Node]:
        def body(v: Vars) -> tuple[Node, Sequence[Node]]:
            p, n = v
            s = total(b, b(multiply, p, p))
            return b(compare, s, b.like(1e-3, s), direction="GT"), (b(multiply, p, b.like(0.5, p)), b(add, n, b.like(1, n)))

        return b.loop((x, b.constant(np.int64(0))), body)

    found = check(make, np.full(8, 4, np.float32))
    assert found[1] == 9
    check(make, np.zeros(8, np.float32))
    check(make, np.full(8, np.nan, np.float32))


@pytest.mark.parametrize("dtype", ["i4", "u1", "i8"])
def test_branches_inside_by_number_and_by_truth(dtype: str) -> None:
    def make(b: Builder, x: Node, which: Node) -> Sequence[Node]:
        def body(k: Node, p: Node, n: Node) -> Sequence[Node]:
            (q,) = b.branch(n, [b(add, p, total(b, p))], [p], [b(multiply, p, b.like(3, p))])
            large = b(compare, total(b, q), b.like(50, q), direction="GT")
            r, m = b.branch(large, [b(subtract, q, b.like(9, q)), b(add, n, b.like(1, n))], [q, b(subtract, n, b.like(1, n))])
            return r, m

        return counted(b, 9, (x, which), body)

    for which in (0, 1, 2, 3, 200):
        check(make, INTS, np.asarray(which).astype(dtype))


@pytest.mark.parametrize("inner", [0, 1, 3])
def test_nested_loops_and_what_is_computed_once(inner: int) -> None:
    def make(b: Builder, x: Node, y: Node) -> Sequence[Node]:
        def body(k: Node, p: Node) -> Sequence[Node]:
            fixed, per_turn = total(b, y), total(b, p)

            def within(j: Node, q: Node, r: Node) -> Sequence[Node]:
                once = b(multiply, per_turn, b.like(2, per_turn))
                return b(add, q, b(add, once, fixed)), b(select, b(compare, j, k, direction="LT"), total(b, q), r)

            _, q, r = counted(b, inner, (p, total(b, p)), within)
            return (b(subtract, q, r),)

        return counted(b, 4, (x,), body)

    check(make, INTS, INTS + 2)


def test_rows_are_read_and_written() -> None:
    """What a scan does; starts out of range are moved inside."""
    def make(b: Builder, xs: Node, ys: Node) -> Sequence[Node]:
        zero = b.constant(np.int32(0))

        def body(k: Node, h: Node, y: Node) -> Sequence[Node]:
            at = b(subtract, b(multiply, k, b.like(2, k)), b.like(3, k))
            row = b(reshape, b(dynamic_slice, xs, at, zero, slice_sizes=(1, 8)), shape=(8,))
            h = b(add, row, total(b, h))
            return h, b(dynamic_update_slice, y, b(reshape, h, shape=(1, 8)), k, zero)

        return counted(b, 7, (b.splat(1, xs.type.with_dims((8,))), ys), body)  # type: ignore[attr-defined]

    check(make, np.arange(48, dtype=np.int32).reshape(6, 8), np.zeros((5, 8), np.int32))


def test_an_array_that_is_written_and_kept() -> None:
    def make(b: Builder, y: Node) -> Sequence[Node]:
        def body(k: Node, before: Node, now: Node) -> Sequence[Node]:
            return now, b(dynamic_update_slice, now, b(reshape, total(b, before), shape=(1,)), k)

        return counted(b, 6, (y, y), body)

    check(make, INTS)


def test_views_in_several_pieces() -> None:
    def make(b: Builder, x: Node) -> Sequence[Node]:
        def body(k: Node, p: Node) -> Sequence[Node]:
            middle = b(slice_, p, start_indices=(0, 1), limit_indices=(4, 3), strides=(1, 1))
            s = reduction(b, add, middle, (0, 1))
            return (b(add, p, s),)

        return counted(b, 3, (x,), body)

    check(make, np.arange(16, dtype=np.int32).reshape(4, 4))


def test_an_endless_loop_can_be_interrupted() -> None:
    b = Builder()
    x = b.param(0, type_of_array(np.ones(4, np.float32)))
    s = b.loop((x,), lambda v: (b(compare, total(b, v[0]), b.constant(np.float32(-1)), direction="GT"),
                               (b(multiply, v[0], b.like(0.5, v[0])),)))
    f = compile(Module((Function("main", (x,), s),), "main"), engine="native")

    class Stop(BaseException):
        pass

    def stop(*_: Any) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Stop):
            f(np.ones(4, np.float32))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
