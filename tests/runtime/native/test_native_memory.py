"""Where loop kernels load and store: results at any distance from a cache line, stores past the caches, rows and columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

import deepx_graph as dx
from deepx_graph.ir import Builder, Node
from deepx_graph.ops import add, broadcast_in_dim, compare, divide, exponential, maximum, multiply, subtract
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.runtime.native import call_image, machine_kernel, trampoline
from deepx_graph.runtime.native.llvm.math import FORMATS
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.loop_program import emit, statements
from deepx_graph.runtime.native.loop_program.kernel import LoopKernel, build
from deepx_graph.runtime.native.threads import TeamPool
from deepx_graph.types import F32, tensor
from tests.support.functions import Array, function_of

CACHE_LINE = 64


@pytest.fixture
def _no_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result goes past the caches."""
    monkeypatch.setattr(statements, "CACHE_BYTES", 0)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def placed(array: Array, offset: int) -> Array:
    """A copy that begins so many bytes after a cache line, with marks before and after it that must stay."""
    size = array.nbytes
    raw = np.full(size + 4 * CACHE_LINE, 0xA5, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE + CACHE_LINE + offset
    copy = raw[start : start + size].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def untouched(array: Array) -> bool:
    """Whether nothing was written around an array of `placed`."""
    raw = array.base
    assert isinstance(raw, np.ndarray)
    start = array.ctypes.data - raw.ctypes.data
    return bool((raw[:start] == 0xA5).all() and (raw[start + array.nbytes :] == 0xA5).all())


def kernel_of(make: object, *arrays: Array) -> LoopKernel:
    kernel = build(function_of(make, *arrays), 2)  # type: ignore[arg-type]
    assert kernel is not None, "no native kernel"
    return kernel


SIZES = [8 * 4096 - 1, 8 * 4096, 8 * 4096 + 1, 40_009]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_results_at_any_distance_from_a_cache_line(size: int, dtype: str, streams: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if streams:
        monkeypatch.setattr(statements, "CACHE_BYTES", 0)
    rng = np.random.default_rng(size)
    x, y = (rng.integers(-99, 99, size).astype(dtype) for _ in range(2))
    kernel = kernel_of(lambda b, x, y: (b(add, x, y), b(multiply, x, y)), x, y)
    for offset in range(0, CACHE_LINE, x.itemsize):
        outs = [placed(np.zeros_like(x), offset), placed(np.zeros_like(x), (3 * offset) % CACHE_LINE)]
        got = kernel([placed(x, 16), y], outs)
        assert got[0] is outs[0] and np.array_equal(got[0], x + y) and np.array_equal(got[1], x * y)
        assert all(map(untouched, outs))


@pytest.mark.parametrize("size", SIZES)
def test_results_of_single_bytes_have_no_line_to_begin_on(size: int) -> None:
    x = np.random.default_rng(size).normal(size=size).astype("f4")
    kernel = kernel_of(lambda b, x: b(compare, x, b(multiply, x, x), direction="LT"), x)
    out = placed(np.zeros(size, bool), 5)
    kernel([x], [out])
    assert np.array_equal(out, x < x * x) and untouched(out)


@pytest.mark.usefixtures("_no_caches")
def test_a_result_past_the_caches_may_still_take_an_operand() -> None:
    x, y = (np.random.default_rng(k).normal(size=50_001).astype("f4") for k in range(2))
    kernel = kernel_of(lambda b, x, y: b(subtract, x, y), x, y)
    for offset in (0, 16):
        given, want = placed(x, offset), x - y
        assert kernel([given, y], [given])[0] is given
        assert np.array_equal(given, want) and untouched(given)


def _softmax(b: Builder, x: Node) -> Node:
    rows, columns = x.type.shape  # type: ignore[attr-defined]
    top = reduction(b, maximum, x, (1,))
    e = b(exponential, b(subtract, x, b(broadcast_in_dim, top, shape=(rows, columns), broadcast_dimensions=(0,))))
    total = reduction(b, add, e, (1,))
    return b(divide, e, b(broadcast_in_dim, total, shape=(rows, columns), broadcast_dimensions=(0,)))


@pytest.mark.usefixtures("_no_caches")
@pytest.mark.parametrize("shape", [(7, 64), (6, 1024), (5, 100), (1, 33), (4, 16)], ids=str)
def test_rows_past_the_caches(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(1).normal(size=shape).astype("f4")
    e = np.exp(x.astype("f8") - x.max(1, keepdims=True))
    kernel = kernel_of(_softmax, x)
    for offset in (0, 4, 32):
        out = placed(np.zeros_like(x), offset)
        kernel([x], [out])
        assert np.allclose(out, e / e.sum(1, keepdims=True), rtol=1e-6) and untouched(out)


@pytest.mark.usefixtures("_no_caches")
def test_the_next_row_is_fetched_by_the_sweep_that_reads_one_again() -> None:
    """Not by that of a sum, which memory alone bounds, and of no row that is a cache's size."""
    def fetches(make: object, shape: tuple[int, int]) -> int:
        kernel = kernel_of(make, np.zeros(shape, "f4"))
        return emit.module_text(kernel.program, kernel.shares, this_machine(), frozenset()).count("call void @llvm.prefetch")

    assert fetches(_softmax, (100, 1024)) > 0
    assert fetches(_softmax, (4, 1 << 16)) == 0
    assert fetches(lambda b, x: reduction(b, add, x, (1,)), (100, 1024)) == 0


# --- rows done together, and what divides all of a row ---------------------------------------------------------------

@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 9, 101])
@pytest.mark.parametrize("columns", [8, 16, 17, 100, 256])
def test_sums_of_rows_and_columns_of_any_number_of_rows(rows: int, columns: int) -> None:
    x = np.random.default_rng(rows).integers(-9, 9, (rows, columns)).astype("f4")
    kernel = kernel_of(lambda b, x: (reduction(b, add, x, (0,)), reduction(b, add, x, (1,)), reduction(b, maximum, x, (1,)),
                                     reduction(b, add, b(multiply, x, x), (0, 1))), x)
    got = kernel([x])
    for g, w in zip(got, (x.sum(0), x.sum(1), x.max(1), (x * x).sum()), strict=True):
        assert np.array_equal(g, w)


@pytest.mark.parametrize("columns", [32, 33])
def test_a_nan_of_one_row_stays_in_its_row(columns: int) -> None:
    x = np.ones((5, columns), "f4")
    x[2, columns - 1] = np.nan
    x[3, 0] = np.inf
    got = kernel_of(_softmax, x)([x])[0]
    assert np.isnan(got[2]).all() and np.isnan(got[3]).any()
    assert np.allclose(got[[0, 1, 4]], 1 / columns)


def _by_rows(b: Builder, x: Node, d: Node) -> Node:
    return b(divide, x, b(broadcast_in_dim, d, shape=x.type.shape, broadcast_dimensions=(0,)))  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_quotient_by_what_divides_the_whole_row_is_that_of_division(dtype: str) -> None:
    info, rng = np.finfo(dtype), np.random.default_rng(2)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, info.tiny, -info.tiny, info.smallest_subnormal, info.max, -info.max, 1, -1, 3]
    spread = FORMATS[np.dtype(dtype)].spread
    edges = [s * 2.0**k for s in (1, -1) for k in (spread - 1, spread, 1 - spread, -spread, -spread - 1)]
    x = np.array([*special, *rng.normal(size=50), *(rng.normal(size=20) * 2.0 ** rng.integers(-90, 90, 20))], dtype)
    for d in (*special, *edges, *rng.normal(size=40), *(2.0 ** rng.integers(-90, 90, 20) * rng.normal(size=20))):
        many = np.tile(x, (4, 1))
        by = np.array([d, 1.5, d, -d], dtype)
        got, want = kernel_for(dtype)([many, by])[0], many / by[:, None]
        zero = want == 0
        assert np.array_equal(np.isnan(got), np.isnan(want)) and np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
        finite = np.isfinite(want) & np.isfinite(got)
        assert np.array_equal(got[~finite], want[~finite], equal_nan=True)
        assert (np.abs(got - want)[finite] <= np.spacing(np.abs(want[finite]))).all()


