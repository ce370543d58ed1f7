"""The law of passes on loop programs: what is interpreted stays the same, of generated programs and of all declarations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import reduce
from operator import attrgetter
from typing import Any, get_args

import numpy as np
import pytest

from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.loops import (
    Affine,
    LoopBuilder,
    LoopProgram,
    NotExpressible,
    Scalar,
    ScalarConst,
    accumulate,
    cache,
    in_place,
    index_sets,
)
from deepx_graph.loops.builder import memory
from deepx_graph.loops.index_sets import filled
from deepx_graph.loops.interpret import interpret
from deepx_graph.loops.lower import lower
from deepx_graph.loops.passes import (
    flatten_loops,
    forward_stores,
    split_folds,
    split_guards,
    tile_transposes,
    vectorise_across,
)
from deepx_graph.loops.passes.fuse_loops import fuse_loops
from deepx_graph.loops.passes.pipeline import PASSES, optimised
from deepx_graph.loops.program import Combine, Conditional, For, Let, Load, Statement, Store, walk
from deepx_graph.loops.scalar import Index
from deepx_graph.loops.tensor import LazyTensor, in_memory
from deepx_graph.loops.weight import weighted
from deepx_graph.ops import (
    OPS,
    add,
    broadcast_in_dim,
    cosine,
    divide,
    exponential,
    floor_mod,
    log,
    maximum,
    minimum,
    multiply,
    sine,
    subtract,
    transpose,
)
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.ops.tensor.shape import concatenate, pad
from deepx_graph.types import BOOL, F32, F64, I32, I64, DType, TensorType, tensor, type_of_array
from tests.support.laws import alone, constants, samples

SIZES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13)
TILE = 4


SMALL: tuple[tuple[Any, str, int], ...] = (
    (vectorise_across, "CONTIGUOUS_TILE", TILE), (vectorise_across, "APART_TILE", 3), (split_guards, "TILE", 5),
    (split_guards, "LEAST_LENGTH", 1), (split_folds, "STRIP", 4), (split_folds, "LONG_ROW", 3), (index_sets, "LEAST_ELEMENTS", 1),
    (flatten_loops, "LONG_ROW", 3), (flatten_loops, "MOST_REPEATED", 16), (tile_transposes, "LINE", 16),
    (tile_transposes, "TILE", 2),
    (tile_transposes, "LEAST_LENGTH", 3), (tile_transposes, "LEAST_SIZE", 1), (in_place, "LEAST_BYTES", 1))  # fmt: skip
"""The sizes of the passes, such that small programs are around them."""


@contextmanager
def small_tiles() -> Iterator[None]:
    """Passes with tiles around which the sizes of small programs are."""
    kept = [getattr(module, name) for module, name, _ in SMALL]
    try:
        for module, name, size in SMALL:
            setattr(module, name, size)
        yield
    finally:
        for (module, name, _), size in zip(SMALL, kept, strict=True):
            setattr(module, name, size)


@pytest.fixture(autouse=True)
def _small_tiles() -> Iterator[None]:
    """Sizes around the tiles of these tests are small."""
    with small_tiles():
        yield


class Generator:
    """Random nests: folds, running values, guards, composed and loaded subscripts, several results."""

    def __init__(self, seed: int, *, split: bool) -> None:
        self.rng, self.split, self.seed = np.random.default_rng(seed), split, seed
        self.has_elements = False
        """Whether there was anything that would be split."""
        self.b = LoopBuilder()
        self.dtype: DType = F64 if seed % 3 == 0 else I64
        shapes = [tuple(int(self.rng.integers(1, 7)) for _ in range(self.rng.integers(1, 4))) for _ in range(2)]
        self.arguments = [in_memory(memory(f"a{k}", self.dtype, s, "argument"), self.dtype) for k, s in enumerate(shapes)]
        self.results: list[LazyTensor] = []

    def program(self) -> LoopProgram:
        """A program of one or two nests."""
        for _ in range(self.pick((1, 1, 2))):
            shape = tuple(self.pick(SIZES) for _ in range(self.pick((1, 1, 2, 2, 3))))
            shape = shape if math.prod(shape) < 300 else shape[:1]
            self.pick((self.elements, self.elements, self.running, self.stored, self.stored, self.total, self.rows))(shape)
        if self.seed % 8 == 5:
            self.exchanged((self.pick(SIZES), self.pick(SIZES)))
        if self.seed % 8 == 2:
            self.stepped(self.pick(SIZES), self.pick(SIZES), self.pick((1, 1, 3)))
        buffers = [[x.buffer for x in xs if x.buffer is not None] for xs in (self.arguments, self.results)]
        return LoopProgram(tuple(buffers[0]), tuple(buffers[1]), (), tuple(self.b.scratch), self.b.body)

    def pick(self, options: Sequence[Any]) -> Any:
        """One of them."""
        return options[int(self.rng.integers(len(options)))]

    def result(self, shape: Sequence[int]) -> LazyTensor:
        """A new result."""
        self.results.append(in_memory(memory(f"r{len(self.results)}", self.dtype, shape, "result"), self.dtype))
        return self.results[-1]

    def elements(self, shape: tuple[int, ...]) -> None:
        """Results of one shape, element by element."""
        self.has_elements = True
        outs = [self.result(shape) for _ in range(self.pick((1, 1, 2)))]
        seed = int(self.rng.integers(1 << 30))

        def write(b: LoopBuilder, at: Index) -> None:
            """The same at every subscript, however often it is asked for."""
            kept = self.b, self.rng
            self.b, self.rng = b, np.random.default_rng(seed)
            for out in outs:
                b.put(out, at, self.value(list(at), 3))
            self.b, self.rng = kept

        if self.split:
            filled(self.b, shape, write)
        else:
            with self.b.nest(shape) as at:
                write(self.b, at)

    def running(self, shape: tuple[int, ...]) -> None:
        """A running value along one axis, which is stored at each step."""
        axis = int(self.rng.integers(len(shape)))
        out = self.result(shape)
        with self.b.nest([n for k, n in enumerate(shape) if k != axis]) as at:
            cell = self.b.cell(self.dtype, self.number(0))
            with self.b.loop(shape[axis]) as k:
                whole = [*at[:axis], k, *at[axis:]]
                self.b.set(cell, self.b.apply(self.pick(("add", "max", "sub")), self.b.get(cell), self.value(whole, 1)))
                self.b.put(out, whole, self.b.get(cell))

    def stored(self, shape: tuple[int, ...]) -> None:
        """Values that nests put in memory and others read there: at the same place, or elsewhere; and totals of rows."""
        held = in_memory(self.b.buffer(self.dtype, shape), self.dtype)
        with self.b.nest(shape) as at:
            self.b.put(held, at, self.value(list(at), 1))
        kept = max(0, len(shape) - self.pick((1, 1, 2)))
        whole, totals = self.result(shape), self.result(shape[:kept])
        with self.b.nest(shape[:kept]) as at:
            row = accumulate(self.b, self.pick(("add", "max")), self.number(0), shape[kept:], lambda k: held.at(self.b, [*at, *k]))
            self.b.put(totals, at, row)
            if self.rng.random() < 0.5:
                self.b.put(self.result(shape[:kept]), at, self.b.apply("sub", row, self.number(3)))
        with self.b.nest(shape) as at:
            there = [self.b.clamped(self.subscript([a]), 0, n - 1) for a, n in zip(at, shape, strict=True)]
            other = held.at(self.b, self.pick((at, at, there))) if math.prod(shape) else self.number(1)
            self.b.put(whole, at, self.b.apply("sub", other, totals.at(self.b, at[:kept])))
        if self.rng.random() < 0.5:
            self.total(shape, held)

    def exchanged(self, shape: tuple[int, int]) -> None:
        """A matrix and what is made of it with the axes exchanged, in either order of memory."""
        held, out = self.result(shape), self.result(shape[::-1])
        with self.b.nest(shape) as at:
            self.b.put(held, at, self.value(list(at), 1))
        rows = self.rng.random() < 0.5
        with self.b.nest(shape[::-1] if rows else shape) as (i, j):
            there, here = ((j, i), (i, j)) if rows else ((i, j), (j, i))
            self.b.put(out, here, self.b.apply("sub", held.at(self.b, there), self.number(3)))

    def stepped(self, steps: int, rows: int, planes: int) -> None:
        """What a loop makes of the columns of matrices, forwards or backwards, each of the one before."""
        held, out = self.result((rows, planes, steps)), self.result((steps, planes, rows))
        state = in_memory(self.b.buffer(self.dtype, (planes, rows)), self.dtype)
        with self.b.nest(held.shape) as at:
            self.b.put(held, at, self.value(list(at), 1))
        with self.b.nest(state.shape) as at:
            self.b.put(state, at, self.number(2))
        backwards = self.rng.random() < 0.5
        with self.b.nest(()), self.b.loop(steps) as t, self.b.loops((planes, rows), parallel=True) as (p, i):
            column = held.at(self.b, (i, p, steps - 1 - t if backwards else t))
            new = self.b.apply("sub", column, state.at(self.b, (p, i)))
            self.b.put(state, (p, i), new)
            self.b.put(out, (t, p, i), new)

    def total(self, shape: tuple[int, ...], held: LazyTensor | None = None) -> None:
        """A fold of everything."""
        out = self.result(())
        read = self.arguments[0] if held is None else held
        shape = read.shape if held is None else shape
        with self.b.nest(()):
            self.b.put(out, (), accumulate(self.b, self.pick(("add", "max")), self.number(2), shape,
                                           lambda at: self.b.apply("add", read.at(self.b, at), self.value(list(at), 0))))

    def rows(self, shape: tuple[int, ...]) -> None:
        """Rows to which the elements of one are added."""
        row = self.pick(self.arguments)
        out = self.result((*shape[:2], row.shape[-1]))
        with self.b.nest(out.shape) as at:
            self.b.put(out, at, self.b.apply("sub", row.at(self.b, [*(Affine(),) * (len(row.shape) - 1), at[-1]]), self.number(3)))

    def number(self, value: int) -> ScalarConst:
        """A constant."""
        assert self.dtype.np is not None
        return ScalarConst(self.dtype.np.type(value), self.dtype)

    def subscript(self, axes: Sequence[Affine]) -> Affine:
        """A subscript made of axes."""
        total = Affine((), int(self.rng.integers(-2, 3)))
        for axis in axes:
            total = total + axis * self.pick((0, 1, 1, 2, -1))
        return total

    def condition(self, axes: Sequence[Affine]) -> Scalar:
        """Whether a subscript is in some range."""
        low = int(self.rng.integers(-2, 5))
        return self.b.within(self.subscript(axes), low, low + int(self.rng.integers(1, 9)))

    def value(self, axes: list[Affine], depth: int) -> Any:
        """A value at some axes."""
        leaves: list[Callable[..., Any]] = [self.load, self.load, self.gathered, self.shifted]
        inner: list[Callable[..., Any]] = [self.combined, self.folded, self.folded, self.chosen, self.greatest]
        return self.pick(inner if depth and self.rng.random() < 0.8 else leaves)(axes, depth - 1)

    def load(self, axes: list[Affine], depth: int) -> Any:
        """An element of an argument, or a constant outside of it."""
        x = self.pick(self.arguments)
        at = [self.subscript([self.pick(axes)] if axes else []) for _ in x.shape]
        inside = self.b.both(*(self.b.within(i, 0, n) for i, n in zip(at, x.shape, strict=True)))
        return self.b.choose(inside, lambda: x.at(self.b, at), lambda: self.number(3))

    def gathered(self, axes: list[Affine], depth: int) -> Any:
        """An element at a subscript that is loaded."""
        x = self.pick(self.arguments)
        return x.at(self.b, [self.b.clamped(self.load(axes, 0), 0, n - 1) for n in x.shape])

    def shifted(self, axes: list[Affine], depth: int) -> Any:
        """A subscript itself."""
        return self.b.cast(self.subscript(axes), self.dtype)

    def combined(self, axes: list[Affine], depth: int) -> Any:
        """Two values in one."""
        return self.b.apply(self.pick(("add", "sub", "max", "min")), self.value(axes, depth), self.value(axes, depth))

    def folded(self, axes: list[Affine], depth: int) -> Any:
        """A fold of one or two axes."""
        extents = [self.pick((0, 1, 2, 3, 3, 5)) for _ in range(self.pick((1, 1, 2)))]
        return accumulate(self.b, self.pick(("add", "max", "min")), self.number(1), extents,
                          lambda inner: self.value([*axes, *inner], min(depth, 1)))

    def chosen(self, axes: list[Affine], depth: int) -> Any:
        """One of two values."""
        return self.b.choose(self.condition(axes), self.later(axes, depth), self.later(axes, depth))

    def later(self, axes: list[Affine], depth: int) -> Callable[[], Any]:
        """A value that may not be asked for: what comes behind is the same then."""
        chance = np.random.default_rng(int(self.rng.integers(1 << 30)))

        def make() -> Any:
            kept, self.rng = self.rng, chance
            found = self.value(axes, depth)
            self.rng = kept
            return found

        return make

    def greatest(self, axes: list[Affine], depth: int) -> Any:
        """A pair that is carried: the greatest value and where it is."""
        cells = [self.b.cell(self.dtype, self.number(v)) for v in (-100, 0)]
        with self.b.loop(self.pick((1, 3, 4))) as k:
            old = [self.b.get(c) for c in cells]
            new = [self.value([*axes, k], 0), self.b.cast(k, self.dtype)]
            keep = self.b.apply("gt", old[0], new[0])
            for cell, x, y in zip(cells, old, new, strict=True):
                self.b.set(cell, self.b.apply("where", keep, x, y))
        return self.b.apply("add", *(self.b.get(c) for c in cells))


_FIELDS = {kind: attrgetter(*(f.name for f in fields(kind))) for kind in get_args(Statement)}


def state(program: LoopProgram) -> list[Any]:
    """All that a program is made of: the same list as long as no pass changes it."""
    parts = ((type(s), _FIELDS[type(s)](s)) for s in walk(program.body))
    return [program.scratch, *((kind, *(len(x) if isinstance(x, list) else x for x in values)) for kind, values in parts)]


def check_same(seed: int) -> None:
    """A generated program gives the same with its index sets split, after all passes, and of every fourth after each of them that
    has changed it. Passes have small tiles, whoever calls this."""
    rng = np.random.default_rng(seed + 1)
    whole = Generator(seed, split=False)
    before = whole.program()
    arguments = [rng.integers(-4, 9, a.shape).astype(a.dtype.np) for a in before.arguments]
    expected = interpret(before, arguments)
    held: list[Any] = []
    with small_tiles():
        program = Generator(seed, split=True).program() if whole.has_elements else before
        for apply in PASSES:
            program = apply(program)
            if (seed % 4 == 0 or apply is PASSES[-1]) and held != (now := state(program)):
                held = now
                for got, want in zip(interpret(program, arguments), expected, strict=True):
                    if not np.array_equal(got, want):  # much sooner told than asserted
                        np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}, after {apply.__name__}")


@pytest.mark.parametrize("first", range(0, 300, 20))
def test_passes_keep_what_generated_programs_give(first: int) -> None:
    for seed in range(first, first + 20):
        check_same(seed)


@pytest.mark.parametrize("first", range(0, 300, 60))
def test_passes_make_the_same_program_each_time(first: int) -> None:
    """Wherever its variables happen to be in memory: else its machine code is not found again, and compiled in every process."""
    for seed in range(first, first + 60):
        made = [optimised(Generator(seed, split=True).program()) for _ in range(4)]
        assert len(set(map(str, made))) == 1, seed


def test_a_loop_is_cut_like_a_fold_of_as_many_rows_alone() -> None:
    """This program has a loop of 14 rows beside a fold of 16, in as many strips."""
    check_same(2003500)


@pytest.mark.conformance
@pytest.mark.parametrize("first", range(1000, 21000, 500))
def test_passes_keep_what_many_generated_programs_give(first: int) -> None:
    for seed in range(first, first + 500):
        check_same(seed)


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.element or op.loops], ids=lambda op: op.name)
def test_passes_keep_what_declarations_say(op: Op) -> None:
    for arrays, attrs in samples(op):
        b = Builder()
        node = b(op, *constants(b, arrays), **attrs)
        try:
            before, after = lower(alone(node)), optimised(lower(alone(node)))
        except NotExpressible:
            continue
        arrays = [np.asarray(a) for a in arrays]
        for got, want in zip(interpret(after, arrays), interpret(before, arrays), strict=True):
            if _has_free_sums(before):
                np.testing.assert_allclose(got, want, rtol=1e-6)
            else:
                np.testing.assert_array_equal(got, want)


def _has_free_sums(program: LoopProgram) -> bool:
    """Whether floats are added up in any order, and so to other bits in another order."""
    return any(isinstance(s, Combine) and s.cell.dtype.is_float and s.primitive in ("add", "mul") for s in walk(program.body))


def _column_sums(rows: int, columns: int) -> LoopProgram:
    b = LoopBuilder()
    x, y = memory("a0", F64, (rows, columns), "argument"), memory("r0", F64, (columns,), "result")
    with b.nest((columns,)) as (j,):
        b.store(y, [j], accumulate(b, "add", ScalarConst(np.float64(0), F64), [rows], lambda at: b.load(x, [*at, j])))
    return LoopProgram((x,), (y,), (), (), b.body)


def test_columns_are_summed_side_by_side() -> None:
    program = optimised(_column_sums(50, 10))
    innermost = [s for s in walk(program.body) if isinstance(s, For) and not any(isinstance(e, For) for e in walk(s.body))]
    assert all(s.high.constant == TILE for s in innermost)
    loads = [s for loop in innermost for s in walk(loop.body) if isinstance(s, Load) and s.buffer.role == "argument"]
    assert [s.index[-1].stride(loop.axis) for loop in innermost for s in walk(loop.body) if s in loads] == [1]


@pytest.mark.parametrize("shape", [(70, 6), (8, 70, 6), (2, 3, 70, 6), (3, 4, 6), (2, 2, 3, 2, 6)], ids=str)
def test_a_softmax_of_any_rank_is_one_nest(shape: tuple[int, ...]) -> None:
    """However many axes number the rows: what is stored for a row stays with it."""
    b, axis = Builder(), len(shape) - 1
    x = b.param(0, TensorType(F32, shape))

    def spread(row: Node) -> Node:
        return b(broadcast_in_dim, row, shape=shape, broadcast_dimensions=tuple(range(axis)))

    e = b(exponential, b(subtract, x, spread(reduction(b, maximum, x, (axis,)))))
    program = lower(Function("softmax", (x,), (b(divide, e, spread(reduction(b, add, e, (axis,)))),)))
    assert len(optimised(program).body) == 1 and not program.scratch


def test_what_a_row_needs_is_as_large_as_that_in_a_loop_of_one_iteration_too() -> None:
    """Functions with control flow are such a loop."""
    b = Builder()
    x = b.param(0, TensorType(F32, (90, 4)))
    e = b(exponential, x)
    total = b(broadcast_in_dim, reduction(b, add, e, (1,)), shape=(90, 4), broadcast_dimensions=(0,))
    program = lower(Function("shares", (x,), (b(divide, e, total),)))
    program.body = [For(LoopBuilder().var(I64, 0, 0), Affine(), Affine((), 1), program.body)]
    assert program.scratch and not fuse_loops(program).scratch
    given = np.random.default_rng(0).random((90, 4), np.float32)
    np.testing.assert_allclose(interpret(program, [given])[0], np.exp(given) / np.exp(given).sum(1, keepdims=True), rtol=1e-5)


def test_loops_without_neighbours_stay_as_they_are() -> None:
    """Nothing is written anew where nothing can be fused: what is computed twice is found by `forward_stores`."""
    b = LoopBuilder()
    x, y = memory("x", F32, (8, 8), "argument"), memory("y", F32, (8, 8), "result")
    with b.nest((8, 8)) as at:
        b.store(y, at, b.apply("add", b.load(x, at), b.load(x, at)))
    program = LoopProgram((x,), (y,), (), (), b.body)
    before = list(walk(program.body))
    assert all(s is t for s, t in zip(walk(fuse_loops(program).body), before, strict=True))
    assert len(list(walk(forward_stores.forward_stores(program).body))) < len(before)



@pytest.mark.parametrize("shape", [(2, 1, 3), (3, 1, 4), (4, 2, 3), (6, 1, 1, 5), (2, 3, 1, 2)], ids=str)
def test_what_is_made_of_totals_stays_behind_them(shape: tuple[int, ...]) -> None:
    """The rows of loops that are cut alike are counted before them; nothing else of their bodies is."""
    b = Builder()
    x = b.param(0, TensorType(F32, shape))
    wave = b(sine, x)
    for first in range(1, len(shape)):
        least = reduction(b, minimum, b(floor_mod, wave, b(add, wave, b.constant(np.float32(3)))), tuple(range(first, len(shape))))
        function = Function("f", (x,), (least, b(cosine, least)))
        given = [np.linspace(-2, 2, math.prod(shape), dtype=np.float32).reshape(shape)]
        for got, want in zip(interpret(optimised(lower(function)), given), interpret(lower(function), given), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_rows_of_values_that_branches_choose_are_done_as_they_lie(depth: int) -> None:
    """A cell that each iteration assigns before it reads it, in a branch of a branch too, makes none wait for the one before."""
    b = LoopBuilder()
    x, y = memory("a0", F64, (10, 50), "argument"), memory("r0", F64, (10, 50), "result")

    def chosen(i: Affine, j: Affine, k: int) -> Any:
        if not k:
            return b.load(x, [i, j])
        there = b.within(b.apply("mul", i, i), 7 * k, 90)
        return b.choose(there, lambda: chosen(i, j, k - 1), lambda: ScalarConst(np.float64(k), F64))

    with b.nest((10,)) as (i,), b.loop(50) as j:
        b.store(y, [i, j], chosen(i, j, depth))
    program = LoopProgram((x,), (y,), (), (), b.body)
    given = [np.arange(500.0).reshape(10, 50)]
    want = interpret(program, given)[0]
    assert [s.high.constant for s in walk(vectorise_across.vectorise_across(program).body) if isinstance(s, For)] == [10, 50]
    np.testing.assert_array_equal(interpret(program, given)[0], want)


def test_rows_are_summed_as_they_lie() -> None:
    b = LoopBuilder()
    x, y = memory("a0", F64, (10, 50), "argument"), memory("r0", F64, (10,), "result")
    with b.nest((10,)) as (i,):
        b.store(y, [i], accumulate(b, "add", ScalarConst(np.float64(0), F64), [50], lambda at: b.load(x, [i, *at])))
    program = optimised(LoopProgram((x,), (y,), (), (), b.body))
    assert not any(isinstance(s, (Load, Store)) and s.buffer.role == "local" for s in walk(program.body))


@pytest.mark.parametrize("columns", [4, 8, 11])
def test_functions_of_short_folds_are_loops_of_their_own(columns: int) -> None:
    """Densities of distances: the folds stay along memory, what is computed of their totals is a loop over neighbours."""
    rng = np.random.default_rng(columns)
    arrays = [rng.normal(size=(n, 5)) for n in (4, columns)]
    b = Builder()
    rows = [b.param(k, type_of_array(a)) for k, a in enumerate(arrays)]
    d = b(subtract, *(b(broadcast_in_dim, x, shape=(4, columns, 5), broadcast_dimensions=(axis, 2)) for axis, x in enumerate(rows)))
    density = b(exponential, b(sine, reduction(b, add, b(multiply, d, d), (2,))))
    before, after = (lower(Function("density", tuple(rows), (density,))) for _ in range(2))
    after = optimised(after)
    np.testing.assert_allclose(interpret(after, arrays)[0], interpret(before, arrays)[0], rtol=1e-14)
    innermost = [s for s in walk(after.body) if isinstance(s, For) and not any(isinstance(each, For) for each in walk(s.body))]
    assert [any(isinstance(s, Let) and s.primitive == "exp" for s in walk(loop.body)) for loop in innermost] == [False, True]


@pytest.mark.parametrize("columns", [8, 10, 12])
def test_functions_of_two_short_folds_are_loops_of_their_own(columns: int) -> None:
    """Logarithms of sums of exponentials: the second fold reads what the first one found, as kernels of several have it."""
    rng = np.random.default_rng(columns)
    arrays = [rng.normal(size=(n, columns)) for n in (60, columns)]
    b = Builder()
    rows = [b.param(k, type_of_array(a)) for k, a in enumerate(arrays)]
    shape = (60, columns, columns)
    terms = b(add, *(b(broadcast_in_dim, x, shape=shape, broadcast_dimensions=(axis, 2)) for axis, x in enumerate(rows)))
    most = reduction(b, maximum, terms, (2,))
    scaled = b(exponential, b(subtract, terms, b(broadcast_in_dim, most, shape=shape, broadcast_dimensions=(0, 1))))
    found = b(add, b(log, reduction(b, add, scaled, (2,))), most)
    before, after = (lower(Function("logsumexp", tuple(rows), (found,))) for _ in range(2))
    after = optimised(after)
    np.testing.assert_allclose(interpret(after, arrays)[0], interpret(before, arrays)[0], rtol=1e-14)
    innermost = [s for s in walk(after.body) if isinstance(s, For) and not any(isinstance(each, For) for each in walk(s.body))]
    assert sum(isinstance(s, Let) and s.primitive == "log" for loop in innermost for s in walk(loop.body)) == 1


def test_a_nest_is_flattened_where_an_axis_is_in_subscripts_and_not_in_the_position() -> None:
    """The element `[1 - j, j]` of a matrix of one column lies where `j` does not matter."""
    b = LoopBuilder()
    x, y = memory("a0", F64, (4, 1), "argument"), memory("r0", F64, (4, 1), "result")
    with b.loops((4, 1), parallel=True) as (i, j):
        b.store(y, [i, j], b.apply("add", b.load(x, [i, j]), b.load(x, [-j + 1, j])))
    program = flatten_loops.flatten_loops(LoopProgram((x,), (y,), (), (), b.body))
    assert sum(isinstance(s, For) for s in walk(program.body)) == 1
    given = np.arange(4.0).reshape(4, 1)
    np.testing.assert_array_equal(interpret(program, [given])[0], given + given[1])


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 1001])
def test_short_rows_that_read_the_same_elements_are_one_loop(rows: int) -> None:
    """Some rows at a time, over copies of what each of them reads."""
    b = LoopBuilder()
    x, shift = memory("a0", F64, (rows, 3), "argument"), memory("a1", F64, (3,), "argument")
    y = memory("r0", F64, (rows, 3), "result")
    with b.nest((rows, 3)) as (i, j):
        b.store(y, [i, j], b.apply("sub", b.load(x, [i, j]), b.load(shift, [j])))
    program = optimised(LoopProgram((x, shift), (y,), (), (), b.body))
    given = [np.random.default_rng(0).normal(size=(rows, 3)), np.array([1.0, 20.0, 300.0])]
    np.testing.assert_array_equal(interpret(program, given)[0], given[0] - given[1])
    lengths = [s.high.constant for s in walk(program.body) if isinstance(s, For) and any(isinstance(e, Store) for e in s.body)]
    assert rows == 1 or lengths[-1] == 3 * min(rows, 5)


def test_a_window_is_guarded_at_the_ends_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_guards, "LEAST_LENGTH", 2)
    b = LoopBuilder()
    x, y = memory("a0", F64, (6, 20), "argument"), memory("r0", F64, (6, 20), "result")
    zero = ScalarConst(np.float64(0), F64)
    with b.nest((6, 20)) as (i, j):
        def element(at: tuple[Affine, ...]) -> Any:
            return b.choose(b.within(j + at[0] - 1, 0, 20), lambda: b.load(x, [i, j + at[0] - 1]), lambda: zero)

        b.store(y, [i, j], accumulate(b, "max", zero, [3], element))
    program = split_guards.split_guards(LoopProgram((x,), (y,), (), (), b.body))
    loops = [s for s in walk(program.body) if isinstance(s, For) and any(isinstance(e, Store) for e in s.body)]
    free = [s for s in loops if not any(isinstance(e, Conditional) for e in walk(s.body))]
    assert [(s.low.constant, s.high.constant) for s in free] == [(1, 19)]
    assert len(loops) == 2


@pytest.mark.parametrize("parts", [2, 3, 13, 25])
def test_rows_of_many_arrays_put_together_have_no_guard(parts: int) -> None:
    """A row is of one of the arrays, however long the chain of concatenations, which is asked once for the row."""
    arrays = [np.full((16 + k, 70), k, np.float32) for k in range(parts)]
    b = Builder()
    given = tuple(b.param(k, type_of_array(a)) for k, a in enumerate(arrays))
    whole = reduce(lambda x, y: b(concatenate, x, y, dimension=0), given)
    program = lower(Function("f", given, (b(cosine, whole),)))
    rows = [s for s in walk(program.body) if isinstance(s, For) and any(isinstance(e, Store) for e in walk(s.body))
            and not any(isinstance(e, For) for e in walk(s.body))]
    assert len(rows) == parts and not any(isinstance(e, Conditional) for row in rows for e in walk(row.body))
    np.testing.assert_array_equal(interpret(program, arrays)[0], np.cos(np.concatenate(arrays)))


def test_pieces_of_a_concatenation_have_no_guard() -> None:
    b = LoopBuilder()
    x, z, y = memory("a0", F64, (7,), "argument"), memory("a1", F64, (9,), "argument"), memory("r0", F64, (16,), "result")
    with b.nest((16,)) as (i,):
        b.store(y, [i], b.choose(b.less(i, 7), lambda: b.load(x, [i]), lambda: b.load(z, [i - 7])))
    program = optimised(LoopProgram((x, z), (y,), (), (), b.body))
    assert not any(isinstance(s, Conditional) or (isinstance(s, Let) and s.target.dtype is BOOL) for s in walk(program.body))


PERMUTED = [((8, 6), (1, 0)), ((7, 9), (1, 0)), ((5, 4, 3), (2, 0, 1)), ((3, 7, 5), (2, 1, 0)), ((4, 3, 6), (1, 2, 0)),
            ((2, 5, 1, 7), (3, 1, 2, 0)), ((3, 20), (1, 0)), ((20, 3), (1, 0))]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1"])
@pytest.mark.parametrize(("shape", "permutation"), PERMUTED)
def test_tiles_of_transposes_are_apart(shape: tuple[int, ...], permutation: tuple[int, ...], dtype: str) -> None:
    """Every element is stored once, so it may be computed in place."""
    b, x = Builder(), np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    program = optimised(lower(alone(b(transpose, *constants(b, [x]), permutation=permutation))))
    np.testing.assert_array_equal(interpret(program, [x])[0], x.transpose(permutation))
    assert sum(times for s, times in weighted(program.body) if isinstance(s, Store)) == x.size


@pytest.mark.parametrize("shape", [(60, 40), (256, 256), (33, 512), (2000, 64)])
def test_rows_of_a_stencil_are_counted_where_its_guards_are_at_the_ends(shape: tuple[int, int]) -> None:
    """Loops end where others begin, at the least or the largest of some numbers: about as many elements are stored as there are."""
    b = Builder()
    x = b.param(0, tensor(F32, shape))
    beside = [b(pad, x, b.constant(0.0, F32), edge_padding_low=(d, e), edge_padding_high=(-d, -e), interior_padding=(0, 0))
              for d, e in ((1, 0), (-1, 0), (0, 1), (0, -1))]
    program = optimised(lower(Function("f", (x,), (reduce(lambda y, z: b(add, y, z), beside),))))
    stored = sum(times for s, times in weighted(program.body) if isinstance(s, Store))
    assert math.prod(shape) <= stored <= 1.5 * math.prod(shape)


@pytest.mark.parametrize(("shape", "permutation", "tiles"), [
    ((8, 12), (1, 0), [3, 2, 4, 4]), ((9, 14), (1, 0), [3, 2, 4, 4]),
    ((8, 3, 4), (1, 2, 0), [3, 2, 4, 4]),  # of axes that are one loop
    ((8, 1024), (1, 0), [256, 4, 4, 2]), ((8, 32, 32), (1, 2, 0), [256, 4, 4, 2]),  # lines that share a set
], ids=str)
def test_transposes_go_tile_by_tile(shape: tuple[int, ...], permutation: tuple[int, ...], tiles: list[int],
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "SET_LINES", 2)
    b, x = Builder(), np.arange(math.prod(shape), dtype="f4").reshape(shape)
    program = optimised(lower(alone(b(transpose, *constants(b, [x]), permutation=permutation))))
    np.testing.assert_array_equal(interpret(program, [x])[0], x.transpose(permutation))
    whole = program.body[0]
    lengths = []
    while isinstance(whole, For):
        lengths.append(whole.high.constant)
        whole = whole.body[-1]
    assert lengths == tiles


@pytest.mark.parametrize(("shape", "permutation", "dtype", "lengths"), [
    ((12, 3, 2, 8), (3, 1, 2, 0), "f4", [12, 3, 4, 4]),  # axes that threads share as one loop
    ((32, 3, 8), (2, 1, 0), "i1", [3, 2, 8, 16]),  # an axis shorter than a tile is a whole one
    ((2, 16, 3, 8), (0, 2, 3, 1), "i1", [6, 1, 8, 16]),  # the axis of neighbours, not one whose elements only share lines
])  # fmt: skip
def test_transposes_of_any_rank_go_tile_by_tile(shape: tuple[int, ...], permutation: tuple[int, ...], dtype: str,
                                                lengths: list[int]) -> None:
    b, x = Builder(), np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    program = optimised(lower(alone(b(transpose, *constants(b, [x]), permutation=permutation))))
    np.testing.assert_array_equal(interpret(program, [x])[0], x.transpose(permutation))
    (whole,), found = program.body, []
    while isinstance(whole, For):
        found.append(whole.high.constant)
        whole = next((s for s in whole.body if isinstance(s, For)), whole.body[0])
    assert found == lengths


@pytest.mark.parametrize(("steps", "rows"), [(7, 9), (8, 1)])
def test_columns_that_a_loop_reads_one_after_the_other_are_copied_before_it(steps: int, rows: int) -> None:
    """Not those of which there are few: their lines stay in a cache."""
    x = in_memory(memory("a0", F64, (rows, steps), "argument"), F64)
    out = in_memory(memory("r0", F64, (steps, rows), "result"), F64)
    b = LoopBuilder()
    with b.nest(()), b.loop(steps) as t, b.loops((rows,), parallel=True) as (i,):
        b.put(out, (t, i), x.at(b, (i, steps - 1 - t)))
    program = tile_transposes.pack_columns(LoopProgram((x.buffer,), (out.buffer,), (), (), b.body))
    (loop,) = (s for s in walk(program.body) if isinstance(s, For) and not s.parallel)
    assert {s.buffer is x.buffer for s in walk(loop.body) if isinstance(s, Load)} == {rows == 1}
    given = np.arange(float(rows * steps)).reshape(rows, steps)
    np.testing.assert_array_equal(interpret(program, [given])[0], given.T[::-1])


@pytest.mark.parametrize(("shift", "copies"), [(0, 1), (1, 2)])
def test_a_column_that_two_nests_read_is_copied_once(shift: int, copies: int) -> None:
    """Another column has a copy of its own."""
    x = in_memory(memory("a0", F64, (9, 8), "argument"), F64)
    outs = [in_memory(memory(f"r{k}", F64, (7, 9), "result"), F64) for k in range(2)]
    b = LoopBuilder()
    with b.nest(()), b.loop(7) as t:
        for k, out in enumerate(outs):
            with b.loops((9,), parallel=True) as (i,):
                b.put(out, (t, i), x.at(b, (i, t + k * shift)))
    program = tile_transposes.pack_columns(LoopProgram((x.buffer,), tuple(o.buffer for o in outs), (), (), b.body))
    assert len(program.scratch) == copies
    given = np.arange(72.0).reshape(9, 8)
    for k, found in enumerate(interpret(program, [given])):
        np.testing.assert_array_equal(found, given.T[k * shift : k * shift + 7])


def filled_before(program: LoopProgram) -> LoopProgram:
    """The program, changed in place, with stores of 7 to all of its memory before the others."""
    b = LoopBuilder()
    for buffer in (*program.results, *program.scratch):
        with b.nest(buffer.shape) as at:
            b.store(buffer, at, b.const(7, buffer.dtype))
    program.body[:0] = b.body
    return program


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_what_is_stored_again_is_not_seen(first: int) -> None:
    for seed in range(first, first + 20):
        rng, before = np.random.default_rng(seed + 1), Generator(seed, split=False).program()
        arguments = [rng.integers(-4, 9, a.shape).astype(a.dtype.np) for a in before.arguments]
        program = optimised(filled_before(Generator(seed, split=True).program()))
        for got, want in zip(interpret(program, arguments), interpret(before, arguments), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}")


@pytest.mark.parametrize(("low", "is_read", "left"), [(0, False, 1), (1, False, 2), (0, True, 2)])
def test_what_a_loop_stacks_in_an_array_of_zeros_needs_no_zeros(low: int, is_read: bool, left: int) -> None:
    """Unless a row stays, or is read before it is stored."""
    b = LoopBuilder()
    x, y = memory("a0", F64, (5, 3), "argument"), memory("r0", F64, (5, 3), "result")
    with b.nest(y.shape) as at:
        b.store(y, at, b.const(0, F64))
    with b.nest(()), b.loop(5, low) as i, b.loop(3) as j:
        b.store(y, [4 - i, j], b.apply("add", b.load(x, [i, j]), b.load(y, [4 - i, j]) if is_read else b.const(1, F64)))
    program, array = LoopProgram((x,), (y,), (), (), b.body), np.arange(15.0).reshape(5, 3)
    (expected,) = interpret(program, [array])
    program = forward_stores.without_dead_stores(program)
    assert sum(isinstance(s, Store) for s in walk(program.body)) == left
    np.testing.assert_array_equal(interpret(program, [array])[0], expected)


def test_a_subscript_that_counts_within_bounds_is_not_brought_there() -> None:
    b = LoopBuilder()
    with b.nest(()), b.loop(8) as i:
        count = b.apply("sub", b.const(7, I32), b.cast(i, I32))
        assert b.clamped(count, 0, 7) == 7 - i
        assert b.clamped(count, 0, 5).bounds == (0, 5) and b.clamped(count, 0, 5) != 7 - i
