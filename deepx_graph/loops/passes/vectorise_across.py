"""Folds become loops over contiguous elements: an output axis is tiled, and its tile is the innermost loop of what is folded.

    for j in 0 .. n:                    for t in 0 .. n / TILE:
      cell = 0                            for lane: cells[lane] = 0
      for k in 0 .. m:             ->     for k in 0 .. m:
        cell = cell + x[k, j]               for lane: cells[lane] = cells[lane] + x[k, TILE * t + lane]
      y[j] = cell                         for lane: y[TILE * t + lane] = cells[lane]

These are strip-mining, scalar expansion, distribution and interchange of the literature. Iterations of a parallel loop may run in
any order, so all of it is legal where the loop is parallel. The last tile begins early enough to be whole: it computes some
elements again. A chain of dependent steps, as a running sum or the position of a greatest element is, gains even where elements of
a tile lie apart: chains of several rows then run side by side.

Where folds are better left as they are, what follows them may still be worth a loop of its own: then the loop is distributed only,

    for j in 0 .. n:                    for t in 0 .. n / TILE:
      cell = 0                            for lane: cell = 0, for k in 0 .. m: cell = cell + x[TILE * t + lane, k]
      for k in 0 .. m:             ->               cells[lane] = cell
        cell = cell + x[j, k]             for lane: y[TILE * t + lane] = exp(cells[lane])
      y[j] = exp(cell)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from deepx_graph.loops.passes.rewrite import Copier, Fresh, dependent, replaced
from deepx_graph.loops.program import (
    Buffer,
    Cell,
    Combine,
    Conditional,
    Copy,
    For,
    Get,
    Let,
    Load,
    LoopProgram,
    Set,
    Statement,
    Store,
    While,
    assigns,
    blocks_of,
    position_in,
    reads,
    walk,
)
from deepx_graph.loops.scalar import Affine, Scalar, ScalarVar, affine
from deepx_graph.loops.weight import price_of, trips, weighted
from deepx_graph.types import I64

CONTIGUOUS_TILE = 64
"""Elements that are computed side by side where they lie side by side."""

APART_TILE = 16
"""The same where they lie apart: rows whose cache lines are all kept."""

LANES = 8
"""How many elements a vector operation takes, about."""

LONG_FOLD = 16
"""A fold of at least so many steps is made of vectors by itself, where it may be reordered."""

LATENCY = 4.0
"""How long a step waits for the step before, in additions."""

APART = 1.5
"""What an access costs as a part of a vector whose elements do not lie side by side, in additions."""

GAIN = 0.7
"""The loops are exchanged where the cost becomes that much less."""


def vectorise_across(program: LoopProgram) -> LoopProgram:
    """The program with tiled loops, in place."""
    fresh = Fresh(program)
    new = {id(choice.loop): list(_tiled(choice, fresh)) for choice in _chosen(program.body)[1]}
    program.body = replaced(program.body, new)
    return program


@dataclass(frozen=True)
class _Choice:
    """A loop to be tiled, and whether its folds stay as they are."""

    loop: For
    tile: int
    keeps_folds: bool = False


def _chosen(body: Sequence[Statement], times: float = 1.0) -> tuple[float, list[_Choice]]:
    """The loops to be tiled, none within another, and what that saves."""
    saved, chosen = 0.0, list[_Choice]()
    for s in body:
        each, choices = 0.0, list[_Choice]()
        for block in blocks_of(s):
            more, others = _chosen(block, times * trips(s))
            each, choices = each + more, choices + others
        if isinstance(s, For) and s.parallel and _has_loop(s) and _is_tileable(s):
            gain, choice = _best(s)
            if times * trips(s) * gain > each:
                each, choices = times * trips(s) * gain, [choice]
        saved, chosen = saved + each, chosen + choices
    return saved, chosen


def _best(loop: For) -> tuple[float, _Choice]:
    """How to tile a loop, and what that saves in each of its iterations; nothing where it is to stay as it is."""
    present, (cost, contiguous) = _folded_cost(loop.body), _tiled_cost(loop.body, loop.axis)
    if contiguous or any(_is_chain(each) for each in walk(loop.body)):
        choice = _Choice(loop, CONTIGUOUS_TILE if contiguous else APART_TILE)
    else:
        choice, (present, cost) = _Choice(loop, CONTIGUOUS_TILE, keeps_folds=True), _distributed_cost(loop)
    return (present - cost if cost <= GAIN * present else 0.0), choice


# --- what may be tiled


def _is_tileable(loop: For) -> bool:
    """Whether all loops within have bounds that are the same for all iterations, and all memory is the program's."""
    if (loop.high - loop.low).terms or (loop.high - loop.low).constant < 4:
        return False
    varying = dependent(loop.body, loop.axis)
    statements = list(walk(loop.body))
    if any(isinstance(s, (While, Copy)) or (isinstance(s, (Load, Store)) and s.buffer.role == "local") for s in statements):
        return False
    if any(isinstance(s, For) and not varying.isdisjoint(reads(s)) for s in statements):
        return False
    if any(isinstance(s, Conditional) and not varying.isdisjoint(reads(s)) and _has_loop(s) for s in statements):
        return False
    stored = {s.buffer for s in statements if isinstance(s, Store)}
    return stored.isdisjoint(s.buffer for s in statements if isinstance(s, Load))


