"""Linear algebra: the functions of the standard and its extension `linalg`.

Products and triangular solves are operations of the graph. Factorisations are the custom calls to LAPACK that JAX makes, which
run on the host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from deepx_graph import ops
from deepx_graph.array_api.array import Array, C, as_array, as_matrices, cast, promoted
from deepx_graph.array_api.creation import eye, finfo, full, tril, triu
from deepx_graph.array_api.elementwise import (
    abs,
    add,
    choose,
    conj,
    divide,
    equal,
    greater,
    log,
    multiply,
    not_equal,
    pow,
    real_dtype,
    remainder,
    sign,
    sqrt,
    subtract,
)
from deepx_graph.array_api.errors import ArrayValueError
from deepx_graph.array_api.indexing import take_along_axis
from deepx_graph.array_api.manipulation import (
    axis_number,
    axis_numbers,
    broadcast_arrays,
    broadcast_to,
    concat,
    expand_dims,
    matrix_transpose,
    picked,
    reshape,
    stack,
    unstack,
)
from deepx_graph.array_api.reductions import count_nonzero, prod
from deepx_graph.array_api.reductions import max as greatest
from deepx_graph.array_api.reductions import min as least
from deepx_graph.array_api.reductions import sum as total
from deepx_graph.text.common.steps import joint_dims
from deepx_graph.types import DType, TupleType, tensor
from deepx_graph.types.dtypes import F64, I32, I64

# --- products ---------------------------------------------------------------------------------------------------------------


def matmul(x1: Any, x2: Any, /) -> Array:
    """Products of matrices over the last two axes, the others broadcast; a vector is a row on the left, a column on the right."""
    a, b = promoted(x1, x2)
    if not a.ndim or not b.ndim:
        raise ArrayValueError("a product of matrices has no operand without axes")
    if a.ndim == 1 or b.ndim == 1:
        rows = expand_dims(a, 0) if a.ndim == 1 else a
        columns = expand_dims(b, 1) if b.ndim == 1 else b
        found = matmul(rows, columns)
        *batch, m, n = found.shape
        return reshape(found, [*batch, *([m] if a.ndim > 1 else []), *([n] if b.ndim > 1 else [])])
    if a.shape[-1] != b.shape[-2]:
        raise ArrayValueError(f"matrices of {a.shape} and {b.shape} have no product")
    joint = _joint_batch(a, b)
    a, b = broadcast_to(a, (*joint, *a.shape[-2:])), broadcast_to(b, (*joint, *b.shape[-2:]))
    axes = tuple(range(len(joint)))
    return Array(C(ops.dot_general, a.node, b.node, lhs_batching_dimensions=axes, rhs_batching_dimensions=axes,
                   lhs_contracting_dimensions=(a.ndim - 1,), rhs_contracting_dimensions=(b.ndim - 2,)))


def _joint_batch(a: Array, b: Array) -> tuple[int, ...]:
    """The axes before the matrices, broadcast."""
    return tuple(int(d) for d in joint_dims([a.shape[:-2], b.shape[:-2]]))


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Array:
    """Products summed over the last axes of x1 and the first of x2, so many; or over two lists of axes."""
    a, b = promoted(x1, x2)
    if hasattr(axes, "__index__"):
        pairs: Sequence[Any] = (range(a.ndim - axes, a.ndim), range(axes))
    else:
        pairs = axes
    left, right = axis_numbers(tuple(pairs[0]), a.ndim), axis_numbers(tuple(pairs[1]), b.ndim)
    if [a.shape[k] for k in left] != [b.shape[k] for k in right]:
        raise ArrayValueError(f"the axes {tuple(left)} of {a.shape} and {tuple(right)} of {b.shape} are not of one size")
    return Array(C(ops.dot_general, a.node, b.node, lhs_contracting_dimensions=left, rhs_contracting_dimensions=right))


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """Products along an axis, summed, the first operand conjugated; the other axes broadcast."""
    a, b = promoted(x1, x2)
    sizes = a.shape[axis_number(axis, a.ndim)], b.shape[axis_number(axis, b.ndim)]
    if axis >= 0:
        raise ArrayValueError("the axis is counted from the end")
    if sizes[0] != sizes[1]:
        raise ArrayValueError(f"the axis {axis} of {a.shape} and {b.shape} is not of one size")
    found = multiply(conj(a), b)
    return total(found, axis=axis, dtype=found.dtype)


def outer(x1: Any, x2: Any, /) -> Array:
    """Every product of two vectors."""
    return multiply(expand_dims(x1, 1), expand_dims(x2, 0))


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """Cross products of vectors of three elements along an axis; the others broadcast."""
    a, b = broadcast_arrays(*promoted(x1, x2))
    size = a.shape[axis_number(axis, a.ndim)]
    if size != 3:
        raise ArrayValueError(f"a cross product of {size} elements")
    (a0, a1, a2), (b0, b1, b2) = unstack(a, axis=axis), unstack(b, axis=axis)
    rows = [subtract(multiply(p, q), multiply(r, s)) for p, q, r, s in ((a1, b2, a2, b1), (a2, b0, a0, b2), (a0, b1, a1, b0))]
    return stack(rows, axis=axis)


# --- parts and norms ----------------------------------------------------------------------------------------------------------


def diagonal(x: Any, /, *, offset: int = 0) -> Array:
    """The elements of a diagonal of matrices."""
    x = as_matrices(x)
    rows, columns = x.shape[-2:]
    places = np.arange(rows * columns).reshape(rows, columns).diagonal(offset)
    return picked(reshape(x, (*x.shape[:-2], rows * columns)), x.ndim - 2, places)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """The sum of a diagonal of matrices."""
    return total(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def _floating(x: Any) -> Array:
    x = as_array(x)
    return x if x.dtype.is_differentiable else cast(x, F64)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Array:
    """The norm of vectors along axes, or of all elements: (sum |x|**ord)**(1/ord), extremes for infinities, the count for 0."""
    x = _floating(x)
    axes = axis_numbers(axis, x.ndim)
    size = abs(x)
    if ord == 0:
        return cast(count_nonzero(size, axis=axes, keepdims=keepdims), size.dtype)
    if abs_infinite(ord):
        if math.prod(x.shape[a] for a in axes) == 0:
            return total(size, axis=axes, keepdims=keepdims)
        return (greatest if ord > 0 else least)(size, axis=axes, keepdims=keepdims)
    if ord == 1:
        return total(size, axis=axes, keepdims=keepdims)
    if ord == 2:
        return sqrt(total(multiply(size, size), axis=axes, keepdims=keepdims))
    return pow(total(pow(size, float(ord)), axis=axes, keepdims=keepdims), 1.0 / ord)


def abs_infinite(ord: Any) -> bool:
    """Whether the order of a norm is an infinity."""
    return isinstance(ord, float) and math.isinf(ord)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of matrices: `fro`, `nuc`, 1, -1, 2, -2, inf, -inf; None is `fro`. Raises ArrayValueError for another."""
    x = _floating(x)
    if ord in ("fro", None):
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        values = svdvals(x)
        found = total(values, axis=-1) if ord == "nuc" else (greatest if ord == 2 else least)(values, axis=-1)
    elif ord in (1, -1, math.inf, -math.inf):
        sums = total(abs(x), axis=-2 if ord in (1, -1) else -1)
        found = (greatest if ord > 0 else least)(sums, axis=-1)
    else:
        raise ArrayValueError(f"no norm of matrices is of order {ord!r}")
    return reshape(found, (*found.shape, 1, 1)) if keepdims else found


