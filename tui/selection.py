"""The selected node, which all views share, and the nodes that were selected before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepx_graph.ir import Function, Node
from deepx_graph.tui.formatting import details_text, name_of, plain
from deepx_graph.tui.views.base import Follower

if TYPE_CHECKING:
    from deepx_graph.tui.app import Browser

Selected = tuple[Function, Node]
"""A node and the function that it is in."""

KEPT = 500
"""Nodes that one can go back to."""


class History:
    """Nodes to go back to, and forward again."""

    def __init__(self) -> None:
        self._nodes: list[Selected] = []
        self._at = -1

    def add(self, selected: Selected | None) -> None:
        """Makes a node the latest, unless it is where we are; what had been gone back from is forgotten."""
        if selected is None or (self._nodes and self._nodes[self._at][1] is selected[1]):
            return
        del self._nodes[self._at + 1 :]
        self._nodes = [*self._nodes[-KEPT:], selected]
        self._at = len(self._nodes) - 1

    def step(self, by: int) -> Selected | None:
        """The node so many steps on, where there is one."""
        if not 0 <= self._at + by < len(self._nodes):
            return None
        self._at += by
        return self._nodes[self._at]

    def clear(self) -> None:
        self._nodes, self._at = [], -1


class Selection:
    """Which node is selected, and the ways to select another. Its followers are notified after the next paint."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.current: Selected | None = None
        self.history = History()
        self._changed = False
        """Whether followers are still to be notified."""

    @property
    def node(self) -> Node | None:
        return self.current[1] if self.current is not None else None

    @property
    def status(self) -> str:
        """The selected node on one line."""
        session = self.browser.session
        if session is None or self.current is None:
            return ""
        function, node = self.current
        return f" {name_of(node, session.facts(function))} {node.op.name}: {plain(str(node.type), 60)}  {details_text(node)}"

    # --- selecting

    def select(self, function: Function, node: Node, *, remember: bool = True) -> None:
        """Selects a node everywhere. Nodes without a row are shown in the panes only."""
        self.current = function, node
        if remember:
            self.remember()
        self.browser.lanes.show_node(node)
        self.changed()

    def follow(self, function: Function, node: Node | None) -> None:
        """Selects the node under the cursor of the list; on a title the last one stays selected."""
        if node is not None:
            other = node is not self.node
            self.current = function, node
            if other:
                self.changed()

    def remember(self) -> None:
        """The selected node is one to go back to."""
        self.history.add(self.current)

    def step(self, by: int) -> None:
        """Back to a node that was selected before, or forward again."""
        self.remember()
        selected = self.history.step(by)
        if selected is not None:
            self.select(*selected, remember=False)

    def go_to(self, node: Node) -> None:
        """Selects a node of the program, in whichever function it is."""
        function = self._function_of(node)
        if function is not None:
            self.select(function, node)
        else:
            self.browser.notify("that node is not in this version", severity="warning")

    def _function_of(self, node: Node) -> Function | None:
        rows, session = self.browser.document.listing, self.browser.session
        row = rows.row_of.get(node)
        if row is not None:
            return rows.rows[row].function
        if self.current is not None and node in self.current[0].users:
            return self.current[0]
        return session.function_of(node) if session is not None else None

    def renew(self) -> None:
        """In another version selects what the node has become: itself, else the node of its name or source position."""
        rows, old = self.browser.document.listing, self.node
        if old is None:
            return
        if old in rows.row_of:
            self.current = rows.rows[rows.row_of[old]].function, old  # versions share nodes, not functions
            return
        span = old.span
        for row in rows.rows:
            n = row.node
            if n is not None and ((n.name and n.name == old.name) or (span is not None and n.span == span and n.op is old.op)):
                self.select(row.function, n)
                return

    # --- rows that are no nodes

    def go_to_function(self, name: str) -> None:
        """Puts the cursor of the list on the head of a function."""
        for k, row in enumerate(self.browser.document.listing.rows):
            if row.kind == "function" and row.function.name == name:
                self.browser.lanes.show_row(k)
                return

    # --- followers

    def changed(self) -> None:
        """Brings the followers up to date, once, after what is under way has been painted."""
        if not self._changed:
            self._changed = True
            self.browser.call_after_refresh(self._notify_followers)

    def _notify_followers(self) -> None:
        self._changed = False
        self.browser.show_status()
        session = self.browser.session
        if session is None or self.current is None:
            return
        for widget in self.browser.default_screen.walk_children():
            if isinstance(widget, Follower) and widget.display:
                widget.show_node(session, *self.current)
