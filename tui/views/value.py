"""The value of the selected node in the last run: figures, distribution, and a slice of its elements."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.session.run.instrumented import Seen
from deepx_graph.session.run.statistics import Statistics, slice_text, statistics
from deepx_graph.session.session import Session
from deepx_graph.tui.formatting import name_of, plain
from deepx_graph.tui.plots import histogram
from deepx_graph.tui.views.base import BrowserView
from deepx_graph.tui.views.rows import TextLine, TextTable, heading, text_line


class ValueView(BrowserView):
    """One value."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "slice", "Slice", tooltip="Which elements to show, such as 0, 2:8, ..., ::2"),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.index = ""

    def compose(self) -> ComposeResult:
        yield TextTable(id="value")

    def show_version(self) -> None:
        self._show()

    def opened(self) -> None:
        self._show()

    def show_node(self, session: Session, function: Function, node: Node) -> None:
        self._show()

    def _show(self) -> None:
        table = self.query_one("#value", TextTable)
        if self.browser.selection.current is None:
            return
        function, node = self.browser.selection.current
        name = name_of(node, self.session.facts(function))
        head = text_line(" ", (name, "head"), f"  {node.op.name}: {plain(str(node.type), 60)}")
        seen = self._seen(node)
        table.show([head, *(self._lines(seen) if seen is not None else [text_line((f" {t}", "faint")) for t in self._absence()])])

    def _seen(self, node: Node) -> Seen | None:
        if node.op is CONSTANT:
            return Seen(0, statistics(value_of(node).array), value_of(node).array)
        result = self.session.result
        return result.values.seen.get(node) if result is not None else None

    def _absence(self) -> list[str]:
        """Why there is no value."""
        if self.session.result is None:
            return ["nothing has run yet: r in the run view (5) runs the program"]
        return ["the last run has no value of it: it is inside a kernel, a loop variable,",
                "of another version, or on a branch not taken"]

    def _lines(self, seen: Seen) -> list[TextLine]:
        lines = _figures(seen.statistics)
        width = max(10, min(60, self.size.width - 30))
        lines += [text_line(""), heading(" distribution"), *(text_line((t, "op")) for t in histogram(seen.statistics, width))]
        lines += [text_line(""), heading(f" elements [{plain(self.index) or '...'}]")]
        if seen.array is None:
            return [*lines, text_line((" not kept: the values of the run take more memory than is set aside for them", "faint"))]
        text = slice_text(np.asarray(seen.array), self.index, max(20, self.size.width - 3))
        return lines + [text_line(f" {t}") for t in text.split("\n")]

    def action_slice(self) -> None:
        def take(text: str) -> None:
            before, self.index = self.index, text
            try:
                self._show()
            except Exception:
                self.index = before
                raise

        self.browser.prompt("an index: 0, 2:8, ..., ::2", take, value=self.index)

    def on_text_table_chosen(self) -> None:
        self.action_slice()


def _figures(s: Statistics) -> list[TextLine]:
    odd = f"{s.nans:,} NaN, {s.infs:,} infinite" if s.odd else "all finite"
    return [
        text_line(f" {s.elements:,} elements, {s.zeros:,} zeros, ", (odd, "hot" if s.odd else "faint")),
        text_line(f" from {s.low:.6g} to {s.high:.6g}, mean {s.mean:.6g} ± {s.deviation:.6g}"),
    ]
