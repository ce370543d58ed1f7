"""A few threads that wait, and the caller, to go through blocks together.

The team is shared by all kernels of the process. Whoever finds it busy works alone, so calls from several threads never wait for
each other and nothing can lock up. Waiting threads sleep: a spinning one would take a core from the matrix products.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from deepx_graph.forking import Lock, renew_after_fork

Task = Callable[[], None]


class ThreadTeam:
    """The workers of this process."""

    def __init__(self) -> None:
        self._busy = Lock()
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """A forked child has none of its parent's threads."""
        self._workers = ThreadPoolExecutor(os.cpu_count(), "deepx-graph kernel")

    def run(self, task: Task, threads: int) -> None:
        """Runs `task` in the caller and in up to `threads - 1` workers at once, and returns when all have. Raises what one raised.

        The task must share its work out itself, and be right however many run it.
        """
        if threads < 2 or not self._busy.acquire(blocking=False):
            task()
            return
        try:
            tasks = [task] * (threads - 1)
            given = [self._workers.submit(_next_of, tasks) for _ in range(threads - 1)]
            try:
                task()
            finally:
                errors = [each.exception() for each in given]
        finally:
            self._busy.release()
        for error in filter(None, errors):
            raise error


def _next_of(tasks: list[Task]) -> None:
    """Runs a task that nobody refers to any more when it is told that it is done: results would be held by it."""
    with np.errstate(all="ignore"):
        tasks.pop()()


TEAM = ThreadTeam()
"""The one team of the process; after a fork the child hires its own."""
