"""Passes that bring a program into a normal form by rules: algebra, canonicalize, both with folding; scales within weights;
legalise for a language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.errors import Diagnostic, UsageError, suggest
from deepx_graph.ir import Function, Module
from deepx_graph.ir.peephole import FOLD_LIMIT
from deepx_graph.passes.rules.arithmetic import ARITHMETIC
from deepx_graph.passes.rules.control import CONTROL
from deepx_graph.passes.rules.data_movement import MOVES
from deepx_graph.passes.rules.fold import fold_rule
from deepx_graph.passes.rules.logic import LOGIC, ORDERS
from deepx_graph.passes.rules.powers import POWERS
from deepx_graph.passes.rules.ranges import RANGES
from deepx_graph.passes.rules.scales import SCALES
from deepx_graph.passes.rules.selection import SELECTIONS
from deepx_graph.passes.rules.shape import SHAPES
from deepx_graph.passes.rules.windows import WINDOWS
from deepx_graph.passes.scalar.dce import prune
from deepx_graph.passes.scalar.loops import merge_equal_variables, once
from deepx_graph.rewrite import TARGETS
from deepx_graph.rewrite.base import Pass, PassError, RewriteControl
from deepx_graph.rewrite.engine import Rule, RuleSet, rewrite, rewrite_function
from deepx_graph.rewrite.legalise import legalise

ALGEBRA: tuple[Rule, ...] = ARITHMETIC + POWERS + LOGIC
CANONICAL: tuple[Rule, ...] = CONTROL + SHAPES + MOVES + WINDOWS + SELECTIONS + ORDERS + RANGES

EXTENSIONS: list[Rule] = []
"""Rules that plugins have registered."""

MAX_ROUNDS = 1000
"""More rounds than any nest of loops needs."""


@dataclass(frozen=True)
class Algebra(Pass):
    """Applies algebraic laws; those that change float results only with fast-math."""

    name: ClassVar[str] = "algebra"
    fast_math: bool = False

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        return rewrite(module, RuleSet(ALGEBRA, fast_math=self.fast_math), control)


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Shortens chains of shape operations, and branches, loops and calls whose course is known."""

    name: ClassVar[str] = "canonicalize"

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        return settle(module, RuleSet(CANONICAL), control)


@dataclass(frozen=True)
class FoldScaleAxis(Pass):
    """Folds scales and shifts along an axis of a product or convolution into its weights, up to rounding."""

    name: ClassVar[str] = "fold-scale-axis"

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        return rewrite(module, RuleSet(SCALES, fast_math=True), control)


@dataclass(frozen=True)
class Simplify(Pass):
    """Runs fold, algebra and canonicalize together until none of their rules applies."""

    name: ClassVar[str] = "simplify"
    fast_math: bool = False
    max_bytes: int = FOLD_LIMIT

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        rules = RuleSet((fold_rule(self.max_bytes), *CANONICAL, *ALGEBRA, *EXTENSIONS), fast_math=self.fast_math)
        return settle(module, rules, control)


def settle(module: Module, rules: RuleSet, control: RewriteControl) -> Module:
    """The module in normal form under the rules, with no unneeded loop variable or branch value left.

    Each may make work for the other, so they alternate; every round but the last removes something.
    """
    bodies: dict[Function, Function] = {}

    def settled(function: Function) -> Function:
        normal: Function | None = None
        for _ in range(MAX_ROUNDS):
            function = _straight(function, control)
            if function is normal or control.exhausted:  # in normal form already: rules end where none applies any more
                return function
            normal = function = rewrite_function(function, rules, control, bodies=bodies)
        raise PassError(f"rewriting '{function.name}' does not end")

    return module.with_functions(map(settled, module.functions))


def _straight(function: Function, control: RewriteControl) -> Function:
    """Without unneeded variables and branch values, variables that are always equal, and loops that iterate at most once."""
    before = None
    while function is not before:
        before = function
        function = once(merge_equal_variables(prune(function, control, invariants=True), control), control)
    return function


@dataclass(frozen=True)
class Legalise(Pass):
    """Decomposes what a language lacks into operations that it has."""

    name: ClassVar[str] = "legalise"
    target: str = "hlo"

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        """Raises UsageError for a target that is none."""
        if self.target not in TARGETS:
            raise UsageError(Diagnostic(f"legalise: no target '{self.target}'", expected=" | ".join(TARGETS),
                                        hint=suggest(self.target, TARGETS)))
        return legalise(module, TARGETS[self.target](), lambda before, after: control.permit("decompose", before, after))
