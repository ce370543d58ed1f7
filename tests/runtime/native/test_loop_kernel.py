"""Machine code of loop programs, as programs call it."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node, Op
from deepx_graph.ops import (
    add,
    bitcast_convert,
    broadcast_in_dim,
    compare,
    concatenate,
    convert,
    divide,
    dynamic_update_slice,
    erfc,
    exponential,
    log,
    maximum,
    minimum,
    multiply,
    pad,
    polygamma,
    reduce,
    reshape,
    reverse,
    select,
    sine,
    transpose,
)
from deepx_graph.ops.contract.reduce import monoid_body, reduction
from deepx_graph.types import F32, F64, I8, I16, I32, I64, U8, U16, DType, scalar, tensor
from tests.support.laws import alone, constants

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.loop_program import emit, statements
from deepx_graph.runtime.native.loop_program.kernel import build

SIZES = [(1, 1), (0, 5), (5, 0), (3, 64), (65, 3), (17, 130), (200, 63), (129, 129)]


@pytest.mark.parametrize(("dtype", "values"), [("bf16", [1, -2.5, 0.5]), ("f16", [1, -2.5, 0.5])])
def test_a_narrow_result_has_its_dtype_in_every_call(dtype: str, values: list[float]) -> None:
    """The first call runs kernel by kernel, later ones do not."""
    module = dx.loads(f"""func.func @main(%x: tensor<3x{dtype}>) -> tensor<3x{dtype}> {{
      %0 = stablehlo.multiply %x, %x : tensor<3x{dtype}>
      %1 = stablehlo.add %0, %x : tensor<3x{dtype}>
      return %1 : tensor<3x{dtype}>
    }}""")
    function = dx.compile(module, engine="native", threads=1)
    x = np.array(values).astype(function.inputs[0].type.dtype.np)  # type: ignore[union-attr]
    for _ in range(3):
        (got,) = function(x)
        assert got.dtype == x.dtype
        assert got.tolist() == [v * v + v for v in values]


def test_what_two_nests_need_is_computed_in_each() -> None:
    """They may become functions of their own: no variable of one is seen in another."""
    b = Builder()
    x, i = b.param(0, tensor(F32, (4,))), b.param(1, tensor(I32, ()))
    twice = b(add, i, i)
    update = b(dynamic_update_slice, x, b(reshape, b(convert, twice, dtype=F32), shape=(1,)), twice)
    function = Function("f", (x, i), (twice, update, b(add, twice, i)))
    found = build(function, 1)([np.arange(4, dtype="f4"), np.int32(1)])
    assert [np.asarray(a).tolist() for a in found] == [2, [0, 1, 2, 3], 3]


@pytest.mark.parametrize("size", [7, 8, 9, 15, 16, 17, 31, 63, 67, 129, 1000])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_vectors_end_anywhere(size: int, dtype: DType) -> None:
    """Whole vectors, several side by side, and what is left; elements that functions treat apart; loops left to LLVM beside."""
    b = Builder()
    x, y = b.param(0, tensor(dtype, (size,))), b.param(1, tensor(dtype, (size,)))
    value = b(log, x)
    zero = b.constant(np.zeros((), dtype.np))
    total = b(reduce, b(multiply, value, y), zero, dimensions=(0,), body=monoid_body(add, dtype))
    function = Function("f", (x, y), (value, b(reverse, x, dimensions=(0,)), total, b(divide, y, total)))
    rng = np.random.default_rng(size)
    arrays = [rng.uniform(0.1, 4, size).astype(dtype.np), rng.normal(size=size).astype(dtype.np)]
    arrays[0][size // 2] = 1e-40 if dtype is F32 else 1e-310
    got = build(function, 2)(arrays)
    wide = [a.astype("f8") for a in arrays]
    whole = np.sum(np.log(wide[0]) * wide[1])
    for found, want in zip(got, [np.log(wide[0]), wide[0][::-1], whole, wide[1] / whole], strict=True):
        np.testing.assert_allclose(found, want, rtol=2e-5 if dtype is F32 else 1e-12)


@pytest.mark.parametrize("rows", [1, 2, 65])
@pytest.mark.parametrize("columns", [5, 64, 100, 300])
def test_sweeps_over_rows_are_one_loop(rows: int, columns: int) -> None:
    """A softmax takes no memory beside its arguments and results."""
    b = Builder()
    x = b.param(0, tensor(F32, (rows, columns)))
    e = b(exponential, x)
    total = b(reduce, e, b.constant(np.float32(0)), dimensions=(1,), body=monoid_body(add, F32))
    wide = b(broadcast_in_dim, total, shape=(rows, columns), broadcast_dimensions=(0,))
    kernel = build(Function("softmax", (x,), (b(divide, e, wide),)), 2)
    assert not kernel.program.scratch or rows == 1
    array = np.random.default_rng(0).normal(size=(rows, columns)).astype("f4")
    want = np.exp(array.astype("f8"))
    np.testing.assert_allclose(kernel([array])[0], want / want.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_long_sum_is_that_of_strips(threads: int) -> None:
    """It is nearly as exact as its terms, with any number of threads."""
    b = Builder()
    x = b.param(0, tensor(F32, (300_001,)))
    zero = b.constant(np.float32(0))
    kernel = build(Function("f", (x,), (b(reduce, x, zero, dimensions=(0,), body=monoid_body(add, F32)),)), threads)
    array = np.random.default_rng(0).uniform(size=300_001).astype("f4")
    found = kernel([array])[0]
    np.testing.assert_allclose(found, array.astype("f8").sum(), rtol=2e-7)


def check(op: Any, arrays: list[Any], **attrs: Any) -> None:
    """The kernel of one operation on two threads, against its `eval`."""
    b = Builder()
    node = b(op, *constants(b, arrays), **attrs)
    kernel = build(alone(node), 2)
    expected = node.op.eval(arrays, *node.attrs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for got, want in zip(kernel(arrays, [np.full_like(w, 77) for w in expected]), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def _first_greatest() -> Any:
    """The greatest number, and the least position where it is."""
    def body(x: Node, i: Node, y: Node, j: Node) -> list[Node]:
        b = Builder()
        keep = b(compare, x, y, direction="GE")
        return [b(select, keep, x, y), b(select, keep, i, j)]

    params = [(f"{name}{k}", scalar(d)) for k in range(2) for name, d in (("value", F32), ("position", I32))]
    return Builder().function("greatest", params, body, public=False)


@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [F32, F64, I8], ids=str)
def test_sums_and_greatest_elements_along_each_axis(shape: tuple[int, int], dtype: DType) -> None:
    x = np.random.default_rng(0).integers(1, 5, shape).astype(dtype.np)
    for axes in ((0,), (1,), (0, 1)):
        for op in (add, maximum):
            check(reduce, [x, np.zeros((), dtype.np)], dimensions=axes, body=monoid_body(op, dtype))


@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_positions_of_greatest_elements_along_each_axis(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).integers(0, 50, shape).astype("f4")
    for axis in (0, 1):
        positions = np.broadcast_to(np.arange(shape[axis], dtype="i4").reshape(-1, *([1] * (1 - axis))), shape)
        check(reduce, [x, np.array(positions), np.float32(-1), np.int32(0)], dimensions=(axis,), body=_first_greatest())


@pytest.mark.parametrize("size", [1, 63, 64, 4095, 4096, 4097, 9000])
def test_pads_and_concatenations(size: int) -> None:
    x = np.arange(size, dtype="f4")
    check(pad, [x, np.float32(-1)], edge_padding_low=(3,), edge_padding_high=(5,), interior_padding=(0,))
    check(concatenate, [x, x[: size // 2], x], dimension=0)
    y = np.arange(3 * size, dtype="f4").reshape(3, size)
    check(pad, [y, np.float32(-1)], edge_padding_low=(1, 2), edge_padding_high=(0, -1), interior_padding=(0, 1))
    check(concatenate, [y, y], dimension=1)


@pytest.mark.parametrize("rows", [4, 4000])
def test_code_is_generated_for_what_is_called_alone(rows: int) -> None:
    """The functions that can be called from outside are those that the kernel calls: nothing is compiled in vain."""
    from deepx_graph.runtime.native.llvm.target import this_machine
    from deepx_graph.runtime.native.loop_program.emit import module_text

    b = Builder()
    body = monoid_body(add, F32)
    function = b.function("f", [("x", tensor(F32, (rows, 300)))],
                          lambda x: [b(reduce, b(add, x, x), b.constant(0, F32), body=body, dimensions=(0,))])
    kernel = build(function, 2)
    text = module_text(kernel.program, kernel.shares, this_machine())
    exported = [line for line in text.splitlines() if line.startswith("define void @")]
    assert len(exported) == len(kernel.called)


def test_code_does_not_grow_with_loops_around_vectors() -> None:
    """However many rows and planes there are, LLVM writes the loops around its vectors once."""
    def code_bytes(rows: int) -> int:
        b = Builder()
        x = b.param(0, tensor(F32, (rows, 16, rows, 16)))
        kernel = build(Function("f", (x,), (b(transpose, x, permutation=(0, 2, 3, 1)),)), 1)
        text = emit.module_text(kernel.program, kernel.shares, this_machine())
        return len(this_machine().compile(text, optimise=True))

    assert code_bytes(100) < 1.5 * code_bytes(2)


@pytest.mark.parametrize("offset", [0, 1, 16])
def test_stores_past_the_caches_go_where_others_do(offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where results lie on cache lines, and where they do not."""
    monkeypatch.setattr(statements, "CACHE_BYTES", 0)
    size = 40_011
    b = Builder()
    x = b.param(0, tensor(F32, (size,)))
    kernel = build(Function("f", (x,), (b(multiply, x, x),)), 2)
    text = emit.module_text(kernel.program, kernel.shares, this_machine())
    assert ("!nontemporal" in text) == (this_machine().register_bytes >= 32)
    array = np.random.default_rng(0).normal(size=size).astype("f4")
    room = np.zeros(size + 64, "f4")
    start = -(room.ctypes.data // 4) % 16 + offset
    out = room[start : start + size]
    kernel([array], [out])
    np.testing.assert_array_equal(out, array * array)
    assert not room[:start].any() and not room[start + size :].any()


@pytest.mark.parametrize("n", [8, 9, 16, 17, 40])
def test_vectors_are_not_wider_than_rows(n: int) -> None:
    """Of a vector of a short row at least more than half of the lanes are at work."""
    b = Builder()
    x, of_rows = b.param(0, tensor(F32, (50, n))), b.param(1, tensor(F32, (50,)))
    quotient = b(divide, x, b(broadcast_in_dim, of_rows, shape=(50, n), broadcast_dimensions=(0,)))
    kernel = build(Function("f", (x, of_rows), (quotient,)), 1)
    lanes = {int(k) for k in re.findall(r"<(\d+) x float>", emit.module_text(kernel.program, kernel.shares, this_machine()))}
    assert lanes and max(lanes) < 2 * n
    arrays = [np.random.default_rng(0).uniform(1, 2, size).astype("f4") for size in ((50, n), (50,))]
    out = np.zeros((50, n), "f4")
    kernel(arrays, [out])
    np.testing.assert_allclose(out, arrays[0] / arrays[1][:, None], rtol=3e-7)


def test_a_function_without_vectors_is_called_for_each_lane() -> None:
    """What is around it stays a loop of vectors."""
    b = Builder()
    x = b.param(0, tensor(F64, (1003,)))
    kernel = build(Function("f", (x,), (b(multiply, b(exponential, x), b(erfc, x)),)), 1)
    text = emit.module_text(kernel.program, kernel.shares, this_machine())
    lanes = this_machine().register_bytes // 8
    assert f"<{lanes} x double>" in text
    assert text.count("call double @erfc(") % lanes == 0
    array, out = np.linspace(-5, 5, 1003), np.zeros(1003)
    kernel([array], [out])
    np.testing.assert_allclose(out, [math.exp(v) * math.erfc(v) for v in array], rtol=4 * np.finfo(float).eps)


@pytest.mark.parametrize(("source", "target"), [("f4", I32), ("i4", F32), ("f8", I64), ("u1", I8)])
def test_bits_of_several_vectors_side_by_side(source: str, target: DType) -> None:
    """Elements that keep their bits are as many registers as before."""
    check(bitcast_convert, [np.arange(700).astype(source)], dtype=target)


def test_names_of_buffers_are_not_those_of_values() -> None:
    """Both are letters and a number: of many arguments and temporaries, some were taken for accumulators of a vectorised sum."""
    module = dx.loads("func.func @main(" + ", ".join(f"%x{k}: tensor<64xf64>" for k in range(40)) + ") -> tensor<f64> {\n"
                      + "  %z = stablehlo.constant dense<0.0> : tensor<f64>\n"
                      + "".join(f"  %s{k} = stablehlo.reduce(%x{k} init: %z) applies stablehlo.add across dimensions = [0] : "
                                "(tensor<64xf64>, tensor<f64>) -> tensor<f64>\n" for k in range(40))
                      + "".join(f"  %t{k + 1} = stablehlo.add %{'t' if k else 's'}{k}, %s{k + 1} : tensor<f64>\n"
                                for k in range(39))
                      + "  return %t39 : tensor<f64>\n}")  # fmt: skip
    (got,) = dx.compile(module, engine="native", threads=1)(*[np.full(64, k, np.float64) for k in range(40)])
    assert got == 64 * sum(range(40))


@pytest.mark.parametrize("dtype", [F32, F64])
def test_functions_of_the_c_library_are_declared_once(dtype: DType) -> None:
    """Written as vectors in one place of a kernel, and left to LLVM in another."""
    b = Builder()
    x = np.linspace(0.1, 9, 33).astype(dtype.np)
    function = b.function("f", [("x", tensor(dtype, (33,)))], lambda v: [b(polygamma, b.splat(1, v.type), v), b(sine, v)])
    module = Module((function,), "f")
    for got, wanted in zip(dx.compile(module, engine="native")(x), dx.compile(module, engine="numpy")(x), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=32 * np.finfo(dtype.np).eps)


@pytest.mark.parametrize("size", [3, 20, 100, 1000])
def test_llvm_has_nothing_to_say(size: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It would say on standard error what it was asked for and did not do."""
    monkeypatch.setenv("DEEPX_GRAPH_CACHE_LIMIT", "0")
    x = np.random.default_rng(size).integers(-9, 9, size).astype(np.int32)
    text = f"""func.func @main(%x: tensor<{size}xi32>) -> tensor<{size}xi32> {{
      %y = "stablehlo.sort"(%x) ({{
      ^bb0(%a: tensor<i32>, %b: tensor<i32>):
        %c = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }}) {{dimension = 0 : i64}} : (tensor<{size}xi32>) -> tensor<{size}xi32>
      return %y : tensor<{size}xi32> }}"""
    np.testing.assert_array_equal(dx.compile(dx.loads(text), engine="native")(x)[0], np.sort(x))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("size", [2, 4, 8, 16, 31, 32])
def test_rows_of_a_vector_and_less(size: int) -> None:
    """Their maxima are exact, whatever is among them, and what is divided by them is rounded as by division."""
    b = Builder()
    x = b.param(0, tensor(F32, (40, size)))
    most = reduction(b, maximum, x, (1,))
    function = Function("main", (x,), (most, b(divide, x, b(broadcast_in_dim, most, shape=(40, size), broadcast_dimensions=(0,)))))
    given = np.random.default_rng(size).normal(size=(40, size)).astype("f4")
    given[1, -1], given[2, 0], given[3], given[4], given[5] = math.nan, math.inf, -0.0, -math.inf, 1e-41
    given[3, 1] = 0.0
    found = dx.compile(Module((function,)), engine="native")(given)
    maxima = np.max(given, axis=1)
    maxima[3] = 0.0
    np.testing.assert_array_equal(found[0], maxima)
    assert not np.signbit(found[0][3])
    with np.errstate(all="ignore"):
        np.testing.assert_array_max_ulp(found[1][6:], (given / maxima[:, None])[6:], 0 if size <= 4 else 1)
        np.testing.assert_array_equal(np.isnan(found[1]), np.isnan(given / maxima[:, None]))


@pytest.mark.parametrize("bound", [2.5, -2.5, 0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45])
@pytest.mark.parametrize("op", [maximum, minimum], ids=str)
@pytest.mark.parametrize("is_first", [True, False])
def test_extremes_with_a_number(bound: float, op: Op, is_first: bool) -> None:
    """NaN, zeros of both signs and what lies at the bound itself, in whole vectors and what is left."""
    special = [math.nan, -0.0, 0.0, math.inf, -math.inf, 1e-45, -1e-45, 2.5, -2.5, 3e38]
    x = np.resize(np.array(special, "f4"), 133)
    b = Builder()
    p = b.param(0, tensor(F32, x.shape))
    number = b(broadcast_in_dim, b.constant(bound, F32), shape=x.shape, broadcast_dimensions=())
    kernel = build(Function("f", (p,), (b(op, *((number, p) if is_first else (p, number))),)), 1)
    (got,) = kernel([x])
    expected = op.eval((np.full_like(x, bound), x))
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got)[got == 0], np.signbit(expected)[expected == 0])


@pytest.mark.parametrize("source", [F32, F64], ids=str)
@pytest.mark.parametrize("target", [I8, U8, I16, U16, I32, I64], ids=str)
def test_floats_become_the_nearest_integer_there_is(source: DType, target: DType) -> None:
    ends = np.iinfo(target.np)
    special = [math.nan, math.inf, -math.inf, -0.5, 0.5, -0.99, 127.99, 128, -128.99, -129, 255.9, 256, 65535.5, 1e10, -1e10]
    x = np.resize(np.array(special, source.np), 133)
    b = Builder()
    p = b.param(0, tensor(source, x.shape))
    (got,) = build(Function("f", (p,), (b(convert, p, dtype=target),)), 1)([x])
    exact = [0 if math.isnan(v) else ends.max if v == math.inf else ends.min if v == -math.inf else int(v) for v in x.tolist()]
    assert np.asarray(got).tolist() == [min(max(v, ends.min), ends.max) for v in exact]
