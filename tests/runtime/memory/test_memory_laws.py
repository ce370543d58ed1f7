"""Layers of kernels whose results take the memory of what dies there: read twice, through views, by kernels of several results.

Whole numbers wrap, so every engine gives the same bits. What a layer gives is moved about between layers, which makes memory of its
own that the next layer may write over; inputs are given away; every value may be read late, and more than once.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    compare,
    concatenate,
    maximum,
    multiply,
    reduction,
    reshape,
    slice_,
    subtract,
    transpose,
    xor,
)
from deepx_graph.types import BOOL, F32, I32, I64, DType, scalar, tensor
from tests.runtime.test_engines_agree import copied, every_engine, wrong
from tests.support.engine_programs import laid_out

Array = np.ndarray[Any, Any]


class Layers:
    """Layers over square matrices, all of one type."""

    def __init__(self, rng: random.Random, size: int, params: Sequence[Node]) -> None:
        self.rng, self.size, self.b = rng, size, Builder()
        self.values = list(params)

    def layer(self) -> None:
        """Some elementwise results of up to three values; each, what it is moved to, or both, go on."""
        given = self.rng.sample(self.values, min(len(self.values), self.rng.randint(1, 3)))
        made = [self.mixed(given) for _ in range(self.rng.choice((1, 1, 2, 3)))]
        kept = self.values if self.rng.random() < 0.2 else []
        self.values = [v for x in made for v in ([x] if self.rng.random() < 0.6 else []) + [self.moved(x)]] + kept[:2]

    def mixed(self, given: Sequence[Node]) -> Node:
        x = self.read(self.rng.choice(given))
        for _ in range(self.rng.randint(1, 3)):
            x = self.b(self.rng.choice((add, subtract, multiply, xor, maximum)), x, self.read(self.rng.choice(given)))
        return x

    def read(self, x: Node) -> Node:
        """As it is most of the time; else turned over, or its rows' or columns' extremes."""
        b, n = self.b, self.size
        match self.rng.randrange(12):
            case 0:
                return b(transpose, x, permutation=(1, 0))
            case 1:
                axis = self.rng.randrange(2)
                return b(broadcast_in_dim, reduction(b, maximum, x, (axis,)), shape=(n, n), broadcast_dimensions=(1 - axis,))
            case 2:
                row = b(slice_, x, start_indices=(0, 0), limit_indices=(1, n), strides=(1, 1))
                return b(broadcast_in_dim, b(reshape, row, shape=(n,)), shape=(n, n), broadcast_dimensions=(self.rng.randrange(2),))
        return x

    def moved(self, x: Node) -> Node:
        """The last rows first."""
        n, cut = self.size, self.rng.randrange(1, self.size)
        twice = self.b(concatenate, x, x, dimension=0)
        return self.b(slice_, twice, start_indices=(cut, 0), limit_indices=(cut + n, n), strides=(1, 1))


def layers(rng: random.Random, size: int, dtype: DType) -> Module:
    types = [(f"p{k}", tensor(dtype, (size, size))) for k in range(rng.randint(1, 3))]

    def body(*params: Node) -> list[Node]:
        growing = Layers(rng, size, params)
        for _ in range(rng.randint(2, 6)):
            growing.layer()
        return [rng.choice(growing.values) for _ in range(rng.randint(1, 3))]

    return Module((Builder().function("f", types, body),), "f")


def check(seed: int, engine: str, sizes: Sequence[int]) -> None:
    rng = random.Random(seed)
    size, dtype = rng.choice(sizes), rng.choice((I32, I64))
    module = layers(rng, size, dtype)
    values = np.random.default_rng(seed).integers(-99, 99, (len(module.entry.params), size, size)).astype(dtype.np)
    args: list[Array] = [laid_out(rng, x) for x in values]
    before, wanted = [a.copy() for a in args], dx.compile(module, engine="numpy")(*args)
    f = dx.compile(dx.optimize(module), engine=engine, threads=rng.choice((1, 2)))
    first = f(*args)
    assert not wrong(first, wanted), f"seed {seed}"
    assert not wrong(args, before), f"seed {seed}: arguments are written over"
    for names in ([p.name for p in f.inputs], [p.name for p in f.inputs if rng.random() < 0.5]):
        assert not wrong(f(*copied(args), donate=names), wanted), f"seed {seed}, given away {names}"
    assert not wrong(first, wanted), f"seed {seed}: earlier results are written over"
    assert len({a.__array_interface__["data"][0] for a in first}) == len(first), f"seed {seed}: results share memory"


@every_engine
@pytest.mark.parametrize("start", [0, *(pytest.param(s, marks=pytest.mark.conformance) for s in range(15, 3000, 15))])
def test_layers_over_memory_that_dies(engine: str, start: int) -> None:
    for seed in range(start, start + 15):
        check(seed, engine, (5, 16, 37))


@every_engine
@pytest.mark.parametrize("start", [0, *(pytest.param(s, marks=pytest.mark.conformance) for s in range(4, 200, 4))])
def test_layers_over_large_memory_that_dies(engine: str, start: int) -> None:
    """Large enough to be handed from one kernel to the next, and to be lent again."""
    for seed in range(start, start + 4):
        check(5000 + seed, engine, (600,))


def rolled(b: Builder, x: Node) -> Node:
    """The last row first, in memory of its own; `x` is read, and not held."""
    n = x.type.dims[0]  # type: ignore[union-attr]
    twice = b(concatenate, x, x, dimension=0)
    return b(slice_, twice, start_indices=(n - 1, 0), limit_indices=(2 * n - 1, n), strides=(1, 1))


READS = {
    "as it is": lambda b, x: x,
    "for all at once": lambda b, x: b(multiply, x, x),
    "and turned over": lambda b, x: b(add, x, b(transpose, x, permutation=(1, 0))),
    "and its columns' extremes": lambda b, x: b(subtract, x, b(
        broadcast_in_dim, reduction(b, maximum, x, (0,)), shape=x.type.dims, broadcast_dimensions=(1,))),
}  # fmt: skip
LATER = {
    "never": lambda b, x: [], "late": lambda b, x: [rolled(b, x)], "as a view": lambda b, x: [b(transpose, x, permutation=(1, 0))],
}  # fmt: skip


@every_engine
@pytest.mark.parametrize("size", [8, 600])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_kernels_of_several_results_over_what_dies(count: int, size: int, engine: str) -> None:
    """What is made, or given away, is read by a kernel some way, and afterwards or not; the results are passed on, or given out."""
    for read, later, is_made, is_passed_on in itertools.product(READS, LATER, (True, False), (True, False)):
        if size > 100 and is_passed_on:
            continue

        def body(p: Node, q: Node, read: str = read, later: str = later, is_made: bool = is_made,
                 is_passed_on: bool = is_passed_on) -> list[Node]:
            b = Builder()
            a = b(multiply, b(add, p, q), p) if is_made else p
            y = rolled(b, a)
            made = [b(op, READS[read](b, a), b(add, y, b.like(k, y))) for k, op in enumerate((add, xor, multiply)[:count])]
            return [*(rolled(b, r) if is_passed_on else r for r in made), *LATER[later](b, a)]

        t = tensor(I32, (size, size))
        module = Module((Builder().function("f", [("p", t), ("q", t)], body),), "f")
        args = [np.random.default_rng(k).integers(-99, 99, (size, size)).astype(np.int32) for k in range(2)]
        f, wanted = dx.compile(dx.optimize(module), engine=engine), dx.compile(module, engine="numpy")(*args)
        first = f(*args)
        for found in (first, f(*copied(args), donate=["p", "q"]), f(*args), first):
            assert not wrong(found, wanted), (read, later, is_made, is_passed_on)


def passed_on(b: Builder, f: Function, way: str, x: Node, yes: Node) -> Node:
    """`x` itself, by way of something that gives on what it is given."""
    match way:
        case "a call":
            return b.call(f, x)[0]
        case "a closure":
            return b.call_value(b.partial(f), x)[0]
        case "what a closure holds":
            return b.call_value(b.partial(f, x))[0]
        case "a branch":
            return b.branch(yes, [x], [b(add, x, x)])[0]
        case "a loop":
            return b.loop([b.constant(0, I32), x], lambda v: (
                b(compare, v[0], b.constant(2, I32), direction="LT"), [b(add, v[0], b.constant(1, I32)), v[1]]))[1]
        case _:
            return b.proj(b.pack(x, x), 1)


@pytest.mark.parametrize("engine", ["numpy", "numexpr", "auto"])
@pytest.mark.parametrize("way", ["a call", "a closure", "what a closure holds", "a branch", "a loop", "a tuple"])
@pytest.mark.parametrize("inner", ["nothing", "a view", "a call"])
def test_results_are_the_callers_alone(inner: str, way: str, engine: str) -> None:
    """Whoever writes into a result changes no argument, no other result, and nothing of the next call."""
    t = tensor(F32, (4, 4))
    same = Builder().function("same", [("x", t)], lambda x: [x], public=False)

    def gives(x: Node) -> list[Node]:
        b = Builder()
        return [x if inner == "nothing" else b(transpose, x, permutation=(1, 0)) if inner == "a view" else b.call(same, x)[0]]

    f, b = Builder().function("f", [("x", t)], gives, public=False), Builder()
    held = b.constant(np.arange(16, dtype=np.float32).reshape(4, 4))

    def body(x: Node, yes: Node) -> list[Node]:
        made = b(add, x, x)
        return [passed_on(b, f, way, v, yes) for v in (x, held, made, made)] + [made]

    module = Module((b.function("main", [("x", t), ("yes", scalar(BOOL))], body), f, same), "main")
    for program in (module, dx.optimize(module)):
        run, x = dx.compile(program, engine=engine), np.arange(16, dtype=np.float32).reshape(4, 4) ** 2
        before, first = x.copy(), run(x, np.bool_(True))
        wanted = [np.array(r) for r in first]
        for k, r in enumerate(first):
            r[...] = -k
        assert not wrong([x], [before])
        assert [float(r[0, 0]) for r in first] == [-k for k in range(len(first))]
        assert not wrong(run(x, np.bool_(True)), wanted)
