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

from deepx_graph.errors import InferError, Place, Source
from deepx_graph.text.torch.schema import ExportedGraph, Name, NestedGraph, Value, names_in
from deepx_graph.types import DType

LONGEST = 160
"""Characters of an argument."""

_FRAME = re.compile(r'File "([^"\n]+)", line (\d{1,9}), in ([^\n]+)')
_SELF = re.compile(r"^L\['self'\]\.?|^L__self__\.?")


@lru_cache(maxsize=4096)
def place_of(stack_trace: str, modules: str, operator: str) -> Place | None:
    """The line of the user's program that an operation is from, labelled with the modules around it: `net/layers.0/linear`."""
    frames = [Place(f, int(n), function=name.strip()) for f, n, name in _FRAME.findall(stack_trace)[-32:]]
    own = [f for f in frames if "/torch/nn/" not in f.file.replace("\\", "/")] or frames
    label = "/".join((*module_path(modules), operator))
    if not own:
        return Place(label=label) if "/" in label else None
    place = None
    for frame in own:  # the innermost is the last one
        place = Place(frame.file, frame.line, function=frame.function, caller=place, label=label if frame is own[-1] else "")
    return place


@lru_cache(maxsize=4096)
def module_path(stack: str) -> tuple[str, ...]:
    """The modules around an operation, outermost first, each by the attributes that lead to it from the one around it.

    The text has `key,path,class` for each of them, `;` between. A number follows the name that it counts: `layers.0`.
    """
    levels: list[str] = []
    outer = ""
    for entry in stack.split(";"):
        fields = entry.split(",")
        path = _SELF.sub("", fields[1]) if len(fields) > 2 else ""
        if not path or path == outer:
            continue
        inner = path.removeprefix(outer + ".") if outer else path
        if inner.replace(".", "").isdigit() and levels:
            inner = f"{levels[-1].rpartition('.')[2] if not levels[-1].rpartition('.')[2].isdigit() else levels[-1]}.{inner}"
        levels.append(inner.replace("/", "_"))
        outer = path
    return tuple(levels)


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
            place = place_of(node.metadata.get("stack_trace", ""), node.metadata.get("nn_module_stack", ""), node.operator)
            where = str(place) if place is not None and place.file else ""
            self.write(f"  # {', '.join(filter(None, (types, where)))}\n")
        self.write(f"{inner}return {', '.join(map(_shown, graph.outputs))}\n")

    def source(self, name: str) -> Source:
        return Source(f"{name} (listing)", "".join(self.parts))


def _type(graph: ExportedGraph, name: Name) -> str:
    try:
        return str(graph.tensors[name.text].type) if name.text in graph.tensors else str(graph.sizes.get(name.text, "int"))
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
