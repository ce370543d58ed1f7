"""The cheapest way from one sharding to another: a path of slices, gathers, exchanges, permutations and reductions.

A state says along which axes each dimension is split, and over which axes the value is still to be summed. Moves lead from state to
state; the path with the least cost is found by Dijkstra's algorithm. Costs are the bytes that a device has after each move, and a
fixed price for each message. XLA's partitioner falls back to gathering everything where it knows no direct move; a search does not.
Where a dimension is not split evenly its parts are rounded up; a move is taken only where the parts before and after it begin at
the same places, so that what is beyond the end stays there. `moves.Mover` writes a path as nodes.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from deepx_graph.errors import UsageError
from deepx_graph.sharding.mesh import Axes, AxisRef, count_of, local_shape

MESSAGE = 64.0
"""What starting a collective costs, in bytes."""

MOST_AXES = 6
"""Of more prime factors those that stand together move together."""

MOST_STATES = 20_000
"""More states are not looked at."""


@dataclass(frozen=True)
class TensorLayout:
    """The axes of each dimension, as prime factors, and those over which partial results are still to be combined."""

    dims: tuple[Axes, ...]
    partial: Axes = ()

    @staticmethod
    def whole(rank: int) -> TensorLayout:
        """That of a tensor which every device has whole."""
        return TensorLayout(((),) * rank)


@dataclass(frozen=True)
class ReshardMove:
    """One step: its kind, the axes that it is along, and the dimensions, of the operand and of the result, that change."""

    kind: str
    axes: Axes = ()
    source: int = -1
    target: int = -1


SLICE, GATHER, EXCHANGE, PERMUTE, REDUCE, SCATTER = (
    "slice", "all_gather", "all_to_all", "collective_permute", "all_reduce", "reduce_scatter")  # fmt: skip


@dataclass(frozen=True)
class Path:
    """Moves in order with the layout after each, and what they cost together."""

    moves: tuple[tuple[ReshardMove, TensorLayout], ...]
    cost: float

    @property
    def is_free(self) -> bool:
        """Whether devices exchange nothing."""
        return all(move.kind == SLICE for move, _ in self.moves)


@cache
def reshard_path(shape: tuple[int, ...], itemsize: int, before: TensorLayout, after: TensorLayout) -> Path:
    """The cheapest path for a tensor of that shape. Raises UsageError where none is found.

    On large meshes axes that stand together in both layouts move together.
    """
    if len({a for layout in (before, after) for axes in (*layout.dims, layout.partial) for a in axes}) > MOST_AXES:
        runs = _runs(before, after)
        found = _search(shape, itemsize, _replaced(before, runs), _replaced(after, runs))
        if found is not None:
            whole = {run: atoms for atoms, run in runs.items()}
            moves = ((replace(move, axes=_expanded(move.axes, whole)), TensorLayout(
                tuple(_expanded(axes, whole) for axes in at.dims), _expanded(at.partial, whole))) for move, at in found.moves)
            return Path(tuple(moves), found.cost)
    found = _search(shape, itemsize, before, after)
    if found is None:
        raise UsageError(f"no path from one sharding of {list(shape)} to the other")
    return found


def _runs(before: TensorLayout, after: TensorLayout) -> dict[Axes, AxisRef]:
    """Prime factors of one axis that follow one another wherever one of them is, each with the part of the axis that they are."""
    rows = [axes for layout in (before, after) for axes in (*layout.dims, layout.partial)]
    following = [{a: b for a, b in pairwise((*axes, None)) if a} for axes in rows]
    runs: list[list[AxisRef]] = []
    for a in dict.fromkeys(a for axes in rows for a in axes):
        run = next((r for r in runs if _follows(r[-1], a, following)), None)
        if run is None:
            runs.append([a])
        else:
            run.append(a)
    return {tuple(run): replace(run[0], size=count_of(run)) for run in runs}


def _follows(a: AxisRef, b: AxisRef, following: Sequence[Mapping[AxisRef, AxisRef | None]]) -> bool:
    is_next = (a.mesh, a.name, a.post) == (b.mesh, b.name, b.pre)
    return is_next and all((a in row) == (b in row) and (a not in row or row[a] == b) for row in following)


def _replaced(layout: TensorLayout, runs: Mapping[Axes, AxisRef]) -> TensorLayout:
    first = {atoms[0]: run for atoms, run in runs.items()}
    return TensorLayout(tuple(tuple(first[a] for a in axes if a in first) for axes in layout.dims),
                        tuple(first[a] for a in layout.partial if a in first))


def _expanded(axes: Axes, whole: Mapping[AxisRef, Axes]) -> Axes:
    return tuple(a for run in axes for a in whole[run])


def _search(shape: tuple[int, ...], itemsize: int, before: TensorLayout, after: TensorLayout) -> Path | None:
    """Dijkstra's algorithm; None where no path is found."""
    number = itertools.count()
    queue: list[tuple[float, int, TensorLayout]] = [(0.0, next(number), before)]
    best: dict[TensorLayout, float] = {before: 0.0}
    reached: dict[TensorLayout, tuple[TensorLayout, ReshardMove]] = {}
    done: set[TensorLayout] = set()
    while queue and len(done) < MOST_STATES:
        cost, _, at = heapq.heappop(queue)
        if at in done:
            continue
        done.add(at)
        if at == after:
            return Path(_steps(reached, before, after), cost)
        size = _bytes(shape, itemsize, at)
        for move, there in _moves(shape, at, after):
            price = cost + _cost(move, size, _bytes(shape, itemsize, there))
            if price < best.get(there, math.inf):
                best[there] = price
                reached[there] = at, move
                heapq.heappush(queue, (price, next(number), there))
    return None