# --- factorisations -----------------------------------------------------------------------------------------------------------

_LETTERS = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}


def _lapack(routine: str, x: Array, *more: Array, results: Sequence[tuple[DType, tuple[int, ...]]], **options: str) -> list[Array]:
    """What a routine of LAPACK gives, as JAX calls it."""
    types = TupleType(tuple(tensor(dtype, shape) for dtype, shape in results))
    config = "{" + ", ".join(f"{name} = {ord(value)} : ui8" for name, value in options.items()) + "}"
    call = C(ops.custom_call, x.node, *(m.node for m in more), target=f"lapack_{_LETTERS[x.dtype.name]}{routine}_ffi", types=types,
             backend_config=config)
    return [Array(C.b.proj(call, k)) for k in range(len(results))] if len(results) > 1 else [Array(call)]


def _square(x: Any) -> Array:
    x = _floating(x)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ArrayValueError(f"an array of shape {x.shape} has no square matrices")
    return Array(x.node)


def _lu(x: Array) -> tuple[Array, Array]:
    """The factors of square matrices in one, and the pivots, from 1."""
    batch, n = x.shape[:-2], x.shape[-1]
    lu, pivots, _ = _lapack("getrf", x, results=((x.dtype, x.shape), (I32, (*batch, n)), (I32, batch)))
    return lu, pivots


