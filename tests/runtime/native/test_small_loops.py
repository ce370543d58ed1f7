"""Loops over small tensors as one machine function, against the reference: what changes hands, branches, nested loops, rows."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import (
    add,
    compare,
    concatenate,
    dot_general,
    dynamic_slice,
    dynamic_update_slice,
    logistic,
    multiply,
    reshape,
    scatter,
    select,
    sine,
    slice_,
    subtract,
    tanh,
)
from deepx_graph.ops.contract.linear import matmul
from deepx_graph.ops.contract.reduce import monoid_body, reduction
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.native_engine import NativeEngine
from deepx_graph.runtime.memory.pool import Allowance
from deepx_graph.runtime.memory.sharing import packed
from deepx_graph.runtime.native.gemm import kernel as gemm
from deepx_graph.runtime.native.loop_program import loop_kernels
from deepx_graph.runtime.native.loop_program.kernel import LoopKernel
from deepx_graph.runtime.native.whole_program import calls, plan
from deepx_graph.runtime.native.whole_program import kernel as whole_program
from deepx_graph.types import type_of_array
from tests.support.kernel_store import kernel_store

Array = np.ndarray[Any, Any]
Vars = tuple[Node, ...]


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with kernel_store(monkeypatch, tmp_path_factory.mktemp("kernels")):
        yield


def _declined(function: Function, threads: int, **limits: Any) -> LoopKernel:
    raise Declined


@pytest.fixture(params=["one call", "many calls", "in registers"], autouse=True)
def _calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every loop also with a single jump back in each call, and as one loop program."""
    if request.param == "many calls":
        monkeypatch.setattr(whole_program, "CALL_NANOSECONDS", 1)
    if request.param != "in registers":
        monkeypatch.setattr(loop_kernels, "build_short", _declined)


def check(make: Callable[..., Sequence[Node]], *arrays: Array, taken: bool = True, rtol: float = 0.0) -> list[Array]:
    """The results of two calls, equal to the reference's, to the last bit unless `rtol` is given; and whether the loop was one
    function."""
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
            if rtol:
                np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)
            else:
                assert np.array_equal(x, y, equal_nan=x.dtype.kind == "f"), f"result {k}"
    assert all(np.asarray(a).tobytes() == k.tobytes() for a, k in zip(arrays, kept, strict=True)), "an argument has changed"
    assert fast.profile is not None
    whole = whole_program.WHOLE_LOOP, whole_program.WHOLE_PROGRAM
    rows = [row.lowering for row in fast.profile.rows()]
    assert any(row in whole for row in rows) == taken or rows == [loop_kernels.IN_REGISTERS]
    return list(wanted)


def counted(b: Builder, iterations: int, inits: Sequence[Node], body: Callable[..., Sequence[Node]]) -> tuple[Node, ...]:
    def whole(v: Vars) -> tuple[Node, Sequence[Node]]:
        return b(compare, v[0], b.like(iterations, v[0]), direction="LT"), (b(add, v[0], b.like(1, v[0])), *body(*v))

    return b.loop((b.constant(np.int32(0)), *inits), whole)


def total(b: Builder, x: Node) -> Node:
    return reduction(b, add, x, (0,))


INTS = np.arange(-3, 5, dtype=np.int32)


@pytest.mark.parametrize("iterations", [0, 1, 2, 7])
def test_values_that_move_from_variable_to_variable(iterations: int) -> None:
    """Fibonacci: each variable takes the other's old value; sums keep the loop from being one of elements."""
    check(lambda b, x, y: counted(b, iterations, (x, y), lambda k, p, q: (q, b(add, p, b(add, q, total(b, p))))),
          INTS, INTS[::-1].copy())


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_one_value_for_several_variables_and_values_from_outside(iterations: int) -> None:
    def make(b: Builder, x: Node, y: Node) -> Sequence[Node]:
        def body(k: Node, p: Node, q: Node, r: Node, s: Node) -> Sequence[Node]:
            new = b(add, p, total(b, q))
            return new, new, q, y

        return counted(b, iterations, (x, x, y, x), body)

    check(make, INTS, INTS[::-1].copy())


