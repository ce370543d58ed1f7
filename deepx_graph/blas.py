"""Products by BLAS, and how many threads it may use.

BLAS has one setting for the whole process, and its threads wait for each other by spinning: callers that use them at the same time
fight for the cores. So a product of middling size runs on one thread, and a large one on all of them only while it is alone.
A program that was given fewer threads lowers the setting while it runs, to the least that any such program was given. The last to
finish sets it back, unless somebody else has changed it meanwhile. A fork waits for products that are under way, as BLAS ends
its threads then.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import numpy as np

from deepx_graph.forking import renew_after_fork

SMALL, LARGE = 1 << 18, 1 << 24
"""Multiplications of a product that BLAS does on one thread by itself; and of one from which on threads are worth their while."""

SMALL_VECTOR, LARGE_VECTOR = 9216, 1 << 20
"""The same for a matrix and a vector."""

FREE: AbstractContextManager[None] = nullcontext()


def limited(threads: int | None) -> AbstractContextManager[None]:
    """A context, to be used as often as wanted, in which BLAS has at most so many threads; None leaves it as it is."""
    return FREE if threads is None or threads >= available_cores() else _Limit(threads)


@lru_cache(maxsize=1)
def _libraries(has_scipy: bool) -> list[Any]:
    """The BLAS libraries that are loaded: numpy's own, and scipy's once a module that needs it is there."""
    from threadpoolctl import ThreadpoolController

    found: Any = ThreadpoolController  # it has no types
    return list(found().select(user_api="blas").lib_controllers)


def available_cores() -> int:
    """The number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return max(1, len(affinity(0)) if affinity else os.cpu_count() or 1)


def matmul(x: Any, y: Any, out: Any = None) -> Any:
    """`numpy.matmul` of two stacks of matrices."""
    rows, depth, columns = x.shape[-2], x.shape[-1], y.shape[-1]
    work, vector = rows * depth * columns, rows == 1 or columns == 1
    if work <= (SMALL_VECTOR if vector else SMALL):
        return np.matmul(x, y, out=out)
    return _LIMITS.alone(lambda: np.matmul(x, y, out=out), large=work >= (LARGE_VECTOR if vector else LARGE))


class _Limits:
    """The limits wanted now, and those found before."""

    def __init__(self) -> None:
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Condition()
        self._products = 0
        """How many run now."""
        self._forks = False
        self._wanted: list[int] = []
        self._before: list[tuple[Any, int, int]] = []
        """A library, its threads as found and as set here."""

    def before_fork(self) -> None:
        """Holds products back, and waits for those under way."""
        self._lock.acquire()
        self._forks = True
        while self._products:
            self._lock.wait()

    def after_fork_in_parent(self) -> None:
        """Lets products go on."""
        self._forks = False
        self._lock.notify_all()
        self._lock.release()

    def alone(self, product: Callable[[], Any], *, large: bool) -> Any:
        """The value of a product: on one thread, unless it is large and no other runs."""
        with self._lock:
            while self._forks:
                self._lock.wait()
            self._products += 1
            threads = sys.maxsize if large and self._products == 1 else 1
        try:
            self.enter(threads)
            try:
                return product()
            finally:
                self.leave(threads)
        finally:
            with self._lock:
                self._products -= 1
                self._lock.notify_all()

    def enter(self, threads: int) -> None:
        """Lowers BLAS to so many threads, where it has more."""
        libraries = _libraries("scipy.linalg" in sys.modules or "scipy.special" in sys.modules)
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
                _set_threads(library, wanted)
                self._before[k] = library, found, wanted


def _set_threads(library: Any, threads: int) -> None:
    """Also from another thread than the first that has done so, whom threadpoolctl obeys alone: here one lock orders all."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(threads)


_LIMITS = _Limits()


class _Limit(AbstractContextManager[None]):
    def __init__(self, threads: int) -> None:
        self._threads = threads

    def __enter__(self) -> None:
        _LIMITS.enter(self._threads)

    def __exit__(self, *_: object) -> None:
        _LIMITS.leave(self._threads)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LIMITS.before_fork, after_in_parent=_LIMITS.after_fork_in_parent)