def _steps(reached: dict[TensorLayout, tuple[TensorLayout, ReshardMove]], before: TensorLayout,
           at: TensorLayout) -> tuple[tuple[ReshardMove, TensorLayout], ...]:
    found = []
    while at != before:
        earlier, move = reached[at]
        found.append((move, at))
        at = earlier
    return tuple(reversed(found))


def _bytes(shape: Sequence[int], itemsize: int, at: TensorLayout) -> float:
    return math.prod(local_shape(shape, at.dims)) * itemsize


def _cost(move: ReshardMove, before: float, after: float) -> float:
    """Bytes of the result on one device; of equal ones the fewer received in a ring; slices are free but for being a step."""
    n = count_of(move.axes)
    if move.kind == SLICE:
        return 1.0
    received = {GATHER: after * (n - 1) / n, EXCHANGE: before * (n - 1) / n, PERMUTE: before,
                REDUCE: 2 * before * (n - 1) / n, SCATTER: before * (n - 1) / n}[move.kind]  # fmt: skip
    return after + received / 64 + MESSAGE


def _moves(shape: Sequence[int], at: TensorLayout, after: TensorLayout) -> Iterator[tuple[ReshardMove, TensorLayout]]:
    used = {a for axes in at.dims for a in axes} | set(at.partial)
    grids = {a.mesh for a in used}
    for d, axes in enumerate(at.dims):
        for k in range(len(axes)):
            taken = axes[k:]
            if not _aligned(shape[d], axes[:k], taken):
                continue
            whole = _with(at.dims, {d: axes[:k]})
            yield ReshardMove(GATHER, taken, d), TensorLayout(whole, at.partial)
            for e in range(len(at.dims)):
                if (e != d and _next(at.dims[e], after.dims[e], len(taken)) == taken
                        and _aligned(shape[e], at.dims[e], taken)):
                    yield ReshardMove(EXCHANGE, taken, d, e), TensorLayout(_with(whole, {e: at.dims[e] + taken}), at.partial)
        missing = _next(axes, after.dims[d], len(after.dims[d]))
        for k in range(1, len(missing) + 1):
            added = missing[:k]
            if not _aligned(shape[d], axes, added):
                continue
            grown = _with(at.dims, {d: axes + added})
            if used.isdisjoint(added) and grids <= {added[0].mesh}:
                yield ReshardMove(SLICE, added, target=d), TensorLayout(grown, at.partial)
            if set(added) <= set(at.partial):
                yield ReshardMove(SCATTER, added, target=d), TensorLayout(grown, _less(at.partial, added))
    unfinished = _less(at.partial, after.partial)
    if unfinished:
        yield ReshardMove(REDUCE, unfinished), TensorLayout(at.dims, _less(at.partial, unfinished))
        for a in unfinished:
            yield ReshardMove(REDUCE, (a,)), TensorLayout(at.dims, _less(at.partial, (a,)))
    if not at.partial and at.dims != after.dims:
        spare = sorted({a for axes in after.dims for a in axes if grids <= {a.mesh}} - used, key=str)
        for d, axes in enumerate(at.dims):
            for a in spare:  # what a permutation makes into the axes that are wanted
                if len(axes) < len(after.dims[d]) and _aligned(shape[d], axes, (a,)):
                    yield ReshardMove(SLICE, (a,), target=d), TensorLayout(_with(at.dims, {d: (*axes, a)}))
        if (relabelled := _relabelled(at.dims, after.dims)) not in (None, at.dims):
            yield ReshardMove(PERMUTE), TensorLayout(relabelled)


def _relabelled(dims: tuple[Axes, ...], after: tuple[Axes, ...]) -> tuple[Axes, ...] | None:
    """The layout of the same sizes that has the wanted axes in front as far as it has any; behind them those wanted elsewhere.

    None where sizes do not allow it.
    """
    found = [list(wanted[: len(axes)]) for axes, wanted in zip(dims, after, strict=True)]
    if any(a.size != b.size for mine, axes in zip(found, dims, strict=True) for a, b in zip(mine, axes, strict=False)):
        return None
    taken = {a for mine in found for a in mine}
    elsewhere = [a for axes, wanted in zip(dims, after, strict=True) for a in wanted[len(axes) :]]
    for mine, axes in zip(found, dims, strict=True):
        for old in axes[len(mine) :]:
            others = (a for other in dims for a in other)
            new = next((a for a in (*elsewhere, old, *others) if a.size == old.size and a not in taken), None)
            if new is None:
                return None
            mine.append(new)
            taken.add(new)
    return tuple(map(tuple, found)) if len({a.mesh for mine in found for a in mine}) <= 1 else None


def _aligned(size: int, major: Axes, minor: Axes) -> bool:
    """Whether the parts along the major axes are made of whole ones along both: always of the whole dimension."""
    few, many = count_of(major), count_of(minor)
    return few == 1 or -(-size // few) == -(-size // (few * many)) * many


def _with(dims: tuple[Axes, ...], changed: dict[int, Axes]) -> tuple[Axes, ...]:
    return tuple(changed.get(k, axes) for k, axes in enumerate(dims))


def _less(axes: Axes, gone: Axes) -> Axes:
    return tuple(a for a in axes if a not in gone)


def _next(axes: Axes, wanted: Axes, count: int) -> Axes:
    """The next axes that a dimension is to be split along; none where it is split in another way already."""
    return wanted[len(axes) : len(axes) + count] if wanted[: len(axes)] == axes else ()
