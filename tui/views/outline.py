"""The outline: the functions of the program, and the loops and branches in each, to jump to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from deepx_graph.ir import Data
from deepx_graph.tui.formatting import plain
from deepx_graph.viz.listing.listing import Listing

MOST = 2000
"""Lines of an outline."""


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

    class Chosen(Message):
        """A row is to be shown."""

        def __init__(self, row: int) -> None:
            super().__init__()
            self.row = row

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._rows: list[int] = []

    def show_listing(self, listing: Listing, datas: Sequence[Data] = ()) -> None:
        """Lists the functions, loops and branches of a listing, and the data types of the program."""
        self._rows = [k for k, r in enumerate(listing.rows) if r.node is None and r.inside and r.kind != "repeat"][:MOST]
        self.clear_options()
        self.add_options(self._line(listing, k) for k in self._rows)
        self.add_options(_data_line(d) for d in datas[:MOST])

    @staticmethod
    def _line(listing: Listing, k: int) -> Option:
        row = listing.rows[k]
        style = "bold" if row.kind == "function" else ""
        return Option(Text.assemble("  " * min(row.depth, 8), (plain(row.title, 40), style), (f" {row.inside:,}", "dim")))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(self._rows[event.option_index]))


def _data_line(data: Data) -> Option:
    """A data type and its constructors; it has no row to go to."""
    names = " | ".join(c.name for c in data.constructors)
    return Option(Text.assemble(("type ", "dim"), plain(f"{data.name} = {names}", 200)), disabled=True)
