"""Views that plugins add: text about the program and a node, which the browser shows of the selected one, a picture of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from deepx_graph.errors import is_interrupt
from deepx_graph.ir import Module, Node


class TextView(NamedTuple):
    """`show(module, node)` gives the lines; `node` is the selected one."""

    title: str
    show: Callable[[Module, Node], str | Iterable[str]]

    def lines(self, module: Module, node: Node) -> list[str]:
        """The lines, a text cut at its ends of lines; where the plugin fails, that it has."""
        try:
            found = self.show(module, node)
            return found.splitlines() if isinstance(found, str) else [str(line) for line in found]
        except Exception as e:  # a fault of a plugin ends no browser and no drawing
            if is_interrupt(e):
                raise
            return [f"the plugin failed: {type(e).__name__}: {e}"]


PLUGIN_VIEWS: dict[str, TextView] = {}
"""What plugins have registered, by name, in the order of their keys behind those of the browser's own views."""
