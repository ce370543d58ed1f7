"""Virtual lists, of which only the lines on the screen are drawn: the lane list and all tables.

A line is pieces of text with the names of styles, which themes give colours; nothing in a line is ever read as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from deepx_graph.tui.formatting import Piece

STYLES = ("data", "effect", "control", "node", "op", "name", "faint", "heavy", "reduce", "kernel", "head", "result", "hot", "hit",
          "cursor", "near", "added", "removed", "changed")  # fmt: skip


class StyledView(ScrollView):
    """A widget that draws pieces of text in named styles."""

    DEFAULT_CSS = """
    StyledView {
        scrollbar-size: 1 1;
        .-data { text-style: dim; }
        .-effect { color: $text-warning; }
        .-control { color: $text-error; }
        .-node { color: $foreground; text-style: bold; }
        .-op { color: $text-primary; }
        .-heavy { color: $text-accent; text-style: bold; }
        .-reduce { color: $text-success; }
        .-kernel { color: $text-warning; text-style: bold; }
        .-name { color: $foreground; }
        .-faint { text-style: dim; }
        .-head { color: $foreground; text-style: bold underline; }
        .-result { color: $text-success; text-style: bold; }
        .-hot { color: $text-error; text-style: bold; }
        .-hit { color: $text-accent; text-style: bold; }
        .-near { color: $text-accent; }
        .-added { color: $text-success; }
        .-removed { color: $text-error; }
        .-changed { color: $text-warning; }
        .-cursor { background: $panel; }
        &:focus .-cursor { background: $block-cursor-background; color: $block-cursor-foreground; text-style: bold; }
        &:nocolor .-cursor { text-style: reverse; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"-{s}" for s in STYLES}

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._named: dict[str, Style] = {}
        self._whole: dict[tuple[str, bool], Style] = {}

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._named, self._whole = {}, {}

    def style(self, name: str) -> Style:
        """The style of that name in the theme."""
        if name not in self._named:
            self._named[name] = self.get_component_rich_style(f"-{name}", partial=True) if name else Style()
        return self._named[name]

    def strip(self, pieces: Sequence[Piece], width: int, *, cursor: bool = False, shift: int = 0) -> Strip:
        """One line of the widget, from column `shift` on."""
        segments = [Segment(text, self.whole_style(name, cursor)) for text, name in pieces]
        return Strip(segments).adjust_cell_length(shift + width, self.whole_style("", cursor)).crop(shift, shift + width)

    def whole_style(self, name: str, cursor: bool = False) -> Style:
        """A named style over that of the widget, and under that of the cursor."""
        found = self._whole.get((name, cursor))
        if found is None:
            found = self.rich_style + self.style(name) + (self.style("cursor") if cursor else Style())
            self._whole[name, cursor] = found
        return found


class VirtualList(StyledView, can_focus=True):
    """Lines with a cursor. Subclasses say how many there are and what is on each."""

    DEFAULT_CSS = "VirtualList { overflow-x: hidden; }"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("home,g", "goto(0)", "First row", show=False),
        Binding("end,G", "goto(-1)", "Last row", show=False),
    ]

    cursor: reactive[int] = reactive(0)
    shift: reactive[int] = reactive(0)
    """Columns of long lines that are off the screen to the left."""

    def count(self) -> int:
        """How many lines there are."""
        raise NotImplementedError

    def pieces(self, at: int, width: int) -> Sequence[Piece]:
        """What is on a line."""
        raise NotImplementedError

    def moved(self) -> None:
        """The cursor is on another line."""

    def resized(self) -> None:
        """To be called when there are more or fewer lines."""
        self.virtual_size = Size(self.container_size.width, self.count())
        self.refresh()

    def on_resize(self) -> None:
        self.resized()
        self.see_cursor()

    def see_cursor(self) -> None:
        """Scrolls to the cursor."""
        self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False, force=True)

    def render_line(self, y: int) -> Strip:
        at, width = y + self.scroll_offset.y, self.scrollable_content_region.width
        if at >= self.count():
            return Strip.blank(width, self.whole_style(""))
        return self.strip(self.pieces(at, width), width, cursor=at == self.cursor, shift=self.shift)

    def validate_cursor(self, cursor: int) -> int:
        return max(0, min(cursor, self.count() - 1))

    def watch_cursor(self, old: int, new: int) -> None:
        if old != new:
            self.see_cursor()
            self.refresh()
            self.moved()

    def action_move(self, by: int) -> None:
        self.cursor += by

    def action_page(self, by: int) -> None:
        self.cursor += by * max(1, self.size.height - 1)

    def action_goto(self, row: int) -> None:
        self.cursor = row if row >= 0 else self.count() - 1

    def on_click(self, event: Click) -> None:
        self.cursor = event.y + self.scroll_offset.y


@dataclass(frozen=True)
class TextLine:
    """A line of a table: its pieces, and what it stands for."""

    pieces: list[Piece] = field(default_factory=list)
    data: Any = None


@dataclass
class LineMessage(Message):
    """A message of a table about one of its lines."""

    table: TextTable
    line: TextLine

    @property
    def control(self) -> TextTable:
        return self.table


class TextTable(VirtualList):
    """Lines that are given. Posts `Chosen` when Enter is pressed and `Moved` when the cursor moves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "Choose", show=False),
        Binding("right,l", "sideways(1)", "See more of long lines", show=False),
        Binding("left,h", "sideways(-1)", "Back to their beginning", show=False),
    ]

    class Chosen(LineMessage):
        """A line was chosen."""

    class Moved(LineMessage):
        """The cursor is on a line."""

    def __init__(self, id: str | None = None, *, chooses: bool = True) -> None:
        super().__init__(id=id)
        self.table: Sequence[TextLine] = ()
        self.chooses = chooses
        """Whether Enter is for the table, and not for what it is a part of."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        return self.chooses or action != "choose"

    def show(self, table: Sequence[TextLine], *, keep: bool = False) -> None:
        """Shows these lines, from the first or, with `keep`, from where the cursor was."""
        self.table, self.shift = table, 0
        self.cursor = self.cursor if keep else 0
        self.resized()

    @property
    def line(self) -> TextLine | None:
        """The line under the cursor."""
        return self.table[self.cursor] if self.cursor < len(self.table) else None

    def count(self) -> int:
        return len(self.table)

    def pieces(self, at: int, width: int) -> Sequence[Piece]:
        return self.table[at].pieces

    def moved(self) -> None:
        if self.line is not None:
            self.post_message(self.Moved(self, self.line))

    def action_sideways(self, by: int) -> None:
        longest = max((sum(len(t) for t, _ in line.pieces) for line in self.table), default=0)
        self.shift = max(0, min(self.shift + 16 * by, longest - 16))

    def action_choose(self) -> None:
        if self.line is not None:
            self.post_message(self.Chosen(self, self.line))


def heading(title: str) -> TextLine:
    """A line that is a heading, from its first word on."""
    text = title.lstrip()
    indent = [(title[: -len(text)], "")] if text != title else []
    return TextLine([*indent, (text, "head")])


def text_line(*pieces: Piece | str, data: Any = None) -> TextLine:
    """A line of pieces; a bare text is plain."""
    return TextLine([(p, "") if isinstance(p, str) else p for p in pieces], data)