def _triangular(a: Array, b: Array, lower: bool, unit: bool = False) -> Array:
    return Array(C(ops.triangular_solve, a.node, b.node, left_side=True, lower=lower, unit_diagonal=unit,
                   transpose_a="NO_TRANSPOSE"))


def _exchanged(b: Array, pivots: Array) -> Array:
    """The rows exchanged as the pivots say."""
    n = pivots.shape[-1]
    batch = pivots.shape[:-1]
    order = broadcast_to(Array(C.indices(I64, (n,), 0)), (*batch, n))
    columns = list(unstack(order, axis=-1))
    rows = unstack(subtract(cast(pivots, I64), 1), axis=-1)
    for k in range(n):
        held = columns[k]
        chosen = held
        for j in range(k + 1, n):
            hit = equal(rows[k], j)
            chosen = choose(hit, columns[j], chosen)
            columns[j] = choose(hit, held, columns[j])
        columns[k] = chosen
    index = stack(columns, axis=-1)
    return take_along_axis(b, broadcast_to(expand_dims(index, index.ndim), (*batch, n, b.shape[-1])), axis=-2)


def solve(x1: Any, x2: Any, /) -> Array:
    """The x of `x1 @ x = x2`, for square matrices x1; x2 is one vector, or matrices whose other axes broadcast."""
    a, b = promoted(x1, x2)
    a, b = _square(a), _floating(b)
    if b.ndim == 1:
        return reshape(solve(a, expand_dims(b, 1)), (*a.shape[:-2], b.shape[0]))
    if a.shape[-1] != as_matrices(b).shape[-2]:
        raise ArrayValueError(f"matrices of {a.shape} and {b.shape} make no system of equations")
    batch = _joint_batch(a, b)
    a, b = broadcast_to(a, (*batch, *a.shape[-2:])), broadcast_to(b, (*batch, *b.shape[-2:]))
    if not a.size or not b.size:
        return b
    lu, pivots = _lu(a)
    return _triangular(lu, _triangular(lu, _exchanged(b, pivots), lower=True, unit=True), lower=False)


def inv(x: Any, /) -> Array:
    """The inverses of square matrices; infinite or NaN where there is none."""
    x = _square(x)
    return solve(x, broadcast_to(eye(x.shape[-1], dtype=x.dtype), x.shape))


class SlogdetResult(NamedTuple):
    """What `slogdet` finds."""

    sign: Array
    logabsdet: Array


def _determinant(x: Array) -> tuple[Array, Array]:
    """The sign of the exchanges, and the diagonal of the factor."""
    lu, pivots = _lu(x)
    n = x.shape[-1]
    swaps = count_nonzero(not_equal(pivots, add(Array(C.indices(I32, (n,), 0)), 1)), axis=-1)
    return cast(subtract(1, multiply(2, remainder(swaps, 2))), x.dtype), diagonal(lu)


def det(x: Any, /) -> Array:
    """The determinants of square matrices."""
    x = _square(x)
    if not x.size:
        return full(x.shape[:-2], 1, dtype=x.dtype)
    exchanges, factors = _determinant(x)
    return multiply(exchanges, prod(factors, axis=-1))


def slogdet(x: Any, /) -> SlogdetResult:
    """The signs of determinants and the logarithms of their magnitudes."""
    x = _square(x)
    if not x.size:
        return SlogdetResult(full(x.shape[:-2], 1, dtype=x.dtype), full(x.shape[:-2], 0, dtype=real_dtype(x.dtype)))
    exchanges, factors = _determinant(x)
    return SlogdetResult(multiply(exchanges, prod(sign(factors), axis=-1)), total(log(abs(factors)), axis=-1))


def cholesky(x: Any, /, *, upper: bool = False) -> Array:
    """The triangular factors of positive definite matrices."""
    x = _square(x)
    factor = tril(Array(C(ops.cholesky, x.node, lower=True)))
    return conj(matrix_transpose(factor)) if upper else factor


class QRResult(NamedTuple):
    """What `qr` finds."""

    Q: Array
    R: Array


