"""The forms of operations that texts have and our printer does not write: pretty ones, old ones, attributes that are left out.

Each against numpy. Generic forms in full are what the printer writes, and are tested there.
"""
# ruff: noqa: E501

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import Source
from deepx_graph.text import read
from tests.support.reference import evaluate
from tests.support.relay_reference import convolution, pooling

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(4)
X = RNG.standard_normal((2, 3)).astype("f4")
C = RNG.standard_normal((2, 3, 4)).astype("f4")
IMAGE, KERNEL = RNG.standard_normal((1, 2, 5, 6)).astype("f4"), RNG.standard_normal((3, 2, 2, 3)).astype("f4")
SQUARE = np.array([[2, 7, 7], [1, 3, 7], [0.5, -1, 4]], "f4")
SPD = np.array([[4, 2, 9], [2, 5, 9], [0, 1, 3]], "f4")  # the upper triangle is not looked at for a lower factor

WORDS = {"f4": "f32", "i4": "i32", "b1": "i1", "i8": "i64", "c8": "complex<f32>", "u4": "ui32", "u1": "ui8", "i1": "i8"}


def type_of(array: Array) -> str:
    word = WORDS["b1" if array.dtype.kind == "b" else array.dtype.kind + str(array.dtype.itemsize)]
    return f"tensor<{''.join(f'{d}x' for d in array.shape)}{word}>"


def run(line: str, inputs: tuple[Array, ...], want: Array) -> list[Any]:
    """The results of `%r = <line>` over parameters %a, %b, ..."""
    params = ", ".join(f"%{name}: {type_of(x)}" for name, x in zip("abcd", inputs, strict=False))
    body = f"%r = {line}" if not line.startswith("%") else line
    result = type_of(want)
    text = f"func.func @main({params}) -> {result} {{\n  {body}\n  return %r : {result}\n}}"
    return evaluate(read(Source("t", text), "stablehlo").module, list(inputs))


def conv(window: str, dims: str = "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]") -> str:
    return f"stablehlo.convolution(%a, %b) dim_numbers = {dims}, window = {{{window}}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}"


def convolved(strides: Any = (1, 1), low: Any = (0, 0), high: Any = (0, 0), dilation: Any = (1, 1), base: Any = (1, 1)) -> Array:
    wide = np.zeros((1, 2, *((n - 1) * d + 1 for n, d in zip(IMAGE.shape[2:], base, strict=True))), "f4")
    wide[:, :, :: base[0], :: base[1]] = IMAGE
    return convolution(wide, KERNEL, strides=strides, low=low, high=high, dilation=dilation)


def window(attributes: str, operand: Array, want: Array) -> str:
    return (f'"stablehlo.reduce_window"(%a, %b) <{{{attributes}}}> ({{\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n'
            f'  %m = stablehlo.maximum %x, %y : tensor<f32>\n  stablehlo.return %m : tensor<f32>\n}}) :'
            f" ({type_of(operand)}, tensor<f32>) -> {type_of(want)}")  # fmt: skip


def pooled(**given: Any) -> Array:
    plain = {"size": (2, 3), "strides": (1, 1), "low": (0, 0), "high": (0, 0), "dilation": (1, 1)}
    found = pooling(X[None, None].repeat(2, 2), lambda part: part.max(-1), value=-np.inf, **{**plain, **given})
    return np.ascontiguousarray(found[0, 0])


LOW = np.float32(-np.inf)
X2 = np.ascontiguousarray(X.repeat(2, 0))
BODY = '({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n  %p = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>\n  stablehlo.return %p : tensor<i1>\n})'

