"""The forward and the backward part as one graph in order: forward constructs with the columns they have grown, backward nodes over
the residuals that stand for what they use.

A value is wanted either in its own place or as the backward part sees it; both are worked off a stack, operands first, whatever
order the nodes were made in. Types are inferred again where operands have others than before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from deepx_graph.ir import Builder, Node, fresh_loop
from deepx_graph.ir.rebuild import on_demand
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, REGION, branches_of
from deepx_graph.ops.vjp.accumulate import zeros
from deepx_graph.passes.autodiff.residuals import Residuals
from deepx_graph.passes.autodiff.reverse import ReversePass
from deepx_graph.types import Type

Key = tuple[Node, bool | Node]
"""A node, and where it is wanted: False in its own place, True as the backward part sees it; a region or loop_end where that is
computed again in the backward part and the node belongs to its inside."""


class Rebuild:
    """Makes final nodes on demand."""

    def __init__(self, sweep: ReversePass, residuals: Residuals) -> None:
        self.sweep, self.residuals = sweep, residuals
        self.made: dict[Key, Node] = {}
        self.b = Builder(intern=True)
        self.nothing: dict[Type, Node] = {}
        """What stands in a column for a branch that has no value there; all such columns are of static types or tapes."""

    def nodes(self, results: Iterable[Node]) -> list[Node]:
        """The final nodes of some backward values."""
        return [self.node(self._seen_backward(r)) for r in results]

    def node(self, root: Key) -> Node:
        """The final node of a value."""
        return on_demand((root,), self.made, self._operands, self._make)[0]

    def _seen_backward(self, node: Node) -> Key:
        """How a backward node refers to an operand."""
        forward = self.sweep.is_forward(node)
        return node, forward and (self.residuals.closed or not self.sweep.home(node).is_root)

    def _operands(self, key: Key) -> list[Key]:
        node, place = key
        if place is True and node in self.residuals.reads:
            return [self._seen_backward(self.residuals.reads[node])]
        inputs = self._inputs(node)
        if place is not False:
            again = node if place is True else place
            return [(i, again) if self._inside(i, again) else self._seen_backward(i) for i in inputs]
        if self.sweep.is_forward(node):
            return [(i, False) for i in inputs]
        return [self._seen_backward(i) for i in inputs]

    def _inside(self, node: Node, construct: Node) -> bool:
        """Whether a node belongs to the inside of a region or loop."""
        if construct.op not in (REGION, LOOP_END) or not self.sweep.is_forward(node):
            return False
        home, around = self.sweep.home(node), self.sweep.home(construct)
        return home.depth > around.depth and home.at_depth(around.depth + 1).owner is construct

    def _inputs(self, node: Node) -> Sequence[Node]:
        """The inputs with those of grown columns; a value that a branch lacks is made up."""
        if node.op is LOOP_BEGIN:
            return (*node.inputs, *(c[0] for c in self.sweep.grown.get(node, ()) if c[0] is not None))
        if node.op is LOOP_END:
            return (*node.inputs, *(c[1] for c in self.sweep.grown.get(node.inputs[0], ()) if c[1] is not None))
        if node.op is REGION and node in self.sweep.grown:
            values = [[*side, *self._side(node, s)] for s, side in enumerate(branches_of(node))]
            return (node.inputs[0], *(v for side in values for v in side))
        return node.inputs

    def _side(self, region: Node, branch: int) -> list[Node]:
        found: list[Node] = []
        for column in self.sweep.grown[region]:
            given = next(v for v in column if v is not None)
            value = column[branch]
            if value is None:
                value = self.nothing.get(given.type) or self.nothing.setdefault(given.type, zeros(self.b, given.type, given))
            found.append(value)
        return found

    def _make(self, key: Key, over: tuple[Node, ...]) -> Node:
        node, place = key
        if place is True and node in self.residuals.reads:
            return over[0]
        attrs = (fresh_loop(),) if place is not False and node.op is LOOP_BEGIN else self._attrs(node)
        if over == node.inputs and attrs == node.attrs:
            return node
        same = attrs == node.attrs and [i.type for i in over] == [i.type for i in node.inputs]
        type = node.type if same else node.op.infer([i.type for i in over], *attrs)
        return Node(node.op, over, attrs, type, node.origin)

    def _attrs(self, node: Node) -> tuple[Any, ...]:
        if node in self.sweep.replaced:
            return self.sweep.replaced[node]
        return self.sweep.derivatives.attrs(node) if node in self.sweep.scopes.home else node.attrs
