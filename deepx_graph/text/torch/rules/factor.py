"""Factorisations and what is made of them: systems of equations, inverses, determinants, norms and powers of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.products import determinant, product
from deepx_graph.text.torch.context import CallContext, Rule, Rules
from deepx_graph.types import F32, F64, I32, DType, TupleType, as_tensor, tensor

_LETTERS = {F32: "s", F64: "d"}


def _lapack(c: CallContext, routine: str, *operands: Node, results: Sequence[tuple[DType, Sequence[int]]],
            **options: str) -> list[Node]:
    """What a routine of LAPACK gives, as XLA calls it. Raises InferError for element types that it has no real routine for."""
    dtype = c.dtype_of(operands[0])
    if dtype not in _LETTERS:
        raise InferError(f"a factorisation of {dtype}", expected="f32 or f64")
    config = "{" + ", ".join(f"{name} = {ord(value)} : ui8" for name, value in options.items()) + "}"
    types = TupleType(tuple(tensor(d, tuple(shape)) for d, shape in results))
    call = c(ops.custom_call, *operands, target=f"lapack_{_LETTERS[dtype]}{routine}_ffi", types=types, backend_config=config)
    return [c.b.proj(call, k) for k in range(len(results))] if len(results) > 1 else [call]


def _turned(c: CallContext, x: Node) -> Node:
    rank = len(c.dims_of(x))
    return c.transposed(x, (*range(rank - 2), rank - 1, rank - 2))


def _qr_of(c: CallContext, x: Node, complete: bool = False) -> tuple[Node, Node]:
    *batch, m, n = c.shape_of(x)
    k, dtype = min(m, n), c.dtype_of(x)
    packed, tau = _lapack(c, "geqrf", x, results=((dtype, (*batch, m, n)), (dtype, (*batch, k))))
    columns = m if complete else k
    wide = packed
    if columns > n:
        wide = c(ops.concatenate, packed, c.full(0, tensor(dtype, (*batch, m, columns - n))), dimension=len(batch) + 1)
    elif columns < n:
        wide = c.sliced(packed, (0,) * (len(batch) + 2), (*batch, m, columns))
    (q,) = _lapack(c, "orgqr", wide, tau, results=((dtype, (*batch, m, columns)),))
    upper = c.sliced(packed, (0,) * (len(batch) + 2), (*batch, columns, n))
    return q, _half(c, upper, upper=True)


def _half(c: CallContext, x: Node, upper: bool) -> Node:
    """The upper or lower triangle, zeros elsewhere."""
    dims, rank = c.shape_of(x), len(c.dims_of(x))
    row, column = c.indices(I32, dims, rank - 2), c.indices(I32, dims, rank - 1)
    return c(ops.select, c(ops.compare, row, column, direction="LE" if upper else "GE"), x, c.full(0, as_tensor(x.type)))


def _triangular(c: CallContext, a: Node, b: Node, *, upper: bool, unit: bool = False, turned: bool = False) -> Node:
    return c(ops.triangular_solve, a, b, left_side=True, lower=not upper, unit_diagonal=unit,
             transpose_a="TRANSPOSE" if turned else "NO_TRANSPOSE")


def _solved(c: CallContext, a: Node, b: Node) -> Node:
    """The x of a x = b, by orthonormal columns and a triangle."""
    batch = c.shape_of(a)[:-2]
    if len(c.dims_of(b)) == len(batch) + 1 and c.shape_of(b)[:-1] == batch:
        return c.shaped(_solved(c, a, c.add_axes(b, (len(batch) + 1,))), c.shape_of(b))
    q, r = _qr_of(c, a)
    return _triangular(c, r, product(c, _turned(c, q), b), upper=True)


def _eye(c: CallContext, like: Node) -> Node:
    dims, rank = c.shape_of(like), len(c.dims_of(like))
    hit = c(ops.compare, c.indices(I32, dims, rank - 2), c.indices(I32, dims, rank - 1), direction="EQ")
    return c.to(hit, c.dtype_of(like))


def _diagonal(c: CallContext, x: Node) -> Node:
    rank = len(c.dims_of(x))
    return ops.reduction(c.b, ops.add, c(ops.multiply, x, _eye(c, x)), (rank - 1,))


def _status(c: CallContext, x: Node) -> Node:
    """The number that says that all went well, for each matrix."""
    return c.full(0, tensor(I32, c.shape_of(x)[:-2]))


def _solve(c: CallContext) -> Node:
    return _solved(c, c.node(0), c.node(1))


def _inverse(c: CallContext) -> Node:
    return _solved(c, c.node(), _eye(c, c.node()))


def _sign_and_log(c: CallContext) -> tuple[Node, Node]:
    x = c.node()
    shape, rank = c.shape_of(x), len(c.dims_of(x))
    _, r = _qr_of(c, x)
    size = ops.reduction(c.b, ops.add, c(ops.log, c(ops.abs_, _diagonal(c, r))), (rank - 2,))
    return c(ops.sign, determinant(c, x, shape[-1], shape[:-2])), size


def _determinant(c: CallContext) -> list[Node]:
    """The determinant; in place of the factors of the matrix and of their pivots, which nothing reads, the matrix and zeros."""
    x, shape = c.node(), c.shape_of(c.node())
    return [determinant(c, x, shape[-1], shape[:-2]), x, c.full(0, tensor(I32, shape[:-1]))]


def _log_determinant(c: CallContext) -> Node:
    sign, size = _sign_and_log(c)
    return c(ops.select, c(ops.compare, sign, c.like(0, sign), direction="LT"), c.full(math.nan, as_tensor(size.type)), size)


def _eigh_of(c: CallContext, x: Node, part: str = "L") -> tuple[Node, Node]:
    dtype, shape = c.dtype_of(x), c.shape_of(x)
    types = ((dtype, shape), (dtype, shape[:-1]), (I32, shape[:-2]))
    vectors, values, _ = _lapack(c, "syevd", x, results=types, mode="V", uplo=part)
    return values, vectors


def _eigh(c: CallContext) -> list[Node]:
    return list(_eigh_of(c, c.node(), c.text("UPLO", "L")))


def _svd_of(c: CallContext, x: Node, whole: bool = False) -> tuple[Node, Node, Node]:
    dtype, (*batch, m, n) = c.dtype_of(x), c.shape_of(x)
    k = min(m, n)
    left, right = ((m, m), (n, n)) if whole else ((m, k), (k, n))
    shapes = ((m, n), (k,), left, right)
    types = [*((dtype, (*batch, *shape)) for shape in shapes), (I32, tuple(batch))]
    _, s, u, v, _ = _lapack(c, "gesdd", x, mode="A" if whole else "S", results=types)
    return u, s, v


def _svd(c: CallContext) -> list[Node]:
    return list(_svd_of(c, c.node(), c.flag("full_matrices", c.call.operator.split(".")[1] == "linalg_svd")))


def _pseudo_inverse(c: CallContext) -> Node:
    x = c.node()
    u, s, v = _svd_of(c, x)
    shape, rank = c.shape_of(x), len(c.dims_of(x))
    most = c.along(ops.reduction(c.b, ops.maximum, s, (rank - 2,)), c.dims_of(s), tuple(range(rank - 2)))
    given = next((c.real(k) for k in ("rtol", "rcond") if c.has(k) and not isinstance(c.get(k), Node)), None)
    part = given if given is not None else max(shape[-2:]) * float(2.0 ** (-23 if c.dtype_of(x) is F32 else -52))
    above = c(ops.compare, s, c(ops.multiply, most, c.like(part, s)), direction="GT")
    over = c(ops.select, above, c(ops.divide, c.full(1, as_tensor(s.type)), s), c.full(0, as_tensor(s.type)))
    right = _turned(c, v)
    scaled = c(ops.multiply, right, c.along(over, c.dims_of(right), (*range(rank - 2), rank - 1)))
    return product(c, scaled, _turned(c, u))


def _qr(c: CallContext) -> list[Node]:
    mode = c.one_of("mode", "reduced", "reduced", "complete", "r")
    q, r = _qr_of(c, c.node(), mode == "complete")
    return [c.full(0, tensor(c.dtype_of(q), (0,))), r] if mode == "r" else [q, r]


def _solve_triangular(c: CallContext) -> Node:
    a, b = c.node(0), c.node(1)
    if not c.flag("left", True):  # x a = b, turned over
        made = _triangular(c, a, _turned(c, b), upper=c.flag("upper"), unit=c.flag("unitriangular"), turned=True)
        return _turned(c, made)
    return _triangular(c, a, b, upper=c.flag("upper"), unit=c.flag("unitriangular"))


def _old_triangular(c: CallContext) -> list[Node]:
    b, a = c.node(0), c.node(1)
    return [_triangular(c, a, b, upper=c.flag("upper", True), unit=c.flag("unitriangular"), turned=c.flag("transpose")), a]


def _cholesky_solve(c: CallContext) -> Node:
    b, factor, upper = c.node(0), c.node(1), c.flag("upper")
    first = _triangular(c, factor, b, upper=upper, turned=upper)
    return _triangular(c, factor, first, upper=upper, turned=not upper)


def _cholesky_inverse(c: CallContext) -> Node:
    factor, upper = c.node(), c.flag("upper")
    first = _triangular(c, factor, _eye(c, factor), upper=upper, turned=upper)
    return _triangular(c, factor, first, upper=upper, turned=not upper)


def _cholesky_ex(c: CallContext) -> list[Node]:
    made = _half(c, c(ops.cholesky, c.node(), lower=True), upper=False)
    return [_turned(c, made) if c.flag("upper") else made, _status(c, made)]


def _power(c: CallContext) -> Node:
    x, n = c.node(), c.number("n")
    base = _solved(c, x, _eye(c, x)) if n < 0 else x
    made: Node | None = None
    for k, bit in enumerate(bits := f"{abs(n):b}"[::-1]):
        if bit == "1":
            made = base if made is None else product(c, made, base)
        if k + 1 < len(bits):
            base = product(c, base, base)
    return _eye(c, x) if made is None else made


ORDER, SQUARINGS = 12, 10
"""Terms of the series of the exponential, and how often it is squared: exact to rounding for norms up to 500."""


def _exponential(c: CallContext) -> Node:
    """Scaling and squaring of Taylor's series (Higham, Functions of Matrices, chapter 10)."""
    x = c.node()
    small = c(ops.multiply, x, c.like(2.0**-SQUARINGS, x))
    made = _eye(c, x)
    for k in range(ORDER, 0, -1):
        made = c(ops.add, _eye(c, x), c(ops.multiply, product(c, small, made), c.like(1 / k, x)))
    for _ in range(SQUARINGS):
        made = product(c, made, made)
    return made


