"""The pipeline editor: passes in a row, to add, change, move and run; what they did to the counts; the same as a shell line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from deepx_graph.errors import human, sized
from deepx_graph.passes.pipeline import PIPELINES
from deepx_graph.session.programs import complete_passes, explain_pass, pipeline_items
from deepx_graph.session.report.info import module_info
from deepx_graph.session.session import Version
from deepx_graph.session.timeline import op_changes
from deepx_graph.tui.formatting import padded, plain
from deepx_graph.tui.views.base import BrowserView
from deepx_graph.tui.views.rows import TextLine, TextTable, heading, text_line


class PipelineView(BrowserView):
    """The passes on one side, what the last run of them did on the other."""

    DEFAULT_CSS = """
    PipelineView { layout: vertical; }
    PipelineView #pipeline-passes { height: 50%; }
    PipelineView #outcome { height: 1fr; border-top: solid $primary-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "run", "Run"),
        Binding("a", "add", "Add"),
        Binding("enter", "edit", "Edit"),
        Binding("d,delete", "remove", "Remove"),
        Binding("J", "shift(1)", "Later", show=False, tooltip="Move the pass down"),
        Binding("K", "shift(-1)", "Earlier", show=False, tooltip="Move the pass up"),
        Binding("p", "named", "Named pipeline", show=False),
        Binding("c", "copy_line", "Shell line", tooltip="Copy the command that does the same from a shell"),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.passes = pipeline_items("default")
        self.outcome: Version | None = None

    def compose(self) -> ComposeResult:
        yield TextTable(id="pipeline-passes")
        yield TextTable(id="outcome")

    @property
    def table(self) -> TextTable:
        return self.query_one("#pipeline-passes", TextTable)

    @property
    def text(self) -> str:
        """The pipeline as text."""
        return ",".join(self.passes)

    def on_mount(self) -> None:
        self._list()

    def _list(self, at: int | None = None) -> None:
        lines = [text_line((f" {k + 1:>2} ", "faint"), (plain(p, 60), "op"), data=p) for k, p in enumerate(self.passes)]
        self.table.show(lines or [text_line((" no passes: a adds one, p takes a named pipeline", "faint"))], keep=True)
        if at is not None:
            self.table.cursor = at
        self._explain()

    def _explain(self) -> None:
        line = self.table.line
        lines = [text_line(plain(t)) for t in explain_pass(line.data)] if line is not None and line.data else []
        self.query_one("#outcome", TextTable).show([*lines, text_line(""), *self._outcome_lines()])

    def on_text_table_moved(self, message: TextTable.Moved) -> None:
        if message.table is self.table:
            self._explain()

    def on_text_table_chosen(self, message: TextTable.Chosen) -> None:
        if message.table is self.table:
            self.action_edit()

    # --- editing

    def action_add(self) -> None:
        at = self.table.cursor + 1 if self.passes else 0

        def insert(text: str) -> None:
            self.passes[at:at] = pipeline_items(text)
            self._list(at)

        self.browser.prompt("a pass, such as fuse{max-ops=64}", insert, complete_passes)

    def action_edit(self) -> None:
        at = self.table.cursor
        if at >= len(self.passes):
            return

        def replace(text: str) -> None:
            self.passes[at : at + 1] = pipeline_items(text)
            self._list(at)

        self.browser.prompt("the pass with its options", replace, complete_passes, self.passes[at])

    def action_remove(self) -> None:
        if self.table.cursor < len(self.passes):
            del self.passes[self.table.cursor]
            self._list(self.table.cursor)

    def action_shift(self, by: int) -> None:
        at, to = self.table.cursor, self.table.cursor + by
        if 0 <= at < len(self.passes) and 0 <= to < len(self.passes):
            self.passes[at], self.passes[to] = self.passes[to], self.passes[at]
            self._list(to)

    def action_named(self) -> None:
        def take(text: str) -> None:
            self.passes = pipeline_items(text)
            self._list(0)

        self.browser.prompt(", ".join(PIPELINES), take, complete_passes)

    def action_copy_line(self) -> None:
        line = self.session.shell_line(self.text)
        self.app.copy_to_clipboard(line)
        self.notify(f"copied: {plain(line, 200)}", markup=False)

    # --- running

    def action_run(self) -> None:
        session, text = self.session, self.text
        start = self.outcome.parent if self.outcome is not None and session.version is self.outcome else session.version
        self.browser.jobs.start("optimising", lambda m: session.optimise(text or "none", start=start, monitor=m), self._ran)

    def _ran(self, version: Version) -> None:
        if self.session.version is self.outcome:  # the same again with other passes: in place of what it made before
            self.session.undo()
        self.outcome = version
        self.browser.document.push(version)

    def show_version(self) -> None:
        self._explain()

    def _outcome_lines(self) -> list[TextLine]:
        """Operations and costs before and after."""
        version = self.outcome
        if version is None or version.parent is None:
            return [text_line(("r runs the passes on what is looked at", "faint"))]
        before, after = version.parent, version
        lines = [heading(f"{'':<22}{'before':>10}{'after':>10}")]
        lines.append(_row("operations", sum(before.counts.values()), sum(after.counts.values())))
        lines += _costs(before, after)
        lines += [_row(name, a, b) for name, a, b in op_changes(Counter(before.counts), Counter(after.counts))]
        return lines


def _row(name: str, before: float | None, after: float | None, shown: Callable[[float | None], str] = human) -> TextLine:
    better = before is not None and after is not None and after < before
    worse = before is not None and after is not None and after > before
    style = "added" if better else "removed" if worse else "faint"
    return text_line(f"{padded(plain(name, 21), 22)}{shown(before):>10}", (f"{shown(after):>10}", style))


def _costs(before: Version, after: Version) -> list[TextLine]:
    """What a run costs, where that is known; kernels and memory are those of the entry."""
    a, b = (module_info(v.module) for v in (before, after))
    entry_a, entry_b = a.functions[0], b.functions[0]
    return [
        _row("kernels", entry_a.kernels, entry_b.kernels), _row("flops", a.flops, b.flops),
        _row("bytes moved", a.bytes_moved, b.bytes_moved, sized),
        _row("peak memory", entry_a.peak_bytes, entry_b.peak_bytes, sized),
    ]  # fmt: skip
