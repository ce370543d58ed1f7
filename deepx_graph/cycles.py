"""Python's search for reference cycles, paused or made rare: graphs have none, and every round of it looks at all their nodes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Pauses the search while very many objects are made, which count as old afterwards: no round looks at all of them at once."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def left_to_the_end(*values: object) -> None:
    """Puts the values into a cycle: a process that ends does so without taking them apart first, and one that goes on frees them in
    the next round of the search."""
    held: list[object] = [*values]
    held.append(held)


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
