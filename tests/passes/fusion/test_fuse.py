"""Fusion: same values as before, whole patterns in one kernel, convex, within bounds, in its place, and fast."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import Source, Span, UsageError
from deepx_graph.ir import Builder, Function, Module, Node, Origin
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import LOOP_END, PARAM, REGION
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    compare,
    convert,
    exponential,
    fusion,
    multiply,
    negate,
    reduce,
    reduction,
    reshape,
    reverse,
    sine,
    tanh,
)
from deepx_graph.passes.fusion.fuse import Fuse, Unfuse
from deepx_graph.passes.fusion.grouping import Blocked, Order
from deepx_graph.passes.fusion.why import Kind, explain
from deepx_graph.rewrite.base import RewriteControl
from deepx_graph.types import F64, I32, TensorType
from deepx_graph.verify import verify
from tests.support.fuse_programs import (
    COLS,
    SCALAR,
    S,
    gelu,
    kernels,
    layer_norm,
    module,
    named,
    opaque,
    shared,
    softmax,
    work,
)
from tests.support.generate import random_inputs, random_module
from tests.support.reference import evaluate, same

OPTIONS = (Fuse(), Fuse(duplicate=True), Fuse(max_ops=3, max_inputs=3), Fuse(reductions=False))


# --- meaning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("block", range(4))
def test_values_are_the_same_to_the_bit(block: int, options: Fuse) -> None:
    made = 0
    for seed in range(block * 40, block * 40 + 40):
        rng = random.Random(seed)
        m = random_module(rng)
        args = random_inputs(rng, m)
        fused = options.run(m)
        verify(fused)
        apart = Unfuse().run(fused)
        verify(apart)
        expected = tuple(evaluate(m, args))
        assert same(tuple(evaluate(fused, args)), expected), seed
        assert same(tuple(evaluate(apart, args)), expected), seed
        assert not kernels(apart)
        made += len(kernels(fused))
    assert made > 10


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_bodies_are_in_normal_form_and_within_bounds(options: Fuse) -> None:
    for seed in range(150):
        for kernel in kernels(options.run(random_module(random.Random(seed), max_ops=100))):
            body: Function = kernel.attr("body")
            ops = work(body)
            assert 2 <= len(ops) <= options.max_ops
            assert len(body.params) <= options.max_inputs
            shapes = {r.type.dims for r in ops}  # type: ignore[attr-defined]
            assert len(shapes) <= 2, "a kernel has its full shape and that of its rows"
            for n in body.nodes:
                assert n.op is PARAM or n.op.elementwise or n.op is broadcast_in_dim or n.op is reduce or splat_of(n) is not None
                assert options.reductions or n.op is not reduce


def test_fusing_again_changes_nothing_and_modules_without_work_stay_themselves() -> None:
    m = module(lambda b, x: [opaque(b, x)], S)
    assert Fuse().run(m) is m
    assert Unfuse().run(m) is m
    fused = Fuse().run(module(lambda b, x: [b(sine, b(tanh, x))], S))
    assert Fuse().run(fused) is fused


# --- patterns -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("body", "types"), [
    (softmax, (S,)), (lambda b, x: softmax(b, x, keep=True), (S,)), (layer_norm, (S, COLS, COLS)), (gelu, (S,)),
], ids=["softmax", "softmax, axes kept", "layer norm", "gelu"])  # fmt: skip
def test_known_patterns_are_one_kernel(body: Any, types: tuple[TensorType, ...]) -> None:
    m = module(body, *types)
    fused = Fuse().run(m)
    verify(fused)
    assert [n.op for n in work(fused.entry)] == [fusion]
    args = [np.random.default_rng(k).standard_normal(t.shape).astype("f") for k, t in enumerate(types)]
    assert same(tuple(evaluate(fused, args)), tuple(evaluate(m, args)))


def test_several_results_of_one_kernel() -> None:
    m = module(lambda b, x, y: [named(b, "p", b(add, x, y)), named(b, "q", b(multiply, x, y))], S, S)
    fused = Fuse().run(m).entry
    (kernel,) = [n for n in fused.nodes if n.op is fusion]
    assert len(kernel.attr("body").results) == 2
    assert [fused.result_name(k) for k in range(2)] == ["p", "q"]


def test_float64_and_mixed_dtypes_share_a_kernel() -> None:
    m = module(lambda b, x: [b(sine, b(convert, b(tanh, x), dtype=F64))], S)
    assert len(kernels(Fuse().run(m))) == 1


def test_a_row_result_keeps_its_shape() -> None:
    def body(b: Builder, x: Node) -> list[Node]:
        total = b(reshape, reduction(b, add, b(sine, x), (1,)), shape=(4, 1))
        return [b(negate, total), b(multiply, total, b.like(2, total))]

    m = module(body, S)
    fused = Fuse().run(m)
    assert len(kernels(fused)) == 1
    assert fused.entry.type == m.entry.type


def test_kernels_remember_every_location_they_came_from() -> None:
    source = Source("prog.dx", "one\ntwo\n")
    b = Builder()

    def body(x: Node) -> list[Node]:
        b.origin = Origin("a", (Span(source, 0, 3),))
        y = b(sine, x)
        b.origin = Origin("r", (Span(source, 4, 7),))
        return [b(tanh, y)]

    (kernel,) = kernels(Fuse().run(Module((b.function("main", [("x", S)], body),))))
    assert kernel.name == "r"
    assert sorted(s.line for s in kernel.origin.spans) == [1, 2]
    assert [n.name for n in work(kernel.attr("body"))] == ["a", "r"]
    apart = Unfuse().run(Module((Function("main", (b.param(0, S, "x"),), ()),)))
    assert not kernels(apart)


def test_rewrite_limit_stops_fusion() -> None:
    m = module(lambda b, x: [b(sine, b(tanh, opaque(b, b(sine, b(tanh, x)))))], S)
    control = RewriteControl(1)
    assert len(kernels(Fuse().run_under(m, control))) == 1
    assert len(kernels(Fuse().run(m))) == 2


# --- bounds, convexity, place -------------------------------------------------------------------------------------


def ladder(b: Builder, x: Node) -> list[Node]:
    """a -> opaque -> c, and a -> c: a and c must stay apart, whatever joins what."""
    for _ in range(50):
        a = b(tanh, x)
        x = b(add, a, opaque(b, a))
    return [x]


def test_convex() -> None:
    m = module(ladder, S)
    fused = Fuse().run(m)
    verify(fused)  # a cycle could not even be built: inputs are older than their users
    args = [np.linspace(-1, 1, 32, dtype="f").reshape(4, 8)]
    assert same(tuple(evaluate(fused, args)), tuple(evaluate(m, args)))
    names = [n.op for n in fused.entry.nodes]
    assert names.count(reverse) == 50
    assert names.count(fusion) == 49, "each sum joins the tanh after it, never the one before"


def test_order_agrees_with_search_on_random_graphs() -> None:
    """Merging in the order refuses exactly when a path through a third unit exists."""
    for seed in range(60):
        rng = random.Random(seed)
        edges = {(rng.randrange(b), b) for b in range(1, 25) for _ in range(rng.randint(0, 2))}
        before = {u: {a for a, b in edges if b == u} for u in range(25)}
        after = {u: {b for a, b in edges if a == u} for u in range(25)}
        order: Order[int] = Order()
        for u in range(25):
            order.append(u)
        for _ in range(40):
            if len(before) == 1:
                break
            first, second = sorted(rng.sample(sorted(before), 2), key=order.position.__getitem__)
            cyclic = _reaches(after, after[first] - {second}, second)
            try:
                place = order.merge(first, second, before.__getitem__, after.__getitem__)
            except Blocked:
                assert cyclic
                continue
            assert not cyclic
            for table in (before, after):
                table[first] = (table[first] | table.pop(second)) - {first, second}
                for others in table.values():
                    if second in others:
                        others.remove(second)
                        others.add(first)
                table[first].discard(first)
            order.replace((first, second), first, place)
            assert len(set(order.position.values())) == len(before)
            assert all(order.position[a] < order.position[u] for u in before for a in before[u])


def _reaches(after: dict[int, set[int]], starts: set[int], goal: int) -> bool:
    seen, stack = set(starts), list(starts)
    while stack:
        u = stack.pop()
        if u == goal:
            return True
        stack += after[u] - seen
        seen |= after[u]
    return False


def test_bounds_are_checked() -> None:
    with pytest.raises(UsageError):
        Fuse(max_ops=1)
    with pytest.raises(UsageError):
        Fuse(max_inputs=0)


def test_invariant_work_does_not_enter_a_loop_kernel() -> None:
    def body(b: Builder, x: Node) -> list[Node]:
        fixed = b(sine, x)
        iteration, total = b.loop([b.constant(0, I32), x], lambda v: (
            b(compare, v[0], b.constant(3, I32), direction="LT"),
            [b(add, v[0], b.constant(1, I32)), b(multiply, b(add, v[1], fixed), fixed)]))  # fmt: skip
        return [total, iteration]

    m = module(body, S)
    fused = Fuse().run(m)
    (kernel,) = kernels(fused)
    assert {n.op for n in work(kernel.attr("body"))} == {add, multiply}
    x = [np.full((4, 8), 0.5, "f")]
    assert same(tuple(evaluate(fused, x)), tuple(evaluate(m, x)))


def test_the_two_sides_of_a_branch_are_kernels_of_their_own() -> None:
    def body(b: Builder, x: Node, p: Node) -> list[Node]:
        before = b(sine, x)
        yes, no = b(negate, b(exponential, before)), b(tanh, b(add, before, x))
        return list(b.branch(b(compare, p, b.like(0, p), direction="LT"), [yes], [no]))

    fused = Fuse().run(module(body, S, SCALAR))
    assert sorted(sorted(n.op.name for n in work(k.attr("body"))) for k in kernels(fused)) == [
        ["add", "tanh"], ["exponential", "negate"],
    ]  # fmt: skip
    (region,) = [n for n in fused.entry.nodes if n.op is REGION]
    assert all(i.op is fusion for i in region.inputs[1:])


def test_dead_loop_variables_do_not_draw_work_out_of_a_branch() -> None:
    """A value used in one branch and by a loop variable that nobody reads belongs to the branch."""
    def body(b: Builder, x: Node, p: Node) -> list[Node]:
        y = named(b, "inside", b(sine, x))
        z = named(b, "outside", b(negate, x))
        out = b.branch(b(compare, p, b.like(0, p), direction="LT"), [b(add, y, z)], [z])
        last, _ = b.loop([b.constant(0, I32), y], lambda v: (b(compare, v[0], b.constant(3, I32), direction="LT"),
                                                              [b(add, v[0], b.constant(1, I32)), y]))  # fmt: skip
        return [out[0], last, z]

    m = module(body, S, SCALAR)
    assert any(n.op is LOOP_END for n in m.entry.nodes)
    assert explain(m, "inside", "outside").kind is Kind.CONTROL


# --- size ---------------------------------------------------------------------------------------------------------


def chain(b: Builder, x: Node) -> list[Node]:
    y = x
    for _ in range(20_000):
        y = b(add, y, x)
    return [y]


def fan(b: Builder, x: Node) -> list[Node]:
    y = b(tanh, x)
    return [b(add, y, b(negate, x)) for _ in range(5_000)]


def far_skips(b: Builder, x: Node) -> list[Node]:
    values, h = [x], x
    for k in range(5_000):
        h = opaque(b, b(multiply, h, values[k // 2]))
        values.append(h)
    return [h]


@pytest.mark.parametrize(("body", "least"), [(chain, 100), (fan, 50), (far_skips, 0)])
def test_large_graphs_end(body: Any, least: int) -> None:
    fused = Fuse().run(module(body, S))
    assert len(kernels(fused)) >= least
    assert all(len(work(k.attr("body"))) <= 200 for k in kernels(fused))


# --- duplicate ----------------------------------------------------------------------------------------------------


def test_cheap_values_are_computed_again_where_wanted() -> None:
    m = module(shared, S)
    assert explain(m, "t", "c").kind is Kind.SEVERAL_USERS
    assert explain(m, "t", "c", Fuse(duplicate=True)).fused
