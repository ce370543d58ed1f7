"""Finding nodes: queries, whose matches are walked through, and nodes by name or number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepx_graph.session.query.language import completions, parse_query
from deepx_graph.tui.formatting import plain
from deepx_graph.tui.prompt import last_word
from deepx_graph.tui.selection import Selected

if TYPE_CHECKING:
    from deepx_graph.tui.app import Browser

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
