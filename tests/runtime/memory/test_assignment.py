"""The memory plan: sizes worked out by hand, reuse and in-place where they must be, and no run that has more alive than it says."""

from __future__ import annotations

import random
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from deepx_graph.analysis.schedule import schedule
from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import (
    add,
    compare,
    concatenate,
    fusion,
    multiply,
    negate,
    print_,
    reduction,
    ref_create,
    ref_read,
    ref_write,
    reshape,
    transpose,
)
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines.base import Engine, KernelFn
from deepx_graph.runtime.inputs import flatten
from deepx_graph.runtime.memory.assignment import BufferAssignment, plan
from deepx_graph.runtime.memory.sharing import most_alive
from deepx_graph.runtime.program import plan_functions
from deepx_graph.types import F32, F64, I32, STATE, FunctionType, Type, scalar, tensor
from tests.support.filling import filling
from tests.support.generate import random_inputs, random_module
from tests.support.reference import evaluate, same

VECTOR = tensor(F32, (16,))  # 64 bytes: one buffer's least size


class WritingEngine(Engine):
    """`op.eval`, its results copied to wherever the plan says: every mistake of a plan spoils a result."""

    name = "writing"

    def kernel(self, node: Node) -> KernelFn:
        return filling(node)

    def writes(self, node: Node) -> bool:
        return True


def planned(body: Any, *types: Type, **options: Any) -> BufferAssignment:
    b = Builder()
    return plan(schedule(b.function("main", [(f"x{k}", t) for k, t in enumerate(types)], lambda *x: body(b, *x))), **options)


def test_peak_by_hand() -> None:
    """a = -x; c = a + a; d = c * a; e = sum(d): a, c and d are alive at once, or c and d in place of one another."""
    def body(b: Builder, x: Node) -> Sequence[Node]:
        a = b(negate, x)
        c = b(add, a, a)
        return [reduction(b, add, b(multiply, c, a), (0,))]

    p = planned(body, VECTOR)
    assert [(piece.bytes, piece.offset, piece.in_place) for piece in p.pieces] == [
        (64, 0, False), (64, 64, False), (64, 64, True), (4, None, False),
    ]  # fmt: skip
    assert (p.shared_bytes, p.output_bytes, p.peak_bytes) == (128, 4, 128 + 4 + p.scratch_bytes)
    assert p.scratch_bytes == 8 + 4, "the sum in double precision, then rounded, before the initial value is added"
    p = planned(body, VECTOR, writes=lambda node: False)
    assert p.peak_bytes == 3 * 64  # no in-place: a, c and d at the product


def test_dead_buffers_are_used_again() -> None:
    def body(b: Builder, x: Node) -> Sequence[Node]:
        for _ in range(6):
            x = b(concatenate, b(reshape, reduction(b, add, x, (0,)), shape=(1,)), b(negate, x), dimension=0)
        return [x]

    p = planned(body, tensor(F32, (100,)))
    assert p.shared_bytes < p.total_bytes / 2
    used = [piece.offset for piece in p.pieces if piece.offset is not None]
    assert len(set(used)) < len(used)


def test_a_view_keeps_its_source() -> None:
    def body(b: Builder, x: Node) -> Sequence[Node]:
        a = b(negate, x)
        view = b(transpose, a, permutation=(1, 0))
        other = b(add, x, x)
        return [b(add, view, b(transpose, other, permutation=(1, 0)))]

    a, other, _ = planned(body, tensor(F32, (8, 8))).pieces
    assert a.offset != other.offset
    assert a.last == other.last


def test_nothing_is_written_over_an_operand_that_a_view_still_shows() -> None:
    def body(b: Builder, x: Node) -> Sequence[Node]:
        a = b(negate, x)
        return [reduction(b, add, b(add, a, b(transpose, a, permutation=(1, 0))), (0, 1))]

    assert not any(p.in_place for p in planned(body, tensor(F64, (8, 8))).pieces)


