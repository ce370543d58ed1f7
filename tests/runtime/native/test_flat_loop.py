"""Loops of unknown length within a loop, as one loop: of generated functions it gives what the reference gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.rebuild import opened
from deepx_graph.ir.structure import LOOP_END, REGION
from deepx_graph.lowering.control import small_fusion
from deepx_graph.ops import (
    add,
    and_,
    compare,
    dynamic_slice,
    dynamic_update_slice,
    maximum,
    multiply,
    reduction,
    reshape,
    sine,
)
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.rewrite.control.flat_loop import flat_loop
from deepx_graph.rewrite.control.strip_mining import in_strips
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines import has_native
from deepx_graph.types import F32, I32, tensor, type_of_array

SIZE = 8


class _Nest:
    """A loop with up to three loops in its iterations, one after the other, which start at what is there and pass an array on."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.b = rng, Builder()
        rows, start, table = (self.b.param(k, t) for k, t in enumerate((tensor(I32, ()), tensor(I32, ()), tensor(I32, (SIZE,)))))
        self.rows, self.inner = rows, rng.randint(1, 3)
        last = self.b.loop((self.number(0), start, table), self.iteration)
        self.function = Function("main", (rows, start, table), tuple(last[1:]))

    def number(self, value: int) -> Node:
        return self.b.constant(np.int32(value))

    def iteration(self, v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        k, total, array = v
        values, arrays = [k, total], [array]
        for _ in range(self.inner):
            found = self.b.loop((self.start(values), self.rng.choice(values), self.rng.choice(arrays)), self.within(list(values)))
            values += found[:2]
            arrays += found[2:]
        mixed = self.b(and_, self.b(add, self.rng.choice(values), values[-1]), self.number(63))
        return self.b(compare, k, self.rows, direction="LT"), (self.b(add, k, self.number(1)), mixed, self.rng.choice(arrays[-2:]))

    def start(self, values: Sequence[Node]) -> Node:
        return self.b(and_, self.rng.choice(values), self.number(self.rng.choice((3, 7))))

    def within(self, values: Sequence[Node]) -> Any:
        """The iteration of a loop up to a number that one of the values around it gives."""
        limit, step, factor = self.rng.choice(values), self.rng.randint(1, 3), self.rng.choice((1, 3, 5))

        def iteration(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            b, (y, z, array) = self.b, v
            most = b(and_, limit, self.number(15))
            next_z = b(and_, b(add, b(multiply, z, self.number(factor)), y), self.number(63))
            at = b(and_, z, self.number(SIZE - 1))
            old = b(reshape, b(dynamic_slice, array, at, slice_sizes=(1,)), shape=())
            new = b(reshape, b(add, old, y), shape=(1,))
            return (b(compare, y, most, direction="LT"),
                    (b(add, y, self.number(step)), next_z, b(dynamic_update_slice, array, new, at)))

        return iteration


def _arguments(rng: Random) -> tuple[Any, ...]:
    table = np.array([rng.randint(-9, 9) for _ in range(SIZE)], "i4")
    return np.int32(rng.choice((0, 1, 2, 9))), np.int32(rng.randint(0, 63)), table


def _results(function: Function, engine: str, arrays: Sequence[Any]) -> list[Any]:
    return [np.asarray(r) for r in compile(Module((function,)), engine=engine)(*arrays)]


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_one_loop_gives_what_the_loops_within_one_another_give(first: int) -> None:
    met = Counter[str]()
    for seed in range(first, first + 50):
        rng = Random(seed)
        nest, arrays = _Nest(rng), _arguments(rng)
        flat = flat_loop(nest.function)
        assert flat is not None
        assert sum(n.op is LOOP_END for n in flat.nodes) == 1
        for found, wanted in zip(_results(flat, "numpy", arrays), _results(nest.function, "numpy", arrays), strict=True):
            np.testing.assert_array_equal(found, wanted, err_msg=f"seed {seed}")
        met[f"{nest.inner} within"] += 1
        met["no iteration"] += not arrays[0]
    assert len(met) == 4, met


@pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")
@pytest.mark.parametrize("strip", [1, 3, 20_000])
def test_machine_code_of_loops_within_a_loop_gives_what_the_reference_gives(strip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are kernels of a number of iterations, inner and outer ones, after which others may run."""
    from deepx_graph.runtime.native.loop_program import loop_kernels

    monkeypatch.setattr(loop_kernels, "STRIP", strip)
    made, cut = list[Function | None](), loop_kernels.in_strips
    monkeypatch.setattr(loop_kernels, "in_strips", lambda *args: made.append(cut(*args)) or made[-1])
    for seed in range(24):
        rng = Random(seed)
        nest, arrays = _Nest(rng), _arguments(rng)
        for found, wanted in zip(_results(nest.function, "native", arrays), _results(nest.function, "numpy", arrays), strict=True):
            np.testing.assert_array_equal(found, wanted, err_msg=f"seed {seed}")
    assert any(f is not None for f in made), "loops are cut"


def test_a_loop_in_a_branch_and_one_within_two_and_counted_ones_are_left() -> None:
    """They have no stage of their own."""
    b = Builder()
    x = b.param(0, type_of_array(np.int32(0)))

    def up(limit: Node) -> Any:
        return lambda v: (b(compare, v[0], limit, direction="LT"), [b(add, v[0], b.like(1, v[0]))])

    def branching(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        test = b(compare, v[0], b.like(3, v[0]), direction="LT")
        return (b(compare, v[0], x, direction="LT"),
                b.branch(test, b.loop((v[0],), up(b(add, v[0], x))), [b(add, v[0], b.like(1, v[0]))]))

    def deep(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        inside = b.loop((v[0],), lambda w: (b(compare, w[0], x, direction="LT"), b.loop((w[0],), up(b(add, w[0], x)))))
        return b(compare, v[0], x, direction="LT"), [b(add, inside[0], b.like(1, v[0]))]

    def counted(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        inside = b.loop((b.like(0, x), v[0]), lambda w: (b(compare, w[0], b.like(9, x), direction="LT"),
                                                         [b(add, w[0], b.like(1, x)), b(add, w[1], x)]))
        return b(compare, v[0], x, direction="LT"), [b(add, inside[1], b.like(1, v[0]))]

    for body in (branching, deep, counted):
        assert flat_loop(Function("main", (x,), b.loop((b.like(0, x),), body))) is None


# --- where kernels of their own are more worth

def _kernels(monkeypatch: pytest.MonkeyPatch, function: Function) -> list[Function]:
    """The functions of loops that become kernels of scalars."""
    from deepx_graph.runtime.native.loop_program import loop_kernels

    made, build = list[Function](), loop_kernels.build_short

    def built(body: Function, *args: Any, **keywords: Any) -> Any:
        kernel = build(body, *args, **keywords)
        made.append(body)
        return kernel

    monkeypatch.setattr(loop_kernels, "build_short", built)
    compile(Module((function,)), engine="native")
    return made


@pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")
@pytest.mark.parametrize("size", [2, 32])
def test_loops_over_rows_that_are_vectors_are_no_stages(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row of a table is halved until it is small: short rows in one loop, others by vector code for each."""
    b = Builder()
    table = b.param(0, tensor(F32, (15, size)))

    def small(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        most = reduction(b, maximum, v[0], (0,))
        return b(compare, most, b.like(1, most), direction="GT"), [b(multiply, b(sine, v[0]), b.like(0.5, v[0]))]

    def row(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        k, rows = v
        here = b(reshape, b(dynamic_slice, rows, k, b.like(0, k), slice_sizes=(1, size)), shape=(size,))
        found = b(reshape, b.loop((here,), small)[0], shape=(1, size))
        more = b(compare, k, b.like(15, k), direction="LT")
        return more, [b(add, k, b.like(1, k)), b(dynamic_update_slice, rows, found, k, b.like(0, k))]

    function = Function("main", (table,), (b.loop((b.constant(np.int32(0)), table), row)[1],))
    assert any(n.op is REGION for f in _kernels(monkeypatch, function) for n in f.nodes) == (size == 2)


def test_counted_loops_whose_counters_are_computed_beside_others_are_no_stages() -> None:
    """A sum of numbers that a loop makes of its counter, in one kernel with the next one."""
    b = Builder()
    x = b.param(0, tensor(I32, ()))
    both = b.function("both", [("j", x.type)], lambda j: (b(add, j, b.like(1, j)), b(multiply, j, j)))

    def row(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        def cell(w: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            found = b(fusion, w[0], body=both)
            return b(compare, w[0], b.like(9, x), direction="LT"), [b.proj(found, 0), b(add, w[1], b.proj(found, 1))]

        return b(compare, v[0], x, direction="LT"), [b.loop((b.like(0, x), v[0]), cell)[1]]

    function = Function("main", (x,), b.loop((b.like(0, x),), row))
    assert in_strips(opened(function, small_fusion), 9, lambda strip, is_flattened: True) is None
