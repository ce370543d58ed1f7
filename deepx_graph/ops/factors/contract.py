"""Factors of operations that combine elements: reductions, products, windows, normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.ir.factor_rule import ZERO, FactorRule, Partitioning, Reading, RuleBuilder
from deepx_graph.ir.node import Node
from deepx_graph.ir.op import Op
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.ops.math.elementwise import add
from deepx_graph.types import as_tensor

Shapes = Sequence[tuple[int, ...]]


def _reduce(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    inputs, kept = len(node.inputs) // 2, iter(range(len(r.operands[0])))
    for k, size in enumerate(r.operands[0]):
        is_reduced = k in node.attr("dimensions")
        results = [] if is_reduced else [next(kept)] * inputs
        r.factor(size, [k] * inputs, results, *["reduction"] * is_reduced)
    return r.rule()


def _reduce_combiner(node: Node) -> Op | None:
    """The op of the body, where starting every part from the initial value is as starting once."""
    op: Op | None = node.attr("body").reducer
    if op is None or len(node.inputs) != 2 or op.idempotent:
        return op if len(node.inputs) == 2 else None
    init = node.inputs[1]
    neutral = op.identity_for(as_tensor(init.type).dtype)
    return op if init.op is CONSTANT and bool(np.all(value_of(init).array == neutral)) else None


def _reduce_neutral(node: Node, operand: int) -> Any:
    """The identity of the body's op, in the operand that is reduced."""
    op = _reduce_combiner(node)
    return op.identity_for(as_tensor(node.inputs[operand].type).dtype) if op is not None and operand == 0 else None


