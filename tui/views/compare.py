"""The difference between two versions of the program, or between it and another file."""

from __future__ import annotations

import os
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from deepx_graph.ir import Module, Node
from deepx_graph.session.programs import load
from deepx_graph.session.report.diff import Difference, diff
from deepx_graph.tui.formatting import padded, plain
from deepx_graph.tui.views.base import BrowserView
from deepx_graph.tui.views.passes import changes_of
from deepx_graph.tui.views.rows import TextTable, heading, text_line


class CompareView(BrowserView):
    """What is in the program that is looked at and not in another, and the other way round."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("less_than_sign,comma", "other(-1)", "Earlier version"),
        Binding("greater_than_sign,full_stop", "other(1)", "Later version"),
        Binding("o", "open", "Another file"),
        Binding("n", "next(1)", "Next change", show=False),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.against = 0
        self.file: tuple[str, Module] | None = None

    def compose(self) -> ComposeResult:
        yield TextTable(id="changes")

    def show_version(self) -> None:
        if self.display:
            self.opened()

    def opened(self) -> None:
        session = self.session
        self.against = min(self.against, len(session.versions) - 1)
        before = self.file[1] if self.file is not None else session.versions[self.against].module
        after = session.module
        self.browser.jobs.start("comparing", lambda m: diff(before, after), self._show)

    def _show(self, found: Difference) -> None:
        session = self.session
        left = self.file[0] if self.file is not None else session.versions[self.against].title
        right = f"{os.path.basename(self.browser.document.path)} {session.version.title}"
        head = [text_line((f" {plain(left, 40)}", "removed"), "  →  ", (plain(right, 60), "added"))]
        if not found:
            head.append(text_line((" they are the same", "faint")))
        lines = changes_of(found)
        counts = [text_line(f"  {padded(plain(name, 30), 30)} {a:>7,} → {b:<7,}") for name, (a, b) in found.operations.items()]
        operations = [text_line(""), heading(" operations"), *counts] if counts else []
        self.query_one("#changes", TextTable).show([*head, *lines, *operations])

    def action_other(self, by: int) -> None:
        self.file = None
        self.against = max(0, min(len(self.session.versions) - 1, self.against + by))
        self.opened()

    def action_open(self) -> None:
        self.browser.prompt("the file to compare with", lambda text: self.read_other(text.strip()))

    def read_other(self, path: str) -> None:
        """Reads the other file, and compares."""
        self.browser.jobs.start("reading", lambda m: (path, load(path).module), self._opened)

    def _opened(self, found: tuple[str, Module]) -> None:
        self.file = found
        self.opened()

    def action_next(self, by: int) -> None:
        """To the next line that is a change."""
        table = self.query_one("#changes", TextTable)
        rows = [k for k, line in enumerate(table.table) if isinstance(line.data, Node)]
        after = [k for k in rows if k > table.cursor]
        if rows:
            table.cursor = (after or rows)[0]

    def on_text_table_chosen(self, message: TextTable.Chosen) -> None:
        if isinstance(message.line.data, Node):
            self.browser.selection.go_to(message.line.data)
            self.browser.action_view("list")
