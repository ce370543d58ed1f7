"""Common subexpression elimination: equal operations on equal operands are one node (global value numbering).

One walk numbers the nodes, a second builds one node for each number, with the origins of all that it stands for. Operands of a
commutative op count as a set. Calls and what else may fail or not end are not merged: one node for two branches would be
computed before either is taken. Nor are effects: equal ones after the same state stand in different branches, and one for both
would happen whichever is taken. Loops are never merged: each has an identity of its own, and so have its phis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.peephole import commutes, mergeable
from deepx_graph.ir.rebuild import rebuild, replaced
from deepx_graph.ir.structure import PARAM
from deepx_graph.rewrite.base import Pass, RewriteControl


@dataclass(frozen=True)
class Cse(Pass):
    """Makes equal operations on equal operands one."""

    name: ClassVar[str] = "cse"

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        return module.with_functions(merged(f, control) for f in module.functions)


def merged(function: Function, control: RewriteControl) -> Function:
    """The function with equal operations made one; itself when there are none."""
    leaders, extra = _numbered(function, control)
    if not extra:
        return function
    made: dict[Node, Node] = {}

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if leaders[node] is not node:
            return made[leaders[node]]
        origin = node.origin
        for other in extra.get(node, ()):
            origin = origin.merged(other.origin)
        return node if inputs == node.inputs and origin is node.origin else node.over(inputs, origin)

    return replaced(function, rebuild(function.nodes, made, step))


def _numbered(function: Function, control: RewriteControl) -> tuple[dict[Node, Node], dict[Node, list[Node]]]:
    """For each node the first one equal to it; and for each such first one the others that it stands for."""
    leaders: dict[Node, Node] = {}
    extra: dict[Node, list[Node]] = {}
    known: dict[tuple[Any, ...], Node] = {}
    for node in function.nodes:
        if node.op is PARAM or not mergeable(node.op, node.type):
            leaders[node] = node
            continue
        inputs = tuple([leaders[i] for i in node.inputs])
        if len(inputs) == 2 and inputs[0].serial > inputs[1].serial and commutes(node.op, node.type):
            inputs = inputs[::-1]
        leader = known.setdefault((node.op, inputs, node.attrs, node.type), node)
        if leader is not node and control.permit("merge", node, leader):
            extra.setdefault(leader, []).append(node)
        elif leader is not node:
            leader = node
        leaders[node] = leader
    return leaders, extra
