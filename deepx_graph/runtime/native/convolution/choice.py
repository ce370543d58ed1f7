"""The choice of a plan: which methods there are, what each costs, and into how many shares it is cut.

Prices are in products of vectors; what takes as long as how many of them was measured (`docs/performance.md`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np

from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.native.convolution.plan import (
    SCRATCH_BYTES,
    ConvolutionPlan,
    DirectPlan,
    Lanes,
    Method,
    ceil_div,
    scratch_bytes,
)
from deepx_graph.runtime.native.convolution.problem import Problem
from deepx_graph.runtime.native.gemm.microkernel import Tile

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

P = TypeVar("P", bound=ConvolutionPlan)

LEAST_USE, LAID_OUT_STEPS = 0.11, 4_000_000
"""Where fewer than this part of the lanes have anything to do, a product of windows laid out is faster, which itself takes as long
as so many steps: laying them out, and what stands around it becomes many kernels."""

MOST_SCRATCH = 4 << 20
"""Of the input of a share, where no blocks are small enough."""


def plan(problem: Problem, register_bytes: int, registers: int) -> ConvolutionPlan:
    """The cheapest plan for so many registers. Raises Declined."""
    width = register_bytes // problem.dtype.itemsize
    whole = [DirectPlan(problem, width, m, (1,) * len(problem.axes), 1) for m in _methods(problem, width, registers)]
    if not whole:
        raise Declined("no direct kernel for this layout")
    found = sorted((price(p), k) for k, p in enumerate(whole))
    plans = [_shared(whole[k], steps) for steps, k in found[:MOST_PLANS]]
    steps, k = min((price(p), k) for k, p in enumerate(plans))
    shared = plans[k]
    useful = problem.depth * math.prod(a.count for a in problem.axes) * problem.outputs * problem.images * problem.groups / width
    if useful < LEAST_USE * steps and steps > LAID_OUT_STEPS:
        raise Declined("too few features for the lanes")
    if scratch_bytes(shared) > MOST_SCRATCH:
        raise Declined("windows too large for a cache")
    return shared


# --- methods


def _methods(problem: Problem, width: int, registers: int) -> Iterator[Method]:
    """The ways whose sums have room in registers, beside the elements that stay there and one of the other operand."""
    for method in _all_methods(problem, width, registers - BESIDE):
        if method.tile.rows * method.tile.vectors + min(method.spread, method.read) < registers or method.lanes is Lanes.GROUPS:
            yield method


def _all_methods(problem: Problem, width: int, sums: int) -> Iterator[Method]:
    last = problem.axes[-1]
    if problem.groups > 1 and problem.inputs == problem.outputs == 1:
        if problem.y[1] == 1:
            for vectors in range(1, min(4, -(-problem.groups // width)) + 1):
                yield from _rows(problem, Lanes.GROUPS, vectors, sums)
    else:
        for vectors in range(1, min(4, -(-problem.outputs // width)) + 1):
            yield from _rows(problem, Lanes.OUTPUTS, vectors, sums)
    if (last.y == 1 or last.y < problem.y[2]) and last.stride <= 4:
        for vectors in range(1, max(1, min(8, last.count // width)) + 1):
            yield from _rows(problem, Lanes.WINDOWS, vectors, sums)


def _rows(problem: Problem, lanes: Lanes, vectors: int, sums: int) -> Iterator[Method]:
    """Methods with so many vectors in a row."""
    most, counts = sums // vectors, [a.count for a in problem.axes]
    if lanes is not Lanes.WINDOWS:
        yield from (Method(lanes, Tile(rows, vectors)) for rows in range(1, min(math.prod(counts), most) + 1))
        return
    other = counts[-2] if len(counts) > 1 else 1
    for outputs, rows in itertools.product(range(1, min(problem.outputs, most) + 1), range(1, min(other, most) + 1)):
        if outputs * rows <= most:
            yield Method(lanes, Tile(outputs * rows, vectors), outputs)


def price(plan: ConvolutionPlan) -> float:
    """Vector products, and what takes as long, of the whole convolution."""
    problem, method, blocks, longest = plan.problem, plan.method, plan.blocks, plan.longest
    tile, lanes, span = method.tile, method.lanes, plan.span
    lengths = [block_lengths(a.count, b) for a, b in zip(problem.axes, blocks, strict=True)]
    if lanes is Lanes.WINDOWS:
        sizes = [*(1,) * (len(longest) - 2), *(method.windows, span)[-len(longest) :]]
        tiles = math.prod(sum(n * ceil_div(length, size) for length, n in each) for each, size in zip(lengths, sizes, strict=True))
        tiles *= ceil_div(problem.outputs, method.outputs)
    else:
        tiles = sum(math.prod(n for _, n in block) * ceil_div(math.prod(length for length, _ in block), tile.rows)
                    for block in itertools.product(*lengths)) * ceil_div(plan.in_lanes, span)
    tiles *= problem.images * (1 if lanes is Lanes.GROUPS else problem.groups)
    loads = (tile.rows + 1) * tile.vectors if lanes is Lanes.GROUPS else method.spread + method.read
    vectors = tile.rows * tile.vectors
    near = 0.0
    if plan.read_bytes > NEAR_BYTES:
        near = NEAR_STEPS * (method.read + (method.windows / 2 if lanes is Lanes.WINDOWS else 0))
    step = max(vectors, LOAD_STEPS * loads, LEAST_STEPS, near) + 1
    store = vectors * (STORE_STEPS if plan.lane_step == 1 else SCATTER_STEPS)
    return tiles * (problem.depth * step + 16 + store) + copying(plan)


def block_lengths(count: int, blocks: int) -> list[tuple[int, int]]:
    """The lengths of blocks of an axis, and how many have each."""
    length, longer = divmod(count, blocks)
    return [(length + 1, longer), (length, blocks - longer)] if longer else [(length, blocks)]


def copying(plan: ConvolutionPlan) -> float:
    """What copying the input of all blocks costs."""
    problem, method, width, longest = plan.problem, plan.method, plan.width, plan.longest
    if plan.has_packed_tiles:
        run = method.tile.vectors * width if method.lanes is Lanes.WINDOWS else method.windows
        runs: float = ceil_div(longest[0], run)
    else:
        *outer, run = (a.reach(n) for a, n in zip(problem.axes, longest, strict=True))
        runs = math.prod(outer)
    runs *= problem.images * problem.groups * problem.inputs * math.prod(plan.blocks)
    return runs * (COPY_STEPS * ceil_div(run, width) + RUN_STEPS)


# --- shares


def _shared(plan: ConvolutionPlan, steps: float) -> ConvolutionPlan:
    """The plan cut into shares: blocks small enough for a cache and enough of them, and parts of the panels.

    Each block reads all weights and each part the whole block: whatever is larger is cut first, and the other where that does not
    give half of the shares that are wanted.
    """
    wanted = shares_for(steps)
    axes = plan.problem.axes
    weights = plan.problem.outputs * plan.problem.depth * np.dtype(plan.problem.dtype).itemsize
    if weights > scratch_bytes(plan):
        plan = replace(plan, parts=min(plan.most_parts, -(-wanted // plan.shares)))
    for k, axis in enumerate(axes):
        in_vectors, most = plan.method.lanes is Lanes.WINDOWS and k == len(axes) - 1, _most_blocks(plan, k)
        while plan.blocks[k] < most and scratch_bytes(plan) > SCRATCH_BYTES:
            plan = _cut(plan, k, plan.blocks[k] + 1)
        least = blocks = plan.blocks[k]
        if _has_few(plan, wanted) and (k < len(axes) - 1 or (in_vectors and weights <= scratch_bytes(plan))):
            blocks = -(-wanted * blocks // plan.shares)
        plan = _cut(plan, k, _even(axis.count, blocks, most, least, _even_size(plan, k), plan.shares // plan.blocks[k]))
    parts = -(-wanted // plan.shares) if plan.parts == 1 and _has_few(plan, wanted) else plan.parts
    return parted(replace(plan, parts=parts), steps, copying(plan))


def shares_for(steps: float) -> int:
    """How many shares are wanted for so much work."""
    return max(1, min(SHARES, int(steps / SHARE_STEPS)), min(2, int(steps / LEAST_SHARE)))


def _has_few(plan: ConvolutionPlan, wanted: int) -> bool:
    """Whether there are fewer than half of the shares that are wanted, or one where more are."""
    return 2 * plan.shares < wanted or plan.shares == 1 < wanted


def parted(plan: P, steps: float, copying: float) -> P:
    """The plan with about as many parts: such as let two workers end together. Each copies half of the blocks, and one of them that
    the other has, too, where their number is odd."""
    wanted = plan.parts

    def worse(parts: int) -> tuple[float, int]:
        return span(replace(plan, parts=parts), steps, copying), abs(parts - wanted)

    least, most = max(1, min(wanted, plan.most_parts) * 2 // 3), min(plan.most_parts, max(2, wanted * 3 // 2))
    return replace(plan, parts=min(range(least, most + 1), key=worse))


def span(plan: ConvolutionPlan, steps: float, copying: float) -> float:
    """How long two workers take for so much work, of which so much is copying."""
    blocks = plan.shares // plan.parts
    larger = ceil_div(plan.shares, 2) * ceil_div(plan.panels, plan.parts) / (blocks * plan.panels)
    return larger * (steps - copying) + ceil_div(blocks, 2) / blocks * copying


def _most_blocks(plan: ConvolutionPlan, axis: int) -> int:
    """How many blocks an axis can have, each with room for a tile."""
    count, method = plan.problem.axes[axis].count, plan.method
    if method.lanes is Lanes.WINDOWS:
        return max(1, count // _even_size(plan, axis))
    others = math.prod(a.count // b for k, (a, b) in enumerate(zip(plan.problem.axes, plan.blocks, strict=True)) if k != axis)
    return max(1, count // ceil_div(method.windows, others))


def _even_size(plan: ConvolutionPlan, axis: int) -> int:
    """A length of blocks along an axis of which multiples are whole tiles."""
    windows, last = plan.method.windows, len(plan.problem.axes) - 1
    if plan.method.lanes is Lanes.WINDOWS:
        return plan.span if axis == last else windows if axis == last - 1 else 1
    return windows // math.gcd(windows, math.prod(a.count for a in plan.problem.axes[axis + 1 :]))


def _cut(plan: ConvolutionPlan, axis: int, blocks: int) -> ConvolutionPlan:
    return replace(plan, blocks=tuple(blocks if k == axis else b for k, b in enumerate(plan.blocks)))


def _even(count: int, wanted: int, most: int, least: int, tile: int, others: int) -> int:
    """About so many blocks, at most `most`, each of which is so many shares: such as leave blocks of whole tiles of one size, and
    two workers as many of them, if there are."""
    found = range(max(least, min(wanted, most) * 2 // 3), min(most, wanted * 3 // 2) + 1)
    return min(found, key=lambda b: (ceil_div(b * others, 2) * ceil_div(ceil_div(count, b), tile), abs(b - wanted)), default=least)
