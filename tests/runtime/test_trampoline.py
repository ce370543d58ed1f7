"""Calls that enter machine code at once: what they take, what they leave to the careful way, and what they hold afterwards."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node, Op
from deepx_graph.ops import (
    OPS,
    add,
    broadcast_in_dim,
    divide,
    dot_general,
    exponential,
    maximum,
    multiply,
    reshape,
    subtract,
    transpose,
)
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.ops.interpret import evaluate
from deepx_graph.runtime.compile import Compiled
from deepx_graph.runtime.engines import native_engine
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.native_engine import is_of_instructions
from deepx_graph.runtime.kernels import lower_primitives
from deepx_graph.runtime.native import trampoline as entry
from deepx_graph.runtime.native import trampoline_ir
from deepx_graph.runtime.native.loop_program.kernel import build
from deepx_graph.types import DType, tensor, type_of_array
from tests.support import laws

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)


def f4(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("f4")


def traced(make: Callable[..., Node | tuple[Node, ...]], *arrays: Array) -> Function:
    b = Builder()
    params = [b.param(k, type_of_array(a), name=f"x{k}") for k, a in enumerate(arrays)]
    made = make(b, *params)
    return Function("main", tuple(params), (made,) if isinstance(made, Node) else tuple(made))


def compiled(make: Callable[..., Node | tuple[Node, ...]], *arrays: Array, **options: Any) -> Compiled:
    module = dx.optimize(Module((traced(make, *arrays),), "main"))
    f = dx.compile(module, engine="native", **options, optimize=False)
    f(*arrays)
    return f


def entered(f: Compiled, *arrays: Any, donate: tuple[str, ...] = ()) -> tuple[Array, ...] | None:
    """What the machine function alone makes of the arguments."""
    return f._entries[donate](*arrays)


def difference(b: Builder, x: Node, y: Node) -> Node:
    return b(subtract, b(multiply, x, x), y)


def test_python_and_numpy_are_as_expected() -> None:
    assert entry._machine() is not None


def test_a_call_is_one_entry() -> None:
    x, y = f4(50), f4(50)
    f = compiled(difference, x, y)
    f(x, y)
    found = entered(f, x, y)
    assert found is not None
    np.testing.assert_array_equal(found[0], x * x - y)
    assert found[0].flags.owndata and found[0] is not (entered(f, x, y) or (None,))[0]


class Sub(np.ndarray[Any, Any]):
    pass


def _unaligned(x: Array) -> Array:
    memory = np.zeros(x.nbytes + 1, np.uint8)
    found = memory[1:].view(x.dtype)
    found[...] = x
    return found


TAKEN_CAREFULLY: dict[str, Callable[[Array], Any]] = {
    "another byte order": lambda x: x.astype(">f4"), "strides": lambda x: np.repeat(x, 2)[::2],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "a subclass": lambda x: x.view(Sub), "a list": lambda x: x.tolist(), "not aligned": _unaligned,
}  # fmt: skip
REFUSED: dict[str, Callable[[Array], Any]] = {
    "another dtype": lambda x: x.astype("f8"), "integers": lambda x: x.astype("i4"), "rank 0": lambda x: x[0].reshape(()),
    "a longer one": lambda x: np.append(x, x), "another rank": lambda x: x.reshape(1, -1), "None": lambda x: None,
    "records": lambda x: x.view([("a", "f4")]), "a number": lambda x: 2.0,
}  # fmt: skip


@pytest.mark.parametrize("case", TAKEN_CAREFULLY)
def test_other_arrays_take_the_slow_path(case: str) -> None:
    x, y = f4(50), f4(50)
    f = compiled(difference, x, y)
    f(x, y)
    other = TAKEN_CAREFULLY[case](y)
    assert entered(f, x, other) is None
    if case == "a list":
        other = np.asarray(other, "f4")
    np.testing.assert_array_equal(f(x, other)[0], x * x - y)


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_slow_path_refuses_is_refused(case: str) -> None:
    x, y = f4(50), f4(50)
    f = compiled(difference, x, y)
    f(x, y)
    other = REFUSED[case](y)
    assert entered(f, x, other) is None
    with pytest.raises(dx.RunError, match="x1"):
        f(x, other)


def test_too_few_and_too_many() -> None:
    x, y = f4(50), f4(50)
    f = compiled(difference, x, y)
    f(x, y)
    assert entered(f) is None and entered(f, x) is None and entered(f, x, y, x) is None
    with pytest.raises(dx.RunError, match="x1"):
        f(x)
    with pytest.raises(dx.RunError, match="3 inputs"):
        f(x, y, x)


def test_arrays_that_are_taken() -> None:
    x, y = f4(50), f4(50)
    f = compiled(difference, x, y)
    f(x, y)
    x.flags.writeable = False
    pickled = pickle.loads(pickle.dumps(y))
    assert entered(f, x, pickled) is not None
    np.testing.assert_array_equal(f(x, pickled)[0], x * x - y)
    assert entered(f, x, x) is not None


def test_results_in_the_memory_of_arguments() -> None:
    x, y = f4(50), f4(50)
    want = x * x - y
    f = compiled(difference, x, y)
    given = x.copy()
    (first,) = f(given, y, donate=["x0"])
    np.testing.assert_array_equal(first, want)
    given = x.copy()
    (second,) = f(given, y, donate=["x0"])
    assert second is given
    np.testing.assert_array_equal(second, want)


def test_arguments_that_cannot_be_given_away() -> None:
    x, y = f4(50), f4(50)
    f = compiled(difference, x, y)
    f(x.copy(), y, donate=["x0"])
    fixed = x.copy()
    fixed.flags.writeable = False
    assert entered(f, fixed, y, donate=("x0",)) is None
    np.testing.assert_array_equal(f(fixed, y, donate=["x0"])[0], x * x - y)
    both = np.append(x, y)
    low, high = both[:50], both[25:75]
    want = low * low - high
    assert entered(f, low, high, donate=("x0",)) is None
    np.testing.assert_array_equal(f(low, high, donate=["x0"])[0], want)
    np.testing.assert_array_equal(both, np.append(x, y))
    assert entered(f, both[:50], both[50:], donate=("x0",)) is not None


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f4", "f8"])
def test_numbers_of_numpy_stand_for_arrays_of_rank_0(dtype: str) -> None:
    x, y = np.array([3, 1, 0, 1], dtype), np.array(1, dtype)
    f = compiled(lambda b, x, y: b(maximum, x, y), x, y)
    f(x, y)
    for number in (y[()], np.dtype(dtype).type(0)):
        found = entered(f, x, number)
        assert found is not None
        np.testing.assert_array_equal(found[0], np.maximum(x, number))
    assert entered(f, x, np.longdouble(1)) is None and entered(f, x, 1) is None
    np.testing.assert_array_equal(f(x, 1)[0], np.maximum(x, np.array(1, dtype)))


def softmax(b: Builder, x: Node) -> Node:
    rows, columns = x.type.shape  # type: ignore[attr-defined]

    def over(v: Node) -> Node:
        return b(broadcast_in_dim, v, shape=(rows, columns), broadcast_dimensions=(0,))

    e = b(exponential, b(subtract, x, over(reduction(b, maximum, x, (1,)))))
    return b(divide, e, over(reduction(b, add, e, (1,))))


def scaled(b: Builder, x: Node) -> Node:
    total = reduction(b, add, b(multiply, x, x), (0, 1))
    return b(subtract, x, b(multiply, x, total))


def shifted(b: Builder, x: Node) -> tuple[Node, ...]:
    """One result is all of the operand's elements, the other needs them again."""
    return b(add, x, x), reduction(b, add, x, (0,))


