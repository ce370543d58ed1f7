"""Pipelines over MPI: bits of lock step, clean errors for what does not come, and the same from Python and the command line.

Needs mpi4py and mpiexec, of the extra `mpi`.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.passes.autodiff.grad import grad
from tests.support.cli_runner import Run
from tests.support.mpi_ranks import needs_mpi, ranks
from tests.support.sharded_programs import SKIP, inputs, layers, megatron

CASES = [("gpipe", 1, layers(8, 6, 10, 4), ["x"]), ("1f1b", 1, layers(8, 6, 10, 5), ["x"]), ("1f1b", 1, SKIP, ["x", "t"]),
         ("interleaved", 2, layers(8, 6, 10, 8), ["x"])]

RANK = """
import pickle, sys
import deepx_graph as dx
found = []
for schedule, chunks, text, batch, arrays, engine in pickle.load(open(sys.argv[1], "rb")):
    f = dx.pipeline(dx.loads(text, "stablehlo"), int(sys.argv[3]), batch, microbatches=4, schedule=schedule, chunks=chunks,
                    on="mpi", engine=engine, deterministic=True, patience=60)
    found += [f(*arrays), f(*arrays)]
if found[0][0]:
    pickle.dump(found, open(sys.argv[2], "wb"))
else:
    assert found == [([], {})] * len(found)
"""
"""All programs in one rank, each twice."""


@needs_mpi
@pytest.mark.parametrize("devices", [2, pytest.param(4, marks=pytest.mark.conformance)])
def test_ranks_give_the_bits_of_lock_step(tmp_path: Path, devices: int) -> None:
    cases = [(*c, inputs(dx.loads(c[2], "stablehlo")), engine) for c in CASES for engine in ("numpy", "auto")
             if devices == 2 or c[2] != SKIP]
    (tmp_path / "cases").write_bytes(pickle.dumps(cases))
    (tmp_path / "rank.py").write_text(RANK)
    done = ranks(devices, str(tmp_path / "rank.py"), str(tmp_path / "cases"), str(tmp_path / "found"), str(devices))
    assert done.returncode == 0, done.stderr
    found = pickle.loads((tmp_path / "found").read_bytes())
    for k, (schedule, chunks, text, batch, arrays, engine) in enumerate(cases):
        here = dx.pipeline(dx.loads(text, "stablehlo"), devices, batch, microbatches=4, schedule=schedule, chunks=chunks,
                           engine=engine, deterministic=True)
        results, gradients = here(*arrays)
        for again in found[2 * k: 2 * k + 2]:
            assert sorted(again[1]) == sorted(gradients)
            for got, want in zip([*again[0], *again[1].values()], [*results, *(gradients[n] for n in again[1])], strict=True):
                np.testing.assert_array_equal(got, want)


MESHES = """
import pickle, sys
import deepx_graph as dx
found = []
for text, batch, arrays, options in pickle.load(open(sys.argv[1], "rb")):
    f = dx.pipeline(dx.loads(text, "stablehlo"), 2, batch, microbatches=2, on="mpi", deterministic=True, patience=60, **options)
    found += [f(*arrays), f(*arrays)]
if found[0][0]:
    pickle.dump(found, open(sys.argv[2], "wb"))
