"""Modules as pickles: the text that reads back exactly, and beside it the objects of this process that nodes hold.

Who imports this file can pickle modules; `deepx_graph.api` says so, too, and imports it when one is pickled. As with every pickle,
load only what comes from where you trust.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterator
from typing import Any

from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.rebuild import rebuilt
from deepx_graph.session import programs
from deepx_graph.text import ReadOptions

Objects = dict[str, list[tuple[Any, ...]]]
"""By function the attributes that no text has, of each node that has some, in the order of `_walk`."""


def packed(module: Module) -> tuple[str, Objects]:
    """The text of a module, and the objects that its nodes hold: how what was deferred is lowered."""
    objects = {f.name: [_held(n) for n in _walk(f)] for f in module.functions}
    return programs.dumps(module, "sea"), {name: found for name, found in objects.items() if found}


def unpacked(text: str, objects: Objects) -> Module:
    """The module again."""
    module = programs.loads(text, "sea", ReadOptions()).module
    return module.with_functions([_with_objects(f, objects[f.name]) if f.name in objects else f for f in module.functions])


def reduced(module: Module) -> tuple[Any, ...]:
    """What `pickle` makes of a module."""
    return unpacked, packed(module)


copyreg.pickle(Module, reduced)


def _held(node: Node) -> tuple[Any, ...]:
    """The attributes that no text has."""
    return tuple(v for a, v in zip(node.op.attrs, node.attrs, strict=True) if a.kind == "transient")


def _walk(function: Function) -> Iterator[Node]:
    """The nodes that have such attributes, in an order that follows from the graph alone."""
    stack, seen = list(reversed(function.results)), set(function.results)
    while stack:
        node = stack.pop()
        if any(a.kind == "transient" for a in node.op.attrs):
            yield node
        for x in node.inputs:
            if x not in seen:
                seen.add(x)
                stack.append(x)


def _with_objects(function: Function, objects: list[tuple[Any, ...]]) -> Function:
    """The function whose nodes hold these again."""
    given = dict(zip(_walk(function), objects, strict=True))

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        values = iter(given.get(node, ()))
        if node not in given and inputs == node.inputs:
            return node
        attrs = tuple(next(values) if a.kind == "transient" else v for a, v in zip(node.op.attrs, node.attrs, strict=True))
        return Node(node.op, inputs, attrs if node in given else node.attrs, node.type, node.origin)

    return rebuilt(function, step)
