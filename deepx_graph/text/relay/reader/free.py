"""The free variables of function literals: what a closure captures, in the order in which it is first used."""

from __future__ import annotations

from collections.abc import Iterator

from deepx_graph.text.relay.syntax import (
    AnyPattern,
    Binder,
    Block,
    Call,
    ConstructorPattern,
    Expr,
    Fn,
    If,
    Item,
    Match,
    Pattern,
    TupleOf,
    TuplePattern,
    Var,
)


class FreeVariables:
    """Finds them, each function literal once."""

    def __init__(self) -> None:
        self._known: dict[Fn, tuple[Binder, ...]] = {}

    def of(self, fn: Fn) -> tuple[Binder, ...]:
        """What the literal uses and does not bind."""
        found = self._known.get(fn)
        if found is None:
            bound = set(fn.params)
            used = dict.fromkeys(self._used(fn.body, bound))
            found = self._known[fn] = tuple(b for b in used if b not in bound)
        return found

    def _used(self, root: Expr, bound: set[Binder]) -> Iterator[Binder]:
        """The variables used below, those bound there included; what is bound is added to `bound`."""
        stack: list[Expr] = [root]
        while stack:
            e = stack.pop()
            match e:
                case Var():
                    yield e.binder
                case Fn():
                    yield from self.of(e)
                case TupleOf():
                    stack += reversed(e.items)
                case Item():
                    stack.append(e.whole)
                case If():
                    stack += (e.otherwise, e.then, e.condition)
                case Block():
                    bound.update(s.binder for s in e.statements if s.binder is not None)
                    stack += (e.result, *(s.value for s in reversed(e.statements)))
                case Match():
                    for clause in e.clauses:
                        bound.update(binders(clause.pattern))
                    stack += (*(c.body for c in reversed(e.clauses)), e.value)
                case Call():
                    stack += (*reversed(e.args), e.callee)


def binders(pattern: Pattern) -> Iterator[Binder]:
    """The variables that a pattern binds."""
    match pattern:
        case AnyPattern(binder=Binder() as binder):
            yield binder
        case TuplePattern() | ConstructorPattern():
            for inner in pattern.items:
                yield from binders(inner)
