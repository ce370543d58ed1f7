"""The engine that always works: cache blocks of numpy's vector loops on several threads, numexpr's machine for small arithmetic.

Kernels are those of `runtime.kernels`. The values are those of eval in any case, up to the order of floating sums.
No name of a program is ever in a text that is evaluated, and no global setting of numexpr is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph.analysis.liveness import has_control
from deepx_graph.ir import Function, Node
from deepx_graph.ir.evaluation import staged
from deepx_graph.ir.rebuild import alone
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.ops.contract.reduce import reduce
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.rewrite.control.outline import outlined
from deepx_graph.rewrite.product_types import widened
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.gemm import small_product
from deepx_graph.runtime.engines.kernel_engine import CompiledKernel, KernelBuilder, KernelEngine, is_tensor
from deepx_graph.runtime.kernels import costs
from deepx_graph.runtime.kernels.execute import build
from deepx_graph.runtime.kernels.staged import reduction_function, staged_function
from deepx_graph.types import TensorType, Type, is_static, leaves


class NumexprEngine(KernelEngine):
    """Kernels of numpy's loops and numexpr's machine."""

    name = "numexpr"
    stages = True

    @property
    def builders(self) -> Sequence[KernelBuilder]:
        return _scalar_loops, lambda function: build(function, self.threads)

    def canonicalize(self, function: Function, *, apart: bool = False) -> Function:
        """Matrix products of narrow floats as those of f32, which BLAS knows, and loops over scalars as kernels."""
        return outlined(widened(super().canonicalize(function), _is_float_product), self._is_scalar_loop)

    def _is_scalar_loop(self, body: Function) -> bool:
        """Whether there is a kernel for a loop; makes it."""
        return self._remembered(body, lambda: _scalar_loops(body)) is not None

    def staged(self, node: Node) -> Callable[..., Any] | None:
        """The node's kernel as a function of its operands alone; None for one of large tensors, or of an op that stages nothing."""
        rule = _STAGED.get(node.op, _small_elementwise if node.op.elementwise else staged)
        try:
            return rule(node)
        except Declined:
            return None


def _scalar_loops(function: Function) -> CompiledKernel:
    """The kernel of a function with loops over scalars. Raises Declined. Starting without any should cost little."""
    if not has_control(function):
        raise Declined
    from deepx_graph.runtime.kernels import scalar_loops
    return scalar_loops.build(function)


def _small_elementwise(node: Node) -> Callable[..., Any] | None:
    return _small(node, alone(node)) if is_tensor(node) else None


def _small(node: Node, function: Function) -> Callable[..., Any] | None:
    """A function of small tensors."""
    return staged_function(function) if all(is_small(n.type) for n in (node, *node.inputs)) else None


_STAGED: dict[object, Callable[[Node], Callable[..., Any] | None]] = {
    fusion: lambda node: _small(node, node.attr("body")), dot_general: small_product, reduce: reduction_function,
}  # fmt: skip


def _is_float_product(node: Node) -> bool:
    return node.op is dot_general and isinstance(node.type, TensorType) and node.type.dtype.is_float


def is_small(type: Type) -> bool:
    """Whether all of a value are small tensors."""
    return all(isinstance(t, TensorType) and is_static(t) and t.size <= costs.STAGED_ELEMENTS for t in leaves(type))
