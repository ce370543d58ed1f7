"""How our operations are said in ONNX: elementwise ones and those that move elements here, the others in `contract.py`.

Operands of elementwise operations are broadcast by ONNX as by numpy: a broadcast that only they read is not written.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node, Op
from deepx_graph.ir.structure import LOOP_END, PROJ, REGION, STRUCTURAL, TUPLE
from deepx_graph.literal import Literal
from deepx_graph.rewrite.legalise import ConversionTarget
from deepx_graph.text.onnx.printer.contract import CONTRACT
from deepx_graph.text.onnx.printer.graph import GraphWriter, Say
from deepx_graph.text.onnx.values import NUMBERS
from deepx_graph.types import BOOL, I32, I64, U8, U16, U32, U64, Dim, Dims, DType, TensorType, as_tensor

# --- operands that ONNX broadcasts ----------------------------------------------------------------------------------


def operands(w: GraphWriter, node: Node) -> list[str]:
    """The operands of an elementwise node, in shapes that broadcast to that of its result."""
    dims = as_tensor(node.type).dims
    narrow = [_before_broadcast(x) for x in node.inputs]
    if dims is None or _joint([shape for _, shape in narrow], len(dims)) != dims:
        return [w.use(x) for x in node.inputs]
    return [w.use(x) if as_tensor(x.type).dims == shape else w.reshape(x, shape) for x, shape in narrow]


def _before_broadcast(x: Node) -> tuple[Node, Dims]:
    """What is broadcast, and its shape with ones up to the last axis."""
    if x.op is not ops.broadcast_in_dim:
        return x, as_tensor(x.type).dims or ()
    old, rank, axes = as_tensor(x.inputs[0].type).dims or (), len(as_tensor(x.type).dims or ()), x.attr("broadcast_dimensions")
    if tuple(sorted(axes)) != tuple(axes) or (axes and any(isinstance(d, str) for d in old) and axes[-1] != rank - 1):
        return x, as_tensor(x.type).dims or ()
    shape: list[Dim] = [1] * (rank - axes[0]) if axes else []
    for k, a in enumerate(axes):
        shape[a - rank] = old[k]
    return x.inputs[0], tuple(shape)


def _joint(shapes: Sequence[Dims], rank: int) -> Dims:
    made = []
    for k in range(rank, 0, -1):
        sizes = {s[-k] for s in shapes if len(s) >= k} - {1}
        made.append(sizes.pop() if len(sizes) == 1 else 1 if not sizes else -1)
    return tuple(made)


# --- elementwise ----------------------------------------------------------------------------------------------------

PLAIN: dict[Op, str] = {
    ops.add: "Add", ops.subtract: "Sub", ops.multiply: "Mul", ops.divide: "Div", ops.power: "Pow", ops.maximum: "Max",
    ops.minimum: "Min", ops.abs_: "Abs", ops.sign: "Sign", ops.floor: "Floor", ops.ceil: "Ceil", ops.round_nearest_even: "Round",
    ops.exponential: "Exp", ops.log: "Log", ops.sqrt: "Sqrt", ops.sine: "Sin", ops.cosine: "Cos", ops.tan: "Tan",
    ops.tanh: "Tanh", ops.logistic: "Sigmoid", ops.cosh: "Cosh", ops.sinh: "Sinh", ops.acos: "Acos", ops.asin: "Asin",
    ops.atan: "Atan", ops.acosh: "Acosh", ops.asinh: "Asinh", ops.atanh: "Atanh", ops.erf: "Erf", ops.select: "Where",
    ops.is_inf: "IsInf",
}  # fmt: skip
"""Operations that ONNX has for numbers."""

LOGIC: dict[Op, tuple[str, str]] = {
    ops.and_: ("And", "BitwiseAnd"), ops.or_: ("Or", "BitwiseOr"), ops.xor: ("Xor", "BitwiseXor"), ops.not_: ("Not", "BitwiseNot"),
}  # fmt: skip
"""Names of an operation on bools, and on bits."""

BOOLEAN: dict[Op, str] = {ops.add: "Or", ops.maximum: "Or", ops.multiply: "And", ops.minimum: "And", ops.subtract: "Xor"}
"""Arithmetic of bools."""

COMPARE = {"EQ": "Equal", "LT": "Less", "LE": "LessOrEqual", "GT": "Greater", "GE": "GreaterOrEqual"}


def _dtype(node: Node) -> DType:
    return as_tensor(node.type).dtype


def _plain(w: GraphWriter, node: Node) -> str:
    dtype = _dtype(node)
    if dtype is BOOL and node.op in BOOLEAN:
        return w.emit(BOOLEAN[node.op], *operands(w, node))
    if dtype.kind not in ("float", "int", "uint", "bool"):
        raise InferError(f"ONNX computes with no {dtype}")
    return w.emit(PLAIN[node.op], *operands(w, node))


def _of_texts(name: str, since: int, *attributes: str) -> Say:
    """An elementwise operation on texts that is one operator, which there is since a version."""

    def say(w: GraphWriter, node: Node) -> str:
        if w.version < since:
            raise InferError(f"{name} is an operator of version {since}, and {w.version} is written", hint=f"--opset {since}")
        return w.emit(name, *operands(w, node), **{a: node.attr(a) for a in attributes})

    return say


def _logic(w: GraphWriter, node: Node) -> str:
    return w.emit(LOGIC[node.op][_dtype(node) is not BOOL], *operands(w, node))


def _compare(w: GraphWriter, node: Node) -> str:
    direction, given = node.attr("direction"), operands(w, node)
    if _dtype(node.inputs[0]) is BOOL and direction not in ("EQ", "NE"):
        given = [w.emit("Cast", g, to=NUMBERS[I32]) for g in given]
    if direction == "NE":
        return w.emit("Not", w.emit("Equal", *given))
    return w.emit(COMPARE[direction], *given)


def _negate(w: GraphWriter, node: Node) -> str:
    if _dtype(node).kind == "uint":
        return w.emit("Sub", w.number(0, _dtype(node)), node.inputs[0])
    return w.emit("Neg", node.inputs[0])


def _remainder(w: GraphWriter, node: Node) -> str:
    return w.emit("Mod", *operands(w, node), fmod=1)


def _clamp(w: GraphWriter, node: Node) -> str:
    low, x, high = node.inputs
    if as_tensor(low.type).dims == as_tensor(high.type).dims == ():
        return w.emit("Clip", x, low, high)
    return w.emit("Min", w.emit("Max", x, low), high)


def _convert(w: GraphWriter, node: Node) -> str:
    if _dtype(node) not in NUMBERS:
        raise InferError(f"ONNX has no {_dtype(node)}")
    return w.emit("Cast", node.inputs[0], to=NUMBERS[_dtype(node)])


_UNSIGNED = {8: U8, 16: U16, 32: U32, 64: U64}


def _shift(direction: str) -> Say:
    """Of unsigned numbers alone: signed ones are taken as such. Shifting by all bits or more gives zero."""

    def say(w: GraphWriter, node: Node) -> str:
        dtype = _dtype(node)
        kind = _UNSIGNED[dtype.bits]
        given = operands(w, node)
        if dtype is not kind:
            given = [w.emit("Cast", g, to=NUMBERS[kind]) for g in given]
        made = w.emit("BitShift", *given, direction=direction)
        if not _is_small(node.inputs[1], dtype.bits):
            made = w.emit("Where", w.emit("Less", given[1], w.number(dtype.bits, kind)), made, w.number(0, kind))
        return made if dtype is kind else w.emit("Cast", made, to=NUMBERS[dtype])

    return say


def _is_small(x: Node, bits: int) -> bool:
    x = x.inputs[0] if x.op is ops.broadcast_in_dim else x
    return x.op.name == "constant" and bool((x.attr("value").array < bits).all())


def _same(w: GraphWriter, node: Node) -> str:
    return w.use(node.inputs[0])


# --- elements moved -------------------------------------------------------------------------------------------------


def _reshape(w: GraphWriter, node: Node) -> str:
    dims = as_tensor(node.type).dims or ()
    named = [d for d in dims if isinstance(d, str)]
    if len(named) == 1 and 0 not in dims:
        return w.reshape(node.inputs[0], [-1 if isinstance(d, str) else d for d in dims])
    return w.reshape(node.inputs[0], dims)


def _broadcast(w: GraphWriter, node: Node) -> str:
    dims, axes = as_tensor(node.type).dims or (), node.attr("broadcast_dimensions")
    old = as_tensor(node.inputs[0].type).dims or ()
    if any(isinstance(d, str) for d in dims) and all(_is_elementwise(u) for u in w.function.users.get(node, ())):
        try:
            return _expanded(w, node, dims, axes, old)
        except InferError:
            return ""  # no input has that size: those that read it have to do without it
    return _expanded(w, node, dims, axes, old)


def _is_elementwise(node: Node) -> bool:
    return node.op.elementwise


def _expanded(w: GraphWriter, node: Node, dims: Dims, axes: Sequence[int], old: Dims) -> str:
    x: str | Node = node.inputs[0]
    order = sorted(range(len(axes)), key=axes.__getitem__)
    if order != list(range(len(axes))):
        x = w.emit("Transpose", x, perm=order)
    places = [axes[k] for k in order]
    if places and places != list(range(len(dims) - len(places), len(dims))):
        shape: list[int | str] = [1] * (len(dims) - places[0])
        for k, a in zip(order, places, strict=True):
            shape[a - len(dims)] = old[k]
        x = w.reshape(x, tuple(shape))
    return w.emit("Expand", x, w.shape(dims))


def _slice(w: GraphWriter, node: Node) -> str:
    start, limit, strides = node.attrs
    old = as_tensor(node.inputs[0].type).shape
    axes = [k for k in range(len(old)) if (start[k], limit[k], strides[k]) != (0, old[k], 1)]
    parts = [[values[k] for k in axes] for values in (start, limit)]
    steps = [strides[k] for k in axes]
    if not axes:
        return w.use(node.inputs[0])
    return w.emit("Slice", node.inputs[0], *map(w.ints, parts), w.ints(axes), *([w.ints(steps)] if set(steps) != {1} else []))


def _reverse(w: GraphWriter, node: Node) -> str:
    axes = list(node.attr("dimensions"))
    many = [-1] * len(axes)
    return w.emit("Slice", node.inputs[0], w.ints(many), w.ints([-(1 << 62)] * len(axes)), w.ints(axes), w.ints(many))


def _pad(w: GraphWriter, node: Node) -> str:
    """Padding between elements: each gets an axis of its own, along which it is padded."""
    low, high, inside = node.attrs
    x: str | Node = node.inputs[0]
    shape = list(as_tensor(node.inputs[0].type).shape)
    for axis, between in enumerate(inside):
        if between and shape[axis] > 1:
            split = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
            after = [between if k == axis + 1 else 0 for k in range(len(split))]
            x = w.emit("Pad", w.reshape(x, split), w.ints([0] * len(split) + after), node.inputs[1])
            size = shape[axis] * (between + 1)
            shape[axis] = size
            x = w.emit("Slice", w.reshape(x, shape), w.ints([0]), w.ints([size - between]), w.ints([axis]))
            shape[axis] = size - between
    if any(low) or any(high):
        x = w.emit("Pad", x, w.ints([*low, *high]), node.inputs[1])
    return x if isinstance(x, str) else w.use(x)


FEW = 4096
"""Numbers of an iota that are written as a constant."""


def _iota(w: GraphWriter, node: Node) -> str:
    type, axis = as_tensor(node.type), node.attr("iota_dimension")
    shape = type.shape
    sizes = [shape[axis] if k == axis else 1 for k in range(len(shape))]
    if shape[axis] <= FEW and type.dtype.np is not None:
        line = w.constant(Literal(np.arange(shape[axis]).astype(type.dtype.np).reshape(sizes)))
    else:
        line = w.emit("Range", w.number(0, I64), w.number(shape[axis], I64), w.number(1, I64))
        line = w.reshape(w.emit("Cast", line, to=NUMBERS[type.dtype]), sizes)
    return line if list(shape) == sizes else w.emit("Expand", line, w.ints(shape))


def _dimension(w: GraphWriter, node: Node) -> str:
    axis = node.attr("dimension")
    size = w.emit("Squeeze", w.emit("Shape", node.inputs[0], start=axis, end=axis + 1))
    return w.emit("Cast", size, to=NUMBERS[_dtype(node)])


SAY: dict[Op, Say] = {
    **dict.fromkeys(PLAIN, _plain), **dict.fromkeys(LOGIC, _logic), ops.compare: _compare, ops.negate: _negate,
    ops.remainder: _remainder, ops.clamp: _clamp, ops.convert: _convert, ops.shift_left: _shift("LEFT"),
    ops.shift_right_logical: _shift("RIGHT"),
    ops.rsqrt: lambda w, node: w.emit("Reciprocal", w.emit("Sqrt", node.inputs[0])),
    ops.square: lambda w, node: w.emit("Mul", node.inputs[0], node.inputs[0]),
    ops.is_finite: lambda w, node: w.emit("Not", w.emit("Or", w.emit("IsInf", node.inputs[0]), w.emit("IsNaN", node.inputs[0]))),
    ops.is_pos_inf: lambda w, node: w.emit("IsInf", node.inputs[0], detect_negative=0),
    ops.is_neg_inf: lambda w, node: w.emit("IsInf", node.inputs[0], detect_positive=0),
    ops.stop_gradient: _same, ops.identity: _same, ops.ensure_type: _same, ops.reshape: _reshape,
    ops.transpose: lambda w, node: w.emit("Transpose", node.inputs[0], perm=node.attr("permutation")),
    ops.concatenate: lambda w, node: w.emit("Concat", *node.inputs, axis=node.attr("dimension")),
    ops.broadcast_in_dim: _broadcast, ops.slice_: _slice, ops.reverse: _reverse, ops.pad: _pad, ops.iota: _iota,
    ops.get_dimension_size: _dimension, ops.string_equal: _of_texts("Equal", 19), ops.string_concat: _of_texts("StringConcat", 20),
    ops.string_match: _of_texts("RegexFullMatch", 20, "pattern"),
    ops.number_to_string: _convert, ops.string_to_number: _convert, **CONTRACT,
}  # fmt: skip
"""Every operation that ONNX has, or that is said by several of its operators."""

_WRITTEN = {*SAY, *STRUCTURAL}

_SIGNED_ONLY = frozenset((ops.floor, ops.ceil, ops.round_nearest_even))


def _has(node: Node) -> bool:
    """Whether ONNX has the operation for these types. Compositions take the place of what it lacks for others."""
    if node.op in (REGION, LOOP_END, PROJ, TUPLE) or not isinstance(node.type, TensorType):
        return node.op in _WRITTEN
    if node.op in _SIGNED_ONLY and not node.type.dtype.is_float:
        return False
    if node.op is ops.compare and node.attr("compare_type") == "TOTALORDER" and _dtype(node.inputs[0]).is_float:
        return False
    return node.op in _WRITTEN and node.type.dtype.kind != "complex"


TARGET = ConversionTarget(_has)
"""What ONNX has."""
