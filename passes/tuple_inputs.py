"""Entries whose inputs are tuples, as entries of the tensors inside: what derivatives are taken of.

Leaves go left to right in the tuple's place, named `<input>.<number>`, as the HLO reader names them. Only parameters change, and
what takes an item of them; tuples inside a function stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.structure import PROJ, TUPLE
from deepx_graph.types import TupleType, Type


def plain_inputs(function: Function) -> Function:
    """The function of the leaves of its tuple parameters; itself when it has none."""
    if not any(isinstance(p.type, TupleType) for p in function.params):
        return function
    b = Builder()
    params: list[Node] = []
    new: dict[Node, Node] = {}
    for p in function.params:
        b.origin = p.origin
        name = p.name or f"arg{p.attr('index')}"
        names = (f"{name}.{k}" for k in count()) if isinstance(p.type, TupleType) else iter((p.name,))
        new[p] = _made(b, p.type, names, params)
    for node in function.nodes:
        if node not in new:
            b.origin = node.origin
            inputs = tuple(new[i] for i in node.inputs)
            inside = node.op is PROJ and inputs[0].op is TUPLE
            new[node] = inputs[0].inputs[node.attrs[0]] if inside else b.make(node.op, inputs, node.attrs, node.type)
    called = tuple(function.result_name(k) for k in range(len(function.results)))
    return function.with_(params=tuple(params), results=tuple(new[r] for r in function.results), result_names=called)


def _made(b: Builder, type: Type, names: Iterator[str], params: list[Node]) -> Node:
    """A value of the type out of new parameters, which are appended."""
    if isinstance(type, TupleType):
        return b.pack(*(_made(b, t, names, params) for t in type.items))
    params.append(b.param(len(params), type, next(names)))
    return params[-1]