def _trace(c: CallContext) -> Node:
    return ops.reduction(c.b, ops.add, c.to(_diagonal(c, c.node()), c.result_type()), (0,))


def _matrix_norm(c: CallContext) -> Node:
    """Of the last two axes, unless others are named."""
    x, word, rank = c.node(), c.get("ord", "fro"), len(c.dims_of(c.node()))
    axes = c.axes("dim") if c.has("dim") else (rank - 2, rank - 1)
    rest = [k for k in range(rank) if k not in axes]
    moved = c.transposed(x, (*rest, *axes))
    n = len(rest)
    if word in ("fro", "nuc", 2, -2):
        made = c(ops.sqrt, ops.reduction(c.b, ops.add, c(ops.multiply, moved, moved), (n, n + 1))) if word == "fro" else None
        if made is None:
            s = _svd_of(c, moved)[1]
            made = ops.reduction(c.b, {"nuc": ops.add, 2: ops.maximum, -2: ops.minimum}[word], s, (n,))
    elif word in (1, -1, math.inf, -math.inf):
        sums = ops.reduction(c.b, ops.add, c(ops.abs_, moved), (n + (abs(word) != 1),))
        made = ops.reduction(c.b, ops.maximum if word > 0 else ops.minimum, sums, (n,))
    else:
        raise InferError(f"the norm {word!r:.20} of matrices", expected="fro | nuc | inf | -inf | 1 | -1 | 2 | -2")
    return c.add_axes(made, sorted(axes)) if c.flag("keepdim") else made


