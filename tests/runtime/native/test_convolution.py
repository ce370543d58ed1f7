"""Direct convolution against the reference: windows of every kind, layouts, groups, special values next to padding."""

from __future__ import annotations

import ctypes
import itertools
import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import add, broadcast_in_dim, convert, fusion, logistic, maximum, multiply
from deepx_graph.ops.contract.convolution import conv_attrs, convolution
from deepx_graph.ops.interpret import evaluate
from deepx_graph.rewrite.epilogue import split_epilogue, with_fused_epilogue
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.native.convolution import choice, tile
from deepx_graph.runtime.native.convolution import kernel as conv
from deepx_graph.runtime.native.convolution.choice import plan
from deepx_graph.runtime.native.convolution.emit import CHUNKS, COUNT_BITS, work_text
from deepx_graph.runtime.native.convolution.kernel import build
from deepx_graph.runtime.native.convolution.plan import Lanes
from deepx_graph.runtime.native.convolution.problem import problems_of
from deepx_graph.runtime.native.joined import JoinedKernel
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.threads import SHARED, run_shared
from deepx_graph.types import F64, type_of_array
from tests.support import laws

Array = np.ndarray[Any, Any]
Case = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]

LAST = {"input_batch_dimension": 0, "input_feature_dimension": 3, "input_spatial_dimensions": (1, 2), "output_batch_dimension": 0,
        "output_feature_dimension": 3, "output_spatial_dimensions": (1, 2), "kernel_spatial_dimensions": (0, 1),
        "kernel_input_feature_dimension": 2, "kernel_output_feature_dimension": 3}
"""Features last, as TensorFlow has them."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def numbers(seed: int, shape: tuple[int, ...], dtype: str) -> Array:
    """Small whole numbers: their sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def check(x: Array, w: Array, attrs: dict[str, Any], required: bool = True) -> JoinedKernel | None:
    try:
        kernel = build(laws.one_op(convolution, [x, w], attrs), 2)
    except Declined:
        assert not required
        return None
    assert convolution.eval is not None
    want = convolution.eval([x, w], *laws.one_op(convolution, [x, w], attrs).results[0].attrs)
    for out in (None, [np.full_like(want, np.nan)]):
        (got,) = kernel([x, w], out)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    return kernel


