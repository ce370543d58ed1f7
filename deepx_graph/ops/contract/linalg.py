"""Factorisations, solves and Fourier transforms of the trailing axes; leading axes are batches.

Cotangents pair with tangents as the real part of sum(g * t), without conjugation, as in JAX. Only the triangle that an operation
reads has a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph import blas
from deepx_graph.errors import InferError
from deepx_graph.ir import Attr, Builder, Node, Op, Operand, Relation, one_of
from deepx_graph.ir.constraint import (
    FLOATS,
    FLOATS_OR_COMPLEX,
    NON_NEGATIVE,
    SQUARE,
    dtypes,
    length,
    rank,
    same_element_type,
    tensor_of,
)
from deepx_graph.ir.evaluation import wide
from deepx_graph.ir.op import Cotangents
from deepx_graph.literal import Array
from deepx_graph.ops.contract.linear import matmul
from deepx_graph.ops.contract.reduce import broadcast_in_dim
from deepx_graph.ops.factors.index import CHOLESKY, FFT, TRIANGULAR_SOLVE
from deepx_graph.ops.helpers import like, loops_in, one
from deepx_graph.ops.math.elementwise import add, compare, complex_, is_complex, multiply, negate, real, select
from deepx_graph.ops.math.special import conj
from deepx_graph.ops.tensor.layout import transpose
from deepx_graph.ops.tensor.shape import iota, pad
from deepx_graph.types import C64, C128, F32, F64, I32, Type, as_tensor, merge_dims, same_dim

_MATRICES = FLOATS_OR_COMPLEX & SQUARE


def _wide(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype.itemsize < 4 else x


def _cholesky(xs: Sequence[Array], lower: bool) -> Array:
    """NaN where a matrix is not positive definite, as XLA gives; only one triangle is read."""
    a = _wide(xs[0])
    half = np.tril(a) if lower else np.swapaxes(np.triu(a), -1, -2).conj()
    strict = np.tril(half, -1)
    whole = half + np.swapaxes(strict, -1, -2).conj()
    flat = whole.reshape(math.prod(a.shape[:-2]), *a.shape[-2:])
    out = np.empty_like(flat)
    for k, matrix in enumerate(flat):
        try:
            out[k] = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            out[k] = np.nan
    factor = out.reshape(a.shape)
    return like(factor if lower else np.swapaxes(factor, -1, -2).conj(), xs[0].dtype)


def _positive_definite(rng: Any) -> Any:
    m = rng.standard_normal((2, 3, 3))
    z = m + 1j * rng.standard_normal((2, 3, 3))
    return [((a @ np.swapaxes(a, -1, -2).conj() + 3 * np.eye(3),), {"lower": lower}) for a in (m, z) for lower in (True, False)]


# --- matrices -----------------------------------------------------------------------------------------------------


def _transposed(b: Builder, x: Node) -> Node:
    rank = len(as_tensor(x.type).shape)
    return b(transpose, x, permutation=(*range(rank - 2), rank - 1, rank - 2))


def _conjugate(b: Builder, x: Node) -> Node:
    return b(conj, x) if is_complex(x.type) else x


def _adjoint(b: Builder, x: Node) -> Node:
    return _conjugate(b, _transposed(b, x))


def _triangle(b: Builder, x: Node, lower: bool, diagonal: float) -> Node:
    """One triangle of the matrices, the diagonal times a number, zero elsewhere."""
    shape = as_tensor(x.type).shape
    rows, columns = (b(iota, dtype=I32, shape=shape, iota_dimension=len(shape) - k) for k in (2, 1))
    inside = b(compare, rows, columns, direction="GT" if lower else "LT")
    strict = b(select, inside, x, b.like(0, x))
    if diagonal == 0:
        return strict
    scaled = x if diagonal == 1 else b(multiply, x, b.like(diagonal, x))
    return b(select, b(compare, rows, columns, direction="EQ"), scaled, strict)


def _cholesky_vjp(b: Builder, node: Node, g: Node) -> Cotangents:
    """With P the lower triangle, its diagonal halved: P(S + S^H), where S = l^-T P(l^T g) conj(l)^-1."""
    factor = node
    if not node.attr("lower"):
        factor, g = _adjoint(b, node), _adjoint(b, g)
    inner = _triangle(b, matmul(b, _transposed(b, factor), g), True, 0.5)
    left = _lower_solve(b, factor, inner, left_side=True, transpose_a="TRANSPOSE")
    whole = _lower_solve(b, _conjugate(b, factor), left, left_side=False, transpose_a="NO_TRANSPOSE")
    found = _triangle(b, b(add, whole, _adjoint(b, whole)), True, 0.5)
    return (found if node.attr("lower") else _adjoint(b, found),)


def _lower_solve(b: Builder, a: Node, rhs: Node, *, left_side: bool, transpose_a: str) -> Node:
    return b(triangular_solve, a, rhs, left_side=left_side, lower=True, unit_diagonal=False, transpose_a=transpose_a)


def _triangular_solve_vjp(b: Builder, node: Node, g: Node) -> Cotangents:
    """By the right-hand side w, the solution of the transposed system; by the matrix -w x^T, as it was transposed."""
    a = node.inputs[0]
    how, left, lower, unit = (node.attr(n) for n in ("transpose_a", "left_side", "lower", "unit_diagonal"))
    matrix = _conjugate(b, a) if how == "ADJOINT" else a
    by_b = b(triangular_solve, matrix, g, left_side=left, lower=lower, unit_diagonal=unit,
             transpose_a="TRANSPOSE" if how == "NO_TRANSPOSE" else "NO_TRANSPOSE")  # fmt: skip
    rows, columns = (by_b, node) if left == (how == "NO_TRANSPOSE") else (node, by_b)
    outer = matmul(b, rows, _transposed(b, columns)) if left else matmul(b, _transposed(b, rows), columns)
    by_a = _triangle(b, b(negate, outer), lower, 0 if unit else 1)
    return (_conjugate(b, by_a) if how == "ADJOINT" else by_a), by_b


# --- Fourier transforms -------------------------------------------------------------------------------------------


def _fft_vjp(b: Builder, node: Node, g: Node) -> Cotangents:
    """FFT and IFFT are symmetric; RFFT is the first half of an FFT, and IRFFT has RFFT's terms weighted."""
    kind, length = node.attrs
    operand = as_tensor(node.inputs[0].type)
    if 0 in operand.shape or 0 in length:
        return (None,)
    if kind == "RFFT":
        return (_by_real(b, g, length),)
    if kind == "IRFFT":
        return (_by_half(b, g, length),)
    return (b(fft, g, fft_type=kind, fft_length=length),)


