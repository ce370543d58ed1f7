"""MindSpore's primitives in terms of ours: one table. Most are an operator of Relay's with its options in other places.

A rule sees the inputs as nodes or plain values (`Args`). Semantics: MindSpore 2.7, mindspore.ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

from deepx_graph import ops
from deepx_graph.errors import InferError, an
from deepx_graph.ir import Builder, Node
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.literal import Literal
from deepx_graph.text.common.steps import joint_dims, ranked
from deepx_graph.text.mindir.values import TYPE_IDS
from deepx_graph.text.relay.rules import RULES as OPERATORS
from deepx_graph.text.relay.rules.context import Context
from deepx_graph.types import F32, I64, DType, TensorType, TupleType, as_tensor


class Args:
    """One call of a primitive: its inputs, and the primitive's own attributes as plain values."""

    def __init__(self, b: Builder, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> None:
        self.b, self.name, self.inputs, self.attrs = b, name, inputs, attrs

    def node(self, k: int, like: Node | None = None) -> Node:
        """An input as a node; a plain number in the element type of `like`, else as MindSpore has it: int64 or float32."""
        if k >= len(self.inputs):
            raise InferError(f"{self.name} has {len(self.inputs)} inputs", expected=f"at least {k + 1}")
        return self.made(self.inputs[k], like)

    def made(self, value: Any, like: Node | None = None) -> Node:
        """A plain value as a node."""
        if isinstance(value, Node):
            return value
        if isinstance(value, Literal):
            return self.b.literal(value)
        if isinstance(value, tuple):
            return self.b.pack(*(self.made(v, like) for v in value))
        if isinstance(value, (bool, int, float)):
            if like is not None:
                return self.b.like(value, like)
            return self.b.constant(value, None if isinstance(value, bool) else F32 if isinstance(value, float) else I64)
        raise InferError(f"{self.name}: an input is {value!r}", expected="a tensor or a number")

    def plain(self, k: int, name: str, default: Any = None) -> Any:
        """Input k, or the attribute of that name, as a plain value. Raises InferError for what is computed."""
        value = self.inputs[k] if 0 <= k < len(self.inputs) else self.attrs.get(name)
        if isinstance(value, Literal):
            value = value.bounded().tolist()
        if isinstance(value, Node):
            if value.op is not CONSTANT:
                raise InferError(f"{self.name}: '{name}' is computed", expected="a constant")
            value = value_of(value).bounded().tolist()
        if isinstance(value, list):
            value = tuple(value)
        return default if value is None else value

    def ints(self, k: int, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        value = self.plain(k, name, default)
        value = (value,) if isinstance(value, int) else value
        if not isinstance(value, (tuple, list)) or not all(isinstance(v, int) for v in value):
            raise InferError(f"{self.name}: '{name}' is {value!r}", expected="integers")
        return tuple(value)

    def items(self, k: int) -> list[Node]:
        """The items of an input that is a tuple, of plain values or computed. Raises InferError."""
        value = self.inputs[k] if k < len(self.inputs) else ()
        if isinstance(value, tuple):
            return [self.made(v) for v in value]
        node = self.node(k)
        if not isinstance(node.type, TupleType):
            raise InferError(f"{self.name}: input {k} is {an(node.type)}", expected="a tuple")
        return list(self.b.items(node))

    @property
    def context(self) -> Context:
        """What rules of Relay share."""
        return Context(self.b, self.name, (), {})

    def relay(self, operator: str, *inputs: Node, **attrs: Any) -> Node:
        """What Relay's operator of that name builds."""
        return OPERATORS[operator].build(Context(self.b, operator, inputs, attrs))

    def pair(self) -> tuple[Node, Node]:
        """Two inputs, a plain number in the type of the other."""
        if len(self.inputs) < 2:
            raise InferError(f"{self.name} has {len(self.inputs)} inputs", expected="2")
        first, second = self.inputs[:2]
        if not isinstance(first, (Node, Literal)):
            y = self.node(1)
            return self.made(first, y), y
        x = self.node(0)
        return x, self.made(second, x)


Rule = Callable[[Args], Node]

# --- windows --------------------------------------------------------------------------------------------------------


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
    mode = {0: "pad", 1: "same", 2: "valid"}.get(mode) if isinstance(mode, int) else str(mode).lower()
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
        return a.relay(operator, a.context.cast(x, joint), a.context.cast(y, joint))

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


def _reduce(operator: str) -> Rule:
    def build(a: Args) -> Node:
        axes = a.plain(1, "axis", ())
        axes = (axes,) if isinstance(axes, int) else tuple(axes or ())
        return a.relay(operator, a.node(0), axis=axes or None, keepdims=bool(a.plain(2, "keep_dims", False)))

    return build


def _matmul(a: Args) -> Node:
    flips = [bool(a.plain(2 + k, name, False)) for k, name in enumerate(("transpose_a", "transpose_b"))]
    return _product(a, *(_flipped(a, a.node(k), flips[k]) for k in range(2)))


def _flipped(a: Args, x: Node, flip: bool) -> Node:
    rank = ranked(x).rank or 0
    return a.b(ops.transpose, x, permutation=(*range(rank - 2), rank - 1, rank - 2)) if flip and rank > 1 else x


def _product(a: Args, x: Node, y: Node) -> Node:
    """A product of matrices as numpy's matmul has it: leading axes are broadcast against each other."""
    left, right = ranked(x).dims or (), ranked(y).dims or ()
    leading, lhs, rhs = 0, len(left) - 1, max(0, len(right) - 2)
    if len(right) > 2:
        batch = joint_dims([left[:-2], right[:-2]])
        x, y = a.context.broadcast_to(x, (*batch, *left[-2:])), a.context.broadcast_to(y, (*batch, *right[-2:]))
        leading, lhs, rhs = len(batch), len(batch) + 1, len(batch)
    axes = tuple(range(leading))
    return a.b(ops.dot_general, x, y, lhs_batching_dimensions=axes, rhs_batching_dimensions=axes,
               lhs_contracting_dimensions=(lhs,), rhs_contracting_dimensions=(rhs,))


def _cast(a: Args) -> Node:
    x, wanted = a.node(0), a.plain(1, "dst_type")
    found = wanted if isinstance(wanted, DType) else TYPE_IDS.get(wanted)
    if found is None:
        raise InferError(f"Cast to the type {wanted!r}", expected="a number of MindSpore's TypeId")
    return a.context.cast(x, found)


def _add_n(a: Args) -> Node:
    return reduce(partial(a.relay, "add"), a.items(0) if len(a.inputs) == 1 else [a.node(k) for k in range(len(a.inputs))])


def _joined(operator: str) -> Rule:
    return lambda a: a.relay(operator, a.b.pack(*a.items(0)), axis=a.plain(1, "axis", 0))


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


def _dense(a: Args) -> Node:
    """`x transpose(w) + b`; the bias may be missing."""
    made = a.relay("nn.dense", a.node(0), a.node(1))
    return made if len(a.inputs) < 3 or a.inputs[2] is None else a.relay("add", made, a.node(2))


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
        return a.context.cast(found, wanted) if wanted else found

    return build


def _one_hot(a: Args) -> Node:
    x, on, off = (a.node(k) for k in (0, 2, 3))
    dtype = str(as_tensor(on.type).dtype).replace("f", "float")
    return a.relay("one_hot", x, on, off, depth=a.plain(1, "depth"), axis=a.plain(4, "axis", -1), dtype=dtype)


def _item(a: Args) -> Node:
    k = a.plain(1, "index")
    node = a.node(0)
    if not isinstance(k, int) or not isinstance(node.type, TupleType):
        raise InferError(f"item {k!r} of {an(node.type)}", expected="a number, of a tuple")
    return a.b.proj(node, k if k >= 0 else k + len(node.type.items))


def _squeeze(a: Args) -> Node:
    axis = a.plain(1, "axis", ())
    return a.relay("squeeze", a.node(0), axis=(axis,) if isinstance(axis, int) else tuple(axis) or None)


def _clip(a: Args) -> Node:
    x = a.node(0)
    return a.relay("minimum", a.relay("maximum", x, a.node(1, x)), a.node(2, x))


_SCALAR = {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "lt": "less", "le": "less_equal", "gt": "greater",
           "ge": "greater_equal", "eq": "equal"}  # fmt: skip
"""Primitives on numbers, of which each has two spellings: `scalar_add`, `ScalarAdd`."""

_BINARY = {
    "Add": "add", "Adds": "add", "Sub": "subtract", "Subs": "subtract", "Mul": "multiply", "Muls": "multiply", "Div": "divide",
    "Divs": "divide", "RealDiv": "divide", "FloorDiv": "floor_divide", "FloorMod": "floor_mod", "Mod": "mod", "Less": "less",
    "LessEqual": "less_equal", "Greater": "greater", "GreaterEqual": "greater_equal", "Equal": "equal", "NotEqual": "not_equal",
    "Maximum": "maximum", "Minimum": "minimum", "LogicalAnd": "logical_and", "LogicalOr": "logical_or",
    "LogicalXor": "logical_xor", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
    "Atan2": "atan2", **{f"scalar_{n}": to for n, to in _SCALAR.items()}, **{f"Scalar{n.title()}": to for n, to in _SCALAR.items()},
}  # fmt: skip

_UNARY = {
    "ReLU": "nn.relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Neg": "negative",
    "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Rsqrt": "rsqrt", "Abs": "abs", "Floor": "floor", "Ceil": "ceil", "Round": "round",
    "Sign": "sign", "Erf": "erf", "LogicalNot": "logical_not", "ZerosLike": "zeros_like", "OnesLike": "ones_like", "Sinh": "sinh",
    "Cosh": "cosh", "Asin": "asin", "Acos": "acos", "Atan": "atan", "IsFinite": "isfinite", "IsNan": "isnan", "Trunc": "trunc",
    "zeros_like": "zeros_like", "Flatten": "nn.batch_flatten",
}  # fmt: skip

_REDUCTIONS = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
               "ReduceAll": "all", "ReduceAny": "any", "SumExt": "sum", "MeanExt": "mean", "ProdExt": "prod"}  # fmt: skip

RULES: dict[str, Rule] = {
    **{name: _binary(to) for name, to in _BINARY.items()}, **{name: _same(to) for name, to in _UNARY.items()},
    **{name: _reduce(to) for name, to in _REDUCTIONS.items()},
    **dict.fromkeys(("MatMul", "MatMulExt", "BatchMatMul"), _matmul), "Dense": _dense,
    "BiasAdd": lambda a: a.relay("nn.bias_add", a.node(0), a.node(1), axis=1),
    "Conv2D": conv2d, "MaxPool": pool("nn.max_pool2d"), "AvgPool": pool("nn.avg_pool2d"),
    "Softmax": _softmax("nn.softmax"), "LogSoftmax": _softmax("nn.log_softmax"), "SoftmaxBackward": _softmax_backward,
    "TanhGrad": _tanh_grad, "SigmoidGrad": _sigmoid_grad, "ReluGrad": _relu_grad, "ReLUGrad": _relu_grad,
    **dict.fromkeys(("RemainderTensorScalar", "RemainderTensorTensor"), lambda a: a.relay("floor_mod", *a.pair())),
    **dict.fromkeys(("Pow", "PowTensorScalar"), lambda a: a.relay("power", *a.pair())),
    "AddN": _add_n, "Square": lambda a: a.relay("multiply", a.node(0), a.node(0)), "clip_by_value": _clip,
    "Select": _same("where", 3), "Cast": _cast, "Fill": _filled, "Argmax": _argmax("argmax"), "Argmin": _argmax("argmin"),
    "OneHot": _one_hot, "Gather": lambda a: a.relay("take", a.node(0), a.node(1), axis=a.plain(2, "axis", 0), mode="clip"),
    "Reshape": _reshape, "Squeeze": _squeeze, "Concat": _joined("concatenate"), "Stack": _joined("stack"),
    "ExpandDims": lambda a: a.relay("expand_dims", a.node(0), axis=a.plain(1, "axis", 0), num_newaxis=1),
    "BroadcastTo": lambda a: a.relay("broadcast_to", a.node(0), shape=a.ints(1, "shape")),
    "Tile": lambda a: a.relay("tile", a.node(0), reps=a.ints(1, "multiples")),
    "Transpose": lambda a: a.b(ops.transpose, a.node(0), permutation=tuple(k % len(a.ints(1, "perm")) for k in a.ints(1, "perm"))),
    **dict.fromkeys(("MakeTuple", "make_tuple", "MakeList"), lambda a: a.b.pack(*(a.node(k) for k in range(len(a.inputs))))),
    **dict.fromkeys(("TupleGetItem", "tuple_getitem", "ListGetItem"), _item),
    **dict.fromkeys(("StopGradient", "stop_gradient"), lambda a: a.b(ops.stop_gradient, a.node(0))),
    **dict.fromkeys(("TensorMove", "Identity", "identity", "return", "Return", "ScalarToTensor", "InsertGradientOf"),
                    lambda a: a.node(0)),
}  # fmt: skip
"""Every primitive that is known, by its type; the lowering does control, calls and effects itself."""
