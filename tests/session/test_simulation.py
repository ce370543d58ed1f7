"""`simulate`: what is predicted of a step follows from the program of one device and the text of a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import deepx_graph as dx
from deepx_graph.errors import ParseError
from deepx_graph.planning.cluster import PARTS, ComputeDevice, DeviceCluster, preset, read_cluster
from deepx_graph.runtime.cost import file as cost_file
from deepx_graph.runtime.cost.file import using
from deepx_graph.runtime.cost.model import SHIPPED, product
from deepx_graph.runtime.engines import has_native
from deepx_graph.session.cluster import calibration, simulation
from deepx_graph.session.cluster.simulation import simulate
from deepx_graph.session.plans import planned
from tests.support.cli_runner import Run
from tests.support.sharded_programs import MLP, TRAINING

SLOW = "device: flops=1e9, bandwidth=1e30, memory=1e9\n*: alpha=1.0, beta=1e30, switch\n"
"""A second for each round of messages, and nothing for bytes."""

LOOP_PLAN = 'mesh <["a"=2]>\nx: [{"a"}, {}]\ny: [{"a"}, {}]\n'


@pytest.fixture
def slow(tmp_path: Path) -> str:
    (tmp_path / "slow.txt").write_text(SLOW)
    return str(tmp_path / "slow.txt")


def test_a_step_is_its_arithmetic_and_its_rounds(slow: str) -> None:
    """Megatron's layer: products of 2 * 4 * 8 * 16 operations, twice; all-reduces among 2 devices, and among 4 in 2 rounds."""
    found = simulate(*planned(dx.loads(MLP, "stablehlo")), slow)
    assert [(c.kind, round(c.seconds, 6)) for c in found.collectives] == [("all_reduce", 1.0), ("all_reduce", 2.0)]
    assert found.exposed_seconds == pytest.approx(3.0)
    assert found.step.seconds == pytest.approx(3.0 + found.compute_seconds)
    assert found.compute_seconds == pytest.approx(2 * (2 * 4 * 8 * 16) / 1e9, rel=0.5)
    assert found.memory_bytes == 1e9 and found.peak_bytes > 4 * (4 * 8 + 8 * 16 + 16 * 8)


def test_a_loop_of_an_unknown_number_of_iterations_is_said(slow: str) -> None:
    found = simulate(*planned(dx.loads(TRAINING, "stablehlo"), LOOP_PLAN), slow)
    assert not found.runs_known and "counted once" in "\n".join(found.lines())


def test_a_loop_of_a_known_number_takes_so_many_times(slow: str) -> None:
    five = "%steps = stablehlo.constant dense<5> : tensor<i32>\n  %zero ="
    text = TRAINING.replace(", %steps: tensor<i32>", "").replace("%zero =", five)
    found = simulate(*planned(dx.loads(text, "stablehlo"), LOOP_PLAN), slow)
    assert found.runs_known and found.collectives
    assert all(c.runs == 5 and c.seconds == pytest.approx(5.0) for c in found.collectives)


def test_a_thousand_devices() -> None:
    module = dx.loads(MLP.replace("16x", "1024x").replace('"data"=4', '"data"=512'), "stablehlo")
    found = simulate(*planned(module), "h100")
    assert found.devices == 1024 and {c.algorithm for c in found.collectives} >= {"recursive doubling"}


def test_the_page_and_the_report(run: Run, tmp_path: Path, slow: str) -> None:
    (tmp_path / "m.mlir").write_text(MLP)
    page = tmp_path / "step.html"
    done = run("simulate", str(tmp_path / "m.mlir"), "--cluster", slow, "-o", str(page))
    assert "predicted, not measured" in done.out and "all_reduce.1" in done.out
    assert page.read_text().count("<rect") >= 4
    assert "no cluster 'a10'" in run("simulate", str(tmp_path / "m.mlir"), "--cluster", "a10").err


def test_commands_take_plans_and_meshes_alike(run: Run, tmp_path: Path) -> None:
    """A mesh alone is as the plan that is chosen for it, written to a file; the mesh that the text is for changes nothing."""
    (tmp_path / "m.mlir").write_text(MLP)
    path, plan, axes = str(tmp_path / "m.mlir"), str(tmp_path / "m.plan"), "data=2,model=4"
    assert run("plan", path, "--auto", "--mesh", axes, "--cluster", "h100", "-o", plan).code == 0
    for command in (["simulate", path, "--cluster", "h100"], ["info", path]):
        chosen, given, stated = (run(*command, *more, "--json").json
                                 for more in (["--mesh", axes], ["--plan", plan], ["--plan", "stated"]))
        assert chosen["mesh"] == given["mesh"] != stated["mesh"]
        assert given == run(*command, "--plan", plan, "--mesh", axes, "--json").json
        assert stated == run(*command, "--mesh", "stated", "--json").json
        assert "and not for" in run(*command, "--plan", plan, "--mesh", "data=8").err
        assert f"--plan {plan}" in run(*command, "--mesh", plan).err
    assert run("info", path, "--mesh", "--json").json == run("info", path, "--plan", "stated", "--json").json
    assert run("simulate", path, "--cluster", "h100", "--mesh", axes, "--json").json == run(
        "simulate", plan, "--cluster", "h100", "--json").json


