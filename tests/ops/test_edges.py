"""What operations give at the edges: orders of summation, running results, complex cancellation, types below a byte."""

from __future__ import annotations

import cmath
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph import ops
from deepx_graph.ir import Builder, Module
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines import has_native
from deepx_graph.types import (
    BF16,
    DTYPES,
    F8E4M3FN,
    F32,
    F64,
    I2,
    I4,
    I64,
    U2,
    U4,
    DType,
    dtype_named,
    scalar,
    tensor,
    type_of_array,
)

# --- running results and order -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 16, 17, 255, 4097])
@pytest.mark.parametrize("op", [ops.add, ops.multiply, ops.maximum], ids=str)
def test_a_scan_is_the_result_so_far(op: Any, size: int) -> None:
    x = np.random.default_rng(size).uniform(0.9, 1.1, (2, size, 3))
    known = {ops.add: np.cumsum, ops.multiply: np.cumprod, ops.maximum: np.maximum.accumulate}[op]
    np.testing.assert_allclose(op.monoid.scan(x, 1), known(x, axis=1), rtol=1e-12)


def cumulative(x: Any, axis: int, backwards: bool, body: Any, init: Any, empty: int = 0) -> Any:
    size, ones, zeros = x.shape[axis], (1,) * x.ndim, [0] * x.ndim
    reach = [0] * x.ndim
    reach[axis] = size - 1 + empty
    windows = [1] * x.ndim
    windows[axis] = size
    low, high = (zeros, reach) if backwards else (reach, zeros)
    return ops.reduce_window.eval([x, np.asarray(init, x.dtype)], tuple(windows), ones, ones, ones, tuple(low), tuple(high), body)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("backwards", [False, True])
def test_cumulative_windows_either_way(axis: int, backwards: bool) -> None:
    x = np.random.default_rng(1).integers(-9, 9, (5, 40))
    want = np.flip(np.cumsum(np.flip(x, axis), axis), axis) if backwards else np.cumsum(x, axis)
    body = monoid_body(ops.add, dtype_named("i64"))
    np.testing.assert_array_equal(cumulative(x, axis, backwards, body, 0), want)
    nothing = np.zeros((2, 40) if axis == 0 else (5, 2), x.dtype)
    behind = np.concatenate([want, nothing] if backwards else [nothing, want], axis)
    np.testing.assert_array_equal(cumulative(x, axis, backwards, body, 0, 2), behind)
    places = np.indices(x.shape)[axis]
    padding = places if backwards else x.shape[axis] - 1 - places
    np.testing.assert_array_equal(cumulative(x, axis, backwards, body, 100), want + 100 * (padding + 1))


def test_narrow_sums_of_windows_are_rounded_at_each_step() -> None:
    x = np.array([256, 1, 1, 1], ml_dtypes.bfloat16)
    assert cumulative(x, 0, False, monoid_body(ops.add, BF16), 0).tolist() == [256, 256, 256, 256]


def scattered(operand: Any, indices: Any, updates: Any, body: Any) -> Any:
    return ops.scatter.eval([operand, np.asarray(indices)[:, None], updates], (), (0,), (), (), (0,), 1, body)


def test_scatter_adds_in_order() -> None:
    got = scattered(np.array([1e16, 0.0]), [0, 0, 0, 5], np.array([1.0, 1.0, 2.0, 7.0]), monoid_body(ops.add, F64))
    assert got.tolist() == [1e16 + 2.0, 0.0]


def test_scatter_with_any_monoid() -> None:
    got = scattered(np.array([1, 2, 3]), [0, 0, 2], np.array([6, 3, 1]), monoid_body(ops.xor, dtype_named("i64")))
    assert got.tolist() == [1 ^ 6 ^ 3, 2, 3 ^ 1]


def test_complex_sums_of_products_are_in_order() -> None:
    x = np.array([[1e8 + 0j, 1, -1e8]], np.complex64)
    y = np.array([[1], [1], [1]], np.complex64)
    assert ops.dot_general.eval([x, y], (), (), (1,), (0,))[0, 0] == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_short_sums_of_products_round_every_product(dtype: Any) -> None:
    """The square of 1 + h is 1 + 2 h + h h, whose last term is beyond the type: with more precision it would be what is left."""
    h = dtype(2.0**-27 if dtype is np.float64 else 2.0**-12)
    x, y = np.array([[1 + h, -1]], dtype), np.array([[1 + h], [1 + 2 * h]], dtype)
    assert ops.dot_general.eval([x, y], (), (), (1,), (0,))[0, 0] == 0


