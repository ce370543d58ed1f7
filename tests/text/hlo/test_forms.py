"""Forms of instructions that texts have and our printer does not write: layouts, vectors of indices, attributes left out.

Each against numpy; what the printer writes is tested there.
"""
# ruff: noqa: E501

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import Source
from deepx_graph.ops import opaque
from deepx_graph.text import read
from tests.support.reference import evaluate

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 3)).astype("f4")
C = RNG.standard_normal((2, 3, 4)).astype("f4")
LOWER = np.array([[2, 7, 7], [1, 3, 7], [0.5, -1, 4]], "f4")
SPD = np.array([[4, 9, 9], [2, 5, 9], [0, 1, 3]], "f4")
WHOLE = np.tril(SPD) + np.tril(SPD, -1).T
ONES = np.ones((3, 1), "f4")
PLACES = np.array([1, 2], "i4")

WORDS = {"f4": "f32", "i4": "s32", "b1": "pred", "u4": "u32", "c8": "c64"}


def shape_of(array: Array, layout: str = "") -> str:
    word = WORDS["b1" if array.dtype.kind == "b" else array.dtype.kind + str(array.dtype.itemsize)]
    return f"{word}[{','.join(map(str, array.shape))}]{layout}"


def module_of(result: str, instruction: str, inputs: tuple[Array, ...], layouts: tuple[str, ...] = ()) -> Any:
    computations = """
most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT m = f32[] maximum(a, b) }
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT l = pred[] compare(a, b), direction=LT }
first { p = f32[2,3] parameter(0) ROOT n = f32[2,3] negate(p) }
second { ROOT p = f32[2,3] parameter(0) }
third { p = f32[2,3] parameter(0) ROOT d = f32[2,3] add(p, p) }
"""
    layouts = layouts or ("",) * len(inputs)
    params = "".join(f"  p{k} = {shape_of(x, at)} parameter({k})\n" for k, (x, at) in enumerate(zip(inputs, layouts, strict=True)))
    text = f"HloModule m\n{computations}\nENTRY e {{\n{params}  ROOT r = {result} {instruction}\n}}\n"
    return read(Source("t", text), "hlo").module


