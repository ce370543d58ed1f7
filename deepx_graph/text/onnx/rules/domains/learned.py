"""Operators of classical machine learning (`ai.onnx.ml`): features, linear models, trees."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.literal import Literal
from deepx_graph.text.common.elements import part_of
from deepx_graph.text.common.steps import Unsupported
from deepx_graph.text.onnx.context import NodeContext, Rules
from deepx_graph.types import BOOL, F32


def _features(c: NodeContext) -> Node:
    """Columns picked by number."""
    x = c.add_axes(c.node(), (0,)) if c.rank() == 1 else c.node()
    index = c.shaped(c.node(1), (math.prod(c.shape(1)),))
    return c(ops.torch_index_select, x, index, dim=len(c.dims_of(x)) - 1)


def _binarizer(c: NodeContext) -> Node:
    x = c.node()
    return c.cast(c(ops.compare, x, c.like(c.real("threshold", 0.0), x), direction="GT"), c.dtype())


def _scaler(c: NodeContext) -> Node:
    x = c.cast(c.node(), F32)
    offset, scale = (c.constant(np.asarray(c.reals(name, (d,))), F32) for name, d in (("offset", 0.0), ("scale", 1.0)))
    return c.each(ops.multiply, c.each(ops.subtract, x, offset), scale)


def _linear(c: NodeContext) -> Node:
    targets = c.number("targets", 1)
    weights = np.asarray(c.reals("coefficients"))
    if c.text("post_transform", "NONE") != "NONE" or targets < 1 or weights.size % targets:
        raise Unsupported("a transform of the result")
    x = c.cast(c.node(), F32)
    made = c(ops.dot_general, x, c.constant(weights.reshape(targets, -1), F32), lhs_contracting_dimensions=(1,),
             rhs_contracting_dimensions=(1,))
    return c.each(ops.add, made, c.constant(np.asarray(c.reals("intercepts", (0.0,))), F32))


# --- trees ----------------------------------------------------------------------------------------------------------

_COMPARISONS = {0: "LE", 1: "LT", 2: "GE", 3: "GT", 4: "EQ", 5: "NE"}
MEMBER = 6


def _trees(c: NodeContext) -> Node:
    """The weights of the leaves that a row reaches, added up for each target."""
    x, targets = c.node(), c.number("n_targets")
    aggregate = c.number("aggregate_function", 1)
    if c.number("post_transform", 0) or aggregate not in (0, 1):
        raise Unsupported("another aggregation of trees")
    modes, splits, weights = (_array(c, name) for name in ("nodes_modes", "nodes_splits", "leaf_weights"))
    features, roots, of = c.ints("nodes_featureids"), c.ints("tree_roots"), c.ints("leaf_targetids")
    ways = [(c.ints(f"nodes_{side}nodeids"), c.ints(f"nodes_{side}leafs")) for side in ("true", "false")]
    missing = c.ints("nodes_missing_value_tracks_true", (0,) * len(modes))
    sets = _members(c, modes)
    rows = c.shape()[0]
    totals = [c.full(0, c.type().with_dims((rows,))) for _ in range(targets)]
    visited = 0
    for root in roots:
        stack = [(root, bool(ways[0][0]) and len(modes) == 0, c.full(True, c.type().with_dtype(BOOL).with_dims((rows,))))]
        while stack:
            at, is_leaf, reached = stack.pop()
            visited += 1
            if visited > len(modes) * 2 + len(of) + len(roots):
                raise InferError("the nodes of a tree form a cycle", expected="a tree")
            if is_leaf:
                weight = c(ops.select, reached, c.full(weights[at], c.type_of(totals[0])), c.full(0, c.type_of(totals[0])))
                totals[of[at]] = c(ops.add, totals[of[at]], weight)
                continue
            value = c.shaped(part_of(c, x, 1, features[at], features[at] + 1), (rows,))
            if modes[at] == MEMBER:
                hit = c.full(False, c.type_of(reached))
                for m in sets[at]:
                    hit = c(ops.or_, hit, c(ops.compare, value, c.like(m, value), direction="EQ"))
            else:
                hit = c(ops.compare, value, c.like(splits[at], value), direction=_COMPARISONS[int(modes[at])])
            if missing[at]:
                hit = c(ops.or_, hit, c(ops.compare, value, value, direction="NE"))
            for (nodes, leafs), taken in zip(ways, (hit, c(ops.not_, hit)), strict=True):
                stack.append((nodes[at], bool(leafs[at]), c(ops.and_, reached, taken)))
    made = c(ops.concatenate, *(c.add_axes(t, (1,)) for t in totals), dimension=1)
    return made if aggregate == 1 else c(ops.divide, made, c.like(len(roots), made))


def _array(c: NodeContext, name: str) -> Any:
    return c.literal(name).bounded().reshape(-1)


def _members(c: NodeContext, modes: Any) -> dict[int, list[float]]:
    """The sets of the nodes that ask for membership: one list, a NaN after each set."""
    found: dict[int, list[float]] = {}
    values = _array(c, "membership_values") if isinstance(c.attrs.get("membership_values"), Literal) else np.zeros(0)
    rest = iter(values.tolist())
    for k, mode in enumerate(modes):
        if mode == MEMBER:
            found[k] = []
            for v in rest:
                if math.isnan(v):
                    break
                found[k].append(v)
    return found


LEARNED: Rules = {
    "ArrayFeatureExtractor": _features, "Binarizer": _binarizer, "Scaler": _scaler, "LinearRegressor": _linear,
    "TreeEnsemble": _trees,
}  # fmt: skip
