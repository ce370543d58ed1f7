"""The panes beside the views: the outline, with the functions, loops and branches to jump to; the inspector, with all about a node;
the source, with the lines of the node marked.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from deepx_graph.analysis.name_scopes import NameScope, Path
from deepx_graph.errors import Source, printable
from deepx_graph.ir import Data, Function, Node
from deepx_graph.session.session import Session
from deepx_graph.session.show.inspect import Entry, Section, inspect
from deepx_graph.tui.formatting import FILLER, by_cells, padded, plain
from deepx_graph.tui.views.base import Follower
from deepx_graph.tui.views.rows import TextLine, TextTable, heading, text_line
from deepx_graph.viz.listing.listing import Listing

OUTLINE_LINES = 2000
"""Lines of an outline."""


class OutlineHead(NamedTuple):
    """A line of the outline: the row that it leads to, and how many rows or nodes lie in it."""

    row: int
    depth: int
    title: str
    inside: int
    style: str = ""


def outline(listing: Listing, scopes: Mapping[Node, NameScope]) -> list[OutlineHead]:
    """The heads of a listing, and each name scope at the first of its nodes, with how many it has."""
    inside = Counter(s.path[: k + 1] for n, s in scopes.items() if n.inputs for k in range(len(s.path)))
    found: list[OutlineHead] = []
    seen: set[Path] = set()
    for k, row in enumerate(listing.rows):
        if row.node is None and row.inside and row.kind not in ("repeat", "block" if scopes else "repeat"):
            found.append(OutlineHead(k, row.depth, row.title, row.inside, "bold" if row.kind == "function" else ""))
        scope = scopes.get(row.node) if row.node is not None else None
        for level in range(len(scope.path) if scope is not None and row.node.inputs else 0):  # type: ignore[union-attr]
            path = scope.path[: level + 1]  # type: ignore[union-attr]
            if path not in seen:
                seen.add(path)
                found.append(OutlineHead(k, level + 1, path[-1], inside[path], "italic"))
    return found


class Outline(OptionList):
    """Heads of the listing. Posts `Chosen` with the number of a row."""

    DEFAULT_CSS = """
    Outline { scrollbar-size: 1 1; border: none; padding: 0; height: 100%; max-height: 100%; background: $background;
              text-wrap: nowrap; text-overflow: ellipsis; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
        Binding("enter", "select", "Go there", show=True),
    ]

    @dataclass
    class Chosen(Message):
        """A row is to be shown."""

        row: int

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._rows: list[int] = []

    def show_listing(self, listing: Listing, datas: Sequence[Data] = (), scopes: Mapping[Node, NameScope] | None = None) -> None:
        """Lists the functions, loops and branches of a listing, the modules of the model that its nodes are in, and the data types
        of the program."""
        heads = outline(listing, scopes or {})[:OUTLINE_LINES]
        self._rows = [h.row for h in heads]
        self.clear_options()
        self.add_options(map(self._line, heads))
        self.add_options(_data_line(d) for d in datas[:OUTLINE_LINES])

    @staticmethod
    def _line(head: OutlineHead) -> Option:
        return Option(Text.assemble("  " * min(head.depth, 8), (plain(head.title, 40), head.style), (f" {head.inside:,}", "dim")))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(self._rows[event.option_index]))


def _data_line(data: Data) -> Option:
    """A data type and its constructors; it has no row to go to."""
    names = " | ".join(c.name for c in data.constructors)
    return Option(Text.assemble(("type ", "dim"), plain(f"{data.name} = {names}", 200)), disabled=True)


LABEL = 12


