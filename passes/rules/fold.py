"""Constant folding: an operation on constants is the constant that its `eval` gives. There is no second definition.

Constants that are one value throughout are folded on that one element whatever their size; others only up to `max_bytes`, so that
optimisation never makes the program much larger than it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Builder, Module, Node, Op
from deepx_graph.ir.peephole import FOLD_LIMIT, fold
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.literal import Literal
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.rewrite.engine import Rule, RuleSet, rewrite, rule
from deepx_graph.types import TensorType, Type


def constant_value(op: Op, literals: Sequence[Literal], attrs: tuple[Any, ...], type: Type, limit: int) -> Any:
    """The value of the op on constants, as Literal or a tuple of them; None when it is too large, or fails."""
    if not op.foldable or op.eval is None or not literals:
        return None
    try:
        with np.errstate(all="ignore"):
            return _splat(op, literals, attrs, type) or _whole(op, literals, attrs, type, limit)
    except DeepxGraphError:  # a program that fails when it runs must do so when it runs
        return None


def _splat(op: Op, literals: Sequence[Literal], attrs: tuple[Any, ...], type: Type) -> Literal | None:
    """Elementwise ops, and those that only move elements, on constants with one value throughout."""
    if not isinstance(type, TensorType) or not type.is_static or not (op.elementwise or (op.view and len(literals) == 1)):
        return None
    values = [x.splat_value for x in literals]
    if type.size <= 1 or any(v is None for v in values) or op.eval is None:
        return None
    value = op.eval([np.asarray(v) for v in values], *attrs) if op.elementwise else values[0]
    return Literal.splat(value, type)


def _whole(op: Op, literals: Sequence[Literal], attrs: tuple[Any, ...], type: Type, limit: int) -> Any:
    if any(x.is_splat and x.type.nbytes > limit for x in literals):
        return None  # one element stands for many: evaluating would make them all
    held = [Node(CONSTANT, (), (x,), x.type) for x in literals]
    return fold(op, held, attrs, type, limit)


def fold_rule(limit: int) -> Rule:
    """The folding rule, for constants of up to `limit` bytes."""

    @rule(lambda op: op.foldable and op.eval is not None, over=(CONSTANT,), no_other=True)
    def fold(b: Builder, node: Node) -> Node | None:
        """op(constants) = constant"""
        value = constant_value(node.op, [value_of(i) for i in node.inputs], node.attrs, node.type, limit)
        if isinstance(value, tuple):
            return b.pack(*map(b.literal, value))
        return None if value is None else b.literal(value)

    return fold


def folded(b: Builder, op: Op, *inputs: Node) -> Node | None:
    """The constant `op(inputs)` for a rule that combines constants; None when they are not, or it would be too large."""
    if any(i.op is not CONSTANT for i in inputs):
        return None
    type = op.infer([i.type for i in inputs])
    value = constant_value(op, [value_of(i) for i in inputs], (), type, FOLD_LIMIT)
    return b.literal(value) if isinstance(value, Literal) else None


@dataclass(frozen=True)
class Fold(Pass):
    """Evaluates operations whose operands are all constants."""

    name: ClassVar[str] = "fold"
    max_bytes: int = FOLD_LIMIT

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        return rewrite(module, RuleSet((fold_rule(self.max_bytes),)), control)
