"""Where the values of a program are while its kernel runs: slots of a table of addresses, scratch memory, partial results.

`table` holds the addresses of arrays in the order of `Layout`. Nothing is emitted here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deepx_graph.ir import Op
from deepx_graph.runtime.kernels.program import KernelProgram, Step
from deepx_graph.runtime.native.llvm.builder import F4, F8, DType
from deepx_graph.runtime.native.loopnest.nest import Nests, together
from deepx_graph.types import dtype_of

LONG_SUM = 16384
"""A float sum along a row longer than this is carried in double."""

DATA = 16
"""Where an array object of CPython keeps the address of its elements; `kernel` checks it."""

_REDUCERS = ("add", "mul", "max", "min", "and", "or", "xor")


@dataclass(frozen=True)
class Layout:
    """The slots of a table: `objects` array objects (leaves, then results), then plain addresses of everything else."""

    slot: dict[int, int]
    """Of each register in memory."""
    partial: dict[int, int]
    """Of the partial results of each crossing reduction."""
    rows: dict[int, int]
    """Byte offsets in the scratch memory of a thread of the registers kept for one row."""
    row_bytes: int
    """How far the same of the next row is, where several rows are done together."""
    scratch_bytes: int
    objects: int
    size: int


@dataclass(frozen=True)
class Chunks:
    """How a nest is shared out: so many chunks of as nearly as many rows as there can be, each a multiple of `step` rows."""

    count: int
    step: int = 1


class NoMachineCode(Exception):
    """The program has a step that is not written in machine code: says which."""


def layout(program: KernelProgram, nests: Nests) -> Layout:
    """The slots and scratch offsets of a program's registers."""
    order = [leaf.register for leaf in program.leaves] + list(program.results)
    objects = len(order)
    arrays = [r for r, array in program.constants if array.size > 1]
    order += [r for r in (*arrays, *sorted(nests.stored)) if r not in order]
    slot: dict[int, int] = {}
    for k, r in enumerate(order):
        slot.setdefault(r, k)
    partial = {r: len(order) + k for k, r in enumerate(sorted(nests.crossing))}
    rows, offset = {}, 0
    for r in sorted(nests.rows):
        rows[r] = offset
        offset += -(-nests.space[-1] * program.registers[r].dtype.itemsize // 64) * 64
    most = max((together(nests, nest) for nest in nests.nests), default=1)
    return Layout(slot, partial, rows, offset, offset * most, objects, len(order) + len(partial))


def partial_dtype(dtype: DType, op: Op) -> DType:
    """What partial results are kept in: double for float sums."""
    return F8 if dtype == F4 and primitive_of(op) == "add" else dtype


def primitive_of(op: Op) -> str:
    """The kernel primitive by which a reduction joins two values. Raises NoMachineCode where it is none of the known ones."""
    tree = op.kernel() if op.kernel else None
    name = getattr(tree, "primitive", "")
    if name not in _REDUCERS or op.monoid is None:
        raise NoMachineCode(f"a reduction by {op.name}")
    return str(name)


def identity(step: Step, dtype: DType) -> Any:
    """What a reduction starts from."""
    assert step.reduction is not None
    return step.reduction.op.identity_for(dtype_of(dtype))
