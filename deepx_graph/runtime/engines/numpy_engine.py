"""The reference engine: every kernel is `op.eval`, by blocks where that is elementwise.

Slow, plain, and what all other engines are tested against.
"""

from __future__ import annotations

from deepx_graph.blas import available_cores
from deepx_graph.ir import Node
from deepx_graph.runtime.cost import counts as cost_counts
from deepx_graph.runtime.cost.model import Forecast
from deepx_graph.runtime.engines.base import Engine, KernelFn, by_eval


class NumpyEngine(Engine):
    """`op.eval` in order. It never writes into memory it is given. `threads` is how many cores BLAS may use; None for all."""

    name = "numpy"

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or available_cores()

    def forecast(self, node: Node) -> Forecast:
        """How long the node's eval will take."""
        return cost_counts.alone(node, self.threads)

    def kernel(self, node: Node) -> KernelFn:
        return by_eval(node)

    def writes(self, node: Node) -> bool:
        return False
