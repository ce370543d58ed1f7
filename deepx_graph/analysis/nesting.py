"""Places that lie inside one another, and the innermost one around two of them.

A place knows the one around it and, further out, a second one, so that a walk of n levels takes log n steps
(E. Myers, An applicative random-access stack). What a place is of, subclasses say: a block of a schedule, a computation of a text.
"""

from __future__ import annotations

from typing import Self, TypeVar


class Nested:
    """A place in a tree of places; the outermost one is its own `parent`, at depth 0."""

    __slots__ = ("depth", "jump", "parent")

    def __init__(self, parent: Self | None) -> None:
        self.parent: Self = self if parent is None else parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        near = self.parent
        doubles = parent is None or near.depth - near.jump.depth == near.jump.depth - near.jump.jump.depth
        self.jump: Self = near if parent is None or not doubles else near.jump.jump

    def at_depth(self, depth: int) -> Self:
        """The place at that depth around this one; the place itself where it is no deeper."""
        at = self
        while at.depth > depth:
            at = at.jump if at.jump.depth >= depth else at.parent
        return at

    def within(self, other: Self) -> bool:
        """Whether this is `other` or lies inside it."""
        return self.at_depth(other.depth) is other


AnyNested = TypeVar("AnyNested", bound=Nested)


def common(a: AnyNested, b: AnyNested) -> AnyNested:
    """The innermost place that holds both."""
    a, b = a.at_depth(b.depth), b.at_depth(a.depth)
    while a is not b:
        a, b = (a.jump, b.jump) if a.jump is not b.jump else (a.parent, b.parent)
    return a
