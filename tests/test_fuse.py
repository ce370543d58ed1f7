"""Fusion: same values as before, whole patterns in one kernel, convex, within bounds, in its place, and fast; and its reasons."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import Source, Span, UsageError
from deepx_graph.ir import Builder, Function, Module, Node, Origin
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import CONSTANT, LOOP_END, PARAM, REGION, TUPLE
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    compare,
    divide,
    exponential,
    fusion,
    load,
    maximum,
    multiply,
    negate,
    print_,
    reduce,
    reduction,
    reshape,
    reverse,
    rsqrt,
    sine,
    subtract,
    tanh,
    transpose,
)
from deepx_graph.passes import fusion_order
from deepx_graph.passes.base import RewriteControl
from deepx_graph.passes.fuse import Fuse, Unfuse
from deepx_graph.passes.why import Kind, explain, find_node
from deepx_graph.types import ANY, F32, F64, I32, STATE, TensorType, tensor
from deepx_graph.verify import verify
from tests.generate import random_inputs, random_module
from tests.reference import evaluate, same

S, ROWS, COLS, SCALAR = tensor(F32, (4, 8)), tensor(F32, (4,)), tensor(F32, (8,)), tensor(F32, ())
LONG = tensor(F32, (1 << 20,))
OPTIONS = (Fuse(), Fuse(duplicate=True), Fuse(max_ops=3, max_inputs=3), Fuse(reductions=False))


def module(body: Callable[..., Sequence[Node]], *types: Any) -> Module:
    b = Builder()
    names = ("x", "y", "z", "w")
    return Module((b.function("main", [(names[k], t) for k, t in enumerate(types)], lambda *p: body(b, *p)),))


def named(b: Builder, name: str, node: Node) -> Node:
    """The same operation under a name."""
    return Node(node.op, node.inputs, node.attrs, node.type, Origin(name, node.origin.spans))


def kernels(m: Module) -> list[Node]:
    return [n for f in m.functions for n in f.nodes if n.op is fusion]


def work(f: Function) -> list[Node]:
    return [n for n in f.nodes if n.op is not PARAM and n.op is not CONSTANT]


def along_columns(b: Builder, v: Node) -> Node:
    return b(broadcast_in_dim, v, shape=(4, 8), broadcast_dimensions=(1,))


def along_rows(b: Builder, v: Node, keep: bool = False) -> Node:
    if keep:
        return b(broadcast_in_dim, b(reshape, v, shape=(4, 1)), shape=(4, 8), broadcast_dimensions=(0, 1))
    return b(broadcast_in_dim, v, shape=(4, 8), broadcast_dimensions=(0,))


def opaque(b: Builder, x: Node) -> Node:
    """Something that no kernel holds, of the same type."""
    return b(reverse, x, dimensions=(0,))


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


def softmax(b: Builder, x: Node, keep: bool = False) -> list[Node]:
    e = b(exponential, b(subtract, x, along_rows(b, reduction(b, maximum, x, (1,)), keep)))
    return [b(divide, e, along_rows(b, reduction(b, add, e, (1,)), keep))]


def layer_norm(b: Builder, x: Node, gain: Node, bias: Node) -> list[Node]:
    """With rows of shape [4,1] in between, as texts that keep reduced axes have them."""
    def mean(v: Node) -> Node:
        return b(multiply, b(reshape, reduction(b, add, v, (1,)), shape=(4, 1)), b.splat(1 / 8, tensor(F32, (4, 1))))

    def spread(v: Node) -> Node:
        return b(broadcast_in_dim, v, shape=(4, 8), broadcast_dimensions=(0, 1))

    def column(v: Node) -> Node:
        return b(broadcast_in_dim, v, shape=(4, 8), broadcast_dimensions=(1,))

    d = b(subtract, x, spread(mean(x)))
    scale = b(rsqrt, b(add, mean(b(multiply, d, d)), b.splat(1e-5, tensor(F32, (4, 1)))))
    return [b(add, b(multiply, b(multiply, d, spread(scale)), column(gain)), column(bias))]


def gelu(b: Builder, x: Node) -> list[Node]:
    cube = b(multiply, b(multiply, x, x), x)
    inner = b(multiply, b(add, x, b(multiply, cube, b.like(0.044715, x))), b.like(0.7978846, x))
    return [b(multiply, b(multiply, x, b.like(0.5, x)), b(add, b(tanh, inner), b.like(1, x)))]


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


def test_a_row_result_keeps_its_shape() -> None:
    def body(b: Builder, x: Node) -> list[Node]:
        total = b(reshape, reduction(b, add, b(sine, x), (1,)), shape=(4, 1))
        return [b(negate, total), b(multiply, total, b.like(2, total))]

    m = module(body, S)
    fused = Fuse().run(m)
    assert len(kernels(fused)) == 1
    assert fused.entry.type == m.entry.type


def test_kernels_remember_every_place_they_came_from() -> None:
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
        order: fusion_order.Order[int] = fusion_order.Order(before.__getitem__, after.__getitem__)
        for u in range(25):
            order.append(u)
        for _ in range(40):
            if len(before) == 1:
                break
            first, second = sorted(rng.sample(sorted(before), 2), key=order.position.__getitem__)
            cyclic = _reaches(after, after[first] - {second}, second)
            try:
                place = order.merge(first, second)
            except fusion_order.Blocked:
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
        turn, total = b.loop([b.constant(0, I32), x], lambda v: (
            b(compare, v[0], b.constant(3, I32), direction="LT"),
            [b(add, v[0], b.constant(1, I32)), b(multiply, b(add, v[1], fixed), fixed)]))  # fmt: skip
        return [total, turn]

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
    for _ in range(100_000):
        y = b(add, y, x)
    return [y]


def fan(b: Builder, x: Node) -> list[Node]:
    y = b(tanh, x)
    return [b(add, y, b(negate, x)) for _ in range(20_000)]


def far_skips(b: Builder, x: Node) -> list[Node]:
    values, h = [x], x
    for k in range(5_000):
        h = opaque(b, b(multiply, h, values[k // 2]))
        values.append(h)
    return [h]


@pytest.mark.parametrize(("body", "least"), [(chain, 500), (fan, 200), (far_skips, 0)])
def test_large_graphs_end(body: Any, least: int) -> None:
    fused = Fuse().run(module(body, S))
    assert len(kernels(fused)) >= least
    assert all(len(work(k.attr("body"))) <= 200 for k in kernels(fused))


# --- duplicate ----------------------------------------------------------------------------------------------------


def shared(b: Builder, x: Node) -> list[Node]:
    t = named(b, "t", b(add, x, x))
    r = named(b, "r", reduction(b, add, t, (1,)))
    c = named(b, "c", reduction(b, add, t, (0,)))
    return [b(add, t, along_rows(b, r)), b(add, t, along_columns(b, c))]


def test_cheap_values_are_computed_again_where_wanted() -> None:
    m = module(shared, S)
    assert explain(m, "t", "c").kind is Kind.SEVERAL_USERS
    assert explain(m, "t", "c", Fuse(duplicate=True)).fused


# --- reasons ------------------------------------------------------------------------------------------------------


def ab(a: Callable[[Builder, Node], Node], use: Callable[[Builder, Node, Node], Node], *types: Any) -> Module:
    """A program where `b` is made from `a` and the last parameter."""
    def body(b: Builder, *params: Node) -> list[Node]:
        first = named(b, "a", a(b, params[0]))
        return [first, named(b, "b", use(b, first, params[-1]))]

    return module(body, *types)


def plus(b: Builder, a: Node, x: Node) -> Node:
    return b(add, a, a)


def sin(b: Builder, x: Node) -> Node:
    return b(sine, x)


def of_function(*others: Function, body: Callable[..., Sequence[Node]], types: Sequence[Any]) -> Module:
    return Module((*module(body, *types).functions, *others))


def effect(b: Builder, x: Node, state: Node) -> list[Node]:
    a = named(b, "a", b(sine, x))
    return [a, named(b, "b", b(print_, state, a))]


def loaded(b: Builder, x: Node, state: Node) -> list[Node]:
    value, after = b.items(b(load, state, path="f", type=tensor(ANY, None)))
    a = named(b, "a", b(negate, value))
    return [named(b, "b", b(negate, a)), after]


def two_reductions(b: Builder, x: Node) -> list[Node]:
    rows, columns = named(b, "a", reduction(b, add, x, (1,))), named(b, "b", reduction(b, add, x, (0,)))
    return [b(add, x, along_rows(b, rows)), b(add, x, along_columns(b, columns))]


def test_reductions_over_several_axes_share_a_kernel_when_nothing_there_reads_them() -> None:
    def body(b: Builder, x: Node) -> list[Node]:
        square = b(multiply, x, x)
        return [reduction(b, op, square, axes) for op, axes in ((maximum, (1,)), (add, (1,)), (add, (0,)), (add, (0, 1)))]

    (kernel,) = kernels(Fuse().run(module(body, S)))
    assert [n.op for n in work(kernel.attr("body"))] == [multiply, reduce, reduce, reduce, reduce]


def branchy(b: Builder, x: Node, p: Node) -> list[Node]:
    a = named(b, "a", b(sine, x))
    inside = named(b, "b", b(negate, a))
    return [a, *b.branch(b(compare, p, b.like(0, p), direction="LT"), [inside], [x])]


def dead(b: Builder, x: Node) -> list[Node]:
    a = named(b, "a", b(sine, x))
    last, _ = b.loop([b.constant(0, I32), a], lambda v: (b(compare, v[0], b.constant(3, I32), direction="LT"),
                                                          [b(add, v[0], b.constant(1, I32)), v[1]]))  # fmt: skip
    return [last, named(b, "b", b(negate, x))]


def cyclic(b: Builder, x: Node) -> list[Node]:
    a = named(b, "a", b(sine, x))
    return [named(b, "b", b(add, a, named(b, "between", opaque(b, a))))]


def far(b: Builder, x: Node) -> list[Node]:
    a = named(b, "a", b(sine, x))
    h = x
    for _ in range(300):
        h = opaque(b, h)
    e = opaque(b, a)
    return [e, named(b, "b", b(add, a, h))]


def siblings_apart(b: Builder, x: Node) -> list[Node]:
    """`a` and `b` share x; between them stand two more users, `b` comes after one and reads another kernel."""
    a = named(b, "a", b(sine, x))
    other = b(tanh, opaque(b, x))
    return [a, named(b, "b", b(add, other, x))]


def square_root_body() -> Function:
    return Builder().function("odd", [("p", SCALAR), ("q", SCALAR)], lambda p, q: [Builder()(add, p, p)])


CASES: dict[Kind, tuple[Module, str, str, Fuse]] = {
    Kind.FUSED: (ab(sin, plus, S), "a", "b", Fuse()),
    Kind.SAME_NODE: (ab(sin, plus, S), "a", "a", Fuse()),
    Kind.CONSTANT: (module(lambda b, x: [named(b, "b", b(add, named(b, "a", b.splat(2, S)), x))], S), "a", "b", Fuse()),
    Kind.PARAMETER: (ab(sin, plus, S), "x", "a", Fuse()),
    Kind.VIEW: (ab(lambda b, v: along_rows(b, v), lambda b, a, x: opaque(b, a), ROWS), "a", "b", Fuse()),
    Kind.DEAD: (module(dead, S), "a", "b", Fuse()),
    Kind.FUNCTIONS: (of_function(Builder().function("f", [("fx", S)], lambda x: [Builder(origin=Origin("b"))(sine, x)]),
                                 body=lambda b, x: [named(b, "a", b(sine, x))], types=[S]), "a", "b", Fuse()),
    Kind.EFFECT: (module(effect, S, STATE), "a", "b", Fuse()),
    Kind.STRUCTURE: (module(lambda b, x: [named(b, "a", b(TUPLE, b(sine, x), x)), named(b, "b", b(sine, x))], S), "a", "b", Fuse()),
    Kind.KERNEL: (Fuse().run(ab(sin, lambda b, a, x: opaque(b, b(tanh, a)), S)), "#1", "b", Fuse()),
    Kind.NOT_ELEMENTWISE: (ab(sin, lambda b, a, x: b(transpose, a, permutation=(1, 0)), S), "a", "b", Fuse()),
    Kind.UNKNOWN_TYPE: (module(loaded, S, STATE), "a", "b", Fuse()),
    Kind.REDUCTION_FORM: (ab(sin, lambda b, a, x: b(reduce, a, b.constant(0, F32), dimensions=(1,), body=square_root_body()), S),
                          "a", "b", Fuse()),
    Kind.REDUCTIONS_OFF: (ab(sin, lambda b, a, x: reduction(b, add, a, (1,)), S), "a", "b", Fuse(reductions=False)),
    Kind.CONTROL: (module(branchy, S, SCALAR), "a", "b", Fuse()),
    Kind.SHAPE: (ab(sin, lambda b, a, x: b(add, along_rows(b, a), x), ROWS, S), "a", "b", Fuse()),
    Kind.AXES: (module(two_reductions, S), "a", "b", Fuse()),
    Kind.BROADCAST: (ab(lambda b, x: reduction(b, add, x, (0,)),
                        lambda b, a, x: b(divide, x, b(broadcast_in_dim, a, shape=(4, 8), broadcast_dimensions=(1,))), S),
                     "a", "b", Fuse()),
    Kind.ROW: (ab(lambda b, x: reduction(b, add, x, (0,)), lambda b, a, x: b(divide, x, a), LONG), "a", "b", Fuse()),
    Kind.OPS: (ab(lambda b, x: b(sine, b(tanh, x)), lambda b, a, x: b(tanh, b(sine, a)), S), "a", "b", Fuse(max_ops=3)),
    Kind.INPUTS: (ab(sin, lambda b, a, x: b(tanh, b(sine, b(add, a, x))), S, S), "a", "b", Fuse(max_inputs=1)),
    Kind.CYCLE: (module(cyclic, S), "a", "b", Fuse()),
    Kind.TOO_FAR: (module(far, S), "a", "b", Fuse()),
    Kind.SEVERAL_USERS: (module(shared, S), "t", "c", Fuse()),
    Kind.BETTER_PARTNER: (module(siblings_apart, S), "a", "b", Fuse()),
    Kind.NOT_ADJACENT: (module(lambda b, x, y: [named(b, "a", b(sine, x)), named(b, "b", b(sine, y))], S, S), "a", "b", Fuse()),
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES, ids=lambda k: k.value)
def test_each_reason(kind: Kind) -> None:
    m, a, b, options = CASES[kind]
    reason = explain(m, a, b, options)
    assert reason.kind is kind, str(reason)
    assert reason.fused == (kind is Kind.FUSED)
    assert len(reason.message) > 10
    assert reason.kind is explain(m, b, a, options).kind or kind in (Kind.VIEW, Kind.CONSTANT, Kind.PARAMETER)
    together = any(_holds(k, a, b) for k in kernels(options.run(m)))
    assert together == (kind is Kind.FUSED)


def _holds(kernel: Node, a: str, b: str) -> bool:
    names = {n.name for n in kernel.attr("body").nodes if n.op is not PARAM}
    return a != b and {a, b} <= names


def test_the_list_of_reasons_is_covered() -> None:
    assert set(Kind) - set(CASES) == {Kind.NO_KERNEL}, "every reason has a program that shows it, or none can"


def test_an_op_without_kernel_expression_says_so() -> None:
    from dataclasses import replace

    mute = replace(sine, name="mute", kernel=None)
    reason = explain(ab(lambda b, x: b(mute, x), plus, S), "a", "b")
    assert reason.kind is Kind.NO_KERNEL
    assert "mute" in reason.message


def test_a_cycle_names_what_lies_between() -> None:
    assert "'between'" in explain(module(cyclic, S), "a", "b").message


def test_a_node_of_no_function_is_dead() -> None:
    m = ab(sin, plus, S)
    stray = Builder()(sine, m.entry.params[0])
    assert explain(m, stray, "b").kind is Kind.DEAD


def test_braces_in_names_are_only_names() -> None:
    m = module(lambda b, x: [named(b, "{0.op}", b(sine, x)), named(b, "{detail}", opaque(b, x))], S)
    assert "{detail}" in explain(m, "{0.op}", "{detail}").message


def test_every_pair_has_a_reason_that_agrees_with_fusion() -> None:
    """Nodes are recognised in kernels by their names, which fusion keeps."""
    for seed in range(30):
        m = numbered(random_module(random.Random(seed), max_ops=14, control=False))
        held = [{n.name for n in k.attr("body").nodes if n.op is not PARAM} for k in kernels(Fuse().run(m))]
        members = [n for n in m.entry.nodes if n.op.elementwise or n.op is reduce]
        for x in m.entry.nodes:
            for y in m.entry.nodes:
                reason = explain(m, x, y)
                assert reason.message
                if x in members and y in members and x is not y:
                    assert reason.fused == any({x.name, y.name} <= h for h in held), str(reason)


def numbered(m: Module) -> Module:
    """The entry with a name of its own for every node."""
    new: dict[Node, Node] = {}
    for k, n in enumerate(m.entry.nodes):
        new[n] = Node(n.op, tuple(new[i] for i in n.inputs), n.attrs, n.type, Origin(f"v{k}"))
    function = Function("main", tuple(new[p] for p in m.entry.params), tuple(new[r] for r in m.entry.results))
    return m.with_functions([function])


# --- naming nodes -------------------------------------------------------------------------------------------------


def test_nodes_are_found_by_name_and_number() -> None:
    b = Builder()
    f = b.function("f", [("p", S)], lambda p: [named(b, "inner", b(sine, p))])
    m = Module((*module(lambda b, x: [named(b, "t", b(sine, x)), named(b, "t", b(tanh, x))], S).functions, f))
    first, second = m.entry.nodes[1:]
    assert find_node(m, "t") == (m.entry, second)
    assert find_node(m, "t#0") == (m.entry, first)
    assert find_node(m, "#1") == (m.entry, first)
    assert find_node(m, "f#1") == (f, f.nodes[1])
    assert find_node(m, "inner") == (f, f.nodes[1])


@pytest.mark.parametrize(("text", "message"), [("innner", "did you mean 'inner'"), ("#99", "no node #99"), ("", "no node ''")])
def test_unknown_nodes_are_usage_errors(text: str, message: str) -> None:
    m = module(lambda b, x: [named(b, "inner", b(sine, x))], S)
    with pytest.raises(UsageError, match=message):
        find_node(m, text)


def test_float64_and_mixed_dtypes_share_a_kernel() -> None:
    from deepx_graph.ops import convert

    m = module(lambda b, x: [b(sine, b(convert, b(tanh, x), dtype=F64))], S)
    assert len(kernels(Fuse().run(m))) == 1
