"""The line at the top: the views, which a click opens, and what program is looked at."""

from __future__ import annotations

from rich.text import Text
from textual.events import Click
from textual.message import Message
from textual.widgets import Static

from deepx_graph.tui.views.table import VIEWS


class TabBar(Static):
    """A tab for each view, then the program."""

    class Chosen(Message):
        """A tab was clicked."""

        def __init__(self, view: str) -> None:
            super().__init__()
            self.view = view

    def __init__(self, id: str) -> None:
        super().__init__(id=id, markup=False)
        self.tabs: list[tuple[int, str]] = []
        """Where each tab ends, and its view."""

    def show(self, view: str, name: str = "", rest: str = "") -> None:
        """Shows which view is in sight, the program's name, and what there is to say of it."""
        text = Text(no_wrap=True, overflow="ellipsis")
        self.tabs = []
        for k, (tab, (title, *_)) in enumerate(VIEWS.items(), 1):
            text.append(f" {k} {title} ", "reverse bold" if tab == view else "")
            self.tabs.append((len(text), tab))
        if name:
            text.append(f"  {name}", "bold")
            text.append(rest)
        self.update(text, layout=False)

    def on_click(self, event: Click) -> None:
        view = next((tab for end, tab in self.tabs if event.x < end), None)
        if view is not None:
            self.post_message(self.Chosen(view))
