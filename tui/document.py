"""The program that the browser shows: its session, the listing of its version, and what makes new versions of it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

from deepx_graph.session.progress import Monitor
from deepx_graph.session.session import Session, Version
from deepx_graph.tui.formatting import plain
from deepx_graph.tui.views.base import VIEWS, view_class
from deepx_graph.tui.views.source import SourcePane
from deepx_graph.viz.listing.listing import Listing, listing

if TYPE_CHECKING:
    from deepx_graph.tui.app import Browser


class Document:
    """The session of a browser, which there is once the file has been read, and its current version as rows."""

    def __init__(self, browser: Browser, open_session: Callable[[], Session], path: str, against: str | None = None) -> None:
        self.browser, self.path = browser, path
        self._against = against
        self._open_session = open_session
        self.session: Session | None = None
        self.listing = Listing()
        self.scalars = False
        """Whether constants of rank 0 have rows."""

    # --- reading

    def open(self) -> None:
        """Reads the file, shows its list, then makes ready what can wait until the list is on the screen."""
        self.browser.jobs.start("reading", self._read, self._opened)

    def _read(self, monitor: Monitor) -> tuple[Session, Listing]:
        gc.disable()  # a program is many objects and no cycle: looking for one takes as long as reading
        try:
            session = self._open_session()
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
        self._show(read[1])
        self.browser.jobs.start("looking", self._prepare, self._prepared)

    def _prepare(self, monitor: Monitor) -> None:
        assert self.session is not None
        self.session.check()
        self.session.warm(monitor)
        for name in VIEWS:
            monitor.report("getting the views ready")
            view_class(name)

    async def _prepared(self, _: None) -> None:
        await self.browser.switcher.mount_views()
        self.browser.selection.changed()
        if self._against is not None:
            from deepx_graph.tui.views.compare import CompareView

            self.browser.action_view("compare")
            self.browser.query_one(CompareView).read_other(self._against)

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
