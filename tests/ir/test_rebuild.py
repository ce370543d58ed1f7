"""Functions built anew: what is shared, what is new, and under which names."""

from __future__ import annotations

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import copied, inlined, made_by, new_item, on_demand, rebuild, rebuilt, replaced, with_inputs
from deepx_graph.ir.structure import LOOP_BEGIN, loop_of
from deepx_graph.ops import add, multiply, negate
from deepx_graph.types import F32, scalar

S = scalar(F32)


def sample() -> tuple[Builder, Function]:
    b = Builder()
    x, y = b.param(0, S, "x"), b.param(1, S, "y")
    return b, Function("f", (x, y), (b(add, b(negate, x), y), x), ("sum", ""))


def test_with_inputs_keeps_a_node_whose_inputs_are_its_own() -> None:
    _, f = sample()
    node = f.results[0]
    assert with_inputs(node, node.inputs) is node
    assert with_inputs(node, f.params).inputs == f.params


def test_what_stays_the_same_is_shared() -> None:
    _, f = sample()
    assert rebuilt(f, with_inputs) is f
    after = rebuilt(f, lambda n, inputs: inputs[0] if n.op is negate else with_inputs(n, inputs))
    assert after.results[0].inputs == f.params
    assert after.params == f.params
    assert [after.result_name(k) for k in range(2)] == ["sum", "x"], "names are those of before, whatever stands there"


def test_a_parameter_becomes_another_parameter_or_stays() -> None:
    b, f = sample()
    x, y = f.params
    one, other = b.constant(1.0, F32), b.param(1, S, "z")
    after = replaced(f, rebuild(f.nodes, {x: one, y: other}))
    assert after.params == (x, other)
    assert after.results[1] is one


def test_a_body_over_arguments() -> None:
    b, f = sample()
    p, q = (b.param(k, S) for k in range(2))
    total, first = inlined(f, (p, q))
    assert (total.op, total.inputs[0].op, total.inputs[0].inputs, total.inputs[1], first) == (add, negate, (p,), q, p)
    assert inlined(f, (p, p), made_by(Builder(peephole=True)))[1] is p


def test_items_of_what_has_become_a_tuple_are_taken_as_they_are() -> None:
    b, f = sample()
    x, y = f.params
    item, pair = b.proj(b.pack(x, y), 1), b.pack(y, x)
    assert new_item(item, (pair,)) is None, "it was a tuple before"
    first = b.call(Function("g", (), (x, y)))[0]
    assert new_item(first, (pair,)) is y


def test_the_copy_of_a_loop_is_a_loop_of_its_own() -> None:
    b, f = sample()
    begin = b(LOOP_BEGIN, f.params[0], loop=-7)
    other = copied(begin, f.params[:1])
    assert loop_of(other) != loop_of(begin)
    assert copied(f.results[0], f.results[0].inputs) is not f.results[0]


def test_only_what_is_wanted_is_made_and_depth_costs_no_stack() -> None:
    b, f = sample()
    node = f.params[0]
    for _ in range(5000):
        node = b(negate, node)
    unwanted = b(multiply, node, node)
    made: dict[Node, Node] = {f.params[0]: f.params[1]}
    (last,) = on_demand((node,), made, lambda n: n.inputs, with_inputs)
    assert len(made) == 5001
    assert unwanted not in made
    while last.inputs:
        (last,) = last.inputs
    assert last is f.params[1]