PROGRAMS = {"softmax": softmax, "scaled": scaled, "shifted": shifted}


@pytest.mark.parametrize("shape", [(1, 50), (30, 40), (700, 900)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_write_over_what_they_say(name: str, shape: tuple[int, ...]) -> None:
    x = f4(*shape)
    kernel = build(traced(PROGRAMS[name], x), 2)
    assert name == "shifted" or set(kernel.in_place) == {frozenset({0})}
    want = kernel([x])
    for _ in range(2):
        over = x.copy()
        out = [over if k == 0 and 0 in kernel.in_place[0] else np.empty_like(w) for k, w in enumerate(want)]
        for got, expected, given in zip(kernel([over], out), want, out, strict=True):
            assert got is given
            np.testing.assert_array_equal(got, expected)


def test_kernels_do_not_write_over_neighbours() -> None:
    memory = f4(31, 40)
    x, out = memory[:30], memory[1:]
    kernel = build(traced(scaled, x), 1)
    assert kernel is not None
    (want,) = kernel([x.copy()])
    np.testing.assert_array_equal(kernel([x], [out])[0], want)


def several(b: Builder, x: Node) -> tuple[Node, ...]:
    """Kernels one after the other: rows brought to sum 0, their squares summed by columns, and views of both."""
    rows, columns = x.type.shape  # type: ignore[attr-defined]
    mean = b(multiply, reduction(b, add, x, (1,)), b.like(1 / columns, reduction(b, add, x, (1,))))
    centred = b(subtract, x, b(broadcast_in_dim, mean, shape=(rows, columns), broadcast_dimensions=(0,)))
    squares = reduction(b, add, b(multiply, centred, centred), (0,))
    scaled = b(multiply, centred, b(broadcast_in_dim, squares, shape=(rows, columns), broadcast_dimensions=(1,)))
    return scaled, b(reshape, scaled, shape=(rows * columns,)), squares, x, squares


def want_several(x: Array) -> list[Array]:
    wide = x.astype("f8")
    centred = wide - wide.mean(1, keepdims=True)
    squares = (centred * centred).sum(0)
    return [centred * squares, (centred * squares).ravel(), squares, wide, squares]


@pytest.mark.parametrize("shape", [(30, 40), (700, 900)])
def test_kernels_in_sequence_are_one_trampoline(shape: tuple[int, ...]) -> None:
    x = f4(*shape)
    f = compiled(several, x)
    f(x)
    first, second = entered(f, x), entered(f, x)
    assert first is not None and second is not None
    for a, b, want in zip(first, second, want_several(x), strict=True):
        np.testing.assert_allclose(a, want, rtol=3e-5, atol=3e-5 * np.abs(want).max())
        np.testing.assert_array_equal(a, b)
        assert not np.may_share_memory(a, b) and not np.may_share_memory(a, x)
    assert not any(np.may_share_memory(a, b) for k, a in enumerate(first) for b in first[:k])


def mixed(b: Builder, x: Node, y: Node) -> tuple[Node, ...]:
    """Kernels between matrix products, over views."""
    n = x.type.shape[0]  # type: ignore[attr-defined]
    product = b(dot_general, b(exponential, b(multiply, x, y)), y, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))
    flat = b(reshape, product, shape=(n * n,))
    scaled = b(multiply, flat, b(add, flat, flat))
    again = b(reshape, scaled, shape=(n, n))
    turned = b(transpose, again, permutation=(1, 0))
    return b(dot_general, again, x, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,)), again, b(add, turned, x)


