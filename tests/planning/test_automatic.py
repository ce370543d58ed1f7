"""Automatic plans: data parallel, FSDP and Megatron fall out where they are best; any plan keeps the results of the program."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import numpy as np
import pytest

import deepx_graph as dx
from bench.models.gpt import Sizes, gpt
from deepx_graph.analysis.repeats import repeated
from deepx_graph.analysis.work import flops
from deepx_graph.errors import UsageError
from deepx_graph.ir import Module
from deepx_graph.passes.chosen_plan import chosen_plan
from deepx_graph.planning.automatic import AutomaticPlan, automatic_plan
from deepx_graph.planning.candidates import MeshCosts
from deepx_graph.planning.cluster import DeviceCluster, preset, read_cluster
from deepx_graph.planning.known import Folded, known_plans
from deepx_graph.session.cluster.simulation import simulate
from deepx_graph.session.programs import optimise
from deepx_graph.sharding.mesh import Mesh, TensorSharding, split
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.plan import Plan
from deepx_graph.sharding.propagate import propagate
from deepx_graph.sharding.values import DataFlow
from tests.support.cli_runner import Run
from tests.support.generate import random_inputs, random_module
from tests.support.sharded_programs import LOOP, MLP, inputs, layers, on_devices

H100 = preset("h100")
EIGHT = Mesh((("data", 8),))


def gradient(batch: int, width: int, hidden: int, depth: int) -> Module:
    return optimise(dx.loads(layers(batch, width, hidden, depth), "stablehlo"), "grad,clean").module


def met(module: Module, plan: Plan) -> Counter[str]:
    nodes = partition(module, plan).module.entry.nodes
    return Counter(n.op.name.removeprefix("spmd_") for n in nodes if n.op.exchange is not None and n.inputs)


def known(module: Module, found: AutomaticPlan, shardings: dict[str, TensorSharding], results: dict[int, TensorSharding]) -> None:
    """The automatic plan is predicted to take no longer than the known one, by the simulator, which knows the real program."""
    values = {p: shardings[p.name.rstrip("0123456789")] for p in module.entry.params if p.name.rstrip("0123456789") in shardings}
    other = propagate(Plan(found.plan.mesh, module.entry, values, results))
    times = [simulate(module, plan, "h100").step.seconds for plan in (found.plan, other)]
    assert times[0] <= times[1] * 1.01


def test_data_parallel_where_gradients_are_asked_whole() -> None:
    """A large batch and small weights: the batch is split, weights are whole, and gradients are summed over all devices."""
    module = gradient(8192, 256, 256, 2)
    whole = {k: split((), ()) for k in range(1, len(module.entry.results))}
    found = automatic_plan(module.entry, EIGHT, H100, given=Plan(EIGHT, module.entry, {}, whole))
    data = EIGHT.axis("data")
    assert found.gap < 1e-4
    assert all(found.plan.values[n].axes == ((data,), ()) for n in module.entry.nodes if n.name.startswith(("h", "t", "y")))
    assert set(met(module, found.plan)) <= {"all_reduce", "reduce_scatter", "all_gather"}
    known(module, found, {"x": split((data,), ())}, whole)


@pytest.mark.parametrize(("axes", "shape"), [((("data", 8),), (512, 1024)), ((("data", 4), ("model", 2)), (128, 512))])
def test_no_plan_that_is_known_takes_less_by_the_simulator(axes: tuple[tuple[str, int], ...], shape: tuple[int, int]) -> None:
    """The search counts no fusion and no overlapping, by which the least of its plans may lose to one beside it."""
    tokens, width = shape
    module, mesh = gpt(2, Sizes(tokens=tokens, width=width, heads=8, hidden=4 * width, words=4096)), Mesh(axes)
    found = chosen_plan(module, mesh, H100, None)
    seconds = simulate(module, found.plan, "h100").step.seconds
    beside = {r.name: simulate(module, r.plan.plan, "h100").step.seconds for r in found.rivals if r.plan}
    assert "data parallel" in beside and seconds <= min(beside.values())
    every = tuple(mesh.axis(name) for name, _ in axes)
    by_hand = propagate(Plan(mesh, module.entry, {module.entry.params[0]: split(every, ())}))
    assert seconds <= simulate(module, by_hand, "h100").step.seconds * 1.01


def test_fsdp_where_weights_do_not_fit() -> None:
    """Weights are split and gathered where they are used; sums of gradients are scattered (Rajbhandari et al., ZeRO, 2020)."""
    module = gradient(32768, 256, 1024, 4)
    data = EIGHT.axis("data")
    given = Plan(EIGHT, module.entry, {module.entry.params[0]: split((data,), ())})
    roomy = automatic_plan(module.entry, EIGHT, H100, given=given)
    found = automatic_plan(module.entry, EIGHT, H100, memory=roomy.memory_bytes - 4e6, given=given)
    assert found.memory_bytes <= roomy.memory_bytes - 4e6 and found.seconds >= roomy.seconds
    weights = [p for p in module.entry.params if p.name.startswith(("w", "v"))]
    assert any(found.plan.values[w].is_split for w in weights)
    assert {"all_gather", "reduce_scatter"} <= set(met(module, found.plan))
    known(module, found, {"x": split((data,), ()), "w": split((data,), ()), "v": split((data,), ())},
          {k: split((data,), ()) for k in range(1, len(module.entry.results))})


def test_megatron_where_the_batch_is_small() -> None:
    """Columns of the first matrix, rows of the second, an all-reduce a layer each way (Shoeybi et al., Megatron-LM, 2019)."""
    module, mesh = gradient(8, 4096, 16384, 2), Mesh((("model", 4),))
    model = mesh.axis("model")
    found = automatic_plan(module.entry, mesh, H100, memory=0.7e9)
    for p in module.entry.params[1:]:
        wanted = {"w": ((), (model,)), "v": ((model,), ())}.get(p.name[:1])
        assert wanted is None or found.plan.values[p].axes == wanted
    assert met(module, found.plan) == {"all_reduce": 3}  # that of the last layer forward is not needed for the gradient
    known(module, found, {"w": split((), (model,)), "v": split((model,), ())}, {})


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="no plan was found that fits") as caught:
        automatic_plan(gradient(8, 64, 64, 1).entry, EIGHT, H100, memory=1000)
    assert "simulate FILE --devices" in str(caught.value)


def test_layers_share_decisions() -> None:
    small, large = (automatic_plan(gradient(64, 64, 128, n).entry, EIGHT, H100).decisions for n in (6, 12))
    assert small == large
    nodes = [n for n in gradient(64, 64, 128, 6).entry.nodes if n.inputs]
    assert len(repeated(nodes)) > len(nodes) * 0.7


def test_a_given_sharding_stays() -> None:
    module = dx.loads(MLP, "stablehlo")
    mesh = Mesh((("data", 4), ("model", 2)))
    given = Plan(mesh, module.entry, {module.entry.params[1]: split((mesh.axis("model"),), ())})
    found = automatic_plan(module.entry, mesh, H100, given=given)
    assert found.plan.values[module.entry.params[1]].axes == ((mesh.axis("model"),), ())


def equal(module: Module, mesh: Mesh, arrays: list[np.ndarray], cluster: DeviceCluster = H100) -> None:
    plan = automatic_plan(module.entry, mesh, cluster).plan
    whole = dx.compile(module, engine="numpy", optimize=False)(*arrays)
    for got, want in zip(on_devices(module, plan, arrays), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(15))
def test_random_programs_keep_their_results(seed: int) -> None:
    rng = random.Random(seed)
    module = dx.optimize(random_module(rng, max_ops=25, exact=True), "inline,cse")
    equal(module, rng.choice([Mesh((("a", 2),)), Mesh((("a", 2), ("b", 2))), Mesh((("a", 3),))]), random_inputs(rng, module))


@pytest.mark.parametrize("text", [LOOP, MLP], ids=["loop", "mlp"])
def test_programs_keep_their_results(text: str) -> None:
    module = dx.loads(text, "stablehlo")
    equal(module, Mesh((("a", 2), ("b", 2))), inputs(module))


SLOW = read_cluster("device: flops=1e8, bandwidth=1e8, memory=80e9, launch=1e-9\n*: alpha=1e-7, beta=1e9, switch\n", "slow")
"""Devices that are slow beside their links, so that small programs are worth splitting."""

PICTURE = """func.func @main(%x: tensor<1x33x20x3xf32>, %k: tensor<3x3x3x5xf32>) -> tensor<1x17x20x5xf32> {
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {stride = [2, 1], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x33x20x3xf32>, tensor<3x3x3x5xf32>) -> tensor<1x17x20x5xf32>
  %1 = stablehlo.tanh %0 : tensor<1x17x20x5xf32>
  return %1 : tensor<1x17x20x5xf32>
}"""

PRIMES = """func.func @main(%x: tensor<31x17xf32>, %w: tensor<17x37xf32>) -> tensor<f32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<31x17xf32>, tensor<17x37xf32>) -> tensor<31x37xf32>
  %1 = stablehlo.tanh %0 : tensor<31x37xf32>
  %2 = stablehlo.reduce(%1 init: %z) applies stablehlo.add across dimensions = [0, 1] :
    (tensor<31x37xf32>, tensor<f32>) -> tensor<f32>
  return %2 : tensor<f32>
}"""


@pytest.mark.parametrize(("text", "kind"), [(PICTURE, "collective_permute"), (PRIMES, "all_reduce")], ids=["picture", "primes"])
def test_pictures_are_split_in_space_and_primes_with_padding(text: str, kind: str) -> None:
    """One image, of which no device can have a part but by borders of its neighbours'; sizes that nothing divides."""
    module = optimise(dx.loads(text, "stablehlo"), "clean").module
    mesh = Mesh((("data", 4),))
    found = automatic_plan(module.entry, mesh, SLOW)
    assert met(module, found.plan)[kind]
    assert found.seconds * SLOW.device.flops < 0.5 * sum(flops(n) for n in module.entry.nodes if n.inputs)  # on each of 4 devices
    equal(module, mesh, inputs(module), SLOW)


