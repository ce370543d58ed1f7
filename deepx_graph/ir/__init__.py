"""The sea of nodes: what a graph is made of, and how to make one."""

from deepx_graph.ir.builder import Builder, fresh_loop
from deepx_graph.ir.constraint import Constraint, Relation, at_least, one_of
from deepx_graph.ir.function import Constructor, Data, Function, Module
from deepx_graph.ir.node import NOWHERE, Node, Origin, describe, problem, reachable
from deepx_graph.ir.op import Op
from deepx_graph.ir.signature import REQUIRED, Attr, Operand, Result

__all__ = [
    "NOWHERE", "REQUIRED", "Attr", "Builder", "Constraint", "Constructor", "Data", "Function", "Module", "Node", "Op", "Operand",
    "Origin", "Relation", "Result", "at_least", "describe", "fresh_loop", "one_of", "problem", "reachable",
]  # fmt: skip