def _dot_general(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    (left, right), at = r.operands, 0
    lhs_batch, rhs_batch, lhs_contract, rhs_contract = node.attrs
    for i, j in zip(lhs_batch, rhs_batch, strict=True):
        r.factor(left[i], (i, j), (at,))
        at += 1
    for i in range(len(left)):
        if i not in lhs_batch + lhs_contract:
            r.factor(left[i], (i, None), (at,))
            at += 1
    for j in range(len(right)):
        if j not in rhs_batch + rhs_contract:
            r.factor(right[j], (None, j), (at,))
            at += 1
    for i, j in zip(lhs_contract, rhs_contract, strict=True):
        r.factor(left[i], (i, j), (), "reduction")
    return r.rule()


def _convolution(node: Node) -> FactorRule:
    """Windows overlap: the space stays whole. Groups are split as they lie, features within a group only where there is one."""
    r = RuleBuilder(node)
    a = node.named_attrs
    lhs, result = r.operands[0], r.results[0]
    batch, feature, space = a["input_batch_dimension"], a["input_feature_dimension"], a["input_spatial_dimensions"]
    inner, outer = a["kernel_input_feature_dimension"], a["kernel_output_feature_dimension"]
    out_batch, out_feature, out_space = a["output_batch_dimension"], a["output_feature_dimension"], a["output_spatial_dimensions"]
    groups, batches = a["feature_group_count"], a["batch_group_count"]
    if batches > 1:
        r.factor(batches, (batch, outer), (out_feature,))
    if batches == 1 or lhs[batch] > batches:
        r.factor(lhs[batch] // batches, (batch, None), (out_batch,))
    for i, o in zip(space, out_space, strict=True):
        r.factor(result[o], (i, None), (o,), "permuted")
    if groups > 1:
        r.factor(groups, (feature, outer), (out_feature,))
    if groups == 1 or lhs[feature] > groups:
        r.factor(lhs[feature] // groups, (feature, inner), (), "reduction")
    if result[out_feature] > groups * batches or groups * batches == 1:
        r.factor(result[out_feature] // (groups * batches), (None, outer), (out_feature,))
    return r.rule()


def _convolution_attrs(node: Node, operands: Shapes, results: Shapes) -> tuple[Any, ...]:
    """As many groups as there are parts of them here."""
    a = node.named_attrs
    features = operands[0][a["input_feature_dimension"]] // max(1, operands[1][a["kernel_input_feature_dimension"]])
    batches = operands[0][a["input_batch_dimension"]] // max(1, results[0][a["output_batch_dimension"]])
    return tuple((a | {"feature_group_count": max(1, features), "batch_group_count": max(1, batches)}).values())


def _convolution_reading(node: Node, dim: int) -> Reading | None:
    a = node.named_attrs
    k = a["output_spatial_dimensions"].index(dim)
    if a["lhs_dilation"][k] != 1:
        return None
    window = as_tensor(node.inputs[1].type).shape[a["kernel_spatial_dimensions"][k]]
    extent = (window - 1) * a["rhs_dilation"][k] + 1
    return Reading(a["window_strides"][k], a["padding_low"][k], extent, fill=ZERO, attrs=_unpadded, at=k)


def _unpadded(size: int) -> dict[str, int]:
    return {"padding_low": 0, "padding_high": 0}


def _window(node: Node) -> FactorRule:
    """Axes whose windows are single elements are split; the others stay whole."""
    r = RuleBuilder(node)
    inputs = len(node.inputs) // 2
    a = node.named_attrs
    shape, windows = r.operands[0], a["window_dimensions"]
    for k, size in enumerate(shape):
        result = r.results[0][k]
        r.factor(result, [k] * inputs, [k] * inputs, *["permuted"] * (windows[k] != 1 or size != result))
    return r.rule()


def _window_reading(node: Node, dim: int) -> Reading | None:
    a = node.named_attrs
    if len(node.inputs) != 2 or a["base_dilations"][dim] != 1:
        return None
    extent = (a["window_dimensions"][dim] - 1) * a["window_dilations"][dim] + 1
    return Reading(a["window_strides"][dim], a["padding_low"][dim], extent, fill=1, attrs=_unpadded, at=dim)


def _select_and_scatter(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    for k, size in enumerate(r.operands[0]):
        source = r.operands[1][k]
        if source == size:
            r.factor(size, (k, k, None), (k,), *["permuted"] * (node.attr("window_dimensions")[k] != 1))
        else:
            r.factor(source, (None, k, None), (), "replicated")
            r.factor(size, (k, None, None), (k,), "permuted")
    return r.rule()


def _batch_norm(node: Node) -> FactorRule:
    """Statistics are over all but the features."""
    r = RuleBuilder(node)
    feature = node.attr("feature_index")
    rank = len(r.operands[0])

    def dims(shapes: Shapes, k: int) -> list[int | None]:
        """Of tensors like the operand axis k; of those of the features alone their one axis, where k is that."""
        return [k if len(shape) == rank else 0 if k == feature else None for shape in shapes]

    for k, size in enumerate(r.operands[0]):
        r.factor(size, dims(r.operands, k), dims(r.results, k), *["replicated"] * (k != feature))
    return r.rule()


def _same(node: Node) -> FactorRule:
    """Of batch_norm_inference, whose statistics are given."""
    r = RuleBuilder(node)
    feature = node.attr("feature_index")
    for k, size in enumerate(r.operands[0]):
        r.factor(size, [k, *[0 if k == feature else None] * 4], (k,))
    return r.rule()


def _zero(node: Node, operand: int) -> Any:
    """Of sums of products."""
    return 0


REDUCE = Partitioning(_reduce, combiner=_reduce_combiner, neutral=_reduce_neutral)
WINDOW = Partitioning(_window, reading=_window_reading)
SELECT_AND_SCATTER = Partitioning(_select_and_scatter)
BATCH_NORM = Partitioning(_batch_norm)
BATCH_NORM_INFERENCE = Partitioning(_same)
DOT_GENERAL = Partitioning(_dot_general, combiner=lambda node: add, neutral=_zero)
CONVOLUTION = Partitioning(_convolution, _convolution_attrs, lambda node: add, _zero, _convolution_reading)
