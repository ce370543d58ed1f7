"""Scales and shifts along one axis of a product or convolution, folded into its weights: how a normalisation with known statistics
disappears (TVM's FoldScaleAxis, the folding of BatchNorm that exporters do). All are true of real numbers only.
"""

from __future__ import annotations

from deepx_graph.ir import Builder, Node
from deepx_graph.ops import add, broadcast_in_dim, convolution, divide, dot_general, multiply, negate, slice_, subtract
from deepx_graph.passes.rules.shape import static_dims
from deepx_graph.rewrite.engine import Rule, rule
from deepx_graph.rewrite.pattern import X, Y, op_of

PRODUCTS = (convolution, dot_general)


def _vector(node: Node) -> tuple[Node, int] | None:
    """The vector that a node repeats along all axes but one, and that axis."""
    if node.op is not broadcast_in_dim or len(node.attr("broadcast_dimensions")) != 1:
        return None
    (axis,) = node.attr("broadcast_dimensions")
    dims, given = static_dims(node), static_dims(node.inputs[0])
    return (node.inputs[0], axis) if dims is not None and given == (dims[axis],) else None


def _shifted(node: Node) -> tuple[Node, Node, int] | None:
    """A product, a vector that is added to it, and the axis of that."""
    if node.op is not add:
        return None
    for product, shift in (node.inputs, node.inputs[::-1]):
        if product.op in PRODUCTS and (found := _vector(shift)) is not None:
            return (product, *found)
    return None


def _repeat(b: Builder, vector: Node, axis: int, like: Node) -> Node:
    return b(broadcast_in_dim, vector, shape=static_dims(like), broadcast_dimensions=(axis,))


def _origin(product: Node, axis: int) -> tuple[int, int] | None:
    """The operand that an axis of a product comes from, and its axis there; None for what both have, and for windows."""
    if product.op is convolution:
        of_features = axis == product.attr("output_feature_dimension")
        return (1, product.attr("kernel_output_feature_dimension")) if of_features else None
    passed = len(product.attr("lhs_batching_dimensions"))
    for k, side in enumerate(("lhs", "rhs")):
        taken = {*product.attr(f"{side}_batching_dimensions"), *product.attr(f"{side}_contracting_dimensions")}
        free = [d for d in range(len(static_dims(product.inputs[k]) or ())) if d not in taken]
        if passed <= axis < passed + len(free):
            return k, free[axis - passed]
        passed += len(free)
    return None


@rule(op_of(subtract, X, Y), fast_math=True)
def subtracted_vector(b: Builder, x: Node, y: Node) -> Node | None:
    """x . w - c = x . w + (-c) for a vector c"""
    vector = _vector(y)
    if vector is None or not (x.op in PRODUCTS or _shifted(x)):
        return None
    return b(add, x, _repeat(b, b(negate, vector[0]), vector[1], y))


@rule(op_of(add, X, Y), fast_math=True)
def shifts_together(b: Builder, node: Node, x: Node, y: Node) -> Node | None:
    """(x . w + c) + d = x . w + (c + d) for vectors c and d along one axis"""
    shifted, vector = _shifted(x), _vector(y)
    if shifted is None or vector is None or shifted[2] != vector[1]:
        return None
    product, first, axis = shifted
    return b(add, product, _repeat(b, b(add, first, vector[0]), axis, node))


@rule(op_of(divide, X, Y), fast_math=True)
def divided_by_vector(b: Builder, x: Node, y: Node) -> Node | None:
    """(x . w) / c = (x . w) * (1 / c) for a vector c"""
    vector = _vector(y)
    if vector is None or not (x.op in PRODUCTS or _shifted(x)):
        return None
    return b(multiply, x, _repeat(b, b(divide, b.like(1, vector[0]), vector[0]), vector[1], y))


@rule(op_of(multiply, X, Y), fast_math=True)
def scale_of_shifted(b: Builder, node: Node, x: Node, y: Node) -> Node | None:
    """(x . w + c) * d = (x . w) * d + c * d for vectors c and d along one axis"""
    shifted, vector = _shifted(x), _vector(y)
    if shifted is None or vector is None or shifted[2] != vector[1]:
        return None
    product, shift, axis = shifted
    return b(add, b(multiply, product, y), _repeat(b, b(multiply, shift, vector[0]), axis, node))


@rule(op_of(multiply, X, Y), fast_math=True)
def scale_into_weights(b: Builder, x: Node, y: Node) -> Node | None:
    """(x . w) * c = x . (w * c) for a vector c along an axis of w"""
    vector = _vector(y)
    origin = _origin(x, vector[1]) if vector is not None and x.op in PRODUCTS else None
    if vector is None or origin is None:
        return None
    operands, (k, axis) = list(x.inputs), origin
    if static_dims(operands[k]) is None:
        return None
    operands[k] = b(multiply, operands[k], _repeat(b, vector[0], axis, operands[k]))
    return b(x.op, *operands, **x.named_attrs)


@rule(slice_, fast_math=True, over=(dot_general, add))
def slice_of_product(b: Builder, node: Node) -> Node | None:
    """slice(x . w + c) = x . slice(w) + slice(c) along one axis of w: products that were one are several again"""
    inner = node.inputs[0]
    shifted = _shifted(inner)
    product, dims = shifted[0] if shifted else inner, static_dims(inner)
    cut = [k for k, (n, m) in enumerate(zip(dims or (), static_dims(node) or (), strict=True)) if n != m]
    origin = _origin(product, cut[0]) if product.op is dot_general and len(cut) == 1 else None
    if origin is None or (shifted and shifted[2] != cut[0]):
        return None
    part = tuple(values[cut[0]] for values in node.attrs)
    operands = list(product.inputs)
    operands[origin[0]] = _cut(b, operands[origin[0]], origin[1], part)
    whole = b(dot_general, *operands, **product.named_attrs)
    return b(add, whole, _repeat(b, _cut(b, shifted[1], 0, part), cut[0], node)) if shifted else whole


def _cut(b: Builder, x: Node, axis: int, part: tuple[int, ...]) -> Node:
    start, limit, stride = part
    dims = static_dims(x) or ()
    along = [(start, limit, stride) if k == axis else (0, n, 1) for k, n in enumerate(dims)]
    starts, limits, strides = zip(*along, strict=True)
    return b(slice_, x, start_indices=starts, limit_indices=limits, strides=strides)


SCALES: tuple[Rule, ...] = tuple(v for v in dict(globals()).values() if isinstance(v, Rule))
"""All rules of this file, in order."""
