"""The browser: views of one session, one node selected in all of them, long work in the background.

All facts come from the session; this file only brings keys, views and panes together.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.containers import Container, Vertical
from textual.events import Resize
from textual.widgets import ContentSwitcher, Footer, Static

from deepx_graph.errors import DeepxGraphError, Diagnostic, UsageError, suggest
from deepx_graph.session.progress import Monitor
from deepx_graph.session.session import Session, Version
from deepx_graph.tui.bar import TabBar
from deepx_graph.tui.help import HelpScreen, MessageScreen
from deepx_graph.tui.prompt import Prompt
from deepx_graph.tui.style import CSS, THEMES
from deepx_graph.tui.telling import Telling
from deepx_graph.tui.texts import plain
from deepx_graph.tui.views.base import View
from deepx_graph.tui.views.inspector import Inspector
from deepx_graph.tui.views.lanes import LaneList
from deepx_graph.tui.views.outline import Outline
from deepx_graph.tui.views.source import SourcePane
from deepx_graph.tui.views.table import VIEWS, parts, view_class
from deepx_graph.viz.listing.listing import Listing, listing

WIDE = 110


def palette() -> type[Provider]:
    """What the command palette offers."""
    from deepx_graph.tui.commands import Commands

    return Commands


class Browser(Telling):
    """The terminal browser of one file, which may be compared with another."""

    CSS = CSS
    TITLE = "deepx-graph"
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-narrow"), (WIDE, "-wide"),
    ]
    COMMANDS = {palette}  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(k + 1), f"view('{v}')", f"View: {VIEWS[v][0]}", show=False) for k, v in enumerate(VIEWS)),
        Binding("slash", "ask_query", "Query"),
        Binding("n", "hit(1)", "Next match", show=False),
        Binding("N", "hit(-1)", "Previous match", show=False),
        Binding("number_sign", "ask_node", "Go to a node", show=False),
        Binding("w", "why", "Why (not) in one kernel: mark one node, then another", show=False),
        Binding("i", "pane('inspector')", "Inspector", show=False),
        Binding("s", "pane('source')", "Source", show=False),
        Binding("t", "pane('outline')", "Outline", show=False),
        Binding("tab", "app.focus_next", "Next pane", show=False),
        Binding("shift+tab", "app.focus_previous", "Previous pane", show=False),
        Binding("b", "history(-1)", "Back to the previous node", show=False),
        Binding("f", "history(1)", "Forward again", show=False),
        Binding("u", "undo", "Undo", show=False),
        Binding("U", "redo", "Redo", show=False),
        Binding("y", "copy('name')", "Copy the name", show=False),
        Binding("Y", "copy('text')", "Copy all that is known of the node", show=False),
        Binding("x", "story", "When did this node appear or vanish?", show=False),
        Binding("e", "export", "Export", show=False, tooltip="Write what is shown: as a picture, or as a program"),
        Binding("T", "theme", "Next theme", show=False),
        Binding("escape", "cancel", "Cancel the work, or go back to the list", show=False),
        Binding("ctrl+p", "command_palette", "Commands", show=False),
        Binding("question_mark", "help", "Keys"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, open_session: Callable[[], Session], path: str = "", *, theme: str | None = None,
                 against: str | None = None) -> None:
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.open_session, self.path, self.against = open_session, path, against
        if theme is not None and theme not in self.available_themes:
            raise UsageError(Diagnostic(f"no theme '{theme}'", expected=", ".join(sorted(self.available_themes)),
                                        hint=suggest(theme, self.available_themes)))
        self.first_theme = theme or ("ansi-dark" if self.no_color else THEMES[0])

    def compose(self) -> ComposeResult:
        yield TabBar(id="bar")
        with Container(id="body"):
            yield Outline(id="outline")
            with Vertical(id="centre"):
                with ContentSwitcher(initial="list", id="views"):
                    yield LaneList(id="list")
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
        self.work_on("looking", self._look, self._looked)

    def _look(self, monitor: Monitor) -> None:
        """What need not be done before the list is on the screen."""
        assert self.session is not None
        self.session.check()
        self.session.warm(monitor)
        for name in VIEWS:
            monitor.report("getting the views ready")
            view_class(name)

    async def _looked(self, _: None) -> None:
        await self.mount_views()
        self.selection_changed()
        if self.against is not None:
            self._compare(self.against)

    def _compare(self, path: str) -> None:
        """Opens the view of differences, from the program in another file."""
        from deepx_graph.tui.views.compare import CompareView

        self.action_view("compare")
        self.query_one(CompareView).read_other(path)

    async def mount_views(self) -> None:
        """Makes the views that are not there yet."""
        switcher = self.query_one("#views", ContentSwitcher)
        missing = [view_class(name)(id=name) for name in VIEWS if not switcher.query(f"#{name}")]
        for view in missing:
            view.display = False
        if missing:
            await switcher.mount_all(missing)
        for view in missing:
            if isinstance(view, View) and self.session is not None:
                view.show_version()

    async def _open_view(self, name: str) -> None:
        await self.mount_views()
        self.action_view(name)

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
        self.query_one(Outline).show_listing(found, self.session.module.datas)
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
        if not self.query(f"#{name}"):
            self.call_later(self._open_view, name)
            return
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
        bar, session = self.query_one(TabBar), self.session
        if session is None:
            bar.show(self.view)
            return
        step = f" · {session.at + 1}/{len(session.versions)}" if len(session.versions) > 1 else ""
        rest = f"{step} {plain(session.version.title, 24)} · {sum(session.version.counts.values()):,} nodes"
        bar.show(self.view, plain(os.path.basename(self.path), 30), rest)

    def on_tab_bar_chosen(self, message: TabBar.Chosen) -> None:
        self.action_view(message.view)

    def focus_view(self) -> None:
        self.action_view(self.view)

    # --- small things

    def action_help_quit(self) -> None:
        """What ctrl+c does, of which many expect that it quits."""
        self.notify("q quits; esc cancels the work that is under way")

    def action_theme(self) -> None:
        at = THEMES.index(self.theme) if self.theme in THEMES else -1
        self.theme = THEMES[(at + 1) % len(THEMES)]

    def action_help(self) -> None:
        self.push_screen(HelpScreen((("Everywhere", Browser), *parts())))

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
