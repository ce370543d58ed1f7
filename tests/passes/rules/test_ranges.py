"""Ranges of integers hold whatever the values are, and rules that ask for them keep the meaning to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import add, compare, remainder, select, subtract
from deepx_graph.passes.rules.ranges import RANGES
from deepx_graph.rewrite.engine import InterningBuilder
from deepx_graph.rewrite.exact_values import integer_range
from deepx_graph.types import I32, I64, U8, DType, as_tensor, tensor
from tests.support.data_movement import drawn, run, values
from tests.support.integers import PROGRAMS, integers, whole
from tests.support.reference import same

RULES = {r.name: r for r in RANGES}


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_no_integer_is_outside_of_its_range(data: st.DataObject) -> None:
    d, x = drawn(data, lambda d: integers(d, whole(d), d.int(1, 4)))
    found = integer_range(x)
    rng = np.random.default_rng(0)
    for _ in range(5):
        got = run(d, x, [values(p, rng) for p in d.params])
        assert found[0] <= int(got.min()), (x, got, found)
        assert int(got.max()) <= found[-1], (x, got, found)


def test_every_rule_of_ranges_has_a_program() -> None:
    assert set(PROGRAMS) == set(RULES)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_rule_makes_is_equal_to_the_bit(name: str) -> None:
    fired = 0

    @settings(max_examples=250, deadline=None, derandomize=True, database=None)
    @given(st.data())
    def law(data: st.DataObject) -> None:
        nonlocal fired
        d, before = drawn(data, PROGRAMS[name])
        if not RULES[name].roots(before.op):
            return
        after = RULES[name].apply(before, InterningBuilder())
        if after is None or after.type != before.type:
            return
        fired += 1
        rng = np.random.default_rng(fired)
        args = [values(p, rng) for p in d.params]
        assert same(run(d, before, args), run(d, after, args)), (before, after)

    law()
    assert fired >= 10


def of(dtype: DType, make: Callable[[Builder, Node], Node]) -> range:
    b = Builder()
    return integer_range(make(b, b.param(0, tensor(dtype, (4,)), "x")))


@pytest.mark.parametrize(("dtype", "make", "expected"), [
    (I32, lambda b, x: b(remainder, x, b.like(7, x)), range(-6, 7)),
    (I32, lambda b, x: residue(b, x, 7), range(7)),
    (I64, lambda b, x: residue(b, x, 998_244_353), range(998_244_353)),
    (U8, lambda b, x: b(add, b(remainder, x, b.like(7, x)), b.like(250, x)), range(256)),
    (U8, lambda b, x: b(subtract, b(remainder, x, b.like(7, x)), b.like(7, x)), range(249, 256)),
])  # fmt: skip
def test_ranges_are_as_narrow_as_this(dtype: DType, make: Callable[[Builder, Node], Node], expected: range) -> None:
    assert of(dtype, make) == expected


def residue(b: Builder, x: Node, c: int) -> Node:
    """The remainder with the sign of the divisor, as JAX writes it once its signs are known."""
    rest = b(remainder, x, b.like(c, x))
    return b(select, b(compare, rest, b.like(0, x), direction="LT"), b(add, rest, b.like(c, x)), rest)


@pytest.mark.parametrize("operation", [add, subtract])
def test_sums_and_differences_of_residues_are_residues_again_without_a_division(operation: Any) -> None:
    """The butterfly of a number-theoretic transform."""
    from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline

    b, c = Builder(), 998_244_353
    params = [b.param(k, tensor(I64, (4,)), "xy"[k]) for k in range(2)]
    x, y = (residue(b, p, c) for p in params)
    total = b(operation, x, y)
    total = total if operation is add else b(add, total, b.like(c, total))
    m = run_pipeline(Module((Function("f", tuple(params), (residue(b, total, c),)),), "f"), parse_pipeline("simplify"))
    assert sum(n.op is remainder for n in m.entry.nodes) == 2
    assert integer_range(m.entry.results[0]) == range(c)
    assert as_tensor(m.entry.results[0].type).dtype is I64
