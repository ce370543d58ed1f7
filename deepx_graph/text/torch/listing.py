"""A program of torch.export as text to be read: what errors, pictures and the browser show of it, as the file itself is one line.

    def forward(x: f32[s0,3], w: f32[4,3]):
        linear = aten.linear.default(x, w)  # f32[s0,4], model.py:12 in forward
        return linear

Its results are named by how they are nested: of `{"logits": x, "states": (a, b)}`, `logits`, `states.0` and `states.1`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from deepx_graph.errors import InferError, Source
from deepx_graph.text.common.modules import module_levels, place_of
from deepx_graph.text.torch.schema import ExportedGraph, Name, NestedGraph, Value, names_in
from deepx_graph.types import DType

LONGEST = 160
"""Characters of an argument."""

_SELF = re.compile(r"^L\['self'\]\.?|^L__self__\.?")


@lru_cache(maxsize=4096)
@lru_cache(maxsize=4096)
def module_path(stack: str) -> tuple[str, ...]:
    """The modules around an operation: the text has `key,path,class` for each of them, `;` between."""
    entries = (entry.split(",") for entry in stack.split(";"))
    return module_levels(_SELF.sub("", fields[1]) for fields in entries if len(fields) > 2)


class ProgramListing:
    """Writes the text; each node learns where it stands."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.length = 0

    def write(self, *words: str) -> None:
        for word in words:
            self.parts.append(word)
            self.length += len(word)

    def graph(self, name: str, graph: ExportedGraph, indent: str = "") -> None:
        """A graph as a function."""
        inputs = ", ".join(f"{n.text}: {_type(graph, n)}" for n in names_in(graph.inputs))
        self.write(f"{indent}def {name}({inputs}):\n")
        inner = indent + "    "
        for node in graph.nodes:
            for _, _, value in node.arguments:
                if isinstance(value, NestedGraph):
                    self.graph(value.name, value.graph, inner)
            self.write(inner)
            start = self.length
            given = ", ".join(n.text for n in names_in(node.outputs))
            shown = ", ".join(f"{name}={_shown(v)}" if by_name else _shown(v) for name, by_name, v in node.arguments)
            self.write(f"{given} = " if given else "", f"{node.operator}({shown})")
            node.at = (start, self.length)
            types = ", ".join(_type(graph, n) for n in names_in(node.outputs))
            modules = module_path(node.metadata.get("nn_module_stack", ""))
            place = place_of(node.metadata.get("stack_trace", ""), modules, node.operator)
            where = str(place) if place is not None and place.file else ""
            self.write(f"  # {', '.join(filter(None, (types, where)))}\n")
        self.write(f"{inner}return {', '.join(map(_shown, graph.outputs))}\n")

    def source(self, name: str) -> Source:
        return Source(f"{name} (listing)", "".join(self.parts))


def _type(graph: ExportedGraph, name: Name) -> str:
    try:
        found = graph.tensors[name.text].type if name.text in graph.tensors else graph.sizes.get(name.text)
        return "int" if found is None else str(found)
    except InferError:
        return "?"


def _shown(value: Value) -> str:
    match value:
        case Name():
            return value.text
        case NestedGraph():
            return value.name
        case DType():
            return value.name
        case tuple():
            shown = f"[{', '.join(map(_shown, value[:32]))}{', ...' if len(value) > 32 else ''}]"
        case _:
            shown = repr(value)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 3]}..."


# --- results --------------------------------------------------------------------------------------------------------

DEEPEST = 50
"""Levels of nesting that names tell."""


def result_names(values: Sequence[Value], spec: str) -> list[str]:
    """A name for each result: its path where results are nested in dicts or tuples, else that of the value.

    `spec` is the tree in JSON, `[1, {"type": ..., "context": ..., "children_spec": [...]}]`; one that is not understood is passed
    over.
    """
    own = [v.text if isinstance(v, Name) else "" for v in values]
    try:
        tree = json.loads(spec)[1]
        paths = list(_paths(tree, (), 0))
    except (ValueError, LookupError, TypeError, RecursionError):
        return own
    if len(paths) != len(values) or all(len(p) < 2 and (not p or p[0].isdigit()) for p in paths):
        return own
    return [".".join(p) or name for p, name in zip(paths, own, strict=True)]


def _paths(tree: Any, path: tuple[str, ...], depth: int) -> Any:
    if depth > DEEPEST:
        raise ValueError("too deep")
    if tree["type"] is None:
        yield path
        return
    children = tree["children_spec"]
    context = json.loads(tree["context"]) if isinstance(tree.get("context"), str) else tree.get("context")
    keys = context if isinstance(context, list) and len(context) == len(children) else range(len(children))
    for key, child in zip(keys, children, strict=True):
        yield from _paths(child, (*path, str(key)), depth + 1)
