"""Views of the browser that plugins add: text about the program and the selected node, without a widget of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from deepx_graph.ir import Module, Node


class TextView(NamedTuple):
    """`show(module, node)` gives the lines; `node` is the selected one."""

    title: str
    show: Callable[[Module, Node], str | Iterable[str]]

    def lines(self, module: Module, node: Node) -> list[str]:
        """The lines, a text cut at its ends of lines."""
        found = self.show(module, node)
        return found.splitlines() if isinstance(found, str) else [str(line) for line in found]


PLUGIN_VIEWS: dict[str, TextView] = {}
"""What plugins have registered, by name, in the order of their keys behind those of the browser's own views."""
