"""What values are at run time, beside arrays, tuples of values, and the `World` that stands for the state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """A function value: the name of a function of the module, and its leading arguments."""

    callee: str
    captured: tuple[Any, ...]


def flatten(value: Any) -> list[Any]:
    """The leaves of nested tuples, left to right."""
    leaves: list[Any] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, tuple):
            stack.extend(reversed(item))
        else:
            leaves.append(item)
    return leaves
