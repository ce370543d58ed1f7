"""The focus map: the neighbourhood of a node as boxes, on which the arrow keys walk along edges."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PARAM, PHI, REGION
from deepx_graph.ops import FAMILY_OF
from deepx_graph.session.query.facts import Facts
from deepx_graph.session.session import Session
from deepx_graph.tui.formatting import FILLER, STYLES, bar, by_cells, plain, title_of
from deepx_graph.tui.views.base import Follower
from deepx_graph.tui.views.rows import StyledView
from deepx_graph.types import is_state
from deepx_graph.viz.listing.boxmap import Box, BoxMap, MapCell, box_map

MOST_DEPTH = 9


class FocusMap(StyledView, Follower, can_focus=True):
    """A map with a cursor on one of its boxes. Posts `Moved` when it goes to another one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "walk('down')", "To a user", show=False),
        Binding("up,k", "walk('up')", "To an operand", show=False),
        Binding("left,h", "walk('left')", "Sideways", show=False),
        Binding("right,l", "walk('right')", "Sideways", show=False),
        Binding("enter,space", "centre", "Centre here"),
        Binding("plus,equals_sign", "depth(1)", "Wider"),
        Binding("minus", "depth(-1)", "Narrower"),
        Binding("v", "flip", "Left to right", tooltip="Layers beside one another, or below one another"),
    ]

    depth: reactive[int] = reactive(2)
    sideways: reactive[bool] = reactive(False)

    @dataclass
    class Moved(Message):
        """The cursor is on another node."""

        function: Function
        node: Node

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.session: Session | None = None
        self.function: Function | None = None
        self.facts: Facts | None = None
        self.map: BoxMap | None = None
        self.node: Node | None = None

    def show_map(self, session: Session, function: Function, node: Node) -> None:
        """Draws the map around a node."""
        self.session, self.function, self.node = session, function, node
        self.facts = session.facts(function)
        self.map = box_map(function, node, self.depth, self._label, _kind, sideways=self.sideways)
        left = f", {self.map.left_out:,} more left out" if self.map.left_out else ""
        self.border_subtitle = f"{len(self.map.boxes)} nodes within {self.depth}{left}"
        rows = self.map.rows
        self.virtual_size = Size(len(rows[0]) if rows else 0, len(rows))
        self._see()
        self.refresh()

    def _label(self, node: Node) -> str:
        assert self.facts is not None
        measured = self.facts.measured.get(node)
        share = f" {bar(measured.share, 3)}{measured.share:.0%}" if measured is not None and measured.calls else ""
        name = plain(node.reference, 16) if node.name else f"#{self.facts.number.get(node, 0)}"
        return by_cells(f"{plain(title_of(node), 24)} {name}{share}")

    def show_node(self, session: Session, function: Function, node: Node) -> None:
        """Puts the cursor on a node, in a new map where this one does not have it."""
        if self.map is None or self.function is not function or node not in self.map.boxes:
            self.show_map(session, function, node)
        elif node is not self.node:
            self.node = node
            self._see()
            self.refresh()

    @property
    def box(self) -> Box | None:
        return self.map.boxes.get(self.node) if self.map is not None and self.node is not None else None

    def _see(self) -> None:
        if (box := self.box) is not None:
            width, height = self.scrollable_content_region.size
            self.scroll_to(box.middle - width // 2, box.centre - height // 2, animate=False, force=True)

    # --- drawing

    @property
    def margin(self) -> int:
        """Columns to the left of a map that is narrower than the widget."""
        return max(0, (self.scrollable_content_region.width - self.virtual_size.width) // 2)

    def render_line(self, y: int) -> Strip:
        at, width = y + self.scroll_offset.y, self.scrollable_content_region.width
        if self.map is None or at >= len(self.map.rows):
            return Strip.blank(width, self.rich_style)
        base = self.rich_style
        segments = [Segment(" " * self.margin, base)]
        for style, cells in groupby(self.map.rows[at], self._cell):
            segments.append(Segment("".join(c.char for c in cells if c.char != FILLER), base + style))
        x = self.scroll_offset.x
        return Strip(segments).crop(x, x + width).adjust_cell_length(width, base)

    def _cell(self, cell: MapCell) -> Style:
        if cell.box is not None:
            if cell.box is self.node:
                return self.style("node") + self.style("cursor")
            if self.map is not None and cell.box is self.map.centre:
                return self.style("hit")
            return self.style(STYLES.get(FAMILY_OF.get(cell.box.op, ""), "op"))
        if cell.net is None:
            return self.style("faint")
        if cell.net is self.node:
            return self.style("hit")
        if self.node is not None and cell.net in self.node.inputs:
            return self.style("result")
        return self.style("effect" if is_state(cell.net.type) else "control" if cell.net.op in _CONTROL else "faint")

    # --- walking

    def action_walk(self, direction: str) -> None:
        """To the nearest box in a direction: along an edge up and down, within the layer left and right; turned, the other way."""
        box = self.box
        if self.map is None or box is None or self.function is None:
            return
        if self.map.sideways:
            direction = _TURNED[direction]
        if direction in ("left", "right"):
            layer = self.map.layers[box.layer]
            at = layer.index(box.node) + (1 if direction == "right" else -1)
            target = layer[at] if 0 <= at < len(layer) else None
        else:
            beside = box.node.inputs if direction == "up" else self.function.users.get(box.node, ())
            shown = [self.map.boxes[n] for n in dict.fromkeys(beside) if n in self.map.boxes]
            target = min(shown, key=self._aside).node if shown else None
            if target is None and beside and self.map.centre is not box.node:
                self.action_centre()  # there is more, off the map
                return
        if target is not None:
            self._go(target)

    def _aside(self, other: Box) -> int:
        """How far another box is from that under the cursor, across the layers."""
        assert self.map is not None and self.box is not None
        return abs(other.centre - self.box.centre) if self.map.sideways else abs(other.middle - self.box.middle)

    def _go(self, node: Node) -> None:
        self.node = node
        self._see()
        self.refresh()
        if self.function is not None:
            self.post_message(self.Moved(self.function, node))

    def action_centre(self) -> None:
        """Draws the map anew around the node under the cursor."""
        if self.session is not None and self.function is not None and self.node is not None:
            self.show_map(self.session, self.function, self.node)

    def action_flip(self) -> None:
        self.sideways = not self.sideways
        self.action_centre()

    def action_depth(self, by: int) -> None:
        self.depth = max(1, min(MOST_DEPTH, self.depth + by))
        self.action_centre()

    def on_click(self, event: Click) -> None:
        x, y = event.x + self.scroll_offset.x - self.margin, event.y + self.scroll_offset.y
        if self.map is not None and y < len(self.map.rows) and 0 <= x < len(self.map.rows[y]):
            node = self.map.rows[y][x].box
            if node is not None:
                self._go(node)


_TURNED = {"left": "up", "right": "down", "up": "left", "down": "right"}
"""Which way a key leads on a map from left to right."""

_CONTROL = (PHI, REGION, LOOP_BEGIN, LOOP_END)


def _kind(node: Node) -> str:
    if node.op in (PARAM, CONSTANT):
        return "param"
    if node.op in _CONTROL:
        return "control"
    return "kernel" if FAMILY_OF.get(node.op) == "fusion" else "op"