@pytest.mark.parametrize("scale", [1, 2**30])
def test_integer_products_are_exact_or_wrap(scale: int) -> None:
    """By BLAS where f64 holds every sum, else modulo 2^64."""
    rng = np.random.default_rng(4)
    x, y = rng.integers(-9, 9, (5, 6)) * scale, rng.integers(-9, 9, (6, 7)) * scale
    exact = x.astype(object) @ y.astype(object)
    wrapped = [[(int(v) + 2**63) % 2**64 - 2**63 for v in row] for row in exact]
    assert ops.dot_general.eval([x, y], (), (), (1,), (0,)).tolist() == wrapped
    small = np.array([[100, 100]], np.int8), np.array([[1], [1]], np.int8)
    assert ops.dot_general.eval(list(small), (), (), (1,), (0,)).tolist() == [[-56]]


def test_long_reductions_keep_the_order_of_their_elements() -> None:
    """2x2 integer matrices multiply associatively, and not commutatively."""
    b, t = Builder(), scalar(I64)

    def product(*p: Any) -> list[Any]:
        left, right = p[:4], p[4:]
        return [b(ops.add, b(ops.multiply, left[2 * i], right[j]), b(ops.multiply, left[2 * i + 1], right[2 + j]))
                for i in range(2) for j in range(2)]

    body = b.function("product", [(f"p{k}", t) for k in range(8)], product)
    for count in (3, 1500, 2049):
        matrices = np.random.default_rng(count).integers(-2, 3, (count, 2, 2))
        want = np.eye(2, dtype=np.int64)
        for m in matrices:
            want = want @ m
        xs = [np.ascontiguousarray(matrices[:, i, j]) for i in range(2) for j in range(2)]
        got = ops.reduce.eval([*xs, *(np.asarray(v) for v in (1, 0, 0, 1))], (0,), body)
        assert np.reshape(got, (2, 2)).tolist() == want.tolist()


# --- the profile says when no whole-array form was found -----------------------------------------------------------


def test_the_profile_tells_general_bodies_from_known_ones() -> None:
    b, t = Builder(), scalar(F32)
    half = b.function("half", (("a", t), ("b", t)), lambda x, y: [b(ops.multiply, b(ops.add, x, y), b.constant(0.5, F32))])

    def main(x: Any) -> list[Any]:
        zero = b.constant(0, F32)
        return [b(ops.reduce, x, zero, dimensions=(0,), body=body) for body in (half, monoid_body(ops.multiply, F32))]

    module = Module((b.function("main", [("x", tensor(F32, (4,)))], main),))
    run = compile(module, engine="numpy", profile=True)
    run(np.ones(4, np.float32))
    assert run.profile is not None
    ways = {r.fallback for r in run.profile.rows() if r.kernel.startswith("reduce")}
    assert ways == {"", "one slice after the other"}
    assert "[general: one slice after the other]" in str(run.profile)


# --- complex numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_log_plus_one_near_zero(dtype: Any) -> None:
    tiny = dtype(complex(3e-20, 4e-20))
    got = ops.log_plus_one.eval([np.array([tiny, 0, -1 + 1j, 1e300 if dtype is np.complex128 else 1e30], dtype)])
    assert got[0] == tiny  # log(1 + x) = x - x^2 / 2 ...
    assert got[1] == 0
    assert got[2].real == 0
    assert got[2].imag == pytest.approx(math.pi / 2, rel=1e-7)
    assert got[3].real == pytest.approx(math.log(1e300 if dtype is np.complex128 else 1e30), rel=1e-7)


def test_log_plus_one_where_the_modulus_is_one() -> None:
    """|1 + x| - 1 = 5e-19 here: the parts cancel to beyond double precision."""
    re, im = -0.5e-8, 1e-4
    exact = (2 * re + re * re + im * im) / 2
    got = ops.log_plus_one.eval([np.array([complex(re, im)])])[0]
    assert got.real == pytest.approx(exact - exact**2, rel=1e-3, abs=1e-20)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_exponential_of_infinities() -> None:
    inf = math.inf
    got = ops.exponential.eval([np.array([complex(-inf, inf), complex(inf, inf), complex(-inf, 1)])])
    assert np.isnan(got[:2].real).all()
    assert np.isnan(got[:2].imag).all()
    assert got[2] == 0


