"""Long work of the browser: one job at a time in a thread, with progress, which can be cancelled; keys go on working meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import Any, TypeVar

from textual.app import App

from deepx_graph.errors import DeepxGraphError
from deepx_graph.session.progress import Cancelled, Monitor

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
