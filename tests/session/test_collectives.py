"""Why devices meet: each collective of standard programs has its reason, and what is said to do instead does."""

from __future__ import annotations

from typing import Any

import pytest

import deepx_graph as dx
from deepx_graph.session.plans import given_plan, placed_values
from deepx_graph.session.report import collectives
from deepx_graph.session.report.collectives import MOST_PLANS, NOT_TRIED, OtherPlans, collective_rows, mesh_figures
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.propagate import propagate
from deepx_graph.sharding.reasons import MeetingReason
from tests.support.sharded_programs import MLP

HEAD = 'sdy.mesh @mesh = <["x"=4]>\n'


def sharding(text: str) -> str:
    return f"{{sdy.sharding = #sdy.sharding<@mesh, {text}>}}"


PRODUCT = HEAD + f"""func.func @main(%a: tensor<8x16xf32> {sharding('[{}, {"x"}]')}, %b: tensor<16x8xf32> {sharding('[{"x"}, {}]')})
    -> (tensor<8x8xf32> {sharding('[{"x"}, {}]')}) {{
  %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
  return %c : tensor<8x8xf32>
}}"""
SORTED = HEAD + f"""func.func @main(%a: tensor<8xf32> {sharding('[{"x"}]')}) -> tensor<8xf32> {{
  %c = "stablehlo.sort"(%a) ({{
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %l = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %l : tensor<i1>
  }}) {{dimension = 0 : i64}} : (tensor<8xf32>) -> tensor<8xf32>
  return %c : tensor<8xf32>
}}"""
SHIFTED = HEAD + f"""func.func @main(%a: tensor<16xf32> {sharding('[{"x"}]')}) -> (tensor<16xf32> {sharding('[{"x"}]')}) {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %c = stablehlo.pad %a, %z, low = [1], high = [-1], interior = [0] : (tensor<16xf32>, tensor<f32>) -> tensor<16xf32>
  return %c : tensor<16xf32>
}}"""
TURNED = HEAD + f"""func.func @main(%a: tensor<8x8xf32> {sharding('[{"x"}, {}]')}) -> (tensor<8x8xf32> {sharding('[{"x"}, {}]')}) {{
  %c = stablehlo.transpose %a, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %c : tensor<8x8xf32>
}}"""


@pytest.mark.parametrize(("text", "wanted"), [
    (PRODUCT, {"reduce_scatter.0": MeetingReason.REDUCTION}),
    (SORTED, {"all_gather.0": MeetingReason.WHOLE}),
    (SHIFTED, {"collective_permute.0": MeetingReason.NEIGHBOURS}),
    (MLP, {"all_reduce.0": MeetingReason.REDUCTION, "all_reduce.1": MeetingReason.REDUCTION}),
], ids=["product", "sort", "pad", "mlp"])  # fmt: skip
def test_reasons(text: str, wanted: dict[str, MeetingReason]) -> None:
    module, given = given_plan(dx.loads(text, "stablehlo"))
    plan = propagate(given)
    rows = collective_rows(partition(module, plan), plan)
    assert {r.name: r.reason for r in rows} == wanted
    assert all(r.origins for r in rows)


def test_origins_are_named_as_shardy_does() -> None:
    module, given = given_plan(dx.loads(MLP, "stablehlo"))
    plan = propagate(given)
    sources = {module.entry.params[k].name: {o.source for o in plan.origins[module.entry.params[k]].values()} for k in range(3)}
    assert sources == {"x": {"input: 0"}, "w1": {"input: 1"}, "w2": {"input: 1"}}
    text, where = placed_values(plan)[module.entry.params[2]]
    assert text == '[{"model"}, {}]' and "input: 1 by dot_general" in where


def test_values_that_lie_alike_are_told_alike() -> None:
    """Whether an axis was given, and may grow no further, or was propagated: one text, and so one colour, for each layout."""
    plan = propagate(given_plan(dx.loads(MLP, "stablehlo"))[1])
    texts: dict[Any, set[str]] = {sharding.axes: set() for sharding in plan.values.values()}
    for node, placed in placed_values(plan).items():
        texts[plan.values[node].axes].add(placed.text)
    assert all(len(found) == 1 for found in texts.values())
    assert len(set.union(*texts.values())) == len(texts)


def test_what_is_said_instead_exchanges_less() -> None:
    module, given = given_plan(dx.loads(TURNED, "stablehlo"))
    local = partition(module, propagate(given))
    found = OtherPlans(module, given, local).instead(local.meetings[0])
    assert found and "(0 bytes in 0 collectives" in found[0]


def test_only_so_many_other_plans_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many collectives and inputs there are: each is told what was found for it, or that it was not looked for."""
    count = 3 * MOST_PLANS
    columns = sharding('[{}, {"x"}]')
    params = ", ".join([f"%s0: tensor<8x8xf32> {columns}", *(f"%a{k}: tensor<8x8xf32> {columns}" for k in range(count))])
    sums = [f"  %s{k + 1} = stablehlo.dot_general %s{k}, %a{k}, contracting_dims = [1] x [0] "
            ": (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>" for k in range(count)]
    body = "\n".join([*sums, f"  return %s{count} : tensor<8x8xf32>"])
    module, given = given_plan(dx.loads(HEAD + f"func.func @main({params}) -> tensor<8x8xf32> {{\n{body}\n}}", "stablehlo"))
    local = partition(module, propagate(given))
    tried: list[object] = []
    monkeypatch.setattr(collectives, "partition", lambda m, p: tried.append(p) or partition(m, p))
    others = OtherPlans(module, given, local)
    found = [others.instead(m) for m in local.meetings]
    assert len(local.meetings) > MOST_PLANS and len(tried) <= MOST_PLANS
    assert [NOT_TRIED] in found and any("bytes in" in said[0] for said in found)


def test_figures_and_budgets() -> None:
    module, given = given_plan(dx.loads(PRODUCT, "stablehlo"))
    figures = mesh_figures(partition(module, propagate(given)).module.entry)
    assert figures["collective_bytes"] == 2 * 8 * 4 and figures["reduce_scatters"] == 1
    assert figures["parameter_bytes"] == 2 * 8 * 16 // 4 * 4
    assert dx.check(module, ["collective_bytes<=64", "all_gathers<=0"])
    assert not dx.check(module, ["collectives<1"])
