"""The algebra pass: laws that ops declare, and the rules of arithmetic, powers and logic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.ir import Module
from deepx_graph.passes.rules.arithmetic import ARITHMETIC
from deepx_graph.passes.rules.logic import LOGIC
from deepx_graph.passes.rules.powers import POWERS
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.rewrite.engine import Rule, RuleSet, rewrite

ALGEBRA: tuple[Rule, ...] = ARITHMETIC + POWERS + LOGIC
"""The rules of this pass."""


@dataclass(frozen=True)
class Algebra(Pass):
    """Applies algebraic laws; those that change float results only with fast-math."""

    name: ClassVar[str] = "algebra"
    fast_math: bool = False

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        return rewrite(module, RuleSet(ALGEBRA, fast_math=self.fast_math), control)
