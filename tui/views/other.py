"""The other program beside the list, where one was given: its own list, with the partner of the selected node under the cursor.

What is paired with what is decided by `session.report.diff.pairs`; `*` marks what is not the same in both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Static

from deepx_graph.ir import Function, Module, Node
from deepx_graph.session.progress import Monitor
from deepx_graph.session.report.diff import diff, pairs
from deepx_graph.session.session import Session
from deepx_graph.tui.formatting import plain
from deepx_graph.tui.views.base import Follower
from deepx_graph.tui.views.lanes import LaneList
from deepx_graph.viz.listing.listing import Listing, listing

if TYPE_CHECKING:
    from deepx_graph.tui.app import Browser


@dataclass(frozen=True)
class Paired:
    """Another program as rows, and which of its nodes are which of the program that is looked at."""

    path: str
    session: Session
    listing: Listing
    partner: Mapping[Node, Node]
    changes: Mapping[Node, str]
    """Of the nodes here that are not the same there, in what."""


def paired(path: str, module: Module, here: Module, monitor: Monitor) -> Paired:
    """Another program beside the one that is looked at."""
    session = Session(module, path=path)
    monitor.report("pairing")
    changes = diff(here, module, in_order=True).changes
    session.changes = {c.after: c.kind for c in changes if c.after is not None}
    mine = {c.before: c.kind for c in changes if c.before is not None}
    return Paired(path, session, listing(module), pairs(here, module), mine)


class OtherPane(Container, Follower):
    """The other program: its name, and its list, which selects partners and not nodes of its own."""

    DEFAULT_CSS = """
    OtherPane { layout: vertical; }
    OtherPane Static { height: 1; background: $boost; text-wrap: nowrap; text-overflow: ellipsis; }
    OtherPane LaneList { height: 1fr; }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.found: Paired | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="other-title", markup=False)
        yield LaneList(id="other-list")

    def show(self, found: Paired) -> None:
        """Shows another program, with the same costs in its last column as the list beside it."""
        rows, beside = self.query_one(LaneList), cast("Browser", self.app).lanes
        if self.found is None:
            self.watch(beside, "overlay", lambda name: setattr(rows, "overlay", name))
            self.watch(rows, "overlay", lambda name: setattr(beside, "overlay", name), init=False)
        self.found = found
        rows.matches = set(found.session.changes)
        rows.show_listing(found.session, found.listing)
        self.query_one("#other-title", Static).update(Text(f" {plain(os.path.basename(found.path), 40)}", "bold", no_wrap=True))

    def show_node(self, session: Session, function: Function, node: Node) -> None:
        if self.found is None:
            return
        rows, partner = self.query_one(LaneList), self.found.partner.get(node)
        if partner is not None and not rows.has_focus:
            rows.show_node(partner)

    def on_lane_list_moved(self, message: LaneList.Moved) -> None:
        message.stop()
        if message.node is not None and self.query_one(LaneList).has_focus:
            self.select_partner(message.node)

    def on_lane_list_scalars_toggled(self, message: LaneList.ScalarsToggled) -> None:
        message.stop()

    def select_partner(self, node: Node) -> None:
        """Selects what a node of this program is in the one that is looked at, where it is something there."""
        mine = next((a for a, b in self.found.partner.items() if b is node), None) if self.found is not None else None
        if mine is not None:
            cast("Browser", self.app).selection.go_to(mine)
