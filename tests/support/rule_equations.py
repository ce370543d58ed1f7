"""Rewrite rules as equations, from their declarations: a rule's pattern over values of which nothing is known, and what the rule
itself makes of it. What is no equation has one of a few reasons.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Mapping

from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Builder, Node
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.rewrite.engine import Rule
from deepx_graph.rewrite.pattern import Const, OpPattern, Pattern, Var, variables
from deepx_graph.types import BOOL, F32, I32, DType, TensorType, tensor

SIZES = (2, 3, 5, 7)
"""Of the dimensions of the values of an equation; terms do not hold sizes."""


class NoEquation(enum.Enum):
    """Why a rule is no equation between values."""

    CODE = "what it applies to is said by code, and not by a pattern"
    CONSTANTS = "it is about any constant, with which it computes"
    ATTRIBUTES = "it is about attributes: sizes, places, directions, element types"
    SHAPED = "it gives a constant of the shape of its operands"
    TYPES = "it does not apply to values of this type and rank"


def equation(rule: Rule, dtype: DType = F32, rank: int = 2) -> tuple[Node, Node] | NoEquation:
    """Both sides, over parameters that stand for any values, with values of one type among them; else why there are none."""
    if rule.pattern is None:
        return NoEquation.CODE
    if any(isinstance(p, Const) for p in _parts(rule.pattern)):
        return NoEquation.CONSTANTS
    if not all(p.op.elementwise and (p.attrs or not p.op.attrs) for p in _parts(rule.pattern) if isinstance(p, OpPattern)):
        return NoEquation.ATTRIBUTES
    names, shape = sorted(variables(rule.pattern)), SIZES[:rank]
    for dtypes in itertools.product(dict.fromkeys((dtype, BOOL)), repeat=len(names)):
        b = Builder()
        given = {name: b.param(k, tensor(d, shape), name) for k, (name, d) in enumerate(zip(names, dtypes, strict=True))}
        before = _made(b, rule.pattern, given, dtype)
        after = None if before is None or before.type.dims != shape else rule.apply(before, b)  # type: ignore[attr-defined]
        if before is not None and after is not None and after.type == before.type and dtype in dtypes:
            return NoEquation.SHAPED if any(map(_is_shaped, _nodes(after))) else (before, after)
    return NoEquation.TYPES


def _made(b: Builder, pattern: Pattern, given: Mapping[str, Node], dtype: DType) -> Node | None:
    """A node that the pattern matches; None where operations do not take values of these types."""
    if isinstance(pattern, (Var, Const)):
        return given[pattern.name]
    if not isinstance(pattern, OpPattern):
        return b.constant(pattern, BOOL if isinstance(pattern, bool) else dtype)
    operands = [_made(b, p, given, dtype) for p in pattern.args]
    try:
        return None if None in operands else b(pattern.op, *operands, **pattern.attrs)  # type: ignore[arg-type]
    except (DeepxGraphError, TypeError):
        return None


def _parts(pattern: Pattern) -> Iterator[Pattern]:
    yield pattern
    if isinstance(pattern, OpPattern):
        for p in pattern.args:
            yield from _parts(p)


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for i in node.inputs:
        yield from _nodes(i)


def _is_shaped(node: Node) -> bool:
    if node.op is CONSTANT:
        return isinstance(node.type, TensorType) and bool(node.type.dims)
    return node.op is not PARAM and not node.op.elementwise


TYPES = ((F32, 2), (I32, 1), (BOOL, 2))
"""Element types and ranks for which rules are tried."""


def outcome(rule: Rule) -> NoEquation | None:
    """Why a rule is no equation for any of these types; None where it is one."""
    found = [equation(rule, *type) for type in TYPES]
    reasons = [f for f in found if isinstance(f, NoEquation)]
    return None if len(reasons) < len(found) else next((r for r in reasons if r is not NoEquation.TYPES), NoEquation.TYPES)
