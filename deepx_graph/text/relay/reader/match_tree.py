"""`match` as a tree of decisions: a region for each constructor that is told apart, in the order of the clauses.

Rows are clauses, columns what is still to be looked at. A clause that several leaves come to is built for each of them, so that it
is computed only where it is taken. What no clause covers is an error, or for `match?` the end of a run that comes there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from deepx_graph import ops
from deepx_graph.errors import Diagnostic, Span, VerifyError
from deepx_graph.ir import Node
from deepx_graph.text.relay.syntax import AnyPattern, Binder, Clause, ConstructorPattern, Match, Pattern, TuplePattern
from deepx_graph.types import DataType, TupleType, Type

if TYPE_CHECKING:
    from deepx_graph.text.relay.reader.lower import LoweredFunction, Lowering


@dataclass(frozen=True)
class ClauseRow:
    """A clause with the patterns still to be matched, one for each column, and what it has bound."""

    patterns: tuple[Pattern, ...]
    bound: tuple[tuple[Binder, Node], ...]
    clause: Clause


class Matching:
    """Builds one match."""

    def __init__(self, lowering: Lowering, match: Match, scope: LoweredFunction) -> None:
        self.lowering, self.match, self.scope = lowering, match, scope

    def lower(self) -> Node:
        """The value of the match."""
        value = self.lowering.lower(self.match.value, self.scope)
        return self._decide((value,), tuple(ClauseRow((c.pattern,), (), c) for c in self.match.clauses))

    def _decide(self, values: tuple[Node, ...], rows: tuple[ClauseRow, ...]) -> Node:
        if not rows:
            return self._nothing_fits()
        rows = tuple(_bind(r, values) for r in rows)
        first = rows[0]
        column = next((k for k, p in enumerate(first.patterns) if not isinstance(p, AnyPattern)), None)
        if column is None:
            self.scope.env.update(first.bound)
            return self.lowering.lower(first.clause.body, self.scope)
        if isinstance(first.patterns[column], TuplePattern):
            return self._items(values, rows, column)
        return self._cases(values, rows, column)

    def _items(self, values: tuple[Node, ...], rows: tuple[ClauseRow, ...], column: int) -> Node:
        """Looks into a tuple: its items become columns."""
        whole = values[column]
        assert isinstance(whole.type, TupleType)
        items = tuple(self.lowering.b.proj(whole, k) for k in range(len(whole.type.items)))
        return self._opened(values, rows, column, items, lambda p: p.items if isinstance(p, TuplePattern) else None)

    def _opened(self, values: tuple[Node, ...], rows: tuple[ClauseRow, ...], column: int, parts: tuple[Node, ...],
                inner: Callable[[Pattern], Sequence[Pattern] | None]) -> Node:
        """Goes on with parts of a value in its place; `inner` gives the patterns of the parts, or None where all match."""
        wild = (AnyPattern(self.match.start, self.match.end, None),) * len(parts)
        found = (inner(row.patterns[column]) for row in rows)
        opened = tuple(_with(row, column, wild if p is None else tuple(p)) for row, p in zip(rows, found, strict=True))
        return self._decide(values[:column] + parts + values[column + 1 :], opened)

    def _cases(self, values: tuple[Node, ...], rows: tuple[ClauseRow, ...], column: int) -> Node:
        """Tells the constructors apart that the clauses name; the others go on with the clauses that name none."""
        value, named = values[column], dict[str, None]()
        for row in rows:
            pattern = row.patterns[column]
            if isinstance(pattern, ConstructorPattern):
                named[pattern.name] = None
        data, _ = self.lowering.inference.constructors[next(iter(named))]
        tag = self.lowering.make(self.match, ops.tag, value, cases=tuple(named))
        parts: list[Callable[[], Node]] = [partial(self._case, values, rows, column, name) for name in named]
        missing = [c.name for c in data.constructors if c.name not in named]
        if missing:
            rest = tuple(_with(r, column, ()) for r in rows if not isinstance(r.patterns[column], ConstructorPattern))
            if not rest and self.match.complete:
                raise self._not_covered(missing)
            parts.append(partial(self._decide, values[:column] + values[column + 1 :], rest))
        return self.lowering.branches(self.match, tag, list(parts), self.scope)

    def _case(self, values: tuple[Node, ...], rows: tuple[ClauseRow, ...], column: int, name: str) -> Node:
        value = values[column]
        assert isinstance(value.type, DataType)
        data, constructor = self.lowering.inference.constructors[name]
        fields = tuple(self._field(value, rows, column, name, k, t)
                       for k, t in enumerate(data.field_types(constructor, value.type.args)))
        kept = tuple(r for r in rows if not isinstance(p := r.patterns[column], ConstructorPattern) or p.name == name)
        return self._opened(values, kept, column, fields, lambda p: p.items if isinstance(p, ConstructorPattern) else None)

    def _field(self, value: Node, rows: tuple[ClauseRow, ...], column: int, constructor: str, index: int, type: Type) -> Node:
        """A field, under the name that the first pattern gives it that gives it one."""
        node = self.lowering.make(self.match, ops.field, value, constructor=constructor, index=index, type=type)
        for row in rows:
            pattern = row.patterns[column]
            if isinstance(pattern, ConstructorPattern) and pattern.name == constructor:
                item = pattern.items[index]
                if isinstance(item, AnyPattern) and item.binder is not None:
                    return self.lowering.named(node, item.binder)
        return node

    def _nothing_fits(self) -> Node:
        if self.match.complete:
            raise self._not_covered([])
        return self.lowering.make(self.match, ops.match_failed, type=self.lowering.settled(self.match.type))

    def _not_covered(self, missing: list[str]) -> VerifyError:
        span = Span(self.lowering.source, self.match.start, min(self.match.end, self.match.start + 5))
        return VerifyError(Diagnostic("the clauses of this match do not cover every value", span,
                                      expected=f"a clause for {', '.join(missing)}" if missing else None,
                                      hint="write match? where the others never come"))


def _with(row: ClauseRow, column: int, patterns: tuple[Pattern, ...]) -> ClauseRow:
    return ClauseRow(row.patterns[:column] + patterns + row.patterns[column + 1 :], row.bound, row.clause)


def _bind(row: ClauseRow, values: tuple[Node, ...]) -> ClauseRow:
    """The row with its variables bound to what they match, and `_` in their place."""
    bound, patterns = list(row.bound), list(row.patterns)
    for k, p in enumerate(row.patterns):
        if isinstance(p, AnyPattern) and p.binder is not None:
            bound.append((p.binder, values[k]))
            patterns[k] = AnyPattern(p.start, p.end, None)
    return ClauseRow(tuple(patterns), tuple(bound), row.clause)
