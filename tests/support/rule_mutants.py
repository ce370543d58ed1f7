"""Rewrite rules with one fault each: a wrong operand, a missing guard or a wrong constant.

The fault is put into the source of a rule's function, so that it stands where a person would make it: two arguments exchanged or
another operand given, an `if` that is never true, a number that is one more.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from deepx_graph.rewrite.engine import Rule

KINDS = ("wrong operand", "missing guard", "wrong constant")
MOST = 3
"""Mutants of one kind and rule."""


@dataclass(frozen=True)
class RuleMutant:
    """A wrong rule."""

    rule: Rule
    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.rule.name}: {self.kind} {self.number}"


def mutants(r: Rule) -> Iterator[RuleMutant]:
    """The mutants of a rule, of each kind up to `MOST`."""
    for kind in KINDS:
        made = 0
        for number in range(40):
            mutant = _guardless(r) if kind == KINDS[1] and number == 0 and r.exact is not None else _mutated(r, kind, number)
            if mutant is not None and made < MOST:
                made += 1
                yield RuleMutant(mutant, kind, number)


def _guardless(r: Rule) -> Rule:
    return replace(r, exact=None)


def _mutated(r: Rule, kind: str, number: int) -> Rule | None:
    """The rule with the fault of that number, None where it has no such place."""
    action = inspect.unwrap(r.action)
    tree = ast.parse(textwrap.dedent(inspect.getsource(action)))
    function = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))
    function.decorator_list, function.returns = [], None
    for a in function.args.args:
        a.annotation = None
    places = [p for n in ast.walk(function) for p in PLACES[kind](n)]
    if number >= len(places):
        return None
    places[number]()
    ast.fix_missing_locations(tree)
    free = inspect.getclosurevars(action)
    names = {**action.__globals__, **free.nonlocals}
    exec(compile(tree, "<mutant>", "exec"), names)
    return replace(r, action=names[function.name])


Fault = Callable[[], Any]


def _operands(n: ast.AST) -> Iterator[Fault]:
    """Arguments of a call of the builder exchanged; another of the rule's nodes in the place of one; a result that is another."""
    if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "b":
        for k in range(1, len(n.args) - 1):
            yield lambda k=k: n.args.__setitem__(slice(k, k + 2), [n.args[k + 1], n.args[k]])  # type: ignore[misc]
    if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Attribute) and n.value.attr == "inputs" \
            and isinstance(n.slice, ast.Constant) and n.slice.value in (0, 1):
        yield lambda: setattr(n, "slice", ast.Constant(1 - n.slice.value))  # type: ignore[attr-defined]
    if isinstance(n, ast.Return) and isinstance(n.value, ast.IfExp):
        yield lambda: setattr(n, "value", _exchanged(n.value))  # type: ignore[arg-type]


def _exchanged(choice: ast.IfExp) -> ast.IfExp:
    other = copy.copy(choice)
    if not any(isinstance(side, ast.Constant) and side.value is None for side in (choice.body, choice.orelse)):
        other.body, other.orelse = choice.orelse, choice.body
    return other


def _guards(n: ast.AST) -> Iterator[Fault]:
    """A condition under which the rule does not apply, taken for false; a part of one left out."""
    if isinstance(n, ast.If) and any(isinstance(s, ast.Return) and _is_none(s.value) for s in n.body):
        yield lambda: setattr(n, "test", ast.Constant(False))
        if isinstance(n.test, ast.BoolOp) and isinstance(n.test.op, ast.Or):
            for k in range(len(n.test.values)):
                yield lambda k=k: n.test.values.__setitem__(k, ast.Constant(False))  # type: ignore[misc, attr-defined]
    if isinstance(n, ast.IfExp) and (_is_none(n.body) or _is_none(n.orelse)):
        yield lambda: setattr(n, "test", ast.Constant(_is_none(n.orelse)))


def _is_none(n: ast.AST | None) -> bool:
    return n is None or (isinstance(n, ast.Constant) and n.value is None)


def _constants(n: ast.AST) -> Iterator[Fault]:
    """A number that is one more, a truth value that is the other, a direction that is another."""
    if isinstance(n, ast.Constant) and isinstance(n.value, (int, float)):
        old = n.value
        yield lambda: setattr(n, "value", not old if isinstance(old, bool) else old + 1)


PLACES: dict[str, Callable[[ast.AST], Iterator[Fault]]] = dict(zip(KINDS, (_operands, _guards, _constants), strict=True))
