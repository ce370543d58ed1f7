"""A view that a plugin adds: its lines about the selected node, in a table."""

from __future__ import annotations

from functools import cache
from typing import ClassVar

from textual.app import ComposeResult

from deepx_graph.ir import Function, Node
from deepx_graph.session.session import Session
from deepx_graph.session.show.views import PLUGIN_VIEWS, TextView
from deepx_graph.tui.formatting import plain
from deepx_graph.tui.views.base import BrowserView
from deepx_graph.tui.views.rows import TextTable, text_line

WIDEST = 1000
"""Characters of a line that are shown."""


class PluginView(BrowserView):
    """Made anew when another node is selected or another version is current, while it is displayed."""

    view: ClassVar[TextView]

    def compose(self) -> ComposeResult:
        yield TextTable()

    def opened(self) -> None:
        if self.browser.selection.current is not None:
            self.show_node(self.session, *self.browser.selection.current)

    def show_version(self) -> None:
        if self.display:
            self.opened()

    def show_node(self, session: Session, function: Function, node: Node) -> None:
        lines = self.view.lines(session.module, node)
        self.query_one(TextTable).show([text_line(f" {plain(line, WIDEST)}") for line in lines])


def __getattr__(name: str) -> type[PluginView]:
    """The class of a plugin's view, by the name that it is registered under."""
    if name not in PLUGIN_VIEWS:
        raise AttributeError(name)
    return _class_of(PLUGIN_VIEWS[name])


@cache
def _class_of(view: TextView) -> type[PluginView]:
    return type("PluginView", (PluginView,), {"view": view})
