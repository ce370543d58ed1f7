"""The time line of an optimisation: every pass, every rewrite, and what each of them changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from deepx_graph.ir import Module, Node, describe
from deepx_graph.passes.observer import Stage
from deepx_graph.session.report.diff import SIGNS, Difference
from deepx_graph.session.session import Version
from deepx_graph.session.timeline import Event, Sighting, Timeline
from deepx_graph.tui.formatting import plain, time_text
from deepx_graph.tui.views.base import BrowserView
from deepx_graph.tui.views.rows import TextLine, TextTable, heading, text_line

SHOWN = 500
"""Changes of a step that are listed."""


class PassesView(BrowserView):
    """Steps on one side, the step under the cursor on the other."""

    DEFAULT_CSS = """
    PassesView { layout: vertical; }
    PassesView #steps { height: 50%; }
    PassesView #step { height: 1fr; border-top: solid $primary-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("full_stop", "step(1)", "Next"),
        Binding("comma", "step(-1)", "Previous"),
        Binding("space", "fold", "Fold"),
        Binding("slash", "search", "Find a pass", tooltip="Show only the passes and rewrites with a text in them"),
        Binding("v", "look", "Program then", tooltip="Look at the program as it was after the step"),
        Binding("a", "unchanged", "All passes", tooltip="Show passes that changed nothing, too", show=False),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.version: Version | None = None
        self.unchanged = False
        self.wanted = ""
        """What the steps in sight have in them."""
        self.folded: set[int] = set()
        self.event: Event | None = None

    def compose(self) -> ComposeResult:
        yield TextTable(id="steps")
        yield TextTable(id="step")

    @property
    def steps(self) -> TextTable:
        return self.query_one("#steps", TextTable)

    @property
    def timeline(self) -> Timeline | None:
        return self.version.timeline if self.version is not None else None

    # --- which steps there are

    def show_version(self) -> None:
        if self.version is not None and self.version.parent is self.session.version:
            return  # the program before it is looked at: its time line stays in sight
        at = self.session.at
        made = [v for v in self.session.versions[at::-1] if v.timeline is not None]
        later = [v for v in self.session.versions[at + 1 :] if v.timeline is not None]
        self.show_steps(next(iter(made or later), None))

    def show_steps(self, version: Version | None) -> None:
        """Shows the time line of a version."""
        if version is not self.version:
            self.version, self.folded, self.event, self.wanted = version, set(), None, ""
            if self.timeline is not None and len(self.timeline.events) > 200:
                self.folded = set(range(len(self.timeline.stages)))
        self._list()

    def _list(self, keep: bool = False) -> None:
        if self.timeline is None or self.version is None:
            self.steps.show([text_line(("Nothing has been optimised yet: the pipeline view (4) runs passes.", "faint"))])
            self.query_one("#step", TextTable).show([])
            return
        lines: list[TextLine] = []
        for stage, events in self.timeline.passes(unchanged=self.unchanged or bool(self.wanted)):
            found = [e for e in events[1:] if self.wanted in step_text(e)] if self.wanted else events[1:]
            if self.wanted and self.wanted not in step_text(events[0]) and not found:
                continue
            folded = events[0].stage in self.folded and not self.wanted
            lines.append(_pass_line(stage, events, folded))
            if not folded:
                lines += [_rewrite_line(e) for e in found]
        none = f"No step has '{plain(self.wanted)}' in it." if self.wanted else "No pass changed anything."
        self.steps.show(lines or [text_line((none, "faint"))], keep=keep)
        self.steps.moved()

    def opened(self) -> None:
        if self.version is None:
            self.show_version()

    def action_unchanged(self) -> None:
        self.unchanged = not self.unchanged
        self._list(keep=True)

    def action_search(self) -> None:
        """Asks for a text, and shows only the steps that have it; all again for none."""
        def search(text: str) -> None:
            self.wanted = text.strip().lower()
            self._list()

        titles = sorted({e.title for e in self.timeline.events}) if self.timeline is not None else []
        self.browser.prompt("a pass, a rule or the name of a node; nothing for all", search, lambda value: titles, self.wanted)

    def action_fold(self) -> None:
        if self.event is not None:
            self.folded ^= {self.event.stage}
            stage = self.event.stage
            self._list(keep=True)
            self.go_to(lambda e: e.stage == stage)

    def action_step(self, by: int) -> None:
        self.steps.cursor += by

    def go_to(self, wanted: Callable[[Event], bool]) -> None:
        """Puts the cursor on the first step that is wanted."""
        for k, line in enumerate(self.steps.table):
            if line.data is not None and wanted(line.data):
                self.steps.cursor = k
                self.steps.moved()
                return

    def show_event(self, event: Event) -> None:
        """Unfolds the pass of an event and goes to it."""
        self.wanted = ""
        self.folded.discard(event.stage)
        self._list()
        self.go_to(lambda e: e is event)

    # --- one step

    def on_text_table_moved(self, message: TextTable.Moved) -> None:
        if message.table is self.steps and isinstance(message.line.data, Event):
            self.event = event = message.line.data
            timeline = self.timeline
            if timeline is not None:
                self.browser.jobs.start("stepping", lambda m: timeline.step(event), self._show_step)

    def _show_step(self, found: tuple[Module, Module, Difference]) -> None:
        event, timeline = self.event, self.timeline
        if event is None or timeline is None:
            return
        head = _about_pass(timeline.stages[event.stage], event) if event.rewrite is None else _about_rewrite(event)
        self.query_one("#step", TextTable).show([*head, *_changes(found[2])])

    def on_text_table_chosen(self, message: TextTable.Chosen) -> None:
        if message.table is self.steps:
            self.action_fold()
        elif isinstance(message.line.data, Node):
            self.browser.selection.go_to(message.line.data)

    def action_look(self) -> None:
        """The program as it was after the step, as a version of its own."""
        if self.event is None or self.timeline is None or self.version is None:
            return
        module, title = self.timeline.module_at(self.event.after), f"{self.version.title} to {self.event.after}"
        self.browser.document.push(Version(module, title, self.version.parent, None))
        self.browser.action_view("list")


