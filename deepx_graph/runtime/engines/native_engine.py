"""The fast engine: kernels as machine code where it has the words for them, those of the numexpr engine for the rest.

Needs llvmlite (the extra `deepx-graph[native]`). Values are those of eval up to rounding:
no operation is reordered except the sums.
"""

from __future__ import annotations

from deepx_graph.ir import Function
from deepx_graph.runtime.engines.numexpr_engine import CompiledKernel, NumexprEngine
from deepx_graph.runtime.kernels.execute import build as build_blocks
from deepx_graph.runtime.native.kernel import attempt


class NativeEngine(NumexprEngine):
    """Makes callables for nodes. `threads` is how many cores a kernel may use; None for all that the process has."""

    name = "native"

    def build(self, function: Function) -> CompiledKernel | None:
        """The kernel of a body in machine code, else in blocks of numpy's loops; None where it has neither."""
        found = attempt(function, self.threads)
        if not isinstance(found, str):
            return found
        blocks = build_blocks(function, self.threads)
        if blocks is not None:
            blocks.way = f"{blocks.way}: {found}"
        return blocks
