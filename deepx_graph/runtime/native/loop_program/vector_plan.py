"""Which innermost loops are written as vectors, and how.

LLVM makes vectors of loops, too, but not of what a function of floats does only where no lane is out of the ordinary, nor several
sums side by side in a loop of functions, nor lanes that are loaded one by one. A loop is written as vectors where it stores to
neighbours and loads from neighbours, or from positions that it reads (gathers), and no iteration waits for another; all others are
left to LLVM.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from deepx_graph.ir.scalar_expr import FUNCTION_PRICE
from deepx_graph.loops.primitives import price
from deepx_graph.loops.program import Buffer, Cell, Combine, For, Let, Load, Statement, Store, position_in, reads, variables
from deepx_graph.loops.scalar import Affine, ScalarVar, identity
from deepx_graph.runtime.native.llvm.target import Target
from deepx_graph.runtime.native.loop_program.extremes import chained
from deepx_graph.runtime.native.loop_program.primitives import has_vectors, np_dtype

FEWEST = 8
"""A loop of fewer iterations is left to LLVM."""

MOST_VECTORS, MOST_WORK, MOST_WORK_OF_FUNCTIONS = 4, 16, 30
"""So many vectors are computed side by side, where an iteration costs no more additions; else half as many."""


WORK_OF_GATHERS = 8
"""A loop with gathers is written as vectors where an iteration does so many additions, loads and stores for each of them."""


@dataclass(frozen=True)
class VectorPlan:
    """How a loop is written: what is done once before it, and what for each vector of iterations."""

    before: tuple[Statement, ...]
    inside: tuple[Statement, ...]
    varying: frozenset[ScalarVar | Cell]
    gathers: tuple[Load, ...]
    """Those inside whose lanes are loaded one by one."""
    lanes: int
    vectors: int


def plan(loop: For, machine: Target) -> VectorPlan | None:
    """How a loop becomes vectors; None where that is left to LLVM."""
    count = loop.high - loop.low
    if not count.terms and count.constant < FEWEST:
        return None
    stores = [s for s in loop.body if isinstance(s, Store)]
    stored = {s.buffer: position_in(s.buffer, s.index) for s in stores}
    if len(stored) < len(stores) or _reads_what_it_stored(loop.body):
        return None
    varying: set[ScalarVar | Cell] = {loop.axis}
    before: list[Statement] = []
    inside: list[Statement] = []
    for s in chained(loop.body):
        if not _fits(s, loop.axis, varying, stored, machine):
            return None
        if isinstance(s, (Store, Combine)) or not varying.isdisjoint(reads(s)):
            inside.append(s)
            if isinstance(s, (Let, Load)):
                varying.add(s.target)
        else:
            before.append(s)
    primitives = {s.cell: s.primitive for s in inside if isinstance(s, Combine)}
    if (not stores and not primitives) or any(isinstance(s, Combine) and primitives[s.cell] != s.primitive for s in inside):
        return None
    gathers = tuple(s for s in inside if isinstance(s, Load) and _is_gather(s, loop.axis, varying))
    if gathers and not _pays(inside, gathers):
        return None
    lanes = _lanes(inside, count, machine.register_bytes)
    return VectorPlan(tuple(before), tuple(inside), frozenset(varying), gathers, lanes, _side_by_side(inside, lanes, count))


def _reads_what_it_stored(body: Sequence[Statement]) -> bool:
    stored: set[Buffer] = set()
    for s in body:
        if isinstance(s, Load) and s.buffer in stored:
            return True
        if isinstance(s, Store):
            stored.add(s.buffer)
    return False


def _fits(s: Statement, axis: ScalarVar, varying: set[ScalarVar | Cell], stored: dict[Buffer, Affine], machine: Target) -> bool:
    """Whether a statement can be done for several iterations at once."""
    match s:
        case Load(_, buffer, _) if _is_gather(s, axis, varying):
            return buffer not in stored
        case Load(_, buffer, index) | Store(buffer, index, _):
            at = position_in(buffer, index)
            if any(v in varying for v, _ in at.terms if v is not axis):
                return False
            if buffer in stored:
                return at.stride(axis) == 1 and not (at - stored[buffer]).terms and at.constant == stored[buffer].constant
            return at.stride(axis) in (0, 1)
        case Let(target, primitive, args):
            if varying.isdisjoint(reads(s)):
                return True
            return has_vectors(primitive, [a.dtype for a in args], target.dtype, machine)
        case Combine(cell, primitive, _):
            return identity(primitive, cell.dtype) is not None
    return False


def _is_gather(s: Load, axis: ScalarVar, varying: Container[ScalarVar | Cell]) -> bool:
    """Whether a statement loads from where values say that the loop itself computes or loads."""
    return any(v in varying for v in variables(s.index) if v is not axis)


def _pays(inside: Sequence[Statement], gathers: Sequence[Load]) -> bool:
    """Whether vectors are faster in spite of gathers, whose lanes are loaded one by one: enough is done besides, and positions are
    read from memory. Where they are computed of the axis alone LLVM finds neighbours among them, and what is the same."""
    read: set[ScalarVar | Cell] = set()
    for s in inside:
        if isinstance(s, Load) or (isinstance(s, Let) and not read.isdisjoint(reads(s))):
            read.add(s.target)
    work = sum(price(s.primitive) if isinstance(s, (Let, Combine)) else 1 for s in inside) - len(gathers)
    return work >= WORK_OF_GATHERS * len(gathers) and all(not read.isdisjoint(reads(s)) for s in gathers)


def _lanes(inside: Sequence[Statement], count: Affine, register_bytes: int) -> int:
    """How many iterations a vector stands for: as many as one register holds of the widest elements, or more where that is faster,
    as where functions of single precision are added up in double; fewer where half of them would be idle in every row."""
    widest = max(4, max((_itemsize(s) for s in inside), default=4))
    work = [(price(s.primitive) if isinstance(s, (Let, Combine)) else 1, _itemsize(s)) for s in inside]

    def cost(lanes: int) -> float:
        return sum(price * max(1, lanes * size / register_bytes) for price, size in work) / lanes

    lanes = min((register_bytes // size for size in (8, 4) if size <= widest), key=cost)
    while not count.terms and lanes >= 2 * count.constant:
        lanes //= 2
    return lanes


def _itemsize(s: Statement) -> int:
    dtype = s.buffer.dtype if isinstance(s, Store) else s.cell.dtype if isinstance(s, Combine) else s.target.dtype  # type: ignore[union-attr]
    return int(np_dtype(dtype).itemsize)


def _side_by_side(inside: Sequence[Statement], lanes: int, count: Affine) -> int:
    """How many vectors are computed side by side: enough to fill the time that each takes, few enough for registers."""
    prices = [price(s.primitive) for s in inside if isinstance(s, (Let, Combine))]
    slow = any(p >= FUNCTION_PRICE for p in prices)
    most = MOST_VECTORS if sum(prices) <= (MOST_WORK_OF_FUNCTIONS if slow else MOST_WORK) else MOST_VECTORS // 2
    while most > 1 and not count.terms and most * lanes > count.constant:
        most //= 2
    return most
