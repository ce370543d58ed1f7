"""How many threads BLAS may use while a program that was given fewer runs.

BLAS has one setting for the whole process. It is lowered while such programs run, to the least that any of them was given, and the
last to finish sets it back, unless somebody else has changed it meanwhile. Programs that may use every core leave it alone.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

from deepx_graph.runtime.kernels.workers import available_cores

FREE: AbstractContextManager[None] = nullcontext()


def limited(threads: int | None) -> AbstractContextManager[None]:
    """A context, to be used as often as wanted, in which BLAS has at most so many threads; None leaves it as it is."""
    return FREE if threads is None or threads >= available_cores() else _Limit(threads)


@lru_cache(maxsize=1)
def _libraries(has_scipy: bool) -> list[Any]:
    """The BLAS libraries that are loaded: numpy's own, and scipy's once it is there."""
    from threadpoolctl import ThreadpoolController

    found: Any = ThreadpoolController  # it has no types
    return list(found().select(user_api="blas").lib_controllers)


class _Limits:
    """What is wanted now, and what was set before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: list[int] = []
        self._before: list[tuple[Any, int, int]] = []
        """A library, its threads as found and as set here."""

    def enter(self, threads: int) -> None:
        """Lowers BLAS to so many threads, where it has more."""
        libraries = _libraries("scipy.linalg" in sys.modules)
        with self._lock:
            if not self._wanted:
                self._before = [(library, found, found) for library in libraries if (found := library.get_num_threads() or 1) > 1]
            self._wanted.append(threads)
            self._set(min(self._wanted))

    def leave(self, threads: int) -> None:
        """Takes one wish back."""
        with self._lock:
            self._wanted.remove(threads)
            self._set(min(self._wanted, default=sys.maxsize))

    def _set(self, threads: int) -> None:
        for k, (library, found, ours) in enumerate(self._before):
            wanted = min(found, threads)
            if wanted != ours and library.get_num_threads() == ours:
                library.set_num_threads(wanted)
                self._before[k] = library, found, wanted


_LIMITS = _Limits()


class _Limit(AbstractContextManager[None]):
    def __init__(self, threads: int) -> None:
        self._threads = threads

    def __enter__(self) -> None:
        _LIMITS.enter(self._threads)

    def __exit__(self, *_: object) -> None:
        _LIMITS.leave(self._threads)


def _renew() -> None:
    _LIMITS.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
