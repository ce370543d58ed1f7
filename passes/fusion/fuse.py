"""`fuse` puts operations that can run in one pass over their data into `fusion` nodes; `unfuse` takes them out again.

A kernel holds elementwise maps, the broadcasts they read, and reductions over the same axes with what feeds and follows them: a
softmax or a layer norm is one kernel. What may join is decided in `grouping`; the reasons are those that `why` shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deepx_graph.errors import UsageError
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.rebuild import copied, inlined, new_item, rebuilt, with_inputs
from deepx_graph.ir.structure import TUPLE
from deepx_graph.ops import fusion
from deepx_graph.passes.fusion.build import with_kernels
from deepx_graph.passes.fusion.grouping import Grouping, Limits
from deepx_graph.rewrite.base import Pass, RewriteControl


@dataclass(frozen=True)
class Fuse(Pass):
    """Joins operations into kernels that go through their data once.

    `max_ops` and `max_inputs` bound a kernel; `reductions` lets it reduce; `duplicate` computes cheap operations again in each
    kernel that needs them. Raises UsageError for a bound below 2 operations or 1 input.
    """

    name: ClassVar[str] = "fuse"
    max_ops: int = 200
    max_inputs: int = 32
    reductions: bool = True
    duplicate: bool = False

    def __post_init__(self) -> None:
        if self.max_ops < 2 or self.max_inputs < 1:
            raise UsageError("fuse needs max-ops of at least 2 and max-inputs of at least 1")

    @property
    def limits(self) -> Limits:
        """The options as bounds for `Grouping`."""
        return Limits(self.max_ops, self.max_inputs, self.reductions, self.duplicate)

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        """The module with its functions fused; itself where nothing can be."""
        return module.with_functions(
            f if control.exhausted else with_kernels(Grouping(f, self.limits), control) for f in module.functions
        )


@dataclass(frozen=True)
class Unfuse(Pass):
    """Puts the operations of every kernel back into the function."""

    name: ClassVar[str] = "unfuse"

    def run(self, module: Module) -> Module:
        """The module without `fusion` nodes; itself when it has none."""
        return module.with_functions(map(unfused, module.functions))


def unfused(function: Function) -> Function:
    """The function with every `fusion` node replaced by its body; itself when it has none."""
    return rebuilt(function, _opened)


def _opened(node: Node, inputs: tuple[Node, ...]) -> Node:
    if node.op is not fusion:
        return new_item(node, inputs) or with_inputs(node, inputs)
    made = inlined(node.attr("body"), inputs, copied)
    return made[0] if len(made) == 1 else Node(TUPLE, tuple(made), (), node.type, node.origin)
