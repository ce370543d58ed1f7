"""The browser: views of one program, one node selected in all of them, long work in the background.

All facts come from the session. The app owns what the views share (the document, the selection, jobs, search, export) and
brings keys and messages to it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from typing import Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.events import Resize

from deepx_graph.errors import DeepxGraphError, Diagnostic, UsageError, suggest
from deepx_graph.session.programs import STDIN
from deepx_graph.session.session import Session
from deepx_graph.tui.bars import Complete, KeyBar, Prompt, StatusBar, TabBar
from deepx_graph.tui.document import Document, Exporter, Jobs
from deepx_graph.tui.resume import State, save
from deepx_graph.tui.screens import Commands, HelpScreen, MessageScreen, parts
from deepx_graph.tui.selection import Explainer, Search, Selection
from deepx_graph.tui.views.base import BrowserView, ViewSwitcher, view_bindings, views
from deepx_graph.tui.views.lanes import LaneList
from deepx_graph.tui.views.map import FocusMap
from deepx_graph.tui.views.other import OtherPane
from deepx_graph.tui.views.panes import Inspector, Outline, SourcePane

WIDE = 110
"""Columns from which on panes lie beside the list, not above and below it."""

THEMES = ("textual-dark", "textual-light", "nord", "gruvbox", "solarized-light", "ansi-dark", "ansi-light")
"""Themes in the order in which the key goes through them."""

PANES = ("outline", "inspector", "source")
"""Panes that come back with a state."""

CSS = """
Screen { layout: vertical; }
#bar, #status { text-wrap: nowrap; text-overflow: ellipsis; }
#bar { height: 1; background: $boost; }
#body { height: 1fr; layout: horizontal; }
#centre { width: 1fr; height: 1fr; }
#views { height: 1fr; }
#status { height: 1; background: $boost; }
#outline, #inspector, #source, #other { display: none; }
#outline.-on, #inspector.-on, #source.-on, #other.-on { display: block; }
#source { height: 35%; border-top: solid $primary-muted; }
.-wide #outline { width: 30; border-right: solid $primary-muted; }
.-wide #inspector { width: 44; border-left: solid $primary-muted; }
.-wide #other { width: 1fr; border-left: solid $primary-muted; }
.-narrow #other { height: 40%; border-top: solid $primary-muted; }
.-narrow #body { layout: vertical; }
.-narrow #outline { height: 30%; max-height: 30%; border-bottom: solid $primary-muted; }
.-narrow #inspector { height: 45%; max-height: 45%; border-top: solid $primary-muted; }
.-narrow #centre { width: 100%; }
BrowserView { layout: vertical; }
BrowserView TextTable { height: 1fr; }
BrowserView Static { height: auto; }
Toast { max-width: 60; max-height: 8; }
"""
"""How the parts are laid out. Colours are those of the theme, so that every theme works."""


def known_theme(name: str | None, themes: Collection[str]) -> str | None:
    """The name. Raises UsageError for one that no theme has."""
    if name is not None and name not in themes:
        raise UsageError(Diagnostic(f"no theme '{name}'", expected=", ".join(sorted(themes)), hint=suggest(name, themes)))
    return name


class Browser(App[int]):
    """The terminal browser of one file, which may be compared with another."""

    CSS = CSS
    TITLE = "deepx-graph"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012
    COMMANDS = {Commands}  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Query"),
        Binding("n", "match(1)", "Next match", show=False),
        Binding("N", "match(-1)", "Previous match", show=False),
        Binding("number_sign", "find", "Go to a node", show=False),
        Binding("w", "why", "Why two nodes are (not) one kernel: mark both", show=False),
        Binding("i", "pane('inspector')", "Inspector", show=False),
        Binding("s", "pane('source')", "Source", show=False),
        Binding("t", "pane('outline')", "Outline", show=False),
        Binding("O", "pane('other')", "The other program", show=False),
        Binding("tab", "app.focus_next", "Next pane", show=False),
        Binding("shift+tab", "app.focus_previous", "Previous pane", show=False),
        Binding("b", "history(-1)", "Back to the previous node", show=False),
        Binding("f", "history(1)", "Forward again", show=False),
        Binding("u", "undo", "Undo", show=False),
        Binding("U", "redo", "Redo", show=False),
        Binding("y", "copy('name')", "Copy the name", show=False),
        Binding("Y", "copy('text')", "Copy all that is known of the node", show=False),
        Binding("x", "timeline", "When did this node appear or vanish?", show=False),
        Binding("e", "export", "Export", show=False, tooltip="Write what is shown: as a picture, or as a program"),
        Binding("T", "theme", "Next theme", show=False),
        Binding("escape", "cancel", "Cancel the work, or go back to the list", show=False),
        Binding("ctrl+p", "command_palette", "Commands", show=False),
        Binding("question_mark", "help", "Keys"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, open_session: Callable[[], Session], path: str = "", *, theme: str | None = None,
                 against: str | None = None, state: State | None = None) -> None:
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        for b in view_bindings():
            self.bind(b.key, b.action, description=b.description, show=False)
        wanted = theme or (state.theme if state is not None else "") or None
        self.first_theme = known_theme(wanted, self.available_themes) or ("ansi-dark" if self.no_color else THEMES[0])
        self.jobs = Jobs(self, self.show_progress, self.show_error)
        self.document = Document(self, open_session, path, against, state)
        self.selection = Selection(self)
        self.search = Search(self)
        self.explainer = Explainer(self)
        self.exporter = Exporter(self)
        self.failed: DeepxGraphError | None = None
        self._sized = False

    def compose(self) -> ComposeResult:
        yield TabBar(id="bar")
        with Container(id="body"):
            yield Outline(id="outline")
            with Vertical(id="centre"):
                with ViewSwitcher(initial="list", id="views"):
                    yield LaneList(id="list")
                yield SourcePane(id="source")
            yield OtherPane(id="other")
            yield Inspector(id="inspector")
        yield Prompt(id="prompt")
        yield StatusBar(id="status")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        self.theme = self.first_theme
        self.lanes.focus()
        self.show_bar()
        self.document.open()

    def on_resize(self, event: Resize) -> None:
        if not self._sized:
            self._sized = True
            self.query_one(Inspector).set_class(event.size.width >= WIDE, "-on")

    # --- leaving and coming back

    def state(self) -> State:
        """How the browser stands."""
        session, current = self.session, self.selection.current
        pipelines = () if session is None else tuple(v.pipeline for v in session.versions[1 : session.at + 1] if v.pipeline)
        node = "" if session is None or current is None else session.address(*current)
        panes = tuple(name for name in PANES if self.query_one(f"#{name}").has_class("-on"))
        return State(self.view, node, self.search.query, self.theme, panes, pipelines)

    def restore(self, state: State) -> None:
        """Goes on where the browser was left; what is not there any more is left out."""
        for name in PANES:
            self.query_one(f"#{name}").set_class(name in state.panes, "-on")
        with contextlib.suppress(DeepxGraphError):
            if state.query:
                self.search.run(state.query)
        with contextlib.suppress(DeepxGraphError):
            if state.node and self.session is not None:
                self.selection.select(*self.session.find(state.node))
        if state.view in views():
            self.action_view(state.view)

    async def action_quit(self) -> None:
        """Leaves, and remembers where."""
        if self.session is not None and self.document.path and self.session.path != STDIN:
            save(self.document.path, self.state())
        self.exit()

    # --- what there is

    @property
    def session(self) -> Session | None:
        """The session, from when the file has been read."""
        return self.document.session

    @property
    def lanes(self) -> LaneList:
        return self.query_one("#list", LaneList)

    @property
    def switcher(self) -> ViewSwitcher:
        return self.query_one(ViewSwitcher)

    @property
    def view(self) -> str:
        """The name of the current view."""
        return self.switcher.current or "list"

    # --- showing the program

    def show_listing(self) -> None:
        """The document has other rows."""
        session, rows = self.document.session, self.document.listing
        assert session is not None
        self.search.clear()
        self.explainer.marked = None
        self.selection.history.clear()
        self.lanes.show_listing(session, rows)
        self.selection.renew()
        self.query_one(Outline).show_listing(rows, session.module.datas)
        for view in self.query(BrowserView):
            view.show_version()
        self.show_bar()
        self.selection.changed()

    def show_bar(self) -> None:
        """Brings the tabs, and what is said of the program beside them, up to date."""
        self.query_one(TabBar).show(self.view, self.document.path, self.session)

    def show_status(self) -> None:
        """Shows the selected node in the last line, unless a job is shown there."""
        if not self.jobs.running:
            self.query_one(StatusBar).show(self.selection.status, self.search.status, self.explainer.status)

    def show_progress(self, text: str, done: int, total: int) -> None:
        """Shows how far a job is; with an empty text, that there is none."""
        if text:
            self.query_one(StatusBar).show_progress(text, done, total)
        else:
            self.show_status()

    def show_error(self, error: DeepxGraphError) -> None:
        """Shows a diagnostic; without a program there is nothing to go on with."""
        if self.session is None:
            self.failed = error
            self.exit(error.exit_code)
        else:
            self.push_screen(MessageScreen("That did not work", str(error)))

    def prompt(self, placeholder: str, answer: Callable[[str], None], complete: Complete | None = None, value: str = "") -> None:
        """Asks for a text; errors that the answer raises are shown."""
        self.query_one(Prompt).open(placeholder, answer, complete, value)

    # --- messages of the parts

    def on_tab_bar_chosen(self, message: TabBar.Chosen) -> None:
        self.action_view(message.view)

    def on_view_switcher_opened(self) -> None:
        self.show_bar()
        self.selection.changed()

    def on_lane_list_moved(self, message: LaneList.Moved) -> None:
        if self.session is not None:  # what is shown before is the beginning only
            self.selection.follow(message.function, message.node)

    def on_lane_list_scalars_toggled(self) -> None:
        self.document.toggle_scalars()

    def on_focus_map_moved(self, message: FocusMap.Moved) -> None:
        self.selection.select(message.function, message.node)

    def on_inspector_link_followed(self, message: Inspector.LinkFollowed) -> None:
        if message.node is not None:
            self.selection.remember()
            self.selection.go_to(message.node)
        else:
            source = self.query_one(SourcePane)
            source.add_class("-on")
            source.cursor = message.line

    def on_outline_chosen(self, message: Outline.Chosen) -> None:
        self.lanes.show_row(message.row)
        self.lanes.focus()

    def on_source_pane_line_chosen(self, message: SourcePane.LineChosen) -> None:
        self.search.run(f"origin:{message.line}")

    def on_prompt_closed(self) -> None:
        self.action_view(self.view)

    def on_prompt_answered(self, message: Prompt.Answered) -> None:
        try:
            message.answer(message.text)
        except DeepxGraphError as e:
            self.show_error(e)

    # --- keys

    def action_view(self, name: str) -> None:
        self.switcher.open(name)

    def action_pane(self, name: str) -> None:
        pane = self.query_one(f"#{name}")
        pane.toggle_class("-on")
        if not pane.has_class("-on") and pane.has_focus_within:
            self.action_view(self.view)
        self.selection.changed()

    def action_search(self) -> None:
        self.search.prompt()

    def action_match(self, by: int) -> None:
        self.search.step(by)

    def action_find(self) -> None:
        self.search.prompt_node()

    def action_history(self, by: int) -> None:
        self.selection.step(by)

    def action_why(self) -> None:
        self.explainer.fusion()

    def action_timeline(self) -> None:
        self.explainer.timeline()

    def action_undo(self) -> None:
        self.document.undo()

    def action_redo(self) -> None:
        self.document.redo()

    def action_copy(self, what: str) -> None:
        self.exporter.copy(what)

    def action_export(self) -> None:
        self.exporter.prompt()

    def action_cancel(self) -> None:
        if not self.jobs.cancel() and self.view != "list":
            self.action_view("list")

    def action_theme(self) -> None:
        at = THEMES.index(self.theme) if self.theme in THEMES else -1
        self.theme = THEMES[(at + 1) % len(THEMES)]

    def action_help(self) -> None:
        self.push_screen(HelpScreen((("Everywhere", Browser), *parts())))

    def action_help_quit(self) -> None:
        """What ctrl+c does, of which many expect that it quits."""
        self.notify("q quits; esc cancels the work that is under way")

    def get_system_commands(self, screen: Any) -> Any:
        """The palette has our own commands only."""
        return ()
