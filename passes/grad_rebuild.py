"""The forward and the backward part as one graph in order: forward constructs with the columns they have grown, backward nodes over
the residuals that stand for what they use.

A value is wanted either in its own place or as the backward part sees it; both are worked off a stack, operands first, whatever
order the nodes were made in. Types are inferred again where operands have others than before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from deepx_graph.ir import Builder, Node, fresh_loop
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, REGION, branch_width
from deepx_graph.ops.pullback import zeros
from deepx_graph.passes.grad_residuals import Residuals
from deepx_graph.passes.grad_sweep import Sweep

Key = tuple[Node, bool]
"""A node, and whether it is wanted as the backward part sees it."""


class Rebuild:
    """Makes final nodes on demand."""

    def __init__(self, sweep: Sweep, residuals: Residuals) -> None:
        self.sweep, self.residuals = sweep, residuals
        self.made: dict[Key, Node] = {}
        self.b = Builder(intern=True)

    def nodes(self, results: Iterable[Node]) -> list[Node]:
        """The final nodes of some backward values."""
        return [self.node(self._seen_backward(r)) for r in results]

    def node(self, root: Key) -> Node:
        """The final node of a value."""
        stack = [root]
        while stack:
            key = stack[-1]
            if key in self.made:
                stack.pop()
                continue
            needs = self._operands(key)
            pending = [k for k in needs if k not in self.made]
            if pending:
                stack += pending
                continue
            self.made[key] = self._make(key, [self.made[k] for k in needs])
            stack.pop()
        return self.made[root]

    def _seen_backward(self, node: Node) -> Key:
        """How a backward node refers to an operand."""
        forward = self.sweep.is_forward(node)
        return node, forward and (self.residuals.closed or not self.sweep.home(node).is_root)

    def _operands(self, key: Key) -> list[Key]:
        node, backward = key
        if backward and node in self.residuals.reads:
            return [self._seen_backward(self.residuals.reads[node])]
        if backward or not self.sweep.is_forward(node):
            return [self._seen_backward(i) for i in self._inputs(node)]
        return [(i, False) for i in self._inputs(node)]

    def _inputs(self, node: Node) -> Sequence[Node]:
        """The inputs with those of grown columns; a value that a branch lacks is made up."""
        if node.op is LOOP_BEGIN:
            return (*node.inputs, *(c[0] for c in self.sweep.grown.get(node, ()) if c[0] is not None))
        if node.op is LOOP_END:
            return (*node.inputs, *(c[1] for c in self.sweep.grown.get(node.inputs[0], ()) if c[1] is not None))
        if node.op is REGION and node in self.sweep.grown:
            width = branch_width(len(node.inputs), node.attrs[0])
            sides = range(node.attrs[0])
            values = [[*node.inputs[1 + s * width : 1 + (s + 1) * width], *self._side(node, s)] for s in sides]
            return (node.inputs[0], *(v for side in values for v in side))
        return node.inputs

    def _side(self, region: Node, branch: int) -> list[Node]:
        found: list[Node] = []
        for column in self.sweep.grown[region]:
            given = next(v for v in column if v is not None)
            value = column[branch]
            found.append(zeros(self.b, given.type, given) if value is None else value)
        return found

    def _make(self, key: Key, inputs: list[Node]) -> Node:
        node, backward = key
        if backward and node in self.residuals.reads:
            return inputs[0]
        over = tuple(inputs)
        attrs = (fresh_loop(),) if backward and node.op is LOOP_BEGIN else self._attrs(node)
        if over == node.inputs and attrs == node.attrs:
            return node
        same = attrs == node.attrs and [i.type for i in over] == [i.type for i in node.inputs]
        type = node.type if same else node.op.infer([i.type for i in over], *attrs)
        return Node(node.op, over, attrs, type, node.origin)

    def _attrs(self, node: Node) -> tuple[Any, ...]:
        if node in self.sweep.replaced:
            return self.sweep.replaced[node]
        return self.sweep.derivatives.attrs(node) if node in self.sweep.scopes.home else node.attrs
