"""The syntax tree of Relay: expressions, patterns and definitions with their places; scopes of names, free variables.

Names are resolved: a use of a local variable holds its `Binder`, so shadowing is no question afterwards. `type` of a binder and of
an expression is filled in by inference. The tree is as deep as brackets nest; statements of a block are a list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from deepx_graph.errors import Diagnostic
from deepx_graph.literal import Literal
from deepx_graph.types import Type


@dataclass(eq=False, slots=True)
class Binder:
    """A local variable: its name without `%` (empty for a graph binding), its place and what the text says of its type."""

    name: str
    start: int
    end: int
    stated: Type | None = None
    type: Any = None
    scheme: tuple[str, ...] = ()
    """Type parameters over which each use is instantiated anew."""
    value: Expr | None = None
    """What a let or graph binding binds it to."""


@dataclass(eq=False, slots=True)
class Expr:
    """Base of expressions. `start` and `end` are offsets in the text."""

    start: int
    end: int
    type: Any = field(default=None, init=False)


@dataclass(eq=False, slots=True)
class Constant(Expr):
    value: Literal


@dataclass(eq=False, slots=True)
class VariableUse(Expr):
    binder: Binder


@dataclass(eq=False, slots=True)
class Global(Expr):
    name: str


@dataclass(eq=False, slots=True)
class OpRef(Expr):
    """An operator or a constructor, by name."""

    name: str


@dataclass(eq=False, slots=True)
class TupleOf(Expr):
    items: list[Expr]


@dataclass(eq=False, slots=True)
class Item(Expr):
    whole: Expr
    index: int


@dataclass(eq=False, slots=True)
class Call(Expr):
    """`attrs` are plain values by name; `attr_text` is how they stand in the text; `stated` the type in the comment behind."""

    callee: Expr
    args: list[Expr]
    attrs: dict[str, Any]
    attr_text: str = ""
    type_args: list[Type] = field(default_factory=list)
    stated: Type | None = None
    kept: bool = False
    """Kept as it stands, as its types do not fit: only in a text that is an expression and no program."""


@dataclass(eq=False, slots=True)
class If(Expr):
    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(eq=False, slots=True)
class Statement:
    """`let %x = value`, `%0 = value` or `value` alone (binder None)."""

    binder: Binder | None
    value: Expr


@dataclass(eq=False, slots=True)
class BlockExpression(Expr):
    statements: list[Statement]
    result: Expr


@dataclass(eq=False, slots=True)
class Fn(Expr):
    params: list[Binder]
    body: Expr
    result: Type | None
    type_params: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    instance: Any = None
    """The function's type as its text has it, before instantiation; and inference's own notes."""


@dataclass(eq=False, slots=True)
class Pattern:
    start: int
    end: int


@dataclass(eq=False, slots=True)
class AnyPattern(Pattern):
    """`_`, or a variable."""

    binder: Binder | None


@dataclass(eq=False, slots=True)
class TuplePattern(Pattern):
    items: list[Pattern]


@dataclass(eq=False, slots=True)
class ConstructorPattern(Pattern):
    name: str
    items: list[Pattern]


@dataclass(eq=False, slots=True)
class Clause:
    pattern: Pattern
    body: Expr


@dataclass(eq=False, slots=True)
class Match(Expr):
    value: Expr
    clauses: list[Clause]
    complete: bool


@dataclass(eq=False, slots=True)
class Definition:
    """`def @name ...`; `start` and `end` are those of the name."""

    name: str
    start: int
    end: int
    fn: Fn


@dataclass(eq=False, slots=True)
class Constructed:
    """One constructor in a type definition."""

    name: str
    start: int
    end: int
    fields: list[Type]


@dataclass(eq=False, slots=True)
class TypeDefinition:
    name: str
    start: int
    end: int
    params: tuple[str, ...]
    constructors: list[Constructed]
    extern: bool = False


@dataclass(eq=False, slots=True)
class Program:
    """A module, or an expression alone (`expression`, whose parameters are the free variables)."""

    definitions: list[Definition]
    types: list[TypeDefinition]
    expression: Fn | None = None
    warnings: list[Diagnostic] = field(default_factory=list)


# --- names ----------------------------------------------------------------------------------------------------------


class Scopes:
    """Open scopes, innermost last; beside each what the scopes within it have left behind.

    TVM prints an expression that is shared where it first meets it, be it within a nested block, and names it from outside too:
    what a block of the same function has bound is found behind the block. Not so what `let` has bound in a branch, a clause or
    another function: there it may never have had a value.
    """

    def __init__(self) -> None:
        self._open: list[dict[str, Binder]] = [{}]
        self._left: list[dict[str, Binder]] = [{}]

    def enter(self) -> None:
        self._open.append({})
        self._left.append({})

    def leave(self, known: str) -> None:
        """Ends the innermost scope. Behind it `all` of its names stay known, `none`, or the `numbered` ones: each is an expression,
        and no place in the order of the program."""
        for names in (self._left.pop(), self._open.pop()):
            if known != "none":
                self._left[-1].update((name, b) for name, b in names.items() if known == "all" or name[1:].isdigit())

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


class FreeVariables:
    """The free variables of function literals, in the order of first use: what closures capture. Each literal is looked at once."""

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
                case VariableUse():
                    yield e.binder
                case Fn():
                    yield from self.of(e)
                case TupleOf():
                    stack += reversed(e.items)
                case Item():
                    stack.append(e.whole)
                case If():
                    stack += (e.otherwise, e.then, e.condition)
                case BlockExpression():
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