CASES: list[Case] = [
    ((2, 5, 9, 10), (20, 5, 3, 3), conv_attrs(2, padding_low=(1, 1), padding_high=(1, 1))),
    ((2, 3, 30, 40), (64, 3, 7, 7), conv_attrs(2, padding_low=(3, 3), padding_high=(3, 3), window_strides=(2, 2))),
    ((1, 64, 28, 28), (64, 64, 3, 3), conv_attrs(2, padding_low=(1, 1), padding_high=(1, 1))),
    ((2, 17, 7, 7), (33, 17, 3, 3), conv_attrs(2, padding_low=(1, 1), padding_high=(1, 1))),
    ((1, 6, 40, 50), (3, 6, 5, 5), conv_attrs(2)),
    ((2, 32, 20, 20), (32, 1, 3, 3), conv_attrs(2, feature_group_count=32, padding_low=(1, 1), padding_high=(1, 1))),
    ((2, 12, 20, 37), (24, 1, 3, 3), conv_attrs(2, feature_group_count=12, window_strides=(2, 2))),
    ((2, 16, 11, 19), (24, 4, 3, 3), conv_attrs(2, feature_group_count=4, padding_low=(1, 1))),
    ((2, 64, 20, 20), (3, 64, 3, 3), conv_attrs(2, padding_low=(2, 2), padding_high=(3, 3), lhs_dilation=(2, 2))),
    ((2, 8, 10, 10), (24, 8, 4, 4), conv_attrs(2, padding_low=(2, 2), padding_high=(2, 2), lhs_dilation=(2, 2),
                                                window_reversal=(1, 1))),
    ((2, 8, 30, 30), (24, 8, 3, 3), conv_attrs(2, rhs_dilation=(3, 2), padding_low=(4, 4), padding_high=(0, 1))),
    ((2, 8, 30, 30), (24, 8, 3, 3), conv_attrs(2, padding_low=(-3, -2), padding_high=(-1, 5))),
    ((2, 8, 6, 6), (24, 8, 3, 3), conv_attrs(2, padding_low=(7, 9), padding_high=(8, 7))),
    ((2, 20, 20, 40), (3, 3, 1, 40), {**conv_attrs(2, feature_group_count=40, padding_low=(1, 1)), **LAST}),
    ((2, 20, 20, 32), (3, 3, 32, 40), {**conv_attrs(2), **LAST}),
    ((2, 20, 21, 32), (3, 3, 8, 40), {**conv_attrs(2, feature_group_count=4, window_strides=(2, 1)), **LAST}),
    ((2, 16, 200), (32, 16, 5), conv_attrs(1, padding_low=(2,), padding_high=(2,))),
    ((1, 4, 9, 12, 13), (20, 4, 3, 3, 3), conv_attrs(3, padding_low=(1, 1, 1), padding_high=(1, 1, 1))),
    ((2, 40, 14, 14), (48, 40, 1, 1), conv_attrs(2)),
    ((2, 40, 14, 14), (48, 40, 1, 1), conv_attrs(2, window_strides=(2, 2))),
    ((6, 8, 12, 12), (24, 8, 3, 3), conv_attrs(2, batch_group_count=3)),
    ((1, 300, 13, 13), (21, 300, 1, 1), conv_attrs(2)),
    ((2, 70, 15, 29), (35, 70, 1, 1), conv_attrs(2, window_strides=(2, 3))),
    ((1, 40, 7, 7), (50, 40, 1, 1), conv_attrs(2, window_strides=(3, 3))),
    ((2, 17, 6, 9, 11), (33, 17, 1, 1, 1), conv_attrs(3, window_strides=(1, 2, 2))),
    ((1, 24, 10, 3), (40, 24, 3, 1), conv_attrs(2, padding_low=(1, 0), padding_high=(1, 0))),
    ((1, 40, 13, 13), (37, 40, 3, 3), conv_attrs(2, padding_low=(1, 1), padding_high=(1, 1), window_strides=(2, 2))),
]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}x{c[1]}")
def test_named_cases(case: Case, dtype: str) -> None:
    x, w, attrs = case
    check(numbers(0, x, dtype), numbers(1, w, dtype), attrs)


def test_long_sums_are_taken_in_parts() -> None:
    """A gradient by weights: sums over all places of all images, of numbers that do not cancel."""
    rng = np.random.default_rng(7)
    x, w = rng.random((4, 20, 102, 102), dtype=np.float32), rng.random((20, 16, 100, 100), dtype=np.float32)
    attrs = conv_attrs(2, input_batch_dimension=0, kernel_input_feature_dimension=0, kernel_output_feature_dimension=1)
    function = laws.one_op(convolution, [x, w], attrs)
    assert conv.planned(function.results[0])[0].problem.depth == 200_000
    kernel = build(function, 2)
    (got,) = kernel([x, w])
    windows = np.lib.stride_tricks.sliding_window_view(x.astype("f8"), (100, 100), (2, 3))
    want = np.einsum("nchwij,coij->nohw", windows, w.astype("f8"), optimize=True)
    assert np.abs(got / want - 1).max() < 2e-6


def test_sums_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Usually those of thousands of terms; here all, a part being a loop's iteration, or several."""
    monkeypatch.setattr(tile, "MOST_TERMS", 0)
    for x, w, attrs in CASES:
        assert check(numbers(0, x, "f4"), numbers(1, w, "f4"), attrs) is not None
    assert _check_generated(range(1400, 1420)) > 2


