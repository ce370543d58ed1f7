"""The program that the browser shows: its session, the listing of its version, what makes new versions of it, and its export.

Long work is done by one job at a time in a thread, with progress, which can be cancelled; keys go on working meanwhile.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from textual.app import App

from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Node
from deepx_graph.session.programs import STDIN, beginning, load
from deepx_graph.session.progress import Cancelled, Monitor
from deepx_graph.session.query.facts import PlacedValue
from deepx_graph.session.session import Session, Version
from deepx_graph.session.show.inspect import inspect
from deepx_graph.tui.formatting import FILLER, LAID, name_of, overlays, plain
from deepx_graph.tui.resume import State
from deepx_graph.tui.views.base import view_class, views
from deepx_graph.tui.views.map import FocusMap
from deepx_graph.tui.views.other import OtherPane, Paired, paired
from deepx_graph.tui.views.panes import Outline, SourcePane
from deepx_graph.tui.views.rows import VirtualList
from deepx_graph.viz.listing.listing import Listing, listing

if TYPE_CHECKING:
    from deepx_graph.tui.app import Browser


T = TypeVar("T")


class Jobs:
    """The background job of an app, of which there is one at most.

    `progress(text, done, total)` is told how far it is, with an empty text when it has ended, and `failed` of an error that is a
    diagnostic; any other error ends the app. Both are called in the thread of the app, as are the results.
    """

    def __init__(self, app: App[Any], progress: Callable[[str, int, int], None], failed: Callable[[DeepxGraphError], None]) -> None:
        self._app, self._progress, self._failed = app, progress, failed
        self._monitor: Monitor | None = None

    @property
    def running(self) -> bool:
        return self._monitor is not None

    def start(self, title: str, work: Callable[[Monitor], T], then: Callable[[T], object]) -> None:
        """Does `work` in a thread and gives its result to `then`, which may be a coroutine; a job under way is cancelled."""
        self.cancel()

        def report(text: str, done: int, total: int) -> None:
            self._call(self._report, monitor, f"{title}: {text}", done, total)

        def run() -> None:
            try:
                self._call(self._succeed, monitor, then, work(monitor))
            except Exception as e:
                self._call(self._fail, monitor, e)

        self._monitor = monitor = Monitor(report)
        self._progress(title, 0, 0)
        self._app.run_worker(run, thread=True, group="jobs", exit_on_error=False)

    def cancel(self) -> bool:
        """Stops the job at its next step; False where there is none."""
        if self._monitor is None:
            return False
        self._monitor.cancel()
        self._monitor = None
        self._progress("cancelled", 0, 0)
        return True

    def _call(self, callback: Callable[..., object], *args: object) -> None:
        """Calls back in the thread of the app, as long as there is one."""
        if self._app.is_running:
            self._app.call_later(callback, *args)

    def _report(self, monitor: Monitor, text: str, done: int, total: int) -> None:
        if monitor is self._monitor:
            self._progress(text, done, total)

    def _ended(self, monitor: Monitor) -> bool:
        """Makes room for another job; False for one that was cancelled, or that another has replaced."""
        if monitor is not self._monitor:
            return False
        self._monitor = None
        self._progress("", 0, 0)
        return True

    async def _succeed(self, monitor: Monitor, then: Callable[[Any], object], result: object) -> None:
        if self._ended(monitor):
            found = then(result)
            if isawaitable(found):
                await found

    def _fail(self, monitor: Monitor, error: Exception) -> None:
        if not self._ended(monitor):
            return
        if isinstance(error, Cancelled):
            self._progress("cancelled", 0, 0)
        elif isinstance(error, DeepxGraphError):
            self._failed(error)
        else:
            raise error


class Document:
    """The session of a browser, which there is once the file has been read, and its current version as rows."""

    def __init__(self, browser: Browser, open_session: Callable[[], Session], path: str, against: str | None = None,
                 state: State | None = None) -> None:
        self.browser, self.path = browser, path
        self._against, self._state = against, state
        self._open_session = open_session
        self.session: Session | None = None
        self.listing = Listing()
        self._ready = False
        self.scalars = False
        """Whether constants of rank 0 have rows."""

    # --- reading

    def open(self) -> None:
        """Reads the file, shows its list, then makes ready what can wait until the list is on the screen."""
        self.browser.jobs.start("reading", self._read, self._opened)

    def _show_beginning(self) -> None:
        """Has the first rows of a large program shown, which are not the document's."""
        module = beginning(self.path) if self.path not in ("", STDIN) else None
        if module is not None:
            self.browser.call_later(self.browser.lanes.show_listing, Session(module), listing(module))

    def _read(self, monitor: Monitor) -> tuple[Session, Listing]:
        gc.disable()  # a program is many objects and no cycle: looking for one takes as long as reading
        try:
            self._show_beginning()
            session = self._open_session()
            for pipeline in self._state.pipelines if self._state is not None else ():
                monitor.report(f"optimising ({plain(pipeline, 30)})")
                session.push(session.optimise(pipeline))
            monitor.report("ordering")
            return session, listing(session.module)
        finally:
            gc.freeze()
            gc.enable()

    def _opened(self, read: tuple[Session, Listing]) -> None:
        self.session = session = read[0]
        for warning in session.warnings[:3]:
            self.browser.notify(plain(warning.message, 200), severity="warning", markup=False)
        self.browser.query_one(SourcePane).show_source(session.original.source)
        self.browser.lanes.overlay = next((name for name in overlays(session) if name in LAID), self.browser.lanes.overlay)
        self._show(read[1])
        self.browser.jobs.start("looking", self._prepare, self._prepared)

    def _prepare(self, monitor: Monitor) -> Mapping[Node, PlacedValue]:
        """Works out what keys will ask for; how values lie on a mesh, where the program states it and no plan was given."""
        from deepx_graph.session.plans import stated_values

        assert self.session is not None
        self.session.check()
        self.session.warm(monitor)
        for name in views():
            monitor.report("getting the views ready")
            view_class(name)
        monitor.report("shardings")
        return self.session.shardings or stated_values(self.session.module)

    async def _prepared(self, shardings: Mapping[Node, PlacedValue]) -> None:
        self._ready = True
        if self.session is not None and shardings:
            self.session.shardings = shardings
            self.session.go(self.session.at)  # so that what is known of nodes knows of them
        await self.browser.switcher.mount_views()
        self.browser.selection.changed()
        self._show_outline()
        if self._state is not None:
            self.browser.restore(self._state)
        if self._against is not None:
            self.read_other(self._against)

    def read_other(self, path: str) -> None:
        """Shows another program beside this one, and as what the view of differences compares with."""
        session = self.session
        if session is None:
            return

        def read(monitor: Monitor) -> Paired:
            return paired(path, load(path).module, session.module, monitor)

        self.browser.jobs.start(f"comparing with {plain(os.path.basename(path), 30)}", read, self._show_other)

    def _show_other(self, found: Paired) -> None:
        from deepx_graph.tui.views.compare import CompareView

        if self.session is not None:
            self.session.changes = found.changes
            self.session.go(self.session.at)  # so that what is known of nodes knows of them
        pane = self.browser.query_one(OtherPane)
        pane.add_class("-on")
        pane.show(found)
        self.browser.query_one(CompareView).file = found.path, found.session.module
        self.browser.selection.changed()

    def _show_outline(self) -> None:
        """The outline with the name scopes, once they are known."""
        session = self.session
        if session is not None:
            scopes = {n: s for f in session.module.functions for n, s in session.facts(f).scopes.items()}
            self.browser.query_one(Outline).show_listing(self.listing, session.module.datas, scopes)

    # --- versions

    def show_version(self) -> None:
        """Shows the version that the session looks at now."""
        session, scalars = self.session, self.scalars
        if session is None:
            return

        def order(monitor: Monitor) -> Listing:
            session.warm(monitor)
            return listing(session.module, numbers=scalars)

        self.browser.jobs.start("ordering", order, self._show)

    def _show(self, rows: Listing) -> None:
        self.listing = rows
        self.browser.show_listing()
        if self._ready:
            self._show_outline()

    def push(self, version: Version) -> None:
        """Makes a version the latest, and shows it."""
        if self.session is not None:
            self.session.push(version)
            self.show_version()

    def undo(self) -> None:
        if self.session is not None and self.session.undo():
            self.show_version()

    def redo(self) -> None:
        if self.session is not None and self.session.redo():
            self.show_version()

    def toggle_scalars(self) -> None:
        """Shows rows for constants of rank 0, or hides them."""
        self.scalars = not self.scalars
        self.show_version()

    def optimise(self, pipeline: str) -> None:
        """Runs a pipeline on the current version; the result is a new one."""
        session = self.session
        if session is not None:
            title = f"optimising ({plain(pipeline, 30)})"
            self.browser.jobs.start(title, lambda m: session.optimise(pipeline, monitor=m), self.push)

    def differentiate(self) -> None:
        """The gradient program of the current version, as a new one."""
        session = self.session
        if session is not None:
            self.browser.jobs.start("differentiating", lambda m: session.gradient(), self.push)


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
            from deepx_graph.session.show.picture import suffixes

            name = os.path.splitext(os.path.basename(self.browser.document.path))[0] or "program"
            self.browser.prompt(f"a file: {', '.join(suffixes())}, .txt", self.write, value=f"{name}-{self.browser.view}.svg")

    def write(self, text: str) -> None:
        """Writes the current view to a file. Raises UsageError for a name that does not say how."""
        session = self.browser.session
        if session is None or not text.strip():
            return
        from deepx_graph.session.show.picture import ExportedPart, export

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
