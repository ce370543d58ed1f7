"""Operators of a model taken together: two of them by one that means the same, never more of them nor larger constants.

Normalisation, sums and padding go into the convolution or product beside them; reshapings in a row are one, and transpositions.
A result of floats may change by rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from deepx_graph.ir import Function, Module, Node, Origin
from deepx_graph.ir.rebuild import rebuilt, with_inputs
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.literal import Array, Literal
from deepx_graph.ops.data.deferred import deferred
from deepx_graph.text.onnx.lower import DeferredNode
from deepx_graph.text.onnx.schema import AttributeProto, NodeProto
from deepx_graph.types import I64, TensorType, as_tensor

FEW = 8
"""Numbers that take no more room than an operation."""

FLOATS = (np.float32, np.float64)
"""Constants of these types are computed with."""


@dataclass(frozen=True)
class KeptOperator:
    """A kept operator that is looked at: its operands by position, None where one is left out, and its plain attributes."""

    node: Node
    lowering: DeferredNode

    @property
    def name(self) -> str:
        """The operator of the standard; empty for one of another domain."""
        message = self.lowering.node
        return message.op_type if message.domain in ("", "ai.onnx") else ""

    @property
    def operands(self) -> list[Node | None]:
        places = [self.lowering.template.get(n) if n else None for n in self.lowering.node.inputs]
        return [None if k is None else self.node.inputs[k] for k in places]

    @property
    def attributes(self) -> dict[str, AttributeProto]:
        return {a.name: a for a in self.lowering.node.attributes}

    def ints(self, name: str, default: Sequence[int] = ()) -> list[int]:
        found = self.attributes.get(name)
        return list(default) if found is None else list(found.ints)

    def number(self, name: str, default: int = 0) -> int:
        found = self.attributes.get(name)
        return default if found is None else found.i

    def constant(self, k: int) -> Array | None:
        """Operand k where it is a constant of plain floats."""
        operands = self.operands
        x = operands[k] if k < len(operands) else None
        if x is None or x.op is not CONSTANT or value_of(x).array.dtype not in FLOATS:
            return None
        return value_of(x).array

    def again(self, operands: Sequence[Node | None], attributes: Mapping[str, AttributeProto] | None = None,
              op_type: str | None = None) -> Node:
        """The operator over other operands, or another one with the same result."""
        old = self.lowering
        names = ["" if x is None else f"x{k}" for k, x in enumerate(operands)]
        flat = list(dict.fromkeys(x for x in operands if x is not None))
        template = {n: flat.index(x) for n, x in zip(names, operands, strict=True) if x is not None}
        given = self.attributes if attributes is None else attributes
        message = NodeProto(names, list(old.node.outputs), old.node.name, op_type or old.node.op_type, list(given.values()),
                            old.node.doc_string, metadata=old.node.metadata, at=old.node.at)
        lowering = DeferredNode(old.whole, old.opsets, None, message, template)
        attrs = tuple(lowering if a.name == "lowering" else f"onnx.{message.op_type}" if a.name == "name" else v
                      for a, v in zip(deferred.attrs, self.node.attrs, strict=True))
        return Node(deferred, tuple(flat), attrs, self.node.type, self.node.origin)


def operator(node: Node | None) -> KeptOperator | None:
    """The kept operator that a node is."""
    if node is None or node.op is not deferred or not isinstance(node.attr("lowering"), DeferredNode):
        return None
    return KeptOperator(node, node.attr("lowering"))


Merge = Callable[["Uses", KeptOperator], Node | None]


@dataclass
class Uses:
    """How often each node of a function is read."""

    counts: dict[Node, int] = field(default_factory=dict)

    def single(self, node: Node | None, *names: str) -> KeptOperator | None:
        """The kept operator of one of these names with one result, which nothing else reads."""
        found = operator(node)
        if found is None or found.name not in names or self.counts.get(found.node, 2) > 1 or not isinstance(
                found.node.type, TensorType):
            return None
        return found


def literal(array: Array, like: Node | None = None, name: str = "") -> Node:
    value = Literal(array)
    return Node(CONSTANT, (), (value,), value.type, Origin(name or (like.name if like is not None else "")))


# --- into convolutions and products ---------------------------------------------------------------------------------


def _scaled(u: Uses, conv: KeptOperator, scale: Array, offset: Array, outer: KeptOperator, named: Node | None) -> Node | None:
    """`conv * scale + offset` for each channel, as a convolution."""
    weights = conv.constant(1)
    biased = len(conv.operands) > 2 and conv.operands[2] is not None
    bias = conv.constant(2) if biased else np.zeros((), scale.dtype)
    if weights is None or bias is None or weights.dtype != scale.dtype or u.counts.get(conv.operands[1], 2) > 1:  # type: ignore[arg-type]
        return None
    if scale.shape != (weights.shape[0],):
        return None
    made = (weights * scale.reshape(-1, *(1,) * (weights.ndim - 1))).astype(weights.dtype)
    given = (bias * scale + offset).astype(weights.dtype)
    added = [literal(given, named)] if biased or offset.any() else []
    merged = conv.again([conv.operands[0], literal(made, conv.operands[1]), *added])
    return Node(merged.op, merged.inputs, merged.attrs, outer.node.type, outer.node.origin)


def _batch_norm(u: Uses, norm: KeptOperator) -> Node | None:
    """BatchNormalization(Conv(x, w)) = Conv(x, w')"""
    conv = u.single(norm.operands[0], "Conv")
    given = [norm.constant(k) for k in range(1, 5)]
    if conv is None or any(g is None for g in given) or norm.number("training_mode") or len(norm.lowering.node.outputs) > 1:
        return None
    if norm.lowering.opsets.get("", 1) < 9:
        return None
    scale, offset, mean, variance = (g.astype(np.float64) for g in given if g is not None)
    epsilon = norm.attributes["epsilon"].f if "epsilon" in norm.attributes else 1e-5
    factor = scale / np.sqrt(variance + epsilon)
    dtype = given[0].dtype  # type: ignore[union-attr]
    return _scaled(u, conv, factor.astype(dtype), (offset - mean * factor).astype(dtype), norm, norm.operands[2])


def _per_channel(array: Array | None, rank: int, channels: int) -> Array | None:
    """A constant that has one number for each channel, of batch, channels, space."""
    if array is None or array.size not in (1, channels) or array.ndim > rank:
        return None
    shape = (1,) * (rank - array.ndim) + array.shape
    if any(d != 1 for k, d in enumerate(shape) if k != 1):
        return None
    return np.broadcast_to(array.reshape(-1), (channels,))


def _into_conv(u: Uses, outer: KeptOperator) -> Node | None:
    """Conv(x, w) + c = Conv(x, w, c), and so for the other operations with a number for each channel."""
    for k in (0, 1):
        conv = u.single(outer.operands[k], "Conv")
        if conv is None or (k == 1 and outer.name in ("Sub", "Div")) or conv.node.type != outer.node.type:
            continue
        weights = conv.constant(1)
        if weights is None:
            continue
        number = _per_channel(outer.constant(1 - k), weights.ndim, weights.shape[0])
        if number is None or number.dtype != weights.dtype:
            continue
        if outer.name in ("Add", "Sub") and not any(number.strides) and len(conv.operands) < 3 and number.size > FEW:
            continue  # a number for each channel would take more room than the operation
        one, zero = np.ones_like(number), np.zeros_like(number)
        if outer.name in ("Add", "Sub"):
            scale, offset = one, number if outer.name == "Add" else -number
        else:
            with np.errstate(divide="ignore"):
                scale, offset = number if outer.name == "Mul" else one / number, zero
        if np.isfinite(scale).all():
            return _scaled(u, conv, scale, offset, outer, outer.operands[1 - k])
    return None


def _gemm(u: Uses, outer: KeptOperator) -> Node | None:
    """MatMul(x, w) + c = Gemm(x, w, c) for matrices."""
    for k in (0, 1):
        product, bias = u.single(outer.operands[k], "MatMul"), outer.operands[1 - k]
        if product is None or bias is None or outer.lowering.opsets.get("", 1) < 13:
            continue
        ranks = [as_tensor(x.type).rank for x in product.operands if x is not None]
        shape = as_tensor(outer.node.type)
        if ranks == [2, 2] and as_tensor(bias.type).rank == 1 and shape.rank == 2 and shape.dtype.is_float and (
                as_tensor(bias.type).dims == (shape.dims or ())[1:]):
            merged = product.again([*product.operands, bias], {}, "Gemm")
            return Node(merged.op, merged.inputs, merged.attrs, outer.node.type, outer.node.origin)
    return None


def _sum(u: Uses, outer: KeptOperator) -> Node | None:
    return _into_conv(u, outer) or (_gemm(u, outer) if outer.name == "Add" else None)


def _padded(u: Uses, conv: KeptOperator) -> Node | None:
    """Conv(Pad(x)) = Conv(x), padding by zeros in space."""
    pad = u.single(conv.operands[0], "Pad")
    if pad is None or pad.lowering.opsets.get("", 1) < 11 or "mode" in pad.attributes or len(pad.operands) > 3:
        return None
    amounts, auto = pad.operands[1], conv.attributes.get("auto_pad")
    if amounts is None or amounts.op is not CONSTANT or (auto is not None and bytes(auto.s) not in (b"NOTSET", b"VALID")):
        return None
    if len(pad.operands) > 2 and pad.operands[2] is not None and (pad.constant(2) is None or np.any(pad.constant(2))):
        return None
    added = value_of(amounts).array.tolist()
    n = len(added) // 2 - 2
    if n < 1 or min(added) < 0 or any(added[:2]) or any(added[n + 2 : n + 4]):
        return None
    old = conv.ints("pads", [0] * 2 * n) if auto is None or bytes(auto.s) == b"NOTSET" else [0] * 2 * n
    pads = [a + b for a, b in zip(old, [*added[2 : n + 2], *added[n + 4 :]], strict=True)]
    attributes = {k: a for k, a in conv.attributes.items() if k not in ("pads", "auto_pad")}
    return conv.again([pad.operands[0], *conv.operands[1:]], {**attributes, "pads": AttributeProto("pads", 7, ints=pads)})


# --- rows of the same -----------------------------------------------------------------------------------------------

_VIEWS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")


def _view(u: Uses, outer: KeptOperator) -> Node | None:
    """Reshapings in a row are one; none where the shape is that of the beginning."""
    inner = u.single(outer.operands[0], *_VIEWS)
    type = as_tensor(outer.node.type)
    if inner is None or inner.operands[0] is None:
        return None
    if inner.operands[0].type == type and type.dims is not None:
        return inner.operands[0]
    if not type.is_static or not type.size or outer.lowering.opsets.get("", 1) < 5:
        return None
    merged = outer.again([inner.operands[0], literal(np.asarray(type.shape, np.int64))], {}, "Reshape")
    return merged if as_tensor(merged.inputs[-1].type).dtype is I64 else None


def _transposed(u: Uses, outer: KeptOperator) -> Node | None:
    """Transpositions in a row are one, or none."""
    inner = u.single(outer.operands[0], "Transpose")
    rank = as_tensor(outer.node.type).rank
    if inner is None or rank is None or inner.operands[0] is None:
        return None
    back = list(reversed(range(rank)))
    first, second = inner.ints("perm", back), outer.ints("perm", back)
    order = [first[k] for k in second]
    if order == list(range(rank)):
        return inner.operands[0]
    return outer.again([inner.operands[0]], {"perm": AttributeProto("perm", 7, ints=order)})


MERGES: dict[str, Merge] = {
    "BatchNormalization": _batch_norm, "Add": _sum, "Sub": _into_conv, "Mul": _into_conv, "Div": _into_conv, "Conv": _padded,
    **dict.fromkeys(_VIEWS, _view), "Transpose": _transposed,
}  # fmt: skip
"""What is tried for each operator."""


def merged(module: Module) -> Module:
    """The module with kept operators taken together until nothing changes."""
    while True:
        after = module.with_functions([_merged(f) for f in module.functions])
        if after is module:
            return module
        module = after


def _merged(function: Function) -> Function:
    counts: dict[Node, int] = {}
    for n in function.nodes:
        for x in n.inputs:
            counts[x] = counts.get(x, 0) + 1
    for r in function.results:
        counts[r] = counts.get(r, 0) + 1
    uses = Uses(dict(counts))

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        again = with_inputs(node, inputs)
        if again is not node:
            uses.counts[again] = counts.get(node, 0)
        found = operator(again)
        merge = MERGES.get(found.name) if found is not None else None
        made = merge(uses, found) if merge is not None and found is not None else None
        if made is None:
            return again
        uses.counts[made] = uses.counts.get(made, 0) + counts.get(node, 0)
        return made

    return rebuilt(function, step)


