"""Gradients of factorisations, solves and Fourier transforms, for complex numbers too.

Cotangents pair with tangents as the real part of sum(g * t), without conjugation, as in JAX. Only the triangle that an operation
reads has a gradient.
"""

from __future__ import annotations

import math

import numpy as np

from deepx_graph.ir import Builder, Node
from deepx_graph.ir.op import Cotangents
from deepx_graph.ops.contract.linalg import fft, triangular_solve
from deepx_graph.ops.contract.linear import matmul
from deepx_graph.ops.contract.reduce import broadcast_in_dim
from deepx_graph.ops.math.elementwise import add, compare, complex_, is_complex, multiply, negate, real, select
from deepx_graph.ops.math.special import conj
from deepx_graph.ops.tensor.layout import transpose
from deepx_graph.ops.tensor.shape import iota, pad
from deepx_graph.types import I32, as_tensor

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


def cholesky_vjp(b: Builder, node: Node, g: Node) -> Cotangents:
    """With P the lower triangle, its diagonal halved: P(S + S^H), where S = l^-T P(l^T g) conj(l)^-1."""
    factor = node
    if not node.attr("lower"):
        factor, g = _adjoint(b, node), _adjoint(b, g)
    inner = _triangle(b, matmul(b, _transposed(b, factor), g), True, 0.5)
    left = _solve(b, factor, inner, left_side=True, transpose_a="TRANSPOSE")
    whole = _solve(b, _conjugate(b, factor), left, left_side=False, transpose_a="NO_TRANSPOSE")
    found = _triangle(b, b(add, whole, _adjoint(b, whole)), True, 0.5)
    return (found if node.attr("lower") else _adjoint(b, found),)


def _solve(b: Builder, a: Node, rhs: Node, *, left_side: bool, transpose_a: str) -> Node:
    return b(triangular_solve, a, rhs, left_side=left_side, lower=True, unit_diagonal=False, transpose_a=transpose_a)


def triangular_solve_vjp(b: Builder, node: Node, g: Node) -> Cotangents:
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


def fft_vjp(b: Builder, node: Node, g: Node) -> Cotangents:
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
