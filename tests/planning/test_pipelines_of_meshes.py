"""Pipelines whose places are meshes: gradients are those of the whole program, and plans that are found beside those by hand."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import pairwise

import pytest

import deepx_graph as dx
from deepx_graph.errors import UsageError
from deepx_graph.ir import Module
from deepx_graph.planning.cluster import preset, read_cluster
from deepx_graph.planning.schedules import pipeline_schedule
from deepx_graph.planning.stages import balanced_stages, stages
from deepx_graph.session.cluster import pipeline_search, stage_programs
from deepx_graph.session.cluster.pipeline_plan import PipelinePlan, decided_pipeline, pipeline_plan, planned_pipeline
from deepx_graph.session.cluster.pipeline_search import PipelineSearch, PipelineWay, searched_pipeline
from deepx_graph.session.cluster.pipelined import Pipelined
from deepx_graph.sharding.mesh import Mesh
from deepx_graph.sharding.plan import Plan, read_plan
from tests.support.cli_runner import Run
from tests.support.sharded_programs import SKIP, check_pipeline, layers, megatron

H100 = preset("h100")
FOUR = layers(8, 6, 10, 4)
FSDP = 'mesh <["data"=2]>\nx: [{"data"}, {}]\n' + "".join(f'w{k}: [{{"data"}}, {{}}]\nv{k}: [{{}}, {{"data"}}]\n' for k in range(4))
UNEVEN = 'mesh <["model"=3]>\n' + "".join(f'w{k}: [{{}}, {{"model"}}]\nv{k}: [{{"model"}}, {{}}]\n' for k in range(4))
SQUARES = """mesh <["rows"=2, "columns"=2]>
x: [{"rows"}, {"columns"}]
w: [{"columns"}, {}]
u: [{}, {"rows"}]
t: [{}, {"columns"}]
"""


def check(text: str, batch: list[str], schedule: str, count: int, chunks: int, mesh: Mesh | None, said: str | None) -> Pipelined:
    """Gradients of a pipeline of two places are those of the whole program."""
    module = dx.loads(text, "stablehlo")
    plan = None if said is None else read_plan(said, module.entry)
    pipelined = Pipelined(module, batch, pipeline_schedule(schedule, 2, count, chunks), H100, mesh=mesh, said=plan, engine="numpy")
    check_pipeline(pipelined, module, batch)
    for a, b in pairwise(pipelined.stages):
        assert a.program.forward.results == b.program.forward.params[len(b.names):]
    return pipelined


@pytest.mark.parametrize(("schedule", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2)])
@pytest.mark.parametrize(("said", "copies", "devices"), [
    (megatron(4), 2, 2), (FSDP, 1, 2), (UNEVEN, 1, 3), ('mesh <["a"=2, "b"=2]>\nx: [{"a", "b"}, {}]\n', 4, 1),
], ids=["Megatron", "FSDP", "uneven", "copies"])  # fmt: skip
def test_gradients_are_those_of_the_whole_program(schedule: str, chunks: int, said: str, copies: int, devices: int) -> None:
    found = check(FOUR, ["x"], schedule, 2, chunks, None, said).plan
    assert (found.copies, found.mesh.count) == (copies, devices)


def test_a_value_that_skips_a_stage_is_sent_in_parts() -> None:
    """Neither axis carries copies, as each splits what is no row of the batch."""
    found = check(SKIP, ["x", "t"], "1f1b", 2, 1, None, SQUARES).plan
    assert found.copies == 1 and found.mesh.count == 4


@pytest.mark.parametrize("mesh", [Mesh((("data", 2), ("model", 2))), Mesh((("model", 3),))], ids=["four", "three"])
@pytest.mark.parametrize(("text", "batch"), [(FOUR, ["x"]), (SKIP, ["x", "t"])], ids=["layers", "skip"])
def test_a_chosen_plan_gives_the_same(text: str, batch: list[str], mesh: Mesh) -> None:
    check(text, batch, "1f1b", 2, 1, mesh, None)


def test_a_chosen_plan_is_at_most_that_by_hand() -> None:
    """Of wide layers copies and columns, as in Megatron-LM, and never slower than that by the simulator."""
    module = dx.loads(layers(4096, 8192, 32768, 4), "stablehlo")
    schedule, mesh = pipeline_schedule("1f1b", 2, 4, 1), Mesh((("data", 2), ("model", 8)))
    found = pipeline_plan(module, ["x"], schedule, H100, mesh)
    by_hand = pipeline_plan(module, ["x"], schedule, H100, said=read_plan(megatron(4, model=8), module.entry))
    assert found.simulated.seconds <= by_hand.simulated.seconds
    assert found.mesh.count > 1 and found.fits


@pytest.mark.parametrize(("mesh", "said"), [(None, None), (Mesh((("data", 2), ("model", 3))), None), (None, FSDP)],
                         ids=["devices", "chosen", "said"])
def test_another_process_makes_the_same_of_what_is_decided(monkeypatch: pytest.MonkeyPatch, mesh: Mesh | None,
                                                            said: str | None) -> None:
    """Of the program as it reads it, without a search, and on a machine that has measured another network."""
    text, schedule = layers(64, 256, 1024, 4), pipeline_schedule("1f1b", 2, 4, 1)

    def given() -> tuple[Module, Plan | None]:
        module = dx.loads(text, "stablehlo")
        return module, None if said is None else read_plan(said, module.entry)

    module, plan = given()
    found = pipeline_plan(module, ["x"], schedule, H100, mesh, plan)
    decisions = pickle.loads(pickle.dumps(found.decisions))
    monkeypatch.setattr(stage_programs, "automatic_plan", None)
    module, plan = given()
    again = decided_pipeline(module, ["x"], schedule, preset("cpu-10g"), mesh, plan, decisions)
    assert [*again.lines()] == [*found.lines()]
    for a, b in zip(again.stages, found.stages, strict=True):
        assert a.program.backward is not None and b.program.backward is not None
        for one, other in ((a.program.forward, b.program.forward), (a.program.backward, b.program.backward)):
            assert one.module.entry == other.module.entry


def test_equal_stages_have_one_program() -> None:
    module = dx.loads(layers(64, 256, 512, 8), "stablehlo")
    found = pipeline_plan(module, ["x"], pipeline_schedule("1f1b", 8, 4, 1), H100, said=read_plan(megatron(8), module.entry))
    programs = [stage.program for stage in found.stages]
    assert len({id(p) for p in programs[1:-1]}) == 1


def test_cuts_follow_what_stages_are_found_to_take() -> None:
    """Of eight equal layers, where the half with `w0` is found to take three times as long, that gets shorter."""
    function = dx.loads(layers(4096, 4096, 16384, 8), "stablehlo").entry
    def found(cut) -> list[float]:
        return [sum((3.0 if k < 9 else 1.0) for k in s.params) for s in cut]

    even, moved = stages(function, 2, H100), balanced_stages(function, 2, H100, found)
    assert max(found(moved)) < max(found(even))


def test_the_command(run: Run, tmp_path) -> None:
    path = tmp_path / "m.mlir"
    path.write_text(layers(64, 256, 1024, 8))
    given = ("--stages", "4", "--batch", "x", "--microbatches", "4", "--cluster", "h100")
    (tmp_path / "m.plan").write_text(megatron(8))
    done = run("simulate", str(path), *given, "--plan", str(tmp_path / "m.plan"))
    assert "16 devices" in done.out and "2 copies over data" in done.out and "gradients of place 3" in done.out
    assert run("simulate", str(path), *given, "--mesh", "data=2,model=2", "--json").json["devices"] == 16
    other = run("simulate", str(path), *given, "--plan", str(tmp_path / "m.plan"), "--mesh", "data=4")
    assert other.code == 2 and "and not for" in other.err


def test_the_best_of_all_ways_is_found(run: Run, tmp_path) -> None:
    """Of wide layers on four devices, of a small batch: as fast as the pipeline that is planned in full for any of the ways."""
    path, text = tmp_path / "m.mlir", layers(32, 2048, 8192, 4)
    path.write_text(text)
    module = dx.loads(text, "stablehlo")
    found = searched_pipeline(module, ["x"], 4, "1f1b", 4, H100)
    ways = [PipelineWay(*w) for w in ((1, 1, 4), (1, 2, 2), (1, 4, 1), (2, 1, 2), (2, 2, 1), (4, 1, 1))]
    assert found.ways == len(ways) and found.estimates.keys() <= set(ways)
    steps = [planned_pipeline(module, ["x"], pipeline_schedule("1f1b", w.places, 4, 1), H100, w.mesh, 1).simulated.seconds
             for w in ways]
    assert found.plan.simulated.seconds <= 1.05 * min(steps)
    done = run("simulate", str(path), "--devices", "4", "--batch", "x", "--microbatches", "4", "--cluster", "h100")
    assert f"found: {found.way}" in done.out and "4 devices" in done.out
    uneven = run("simulate", str(path), "--devices", "4", "--batch", "x", "--microbatches", "7", "--cluster", "h100")
    assert uneven.code == 2 and "cannot be cut into 7 parts" in uneven.err
    for option in ("--stages", "--chunks"):
        assert f"{option} beside --devices" in run("simulate", str(path), "--devices", "4", "--batch", "x", option, "2").err


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("places", [1, 2, 4, 8])
def test_no_step_is_below_its_bounds(schedule: str, places: int) -> None:
    """Where starts of kernels cost nothing; and none of its devices holds less than the estimate says."""
    free = read_cluster(str(replace(H100, device=replace(H100.device, launch=0.0))))
    module = dx.loads(layers(512, 256, 1024, 8), "stablehlo")
    search = PipelineSearch(module, ["x"], 8, schedule, 4, free)
    found = planned_pipeline(module, ["x"], search.schedule(places), free, Mesh((("data", 8 // places), ("model", 1))), 1)
    assert search.least_seconds(places) <= found.simulated.seconds
    assert search.estimate(PipelineWay(places, 8 // places, 1)).device_bytes <= found.peak_bytes
    assert search.least_seconds(1) == pytest.approx(search.alone * 4 / 8)


SMALL = read_cluster("device: flops=400e12, bandwidth=3e12, memory=200e6\n*: alpha=1e-6, beta=400e9, switch\n")


def test_layers_that_do_not_fit_into_a_device_are_split() -> None:
    """A layer has 134 MB of weights, and as much of gradients: a stage of its own does not make it fit."""
    module = dx.loads(layers(256, 2048, 8192, 2), "stablehlo")
    found = searched_pipeline(module, ["x"], 8, "1f1b", 8, SMALL)
    assert found.way.width > 1 and found.plan.fits and found.plan.mesh.count == found.way.width
    whole = [e for w, e in found.estimates.items() if w.width == 1]
    assert whole and all(e.device_bytes > SMALL.device.memory for e in whole)
    assert any("does not fit" in line for line in found.lines())


def test_where_a_batch_is_smaller_than_the_devices_stages_are_split() -> None:
    """Four rows in two microbatches are two copies at most: the devices left share each row."""
    found = searched_pipeline(dx.loads(layers(4, 4096, 16384, 1), "stablehlo"), ["x"], 8, "1f1b", 2, H100)
    assert (found.way.places, found.way.copies * found.way.width) == (1, 8) and found.way.copies <= 2


def test_the_next_way_is_taken_where_the_best_cannot_be_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    module = dx.loads(layers(64, 256, 1024, 4), "stablehlo")
    first = searched_pipeline(module, ["x"], 4, "1f1b", 4, H100)
    refused = [*first.estimates][:2]

    def planned(module, batch, schedule, cluster, mesh, copied) -> PipelinePlan:
        if any((len(schedule.devices), mesh) == (w.places, w.mesh) for w in refused):
            raise UsageError("no such plan")
        return planned_pipeline(module, batch, schedule, cluster, mesh, copied)

    monkeypatch.setattr(pipeline_search, "planned_pipeline", planned)
    other = searched_pipeline(module, ["x"], 4, "1f1b", 4, H100)
    assert other.way in [*first.estimates][2:]


def test_what_does_not_fit_is_refused() -> None:
    module = dx.loads(FOUR, "stablehlo")
    with pytest.raises(UsageError, match="cannot be cut into 16 parts"):
        pipeline_plan(module, ["x"], pipeline_schedule("1f1b", 2, 8, 1), H100, said=read_plan(megatron(4), module.entry))
