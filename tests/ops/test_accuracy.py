"""How near the engines come to exact values: every function over its range and at its limits, and every op that adds up many terms.

What is exact comes from elsewhere: mpmath's values (`exact.npz`), the tables of C99 Annex F, sums of integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph import ops
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops import OPS
from deepx_graph.ops.contract.convolution import conv_attrs
from deepx_graph.ops.contract.reduce import monoid_body, reduction
from deepx_graph.types import F32, dtype_named, tensor, type_of_array
from tests.support import exact

Array = np.ndarray[Any, Any]
ENGINES = ("numpy", "numexpr", "native")
every_engine = pytest.mark.parametrize("engine", ENGINES)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def run(engine: str, make: Callable[..., Sequence[Node]], *arrays: Array, optimized: bool = False) -> list[Array]:
    if engine == "native":
        pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")
    b = Builder()
    params = [(f"x{k}", type_of_array(a)) for k, a in enumerate(arrays)]
    module = Module((b.function("main", params, lambda *nodes: make(b, *nodes)),))
    return [np.asarray(y) for y in dx.compile(dx.optimize(module) if optimized else module, engine=engine, optimize=False)(*arrays)]


# --- functions over their range -----------------------------------------------------------------------------------------

FOUR = 4.0
UNITS = {"tanh": 5.0, "bessel_i1e": 8.0, "digamma": 16.0, "zeta": 2000.0}
"""Units in the last place by which a function may be off, where it is not four. Those of scipy need so many in f64 only, and zeta
for large operands only."""

ZEROS = {"lgamma", "digamma"}
"""Left of 0 these cross zero where no sum of theirs is small: there the unit is that of 1."""


def units_off(name: str, got: Array, want: Array) -> Array:
    """The error in units in the last place; infinite where only one of both is a number, or both are different infinities."""
    info, rounded = np.finfo(got.dtype), want.astype(got.dtype)
    unit = np.spacing(np.maximum(np.abs(rounded), 1 if name in ZEROS else info.tiny)).astype(np.float64)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    error = np.abs(got.astype(np.float64) - want) / unit
    return np.where(same, 0, np.where(np.isfinite(rounded) & np.isfinite(got), error, np.inf))


@every_engine
@pytest.mark.parametrize("tag", ["f4", "f8"])
def test_every_function_is_within_its_units_over_its_range(tag: str, engine: str) -> None:
    """All functions in one program: the operands of each are its own."""
    table = np.load(exact.FILE)
    names = [key.split(".")[0] for key in table.files if key.endswith(tag)]
    rows = [table[f"{name}.{tag}"] for name in names]
    arrays = [operand.astype(tag) for row in rows for operand in row[:-1]]

    def make(b: Builder, *nodes: Node) -> list[Node]:
        rest = iter(nodes)
        return [b(OPS[name], *(next(rest) for _ in OPS[name].operands)) for name in names]

    off = {}
    for name, row, got in zip(names, rows, run(engine, make, *arrays), strict=True):
        error = units_off(name, got, row[-1])
        if error.max() > UNITS.get(name, FOUR):
            at = int(error.argmax())
            off[name] = f"{error[at]:.3g} units at {tuple(float(o[at]) for o in row[:-1])}: {got[at]!r}, not {row[-1][at]!r}"
    assert not off
    assert set(names) == set(exact.UNARY) | set(exact.BINARY)


# --- limits and special values ------------------------------------------------------------------------------------------

INF, NAN, PI = math.inf, math.nan, math.pi
AT = (INF, -INF, 0.0, -0.0)
LIMITS: dict[str, tuple[tuple[float, float, float, float], dict[float, float]]] = {
    "exponential": ((INF, 0, 1, 1), {1e4: INF, -1e4: 0}),
    "exponential_minus_one": ((INF, -1, 0.0, -0.0), {1e4: INF, -1e4: -1}),
    "log": ((INF, NAN, -INF, -INF), {1: 0, -1: NAN}),
    "log_plus_one": ((INF, NAN, 0.0, -0.0), {-1: -INF, -2: NAN}),
    "sqrt": ((INF, NAN, 0.0, -0.0), {-1: NAN, 4: 2}),
    "rsqrt": ((0.0, NAN, INF, -INF), {-1: NAN, 4: 0.5}),
    "cbrt": ((INF, -INF, 0.0, -0.0), {8: 2, -8: -2}),
    "sine": ((NAN, NAN, 0.0, -0.0), {}),
    "cosine": ((NAN, NAN, 1, 1), {}),
    "tan": ((NAN, NAN, 0.0, -0.0), {}),
    "tanh": ((1, -1, 0.0, -0.0), {20: 1, -20: -1, 1e4: 1, -1e4: -1}),
    "logistic": ((1, 0.0, 0.5, 0.5), {50: 1, 1e4: 1, -1e4: 0}),
    "cosh": ((INF, INF, 1, 1), {1e4: INF, -1e4: INF}),
    "sinh": ((INF, -INF, 0.0, -0.0), {1e4: INF, -1e4: -INF}),
    "acos": ((NAN, NAN, PI / 2, PI / 2), {1: 0, -1: PI, 2: NAN}),
    "asin": ((NAN, NAN, 0.0, -0.0), {1: PI / 2, -1: -PI / 2, -2: NAN}),
    "atan": ((PI / 2, -PI / 2, 0.0, -0.0), {1: PI / 4}),
    "acosh": ((INF, NAN, NAN, NAN), {1: 0, 0.5: NAN}),
    "asinh": ((INF, -INF, 0.0, -0.0), {}),
    "atanh": ((NAN, NAN, 0.0, -0.0), {1: INF, -1: -INF, 2: NAN}),
    "square": ((INF, INF, 0.0, 0.0), {-2: 4}),
    "erf": ((1, -1, 0.0, -0.0), {10: 1, -10: -1, 1e4: 1}),
    "erfc": ((0.0, 2, 1, 1), {1e4: 0, -10: 2, -1e4: 2}),
    "erf_inv": ((NAN, NAN, 0.0, -0.0), {1: INF, -1: -INF, 2: NAN}),
    "lgamma": ((INF, INF, INF, INF), {1: 0, 2: 0, -1: INF, -3: INF}),
    "digamma": ((INF, NAN, NAN, NAN), {-1: NAN}),
    "bessel_i0e": ((0.0, 0.0, 1, 1), {}),
    "bessel_i1e": ((0.0, -0.0, 0.0, -0.0), {}),
    "abs": ((INF, INF, 0.0, 0.0), {-2: 2}),
    "negate": ((-INF, INF, -0.0, 0.0), {2: -2}),
    "sign": ((1, -1, 0.0, -0.0), {2: 1, -3: -1}),
    "floor": ((INF, -INF, 0.0, -0.0), {0.5: 0, -0.5: -1, 1e4: 1e4}),
    "ceil": ((INF, -INF, 0.0, -0.0), {0.5: 1, -0.5: -0.0}),
    "round_nearest_even": ((INF, -INF, 0.0, -0.0), {0.5: 0, 1.5: 2, -0.5: -0.0}),
    "round_nearest_afz": ((INF, -INF, 0.0, -0.0), {0.5: 1, 1.5: 2, -2.5: -3}),
    "conj": ((INF, -INF, 0.0, -0.0), {}),
    "real": ((INF, -INF, 0.0, -0.0), {}),
    "imag": ((0.0, 0.0, 0.0, 0.0), {}),
}  # fmt: skip
"""At infinities and zeros of both signs, and elsewhere where the value is exact in every type. NaN gives NaN."""

PREDICATES = {"is_finite": (False, False, True, True), "is_inf": (True, True, False, False),
              "is_pos_inf": (True, False, False, False), "is_neg_inf": (False, True, False, False)}  # fmt: skip
CHANGE_THE_TYPE = {"convert", "reduce_precision"}


def test_every_function_of_floats_has_its_limits() -> None:
    f32 = tensor(F32, (3,))
    unary = {o.name for o in OPS.values() if o.elementwise and len(o.operands) == 1 and o.operands[0].type.holds(f32)}
    assert unary == set(LIMITS) | set(PREDICATES) | CHANGE_THE_TYPE


@every_engine
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_functions_reach_their_limits(dtype: str, engine: str) -> None:
    """To the bit, signs of zeros included."""
    kind: Any = dtype_named(dtype).np
    points = [np.array([*AT, NAN, *more]).astype(kind) for _, more in LIMITS.values()]
    wanted = [np.array([*ends, NAN, *more.values()]).astype(kind) for ends, more in LIMITS.values()]
    wanted[list(LIMITS).index("imag")][4] = 0

    got = run(engine, lambda b, *nodes: [b(OPS[name], x) for name, x in zip(LIMITS, nodes, strict=True)], *points)
    off = {}
    for name, x, g, w in zip(LIMITS, points, got, wanted, strict=True):
        g, w = g.astype(np.float64), w.astype(np.float64)
        near = np.abs(g - w) <= (0 if name not in ("acos", "asin", "atan") else 2 * float(np.finfo(np.float32).eps))
        right = ((g == w) & (np.signbit(g) == np.signbit(w))) | (np.isnan(g) & np.isnan(w)) | (near & (w != 0))
        if not right.all():
            off[name] = list(zip(x[~right].tolist(), g[~right].tolist(), w[~right].tolist(), strict=True))
    assert not off, "(at, got, wanted)"


@every_engine
def test_predicates_of_special_values(engine: str) -> None:
    got = run(engine, lambda b, x: [b(OPS[name], x) for name in PREDICATES], np.array([*AT, NAN], "f4"))
    for values, (name, wanted) in zip(got, PREDICATES.items(), strict=True):
        assert values.tolist() == [*wanted, False], name


def _guarded(function: Callable[[float, float], float]) -> Callable[[float, float], float]:
    """With what Annex F says where Python raises."""
    def call(x: float, y: float) -> float:
        try:
            return function(x, y)
        except OverflowError:
            return INF
        except ZeroDivisionError:
            return NAN if x == 0 or math.isnan(x) else math.copysign(INF, x) * math.copysign(1, y)
        except ValueError:
            odd = math.isfinite(y) and y % 2 == 1
            return (math.copysign(INF, x) if odd else INF) if function is math.pow and x == 0 else NAN

    return call


BINARY: dict[str, Callable[[float, float], float]] = {
    "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y, "divide": lambda x, y: x / y,
    "power": math.pow, "atan2": math.atan2, "remainder": math.fmod,
    "maximum": lambda x, y: NAN if x != x or y != y else max(x, y), "minimum": lambda x, y: NAN if x != x or y != y else min(x, y),
    "next_after": lambda x, y: math.nextafter(x, y),
}  # fmt: skip


@every_engine
def test_functions_of_two_operands_at_special_values(engine: str) -> None:
    """Annex F, as Python's own functions have it. Of two zeros either may be the greater."""
    values = [*AT, NAN, 1.0, -1.0, 0.5, -2.0, 3.0, 1e300, -1e-300]
    x, y = (np.array(v, "f8") for v in zip(*((a, b) for a in values for b in values), strict=True))
    got = run(engine, lambda b, p, q: [b(OPS[name], p, q) for name in BINARY], x, y)
    off = {}
    for (name, function), g in zip(BINARY.items(), got, strict=True):
        w = np.array([_guarded(function)(float(a), float(b)) for a, b in zip(x, y, strict=True)])
        signs = (np.signbit(g) == np.signbit(w)) | (w != 0) | (name in ("maximum", "minimum"))
        right = (np.isnan(g) & np.isnan(w)) | ((np.abs(g - w) <= 4 * np.spacing(np.abs(w))) | (g == w)) & signs
        if not right.all():
            off[name] = list(zip(x[~right], y[~right], g[~right], w[~right], strict=True))[:6]
    assert not off, "(x, y, got, wanted)"


