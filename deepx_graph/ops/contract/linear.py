"""Contractions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph import blas
from deepx_graph.errors import InferError
from deepx_graph.ir import Attr, Builder, Node, Op
from deepx_graph.ir.constraint import NON_NEGATIVE, TENSOR, axes_of, equally_many, same_element_type
from deepx_graph.ir.evaluation import WORD, size
from deepx_graph.literal import Array
from deepx_graph.ops.factors.contract import DOT_GENERAL
from deepx_graph.ops.helpers import is_int, loops_in, pair, wider
from deepx_graph.ops.tensor.layout import dims_of, transpose
from deepx_graph.types import TensorType, Type, as_tensor, nbytes, same_dim, tensor

Axes = tuple[int, ...]


def free_axes(rank: int, *taken: Axes) -> Axes:
    """The axes that are none of those."""
    return tuple(k for k in range(rank) if not any(k in axes for axes in taken))


def _dot_type(types: Sequence[Type], lhs_batch: Axes, rhs_batch: Axes, lhs_contract: Axes, rhs_contract: Axes) -> Type:
    lhs, rhs = as_tensor(types[0], 0), as_tensor(types[1], 1)
    if lhs.dims is None or rhs.dims is None:
        return tensor(lhs.dtype, None)
    for i, j in zip(lhs_batch + lhs_contract, rhs_batch + rhs_contract, strict=True):
        if not same_dim(lhs.dims[i], rhs.dims[j]):
            raise InferError(f"dimension {i} of {lhs} and dimension {j} of {rhs} differ", operand=1, expected=f"size {lhs.dims[i]}")
    lhs_free, rhs_free = free_axes(len(lhs.dims), lhs_batch, lhs_contract), free_axes(len(rhs.dims), rhs_batch, rhs_contract)
    return lhs.with_dims([lhs.dims[k] for k in lhs_batch + lhs_free] + [rhs.dims[k] for k in rhs_free])


def _dot_eval(xs: Sequence[Array], lhs_batch: Axes, rhs_batch: Axes, lhs_contract: Axes, rhs_contract: Axes) -> Array:
    x, y = xs
    lhs_free, rhs_free = free_axes(x.ndim, lhs_batch, lhs_contract), free_axes(y.ndim, rhs_batch, rhs_contract)
    batch = [x.shape[k] for k in lhs_batch]
    rows, columns = [x.shape[k] for k in lhs_free], [y.shape[k] for k in rhs_free]
    depth = math.prod(x.shape[k] for k in lhs_contract)
    left = np.transpose(x, lhs_batch + lhs_free + lhs_contract).reshape(*batch, math.prod(rows), depth)
    right = np.transpose(y, rhs_batch + rhs_contract + rhs_free).reshape(*batch, depth, math.prod(columns))
    product = _in_order(left, right) if depth <= FEW_TERMS and _adds_in_itself(x.dtype) else products(left, right)
    return np.asarray(product).astype(x.dtype, copy=False).reshape((*batch, *rows, *columns))


FEW_TERMS = 8
"""Sums of so many terms are what the specification writes, a `reduce` of products. Of more terms no order is promised."""


def products(left: Array, right: Array) -> Array:
    """Matrix products of one dtype. Those of floats and complex numbers are summed in double precision, and given back so.

    Integers go to BLAS as f64 where no sum can leave the integers that f64 holds exactly; else they wrap as they go.
    """
    if is_int(left):
        if left.size and right.size and left.shape[-1] * _largest(left) * _largest(right) < 1 << 53:
            exact = blas.matmul(left.astype(np.float64), right.astype(np.float64))
            return np.asarray(exact.astype(np.int64).astype(left.dtype))
    elif left.dtype.kind != "b":
        return _in_double(left, right)
    return np.asarray(blas.matmul(left, right))


_PIECE = 1 << 20
"""Elements of an operand that are held in double precision at a time."""


def _in_double(left: Array, right: Array) -> Array:
    """Products of floats or complex numbers, over some of the depth at a time.

    Of a broadcast BLAS would take no view, and numpy add up the terms one by one: all pieces are copies.
    """
    wide, depth = wider(left.dtype), left.shape[-1]
    step = max(1, _PIECE * depth // max(1, left.size, right.size))
    total = np.zeros((*left.shape[:-1], right.shape[-1]), wide)
    for k in range(0, depth, step):
        some = slice(k, k + step)
        total += blas.matmul(left[..., some].astype(wide, order="C"), right[..., some, :].astype(wide, order="C"))
    return total


def _adds_in_itself(dtype: np.dtype[Any]) -> bool:
    """Whether short sums of that type are rounded to it: not those of integers, which are exact otherwise, nor of narrow floats."""
    return dtype.kind in "fc" and dtype.itemsize >= 4


def _largest(x: Array) -> int:
    """The greatest absolute value of integers."""
    return max(-int(x.min()), int(x.max()))


def _in_order(left: Array, right: Array) -> Array:
    """Sums of a few products, each product and sum rounded, in order: where terms cancel, nothing else gives what XLA gives."""
    total = np.zeros((*left.shape[:-1], right.shape[-1]), left.dtype)
    for k in range(left.shape[-1]):
        total += left[..., k, None] * right[..., k, None, :]
    return total


def _side(b: Builder, left: Node, right: Node, batch: tuple[Axes, Axes], contracted: tuple[Axes, Axes],
          axes: Sequence[int]) -> Node:
    """A product whose dimensions are `axes` of the wanted tensor, put in its order."""
    product = b(dot_general, left, right, lhs_batching_dimensions=batch[0], rhs_batching_dimensions=batch[1],
                lhs_contracting_dimensions=contracted[0], rhs_contracting_dimensions=contracted[1])  # fmt: skip
    return product if list(axes) == sorted(axes) else b(transpose, product, permutation=_inverse(axes))


def _inverse(order: Sequence[int]) -> Axes:
    return tuple(int(i) for i in np.argsort(np.asarray(order, dtype=np.int64)))


def _dot_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    x, y = node.inputs
    lhs_batch, rhs_batch, lhs_contract, rhs_contract = node.attrs
    lhs_free = free_axes(len(dims_of(x)), lhs_batch, lhs_contract)
    rhs_free = free_axes(len(dims_of(y)), rhs_batch, rhs_contract)
    nb, nl = len(lhs_batch), len(lhs_free)
    g_batch, g_left = tuple(range(nb)), tuple(range(nb, nb + nl))
    g_right = tuple(range(nb + nl, nb + nl + len(rhs_free)))
    # g . y has batch, free of x, contracted of y; x . g has batch, contracted of x, free of y: mostly in order already
    x_axes = [*lhs_batch, *lhs_free, *(lhs_contract[rhs_contract.index(k)] for k in sorted(rhs_contract))]
    y_axes = [*rhs_batch, *(rhs_contract[lhs_contract.index(k)] for k in sorted(lhs_contract)), *rhs_free]
    return (
        _side(b, g, y, (g_batch, rhs_batch), (g_right, rhs_free), x_axes),
        _side(b, x, g, (lhs_batch, g_batch), (lhs_free, g_left), y_axes),
    )


def _attrs(lhs_batch: Axes = (), rhs_batch: Axes = (), lhs_contract: Axes = (), rhs_contract: Axes = ()) -> dict[str, Axes]:
    return {"lhs_batching_dimensions": lhs_batch, "rhs_batching_dimensions": rhs_batch,
            "lhs_contracting_dimensions": lhs_contract, "rhs_contracting_dimensions": rhs_contract}


def _dot_flops(types: Sequence[Type], result: Type, *attrs: Axes) -> int:
    contracted, lhs = attrs[2], as_tensor(types[0], 0)
    return 2 * as_tensor(result).size * math.prod(lhs.shape[k] for k in contracted)


def is_copied(shape: Axes, *groups: Axes) -> bool:
    """Whether an array in the order of C is copied when each group of its axes becomes one: they are not neighbours in order."""
    for group in groups:
        axes = [k for k in group if shape[k] != 1]
        between = [k for a, b in itertools.pairwise(axes) for k in range(a + 1, b) if shape[k] != 1]
        if axes != sorted(axes) or between:
            return True
    return False


def _dot_scratch(types: Sequence[Type], result: Type, lhs_batch: Axes, rhs_batch: Axes, lhs_contract: Axes, rhs_contract: Axes
                 ) -> int:
    """Copies of operands of which axes become one, pieces of them (of integers, all) in double precision, and two such results."""
    dtype = as_tensor(result).dtype
    each = max(WORD, dtype.itemsize)
    shapes = [as_tensor(t).shape for t in types]
    axes = ((lhs_batch, lhs_contract), (rhs_batch, rhs_contract))
    copies = sum(nbytes(t) for t, s, (batch, contract) in zip(types, shapes, axes, strict=True)
                 if any(sum(s[k] != 1 for k in group) > 1 for group in (free_axes(len(s), batch, contract), contract)))
    depth = max(1, math.prod(shapes[0][k] for k in lhs_contract)) if dtype.is_differentiable else 1
    pieces = sum(min(size(t), max(_PIECE, size(t) // depth)) for t in types)
    return copies + each * (pieces + 2 * size(result))


dot_general: Op = Op(
    "dot_general", "Products summed over the contracting axes, for each index of the batching axes.",
    operands=pair(TENSOR), attrs=tuple(Attr(name, "ints", (), check=NON_NEGATIVE) for name in _attrs()),
    constraints=(
        same_element_type("lhs", "rhs"),
        equally_many("lhs_batching_dimensions", "rhs_batching_dimensions"),
        equally_many("lhs_contracting_dimensions", "rhs_contracting_dimensions"),
        axes_of("lhs", "lhs_batching_dimensions", "lhs_contracting_dimensions"),
        axes_of("rhs", "rhs_batching_dimensions", "rhs_contracting_dimensions"),
    ),
    sharding=DOT_GENERAL, algebraic=True, infer=_dot_type, eval=_dot_eval, element=loops_in("contract", "dot_general_element"),
    loops=loops_in("contract", "dot_general_loops"), scratch=_dot_scratch, vjp=_dot_vjp, flops=_dot_flops,
    assembly="operands (, batching = $lhs_batching_dimensions x $rhs_batching_dimensions)?"
             " (, contracting = $lhs_contracting_dimensions x $rhs_contracting_dimensions)?",
    source="StableHLO dot_general",
    samples=lambda rng: [
        ((rng.random((2, 3)), rng.random((3, 4))), _attrs((), (), (1,), (0,))),
        ((rng.random((2, 3, 4)), rng.random((2, 4, 5))), _attrs((0,), (0,), (2,), (1,))),
        ((rng.random((3, 2, 4, 5)), rng.random((5, 4, 3, 2))), _attrs((1,), (3,), (3, 2), (0, 1))),
        ((rng.random(3), rng.random(3)), _attrs((), (), (0,), (0,))),
        ((rng.random((2, 0)), rng.random((0, 3))), _attrs((), (), (1,), (0,))),
        ((rng.random(2), rng.random(3)), _attrs()),
    ],
)  # fmt: skip


def matmul(b: Builder, x: Node, y: Node) -> Node:
    """`x @ y` for equal ranks of 2 or more, leading axes being batches. Raises VerifyError when the shapes do not fit."""
    rank = len(dims_of(x))
    batch = tuple(range(rank - 2))
    return b(dot_general, x, y, **_attrs(batch, batch, (rank - 1,), (rank - 2,)))


def transposed(b: Builder, product: Node, permutation: Axes) -> Node | None:
    """transpose(dot_general(x, y)) as dot_general(y, x), with the free axes of x and y exchanged; else None.

    The sums are the same, in an order that neither product promises.
    """
    x, y = product.inputs
    lhs_batch, rhs_batch, lhs_contract, rhs_contract = product.attrs
    if not all(isinstance(i.type, TensorType) and i.type.dims is not None for i in (x, y)):
        return None
    batch = len(lhs_batch)
    left, right = (len(dims_of(i)) - batch - len(lhs_contract) for i in (x, y))
    if permutation != (*range(batch), *range(batch + left, batch + left + right), *range(batch, batch + left)):
        return None
    return b(dot_general, y, x, **_attrs(rhs_batch, lhs_batch, rhs_contract, lhs_contract))
