"""A GEMM with its epilogue: elementwise steps, and reductions of whole rows, on each chunk of the result while it is in a cache.

A function of one matrix product and its epilogue is taken apart; the epilogue becomes a loop over rows that reads and writes the
result in place. It takes a range of columns, too, so that a chunk need not have whole rows where no row is reduced.
"""

from __future__ import annotations

from deepx_graph.ir import Function, Node
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.runtime.array_type import form_of
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.epilogue import WithEpilogue, split_epilogue
from deepx_graph.runtime.engines.gemm import batched_gemm_of
from deepx_graph.runtime.native.gemm import small
from deepx_graph.runtime.native.gemm.code import lowering, packed, predicted
from deepx_graph.runtime.native.gemm.kernel import BLOCK_TERMS, LEAST_WORK, fits
from deepx_graph.runtime.native.loop_program import epilogue
from deepx_graph.runtime.native.loop_program.epilogue import EpilogueKernel
from deepx_graph.runtime.native.prepared import JoinedOperands, PreparedKernel, PreparedStep, Word
from deepx_graph.types import TensorType

MOST_ROW_BYTES = 2 << 20
"""Of two blocks of terms of the columns where the epilogue needs whole rows: every chunk packs them again."""


def build(function: Function, threads: int) -> PreparedKernel:
    """The kernel of a function of one product and its epilogue. Raises Declined."""
    parts = split_epilogue(function, dot_general)
    if parts.epilogue is None or parts.epilogue.results[0].type != parts.node.type:
        raise Declined("no epilogue in place")
    gemm = batched_gemm_of(parts.node)
    plan = small.plan_of(parts.node)
    is_small = plan is not None and plan.is_small and plan.work >= LEAST_WORK
    if gemm is None or not (is_small or fits(gemm)):
        raise Declined("no product in machine code")
    then = epilogue.build(parts.epilogue, _rows_apart(parts.node))
    if is_small and (multiply := small.with_rows(parts.node, then.columns, threads)) is not None:
        return _small(function, parts, multiply, then)
    row_bytes = gemm.columns * min(gemm.depth, 2 * BLOCK_TERMS) * gemm.dtype.itemsize
    if not fits(gemm) or (then.needs_rows and row_bytes > MOST_ROW_BYTES):
        raise Declined("the epilogue needs rows too long for a chunk")
    return packed(function, parts, gemm, then, threads)


def _rows_apart(node: Node) -> int:
    """The axes of the result that number its rows, those of size 1 not counted."""
    assert isinstance(node.type, TensorType) and isinstance(node.inputs[1].type, TensorType)
    taken = len(node.attr("rhs_batching_dimensions")) + len(node.attr("rhs_contracting_dimensions"))
    columns = len(node.inputs[1].type.shape) - taken
    dims = node.type.shape
    return sum(d != 1 for d in dims[: len(dims) - columns])


def _small(function: Function, parts: WithEpilogue, multiply: small.WithRows, then: EpilogueKernel) -> PreparedKernel:
    """A product of small matrices, and the epilogue on each share of its rows."""
    joined, node = JoinedOperands(function, parts, then), parts.node
    table: tuple[Word, ...] = (*joined.sources, joined.result, then.function, joined.table)
    return PreparedKernel(joined.params, [form_of(node.type)],
                          [PreparedStep(multiply.function, table, multiply.threads)], constants=joined.constants, scratch_bytes=0,
                          predicted=predicted(node, multiply.threads, then), kept=(multiply, then), lowering=lowering(then))
