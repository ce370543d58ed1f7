"""Relay's `nn` operators but for windows: products of matrices, normalisation, softmax, losses."""

from __future__ import annotations

from collections.abc import Callable

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.nn import back, centered, count, log_softmax, softmax
from deepx_graph.text.common.steps import ranked
from deepx_graph.text.relay.rules.context import Context, Operator
from deepx_graph.text.relay.rules.reduce import axes_of

# --- products -----------------------------------------------------------------------------------------------------


def product_of(c: Context, x: Node, y: Node, batch: tuple[int, int], contract: tuple[int, int]) -> Node:
    """Contracts one axis of each; `batch` is how many leading axes of each go together. In `out_dtype` where that is given."""
    dtype = c.dtype("out_dtype", ranked(x).dtype)
    many = tuple(range(batch[0]))
    return c(ops.dot_general, c.cast(x, dtype), c.cast(y, dtype), lhs_batching_dimensions=many, rhs_batching_dimensions=many,
             lhs_contracting_dimensions=(contract[0],), rhs_contracting_dimensions=(contract[1],))


def _dense(c: Context) -> Node:
    rank = c.known().rank or 0
    if rank < 1 or c.known(1).rank != 2:
        raise InferError(f"operands {c.type()} and {c.type(1)}", expected="(..., k) and (units, k)")
    return product_of(c, c.args[0], c.args[1], (0, 0), (rank - 1, 1))


def _matmul(c: Context) -> Node:
    rank = c.known().rank or 0
    lhs = rank - 2 if c.flag("transpose_a") else rank - 1
    if rank < 1 or lhs < 0 or c.known(1).rank != 2:
        raise InferError(f"operands {c.type()} and {c.type(1)}", expected="two matrices")
    return product_of(c, c.args[0], c.args[1], (0, 0), (lhs, 1 if c.flag("transpose_b") else 0))


def _batch_matmul(c: Context) -> Node:
    x, y = c.args[0], c.args[1]
    if c.known().rank != 3 or c.known(1).rank != 3:
        raise InferError(f"operands {c.type()} and {c.type(1)}", expected="two tensors of rank 3")
    (n, *a), (m, *b) = c.known().dims or (), c.known(1).dims or ()
    if n == 1 and m != 1:
        x = c.broadcast_to(x, (m, *a))
    elif m == 1 and n != 1:
        y = c.broadcast_to(y, (n, *b))
    return product_of(c, x, y, (1, 1), (1 if c.flag("transpose_a") else 2, 2 if c.flag("transpose_b", True) else 1))


def _bias_add(c: Context) -> Node:
    dims = c.known().dims or ()
    return c(ops.add, c.args[0], c.along(c.args[1], dims, (c.axis(len(dims), default=1),)))


# --- softmax and losses -------------------------------------------------------------------------------------------





def _along_axis(build: Callable[..., Node]) -> Operator:
    """A function of the operand and the one axis that it goes along."""
    return Operator(lambda c: build(c, c.args[0], (c.axis(c.known().rank or 0, default=-1),)))


def _cross_entropy(logits: bool) -> Operator:
    def build(c: Context) -> Node:
        predicted, target = c.args[0], c.args[1]
        rank = c.known().rank or 0
        found = c(ops.multiply, predicted if logits else c(ops.log, predicted), target)
        total = ops.reduction(c.b, ops.add, found, range(rank))
        return c(ops.divide, c(ops.negate, total), c.like(count(predicted, (0,)), predicted))

    return Operator(build, 2)


# --- normalisation ------------------------------------------------------------------------------------------------



def _affine(c: Context, x: Node, scale: Node, offset: Node, axis: int) -> Node:
    dims = ranked(x).dims or ()
    if c.flag("scale", True):
        x = c(ops.multiply, x, c.along(scale, dims, (axis,)))
    if c.flag("center", True):
        x = c(ops.add, x, c.along(offset, dims, (axis,)))
    return x


def _batch_norm(c: Context) -> Node:
    """As in inference: by the moving mean and variance, which are given on as they are."""
    x, scale, offset, average, variance = c.args[:5]
    dims = c.known().dims or ()
    axis = c.axis(len(dims), default=1)
    root = c(ops.sqrt, c(ops.add, variance, c.like(c.real("epsilon", 1e-5), variance)))
    off = c(ops.subtract, x, c.along(average, dims, (axis,)))
    return c.b.pack(_affine(c, c(ops.divide, off, c.along(root, dims, (axis,))), scale, offset, axis), average, variance)


def _layer_norm(c: Context) -> Node:
    axis = c.axis(c.known().rank or 0, default=-1)
    return _affine(c, centered(c, c.args[0], (axis,), c.real("epsilon", 1e-5)), c.args[1], c.args[2], axis)


def _instance_norm(c: Context) -> Node:
    rank = c.known().rank or 0
    axis = c.axis(rank, default=1)
    axes = tuple(k for k in range(rank) if k not in (0, axis))
    return _affine(c, centered(c, c.args[0], axes, c.real("epsilon", 1e-5)), c.args[1], c.args[2], axis)


def _group_norm(c: Context) -> Node:
    shape, groups = c.known().shape, c.number("num_groups")
    axis = c.axis(len(shape), default=1)
    if groups < 1 or shape[axis] % groups:
        raise InferError(f"{shape[axis]} channels do not make {groups} groups")
    split = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    axes = tuple(k for k in range(len(split)) if k not in (0, axis))
    normal = centered(c, c.shaped(c.args[0], split), axes, c.real("epsilon", 1e-5))
    return _affine(c, c.shaped(normal, shape), c.args[1], c.args[2], axis)


def _l2_normalize(c: Context) -> Node:
    x, axes = c.args[0], axes_of(c)
    total = ops.reduction(c.b, ops.add, c(ops.multiply, x, x), axes)
    return c(ops.divide, x, back(c, c(ops.sqrt, c(ops.maximum, total, c.like(c.real("eps"), total))), x, axes))


def _dropout(c: Context) -> Node:
    """As in inference: nothing is dropped."""
    return c.b.pack(c.args[0], c.full(1, c.known()))


NN: dict[str, Operator] = {
    "nn.dense": Operator(_dense, 2), "nn.matmul": Operator(_matmul, 2), "nn.batch_matmul": Operator(_batch_matmul, 2),
    "nn.bias_add": Operator(_bias_add, 2), "nn.softmax": _along_axis(softmax), "nn.fast_softmax": _along_axis(softmax),
    "nn.log_softmax": _along_axis(log_softmax), "nn.cross_entropy": _cross_entropy(False),
    "nn.cross_entropy_with_logits": _cross_entropy(True), "nn.batch_norm": Operator(_batch_norm, 5),
    "nn.layer_norm": Operator(_layer_norm, 3), "nn.instance_norm": Operator(_instance_norm, 3),
    "nn.group_norm": Operator(_group_norm, 3),
    "nn.l2_normalize": Operator(_l2_normalize), "nn.dropout": Operator(_dropout),
}  # fmt: skip