@every_engine
@pytest.mark.parametrize("tag", ["f4", "f8"])
def test_what_is_left_of_a_saturated_function_is_nothing(tag: str, engine: str) -> None:
    """GELU by tanh, and the slope of tanh: far from 0 the first is x or 0, the second 0."""
    x = np.array([-1e30, -1e10, -100, -20, 20, 100, 1e10], tag)

    def make(b: Builder, p: Node) -> list[Node]:
        cube = b(ops.multiply, b(ops.multiply, p, p), p)
        inner = b(ops.multiply, b.like(0.7978845608, p), b(ops.add, p, b(ops.multiply, b.like(0.044715, p), cube)))
        gelu = b(ops.multiply, b(ops.multiply, p, b.like(0.5, p)), b(ops.add, b.like(1, p), b(ops.tanh, inner)))
        y = b(ops.tanh, p)
        return [gelu, b(ops.subtract, b.like(1, p), b(ops.multiply, y, y))]

    for optimized in (False, True):
        gelu, slope = run(engine, make, x, optimized=optimized)
        assert gelu.tolist() == np.where(x < 0, 0, x).tolist()
        assert not slope.any()


@every_engine
def test_a_tangent_is_never_beyond_one_and_the_logistic_is_subnormal_where_it_has_to_be(engine: str) -> None:
    x = np.linspace(4, 11, 70_001).astype("f4")
    tanh, logistic = run(engine, lambda b, p, q: [b(ops.tanh, p), b(ops.logistic, q)], x, -90 - x)
    assert (tanh <= 1).all()
    assert (tanh[x >= 10] == 1).all()
    want = np.exp(np.float64(-90 - x))
    assert (np.abs(logistic - want) <= 2.0**-149).all()


