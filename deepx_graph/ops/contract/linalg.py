"""Factorisations, solves and Fourier transforms of the trailing axes; leading axes are batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph import blas
from deepx_graph.errors import InferError
from deepx_graph.ir import Attr, Op, Operand, Relation, one_of
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
from deepx_graph.literal import Array
from deepx_graph.ops.helpers import like, one, written_in
from deepx_graph.types import C64, C128, F32, F64, Type, as_tensor, merge_dims, same_dim

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


cholesky: Op = Op(
    "cholesky", "The triangular factor of positive definite matrices: a = l l^H, or u^H u; NaN where a matrix is none.",
    operands=(Operand("a", type=_MATRICES),), attrs=(Attr("lower", "bool", False),), infer=lambda types, lower: types[0],
    eval=_cholesky, scratch=lambda types, result, lower: 6 * wide(types[0], 4), vjp=written_in("linalg", "cholesky_vjp"),
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
    infer=_solve_type, eval=_solve,
    scratch=lambda types, result, *_: 5 * wide(types[0], 4) + 4 * wide(types[1], 4),
    vjp=written_in("linalg", "triangular_solve_vjp"), source="StableHLO triangular_solve",
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
    (x,) = xs
    axes = tuple(range(-len(fft_length), 0))
    small = x.dtype in (np.float32, np.complex64)
    real_result = fft_type == "IRFFT"
    dtype: Any = (np.float32 if real_result else np.complex64) if small else (np.float64 if real_result else np.complex128)
    if x.size == 0 or 0 in fft_length:
        last = {"RFFT": fft_length[-1] // 2 + 1 if fft_length[-1] else 0, "IRFFT": fft_length[-1]}.get(fft_type, x.shape[-1])
        return np.zeros((*x.shape[:-1], last), dtype)
    transform: Any = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}[fft_type]
    return like(transform(x, s=fft_length, axes=axes), dtype)


def _fft_scratch(types: Sequence[Type], result: Type, fft_type: str, fft_length: tuple[int, ...]) -> int:
    """Each axis in turn makes all anew, in double precision within."""
    return (3 * len(fft_length) + 1) * max(wide(types[0]), wide(result))


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
    infer=_fft_type, eval=_fft, scratch=_fft_scratch, vjp=written_in("linalg", "fft_vjp"),
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