def _has_loop(s: Statement) -> bool:
    return any(isinstance(each, For) for block in blocks_of(s) for each in walk(block))


# --- what it costs


def _folded_cost(body: list[Statement], long: int = LONG_FOLD) -> float:
    """The cost of statements as they are, where folds alone become vectors, those of at least so many steps."""
    total = 0.0
    for s, times in weighted(body):
        total += times * price_of(s)
        if isinstance(s, For) and not s.parallel and not _has_loop(s):
            total += times * trips(s) * _more_along(s, long)
    return total


def _more_along(loop: For, long: int) -> float:
    """What an iteration of an innermost loop costs more than its statements one by one; less than nothing for one of vectors."""
    inner = list(walk(loop.body))
    if _is_chain(loop):
        return LATENCY
    if trips(loop) < long or any(isinstance(s, (Conditional, While)) for s in inner):
        return 0.0
    apart = _accesses_apart(loop.body, loop.axis)
    return sum(price_of(s) for s in inner if id(s) not in apart) * (1 / LANES - 1)


def _is_chain(s: Statement) -> bool:
    """Whether each iteration of an innermost loop waits for the one before."""
    if not isinstance(s, For) or s.parallel or _has_loop(s):
        return False
    return not _exposed(s.body, set()).isdisjoint(each.cell for each in walk(s.body) if isinstance(each, Set))


def _exposed(body: Sequence[Statement], assigned: set[Cell]) -> set[Cell]:
    """The cells that an iteration may read before it assigns them: upward-exposed uses. Adds to `assigned` what it assigns for
    sure."""
    found: set[Cell] = set()
    for s in body:
        if isinstance(s, Get):
            found |= {s.cell} - assigned
        elif isinstance(s, Set):
            assigned.add(s.cell)
        elif isinstance(s, Conditional):
            then, otherwise = set(assigned), set(assigned)
            found |= _exposed(s.then, then) | _exposed(s.otherwise, otherwise)
            assigned |= then & otherwise
        else:
            for block in blocks_of(s):
                found |= _exposed(block, set(assigned))
    return found


def _accesses_apart(body: list[Statement], axis: ScalarVar) -> set[int]:
    """The accesses of which neighbouring iterations of an axis touch elements that do not lie side by side."""
    varying = dependent(body, axis, cells=False) - {axis}
    found = set()
    for s in walk(body):
        if isinstance(s, (Load, Store)):
            at = position_in(s.buffer, s.index)
            if at.stride(axis) not in (0, 1) or any(v in varying for v, _ in at.terms):
                found.add(id(s))
    return found


def _tiled_cost(body: list[Statement], axis: ScalarVar) -> tuple[float, bool]:
    """The cost of a loop's nest for each iteration of the loop, and whether all its elements lie side by side."""
    apart, varying = _accesses_apart(body, axis), dependent(body, axis)
    total = 0.0
    for s, times in weighted(body):
        if isinstance(s, (Let, Load)) and varying.isdisjoint(reads(s)):
            continue
        if isinstance(s, (Get, Set)):
            total += times / LANES
        elif isinstance(s, (Let, Load, Store, Combine)):
            total += times * (APART if id(s) in apart else price_of(s) / LANES)
    return total, not apart


def _distributed_cost(loop: For) -> tuple[float, float]:
    """The cost for each iteration, and where what comes after the last fold is a loop of its own, if that can be vectors. Folds of
    as many elements as a vector has are vectors either way, by masks."""
    folds, rest = _parted(loop.body)
    cost, contiguous = _tiled_cost(rest, loop.axis)
    kept = {x for s in walk(folds) for x in assigns(s)} & {x for s in walk(rest) for x in reads(s)}
    fixed, now = _folded_cost(folds, LANES), _folded_cost(rest)
    return fixed + now, fixed + (cost + len(kept) if contiguous else now)


def _parted(body: list[Statement]) -> tuple[list[Statement], list[Statement]]:
    """The statements up to the last that has a loop, with those that take its totals, and the rest."""
    end = max(k for k, s in enumerate(body, 1) if isinstance(s, For) or _has_loop(s))
    while end < len(body) and isinstance(body[end], Get):
        end += 1
    return body[:end], body[end:]


# --- tiling


