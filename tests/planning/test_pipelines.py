"""Pipelines: bubbles and live microbatches of the literature, balanced cuts, gradients that equal those of the whole program."""

from __future__ import annotations

from pathlib import Path

import pytest

import deepx_graph as dx
from deepx_graph import ops
from deepx_graph.errors import UsageError
from deepx_graph.ir import Builder, Function, Module
from deepx_graph.planning.cluster import preset
from deepx_graph.planning.events import COMPUTE
from deepx_graph.planning.microbatches import microbatch_program
from deepx_graph.planning.schedules import PipelineSchedule, StageEvent, interleaved, pipeline_schedule
from deepx_graph.planning.stages import Pieces, stages
from deepx_graph.session.cluster.pipelined import Pipelined
from deepx_graph.types import F32, I32, tensor
from tests.support.cli_runner import Run
from tests.support.sharded_programs import SKIP, check_pipeline, layers

H100 = preset("h100")
TIMES = {"F": 1.0, "B": 2.0}
SHAPES = [(2, 4), (4, 8), (4, 4), (3, 5), (8, 32)]


@pytest.mark.parametrize(("devices", "count"), SHAPES)
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_the_bubble_is_that_of_the_papers(name: str, devices: int, count: int) -> None:
    """(p - 1) / (m + p - 1) for both (Huang et al., 2019; Narayanan et al., 2021); 1F1B has at most p microbatches at work."""
    schedule = pipeline_schedule(name, devices, count, 1)
    assert len(schedule.order()) == 2 * devices * count
    assert schedule.bubble(TIMES) == pytest.approx((devices - 1) / (count + devices - 1))
    wanted = [count] * devices if name == "gpipe" else [min(devices - d, count) for d in range(devices)]
    assert [schedule.live(d) for d in range(devices)] == wanted


@pytest.mark.parametrize(("devices", "count", "chunks"), [(2, 4, 2), (4, 8, 2), (4, 16, 3)])
def test_interleaving_shortens_the_bubble(devices: int, count: int, chunks: int) -> None:
    """Idle time is (p - 1) / v of that of 1F1B, in units of a stage of the whole depth (Narayanan et al., 2021, 2.2)."""
    schedule = interleaved(devices, count, chunks)
    schedule.order()
    idle = (devices - 1) / chunks
    assert schedule.bubble(TIMES) == pytest.approx(idle / (count + idle))


def test_devices_that_wait_for_one_another_are_told_of() -> None:
    f, b = (StageEvent(0, 0, d) for d in "FB")
    with pytest.raises(UsageError, match="wait for one another"):
        PipelineSchedule(1, 1, ((b, f),)).order()
    with pytest.raises(UsageError, match="once each way"):
        PipelineSchedule(1, 1, ((f, f),)).order()
    with pytest.raises(UsageError, match="gpipe"):
        pipeline_schedule("gpip", 2, 2, 1)
    with pytest.raises(UsageError, match="multiple of the devices"):
        interleaved(4, 6)


def test_stages_are_balanced_and_cut_where_little_crosses() -> None:
    """Eight equal layers in four stages: two each, and one value of the width crosses."""
    found = stages(dx.loads(layers(4096, 4096, 16384, 8), "stablehlo").entry, 4, H100)
    assert [len(s.params) for s in found] == [5, 4, 4, 4]
    assert [[x.name for x in s.crossing] for s in found] == [[], ["y1"], ["y3"], ["y5"]]
    with pytest.raises(UsageError, match="has no 90 stages"):
        stages(dx.loads(layers(64, 512, 2048, 2), "stablehlo").entry, 90, H100)


def test_what_is_made_of_weights_stands_where_it_is_used() -> None:
    """Matrices that are widened to a batch of sequences come from the graph's order before everything else."""
    def model(x, *ws):
        for w in ws:
            x = dx.xp.tanh(x @ w)
        return dx.xp.sum(x)

    module = dx.trace(model, "f32[8,16,64]", *["f32[64,64]"] * 8)
    found = stages(module.entry, 4, H100)
    assert [len(s.crossing) for s in found] == [0, 1, 1, 1]
    assert sum(len(s.params) for s in found) == len(module.entry.params)


