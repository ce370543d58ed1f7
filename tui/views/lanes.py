"""The lane list: the rows of a listing in a widget that draws only what is on the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive

from deepx_graph.ir import Function, Node
from deepx_graph.session.session import Session
from deepx_graph.tui.formatting import Piece, columns, cost_piece, overlays, padded, row_pieces, type_text
from deepx_graph.tui.views.rows import VirtualList
from deepx_graph.viz.listing.lanes import Row, gutter, mark_of
from deepx_graph.viz.listing.listing import FOLDED, Listing

PLAIN = ("bytes", "none")
"""Columns that need no heading: what it says has its unit, or it says nothing."""


class LaneList(VirtualList):
    """One row per node in schedule order. Posts `Moved` when another row is looked at."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "fold", "Fold"),
        Binding("left,h", "outward", "Collapse / parent", show=False),
        Binding("right,l", "inward", "Unfold", show=False),
        Binding("z", "fold_all", "Fold all / kernels / none", show=False),
        Binding("left_square_bracket", "walk('operand')", "Operand"),
        Binding("right_square_bracket", "walk('user')", "User"),
        Binding("o", "overlay", "Cost"),
        Binding("c", "numbers", "Show scalar constants", show=False),
    ]

    overlay: reactive[str] = reactive("bytes")

    @dataclass
    class Moved(Message):
        """Another row is looked at; `node` is None on a title."""

        function: Function
        node: Node | None

    class ScalarsToggled(Message):
        """Rows for constants of rank 0 are to be shown, or hidden again."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.session: Session | None = None
        self.listing = Listing()
        self.matches: set[Node] = set()
        self._near: dict[Node, str] = {}
        self._folding = 0
        self._walked: tuple[Node, str, int] | None = None

    # --- what it shows

    def show_listing(self, session: Session, listing: Listing) -> None:
        """Shows other rows, with the cursor on the node that it was on, or on one of its name, where that is still there."""
        node = self.node
        self.session, self.listing = session, listing
        self.resized()
        row = listing.row_of.get(node) if node is not None else None
        if row is None and node is not None and node.name:
            row = next((k for n, k in listing.row_of.items() if n.name == node.name), None)
        self.cursor = listing.show(row) if row is not None else min(1, max(0, len(listing.visible) - 1))
        self.moved()

    def count(self) -> int:
        return len(self.listing.visible)

    @property
    def row(self) -> Row | None:
        """The row under the cursor."""
        visible = self.listing.visible
        return self.listing.rows[visible[self.cursor]] if self.cursor < len(visible) else None

    @property
    def node(self) -> Node | None:
        row = self.row
        return row.node if row is not None else None

    def show_node(self, node: Node) -> bool:
        """Puts the cursor on a node, unfolding what hides it; False where it has no row."""
        row = self.listing.row_of.get(node)
        if row is None:
            return False
        if node is not self.node:
            self.show_row(row)
        return True

    def show_row(self, row: int) -> None:
        """Puts the cursor on a row, unfolding what hides it."""
        position = self.listing.show(row)
        self.resized()
        self.cursor = position

    # --- drawing

    def pieces(self, at: int, width: int) -> list[Piece]:
        number = self.listing.visible[at]
        return self._pieces(self.listing.rows[number], number, at == self.cursor, width)

    def _pieces(self, row: Row, number: int, here: bool, width: int) -> list[Piece]:
        assert self.session is not None
        facts = self.session.facts(row.function)
        node = row.node
        sign = "›" if here else self._near.get(node, " ") if node is not None else " "
        if node is not None and node in self.matches:
            sign = "*"
        pieces: list[Piece] = [(sign, "hit")]
        pieces += gutter(row, self.listing.lanes, mark_of(row))
        left = row_pieces(row, facts)
        if row.inside and number in self.listing.folded:
            left.append((f" ▸ {row.inside:,} rows", "faint"))
        right: list[Piece] = []
        if node is not None:
            text, style = cost_piece(node, facts, self.overlay)
            types, costs = columns(width)
            costs = min(32, width // 3) if self.overlay == "sharding" else costs
            text = padded(text, costs) if self.overlay == "sharding" else text.rjust(costs)
            right = [(" " + type_text(node, types), "data"), (" " + text, style)]
        elif row.kind == "function" and self.overlay not in PLAIN:
            right = [(f" {self.overlay}", "faint")]
        room = width - sum(cell_len(t) for t, _ in (*pieces, *right))
        return pieces + _fitted(left, room) + right

    # --- what is looked at

    def moved(self) -> None:
        row = self.row
        self._near = {}
        if row is not None and row.node is not None:
            self._near = dict.fromkeys(row.function.users.get(row.node, ()), ">") | dict.fromkeys(row.node.inputs, "<")
        self.see_cursor()
        self.refresh()
        if row is not None:
            self.post_message(self.Moved(row.function, row.node))

    # --- folding

    def action_fold(self) -> None:
        if self.listing.visible and self.listing.toggle(self.listing.visible[self.cursor]):
            self.resized()

    def action_outward(self) -> None:
        number = self.listing.visible[self.cursor] if self.listing.visible else 0
        if self.row is not None and self.row.inside and number not in self.listing.folded:
            self.action_fold()
        elif (head := self.listing.head_of(number)) is not None:
            self.cursor = self.listing.place(head)

    def action_inward(self) -> None:
        number = self.listing.visible[self.cursor] if self.listing.visible else 0
        if number in self.listing.folded:
            self.action_fold()
        else:
            self.action_move(1)

    def action_fold_all(self) -> None:
        """One after another: kernels and blocks folded, everything folded but functions, everything open."""
        row = self.listing.visible[self.cursor] if self.listing.visible else 0
        self._folding = (self._folding + 1) % 3
        wanted = (lambda r: r.kind in FOLDED, lambda r: r.kind != "function", lambda r: False)[self._folding]
        self.listing.fold_all(wanted)
        self.resized()
        self.cursor = self.listing.place(row)
        self.moved()

    # --- along edges

    def action_walk(self, edge: str) -> None:
        """To the first operand or user; again from where one came, to the next one."""
        row = self.row
        if row is None or row.node is None:
            return
        start, k = row.node, 0
        if self._walked is not None and self._walked[1] == edge and self._is_beside(self._walked[0], row, edge):
            start, k = self._walked[0], self._walked[2] + 1
        beside = self._beside(start, row.function, edge)
        if not beside:
            beside, start, k = self._beside(row.node, row.function, edge), row.node, 0
        if beside and self.show_node(beside[k % len(beside)]):
            self._walked = (start, edge, k % len(beside)) if len(beside) > 1 else None

    def _is_beside(self, start: Node, row: Row, edge: str) -> bool:
        return row.node in self._beside(start, row.function, edge)

    def _beside(self, node: Node, function: Function, edge: str) -> list[Node]:
        nodes = node.inputs if edge == "operand" else function.users.get(node, ())
        return [n for n in dict.fromkeys(nodes) if n in self.listing.row_of]

    # --- overlays

    def action_overlay(self) -> None:
        """Shows another cost in the last column."""
        names = overlays(self.session) if self.session is not None else ("none",)
        self.overlay = names[(names.index(self.overlay) + 1) % len(names)] if self.overlay in names else names[0]

    def action_numbers(self) -> None:
        self.post_message(self.ScalarsToggled())


def _fitted(pieces: list[Piece], room: int) -> list[Piece]:
    """The pieces cut, or filled with spaces, to just the room there is."""
    found: list[Piece] = []
    for text, style in pieces:
        if room <= 0:
            break
        found.append((text if cell_len(text) <= room else padded(text, room), style))
        room -= cell_len(found[-1][0])
    return [*found, (" " * max(0, room), "")]