@pytest.mark.filterwarnings("ignore:overflow")
def test_square_does_not_cancel() -> None:
    big, small = 1e8 + 1, 1e8
    assert ops.square.eval([np.array([complex(big, small)])])[0].real == big + small
    assert ops.square.eval([np.array([complex(1e200, 1e200)])])[0] == complex(0, math.inf)


PARTS = (0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan)


QUOTIENTS = {
    "(inf+infj) / 1j": complex(math.inf, -math.inf), "(-inf+0j) / (1-2j)": complex(-math.inf, -math.inf),
    "1j / (-0+0j)": complex(math.nan, -math.inf), "(1-2j) / 0j": complex(math.inf, -math.inf),
}  # fmt: skip
"""As XLA has them."""


def is_as_in_annex_g(x: complex, y: complex, quotient: complex) -> bool:
    """C99 G.5.1: which quotients are infinities and zeros. One infinite part makes an infinity."""
    if (cmath.isinf(x) and cmath.isfinite(y)) or (y == 0 and x != 0 and not cmath.isnan(x)):
        return cmath.isinf(quotient)
    if cmath.isfinite(x) and cmath.isinf(y):
        return quotient == 0
    return (x != 0 or y != 0) or cmath.isnan(quotient)


@pytest.mark.parametrize("engine", ["numpy", "numexpr", "native"])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_products_and_quotients_at_zeros_and_infinities(dtype: Any, engine: str) -> None:
    if engine == "native":
        pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")
    points = [complex(re, im) for re in PARTS for im in PARTS]
    pairs = [(x, y) for x in points for y in points]
    x, y = (np.array(side, dtype) for side in zip(*pairs, strict=True))
    b = Builder()
    module = Module((b.function("main", [("x", type_of_array(x)), ("y", type_of_array(y))],
                                lambda p, q: [b(ops.multiply, p, q), b(ops.divide, p, q)]),))
    products, quotients = compile(module, engine=engine)(x, y)
    four = [(p.real * q.real - p.imag * q.imag, p.real * q.imag + p.imag * q.real) for p, q in pairs]
    np.testing.assert_array_equal(np.stack([products.real, products.imag], axis=1), four)
    for (p, q), quotient in zip(pairs, quotients, strict=True):
        assert is_as_in_annex_g(p, q, quotient), f"{p} / {q} = {quotient}"
    found = {f"{p} / {q}": quotient for (p, q), quotient in zip(pairs, quotients, strict=True)}
    for name, want in QUOTIENTS.items():
        np.testing.assert_array_equal([found[name].real, found[name].imag], [want.real, want.imag], name)


def test_complex_order_angle_and_root() -> None:
    x, y = np.array([1.5 + 2.5j, 1.5 + 7.5j]), np.array([7.5 + 1.5j, 1.5 + 2.5j])
    assert ops.maximum.eval([x, y]).tolist() == [7.5 + 1.5j, 1.5 + 7.5j]
    assert ops.minimum.eval([x, y]).tolist() == [1.5 + 2.5j, 1.5 + 2.5j]
    np.testing.assert_allclose(ops.atan2.eval([np.array([1 + 0j, 1 + 0j]), np.array([0j, 1 + 0j])]), [math.pi / 2, math.pi / 4])
    np.testing.assert_allclose(ops.cbrt.eval([np.array([8 + 0j, -8j])]), [2, 2 * np.exp(-1j * math.pi / 6)])
    assert ops.logistic.eval([np.array([-1e4 + 1j])])[0] == 0