def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """Orthonormal columns and an upper triangle whose product is x; Q is square for `complete`. Raises ArrayValueError."""
    if mode not in ("reduced", "complete"):
        raise ArrayValueError(f"mode {mode!r} is neither 'reduced' nor 'complete'")
    x = _floating(as_matrices(x))
    (*batch, m, n), least_ = x.shape, min(x.shape[-2:])
    packed, tau = _lapack("geqrf", x, results=((x.dtype, x.shape), (x.dtype, (*batch, least_))))
    columns = m if mode == "complete" else least_
    wide = packed
    if columns > n:
        wide = concat([packed, full((*batch, m, columns - n), 0, dtype=x.dtype)], axis=-1)
    wide = wide[..., :columns]
    routine = "ungqr" if x.dtype.kind == "complex" else "orgqr"
    (q,) = _lapack(routine, wide, tau, results=((x.dtype, wide.shape),))
    return QRResult(q, triu(packed)[..., :columns, :])


class SVDResult(NamedTuple):
    """What `svd` finds."""

    U: Array
    S: Array
    Vh: Array


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """The singular values, falling, and the vectors on either side."""
    x = _floating(as_matrices(x))
    *batch, m, n = x.shape
    k = min(m, n)
    shapes = ((m, m), (n, n)) if full_matrices else ((m, k), (k, n))
    _, s, u, vh, _ = _lapack("gesdd", x, mode="A" if full_matrices else "S", results=(
        (x.dtype, x.shape), (real_dtype(x.dtype), (*batch, k)), (x.dtype, (*batch, *shapes[0])), (x.dtype, (*batch, *shapes[1])),
        (I32, tuple(batch))))  # fmt: skip
    return SVDResult(u, s, vh)


def svdvals(x: Any, /) -> Array:
    """The singular values, falling."""
    return svd(x, full_matrices=False).S


class EighResult(NamedTuple):
    """What `eigh` finds."""

    eigenvalues: Array
    eigenvectors: Array


def eigh(x: Any, /) -> EighResult:
    """The eigenvalues of symmetric or Hermitian matrices, rising, and their vectors as columns."""
    x = _square(x)
    routine = "heevd" if x.dtype.kind == "complex" else "syevd"
    vectors, values, _ = _lapack(routine, x, mode="V", uplo="L", results=(
        (x.dtype, x.shape), (real_dtype(x.dtype), x.shape[:-1]), (I32, x.shape[:-2])))  # fmt: skip
    return EighResult(values, vectors)


def eigvalsh(x: Any, /) -> Array:
    """The eigenvalues of symmetric or Hermitian matrices, rising."""
    return eigh(x).eigenvalues


def matrix_power(x: Any, n: int, /) -> Array:
    """Square matrices multiplied n times; for negative n their inverses."""
    x = as_array(x) if n >= 0 else inv(x)
    n = -n if n < 0 else n
    found = broadcast_to(eye(x.shape[-1], dtype=x.dtype), x.shape)
    while n:
        if n & 1:
            found = matmul(found, x)
        n >>= 1
        if n:
            x = matmul(x, x)
    return found


def _threshold(values: Array, x: Array, rtol: Any) -> Array:
    """Below which singular values count as zero."""
    relative: Any = max(x.shape[-2:]) * finfo(values.dtype).eps if rtol is None else rtol
    relative = expand_dims(relative, relative.ndim) if isinstance(relative, Array) else relative
    return multiply(greatest(values, axis=-1, keepdims=True), relative)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Array:
    """How many singular values are not below `rtol` times the greatest, as int64."""
    x = _floating(x)
    values = svdvals(x)
    return count_nonzero(greater(values, _threshold(values, x, rtol)), axis=-1)


def pinv(x: Any, /, *, rtol: Any = None) -> Array:
    """The pseudo-inverses; singular values below `rtol` times the greatest count as zero."""
    x = _floating(x)
    u, values, vh = svd(x, full_matrices=False)
    keep = greater(values, _threshold(values, x, rtol))
    inverse = choose(keep, divide(1, choose(keep, values, 1)), 0)
    scaled = multiply(conj(matrix_transpose(vh)), expand_dims(cast(inverse, x.dtype), inverse.ndim - 1))
    return matmul(scaled, conj(matrix_transpose(u)))


def _product(a: Any, b: Any) -> Any:
    return matmul(a, b) if all(hasattr(x, "__array__") for x in (a, b)) else NotImplemented


setattr(Array, "__matmul__", lambda self, other, /: _product(self, other))  # noqa: B010
setattr(Array, "__rmatmul__", lambda self, other, /: _product(other, self))  # noqa: B010
