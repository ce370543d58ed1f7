"""The choice of a plan: which methods there are, what each costs, and into how many shares it is cut.

Prices are in products of vectors; what takes as long as how many of them was measured (`docs/performance.md`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.native.convolution.plan import ConvolutionPlan, DirectPlan, Lanes, Method
from deepx_graph.runtime.native.convolution.problem import Problem
from deepx_graph.runtime.native.gemm.microkernel import Tile

SCRATCH_BYTES = 256 << 10
"""Of the input of a share: a quarter of a usual second-level cache, since weights and results want to be there too."""

SHARES, SHARE_STEPS, LEAST_SHARE = 24, 200_000, 100_000
"""So many shares, or fewer where each would have fewer vector products than this: they must cost more than handing them out. But
two where each has as many as the last: one alone has the other workers fall asleep."""

STORE_STEPS, SCATTER_STEPS = 1, 24
"""What storing a vector costs, in vector products: as it is, or element by element."""

NEAR_BYTES, NEAR_STEPS = 12 << 10, 2.8
"""The vectors of a tile's sums beyond so many bytes do not stay in a first-level cache: reading one takes so many products. With
windows in the lanes neighbours of a row lie across lines of the cache: half a vector more for each row."""

COPY_STEPS, RUN_STEPS = 3, 2
"""What copying a vector of the input costs, and each run of neighbours."""

LOAD_STEPS, LEAST_STEPS = 1.3, 9
"""How many products take as long as reading one operand, and how many must be under way as each waits for the one before."""

BESIDE = 4
"""Registers that are not for sums, at least."""

MOST_PLANS = 8
"""Methods that are cut into shares before one is chosen."""

LEAST_USE, LAID_OUT_STEPS = 0.11, 4_000_000
"""Where fewer than this part of the lanes have anything to do, a product of windows laid out is faster, which itself takes as long
as so many steps: laying them out, and what stands around it becomes many kernels."""

MOST_SCRATCH = 4 << 20
"""Of the input of a share, where no blocks are small enough."""

P = TypeVar("P", bound=ConvolutionPlan)


def plan(problem: Problem, register_bytes: int, registers: int) -> DirectPlan:
    """The cheapest plan for so many registers. Raises Declined."""
    width, blocks = register_bytes // problem.dtype.itemsize, (1,) * len(problem.axes)
    whole = [DirectPlan(problem, width, method, blocks, 1) for method in _methods(problem, width, registers)]
    if not whole:
        raise Declined("no direct kernel for this layout")
    found = sorted((price(p), k) for k, p in enumerate(whole))
    plans = [_shared(whole[k], steps) for steps, k in found[:MOST_PLANS]]
    steps, k = min((price(p), k) for k, p in enumerate(plans))
    useful = problem.depth * math.prod(a.count for a in problem.axes) * problem.outputs * problem.images * problem.groups / width
    if useful < LEAST_USE * steps and steps > LAID_OUT_STEPS:
        raise Declined("too few features for the lanes")
    if plans[k].scratch_bytes > MOST_SCRATCH:
        raise Declined("windows too large for a cache")
    return plans[k]


# --- methods


def _methods(problem: Problem, width: int, registers: int) -> Iterator[Method]:
    """The ways whose sums have room in registers, beside the elements that stay there and one of the other operand."""
    sums, last = registers - BESIDE, problem.axes[-1]
    counts = [a.count for a in problem.axes]
    is_single = problem.groups > 1 and problem.inputs == problem.outputs == 1
    lanes, features = (Lanes.GROUPS, problem.groups) if is_single else (Lanes.OUTPUTS, problem.outputs)
    if lanes is Lanes.OUTPUTS or problem.y[1] == 1:
        for vectors in range(1, min(4, -(-features // width)) + 1):
            for rows in range(1, min(math.prod(counts), sums // vectors) + 1):
                method = Method(lanes, Tile(rows, vectors))
                if is_single or _has_room(method, registers):
                    yield method
    if (last.y == 1 or last.y < problem.y[2]) and last.stride <= 4:
        for vectors in range(1, max(1, min(8, last.count // width)) + 1):
            most, other = sums // vectors, counts[-2] if len(counts) > 1 else 1
            for outputs, rows in itertools.product(range(1, min(problem.outputs, most) + 1), range(1, min(other, most) + 1)):
                method = Method(Lanes.WINDOWS, Tile(outputs * rows, vectors), outputs)
                if outputs * rows <= most and _has_room(method, registers):
                    yield method


def _has_room(method: Method, registers: int) -> bool:
    return method.tile.rows * method.tile.vectors + min(method.spread, method.read) < registers


def price(plan: DirectPlan) -> float:
    """Vector products, and what takes as long, of the whole convolution."""
    problem, method, tile, lanes = plan.problem, plan.method, plan.method.tile, plan.method.lanes
    lengths = [block_lengths(a.count, b) for a, b in zip(problem.axes, plan.blocks, strict=True)]
    tiles = sum(math.prod(n for _, n in block) * -(-plan.positions([length for length, _ in block]) // method.positions)
                for block in itertools.product(*lengths)) * problem.images * plan.groups * plan.panels
    loads = (tile.rows + 1) * tile.vectors if lanes is Lanes.GROUPS else method.spread + method.read
    vectors, near = tile.rows * tile.vectors, 0.0
    if method.read * plan.width * problem.depth * problem.dtype.itemsize > NEAR_BYTES:
        near = NEAR_STEPS * (method.read + (method.positions / 2 if lanes is Lanes.WINDOWS else 0))
    step = max(vectors, LOAD_STEPS * loads, LEAST_STEPS, near) + 1
    store = vectors * (STORE_STEPS if plan.lane_step == 1 else SCATTER_STEPS)
    return tiles * (problem.depth * step + 16 + store) + copying(plan)


def block_lengths(count: int, blocks: int) -> list[tuple[int, int]]:
    """The lengths of blocks of an axis, and how many have each."""
    length, longer = divmod(count, blocks)
    return [(length + 1, longer), (length, blocks - longer)] if longer else [(length, blocks)]


def copying(plan: DirectPlan) -> float:
    """What copying the input of all blocks costs."""
    problem, longest = plan.problem, plan.longest
    *outer, run = (a.reach(n) for a, n in zip(problem.axes, longest, strict=True))
    if plan.has_packed_spans:
        outer, run = [plan.positions(longest)], plan.span
    runs = math.prod(outer) * problem.images * problem.groups * problem.inputs * math.prod(plan.blocks)
    return runs * (COPY_STEPS * -(-run // plan.width) + RUN_STEPS)


# --- shares


def _shared(plan: DirectPlan, steps: float) -> DirectPlan:
    """The plan cut into shares: blocks small enough for a cache and enough of them, and parts of the panels.

    Each block reads all weights and each part the whole block: whatever is larger is cut first, and the other where that does not
    give half of the shares that are wanted.
    """
    problem, wanted, last = plan.problem, shares_for(steps), len(plan.problem.axes) - 1
    has_large_weights = problem.outputs * problem.depth * problem.dtype.itemsize > plan.scratch_bytes
    if has_large_weights:
        plan = with_parts(plan, wanted)
    for k in range(len(problem.axes)):
        while plan.scratch_bytes > SCRATCH_BYTES and (cut := _cut(plan, k, plan.blocks[k] + 1)).has_room:
            plan = cut
        least = blocks = plan.blocks[k]
        if _has_few(plan, wanted) and (k < last or (plan.method.lanes is Lanes.WINDOWS and not has_large_weights)):
            blocks = -(-wanted * least // plan.shares)
        plan = _even(plan, [_cut(plan, k, n) for n in range(max(least, blocks * 2 // 3), blocks * 3 // 2 + 1)], wanted)
    return with_parts(plan, wanted) if plan.parts == 1 and (_has_few(plan, wanted) or plan.shares % 2) else plan


def shares_for(steps: float) -> int:
    """How many shares are wanted for so much work."""
    return max(1, min(SHARES, int(steps / SHARE_STEPS)), min(2, int(steps / LEAST_SHARE)))


def _has_few(plan: ConvolutionPlan, wanted: int) -> bool:
    """Whether there are fewer than half of the shares that are wanted, or one where more are."""
    return 2 * plan.shares < wanted or plan.shares == 1 < wanted


def _cut(plan: DirectPlan, axis: int, blocks: int) -> DirectPlan:
    return replace(plan, blocks=tuple(blocks if k == axis else b for k, b in enumerate(plan.blocks)))


def with_parts(plan: P, wanted: int) -> P:
    """The plan with as many parts of the panels as are about so many shares."""
    parts = min(-(-wanted // plan.shares), plan.most_parts)
    return _even(plan, [replace(plan, parts=n) for n in range(max(1, parts * 2 // 3), max(2, parts * 3 // 2) + 1)], wanted)


def _even(plan: P, found: Sequence[P], wanted: int) -> P:
    """Of some plans with room in their blocks, of about so many shares, one that lets two workers end together; else the given."""
    return min((p for p in found if p.has_room), key=lambda p: (busy(p), abs(p.shares - wanted)), default=plan)


def busy(plan: ConvolutionPlan) -> int:
    """How many tiles the busier one of two workers has."""
    tiles = -(-plan.positions(plan.longest) // plan.method.positions)
    return -(-plan.shares // 2) * tiles * -(-plan.panels // plan.parts)
