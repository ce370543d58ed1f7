"""Custom calls are split by the rules that texts state of them, and texts keep how results are to lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.sharding.annotations import needed_plan
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.propagate import propagate
from tests.support.sharded_programs import inputs, on_devices

ROWS = "([i, j])->([i, j]) {i=8, j=4} need_replication={j}"
SUMS = "([i, j])->([j]) {i=8, j=4} reduction={i}"


def text(rule: str, result: str, after: str) -> str:
    said = f"{{sdy.sharding_rule = #sdy.op_sharding_rule<{rule}, custom>}} " if rule else ""
    return f"""sdy.mesh @m = <["a"=2, "b"=2]>
func.func @main(%x: tensor<8x4xf32> {{sdy.sharding = #sdy.sharding<@m, [{{"a"}}, {{"b"}}]>}})
    -> (tensor<{result}xf32> {{sdy.sharding = #sdy.sharding<@m, {after}>}}) {{
  %y = stablehlo.custom_call @stated_rule(%x) {said}: (tensor<8x4xf32>) -> tensor<{result}xf32>
  return %y : tensor<{result}xf32>
}}"""


def normal(x: np.ndarray) -> np.ndarray:
    return x / x.sum(1, keepdims=True)


def total(x: np.ndarray) -> np.ndarray:
    return x.sum(0)


@pytest.fixture
def registered() -> Iterator[None]:
    yield
    dx.register_custom_call("stated_rule", None)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("function", "rule", "result", "after", "part", "kinds"), [
    (normal, ROWS, "8x4", '[{"a"}, {}]', (4, 4), ["all_gather"]),
    (total, SUMS, "4", '[{"b"}]', (4, 2), ["all_reduce"]),
    (normal, "", "8x4", "[{}, {}]", (8, 4), ["all_gather", "all_gather"]),
], ids=["rows", "sums", "none stated"])  # fmt: skip
def test_a_custom_call_is_split_as_is_stated(function: Any, rule: str, result: str, after: str, part: tuple[int, int],
                                             kinds: list[str]) -> None:
    shapes: set[tuple[int, ...]] = set()

    def seen(x: np.ndarray) -> np.ndarray:
        shapes.add(x.shape)
        return function(x)

    dx.register_custom_call("stated_rule", seen)
    module = dx.loads(text(rule, result, after), "stablehlo")
    plan = propagate(needed_plan(module))
    assert [m.collective.op.name.removeprefix("spmd_") for m in partition(module, plan).meetings] == kinds
    (x,) = inputs(module)
    (got,) = on_devices(module, plan, [x])
    np.testing.assert_allclose(got, function(x), rtol=1e-5)
    assert shapes == {part}


def test_a_text_keeps_the_rule_and_how_the_result_is_to_lie() -> None:
    module = dx.loads(text(ROWS, "8x4", '[{"a"}, {}]'), "stablehlo")
    again = dx.loads(dx.dumps(module, "stablehlo"), "stablehlo")
    assert str(needed_plan(again)) == str(needed_plan(module))
    assert f"#sdy.op_sharding_rule<{ROWS}, custom>" in dx.dumps(again, "stablehlo")
