"""Which loop axis each dimension of each node of a kernel body runs along.

Dimensions that must advance together are put in one class (elementwise operands, what a broadcast keeps, what a reduction
leaves); the classes are the axes of the kernel's space, in the order of the node that has them all. A body where no such order
exists (an interior transpose, an outer product of one value with itself) has no space, and `assign` says so with None.
Parameters and constants seen through view ops alone are leaves: their layout is free, so they tie no axes together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepx_graph.analysis.disjoint_sets import DisjointSets
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops.contract.reduce import broadcast_in_dim, reduce
from deepx_graph.ops.tensor.layout import ensure_type, reshape, stop_gradient
from deepx_graph.types import TensorType

Dim = tuple[Node, int]


@dataclass(frozen=True)
class Axes:
    """The space of a body: its sizes, and for each node the axis of each of its dimensions (None for those of size 1)."""

    space: tuple[int, ...]
    of: dict[Node, tuple[int | None, ...]]
    leaves: frozenset[Node]
    """Nodes made of parameters and constants by view ops alone."""

    def shape(self, node: Node) -> tuple[int, ...]:
        """The extent of the node along every axis of the space."""
        mine = set(self.of[node])
        return tuple(size if k in mine else 1 for k, size in enumerate(self.space))


def dims(node: Node) -> tuple[int, ...]:
    """The static shape of a tensor node."""
    assert isinstance(node.type, TensorType)
    return node.type.shape


def _static(node: Node) -> bool:
    return isinstance(node.type, TensorType) and node.type.is_static


def assign(function: Function) -> Axes | None:
    """The space of a body, or None when it has none. Takes time linear in the body."""
    if not all(map(_static, function.nodes)):
        return None
    leaves = _leaves(function)
    return _assign(function, leaves, like_shapes=False) or _assign(function, leaves, like_shapes=True)


def _assign(function: Function, leaves: set[Node], like_shapes: bool) -> Axes | None:
    classes: DisjointSets[Dim] = DisjointSets()
    for node in function.nodes:
        if node not in leaves and not _tie(classes, node):
            return None
    inner = [n for n in function.nodes if n not in leaves or _is_used_directly(function, n)]
    if like_shapes:
        _tie_like_shapes(classes, inner)
    return _ordered(classes, inner, frozenset(leaves))


def _tie_like_shapes(classes: DisjointSets[Dim], nodes: Sequence[Node]) -> None:
    """Lets all nodes of one shape advance together: nothing else may tie an axis that a broadcast adds to those of its peers."""
    first: dict[tuple[int, ...], Node] = {}
    for node in nodes:
        shape = dims(node)
        for k, size in enumerate(shape):
            if size != 1:
                classes.union((node, k), (first.setdefault(shape, node), k))


def _leaves(function: Function) -> set[Node]:
    leaves: set[Node] = set()
    for node in function.nodes:
        if node.op in (PARAM, CONSTANT) or (node.op.view and len(node.inputs) == 1 and node.inputs[0] in leaves):
            leaves.add(node)
    return leaves


def _is_used_directly(function: Function, leaf: Node) -> bool:
    """By something other than a view of it."""
    return leaf in function.results or any(not u.op.view for u in function.users[leaf])


def _tie(classes: DisjointSets[Dim], node: Node) -> bool:
    """Puts together the dimensions that the node makes advance together; False for a node that no kernel has."""
    if node.op.elementwise:
        for operand in node.inputs:
            for k, size in enumerate(dims(operand)):
                if size != 1:
                    classes.union((operand, k), (node, k))
        return True
    rule = _TIES.get(node.op)
    pairs = rule(node) if rule else None
    for i, k in pairs or ():
        classes.union((node.inputs[0], i), (node, k))
    return pairs is not None


Pairs = Sequence[tuple[int, int]]


def _broadcast(node: Node) -> Pairs:
    old, new = dims(node.inputs[0]), dims(node)
    return [(i, k) for i, k in enumerate(node.attr("broadcast_dimensions")) if old[i] == new[k] != 1]


def _reduce(node: Node) -> Pairs | None:
    body = node.attr("body")
    if len(node.inputs) != 2 or body.reducer is None:
        return None
    gone = node.attr("dimensions")
    return [(i, k) for k, i in enumerate(i for i in range(len(dims(node.inputs[0]))) if i not in gone)]


def _reshape(node: Node) -> Pairs | None:
    """Only axes of size 1 come or go."""
    old, new = ([(k, d) for k, d in enumerate(dims(n)) if d != 1] for n in (node.inputs[0], node))
    if [d for _, d in old] != [d for _, d in new]:
        return None
    return [(i, k) for (i, _), (k, _) in zip(old, new, strict=True)]


def _same(node: Node) -> Pairs:
    return [(k, k) for k in range(len(dims(node)))]


_TIES: dict[object, Callable[[Node], Pairs | None]] = {
    broadcast_in_dim: _broadcast, reduce: _reduce, reshape: _reshape, ensure_type: _same, stop_gradient: _same,
}  # fmt: skip


def _ordered(classes: DisjointSets[Dim], nodes: Sequence[Node], leaves: frozenset[Node]) -> Axes | None:
    rows = {n: tuple(classes.find((n, k)) if d != 1 else None for k, d in enumerate(dims(n))) for n in nodes}
    widest = max(nodes, key=lambda n: sum(c is not None for c in rows[n]), default=None)
    sizes = {c: d for n in nodes for c, d in zip(rows[n], dims(n), strict=True) if c is not None}
    order = [c for c in rows[widest] if c is not None] if widest is not None else []
    position = {c: k for k, c in enumerate(order)}
    if len(position) < len(order) or not sizes.keys() <= position.keys():
        return None
    of: dict[Node, tuple[int | None, ...]] = {}
    for node, row in rows.items():
        of[node] = tuple(None if c is None else position[c] for c in row)
        positions = [p for p in of[node] if p is not None]
        if any(a >= b for a, b in itertools.pairwise(positions)):
            return None
    return Axes(tuple(sizes[c] for c in order), of, leaves)
