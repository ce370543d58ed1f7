"""Computations by hand that leave axes to a partitioner: split along these, they give what devices give that repeat the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.planning.automatic import automatic_plan
from deepx_graph.planning.cluster import preset
from deepx_graph.session.plans import planned
from deepx_graph.sharding.by_hand.opened import opened
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.pieces import Partitioned
from tests.support.partly_by_hand import MESH, partly_by_hand
from tests.support.seeds import seeds
from tests.support.sharded_programs import inputs, results_on_devices
from tests.support.sharding_border_texts import BORDER_TEXTS
from tests.support.sharding_mixed_texts import MIXED_TEXTS

COUNT = 500
SAMPLED = 40


def check(seed: int) -> None:
    split, plan = planned(dx.loads(partly_by_hand(random.Random(seed)), "stablehlo"))
    assert {n.op.name for n in split.entry.nodes} >= {"manual_operand", "manual_part", "manual_whole"}
    check_split(seed, partition(split, plan))


def check_split(seed: int, local: Partitioned) -> None:
    """The program of one device of a random one gives what that gives where devices repeat the same."""
    module = dx.loads(partly_by_hand(random.Random(seed)), "stablehlo")
    arrays = inputs(module)
    assert {m.collective for m in local.meetings} == {n for n in local.module.entry.nodes if n.op.exchange and n.inputs}
    whole = dx.compile(module, engine="numpy", optimize=False)(*arrays)
    for got, want in zip(results_on_devices(local, arrays), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(want).max(initial=0))))


def test_a_plan_of_other_values_leaves_what_is_stated_at_the_borders() -> None:
    """A plan need not repeat it, and cannot contradict it; nor can it be over another mesh."""
    text = partly_by_hand(random.Random(3))
    module, (said, stated) = dx.loads(text, "stablehlo"), planned(dx.loads(text, "stablehlo"))
    lines = str(stated).splitlines()
    _, plan = planned(module, "\n".join((lines[0], *(line for line in lines if line.startswith("x:")))))
    borders = [k for k, n in enumerate(said.entry.nodes) if n.op.name.startswith("manual")]
    assert [plan.values[plan.function.nodes[k]].axes for k in borders] == [stated.values[said.entry.nodes[k]].axes for k in borders]
    split, plan = planned(module, "\n".join((lines[0], f"#{borders[0]}: [{{}}, {{}}]")))
    with pytest.raises(dx.UsageError, match="another way than the computation by hand"):
        partition(split, plan)
    with pytest.raises(dx.UsageError, match="another mesh than that of the plan"):
        planned(module, 'mesh <["a"=2, "b"=4]>')


def test_axes_of_another_computation_inside_split_nothing() -> None:
    """A quarter of the rows each along `a` and `b`, of which `b` belongs to the inner one; `c` is left by both."""
    text = """sdy.mesh @mesh = <["a"=2, "b"=2, "c"=2]>
