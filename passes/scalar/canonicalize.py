"""The canonicalize pass: one form for what can be written in many, in shapes and in control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.ir import Function, Module
from deepx_graph.passes.rules.compare import ORDERS
from deepx_graph.passes.rules.control import CONTROL
from deepx_graph.passes.rules.data_movement import MOVES
from deepx_graph.passes.rules.shape import SHAPES
from deepx_graph.passes.rules.windows import WINDOWS
from deepx_graph.passes.scalar.dead_columns import prune
from deepx_graph.passes.scalar.loops import merge_equal_variables, once
from deepx_graph.rewrite.base import Pass, PassError, RewriteControl
from deepx_graph.rewrite.engine import Rule, RuleSet, rewrite_function

CANONICAL: tuple[Rule, ...] = CONTROL + SHAPES + MOVES + WINDOWS + ORDERS
"""The rules of this pass."""


MAX_ROUNDS = 1000
"""More rounds than any nest of loops needs."""


def settle(module: Module, rules: RuleSet, control: RewriteControl) -> Module:
    """The module in normal form under the rules, with no unneeded loop variable or branch value left.

    Each may make work for the other, so they alternate; every round but the last removes something.
    """
    bodies: dict[Function, Function] = {}

    def settled(function: Function) -> Function:
        for _ in range(MAX_ROUNDS):
            function = _straight(function, control)
            after = rewrite_function(function, rules, control, bodies=bodies)
            if after is function or control.exhausted:
                return after
            function = after
        raise PassError(f"rewriting '{function.name}' does not end")

    return module.with_functions(map(settled, module.functions))


def _straight(function: Function, control: RewriteControl) -> Function:
    """Without unneeded variables and branch values, variables that are always equal, and loops that iterate at most once."""
    while True:
        before = function
        for step in (_pruned, merge_equal_variables, once):
            function = step(function, control)
        if function is before:
            return function


def _pruned(function: Function, control: RewriteControl) -> Function:
    return prune(function, control, invariants=True)


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Shortens chains of shape operations, and branches, loops and calls whose course is known."""

    name: ClassVar[str] = "canonicalize"

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        return settle(module, RuleSet(CANONICAL), control)
