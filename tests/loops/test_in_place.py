"""The law of results that lie over an argument: of generated programs, the same as in memory of their own, whatever the order in
which iterations of parallel loops run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder, Node
from deepx_graph.loops import Affine, LoopBuilder, LoopProgram
from deepx_graph.loops.builder import memory
from deepx_graph.loops.in_place import Accesses, temporaries_in_results
from deepx_graph.loops.interpret import interpret
from deepx_graph.loops.lower import lower
from deepx_graph.loops.passes.pipeline import optimised
from deepx_graph.loops.passes.split_folds import STRIP
from deepx_graph.loops.program import Buffer, Copy, For, Store, walk
from deepx_graph.ops import add, multiply, subtract
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.types import F32, I64, tensor

Tap = Callable[[LoopBuilder, Sequence[Affine]], Any]


class Generator:
    """Nests that read arguments where they write, beside it, or elsewhere, and results that are copies with changes."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.b = LoopBuilder()
        self.shape = tuple(int(n) for n in self.rng.integers(1, 6, int(self.rng.integers(1, 4))))
        self.arguments = [memory(f"a{k}", I64, self.shape, "argument") for k in range(2)]
        self.starts = memory("starts", I64, (2, 1, 1, 1, 1), "argument")
        self.temporaries = list[Buffer]()
        self.results = [memory(f"r{k}", I64, self.shape, "result") for k in range(int(self.rng.integers(1, 3)))]

    def program(self) -> LoopProgram:
        """A program that fills each result once, and then changes some."""
        filled = list[Buffer]()
        for result in self.results:
            if self.rng.random() < 0.3:
                self.b.emit(Copy(result, self.arguments[int(self.rng.integers(2))]))
            elif self.rng.random() < 0.3:
                self.box(result)
            elif self.rng.random() < 0.3:
                self.rows(result)
            else:
                self.nest([result], filled)
            filled.append(result)
        for _ in range(int(self.rng.integers(3))):
            self.nest([filled[int(self.rng.integers(len(filled)))]], filled)
        return LoopProgram((*self.arguments, self.starts), tuple(self.results), (), tuple(self.b.scratch), self.b.body)

    def program_with_temporaries(self) -> LoopProgram:
        """The same with temporaries between, which nests read where they write, beside it, or elsewhere."""
        for k in range(2):
            t = memory(f"t{k}", I64, self.shape, "scratch")
            self.nest([t], ())
            self.temporaries.append(t)
        program = self.program()
        program.scratch += tuple(self.temporaries)
        return program

    def box(self, result: Buffer) -> None:
        """A copy of an argument, of which a box that begins at a place that is read is made of that box, of another one, or in
        reverse."""
        source, sizes = self.arguments[int(self.rng.integers(2))], [int(self.rng.integers(1, n + 1)) for n in self.shape]
        other, is_reversed = int(self.rng.random() < 0.3), self.rng.random() < 0.2
        self.b.emit(Copy(result, source))
        with self.b.nest(sizes) as at:
            target, read = ([self.start(number, n - size) + i for n, size, i in zip(self.shape, sizes, at, strict=True)]
                            for number in (0, other))
            if is_reversed:
                read = [self.start(0, n - size) + (size - 1 - i) for n, size, i in zip(self.shape, sizes, at, strict=True)]
            self.b.store(result, target, self.b.apply("sub", self.b.const(5, I64), self.b.load(source, read)))

    def start(self, number: int, most: int) -> Affine:
        return self.b.clamped(self.b.load(self.starts, [Affine((), number)] + [Affine()] * 4), 0, most)

    def rows(self, target: Buffer) -> None:
        """A nest that reads rows of an argument along some axis whole, each before it stores one there."""
        source, axis = self.arguments[int(self.rng.integers(2))], int(self.rng.integers(len(self.shape)))
        with self.b.nest([*self.shape[:axis], *self.shape[axis + 1 :]]) as at:
            places = [[*at[:axis], Affine((), k), *at[axis:]] for k in range(self.shape[axis])]
            values = [self.b.load(source, place) for place in places]
            for place, x in zip(places, values, strict=True):
                self.b.store(target, place, self.b.apply("sub", x, values[-1]))

    def nest(self, targets: Sequence[Buffer], filled: Sequence[Buffer]) -> None:
        """A nest that stores into each target at its own place, of what is read there or elsewhere."""
        taps = [self.tap(targets[0], filled) for _ in range(int(self.rng.integers(1, 3)))]
        late = self.rng.random() < 0.2
        with self.b.nest(self.shape) as at:
            total: Any = self.b.cast(at[0], I64)
            for tap in taps:
                total = self.b.apply("add", total, tap(self.b, at))
            for target in targets:
                self.b.store(target, at, total)
            if late and len(filled) < len(self.results):
                self.b.store(targets[0], at, self.b.apply("sub", taps[0](self.b, at), total))

    def tap(self, target: Buffer, filled: Sequence[Buffer]) -> Tap:
        """Reads an element: at the same place, mostly; or at one beside it, in reverse, of a row, or of another nest's result."""
        sources = [*self.arguments, *self.temporaries, *self.temporaries, *(r for r in filled if r is not target)]
        source = sources[int(self.rng.integers(len(sources)))]
        kind, axis = int(self.rng.integers(8)), int(self.rng.integers(len(self.shape)))

        def read(b: LoopBuilder, at: Sequence[Affine]) -> Any:
            index = list(at)
            if kind == 0:
                index[axis] = b.least(at[axis] + 1, self.shape[axis] - 1)
            elif kind == 1:
                index[axis] = self.shape[axis] - 1 - at[axis]
            elif kind == 2:
                index[axis] = Affine()
            if kind != 3:
                return b.load(source, index)
            cell = b.cell(I64, b.const(0, I64))
            with b.loop(self.shape[axis]) as k:
                index[axis] = k
                b.combine(cell, "add", b.load(source, index))
            return b.get(cell)

        return read