class Inspector(Container, Follower):
    """Sections of facts. Enter on an operand or user goes there, on a line of the source shows it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "Go there")]

    @dataclass
    class LinkFollowed(Message):
        """A line that leads to a node, or to a line of the source, was chosen."""

        node: Node | None
        line: int

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.sections: list[Section] = []
        self.table = TextTable(chooses=False)

    def compose(self) -> ComposeResult:
        yield self.table

    def show_node(self, session: Session, function: Function, node: Node) -> None:
        self.sections = inspect(session, function, node)
        self._lay_out()

    def on_resize(self) -> None:
        self._lay_out()

    def _lay_out(self) -> None:
        lines: list[TextLine] = []
        for section in self.sections:
            if section.title:
                lines.append(heading(section.title))
            for e in section.entries:
                lines += _entry_lines(e, max(10, self.size.width - LABEL - 3))
        self.table.show(lines)

    def action_choose(self) -> None:
        entry = self.table.line.data if self.table.line is not None else None
        if isinstance(entry, Entry) and (entry.node is not None or entry.line):
            self.post_message(self.LinkFollowed(entry.node, entry.line))


def _entry_lines(e: Entry, width: int) -> list[TextLine]:
    """An entry, its text in as many lines as it needs."""
    mark = "→" if e.node is not None else "↦" if e.line else " "
    wrapped = textwrap.wrap(by_cells(plain(e.text, 400)), width, break_on_hyphens=False)
    texts = [text.replace(FILLER, "") for text in wrapped] or [""]
    label = (f"{mark}{padded(plain(e.label, LABEL), LABEL)} ", "name" if e.node is not None else "faint")
    return [text_line(label if k == 0 else " " * (LABEL + 2), text, data=e) for k, text in enumerate(texts)]


MAX_LINE = 2000
"""Characters of a line that are looked at; constants in texts can have millions."""


class SourcePane(ScrollView, Follower, can_focus=True):
    """The source with line numbers. Posts `LineChosen` when Enter is pressed on a line."""

    DEFAULT_CSS = """
    SourcePane {
        scrollbar-size: 1 1;
        .source--number { text-style: dim; }
        .source--marked { background: $warning-muted; text-style: bold; }
        .source--cursor { background: $panel; }
        &:focus .source--cursor { background: $block-cursor-background; color: $block-cursor-foreground; }
        &:nocolor .source--cursor { text-style: reverse; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"source--number", "source--marked", "source--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("home,g", "goto(1)", "First line", show=False),
        Binding("end,G", "goto(0)", "Last line", show=False),
        Binding("enter", "choose", "To its node"),
    ]

    cursor: reactive[int] = reactive(1)
    """The line, from 1."""

    @dataclass
    class LineChosen(Message):
        """The nodes of a line are wanted."""

        line: int

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lines_of_text: list[str] = []
        self.marked: frozenset[int] = frozenset()

    def show_source(self, source: Source | None) -> None:
        """Shows a text from its first line."""
        self.lines_of_text = source.text.split("\n") if source is not None else []
        self.virtual_size = Size(self.container_size.width, len(self.lines_of_text))
        self.refresh()

    def show_node(self, session: Session, function: Function, node: Node) -> None:
        """Marks the lines of a node and puts the cursor on the first."""
        self.marked = frozenset(s.line for s in node.origin.spans)
        if node.span is not None:
            self.cursor = node.span.line
        self.refresh()

    def validate_cursor(self, line: int) -> int:
        return max(1, min(line, len(self.lines_of_text)))

    def watch_cursor(self, line: int) -> None:
        above = max(0, line - 1)
        self.scroll_to_region(Region(0, above, 1, 1), animate=False, force=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        number = y + self.scroll_offset.y + 1
        width = self.scrollable_content_region.width
        if number > len(self.lines_of_text):
            return Strip.blank(width, self.rich_style)
        style = self.rich_style
        for name, wanted in (("marked", number in self.marked), ("cursor", number == self.cursor)):
            if wanted:
                style += self.get_component_rich_style(f"source--{name}", partial=True)
        digits = len(str(len(self.lines_of_text)))
        mark = "▌" if number in self.marked else " "
        text = printable(self.lines_of_text[number - 1][:MAX_LINE].replace("\t", "    ").rstrip("\r"))
        faint = style + self.get_component_rich_style("source--number", partial=True)
        return Strip([Segment(f"{number:>{digits}}{mark}", faint), Segment(text, style)]).adjust_cell_length(width, style)

    def action_move(self, by: int) -> None:
        self.cursor += by

    def action_page(self, by: int) -> None:
        self.cursor += by * max(1, self.size.height - 1)

    def action_goto(self, line: int) -> None:
        self.cursor = line or len(self.lines_of_text)

    def action_choose(self) -> None:
        self.post_message(self.LineChosen(self.cursor))
