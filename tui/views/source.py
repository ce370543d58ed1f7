"""The source pane: the text that was read, the lines of the node marked; a line chosen here leads to the nodes that it made."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from deepx_graph.errors import Source, printable
from deepx_graph.ir import Function, Node
from deepx_graph.session.session import Session
from deepx_graph.tui.views.base import Follower

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

    class LineChosen(Message):
        """The nodes of a line are wanted."""

        def __init__(self, line: int) -> None:
            super().__init__()
            self.line = line

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
