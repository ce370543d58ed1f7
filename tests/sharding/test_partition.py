"""Programs split over devices: plans as text, propagation, and results that equal those of the whole program."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import ParseError, UsageError
from deepx_graph.ir import Module, Node
from deepx_graph.passes.pipeline import parse_pipeline
from deepx_graph.session.plans import planned
from deepx_graph.sharding import reshard
from deepx_graph.sharding.annotations import needed_plan, stated_plan
from deepx_graph.sharding.copies import REMADE, Copies, MoveWay, RemakeWay
from deepx_graph.sharding.mesh import Mesh, open_sharding, split
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.plan import Plan, plan_diff, read_plan
from deepx_graph.sharding.propagate import propagate
from deepx_graph.sharding.reasons import MeetingReason
from deepx_graph.sharding.reshard import TensorLayout, reshard_path
from deepx_graph.types import as_tensor
from tests.support.sharded_programs import LOOP, MLP, inputs, on_devices

MIXED = """func.func @main(%x: tensor<4x6x8xf32>, %y: tensor<24x8xf32>, %k: tensor<8x8xf32>) ->
    (tensor<8x24xf32>, tensor<2x12xf32>, tensor<24x16xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.reshape %x : (tensor<4x6x8xf32>) -> tensor<24x8xf32>
  %b = stablehlo.add %a, %y : tensor<24x8xf32>
  %c = stablehlo.dot_general %b, %k, contracting_dims = [1] x [1] : (tensor<24x8xf32>, tensor<8x8xf32>) -> tensor<24x8xf32>
  %d = stablehlo.transpose %c, dims = [1, 0] : (tensor<24x8xf32>) -> tensor<8x24xf32>
  %e = stablehlo.reduce(%c init: %zero) applies stablehlo.add across dimensions = [1] :
    (tensor<24x8xf32>, tensor<f32>) -> tensor<24xf32>
  %f = stablehlo.reshape %e : (tensor<24xf32>) -> tensor<2x12xf32>
  %i = stablehlo.iota dim = 0 : tensor<24x8xf32>
  %g = stablehlo.slice %y [0:24, 2:8] : (tensor<24x8xf32>) -> tensor<24x6xf32>
  %h = stablehlo.pad %g, %zero, low = [0, 1], high = [0, 1], interior = [0, 0] : (tensor<24x6xf32>, tensor<f32>) -> tensor<24x8xf32>
  %l = stablehlo.multiply %h, %i : tensor<24x8xf32>
  %m = stablehlo.concatenate %l, %b, dim = 1 : (tensor<24x8xf32>, tensor<24x8xf32>) -> tensor<24x16xf32>
  return %d, %f, %m : tensor<8x24xf32>, tensor<2x12xf32>, tensor<24x16xf32>
}"""


def counts(module: Module) -> Counter[str]:
    return Counter(n.op.name for n in module.entry.nodes if n.op.exchange is not None and n.inputs)


def equal_on_devices(module: Module, plan: Plan) -> None:
    arrays = inputs(module)
    whole = dx.compile(module, engine="numpy", optimize=False)(*arrays)
    for got, want in zip(on_devices(module, propagate(plan), arrays), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


BY_HAND = """sdy.mesh @mesh = <["a"=2, "b"=2]>
func.func @main(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> tensor<8x4xf32> {
  %t = stablehlo.tanh %x : tensor<8x4xf32>
  %r = sdy.manual_computation(%t, %w) in_shardings=[<@mesh, [{"a"}, {}]>, <@mesh, [{}, {"b"}]>]
      out_shardings=[<@mesh, [{"a"}, {"b"}]>] manual_axes={"a", "b"} (%p: tensor<4x4xf32>, %q: tensor<4x2xf32>) {
    %d = stablehlo.dot_general %p, %q, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
    sdy.return %d : tensor<4x2xf32>
  } : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  return %r : tensor<8x4xf32>
}"""


def test_what_goes_into_a_computation_by_hand_and_comes_out_is_split_as_there() -> None:
    """No sharding of an input is stated: each device has what its own computation takes and gives, and nobody sends anything."""
    module, plan = planned(dx.loads(BY_HAND, "stablehlo"), 'mesh <["a"=2, "b"=2]>\n')
    values = [*module.entry.params[:2], module.entry.results[0]]
    assert [plan.values[v].text(plan.mesh) for v in values] == ['[{"a", ?}, {?}]', '[{?}, {"b", ?}]', '[{"a"}, {"b"}]']
    sources = [{o.source for o in plan.origins[v].values()} for v in values]
    assert sources == [{"mc_0_input: 0"}, {"mc_0_input: 1"}, {"mc_0_output: 0"}]
    local = partition(module, plan)
    assert not counts(local.module) and [as_tensor(p.type).shape for p in local.module.entry.params] == [(4, 4), (4, 2)]
    x, w = (np.random.default_rng(0).standard_normal(s).astype("f4") for s in ((8, 4), (4, 4)))
    np.testing.assert_allclose(on_devices(module, plan, [x, w])[0], np.tanh(x) @ w, rtol=1e-5)


def test_an_axis_that_cannot_stay_goes_behind_those_of_another_dimension() -> None:
    """Columns are joined, which are not split for that: each device has a part of the rows meanwhile, and none gathers all."""
    text = """sdy.mesh @mesh = <["a"=4, "b"=2]>
    func.func @main(%x: tensor<32x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"b"}, {"a"}]>})
        -> (tensor<32x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"a"}]>}) {
      %r = stablehlo.concatenate %x, %x, dim = 1 : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x64xf32>
      return %r : tensor<32x64xf32>
    }"""
    module = dx.loads(text, "stablehlo")
    plan = propagate(needed_plan(module))
    equal_on_devices(module, plan)
    assert counts(partition(module, plan).module) == {"spmd_all_to_all": 2, "spmd_all_gather": 1}


def test_a_text_states_a_plan_that_megatron_would_make() -> None:
    """Columns of the first matrix, rows of the second, one all-reduce (Shoeybi et al., Megatron-LM, 2019); and one of the sum."""
    module = dx.loads(MLP, "stablehlo")
    plan = propagate(needed_plan(module))
    w2 = module.entry.params[2]
    assert plan.values[w2].text(plan.mesh) == '[{"model", ?}, {?}]'
    assert counts(partition(module, plan).module) == {"spmd_all_reduce": 2}
    equal_on_devices(module, plan)


def test_the_program_of_one_device_is_written_and_read() -> None:
    module = dx.loads(MLP, "stablehlo")
    local = partition(module, propagate(needed_plan(module))).module
    assert dx.dumps(dx.loads(dx.dumps(local, "sea"), "sea"), "sea") == dx.dumps(local, "sea")
    for language in ("stablehlo", "hlo"):
        assert "all" in dx.dumps(local, language)
        dx.loads(dx.dumps(local, language), language)


def test_plans_read_back_and_differ() -> None:
    module = dx.loads(MLP, "stablehlo")
    plan = propagate(needed_plan(module))
    again = read_plan(str(plan), module.entry)
    assert again.values == plan.values and again.results == plan.results and plan_diff(plan, again) == []
    other = read_plan(str(plan).replace('w2: [{"model", ?}, {?}]', 'w2: [{?}, {?}]'), module.entry)
    assert plan_diff(plan, other) == ['- w2: [{"model", ?}, {?}]', "+ w2: [{?}, {?}]"]


@pytest.mark.parametrize(("text", "message"), [
    ("", "empty plan"), ("x: [{}]", "begins with its mesh"), ('mesh <["a"=2]>\nq: [{}]', "no value 'q'"),
    ('mesh <["a"=2]>\nx: [{"a"}]', "1 dimensions for"), ('mesh <["a"=2]>\n-> 7: [{}]', "no such result"),
    ('mesh <["a"=2]>\n[{}]', "no value is named"),
])  # fmt: skip
def test_wrong_plans_are_pointed_at(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        read_plan(text, dx.loads(MLP, "stablehlo").entry)


def test_the_pass_takes_a_plan_from_a_file(tmp_path: Path) -> None:
    """Of a program that states nothing; the numbers of values are those of the program that the pass is given."""
    text = "func.func @main(%x: T) -> T { %y = stablehlo.tanh %x : T return %y : T }".replace("T", "tensor<8x4xf32>")
    (tmp_path / "m.plan").write_text('mesh <["a"=2]>\n#1: [{"a"}, {}]\n')
    local = dx.optimize(dx.loads(text, "stablehlo"), f'shard{{plan="{tmp_path / "m.plan"}"}}').entry
    assert [as_tensor(n.type).shape for n in (*local.params, *local.results)] == [(4, 4), (4, 4)]
    with pytest.raises(UsageError, match="takes those of a plan"):
        parse_pipeline("shard{auto mesh=a:2 plan=m.plan}")


def test_a_text_without_shardings_states_no_plan() -> None:
    module = dx.loads(LOOP, "stablehlo")
    assert stated_plan(module) is None
    with pytest.raises(UsageError, match="states no sharding"):
        needed_plan(module)


def test_what_has_no_parts_is_refused() -> None:
    module = dx.loads("""func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
 %y = func.call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
 return %y : tensor<4xf32> }
 func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }""", "stablehlo")
    with pytest.raises(UsageError, match="calls a function"):
        partition(module, Plan(Mesh((("a", 2),)), module.entry))


def random_plan(module: Module, seed: int) -> Plan:
    """Some axes of parameters and results on some axes of a mesh."""
    rng = np.random.default_rng(seed)
    mesh = [Mesh((("a", 2), ("b", 2))), Mesh((("a", 4),)), Mesh((("a", 2), ("b", 3))), Mesh((("a", 2),), (1, 0))][seed % 4]
    values = {}
    for node in module.entry.params + module.entry.results:
        rank = len(node.type.shape)
        dims = [() for _ in range(rank)]
        for name, _ in mesh.axes:
            if rank and rng.random() < 0.7:
                dims[k] = (*dims[(k := int(rng.integers(rank)))], mesh.axis(name))
        values[node] = split(*dims) if rng.random() < 0.8 else open_sharding(rank)
    return Plan(mesh, module.entry, values)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("text", [LOOP, MIXED, MLP], ids=["loop", "mixed", "mlp"])
def test_random_shardings_keep_the_results(text: str, seed: int) -> None:
    module = dx.loads(text, "stablehlo")
    equal_on_devices(module, random_plan(module, seed))


def test_a_sum_that_is_split_again_is_scattered() -> None:
    """Half the bytes of an all-reduce, where XLA's partitioner for processors makes an all-reduce and a slice."""
    mesh = Mesh((("x", 8),))
    atoms = mesh.atoms((mesh.axis("x"),))
    found = reshard_path((512, 512), 4, TensorLayout(((), ()), atoms), TensorLayout((atoms, ())))
    assert [m.kind for m, _ in found.moves] == ["reduce_scatter"]