def check(seed: int, *, passes: bool) -> tuple[int, int]:
    """Compares; how many results may lie over an argument, and how many may not."""
    program = Generator(seed).program()
    program = optimised(program) if passes else program
    rng, accesses = np.random.default_rng(seed), Accesses(program)
    arrays = [rng.integers(-9, 9, a.shape) for a in program.arguments]
    wanted = interpret(program, arrays)
    taken = 0
    for result in program.results:
        over = {*accesses.written_over(result), *accesses.copied_only(result)}
        taken += len(over)
        for k in over:
            for order in (iter, reversed, rng.permutation):
                for found, want in zip(interpret(program, arrays, {result: k}, order), wanted, strict=True):
                    np.testing.assert_array_equal(found, want, err_msg=f"seed {seed}: {result} over {program.arguments[k]}")
    return taken, 2 * len(program.results) - taken


@pytest.mark.parametrize("passes", [False, True])
def test_a_result_may_lie_over_an_argument_where_that_is_said(passes: bool) -> None:
    taken, refused = np.sum([check(seed, passes=passes) for seed in range(150)], axis=0)
    assert taken > 25 and refused > 25, "programs of both kinds"


def test_a_result_may_lie_over_an_argument_whose_strips_are_added_up() -> None:
    """The loop over a strip is none of its own for each thread; still each of its iterations reads and writes one place."""
    b, vector = Builder(), tensor(F32, (3 * STRIP + 5,))

    def body(x: Node, y: Node) -> list[Node]:
        new = b(subtract, b(add, x, x), y)
        return [new, reduction(b, add, b(multiply, new, new), (0,))]

    program = optimised(lower(b.function("main", [("x", vector), ("y", vector)], body)))
    assert any(isinstance(s, For) and not s.parallel and any(isinstance(e, Store) for e in s.body) for s in walk(program.body))
    assert Accesses(program).written_over(program.results[0]) == [0, 1]
    arrays = [np.arange(3 * STRIP + 5, dtype=np.float32) % k for k in (7, 11)]
    for over in (0, 1):
        for found, want in zip(interpret(program, arrays, {program.results[0]: over}), interpret(program, arrays), strict=True):
            np.testing.assert_array_equal(found, want)


def check_temporaries(seed: int) -> tuple[int, int]:
    """Compares; how many temporaries are in results, and how many are not."""
    program = Generator(seed).program_with_temporaries()
    rng, count = np.random.default_rng(seed), len(program.scratch)
    arrays = [rng.integers(-9, 9, a.shape) for a in program.arguments]
    wanted = interpret(program, arrays)
    program = temporaries_in_results(program)
    for order in (iter, reversed, rng.permutation):
        for found, want in zip(interpret(program, arrays, {}, order), wanted, strict=True):
            np.testing.assert_array_equal(found, want, err_msg=f"seed {seed}: {program}")
    return count - len(program.scratch), len(program.scratch)


def test_a_temporary_may_lie_in_a_result_that_is_stored_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepx_graph.loops.in_place.LEAST_BYTES", 0)
    merged, apart = np.sum([check_temporaries(seed) for seed in range(100)], axis=0)
    assert merged > 15 and apart > 15, "temporaries of both kinds"


def test_temporaries_that_follow_one_another_share_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them may lie in the result, which is stored while they are read elsewhere."""
    monkeypatch.setattr("deepx_graph.loops.in_place.LEAST_BYTES", 0)
    b, shape = LoopBuilder(), (4, 6)
    x, y = memory("a0", I64, shape, "argument"), memory("r0", I64, shape, "result")
    made = [x, *(b.buffer(I64, shape) for _ in range(3))]
    for source, target in itertools.pairwise(made):
        with b.nest(shape) as at:
            b.store(target, at, b.apply("mul", b.load(source, at), b.const(3, I64)))
    with b.nest(shape) as (i, j):
        b.store(y, [i, j], b.load(made[-1], [3 - i, j]))
    program = temporaries_in_results(LoopProgram((x,), (y,), (), tuple(b.scratch), b.body))
    assert len(program.scratch) == 1
    array = np.arange(24).reshape(shape)
    np.testing.assert_array_equal(interpret(program, [array])[0], 27 * array[::-1])


@pytest.mark.conformance
@pytest.mark.parametrize("first", range(1000, 11000, 1000))
def test_results_of_many_programs_may_lie_over_arguments(first: int) -> None:
    for seed in range(first, first + 1000):
        check(seed, passes=bool(seed % 2))
