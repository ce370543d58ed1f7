"""What the graph's objects do by functions of floors above: they are shown, printed, searched, and joined by operators.

Whoever imports the library provides them (`api/`); the graph alone knows their names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_functions: dict[str, Callable[..., Any]] = {}


def provide(**functions: Callable[..., Any]) -> None:
    """Makes functions known: `show(value)` gives the parts for a notebook by MIME type, `text(module)` the program as text,
    `find(where, query)` nodes, `operate(name, a, b)` the node of an operator of Python."""
    _functions.update(functions)


def provided(name: str) -> Callable[..., Any] | None:
    """The function of that name; None where no floor above is loaded."""
    return _functions.get(name)
