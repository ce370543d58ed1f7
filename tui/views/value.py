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
from deepx_graph.tui.plots import histogram
from deepx_graph.tui.texts import name_of, plain
from deepx_graph.tui.views.base import View
from deepx_graph.tui.views.rows import Line, Table, said, titled


class ValueView(View):
    """One value."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "slice", "Slice", tooltip="Which elements to show, such as 0, 2:8, ..., ::2"),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.index = ""

    def compose(self) -> ComposeResult:
        yield Table(id="value")

    def show_version(self) -> None:
        self._show()

    def opened(self) -> None:
        self._show()

    def show_node(self, function: Function, node: Node) -> None:
        self._show()

    def _show(self) -> None:
        table = self.query_one("#value", Table)
        if self.browser.selected is None:
            return
        function, node = self.browser.selected
        name = name_of(node, self.session.facts(function))
        head = said((f" {name}", "head"), f"  {node.op.name}: {plain(str(node.type), 60)}")
        seen = self._seen(node)
        table.show([head, *(self._lines(seen) if seen is not None else [said((f" {self._absence(node)}", "faint"))])])

    def _seen(self, node: Node) -> Seen | None:
        if node.op is CONSTANT:
            return Seen(0, statistics(value_of(node).array), value_of(node).array)
        result = self.session.result
        return result.values.seen.get(node) if result is not None else None

    def _absence(self, node: Node) -> str:
        if self.session.result is None:
            return "nothing has run yet: r in the run view (5) runs the program"
        return "the last run computed no value for this node: it is inside a kernel, of another version, or on a branch not taken"

    def _lines(self, seen: Seen) -> list[Line]:
        lines = _figures(seen.statistics)
        width = max(10, min(60, self.size.width - 30))
        lines += [said(""), titled(" distribution"), *(said((t, "op")) for t in histogram(seen.statistics, width))]
        lines += [said(""), titled(f" elements [{plain(self.index) or '...'}]")]
        if seen.array is None:
            return [*lines, said((" not kept: the values of the run take more memory than is set aside for them", "faint"))]
        text = slice_text(np.asarray(seen.array), self.index, max(20, self.size.width - 3))
        return lines + [said(f" {t}") for t in text.split("\n")]

    def action_slice(self) -> None:
        def take(text: str) -> None:
            before, self.index = self.index, text
            try:
                self._show()
            except Exception:
                self.index = before
                raise

        self.browser.prompt("an index: 0, 2:8, ..., ::2", take, value=self.index)

    def on_table_chosen(self) -> None:
        self.action_slice()


def _figures(s: Statistics) -> list[Line]:
    odd = f"{s.nans:,} NaN, {s.infs:,} infinite" if s.odd else "all finite"
    return [
        said(f" {s.elements:,} elements, {s.zeros:,} zeros, ", (odd, "hot" if s.odd else "faint")),
        said(f" from {s.low:.6g} to {s.high:.6g}, mean {s.mean:.6g} ± {s.deviation:.6g}"),
    ]