func.func @main(%x: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"c", ?}]>}) -> tensor<8x8xf32> {
  %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"a", ?}, {?}]>] out_shardings=[<@mesh, [{"a", ?}, {?}]>]
      manual_axes={"a"} (%v: tensor<4x8xf32>) {
    %1 = sdy.manual_computation(%v) in_shardings=[<@mesh, [{"b", ?}, {?}]>] out_shardings=[<@mesh, [{"b", ?}, {?}]>]
        manual_axes={"b"} (%u: tensor<2x8xf32>) {
      %t = stablehlo.reverse %u, dims = [0] : tensor<2x8xf32>
      sdy.return %t : tensor<2x8xf32>
    } : (tensor<4x8xf32>) -> tensor<4x8xf32>
    sdy.return %1 : tensor<4x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}"""
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    split, plan = planned(dx.loads(text, "stablehlo"))
    local = partition(split, plan)
    np.testing.assert_array_equal(results_on_devices(local, [x])[0], x.reshape(4, 2, 8)[:, ::-1].reshape(8, 8))
    assert all(n.type.shape[-1] == 4 for n in local.module.entry.nodes if n.type.shape[1:])


def test_a_computation_of_a_called_function_is_opened_where_that_is_called() -> None:
    text = BORDER_TEXTS["left: a closed dimension inside"].replace("@main", "@inner")
    head, inner = text.split("\n", 1)
    main = """func.func public @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
      %r = func.call @inner(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
      return %r : tensor<8x8xf32>
    }"""
    module = dx.loads(f"{head}\n{main}\n{inner}", "stablehlo")
    (x,) = inputs(module)
    np.testing.assert_allclose(results_on_devices(partition(*planned(module)), [x])[0], -np.tanh(np.tanh(x)), rtol=1e-6)


def test_what_has_other_effects_than_its_collectives_is_planned_and_not_split() -> None:
    text = """sdy.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"a"}, {}]>] out_shardings=[<@mesh, [{"a"}, {}]>]
      manual_axes={"a"} (%v: tensor<4x8xf32>) {
    "stablehlo.custom_call"(%v) <{call_target_name = "told", has_side_effect = true}> : (tensor<4x8xf32>) -> ()
    sdy.return %v : tensor<4x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}"""
    module, plan = planned(dx.loads(text, "stablehlo"))
    assert plan.values[module.entry.params[0]].text(plan.mesh) == '[{"a"}, {}]'
    with pytest.raises(dx.UsageError, match="it has an effect") as e:
        partition(module, plan)
    span = e.value.diagnostics[0].span
    assert span is not None and "told" in text[span.start : span.end]


TEXTS = {name: text for name, text in (BORDER_TEXTS | MIXED_TEXTS).items() if "custom_call" not in text}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_split_give_what_they_give_whole(name: str) -> None:
    module = dx.loads(TEXTS[name], "stablehlo")
    arrays = inputs(module)
    whole = dx.compile(module, engine="numpy", optimize=False)(*arrays)
    for got, want in zip(results_on_devices(partition(*planned(module)), arrays), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


BY_HAND = {name: text for name, text in TEXTS.items() if "manual_computation" in text}


@pytest.mark.parametrize("pipeline", ["", "default"])
@pytest.mark.parametrize("name", BY_HAND)
def test_they_are_written_as_what_they_are(name: str, pipeline: str) -> None:
    """Before passes, and after them; what is read of that is the same."""
    before = dx.optimize(dx.loads(BY_HAND[name], "stablehlo"), pipeline)
    text = dx.dumps(before, "stablehlo")
    assert "sdy.manual_computation" in text and "run_parallel" not in text
    after = dx.loads(text, "stablehlo")
    assert dx.dumps(after, "stablehlo") == text
    if not pipeline and "while" not in text:  # loops are equal to themselves alone
        assert after.functions == before.functions
    arrays = inputs(before)
    for got, want in zip(*(dx.compile(m, engine="numpy", optimize=False)(*arrays) for m in (after, before)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_parts_that_something_else_reads_are_written_as_they_are() -> None:
    """Of this program passes compute tanh of each part before these are joined: no result of a computation by hand any more."""
    module = dx.optimize(dx.loads(partly_by_hand(random.Random(66)), "stablehlo"), "default")
    written = dx.dumps(module, "stablehlo")
    assert "run_parallel" in written and "manual_computation" not in written
    arrays = inputs(module)
    for got, want in zip(*(dx.compile(m, engine="numpy")(*arrays) for m in (dx.loads(written, "stablehlo"), module)), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("seed", seeds(SAMPLED // 4, COUNT // 5))
def test_random_ones_under_a_plan_that_is_chosen_give_what_they_give_whole(seed: int) -> None:
    """What is stated at their borders stays; along axes by hand nothing inside is split."""
    module = opened(dx.loads(partly_by_hand(random.Random(seed)), "stablehlo"))
    plan = automatic_plan(module.entry, MESH, preset("h100"), seconds=0.2).plan
    check_split(seed, partition(module, plan))


@pytest.mark.parametrize("seed", seeds(SAMPLED, COUNT))
def test_random_ones_split_give_what_they_give_whole(seed: int) -> None:
    check(seed)