# --- sums of many terms -------------------------------------------------------------------------------------------------

Sum = tuple[Callable[..., Sequence[Node]], tuple[Array, ...], Array]
"""A program of one result, its operands, and the sums as they are."""


def fractions(shape: tuple[int, ...], seed: int, places: int = 12) -> Array:
    """Multiples of 2 to the -places below 1: their sums, and those of products of two, are exact in f64."""
    return (np.random.default_rng(seed).integers(1, 1 << places, shape) / (1 << places)).astype("f4")


def _reduced(shape: tuple[int, ...], axes: tuple[int, ...]) -> Sum:
    x = fractions(shape, 1)
    return lambda b, p: [reduction(b, ops.add, p, axes)], (x,), x.astype("f8").sum(axes)


def _contracted(left: Any, right: Any) -> tuple[tuple[Array, ...], Array]:
    return (left, right), left.astype("f8") @ right.astype("f8")


def _dot(b: Builder, x: Node, y: Node) -> Node:
    return b(ops.dot_general, x, y, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))


def _product(rows: int, columns: int, depth: int) -> Sum:
    given, want = _contracted(fractions((rows, depth), 2), fractions((depth, columns), 3))
    return lambda b, p, q: [_dot(b, p, q)], given, want


def _product_of_broadcast(rows: int, columns: int, depth: int, left: bool) -> Sum:
    """One operand is a scalar in all places."""
    x = fractions((depth, columns) if left else (rows, depth), 4)
    shape = (rows, depth) if left else (depth, columns)
    want = np.broadcast_to(x.astype("f8").sum(0 if left else 1, keepdims=True), (rows, columns))

    def make(b: Builder, p: Node) -> list[Node]:
        one = b(ops.broadcast_in_dim, b.constant(1, F32), shape=shape, broadcast_dimensions=())
        return [_dot(b, one, p) if left else _dot(b, p, one)]

    return make, (x,), want


