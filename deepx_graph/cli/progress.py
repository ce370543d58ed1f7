"""Signs of life: on a terminal, one line that says what is being done, once that takes a second; gone when it is done."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from deepx_graph.errors import printable
from deepx_graph.forking import renew_after_fork
from deepx_graph.progress import StageProgress, listening

DELAY, PERIOD = 1.0, 0.2
"""Seconds until the line is shown, and between two looks at it."""

ERASED = "\r\x1b[2K"


class StatusLine:
    """The last line of a terminal; `update` writes it and `hide` takes it away."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.stage, self.start = stream, StageProgress("start"), time.monotonic()
        self.shown = False
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """A lock that nobody holds; one that a signal handler may take again."""
        self.lock = threading.RLock()

    def update(self, seconds: float) -> None:
        """Says what is being done for so many seconds."""
        if seconds < DELAY:
            return
        text = printable(f"{self.stage}, {seconds:.0f} s")[: shutil.get_terminal_size().columns - 1]
        with self.lock:
            self._write(f"{ERASED}{text}\r")  # what a program prints itself begins at the left
            self.shown = True

    def hide(self) -> None:
        """Leaves the terminal as it was."""
        with self.lock:
            if self.shown:
                self._write(ERASED)
            self.shown = False

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone
            self.stream.write(text)
            self.stream.flush()

    def heard(self, stage: StageProgress) -> None:
        self.stage = stage

    def run(self, ended: threading.Event) -> None:
        """Keeps the line until `ended`."""
        while not ended.wait(PERIOD):
            self.update(time.monotonic() - self.start)


_line: StatusLine | None = None


@contextlib.contextmanager
def shown(stream: TextIO, wanted: bool = True) -> Iterator[None]:
    """While in the block, says on a terminal what is being done; nothing on what is none."""
    global _line
    if not wanted or not stream.isatty():
        yield
        return
    _line, ended = StatusLine(stream), threading.Event()
    thread = threading.Thread(target=_line.run, args=(ended,), daemon=True)
    thread.start()
    try:
        with listening(_line.heard):
            yield
    finally:
        ended.set()
        thread.join()
        _line.hide()
        _line = None


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """While in the block, something else may be written to the terminal."""
    if _line is None:
        yield
        return
    with _line.lock:
        _line.hide()
        yield
