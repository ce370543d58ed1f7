"""What loops and branches give, and who still reads the memory that may change.

A small value is in cells, which are registers; a larger one in memory, which whoever is the last to read it may write over.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import LOOP_END, PHI, branches_of, index_of
from deepx_graph.loops.builder import LoopBuilder, part_of
from deepx_graph.loops.complex import joined, parts
from deepx_graph.loops.elements import Value, settled, tensor_type
from deepx_graph.loops.program import Buffer, Cell
from deepx_graph.loops.scalar import Affine, Index
from deepx_graph.loops.storage import wide
from deepx_graph.loops.tensor import LazyTensor, in_memory
from deepx_graph.types import DType, TensorType

SMALL = 9
"""A value of at most so many elements is kept as scalars."""

MOST_SHIFTED = 16
"""So is a queue of so many elements."""


def queues(function: Function) -> frozenset[Node]:
    """What loops carry on, and only move on by some places: its elements are read where numbers say. In memory all of them would be
    copied twice in each iteration, in vectors that begin elsewhere than those that are loaded next."""
    found = set[Node]()
    for end in (n for n in function.nodes if n.op is LOOP_END):
        for k, after in enumerate(end.inputs[2:]):
            if after.op.place is None or function.users[after] != (end,) or tensor_type(after.type).size > MOST_SHIFTED:
                continue
            phis = [n for n in function.users[end.inputs[0]] if n.op is PHI and index_of(n) == k]
            if all(u.op.view and len(u.inputs) == 1 and (function.users[u] == (after,) or tensor_type(u.type).size <= SMALL)
                   for phi in phis for u in function.users[phi]):
                found.add(after)
    return frozenset(found)


def in_registers(dtype: DType, shape: tuple[int, ...], scalars: Sequence[Any]) -> LazyTensor:
    """A tensor of scalars; at a subscript that is not known it is one of them, chosen by comparisons."""
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]

    def read(b: LoopBuilder, at: Index) -> Any:
        flat = Affine()
        for i, stride in zip(at, strides, strict=True):
            flat = flat + i * stride
        if not flat.terms:
            return scalars[flat.constant]
        if not scalars:
            return b.const(0, dtype)  # in a loop without iterations
        found = scalars[-1]
        for k, x in enumerate(scalars[:-1]):
            found = b.apply("where", b.apply("eq", flat, Affine((), k)), x, found)
        return found

    return LazyTensor(dtype, shape, read)


def scalars_of(b: LoopBuilder, tensor: LazyTensor) -> list[Any]:
    """All elements of a small tensor."""
    return [tensor.at(b, tuple(Affine((), i) for i in at)) for at in itertools.product(*map(range, tensor.shape))]


def kept_in_registers(b: LoopBuilder, tensor: LazyTensor) -> LazyTensor:
    """A small tensor as scalars, computed here."""
    return in_registers(tensor.dtype, tensor.shape, [settled(b, x, tensor.dtype) for x in scalars_of(b, tensor)])


@dataclass(eq=False)
class CarriedValue:
    """What a loop carries on, or what a branch gives: cells for the scalars, or memory."""

    type: TensorType
    cells: list[list[Cell]] = field(default_factory=list)
    buffer: Buffer | None = None

    @staticmethod
    def in_cells(b: LoopBuilder, type: TensorType) -> CarriedValue:
        """Cells for a small value."""
        dtype = wide(type.dtype)
        each = [part_of(dtype)] * 2 if dtype.kind == "complex" else [dtype]
        return CarriedValue(type, [[b.cell(d) for d in each] for _ in range(type.size)])

    def assign(self, b: LoopBuilder, scalars: Sequence[Any]) -> None:
        """Sets the cells."""
        for cells, x in zip(self.cells, scalars, strict=True):
            for cell, part in zip(cells, parts(x), strict=True):
                b.set(cell, part)

    def now(self, b: LoopBuilder) -> LazyTensor:
        """What the variable is at this point."""
        if self.buffer is not None:
            return in_memory(self.buffer, self.type.dtype)
        return in_registers(self.type.dtype, self.type.shape, [joined([b.get(c) for c in cells]) for cells in self.cells])


@dataclass(eq=False)
class ChangingMemory:
    """Who reads what of the memory that may change."""

    function: Function
    live: frozenset[Node]
    reads: dict[Node, frozenset[Buffer]] = field(default_factory=dict)
    """The memory that is looked at where an element of a node's value is read."""
    homes: dict[Buffer, Node | None] = field(default_factory=dict)
    """The loop in each iteration of which memory gets its value."""
    done: set[Node] = field(default_factory=set)
    """The nodes whose operands are read no more."""
    branches: list[tuple[Node, int]] = field(default_factory=list)
    """The branches that are being written."""

    def ending(self, user: Node, operand: Node, found: Value, loop: Node | None) -> Buffer | None:
        """The memory of an operand of which nobody needs the elements any more, but the user."""
        buffer = found.buffer if isinstance(found, LazyTensor) else None
        if buffer is None or buffer not in self.homes or self.homes[buffer] is not loop:
            return None
        if (self._in_branch(user) or user.inputs).count(operand) > 1:
            return None
        if found.shape != tensor_type(operand.type).shape:
            return None
        readers = (node for node, reads in self.reads.items() if buffer in reads)
        return buffer if all(self._is_read_no_more(node, user, operand) for node in readers) else None

    def _is_read_no_more(self, node: Node, user: Node, operand: Node) -> bool:
        if node in self.function.results:
            return False
        for u in self.function.users.get(node, ()):
            if u in self.done or u not in self.live or (u is user and node is operand):
                continue
            values = self._in_branch(u)
            if values is None or node in values:
                return False
        return True

    def _in_branch(self, region: Node) -> tuple[Node, ...] | None:
        """The values of the branch that is being written of a region; None of what is none of these."""
        return next((branches_of(r)[k] for r, k in self.branches if r is region), None)