def test_a_constant_that_repeats_one_element_is_not_made_to_plan_a_program() -> None:
    """Four terabytes, of which a plan needs to know the type alone."""
    b = dx.Builder()
    module = dx.Module((b.function("main", [], lambda: [b.splat(2, tensor(F32, (10**6, 10**6)))]),))
    with pytest.raises(dx.LimitError, match="'main' needs 4000000000000 bytes"):
        dx.compile(module, engine="native")


_KERNELS: dict[str, LoopKernel] = {}


def kernel_for(dtype: str) -> LoopKernel:
    """The kernel of rows of 103 elements divided by one each, made once."""
    if dtype not in _KERNELS:
        _KERNELS[dtype] = kernel_of(_by_rows, np.ones((4, 83), dtype), np.ones(4, dtype))
    return _KERNELS[dtype]


def _mixed(b: Builder, x: Node, y: Node) -> tuple[Node, Node]:
    return b(subtract, b(multiply, x, y), x), b(add, x, y)


IN_PLACE = {"vectors": ("f4", (40, 50)), "complex": ("c8", (40, 50)), "short rows": ("u4", (4001, 3)),
            "rows of one": ("c16", (999, 1)), "integers": ("i8", (7, 3, 5))}
"""Loops of our own vectors, of LLVM's, and of loops around those that are unrolled."""


