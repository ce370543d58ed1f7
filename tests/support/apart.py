"""A function called in a process of its own, in which no other test left anything."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def apart(function: Callable[..., T], *args: object) -> T:
    """What it returns there. The function is one of a module; arguments and result can be pickled."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()