def want_mixed(x: Array, y: Array) -> list[Array]:
    x, y = x.astype("f8"), y.astype("f8")
    product = np.exp(x * y) @ y
    again = 2 * product * product
    return [again @ x, again, again.T + x]


def test_kernels_between_matmuls(monkeypatch: pytest.MonkeyPatch) -> None:
    def declined(*args: object) -> None:
        raise Declined("this is a test of steps")

    monkeypatch.setattr(native_engine, "as_kernel", declined)
    x, y = f4(160, 160), f4(160, 160)
    f = compiled(mixed, x, y)
    f(x, y)
    assert not f._entries and len(f.python_steps) > 3
    for arrays in ((x, y), (y, x), (x.T, y)):
        results = f(*arrays)
        for got, want in zip(results, want_mixed(*arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())
    given = y.copy()
    for got, want in zip(f(x, given, donate=["x1"]), want_mixed(x, y), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())


def test_nothing_is_kept() -> None:
    x, y = f4(60, 50), f4(60, 50)
    f = compiled(several, x)
    g = compiled(difference, x, y)
    f(x)
    g(x.copy(), y, donate=["x0"])
    kept = [x, y, x.dtype, np.ndarray, *f._entries.values(), *g._entries.values()]
    given = x.copy()
    gc.collect()
    before = [sys.getrefcount(o) for o in kept]
    for _ in range(1_000):
        f(x)
        entered(g, given, y, donate=("x0",))
        entered(f, y.T)
    gc.collect()
    assert [sys.getrefcount(o) for o in kept] == before
    assert sys.getrefcount(given) == 2


def test_an_entry_outlives_its_program() -> None:
    x = f4(60, 50)
    f = compiled(several, x)
    want = f(x)
    enter_it = f._entries[()]
    del f
    gc.collect()
    for got, expected in zip(enter_it(x), want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_an_entry_outlives_the_machine_that_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that make the first entries at once have a machine each, of which one is remembered for later entries."""
    make, made = entry._machine.__wrapped__, list[weakref.ref[Any]]()

    def machine() -> Any:
        found = make()
        made.append(weakref.ref(found))
        return found

    monkeypatch.setattr(entry, "_machine", machine)
    x = f4(60, 50)
    f = compiled(several, x)
    want = f(x)
    gc.collect()
    assert made and made[0]() is not None
    for got, expected in zip(f._entries[()](x), want, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("shape", [(30, 40), (700, 900)])
def test_two_threads_call_at_once(shape: tuple[int, ...]) -> None:
    arrays = [f4(*shape) for _ in range(4)]
    f = compiled(several, arrays[0])
    want = [f(a) for a in arrays]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(20 if shape[0] > 100 else 500):
            if not all(np.array_equal(g, w) for g, w in zip(f(arrays[k]), want[k], strict=True)):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.parametrize("threads", [1, 2])
def test_other_threads_run_meanwhile(threads: int) -> None:
    x = f4(1, 3_000_000) if threads == 1 else f4(3000, 1000)
    f = compiled(lambda b, x: b(exponential, reduction(b, add, b(exponential, b(exponential, x)), (1,))), x, threads=threads)
    f(x)
    count, ended, interval = [0], threading.Event(), sys.getswitchinterval()

    def work() -> None:
        while not ended.is_set():
            count[0] += 1
            time.sleep(1e-4)  # the only place where this thread lets go

    thread = threading.Thread(target=work)
    sys.setswitchinterval(100.0)
    try:
        thread.start()
        seen = 0
        for _ in range(50):
            before = count[0]
            assert entered(f, x) is not None
            seen += count[0] > before
    finally:
        ended.set()
        sys.setswitchinterval(interval)
        thread.join()
    assert seen


def test_a_profile_sees_every_kernel() -> None:
    x = f4(60, 50)
    f = compiled(several, x, profile=True)
    f(x)
    assert not f._entries and f.profile is not None
    assert {row.calls for row in f.profile.rows()} == {2}


def test_ir_is_that_of_no_machine() -> None:
    assert "x86" not in trampoline_ir.IR and "aarch64" not in trampoline_ir.IR


def test_without_the_machine_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "_machine", lambda: None)
    x = f4(60, 50)
    f = compiled(several, x)
    for got, want in zip(f(x), want_several(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=3e-5, atol=3e-5 * np.abs(want).max())
    assert not f._entries


def test_no_memory_for_results(monkeypatch: pytest.MonkeyPatch) -> None:
    x = f4(700, 900)

    def none(*_: Any) -> Array:
        raise MemoryError

    f = compiled(several, x)
    monkeypatch.setattr(entry, "_maker", lambda form: none)
    for got, want in zip(f(x), want_several(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=3e-5, atol=3e-5 * np.abs(want).max())
    with pytest.raises(MemoryError):
        entered(f, x)
    assert len(f(x)) == 5


EXACT_DTYPES = [d for d in laws.SAMPLED_DTYPES if np.dtype(d.np) in lower_primitives.ALL]


@pytest.mark.parametrize("dtype", EXACT_DTYPES, ids=str)
@pytest.mark.parametrize("op", [o for o in OPS.values() if o.elementwise and o.kernel and not o.attrs], ids=lambda op: op.name)
def test_single_instructions_give_the_bits_of_eval(op: Op, dtype: DType) -> None:
    """Whether such an operation is one of an entry or numpy's is then nobody's business."""
    values = laws.special_values(dtype)
    arrays = [np.array(a).ravel() for a in np.meshgrid(*[values] * len(op.operands))]
    if not all(o.type.holds(tensor(dtype, (3,))) for o in op.operands):
        return
    function = laws.one_op(op, arrays, {})
    try:
        kernel = build(function, 1)
    except Declined:
        return
    if not is_of_instructions(function.results[0]):
        return
    with np.errstate(all="ignore"):
        (want,) = evaluate(function, arrays)
    (got,) = kernel(arrays)
    assert got.dtype == np.asarray(want).dtype
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(np.asarray(want)[got == 0]))


def test_functions_are_no_single_instructions() -> None:
    x = f4(20)
    functions = [laws.one_op(op, [x] * len(op.operands), {}) for op in (multiply, subtract, exponential)]
    assert [is_of_instructions(f.results[0]) for f in functions] == [True, True, False]