def _by_real(b: Builder, g: Node, length: tuple[int, ...]) -> Node:
    shape = as_tensor(g.type).shape
    none = (0,) * len(shape)
    missing = (*none[1:], length[-1] - shape[-1])
    whole = b(pad, g, b.like(0, g), edge_padding_low=none, edge_padding_high=missing, interior_padding=none)
    return b(real, b(fft, whole, fft_type="FFT", fft_length=length))


def _by_half(b: Builder, g: Node, length: tuple[int, ...]) -> Node:
    """Terms that IRFFT takes for two, the omitted half being conjugate, count twice."""
    spectrum = b(fft, g, fft_type="RFFT", fft_length=length)
    type = as_tensor(spectrum.type)
    weights = np.full(type.shape[-1], 2 / math.prod(length))
    weights[0] /= 2
    if length[-1] % 2 == 0:
        weights[-1] /= 2
    weight = b.constant(weights, as_tensor(g.type).dtype)
    spread = b(broadcast_in_dim, weight, shape=type.shape, broadcast_dimensions=(len(type.shape) - 1,))
    return b(conj, b(multiply, spectrum, b(complex_, spread, b.like(0, spread))))


cholesky: Op = Op(
    "cholesky", "The triangular factor of positive definite matrices: a = l l^H, or u^H u; NaN where a matrix is none.",
    operands=(Operand("a", type=_MATRICES),), attrs=(Attr("lower", "bool", False),), sharding=CHOLESKY,
    infer=lambda types, lower: types[0],
    eval=_cholesky, loops=loops_in("linalg", "cholesky_loops"), vjp=_cholesky_vjp,
    scratch=lambda types, result, lower: 6 * wide(types[0], 4),
    flops=lambda types, result, lower: types[0].size * types[0].shape[-1] // 3,
    source="StableHLO cholesky", samples=_positive_definite,
)  # fmt: skip

