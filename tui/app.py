"""The browser: views of one session, one node selected in all of them, long work in the background.

All facts come from the session; this file only brings keys, views and panes together.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.events import Resize
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Footer, Static

from deepx_graph.errors import DeepxGraphError, Diagnostic, UsageError, suggest
from deepx_graph.ir import Node
from deepx_graph.session.export import Shown, export, suffixes
from deepx_graph.session.monitor import Monitor
from deepx_graph.session.session import Session, Version
from deepx_graph.session.timeline import Sighting
from deepx_graph.tui.asking import Asking
from deepx_graph.tui.commands import Commands
from deepx_graph.tui.compare import CompareView
from deepx_graph.tui.help import HelpScreen, MessageScreen
from deepx_graph.tui.inspector import Inspector
from deepx_graph.tui.lanes import LaneList
from deepx_graph.tui.map import FocusMap
from deepx_graph.tui.outline import Outline
from deepx_graph.tui.passes import PassesView, sighting_text
from deepx_graph.tui.pipeline import PipelineView
from deepx_graph.tui.prompt import Prompt
from deepx_graph.tui.rows import Rows, Table
from deepx_graph.tui.run import RunView
from deepx_graph.tui.source import SourcePane
from deepx_graph.tui.style import CSS, THEMES
from deepx_graph.tui.texts import plain
from deepx_graph.tui.value import ValueView
from deepx_graph.tui.view import View
from deepx_graph.viz.lanes import Listing, listing

VIEWS: dict[str, tuple[str, type[Widget]]] = {
    "list": ("List", LaneList), "map": ("Map", FocusMap), "passes": ("Passes", PassesView), "pipeline": ("Pipeline", PipelineView),
    "run": ("Run", RunView), "value-view": ("Value", ValueView), "compare": ("Diff", CompareView),
}  # fmt: skip
"""The views by name: their titles, and what they are."""

PARTS: tuple[tuple[str, type], ...] = (
    ("Lists and tables", Rows), ("Tables", Table), *VIEWS.values(), ("Inspector", Inspector), ("Source", SourcePane),
    ("Outline", Outline), ("Input line", Prompt), ("Help", HelpScreen), ("Messages", MessageScreen),
)  # fmt: skip
"""Whose keys the help shows, beside those of the browser."""

WIDE = 110


class Browser(Asking):
    """The terminal browser of one file."""

    CSS = CSS
    TITLE = "deepx-graph"
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-narrow"), (WIDE, "-wide"),
    ]
    COMMANDS = {Commands}  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(k + 1), f"view('{v}')", f"View: {VIEWS[v][0]}", show=False) for k, v in enumerate(VIEWS)),
        Binding("slash", "ask_query", "Query"),
        Binding("n", "hit(1)", "Next found", show=False),
        Binding("N", "hit(-1)", "Found before", show=False),
        Binding("number_sign", "ask_node", "Go to a node", show=False),
        Binding("w", "why", "Why (not) in one kernel: mark one node, then another", show=False),
        Binding("i", "pane('inspector')", "Inspector", show=False),
        Binding("s", "pane('source')", "Source", show=False),
        Binding("t", "pane('outline')", "Outline", show=False),
        Binding("tab", "app.focus_next", "Next pane", show=False),
        Binding("shift+tab", "app.focus_previous", "Pane before", show=False),
        Binding("b", "history(-1)", "Back to the node before", show=False),
        Binding("f", "history(1)", "Forward again", show=False),
        Binding("u", "undo", "Undo", show=False),
        Binding("U", "redo", "Redo", show=False),
        Binding("y", "copy('name')", "Copy the name", show=False),
        Binding("Y", "copy('text')", "Copy all that is known of the node", show=False),
        Binding("x", "story", "When did this node appear or vanish", show=False),
        Binding("e", "export", "Export", show=False, tooltip="Write what is shown: a picture, or a program cut out"),
        Binding("T", "theme", "Next theme", show=False),
        Binding("escape", "cancel", "Cancel the work, else back to the list", show=False),
        Binding("ctrl+p", "command_palette", "Commands", show=False),
        Binding("question_mark", "help", "Keys"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, open_session: Callable[[], Session], path: str = "", *, theme: str | None = None) -> None:
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.open_session, self.path = open_session, path
        if theme is not None and theme not in self.available_themes:
            raise UsageError(Diagnostic(f"no theme '{theme}'", expected=", ".join(sorted(self.available_themes)),
                                        hint=suggest(theme, self.available_themes)))
        self.first_theme = theme or ("ansi-dark" if self.no_color else THEMES[0])

    def compose(self) -> ComposeResult:
        yield Static(id="bar", markup=False)
        with Container(id="body"):
            yield Outline(id="outline")
            with Vertical(id="centre"):
                with ContentSwitcher(initial="list", id="views"):
                    for name, (_, view) in VIEWS.items():
                        yield view(id=name)
                yield SourcePane(id="source")
            yield Inspector(id="inspector")
        yield Prompt(id="prompt")
        yield Static(id="status", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.theme = self.first_theme
        self.lanes.focus()
        self._show_bar()
        self.work_on("reading", self._open, self._opened)

    def on_resize(self, event: Resize) -> None:
        if not self._sized:
            self._sized = True
            self.query_one("#inspector").set_class(event.size.width >= WIDE, "-on")

    _sized = False

    # --- the program

    def _open(self, monitor: Monitor) -> tuple[Session, Listing]:
        gc.disable()  # a program is many objects and no cycle: looking for one takes as long as reading
        try:
            session = self.open_session()
            monitor.report("ordering")
            return session, listing(session.module)
        finally:
            gc.freeze()
            gc.enable()

    def _opened(self, found: tuple[Session, Listing]) -> None:
        self.session = found[0]
        for warning in found[0].warnings[:3]:
            self.notify(plain(warning.message, 200), severity="warning", markup=False)
        self.query_one(SourcePane).show_source(found[0].original.source)
        self._show(found[1])
        self.work_on("looking", self._look, lambda _: self.selection_changed())

    def _look(self, monitor: Monitor) -> None:
        """What need not be done before the list is on the screen."""
        assert self.session is not None
        self.session.check()
        self.session.warm(monitor)

    def push(self, version: Version) -> None:
        """Looks at a new version."""
        if self.session is not None:
            self.session.push(version)
            self.show_version()

    def show_version(self) -> None:
        """Shows the version that the session looks at now."""
        session, numbers = self.session, self.numbers
        if session is None:
            return

        def order(monitor: Monitor) -> Listing:
            session.warm(monitor)
            return listing(session.module, numbers=numbers)

        self.work_on("ordering", order, self._show)

    def _show(self, found: Listing) -> None:
        assert self.session is not None
        self.listing = found
        self.found, self.marked = [], None
        self.visited, self.visited_at = [], -1
        self.lanes.hits = set()
        kept = self.selected[1] if self.selected is not None else None
        self.lanes.show_listing(self.session, found)
        if kept is not None and kept not in found.row_of:
            self.reselect(kept)
        self.query_one(Outline).show_listing(found)
        for view in self.query(View):
            view.show_version()
        self._show_bar()
        self.selection_changed()

    def optimise(self, pipeline: str) -> None:
        """Runs a pipeline on what is looked at; the result is a new version."""
        session = self.session
        if session is not None:
            self.work_on(f"optimising ({plain(pipeline, 30)})", lambda m: session.optimise(pipeline, monitor=m), self.push)

    def differentiate(self) -> None:
        """The gradient program of what is looked at, as a new version."""
        session = self.session
        if session is not None:
            self.work_on("differentiating", lambda m: session.gradient(), self.push)

    def action_undo(self) -> None:
        if self.session is not None and self.session.undo():
            self.show_version()

    def action_redo(self) -> None:
        if self.session is not None and self.session.redo():
            self.show_version()

    def on_lane_list_numbers_wanted(self) -> None:
        self.numbers = not self.numbers
        self.show_version()

    # --- views and panes

    @property
    def view(self) -> str:
        """The name of the view in sight."""
        return self.query_one("#views", ContentSwitcher).current or "list"

    def action_view(self, name: str) -> None:
        self.query_one("#views", ContentSwitcher).current = name
        chosen = self.query_one(f"#{name}")
        if isinstance(chosen, View):
            chosen.opened()
        target = chosen if chosen.focusable else next(iter(chosen.query("*:can-focus")), None)
        (target or chosen).focus()
        self._show_bar()
        self.selection_changed()

    def action_pane(self, name: str) -> None:
        pane = self.query_one(f"#{name}")
        pane.toggle_class("-on")
        if not pane.has_class("-on") and pane.has_focus:
            self.action_view(self.view)
        self.selection_changed()

    def _show_bar(self) -> None:
        text = Text(no_wrap=True, overflow="ellipsis")
        for k, (name, (title, _)) in enumerate(VIEWS.items()):
            text.append(f" {k + 1} {title} ", "reverse bold" if name == self.view else "")
        if self.session is not None:
            session = self.session
            text.append(f"  {plain(os.path.basename(self.path), 30)}", "bold")
            step = f" · {session.at + 1}/{len(session.versions)}" if len(session.versions) > 1 else ""
            text.append(f"{step} {plain(session.version.title, 24)} · {sum(session.version.counts.values()):,} nodes")
        self.query_one("#bar", Static).update(text, layout=False)

    def focus_view(self) -> None:
        self.action_view(self.view)

    # --- when, and out

    def action_story(self) -> None:
        """Goes to the step at which the selected node, or one like it, appeared or vanished; again to the next such step."""
        session = self.session
        if session is None or self.selected is None:
            return
        node, at = self.selected[1], session.at
        timelines = [v for v in (*session.versions[at:], *session.versions[at - 1 :: -1]) if v.timeline is not None]
        if not timelines:
            self.notify("nothing has been optimised yet: the pipeline view runs passes")
            return
        version = timelines[0]
        self.work_on("looking", lambda m: version.timeline.sightings(node) if version.timeline else [],
                     lambda found: self._tell_story(node, version, found))

    def _tell_story(self, node: Node, version: Version, found: list[Sighting]) -> None:
        self.notify(f"{plain(node.name or node.op.name, 40)}: {sighting_text(found)}", markup=False)
        if not found:
            return
        told, k = self._story
        k = (k + 1) % len(found) if told is node else 0
        self._story = node, k
        self.action_view("passes")
        passes = self.query_one(PassesView)
        passes.show_steps(version)
        passes.show_event(found[k].event)

    _story: tuple[Node | None, int] = (None, 0)

    def action_export(self) -> None:
        if self.session is not None:
            name = os.path.splitext(os.path.basename(self.path))[0] or "program"
            self.prompt(f"a file: {', '.join(suffixes())}, .txt", self.export_to, value=f"{name}-{self.view}.svg")

    def export_to(self, text: str) -> None:
        """Writes what is shown to a file. Raises UsageError for a name that does not say how."""
        session = self.session
        if session is None or not text.strip():
            return
        shown, lines = Shown(session.module), "\n".join(self.lines_shown())
        boxes = self.query_one(FocusMap)
        if self.view == "map" and boxes.map is not None and boxes.function is not None:
            address = session.address(boxes.function, boxes.map.centre)
            shown = Shown(session.module, address, boxes.depth, boxes.function, tuple(boxes.map.boxes))
        path = Path(text.strip()).expanduser()
        self.work_on("writing", lambda m: export(shown, path, text=lines + "\n"), lambda notes: self._exported(path, notes))

    def _exported(self, path: Path, notes: tuple[str, ...]) -> None:
        self.notify("\n".join([f"{path} is written", *(plain(n, 200) for n in notes)]), markup=False)

    def lines_shown(self) -> list[str]:
        """What the view in sight shows, all of it, as lines of text."""
        view = self.query_one(f"#{self.view}")
        if isinstance(view, FocusMap):
            return str(view.map).split("\n") if view.map is not None else []
        tables = [view] if isinstance(view, Rows) else list(view.query(Rows))
        return ["".join(t for t, _ in table.pieces(k, 120)).rstrip() for table in tables for k in range(table.count())]

    # --- small things

    def action_theme(self) -> None:
        at = THEMES.index(self.theme) if self.theme in THEMES else -1
        self.theme = THEMES[(at + 1) % len(THEMES)]

    def action_help(self) -> None:
        self.push_screen(HelpScreen((("Everywhere", Browser), *PARTS)))

    def action_cancel(self) -> None:
        if not self.cancel_work() and self.view != "list":
            self.action_view("list")

    def show_error(self, error: DeepxGraphError) -> None:
        if self.session is None:
            self.exit(error.exit_code, message=None)
            self.failed = error
        else:
            self.push_screen(MessageScreen("That did not work", str(error)))

    def get_system_commands(self, screen: Any) -> Any:
        """The palette has our own commands only."""
        return ()
