"""Arguments that several functions of the library take."""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.errors import Diagnostic, UsageError


def natural(name: str, value: int) -> int:
    """An argument that counts. Raises UsageError for one below 0."""
    if value < 0:
        raise UsageError(Diagnostic(f"{name} cannot be {value}", expected="a whole number that is not negative"))
    return value


def names(wrt: str | Sequence[str] | None) -> Sequence[str] | None:
    """Names that are given one by one, or as the only one."""
    return [wrt] if isinstance(wrt, str) else wrt