def test_a_plan_that_names_its_program_is_all_that_it_takes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(MLP)
    plan = tmp_path / "m.plan"
    assert run("plan", str(tmp_path / "m.mlir"), "-o", str(plan)).code == 0
    assert plan.read_text().startswith('program "m.mlir"\n')
    both = run("simulate", str(tmp_path / "m.mlir"), "--plan", str(plan), "--cluster", "h100", "--json").json
    assert run("simulate", str(plan), "--cluster", "h100", "--json").json == both
    for command in (("plan",), ("why", "--collective"), ("info", "--mesh"), ("run", "--random-inputs", "--seed", "1")):
        alone = run(command[0], str(plan), *command[1:], "--json")
        assert alone.code == 0, alone.err
        assert alone.json == run(command[0], str(tmp_path / "m.mlir"), *command[1:], "--plan", str(plan), "--json").json
    assert "two plans" in run("run", str(plan), "--plan", "other.plan").err
    plan.write_text("// of m\n" + plan.read_text().partition("\n")[2])
    assert "does not say which program it is for" in run("simulate", str(plan)).err
    plan.write_text('program "../m.mlir"\nmesh <["d"=2]>\n')  # no other folder's
    assert "does not say which program it is for" in run("simulate", str(plan)).err
    (tmp_path / "elsewhere").mkdir()
    run("plan", str(tmp_path / "m.mlir"), "-o", str(tmp_path / "elsewhere" / "m.plan"))
    assert (tmp_path / "elsewhere" / "m.plan").read_text().startswith("mesh")


PARTS_LEFT = {"busy_flops": 0.5, "busy_bandwidth": 0.25, "alone_flops": 0.75, "alone_bandwidth": 0.875, "step": 1e-4}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of processes that measure."""
    points = [(size, size * 1e-9) for size in (1 << 10, 1 << 20)]
    seconds = {kind: {"2": points} for kind in ("all_reduce", "all_gather", "collective_permute")}
    monkeypatch.setattr(calibration, "_measurements", lambda ranks: calibration.RankMeasurements(seconds, PARTS_LEFT))


@pytest.mark.usefixtures("measured")
def test_measurements_are_kept_beside_the_constants(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPX_GRAPH_COSTS", str(tmp_path / "costs"))
    assert run("calibrate", "--network", "--show", "--json").json["path"] is None
    assert run("calibrate", "--network").code == 0
    assert calibration.network_here().collective("all_reduce", ((0, 1),), 1 << 20) == (pytest.approx(1048e-6, rel=1e-3), "measured")
    device = calibration.network_here().device
    assert {name: getattr(device, name) for name in (*PARTS, calibration.STEP)} == PARTS_LEFT
    assert "removed" in run("calibrate", "--network", "--reset").err
    assert calibration.network_in_use().path is None


@pytest.mark.usefixtures("measured")
def test_a_measurement_of_a_busy_machine_says_so(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of its speed was taken from a process that computed alone; then less than a thirtieth is."""
    monkeypatch.setenv("DEEPX_GRAPH_COSTS", str(tmp_path / "costs"))
    assert "the machine was busy: 75%" in run("calibrate", "--network").err
    assert "the machine was busy: 75%" in run("calibrate", "--network", "--show").err
    monkeypatch.setitem(PARTS_LEFT, "alone_flops", 0.97)
    assert "was busy" not in run("calibrate", "--network").err


