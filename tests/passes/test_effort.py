"""No pass makes a program run what it would not have run: computations that may fail or never end stay where they are wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Module, Node, Op, Operand
from deepx_graph.ops import add, compare, multiply
from deepx_graph.passes import REGISTRY
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.types import BOOL, I32, scalar

S, P = scalar(I32), scalar(BOOL)


def fails(xs: Sequence[Any]) -> Any:
    if xs[0] < 0:
        raise ValueError("computed without need")
    return np.asarray(xs[0] * 2)


may_fail = Op("may_fail", "Fails for negative numbers.", operands=(Operand("x"),), infer=lambda types: types[0], eval=fails,
              total=False)  # fmt: skip

Body = Callable[[Builder, Callable[[Node], Node], Node, Node], Node]
"""A program of a bool and a number that asks for what may fail, twice, where the bool holds alone."""


def in_two_branches(b: Builder, ask: Callable[[Node], Node], p: Node, x: Node) -> Node:
    (first,), (second,) = b.branch(p, [ask(x)], [x]), b.branch(p, [b(multiply, ask(x), x)], [x])
    return b(add, first, second)


def in_both_sides(b: Builder, ask: Callable[[Node], Node], p: Node, x: Node) -> Node:
    """Of a branch within another: equal, and computed before neither."""
    small = b(compare, x, b.constant(5, I32), direction="LT")
    return b.branch(p, b.branch(small, [ask(x)], [b(multiply, ask(x), x)]), [x])[0]


def in_a_loop(b: Builder, ask: Callable[[Node], Node], p: Node, x: Node) -> Node:
    """In a body that may not run at all, and behind it."""
    def turn(v: tuple[Node, ...]) -> tuple[Node, list[Node]]:
        k, total = v
        more = b.branch(p, [b(compare, k, b.constant(3, I32), direction="LT")], [b.constant(False)])[0]
        return more, [b(add, k, b.constant(1, I32)), b(add, total, ask(x))]

    total = b.loop([b.constant(0, I32), x], turn)[1]
    return b(add, total, b.branch(p, [ask(x)], [x])[0])


def of_equal_operands(b: Builder, ask: Callable[[Node], Node], p: Node, x: Node) -> Node:
    """Operands that passes find to be the same."""
    (first,), (second,) = (b.branch(p, [ask(b(add, x, b(multiply, x, b.constant(0, I32))))], [x]) for _ in range(2))
    return b(add, first, second)


def direct(b: Builder, module: dict[str, Any]) -> Callable[[Node], Node]:
    return lambda x: b(may_fail, x)


def by_a_call(b: Builder, functions: dict[str, Any]) -> Callable[[Node], Node]:
    return lambda x: b.call(functions["f"], x)[0]


def by_a_closure(b: Builder, functions: dict[str, Any]) -> Callable[[Node], Node]:
    return lambda x: b.call_value(b.partial(functions["f"]), x)[0]


def program(body: Body, way: Callable[..., Any]) -> Module:
    f = Builder().function("f", [("x", S)], lambda x: [Builder()(may_fail, x)], public=False)
    b = Builder()
    main = b.function("main", [("p", P), ("x", S)], lambda p, x: [body(b, way(b, {"f": f}), p, x)])
    return Module((main, f), "main")


PIPELINES = [*(n for n in REGISTRY if n not in ("grad", "jvp")), "inline,cse,canonicalize,dce", "cse,simplify,inline,fold,cse"]


@pytest.mark.parametrize("way", [direct, by_a_call, by_a_closure], ids=lambda f: f.__name__)
@pytest.mark.parametrize("body", [in_two_branches, in_both_sides, in_a_loop, of_equal_operands], ids=lambda f: f.__name__)
def test_no_pass_asks_for_what_may_fail_where_nobody_wants_it(body: Body, way: Callable[..., Any]) -> None:
    module = program(body, way)
    wanted = [int(dx.compile(module, engine="numpy")(np.bool_(p), np.int32(x))[0]) for p, x in ((False, -3), (True, 4), (True, 7))]
    for text in PIPELINES:
        after = dx.compile(run_pipeline(module, parse_pipeline(text)), engine="numpy")
        found = [int(after(np.bool_(p), np.int32(x))[0]) for p, x in ((False, -3), (True, 4), (True, 7))]
        assert found == wanted, text
