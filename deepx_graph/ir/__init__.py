"""The sea of nodes: what a graph is made of, and how to make one."""

from deepx_graph.ir.builder import Builder, fresh_loop
from deepx_graph.ir.function import Function, Module
from deepx_graph.ir.node import NOWHERE, Node, Origin, reachable
from deepx_graph.ir.op import REQUIRED, Attr, Op, Operand, at_least, one_of

__all__ = [
    "NOWHERE", "REQUIRED", "Attr", "Builder", "Function", "Module", "Node", "Op", "Operand", "Origin", "at_least",
    "fresh_loop", "one_of", "reachable",
]  # fmt: skip