# --- integers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["i4", "i8", "u8", "i32", "u32", "i64", "u64"])
def test_the_upper_half_of_products(name: str) -> None:
    dtype = dtype_named(name)
    low, high = (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if dtype.kind == "int" else (0, (1 << dtype.bits) - 1)
    pairs = [(a, b) for a in (low, -1 if low else 1, 0, 3, high) for b in (low, 2, high)]
    got = ops.mulhi.eval([np.array(column, dtype=object).astype(dtype.np) for column in zip(*pairs, strict=True)])
    assert got.dtype == dtype.np
    assert [int(v) for v in got] == [(a * b) >> dtype.bits for a, b in pairs]


# --- narrow types --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "values"), [(I2, [-2, 1, 0]), (U2, [3, 1, 0]), (I4, [-8, 7, 3]), (U4, [15, 1, 9])])
def test_integers_below_a_byte(dtype: DType, values: list[int]) -> None:
    x = np.array(values).astype(dtype.np)
    one = np.ones((), dtype.np)
    mask = (1 << dtype.bits) - 1
    top = mask // 2 + 1 if dtype.kind == "int" else mask + 1
    wrapped = [((v + 1) & mask) - (mask + 1 if ((v + 1) & mask) >= top else 0) for v in values]
    assert ops.add.eval([x, np.broadcast_to(one, 3)]).astype(int).tolist() == wrapped
    assert ops.popcnt.eval([x]).astype(int).tolist() == [
        c - (mask + 1 if c >= top else 0) for c in ((v & mask).bit_count() for v in values)]
    logical = ops.shift_right_logical.eval([x, np.broadcast_to(one, 3)])
    assert [int(v) & mask for v in logical] == [(v & mask) >> 1 for v in values]
    back = ops.bitcast_convert.eval([ops.bitcast_convert.eval([x], dtype_named(f"u{dtype.bits}"))], dtype)
    assert back.astype(int).tolist() == values


@pytest.mark.parametrize("name", ["f4e2m1fn", "f6e2m3fn", "f6e3m2fn"])
def test_floats_below_a_byte_convert_and_keep_their_bits(name: str) -> None:
    dtype = dtype_named(name)
    x = ops.convert.eval([np.array([0.5, 1, -2, 100])], dtype)
    assert x.dtype == dtype.np
    assert x.astype(float).tolist()[:3] == [0.5, 1, -2]
    assert float(x[3]) == float(ml_dtypes.finfo(dtype.np).max)
    if name == "f4e2m1fn":
        assert ops.bitcast_convert.eval([x], U4).astype(int).tolist() == [0b0001, 0b0010, 0b1100, 0b0111]


def test_extremes_of_floats_without_infinity() -> None:
    assert ops.maximum.identity_for(F8E4M3FN) == -448
    assert ops.minimum.identity_for(F32) == math.inf


@pytest.mark.parametrize("engine", ["numpy", "numexpr", *(["native"] if has_native() else [])])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "c64"])
@pytest.mark.parametrize("size", [0, 1, 5, 300])
def test_sums_of_negative_zeros_keep_their_sign(engine: str, dtype: str, size: int) -> None:
    """-0.0 is what changes no sum: -0.0 + -0.0 = -0.0 (IEEE 754-2019, 6.3), in whatever order."""
    text = (f"sea 1\nentry @main\nfunc public @main(%x: {dtype}[{size}], %zero: {dtype}[]) -> (%y: {dtype}[]) {{\n"
            f"  %y = reduce %x, %zero, dims = [0], by func @add(%a: {dtype}[], %b: {dtype}[]) -> (%s: {dtype}[]) {{\n"
            f"    %s = add %a, %b : {dtype}[]\n    return %s\n  }} : {dtype}[]\n  return %y\n}}\n")
    element = dtype_named(dtype).np
    (found,) = dx.compile(dx.loads(text), engine=engine, optimize=False)(-np.zeros(size, element), -np.zeros((), element))
    parts = (found.real, found.imag) if dtype == "c64" else (found,)
    assert all(p == 0 and np.signbit(p) for p in parts)


@pytest.mark.parametrize("engine", ["numpy", "numexpr", *(["native"] if has_native() else [])])
@pytest.mark.parametrize("result", [d for d in DTYPES if d.is_integer], ids=str)
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.is_float and d.bits > 8], ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_floats_become_the_nearest_integers_towards_zero(dtype: DType, result: DType, engine: str) -> None:
    """As integers of Python tell, at both ends of every type and beyond them; NaN becomes 0."""
    low, high = (-(1 << (result.bits - 1)), (1 << (result.bits - 1)) - 1) if result.kind == "int" else (0, (1 << result.bits) - 1)
    near = [n * (1 + e) for n in (low, high, low - 1, high + 1) for e in (-2.0**-7, 0, 2.0**-7)]
    x = np.array([0, -0.0, 0.9, -0.9, 1.5, -1.5, 1e30, -1e30, np.inf, -np.inf, np.nan, *near], np.float64).astype(dtype.np)
    exact = [0 if v != v else high if v >= high else low if v <= low else int(v) for v in x.astype(float).tolist()]
    b = Builder()
    module = Module((b.function("main", [("x", type_of_array(x))], lambda y: [b(ops.convert, y, dtype=result)]),))
    found = dx.compile(module, engine=engine, optimize=False)(x)[0]
    assert found.dtype == result.np and found.astype(object).tolist() == exact
