"""A few threads that wait, and the caller, to go through blocks together.

The team is shared by all kernels of the process. Whoever finds it busy works alone, so calls from several threads never wait for
each other and nothing can lock up. Waiting threads sleep: a spinning one would take a core from the matrix products.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from deepx_graph.forking import Lock, renew_after_fork

Task = Callable[[], None]


class _Worker:
    """One sleeping thread; a pair of locks hands it work and tells when it is done."""

    def __init__(self) -> None:
        self._start, self._done = threading.Lock(), threading.Lock()
        self._start.acquire()
        self._done.acquire()
        self._task: Task | None = None
        self.error: BaseException | None = None
        self._leaves = False
        threading.Thread(target=self._serve, name="deepx-graph kernel", daemon=True).start()

    def give(self, task: Task) -> None:
        self._task, self.error = task, None
        self._start.release()

    def wait(self) -> None:
        self._done.acquire()

    def dismiss(self) -> None:
        """Lets the thread end once it has done what it was given. Right in whatever state an interrupt left it."""
        self._leaves = True
        if self._start.locked():
            self._start.release()

    def _serve(self) -> None:
        with np.errstate(all="ignore"):
            while not self._leaves:
                self._start.acquire()
                task, self._task = self._task, None
                if task is None:
                    return
                try:
                    task()
                except BaseException as e:  # handed to the caller, who raises it
                    self.error = e
                del task
                self._done.release()


class ThreadTeam:
    """The workers of this process."""

    def __init__(self) -> None:
        self._busy = Lock()
        renew_after_fork(self)
        self._workers: list[_Worker] = []

    def after_fork(self) -> None:
        """A forked child has none of its parent's threads."""
        self._workers = []

    def run(self, task: Task, threads: int) -> None:
        """Runs `task` in the caller and in up to `threads - 1` workers at once, and returns when all have. Raises what one raised.

        The task must share its work out itself, and be right however many run it.
        """
        if threads < 2 or not self._busy.acquire(blocking=False):
            task()
            return
        try:
            self._run(task, self._hire(threads - 1))
        finally:
            self._busy.release()

    def _hire(self, count: int) -> list[_Worker]:
        while len(self._workers) < count:
            self._workers.append(_Worker())
        return self._workers[:count]

    def _run(self, task: Task, workers: list[_Worker]) -> None:
        try:
            for worker in workers:
                worker.give(task)
            try:
                task()
            finally:
                for worker in workers:
                    worker.wait()
        except BaseException:  # a signal may have come between any two locks: others will take over
            for worker in self._workers:
                worker.dismiss()
            self._workers = []
            raise
        for worker in workers:
            if worker.error is not None:
                raise worker.error


TEAM = ThreadTeam()
"""The one team of the process; after a fork the child hires its own."""
