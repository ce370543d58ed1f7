"""The registry of custom calls: Python callables by the name of their target. Users fill it, the op `custom_call` reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deepx_graph.errors import UsageError, an, suggest
from deepx_graph.ops.host import lapack

UNCHANGED = frozenset({
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement", "LayoutConstraint", "MoveToHost",
    "MoveToDevice",
})  # fmt: skip
"""Targets that say where a value is to be and leave it as it is."""

Call = Callable[..., Any]


@dataclass(frozen=True)
class Registered:
    """What is known of a target: its function, whether it acts on the outside world, whether it wants the configuration."""

    function: Call
    side_effect: bool = False
    config: bool = False


_KNOWN: dict[str, Registered] = {}


def register_custom_call(target: str, function: Call | None, *, side_effect: bool = False, config: bool = False) -> None:
    """Registers what custom calls of `target` do: `function(*arrays)` returns an array, or a tuple of arrays for several results.

    The results must have exactly the types that the program states. Calls with `side_effect` are all made, in the order of the
    program; this is looked up when a program is read. With `config` the function also gets `config=`, the text of the call's
    backend_config. None unregisters a target. Raises UsageError for a name that is no text and a function that cannot be called.
    """
    if not isinstance(target, str) or not target:
        raise UsageError(f"{target!r} is not the name of a custom call")
    if function is None:
        _KNOWN.pop(target, None)
    elif not callable(function):
        raise UsageError(f"what is registered for the custom call '{target}' is {an(type(function).__name__)}, and no function")
    else:
        _KNOWN[target] = Registered(function, side_effect, config)


def find(target: str) -> Registered | None:
    """What is registered for a target."""
    return _KNOWN.get(target)


def acts(target: str) -> bool:
    """Whether a target is known to act on the outside world."""
    return target in _KNOWN and _KNOWN[target].side_effect


def complaint(target: str) -> str | None:
    """What keeps a call of the target from running."""
    if target in _KNOWN or lapack.known(target):
        return None
    nearest = suggest(target, _KNOWN)
    return f"nothing is registered for the custom call '{target}'" + (f"; {nearest}" if nearest else "")
