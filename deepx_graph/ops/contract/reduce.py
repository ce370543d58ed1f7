"""Broadcast and reduce, which are each other's transposes.

A reduction holds its combining function as `body`; where that is a single monoid op (`body.reducer`) numpy reduces whole arrays,
else the body is applied along the axis, whole slices at a time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from functools import cache
from operator import methodcaller
from typing import Any

import numpy as np

from deepx_graph.errors import InferError, VerifyError
from deepx_graph.ir import Attr, Builder, Function, Node, Op, Operand, Relation
from deepx_graph.ir.constraint import (
    DISTINCT,
    NON_NEGATIVE,
    SCALAR,
    TENSOR,
    axes_of,
    combines,
    one_for_each_axis,
    same_element_types,
    same_shape,
    some,
)
from deepx_graph.ir.evaluation import BLOCK
from deepx_graph.ir.signature import MANY
from deepx_graph.literal import Array
from deepx_graph.ops.factors.contract import REDUCE
from deepx_graph.ops.factors.layout import BROADCAST
from deepx_graph.ops.helpers import loops_in, one, placed_by, shape_attr, written_in
from deepx_graph.ops.interpret import combine, report_fallback
from deepx_graph.ops.math.elementwise import add, compare, maximum, minimum, multiply, negate, select
from deepx_graph.ops.tensor.layout import dims_of, reshape, show_dims, transpose
from deepx_graph.types import (
    BOOL,
    F64,
    Dims,
    DType,
    TensorType,
    TupleType,
    Type,
    as_tensor,
    merge_dims,
    nbytes,
    same_dim,
    scalar,
    tensor,
)


def _broadcast_type(types: Sequence[Type], shape: Dims, broadcast_dimensions: tuple[int, ...]) -> Type:
    operand = as_tensor(types[0], 0)
    if operand.dims is not None:
        for k, at in enumerate(broadcast_dimensions):
            if operand.dims[k] != 1 and not same_dim(operand.dims[k], shape[at]):
                raise InferError(
                    f"dimension {k} of {operand} cannot become {shape[at]} in {show_dims(shape)}", expected="an equal size, or 1"
                )
    return operand.with_dims(shape)


def _broadcast_eval(xs: Sequence[Array], shape: tuple[int, ...], broadcast_dimensions: tuple[int, ...]) -> Array:
    x = xs[0]
    order = np.argsort(broadcast_dimensions)
    aligned = [1] * len(shape)
    for k, at in enumerate(broadcast_dimensions):
        aligned[at] = x.shape[k]
    return np.broadcast_to(np.transpose(x, order).reshape(aligned), shape)


def _broadcast_staged(types: Sequence[Type], result: Type, shape: tuple[int, ...], at: tuple[int, ...]
                      ) -> Callable[..., Any] | None:
    if as_tensor(result).size > BLOCK:
        return None
    old, dtype = as_tensor(types[0]).shape, as_tensor(result).dtype.np
    aligned = tuple(old[at.index(k)] if k in at else 1 for k in range(len(shape)))
    if sorted(at) == list(at) and aligned == shape:
        return methodcaller("reshape", shape)
    order = tuple(int(k) for k in np.argsort(at))

    def run(x: Any) -> Array:
        out = np.empty(shape, dtype)
        out[...] = x.transpose(order).reshape(aligned)
        return out

    return run


def _broadcast_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    old, (new, at) = dims_of(node.inputs[0]), node.attrs
    summed = tuple(k for k in range(len(new)) if k not in at or (old[at.index(k)] == 1 and new[k] != 1))
    total = total_of(b, g, summed) if summed else g
    kept = [at.index(k) for k in range(len(new)) if k not in summed]
    order = tuple(int(i) for i in np.argsort(kept))
    total = b(transpose, total, permutation=order) if list(order) != sorted(order) else total
    return (total if total.type == node.inputs[0].type else b(reshape, total, shape=old),)


broadcast_in_dim: Op = Op(
    "broadcast_in_dim", "Repeated along new or size-1 axes: operand axis k becomes result axis broadcast_dimensions[k].",
    operands=one(TENSOR), attrs=(shape_attr(), Attr("broadcast_dimensions", "ints", check=NON_NEGATIVE & DISTINCT)),
    constraints=(one_for_each_axis("operand", "broadcast_dimensions"),
                 Relation("broadcast_dimensions within shape", ("broadcast_dimensions", "shape"),
                          lambda at, shape: all(k < len(shape) for k in at))),
    sharding=BROADCAST, infer=_broadcast_type,
    eval=_broadcast_eval, staged=_broadcast_staged, view=True, axes=lambda dims, shape, at: at,
    element=loops_in("layout", "broadcast_element"), vjp=_broadcast_vjp,
    assembly="operands, dims = $broadcast_dimensions",
    place=placed_by("broadcast_place"), source="StableHLO broadcast_in_dim",
    samples=lambda rng: [
        ((rng.random(3),), {"shape": (2, 3), "broadcast_dimensions": (1,)}),
        ((rng.random((3, 1)),), {"shape": (3, 2), "broadcast_dimensions": (0, 1)}),
        ((rng.random((2, 3)),), {"shape": (3, 4, 2), "broadcast_dimensions": (2, 0)}),
        ((np.float64(0.5),), {"shape": (2, 2), "broadcast_dimensions": ()}),
    ],
)  # fmt: skip


def is_broadcast(node: Node) -> bool:
    """Whether the node repeats its operand along axes."""
    return node.op is broadcast_in_dim


# --- reduce -------------------------------------------------------------------------------------------------------


def _reduce_type(types: Sequence[Type], dimensions: tuple[int, ...], body: Function) -> Type:
    half = len(types) // 2
    inputs = [as_tensor(t, k) for k, t in enumerate(types[:half])]
    dims = functools.reduce(merge_dims, (x.dims for x in inputs), None)
    if dims is not None:
        dims = tuple(d for k, d in enumerate(dims) if k not in dimensions)
    results = tuple(tensor(x.dtype, dims) for x in inputs)
    return results[0] if half == 1 else TupleType(results)


def _reduce_eval(xs: Sequence[Array], dimensions: tuple[int, ...], body: Function) -> Any:
    half = len(xs) // 2
    if half == 1 and body.reducer is not None:
        return _reduce_monoid(xs[0], xs[1], dimensions, body.reducer)
    rest = [k for k in range(xs[0].ndim) if k not in dimensions]
    order = [*dimensions, *rest]
    kept = tuple(xs[0].shape[k] for k in rest)
    count = math.prod(xs[0].shape[k] for k in dimensions)
    flat = [np.transpose(x, order).reshape(count, *kept) for x in xs[:half]]
    report_fallback("one slice after the other")
    if count > _LONG and count > math.prod(kept):
        flat, count = _in_pairs(flat, body), min(count, 1)
    total: Sequence[Array] = [np.broadcast_to(i, kept).copy() for i in xs[half:]]
    for row in range(count):
        total = combine(body, total, [x[row] for x in flat])
    results = tuple(np.broadcast_to(t, kept).astype(x.dtype, copy=False) for t, x in zip(total, xs, strict=False))
    return results[0] if half == 1 else results


def _reduce_scratch(types: Sequence[Type], result: Type, dimensions: tuple[int, ...], body: Function) -> int:
    """By a monoid what that widens. By a body the operands with the reduced axes first, halves of them, and totals."""
    half = len(types) // 2
    inputs = [as_tensor(t) for t in types[:half]]
    if half == 1 and body.reducer is not None and body.reducer.monoid is not None:
        return body.reducer.monoid.scratch(inputs[0], dimensions) + nbytes(result)
    return sum(2 * t.nbytes for t in inputs) + 3 * nbytes(result)


_LONG = 1024
"""More slices than that, of few elements each, are combined in neighbouring pairs: a reducer is associative."""


def _in_pairs(rows: Sequence[Array], body: Function) -> list[Array]:
    """The rows combined into one, in their order."""
    while rows[0].shape[0] > 1:
        even = rows[0].shape[0] // 2 * 2
        new = combine(body, [x[0:even:2] for x in rows], [x[1:even:2] for x in rows])
        rows = [np.concatenate([y, x[even:]]) for y, x in zip(new, rows, strict=True)]
    return list(rows)


def _reduce_monoid(x: Array, init: Array, axes: tuple[int, ...], op: Op) -> Array:
    assert op.monoid is not None and op.eval is not None
    if math.prod(x.shape[a] for a in axes) == 0:
        return np.broadcast_to(init, [d for k, d in enumerate(x.shape) if k not in axes]).copy()
    return np.asarray(op.eval([init, np.asarray(op.monoid(x, axes))]), dtype=x.dtype)


def _reduce_samples(rng: Any) -> Any:
    x, zero = rng.uniform(0.5, 1.5, (2, 3, 2)), np.float64(0)
    cases: list[Any] = [((x, zero), {"dimensions": d, "body": monoid_body(add, F64)}) for d in ((0,), (1, 2), (0, 1, 2), ())]
    cases += [((x, np.float64(i)), {"dimensions": (1,), "body": monoid_body(op, F64)})
              for op, i in ((multiply, 1), (maximum, -np.inf), (minimum, np.inf), (add, 0.5), (maximum, 1.0))]
    flags = (rng.random((2, 3, 2)) < 0.5, np.False_)
    cases += [((x, flags[0], zero, flags[1]), {"dimensions": d, "body": _greatest_flagged()}) for d in ((1,), (2, 0))]
    return [*cases, ((rng.uniform(-1, 1, (5, 2)), zero), {"dimensions": (0,), "body": _odds_body()}),
            ((rng.random((0, 2)), np.float64(0.5)), {"dimensions": (0,), "body": monoid_body(multiply, F64)})]


def _odds_body() -> Function:
    """x + y + x y: associative, and no op of its own."""
    b, t = Builder(), scalar(F64)
    return b.function("odds", (("a", t), ("b", t)), lambda x, y: [b(add, b(add, x, y), b(multiply, x, y))], public=False)


def _greatest_flagged() -> Function:
    """The greatest number, with the flag that came with it."""
    def body(x: Node, flag: Node, y: Node, other: Node) -> list[Node]:
        b = Builder()
        keep = b(compare, x, y, direction="GE")
        return [b(select, keep, x, y), b(select, keep, flag, other)]

    params = [(f"{name}{k}", scalar(d)) for k in range(2) for name, d in (("value", F64), ("flag", BOOL))]
    return Builder().function("greatest", params, body, public=False)


REDUCED = (Operand("inputs", variadic=True, type=TENSOR),
           Operand("init_values", "one for each input", variadic=True, type=TENSOR & SCALAR))  # fmt: skip
REDUCER = Attr("body", "function", summary="(total..., element...) -> total...")

reduce: Op = Op(
    "reduce", "Each input's elements along some axes combined into one, starting from the initial value.",
    operands=REDUCED, attrs=(Attr("dimensions", "ints"), REDUCER),
    constraints=(some("inputs"), same_shape("inputs"), same_element_types("inputs", "init_values"),
                 axes_of("inputs", "dimensions"), combines("body", "inputs")),
    sharding=REDUCE, algebraic=True, infer=_reduce_type, eval=_reduce_eval, element=loops_in("contract", "reduce_element"),
    loops=loops_in("contract", "reduce_loops"), scratch=_reduce_scratch, vjp=written_in("reduce", "reduce_vjp"),
    assembly="operands, dims = $dimensions, by $body",
    results=MANY, source="StableHLO reduce", samples=_reduce_samples,
)  # fmt: skip


def reducer_of(node: Node) -> Op | None:
    """The op by which a `reduce` joins elements, where it is one; None for other nodes."""
    return node.attr("body").reducer if node.op is reduce else None


@cache
def monoid_body(op: Op, dtype: DType) -> Function:
    """The reducer `(a, b) -> op(a, b)` on scalars of `dtype`."""
    t = scalar(dtype)
    return Builder().function(op.name, (("a", t), ("b", t)), lambda x, y: (Builder()(op, x, y),), public=False)


def reduced_axes(node: Node) -> tuple[int, ...] | None:
    """The axes that a `reduce` drops, in order; None for any other node."""
    return tuple(sorted(node.attr("dimensions"))) if node.op is reduce else None


def reduction(b: Builder, op: Op, x: Node, dimensions: Sequence[int]) -> Node:
    """`x` reduced along axes by a monoid op, from the op's identity. Raises VerifyError for an op that is no monoid.

    The sum of nothing is 0, not the -0 that sums of negative zeros begin with (numpy.sum, ReduceSum of ONNX).
    """
    assert isinstance(x.type, TensorType)
    identity = op.identity_for(x.type.dtype)
    if identity == 0 and x.type.dims is not None and any(x.type.dims[k] == 0 for k in dimensions):
        identity = abs(identity)
    if op.monoid is None or identity is None:
        raise VerifyError(f"{op.name} does not reduce {x.type}")
    return b(reduce, x, b.like(identity, x), dimensions=tuple(dimensions), body=monoid_body(op, x.type.dtype))


def total_of(b: Builder, g: Node, dimensions: Sequence[int]) -> Node:
    """The sum of a cotangent along axes. The sum of what is negated is negated, which is less work."""
    if g.op is negate and len(dimensions):
        return b(negate, reduction(b, add, g.inputs[0], dimensions))
    return reduction(b, add, g, dimensions)
