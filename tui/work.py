"""Work in the background: one piece at a time, with progress, which can be cancelled; the keys go on working meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import Any, TypeVar

from textual.app import App
from textual.message import Message

from deepx_graph.errors import DeepxGraphError
from deepx_graph.session.progress import Cancelled, Monitor

T = TypeVar("T")


class Progress(Message):
    """How far the work is."""

    def __init__(self, text: str, done: int, total: int) -> None:
        super().__init__()
        self.text, self.done, self.total = text, done, total


class Done(Message):
    """The work has ended, with a result for `then` or with an error."""

    def __init__(self, monitor: Monitor, then: Callable[[Any], object], result: Any, error: BaseException | None) -> None:
        super().__init__()
        self.monitor, self.then, self.result, self.error = monitor, then, result, error


class Working(App[int]):
    """An app that does one piece of long work at a time in a thread."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.monitor: Monitor | None = None
        self.title_of_work = ""
        self.failed: DeepxGraphError | None = None

    def work_on(self, title: str, job: Callable[[Monitor], T], then: Callable[[T], object]) -> None:
        """Does `job` in a thread and gives its result to `then`, which may be a coroutine, in this one; work that was under
        way is cancelled."""
        self.cancel_work()
        monitor = Monitor(lambda text, done, total: self._tell(Progress(text, done, total)))
        self.monitor, self.title_of_work = monitor, title
        self.show_progress(title, 0, 0)

        def run() -> None:
            try:
                self._tell(Done(monitor, then, job(monitor), None))
            except Exception as e:
                self._tell(Done(monitor, then, None, e))

        self.run_worker(run, thread=True, group="work", exit_on_error=False)

    def _tell(self, message: Message) -> None:
        if self.is_running:
            self.post_message(message)

    @property
    def is_working(self) -> bool:
        return self.monitor is not None

    def cancel_work(self) -> bool:
        """Stops the work at its next step; False where there is none."""
        if self.monitor is None:
            return False
        self.monitor.cancel()
        self.monitor = None
        self.show_progress("cancelled", 0, 0)
        return True

    def on_progress(self, message: Progress) -> None:
        if self.monitor is not None:
            self.show_progress(f"{self.title_of_work}: {message.text}", message.done, message.total)

    async def on_done(self, message: Done) -> None:
        if message.monitor is not self.monitor:
            return  # it was cancelled, or other work has taken its place
        self.monitor = None
        self.show_progress("", 0, 0)
        if message.error is None:
            found = message.then(message.result)
            if isawaitable(found):
                await found
        elif isinstance(message.error, Cancelled):
            self.show_progress("cancelled", 0, 0)
        elif isinstance(message.error, DeepxGraphError):
            self.show_error(message.error)
        else:
            raise message.error

    def show_progress(self, text: str, done: int, total: int) -> None:
        """Says how far the work is; an empty text when there is none. To be overridden."""

    def show_error(self, error: DeepxGraphError) -> None:
        """Shows what went wrong. To be overridden."""
