"""Operators that make tensors from nothing, and those that change element types."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import LimitError
from deepx_graph.ir import Node
from deepx_graph.ops.known import NotKnown
from deepx_graph.text.torch.context import CallContext, Rule, Rules
from deepx_graph.types import F32, F64, I64, Dim, DType, tensor


def filled_with(c: CallContext, value: Any, sizes: Sequence[Dim]) -> Node:
    """A tensor of these sizes of one value, which may be a tensor without axes."""
    dtype = c.result_type()
    if isinstance(value, (bool, int, float, complex)):
        return c.full(np.asarray(value).astype(dtype.np), tensor(dtype, tuple(sizes)))
    return c.filled(c.shaped(c.as_node(value, dtype), ()), tuple(sizes))


def _filled(value: Any, key: int = 0) -> Rule:
    """By sizes; `new_zeros` has them after a tensor."""
    return lambda c: filled_with(c, value, c.sizes(key))


def _like(value: Any) -> Rule:
    return lambda c: filled_with(c, value, c.dims_of(c.node()))


def _full(c: CallContext) -> Node:
    return filled_with(c, c.get(1), c.sizes(0))


def _new_full(c: CallContext) -> Node:
    return filled_with(c, c.get(2), c.sizes(1))


def _full_like(c: CallContext) -> Node:
    return filled_with(c, c.get(1), c.dims_of(c.node()))


def _fill(c: CallContext) -> Node:
    return filled_with(c, c.get(1), c.dims_of(c.node()))


def _scalar_tensor(c: CallContext) -> Node:
    return c.as_node(c.get(0), c.result_type())


def _arange(c: CallContext) -> Node:
    overload = c.call.operator.rpartition(".")[2]
    names = ("end",) if overload == "default" else ("start", "end")
    given = [c.get(n, c.get(k)) for k, n in enumerate(names)]
    start, end = (0, given[0]) if len(given) == 1 else given
    step = c.get("step", c.get(2, 1) if overload == "start_step" else 1)
    dtype = c.result_type()
    size = c.result().sizes[0]
    if not isinstance(size, int) or not all(isinstance(v, (int, float)) for v in (start, end, step)):
        bounds = [c.size(v) if not isinstance(v, float) else v for v in (start, end, step)]
        if any(isinstance(v, str) for v in bounds):
            if bounds[0] == 0 and bounds[2] == 1 and bounds[1] == size:
                return c(ops.iota, dtype=dtype, shape=(size,), iota_dimension=0)
            raise NotKnown("how many numbers there are is not known")
        start, end, step = (v for v in bounds if not isinstance(v, str))
        size = max(0, math.ceil((end - start) / step))
    if size > c.limit:
        raise LimitError(f"a range of {size} elements")
    if dtype.is_integer and start == 0 and step == 1:
        return c(ops.iota, dtype=dtype, shape=(size,), iota_dimension=0)
    return c.constant(start + step * np.arange(size, dtype=np.float64 if dtype.is_float else np.int64), dtype)


def _linspace(c: CallContext) -> Node:
    start, end, count = c.real("start"), c.real("end"), c.number("steps")
    if count > c.limit:
        raise LimitError(f"{count} numbers")
    return c.constant(np.linspace(start, end, count), c.result_type())


def _eye(c: CallContext) -> Node:
    n = c.number(0)
    m = c.number("m", n)
    if n * m > c.limit:
        raise LimitError(f"a matrix of {n} by {m}")
    dims = (n, m)
    off = c(ops.subtract, c.indices(I64, dims, 1), c.indices(I64, dims, 0))
    return c.to(c(ops.compare, off, c.like(0, off), direction="EQ"), c.result_type())


def _tri_indices(upper: bool) -> Rule:
    def build(c: CallContext) -> Node:
        rows, columns, offset = c.number(0), c.number(1), c.number(2, 0)
        if rows * columns > c.limit:
            raise LimitError(f"the places of {rows} by {columns}")
        made = np.triu_indices(rows, offset, columns) if upper else np.tril_indices(rows, offset, columns)
        return c.constant(np.stack(made), c.result_type())

    return build


def _block_diagonal(c: CallContext) -> Node:
    """Matrices along the diagonal of one, zeros elsewhere."""
    parts = [c.shaped(x, ((1,) * 2 + c.shape_of(x))[-2:]) for x in c.nodes()]
    width = sum(c.shape_of(x)[1] for x in parts)
    rows, at = list[Node](), 0
    for x in parts:
        size = c.shape_of(x)[1]
        rows.append(c(ops.pad, x, c.like(0, x), edge_padding_low=(0, at), edge_padding_high=(0, width - at - size),
                      interior_padding=(0, 0)))  # fmt: skip
        at += size
    return c(ops.concatenate, *rows, dimension=0) if len(rows) > 1 else rows[0]


def _cartesian(c: CallContext) -> Node:
    """Each choice of one element of each vector, as rows."""
    xs = c.nodes()
    if len(xs) == 1:
        return xs[0]
    dims = tuple(c.shape_of(x)[0] for x in xs)
    columns = [c.shaped(c.along(x, dims, (k,)), (math.prod(dims), 1)) for k, x in enumerate(xs)]
    return c(ops.concatenate, *columns, dimension=1)


def _vandermonde(c: CallContext) -> Node:
    """The powers of a vector as columns, falling unless asked otherwise."""
    x = c.to(c.node(), c.result_type())
    n = c.number("N", c.shape_of(x)[0])
    powers = np.arange(n) if c.flag("increasing") else np.arange(n)[::-1]
    dims = (c.shape_of(x)[0], n)
    return c(ops.power, c.along(x, dims, (0,)), c.along(c.constant(powers, c.dtype_of(x)), dims, (1,)))


# --- element types --------------------------------------------------------------------------------------------------


def _to(c: CallContext) -> Node:
    return c.to(c.node(), c.result_type())


def _bitcast(c: CallContext) -> Node:
    return c(ops.bitcast_convert, c.node(), dtype=c.result_type())


def _item(c: CallContext) -> Node:
    return c.shaped(c.node(), ())


def _complex(c: CallContext) -> Node:
    return c(ops.complex_, *c.pair())


def _polar(c: CallContext) -> Node:
    size, angle = c.pair()
    return c(ops.complex_, *(c(ops.multiply, size, c(op, angle)) for op in (ops.cosine, ops.sine)))


def _view_as_real(c: CallContext) -> Node:
    x = c.node()
    axis = len(c.dims_of(x))
    return c(ops.concatenate, *(c.add_axes(c(op, x), (axis,)) for op in (ops.real, ops.imag)), dimension=axis)


def _view_as_complex(c: CallContext) -> Node:
    x, dims = c.node(), c.shape_of(c.node())
    parts = [c.shaped(c.sliced(x, (*(0,) * (len(dims) - 1), k), (*dims[:-1], k + 1)), dims[:-1]) for k in (0, 1)]
    return c(ops.complex_, *parts)


# --- random numbers -------------------------------------------------------------------------------------------------


def drawn(c: CallContext, normal: bool, sizes: Sequence[Dim], dtype: DType) -> Node:
    """Random numbers by the seed of the run: evenly from 0 to 1, or normally. They are others than torch draws."""
    kind = dtype if dtype in (F32, F64) else F32
    seed = c(ops.module_seed, index=c.lowering.whole.next_draw())
    op = ops.rng_normal if normal else ops.rng_uniform
    return c.to(c(op, c.scalar(0, kind), c.scalar(1, kind), seed, shape=tuple(sizes), dtype=kind), dtype)


def _drawn(normal: bool) -> Rule:
    return lambda c: drawn(c, normal, c.sizes(0), c.result_type())


def _drawn_like(normal: bool) -> Rule:
    return lambda c: drawn(c, normal, c.dims_of(c.node()), c.result_type())


CREATE: Rules = {
    "zeros": _filled(0), "ones": _filled(1), **dict.fromkeys(("empty", "empty_strided", "empty_permuted"), _filled(0)),
    "full": _full, "zeros_like": _like(0), "ones_like": _like(1), "empty_like": _like(0), "full_like": _full_like,
    **dict.fromkeys(("new_zeros", "new_empty", "new_empty_strided"), _filled(0, 1)), "new_ones": _filled(1, 1),
    "new_full": _new_full,
    "fill": _fill, "zero": _like(0), "scalar_tensor": _scalar_tensor, "arange": _arange, "linspace": _linspace, "eye": _eye,
    "tril_indices": _tri_indices(False), "triu_indices": _tri_indices(True),
    **dict.fromkeys(("_to_copy", "to", "type_as", "_to_cpu"), _to), "view.dtype": _bitcast,
    **dict.fromkeys(("_local_scalar_dense", "item"), _item), "complex": _complex, "polar": _polar, "block_diag": _block_diagonal,
    "cartesian_prod": _cartesian, **dict.fromkeys(("vander", "linalg_vander"), _vandermonde), "view_as_real": _view_as_real,
    "view_as_complex": _view_as_complex, "rand": _drawn(False), "randn": _drawn(True), "rand_like": _drawn_like(False),
    "randn_like": _drawn_like(True),
}  # fmt: skip