"""


@needs_mpi
@pytest.mark.parametrize("devices", [4, pytest.param(8, marks=pytest.mark.conformance)])
def test_ranks_of_meshes_give_the_bits_of_lock_step(tmp_path: Path, devices: int) -> None:
    """Two places of two devices, or of four: columns, copies, both and what is chosen; a stage's devices meet in collectives."""
    columns, copies = megatron(4, data=devices // 4, model=2), megatron(4, data=devices // 2, model=1)
    options = [{"plan": columns}, {"plan": columns, "schedule": "interleaved", "chunks": 2}, {"plan": copies, "engine": "numpy"},
               {"mesh": {"model": devices // 2}}]
    texts = [(layers(8, 6, 10, 4), ["x"], o) for o in options]
    if devices == 4:
        texts.append((SKIP, ["x", "t"], {"plan": 'mesh <["m"=2]>\nw: [{}, {"m"}]\nu: [{"m"}, {}]\nt: [{}, {"m"}]\n'}))
    cases = [(text, batch, inputs(dx.loads(text, "stablehlo")), o) for text, batch, o in texts]
    (tmp_path / "cases").write_bytes(pickle.dumps(cases))
    (tmp_path / "rank.py").write_text(MESHES)
    done = ranks(devices, str(tmp_path / "rank.py"), str(tmp_path / "cases"), str(tmp_path / "found"))
    assert done.returncode == 0, done.stderr
    found = pickle.loads((tmp_path / "found").read_bytes())
    for k, (text, batch, arrays, o) in enumerate(cases):
        here = dx.pipeline(dx.loads(text, "stablehlo"), 2, batch, microbatches=2, deterministic=True, **o)
        results, gradients = here(*arrays)
        for again in found[2 * k: 2 * k + 2]:
            assert sorted(again[1]) == sorted(gradients)
            for got, want in zip([*again[0], *again[1].values()], [*results, *(gradients[n] for n in again[1])], strict=True):
                np.testing.assert_array_equal(got, want)


PLANNED = """
import pickle, sys
import deepx_graph as dx
import deepx_graph.passes.chosen_plan as of_meshes
from deepx_graph.runtime.transport.mpi import communicator
from deepx_graph.session import over_mesh
from deepx_graph.session.cluster import pipelined, stage_programs
def refused(*given, **more):
    raise AssertionError("only device 0 plans")
if communicator(60).Get_rank():
    of_meshes.automatic_plan = stage_programs.automatic_plan = refused
    over_mesh.chosen_plan = pipelined.pipeline_plan = refused
text, arrays = pickle.load(open(sys.argv[1], "rb"))
module, given = dx.loads(text, "stablehlo"), {"on": "mpi", "engine": "numpy", "patience": 60}
found = dx.distribute(module, {"data": 2, "model": 2}, **given)(*arrays)
for stages, mesh in ((2, {"model": 2}), (4, None)):
    results, gradients = dx.pipeline(module, stages, ["x"], microbatches=2, mesh=mesh, **given)(*arrays)
    found = (*found, *results, *gradients.values())
if communicator(60).Get_rank() == 0:
    pickle.dump(found, open(sys.argv[2], "wb"))
"""


@needs_mpi
def test_only_the_first_rank_plans(tmp_path: Path) -> None:
    """A search that ends by a clock may end elsewhere in each process, and machines may have measured different networks."""
    text = layers(8, 6, 10, 4)
    module = dx.loads(text, "stablehlo")
    arrays = inputs(module)
    (tmp_path / "case").write_bytes(pickle.dumps((text, arrays)))
    (tmp_path / "rank.py").write_text(PLANNED)
    done = ranks(4, "-m", "mpi4py", str(tmp_path / "rank.py"), str(tmp_path / "case"), str(tmp_path / "found"))
    assert done.returncode == 0, done.stderr
    whole = dx.compile(module, engine="numpy", optimize=False)(*arrays)
    names = [p.name for p in module.entry.params if p.name != "x"]
    gradients = dx.compile(grad(module, names), engine="numpy", optimize=False)(*arrays, np.float32(1))
    found = pickle.loads((tmp_path / "found").read_bytes())
    for got, want in zip(found, [*whole, *([*whole, *gradients] * 2)], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@needs_mpi
def test_what_the_first_rank_cannot_plan_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(layers(8, 6, 10, 4))
    done = ranks(2, "-m", "mpi4py", "-m", "deepx_graph", "run", str(tmp_path / "m.mlir"), "--stages", "2", "--batch", "x",
                 "--microbatches", "3", "--random-inputs", "--on", "mpi")
    assert done.returncode == 2 and done.stderr.count("cannot be cut into 3 parts") == 1, done.stderr
    assert "MPI_ABORT" not in done.stderr


BROKEN = """
import os, signal, sys, time
import numpy as np
import deepx_graph as dx
from deepx_graph.runtime.transport.mpi import MpiMessages, communicator
from deepx_graph.session.cluster import pipelined
kind, rank = sys.argv[2], communicator(30).Get_rank()
send, sent = MpiMessages.send, 0
def broken(self, to, number, arrays):
    global sent
    sent += 1
    odd = self.device == 1 and sent == 2
    if odd:
        if kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "silent":
            return
        number, arrays = (number, [a[:1] for a in arrays]) if kind == "shape" else (number, arrays)
        self.step += kind == "step"
    send(self, to, number, arrays)
    self.step -= odd and kind == "step"  # so that the other device alone finds it
MpiMessages.send = broken
if kind == "slow":
    pipelined.pipeline_plan = lambda *given: time.sleep(60)
text = open(sys.argv[1]).read()
text = text.replace("tanh", "sine") if kind == "program" and rank else text
module = dx.loads(text, "stablehlo")
try:
    patience = 60 if rank == (kind != "slow") else 4  # the other is to say what is wrong
    f = dx.pipeline(module, 2, ["x"], microbatches=4, on="mpi", engine="numpy", patience=patience)
    f(*(np.ones(p.type.shape, np.float32) for p in f.inputs))
except dx.DeepxGraphError as e:
    print(e, file=sys.stderr, flush=True)
    communicator(30).Abort(e.exit_code)
"""


@needs_mpi
@pytest.mark.parametrize(("kind", "message"), [
    ("killed", ""), ("slow", "has waited 4 s for device 0 to plan the pipeline"),
    ("silent", "has waited 4 s for B1 of stage 1 from device 1"), ("shape", "something else than B1 of stage 1"),
    ("step", "something else than B1 of stage 1"), ("program", "device 1 has another program than device 0")])
def test_what_does_not_come_ends_with_an_error(tmp_path: Path, kind: str, message: str) -> None:
    (tmp_path / "m.mlir").write_text(layers(8, 6, 10, 4))
    (tmp_path / "run.py").write_text(BROKEN)
    done = ranks(2, str(tmp_path / "run.py"), str(tmp_path / "m.mlir"), kind)
    assert done.returncode != 0 and message in done.stderr


@needs_mpi
@pytest.mark.parametrize("devices", [2, 4])
def test_the_command_gives_the_same_on_ranks(run: Run, tmp_path: Path, devices: int) -> None:
    (tmp_path / "m.mlir").write_text(layers(8, 6, 10, 4))
    (tmp_path / "m.plan").write_text(megatron(4, data=1))
    given = ("--stages", "2", "--batch", "x", "--microbatches", "4", "--random-inputs", "--deterministic", "--engine", "numpy",
             *(("--plan", str(tmp_path / "m.plan")) if devices == 4 else ()))
    here = run("run", str(tmp_path / "m.mlir"), *given, "-o", str(tmp_path / "here.npz"))
    assert here.code == 0, here.err
    done = ranks(devices, "-m", "deepx_graph", "run", str(tmp_path / "m.mlir"), *given, "--on", "mpi",
                 "-o", str(tmp_path / "there.npz"))
    assert done.returncode == 0, done.stderr
    here_arrays, there = np.load(tmp_path / "here.npz"), np.load(tmp_path / "there.npz")
    assert sorted(here_arrays) == sorted(there) and "grad_w0" in there
    for name in there:
        np.testing.assert_array_equal(here_arrays[name], there[name])


def test_what_a_pipeline_cannot_do_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(layers(8, 6, 10, 4))
    given = ("run", str(tmp_path / "m.mlir"), "--stages", "2", "--microbatches", "4", "--random-inputs")
    assert "--batch x,y" in run(*given).err
    for more in (("--on", "dask:tcp://127.0.0.1:1"), ("--checkpoint", str(tmp_path / "saved"))):
        assert "in lock step or over MPI, without checkpoints" in run(*given, "--batch", "x", *more).err
    found = run(*given, "--batch", "x", "--partitions", "2")
    assert found.code == 2 and "--partitions beside --stages: the devices of each stage are those of a mesh" in found.err
    assert "states no sharding" in run(*given, "--batch", "x", "--plan", "stated").err
    with pytest.raises(dx.UsageError, match="no place"):
        dx.pipeline(dx.loads(layers(8, 6, 10, 4), "stablehlo"), 2, ["x"], on="moon")
