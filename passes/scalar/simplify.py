"""The simplify pass: fold, algebra and canonicalize as one set of rules, in one walk, to their common normal form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.ir import Module
from deepx_graph.ir.peephole import FOLD_LIMIT
from deepx_graph.passes.rules.fold import fold_rule
from deepx_graph.passes.scalar.algebra import ALGEBRA
from deepx_graph.passes.scalar.canonicalize import CANONICAL, settle
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.rewrite.engine import RuleSet


@dataclass(frozen=True)
class Simplify(Pass):
    """Runs fold, algebra and canonicalize together until none of their rules applies."""

    name: ClassVar[str] = "simplify"
    fast_math: bool = False
    max_bytes: int = FOLD_LIMIT

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        rules = RuleSet((fold_rule(self.max_bytes), *CANONICAL, *ALGEBRA), fast_math=self.fast_math)
        return settle(module, rules, control)