ROWS: list[tuple[str, tuple[Array, ...], Any]] = [
    ("pad(p0, p1), padding=1_0x0_2", (X, np.float32(9)), np.pad(X, ((1, 0), (0, 2)), constant_values=9)),
    ("pad(p0, p1), padding=0_0_1x-1_0", (X, np.float32(9)), np.array([X[0, 1:], [9, 9], X[1, 1:]], "f4")),
    ("slice(p0), slice={[1:2], [0:3:2]}", (X,), X[1:2, ::2]),
    ("dynamic-slice(p0, p1), dynamic_slice_sizes={1,2}", (np.arange(12, dtype="f4").reshape(3, 4), PLACES), np.array([[6, 7]], "f4")),
    ("dynamic-update-slice(p0, p1, p2)", (np.zeros((3, 4), "f4"), np.ones((1, 2), "f4"), PLACES),
     np.array([[0] * 4, [0, 0, 1, 1], [0] * 4], "f4")),
    ("dynamic-slice(p0, p1, p2), dynamic_slice_sizes={1,2}", (X, np.int32(1), np.int32(9)), X[1:, 1:]),
    ("compare(p0, p1), direction=LT", (X, X[::-1].copy()), X[::-1] > X),
    ("compare(p0, p1), direction=LT, type=TOTALORDER", (np.array([-0.0, 0.0], "f4"), np.array([0.0, -0.0], "f4")), np.array([True, False])),
    ("compare(p0, p1), direction=GT, type=UNSIGNED", (np.array([200, 1], "u4"), np.array([1, 200], "u4")), np.array([True, False])),
    ("iota()", (), np.arange(4, dtype="i4")),
    ("iota(), iota_dimension=1", (), np.broadcast_to(np.arange(3, dtype="i4"), (2, 3))),
    ("broadcast(p0)", (np.float32(2),), np.full((2, 2), 2, "f4")),
    ("broadcast(p0), dimensions={2,0}", (X,), np.broadcast_to(X.T[:, None], (3, 4, 2))),
    ("transpose(p0), dimensions={2,0,1}", (C,), C.transpose(2, 0, 1)),
    ("reverse(p0), dimensions={0,2}", (C,), C[::-1, :, ::-1]),
    ("reduce(p0, p1), dimensions={0,2}, to_apply=most", (C, np.float32(0)), np.maximum(C.max((0, 2)), 0)),
    ("reduce-window(p0, p1), window={size=1x2}, to_apply=most", (X, np.float32(-9)), np.maximum(X[:, :-1], X[:, 1:])),
    ("reduce-window(p0, p1), window={size=1x2 stride=1x2 pad=0_0x1_0}, to_apply=most", (X, np.float32(-9)),
     np.stack([X[:, 0], X[:, 1:].max(1)], 1)),
    ("reduce-window(p0, p1), window={size=2x2 rhs_dilate=1x2}, to_apply=most", (X, np.float32(-9)), X[:, ::2].max((0, 1)).reshape(1, 1)),
    ("dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={1}", (X, X + 1), X @ (X + 1).T),
    ("dot(p0, p1), lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_contracting_dims={0}",
     (C, np.arange(40, dtype="f4").reshape(4, 2, 5)), np.einsum("bik,kbj->bij", C, np.arange(40, dtype="f4").reshape(4, 2, 5))),
    ("sort(p0), dimensions={0}, to_apply=less", (X,), np.sort(X, 0)),
    ("cholesky(p0), lower=true", (SPD,), np.linalg.cholesky(WHOLE)),
    ("cholesky(p0)", (SPD.T.copy(),), np.linalg.cholesky(WHOLE).T),
    ("triangular-solve(p0, p1), left_side=true, lower=true, transpose_a=TRANSPOSE", (LOWER, ONES), np.linalg.solve(np.tril(LOWER).T, ONES)),
    ("triangular-solve(p0, p1), left_side=true", (LOWER, ONES), np.linalg.solve(np.triu(LOWER), ONES)),
    ("triangular-solve(p0, p1), unit_diagonal=true", (LOWER, ONES.T.copy()),
     np.linalg.solve((np.triu(LOWER, 1) + np.eye(3, dtype="f4")).T, ONES).T),
    ("fft(p0), fft_type=IRFFT, fft_length={4}", (np.fft.rfft(C).astype("c8"),), C),
    ("get-dimension-size(p0), dimensions={1}", (X,), np.int32(3)),
    ("convert(p0)", (np.array([1.9, -1.9, np.nan, 1e20], "f4"),), np.array([1, -1, 0, 2**31 - 1], "i4")),
    ("bitcast-convert(p0)", (np.array([1, -1], "f4"),), np.array([1, -1], "f4").view("i4")),
    ("reduce-precision(p0), exponent_bits=5, mantissa_bits=10", (X,), X.astype("f2").astype("f4")),
    ("clamp(p0, p1, p2)", (np.full_like(X, -0.2), X, np.full_like(X, 0.3)), X.clip(-0.2, 0.3)),
    *(("conditional(p0, p1, p1, p1), branch_computations={first, second, third}", (np.int32(k), X), want)
      for k, want in ((0, -X), (1, X), (2, X + X), (3, X + X), (-1, X + X), (-2, X + X))),
    ("conditional(p0, p1, p1), true_computation=first, false_computation=third", (np.array(True), X), -X),
    ("conditional(p0, p1, p1), true_computation=first, false_computation=third", (np.array(False), X), X + X),
    ("call(p0), to_apply=third", (X,), X + X),
    ("map(p0, p1), dimensions={0,1}, to_apply=most", (X, X[::-1].copy()), np.maximum(X, X[::-1])),
    ("convolution(p0, p1), window={size=2 rhs_reversal=1}, dim_labels=b0f_0io->fb0",
     (np.array([[[1], [2], [4]]], "f4"), np.array([[[1, 3]], [[10, 50]]], "f4")), np.array([[[12, 24]], [[56, 112]]], "f4")),
    ("convolution(p0, p1), window={size=1}, dim_labels=bf0_oi0->bf0, feature_group_count=2",
     (np.array([[[1, 2], [3, 4]]], "f4"), np.array([[[5]], [[7]]], "f4")), np.array([[[5, 10], [21, 28]]], "f4")),
    ("convolution(p0, p1), window={size=1}, dim_labels=bf0_oi0->bf0, batch_group_count=2",
     (np.array([[[1, 2]], [[3, 4]]], "f4"), np.array([[[5]], [[7]]], "f4")), np.array([[[5, 10], [21, 28]]], "f4")),
    ("select-and-scatter(p0, p1, p2), window={size=1x2 stride=1x2 pad=0_0x1_0}, select=less, scatter=most",
     (np.array([[5, 1, 2], [0, 3, 3]], "f4"), np.array([[7, -8], [9, 4]], "f4"), np.float32(-1)), np.array([[7, -1, -1], [9, -1, 4]], "f4")),
    ("scatter(p0, p1, p2), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=most",
     (X, np.array([1, 1], "i4"), np.array([[9, -9, -9], [-9, 9, -9]], "f4")), np.array([X[0], [9, 9, X[1, 2]]], "f4")),
    ("gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}",
     (X, np.array([1, 0, 7], "i4")), X[[1, 0, 1]]),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[re.sub(r"\s+", " ", line)[:80] for line, _, _ in ROWS])