def step_text(event: Event) -> str:
    """What a search in the steps looks at: the pass, or the rule and the node that it was applied to."""
    before = event.rewrite.before if event.rewrite is not None else None
    return f"{event.title} {before.reference or before.op.name if before is not None else ''}".lower()


def _pass_line(stage: Stage, events: list[Event], folded: bool) -> TextLine:
    count = len(events) - 1
    delta = sum(stage.delta.values())
    mark = "▸" if folded and count else "▾" if count else " "
    return TextLine([
        (f"{mark} {events[0].stage + 1:>2} ", "faint"), (plain(events[0].title, 30), "kernel" if stage.changed else "faint"),
        (f"  {count:,} rewrite{'s' * (count > 1)}" if count else "", ""),
        (f"  {delta:+,} nodes" if delta else "", "result" if delta < 0 else "changed"),
        (f"  {time_text(stage.seconds)}", "faint"),
    ], events[0])  # fmt: skip


def _rewrite_line(event: Event) -> TextLine:
    rewrite = event.rewrite
    assert rewrite is not None
    name = plain(rewrite.before.reference or rewrite.before.op.name, 24)
    return TextLine([(f"     {rewrite.number:>4} ", "faint"), (plain(event.title, 30), "op"), (f" {name}", "name")], event)


def _about_pass(stage: Stage, event: Event) -> list[TextLine]:
    lines = [heading(f"pass {event.stage + 1}: {plain(event.title, 60)}"), text_line(stage.pass_.summary())]
    for name, change in sorted(stage.delta.items(), key=lambda item: (item[1], item[0])):
        lines.append(text_line((f"  {change:+5,} ", "removed" if change < 0 else "added"), name))
    rules = Counter(r.rule for r in stage.rewrites)
    lines += [text_line((f"  {n:>5,}x ", "faint"), rule) for rule, n in rules.most_common()]
    return lines


def _about_rewrite(event: Event) -> list[TextLine]:
    rewrite = event.rewrite
    assert rewrite is not None
    lines = [heading(f"rewrite {rewrite.number}: {plain(rewrite.rule)}, in {rewrite.pass_name}")]
    if event.reason:
        lines.append(text_line(("because ", "faint"), plain(event.reason, 200)))
    lines.append(text_line(("before  ", "removed"), describe(rewrite.before), data=rewrite.before))
    lines.append(text_line(("after   ", "added"), describe(rewrite.after), data=rewrite.after))
    if rewrite.span is not None:
        lines.append(text_line(("from    ", "faint"), str(rewrite.span)))
    return lines


def changes_of(found: Difference) -> list[TextLine]:
    """A difference as lines, each leading to the node after it, else to that before."""
    lines: list[TextLine] = []
    last = None
    for change in found.changes[:SHOWN]:
        if change.function != last:
            last = change.function
            lines.append(text_line((f"function {plain(last, 60)}", "faint")))
        sign = (f"  {SIGNS[change.kind]} ", change.kind)
        lines.append(text_line(sign, (change.text, change.kind), data=change.after or change.before))
    if len(found.changes) > SHOWN:
        lines.append(text_line((f"  and {len(found.changes) - SHOWN:,} more changes", "faint")))
    if found.changes:
        lines.append(text_line((f"{found.affected:,} more nodes differ only through these; {found.same:,} are the same", "faint")))
    return lines


def _changes(found: Difference) -> list[TextLine]:
    return [text_line(""), heading("changes"), *(changes_of(found) or [text_line(("none in what results depend on", "faint"))])]


def sighting_text(sightings: list[Sighting]) -> str:
    """When a node came and went, in words."""
    parts = [f"{s.kind} in {s.event.title}" for s in sightings]
    return "; ".join(parts) or "it is there from the first pass to the last"
