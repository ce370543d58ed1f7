"""Python's search for reference cycles, paused or made rare: graphs have none, and every round of it looks at all their nodes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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


@contextmanager
def rare_collection() -> Iterator[None]:
    """Makes rounds of the search rare, to which otherwise a tenth of the time of many commands goes."""
    thresholds = gc.get_threshold()
    gc.set_threshold(NEW, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
