"""MindSpore's primitives in terms of ours: one table. Most are an operator of Relay's with its options in other places.

A rule sees the inputs as nodes or plain values (`Args`). Semantics: MindSpore 2.7, mindspore.ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph import ops
from deepx_graph.errors import InferError, an
from deepx_graph.ir import Node
from deepx_graph.text.mindir.args import Args, Rule
from deepx_graph.text.mindir.values import TYPE_IDS
from deepx_graph.text.relay.reader.context import Context, ranked
from deepx_graph.types import F32, DType, TensorType, TupleType, as_tensor


def _window_attrs(a: Args) -> dict[str, Any]:
    def size(name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        value = a.ints(-1, name, default)
        return value[-2:] if len(value) == 4 else value * 2 if len(value) == 1 else value

    strides = size("strides", size("stride", (1, 1)))
    return {"kernel": size("kernel_size", (1, 1)), "strides": strides, "dilation": size("dilation", (1, 1))}


def _same_padding(shape: Sequence[int], kernel: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Padding that makes the result as large as the operand divided by the strides."""
    whole = [max(0, (-(-n // s) - 1) * s + k - n) for n, k, s in zip(shape, kernel, strides, strict=True)]
    return (*(w // 2 for w in whole), *(w - w // 2 for w in whole))


def _padding(a: Args, shape: Sequence[int], kernel: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    mode = a.plain(-1, "pad_mode", "valid")
    mode = {0: "pad", 1: "same", 2: "valid"}.get(mode, mode) if isinstance(mode, int) else str(mode).lower()
    if mode == "same":
        return _same_padding(shape, kernel, strides)
    pads = a.ints(-1, "pad", a.ints(-1, "pad_list", (0, 0, 0, 0)))
    pads = pads * 4 if len(pads) == 1 else pads
    return (pads[0], pads[2], pads[1], pads[3]) if mode == "pad" else (0, 0, 0, 0)


def conv2d(a: Args) -> Node:
    x, w = a.node(0), a.node(1)
    sizes, shape, kernel = _window_attrs(a), ranked(x).shape, ranked(w).shape
    if len(kernel) != 4 or len(sizes["dilation"]) != 2:
        raise InferError(f"a kernel {list(kernel)} dilated by {list(sizes['dilation'])}", expected="4 sizes, and 2 of a dilation")
    spread = [(k - 1) * d + 1 for k, d in zip(kernel[2:], sizes["dilation"], strict=True)]
    return a.relay("nn.conv2d", x, w, strides=sizes["strides"], padding=_padding(a, shape[2:], spread, sizes["strides"]),
                   dilation=sizes["dilation"], groups=a.plain(-1, "group", 1), channels=kernel[0], kernel_size=tuple(kernel[2:]),
                   data_layout="NCHW", kernel_layout="OIHW")


def pool(operator: str) -> Rule:
    def build(a: Args) -> Node:
        x, sizes = a.node(0), _window_attrs(a)
        padding = _padding(a, ranked(x).shape[2:], sizes["kernel"], sizes["strides"])
        return a.relay(operator, x, pool_size=sizes["kernel"], strides=sizes["strides"], padding=padding, layout="NCHW")

    return build


# --- shapes of rules --------------------------------------------------------------------------------------------------


def _same(operator: str, count: int = 1) -> Rule:
    """Relay's operator on the first inputs."""
    return lambda a: a.relay(operator, *(a.node(k) for k in range(count)))


def _binary(operator: str) -> Rule:
    def build(a: Args) -> Node:
        x, y = a.pair()
        joint = _joint(as_tensor(x.type).dtype, as_tensor(y.type).dtype)
        context = Context(a.b, operator, (), {})
        return a.relay(operator, context.cast(x, joint), context.cast(y, joint))

    return build


_ORDER = ("bool", "int", "float", "complex")


def _joint(a: DType, b: DType) -> DType:
    """The element type of both: the richer kind, of one kind the wider."""
    if a is b:
        return a
    rank_a, rank_b = (next((k for k, kind in enumerate(_ORDER) if kind in d.kind), 1) for d in (a, b))
    if rank_a != rank_b:
        return a if rank_a > rank_b else b
    return a if a.itemsize >= b.itemsize else b


def _reduce(operator: str, keep: str = "keep_dims") -> Rule:
    def build(a: Args) -> Node:
        axes = a.plain(1, "axis", ())
        axes = (axes,) if isinstance(axes, int) else tuple(axes or ())
        kept = bool(a.plain(2, keep, a.attrs.get("keep_dims", False)))
        return a.relay(operator, a.node(0), axis=axes or None, keepdims=kept)

    return build


def _matmul(first: int) -> Rule:
    def build(a: Args) -> Node:
        flips = [bool(a.plain(first + k, name, False)) for k, name in enumerate(("transpose_a", "transpose_b"))]
        x, y = (_flipped(a, a.node(k), flips[k]) for k in range(2))
        return _product(a, x, y)

    return build


def _flipped(a: Args, x: Node, flip: bool) -> Node:
    rank = ranked(x).rank or 0
    return a.b(ops.transpose, x, permutation=(*range(rank - 2), rank - 1, rank - 2)) if flip and rank > 1 else x


def _product(a: Args, x: Node, y: Node) -> Node:
    """A product of matrices as numpy's matmul has it: leading axes are broadcast against each other."""
    left, right = ranked(x).dims or (), ranked(y).dims or ()
    if len(right) <= 2:
        return a.b(ops.dot_general, x, y, lhs_batching_dimensions=(), rhs_batching_dimensions=(),
                   lhs_contracting_dimensions=(len(left) - 1,), rhs_contracting_dimensions=(max(0, len(right) - 2),))
    c = Context(a.b, a.name, (), {})
    batch = ranked(c.broadcast(_leading(c, x), _leading(c, y))[0]).dims or ()
    x, y = c.spread(x, (*batch, *left[-2:])), c.spread(y, (*batch, *right[-2:]))
    many = tuple(range(len(batch)))
    return a.b(ops.dot_general, x, y, lhs_batching_dimensions=many, rhs_batching_dimensions=many,
               lhs_contracting_dimensions=(len(batch) + 1,), rhs_contracting_dimensions=(len(batch),))


def _leading(c: Context, x: Node) -> Node:
    """A stand-in of the shape of the leading axes."""
    type = ranked(x)
    return c.full(0, type.with_dims((type.dims or ())[:-2]))


def _cast(a: Args) -> Node:
    x, wanted = a.node(0), a.plain(1, "dst_type")
    found = wanted if isinstance(wanted, DType) else TYPE_IDS.get(wanted)
    if found is None:
        raise InferError(f"Cast to the type {wanted!r}", expected="a number of MindSpore's TypeId")
    return Context(a.b, a.name, (), {}).cast(x, found)


def _add_n(a: Args) -> Node:
    items = _items(a, 0) if len(a.inputs) == 1 else [a.node(k) for k in range(len(a.inputs))]
    total = items[0]
    for item in items[1:]:
        total = a.relay("add", total, item)
    return total


def _items(a: Args, k: int) -> list[Node]:
    value = a.inputs[k] if k < len(a.inputs) else ()
    if isinstance(value, tuple):
        return [a.made(v) for v in value]
    node = a.node(k)
    if not isinstance(node.type, TupleType):
        raise InferError(f"{a.name}: input {k} is {an(node.type)}", expected="a tuple")
    return list(a.b.items(node))


def _joined(operator: str) -> Rule:
    def build(a: Args) -> Node:
        axis = a.plain(1, "axis", 0)
        return a.relay(operator, a.b.pack(*_items(a, 0)), axis=axis)

    return build


def _softmax(operator: str) -> Rule:
    def build(a: Args) -> Node:
        axis = a.ints(1, "axis", (-1,))
        if len(axis) != 1:
            raise InferError(f"{a.name} over {len(axis)} axes", expected="one axis")
        return a.relay(operator, a.node(0), axis=axis[0])

    return build


def _softmax_backward(a: Args) -> Node:
    """`(g - sum(g y)) y` along the axis, for the gradient g of the result y."""
    g, y, axis = a.node(0), a.node(1), a.ints(2, "dim", (-1,))
    total = a.relay("sum", a.relay("multiply", g, y), axis=axis, keepdims=True)
    return a.relay("multiply", a.relay("subtract", g, total), y)


def _tanh_grad(a: Args) -> Node:
    """`g (1 - y y)` for the result y and its gradient g."""
    y, g = a.node(0), a.node(1)
    return a.relay("multiply", g, a.relay("subtract", a.b.like(1, y), a.relay("multiply", y, y)))


def _sigmoid_grad(a: Args) -> Node:
    y, g = a.node(0), a.node(1)
    return a.relay("multiply", g, a.relay("multiply", y, a.relay("subtract", a.b.like(1, y), y)))


def _relu_grad(a: Args) -> Node:
    """The gradient g where the operand, or the result, is above 0."""
    g, y = a.node(0), a.node(1)
    return a.b(ops.select, a.b(ops.compare, y, a.b.like(0, y), direction="GT"), g, a.b.splat(0, ranked(g)))


def _remainder(a: Args) -> Node:
    x, y = a.pair()
    return a.relay("floor_mod", x, y)


def _bias_add(a: Args) -> Node:
    return a.relay("nn.bias_add", a.node(0), a.node(1), axis=1)


def _dense(a: Args) -> Node:
    """`x transpose(w) + b`; the bias may be missing."""
    made = a.relay("nn.dense", a.node(0), a.node(1))
    return made if len(a.inputs) < 3 or a.inputs[2] is None else a.relay("add", made, a.node(2))


def _flatten(a: Args) -> Node:
    return a.relay("nn.batch_flatten", a.node(0))


def _reshape(a: Args) -> Node:
    """-1 is what is left; unlike Relay's, a 0 is a size."""
    x, wanted = a.node(0), a.ints(1, "shape")
    size, known = ranked(x).size, 1
    for d in wanted:
        known *= d if d != -1 else 1
    if wanted.count(-1) > 1 or (-1 in wanted and (not known or size % known)):
        raise InferError(f"Reshape of {x.type} to {wanted}", expected=f"a shape of {size} elements")
    return a.b(ops.reshape, x, shape=tuple(size // known if d == -1 else d for d in wanted))


def _filled(a: Args) -> Node:
    dtype = a.plain(0, "type")
    found = dtype if isinstance(dtype, DType) else TYPE_IDS.get(dtype, F32)
    return a.b.splat(a.plain(2, "value", 0), TensorType(found, a.ints(1, "shape", ())))


def _argmax(operator: str) -> Rule:
    def build(a: Args) -> Node:
        axis = a.plain(1, "axis", -1)
        found = a.relay(operator, a.node(0), axis=(axis,), keepdims=False)
        wanted = TYPE_IDS.get(a.plain(2, "output_type", 34))
        return Context(a.b, a.name, (), {}).cast(found, wanted) if wanted else found

    return build


def _one_hot(a: Args) -> Node:
    x, depth = a.node(0), a.plain(1, "depth")
    on, off = a.node(2), a.node(3)
    dtype = str(as_tensor(on.type).dtype).replace("f", "float")
    return a.relay("one_hot", x, on, off, depth=depth, axis=a.plain(4, "axis", -1), dtype=dtype)


def _pow(a: Args) -> Node:
    x, y = a.pair()
    return a.relay("power", x, y)


def _tuple(a: Args) -> Node:
    return a.b.pack(*(a.node(k) for k in range(len(a.inputs))))


def _item(a: Args) -> Node:
    k = a.plain(1, "index")
    node = a.node(0)
    if not isinstance(k, int) or not isinstance(node.type, TupleType):
        raise InferError(f"item {k!r} of {an(node.type)}", expected="a number, of a tuple")
    return a.b.proj(node, k if k >= 0 else k + len(node.type.items))


def _first(a: Args) -> Node:
    return a.node(0)


def _transpose(a: Args) -> Node:
    return a.b(ops.transpose, a.node(0), permutation=tuple(k % len(a.ints(1, "perm")) for k in a.ints(1, "perm")))


def _expand(a: Args) -> Node:
    return a.relay("expand_dims", a.node(0), axis=a.plain(1, "axis", 0), num_newaxis=1)


def _squeeze(a: Args) -> Node:
    axis = a.plain(1, "axis", ())
    return a.relay("squeeze", a.node(0), axis=(axis,) if isinstance(axis, int) else tuple(axis) or None)


def _broadcast(a: Args) -> Node:
    return a.relay("broadcast_to", a.node(0), shape=a.ints(1, "shape"))


def _gather(a: Args) -> Node:
    return a.relay("take", a.node(0), a.node(1), axis=a.plain(2, "axis", 0), mode="clip")


def _tile(a: Args) -> Node:
    return a.relay("tile", a.node(0), reps=a.ints(1, "multiples"))


def _square(a: Args) -> Node:
    return a.relay("multiply", a.node(0), a.node(0))


def _stop(a: Args) -> Node:
    return a.b(ops.stop_gradient, a.node(0))


def _clip(a: Args) -> Node:
    x = a.node(0)
    return a.relay("minimum", a.relay("maximum", x, a.node(1, x)), a.node(2, x))


RULES: dict[str, Rule] = {
    **{name: _binary(to) for name, to in {
        "Add": "add", "Sub": "subtract", "Mul": "multiply", "Muls": "multiply", "Div": "divide", "RealDiv": "divide",
        "Less": "less",
        "LessEqual": "less_equal", "Greater": "greater", "GreaterEqual": "greater_equal", "Equal": "equal",
        "NotEqual": "not_equal",
        "Maximum": "maximum", "Minimum": "minimum", "FloorDiv": "floor_divide", "FloorMod": "floor_mod", "Mod": "mod",
        "Adds": "add",
        "Subs": "subtract", "Divs": "divide", "LogicalAnd": "logical_and", "LogicalOr": "logical_or",
        "LogicalXor": "logical_xor",
        "Atan2": "atan2", "scalar_add": "add", "scalar_sub": "subtract", "scalar_mul": "multiply",
        "scalar_div": "divide",
        "scalar_lt": "less", "scalar_le": "less_equal", "scalar_gt": "greater", "scalar_ge": "greater_equal",
        "scalar_eq": "equal",
        "ScalarAdd": "add", "ScalarSub": "subtract", "ScalarMul": "multiply", "ScalarDiv": "divide", "ScalarLt": "less",
        "ScalarLe": "less_equal", "ScalarGt": "greater", "ScalarGe": "greater_equal", "ScalarEq": "equal",
        "BitwiseAnd": "bitwise_and",
        "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
    }.items()},
    **{name: _same(to) for name, to in {
        "ReLU": "nn.relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Sin": "sin", "Cos": "cos", "Tan": "tan",
        "Neg": "negative",
        "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Rsqrt": "rsqrt", "Abs": "abs", "Floor": "floor", "Ceil": "ceil",
        "Round": "round",
        "Sign": "sign", "Erf": "erf", "LogicalNot": "logical_not", "ZerosLike": "zeros_like", "OnesLike": "ones_like",
        "Sinh": "sinh",
        "Cosh": "cosh", "Asin": "asin", "Acos": "acos", "Atan": "atan", "IsFinite": "isfinite", "IsNan": "isnan",
        "Trunc": "trunc",
        "zeros_like": "zeros_like",
    }.items()},
    **{name: _reduce(to) for name, to in {
        "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
        "ReduceAll": "all",
        "ReduceAny": "any", "SumExt": "sum", "MeanExt": "mean", "ProdExt": "prod",
    }.items()},
    "MatMul": _matmul(2), "MatMulExt": _matmul(2), "BatchMatMul": _matmul(2), "Dense": _dense, "BiasAdd": _bias_add,
    "Conv2D": conv2d,
    "MaxPool": pool("nn.max_pool2d"), "AvgPool": pool("nn.avg_pool2d"), "Flatten": _flatten,
    "Softmax": _softmax("nn.softmax"),
    "LogSoftmax": _softmax("nn.log_softmax"), "SoftmaxBackward": _softmax_backward, "TanhGrad": _tanh_grad,
    "SigmoidGrad": _sigmoid_grad, "ReluGrad": _relu_grad, "ReLUGrad": _relu_grad, "AddN": _add_n,
    "Transpose": _transpose,
    "RemainderTensorScalar": _remainder, "RemainderTensorTensor": _remainder, "Cast": _cast, "Reshape": _reshape,
    "Pow": _pow,
    "PowTensorScalar": _pow, "Square": _square, "Concat": _joined("concatenate"), "Stack": _joined("stack"),
    "ExpandDims": _expand,
    "Squeeze": _squeeze, "BroadcastTo": _broadcast, "Gather": _gather, "Tile": _tile, "Select": lambda a: a.relay(
        "where", a.node(0), a.node(1), a.node(2)), "Fill": _filled, "Argmax": _argmax("argmax"),
        "Argmin": _argmax("argmin"),
    "OneHot": _one_hot, "clip_by_value": _clip, "MakeTuple": _tuple, "make_tuple": _tuple, "MakeList": _tuple,
    "TupleGetItem": _item,
    "tuple_getitem": _item, "ListGetItem": _item, "TensorMove": _first, "Identity": _first, "identity": _first,
    "return": _first,
    "Return": _first, "StopGradient": _stop, "stop_gradient": _stop, "ScalarToTensor": _first,
    "InsertGradientOf": _first,
}  # fmt: skip
"""Every primitive that is known, by its type; the lowering does control, calls and effects itself."""
