"""Dead code elimination. Nodes that nothing needs are not part of a function to begin with; what else is dead goes here.

Unused loop variables and branch values, with all that only they need; and private functions that no public one reaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.ir import Function, Module
from deepx_graph.ir.structure import CALL, PARTIAL, callee_of
from deepx_graph.passes.scalar.dead_columns import prune
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.rewrite.engine import function_attrs


@dataclass(frozen=True)
class Dce(Pass):
    """Drops unused loop variables, branch values and private functions."""

    name: ClassVar[str] = "dce"

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        module = module.with_functions(prune(f, control, invariants=False) for f in module.functions)
        if control.exhausted:
            return module
        needed = reached(module)
        return module.with_functions(f for f in module.functions if f.name in needed)


def reached(module: Module) -> set[str]:
    """The names of the functions that the entry or a public function may call."""
    names: set[str] = set()
    work = [f.name for f in module.functions if f.public or f.name == module.entry_name]
    while work:
        name = work.pop()
        if name in names or name not in module:
            continue
        names.add(name)
        work += references(module[name])
    return names


def references(function: Function) -> list[str]:
    """The functions that this one calls, binds, or names as its derivative; those of functions in attributes included."""
    found = [callee_of(n) for n in function.nodes if n.op in (CALL, PARTIAL)]
    for body in bodies(function):
        found += references(body)
    return found + ([function.vjp] if function.vjp else [])


def bodies(function: Function) -> Iterator[Function]:
    """The functions in attributes of the function's nodes."""
    for node in function.nodes:
        for k in function_attrs(node.op):
            yield node.attrs[k]
