"""Verification: what it accepts, and that each rule it states is enforced, with the node's place and printed form."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from deepx_graph.errors import Source, Span, VerifyError
from deepx_graph.ir import Builder, Function, Module, Node, Origin
from deepx_graph.ir.structure import CALL, LOOP_BEGIN, LOOP_END, PARAM, PHI, PROJ, TUPLE
from deepx_graph.ops import add, compare, fusion, load, multiply, print_
from deepx_graph.types import BOOL, F32, I32, STATE, FunctionType, Type, scalar, tensor
from deepx_graph.verify import check, verify
from tests.support.generate import random_module

X, S = tensor(F32, (2, 3)), scalar(I32)


def module(body: Callable[..., Any], *types: Type, b: Builder | None = None) -> Module:
    b = b or Builder()
    return Module((b.function("main", [(f"x{k}", t) for k, t in enumerate(types)], body),))


def messages(m: Module) -> str:
    with pytest.raises(VerifyError) as caught:
        verify(m)
    return str(caught.value)


def count_to(b: Builder, n: Node, inits: list[Node], step: Callable[..., Any]) -> tuple[Node, ...]:
    """A counting loop with more variables, stepped by `step(*vars)`."""
    def body(v: tuple[Node, ...]) -> tuple[Node, list[Node]]:
        return b(compare, v[0], n, direction="LT"), [b(add, v[0], b.like(1, v[0])), *step(*v[1:])]
    return b.loop([b.constant(0, I32), *inits], body)[1:]


@pytest.mark.parametrize("seed", range(30))
def test_generated_programs_are_sound(seed: int) -> None:
    verify(random_module(random.Random(seed)))


@pytest.mark.parametrize("seed", range(10))
def test_what_is_sound_over_other_inputs_would_be_found_so(seed: int) -> None:
    """A verified node over parameters of its operands' types, and of others, is taken to be sound only where it is."""
    whole = random_module(random.Random(seed))
    verify(whole)
    carried, types = 0, list[Type]()
    for node in [n for f in whole.functions for n in f.nodes if n.inputs]:
        for types in ([i.type for i in node.inputs], [tensor(F32, (7, 11, 13))] * len(node.inputs)):
            made = node.over(tuple(Builder().param(k, t) for k, t in enumerate(types)))
            carried += made.sound
            assert not made.sound or check._own_problem(made, set()) is None
    assert carried


def test_a_wrong_type_is_found_with_its_location_and_form() -> None:
    source = Source("f.hlo", "t = add(x, y)\n")
    bad = Node(add, (p := Builder().param(0, X, "x"), p), (), scalar(F32), Origin("t", (Span(source, 0, 1),)))
    text = messages(Module((Function("main", (p,), (bad,)),)))
    assert "f.hlo:1:1: error: add:" in text
    assert "t = add(x, x) : f32[]" in text
    assert add.summary in text


def test_a_more_precise_type_is_accepted_and_an_unrelated_one_is_not() -> None:
    p = Builder().param(0, tensor(F32, ("?1", 3)), "x")
    verify(Module((Function("main", (p,), (Node(add, (p, p), (), X),)),)))
    assert "dtypes" in messages(Module((Function("main", (p,), (Node(add, (p, p), (), tensor(I32, (2, 3))),)),)))


@pytest.mark.parametrize(("op", "inputs", "attrs", "says"), [
    (add, 1, (), "takes 2 operands"),
    (compare, 2, ("LESS", ""), "is not one of"),
    (compare, 2, (), "has 0 attributes"),
    (compare, 2, (3, ""), "attribute 'direction'"),
])  # fmt: skip
def test_arity_and_attributes(op: Any, inputs: int, attrs: tuple[Any, ...], says: str) -> None:
    p = Builder().param(0, X, "x")
    assert says in messages(Module((Function("main", (p,), (Node(op, (p,) * inputs, attrs, X),)),)))


def test_all_problems_are_collected() -> None:
    p = Builder().param(0, X, "x")
    bad = [Node(add, (p,), (), X), Node(multiply, (p,), (), X)]
    with pytest.raises(VerifyError) as caught:
        verify(Module((Function("main", (p,), tuple(bad)),), "start"))
    assert len(caught.value.diagnostics) == 3
    assert "the entry 'start'" in caught.value.diagnostics[0].message


def test_parameters_are_numbered_and_a_function_is_closed() -> None:
    b = Builder()
    x, y = b.param(0, X, "x"), b.param(0, X, "y")
    assert "stands as parameter 1" in messages(Module((Function("main", (x, y), (x, y)),)))
    assert "none of its parameters" in messages(Module((Function("main", (x,), (b(add, x, y),)),)))


def test_bodies_are_verified_too() -> None:
    b = Builder()
    x = b.param(0, X, "x")
    body = Function("body", (x,), (Node(add, (x, x), (), scalar(I32)),))
    outer = b.param(0, X, "outer")
    node = Node(fusion, (outer,), (body,), scalar(I32))
    assert "add" in messages(Module((Function("main", (outer,), (node,)),)))


def test_a_phi_reads_a_region_or_loop_and_a_loop_is_no_value() -> None:
    b = Builder()
    x = b.param(0, X, "x")
    pair = b(TUPLE, x, x)
    assert "expected: a region or loop_begin" in messages(Module((Function("main", (x,), (Node(PHI, (pair,), (0,), X),)),)))
    begin = b(LOOP_BEGIN, x, loop=1)
    assert "which is no value" in messages(Module((Function("main", (x,), (b(PROJ, begin, index=0),)),)))


