"""Ensembles of trees (`ai.onnx.ml`): the form of version 5, and those before it for regression and classification.

Each leaf is a condition on a row: whether it is reached. What the leaves weigh is added up for each target.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.literal import Literal
from deepx_graph.text.common.elements import part_of
from deepx_graph.text.common.steps import Unsupported
from deepx_graph.text.onnx.context import NodeContext, Rules
from deepx_graph.text.onnx.rules.domains.learned import labelled
from deepx_graph.types import BOOL, F32

Key = Hashable


@dataclass(frozen=True)
class TreeSplit:
    """A question about one feature; `comparison` is empty where it is whether the feature is one of the `members`."""

    feature: int
    comparison: str
    split: float
    members: Sequence[float]
    missing: bool
    """Whether NaN goes where the answer is yes."""
    ways: tuple[Key, Key]
    """The nodes for yes and no."""


Leaf = Sequence[tuple[int, float]]
"""Targets and what the leaf adds to them."""


def _totals(c: NodeContext, roots: Sequence[Key], nodes: Mapping[Key, TreeSplit | Leaf], targets: int) -> Node:
    """What the leaves add up to, [rows, targets]. Raises InferError for nodes that are no trees."""
    x, rows = c.node(), c.shape()[0]
    kind = c.type().with_dims((rows,)).with_dtype(F32)
    totals = [c.full(0, kind) for _ in range(targets)]
    visited = 0
    for root in roots:
        stack: list[tuple[Key, Node]] = [(root, c.full(True, kind.with_dtype(BOOL)))]
        while stack:
            at, reached = stack.pop()
            visited += 1
            if visited > len(nodes) + len(roots) or at not in nodes:
                raise InferError("the nodes of a tree form a cycle, or name one that there is not", expected="a tree")
            node = nodes[at]
            if not isinstance(node, TreeSplit):
                for target, weight in node:
                    if not 0 <= target < targets:
                        raise InferError(f"a leaf adds to target {target}", expected=f"0 to {targets - 1}")
                    totals[target] = c(ops.add, totals[target], c(ops.select, reached, c.full(weight, kind), c.full(0, kind)))
                continue
            value = c.shaped(part_of(c, x, 1, node.feature, node.feature + 1), (rows,))
            hit = _answer(c, node, value)
            for way, taken in zip(node.ways, (hit, c(ops.not_, hit)), strict=True):
                stack.append((way, c(ops.and_, reached, taken)))
    return c(ops.concatenate, *(c.add_axes(t, (1,)) for t in totals), dimension=1)


def _answer(c: NodeContext, node: TreeSplit, value: Node) -> Node:
    if node.comparison:
        hit = c(ops.compare, value, c.like(node.split, value), direction=node.comparison)
    else:
        hit = c.full(False, c.type_of(value).with_dtype(BOOL))
        for m in node.members:
            hit = c(ops.or_, hit, c(ops.compare, value, c.like(m, value), direction="EQ"))
    return c(ops.or_, hit, c(ops.compare, value, value, direction="NE")) if node.missing else hit


# --- version 5 ------------------------------------------------------------------------------------------------------

_COMPARISONS = {0: "LE", 1: "LT", 2: "GE", 3: "GT", 4: "EQ", 5: "NE", 6: ""}
MEMBER = 6


def _trees(c: NodeContext) -> Node:
    """Branches and leaves are numbered by themselves."""
    aggregate, targets = c.number("aggregate_function", 1), c.number("n_targets")
    if c.number("post_transform", 0) or aggregate not in (0, 1):
        raise Unsupported("another aggregation of trees")
    modes, splits, weights = (_array(c, name) for name in ("nodes_modes", "nodes_splits", "leaf_weights"))
    features, of = c.ints("nodes_featureids"), c.ints("leaf_targetids")
    yes, no = ((c.ints(f"nodes_{side}nodeids"), c.ints(f"nodes_{side}leafs")) for side in ("true", "false"))
    missing = c.ints("nodes_missing_value_tracks_true", (0,) * len(modes))
    sets = _members(c, modes)
    nodes: dict[Key, TreeSplit | Leaf] = {(True, k): [(target, float(weights[k]))] for k, target in enumerate(of)}
    for k, mode in enumerate(modes):
        ways = (bool(yes[1][k]), yes[0][k]), (bool(no[1][k]), no[0][k])
        nodes[False, k] = TreeSplit(features[k], _COMPARISONS[int(mode)], float(splits[k]), sets.get(k, ()), bool(missing[k]), ways)
    roots = [(not len(modes), root) for root in c.ints("tree_roots")]
    made = c.cast(_totals(c, roots, nodes, targets), c.dtype())
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


# --- before version 5: nodes are named by tree and number -------------------------------------------------------------

_WORDS = {"BRANCH_LEQ": "LE", "BRANCH_LT": "LT", "BRANCH_GTE": "GE", "BRANCH_GT": "GT", "BRANCH_EQ": "EQ", "BRANCH_NEQ": "NE"}


def _named_trees(c: NodeContext, kind: str, targets: int) -> Node:
    """What the leaves add up to, and the values that they start from; `kind` is how the attributes of leaves begin."""
    if any(c.given(f"{name}_as_tensor") for name in ("nodes_values", f"{kind}_weights", "base_values")):
        raise Unsupported("trees in double precision")
    keys: list[Key] = list(zip(c.ints("nodes_treeids"), c.ints("nodes_nodeids"), strict=True))
    trees = c.ints("nodes_treeids")
    leaves: dict[Key, list[tuple[int, float]]] = {}
    for tree, number, target, weight in zip(c.ints(f"{kind}_treeids"), c.ints(f"{kind}_nodeids"), c.ints(f"{kind}_ids"),
                                            c.reals(f"{kind}_weights"), strict=True):
        leaves.setdefault((tree, number), []).append((target, weight))
    missing = c.ints("nodes_missing_value_tracks_true", (0,) * len(keys)) or (0,) * len(keys)
    rows = zip(keys, trees, c.texts("nodes_modes"), c.ints("nodes_featureids"), c.reals("nodes_values"),
               c.ints("nodes_truenodeids"), c.ints("nodes_falsenodeids"), missing, strict=True)
    nodes: dict[Key, TreeSplit | Leaf] = {}
    for key, tree, mode, feature, value, yes, no, tracks in rows:
        if mode == "LEAF":
            nodes[key] = leaves.get(key, [])
        elif mode in _WORDS:
            nodes[key] = TreeSplit(feature, _WORDS[mode], float(np.float32(value)), (), bool(tracks), ((tree, yes), (tree, no)))
        else:
            raise InferError(f"a node of a tree asks '{mode:.40}'", expected=" | ".join(_WORDS))
    inner = {way for n in nodes.values() if isinstance(n, TreeSplit) for way in n.ways}
    roots = dict(zip(reversed(trees), reversed(keys), strict=True))  # the first node of each
    if any(key in inner for key in roots.values()):
        raise InferError("the nodes of a tree form a cycle", expected="a tree, whose first node is below no other")
    made = _totals(c, [roots[tree] for tree in dict.fromkeys(trees)], nodes, targets)
    base = c.reals("base_values", ())
    return made if not base else c.each(ops.add, made, c.constant(np.asarray(base), F32))


def _regressor(c: NodeContext) -> Node:
    aggregate = c.one_of("aggregate_function", "SUM", "SUM", "AVERAGE", "MIN", "MAX")
    if c.text("post_transform", "NONE") != "NONE" or aggregate not in ("SUM", "AVERAGE"):
        raise Unsupported("another aggregation of trees")
    if aggregate == "SUM":
        return _named_trees(c, "target", c.number("n_targets"))
    if c.reals("base_values", ()):
        raise Unsupported("an average beside values to start from")
    made = _named_trees(c, "target", c.number("n_targets"))
    return c(ops.divide, made, c.like(len(set(c.ints("nodes_treeids"))), made))


def _classifier(c: NodeContext) -> list[Node]:
    count = len(c.texts("classlabels_strings", ())) or len(c.ints("classlabels_int64s", ()))
    if count == 2 and len(set(c.ints("class_ids"))) == 1:
        raise Unsupported("one score for two classes")
    return labelled(c, _named_trees(c, "class", count), "classlabels_int64s")


TREES: Rules = {"TreeEnsemble": _trees, "TreeEnsembleRegressor": _regressor, "TreeEnsembleClassifier": _classifier}
