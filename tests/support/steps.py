"""Steps of Python: calls of functions, of Python and of C, which are the same on every machine and under every load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def steps(run: Callable[[], T]) -> tuple[int, T]:
    """Calls that are made, and the result."""
    count = 0

    def counting(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counting)
    try:
        result = run()
    finally:
        sys.setprofile(before)
    return count, result
