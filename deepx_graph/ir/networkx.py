"""A module as a networkx graph, for its standard algorithms; imported only where used, as networkx is slow to import."""

from __future__ import annotations

from typing import Any

import networkx

from deepx_graph.ir.function import Function, Module
from deepx_graph.ir.node import Node
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PHI, REGION
from deepx_graph.types import is_state


def edge_kind(user: Node, operand: int) -> str:
    """`control`, `effect` or `data`: what flows along an edge."""
    source = user.inputs[operand]
    if source.op is LOOP_BEGIN or (user.op is PHI and source.op is REGION):
        return "control"
    if (user.op is REGION and operand == 0) or (user.op is LOOP_END and operand == 1):
        return "control"
    return "effect" if is_state(source.type) else "data"


def function_to_networkx(function: Function) -> networkx.MultiDiGraph[Any]:
    """One function, nodes numbered in order; see `Module.to_networkx` for the data they carry."""
    graph: networkx.MultiDiGraph[Any] = networkx.MultiDiGraph(name=function.name)
    key = {n: (function.name, k) for k, n in enumerate(function.nodes)}
    for n in function.nodes:
        graph.add_node(key[n], node=n, op=n.op.name, type=str(n.type), name=n.name)
    for n in function.nodes:
        for k, i in enumerate(n.inputs):
            graph.add_edge(key[i], key[n], operand=k, kind=edge_kind(n, k))
        if n.op is LOOP_END:
            graph.add_edge(key[n], key[n.inputs[0]], operand=-1, kind="back")
    return graph


def to_networkx(module: Module) -> networkx.MultiDiGraph[Any]:
    """All functions of the module side by side."""
    graph: networkx.MultiDiGraph[Any] = networkx.MultiDiGraph()
    for function in module.functions:
        graph.update(function_to_networkx(function))
    return graph