ROWS: list[tuple[str, tuple[Array, ...], Array]] = [
    ("stablehlo.broadcast %a, sizes = [4, 5] : (tensor<2x3xf32>) -> tensor<4x5x2x3xf32>", (X,), np.broadcast_to(X, (4, 5, 2, 3))),
    ('"stablehlo.broadcast"(%a) <{broadcast_sizes = array<i64: 2>}> : (tensor<2x3xf32>) -> tensor<2x2x3xf32>', (X,), np.stack([X, X])),
    ("stablehlo.broadcast_in_dim %a, dims = [2, 0] : (tensor<2x3xf32>) -> tensor<3x4x2xf32>", (X,), np.broadcast_to(X.T[:, None], (3, 4, 2))),
    ("stablehlo.iota dim = 1 : tensor<2x3xi32>", (), np.broadcast_to(np.arange(3, dtype="i4"), (2, 3))),
    ("stablehlo.transpose %a, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>", (C,), C.transpose(2, 0, 1)),
    ("stablehlo.reverse %a, dims = [0, 2] : tensor<2x3x4xf32>", (C,), C[::-1, :, ::-1]),
    ("stablehlo.concatenate %a, %b, dim = 1 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>", (X, X + 1), np.concatenate([X, X + 1], 1)),
    ("stablehlo.slice %a [0:2:1, 1:3, 0:4:3] : (tensor<2x3x4xf32>) -> tensor<2x2x2xf32>", (C,), C[:, 1:3, 0:4:3]),
    ("stablehlo.pad %a, %b, low = [1, 0], high = [0, 2], interior = [2, 1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<5x7xf32>",
     (X, np.float32(9)), np.array([[9] * 7, [X[0, 0], 9, X[0, 1], 9, X[0, 2], 9, 9], [9] * 7, [9] * 7, [X[1, 0], 9, X[1, 1], 9, X[1, 2], 9, 9]], "f4")),
    ("stablehlo.dynamic_slice %a, %b, %c, sizes = [1, 2] : (tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>",
     (X, np.int32(1), np.int32(7)), X[1:, 1:]),
    ("stablehlo.dynamic_pad %a, %b, %l, %h, %i", (X, np.float32(9)), np.pad(X, ((1, 0), (0, 2)), constant_values=9)),
    ("stablehlo.compare LT, %a, %b : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>", (X, X[::-1].copy()), X[::-1] > X),
    ("stablehlo.compare GE, %a, %b, TOTALORDER : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>",
     (np.array([0.0, -0.0, np.nan, 1], "f4"), np.array([-0.0, 0.0, 1, np.nan], "f4")), np.array([True, False, True, False])),
    ("stablehlo.compare LT, %a, %b, UNSIGNED : (tensor<2xui8>, tensor<2xui8>) -> tensor<2xi1>",
     (np.array([200, 1], "u1"), np.array([1, 200], "u1")), np.array([False, True])),
    ("stablehlo.reduce_precision %a, format = e5m10 : tensor<2x3xf32>", (X,), X.astype("f2").astype("f4")),
    ("stablehlo.reduce(%a init: %b) applies stablehlo.maximum across dimensions = [0] : (tensor<2x3xf32>, tensor<f32>) -> tensor<3xf32>", (X, LOW), X.max(0)),
    ("stablehlo.dot %a, %b : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>", (X, X.T.copy()), X @ X.T),
    ("stablehlo.dot %a, %b : (tensor<2x3xi8>, tensor<3xi8>) -> tensor<2xi32>", (np.full((2, 3), 100, "i1"), np.full(3, 100, "i1")), np.full(2, 30000, "i4")),
    ("stablehlo.dot_general %a, %b, batching_dims = [0] x [1], contracting_dims = [2] x [0] : (tensor<2x3x4xf32>, tensor<4x2x5xf32>) -> tensor<2x3x5xf32>",
     (C, np.arange(40, dtype="f4").reshape(4, 2, 5)), np.einsum("bik,kbj->bij", C, np.arange(40, dtype="f4").reshape(4, 2, 5))),
    ("stablehlo.get_dimension_size %a, dim = 1 : (tensor<2x3xf32>) -> tensor<i32>", (X,), np.int32(3)),
    ("stablehlo.clamp %a, %b, %c : (tensor<f32>, tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>", (np.float32(-0.2), X, np.float32(0.3)), X.clip(-0.2, 0.3)),
    ("stablehlo.fft %a, type = RFFT, length = [4] : (tensor<2x3x4xf32>) -> tensor<2x3x3xcomplex<f32>>", (C,), np.fft.rfft(C).astype("c8")),
    ("stablehlo.cholesky %a, lower = true : tensor<3x3xf32>", (SPD,), np.linalg.cholesky(np.tril(SPD) + np.tril(SPD, -1).T)),
    ("stablehlo.cholesky %a : tensor<3x3xf32>", (SPD.T.copy(),), np.linalg.cholesky(np.tril(SPD) + np.tril(SPD, -1).T).T),
    ('"stablehlo.triangular_solve"(%a, %b) <{left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose TRANSPOSE>}>'
     " : (tensor<3x3xf32>, tensor<3x1xf32>) -> tensor<3x1xf32>", (SQUARE, np.ones((3, 1), "f4")), np.linalg.solve(np.tril(SQUARE).T, np.ones((3, 1), "f4"))),
    ('"stablehlo.triangular_solve"(%a, %b) <{left_side = false, lower = false, unit_diagonal = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}>'
     " : (tensor<3x3xf32>, tensor<1x3xf32>) -> tensor<1x3xf32>", (SQUARE, np.ones((1, 3), "f4")),
     np.linalg.solve((np.triu(SQUARE, 1) + np.eye(3, dtype="f4")).T, np.ones((3, 1), "f4")).T),
    ("%t:2 = chlo.top_k(%a, k = 2) : tensor<2x3xf32> -> (tensor<2x2xf32>, tensor<2x2xi32>)\n  %r = stablehlo.negate %t#0 : tensor<2x2xf32>",
     (X,), np.sort(-X)[:, :2]),
    (f'"stablehlo.sort"(%a) <{{is_stable = true}}> {BODY} : (tensor<2x3xf32>) -> tensor<2x3xf32>', (X,), np.sort(X)),
    (f'"stablehlo.sort"(%a) <{{dimension = 0 : i64}}> {BODY} : (tensor<2x3xf32>) -> tensor<2x3xf32>', (X,), np.sort(X, 0)),
    (f'"stablehlo.sort"(%a) <{{dimension = -2 : i64}}> {BODY} : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>', (C,), np.sort(C, 1)),
    (conv("") + " : (tensor<1x2x5x6xf32>, tensor<3x2x2x3xf32>) -> tensor<1x3x4x4xf32>", (IMAGE, KERNEL), convolved()),
    (conv("stride = [2, 1], pad = [[1, 0], [0, 2]], rhs_dilate = [2, 1]") + " : (tensor<1x2x5x6xf32>, tensor<3x2x2x3xf32>) -> tensor<1x3x2x6xf32>",
     (IMAGE, KERNEL), convolved((2, 1), (1, 0), (0, 2), (2, 1))),
    (conv("lhs_dilate = [1, 2], reverse = [true, false]") + " : (tensor<1x2x5x6xf32>, tensor<3x2x2x3xf32>) -> tensor<1x3x4x9xf32>",
     (IMAGE, KERNEL[:, :, ::-1].copy()), convolved(base=(1, 2))),
    (conv("reverse = [0, 1]") + " : (tensor<1x2x5x6xf32>, tensor<3x2x2x3xf32>) -> tensor<1x3x4x4xf32>", (IMAGE, KERNEL[..., ::-1].copy()), convolved()),
    (conv("stride = [1, 2]", "[1, b, 0, f]x[i, 1, 0, o]->[f, 1, b, 0]") + " : (tensor<6x1x5x2xf32>, tensor<2x3x2x3xf32>) -> tensor<3x2x1x4xf32>",
     (IMAGE.transpose(3, 0, 2, 1).copy(), KERNEL.transpose(1, 3, 2, 0).copy()), convolved((1, 2)).transpose(1, 3, 0, 2)),
    *((window(attributes, X2, want), (X2, LOW), want) for attributes, want in (
        ("window_dimensions = array<i64: 2, 3>", pooled()),
        ("window_dimensions = dense<[2, 3]> : tensor<2xi64>, window_strides = array<i64: 2, 1>", pooled(strides=(2, 1))),
        ("window_dimensions = array<i64: 2, 3>, padding = dense<1> : tensor<2x2xi64>", pooled(low=(1, 1), high=(1, 1))),
        ("window_dimensions = array<i64: 2, 3>, padding = dense<[[1, 0], [0, 2]]> : tensor<2x2xi64>", pooled(low=(1, 0), high=(0, 2))),
        ("window_dimensions = array<i64: 2, 2>, window_dilations = array<i64: 3, 2>", pooled(size=(2, 2), dilation=(3, 2))))),
]  # fmt: skip


