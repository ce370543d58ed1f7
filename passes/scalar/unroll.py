"""The unroll pass: short loops written out, so that later passes see through their iterations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.ir import Module
from deepx_graph.passes.scalar.loops import unroll
from deepx_graph.rewrite.base import Pass, RewriteControl


@dataclass(frozen=True)
class Unroll(Pass):
    """Writes out loops that run a known, small number of times and hold no other loop."""

    name: ClassVar[str] = "unroll"
    max_trips: int = 8
    max_nodes: int = 1000

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        return module.with_functions(
            unroll(f, control, lambda loop, count: count <= self.max_trips and count * len(loop.inside) <= self.max_nodes)
            for f in module.functions)
