"""Progress: work tells its stage, and a front end for a person who waits listens.

Telling costs a call. Where nobody listens, nothing happens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import NamedTuple


class StageProgress(NamedTuple):
    """A stage by name; where its steps can be counted, how many of them are done."""

    name: str
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        return f"{self.name} {self.done}/{self.total}" if self.total else self.name


Listener = Callable[[StageProgress], object]

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


def stage(name: str, done: int = 0, total: int = 0) -> None:
    """From now on this is being done."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(StageProgress(name, done, total))


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """While in the block, every stage that work in this thread tells goes to the listener."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