def test_what_is_made_of_constants_is_sent_nowhere() -> None:
    """A causal mask, from iotas, that all layers read: each stage makes it for itself, and pieces end with layers."""
    b = Builder()
    x, *weights = (b.param(k, type, f"x{k}") for k, type in enumerate((tensor(F32, (8, 16, 16)), *[tensor(F32, (16, 16))] * 12)))
    rows, columns = (b(ops.iota, shape=(16, 16), dtype=I32, iota_dimension=k) for k in (0, 1))
    mask = b(ops.broadcast_in_dim, b(ops.compare, rows, columns, direction="GE"), shape=(8, 16, 16),
             broadcast_dimensions=(1, 2))
    last = x
    for w in weights:
        product = b(ops.dot_general, last, w, lhs_contracting_dimensions=(2,), rhs_contracting_dimensions=(0,))
        last = b(ops.add, last, b(ops.select, mask, product, last))
    entry = Function("main", (x, *weights), (last,))
    for stage in (*stages(entry, 4, H100)[1:], *Pieces(entry, H100).stages[1:]):
        assert [c.type for c in stage.crossing] == [x.type]
    assert {len(s.params) for s in Pieces(entry, H100).stages[1:]} == {1}


def check(module: Module, batch: list[str], schedule: PipelineSchedule) -> Pipelined:
    pipelined = Pipelined(module, batch, schedule, H100, engine="numpy")
    check_pipeline(pipelined, module, batch)
    assert pipelined.live == [schedule.live(d) for d in range(len(schedule.devices))]
    return pipelined


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved"])
@pytest.mark.parametrize(("text", "batch", "devices"), [
    (layers(8, 6, 10, 4), ["x"], 2), (layers(8, 6, 10, 5), ["x"], 4), (layers(12, 4, 4, 8), ["x"], 4), (SKIP, ["x", "t"], 2),
], ids=["even", "uneven", "deep", "skip"])  # fmt: skip
def test_gradients_are_those_of_the_whole_program(name: str, text: str, batch: list[str], devices: int) -> None:
    chunks = 2 if name == "interleaved" and "%w3" in text else 1
    check(dx.loads(text, "stablehlo"), batch, pipeline_schedule(name, devices, 4, chunks))


def test_a_prediction_has_every_event() -> None:
    schedule = pipeline_schedule("1f1b", 4, 16, 1)
    pipelined = Pipelined(dx.loads(layers(64, 256, 1024, 8), "stablehlo"), ["x"], schedule, H100, engine="numpy")
    step = pipelined.plan.simulated
    assert sum((0, COMPUTE) in t.streams for t in step.tasks) == 32
    idle = [1 - step.busy(d, COMPUTE) / step.seconds for d in range(4)]
    assert 3 / 19 < sum(idle) / 4 < 0.5


def test_the_command(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(layers(64, 256, 1024, 8))
    options = ("--batch", "x", "--microbatches", "8", "--cluster", "h100")
    done = run("simulate", str(tmp_path / "m.mlir"), "--stages", "4", *options, "-o", str(tmp_path / "step.html"))
    assert "4 stages, 8 microbatches, 1f1b" in done.out and "stage 2 to 3" in done.out
    assert (tmp_path / "step.html").read_text().count("3 compute") == 1
    bubbles = [run("simulate", str(tmp_path / "m.mlir"), "--stages", "4", *options, "--json", *more).json["bubble"]
               for more in ((), ("--schedule", "interleaved", "--chunks", "2"))]
    assert bubbles[1] < bubbles[0]
    assert "--batch x,y" in run("simulate", str(tmp_path / "m.mlir"), "--stages", "4").err


def test_a_batch_whose_parts_need_one_another_is_refused() -> None:
    text = """
func.func @main(%x: tensor<8x8xf32>) -> tensor<f32> {
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %t = stablehlo.tanh %a : tensor<8x8xf32>
  %l = stablehlo.reduce(%t init: %none) applies stablehlo.add across dimensions = [0, 1] :
    (tensor<8x8xf32>, tensor<f32>) -> tensor<f32>
  return %l : tensor<f32>
}"""
    module = dx.loads(text, "stablehlo")
    with pytest.raises(UsageError, match="parts of the batch need one another"):
        microbatch_program(module, ["x"], 4)
    for batch, message in ((["y"], "no input 'y'"), (["x"], "cannot be cut into 3 parts"), ([], "works on microbatches")):
        with pytest.raises(UsageError, match=message):
            microbatch_program(module, batch, 3)


def test_what_is_added_to_a_sum_over_the_batch_is_refused() -> None:
    """A penalty on weights would be added once for each microbatch."""
    module = dx.trace(lambda x, w: dx.xp.sum(x @ w) + dx.xp.sum(w * w), "f32[8,4]", "f32[4,4]")
    with pytest.raises(UsageError, match=r"a result is no sum over the batch|parts of the batch need one another"):
        microbatch_program(module, ["x"], 4)
