"""After a fork: the child has one thread, so what others were doing in its parent is done by nobody.

Locks that they held are renewed, and so is whatever else says that somebody is at work.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol
from weakref import WeakSet


class Renewed(Protocol):
    """An object that is made new after a fork."""

    def after_fork(self) -> None:
        """Makes it usable in the child, as if nobody had been using it."""
        ...


_RENEWED: WeakSet[Any] = WeakSet()


def renew_after_fork(thing: Renewed) -> None:
    """Sees to it that `thing`, while there is such, is told of forks, in the child."""
    _RENEWED.add(thing)


class Lock:
    """A lock that is free in a forked child."""

    def __init__(self) -> None:
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    @property
    def __enter__(self) -> Callable[[], bool]:
        """That of the lock itself: were it called here, an interrupt after it would leave the lock held for ever."""
        return self._lock.__enter__

    @property
    def __exit__(self) -> Callable[..., None]:
        return self._lock.__exit__


def _renew() -> None:
    for thing in list(_RENEWED):
        thing.after_fork()
    if sys.version_info < (3, 12):  # where computing a cached property holds a lock of its class
        for module in [m for name, m in sys.modules.items() if name.partition(".")[0] == "deepx_graph"]:
            for kind in [k for k in vars(module).values() if isinstance(k, type)]:
                for value in vars(kind).values():
                    if isinstance(value, cached_property):
                        value.lock = threading.RLock()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