def test_forms_give_what_numpy_gives(row: tuple[str, tuple[Array, ...], Any]) -> None:
    line, inputs, want = row
    want = np.asarray(want)
    (got,) = evaluate(module_of(shape_of(want), line, inputs), list(inputs))
    assert (np.asarray(got).dtype, np.shape(got)) == (want.dtype, want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_algorithms_of_random_bits_are_distinguished() -> None:
    """By what StableHLO's words for them give, whose values are tested against XLA's."""
    state = np.array([1, 2], "u8")
    found = []
    for name, word in (("rng_three_fry", "THREE_FRY"), ("rng_philox", "PHILOX")):
        text = f"HloModule m\nENTRY e {{\n  s = u64[2] parameter(0)\n  ROOT r = (u64[2], u32[4]) rng-bit-generator(s), algorithm={name}\n}}\n"
        module = read(Source("t", text), "hlo").module
        assert [n.attr("rng_algorithm") for n in module.entry.nodes if n.op.name == "rng_bit_generator"] == [word]
        found.append(np.asarray(evaluate(module, [state])[1]))
    assert not np.array_equal(*found)


def test_a_normalisation_by_hand() -> None:
    """Over all axes but the one that is named."""
    scale, offset, mean, var = (np.array(v, "f4") for v in ([1, 2, 3], [0, 1, 0], [0.5, 0, 1], [1, 4, 0.25]))
    params = "".join(f"  v{k} = f32[3] parameter({k + 1})\n" for k in range(4))
    text = f"HloModule m\nENTRY e {{\n  x = f32[2,3] parameter(0)\n{params}  ROOT r = f32[2,3] batch-norm-inference(x, v0, v1, v2, v3), epsilon=0.75, feature_index=1\n}}\n"
    (got,) = evaluate(read(Source("t", text), "hlo").module, [X, scale, offset, mean, var])
    np.testing.assert_allclose(got, (X - mean) / np.sqrt(var + np.float32(0.75)) * scale + offset, rtol=1e-6)


@pytest.mark.parametrize(("given", "shape", "layout", "want"), [
    ("", (3, 2), "{0,1}", lambda x: x.T), ("{0,1}", (6,), "{0}", lambda x: x.T.reshape(-1)), ("{0,1}", (3, 2), "{1,0}", lambda x: x.T),
    ("{0,1}", (2, 3), "{0,1}", lambda x: x), ("", (1, 6), "{0,1}", lambda x: x.reshape(1, 6)),
])  # fmt: skip
def test_bitcasts_go_by_the_layouts(given: str, shape: tuple[int, ...], layout: str, want: Any) -> None:
    """The same bytes in the same order in memory, the last axis of a layout being the one that varies least."""
    (got,) = evaluate(module_of(f"f32[{','.join(map(str, shape))}]{layout}", "bitcast(p0)", (X,), (given,)), [X])
    np.testing.assert_array_equal(got, want(X))


def test_bitcasts_of_three_axes() -> None:
    """Such permutations as are not their own inverse."""
    (got,) = evaluate(module_of("f32[4,2,3]{0,2,1}", "bitcast(p0)", (C,)), [C])
    np.testing.assert_array_equal(got, C.transpose(2, 0, 1))
    (got,) = evaluate(module_of("f32[24]{0}", "bitcast(p0)", (C,), ("{0,2,1}",)), [C])
    np.testing.assert_array_equal(got, C.transpose(1, 2, 0).reshape(-1))
    (got,) = evaluate(module_of("s32[4,2,3]{0,2,1}", "bitcast(p0)", (C,)), [C])
    np.testing.assert_array_equal(got, C.view("i4").transpose(2, 0, 1))


def test_the_greatest_or_the_least() -> None:
    shape = "(f32[2,2], s32[2,2])"
    values, places = evaluate(module_of(shape, "topk(p0), k=2, largest=true", (X,)), [X])
    np.testing.assert_array_equal(values, -np.sort(-X)[:, :2])
    np.testing.assert_array_equal(places, np.argsort(-X)[:, :2])
    assert any(n.op is opaque for n in module_of(shape, "topk(p0), k=2, largest=false", (X,)).entry.nodes)
