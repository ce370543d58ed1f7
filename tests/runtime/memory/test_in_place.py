"""The law of results in the memory of operands: over generated programs, no value that is read later changes.

Kernels here write over all that they may. What the memory plan forwards and donates is run by such an engine, and what a whole
program lays over each other is followed step by step.
"""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import networkx as nx
import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.lowering import bytecode
from deepx_graph.ops import (
    add,
    compare,
    concatenate,
    dot_general,
    dynamic_update_slice,
    fusion,
    maximum,
    multiply,
    reshape,
    slice_,
    subtract,
    tanh,
)
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines import has_native
from deepx_graph.runtime.engines.base import Engine, by_eval
from deepx_graph.runtime.memory.donation import chosen
from deepx_graph.runtime.memory.pool import GRAIN, RESULTS
from deepx_graph.runtime.native.whole_program.plan import Called, Copied, Home, Swapped, called
from deepx_graph.types import F32, I64, leaves, scalar, tensor
from tests.support.filling import filling
from tests.support.steps import steps

PROGRAMS = 60

PARTS = 3
"""Of the work of a kernel, each of which may have temporaries."""
LONG, STEADY = 100_000, 500_000
"""Elements of a vector whose memory counts, and bytes that do not grow with it."""


def program(rng: Random, n: int = 6) -> Function:
    """Elementwise steps, some of two results, views of what there is, and parts of what is put together."""
    b, vector = Builder(), tensor(I64, (n,))
    two = b.function("two", [("p", vector), ("q", vector)], lambda p, q: [b(add, p, q), b(subtract, p, q)], public=False)

    def body(*params: Node) -> Sequence[Node]:
        made = list(params)
        for _ in range(rng.randint(1, 9)):
            x, y = rng.choice(made[-4:]), rng.choice(made)
            match rng.randrange(6):
                case 0:
                    made += b.items(b(fusion, x, y, body=two))
                case 1:
                    wide = b(reshape, x, shape=(2, n // 2))
                    made.append(b(reshape, b(maximum, wide, b(add, wide, wide)), shape=(n,)))
                case 2:
                    low = b(slice_, x, start_indices=(0,), limit_indices=(n,), strides=(1,))
                    made.append(b(multiply, low, y))
                case 3:
                    whole = b(concatenate, x, y, dimension=0)
                    if rng.randrange(2):
                        whole = b(concatenate, rng.choice(made), b(multiply, x, y), whole, dimension=0)
                    whole = rng.choice((whole, b(subtract, whole, whole), b(maximum, whole, whole)))
                    start = rng.randint(0, whole.type.shape[0] - n)  # type: ignore[attr-defined]
                    made.append(b(slice_, whole, start_indices=(start,), limit_indices=(start + n,), strides=(1,)))
                case _:
                    made.append(b(rng.choice((add, subtract, multiply)), x, y))
        return [rng.choice(made[-5:]) for _ in range(rng.randint(1, 3))]

    return b.function("main", [(f"x{k}", vector) for k in range(rng.randint(1, 3))], body)


def everything(node: Node) -> tuple[frozenset[int], ...]:
    """All operands of the type of each result."""
    return tuple(frozenset(k for k, i in enumerate(node.inputs) if i.type == t) for t in leaves(node.type))


class Overwriting(Engine):
    """An engine whose kernels write over every operand that they may."""

    name = "overwriting"

    def kernel(self, node: Node) -> Any:
        """The eval of the node, its results in `out`."""
        return filling(node)

    def writes(self, node: Node) -> bool:
        """Whether results go where they are told to."""
        return not node.op.view

    def overwrites(self, node: Node) -> tuple[frozenset[int], ...]:
        """Every operand of the right type; a kernel of two results writes the first before it reads what the second needs."""
        return () if node.op.view or node.op is fusion else everything(node)


@pytest.mark.parametrize("first", range(0, PROGRAMS, 20))
def test_what_is_given_away_is_read_no_more(first: int) -> None:
    for seed in range(first, first + 20):
        rng = Random(seed)
        module = Module((program(rng),))
        args = [np.array([rng.randint(-9, 9) for _ in range(6)]) for _ in module.entry.params]
        kept, wanted = [a.copy() for a in args], compile(module, engine="numpy")(*args)
        f = compile(module, engine=Overwriting())
        results = f(*args), f(*args)
        given = [p.name for p in f.inputs if rng.random() < 0.7]
        for found in (*results, f(*[a.copy() for a in args], donate=given), *results):
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}")
        for a, b in zip(args, kept, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}: an argument")


@dataclass(eq=False)
class Kernel:
    """Machine code that is never run."""

    node: Node
    in_place: tuple[frozenset[int], ...]
    params: tuple[int, ...]
    own_bytes: tuple[int, ...] = ()
    own_spans: tuple[tuple[int, int], ...] = ()
    is_program: bool = False
    thread_bytes: int = 0

    @property
    def workspace_bytes(self) -> int:
        return sum(self.own_bytes)


def looping(rng: Random, n: int = 6) -> Function:
    """Loops, in or after one another, that carry vectors on: written over, changed around, seen later, updated in part."""
    b, vector = Builder(), tensor(I64, (n,))

    def some(made: list[Node], at: Node | None) -> Node:
        x, y = rng.choice(made[-5:]), rng.choice(made)
        match rng.randrange(5):
            case 0 if at is not None:
                part = b(slice_, y, start_indices=(2,), limit_indices=(4,), strides=(1,))
                return b(dynamic_update_slice, x, part, at)
            case 1:
                return b(concatenate, *(b(slice_, v, start_indices=(k,), limit_indices=(k + n // 2,), strides=(1,))
                                        for v, k in ((x, 1), (b(add, y, y), 2))), dimension=0)
            case _:
                return b(rng.choice((add, subtract, maximum)), x, y)

    def loop(made: list[Node], depth: int) -> list[Node]:
        carried = [rng.choice(made) for _ in range(rng.randint(1, 4))]
        start, one = b.splat(0, scalar(I64)), b.splat(1, scalar(I64))

        def iteration(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            inner = [*made, *v[1:]]
            for _ in range(rng.randint(0, 4)):
                inner.append(some(inner, v[0]))
            if depth and rng.randrange(2):
                inner += loop(inner, depth - 1)
            going_on = b(compare, v[0], b.splat(rng.randint(0, 4), scalar(I64)), direction="LT")
            return going_on, [b(add, v[0], one), *(rng.choice(inner[-6:]) for _ in carried)]

        return list(b.loop([start, *carried], iteration))[1:]

    def body(*params: Node) -> Sequence[Node]:
        made = list(params)
        for _ in range(rng.randint(1, 3)):
            made.append(some(made, None))
            made += loop(made, 1)
        return [rng.choice(made[-5:]) for _ in range(rng.randint(1, 3))]

    return b.function("main", [(f"x{k}", vector) for k in range(rng.randint(1, 3))], body)


@pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")
@pytest.mark.parametrize("first", range(0, PROGRAMS, 20))
def test_what_a_whole_program_lays_over_each_other_is_read_no_more(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from deepx_graph.runtime.native.whole_program import storage

    monkeypatch.setattr(storage, "LEAST_BYTES", 8)
    met = Counter[str]()
    for seed in range(first, first + 20):
        for make in (program, looping)[: 1 + seed % 2]:
            rng = Random(seed)
            function = make(rng)
            args = np.array([[rng.randint(-9, 9) for _ in range(6)] for _ in function.params])
            wanted = compile(Module((function,)), engine="numpy")(*args)
            for k, (found, want) in enumerate(zip(_Followed(function, rng, args, met).results, wanted, strict=True)):
                np.testing.assert_array_equal(found, want, err_msg=f"{make.__name__} {seed}, result {k}")
    what = "given", "over", "lent", "exchanged", "exchanged with a result", "temporaries", "temporaries lent"
    assert all(met[w] > 1 for w in what), met


@pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")
def test_results_and_arguments_that_are_alike_are_compared_in_pairs_alone() -> None:
    """A training step gives back as many weights as it is given: of all kinds of pairs there are as many as the square of that."""
    from deepx_graph.runtime.native.whole_program.planner import planned

    def step(n: int) -> int:
        b, vector = Builder(), tensor(I64, (6,))
        params = [(f"p{k}", vector) for k in range(n)]
        function = b.function("f", params, lambda *ps: [b(subtract, p, ps[0]) for p in ps])
        return steps(lambda: planned(function, lambda node: Kernel(node, everything(node), (0, 1))))[0]  # type: ignore[arg-type, return-value]

    step(5)
    short, long = step(40), step(160)
    assert math.log(long / short) / math.log(160 / 40) <= 2, (short, long)


class _Followed:
    """The plan of a program run in memory as it has it, results over the arguments that it names. `met` counts what is done."""

    def __init__(self, function: Function, rng: Random, args: Any, met: Counter[str]) -> None:
        from deepx_graph.runtime.native.whole_program.planner import planned

        def machine_of(node: Node) -> Any:
            may = everything(node)
            over = tuple(frozenset(k for k in m if rng.random() < 0.8) for m in may)
            own = tuple(rng.choice((8, 24, 64, 100)) for _ in range(rng.randint(0, 3)))
            spans = tuple((first, rng.randint(first, PARTS - 1)) for first in rng.choices(range(PARTS), k=len(own)))
            return Kernel(node, over, tuple(range(len(node.inputs))), own_bytes=own, own_spans=spans)

        self.plan, self.met, self.marks = planned(function, machine_of), met, set[int]()
        self.memory, given = np.full(self.plan.nbytes, 85, np.uint8), [a.copy() for a in args]
        self.results, taken = [np.full(6, -1, np.int64) for _ in self.plan.results], set[int]()
        for k, may in enumerate(self.plan.in_place):
            if free := sorted(may - taken):
                self.results[k] = given[free[0]]
                taken.add(free[0])
        self.workspaces = {id(c): [self.room(home, n) for home, n in zip(w, c.kernel.own_bytes, strict=False)]
                           for (_, c), w in zip(called(self.plan.actions), self.plan.workspaces, strict=True)}
        self.buffers: dict[int, Any] = {}
        for number, s in enumerate(self.plan.storages):
            if s.param is not None or s.array is not None:
                self.buffers[number] = (given[s.param] if s.param is not None else np.asarray(s.array)).reshape(-1).view(np.uint8)
            elif s.inside is not None:
                self.buffers[number] = self.buffers[s.inside][s.start : s.start + s.nbytes]
            elif (home := self.plan.homes.get(number)) is not None:
                self.buffers[number] = self.room(home, s.nbytes)
        self._count(len(taken))
        at: int | None = 0
        while at is not None:
            for action in self.plan.actions[at]:
                self.act(action)
            at = self.next(at)
        late = [k for k, s in enumerate(self.plan.results) if s in self.plan.exchanged and self.plan.homes[s].result is not None]
        for k in sorted(set(range(len(self.results))) - self.plan.direct, key=lambda k: k in late):
            self.results[k][:] = self.elements(self.plan.results[k])

    def room(self, home: Home, nbytes: int) -> Any:
        memory = self.memory if home.result is None else self.results[home.result].view(np.uint8)
        return memory[home.offset : home.offset + nbytes]

    def _count(self, given: int) -> None:
        homes = [h for h in self.plan.homes.values() if h.result is not None]
        self.met["given"] += given
        self.met["lent"] += len(homes) - len({h.result for h in homes})
        self.met["temporaries lent"] += sum(home.result is not None for w in self.plan.workspaces for home in w)
        self.met["over"] += sum(s.is_owned for s in self.plan.storages) - len(self.plan.homes)
        self.met["exchanged with a result"] += len(self.plan.exchanged)

    def elements(self, storage: int) -> Any:
        return self.buffers[storage].view(self.plan.storages[storage].dtype)

    def number(self, storage: int) -> int:
        return int(self.elements(storage)[0])

    def act(self, action: Any) -> None:
        match action:
            case Called(Kernel() as kernel, objects):
                shapes = [i.type.shape for i in kernel.node.inputs]
                inputs = [self.elements(s).reshape(shape) for s, shape in zip(objects, shapes, strict=False)]
                self.work(kernel, self.workspaces[id(action)])
                found = by_eval(kernel.node)(inputs, None)
                for s, x in zip(objects[len(inputs) :], found if isinstance(found, tuple) else (found,), strict=True):
                    self.elements(s)[...] = np.asarray(x).reshape(-1)
            case Copied(source, target):
                self.buffers[target][:] = self.buffers[source].copy()
            case Swapped(one, other):
                self.met["exchanged"] += 1
                self.buffers[one], self.buffers[other] = self.buffers[other], self.buffers[one]
            case _:
                raise AssertionError(action)

    def work(self, kernel: Kernel, temporaries: list[Any]) -> None:
        """Each temporary holds what was put there until the last part of the work that has it."""
        for part in range(PARTS):
            for k, t in enumerate(temporaries):
                if part == kernel.own_spans[k][0]:
                    t[:] = k
                    self.met["temporaries"] += 1
            there = [k for k, (first, last) in enumerate(kernel.own_spans) if first <= part <= last]
            assert all((temporaries[k] == k).all() for k in there)

    def next(self, at: int) -> int | None:
        match i := self.plan.code.instructions[at]:
            case bytecode.Return():
                return None
            case bytecode.Jump(to):
                return to
            case bytecode.Test(to=to):
                return at + 1 if self.number(self.plan.tested[at]) else to
            case bytecode.Skip(mark, to):
                done = mark in self.marks
                self.marks.add(mark)
                return to if done else at + 1
            case bytecode.Move():
                self.marks -= set(i.clears)
        return at + 1


@pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")
@pytest.mark.parametrize("make", [program, looping])
def test_a_call_has_what_the_plan_says(make: Any) -> None:
    """The first call, which makes all memory, has no more than the peak that was stated before it: all but what does not grow."""
    function = make(Random(1), LONG)
    args = [np.arange(LONG) for _ in function.params]
    RESULTS.clear()
    others = RESULTS.use().in_use  # results of earlier calls, which somebody still has
    f = compile(Module((function,)), engine="native", threads=1)
    tracemalloc.start()
    try:
        results = f(*args)
        held = tracemalloc.get_traced_memory()[1] + RESULTS.use().in_use - others
    finally:
        tracemalloc.stop()
    assert sum(r.nbytes for r in results) <= held <= f.plan.peak_bytes + len(results) * GRAIN + STEADY


@pytest.mark.parametrize("seed", range(40))
def test_as_many_results_as_can_be_take_the_memory_of_parameters(seed: int) -> None:
    """A result may have what ended before it is made, and what ends there if its kernel allows that: a maximum matching of
    networkx has no more."""
    rng = Random(seed)
    ends = [rng.randrange(12) for _ in range(rng.randrange(1, 9))]
    may: list[tuple[int, ...]] = []
    for at in (rng.randrange(12) for _ in range(rng.randrange(1, 9))):
        own = next((p for p, end in enumerate(ends) if end == at and not any(p in others for others in may)), None)
        may.append(tuple(p for p, end in enumerate(ends) if end < at or p == own))
    donated = {p for p in range(len(ends)) if rng.random() < 0.8}
    found = chosen(tuple(may), donated)
    given = [p for p in found if p is not None]
    assert len(given) == len(set(given)) and donated.issuperset(given)
    assert all(p is None or p in params for p, params in zip(found, may, strict=True))
    graph = nx.Graph([(("result", k), p) for k, params in enumerate(may) for p in params if p in donated])
    graph.add_nodes_from(("result", k) for k in range(len(may)))
    most = nx.bipartite.maximum_matching(graph, [("result", k) for k in range(len(may))])
    assert len(given) == len(most) // 2


@pytest.mark.skipif(not has_native(), reason="llvmlite, of the extra deepx-graph[native], is not installed")
@pytest.mark.parametrize("depth", range(1, 6))
def test_a_step_of_gradient_descent_lies_over_the_weights_that_are_given_away(depth: int) -> None:
    """Layers of one size and of several, whose weights are read once more after those behind them have their gradients."""
    sizes = [96, *(Random(depth).choice([64, 96]) for _ in range(depth))]
    f, arrays = trained(sizes)
    expected = [r.copy() for r in f(*(a.copy() for a in arrays))]
    given = [a.copy() for a in arrays]
    found = f(*given, donate=[p.name for p in f.inputs][1:])
    for result, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(result, other, rtol=1e-5, atol=1e-6)
    assert all(any(np.shares_memory(result, array) for array in given[1:]) for result in found)


def trained(sizes: Sequence[int]) -> tuple[Any, list[np.ndarray[Any, Any]]]:
    """A step of gradient descent of layers without biases, and its arguments: the batch, then the weights."""
    b, rng = Builder(), np.random.default_rng(0)
    shapes = [(80, sizes[0]), *itertools.pairwise(sizes)]
    x, *weights = (b.param(k, tensor(F32, shape)) for k, shape in enumerate(shapes))
    made = [x]
    for w in weights:
        made.append(b(tanh, b(dot_general, made[-1], w, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))))
    along, grads = made[-1], list[Node]()
    for w, before, after in reversed(list(zip(weights, made, made[1:], strict=False))):
        along = b(multiply, along, b(subtract, b.like(1, after), b(multiply, after, after)))
        grads.insert(0, b(dot_general, before, along, lhs_contracting_dimensions=(0,), rhs_contracting_dimensions=(0,)))
        along = b(dot_general, along, w, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(1,))
    results = [b(subtract, w, b(multiply, grad, b.like(0.01, grad))) for w, grad in zip(weights, grads, strict=True)]
    arrays = [(rng.standard_normal(shape) / 8).astype("f4") for shape in shapes]
    return dx.compile(Module((Function("main", (x, *weights), tuple(results)),)), engine="native"), arrays