def test_nested_loops_are_accepted_and_a_loop_variable_must_not_leave() -> None:
    def good(b: Builder, n: Node, x: Node) -> list[Node]:
        return list(count_to(b, n, [x], lambda v: list(count_to(b, n, [v], lambda w: [b(add, w, v)]))))

    b = Builder()
    verify(module(lambda n, x: good(b, n, x), S, X, b=b))
    seen: list[Node] = []
    text = messages(module(lambda n, x: [*count_to(b, n, [x], lambda v: [seen.append(v) or b(add, v, v)]), b(add, seen[0], x)],
                           S, X, b=b))
    assert "depends on a variable of a loop" in text
    assert "is left only through" in text


def test_a_loop_is_closed_once() -> None:
    b = Builder()
    x, yes = b.param(0, X, "x"), b.constant(False)
    begin = b(LOOP_BEGIN, x, loop=7)
    ends = [b(LOOP_END, begin, yes, b(PHI, begin, index=0)) for _ in range(2)]
    assert "closed already" in messages(Module((Function("main", (x,), tuple(b.proj(e, 0) for e in ends)),)))
    assert "is never closed" in messages(Module((Function("main", (x,), (b(PHI, begin, index=0),)),)))


def test_calls_name_functions_of_the_right_type() -> None:
    b = Builder()
    helper = b.function("helper", [("a", X)], lambda a: [a])
    verify(Module((b.function("main", [("x", X)], lambda x: b.call(helper, x)), helper)))
    main = b.function("main", [("x", X)], lambda x: b.call(("helpr", helper.type), x))
    assert "did you mean 'helper'" in messages(Module((main, helper)))
    other = FunctionType((scalar(I32),), (X,))
    main = b.function("main", [("n", S)], lambda n: b.items(b(CALL, n, callee="helper", signature=other)))
    assert "is made for 'helper'" in messages(Module((main, helper)))


def test_recursion_is_allowed() -> None:
    b = Builder()
    type = FunctionType((X,), (X,))
    verify(Module((b.function("main", [("x", X)], lambda x: b.call(("main", type), x)),)))


# --- state ---------------------------------------------------------------------------------------------------------


def test_states_in_order_in_branches_and_in_loops_are_accepted() -> None:
    b = Builder()

    def body(x: Node, p: Node, n: Node, s: Node) -> list[Node]:
        s = b(print_, s, x)
        once = b(print_, s, x)
        (s,) = b.branch(p, [b(print_, once, x)], [s])  # one side prints twice, the other hands the state on
        (s,) = count_to(b, n, [s], lambda v: [b(print_, v, x)])
        value, s = b.items(b(load, s, path="t", type=X))
        return [value, s]

    verify(module(body, X, scalar(BOOL), S, STATE, b=b))


def test_nested_branches_share_a_state() -> None:
    b = Builder()

    def body(x: Node, p: Node, s: Node) -> list[Node]:
        (inner,) = b.branch(p, [b(print_, s, x)], [b(print_, s, x)])
        return list(b.branch(p, [inner], [b(print_, s, x)]))

    verify(module(body, X, scalar(BOOL), STATE, b=b))


def _twice(b: Builder, x: Node, p: Node, n: Node, s: Node) -> list[Node]:
    return [b(print_, s, x), b(print_, s, x)]


def _twice_in_a_branch(b: Builder, x: Node, p: Node, n: Node, s: Node) -> list[Node]:
    first = b(print_, s, x)
    value, _ = b.items(b(load, s, path="t", type=X))
    return [value, *b.branch(p, [first], [s])]


def _inside_and_after(b: Builder, x: Node, p: Node, n: Node, s: Node) -> list[Node]:
    values = b.branch(p, [x, b(print_, s, x)], [x, s])
    return [values[0], values[1], b(print_, s, x)]


def _two_projections(b: Builder, x: Node, p: Node, n: Node, s: Node) -> list[Node]:
    both = b(load, s, path="t", type=X)
    return [b(print_, b.proj(both, 1), x), b(print_, b.proj(both, 1), x)]


@pytest.mark.parametrize("body", [_twice, _twice_in_a_branch, _inside_and_after, _two_projections])
def test_a_state_is_used_once(body: Callable[..., list[Node]]) -> None:
    b = Builder()
    assert "used by two effects" in messages(module(lambda *a: body(b, *a), X, scalar(BOOL), S, STATE, b=b))


def test_a_loop_goes_on_with_its_own_state() -> None:
    b = Builder()
    text = messages(module(lambda x, n, s: count_to(b, n, [s], lambda v: [b(print_, s, x)]), X, S, STATE, b=b))
    assert "not made from the loop's own state" in text


# --- size ------------------------------------------------------------------------------------------------------------


def test_deep_graphs_and_nodes_that_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    b, checked = Builder(), list[Node]()
    own = check._own_problem
    monkeypatch.setattr(check, "_own_problem", lambda n, known: checked.append(n) or own(n, known))

    def body(x: Node) -> list[Node]:
        for _ in range(30_000):
            x = b(add, x, x)
        return [x]

    m = module(body, X, b=b)
    verify(m)
    verify(m)
    assert len(checked) == 30_001
    last = m.entry.results[0]
    for bad in (Node(add, (last,), (), X), replace(last, type=scalar(BOOL))):
        for _ in range(2):
            with pytest.raises(VerifyError):
                verify(Module((Function("main", m.entry.params, (bad,)),)))
        assert checked[30_001:] == [bad, bad], "neither what is wrong nor a copy is taken for what was checked"
        del checked[30_001:]


def test_too_many_loops_around_one_value_are_refused() -> None:
    b = Builder()
    p = b.param(0, X, "x")
    begins = [b(LOOP_BEGIN, p, loop=10_000 + k) for k in range(1001)]
    value = p
    for begin in begins:
        value = b(add, value, b(PHI, begin, index=0))
    assert "more than 1000 loops" in messages(Module((Function("main", (p,), (value,)),)))
    assert p.op is PARAM
