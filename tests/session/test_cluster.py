"""Programs on clusters: training loops in segments with checkpoints, processes of MPI that are killed, gangs and batches on Dask.

The expected values are those of the program that is not split and not cut. MPI and Dask run on processes of this machine where the
extras are installed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.blas import available_cores
from deepx_graph.errors import RunError, UsageError
from deepx_graph.runtime.transport.dask import dask_client
from deepx_graph.session.cluster.launch import environment, find_mpiexec
from deepx_graph.session.cluster.sharded import Sharded
from deepx_graph.session.cluster.training import Saving, check_same, training_program
from deepx_graph.session.plans import planned
from tests.support.cli_runner import Run
from tests.support.sharded_programs import LOOP, TRAINING, inputs

needs_mpi = pytest.mark.skipif(find_mpiexec() is None or importlib.util.find_spec("mpi4py") is None,
                               reason="the extra 'mpi' is not installed: mpi4py and mpiexec")
needs_dask = pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="the extra 'dask' is not installed")

PLAN = 'mesh <["a"=%d, "b"=%d]>\nx: [{"a"}, {"b"}]\n'
STEPS = 23


def trained() -> tuple[dx.Module, list[np.ndarray], tuple[np.ndarray, ...]]:
    """The program, its inputs, and what it gives as a whole."""
    module = dx.loads(TRAINING, "stablehlo")
    arrays = inputs(module)
    arrays[3] = np.int32(STEPS)
    return module, arrays, dx.compile(module, engine="numpy", optimize=False)(*arrays)


def assert_close(found: tuple[np.ndarray, ...], want: tuple[np.ndarray, ...]) -> None:
    assert len(found) == len(want)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("every", [1, 7, 23, 100])
def test_in_segments_a_loop_gives_what_it_gives_whole(tmp_path: Path, every: int) -> None:
    module, arrays, want = trained()
    inlined, plan = planned(module, PLAN % (2, 2))
    assert_close(Sharded(inlined, plan, saving=Saving(tmp_path, every), engine="numpy")(*arrays), want)
    assert len(list(tmp_path.glob("*/manifest.json"))) == min(2, STEPS // every)


def test_another_mesh_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    """Each mesh does the last iterations again, from what the mesh before it has saved."""
    module, arrays, want = trained()
    for mesh in ((1, 1), (2, 1), (2, 2), (3, 1), (1, 3), (4, 2), (1, 4)):  # those of 3 split unevenly
        inlined, plan = planned(module, PLAN % mesh)
        assert_close(Sharded(inlined, plan, saving=Saving(tmp_path, 5), engine="numpy")(*arrays), want)
        newest = max(tmp_path.iterdir())
        assert json.loads((newest / "manifest.json").read_bytes())["iteration"] == 20
        (newest / "manifest.json").unlink()  # as if it had died before that


def test_checkpoints_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    module, arrays, _ = trained()
    inlined, plan = planned(module, PLAN % (2, 1))
    Sharded(inlined, plan, saving=Saving(tmp_path, 20), engine="numpy")(*arrays)
    other, other_plan = planned(dx.loads(TRAINING.replace("0.01", "0.02"), "stablehlo"), PLAN % (2, 1))
    with pytest.raises(UsageError, match="is of another program"):
        Sharded(other, other_plan, saving=Saving(tmp_path, 20), engine="numpy")(*arrays)
    names = [p.name for p in module.entry.params]
    for k in range(len(arrays)):
        changed = [a + a.dtype.type(j == k) for j, a in enumerate(arrays)]
        with pytest.raises(UsageError, match=f"is of another input: {names[k]}$|is of another input: {names[k]}\n"):
            Sharded(inlined, plan, saving=Saving(tmp_path, 20), engine="numpy")(*changed)
    with pytest.raises(UsageError, match="is of another seed: 0, and not 1"):
        Sharded(inlined, plan, saving=Saving(tmp_path, 20), engine="numpy", seed=1)(*arrays)
    (manifest,) = tmp_path.glob("*/manifest.json")
    said = manifest.read_text()
    for damaged, message in ((said.replace('"version": 3', '"version": 2'), "another version"), (said[:-9], "damaged"),
                             (said.replace('"inputs": {', '"inputs": 1, "old": {'), "damaged"), ("[]", "damaged")):
        manifest.write_text(damaged)
        with pytest.raises((UsageError, RunError), match=message):
            Sharded(inlined, plan, saving=Saving(tmp_path, 20), engine="numpy")(*arrays)
    manifest.write_text(said)
    (part,) = tmp_path.glob("*/0.npz")
    whole = part.read_bytes()
    np.savez(part, **{k: v + 1 for k, v in np.load(part).items()})  # as whole as the right one
    for data in (part.read_bytes(), whole[:-40], whole[:300] + bytes([whole[300] ^ 1]) + whole[301:]):
        part.write_bytes(data)
        with pytest.raises(RunError, match="damaged"):
            Sharded(inlined, plan, saving=Saving(tmp_path, 20), engine="numpy")(*arrays)
    inside, inside_plan = planned(dx.loads(LOOP, "stablehlo"), PLAN % (2, 1))  # its loop is in a branch
    with pytest.raises(UsageError, match="only where a branch needs"):
        Sharded(inside, inside_plan, saving=Saving(tmp_path, 20))


class Beside:
    """A transport of device 0 beside another one, which has made its own of what this one gathers."""

    deterministic, device = True, 0

    def __init__(self, other: Callable[[list[np.ndarray]], list[np.ndarray]]) -> None:
        self.other = other

    def gather(self, arrays: list[np.ndarray]) -> list[list[np.ndarray]]:
        return [arrays, self.other(arrays)]


def test_devices_that_run_something_else_are_told_of() -> None:
    """Programs with the same collectives would meet, and give wrong results."""
    inlined, plan = planned(trained()[0], PLAN % (2, 1))
    other = planned(dx.loads(TRAINING.replace("0.01", "0.02"), "stablehlo"), PLAN % (2, 1))
    halves = planned(trained()[0], PLAN % (1, 2))
    said: list[list[np.ndarray]] = []
    recorder = Beside(lambda arrays: said.append(arrays) or arrays)
    for program, seed in (((inlined, plan), 0), (other, 0), (halves, 0), ((inlined, plan), 1)):
        check_same(recorder, training_program(*program), Saving(Path(), 4), seed)
    check_same(recorder, training_program(inlined, plan), Saving(Path(), 5), 0)
    expected = ["another program than", "another program, plan than", "another seed than", "another --checkpoint-every than"]
    for theirs, what in zip(said[1:], expected, strict=True):
        with pytest.raises(UsageError, match=f"device 1 has {what} device 0"):
            check_same(Beside(lambda _, theirs=theirs: theirs), training_program(inlined, plan), Saving(Path(), 4), 0)


def test_devices_that_see_other_checkpoints_are_told_of(tmp_path: Path) -> None:
    inlined, plan = planned(trained()[0], PLAN % (2, 1))
    program = training_program(inlined, plan)
    said = r"(?s)the devices see different checkpoints.*device 0 sees none.*device 1 sees that of iteration 7"
    with pytest.raises(RunError, match=said):
        program.run([[]], Saving(tmp_path, 4), [0], Beside(lambda _: [np.array(7)]), engine="numpy")


KILLED = """
import os, signal, sys
from deepx_graph.runtime.transport.mpi import MpiTransport
from deepx_graph.cli.main import main
rank, meeting, seen = int(sys.argv.pop(1)), int(sys.argv.pop(1)), 0
agreed = MpiTransport._agreed
def counted(self, place):
    global seen
    seen += 1
    if self.attempt == 0 and self.device == rank and seen == meeting:
        os.kill(os.getpid(), signal.SIGKILL)
    return agreed(self, place)
