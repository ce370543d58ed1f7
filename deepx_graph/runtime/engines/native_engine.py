"""The fast engine: kernels as machine code where it has the words for them, those of the numexpr engine for the rest.

Needs llvmlite (the extra `deepx-graph[native]`). Values are those of eval up to rounding:
no operation is reordered except the sums.
"""

from __future__ import annotations

from typing import Any

from deepx_graph.ir import Function, Node
from deepx_graph.literal import Array
from deepx_graph.ops.reduce import reduce
from deepx_graph.runtime.engine import EntryFn
from deepx_graph.runtime.engines.numexpr_engine import CompiledKernel, NumexprEngine, alone, is_tensor, key_of
from deepx_graph.runtime.kernels.execute import build as build_blocks
from deepx_graph.runtime.native.entry import entry
from deepx_graph.runtime.native.kernel import NativeKernel, attempt
from deepx_graph.runtime.segments import Segment
from deepx_graph.types import TensorType


class NativeEngine(NumexprEngine):
    """Makes callables for nodes. `threads` is how many cores a kernel may use; None for all that the process has."""

    name = "native"

    def __init__(self, threads: int | None = None) -> None:
        super().__init__(threads)
        self._alone: dict[Any, NativeKernel | None] = {}
        """Kernels of single operations, which are worth it only among others."""

    def build(self, function: Function) -> CompiledKernel | None:
        """The kernel of a body in machine code, else in blocks of numpy's loops; None where it has neither."""
        found = attempt(function, self.threads)
        if not isinstance(found, str):
            return found
        blocks = build_blocks(function, self.threads)
        if blocks is not None:
            blocks.way = f"{blocks.way}: {found}"
        return blocks

    def joins(self, node: Node) -> bool:
        """Whether machine code for the node, made now where it runs by its eval alone, reads the operands as they lie."""
        kernel = self._machine_code(node)
        return kernel is not None and kernel.reads_plainly([t.shape for i in node.inputs if isinstance(t := i.type, TensorType)])

    def _machine_code(self, node: Node) -> NativeKernel | None:
        kernel = self._compiled(node)
        if kernel is None and (node.op.elementwise or node.op is reduce):
            key = key_of(node)
            if key not in self._alone:
                found = attempt(alone(node), self.threads) if is_tensor(node) else ""
                self._alone[key] = None if isinstance(found, str) else found
            return self._alone[key]
        return kernel if isinstance(kernel, NativeKernel) else None

    def joined(self, segment: Segment, busy: Array) -> EntryFn | None:
        """The machine function that runs a segment; None where Python or numpy is not as it expects them."""
        kernels = [k for s in segment.steps if (k := self._machine_code(s.node)) is not None]
        return entry(segment, kernels, busy)
