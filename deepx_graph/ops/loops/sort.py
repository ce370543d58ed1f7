"""Sorting by a comparator and the greatest elements, as loop programs.

Short rows across others are sorted by exchanges of neighbours, which become vectors; rows by keys (`ops.tensor.sort.keys_of`) by
counting what precedes each element where they are short, else by radix; other rows are merged. All are stable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.loops import Affine, LazyTensor, LoopBuilder, Scalar, call
from deepx_graph.loops.program import Buffer
from deepx_graph.loops.scalar import FALSE, Index
from deepx_graph.loops.tensor import in_memory
from deepx_graph.ops.tensor.sort import Key, keys_of
from deepx_graph.types import I32, I64, U8, U16, U32, U64, scalar

RUN = 16
"""Runs of so many elements are sorted by insertion."""

MOST_EXCHANGED, MOST_EXCHANGED_ALONE = 16, 4
"""Rows of so many elements are sorted by exchanges: where neighbours in memory belong to different rows, and where they do not."""

MOST_COUNTED = 128
"""Rows of so many elements are sorted by counting."""

LONG = 1 << 14
"""Rows of so many elements are sorted by 11 bits at once, shorter ones by 8."""

MOST_LOCAL = 64 << 10
"""Bytes of a row that is sorted on the stack."""

MOST_INSERTED = 64
"""So many greatest elements are kept in order by insertion."""

BLOCK = 32
"""So many elements are looked at together, whether one is greater than those that are kept."""

UNSIGNED = {1: U8, 2: U16, 4: U32, 8: U64}

RowIndex = Callable[[Affine], Index]
Less = Callable[[Sequence[Any], Sequence[Any]], Scalar]


@dataclass(frozen=True)
class Rows:
    """One row of each tensor: `x.at(b, index(i))` is its i-th element; `at` is which row, of as many as `counts` says."""

    n: int
    index: RowIndex
    at: Index
    counts: tuple[int, ...]

    def read(self, b: LoopBuilder, xs: Sequence[LazyTensor], i: Affine) -> list[Any]:
        """The i-th elements of operands."""
        return [x.at(b, self.index(i)) for x in xs]

    def fetch(self, b: LoopBuilder, xs: Sequence[LazyTensor], i: Affine) -> list[Any]:
        """The i-th elements of what is in memory and changes."""
        return [b.fetch(x, self.index(i)) for x in xs]

    def write(self, b: LoopBuilder, outs: Sequence[LazyTensor], i: Affine, values: Sequence[Any]) -> None:
        """Assigns the i-th elements of results."""
        for out, value in zip(outs, values, strict=True):
            b.put(out, self.index(i), value)


def sort_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """Each row along the dimension, by the comparator."""
    shape, axis, comparator = xs[0].shape, node.attr("dimension"), node.attr("comparator")
    if math.prod(shape[axis : axis + 1]) < 2:
        for out, x in zip(outs, xs, strict=True):
            b.copy(out, x)
        return

    def less(x: Sequence[Any], y: Sequence[Any]) -> Scalar:
        pairs = [side for pair in zip(x, y, strict=True) for side in pair]
        found: Scalar = call(b, comparator, pairs)[0]
        return found

    keys, n, counts = keys_of(comparator), shape[axis], (*shape[:axis], *shape[axis + 1 :])
    last = axis == len(shape) - 1
    if n <= (MOST_EXCHANGED_ALONE if last else MOST_EXCHANGED):
        with b.nest(counts) as at:
            _exchange(b, Rows(n, lambda i: [*at[:axis], i, *at[axis:]], at, counts), keys, less, xs, outs)
    elif keys is not None:
        _sort_by_keys(b, keys, xs, outs, axis)
    else:
        spare = [in_memory(b.buffer(x.dtype, shape), x.dtype) for x in xs]
        with b.nest(counts) as at:
            _merge(b, lambda i: [*at[:axis], i, *at[axis:]], n, less, [xs, list(outs), spare])


def _sort_by_keys(b: LoopBuilder, keys: Sequence[Key], xs: Sequence[LazyTensor], outs: Sequence[LazyTensor], axis: int) -> None:
    """Each row along the axis, by keys."""
    shape = xs[0].shape
    n, counts = shape[axis], (*shape[:axis], *shape[axis + 1 :])
    spare = [] if n <= MOST_COUNTED else _spare(b, xs, counts, n, twice=axis < len(shape) - 1)
    with b.nest(counts) as at:
        rows = Rows(n, lambda i: [*at[:axis], i, *at[axis:]], at, counts)
        if spare:
            _radix(b, rows, keys, xs, outs, spare)
        else:
            _count(b, rows, keys, xs, outs)


# --- keys


def key_bits(b: LoopBuilder, key: Key, values: Sequence[Any]) -> Any:
    """An unsigned integer in the order of the key of these elements."""
    x = call(b, key.value, [values[k] for k in key.operands])[0]
    if x.dtype.is_float and not key.total:
        x = b.apply("where", b.apply("eq", x, b.const(0, x.dtype)), b.const(0, x.dtype), x)
        x = b.apply("where", b.apply("ne", x, x), b.const(float("nan"), x.dtype), x)
    order = b.total_order(x)
    unsigned = UNSIGNED[order.dtype.itemsize]
    if order.dtype.kind == "int":
        top = b.const(1 << (order.dtype.bits - 1), unsigned)
        order = b.apply("xor", b.apply("bitcast", order, dtype=unsigned), top)
    return b.apply("not", order) if key.descending else order


def _precedes(b: LoopBuilder, one: Sequence[Scalar], other: Sequence[Scalar], *, or_equals: bool) -> Scalar:
    """Whether keys precede others, the most important first."""
    found: Scalar = b.apply("le" if or_equals else "lt", one[-1], other[-1])
    for x, y in zip(reversed(one[:-1]), reversed(other[:-1]), strict=True):
        found = b.apply("or", b.apply("lt", x, y), b.apply("and", b.apply("eq", x, y), found))
    return found


# --- exchanges of neighbours


def _exchange(b: LoopBuilder, rows: Rows, keys: Sequence[Key] | None, less: Less, xs: Sequence[LazyTensor],
              outs: Sequence[LazyTensor]) -> None:
    """A row in registers: insertion without branches."""
    held: list[list[Any]] = []
    for i in range(rows.n):
        new = rows.read(b, xs, Affine((), i))
        held.append([*new, *(key_bits(b, k, new) for k in keys or ())])
        for j in range(i, 0, -1):
            one, other = held[j - 1], held[j]
            precedes = less(other, one) if keys is None else _precedes(b, other[len(xs) :], one[len(xs) :], or_equals=False)
            held[j - 1] = [b.apply("where", precedes, y, x) for x, y in zip(one, other, strict=True)]
            held[j] = [b.apply("where", precedes, x, y) for x, y in zip(one, other, strict=True)]
    for i, values in enumerate(held):
        rows.write(b, outs, Affine((), i), values[: len(outs)])


# --- counting


def _count(b: LoopBuilder, rows: Rows, keys: Sequence[Key], xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """Each element goes to the position that as many elements precede."""
    kept: list[Buffer] = []
    with b.loop(rows.n) as i:
        values = rows.read(b, xs, i)
        for k, bits in enumerate(key_bits(b, key, values) for key in keys):
            if len(kept) == k:
                kept.append(b.buffer(bits.dtype, (rows.n,), "local"))
            b.store(kept[k], [i], bits)
    counter = I32 if all(k.dtype.itemsize <= I32.itemsize for k in kept) else I64
    with b.loop(rows.n) as i:
        mine = [b.load(k, [i]) for k in kept]
        before = b.cell(counter, b.const(0, counter))
        for low, high, or_equals in ((Affine(), i, True), (i + 1, Affine((), rows.n), False)):
            with b.loop(high, low) as j:
                found = _precedes(b, [b.load(k, [j]) for k in kept], mine, or_equals=or_equals)
                b.combine(before, "add", b.cast(found, counter))
        rows.write(b, outs, b.index(b.get(before), 0, rows.n - 1), rows.read(b, xs, i))


# --- radix


@dataclass(frozen=True)
class Digit:
    """Some bits of a key."""

    key: Key
    shift: int
    bits: int

    def of(self, b: LoopBuilder, values: Sequence[Any]) -> Affine:
        """The digit of these elements."""
        found = b.apply("lshr", x := key_bits(b, self.key, values), b.const(self.shift, x.dtype))
        return b.index(b.apply("and", found, b.const((1 << self.bits) - 1, x.dtype)), 0, (1 << self.bits) - 1)


def digits_of(b: LoopBuilder, keys: Sequence[Key], values: Sequence[Any], most: int) -> list[Digit]:
    """The digits of keys, of at most so many bits, the least important first."""
    found = []
    for key in reversed(keys):
        width = key_bits(b, key, values).dtype.bits
        found += [Digit(key, k, min(most, width - k)) for k in range(0, width, most)]
    return found


def _spare(b: LoopBuilder, xs: Sequence[LazyTensor], counts: tuple[int, ...], n: int, *, twice: bool) -> list[list[LazyTensor]]:
    """Memory for each row of operands, in order; once more where that is on the stack, or where it is asked for `twice`."""
    is_local = 2 * n * sum(x.dtype.itemsize for x in xs) <= MOST_LOCAL
    shape = (*(1 if is_local else size for size in counts), n)
    return [[in_memory(b.buffer(x.dtype, shape, "local" if is_local else None), x.dtype) for x in xs]
            for _ in range(2 if is_local or twice else 1)]


def _radix(b: LoopBuilder, rows: Rows, keys: Sequence[Key], xs: Sequence[LazyTensor], outs: Sequence[LazyTensor],
           spare: Sequence[Sequence[LazyTensor]]) -> None:
    """Digit after digit, the least important first, from one side to the other: those of `spare`, or the results and that; a digit
    in which all elements agree is passed over."""
    n = rows.n
    of_row = [Affine() if size == 1 else i for i, size in zip(rows.at, spare[0][0].shape, strict=False)]
    inside = Rows(n, lambda i: [*of_row, i], rows.at, rows.counts)
    sides = [*([(rows, outs)] if len(spare) == 1 else []), *((inside, each) for each in spare)]
    digits = digits_of(b, keys, [b.const(0, x.dtype) for x in xs], 11 if n >= LONG else 8)
    counts = b.buffer(I64, (len(digits), 1 << max(d.bits for d in digits)), "local")
    with b.loops(counts.shape) as at:
        b.store(counts, at, b.const(0, I64))
    with b.loop(n) as i:
        values = rows.read(b, xs, i)
        sides[0][0].write(b, sides[0][1], i, values)
        for k, digit in enumerate(digits):
            _next_of(b, counts, [Affine((), k), digit.of(b, values)])
    first = sides[0][0].fetch(b, sides[0][1], Affine())
    agreed = [digit.of(b, first) for digit in digits]
    side = b.cell(I64, b.const(0, I64))

    def is_first() -> Scalar:
        found: Scalar = b.apply("eq", b.get(side), b.const(0, I64))
        return found

    def move(k: int, here: int) -> None:
        (source, given), (target, made) = sides[here], sides[1 - here]
        with b.loop(n) as i:
            values = source.fetch(b, given, i)
            target.write(b, made, b.index(_next_of(b, counts, [Affine((), k), digits[k].of(b, values)]), 0, n - 1), values)

    def moved(k: int) -> None:
        total = b.cell(I64, b.const(0, I64))
        with b.loop(1 << digits[k].bits) as bucket:
            count, start = b.load(counts, [Affine((), k), bucket]), b.get(total)
            b.store(counts, [Affine((), k), bucket], start)
            b.set(total, b.apply("add", start, count))
        b.when(is_first(), lambda: move(k, 0), lambda: move(k, 1))
        b.set(side, b.apply("sub", b.const(1, I64), b.get(side)))

    def finish(here: int) -> None:
        source, given = sides[here]
        if given is not outs:
            with b.loop(n) as i:
                rows.write(b, outs, i, source.fetch(b, given, i))

    for k, bucket in enumerate(agreed):
        b.when(b.apply("lt", b.load(counts, [Affine((), k), bucket]), b.const(n, I64)), lambda k=k: moved(k))  # type: ignore[misc]
    b.when(is_first(), lambda: finish(0), lambda: finish(1))


def _next_of(b: LoopBuilder, counts: Buffer, at: Index) -> Scalar:
    """The number that stands there, which is one more from now on."""
    found = b.load(counts, at)
    b.store(counts, at, b.apply("add", found, b.const(1, I64)))
    return found


# --- the greatest elements


def top_k_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """The greatest elements of each row in the total order, and their positions, greatest first."""
    (x,), k = xs, node.attr("k")
    if k == 0:
        return
    if k <= MOST_INSERTED:
        with b.nest(x.shape[:-1]) as at:
            _greatest(b, x, at, k, outs)
        return
    positions = LazyTensor(I32, x.shape, lambda b, at: b.cast(at[-1], I32))
    first = [in_memory(b.buffer(s.dtype, x.shape), s.dtype) for s in (x, positions)]
    _sort_by_keys(b, [_greatest_first(x)], [x, positions], first, len(x.shape) - 1)
    with b.nest((*x.shape[:-1], k)) as at:
        for out, y in zip(outs, first, strict=True):
            b.put(out, at, b.fetch(y, at))


def _greatest_first(x: LazyTensor) -> Key:
    p = Builder().param(0, scalar(x.dtype))
    return Key(Function("key", (p,), (p,), public=False), (0,), descending=True, total=True)


def _greatest(b: LoopBuilder, x: LazyTensor, at: Index, k: int, outs: Sequence[LazyTensor]) -> None:
    """The greatest of a row so far are kept in order; blocks in which nothing is greater than the least of them are passed over."""
    def key(i: Affine) -> Any:
        return b.total_order(x.at(b, [*at, i]))

    n, least = x.shape[-1], [Affine((), k - 1)]
    best, positions = b.buffer(key(Affine()).dtype, (k,), "local"), b.buffer(I64, (k,), "local")

    def offer(i: Affine) -> None:
        b.when(b.apply("gt", key(i), b.load(best, least)), lambda: _insert(b, best, positions, key(i), i, least[0]))

    def offer_all(low: Affine) -> None:
        with b.loop(BLOCK) as j:
            offer(low + j)

    with b.loop(k) as i:
        _insert(b, best, positions, key(i), i, i)
    blocks = (n - k) // BLOCK
    with b.loop(blocks) as block:
        low = block * BLOCK + k
        greatest = b.cell(best.dtype, key(low))
        with b.loop(BLOCK) as j:
            b.combine(greatest, "max", key(low + j))
        b.when(b.apply("gt", b.get(greatest), b.load(best, least)), lambda: offer_all(low))
    with b.loop(n, blocks * BLOCK + k) as i:
        offer(i)
    with b.loop(k) as i:
        p = b.index(b.load(positions, [i]), 0, n - 1)
        b.put(outs[0], [*at, i], x.at(b, [*at, p]))
        b.put(outs[1], [*at, i], b.cast(p, I32))


def _insert(b: LoopBuilder, best: Buffer, positions: Buffer, new: Scalar, i: Affine, end: Affine) -> None:
    """Puts an element behind those that are not less; what is from there to the end moves on."""
    position = b.cell(I64, end)

    def goes_on() -> Scalar:
        p = b.index(b.get(position))
        found: Scalar = b.choose(b.less(0, p), lambda: b.apply("lt", b.load(best, [p - 1]), new), lambda: FALSE)
        return found

    def shift() -> None:
        p = b.index(b.get(position))
        for kept in (best, positions):
            b.store(kept, [p], b.load(kept, [p - 1]))
        b.set(position, p - 1)

    b.repeat(goes_on, shift)
    p = b.index(b.get(position))
    b.store(best, [p], new)
    b.store(positions, [p], i)


# --- merging


def _merge(b: LoopBuilder, row: RowIndex, n: int, less: Less, tensors: Sequence[Sequence[LazyTensor]]) -> None:
    """One row of the first tensors sorted into the second; the third are as large, and to work in."""
    sources, outs, spare = tensors
    widths: list[int] = []
    while RUN << len(widths) < n:
        widths.append(RUN << len(widths))
    here, there = (outs, spare) if len(widths) % 2 == 0 else (spare, outs)
    with b.loop(n) as i:
        for x, y in zip(sources, here, strict=True):
            b.put(y, row(i), x.at(b, row(i)))
    _sort_runs(b, row, n, less, here)
    for width in widths:
        _merge_runs(b, row, n, width, less, here, there)
        here, there = there, here


def _sort_runs(b: LoopBuilder, row: RowIndex, n: int, less: Less, rows: Sequence[LazyTensor]) -> None:
    """Insertion sort of each run."""
    with b.loop(-(-n // RUN)) as run:
        low = run * RUN
        high = b.index(b.apply("min", low + RUN, Affine((), n)))
        with b.loop(high, low + 1) as k:
            new = [b.fetch(x, row(k)) for x in rows]
            position = b.cell(I64, k)

            def goes_on() -> Scalar:
                at = b.index(b.get(position))
                found: Scalar = b.choose(b.less(low, at), lambda: less(new, [b.fetch(x, row(at - 1)) for x in rows]),
                                         lambda: FALSE)
                return found

            def shift() -> None:
                at = b.index(b.get(position))
                for x in rows:
                    b.put(x, row(at), b.fetch(x, row(at - 1)))
                b.set(position, at - 1)

            b.repeat(goes_on, shift)
            at = b.index(b.get(position))
            for x, value in zip(rows, new, strict=True):
                b.put(x, row(at), value)


def _merge_runs(b: LoopBuilder, row: RowIndex, n: int, width: int, less: Less, here: Sequence[LazyTensor],
                there: Sequence[LazyTensor]) -> None:
    """Pairs of sorted runs of a width merged without branches, the left one first where neither precedes."""
    with b.loop(-(-n // (2 * width))) as pair:
        low = pair * (2 * width)
        middle, high = (b.index(b.apply("min", low + size, Affine((), n))) for size in (width, 2 * width))
        left, right = b.cell(I64, low), b.cell(I64, middle)
        with b.loop(high, low) as k:
            i, j = b.index(b.get(left)), b.index(b.get(right))
            one, other = ([b.fetch(x, row(b.index(b.apply("min", p, end - 1)))) for x in here]
                          for p, end in ((i, middle), (j, high)))
            precedes = b.both(b.less(j, high), b.apply("or", b.apply("ge", i, middle), less(other, one)))
            for x, mine, its in zip(there, one, other, strict=True):
                b.put(x, row(k), b.apply("where", precedes, its, mine))
            step = b.cast(precedes, I64)
            b.set(right, b.apply("add", j, step))
            b.set(left, b.apply("add", i, b.apply("sub", Affine((), 1), step)))