@pytest.mark.parametrize(("dtype", "shape"), IN_PLACE.values(), ids=IN_PLACE)
def test_a_result_over_an_argument_is_what_it_is_elsewhere(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    arrays = [(100 * rng.random((2, *shape))).astype(dtype) for _ in range(2)]
    arrays = [a[0] + (1j * a[1] if a.dtype.kind == "c" else 0 * a[1]).astype(dtype) for a in arrays]
    kernel = kernel_of(_mixed, *arrays)
    wanted = kernel(arrays)
    assert kernel.in_place == (frozenset({0, 1}), frozenset({0, 1}))
    for result, over in enumerate(kernel.in_place):
        for k in over:
            given = [a.copy() for a in arrays]
            found = kernel(given, [given[k] if n == result else None for n in range(2)])
            assert found[result] is given[k]
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(one, other)


def test_threads_of_the_process_share_work_where_there_are_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[int] = []

    class Team(TeamPool):
        @staticmethod
        def _run(pool: int, threads: int, *others: int) -> None:
            shared.append(threads)
            TeamPool._run(pool, threads, *others)

    team = Team()
    for module in (call_image, machine_kernel, trampoline):
        monkeypatch.setattr(module, "pool", lambda: team)
    f = dx.compile(dx.loads("func.func @main(%x: tensor<1000000xf32>, %y: tensor<300x400xf32>, %z: tensor<400x300xf32>)"
                            " -> (tensor<1000000xf32>, tensor<300x300xf32>) {\n%a = stablehlo.tanh %x : tensor<1000000xf32>\n"
                            "%b = stablehlo.dot_general %y, %z, contracting_dims = [1] x [0]"
                            " : (tensor<300x400xf32>, tensor<400x300xf32>) -> tensor<300x300xf32>\n"
                            "return %a, %b : tensor<1000000xf32>, tensor<300x300xf32> }", "stablehlo"), engine="native", threads=2)
    rng = np.random.default_rng(0)
    x, y, z = (rng.standard_normal(shape).astype(np.float32) for shape in ((1000000,), (300, 400), (400, 300)))
    for _ in range(3):
        a, b = f(x, y, z)
        np.testing.assert_allclose(a, np.tanh(x.astype(np.float64)), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(b, y.astype(np.float64) @ z, rtol=1e-4, atol=1e-3)
    assert set(shared) == {2} and len(shared) >= 6 and not f.python_steps