MpiTransport._agreed = counted
sys.exit(main())
"""
"""The command line in a rank that kills itself when it comes to a meeting, in the first attempt."""

ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
               "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_mpi_yield_when_idle": "1"}


def _killed(folder: Path, seed: int, trial: int) -> None:
    """A run with a rank killed at a random meeting ends with an error; the next one goes on from its checkpoint and is right."""
    module, arrays, want = trained()
    (folder / "m.mlir").write_text(TRAINING)
    (folder / "m.plan").write_text(PLAN % (2, 1))
    (folder / "killed.py").write_text(KILLED)
    np.savez(folder / "in.npz", **{p.name: a for p, a in zip(module.entry.params, arrays, strict=True)})
    rng, saved = random.Random(seed), folder / f"saved{trial}"
    run = ["run", str(folder / "m.mlir"), "--plan", str(folder / "m.plan"), "--inputs", str(folder / "in.npz"), "--engine", "numpy",
           "--on", "mpi", "--checkpoint", str(saved), "--checkpoint-every", "4", "-o", str(folder / "out.npz")]
    mpiexec = find_mpiexec()
    assert mpiexec is not None
    for attempt in range(2):
        when = [str(rng.randrange(2)), str(rng.randint(2, 2 * STEPS))]
        start = [mpiexec, "-n", "2", sys.executable, str(folder / "killed.py"), *when, *run]
        env = {**os.environ, **ENVIRONMENT, "DEEPX_GRAPH_ATTEMPT": str(attempt)}
        done = subprocess.run(start, capture_output=True, text=True, timeout=120, env=env, check=False)
        assert (done.returncode != 0) == (attempt == 0), done.stderr
    found = np.load(folder / "out.npz")
    assert_close(tuple(found[name] for name in found.files), want)


@needs_mpi
def test_a_killed_rank_ends_all_and_a_new_run_goes_on(tmp_path: Path) -> None:
    _killed(tmp_path, 1, 0)


@needs_mpi
@pytest.mark.conformance
def test_ranks_killed_fifty_times(tmp_path: Path) -> None:
    for trial in range(50):
        _killed(tmp_path, trial, trial)


@needs_mpi
def test_processes_may_use_all_cores() -> None:
    mpiexec = find_mpiexec()
    assert mpiexec is not None
    said = "import os; from deepx_graph.blas import available_cores; print(available_cores())"
    done = subprocess.run([mpiexec, "-n", "2", sys.executable, "-c", said], capture_output=True, text=True, timeout=120,
                          env={**environment(2), **ENVIRONMENT}, check=False)
    assert done.stdout.split() == [str(available_cores())] * 2, done.stderr


@needs_mpi
def test_mpiexec_is_started_where_nobody_has(tmp_path: Path) -> None:
    module, arrays, want = trained()
    (tmp_path / "m.mlir").write_text(TRAINING)
    (tmp_path / "m.plan").write_text(PLAN % (2, 1))
    np.savez(tmp_path / "in.npz", **{p.name: a for p, a in zip(module.entry.params, arrays, strict=True)})
    run = ["run", str(tmp_path / "m.mlir"), "--plan", str(tmp_path / "m.plan"), "--inputs", str(tmp_path / "in.npz"), "--on", "mpi",
           "--engine", "numpy", "-o", str(tmp_path / "out.npz")]
    done = subprocess.run([sys.executable, "-m", "deepx_graph", *run], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **ENVIRONMENT}, check=False)
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "out.npz")
    assert_close(tuple(found[name] for name in found.files), want)


# --- Dask


@pytest.fixture(scope="module")
def client() -> Iterator[object]:
    """A client of a cluster of two worker processes, which are started again when they die.

    Dask's cluster on one machine looks some seconds after a loss whether the worker is there, and closes for ever what starts it
    again if it is not: also one that came back and has been killed once more meanwhile. It gives no worker up here.
    """
    import dask
    from distributed import Client, LocalCluster

    with (dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
          LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
          Client(cluster) as client):
        yield client


def kill_one(client, chosen: int = 0) -> None:
    pids = client.run(os.getpid)
    os.kill(list(pids.values())[chosen % len(pids)], signal.SIGKILL)


@needs_dask
def test_batches_are_each_done_once_though_workers_die(client) -> None:
    f = dx.compile(dx.trace(lambda x: np.tanh(x) * 2, "f32[8]"), engine="numpy")
    found = []
    for k, (y,) in enumerate(f.map(({"x": np.full(8, b, np.float32)} for b in range(200)), client)):
        found.append(y)
        if k == 60:
            kill_one(client, k)
    assert len(found) == 200
    for b, y in enumerate(found):
        np.testing.assert_array_equal(y, f(np.full(8, b, np.float32))[0])


@needs_dask
def test_batches_wait_so_long_for_a_worker_to_come() -> None:
    """A cluster without any, as when all have died and none comes back, or one that is itself gone."""
    from distributed import Client, LocalCluster

    f = dx.compile(dx.trace(lambda x: np.tanh(x) * 2, "f32[8]"), engine="numpy")
    batch = np.zeros(8, np.float32)
    with LocalCluster(n_workers=0, dashboard_address=None, silence_logs=50) as cluster, Client(cluster) as client:
        with pytest.raises(RunError, match=r"batch 0 waits for a worker, .* has had none for 1 s") as caught:
            list(f.map([batch], client, patience=1))
        assert client.scheduler.address in str(caught.value.diagnostics[0].hint)
        given = f.map(iter([batch] * 3), client)
        cluster.scale(1)
        np.testing.assert_array_equal(next(given)[0], f(batch)[0])
        cluster.close()
        with pytest.raises(RunError, match=r"the scheduler at .* is gone"):
            list(given)


@needs_dask
def test_a_gang_starts_again_when_a_worker_dies(client, tmp_path: Path) -> None:
    from deepx_graph.session.cluster.gangs import OverDask

    module, arrays, _ = trained()
    arrays[3] = np.int32(300)
    want = dx.compile(module, engine="numpy", optimize=False)(*arrays)
    inlined, plan = planned(module, PLAN % (2, 1))
    client.wait_for_workers(2)

    def kill_later() -> None:
        while not list(tmp_path.glob("*/manifest.json")):
            time.sleep(0.01)
        kill_one(client)

    thread = threading.Thread(target=kill_later)
    thread.start()
    assert_close(OverDask(inlined, plan, client, engine="numpy", patience=120, saving=Saving(tmp_path, 10))(*arrays), want)
    thread.join()


@needs_dask
def test_the_command_and_python_run_on_dask(run: Run, tmp_path: Path, client) -> None:
    """The command line, and `dx.distribute`, over the workers of a cluster by the address of its scheduler."""
    module, arrays, want = trained()
    (tmp_path / "m.mlir").write_text(TRAINING)
    (tmp_path / "m.plan").write_text(PLAN % (2, 1))
    np.savez(tmp_path / "in.npz", **{p.name: a for p, a in zip(module.entry.params, arrays, strict=True)})
    place = f"dask:{client.scheduler.address}"
    client.wait_for_workers(2)
    command = ["run", str(tmp_path / "m.mlir"), "--plan", str(tmp_path / "m.plan"), "--inputs", str(tmp_path / "in.npz"),
               "--engine", "numpy", "--on", place, "-o", str(tmp_path / "out.npz")]
    done = subprocess.run([sys.executable, "-m", "deepx_graph", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr  # in a process that has imported no more than the command line does
    found = np.load(tmp_path / "out.npz")
    assert_close(tuple(found[name] for name in found.files), want)
    assert_close(dx.distribute(module, plan=PLAN % (2, 1), on=place, engine="numpy")(*arrays), want)
    assert run("run", str(tmp_path / "m.mlir"), "--plan", "stated", "--on", "dask:").code == 2


@needs_dask
def test_devices_that_do_not_meet_on_dask_name_both_places() -> None:
    """And a gang does not start where there are too few workers."""
    from distributed import Client, LocalCluster

    from deepx_graph.ir.collective import Grid
    from deepx_graph.runtime.transport.gang import run_gang

    def alone(transport) -> list[np.ndarray]:
        from deepx_graph.ops import spmd_all_reduce
        from deepx_graph.runtime.compile import compile

        text = spmd_all_reduce.example.replace("channel_id = 0", "channel_id = 1").replace(
            "replica_groups = []", "replica_groups = [[0, 1]], channel_id = 1, use_global_device_ids = true")
        size = 4 + transport.device
        f = compile(dx.loads(text.replace("f32[4]", f"f32[{size}]"), "sea"), engine="numpy", transport=transport)
        return list(f(np.ones(size, np.float32)))

    with (LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", silence_logs=50) as cluster,
          Client(cluster) as client):
        with pytest.raises(RunError, match="do not meet in the same collective") as e:
            run_gang(client, Grid(1, 2), alone, [(), ()], patience=20)
        assert all(f"device {d} is in spmd_all_reduce" in str(e.value) for d in (0, 1))
        with pytest.raises(UsageError, match="3 free workers, one for each device, and the cluster has 2"):
            run_gang(client, Grid(1, 3), alone, [(), (), ()], patience=0.2)


def test_without_a_cluster_what_is_missing_is_said() -> None:
    f = dx.compile(dx.trace(lambda x: x * 2, "f32[2]"), engine="numpy")
    with pytest.raises(UsageError, match=r"Dask is not available|no scheduler at"), dask_client("tcp://127.0.0.1:9", timeout=0.5):
        pass
    with pytest.raises(UsageError, match="cannot be run on 'elsewhere'"):
        list(f.map([np.ones(2, np.float32)], "elsewhere"))
    assert len(list(f.map([np.ones(2, np.float32)] * 3))) == 3
