"""Taking along what the browser shows: names and facts to the clipboard; pictures, texts and programs to files.

What writing a file needs is imported when one is written.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from deepx_graph.session.show.inspect import inspect
from deepx_graph.tui.formatting import FILLER, name_of, plain
from deepx_graph.tui.views.map import FocusMap
from deepx_graph.tui.views.rows import VirtualList

if TYPE_CHECKING:
    from deepx_graph.tui.app import Browser


class Exporter:
    """Copies the selected node, and writes the current view to files."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser

    def copy(self, what: str) -> None:
        """Copies the `name` of the selected node, or the `text` of all that is known of it."""
        session, current = self.browser.session, self.browser.selection.current
        if session is None or current is None:
            return
        function, node = current
        text = plain(node.name or name_of(node, session.facts(function)))
        if what == "text":
            sections = inspect(session, function, node)
            text = "\n".join(plain(f"{e.label}: {e.text}") for s in sections for e in s.entries)
        self.browser.copy_to_clipboard(text)
        self.browser.notify(f"copied {plain(text.splitlines()[0], 60)}", markup=False)

    def prompt(self) -> None:
        """Asks for the file to write."""
        if self.browser.session is not None:
            from deepx_graph.session.show.export import suffixes

            name = os.path.splitext(os.path.basename(self.browser.document.path))[0] or "program"
            self.browser.prompt(f"a file: {', '.join(suffixes())}, .txt", self.write, value=f"{name}-{self.browser.view}.svg")

    def write(self, text: str) -> None:
        """Writes the current view to a file. Raises UsageError for a name that does not say how."""
        session = self.browser.session
        if session is None or not text.strip():
            return
        from deepx_graph.session.show.export import ExportedPart, export

        shown, lines = ExportedPart(session.module), "\n".join(self.lines())
        view = self.browser.switcher.shown
        if isinstance(view, FocusMap) and view.map is not None and view.function is not None:
            address = session.address(view.function, view.map.centre)
            shown = ExportedPart(session.module, address, view.depth, view.function, tuple(view.map.boxes))
        path = Path(text.strip()).expanduser()
        self.browser.jobs.start("writing", lambda m: export(shown, path, text=lines + "\n"),
                                lambda notes: self._written(path, notes))

    def _written(self, path: Path, notes: tuple[str, ...]) -> None:
        self.browser.notify("\n".join([f"{path} is written", *(plain(n, 200) for n in notes[:3])]), markup=False)

    def lines(self) -> list[str]:
        """All of the current view, as lines of text."""
        view = self.browser.switcher.shown
        if isinstance(view, FocusMap):
            return str(view.map).replace(FILLER, "").split("\n") if view.map is not None else []
        tables = [view] if isinstance(view, VirtualList) else list(view.query(VirtualList))
        return ["".join(t for t, _ in table.pieces(k, 120)).rstrip() for table in tables for k in range(table.count())]
