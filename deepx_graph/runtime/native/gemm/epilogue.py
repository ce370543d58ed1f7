"""The epilogue of a product, chunk by chunk: elementwise steps, and reductions of whole rows, while the chunk is in a cache.

A function of one product and its epilogue is taken apart; the epilogue becomes a kernel of one sweep that reads and writes the
result in place. Its machine code takes a range of columns, too, so that a chunk need not have whole rows where no row is reduced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import PARAM, value_of
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.cost.counts import parts_alone
from deepx_graph.runtime.engines.gemm import BatchedGemm, batched_gemm_of
from deepx_graph.runtime.kernels.program import Array, Shape
from deepx_graph.runtime.memory.pool import delivered, result_memory
from deepx_graph.runtime.native.convolution.epilogue import FusedConvolution, parts_of
from deepx_graph.runtime.native.gemm.kernel import BLOCK_TERMS, EpilogueFunction, GemmKernel, fits
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.loopnest.emit import NestEmitter
from deepx_graph.runtime.native.loopnest.kernel import NativeKernel, attempt
from deepx_graph.runtime.native.loopnest.nest import together
from deepx_graph.runtime.native.machine_kernel import MachineKernel, Workspace
from deepx_graph.types import TensorType

MOST_ROW_BYTES = 2 << 20
"""Of the columns that are packed at a time where the epilogue needs whole rows: every chunk packs them again."""


class _EpilogueEmitter(NestEmitter):
    """One nest over the rows of a product's result: `epilogue(table, low, high, left, right, scratch)`."""

    def function(self, name: str) -> str:
        t, few, low = self.t, together(self.nests, self.nest), "%low"
        self._load_pointers()
        if few > 1:
            rest = t.let(f"srem i64 {t.let('sub i64 %high, %low')}, {few}")
            low = t.let(f"sub i64 %high, {rest}")
            t.rows("%low", low, lambda row: self._rows([row, *(t.let(f"add i64 {row}, {k}") for k in range(1, few))]), few)
        t.rows(low, "%high", lambda row: self._rows([row]))
        params = "ptr noalias %table, i64 %low, i64 %high, i64 %left, i64 %right, ptr noalias %scratch"
        return "\n".join([f"define void @{name}({params}) nounwind \"stackrealign\" {{", "entry:", *t.lines, "  ret void", "}"])

    @property
    def in_columns(self) -> bool:
        """Whether it keeps to its range of columns: nothing is kept or reduced along a row."""
        return len(self.nest.stages) == 1 and not self.nest.stages[0].reductions

    def _base(self, pointer: str, shape: Shape, dtype: np.dtype[Any], indices: dict[int, str]) -> str:
        base = super()._base(pointer, shape, dtype, indices)
        return self.t.address(base, "%left", dtype) if self.in_columns and shape[-1] > 1 else base

    def _length(self, indices: dict[int, str]) -> str:
        return self.t.let("sub i64 %right, %left") if self.in_columns else super()._length(indices)


def attempt_fused(function: Function, threads: int) -> FusedGemm | str:
    """The kernel of a function of one product and its epilogue, or why there is none."""
    parts = parts_of(function, dot_general)
    if isinstance(parts, str):
        return parts
    if parts.epilogue is None or parts.epilogue.results[0].type != parts.node.type:
        return "no epilogue in place"
    stacks = batched_gemm_of(parts.node)
    if stacks is None or not fits(stacks.dtype, stacks.matrices, stacks.rows, stacks.columns, stacks.depth):
        return "no product in machine code"
    kernel = attempt(parts.epilogue, threads, _rows_apart(parts.node))
    if isinstance(kernel, str):
        return kernel
    reason = _refusal(kernel, stacks)
    return reason or FusedGemm(function, parts, stacks, kernel, threads)