def _convolved(height: int, channels: int) -> Sum:
    """A window as large as the image."""
    x, w = fractions((1, channels, height, height), 5), fractions((3, channels, height, height), 6)
    return (lambda b, p, q: [b(ops.convolution, p, q, **conv_attrs(2))], (x, w),
            np.einsum("nchw,ochw->no", x.astype("f8"), w.astype("f8"))[..., None, None])


def _depthwise(height: int) -> Sum:
    x, w = fractions((1, 4, height, height), 5), fractions((4, 1, height, height), 6)
    return (lambda b, p, q: [b(ops.convolution, p, q, **conv_attrs(2, feature_group_count=4))], (x, w),
            (x.astype("f8")[0] * w.astype("f8")[:, 0]).sum((1, 2))[None, :, None, None])


def _window(b: Builder, p: Node, sizes: tuple[int, ...], low: tuple[int, ...]) -> Node:
    ones, none = (1,) * len(sizes), (0,) * len(sizes)
    return b(ops.reduce_window, p, b.like(0, p), window_dimensions=sizes, window_strides=ones, base_dilations=ones,
             window_dilations=ones, padding_low=low, padding_high=none, body=monoid_body(ops.add, F32))


def _windows(size: int) -> Sum:
    x = fractions((2, 2 * size), 7)
    total = np.cumsum(np.pad(x.astype("f8"), ((0, 0), (1, 0))), 1)
    return lambda b, p: [_window(b, p, (1, size), (0, 0))], (x,), total[:, size:] - total[:, :-size]


def _running(shape: tuple[int, ...], axis: int) -> Sum:
    x = fractions(shape, 8)
    sizes = tuple(n if k == axis else 1 for k, n in enumerate(shape))
    low = tuple(n - 1 if k == axis else 0 for k, n in enumerate(shape))
    return lambda b, p: [_window(b, p, sizes, low)], (x,), np.cumsum(x, axis, dtype="f8")


