"""The selected node, which all views share; nodes that were selected before; how one is found, and what is explained of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepx_graph.ir import Function, Node
from deepx_graph.session.query.language import completions, parse_query
from deepx_graph.tui.bars import last_word
from deepx_graph.tui.formatting import details_text, name_of, plain
from deepx_graph.tui.screens import MessageScreen
from deepx_graph.tui.views.base import Follower

if TYPE_CHECKING:
    from deepx_graph.passes.fusion.reason import Reason
    from deepx_graph.session.session import Version
    from deepx_graph.session.timeline import Sighting
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
        """Selects the node under the cursor of the list; on a title the last one stays selected, at first that of the function's
        beginning, so that no view is empty."""
        if node is None and self.node is None:
            node = next(iter((*function.params, *function.nodes)), None)
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


MOST_ROWS = 20_000
"""Rows whose names are offered as completions."""


class Search:
    """The last query and its matches."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.query = ""
        self.matches: list[Selected] = []
        self.at = -1

    @property
    def status(self) -> str:
        """Which match is selected, nothing where there is none."""
        return f"[{self.at + 1}/{len(self.matches)}] {plain(self.query, 40)}" if self.matches else ""

    def clear(self) -> None:
        """Forgets the matches, which are nodes of another version."""
        self.matches = []
        self.browser.lanes.matches = set()

    # --- queries

    def prompt(self) -> None:
        """Asks for a query."""
        self.browser.prompt("op:dot_general users>2 bytes>1M name:~attn", self.run, last_word(completions), self.query)

    def run(self, text: str) -> None:
        """Finds the nodes that match a query and selects the first at or after the cursor. Raises UsageError for no query."""
        session = self.browser.session
        if session is None:
            return
        query = parse_query(text)
        self.query = text
        self.browser.jobs.start("searching", lambda m: session.query(query) if text.strip() else [], self._show)

    def _show(self, matches: list[Selected]) -> None:
        self.matches, self.at = matches, -1
        lanes, selection = self.browser.lanes, self.browser.selection
        lanes.matches = {n for _, n in matches}
        lanes.refresh()
        if not matches:
            if self.query.strip():
                self.browser.notify(f"nothing is found by {plain(self.query, 60)}", markup=False)
            selection.changed()
            return
        row_of = self.browser.document.listing.row_of
        here = row_of.get(selection.node, 0) if selection.node is not None else 0
        after = (k for k, (_, n) in enumerate(matches) if row_of.get(n, -1) >= here)
        self.at = next(after, 0) - 1
        self.step(1)

    def step(self, by: int) -> None:
        """Selects the match so many on, from the last to the first."""
        if self.matches:
            self.at = (self.at + by) % len(self.matches)
            document, selection = self.browser.document, self.browser.selection
            selection.remember()
            function, node = self.matches[self.at]
            if node not in document.listing.row_of and not document.scalars:
                self.browser.notify("numbers have no rows: c shows them")
            selection.select(function, node)

    # --- one node

    def prompt_node(self) -> None:
        """Asks for the name or number of a node."""
        rows = self.browser.document.listing.rows[:MOST_ROWS]
        names = sorted({n.name for row in rows if (n := row.node) is not None and n.name})
        self.browser.prompt("a name, or #17", self.go_to, lambda text: [n for n in names if text and n.startswith(text)])

    def go_to(self, text: str) -> None:
        """Selects the node of a name or number. Raises UsageError for one that is none."""
        session, selection = self.browser.session, self.browser.selection
        if session is not None and text.strip():
            selection.remember()
            selection.select(*session.find(text.strip()))


class Explainer:
    """Explains, with the node that is marked to be compared with another."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.marked: Node | None = None
        self._sighting: tuple[Node | None, int] = (None, 0)

    @property
    def status(self) -> str:
        """What is expected of the reader, nothing mostly."""
        return "w: choose the other node" if self.marked is not None else ""

    # --- kernels

    def fusion(self) -> None:
        """Marks the selected node; the second time says why the two are, or are not, in one kernel."""
        session, node = self.browser.session, self.browser.selection.node
        if session is None or node is None:
            return
        if self.marked is None:
            self.marked = node
            self.browser.show_status()
            return
        other, self.marked = self.marked, None
        self.browser.jobs.start("asking", lambda m: session.why(other, node), self._show_reason)

    def _show_reason(self, reason: Reason) -> None:
        self.browser.push_screen(MessageScreen("In one kernel" if reason.fused else "Not in one kernel", plain(str(reason))))

    # --- the timeline

    def timeline(self) -> None:
        """Goes to the step at which the selected node, or one like it, appeared or vanished; again to the next such step."""
        session, node = self.browser.session, self.browser.selection.node
        if session is None or node is None:
            return
        at = session.at
        versions = [v for v in (*session.versions[at:], *session.versions[at - 1 :: -1]) if v.timeline is not None]
        if not versions:
            self.browser.notify("nothing has been optimised yet: the pipeline view runs passes")
            return
        version = versions[0]
        self.browser.jobs.start("looking", lambda m: version.timeline.sightings(node) if version.timeline else [],
                                lambda found: self._show_sighting(node, version, found))

    async def _show_sighting(self, node: Node, version: Version, found: list[Sighting]) -> None:
        from deepx_graph.tui.views.passes import PassesView, sighting_text

        self.browser.notify(f"{plain(node.reference or node.op.name, 40)}: {sighting_text(found)}", markup=False)
        if not found:
            return
        last, k = self._sighting
        k = (k + 1) % len(found) if last is node else 0
        self._sighting = node, k
        await self.browser.switcher.mount_views()
        self.browser.action_view("passes")
        passes = self.browser.query_one(PassesView)
        passes.show_steps(version)
        passes.show_event(found[k].event)