def test_results_have_memory_of_their_own() -> None:
    def body(b: Builder, x: Node) -> Sequence[Node]:
        a = b(negate, x)
        return [a, b(reshape, b(add, a, a), shape=(4, 4)), x]

    p = planned(body, VECTOR)
    assert p.shared_bytes == 0
    assert all(piece.escapes for piece in p.pieces)
    assert p.copied == {1, 2}
    assert p.peak_bytes == 4 * 64  # a, the sum, and copies of its view and of the input


def test_what_a_loop_carries_is_counted_twice() -> None:
    def body(b: Builder, x: Node) -> Sequence[Node]:
        first = b(negate, x)

        def iteration(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            return b(compare, reduction(b, add, v[0], (0,)), b.like(9, x), direction="LT"), [b(add, v[0], v[0])]

        return [reduction(b, add, b.loop([first], iteration)[0], (0,))]

    p = planned(body, VECTOR)
    first = next(piece for piece in p.pieces if piece.node.op is negate)
    carried = next(piece for piece in p.pieces if piece.node.op is add)
    assert first.offset is not None  # what enters the loop may be in a buffer, until the loop ends
    assert (carried.copies, carried.offset, carried.first <= first.last) == (2, None, True)


def test_a_call_counts_what_the_callee_needs() -> None:
    b = Builder()
    f = b.function("f", [("x", VECTOR)], lambda x: [reduction(b, add, b(transpose, b(negate, x), permutation=(0,)), (0,))])
    main = b.function("main", [("x", VECTOR)], lambda x: b.call(f, x))
    plans = plan_functions(Module((main, f)), lambda node: False)
    assert plans["f"].peak_bytes == 64 + 4 + plans["f"].scratch_bytes
    assert plans["main"].peak_bytes == 4 + 64 + plans["f"].scratch_bytes
    assert plans["f"].value_bytes == plans["main"].value_bytes == 64 + 4, "the negated vector and the sum"
    assert plans["f"].scratch_bytes == 8 + 4, "the sum in double precision, then rounded, before the initial value is added"
    assert not plans["f"].recursive


def test_recursive_functions_say_so() -> None:
    b = Builder()
    type = FunctionType((scalar(F32),), (scalar(F32),))

    def define(name: str, other: str) -> Function:
        return b.function(name, [("x", scalar(F32))], lambda x: b.call((other, type), x))

    leaf = b.function("leaf", [("x", scalar(F32))], lambda x: [b(negate, x)])
    main = b.function("main", [("x", scalar(F32))], lambda x: [*b.call(("f", type), x), *b.call(("leaf", type), x)])
    plans = plan_functions(Module((main, define("f", "g"), define("g", "f"), leaf)), lambda node: True)
    assert {name: p.recursive for name, p in plans.items()} == {"main": False, "f": True, "g": True, "leaf": False}


def test_unknown_sizes_are_refused() -> None:
    with pytest.raises(InferError, match="not known"):
        planned(lambda b, x: [b(negate, x)], tensor(F32, ("?1",)))


def test_huge_sizes_are_only_numbers() -> None:
    assert planned(lambda b, x: [b(negate, x)], tensor(F32, (10**9, 10**9))).peak_bytes == 4 * 10**18


def test_the_table_prints() -> None:
    shown = str(planned(lambda b, x: [reduction(b, add, b(negate, b(negate, x)), (0,))], VECTOR))
    assert shown.splitlines()[0] == (
        "plan main: peak 80 bytes, 64 shared, 4 for results, 132 without reuse, at most 12 of scratch")
    assert "in place" in shown


def test_most_alive() -> None:
    assert most_alive([(0, 2, 5), (2, 3, 7), (3, 9, 1)]) == 12
    assert most_alive([]) == 0


class TracingEngine(Engine):
    """`op.eval`; notes the most bytes that arrays with memory of their own have alive at once."""

    name = "tracing"

    def __init__(self) -> None:
        self.alive: dict[int, int] = {}
        self.most = 0

    def kernel(self, node: Node) -> KernelFn:
        evaluate, attrs = node.op.eval, node.attrs
        assert evaluate is not None

        def run(values: Sequence[Any], out: Sequence[Any] | None) -> Any:
            result = evaluate(values, *attrs)
            self.note(result, [leaf for v in values for leaf in flatten(v)])
            return result

        return run

    def note(self, result: Any, operands: Sequence[Any]) -> None:
        for leaf in flatten(result):
            owner = leaf
            while isinstance(owner, np.ndarray) and isinstance(owner.base, np.ndarray):
                owner = owner.base
            new = isinstance(owner, np.ndarray) and id(owner) not in self.alive
            if new and not any(isinstance(v, np.ndarray) and np.may_share_memory(owner, v) for v in operands):
                weakref.finalize(owner, self.alive.pop, id(owner), None)
                self.alive[id(owner)] = leaf.nbytes
        self.most = max(self.most, sum(self.alive.values()))

    def writes(self, node: Node) -> bool:
        return False


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_no_run_has_more_alive_than_planned(start: int) -> None:
    for seed in range(start, start + 50):
        rng = random.Random(seed)
        module = random_module(rng)
        inputs = random_inputs(rng, module)
        tracer = TracingEngine()
        run = compile(module, engine=tracer)
        run(*inputs)
        assert tracer.most <= run.plan.peak_bytes, seed


def test_of_two_results_one_goes_over_an_operand() -> None:
    """Both would fit into the one that ends there."""
    b = Builder()
    both = b.function("both", [("p", VECTOR)], lambda p: [b(add, p, p), b(multiply, p, p)], public=False)

    def body(x: Node) -> Sequence[Node]:
        first, second = b.items(b(fusion, b(negate, x), body=both))
        return [b(concatenate, first, second, dimension=0)]

    def overwrites(node: Node) -> tuple[frozenset[int], ...]:
        return (frozenset([0]),) * 2 if node.op is fusion else ()

    made = plan(schedule(b.function("main", [("x", VECTOR)], body)), overwrites=overwrites)
    found = [p for p in made.pieces if p.node.op is fusion]
    assert [p.in_place for p in found] == [True, False]
    assert found[0].offset != found[1].offset


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_what_a_reference_holds_is_kept_past_other_effects(depth: int) -> None:
    """Written, something printed, memory used for other things, and read; also where the reference lies in another."""
    b = Builder()

    def body(x: Node, state: Node) -> Sequence[Node]:
        ref, state = b.items(b(ref_create, state, b(negate, x)))
        outer = ref
        for _ in range(depth):
            outer, state = b.items(b(ref_create, state, outer))
        state = b(ref_write, state, ref, b(multiply, x, x))
        state = b(print_, state, b.constant(0, I32), format="%d")
        busy = x
        for _ in range(3):
            busy = b(add, b(multiply, busy, busy), x)
        state = b(print_, state, b(reshape, busy, shape=(4, 4)), format="%f")
        for _ in range(depth):
            outer, state = b.items(b(ref_read, state, outer))
        value, state = b.items(b(ref_read, state, outer))
        return [b(add, value, busy), state]

    module = Module((b.function("main", [("x", VECTOR), ("state", STATE)], body),))
    x = np.arange(16, dtype=np.float32) / 16
    busy = x
    for _ in range(3):
        busy = busy * busy + x
    np.testing.assert_array_equal(compile(module, engine=WritingEngine())(x)[0], x * x + busy)


@pytest.mark.parametrize("start", range(0, 300, 100))
def test_shared_buffers_spoil_nothing(start: int) -> None:
    """Random programs with every result in the buffer that the plan gives it, in place wherever it allows, run twice."""
    in_place = 0
    for seed in range(start, start + 100):
        rng = random.Random(seed)
        module = random_module(rng)
        inputs = random_inputs(rng, module)
        want = evaluate(module, inputs)
        run = compile(module, engine=WritingEngine())
        in_place += sum(p.in_place for p in run.plan.pieces)
        for _ in range(2):
            assert all(map(same, run(*inputs), want)), seed
    assert in_place > 20