def with_operands(line: str) -> str:
    """Sizes as constants, for operations that take them as operands."""
    if "dynamic_pad" not in line:
        return line
    names = {"l": "[1, 0]", "h": "[0, 2]", "i": "[0, 0]"}
    made = "".join(f"%{n} = stablehlo.constant dense<{v}> : tensor<2xi64>\n  " for n, v in names.items())
    sizes = ", ".join(["tensor<2xi64>"] * 3)
    return f"{made}%r = {line} : (tensor<2x3xf32>, tensor<f32>, {sizes}) -> tensor<3x5xf32>"


@pytest.mark.parametrize("row", ROWS, ids=[re.sub(r"\s+", " ", line)[:70] for line, _, _ in ROWS])
def test_forms_give_what_numpy_gives(row: tuple[str, tuple[Array, ...], Array]) -> None:
    line, inputs, want = row
    (got,) = run(with_operands(line), inputs, np.asarray(want))
    assert (np.asarray(got).dtype, np.shape(got)) == (np.asarray(want).dtype, np.shape(want))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("blob", "type", "want"), [
    ('"0x01"', "tensor<10xi1>", None), ('"0x0D02"', "tensor<10xi1>", [1, 0, 1, 1, 0, 0, 0, 0, 0, 1]), ('"0xFF"', "tensor<3xi1>", [1, 1, 1]),
    ('"0x010001"', "tensor<3xi1>", [1, 0, 1]), ('"0x0100FEFF"', "tensor<2xi16>", [1, -2]), ('"0x0100FEFF"', "tensor<2xui16>", [1, 65534]),
    ('"0x07F8"', "tensor<2xi4>", [7, -8]), ("[0x7FC00000, 0xFF800000]", "tensor<2xf32>", [np.nan, -np.inf]), ("0x80", "tensor<2xi8>", [-128, -128]),
    ("[(1.0, -2.0), (0x7F800000, 3.0)]", "tensor<2xcomplex<f32>>", [1 - 2j, complex(np.inf, 3)]),
])  # fmt: skip
def test_constants_of_every_spelling(blob: str, type: str, want: Any) -> None:
    text = f"func.func @main() -> {type} {{\n  %r = stablehlo.constant dense<{blob}> : {type}\n  return %r : {type}\n}}"
    if want is None:
        with pytest.raises(Exception, match="bytes"):
            read(Source("t", text), "stablehlo")
        return
    (got,) = evaluate(read(Source("t", text), "stablehlo").module, [])
    np.testing.assert_array_equal(np.asarray(got).astype("c8" if "complex" in type else "f8"), want)