def test_sums_have_room_in_registers_and_tiles_in_blocks() -> None:
    """Of the plans of generated convolutions: what the code of tiles takes for granted."""
    for seed, registers in itertools.product(range(300, 360), (16, 32)):
        x, w, attrs = _generated(seed)
        try:
            node = laws.one_op(convolution, [np.zeros(x, "f4"), np.zeros(w, "f4")], attrs).results[0]
            plans = [plan(problem, 32, registers) for problem in problems_of(node)]
        except Exception:  # no such convolution, or none by direct kernels
            continue
        for p in plans:
            assert p.method.tile.rows * p.method.tile.vectors < registers
            assert p.method.positions <= p.positions([a.count // b for a, b in zip(p.problem.axes, p.blocks, strict=True)])
            assert p.panels * p.panel >= p.features > (p.panels - 1) * p.panel


@pytest.mark.parametrize(("features", "size", "outputs", "window"), [
    (16, 55, 64, 1), (48, 13, 192, 1), (48, 13, 192, 3), (192, 28, 32, 1), (64, 56, 64, 1), (576, 14, 96, 1), (192, 7, 320, 3),
    (128, 7, 32, 3), (512, 14, 512, 3), (256, 14, 1024, 1)])
def test_two_workers_end_together(features: int, size: int, outputs: int, window: int) -> None:
    """Layers of networks, from 35 microseconds of one worker on: of what there is, nobody has more than 0.57."""
    attrs = conv_attrs(2, padding_low=(window // 2,) * 2, padding_high=(window // 2,) * 2)
    x, w = np.zeros((1, features, size, size), "f4"), np.zeros((outputs, features, window, window), "f4")
    (found,) = problems_of(laws.one_op(convolution, [x, w], attrs).results[0])
    p = plan(found, 32, 16)

    def cut(count: int, parts: int) -> list[int]:
        return [count * (k + 1) // parts - count * k // parts for k in range(parts)]

    blocks = itertools.product(*(cut(a.count, b) for a, b in zip(p.problem.axes, p.blocks, strict=True)))
    shares = [math.prod(block) * panels for block in blocks for panels in cut(p.panels, p.parts)]
    busy = [0, 0]
    for share in shares:
        busy[busy.index(min(busy))] += share
    assert len(shares) == p.shares > 1 and max(busy) / sum(busy) <= 0.57


def test_the_samples_of_the_op() -> None:
    for arrays, attrs in laws.samples(convolution):
        check(np.round(arrays[0] * 8), np.round(arrays[1] * 8), attrs, required=False)


def _generated(seed: int) -> Case:
    """Any convolution: rank, sizes, windows, groups, layout of each operand."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))

    def some(low: int, high: int) -> tuple[int, ...]:
        return tuple(int(k) for k in rng.integers(low, high, rank))

    groups = int(rng.choice([1, 1, 1, 2, 4]))
    in_batch = groups > 1 and bool(rng.integers(2))
    per_group, outputs = int(rng.choice([1, 2, 5])), groups * int(rng.choice([1, 3, 8, 17]))
    batch = int(rng.integers(1, 3)) * (groups if in_batch else 1)
    features = per_group if in_batch else per_group * groups
    x, w = (batch, features, *some(1, {1: 70, 2: 24, 3: 9}[rank])), (outputs, per_group, *some(1, 5))
    attrs = conv_attrs(rank, window_strides=some(1, 4), padding_low=some(-1, 4), padding_high=some(-1, 4),
                       lhs_dilation=some(1, 4), rhs_dilation=some(1, 4), window_reversal=some(0, 2),
                       **{"batch_group_count" if in_batch else "feature_group_count": groups})
    shapes = []
    for shape, names in ((x, ("input_batch", "input_feature", "input_spatial")),
                         (w, ("kernel_output_feature", "kernel_input_feature", "kernel_spatial")),
                         ((), ("output_batch", "output_feature", "output_spatial"))):
        order = rng.permutation(rank + 2) if rng.integers(2) else np.arange(rank + 2)
        places = np.argsort(order)
        attrs[f"{names[0]}_dimension"], attrs[f"{names[1]}_dimension"] = int(places[0]), int(places[1])
        attrs[f"{names[2]}_dimensions"] = tuple(int(p) for p in places[2:])
        shapes.append(tuple(shape[k] for k in order) if shape else ())
    return shapes[0], shapes[1], attrs


def _of_single_elements(case: Case) -> Case:
    """One whose windows are single elements, of more features."""
    x, w, attrs = case
    spatial, x_features, w_features = (attrs[k] for k in (
        "kernel_spatial_dimensions", "input_feature_dimension", "kernel_input_feature_dimension"))
    x = tuple(8 * n if k == x_features else n for k, n in enumerate(x))
    w = tuple(8 * n if k == w_features else 1 if k in spatial else n for k, n in enumerate(w))
    return x, w, attrs | {"padding_low": (0,) * len(spatial), "padding_high": (0,) * len(spatial)}


def _check_generated(seeds: range) -> int:
    direct = 0
    for seed in seeds:
        x, w, attrs = _generated(seed)
        if seed % 4 == 0:
            x, w, attrs = _of_single_elements((x, w, attrs))
        dtype = "f4" if seed % 3 else "f8"
        try:
            laws.one_op(convolution, [np.zeros(x, dtype), np.zeros(w, dtype)], attrs)
        except Exception:  # windows larger than what they are in, and so on
            continue
        direct += check(numbers(seed, x, dtype), numbers(seed + 1, w, dtype), attrs, required=False) is not None
    return direct


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_windows_of_single_elements_in_every_layout(dtype: str) -> None:
    """Products of matrices, each of the three as it lies or transposed, of more rows than a tile has, or just as many and some."""
    for rows, terms, columns in ((96, 64, 80), (61, 40, 70), (200, 33, 16)):
        for x_last, w_last, y_last in itertools.product((False, True), repeat=3):
            attrs = conv_attrs(1)
            for names, last in ((("input_feature_dimension", "input_spatial_dimensions"), x_last),
                                (("output_feature_dimension", "output_spatial_dimensions"), y_last)):
                attrs |= {names[0]: 1 + last, names[1]: (2 - last,)}
            attrs |= {"kernel_output_feature_dimension": int(w_last), "kernel_input_feature_dimension": int(not w_last)}
            x, w = (1, rows, terms) if x_last else (1, terms, rows), (terms, columns, 1) if w_last else (columns, terms, 1)
            check(numbers(0, x, dtype), numbers(1, w, dtype), attrs)


def test_generated_cases() -> None:
    assert _check_generated(range(1240, 1320)) > 20


@pytest.mark.conformance
def test_many_generated_cases() -> None:
    assert _check_generated(range(1000, 2000)) > 300


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_reach_their_own_windows_and_no_others(special: float) -> None:
    for shape, attrs in (((1, 4, 12, 13), conv_attrs(2, padding_low=(1, 1), padding_high=(1, 1))),
                         ((1, 4, 12, 40), conv_attrs(2, window_strides=(2, 2), padding_low=(1, 1), padding_high=(1, 1)))):
        for at, outputs in itertools.product(((0, 0, 0, 0), (0, 3, 11, shape[3] - 1), (0, 1, 5, 6)), (3, 20)):
            x, w = numbers(0, shape, "f4"), numbers(1, (outputs, 4, 3, 3), "f4")
            x[at] = special
            check(x, w, attrs)


def test_infinite_weights_meet_the_zeros_of_the_padding() -> None:
    x, w = numbers(0, (1, 4, 9, 9), "f4"), numbers(1, (20, 4, 3, 3), "f4")
    w[3, 1, 0, 2] = np.inf
    check(x, w, conv_attrs(2, padding_low=(1, 1), padding_high=(1, 1)))


def test_each_axis_comes_into_the_lanes() -> None:
    found = {}
    for x, w, attrs in CASES:
        arrays = [numbers(0, x, "f4"), numbers(1, w, "f4")]
        kernel = check(*arrays, attrs)
        assert kernel is not None
        found[conv.planned(laws.one_op(convolution, arrays, attrs).results[0])[0].method.lanes] = kernel.lowering
    assert set(found) == set(Lanes) and all(way.startswith("direct convolution") for way in found.values())


@pytest.mark.parametrize(("register_bytes", "registers"), [(16, 16), (32, 16), (16, 32)])
def test_narrower_vectors(register_bytes: int, registers: int) -> None:
    """As on machines without AVX-512; this one has the narrow instructions as well."""
    if register_bytes > this_machine().register_bytes:
        pytest.skip("this machine has no such vectors")
    for (x, w, attrs), dtype in zip(CASES, itertools.cycle(("f4", "f8", "f4")), strict=False):
        function = laws.one_op(convolution, [numbers(0, x, dtype), numbers(1, w, dtype)], attrs)
        parts = split_epilogue(function, convolution)
        assert parts is not None
        found = [plan(problem, register_bytes, registers) for problem in problems_of(parts.node)]
        assert all(p.width * np.dtype(dtype).itemsize == register_bytes for p in found)
        arrays = [numbers(0, x, dtype), numbers(1, w, dtype)]
        (got,) = conv.kernel_of(function, parts, found, None, 2)(arrays)
        np.testing.assert_array_equal(got, evaluate(function, arrays)[0])


def test_calls_from_several_threads_at_once() -> None:
    x, w, attrs = CASES[1]
    kernel = build(laws.one_op(convolution, [numbers(0, x, "f4"), numbers(1, w, "f4")], attrs), 2)
    arrays = [[numbers(k, x, "f4"), numbers(k + 1, w, "f4")] for k in range(3)]
    wants = [kernel(a)[0].copy() for a in arrays]
    wrong: list[int] = []

    def run(k: int) -> None:
        wrong.extend(k for _ in range(20) if not np.array_equal(kernel(arrays[k])[0], wants[k]))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_results_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(4)
    for x, w, attrs in CASES:
        arrays = [rng.standard_normal(x).astype("f4"), rng.standard_normal(w).astype("f4")]
        kernels = [build(laws.one_op(convolution, arrays, attrs), threads) for threads in (1, 2, 3)]
        one, *others = (k(arrays)[0].tobytes() for k in kernels)
        assert all(other == one for other in others)


ORDER = """define internal void @share(ptr %order, i64 %number, ptr %scratch, ptr %block) nounwind {
  %taken = atomicrmw add ptr %order, i64 1 monotonic
  %behind = add i64 %taken, 1
  %into = getelementptr i64, ptr %order, i64 %behind
  store i64 %number, ptr %into
  ret void
}
"""


@pytest.mark.parametrize("shares", [1, 2, 127, 1003])
def test_threads_take_shares_from_both_sides(shares: int) -> None:
    owner = threading.Event()
    function = SHARED(machine_code.functions(ORDER + work_text(shares), ["work"], owner)["work"].address)

    def taken(threads: int, came: int = 0) -> list[int]:
        order, counter = np.zeros(1 + shares, np.int64), ctypes.c_int64(came << 2 * COUNT_BITS)
        run = run_shared if threads > 1 else lambda f, table, _: f(table, ctypes.addressof(counter), None)
        run(function, order.ctypes.data, threads)
        assert order[0] == shares
        return order[1:].tolist()

    assert taken(1) == list(range(shares))
    chunk = max(1, shares // CHUNKS)
    assert taken(1, came=1) == [k for low in reversed(range(0, shares, chunk)) for k in range(low, min(low + chunk, shares))]
    assert all(sorted(taken(threads)) == list(range(shares)) for threads in (2, 5) for _ in range(10))


def test_operands_and_results_anywhere_in_memory() -> None:
    x, w = numbers(0, (2, 6, 20, 20), "f4"), numbers(1, (20, 6, 3, 3), "f4")
    attrs = conv_attrs(2, padding_low=(1, 1), padding_high=(1, 1))
    kernel = check(x, w, attrs)
    assert kernel is not None
    (want,) = kernel([x, w])
    turned = np.ascontiguousarray(x.transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0)
    assert np.array_equal(kernel([turned, w[::-1, ::-1][::-1, ::-1]])[0], want)
    same = numbers(2, (2, 20, 20, 20), "f4")
    kernel = check(same, numbers(3, (20, 20, 3, 3), "f4"), attrs)
    assert kernel is not None
    (want,) = kernel([same, numbers(3, (20, 20, 3, 3), "f4")])
    (got,) = kernel([same, numbers(3, (20, 20, 3, 3), "f4")], [same])
    assert got is same and np.array_equal(got, want)


def test_what_is_refused_says_why() -> None:
    for x, w, attrs, reason in (
        (numbers(0, (2, 3), "f4"), numbers(0, (4, 3), "f4"), conv_attrs(0), "a product"),
        (numbers(0, (0, 3, 8, 8), "f4"), numbers(0, (4, 3, 3, 3), "f4"), conv_attrs(2), "no elements"),
        (numbers(0, (2, 3, 8, 8), "i4"), numbers(0, (4, 3, 3, 3), "i4"), conv_attrs(2), "no machine code for a convolution of i32"),
    ):
        with pytest.raises(Declined, match=reason):
            conv.planned(laws.one_op(convolution, [x, w], attrs).results[0])


def test_only_large_convolutions_that_leave_lanes_empty_are_laid_out() -> None:
    """A call of NumPy takes as long as a small one."""

    def node(size: int) -> Node:
        return laws.one_op(convolution, [numbers(0, (1, 128, size, size), "f4")] * 2, conv_attrs(2)).results[0]

    assert conv.planned(node(8))
    with pytest.raises(Declined, match="too few features"):
        conv.planned(node(64))


def test_the_engine_runs_convolutions_with_it() -> None:
    from deepx_graph.runtime.engines.native_engine import NativeEngine

    engine = NativeEngine(2)
    x, w = numbers(0, (2, 6, 20, 20), "f4"), numbers(1, (20, 6, 3, 3), "f4")
    node = laws.one_op(convolution, [x, w], conv_attrs(2)).results[0]
    assert engine.writes(node)
    assert convolution.eval is not None
    np.testing.assert_array_equal(engine.kernel(node)([x, w], None), convolution.eval([x, w], *node.attrs))
    assert engine.lowering(node).startswith("direct convolution")
    other = laws.one_op(convolution, [numbers(0, (2, 3), "f4"), numbers(0, (4, 3), "f4")], conv_attrs(0)).results[0]
    assert engine.kernel(other)([numbers(0, (2, 3), "f4"), numbers(0, (4, 3), "f4")], None).shape == (2, 4)
    assert engine.lowering(other) == "machine code of loops: a product"


def test_what_follows_is_not_fused_with_loops_of_a_convolution_that_are_slower_than_its_kernel() -> None:
    """Rows of a convolution of dilated inputs are interleaved, so that nothing follows in its kernel; loops ask at each element."""
    from deepx_graph.runtime.engines.native_engine import NativeEngine

    x, w = numbers(0, (2, 8, 4, 4), "f4"), numbers(1, (8, 4, 3, 3), "f4")
    attrs = conv_attrs(2, lhs_dilation=(2, 2), padding_low=(2, 2), padding_high=(1, 1), kernel_input_feature_dimension=0,
                       kernel_output_feature_dimension=1)
    node = laws.one_op(convolution, [x, w], attrs).results[0]
    b = Builder()
    params = tuple(b.param(k, n.type) for k, n in enumerate(node.inputs))
    function = Function("f", params, (b(maximum, b(convolution, *params, **attrs), b.constant(np.float32(0))),))
    assert any(n.op is convolution for n in NativeEngine(2).arranged(function).nodes)
    program = dx.compile(Module((function,), "f"), engine="native", threads=2)
    assert not program.python_steps
    want = dx.compile(Module((function,), "f"), engine="numpy")(x, w)[0]
    np.testing.assert_allclose(program(x, w)[0], want, rtol=1e-4, atol=1e-5)


# --- what follows -------------------------------------------------------------------------------------------------------

FEATURES_FIRST: list[Case] = [
    ((3, 8, 40, 40), (20, 8, 3, 3), conv_attrs(2, padding_low=(1, 1), padding_high=(1, 1))),
    ((1, 64, 28, 28), (144, 64, 3, 3), conv_attrs(2)),
    ((2, 32, 40, 40), (32, 1, 3, 3), conv_attrs(2, feature_group_count=32)),
    ((2, 16, 41, 39), (24, 4, 3, 3), conv_attrs(2, feature_group_count=4)),
    ((1, 200, 9, 9), (200, 200, 3, 3), conv_attrs(2, padding_low=(1, 1), padding_high=(1, 1))),
    ((2, 16, 300), (32, 16, 5), conv_attrs(1)),
    ((1, 6, 12, 20, 20), (20, 6, 3, 3, 3), conv_attrs(3)),
    ((1, 300, 37, 37), (45, 300, 1, 1), conv_attrs(2, window_strides=(2, 2))),
    ((1, 100, 13, 13), (83, 100, 3, 3), conv_attrs(2, padding_low=(1, 1), padding_high=(1, 1))),
    ((1, 24, 32, 48), (50, 24, 1, 1), conv_attrs(2)),
]
FEATURES_LAST: list[Case] = [
    ((3, 40, 40, 32), (3, 3, 1, 32), {**conv_attrs(2, feature_group_count=32), **LAST}),
    ((2, 70, 90, 16), (3, 3, 16, 40), {**conv_attrs(2), **LAST}),
    ((1, 32, 48, 96), (1, 1, 96, 24), {**conv_attrs(2), **LAST}),
    ((3, 31, 47, 64), (1, 1, 64, 40), {**conv_attrs(2), **LAST}),
]


def followed(case: Case) -> tuple[Function, list[Array]]:
    """A convolution, then a scale and an offset a feature, another array, and a maximum: not joined yet."""
    x, w = numbers(0, case[0], "f4"), numbers(1, case[1], "f4")
    b = Builder()
    node = b(convolution, b.param(0, type_of_array(x)), b.param(1, type_of_array(w)), **case[2])
    shape, at = node.type.shape, case[2]["output_feature_dimension"]  # type: ignore[attr-defined]
    scale, offset, other = numbers(2, shape[at : at + 1], "f4"), numbers(3, shape[at : at + 1], "f4"), numbers(4, shape, "f4")
    arrays = [x, w, scale, offset, other]
    params = (*node.inputs, *(b.param(k, type_of_array(a)) for k, a in enumerate(arrays[2:], 2)))
    c, s, o, r = (b.param(k, n.type) for k, n in enumerate((node, *params[2:])))
    wide = [b(broadcast_in_dim, v, shape=shape, broadcast_dimensions=(at,)) for v in (s, o)]
    top = b(maximum, b(add, b(add, b(multiply, c, wide[0]), wide[1]), r), b.constant(np.float32(0)))
    last = b(fusion, node, *params[2:], body=Function("steps", (c, s, o, r), (top,)))
    return Function("f", params, (last,)), arrays


@pytest.mark.parametrize("case", FEATURES_FIRST + FEATURES_LAST, ids=lambda c: f"{c[0]}x{c[1]}")
def test_the_epilogue_is_computed_by_each_thread_for_its_share(case: Case) -> None:
    function, arrays = followed(case)
    bodies: list[Function] = []
    new = with_fused_epilogue(function, lambda body: bodies.append(body) or True, convolution)
    assert len(bodies) == 1 and [n.op for n in new.nodes if n.inputs] == [fusion]
    (tiles,) = conv.planned(next(n for n in bodies[0].nodes if n.op is convolution))
    if tiles.apart == len(tiles.extents):  # by the tiles of these vectors shares part within rows
        with pytest.raises(Declined, match="the epilogue has no whole rows in a share"):
            build(bodies[0], 2)
        return
    kernel = build(bodies[0], 2)
    assert tiles.shares > 1 and "epilogue" in kernel.lowering and not any(kernel.in_place)
    (want,) = evaluate(function, arrays)
    given = [arrays[function.params.index(p)] for p in new.results[0].inputs]
    for out in (None, [np.full_like(want, np.nan)], [arrays[4].copy()]):
        np.testing.assert_array_equal(kernel(given, out)[0], want)
    residual = arrays[4].copy()
    again = [residual if a is arrays[4] else a for a in given]
    np.testing.assert_array_equal(kernel(again, [residual])[0], want)


def test_the_rows_of_generated_epilogues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever axes a plan takes as one, and into how many shares, however small, it cuts them."""
    monkeypatch.setattr(choice, "LEAST_SHARE", 1)
    monkeypatch.setattr(choice, "SCRATCH_BYTES", 1 << 10)
    joined = 0
    bodies: list[Function] = []

    def joins(body: Function) -> bool:
        bodies.append(body)
        return True

    for seed in range(2000, 2100):
        x, w, attrs = _generated(seed)
        if seed % 2:
            ones = (1,) * len(attrs["window_strides"])
            x, w, attrs = _of_single_elements((x, w, attrs | {"window_strides": ones, "lhs_dilation": ones}))
            x = tuple(3 * n if k in attrs["input_spatial_dimensions"] else n for k, n in enumerate(x))
        try:
            function, arrays = followed((x, w, attrs))
            new = with_fused_epilogue(function, joins, convolution)
            kernel = build(bodies.pop(), 2)
        except Exception:  # no such convolution, or none by direct kernels that has an epilogue
            continue
        given = [arrays[function.params.index(p)] for p in new.results[0].inputs]
        np.testing.assert_array_equal(kernel(given, None)[0], evaluate(function, arrays)[0])
        joined += 1
    assert joined > 20


def one_step(case: Case, make: Any) -> Function:
    b = Builder()
    x, w = (b.param(k, type_of_array(np.zeros(s, "f4"))) for k, s in enumerate(case[:2]))
    return Function("f", (x, w), tuple(make(b, b(convolution, x, w, **case[2]))))


def test_an_epilogue_has_only_steps_in_place_of_the_one_reader() -> None:
    def count(make: Any) -> int:
        from deepx_graph.runtime.engines.native_engine import NativeEngine

        function = one_step(FEATURES_FIRST[0], make)
        return len([n for n in with_fused_epilogue(function, NativeEngine(2).accepts, convolution).nodes if n.inputs])

    def gate(b: Builder, c: Node) -> list[Node]:
        gate = b(logistic, c)
        return [b(multiply, c, gate)]

    assert count(lambda b, c: [b(maximum, c, b.constant(np.float32(0)))]) == 1
    assert count(lambda b, c: [b(multiply, c, c)]) == 1
    assert count(lambda b, c: [c]) == 1
    assert count(lambda b, c: [c, b(multiply, c, c)]) == 2, "the result of the convolution is wanted, too"
    assert count(gate) == 3, "two readers, which no pass has fused"
    assert count(lambda b, c: [b(convert, c, dtype=F64)]) == 2, "elements of another size"


def test_constant_weights_are_packed_once() -> None:
    x, w = numbers(0, (1, 16, 20, 20), "f4"), numbers(1, (32, 16, 3, 3), "f4")
    b = Builder()
    p = b.param(0, type_of_array(x))
    function = Function("f", (p,), (b(convolution, p, b.constant(w), **conv_attrs(2)),))
    bodies: list[Function] = []
    with_fused_epilogue(function, lambda body: bodies.append(body) or True, convolution)
    kernel = build(bodies[0], 2)
    assert [a.size for a in kernel.constants] == [w.nbytes], "they are there"
    assert not kernel.own_bytes, "no memory to pack them in"
    (want,) = evaluate(function, [x])
    np.testing.assert_array_equal(kernel([x])[0], want)


def test_two_convolutions_that_meet_in_one_step() -> None:
    import deepx_graph as dx
    from deepx_graph.ir import Module

    b = Builder()
    arrays = [numbers(0, (2, 16, 20, 20), "f4"), numbers(1, (32, 16, 3, 3), "f4"), numbers(2, (32, 16, 3, 3), "f4")]
    params = tuple(b.param(k, type_of_array(a)) for k, a in enumerate(arrays))
    left, right = (b(convolution, params[0], w, **conv_attrs(2)) for w in params[1:])
    function = Function("main", params, (b(maximum, left, right),), public=True)
    (got,) = dx.compile(Module((function,), "main"), engine="native", threads=2, optimize=False)(*arrays)
    np.testing.assert_array_equal(got, evaluate(function, arrays)[0])
