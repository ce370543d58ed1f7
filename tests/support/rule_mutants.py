"""Rewrite rules with one fault each: a wrong operand, a missing guard or a wrong constant.

The fault is put into the source of a rule's function, so that it stands where a person would make it: two arguments exchanged or
another operand given, an `if` that is never true, a number that is one more. A rule whose function has no such place says all of
itself in its pattern; the fault is put there.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from deepx_graph.rewrite.engine import Rule
from deepx_graph.rewrite.pattern import Const, OpPattern, Pattern, Var, matchers, operand_ops, variables

KINDS = ("wrong operand", "missing guard", "wrong constant")
DIRECTIONS = {"EQ": "NE", "NE": "EQ", "LT": "LE", "LE": "LT", "GT": "GE", "GE": "GT"}
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
            if made == MOST:
                break
            mutant = _guardless(r) if kind == KINDS[1] and number == 0 and r.exact is not None else _mutated(r, kind, number)
            if mutant is None:
                break
            made += 1
            yield RuleMutant(mutant, kind, number)
        patterns = [p for other, p in _in_pattern(r) if other == kind] if not made else []
        yield from (RuleMutant(p, kind, 100 + k) for k, p in enumerate(patterns[:MOST]))


def _in_pattern(r: Rule) -> Iterator[tuple[str, Rule]]:
    """The rule with a fault in its pattern: a constant that is another or any; operands that need no longer be the same, or of an
    operation, or that are exchanged; a variable given to the function in the place of another."""
    if r.pattern is None:
        return
    for kind, pattern in _faulty(r.pattern, Counter(_names(r.pattern))):
        assert isinstance(pattern, OpPattern)
        yield kind, replace(r, pattern=pattern, matchers=matchers(pattern), operands=operand_ops(pattern))
    given = [p for p in r.params if p not in ("b", "node")]
    for name in given:
        for other in sorted(variables(r.pattern) - {name}):
            yield KINDS[0], replace(r, params=tuple(other if p == name else p for p in r.params))


def _faulty(pattern: Pattern, often: Counter[str], outermost: bool = True) -> Iterator[tuple[str, Pattern]]:
    match pattern:
        case bool() | int() | float():
            yield KINDS[2], not pattern if isinstance(pattern, bool) else pattern + 1
            yield KINDS[1], Const("any")
        case Var(name) if often[name] > 1:
            yield KINDS[1], Var("other")
        case OpPattern(_, (Var() as alone,), _) if not outermost:
            yield KINDS[1], alone
        case OpPattern(op, args, attrs):
            if len(args) == 2 and args[0] != args[1] and not op.commutative:
                yield KINDS[0], OpPattern(op, args[::-1], attrs)
            for k, arg in enumerate(args):
                yield from ((kind, OpPattern(op, (*args[:k], a, *args[k + 1 :]), attrs)) for kind, a in _faulty(arg, often, False))


def _names(pattern: Pattern) -> Iterator[str]:
    if isinstance(pattern, OpPattern):
        for arg in pattern.args:
            yield from _names(arg)
    elif isinstance(pattern, Var):
        yield pattern.name


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
    params = r.params
    if "node" not in params and any(isinstance(n, ast.Name) and n.id == "node" for n in ast.walk(function)):
        function.args.args.append(ast.arg("node"))
        params = (*params, "node")
    ast.fix_missing_locations(tree)
    free = inspect.getclosurevars(action)
    names = {**action.__globals__, **free.nonlocals}
    exec(compile(tree, "<mutant>", "exec"), names)
    return replace(r, action=names[function.name], params=params)


Fault = Callable[[], Any]


def _operands(n: ast.AST) -> Iterator[Fault]:
    """Arguments of a call of the builder exchanged; another of the rule's nodes in the place of one; a result that is another."""
    if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "b":
        for k in range(1, len(n.args) - 1):
            yield lambda k=k: n.args.__setitem__(slice(k, k + 2), [n.args[k + 1], n.args[k]])  # type: ignore[misc]
    if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Attribute) and n.value.attr == "inputs" \
            and isinstance(n.slice, ast.Constant) and n.slice.value in (0, 1):
        yield lambda: setattr(n, "slice", ast.Constant(1 - n.slice.value))  # type: ignore[attr-defined]
    if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "simplify":
        yield lambda: n.args.__setitem__(1, ast.parse("node.inputs[::-1]", mode="eval").body)
    if isinstance(n, ast.Return) and isinstance(n.value, ast.IfExp):
        yield lambda: setattr(n, "value", _exchanged(n.value))  # type: ignore[arg-type]
    if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "b":
        for k, arg in enumerate(n.args[1:], 1):
            if isinstance(arg, ast.Name):
                yield from (lambda k=k, other=other: n.args.__setitem__(k, _operand(other)) for other in (0, -1))  # type: ignore[misc]
    if isinstance(n, ast.Return) and isinstance(n.value, ast.Name):
        yield from (lambda other=other: setattr(n, "value", _operand(other)) for other in (0, -1))  # type: ignore[misc]


def _operand(number: int) -> ast.expr:
    """The first or last operand of the node that a rule is applied to."""
    return ast.parse(f"node.inputs[{number}]", mode="eval").body


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
    if isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value in DIRECTIONS:
        other = DIRECTIONS[n.value]
        yield lambda: setattr(n, "value", other)


PLACES: dict[str, Callable[[ast.AST], Iterator[Fault]]] = dict(zip(KINDS, (_operands, _guards, _constants), strict=True))