def test_a_product_is_split_along_an_axis_that_its_operands_do_not_name_where_that_is_less() -> None:
    module = dx.loads("""sdy.mesh @mesh = <["a"=2, "b"=2, "c"=2]>
func.func @main(%x: tensor<16x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"b"}, {"c"}]>}) -> tensor<16x16xf32> {
  %y = stablehlo.dot_general %x, %x, contracting_dims = [0] x [1] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %y : tensor<16x16xf32> }""", "stablehlo")
    plan = propagate(needed_plan(module))
    met = [n.op.name for n in partition(module, plan).module.entry.nodes if n.op.exchange and n.inputs]
    assert met == ["spmd_collective_permute", "spmd_collective_permute", "spmd_all_reduce"], "two gathers are twice as many bytes"
    arrays = inputs(module)
    for got, want in zip(on_devices(module, plan, arrays), dx.compile(module, engine="numpy")(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("steps", "results", "kinds"), [
    ("%y = stablehlo.tanh %x : tensor<16x16xf16>", ["%x", "%y"], ["f16 all_gather"]),
    ("%y = stablehlo.convert %x : (tensor<16x16xf16>) -> tensor<16x16xf32>", ["%y"], ["f16 all_gather"]),
    ("%y = stablehlo.transpose %x, dims = [1, 0] : (tensor<16x16xf16>) -> tensor<16x16xf16>", ["%y", "%x"], ["f16 all_gather"]),
], ids=["of a value and of a function of it", "before it is widened", "of two results"])  # fmt: skip
def test_what_is_needed_alike_is_exchanged_once(steps: str, results: list[str], kinds: list[str]) -> None:
    """Never more than the narrowest value on the way, which everything else is computed from."""
    types = ", ".join("tensor<16x16xf32>" if "convert" in steps else "tensor<16x16xf16>" for _ in results)
    whole = types.replace(">", '> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}')
    module = dx.loads(f"""sdy.mesh @mesh = <["a"=4]>
func.func @main(%x: tensor<16x16xf16> {{sdy.sharding = #sdy.sharding<@mesh, [{{"a"}}, {{}}]>}}) -> ({whole}) {{
  {steps}
  return {", ".join(results)} : {types} }}""", "stablehlo")
    local = partition(module, propagate(needed_plan(module)))
    assert [f"{m.collective.type.dtype} {m.collective.op.name.removeprefix('spmd_')}" for m in local.meetings] == kinds


JOINED = """sdy.mesh @mesh = <["a"=2, "b"=2]>
func.func @main(%x: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>},
    %y: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"b"}]>}, %n: tensor<i32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %c = "stablehlo.case"(%one) ({
    stablehlo.return %x : tensor<8x8xf32>
  }, {
    stablehlo.return %y : tensor<8x8xf32>
  }) : (tensor<i32>) -> tensor<8x8xf32>
  %r:2 = stablehlo.while(%a = %x, %i = %zero) : tensor<8x8xf32>, tensor<i32> cond {
    %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %d = stablehlo.add %a, %y : tensor<8x8xf32>
    %s = sdy.sharding_constraint %d <@mesh, [{"b"}, {"a"}]> : tensor<8x8xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %s, %j : tensor<8x8xf32>, tensor<i32>
  }
  return %c, %r#0 : tensor<8x8xf32>, tensor<8x8xf32>
}"""


def test_what_comes_into_a_branch_or_loop_may_lie_in_another_way() -> None:
    module = dx.loads(JOINED, "stablehlo")
    plan = propagate(needed_plan(module))
    x, y, _ = module.entry.params
    assert [plan.values[v].text(plan.mesh) for v in (x, y)] == ['[{"a"}, {}]', '[{}, {"b"}]']
    assert MeetingReason.CONTROL in {m.reason for m in partition(module, plan).meetings}
    equal_on_devices(module, needed_plan(module))


@pytest.mark.parametrize(("x", "y", "made"), [
    ('{"a"}, {}', '{}, {"a"}', '[{"a", ?}, {?}]'), ('{}, {"a"}', '{"a"}, {}', '[{?}, {"a", ?}]'),
    ('{"a"}, {}', '{}, {"b", "a"}', '[{?}, {"b", "a", ?}]'), ('{"b"}, {}', '{}, {"a", "b"}', '[{?}, {"a", "b", ?}]'),
    ('{}, {"b", "a"}', '{"a", "b"}, {}', '[{?}, {"b", "a", ?}]'), ('{"a", "b"}, {}', '{}, {"b"}', '[{"a", "b", ?}, {?}]')])
def test_of_two_dimensions_that_want_an_axis_the_one_in_more_parts_has_it(x: str, y: str, made: str) -> None:
    """What jaxlib 0.10.2 makes of each; of as many parts the first operand's."""
    given = ", ".join(f"%{n}: tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{s}]>}}" for n, s in (("x", x), ("y", y)))
    module = dx.loads(f"""sdy.mesh @mesh = <["a"=2, "b"=4]>
func.func @main({given}) -> tensor<8x8xf32> {{
  %z = stablehlo.multiply %x, %y : tensor<8x8xf32>
  return %z : tensor<8x8xf32>
}}""", "stablehlo")
    plan = propagate(needed_plan(module))
    assert plan.values[module.entry.results[0]].text(plan.mesh) == made


@pytest.mark.parametrize(("dtype", "value"), [("i32", "3"), ("f32", "-0.0"), ("i1", "true")])
def test_what_one_device_computes_is_known_to_all(dtype: str, value: str) -> None:
    text = f"""sdy.mesh @mesh = <["a"=4]>
sdy.mesh @third = <[], device_ids=[2]>
func.func @main(%x: tensor<8x{dtype}> {{sdy.sharding = #sdy.sharding<@mesh, [{{"a"}}]>}}) -> tensor<8x{dtype}> {{
  %me = stablehlo.partition_id : tensor<ui32>
  %two = stablehlo.constant dense<2> : tensor<ui32>
  %is = stablehlo.compare EQ, %me, %two : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
  %c = stablehlo.constant dense<{value}> : tensor<8x{dtype}>
  %y = stablehlo.select %is, %x, %c {{sdy.sharding = #sdy.sharding_per_value<[<@third, []>]>}} : tensor<i1>, tensor<8x{dtype}>
  return %y : tensor<8x{dtype}>
}}"""
    module = dx.loads(text, "stablehlo")
    plan = propagate(needed_plan(module))
    assert "device 2" in str(plan) and read_plan(str(plan), module.entry).devices == plan.devices
    values = [-0.0, 1, 0, 2, np.inf, 0, 3, 1] if dtype == "f32" else [0, 1, 0, 2, 5, 0, 3, 1]
    x = np.array(values, as_tensor(module.entry.params[0].type).dtype.np)
    (found,) = on_devices(module, plan, [x])
    assert found.tobytes() == x.tobytes()


def test_moving_an_axis_is_one_exchange() -> None:
    mesh = Mesh((("x", 8),))
    atoms = mesh.atoms((mesh.axis("x"),))
    found = reshard_path((64, 64), 4, TensorLayout((atoms, ())), TensorLayout(((), atoms)))
    assert [m.kind for m, _ in found.moves] == ["all_to_all"]


def test_every_pair_of_layouts_has_a_path() -> None:
    mesh = Mesh((("a", 2), ("b", 4)))
    a, b = mesh.atoms((mesh.axis("a"),)), mesh.atoms((mesh.axis("b"),))
    layouts = [((), ()), (a, ()), ((), a), (b, ()), (a + b, ()), (b + a, ()), (a, b), (b, a), ((), b + a), (b[:1], b[1:]),
               (b[1:], a)]
    for before, after in itertools.product(layouts, layouts):
        path = reshard_path((16, 16), 4, TensorLayout(before), TensorLayout(after))
        assert (path.cost == 0) == (before == after)


def test_axes_of_large_meshes_move_together() -> None:
    """A thousand devices: both axes change their dimension, and a sum over one is scattered along it."""
    mesh = Mesh((("data", 256), ("model", 4)))
    data, model = (mesh.atoms([mesh.axis(name)]) for name, _ in mesh.axes)
    moved = reshard_path((8192, 1024), 4, TensorLayout((data, model)), TensorLayout((model, data)))
    assert moved.moves[-1][1] == TensorLayout((model, data))
    summed = reshard_path((8192, 1024), 4, TensorLayout(((), model), data), TensorLayout((data, model)))
    assert [(move.kind, move.axes) for move, _ in summed.moves] == [("reduce_scatter", data)]


@pytest.mark.parametrize("seed", range(2))
def test_moving_axes_together_keeps_the_results(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(reshard, "MOST_AXES", 0)
    reshard_path.cache_clear()
    test_random_shardings_keep_the_results(MIXED, seed)
    reshard_path.cache_clear()


def test_parts_of_columns_lie_in_order() -> None:
    """Every call would copy them else."""
    module = dx.loads(MLP, "stablehlo")
    mesh = Mesh((("a", 2),))
    w = next(p for p in module.entry.params if len(p.type.shape) == 2)
    local = partition(module, propagate(Plan(mesh, module.entry, {w: split((), (mesh.axis("a"),))})))
    assert all(part.flags.c_contiguous for part in local.cut(inputs(module), 1))


def test_ways_that_are_remembered_are_those_that_would_be_found_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered = Copies.way
    reused = 0

    def checked(self: Copies, value: Node, after: TensorLayout, depth: int = REMADE) -> MoveWay | RemakeWay:
        nonlocal reused
        reused += (after, depth) in self._ways.get(value, {})
        found = remembered(self, value, after, depth)
        anew = Copies(self._is_fixed)
        anew._made = self._made
        monkeypatch.setattr(anew, "way", partial(remembered, anew))
        assert remembered(anew, value, after, depth) == found
        return found

    monkeypatch.setattr(Copies, "way", checked)
    for text in (MIXED, MLP):
        module = dx.loads(text, "stablehlo")
        partition(module, propagate(random_plan(module, 1)))
    assert reused
