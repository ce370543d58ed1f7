"""Operators of one version of the operator set said in a later one.

Only what an operator says otherwise is here: attributes that became operands, defaults that changed, names. What grew (types, more
that is optional) needs nothing. Source: onnx/docs/Changelog.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.text.onnx.schema import AttributeProto, GraphProto, NodeProto

Constant = Callable[[Any], str]
"""The name of an initialiser with that value."""

Upgrade = Callable[[NodeProto, Constant], NodeProto]


def upgraded(node: NodeProto, own: int, wanted: int, constant: Constant) -> NodeProto:
    """A node of version `own`, graphs within it too, in version `wanted`. Raises InferError for what has another meaning there."""
    if own == wanted:
        return node
    if own > wanted:
        raise InferError(f"{node.op_type} is an operator of version {own}", expected=f"of version {wanted}, which is written",
                         hint=f"--opset {own}")
    for since, upgrade in UPGRADES.get(node.op_type, {}).items() if node.domain in ("", "ai.onnx") else ():
        if own < since <= wanted:
            node = upgrade(node, constant)
    if not any(a.graph is not None or a.graphs for a in node.attributes):
        return node

    def within(graph: GraphProto) -> GraphProto:
        return replace(graph, nodes=[upgraded(n, own, wanted, constant) for n in graph.nodes])

    attributes = [replace(a, graph=None if a.graph is None else within(a.graph), graphs=[within(g) for g in a.graphs])
                  for a in node.attributes]
    return replace(node, attributes=attributes)


def _attribute(node: NodeProto, name: str) -> AttributeProto | None:
    return next((a for a in node.attributes if a.name == name), None)


def _without(node: NodeProto, *names: str) -> NodeProto:
    return replace(node, attributes=[a for a in node.attributes if a.name not in names])


def _with_inputs(node: NodeProto, start: int, *more: str) -> NodeProto:
    """With more operands from a place on; what is left out before them is empty."""
    inputs = [*node.inputs, *[""] * (start - len(node.inputs))][:start]
    return replace(node, inputs=[*inputs, *more])


def _to_inputs(*names: str) -> Upgrade:
    """Lists of integers that became operands, in this order, after the first one."""

    def upgrade(node: NodeProto, constant: Constant) -> NodeProto:
        found = [_attribute(node, name) for name in names]
        more = ["" if a is None else constant(np.asarray(a.ints, np.int64)) for a in found]
        while more and not more[-1]:
            more.pop()
        return _with_inputs(_without(node, *names), 1, *more) if more else _without(node, *names)

    return upgrade


def _number_to_input(name: str, place: int, default: int | None = None, rank: int = 0) -> Upgrade:
    def upgrade(node: NodeProto, constant: Constant) -> NodeProto:
        found = _attribute(node, name)
        value = default if found is None else found.i
        if value is None:
            return node
        return _with_inputs(_without(node, name), place, constant(np.full((1,) * rank, value, np.int64)))

    return upgrade


def _refuse(why: str) -> Upgrade:
    def upgrade(node: NodeProto, constant: Constant) -> NodeProto:
        raise InferError(f"{node.op_type} has another meaning in later versions: {why}", hint="write the version of the model")

    return upgrade


def _split(node: NodeProto, constant: Constant) -> NodeProto:
    """How many parts has to be said where their sizes are not."""
    if len(node.inputs) > 1 and node.inputs[1]:
        return node
    return replace(node, attributes=[*node.attributes, AttributeProto("num_outputs", 2, i=len(node.outputs))])


def _mode(node: NodeProto, constant: Constant) -> NodeProto:
    names = {b"bilinear": b"linear", b"bicubic": b"cubic"}
    return replace(node, attributes=[replace(a, s=names.get(bytes(a.s), a.s)) if a.name == "mode" else a for a in node.attributes])


def _said(name: str, value: bytes) -> Upgrade:
    """A default that became another one."""

    def upgrade(node: NodeProto, constant: Constant) -> NodeProto:
        return node if _attribute(node, name) else replace(node, attributes=[*node.attributes, AttributeProto(name, 3, s=value)])

    return upgrade


def _inference(node: NodeProto, constant: Constant) -> NodeProto:
    if any(node.outputs[1:]):
        raise InferError(f"{node.op_type} in training has other results in later versions", hint="write the version of the model")
    return replace(node, outputs=node.outputs[:1])


def _ratio(node: NodeProto, constant: Constant) -> NodeProto:
    """Only read in training."""
    return _without(node, "ratio")


def _renamed(node: NodeProto, constant: Constant) -> NodeProto:
    return replace(node, op_type="ScatterElements")


def _channels(node: NodeProto, constant: Constant) -> NodeProto:
    """Only by channels."""
    found = _attribute(node, "spatial")
    if found is not None and not found.i:
        return _refuse("it could normalise element by element")(node, constant)
    return _without(node, "spatial")


_AXIS = _refuse("it took all axes from one on together")
_ATTRIBUTES = _refuse("its attributes became operands")

UPGRADES: dict[str, dict[int, Upgrade]] = {
    **{f"Reduce{kind}": {18: _to_inputs("axes")}
       for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")},
    **{key: {13: _to_inputs("axes")} for key in ("ReduceSum", "Squeeze", "Unsqueeze")},
    **{key: {13: _AXIS} for key in ("Softmax", "LogSoftmax", "Hardmax")},
    **{key: {11: _ATTRIBUTES} for key in ("Clip", "Pad")}, "Upsample": {10: _ATTRIBUTES}, "Resize": {11: _ATTRIBUTES},
    "Split": {13: _to_inputs("split"), 18: _split}, "Slice": {10: _to_inputs("starts", "ends", "axes")},
    "TopK": {10: _number_to_input("k", 1, rank=1)}, "Dropout": {12: _ratio},
    "DFT": {20: _number_to_input("axis", 2, 1)}, "GridSample": {20: _mode}, "Scan": {9: _refuse("it had an axis of batches")},
    "RoiAlign": {16: _said("coordinate_transformation_mode", b"output_half_pixel")},
    "GroupNormalization": {21: _refuse("its scale and bias were those of groups")},
    "BatchNormalization": {9: _channels, 14: _inference},
    "Scatter": {11: _renamed},
}  # fmt: skip
"""By operator and version: how a node of earlier versions is said from then on."""
