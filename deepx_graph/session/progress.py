"""Work that somebody waits for: how far it is, and a way to stop it.

A `Monitor` is handed to long work, which reports to it and asks it at every step. It is safe to cancel from another thread; the
work ends with `Cancelled` at its next step and leaves nothing half done behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Module
from deepx_graph.passes.observer import Observer
from deepx_graph.rewrite.base import Pass, Rewrite

EVERY = 0.05
"""Seconds between two reports."""


class Cancelled(DeepxGraphError):
    """The work was stopped on request."""

    exit_code = 130


class Monitor:
    """Progress of one piece of work: `listener(text, done, total)`, with total 0 where it is not known beforehand."""

    def __init__(self, listener: Callable[[str, int, int], None] | None = None) -> None:
        self._listener = listener
        self._cancelled = threading.Event()
        self._next = 0.0

    def cancel(self) -> None:
        """Stops the work at its next step."""
        self._cancelled.set()

    def check(self) -> None:
        """Raises Cancelled when the work is to stop."""
        if self._cancelled.is_set():
            raise Cancelled("cancelled")

    def report(self, text: str, done: int = 0, total: int = 0) -> None:
        """Tells how far the work is, not too often. Raises Cancelled when it is to stop."""
        self.check()
        now = time.monotonic()
        if self._listener is not None and now >= self._next:
            self._next = now + EVERY
            self._listener(text, done, total)


class Reporting(Observer):
    """Reports passes and rewrites to a monitor."""

    def __init__(self, monitor: Monitor, passes: int) -> None:
        self.monitor, self.passes = monitor, passes
        self.done = self.rewrites = 0
        self.name = ""

    def before_pass(self, pass_: Pass, module: Module) -> None:
        self.name = pass_.name
        self.monitor.report(self.name, self.done, self.passes)

    def after_pass(self, pass_: Pass, before: Module, after: Module) -> None:
        self.done += 1
        self.monitor.check()

    def on_rewrite(self, rewrite: Rewrite) -> None:
        self.rewrites += 1
        self.monitor.report(f"{self.name}: rewrite {self.rewrites:,}", self.done, self.passes)