def test_the_pass_and_the_command(run: Run, tmp_path: object) -> None:
    path = f"{tmp_path}/m.mlir"
    with open(path, "w", encoding="utf-8") as file:
        file.write(MLP)
    assert "stablehlo" in run("opt", path, "-p", "inline,shard{auto mesh=data:4,model:2 memory=16G}").out
    assert "data=4,model=2" in run("opt", path, "-p", "inline,shard{auto mesh=data:4,model memory=16G}").err
    done = run("plan", path, "--auto", "--mesh", "data=4,model=2", "--json")
    assert done.json["automatic"]["gap"] < 1e-4 and "automatic" in done.json["plan"]
    assert "predicted" in run("plan", path, "--auto", "--mesh", "data=4").err
    refused = run("plan", path, "--auto").err
    assert "--auto --mesh" in refused and "simulate FILE --devices" in refused


def test_a_plan_is_found_in_no_time() -> None:
    """When time is over at once, nodes have the candidates of the known plans, and the best of these is taken, with its gap."""
    module, calls = gradient(8192, 256, 256, 2), itertools.count()
    found = automatic_plan(module.entry, EIGHT, H100, seconds=0.5, clock=lambda: float(next(calls)))
    best = automatic_plan(module.entry, EIGHT, H100)
    assert best.seconds <= found.seconds <= min(r.seconds for r in found.rivals) and found.gap > 0
    assert {r.name for r in found.rivals} == {"replicated", "data parallel", "FSDP", "Megatron"}
    equal_small = gradient(64, 16, 32, 2)
    arrays = inputs(equal_small)
    plan = automatic_plan(equal_small.entry, EIGHT, H100, seconds=0.5, clock=lambda: float(next(calls))).plan
    whole = dx.compile(equal_small, engine="numpy", optimize=False)(*arrays)
    for got, want in zip(on_devices(equal_small, plan, arrays), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_known_plans_are_those_of_the_literature() -> None:
    """The batch is told from the rest; FSDP holds a part of each weight; Megatron takes columns and rows by turns."""
    module, mesh = gradient(8192, 256, 1024, 2), Mesh((("data", 4), ("model", 2)))
    flow, nodes = DataFlow(module.entry), [n for n in module.entry.nodes if n.inputs]
    data, model = (mesh.atoms((mesh.axis(name),)) for name in ("data", "model"))
    found = known_plans(Folded(module.entry, flow, repeated(nodes), {}), (data, model), {})
    params = {p.name: (p, 0) for p in module.entry.params}

    def lies(plan: str, name: str) -> tuple[object, ...]:
        return found[plan].layout(params[name], 2).dims

    assert lies("data parallel", "x") == lies("FSDP", "x") == ((*data, *model), ())
    assert lies("data parallel", "w0") == ((), ()) == lies("replicated", "x")
    assert lies("FSDP", "w0") == ((), (*data, *model)) and lies("FSDP", "v0") == ((*data, *model), ())
    assert lies("Megatron", "x") == (data, ()) and lies("Megatron", "w0") == ((), model) and lies("Megatron", "v0") == (model, ())


def test_twice_the_layers_cost_no_more_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = MeshCosts.candidates

    def counted(self: MeshCosts, *args: object) -> object:
        asked.append(1)
        return real(self, *args)

    monkeypatch.setattr(MeshCosts, "candidates", counted)
    for depth in (6, 12, 24):
        automatic_plan(gradient(64, 64, 128, depth).entry, EIGHT, H100)
        asked.append(0)
    six, twelve, both = (len(list(g)) for one, g in itertools.groupby(asked) if one)
    assert six == twelve == both