def _with_status(rule: Rule) -> Rule:
    """The same, and that all went well."""
    return lambda c: [rule(c), _status(c, c.node())]


FACTOR: Rules = {
    "linalg_solve": _solve, "linalg_solve_ex": _with_status(_solve), **dict.fromkeys(("linalg_inv", "inverse"), _inverse),
    "_linalg_solve_ex": lambda c: [_solve(c), c.node(0), c.full(0, tensor(I32, c.shape_of(c.node())[:-1])), _status(c, c.node())],
    "linalg_inv_ex": _with_status(_inverse), **dict.fromkeys(("linalg_slogdet", "slogdet"), lambda c: list(_sign_and_log(c))),
    "_linalg_slogdet": lambda c: [*_sign_and_log(c), c.node(), c.full(0, tensor(I32, c.shape_of(c.node())[:-1]))],
    "_linalg_det": _determinant, "logdet": _log_determinant,
    "linalg_eigh": _eigh, "_linalg_eigh": _eigh, "linalg_eigvalsh": lambda c: _eigh(c)[0],
    **dict.fromkeys(("linalg_svd", "_linalg_svd"), _svd), "linalg_svdvals": lambda c: _svd_of(c, c.node())[1],
    **dict.fromkeys(("linalg_pinv", "pinverse"), _pseudo_inverse), "linalg_qr": _qr, "linalg_solve_triangular": _solve_triangular,
    "triangular_solve": _old_triangular, "cholesky_solve": _cholesky_solve, "cholesky_inverse": _cholesky_inverse,
    "linalg_cholesky_ex": _cholesky_ex, **dict.fromkeys(("linalg_matrix_power", "matrix_power"), _power),
    **dict.fromkeys(("matrix_exp", "linalg_matrix_exp"), _exponential), "trace": _trace, "linalg_matrix_norm": _matrix_norm,
}  # fmt: skip
