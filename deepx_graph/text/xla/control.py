"""Loops, branches and calls of the dialect: the state goes through them like a value where something in them acts on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph.ir import Function, Node
from deepx_graph.text.xla.lowering import DialectContext
from deepx_graph.types import FunctionType

Values = Sequence[Node]
Iteration = Callable[[Values], tuple[Node, Values]]
"""The condition, and the next values of the variables, for their values; the condition is computed first."""


def _with(values: Values, c: DialectContext, acts: Node | None) -> list[Node]:
    """The values, and the state as it is now where the operation acts on it."""
    state = c.lowering.state
    return list(values) if acts is None or state is None else [*values, state]


def loop(c: DialectContext, acts: Node | None, inits: Values, iterate: Iteration) -> list[Node]:
    """The variables at the end of a loop; `acts` is the state before it, None where nothing in it acts."""
    def body(phis: tuple[Node, ...]) -> tuple[Node, list[Node]]:
        go_on, nexts = iterate(c.after(acts, phis))
        return go_on, _with(nexts, c, acts)

    return c.after(acts, c.b.loop([*inits, *([] if acts is None else [acts])], body))


def branch(c: DialectContext, acts: Node | None, selector: Node, ways: Sequence[Callable[[], Values]]) -> list[Node]:
    """The values of the branch that the selector takes, each written by a function."""
    values = []
    for way in ways:
        if acts is not None:
            c.lowering.state = acts
        values.append(_with(way(), c, acts))
    return c.after(acts, c.b.branch(selector, *values))


def call(c: DialectContext, acts: Node | None, function: Function | tuple[str, FunctionType], args: Values) -> list[Node]:
    """The results of a function, which takes and gives the state where it acts."""
    return c.after(acts, c.b.call(function, *args, *([] if acts is None else [acts])))
