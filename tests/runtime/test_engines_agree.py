"""Every engine gives what the reference gives, bit for bit where nothing may be rounded otherwise: inputs given away, threads,
forks, pickles, interrupts. Random programs on awkward arrays are in `tests/conformance/test_random_programs.py`.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    divide,
    exponential,
    maximum,
    minimum,
    multiply,
    reshape,
    reverse,
    slice_,
    subtract,
)
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.runtime.engines import has_native
from deepx_graph.types import type_of_array
from tests.support import laws

pytestmark = pytest.mark.validated

Array = np.ndarray[Any, Any]
ENGINES = ["numexpr", *(["native"] if has_native() else [])]
every_engine = pytest.mark.parametrize("engine", ENGINES)


def wrong(found: Sequence[Any], wanted: Sequence[Any]) -> list[int]:
    return [k for k, (f, w) in enumerate(zip(found, wanted, strict=True)) if not laws.same(f, w)]


def module_of(body: Any, *types: Any) -> Module:
    return Module((Builder().function("f", [(f"p{k}", t) for k, t in enumerate(types)], body),), "f")


@every_engine
@pytest.mark.parametrize("view", [
    lambda b, x: b(slice_, x, start_indices=(1,), limit_indices=(1000,), strides=(3,)),
    lambda b, x: b(slice_, b(reverse, x, dimensions=(0,)), start_indices=(0,), limit_indices=(333,), strides=(1,)),
    lambda b, x: b(reshape, x, shape=(10, 100)),
], ids=["slice", "slice of a view", "reshape"])  # fmt: skip
def test_an_input_given_away_stays_as_long_as_a_view_of_it_is_wanted(engine: str, view: Any) -> None:
    def body(x: Node, y: Node) -> Sequence[Node]:
        b = Builder()
        return [view(b, x), b(multiply, x, y)]

    args = [np.arange(1000, dtype=np.float32), np.full(1000, 2, np.float32)]
    module = module_of(body, *map(type_of_array, args))
    wanted = dx.compile(module, engine="numpy", optimize=False)(*args)
    assert not wrong(dx.compile(module, engine=engine, optimize=False)(*args, donate=["p0", "p1"]), wanted)


@every_engine
@pytest.mark.parametrize("shape", [(5,), (561,), (33, 17), (5000,)])
def test_unlike_reductions_in_one_loop_nest(engine: str, shape: tuple[int, ...]) -> None:
    def body(x: Node) -> Sequence[Node]:
        b, axes = Builder(), tuple(range(len(shape)))
        return [reduction(b, maximum, x, axes), reduction(b, minimum, x, axes), reduction(b, add, x, axes)]

    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float64)
    module = dx.optimize(module_of(body, type_of_array(x)))
    assert not wrong(dx.compile(module, engine=engine, optimize=False)(x), [x.max(), x.min(), x.sum()])


def test_nothing_of_nothing_is_a_slice_of_the_whole() -> None:
    def body(x: Node) -> Sequence[Node]:
        b = Builder()
        for _ in range(3):
            x = b(slice_, x, start_indices=(min(1, x.type.shape[0]),), limit_indices=x.type.shape, strides=(3,))  # type: ignore[attr-defined]
        return [x]

    for size in range(30):
        x = np.arange(size)
        (found,) = dx.compile(module_of(body, type_of_array(x)), engine="numpy")(x)
        assert found.tolist() == x[1::3][1::3][1::3].tolist()


# --- one callable, many callers


def softmax(x: Node) -> Sequence[Node]:
    b = Builder()
    e = b(exponential, b(subtract, x, b(broadcast_in_dim, reduction(b, maximum, x, (1,)), shape=x.type.shape,  # type: ignore[attr-defined]
                                        broadcast_dimensions=(0,))))
    total = b(broadcast_in_dim, reduction(b, add, e, (1,)), shape=e.type.shape, broadcast_dimensions=(0,))  # type: ignore[attr-defined]
    return [b(divide, e, total), e, reduction(b, add, b(multiply, x, x), (0, 1))]


def ready(engine: str, shape: tuple[int, ...] = (300, 1025), threads: int = 2) -> tuple[dx.Compiled, Array, list[Array]]:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    module = dx.optimize(module_of(softmax, type_of_array(x)))
    f = dx.compile(module, engine=engine, threads=threads, optimize=False)
    return f, x, [np.array(v) for v in f(x)]


@every_engine
def test_the_number_of_threads_does_not_show(engine: str) -> None:
    for shape in ((3, 5), (70, 1025), (300, 1025), (2, 200_001)):
        found = [ready(engine, shape, threads)[2] for threads in (1, 2, 5)]
        assert not wrong(found[0], found[1])
        assert not wrong(found[0], found[2])


@every_engine
def test_one_callable_and_several_at_once(engine: str) -> None:
    f, x, want = ready(engine)
    others = [ready(engine)[0] for _ in range(2)]
    failed: list[Any] = []

    def work(k: int) -> None:
        for iteration in range(15):
            got = (f, *others)[(k + iteration) % 3](x)
            failed.extend(wrong(got, want))

    workers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@every_engine
def test_a_child_process_goes_on_with_what_its_parent_compiled(engine: str) -> None:
    f, x, want = ready(engine)
    child = os.fork()
    if child == 0:
        right = False
        try:
            right = not any(wrong(f(x), want) for _ in range(3))
        finally:
            os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not wrong(f(x), want)


@every_engine
def test_a_pickled_callable_gives_the_same_bits(engine: str) -> None:
    f, x, want = ready(engine)
    assert not wrong(pickle.loads(pickle.dumps(f))(x), want)


@every_engine
def test_an_interrupted_call_leaves_nothing_behind(engine: str) -> None:
    f, x, want = ready(engine, (6000, 1025))
    interrupted = 0
    for delay in (0.0005, 0.002, 0.005, 0.01, 0.02):
        signal.setitimer(signal.ITIMER_REAL, delay)
        try:
            for _ in range(50):
                f(x)
        except KeyboardInterrupt:
            interrupted += 1
        assert not wrong(f(x), want)
    assert interrupted


@pytest.fixture(autouse=True)
def _alarm_interrupts() -> Iterator[None]:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@every_engine
def test_a_limit_on_memory_is_kept_or_refused(engine: str) -> None:
    f, x, _ = ready(engine)
    module, needed = f.module, f.plan.peak_bytes
    assert dx.compile(module, engine=engine, max_bytes=needed, optimize=False)(x)
    with pytest.raises(dx.LimitError, match="bytes at its peak"):
        dx.compile(module, engine=engine, max_bytes=needed - 1, optimize=False)(x)


@every_engine
@pytest.mark.parametrize("size", [10_000_000, pytest.param(100_000_000, marks=pytest.mark.conformance)])
def test_very_many_ones_add_up_exactly(engine: str, size: int) -> None:
    x = np.ones(size, np.float32)
    module = module_of(lambda x: [reduction(Builder(), add, x, (0,))], type_of_array(x))
    assert float(dx.compile(module, engine=engine, optimize=False)(x)[0]) == size
