"""Running: inputs as a few words, what each kernel took, memory over time, where the first NaN was born; the value of a node."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from deepx_graph.errors import sized
from deepx_graph.ir import Function, Node
from deepx_graph.ir.node import reference
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.runtime.engines import ENGINES
from deepx_graph.runtime.inputs import input_ports
from deepx_graph.session.inputs import WISHES
from deepx_graph.session.instrumented import RunResult, Seen, Statistics, slice_text, statistics
from deepx_graph.session.progress import Monitor
from deepx_graph.session.session import Session
from deepx_graph.tui.formatting import bar, column_plot, histogram, name_of, padded, plain, time_text
from deepx_graph.tui.views.base import BrowserView
from deepx_graph.tui.views.rows import TextLine, TextTable, heading, text_line
from deepx_graph.types import dtype_of, tensor

KERNELS = 200
"""Kernels that are listed, the most expensive first."""


class RunView(BrowserView):
    """Inputs and settings above, the last run below."""

    DEFAULT_CSS = """
    RunView { layout: vertical; }
    RunView #inputs { height: auto; max-height: 40%; }
    RunView #report { height: 1fr; border-top: solid $primary-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "run", "Run"),
        Binding("enter", "edit", "Change"),
        Binding("E", "engine", "Engine"),
        Binding("exclamation_mark", "first_nan", "First NaN", tooltip="Go to the first node that made a NaN or infinity"),
        Binding("R", "seed", "Seed", show=False, tooltip="Other random inputs"),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.wishes: dict[str, str] = {}
        self.engine = "auto"
        self.seed, self.runs = 0, 1

    def compose(self) -> ComposeResult:
        yield TextTable(id="inputs")
        yield TextTable(id="report")

    def show_version(self) -> None:
        self._list()
        self._report()

    # --- what is to be run

    def _list(self) -> None:
        ports = input_ports(self.session.module.entry)
        lines = [text_line((f" {padded(plain(p.name, 20), 20)} ", "name"), (f"{padded(plain(str(p.type), 22), 22)} ", "data"),
                      (plain(self.wishes.get(p.name, "random"), 60), "op"), data=p.name) for p in ports]  # fmt: skip
        lines.append(text_line((" engine, runs, seed   ", "faint"), f"{self.engine}, {self.runs}, {self.seed}", data=0))
        table = self.query_one("#inputs", TextTable)
        table.show(lines, keep=True)
        table.styles.height = min(len(lines), 8)

    def action_edit(self) -> None:
        line = self.query_one("#inputs", TextTable).line
        if line is None:
            return
        name = line.data
        if name == 0:
            self.browser.prompt("how many runs", self._set_runs, value=str(self.runs))
            return

        def wish(text: str) -> None:
            self.session.inputs({**self.wishes, name: text}, self.seed)
            self.wishes[name] = text
            self._list()

        self.browser.prompt("random, zeros, ones, iota, 3.5, data.npy; then a type where it is not known: random f32[8,128]", wish,
                            lambda text: [w for w in WISHES if text and w.startswith(text)], self.wishes.get(name, ""))

    def _set_runs(self, text: str) -> None:
        self.runs = min(max(1, int(text)), 10_000) if text.strip().isdecimal() else self.runs
        self._list()

    def action_engine(self) -> None:
        names = list(ENGINES)
        self.engine = names[(names.index(self.engine) + 1) % len(names)]
        self._list()

    def action_seed(self) -> None:
        self.seed += 1
        self._list()

    def action_run(self) -> None:
        session, wishes, seed, engine, runs = self.session, dict(self.wishes), self.seed, self.engine, self.runs

        def job(monitor: Monitor) -> RunResult:
            return session.run(session.inputs(wishes, seed), engine=engine, seed=seed, runs=runs, monitor=monitor)

        self.browser.jobs.start("running", job, self._ran)

    def _ran(self, result: RunResult) -> None:
        before = self.session.module
        self.session.accept(result)
        self.browser.lanes.overlay = "time"
        if self.session.module is not before:
            self.browser.document.show_version()
        self._report()
        self.query_one("#report", TextTable).focus()

    # --- what was seen

    def _report(self) -> None:
        result = self.session.result
        table = self.query_one("#report", TextTable)
        if result is None:
            table.show([text_line((" r runs the program that is looked at", "faint"))])
            return
        width = max(20, self.size.width - 14)
        blocks = (self._memory_lines(result, width), self._kernel_lines(result))
        table.show([*_summary(result), *self._nan_lines(result), *(line for block in blocks for line in (text_line(""), *block))])

    def on_text_table_chosen(self, message: TextTable.Chosen) -> None:
        if message.table.id == "inputs":
            self.action_edit()
        elif isinstance(message.line.data, Node):
            self.browser.selection.go_to(message.line.data)
            self.browser.action_view("list")

    def action_first_nan(self) -> None:
        result = self.session.result
        if result is None:
            self.notify("nothing has run yet: r runs the program")
        elif result.first_odd is None:
            self.notify("every value is finite")
        else:
            self.browser.selection.go_to(result.first_odd)
            self.browser.action_view("list")

    def _label(self, node: Node) -> str:
        """A kernel by operation and name, as in the list."""
        function = self.session.function_of(node)
        return f"{node.op.name} {name_of(node, self.session.facts(function))}" if function is not None else node.op.name

    def _nan_lines(self, result: RunResult) -> list[TextLine]:
        """The nodes that made NaN or infinity, the first first."""
        born = result.values.born
        if not born:
            return [text_line((" every value is finite", "faint"))]
        lines = [text_line((f" NaN or infinity made by {len(born)} node{'s' * (len(born) > 1)}; ! goes to the first:", "hot"))]
        for n in born[:8]:
            s = result.values.seen[n].statistics
            lines.append(text_line((f"   {self._label(n)}", "hot"), f"  {s.nans:,} NaN, {s.infs:,} infinite", data=n))
        return lines

    def _memory_lines(self, result: RunResult, width: int) -> list[TextLine]:
        memory = result.memory
        if not any(memory.alive):
            return []
        plot = column_plot(memory.alive, width, 4)
        lines = [heading(" memory over time")]
        most = sized(max(memory.alive))
        lines += [text_line((f"{most if k == 0 else '':>8} ", "faint"), (text, "op")) for k, text in enumerate(plot)]
        largest = ", ".join(f"{self._label(n)} ({sized(life.bytes)})" for n, life in memory.at_peak(3))
        return [*lines, text_line((f"{'':>8} most at step {memory.peak_at} of {len(memory.alive)}: {largest}", "faint"))]

    def _kernel_lines(self, result: RunResult) -> list[TextLine]:
        ran = [(n, m) for n, m in result.measured.items() if m.calls]
        lines = [heading(f" {'share':>11} {'time':>8} {'calls':>6}  kernel")]
        for n, m in sorted(ran, key=lambda item: -item[1].seconds)[:KERNELS]:
            lines.append(text_line(
                (f" {bar(m.share, 5)}{m.share:>6.1%} ", "hot" if m.share >= 0.1 else "faint"),
                f"{time_text(m.seconds):>8} {m.calls:>6,}  ", (self._label(n), "op"),
                (f"  {plain(str(n.type), 30)}", "data"), data=n,
            ))  # fmt: skip
        return lines


def _summary(result: RunResult) -> list[TextLine]:
    busy = sum(m.seconds for m in result.measured.values())
    runs, each = (f"{result.runs} runs, ", " per run (medians)") if result.runs > 1 else ("", "")
    lines = [text_line(" ", (f"{runs}{time_text(result.seconds)}", "head"), f"  kernels {time_text(busy)}{each}, "
                  f"planned peak {sized(result.memory.peak_bytes)}")]  # fmt: skip
    for name, array in result.outputs[:8]:
        lines.append(text_line((f" ⇒ {plain(reference(name), 30)}", "result"), f"  {tensor(dtype_of(array.dtype), array.shape)}"))
    if result.printed:
        lines += [text_line((f" │ {plain(text, 150)}", "faint")) for text in result.printed.splitlines()[:20]]
    return lines


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
