"""The local names that a Relay text may use at a place: of the blocks around it, else of blocks that have ended.

TVM prints an expression that is shared where it first meets it, be it within a nested block, and names it from outside too. What a
block of the same function has bound is therefore found behind the block. Not so what `let` has bound in a branch, a clause or
another function: there it may never have had a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from deepx_graph.text.relay.syntax import Binder

Passes = Callable[[str], bool]
"""Whether a name stays known behind the scope that bound it."""


def everything(name: str) -> bool:
    return True


def shared(name: str) -> bool:
    """The numbered bindings: each is an expression, and no place in the order of the program."""
    return name[1:].isdigit()


def nothing(name: str) -> bool:
    return False


class Scopes:
    """Open scopes, innermost last; beside each what the scopes within it have left behind."""

    def __init__(self) -> None:
        self._open: list[dict[str, Binder]] = [{}]
        self._left: list[dict[str, Binder]] = [{}]

    def enter(self) -> None:
        self._open.append({})
        self._left.append({})

    def leave(self, passes: Passes) -> None:
        """Ends the innermost scope."""
        for names in (self._left.pop(), self._open.pop()):
            self._left[-1].update((name, binder) for name, binder in names.items() if passes(name))

    @property
    def innermost(self) -> dict[str, Binder]:
        return self._open[-1]

    @property
    def outermost(self) -> dict[str, Binder]:
        return self._open[0]

    def visible(self, name: str) -> Binder | None:
        """The variable that the name means here; None where none is in scope."""
        return next((scope[name] for scope in reversed(self._open) if name in scope), None)

    def left(self, name: str) -> Binder | None:
        """The variable of that name that a nearby block bound last, and ended."""
        return next((scope[name] for scope in reversed(self._left) if name in scope), None)

    def __iter__(self) -> Iterator[str]:
        return (name for scope in self._open for name in scope)
