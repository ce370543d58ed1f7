"""Patterns over operations, compiled once into matchers.

`op_of(add, X, 0)` matches an `add` of anything and the constant 0. Variables bind nodes; the same variable twice asks for the
same node. A pattern over a commutative op matches both ways round: a rule writes one. Patterns are a few levels deep and look at
operands only, never at users.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deepx_graph.ir import Node, Op
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import CONSTANT

Env = dict[str, Any]
"""What the variables of a pattern stand for, and what else a rule's function may ask for by name."""
Matcher = Callable[[Node, Env], bool]


@dataclass(frozen=True)
class Var:
    """Any node."""

    name: str


@dataclass(frozen=True)
class Const:
    """Any constant."""

    name: str


@dataclass(frozen=True)
class OpPattern:
    """A node of `op` with these operands and, where given, these attribute values."""

    op: Op
    args: tuple[Pattern, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


Pattern = Var | Const | OpPattern | int | float
"""A number matches a constant all of whose elements are exactly it; -0.0 is not 0.0."""

X, Y, Z = Var("x"), Var("y"), Var("z")
C, D = Const("c"), Const("d")


def op_of(op: Op, *args: Pattern, **attrs: Any) -> OpPattern:
    """The pattern. Raises ValueError when the op does not take so many operands or has no such attribute."""
    if len(args) != len(op.operands) or any(o.variadic for o in op.operands):
        raise ValueError(f"{op.name} does not take {len(args)} operands")
    for name in attrs:
        if name not in op.attr_index:
            raise ValueError(f"{op.name} has no attribute {name!r}")
    return OpPattern(op, args, attrs)


def variables(pattern: Pattern) -> set[str]:
    """The names that a match binds."""
    if isinstance(pattern, OpPattern):
        return set().union(*map(variables, pattern.args))
    return {pattern.name} if isinstance(pattern, (Var, Const)) else set()


def operand_ops(pattern: OpPattern) -> frozenset[Op]:
    """Ops that a node must have among its operands to match."""
    found = [p.op for p in pattern.args if isinstance(p, OpPattern)]
    return frozenset(found + [CONSTANT] * any(isinstance(p, (Const, int, float)) for p in pattern.args))


def matchers(pattern: Pattern) -> tuple[Matcher, ...]:
    """One matcher for each way to write the pattern with its commutative operands swapped, the given way first."""
    return tuple(_compile(p) for p in _orders(pattern))


def _orders(pattern: Pattern) -> Iterator[Pattern]:
    if not isinstance(pattern, OpPattern):
        yield pattern
        return
    swaps = pattern.op.commutative and len(pattern.args) == 2 and pattern.args[0] != pattern.args[1]
    for args in itertools.product(*map(list, map(_orders, pattern.args))):
        yield OpPattern(pattern.op, args, pattern.attrs)
        if swaps:
            yield OpPattern(pattern.op, args[::-1], pattern.attrs)


def _compile(pattern: Pattern) -> Matcher:
    match pattern:
        case Var(name):
            return _variable(name)
        case Const(name):
            variable = _variable(name)
            return lambda node, env: node.op is CONSTANT and variable(node, env)
        case OpPattern(op, args, attrs):
            return _operation(op, tuple(map(_compile, args)), [(op.attr_index[k], v) for k, v in attrs.items()])
    return lambda node, env: is_number(node, pattern)


def _variable(name: str) -> Matcher:
    return lambda node, env: env.setdefault(name, node) is node


def _operation(op: Op, operands: tuple[Matcher, ...], attrs: list[tuple[int, Any]]) -> Matcher:
    def match(node: Node, env: Env) -> bool:
        if node.op is not op:
            return False
        for at, value in attrs:
            if node.attrs[at] != value:
                return False
        for matches, i in zip(operands, node.inputs, strict=True):  # noqa: SIM110  # a third of the time that `all` takes
            if not matches(i, env):
                return False
        return True

    return match


def is_number(node: Node, number: float) -> bool:
    """Whether the node is a real constant all of whose elements are exactly the number, the sign of zero included."""
    value = splat_of(node)
    if value is None or value.dtype.kind == "c" or value != number:
        return False
    return number != 0 or value.dtype.kind in "biu" or bool(np.signbit(value) == np.signbit(number))
