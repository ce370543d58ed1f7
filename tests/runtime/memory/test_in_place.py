"""The law of results in the memory of operands: over generated programs, no value that is read later changes.

Kernels here write over all that they may. What the memory plan forwards and donates is run by such an engine, and what a whole
program lays over each other is followed step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import add, concatenate, fusion, maximum, multiply, reshape, slice_, subtract
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines import has_native
from deepx_graph.runtime.engines.numexpr_engine import evaluated
from deepx_graph.types import I64, leaves, tensor

VECTOR = tensor(I64, (6,))
PROGRAMS = 60


def program(rng: Random) -> Function:
    """Elementwise steps, some of two results, views of what there is, and parts of what is put together."""
    b = Builder()
    two = b.function("two", [("p", VECTOR), ("q", VECTOR)], lambda p, q: [b(add, p, q), b(subtract, p, q)], public=False)

    def body(*params: Node) -> Sequence[Node]:
        made = list(params)
        for _ in range(rng.randint(1, 9)):
            x, y = rng.choice(made[-4:]), rng.choice(made)
            match rng.randrange(6):
                case 0:
                    made += b.items(b(fusion, x, y, body=two))
                case 1:
                    wide = b(reshape, x, shape=(2, 3))
                    made.append(b(reshape, b(maximum, wide, b(add, wide, wide)), shape=(6,)))
                case 2:
                    low = b(slice_, x, start_indices=(0,), limit_indices=(6,), strides=(1,))
                    made.append(b(multiply, low, y))
                case 3:
                    whole = b(concatenate, x, y, dimension=0)
                    if rng.randrange(2):
                        whole = b(concatenate, rng.choice(made), b(multiply, x, y), whole, dimension=0)
                    whole = rng.choice((whole, b(subtract, whole, whole), b(maximum, whole, whole)))
                    start = rng.randint(0, whole.type.shape[0] - 6)  # type: ignore[attr-defined]
                    made.append(b(slice_, whole, start_indices=(start,), limit_indices=(start + 6,), strides=(1,)))
                case _:
                    made.append(b(rng.choice((add, subtract, multiply)), x, y))
        return [rng.choice(made[-5:]) for _ in range(rng.randint(1, 3))]

    return b.function("main", [(f"x{k}", VECTOR) for k in range(rng.randint(1, 3))], body)


def everything(node: Node) -> tuple[frozenset[int], ...]:
    """All operands of the type of each result."""
    return tuple(frozenset(k for k, i in enumerate(node.inputs) if i.type == t) for t in leaves(node.type))


class Overwriting:
    """An engine whose kernels write over every operand that they may."""

    name = "overwriting"

    def kernel(self, node: Node) -> Any:
        """The eval of the node, its results in `out`."""
        return evaluated(node)

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
    calls: tuple[tuple[int, int], ...] = ()
    own: list[Any] = field(default_factory=list)


@pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")
@pytest.mark.parametrize("first", range(0, PROGRAMS, 20))
def test_what_a_whole_program_lays_over_each_other_is_read_no_more(first: int) -> None:
    over = inside = 0
    for seed in range(first, first + 20):
        rng = Random(seed)
        function = program(rng)
        found = _followed(function, rng, np.array([[rng.randint(-9, 9) for _ in range(6)] for _ in function.params]))
        over, inside = over + found[0], inside + found[1]
    assert over > 5 and inside > 2, "some storages lie over others, and some within others"


def _followed(function: Function, rng: Random, args: Any) -> tuple[int, int]:
    """Runs the plan of a program in memory as it has it, results over the arguments that it names; how many storages lie over and
    within others."""
    from deepx_graph.runtime.native.whole_program.plan import Called, Copied
    from deepx_graph.runtime.native.whole_program.planner import planned

    def machine_of(node: Node) -> Any:
        may = everything(node)
        return Kernel(node, tuple(frozenset(k for k in m if rng.random() < 0.8) for m in may), tuple(range(len(node.inputs))))

    plan = planned(function, machine_of)
    wanted = compile(Module((function,)), engine="numpy")(*args)
    offsets, size = plan.buffers()
    memory, given = np.zeros(size, np.uint8), [a.copy() for a in args]
    results, taken = [np.zeros(6, np.int64) for _ in plan.results], set[int]()
    for k, may in enumerate(plan.in_place):
        if free := sorted(may - taken):
            results[k] = given[free[0]]
            taken.add(free[0])

    def where(storage: int) -> Any:
        s = plan.storages[storage]
        if s.param is not None or s.array is not None:
            return given[s.param] if s.param is not None else np.asarray(s.array).reshape(-1)
        if storage in plan.direct:
            return results[plan.direct[storage]]
        return memory[offsets[storage] : offsets[storage] + s.nbytes].view(np.int64)

    for actions in plan.actions:
        for action in actions:
            match action:
                case Called(Kernel() as kernel, objects):
                    shapes = [i.type.shape for i in kernel.node.inputs]  # type: ignore[attr-defined]
                    found = evaluated(kernel.node)([where(s).reshape(t) for s, t in zip(objects, shapes, strict=False)], None)
                    for s, x in zip(objects[len(shapes) :], found if isinstance(found, tuple) else (found,), strict=True):
                        where(s)[...] = np.asarray(x).reshape(-1)
                case Copied(source, target, runs):
                    for start, to, nbytes in runs:
                        where(target).view(np.uint8)[to : to + nbytes] = where(source).view(np.uint8)[start : start + nbytes].copy()
                case _:
                    raise AssertionError(action)
    for k, (s, want) in enumerate(zip(plan.results, wanted, strict=True)):
        np.testing.assert_array_equal(results[k] if s in plan.direct else where(s), want, err_msg=f"result {k}")
    return len(plan.same) + len(taken), len(plan.inside)


