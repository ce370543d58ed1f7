"""The algebra pass: laws that ops declare, and the rules of arithmetic, powers and logic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.ir import Module
from deepx_graph.passes.base import Pass, RewriteControl
from deepx_graph.passes.rewrite import Rule, RuleSet, rewrite
from deepx_graph.passes.rules_arithmetic import ARITHMETIC
from deepx_graph.passes.rules_logic import LOGIC
from deepx_graph.passes.rules_powers import POWERS

ALGEBRA: tuple[Rule, ...] = ARITHMETIC + POWERS + LOGIC
"""The rules of this pass."""


@dataclass(frozen=True)
class Algebra(Pass):
    """Applies algebraic laws; those that change float results only with fast-math."""

    name: ClassVar[str] = "algebra"
    fast_math: bool = False

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        return rewrite(module, RuleSet(ALGEBRA, fast_math=self.fast_math), control)
