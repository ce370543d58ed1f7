"""How a function is arranged for kernels of machine code: the rewrites in their order, and which products are kernels of their own.

Convolutions and matrix products are imported where they are met: starting should cost little.
"""

from __future__ import annotations

from typing import Protocol

from deepx_graph.analysis.liveness import has_control
from deepx_graph.ir import Function, Node
from deepx_graph.ops.contract.convolution import convolution
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.ops.tensor.layout import transpose
from deepx_graph.rewrite.columns import with_columns
from deepx_graph.rewrite.epilogue import with_fused_epilogue
from deepx_graph.rewrite.late_results import with_late_results, with_updates_apart
from deepx_graph.rewrite.product_layouts import canonicalized, in_order
from deepx_graph.rewrite.product_types import widened, with_narrow_operands
from deepx_graph.rewrite.rematerialisation import with_rematerialised
from deepx_graph.rewrite.sparse_updates import with_sparse_updates
from deepx_graph.rewrite.subscript_fusion import with_composed_subscripts
from deepx_graph.rewrite.sums_of_products import as_sums
from deepx_graph.rewrite.whole_windows import as_products
from deepx_graph.runtime.native.loop_program.kernel import LoopKernel
from deepx_graph.runtime.native.loop_program.loop_kernels import Build, with_loop_kernels
from deepx_graph.types import TensorType, as_tensor

MOST_WORK = {(dot_general, "float"): 1 << 12, (dot_general, "complex"): 1 << 14, (convolution, "float"): 1 << 18}
MOST_EXACT_WORK = 1 << 30
"""Multiplications that loop programs do: of floats others are better, by dtype; BLAS is also of very large products of integers."""
LEAST_READS = 3
"""Complex operands whose elements are read less often are best read where they lie: as reals they would be copied."""
MOST_TERMS = 4
"""Of a product of so few terms each element is best done where it is read, in the loops of what follows."""


class KernelMaker(Protocol):
    """Who makes the kernels, and remembers them."""

    threads: int

    def tried(self, build: Build, body: Function) -> object:
        """The kernel that a builder has for a function, or None."""

    def accepts(self, body: Function) -> bool:
        """Whether some builder has a kernel for a function."""

    def loops_of(self, body: Function) -> LoopKernel | None:
        """The kernel of a function as one loop program."""


def arranged(function: Function, kernels: KernelMaker) -> Function:
    """The function with operations brought together in the kernels that do them best, for vectors of the width asked for."""
    function = _with_own_products(as_products(with_sparse_updates(function)))
    function = with_columns(_with_epilogues(function, kernels))
    function = with_loop_kernels(function, kernels.tried, kernels.threads, has_large_products)
    function = with_composed_subscripts(with_updates_apart(function), kernels.loops_of)
    function = with_rematerialised(function, kernels.accepts)
    function = _with_epilogues(function, kernels)  # kernels that have one result now are epilogues, too
    return with_late_results(function, kernels.accepts)


def _with_own_products(function: Function) -> Function:
    """The function with products of the types and layouts that our kernels of them have."""
    from deepx_graph.runtime.native.gemm import kernel as gemm

    function = with_narrow_operands(function, lambda n: any(_converts(n)) or _is_widened(n))
    function = widened(function, lambda n: _is_widened(n) and not (_is_of_integers(n) and any(_converts(n))))
    function = as_sums(function, _is_better_elsewhere)
    return canonicalized(in_order(function, gemm.transposed_before), lambda n: not any(gemm.transposed_before(n)))


def _with_epilogues(function: Function, kernels: KernelMaker) -> Function:
    """The function with the epilogue of a convolution or a product as part of its kernel: no loop, though that may be a kernel."""
    from deepx_graph.runtime.native.gemm import kernel as gemm

    def accepts(body: Function) -> bool:
        return not has_control(body) and kernels.accepts(body)

    def accepts_product(body: Function) -> bool:
        return kernels.tried(gemm.build_with_epilogue, body) is not None if _transposes(body) else accepts(body)

    function = with_fused_epilogue(function, accepts, convolution)
    return with_fused_epilogue(function, accepts_product, dot_general, _converts)


def has_large_products(function: Function) -> bool:
    """Whether tuned kernels, BLAS or `eval` do a product or a convolution of the function better than loops of many terms."""
    return any(map(_is_better_elsewhere, function.nodes))


def _is_better_elsewhere(node: Node) -> bool:
    type = node.type
    if node.op not in (dot_general, convolution) or not isinstance(type, TensorType) or node.op.flops is None:
        return False
    limit = MOST_WORK.get((node.op, type.dtype.kind), MOST_EXACT_WORK)
    work = _work(node)
    is_short = node.op is dot_general and type.dtype.kind == "float" and work <= MOST_TERMS * type.size
    is_thin = type.dtype.kind == "complex" and work < LEAST_READS * max(as_tensor(i.type).size for i in node.inputs)
    return work > limit and not is_short and not is_thin


def _work(node: Node) -> int:
    """Multiplications of a product or a convolution."""
    assert node.op.flops is not None
    return node.op.flops([i.type for i in node.inputs], node.type, *node.attrs) // 2


def _converts(node: Node) -> tuple[bool, ...]:
    """Which operands a product converts while it packs them."""
    from deepx_graph.runtime.native.gemm import kernel as gemm

    plan = gemm.converted_plan(node) if node.op is dot_general else None
    return () if plan is None else tuple(source is not None for source in plan.sources)


def _is_widened(node: Node) -> bool:
    """Whether the node is a product or a convolution of narrow floats or of integers that pays for conversions."""
    if _is_of_integers(node):
        return _work(node) > MOST_WORK[node.op, "float"]
    return _is_better_elsewhere(node) or node.op is convolution


def _is_of_integers(node: Node) -> bool:
    return isinstance(node.type, TensorType) and node.type.dtype.is_integer


def _transposes(function: Function) -> bool:
    """Whether something is transposed: loops of a product and its transpose would be slower than those of each."""
    return any(n.op is transpose for n in function.nodes)