TRANSPOSES = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


def _solve_type(types: Sequence[Type], left_side: bool, lower: bool, unit_diagonal: bool, transpose_a: str) -> Type:
    a, b = as_tensor(types[0], 0), as_tensor(types[1], 1)
    if a.dims is not None and b.dims is not None:
        if len(a.dims) != len(b.dims) or not same_dim(a.dims[-1], b.dims[-2 if left_side else -1]):
            raise InferError(f"{b} does not fit {a}", operand=1)
        merge_dims(a.dims[:-2], b.dims[:-2])
    return b


def _solve(xs: Sequence[Array], left_side: bool, lower: bool, unit_diagonal: bool, transpose_a: str) -> Array:
    a, b = map(_wide, xs)
    a = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        eye = np.eye(a.shape[-1], dtype=a.dtype)
        a = a * (1 - eye) + eye
    if transpose_a != "NO_TRANSPOSE":
        a = np.swapaxes(a, -1, -2)
        a = a.conj() if transpose_a == "ADJOINT" else a
    is_lower = lower == (transpose_a == "NO_TRANSPOSE")
    if left_side:
        return like(_substitute(a, b, is_lower), xs[1].dtype)
    swapped = _substitute(np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not is_lower)
    return like(np.swapaxes(swapped, -1, -2), xs[1].dtype)


def _substitute(a: Array, b: Array, lower: bool) -> Array:
    """Forward or back substitution, one row of all matrices at a time."""
    x = np.zeros_like(b)
    n = a.shape[-1]
    for k in range(n) if lower else range(n - 1, -1, -1):
        done = slice(0, k) if lower else slice(k + 1, n)
        known = blas.matmul(a[..., k : k + 1, done], x[..., done, :])[..., 0, :]
        x[..., k, :] = (b[..., k, :] - known) / a[..., k, k][..., None]
    return x


triangular_solve: Op = Op(
    "triangular_solve", "x with op(a) x = b, or x op(a) = b, for triangular a; the other triangle is not read.",
    operands=(Operand("a", type=_MATRICES), Operand("b", type=FLOATS_OR_COMPLEX & rank(2))),
    attrs=(Attr("left_side", "bool"), Attr("lower", "bool"), Attr("unit_diagonal", "bool"),
           Attr("transpose_a", "str", "NO_TRANSPOSE", check=one_of(*TRANSPOSES))),
    constraints=(same_element_type("a", "b"),),
    sharding=TRIANGULAR_SOLVE, infer=_solve_type, eval=_solve, loops=loops_in("linalg", "triangular_solve_loops"),
    scratch=lambda types, result, *_: 5 * wide(types[0], 4) + 4 * wide(types[1], 4),
    vjp=_triangular_solve_vjp, source="StableHLO triangular_solve",
    flops=lambda types, result, *_: types[1].size * types[0].shape[-1],
    samples=lambda rng: [
        ((rng.random((2, 3, 3)) + 2 * np.eye(3), rng.random((2, 3, 2) if left else (2, 2, 3))),
         {"left_side": left, "lower": low, "unit_diagonal": unit, "transpose_a": t})
        for left in (True, False) for low in (True, False) for unit in (True, False) for t in TRANSPOSES
    ] + [
        ((rng.random((3, 3)) + 1j * rng.random((3, 3)) + 2 * np.eye(3), rng.random((3, 3)) + 1j * rng.random((3, 3))),
         {"left_side": left, "lower": left, "unit_diagonal": False, "transpose_a": t}) for left in (True, False) for t in TRANSPOSES
    ],
)  # fmt: skip

_COMPLEX = {F32: C64, F64: C128}
_REAL = {C64: F32, C128: F64}


