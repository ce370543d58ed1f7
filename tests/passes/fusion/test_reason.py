"""Why two nodes are, or are not, in one kernel: every reason, and that it agrees with what fusion does."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from deepx_graph.errors import UsageError
from deepx_graph.ir import Builder, Function, Module, Node, Origin
from deepx_graph.ir.structure import PARAM, TUPLE
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    compare,
    divide,
    load,
    maximum,
    multiply,
    negate,
    print_,
    reduce,
    reduction,
    sine,
    tanh,
    transpose,
)
from deepx_graph.passes.fusion.fuse import Fuse
from deepx_graph.passes.fusion.why import Kind, explain, find_node
from deepx_graph.types import ANY, F32, I32, STATE, tensor
from tests.support.fuse_programs import (
    LONG,
    ROWS,
    SCALAR,
    S,
    along_columns,
    along_rows,
    kernels,
    module,
    named,
    opaque,
    shared,
    work,
)
from tests.support.generate import random_module

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
    assert set(Kind) - set(CASES) == {Kind.NO_KERNEL, Kind.JOINED}, "every reason of fusion has a program, or none can"


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
    assert find_node(m, "t") == find_node(m, "%t") == (m.entry, second)
    assert find_node(m, "t#0") == (m.entry, first)
    assert find_node(m, "#1") == (m.entry, first)
    assert find_node(m, "f#1") == (f, f.nodes[1])
    assert find_node(m, "inner") == (f, f.nodes[1])


@pytest.mark.parametrize(("text", "message"), [("innner", "did you mean 'inner'"), ("#99", "no node #99"), ("", "no node ''")])
def test_unknown_nodes_are_usage_errors(text: str, message: str) -> None:
    m = module(lambda b, x: [named(b, "inner", b(sine, x))], S)
    with pytest.raises(UsageError, match=message):
        find_node(m, text)
