"""`delay-collectives`: collectives as late as the users of what they exchange allow.

A device that is at a collective first waits for the others, and none is ever there at the same time. Collectives that follow each
other directly wait once: after the gradients of all layers rather than after each. Nothing overlaps with an exchange where programs
wait in each, so nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.rebuild import copied, rebuild, replaced
from deepx_graph.rewrite.base import Pass


@dataclass(frozen=True)
class DelayCollectives(Pass):
    """Puts whatever needs no collective before it, so that devices wait for each other less often."""

    name: ClassVar[str] = "delay-collectives"

    def run(self, module: Module) -> Module:
        return module.with_functions([_late(f) for f in module.functions])


def _late(function: Function) -> Function:
    rounds: dict[Node, int] = {}
    for node in function.nodes:
        rounds[node] = max((rounds[i] + _waits(i) for i in node.inputs), default=0)
    order = sorted(function.nodes, key=lambda n: (rounds[n], _waits(n)))
    if order == list(function.nodes):
        return function
    return replaced(function, rebuild(order, {p: p for p in function.params}, copied))


def _waits(node: Node) -> bool:
    return node.op.exchange is not None and bool(node.inputs)
