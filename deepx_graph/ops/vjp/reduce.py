"""The gradient of reduce: of sums and extremes in closed form, of every other associative body through a tree.

The elements that equal an extreme share its cotangent. A body that is not one of these (a product, one that carries an index along,
several values at once) is applied to neighbouring pairs of elements, then of those results, until one is left; that program is
differentiated, so it is right where elements are zero, and to every order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.ir.op import Cotangents
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.ops.contract.reduce import broadcast_in_dim, reduction
from deepx_graph.ops.data.fusion import mapped_all
from deepx_graph.ops.math.elementwise import add, compare, convert, divide, maximum, minimum, multiply
from deepx_graph.ops.tensor.layout import dims_of, reshape, transpose
from deepx_graph.ops.tensor.shape import concatenate, slice_
from deepx_graph.ops.vjp.accumulate import through
from deepx_graph.types import as_tensor

Axes = tuple[int, ...]


def reduce_vjp(b: Builder, node: Node, g: Any) -> Cotangents:
    """See the module. Raises InferError for a body that is not elementwise, or sizes that are not known."""
    op = node.attr("body").reducer if len(node.inputs) == 2 else None
    if op is not add and op is not maximum and op is not minimum:
        return through(b, node, _tree(b, node), g)
    x, init = node.inputs
    by_init: Node | None = None
    if not starts_from_identity(init, op):
        node = reduction(b, op, x, node.attr("dimensions"))
        assert op.vjp is not None
        by_init, g = op.vjp(b, b(op, init, node), g)
    return (_spread(b, x, g, node) if op is add else _extreme(b, x, node, g)), by_init


def known_value(x: Node) -> Any:
    """The one value of all elements of a constant, whatever its shape was made by; None where there is none."""
    while x.op is broadcast_in_dim or x.op is reshape:
        x = x.inputs[0]
    return value_of(x).splat_value if x.op is CONSTANT else None


def starts_from_identity(init: Node, op: Op) -> bool:
    """Whether an initial value is the identity of the reducer."""
    return bool(known_value(init) == op.identity_for(as_tensor(init.type).dtype))


def _spread(b: Builder, x: Node, value: Node, node: Node) -> Node:
    """A reduced value for each element that went into it."""
    kept = tuple(k for k in range(len(dims_of(x))) if k not in node.attr("dimensions"))
    return b(broadcast_in_dim, value, shape=dims_of(x), broadcast_dimensions=kept)


def _extreme(b: Builder, x: Node, node: Node, g: Node) -> Node:
    wins = b(convert, b(compare, x, _spread(b, x, node, node), direction="EQ"), dtype=as_tensor(x.type).dtype)
    share = b(divide, g, reduction(b, add, wins, node.attr("dimensions")))
    return b(multiply, wins, _spread(b, x, share, node))


# --- any body -----------------------------------------------------------------------------------------------------


def combined(b: Builder, body: Function, left: Sequence[Node], right: Sequence[Node]) -> list[Node]:
    """The body of a reduction applied to whole tensors. Raises InferError when one of its ops is not elementwise."""
    found = mapped_all(b, body, [*left, *right], [as_tensor(x.type) for x in left])
    if found is None:
        raise InferError(f"the gradient of a reduction by '{body.name}' is not known: an operation in it is not elementwise")
    return found


def _tree(b: Builder, node: Node) -> list[Node]:
    """The reduction by transposes, slices and the body on whole tensors: reduced axes as one, first, and halved to nothing."""
    half = len(node.inputs) // 2
    xs, inits = node.inputs[:half], node.inputs[half:]
    dimensions, body = node.attr("dimensions"), node.attr("body")
    shape = as_tensor(xs[0].type).shape
    rest = tuple(k for k in range(len(shape)) if k not in dimensions)
    kept = tuple(shape[k] for k in rest)
    count = math.prod(shape[k] for k in dimensions)
    start = [b(broadcast_in_dim, i, shape=kept, broadcast_dimensions=()) for i in inits]
    if count == 0:
        return start
    order = tuple(sorted(dimensions)) + rest
    rows = [b(reshape, b(transpose, x, permutation=order), shape=(count, *kept)) for x in xs]
    while count > 1:
        pairs = combined(b, body, [_rows(b, x, 0, count - 1, 2) for x in rows], [_rows(b, x, 1, count, 2) for x in rows])
        last = [_rows(b, x, count - 1, count, 1) for x in rows] if count % 2 else []
        rows = [b(concatenate, *both, dimension=0) for both in zip(pairs, last, strict=True)] if last else pairs
        count -= count // 2
    return combined(b, body, start, [b(reshape, x, shape=kept) for x in rows])


def _rows(b: Builder, x: Node, start: int, limit: int, stride: int) -> Node:
    shape = as_tensor(x.type).shape
    none = (0,) * (len(shape) - 1)
    return b(slice_, x, start_indices=(start, *none), limit_indices=(limit, *shape[1:]),
             strides=(stride, *(1 for _ in none)))  # fmt: skip