def _tiled(choice: _Choice, fresh: Fresh) -> Iterator[Statement]:
    """The statements instead of a loop."""
    loop = choice.loop
    n = (loop.high - loop.low).constant
    tile = min(choice.tile, n)
    count = -(-n // tile)
    t = fresh.var(I64, 0, count - 1)
    body: list[Statement] = []
    start: Affine = affine(t) * tile
    if n % tile:
        limited = fresh.var(I64, 0, n - tile)
        body.append(Let(limited, "min", (start, Affine((), n - tile))))
        start = affine(limited)
    varying = dependent(loop.body, loop.axis)
    body += _Tile(fresh, loop.axis, loop.low + start, tile, varying, choice.keeps_folds).block_of(loop.body)
    yield For(t, Affine(), Affine((), count), body, parallel=True)


@dataclass(eq=False)
class _Tile:
    """The body of a loop for all elements of a tile."""

    fresh: Fresh
    axis: ScalarVar
    start: Affine
    size: int
    varying: set[ScalarVar]
    keeps_folds: bool
    expanded: dict[ScalarVar | Cell, Buffer] = field(default_factory=dict)

    def block_of(self, body: list[Statement]) -> list[Statement]:
        """The whole body."""
        groups = list(self._groups(body))
        used: dict[ScalarVar | Cell, set[int]] = {}
        for k, group in enumerate(groups):
            for s in group:
                for each in walk([s]):
                    for x in (*reads(each), *assigns(each)):
                        used.setdefault(x, set()).add(k)
        made = {x for group in groups for s in group for each in walk([s]) for x in assigns(each)}
        for x, users in used.items():  # in their order: the code is the same in every process, and found in the cache
            if x in made and len(users) > 1:
                self.expanded[x] = self.fresh.local(x.dtype, self.size)
        return self._distributed(body)

    def _groups(self, body: list[Statement]) -> Iterator[list[Statement]]:
        """The statements that are done for one element after the other, before the next are begun."""
        if self.keeps_folds:
            yield from _parted([s for s in body if not self._is_shared(s)])
            return
        group: list[Statement] = []
        for s in body:
            if self._is_shared(s):
                continue
            if not self._encloses(s):
                group.append(s)
                continue
            if group:
                yield group
            group = []
            for block in blocks_of(s):
                yield from self._groups(block)
        if group:
            yield group

    def _is_shared(self, s: Statement) -> bool:
        """Whether a statement does the same for all elements."""
        return isinstance(s, (Let, Load)) and s.target not in self.varying

    def _encloses(self, s: Statement) -> bool:
        """Whether the loop over a tile's elements is put into the statement, not around it."""
        return isinstance(s, For) or (isinstance(s, Conditional) and self.varying.isdisjoint(reads(s)))

    def _distributed(self, body: list[Statement]) -> list[Statement]:
        if self.keeps_folds:
            shared = [s for s in body if self._is_shared(s)]
            return shared + [loop for group in self._groups(body) for loop in self._lanes(group)]
        found: list[Statement] = []
        group: list[Statement] = []
        for s in body:
            if self._is_shared(s):
                found.append(s)
            elif not self._encloses(s):
                group.append(s)
            else:
                found += self._lanes(group)
                group = []
                for block in blocks_of(s):
                    block[:] = self._distributed(block)
                found.append(s)
        return found + self._lanes(group)

    def _lanes(self, group: list[Statement]) -> list[Statement]:
        """A loop over the elements of a tile."""
        if not group:
            return []
        lane = self.fresh.var(I64, 0, self.size - 1)
        at = (affine(lane),)
        statements = [each for s in group for each in walk([s])]
        touched = {x for each in statements for x in (*reads(each), *assigns(each)) if x in self.expanded}
        made = {x for each in statements for x in assigns(each)}
        scalars: dict[ScalarVar, Scalar] = {self.axis: self.start + affine(lane)}
        cells: dict[Cell, Cell] = {}
        before: list[Statement] = []
        for x in sorted(touched, key=lambda x: x.number):
            if isinstance(x, Cell):
                cells[x] = self.fresh.cell(x.dtype)
                if not _is_set_at_once(group, x):
                    before += self._loaded(self.expanded[x], at, cells[x])
            elif x not in made:
                loaded = self.fresh.like(x)
                before.append(Load(loaded, self.expanded[x], at))
                scalars[x] = loaded
        copier = Copier(self.fresh, scalars, cells)
        body = copier.block(group)
        changed = {s.cell for s in statements if isinstance(s, (Set, Combine))}
        for x in sorted(touched, key=lambda x: x.number):
            if isinstance(x, Cell) and x in changed:
                now = self.fresh.var(x.dtype)
                body += [Get(now, cells[x]), Store(self.expanded[x], at, now)]
            elif isinstance(x, ScalarVar) and x in made:
                body.append(Store(self.expanded[x], at, copier.scalar(x)))
        return [For(lane, Affine(), Affine((), self.size), before + body, parallel=True)]

    def _loaded(self, buffer: Buffer, at: tuple[Affine, ...], cell: Cell) -> list[Statement]:
        value = self.fresh.var(cell.dtype)
        return [Load(value, buffer, at), Set(cell, value)]


def _is_set_at_once(group: Sequence[Statement], cell: Cell) -> bool:
    """Whether the first that is done with a cell is that it is assigned."""
    for s in group:
        if isinstance(s, Set) and s.cell is cell:
            return True
        if any(cell in (*reads(each), *assigns(each)) for each in walk([s])):
            return False
    return False
