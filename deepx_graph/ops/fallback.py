"""Who wants to know that an operation went the general way, through its body, where no whole-array form of it was found.

`general(how)` is called by the operation; `collected()` gives what was said while it is open, in the same thread. Costs nothing
when nobody asks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Listening(threading.local):
    ways: list[str] | None = None


_LISTENING = _Listening()


def general(how: str) -> None:
    """Says that a body is applied in that way."""
    if _LISTENING.ways is not None and how not in _LISTENING.ways:
        _LISTENING.ways.append(how)


@contextmanager
def collected() -> Iterator[list[str]]:
    """The ways said inside the block, each once; an outer block does not hear them."""
    outer, ways = _LISTENING.ways, list[str]()
    _LISTENING.ways = ways
    try:
        yield ways
    finally:
        _LISTENING.ways = outer