def _rows_apart(node: Node) -> int:
    """The axes of the result that number its rows, those of size 1 not counted."""
    assert isinstance(node.type, TensorType) and isinstance(node.inputs[1].type, TensorType)
    taken = len(node.attr("rhs_batching_dimensions")) + len(node.attr("rhs_contracting_dimensions"))
    columns = len(node.inputs[1].type.shape) - taken
    dims = node.type.shape
    return sum(d != 1 for d in dims[: len(dims) - columns])


def _refusal(kernel: NativeKernel, stacks: BatchedGemm) -> str:
    nests, rows = kernel.nests, stacks.matrices * stacks.rows
    if len(nests.nests) != 1 or nests.crossing or kernel.own_bytes or 0 not in kernel.in_place[0]:
        return "the epilogue is not one sweep in place"
    if nests.in_strips or nests.space[-1] != stacks.columns or nests.count(nests.nests[0]) != rows:
        return "the epilogue has other rows"
    whole = not _code(kernel).in_columns
    packed = stacks.columns * min(stacks.depth, BLOCK_TERMS) * stacks.dtype.itemsize
    return "the epilogue needs rows too long for a chunk" if whole and packed > MOST_ROW_BYTES else ""


def _code(kernel: NativeKernel) -> _EpilogueEmitter:
    return _EpilogueEmitter(kernel.program, kernel.nests, kernel.nests.nests[0], kernel.layout, kernel.chunks[0], this_machine())


def _epilogue(kernel: NativeKernel) -> EpilogueFunction:
    """The machine function of the epilogue."""
    code = _code(kernel)
    text = "\n".join([code.function("epilogue"), *code.t.declarations, ""])
    address = machine_code.functions(text, ["epilogue"], kernel)["epilogue"]
    return EpilogueFunction(address, not code.in_columns, kernel.layout.scratch_bytes)


class FusedGemm(MachineKernel):
    """A product and its epilogue. May be called from several threads at once."""

    in_place: tuple[frozenset[int], ...] = (frozenset(),)
    lowering = "machine code, with epilogue"

    def __init__(self, function: Function, parts: FusedConvolution, stacks: BatchedGemm, then: NativeKernel, threads: int) -> None:
        node = parts.node
        assert isinstance(node.type, TensorType)
        self._shape, self._stacks, self._then, self._params = node.type.shape, stacks, then, parts.params
        self._operands = [function.params.index(i) if i.op is PARAM else value_of(i).array for i in node.inputs]
        self._multiply = GemmKernel(stacks.dtype, stacks.matrices, stacks.rows, stacks.columns, stacks.depth, threads,
                                 epilogue=_epilogue(then))
        self._node, self._threads = node, self._multiply.threads

    @property
    def workspace_bytes(self) -> int:
        """The memory of the epilogue; panels are those of all products."""
        return self._then.workspace_bytes

    def new_workspace(self) -> Workspace:
        """The table and the memory of the epilogue."""
        return Workspace(self._then)

    def scratch(self, loose: Mapping[int, int]) -> int:
        """Packed operands, copies of those that do not lie as they are read, and the memory of the epilogue."""
        params = {k: n for n, k in enumerate(self._operands) if isinstance(k, int)}
        copies = self._stacks.copied([n for k, n in params.items() if k in loose])
        then = {k + 1: loose[p] for k, p in enumerate(self._params) if p in loose}
        return self._multiply.workspace_bytes + copies + self._then.scratch(then)

    def predicted(self) -> cost.ForecastParts:
        """How long a call takes by the cost model; the epilogue is done while it is in cache."""
        return parts_alone(self._node, self._threads)

    def __call__(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Array]:
        """The result for the arguments; in the array of `out`, where one is given."""
        given = None if out is None else out[0]
        into = result_memory(self._shape, self._stacks.dtype, args, given, self.in_place[0])
        arrays = self._then.leaves([into, *(args[k] for k in self._params)])
        workspace = self.workspace()
        workspace.fill([*arrays, into])
        x, y = self._stacks.operands(*(args[k] if isinstance(k, int) else k for k in self._operands))
        self._multiply(x, y, into.reshape(self._stacks.form), workspace.address)
        self.give_back(workspace)
        return delivered([into], out)

