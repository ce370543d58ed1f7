"""Python's search for reference cycles, paused or made rare: graphs have none, and every round of it looks at all their nodes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from deepx_graph.forking import Lock


@contextmanager
def no_collection() -> Iterator[None]:
    """Pauses the search while very many objects are made."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


NEW = 100_000
"""So many new objects, in place of Python's 700, start a round."""


class _Rounds:
    """How often there are rounds: whoever comes first makes them rare, whoever leaves last lets them be as before."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = Lock(), 0, gc.get_threshold()

    def enter(self) -> None:
        """Rounds are rare until `leave`."""
        with self._lock:
            if not self._inside:
                self._before = gc.get_threshold()
                gc.set_threshold(NEW, *self._before[1:])
            self._inside += 1

    def leave(self) -> None:
        """Ends `enter`."""
        with self._lock:
            self._inside -= 1
            if not self._inside:
                gc.set_threshold(*self._before)


_ROUNDS = _Rounds()


@contextmanager
def rare_collection() -> Iterator[None]:
    """Makes rounds of the search rare, to which otherwise a tenth of the time goes in which programs are optimised and compiled."""
    _ROUNDS.enter()
    try:
        yield
    finally:
        _ROUNDS.leave()