@pytest.mark.parametrize("iterations", [3, 8])
def test_rotation(iterations: int) -> None:
    check(lambda b, x, y, z: counted(b, iterations, (x, y, z), lambda k, p, q, r: (q, r, b(subtract, p, total(b, q)))),
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
            fixed, per_iteration = total(b, y), total(b, p)

            def within(j: Node, q: Node, r: Node) -> Sequence[Node]:
                once = b(multiply, per_iteration, b.like(2, per_iteration))
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


@pytest.mark.parametrize("kept", [False, True])
def test_a_scatter_is_done_in_place_where_nobody_looks_at_what_was_there(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[plan.ProgramPlan] = []

    def planned(*args: Any) -> plan.ProgramPlan:
        plans.append(calls.planned_with_calls(*args))
        return plans[-1]

    monkeypatch.setattr(whole_program, "planned_with_calls", planned)
    monkeypatch.setattr(loop_kernels, "build_short", _declined)

    def make(b: Builder, y: Node, at: Node) -> Sequence[Node]:
        def body(k: Node, before: Node, now: Node) -> Sequence[Node]:
            row = b(multiply, b(slice_, now, start_indices=(1,), limit_indices=(4,), strides=(1,)), b.splat(3, before.type))
            new = b(scatter, now, at, row, update_window_dims=(0,), scatter_dims_to_operand_dims=(0,),
                    update_computation=monoid_body(add, now.type.dtype))  # type: ignore[attr-defined]
            seen = b(add, new, now) if kept else new
            return b(slice_, seen, start_indices=(0,), limit_indices=(3,), strides=(1,)), new

        return counted(b, 5, (b(slice_, y, start_indices=(0,), limit_indices=(3,), strides=(1,)), y), body)

    check(make, np.arange(7, dtype=np.int32), np.array([2], np.int32))
    called = [a.objects for actions in plans[0].actions for a in actions if isinstance(a, plan.Called)]
    (objects,) = [o for o in called if len(o) == 4]
    assert (objects[0] == objects[-1]) != kept


def test_an_array_that_is_written_and_kept() -> None:
    def make(b: Builder, y: Node) -> Sequence[Node]:
        def body(k: Node, before: Node, now: Node) -> Sequence[Node]:
            return now, b(dynamic_update_slice, now, b(reshape, total(b, before), shape=(1,)), k)

        return counted(b, 6, (y, y), body)

    check(make, INTS)


def test_views_in_several_parts() -> None:
    def make(b: Builder, x: Node) -> Sequence[Node]:
        def body(k: Node, p: Node) -> Sequence[Node]:
            middle = b(slice_, p, start_indices=(0, 1), limit_indices=(4, 3), strides=(1, 1))
            s = reduction(b, add, middle, (0, 1))
            return (b(add, p, s),)

        return counted(b, 3, (x,), body)

    check(make, np.arange(16, dtype=np.int32).reshape(4, 4))


def halved_until(below: Node, x: Node) -> Any:
    """The compiled loop that halves a vector as long as its sum is greater."""
    b = Builder()
    s = b.loop((x,), lambda v: (b(compare, total(b, v[0]), below, direction="GT"), (b(multiply, v[0], b.like(0.5, v[0])),)))
    return compile(Module((Function("main", (x, below), s),), "main"), engine="native")


def vector_and_number() -> tuple[Node, Node]:
    b = Builder()
    return b.param(0, type_of_array(np.ones(4, np.float32))), b.param(1, type_of_array(np.float32(1)))


def test_a_loop_of_unknown_length_is_one_call_of_python() -> None:
    """However often its machine function returns to let others run."""
    x, below = vector_and_number()
    f = halved_until(below, x)
    assert f.python_steps == ()
    for limit in (8, 0.5, 1e-30, 0.5):
        want = np.ones(4, np.float32)
        while want.sum() > limit:
            want = want * np.float32(0.5)
        np.testing.assert_array_equal(f(np.ones(4, np.float32), np.float32(limit))[0], want)


def test_a_prediction_counts_each_loop_by_its_own_iterations() -> None:
    """Of loops one after the other it is the sum, whatever their order."""
    a = normal(40, 40, seed=5)

    def predicted(*counts: int) -> float:
        def make(b: Builder, x: Node) -> Sequence[Node]:
            for count in counts:
                _, x = counted(b, count, (x,), lambda k, v: [b(sine, matmul(b, b.constant(a), v))])
            return [x]

        b = Builder()
        p = b.param(0, type_of_array(a))
        f = compile(Module((Function("main", (p,), make(b, p)),), "main"), engine="native", threads=1, profile=True)
        f(a)
        assert f.profile is not None
        (row,) = f.profile.rows()
        assert row.predicted is not None
        return row.predicted

    alone = predicted(30) + predicted(70)
    assert predicted(30, 70) == pytest.approx(alone, rel=0.1) and predicted(70, 30) == pytest.approx(alone, rel=0.1)


def test_calls_from_several_threads_do_not_share_memory() -> None:
    """Also calls that are long enough for others to run meanwhile."""
    x = normal(3, dtype="f8")
    a = normal(3, 3, dtype="f8", seed=5)

    def make(b: Builder, x: Node) -> Sequence[Node]:
        return counted(b, 3000, (x,), lambda k, v: [b(add, b(sine, matmul(b, b.constant(a), v)), x)])

    b = Builder()
    p = b.param(0, type_of_array(x))
    f = compile(Module((Function("main", (p,), make(b, p)),), "main"), engine="native", threads=1)
    inputs = [x + k for k in range(4)]
    want = [f(x)[0].copy() for x in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        wrong.extend(k for _ in range(40) if not np.array_equal(f(inputs[k])[0], want[k]))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and f.python_steps == ()


@pytest.mark.parametrize("before", [0, 2])
def test_an_endless_loop_can_be_interrupted(before: int) -> None:
    """By the first call, which Python runs, and by later ones, which machine code does."""
    x, below = vector_and_number()
    f = halved_until(below, x)
    for _ in range(before):
        f(np.ones(4, np.float32), np.float32(1))

    class Stop(BaseException):
        pass

    def stop(*_: Any) -> None:
        raise Stop

    handler = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Stop):
            f(np.ones(4, np.float32), np.float32(-1))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    np.testing.assert_array_equal(f(np.ones(4, np.float32), np.float32(1))[0], np.full(4, 0.25, np.float32))


# --- cells and steps: products and concatenations inside


def normal(*shape: int, dtype: str = "f4", seed: int = 3) -> Array:
    return (np.random.default_rng(seed + sum(shape)).standard_normal(shape) / 2).astype(dtype)


def columns(b: Builder, x: Node, part: int, size: int) -> Node:
    rows = x.type.shape[0]  # type: ignore[attr-defined]
    return b(slice_, x, start_indices=(0, part * size), limit_indices=(rows, (part + 1) * size), strides=(1, 1))


def scanned(b: Builder, iterations: int, xs: Node, state: Vars, cell: Callable[..., Sequence[Node]]) -> Sequence[Node]:
    """The state after cells that each take a row of `xs`."""
    _, *box = xs.type.shape  # type: ignore[attr-defined]

    def body(k: Node, *v: Node) -> Sequence[Node]:
        zero = b.like(0, k)
        return cell(b(reshape, b(dynamic_slice, xs, k, zero, zero, slice_sizes=(1, *box)), shape=tuple(box)), *v)

    return counted(b, iterations, state, body)


SIZES = pytest.mark.parametrize(("batch", "hidden"), [(1, 5), (8, 5), (1, 16), (8, 16), (1, 64), (8, 64)])


@SIZES
def test_rnn(batch: int, hidden: int) -> None:
    for iterations in (0, 6):
        check(lambda b, xs, h, w, u: scanned(b, iterations, xs, (h,), lambda x, h: (  # noqa: B023
            b(tanh, b(add, matmul(b, x, w), matmul(b, h, u))),)),
            normal(6, batch, 7), normal(batch, hidden), normal(7, hidden), normal(hidden, hidden), rtol=2e-5)


@SIZES
def test_gru(batch: int, hidden: int) -> None:
    def make(b: Builder, xs: Node, h: Node, w: Node, u: Node) -> Sequence[Node]:
        def cell(x: Node, h: Node) -> Sequence[Node]:
            gx, gh = matmul(b, x, w), matmul(b, h, u)
            r, z = (b(logistic, b(add, columns(b, gx, k, hidden), columns(b, gh, k, hidden))) for k in (0, 1))
            n = b(tanh, b(add, columns(b, gx, 2, hidden), b(multiply, r, columns(b, gh, 2, hidden))))
            return (b(add, n, b(multiply, z, b(subtract, h, n))),)

        return scanned(b, 5, xs, (h,), cell)

    check(make, normal(5, batch, 7), normal(batch, hidden), normal(7, 3 * hidden), normal(hidden, 3 * hidden), rtol=2e-5)


@SIZES
def test_lstm_of_concatenated_input_and_state(batch: int, hidden: int) -> None:
    def make(b: Builder, xs: Node, h: Node, c: Node, w: Node) -> Sequence[Node]:
        def cell(x: Node, h: Node, c: Node) -> Sequence[Node]:
            gates = matmul(b, b(concatenate, x, h, dimension=1), w)
            i, f, o = (b(logistic, columns(b, gates, k, hidden)) for k in (0, 1, 2))
            c = b(add, b(multiply, f, c), b(multiply, i, b(tanh, columns(b, gates, 3, hidden))))
            return b(multiply, o, b(tanh, c)), c

        return scanned(b, 5, xs, (h, c), cell)

    check(make, normal(5, batch, 7), normal(batch, hidden), normal(batch, hidden), normal(7 + hidden, 4 * hidden), rtol=2e-5)


@pytest.mark.parametrize("iterations", [0, 50])
def test_runge_kutta_of_a_system_put_together(iterations: int) -> None:
    """The Lorenz system: its derivative is three scalars in one array."""
    def make(b: Builder, s: Node) -> Sequence[Node]:
        def derivative(s: Node) -> Node:
            x, y, z = (b(slice_, s, start_indices=(k,), limit_indices=(k + 1,), strides=(1,)) for k in range(3))
            return b(concatenate, b(multiply, b.like(10, x), b(subtract, y, x)),
                     b(subtract, b(multiply, x, b(subtract, b.like(28, z), z)), y),
                     b(subtract, b(multiply, x, y), b(multiply, b.like(8 / 3, z), z)), dimension=0)

        def moved(s: Node, k: Node, step: float) -> Node:
            return b(add, s, b(multiply, b.like(step, k), k))

        def body(_: Node, s: Node) -> Sequence[Node]:
            k1 = derivative(s)
            k2 = derivative(moved(s, k1, 0.005))
            k3 = derivative(moved(s, k2, 0.005))
            k4 = derivative(moved(s, k3, 0.01))
            both = b(add, k2, k3)
            return (moved(s, b(add, b(add, k1, k4), b(add, both, both)), 0.01 / 6),)

        return counted(b, iterations, (s,), body)

    check(make, np.array([1, 2, 3.5]), rtol=1e-10)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concatenation_along_any_axis(axis: int) -> None:
    def make(b: Builder, x: Node, y: Node) -> Sequence[Node]:
        def body(k: Node, p: Node, q: Node) -> Sequence[Node]:
            whole = b(concatenate, p, y, p, dimension=axis)
            return b(add, p, reduction(b, add, whole, (0, 1, 2))), whole

        shape = tuple(n * (3 if k == axis else 1) for k, n in enumerate((2, 3, 4)))
        return counted(b, 3, (x, b.splat(0, x.type.with_dims(shape))), body)  # type: ignore[attr-defined]

    check(make, np.arange(24, dtype=np.int32).reshape(2, 3, 4), np.arange(24, dtype=np.int32).reshape(2, 3, 4) - 5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_passes_through_matmuls(bad: float) -> None:
    w, h = normal(16, 16), normal(2, 16)
    h[1, 3] = bad
    check(lambda b, h, w: counted(b, 2, (h,), lambda k, h: (matmul(b, h, w),)), h, w, rtol=2e-5)


_PRODUCTS = [
    ((8, 5), (5, 67), ((), (), (1,), (0,))), ((64, 33), (33,), ((), (), (1,), (0,))), ((33,), (33, 40), ((), (), (0,), (0,))),
    ((9, 33), (7, 33), ((), (), (1,), (1,))), ((33, 9), (7, 33), ((), (), (0,), (1,))), ((33, 19), (33,), ((), (), (0,), (0,))),
    ((3, 6, 5), (3, 5, 17), ((0,), (0,), (2,), (1,))), ((6, 3, 5), (17, 5, 3), ((1,), (2,), (2,), (1,))),
    ((3, 2, 4, 5), (5, 4, 3, 2), ((1,), (3,), (3, 2), (0, 1))), ((3, 4, 5), (4, 5, 6), ((), (), (1, 2), (0, 1))),
    ((3, 500), (500, 1100), ((), (), (1,), (0,))), ((700, 1100), (700,), ((), (), (0,), (0,))),
    ((900, 3), (3, 800), ((), (), (1,), (0,))), ((901, 500), (500, 2), ((), (), (1,), (0,))),
    ((3, 5000), (5000, 40), ((), (), (1,), (0,))), ((5000, 9), (5000, 3), ((), (), (0,), (0,))),
    ((70, 3, 90), (70, 90, 60), ((0,), (0,), (2,), (1,))),
    ((3, 64, 37), (3, 29, 37), ((0,), (0,), (2,), (2,))), ((5, 70, 11), (5, 13, 70), ((0,), (0,), (1,), (2,))),
    ((17, 600), (43, 600), ((), (), (1,), (1,))),
    ((9, 5, 2, 33), (21, 5, 2, 33), ((2,), (2,), (1, 3), (1, 3))), ((40, 1100), (1100, 70), ((), (), (1,), (0,))),
    ((1030, 19), (1030, 6), ((), (), (0,), (0,))), ((12, 8, 6), (12, 6, 5), ((), (), (0, 2), (0, 1))),
    ((4, 10, 3, 8), (4, 9, 3, 8), ((0, 2), (0, 2), (3,), (3,))), ((9, 300), (300, 300), ((), (), (1,), (0,))),
    ((3,), (4,), ((), (), (), ())), ((7,), (7,), ((), (), (0,), (0,))), ((1, 1), (1, 1), ((), (), (1,), (0,))),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("left", "right", "axes"), _PRODUCTS)
def test_small_matmuls(left: tuple[int, ...], right: tuple[int, ...], axes: tuple[tuple[int, ...], ...], dtype: str) -> None:
    x, y = normal(*left, dtype=dtype), normal(*right, dtype=dtype, seed=9)
    b = Builder()
    names = ("lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions")
    node = b(dot_general, b.param(0, type_of_array(x)), b.param(1, type_of_array(y)), **dict(zip(names, axes, strict=True)))
    kernel = gemm.build(node, 2)
    assert kernel is not None
    lhs_batch, rhs_batch, lhs_terms, rhs_terms = axes
    letters = list("abcdefgh")
    of_x = [letters.pop() for _ in left]
    of_y = [letters.pop() for _ in right]
    for i, j in (*zip(lhs_batch, rhs_batch, strict=True), *zip(lhs_terms, rhs_terms, strict=True)):
        of_y[j] = of_x[i]
    free = [c for k, c in enumerate(of_x) if k not in (*lhs_batch, *lhs_terms)]
    free += [c for k, c in enumerate(of_y) if k not in (*rhs_batch, *rhs_terms)]
    form = f"{''.join(of_x)},{''.join(of_y)}->{''.join([of_x[i] for i in lhs_batch] + free)}"
    want, scale = np.einsum(form, x.astype("f8"), y.astype("f8")), np.einsum(form, np.abs(x), np.abs(y)) + 1e-30
    (got,) = kernel([x, y], [np.full(want.shape, np.nan, dtype)])
    assert np.max(np.abs(got - want) / scale) < (1e-5 if dtype == "f4" else 1e-13)


def test_a_result_that_is_the_beginning_of_a_value_takes_no_more_than_its_memory() -> None:
    """Of a loop that hands the first part of a longer value on: buffers of different sizes are not exchanged."""
    text = """HloModule m
body {
  s = (s32[], f32[2]) parameter(0)
  k = s32[] get-tuple-element(s), index=0
  x = f32[2] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(k, one)
  twice = f32[4] concatenate(x, x), dimensions={0}
  sum = f32[4] add(twice, twice)
  part = f32[2] slice(sum), slice={[0:2]}
  ROOT t = (s32[], f32[2]) tuple(next, part)
}
test {
  s = (s32[], f32[2]) parameter(0)
  k = s32[] get-tuple-element(s), index=0
  most = s32[] constant(5)
  ROOT less = pred[] compare(k, most), direction=LT
}
ENTRY e {
  x = f32[2] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[2]) tuple(zero, x)
  end = (s32[], f32[2]) while(start), condition=test, body=body
  ROOT y = f32[2] get-tuple-element(end), index=1
}
"""
    x = np.array([1, -3], np.float32)
    (found,) = dx.compile(dx.loads(text), engine="native", optimize=False)(x)
    np.testing.assert_array_equal(found, x * 32)


@pytest.mark.parametrize("seed", range(20))
def test_buffers_that_are_alive_together_lie_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    starts, lengths, sizes = rng.integers(0, 50, 60), rng.integers(0, 12, 60), rng.integers(0, 5, 60) * 40
    spans = [(int(a), int(a + n)) for a, n in zip(starts, lengths, strict=True)]
    offsets, whole = packed(spans, [int(n) for n in sizes])
    room = [(o, o + int(n)) for o, n in zip(offsets, sizes, strict=True)]
    for (a, x), (b, y) in itertools.combinations(zip(spans, room, strict=True), 2):
        together = a[0] <= b[1] and b[0] <= a[1]
        assert not together or x[1] <= y[0] or y[1] <= x[0]
    assert all(o % (64 if n >= 64 else 8) == 0 for o, n in zip(offsets, sizes, strict=True)), "on a cache line, if as long as one"
    most = max(sum(int(n) for (a, b), n in zip(spans, sizes, strict=True) if a <= at <= b) for at in range(65))
    assert max(high for _, high in room) <= whole
    assert most <= whole <= 1.5 * most


@pytest.mark.parametrize("count", [50, 400])
def test_arrays_of_pages_begin_in_different_sets_of_a_cache(count: int) -> None:
    offsets, whole = packed([(0, 9)] * count, [1 << 14] * count)
    assert len({o % 4096 for o in offsets}) == min(count, 64)
    assert whole == (count << 14) + (count - 1) * 64
    assert packed([(0, 9)], [1 << 14])[1] == 1 << 14, "nothing is left out behind the last"


def test_scalars_share_a_cache_line() -> None:
    assert packed([(0, 9)] * 10, [4] * 10)[1] == 80


def test_a_long_chain_has_the_memory_of_few_values() -> None:
    x = np.linspace(-1, 1, 128 * 128).reshape(128, 128)
    b = Builder()
    y = p = b.param(0, type_of_array(x))
    for _ in range(40):
        y = b(tanh, matmul(b, y, p))
    engine = NativeEngine(1)
    kernel = whole_program.build(Function("main", (p,), (y,)), engine.made, Allowance(1 << 30), calls.CalledFunctions())
    assert kernel.workspace_bytes < 6 * x.nbytes, "two values, and what a product packs"
    want = x
    for _ in range(40):
        want = np.tanh(want @ x)
    np.testing.assert_allclose(kernel([x])[0], want, rtol=1e-9)


def test_a_loop_that_is_a_kernel_is_no_epilogue() -> None:
    """A loop that begins with a product which nobody else reads: the two would be a whole program within another one."""
    def made(x: Node, y: Node, other: Node) -> tuple[Node, ...]:
        b = Builder()
        gram = b(dot_general, x, x, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(1,))
        gram = b(multiply, gram, b.like(1e-4, gram))
        _, moved = counted(b, 8, (matmul(b, x, y),), lambda _, v: (matmul(b, gram, v),))
        return moved, b(sine, other)

    types = [("x", "f32[16,3000]"), ("y", "f32[3000,8]"), ("other", "f32[8]")]
    module = Module((Builder().function("main", types, made),))
    f = compile(module, engine="native", threads=1)
    assert not f.python_steps
    rng = np.random.default_rng(0)
    x, y, other = (rng.normal(size=shape).astype("f4") for shape in ((16, 3000), (3000, 8), (8,)))
    gram = x.astype("f8") @ x.T * 1e-4
    np.testing.assert_allclose(f(x, y, other)[0], np.linalg.matrix_power(gram, 8) @ (x.astype("f8") @ y), rtol=1e-3, atol=1e-2)
