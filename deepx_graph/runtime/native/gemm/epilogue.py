"""A GEMM with its epilogue: elementwise steps, and reductions of whole rows, on each chunk of the result while it is in a cache.

A function of one matrix product and its epilogue is taken apart; the epilogue becomes a loop over rows that reads and writes the
result in place. It takes a range of columns, too, so that a chunk need not have whole rows where no row is reduced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import PARAM, value_of
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.cost.counts import parts_alone
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.epilogue import WithEpilogue, split_epilogue
from deepx_graph.runtime.engines.gemm import BatchedGemm, batched_gemm_of
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native.gemm import small
from deepx_graph.runtime.native.gemm.code import operands_of, own_bytes, steps_of
from deepx_graph.runtime.native.gemm.kernel import BLOCK_TERMS, LEAST_WORK, GemmKernel, fits
from deepx_graph.runtime.native.loop_program import epilogue
from deepx_graph.runtime.native.loop_program.epilogue import EpilogueKernel
from deepx_graph.runtime.native.machine_kernel import MachineCode, MachineKernel, Workspace
from deepx_graph.runtime.native.prepared import Address, Base, FunctionAddress, PreparedKernel, PreparedStep, Word, epilogue_table
from deepx_graph.runtime.straightline import ArrayType
from deepx_graph.types import TensorType

MOST_ROW_BYTES = 2 << 20
"""Of the columns that are packed at a time where the epilogue needs whole rows: every chunk packs them again."""


def build(function: Function, threads: int) -> MachineKernel:
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
    packed = gemm.columns * min(gemm.depth, BLOCK_TERMS) * gemm.dtype.itemsize
    if not fits(gemm) or (then.needs_rows and packed > MOST_ROW_BYTES):
        raise Declined("the epilogue needs rows too long for a chunk")
    return FusedGemm(function, parts, gemm, then, threads)


def _rows_apart(node: Node) -> int:
    """The axes of the result that number its rows, those of size 1 not counted."""
    assert isinstance(node.type, TensorType) and isinstance(node.inputs[1].type, TensorType)
    taken = len(node.attr("rhs_batching_dimensions")) + len(node.attr("rhs_contracting_dimensions"))
    columns = len(node.inputs[1].type.shape) - taken
    dims = node.type.shape
    return sum(d != 1 for d in dims[: len(dims) - columns])


class _Joined:
    """Objects and constants of a product and its epilogue: parameters of the product, those of the epilogue, the result."""

    def __init__(self, function: Function, parts: WithEpilogue, then: EpilogueKernel) -> None:
        sources = [function.params.index(i) if i.op is PARAM else value_of(i).array for i in parts.node.inputs]
        given = [k for k in sources if isinstance(k, int)]
        fixed = [np.ascontiguousarray(k) for k in sources if not isinstance(k, int)]
        objects, arrays = iter(range(len(given))), iter(range(len(fixed)))
        self.sources = [Address(Base.ELEMENTS, next(objects)) if isinstance(k, int) else Address(Base.CONSTANT, next(arrays))
                        for k in sources]
        self.params, number = (*given, *parts.params), len(given) + len(parts.params)
        self.result = Address(Base.ELEMENTS, number)
        self.table = epilogue_table(then, [number, *range(len(given), number)], number, len(fixed))
        self.constants = [*fixed, *then.constants]


def _small(function: Function, parts: WithEpilogue, multiply: small.WithRows, then: EpilogueKernel) -> PreparedKernel:
    """A product of small matrices, and the epilogue on each share of its rows."""
    joined, node = _Joined(function, parts, then), parts.node
    assert isinstance(node.type, TensorType) and node.type.dtype.np is not None
    table: tuple[Word, ...] = (*joined.sources, joined.result, FunctionAddress(then.address), joined.table)
    kernel = PreparedKernel(joined.params, [ArrayType(node.type.dtype.np, node.type.shape)],
                            [PreparedStep(multiply.address, table, multiply.threads)], constants=joined.constants, scratch_bytes=0,
                            predicted=_predicted(node, multiply.threads, then), kept=(multiply, then))
    kernel.lowering = FusedGemm.lowering
    return kernel


def _predicted(node: Node, threads: int, then: EpilogueKernel) -> cost.ForecastParts:
    parts = parts_alone(node, threads)
    return replace(parts, arithmetic=parts.arithmetic + then.nanoseconds / threads)


class FusedGemm(MachineKernel):
    """A product and its epilogue. May be called from several threads at once."""

    in_place: tuple[frozenset[int], ...] = (frozenset(),)
    lowering = "machine code, with epilogue"

    def __init__(self, function: Function, parts: WithEpilogue, gemm: BatchedGemm, then: EpilogueKernel, threads: int) -> None:
        node = parts.node
        assert isinstance(node.type, TensorType)
        self.results = (ArrayType(gemm.dtype, node.type.shape),)
        self._gemm, self._then, self._params = gemm, then, parts.params
        self._function, self._parts = function, parts
        self._sources = [function.params.index(i) if i.op is PARAM else value_of(i).array for i in node.inputs]
        self._multiply = GemmKernel.of(gemm, threads, then)
        self._node, self._threads = node, self._multiply.threads

    @property
    def workspace_bytes(self) -> int:
        """The memory of the epilogue; panels are those of all GEMMs."""
        return self._then.workspace_bytes

    def new_workspace(self) -> Workspace:
        """The table and the memory of the epilogue."""
        return Workspace(self._then)

    def scratch(self, loose: Mapping[int, int]) -> int:
        """Packed operands, copies of those that do not lie as they are read, and the memory of the epilogue."""
        params = {k: n for n, k in enumerate(self._sources) if isinstance(k, int)}
        copies = self._gemm.copied([n for k, n in params.items() if k in loose])
        then = {k + 1: loose[p] for k, p in enumerate(self._params) if p in loose}
        return self._multiply.workspace_bytes + copies + self._then.scratch(then)

    def predicted(self) -> cost.ForecastParts:
        """How long a call takes by the cost model; the epilogue is done while it is in cache."""
        return _predicted(self._node, self._threads, self._then)

    @cached_property
    def code(self) -> MachineCode | None:
        """The same for callers in machine code; None where an operand cannot be copied, or the epilogue reads one otherwise."""
        joined = _Joined(self._function, self._parts, self._then)
        operands = operands_of(self._node, self._multiply, self._gemm, joined.sources)
        if operands is None:
            return None
        steps = operands.steps + steps_of(self._multiply, operands, joined.result, joined.table)
        return PreparedKernel(joined.params, self.results, steps, constants=joined.constants,
                              own_bytes=own_bytes(self._multiply, operands), scratch_bytes=self._multiply.scratch_bytes,
                              predicted=self.predicted(), kept=self)

    def run(self, workspace: Workspace, args: Sequence[Any], results: Sequence[Array]) -> None:
        """The product, with the epilogue on each chunk of it."""
        (into,) = results
        workspace.fill([into, *(np.asarray(args[k], order="C") for k in self._params), into])
        x, y = self._gemm.operands(*(args[k] if isinstance(k, int) else k for k in self._sources))
        self._multiply(x, y, into.reshape(self._gemm.result_shape), workspace.address)