def _fft_type(types: Sequence[Type], fft_type: str, fft_length: tuple[int, ...]) -> Type:
    operand = as_tensor(types[0], 0)
    other = {"RFFT": _COMPLEX, "IRFFT": _REAL}.get(fft_type, {})
    result = operand.with_dtype(other.get(operand.dtype, operand.dtype))
    if operand.dims is None:
        return result
    lengths = (*fft_length[:-1], fft_length[-1] // 2 + 1) if fft_type == "IRFFT" else fft_length
    for have, need in zip(operand.dims[-len(lengths) :], lengths, strict=True):
        if not same_dim(have, need):
            raise InferError(f"lengths {list(fft_length)} do not fit {operand}", operand=0)
    last = {"RFFT": fft_length[-1] // 2 + 1 if fft_length[-1] else 0, "IRFFT": fft_length[-1]}.get(fft_type, operand.dims[-1])
    return result.with_dims((*operand.dims[:-1], last))


def _fft(xs: Sequence[Array], fft_type: str, fft_length: tuple[int, ...]) -> Array:
    """By scipy, which transforms several rows at a time, as numpy does not: up to twice as fast."""
    from scipy import fft

    (x,) = xs
    axes = tuple(range(-len(fft_length), 0))
    small = x.dtype in (np.float32, np.complex64)
    real_result = fft_type == "IRFFT"
    dtype: Any = (np.float32 if real_result else np.complex64) if small else (np.float64 if real_result else np.complex128)
    if x.size == 0 or 0 in fft_length:
        last = {"RFFT": fft_length[-1] // 2 + 1 if fft_length[-1] else 0, "IRFFT": fft_length[-1]}.get(fft_type, x.shape[-1])
        return np.zeros((*x.shape[:-1], last), dtype)
    transform: Any = {"FFT": fft.fftn, "IFFT": fft.ifftn, "RFFT": fft.rfftn, "IRFFT": fft.irfftn}[fft_type]
    return like(transform(x, s=fft_length, axes=axes), dtype)


def _fft_scratch(types: Sequence[Type], result: Type, fft_type: str, fft_length: tuple[int, ...]) -> int:
    """The result is made in place, axis after axis, for IRFFT after a copy of the operand."""
    return as_tensor(types[0]).nbytes


fft: Op = Op(
    "fft", "The Fourier transform of the trailing axes: FFT, IFFT, RFFT (of real numbers) or IRFFT (to real numbers).",
    operands=one(dtypes(F32, F64, C64, C128) & rank(1)),
    attrs=(Attr("fft_type", "str", check=one_of("FFT", "IFFT", "RFFT", "IRFFT")),
           Attr("fft_length", "ints", check=length(1, 3) & NON_NEGATIVE)),
    constraints=(
        Relation("floats for RFFT, complex numbers for the others", ("operand", "fft_type"),
                 lambda x, kind: (FLOATS if kind == "RFFT" else tensor_of("complex")).holds(x)),
        Relation("no more of fft_length than operand has axes", ("operand", "fft_length"),
                 lambda x, n: x.rank is None or len(n) <= x.rank),
    ),
    sharding=FFT, infer=_fft_type, eval=_fft, loops=loops_in("fft", "fft_loops"), scratch=_fft_scratch, vjp=_fft_vjp,
    flops=lambda types, result, kind, lengths: 5 * types[0].size * max(1, math.prod(lengths).bit_length() - 1),
    assembly="operands, $fft_type, length = $fft_length", source="StableHLO fft",
    samples=lambda rng: [
        ((rng.random((2, 4)) + 0j,), {"fft_type": "FFT", "fft_length": (4,)}),
        ((rng.random((2, 4)) + 0j,), {"fft_type": "IFFT", "fft_length": (2, 4)}),
        ((rng.random((2, 5)),), {"fft_type": "RFFT", "fft_length": (5,)}),
        ((rng.random((2, 3)) + 0j,), {"fft_type": "IRFFT", "fft_length": (5,)}),
    ] + [
        ((rng.random((2, 3, n)) + (1j * rng.random((2, 3, n)) if kind == "IRFFT" else 0),),
         {"fft_type": kind, "fft_length": length})
        for kind, n, length in (("RFFT", 4, (3, 4)), ("RFFT", 5, (2, 3, 5)), ("IRFFT", 3, (3, 4)), ("IRFFT", 3, (2, 3, 5)))
    ],
)  # fmt: skip
