"""Programs on a mesh of devices, as JAX writes `shard_map`: every device has its part, and the whole comes out right."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.session.plans import planned
from deepx_graph.sharding.annotations import stated_plan
from deepx_graph.sharding.propagate import propagate
from tests.support.sharded_programs import on_devices

X = np.arange(32, dtype="f4").reshape(8, 4)
HEAD = """module @m attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["a"=2, "b"=2]> {stablehlo.mesh = {axes = [{name = "a", size = 2 : i64}]}}
"""
SUM = """({
      ^bb0(%p: tensor<f32>, %q: tensor<f32>):
        %s = stablehlo.add %p, %q : tensor<f32>
        stablehlo.return %s : tensor<f32>
      })"""


def program(before: str, after: str, inner: str, body: str, result: str, given: str = "tensor<8x4xf32>") -> dx.Module:
    return dx.loads(HEAD + f"""  func.func @main(%x: tensor<8x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"a"}}, {{}}]>}})
      -> {given} {{
    %y = sdy.sharding_constraint %x <@mesh, [{{"a"}}, {{"b"}}]> : tensor<8x4xf32>
    %0 = sdy.manual_computation(%y) in_shardings=[<@mesh, [{before}]>] out_shardings=[<@mesh, [{after}]>]
      manual_axes={{"a", "b"}} (%v: {inner}) {{
      {body}
      sdy.return %r : {result}
    }} : (tensor<8x4xf32>) -> {given}
    return %0 : {given}
  }}
}}""", "stablehlo")


def run(module: dx.Module) -> np.ndarray:
    again = [dx.loads(dx.dumps(module, form), form) for form in ("stablehlo", "sea")]
    first, *others = [dx.compile(m, optimize=False)(X)[0] for m in (module, dx.optimize(module), *again)]
    for other in others:
        np.testing.assert_array_equal(first, other)
    return first


def test_parts_are_taken_and_put_together() -> None:
    body = "%r = stablehlo.negate %v : tensor<4x2xf32>"
    np.testing.assert_array_equal(run(program('{"a"}, {"b"}', '{"a"}, {"b"}', "tensor<4x2xf32>", body, "tensor<4x2xf32>")), -X)
    turned = run(program('{"a"}, {"b"}', '{"b"}, {"a"}', "tensor<4x2xf32>", body, "tensor<4x2xf32>"))
    np.testing.assert_array_equal(turned, -np.block([[X[:4, :2], X[4:, :2]], [X[:4, 2:], X[4:, 2:]]]))


def test_a_dimension_along_two_axes_has_the_first_outermost() -> None:
    body = """%i = stablehlo.partition_id : tensor<ui32>
      %f = stablehlo.convert %i : (tensor<ui32>) -> tensor<f32>
      %r = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<2x4xf32>"""
    for axes, order in (('{"a", "b"}, {}', [0, 1, 2, 3]), ('{"b", "a"}, {}', [0, 2, 1, 3])):
        found = run(program(axes, axes, "tensor<2x4xf32>", body, "tensor<2x4xf32>"))
        assert found[::2, 0].tolist() == order


def test_devices_meet_along_an_axis() -> None:
    body = f"""%r = "stablehlo.all_reduce"(%v) <{{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
      replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}}> {SUM} :
      (tensor<4x2xf32>) -> tensor<4x2xf32>"""
    found = run(program('{"a"}, {"b"}', '{}, {"b"}', "tensor<4x2xf32>", body, "tensor<4x2xf32>", "tensor<4x4xf32>"))
    np.testing.assert_array_equal(found, X[:4] + X[4:])


def test_axes_left_to_a_partitioner_repeat_the_same() -> None:
    text = HEAD + """  func.func @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
    %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"a", "b"}, {}]>] out_shardings=[<@mesh, [{"a"}, {"b"}]>]
      manual_axes={"a"} (%v: tensor<4x4xf32>) {
      %i = stablehlo.iota dim = 0 : tensor<4x4xf32>
      %r = stablehlo.add %v, %i : tensor<4x4xf32>
      sdy.return %r : tensor<4x4xf32>
    } : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %0 : tensor<8x4xf32>
  }
}"""
    np.testing.assert_array_equal(run(dx.loads(text, "stablehlo")), X + np.tile(np.arange(4, dtype="f4"), 2)[:, None])


MOVES = """%a = sdy.all_gather [{"a"}, {}] %x out_sharding=<@mesh, [{}, {}]> : tensor<8x4xf32>
 %b = sdy.all_slice [{}, {"b":(1)2}] %a out_sharding=<@mesh, [{}, {"b":(1)2}]> : tensor<8x4xf32>
 %c = sdy.all_to_all [{"b"}: 1->0] %b out_sharding=<@mesh, [{"b"}, {}]> : tensor<8x4xf32>
 %d = sdy.all_reduce max {"a"} %c out_sharding=<@mesh, [{"b"}, {}]> : tensor<8x4xf32>
 %e = sdy.propagation_barrier %d allowed_direction=FORWARD : tensor<8x4xf32>
 %f = sdy.data_flow_edge %e sharding=<@mesh, [{"b", ?}, {?}]> : tensor<8x4xf32>
 sdy.sharding_group %f group_id=3 : tensor<8x4xf32>
 %g = sdy.named_computation<"n">(%f) in_shardings=[<@mesh, [{"b"}, {}]>] out_shardings=[<@mesh, [{}, {"a"}]>]
   (%v: tensor<8x4xf32>) {
   %h = stablehlo.negate %v : tensor<8x4xf32>
   sdy.return %h : tensor<8x4xf32>
 } : (tensor<8x4xf32>) -> tensor<8x4xf32>
 %r = sdy.collective_permute %g out_sharding=<@mesh, [{}, {"b"}]> : tensor<8x4xf32>"""


@pytest.mark.parametrize("outer", ["a", ""])
def test_what_is_done_by_hand_in_another_takes_parts_of_the_parts(outer: str) -> None:
    """The outer one has half of the rows, or all where it is over no axes, and the inner one half of the columns of these."""
    rows, axes, sharding = (4, '"a"', '{"a"}, {}') if outer else (8, "", "{}, {}")
    text = HEAD + f"""  func.func @main(%x: tensor<8x4xf32>) -> tensor<16x2xf32> {{
    %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{sharding}]>] out_shardings=[<@mesh, [{sharding}]>]
      manual_axes={{{axes}}} (%v: tensor<{rows}x4xf32>) {{
      %w:2 = sdy.manual_computation(%v) in_shardings=[<@mesh, [{{}}, {{"b"}}]>]
        out_shardings=[<@mesh, [{{"b"}}, {{}}]>, <@mesh, [{{}}, {{}}]>] manual_axes={{"b"}} (%u: tensor<{rows}x2xf32>) {{
        %t = "stablehlo.all_reduce"(%u) <{{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
          replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}}> {SUM} :
          (tensor<{rows}x2xf32>) -> tensor<{rows}x2xf32>
        sdy.return %u, %t : tensor<{rows}x2xf32>, tensor<{rows}x2xf32>
      }} : (tensor<{rows}x4xf32>) -> (tensor<{2 * rows}x2xf32>, tensor<{rows}x2xf32>)
      %d = stablehlo.concatenate %w#1, %w#1, dim = 0 : (tensor<{rows}x2xf32>, tensor<{rows}x2xf32>) -> tensor<{2 * rows}x2xf32>
      %r = stablehlo.subtract %w#0, %d : tensor<{2 * rows}x2xf32>
      sdy.return %r : tensor<{2 * rows}x2xf32>
    }} : (tensor<8x4xf32>) -> tensor<16x2xf32>
    return %0 : tensor<16x2xf32>
  }}
}}"""
    module = dx.loads(text, "stablehlo")
    want = np.concatenate([np.concatenate([part[:, :2], part[:, 2:]]) - np.tile(part[:, :2] + part[:, 2:], (2, 1))
                           for part in np.split(X, 8 // rows)])
    np.testing.assert_array_equal(run(module), want)
    inlined, plan = planned(module, None)
    np.testing.assert_array_equal(on_devices(inlined, propagate(plan), [X])[0], want)


def test_shardys_collectives_change_nothing_of_the_whole() -> None:
    lies = '{sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>}'
    text = f"{HEAD} func.func @main(%x: tensor<8x4xf32> {lies}) -> tensor<8x4xf32> {{ {MOVES}\n return %r : tensor<8x4xf32> }} }}"
    np.testing.assert_array_equal(run(dx.loads(text, "stablehlo")), -X)
    assert stated_plan(dx.loads(text, "stablehlo"))


@pytest.mark.parametrize(("old", "new", "message"), [
    ('in_shardings=[<@mesh, [{"a"}', 'in_shardings=[<@mesh, [{"a":(2)2}', "is no part of an axis of 2"),
    ("in_shardings=[<@mesh", "in_shardings=[<@other", "no mesh '@other'"),
    ('in_shardings=[<@mesh, [{"a"}', 'in_shardings=[<@mesh, [{"z"}', "no axis 'z' in the mesh"),
])  # fmt: skip
def test_what_cannot_be_run_is_said(old: str, new: str, message: str) -> None:
    text = HEAD + """  func.func @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
    %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"a"}, {"b"}]>] out_shardings=[<@mesh, [{"a"}, {"b"}]>]
      manual_axes={"a", "b"} (%v: tensor<4x2xf32>) {
      sdy.return %v : tensor<4x2xf32>
    } : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %0 : tensor<8x4xf32>
  }
}"""
    dx.compile(dx.loads(text, "stablehlo"), optimize=False)(X)
    with pytest.raises(dx.ParseError, match=message):
        dx.loads(text.replace(old, new), "stablehlo")


def test_attributes_with_arrows_are_read_over() -> None:
    module = dx.loads("""func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
 %y = stablehlo.custom_call @my(%x) {sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([k, l]) {i=4, j=4, k=1, l=1}, custom>} :
   (tensor<4x4xf32>) -> tensor<4x4xf32>
 return %y : tensor<4x4xf32>
}""", "stablehlo")
    assert "->([k, l])" in dx.dumps(module, "stablehlo")
