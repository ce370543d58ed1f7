"""Products and convolutions of integers by floats that hold every sum: the bits that integers give, at the ends of their ranges."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.literal import Literal
from deepx_graph.ops import add, convert, convolution, dot_general, tanh
from deepx_graph.rewrite.product_types import widened
from deepx_graph.types import F32, F64, DType, TensorType, type_of_array

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.runtime.native.llvm.target import this_machine

BITS: dict[str, Any] = {"si8": np.int8, "ui8": np.uint8, "si16": np.int16, "ui16": np.uint16, "si32": np.int32}
MLIR = {"si8": "i8", "ui8": "ui8", "si16": "i16", "ui16": "ui16", "si32": "i32", "ui32": "ui32", "si64": "i64"}


def product(left: str, right: str, result: str, depth: int, rows: int = 9, columns: int = 7) -> dx.Module:
    """A product of narrow integers whose sums are of a wider type."""
    x, y, z = MLIR[left], MLIR[right], MLIR[result]
    a, b, c = f"tensor<{rows}x{depth}x{x}>", f"tensor<{depth}x{columns}x{y}>", f"tensor<{rows}x{columns}x{z}>"
    return dx.loads(f"""func.func @main(%x: {a}, %y: {b}) -> {c} {{
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({a}, {b}) -> {c}
  return %0 : {c}
}}""")


def computed_in(module: dx.Module) -> DType:
    """The type of what is multiplied, where every product that can be widened is."""
    function = widened(module.entry, lambda _: True)
    (node,) = (n for n in function.nodes if n.op in (dot_general, convolution))
    type = node.inputs[0].type
    assert isinstance(type, TensorType)
    return type.dtype


@pytest.mark.parametrize(("left", "right", "result", "depth", "dtype"), [
    ("si8", "si8", "si32", 1000, F32), ("si8", "si8", "si32", 1030, F64), ("ui8", "ui8", "si32", 250, F32),
    ("ui8", "si8", "si32", 500, F32), ("si16", "si8", "si32", 400, F64), ("si16", "si16", "si64", 4000, F64),
])  # fmt: skip
def test_the_floats_are_the_narrowest_that_hold_every_sum(left: str, right: str, result: str, depth: int, dtype: DType) -> None:
    assert computed_in(product(left, right, result, depth)) is dtype


@pytest.mark.parametrize(("left", "right", "result", "depth"), [
    ("si8", "si8", "si8", 4), ("si16", "si16", "si32", 4), ("si32", "si32", "si64", 4), ("ui16", "ui16", "ui32", 2),
])  # fmt: skip
def test_a_product_that_may_wrap_around_or_round_stays_one_of_integers(left: str, right: str, result: str, depth: int) -> None:
    assert not computed_in(product(left, right, result, depth)).is_float


@pytest.mark.parametrize("left", ["si8", "ui8", "si16"])
@pytest.mark.parametrize("right", ["si8", "ui8"])
def test_sums_at_the_ends_of_the_ranges_are_exact(left: str, right: str) -> None:
    """Rows and columns of the least, the greatest, and both in turns, against sums of 64 bits, which wrap around."""
    depth = 1025
    ends = [[(np.iinfo(BITS[t]).min, np.iinfo(BITS[t]).max) for _ in range(depth)] for t in (left, right)]
    choices = list(itertools.product((0, 1), (0, 1)))
    patterns = [[[pair[(k + s) % 2 if turns else s] for k, pair in enumerate(pairs)] for s, turns in choices] for pairs in ends]
    rows, columns = (np.array(p, BITS[t]) for p, t in zip(patterns, (left, right), strict=True))
    rng = np.random.default_rng(0)
    x = np.concatenate([rows, rng.choice(rows[:2, 0], (12, depth))])
    module = product(left, right, "si32", depth, len(x), len(columns))
    (found,) = dx.compile(module, engine="native")(x, np.ascontiguousarray(columns.T))
    np.testing.assert_array_equal(found, (x.astype(np.int64) @ columns.T.astype(np.int64)).astype(np.int32))


def test_a_convolution_of_bytes_is_exact() -> None:
    x, w, y = "tensor<2x12x12x20xi8>", "tensor<3x3x20x16xi8>", "tensor<2x10x10x16xi32>"
    module = dx.loads(f"""func.func @main(%x: {x}, %w: {w}) -> {y} {{
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {{}}
     {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {w}) -> {y}
  return %0 : {y}
}}""")
    assert computed_in(module) is F32
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-128, 128, shape).astype(np.int8) for shape in ((2, 12, 12, 20), (3, 3, 20, 16))]
    found, wanted = (dx.compile(module, engine=engine)(*arrays)[0] for engine in ("native", "numpy"))
    np.testing.assert_array_equal(found, wanted)


def test_a_narrow_operand_is_seen_in_a_fusion() -> None:
    """What was clamped and made narrow before it is multiplied, as between the layers of a quantised network."""
    module = dx.optimize(dx.loads("""func.func @main(%x: tensor<9x500xi32>, %y: tensor<500x7xi8>) -> tensor<9x7xi32> {
  %low = stablehlo.constant dense<-128> : tensor<9x500xi32>
  %high = stablehlo.constant dense<127> : tensor<9x500xi32>
  %0 = stablehlo.clamp %low, %x, %high : tensor<9x500xi32>
  %1 = stablehlo.convert %0 : (tensor<9x500xi32>) -> tensor<9x500xi8>
  %2 = stablehlo.dot_general %1, %y, contracting_dims = [1] x [0] : (tensor<9x500xi8>, tensor<500x7xi8>) -> tensor<9x7xi32>
  return %2 : tensor<9x7xi32>
}"""))
    assert computed_in(module) is F32
    rng = np.random.default_rng(0)
    arrays = rng.integers(-300, 300, (9, 500)).astype(np.int32), rng.integers(-128, 128, (500, 7)).astype(np.int8)
    found, wanted = (dx.compile(module, engine=engine)(*arrays)[0] for engine in ("native", "numpy"))
    np.testing.assert_array_equal(found, wanted)


ZERO_POINT = """func.func @main(%x: tensor<{rows}x500x{type}>, %y: tensor<500x{columns}xi8>) -> tensor<{rows}x{columns}xi32> {{
  %w = stablehlo.convert %x : (tensor<{rows}x500x{type}>) -> tensor<{rows}x500xi32>
  %z = stablehlo.constant dense<{zero}> : tensor<{rows}x500xi32>
  %k = stablehlo.constant dense<{factor}> : tensor<{rows}x500xi32>
  %m = stablehlo.multiply %w, %k : tensor<{rows}x500xi32>
  %s = stablehlo.subtract %m, %z : tensor<{rows}x500xi32>
  %c = stablehlo.convert %y : (tensor<500x{columns}xi8>) -> tensor<500x{columns}xi32>
  %0 = stablehlo.dot_general %s, %c, contracting_dims = [1] x [0]
    : (tensor<{rows}x500xi32>, tensor<500x{columns}xi32>) -> tensor<{rows}x{columns}xi32>
  return %0 : tensor<{rows}x{columns}xi32>
}}"""


@pytest.mark.parametrize(("type", "zero", "factor"), [
    ("i8", 128, 1), ("ui8", 128, 1), ("ui8", -5, -1), ("i8", 0, 255), ("i8", 0, 257), ("i8", 200, 300), ("ui8", 0, 1 << 24),
])  # fmt: skip
@pytest.mark.parametrize(("rows", "columns"), [(9, 7), (40, 48)])
def test_integers_less_a_zero_point_are_those_of_a_narrower_type_only_if_all_are(
        type: str, zero: int, factor: int, rows: int, columns: int) -> None:
    """Sums at the ends of the ranges, of what fits in 16 bits, just does not, and wraps around in 32."""
    module = dx.optimize(dx.loads(ZERO_POINT.format(type=type, zero=zero, factor=factor, rows=rows, columns=columns)))
    rng, ends = np.random.default_rng(0), np.iinfo(np.int8 if type == "i8" else np.uint8)
    x = rng.choice([ends.min, ends.max], (rows, 500)).astype(ends.dtype)
    y = rng.choice([-128, 127], (500, columns)).astype(np.int8)
    (found,) = dx.compile(module, engine="native")(x, y)
    wide = x.astype(np.int64) * factor - zero
    np.testing.assert_array_equal(found, (wide.astype(np.int32).astype(np.int64) @ y.astype(np.int64)).astype(np.int32))


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("then", ["", "tanh", "add"])
@pytest.mark.parametrize(("left", "right"), [("f32", "i8"), ("bf16", "bf16"), ("i8", "f16"), ("f32", "bf16")])
def test_large_products_have_no_converted_copies(left: str, right: str, then: str, is_constant: bool) -> None:
    """With what follows them, and weights that never change: nothing but the result is in memory."""
    rng, of = np.random.default_rng(0), {"f32": np.float32, "i8": np.int8, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
    x, w = (rng.integers(-9, 10, shape).astype(of[t]) for shape, t in (((48, 400), left), ((400, 512), right)))
    c = rng.normal(size=(48, 512)).astype(np.float32)
    b = Builder()
    params = tuple(b.param(k, type_of_array(v)) for k, v in enumerate((x, c) if is_constant else (x, c, w)))
    weights = Node(CONSTANT, (), (Literal(w),), type_of_array(w)) if is_constant else params[2]
    operands = [v if t == "f32" else b(convert, v, dtype=F32) for v, t in ((params[0], left), (weights, right))]
    found = b(dot_general, *operands, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))
    found = b(tanh, found) if then == "tanh" else b(add, found, params[1]) if then else found
    module = dx.Module((Function("main", params, (found,)),))
    f = dx.compile(module, engine="native", threads=1, optimize=False)
    whole = x.astype(np.float32) @ w.astype(np.float32)
    wanted = np.tanh(whole) if then == "tanh" else whole + c if then else whole
    np.testing.assert_allclose(f(*((x, c) if is_constant else (x, c, w)))[0], wanted, rtol=1e-5, atol=1e-5)
    if "f16" not in (left, right) or this_machine().register_bytes > 16:
        assert f.plan.peak_bytes < wanted.nbytes + w.size


def test_a_product_of_bytes_takes_no_memory_but_its_result() -> None:
    module = product("si8", "si8", "si32", 300, 64, 96)
    f = dx.compile(module, engine="native", threads=1)
    if this_machine().triple.startswith("x86_64"):
        assert f.plan.peak_bytes == 64 * 96 * 4
