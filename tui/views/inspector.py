"""The inspector: everything about one node, in lines of which those that lead to another node can be chosen."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from deepx_graph.ir import Function, Node
from deepx_graph.session.session import Session
from deepx_graph.session.show.inspect import Entry, Section, inspect
from deepx_graph.tui.formatting import FILLER, by_cells, padded, plain
from deepx_graph.tui.views.base import Follower
from deepx_graph.tui.views.rows import TextLine, TextTable, heading, text_line

LABEL = 12


class Inspector(TextTable, Follower):
    """Sections of facts. Enter on an operand or user goes there, on a line of the source shows it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "Go there")]

    class LinkFollowed(Message):
        """A line that leads to a node, or to a line of the source, was chosen."""

        def __init__(self, node: Node | None, line: int) -> None:
            super().__init__()
            self.node, self.line = node, line

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.sections: list[Section] = []

    def show_node(self, session: Session, function: Function, node: Node) -> None:
        self.sections = inspect(session, function, node)
        self._lay_out()

    def on_resize(self) -> None:
        self._lay_out()
        super().on_resize()

    def _lay_out(self) -> None:
        lines: list[TextLine] = []
        for section in self.sections:
            if section.title:
                lines.append(heading(section.title))
            for e in section.entries:
                lines += _lines(e, max(10, self.size.width - LABEL - 3))
        self.show(lines)

    def action_choose(self) -> None:
        entry = self.line.data if self.line is not None else None
        if isinstance(entry, Entry) and (entry.node is not None or entry.line):
            self.post_message(self.LinkFollowed(entry.node, entry.line))


def _lines(e: Entry, width: int) -> list[TextLine]:
    """An entry, its text in as many lines as it needs."""
    mark = "→" if e.node is not None else "↦" if e.line else " "
    wrapped = textwrap.wrap(by_cells(plain(e.text, 400)), width, break_on_hyphens=False)
    texts = [text.replace(FILLER, "") for text in wrapped] or [""]
    label = (f"{mark}{padded(plain(e.label, LABEL), LABEL)} ", "name" if e.node is not None else "faint")
    return [text_line(label if k == 0 else " " * (LABEL + 2), text, data=e) for k, text in enumerate(texts)]