@pytest.mark.usefixtures("measured")
def test_a_network_in_the_file_of_the_constants_leaves_them(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One FILE names both, stored in either order, and DEEPX_GRAPH_COSTS=FILE finds both."""
    constants = replace(SHIPPED, product_gflops=12345.0)
    file = tmp_path / "new" / "costs"
    for order in (("network", "constants"), ("constants", "network")):
        for what in order:
            if what == "constants":
                cost_file.store(constants, file)
            else:
                assert run("calibrate", "--network", "-o", str(file)).code == 0
    monkeypatch.setenv("DEEPX_GRAPH_COSTS", str(file))
    assert cost_file.read(cost_file.location()).constants == constants
    assert calibration.network_in_use().path == Path(f"{file}.network")


def test_processes_beside_each_other_are_slower_by_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """By arithmetic alone, then by memory alone: what is left to one that is alone, and to each of as many as there are cores."""
    monkeypatch.setattr(simulation, "available_cores", lambda: 4)
    device = ComputeDevice(1e9, 1e9, 1e9, busy_flops=0.5, busy_bandwidth=0.25, alone_flops=0.9)
    cluster = DeviceCluster(device, preset("cpu-10g").levels)
    with using(replace(SHIPPED, product_gflops=10.0, memory_gbs=8.0, memory_all_gbs=8.0, cache_bytes=1.0, product_call_ns=1e-6)):
        for ranks, rate, bandwidth in ((1, 9.0, 8.0), (4, 5.0, 2.0), (2, 10 * (0.9 - 0.4 / 3), 8 * (1 - 0.75 / 3)), (8, 5.0, 2.0)):
            constants = simulation.busy_constants(cluster, ranks)
            assert product(constants, 1000, 0, 4, 1).nanoseconds == pytest.approx(1000 / rate, rel=1e-3)
            assert product(constants, 0, 1000, 4, 1).nanoseconds == pytest.approx(1000 / bandwidth, rel=1e-3)


def test_a_step_beside_others_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """With half of each speed left, on as many processes as there are cores, it takes twice the time."""
    monkeypatch.setattr(simulation, "available_cores", lambda: 8)
    program = planned(dx.loads(MLP, "stablehlo"))
    times = []
    for part in (1.0, 0.5):
        device = ComputeDevice(1e9, 1e9, 1e9, busy_flops=part, busy_bandwidth=part)
        monkeypatch.setattr(simulation, "network_here", lambda d=device: DeviceCluster(d, preset("cpu-10g").levels))
        times.append(simulate(*program, engine="numpy").compute_seconds)
    assert times[1] == pytest.approx(2 * times[0])


def test_a_product_with_an_epilogue_takes_longer_alone_where_less_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its kernel is made while the program is brought to the engine's form."""
    text = """func.func @main(%x: tensor<512x128xf32>, %w: tensor<128x512xf32>) -> tensor<512x512xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<512x128xf32>, tensor<128x512xf32>) -> tensor<512x512xf32>
  %1 = stablehlo.tanh %0 : tensor<512x512xf32>
  return %1 : tensor<512x512xf32>
}"""
    times = []
    for part in (1.0, 0.5):
        device = ComputeDevice(1e9, 1e9, 1e9, alone_flops=part, alone_bandwidth=part)
        monkeypatch.setattr(simulation, "network_here", lambda d=device: DeviceCluster(d, preset("cpu-10g").levels))
        program = planned(dx.loads(text, "stablehlo"), 'mesh <["d"=1]>\nx: [{}, {}]\n')
        times.append(simulate(*program, threads=1).step.seconds)
    assert times[1] == pytest.approx(2 * times[0], rel=1e-3)


def test_parts_that_are_left_are_read_as_written() -> None:
    text = str(DeviceCluster(ComputeDevice(4e9, 8e9, 1e9, 0.0, 0.5, 0.25), preset("cpu-10g").levels))
    device = read_cluster(text).device
    assert device.seconds(2e9, 0) == 1.0 and device.seconds(0, 2e9) == 1.0
    for part in ("0", "1.5", "-1", "nan"):
        with pytest.raises(ParseError, match="not a line of a cluster"):
            read_cluster(f"device: flops=1, bandwidth=1, memory=1, busy_flops={part}\n*: alpha=1, beta=1\n")


def test_a_larger_cluster_is_not_a_faster_one() -> None:
    """More devices in a group take no less for the same bytes."""
    for name in ("a100", "h100", "tpu-v4", "tpu-v5e", "cpu-10g"):
        times = [preset(name).collective("all_reduce", (tuple(range(n)),), 1e8)[0] for n in (2, 8, 64, 512, 4096)]
        assert times == sorted(times), name


def test_a_step_that_meets_others_is_called_and_calls_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """What calls cost is part of a step on two devices, and of none where all is one kernel."""
    program = dx.loads(MLP, "stablehlo")
    found: dict[tuple[str, float, float], float] = {}
    for step, call in ((0.0, 1.0), (1e-3, 1.0), (0.0, 1e6)):
        device = ComputeDevice(1e9, 1e9, 1e9, step=step)
        monkeypatch.setattr(simulation, "network_here", lambda d=device: DeviceCluster(d, preset("cpu-10g").levels))
        for devices in ("1", "2"):
            with using(replace(SHIPPED, native_call_ns=call, product_call_ns=call, eval_call_ns=call)):
                module, plan = planned(program, None if devices == "2" else 'mesh <["data"=1]>\nx: [{}, {}]\n')
                found[devices, step, call] = simulate(module, plan, threads=1).step.seconds
    assert found["2", 1e-3, 1.0] == pytest.approx(found["2", 0.0, 1.0] + 1e-3)
    assert found["2", 0.0, 1e6] > found["2", 0.0, 1.0] + 1e-3
    assert found["1", 1e-3, 1.0] == found["1", 0.0, 1.0]
    assert not has_native() or found["1", 0.0, 1e6] == pytest.approx(found["1", 0.0, 1.0], rel=0.01)
