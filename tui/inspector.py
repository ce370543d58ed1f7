"""The inspector: everything about one node, in lines of which those that lead to another node can be chosen."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from deepx_graph.ir import Function, Node
from deepx_graph.session.inspect import Entry, inspect
from deepx_graph.session.session import Session
from deepx_graph.tui.texts import plain

LABEL = 12


class Inspector(OptionList):
    """Sections of facts. Enter on an operand or user goes there, on a line of the source shows it."""

    DEFAULT_CSS = """
    Inspector { border: none; padding: 0; height: 100%; max-height: 100%; background: $background; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
        Binding("enter", "select", "Go there", show=True),
    ]

    class Chosen(Message):
        """A node, or a line of the source, is to be shown."""

        def __init__(self, node: Node | None, line: int) -> None:
            super().__init__()
            self.node, self.line = node, line

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._entries: list[Entry | None] = []

    def show_node(self, session: Session, function: Function, node: Node) -> None:
        """Tells about a node."""
        self._entries = []
        options: list[Option] = []
        for section in inspect(session, function, node):
            if section.title:
                options.append(Option(Text(section.title, style="bold underline"), disabled=True))
                self._entries.append(None)
            for e in section.entries:
                options.append(Option(_line(e), disabled=False))
                self._entries.append(e)
        self.clear_options()
        self.add_options(options)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        entry = self._entries[event.option_index] if event.option_index < len(self._entries) else None
        if entry is not None and (entry.node is not None or entry.line):
            self.post_message(self.Chosen(entry.node, entry.line))


def _line(e: Entry) -> Text:
    mark = "→" if e.node is not None else "↦" if e.line else " "
    return Text.assemble((f"{mark}{plain(e.label, LABEL):<{LABEL}} ", "bold" if e.node is not None else "dim"), plain(e.text, 400))
