"""Constant propagation, pruning, inlining, merging: what passes do to branches, loops, calls and functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.structure import CALL, CALL_VALUE, CONSTANT, LOOP_BEGIN, LOOP_END, PHI, REGION
from deepx_graph.ops import add, compare, exponential, multiply, negate, subtract
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.passes.observer import Verify
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.types import BOOL, F32, F64, I32, Type, scalar
from tests.support.reference import evaluate

S, F = scalar(I32), scalar(F32)


def program(body: Callable[..., Sequence[Node]], *types: Type, helpers: Sequence[Function] = ()) -> Module:
    return Module((Builder().function("main", [(f"x{k}", t) for k, t in enumerate(types)], body), *helpers))


def optimised(module: Module, pipeline: str) -> Function:
    return run_pipeline(module, parse_pipeline(pipeline), [Verify()]).entry


def ops(function: Function) -> set[str]:
    return {n.op.name for n in function.nodes}


def value(node: Node) -> object:
    assert node.op is CONSTANT, node
    return node.attrs[0].array.tolist()


b = Builder()


def less(x: Node, n: Node) -> Node:
    return b(compare, x, n, direction="LT")


# --- sccp -----------------------------------------------------------------------------------------------------------


def test_a_variable_that_only_optimism_sees_is_constant() -> None:
    def body(n: Node) -> Sequence[Node]:
        def iteration(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            i, x = v
            return less(i, n), (b(add, i, b.constant(1, I32)), b(multiply, x, x))

        return b.loop([b.constant(0, I32), b.constant(1, I32)], iteration)

    after = optimised(program(body, S), "sccp,dce")
    assert value(after.results[1]) == 1
    assert "multiply" not in ops(after)
    assert "loop_end" in ops(after)


def test_a_branch_that_is_never_taken_does_not_count() -> None:
    """flag = true; while ...: x = flag ? 7 : x + 1; flag = flag or ..., stays 7 although the other side varies."""

    def body(n: Node) -> Sequence[Node]:
        def iteration(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            i, x = v
            seven = b(compare, x, b.constant(7, I32), direction="EQ")
            (then,) = b.branch(seven, [b.constant(7, I32)], [b(add, i, x)])
            return less(i, n), (b(add, i, b.constant(1, I32)), then)

        return b.loop([b.constant(0, I32), b.constant(7, I32)], iteration)[1:]

    after = optimised(program(body, S), "sccp")
    assert value(after.results[0]) == 7


def test_a_loop_of_no_iteration_gives_its_initial_values() -> None:
    def body(x: Node) -> Sequence[Node]:
        def iteration(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            return less(v[0], b.constant(3, I32)), (b(add, v[0], b.constant(1, I32)), b(exponential, v[1]))

        return b.loop([b.constant(5, I32), x], iteration)[1:]

    after = optimised(program(body, scalar(F64)), "sccp")
    assert after.results == after.params


def test_an_endless_loop_stays() -> None:
    def body(x: Node) -> Sequence[Node]:
        return b.loop([x], lambda v: (b.constant(True), (b(negate, v[0]),)))

    module = program(body, S)
    assert run_pipeline(module, parse_pipeline("sccp,simplify,dce")).entry.results == module.entry.results


def test_what_varies_is_left_alone() -> None:
    def body(n: Node) -> Sequence[Node]:
        def iteration(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            return less(v[0], n), (b(add, v[0], b.constant(1, I32)), b(multiply, v[1], b.constant(2, I32)))

        return b.loop([b.constant(0, I32), b.constant(1, I32)], iteration)

    module = program(body, S)
    assert run_pipeline(module, parse_pipeline("sccp")) is module


def test_constants_go_into_private_functions_and_come_back() -> None:
    f = b.function("double", [("x", S)], lambda x: [b(add, x, x)], public=False)
    module = program(lambda x: [*b.call(f, b.constant(4, I32)), *b.call(f, b.constant(4, I32)), x], S, helpers=[f])
    assert [value(r) for r in optimised(module, "sccp").results[:2]] == [8, 8]
    differing = program(lambda x: [*b.call(f, b.constant(4, I32)), *b.call(f, x)], S, helpers=[f])
    assert run_pipeline(differing, parse_pipeline("sccp")) is differing
    public = program(lambda x: [*b.call(f, b.constant(4, I32)), x], S, helpers=[f.with_(public=True)])
    assert run_pipeline(public, parse_pipeline("sccp")) is public


def test_zero_times_what_varies_is_zero_for_integers_only() -> None:
    for type, zero in ((S, True), (scalar(F32), False)):
        module = program(lambda x: [b(multiply, x, b.like(0, x))], type)
        assert (optimised(module, "sccp").results[0].op is CONSTANT) == zero


# --- pruning --------------------------------------------------------------------------------------------------------


def counting(n: Node, *more: tuple[Node, Callable[..., Node]]) -> tuple[Node, ...]:
    def iteration(v: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        return less(v[0], n), (b(add, v[0], b.constant(1, I32)), *(step(v) for _, step in more))

    return b.loop([b.constant(0, I32), *(start for start, _ in more)], iteration)


def loop_of(function: Function) -> Node:
    return next(n for n in function.nodes if n.op is LOOP_BEGIN)


def test_a_loop_variable_that_never_changes_is_its_initial_value() -> None:
    module = program(lambda n, x: counting(n, (x, lambda v: v[1]), (x, lambda v: b(add, v[2], v[1])))[1:], S, S)
    after = optimised(module, "canonicalize")
    assert after.results[0] is after.params[1]
    assert len(loop_of(after).inputs) == 2
    assert loop_of(after).attrs == loop_of(module.entry).attrs


def test_variables_that_hand_on_one_unchanging_value_are_found_together() -> None:
    module = program(lambda n, x: counting(n, (x, lambda v: v[2]), (x, lambda v: v[3]), (x, lambda v: v[3]))[1:], S, S)
    after = optimised(module, "canonicalize")
    assert after.results == (after.params[1],) * 3


def test_an_unused_variable_goes_but_not_one_that_the_condition_needs() -> None:
    module = program(lambda n, x: [counting(n, (x, lambda v: b(add, v[1], v[1])), (x, lambda v: b(add, v[2], v[1])))[0]], S, S)
    after = optimised(module, "dce")
    assert len(loop_of(after).inputs) == 1
    assert [int(r) for r in evaluate(Module((after,)), [np.int32(5), np.int32(1)])] == [5]


def test_unused_values_of_a_branch_go_with_what_only_they_need() -> None:
    def body(p: Node, x: Node) -> Sequence[Node]:
        return b.branch(p, [b(exponential, x), x], [x, b(negate, x)])[1:]

    after = optimised(program(body, scalar(BOOL), scalar(F64)), "dce")
    region = next(n for n in after.nodes if n.op is REGION)
    assert len(region.inputs) == 3
    assert "exponential" not in ops(after)


def test_known_equal_and_single_branches() -> None:
    def body(p: Node, x: Node) -> Sequence[Node]:
        (known,) = b.branch(b.constant(False), [b(exponential, x)], [x])
        (alike,) = b.branch(p, [x], [x])
        (third,) = b.branch(b.constant(9, I32), [b(exponential, x)], [b(exponential, x)], [x])
        return known, alike, third

    after = optimised(program(body, scalar(BOOL), scalar(F64)), "canonicalize")
    assert after.results == (after.params[1],) * 3


def test_equal_values_of_a_branch_are_one() -> None:
    def body(p: Node, x: Node) -> Sequence[Node]:
        y = b(negate, x)
        return b.branch(p, [x, y, x], [y, x, y])

    after = optimised(program(body, scalar(BOOL), scalar(F64)), "canonicalize")
    assert after.results[0] is after.results[2]
    assert len(next(n for n in after.nodes if n.op is REGION).inputs) == 5


def test_a_construct_used_as_a_whole_is_left_as_it_is() -> None:
    def body(n: Node, x: Node) -> Sequence[Node]:
        return [counting(n, (x, lambda v: v[1]))[0].inputs[0]]

    module = program(body, S, S)
    assert run_pipeline(module, parse_pipeline("canonicalize,dce")) is module


# --- cse, inline, dce -----------------------------------------------------------------------------------------------


def test_cse_merges_with_both_locations_and_either_operand_order() -> None:
    module = program(lambda x, y: [b(add, x, y), b(add, y, x), b(subtract, x, y), b(subtract, y, x)], S, S)
    results = optimised(module, "cse").results
    assert results[0] is results[1]
    assert results[2] is not results[3]


def test_cse_keeps_loops_apart() -> None:
    module = program(lambda n: [counting(n)[0], counting(n)[0]], S)
    results = optimised(module, "cse").results
    assert results[0] is not results[1]


def test_inlining_gives_every_copy_a_loop_of_its_own() -> None:
    f = b.function("count", [("n", S)], lambda n: counting(n), public=False)
    module = program(lambda x: [*b.call(f, x), *b.call(f, b(add, x, x))], S, helpers=[f])
    after = run_pipeline(module, parse_pipeline("inline,dce"), [Verify()])
    assert len({n.attrs for n in after.entry.nodes if n.op is LOOP_BEGIN}) == 2
    assert [f.name for f in after.functions] == ["main"]
    assert [int(v) for v in evaluate(after, [np.int32(3)])] == [3, 6]


def test_closures_are_called_directly_and_then_inlined() -> None:
    f = b.function("sum", [("x", S), ("y", S)], lambda x, y: [b(add, x, y)], public=False)
    closure = b.partial(f, b.constant(1, I32)).type
    apply = b.function("apply", [("f", closure), ("x", S)], lambda g, x: b.call_value(g, x), public=False)
    module = program(lambda x: b.call(apply, b.partial(f, b.constant(1, I32)), x), S, helpers=[f, apply])
    after = optimised(module, "inline")
    assert not {CALL, CALL_VALUE} & {n.op for n in after.nodes}
    assert int(evaluate(Module((after,)), [np.int32(4)])[0]) == 5


def test_recursion_is_not_inlined() -> None:
    even = ("even", b.function("even", [("n", S)], lambda n: [n]).type)
    odd = b.function("odd", [("n", S)], lambda n: b.call(even, b(negate, n)), public=False)
    even_f = b.function("even", [("n", S)], lambda n: b.call(odd, b(negate, n)), public=False)
    module = program(lambda x: b.call(even_f, x), S, helpers=[even_f, odd])
    assert run_pipeline(module, parse_pipeline("inline")) is module
    assert len(run_pipeline(module, parse_pipeline("dce")).functions) == 3


@pytest.mark.parametrize(("limit", "left"), [(2, 2), (500, 0)])
def test_large_functions_called_often_stay_calls(limit: int, left: int) -> None:
    f = b.function("f", [("x", S)], lambda x: [b(add, b(add, x, x), x)], public=False)
    module = program(lambda x: [*b.call(f, x), *b.call(f, b(negate, x))], S, helpers=[f])
    after = optimised(module, f"inline{{max-nodes={limit}}}")
    assert sum(n.op is CALL for n in after.nodes) == left


def test_private_functions_that_nobody_reaches_are_dropped() -> None:
    names = {"used": True, "dead": True, "public": False}
    fs = [b.function(n, [("x", S)], lambda x: [b(negate, x)], public=not private) for n, private in names.items()]
    module = program(lambda x: b.call(fs[0], x), S, helpers=fs)
    assert [f.name for f in run_pipeline(module, parse_pipeline("dce")).functions] == ["main", "used", "public"]


def test_a_function_that_is_named_as_a_derivative_stays() -> None:
    derivative = b.function("by_hand", [("x", F), ("g", F)], lambda x, g: [b(multiply, g, b.constant(7.0, F32))], public=False)
    named = b.function("named", [("x", F)], lambda x: [b(negate, x)], public=False, vjp="by_hand")
    module = program(lambda x: b.call(named, x), F, helpers=[named, derivative])
    for pipeline in ("dce", "default"):
        after = run_pipeline(module, parse_pipeline(pipeline), [Verify()])
        assert evaluate(grad(after), [np.float32(2), np.float32(3)]) == [21]


def test_arguments_are_known_only_where_all_calls_are_seen() -> None:
    """One is called by name with a number, and by way of a closure with whatever comes."""
    helper = b.function("helper", [("k", S), ("x", S)], lambda k, x: [b(multiply, k, x)], public=False)

    def body(p: Node, q: Node) -> Sequence[Node]:
        closure = b.partial(helper, p)
        known = b.call(helper, b.constant(3, I32), b.constant(4, I32))
        return [*known, *b.call_value(closure, q)]

    module = program(body, S, S, helpers=[helper])
    for pipeline in ("sccp", "sccp,dce", "default"):
        after = run_pipeline(module, parse_pipeline(pipeline), [Verify()])
        assert evaluate(after, [np.int32(5), np.int32(6)]) == [12, 30]


def test_phis_and_ends_are_built_over_the_same_loop() -> None:
    module = program(lambda n, x: counting(n, (b(multiply, x, b.constant(1, I32)), lambda v: b(add, v[1], v[0]))), S, S)
    after = optimised(module, "algebra")
    begins = {n.inputs[0] for n in after.nodes if n.op in (PHI, LOOP_END)}
    assert begins == {loop_of(after)}
    assert loop_of(after).inputs[1] is after.params[1]