def _scattered(size: int, count: int) -> Sum:
    """Most updates go to one place."""
    x, updates = fractions((size,), 9), fractions((count,), 10)
    places = np.where(np.arange(count) % 16, 1, np.arange(count) % size).astype("i4")
    want = x.astype("f8")
    np.add.at(want, places, updates.astype("f8"))
    attrs = {"update_window_dims": (), "inserted_window_dims": (0,), "input_batching_dims": (), "scatter_indices_batching_dims": (),
             "scatter_dims_to_operand_dims": (0,), "index_vector_dim": 1, "update_computation": monoid_body(ops.add, F32)}
    return lambda b, p, i, u: [b(ops.scatter, p, i, u, **attrs)], (x, places[:, None], updates), want


def _indexed(count: int) -> Sum:
    x, updates = fractions((5, 2), 11), fractions((count, 2), 12)
    want = x.astype("f8")
    want[3] += updates.astype("f8").sum(0)
    return lambda b, p, i, u: [b(ops.index_add, p, i, u, dim=0)], (x, np.full(count, 3, "i4"), updates), want


def _statistics(shape: tuple[int, ...]) -> Sum:
    """The mean and the mean square of each feature, as a normalisation has them: fused where the engine fuses."""
    x = fractions(shape, 13)
    axes, count = tuple(range(len(shape) - 1)), math.prod(shape[:-1])

    def make(b: Builder, p: Node) -> list[Node]:
        terms = (p, b(ops.multiply, p, p))
        part = b.constant(np.full(shape[-1:], 1 / count, "f4"))
        return [b(ops.add, *(b(ops.multiply, reduction(b, ops.add, t, axes), part) for t in terms))]

    wide = x.astype("f8")
    return make, (x,), wide.mean(axes) + (wide * wide).mean(axes)


SUMS: dict[str, Callable[[], Sum]] = {
    "rows of a tall matrix": lambda: _reduced((500_000, 4), (0,)),
    "rows of a wide matrix": lambda: _reduced((4, 500_000), (1,)),
    "rows of a large matrix": lambda: _reduced((4000, 500), (0,)),
    "all of a vector": lambda: _reduced((2_000_003,), (0,)),
    "all of a matrix": lambda: _reduced((1500, 1001), (0, 1)),
    "several axes": lambda: _reduced((16, 56, 56, 16), (0, 1, 2)),
    "outer and inner axis": lambda: _reduced((1000, 8, 200), (0, 2)),
    "a dot product": lambda: _product(1, 1, 1_000_000),
    "a matrix and a vector": lambda: _product(3, 1, 300_001),
    "a vector and a matrix": lambda: _product(1, 3, 300_001),
    "a deep product": lambda: _product(17, 19, 40_000),
    "ones and a vector": lambda: _product_of_broadcast(1, 1, 1_000_000, left=True),
    "a vector and ones": lambda: _product_of_broadcast(1, 1, 1_000_000, left=False),
    "ones and a matrix": lambda: _product_of_broadcast(8, 5, 100_000, left=True),
    "a matrix and ones": lambda: _product_of_broadcast(5, 8, 100_000, left=False),
    "a convolution": lambda: _convolved(64, 16),
    "a depthwise convolution": lambda: _depthwise(128),
    "windows": lambda: _windows(3000),
    "running sums": lambda: _running((3, 300_000), 1),
    "running sums of rows": lambda: _running((100_000, 5), 0),
    "updates of a few places": lambda: _scattered(40, 300_000),
    "few updates of many places": lambda: _scattered(1_000_000, 60_000),
    "rows added at an index": lambda: _indexed(300_000),
    "statistics of features": lambda: _statistics((16, 56, 56, 16)),
}  # fmt: skip

ROUNDINGS = {"numpy": 1.01, "numexpr": 32.0, "native": 32.0}
"""Of all these sums: how many times the relative rounding of f32. The reference rounds once."""


@every_engine
@pytest.mark.parametrize("name", SUMS)
def test_long_sums_are_near_the_exact_ones(name: str, engine: str) -> None:
    make, arrays, want = SUMS[name]()
    (got,) = run(engine, make, *arrays, optimized=True)
    error = np.abs(got.astype("f8") / want - 1).max() * 2.0**24
    own = 4 if name == "statistics of features" else 1  # an expression of four roundings
    assert error <= ROUNDINGS[engine] * own, f"{error:.3g} roundings"
