"""Programs over MPI: each rank is a device; the results are those of lock step, and what does not meet ends with an error.

Needs mpi4py and mpiexec, of the extra `mpi`; DEEPX_GRAPH_MPIEXEC may name the latter.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import UsageError
from deepx_graph.ir.collective import Grid
from deepx_graph.session.cluster.sharded import Sharded, mpi_transport
from deepx_graph.session.plans import planned
from tests.support.mpi_ranks import ENVIRONMENT, needs_mpi, ranks
from tests.support.sharded_programs import LOOP, MLP, inputs

PLAN = """mesh <["a"=%d, "b"=%d]>
x: [{"a"}, {"b"}]
"""

RANK = """
import pickle, sys
import deepx_graph as dx
from deepx_graph.ir.collective import Grid
from deepx_graph.session.plans import planned
from deepx_graph.session.cluster.sharded import Sharded, mpi_transport
cases = pickle.load(open(sys.argv[1], "rb"))
found = []
for program, text, arrays in cases:
    inlined, plan = planned(dx.loads(program, "stablehlo"), text)
    for exact in (True, False):
        transport = mpi_transport(Grid(1, plan.mesh.count), deterministic=exact)
        found.append(Sharded(inlined, plan, transport=transport, engine="numpy")(*arrays))
if found[0]:
    pickle.dump(found, open(sys.argv[2], "wb"))
"""
"""All programs, with the sums of lock step and with those of MPI, in one rank."""


@needs_mpi
@pytest.mark.parametrize("mesh", [(2, 1), (2, 2), pytest.param((3, 1), marks=pytest.mark.conformance),
                                  pytest.param((4, 2), marks=pytest.mark.conformance)])
def test_ranks_compute_what_lock_step_does(tmp_path: Path, mesh: tuple[int, int]) -> None:
    """With `deterministic` to the bit, else up to the order of sums."""
    loop = LOOP.replace("8x8", "9x9").replace("tensor<8xf32>", "tensor<9xf32>") if mesh[0] == 3 else LOOP
    plans = [(loop, PLAN % mesh), *([(MLP.replace('"data"=4', '"data"=2'), None)] if mesh == (2, 2) else [])]
    cases = [(text, plan, inputs(dx.loads(text, "stablehlo"))) for text, plan in plans]
    (tmp_path / "cases").write_bytes(pickle.dumps(cases))
    (tmp_path / "rank.py").write_text(RANK)
    done = ranks(mesh[0] * mesh[1], str(tmp_path / "rank.py"), str(tmp_path / "cases"), str(tmp_path / "found"))
    assert done.returncode == 0, done.stderr
    found = pickle.loads((tmp_path / "found").read_bytes())
    for k, (text, plan, arrays) in enumerate(cases):
        lockstep = Sharded(*planned(dx.loads(text, "stablehlo"), plan), engine="numpy")(*arrays)
        for exact, summed, want in zip(*found[2 * k : 2 * k + 2], lockstep, strict=True):
            np.testing.assert_array_equal(exact, want)
            np.testing.assert_allclose(summed, want, rtol=1e-5, atol=1e-5)


IN_PLACE = """
import sys
import numpy as np
import deepx_graph as dx
from deepx_graph.ir.collective import Grid
from deepx_graph.runtime.compile import compile
from deepx_graph.session.cluster.sharded import mpi_transport
for engine in ("numpy", "native"):
    transport = mpi_transport(Grid(1, 2))
    f = compile(dx.load(sys.argv[1]), engine=engine, transport=transport)
    kept, wanted = [], []
    for call in range(3):
        mine, other = (np.random.default_rng([call, d]).standard_normal((300, 300)).astype("f4")
                       for d in (transport.device, 1 - transport.device))
        before = mine.copy()
        kept += [mine, *f(mine)]
        once = np.sin(before) + np.sin(other)
        wanted += [before, once, before + other, 2 * np.cos(once), 2 * (2 * np.cos(once) + before + other)]
    for have, want in zip(kept, wanted, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4)
"""


@needs_mpi
def test_sums_in_place_leave_what_others_hold(tmp_path: Path) -> None:
    """Sums of an input, of what is read again, of results and of what nobody needs any more, all kept over several calls."""
    whole = "f32[300,300]"
    total = ("{replica_groups = [[0, 1]], channel_id = 1, use_global_device_ids = true, computation = func @add(%a: f32[], "
             "%b: f32[]) -> (%o: f32[]) {\n %0 = add %a, %b : f32[]\n return %0\n}} : " + whole)
    (tmp_path / "m.sea").write_text(
        f"sea 1\nentry @main\nfunc public @main(%x: {whole}) -> (%p: {whole}, %q: {whole}, %r: {whole}, %s: {whole}) {{\n"
        f"%0 = sine %x : {whole}\n%1 = spmd_all_reduce %0 {total}\n%2 = spmd_all_reduce %x {total}\n%3 = cosine %1 : {whole}\n"
        f"%4 = spmd_all_reduce %3 {total}\n%5 = add %4, %2 : {whole}\n%6 = spmd_all_reduce %5 {total}\nreturn %1, %2, %4, %6\n}}\n")
    (tmp_path / "rank.py").write_text(IN_PLACE)
    done = ranks(2, str(tmp_path / "rank.py"), str(tmp_path / "m.sea"))
    assert done.returncode == 0, done.stderr


@needs_mpi
def test_too_few_processes_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(MLP)
    done = ranks(2, "-m", "deepx_graph", "run", str(tmp_path / "m.mlir"), "--plan", "stated", "--on", "mpi",
                 "--random-inputs")
    assert done.returncode != 0 and "2 processes run" in done.stderr and "mpiexec -n 8" in done.stderr


ALONE = """
import os, sys
from deepx_graph.cli.main import main
if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "1":
    sys.argv[2] = "nowhere.mlir"
sys.exit(main())
"""


@needs_mpi
def test_an_error_that_all_processes_have_is_said_once(tmp_path: Path) -> None:
    """Also before and after they meet, and none is aborted; one process with an error of its own ends all."""
    (tmp_path / "m.mlir").write_text(MLP.replace('"data"=4', '"data"=1'))
    (tmp_path / "alone.py").write_text(ALONE)
    asked = ["--plan", "stated", "--on", "mpi"]
    for file, code, message in (("nowhere.mlir", 2, "cannot read"), ("m.mlir", 5, "input 'x' is missing")):
        done = ranks(2, "-m", "mpi4py", "-m", "deepx_graph", "run", str(tmp_path / file), *asked)
        assert done.returncode == code and done.stderr.count(message) == 1 and "MPI_ABORT" not in done.stderr, done.stderr
    done = ranks(2, "-m", "mpi4py", "-m", "deepx_graph", "run", str(tmp_path / "m.mlir"), *asked, "--unknown")
    assert done.returncode == 2 and done.stderr.count("unrecognized arguments") <= 1, done.stderr  # the first may have been ended
    started = subprocess.run([sys.executable, "-m", "deepx_graph", "run", str(tmp_path / "m.mlir"), *asked], capture_output=True,
                             text=True, timeout=120, env={**os.environ, **ENVIRONMENT}, check=False)
    assert started.returncode == 5 and started.stderr.startswith("error: input 'x' is missing")
    assert "exit" not in started.stderr.lower(), started.stderr
    done = ranks(2, "-m", "mpi4py", str(tmp_path / "alone.py"), "run", str(tmp_path / "m.mlir"), "--random-inputs", *asked)
    assert done.returncode == 2 and "cannot read 'nowhere.mlir'" in done.stderr


DIFFERENT = """
import sys
import deepx_graph as dx
from deepx_graph.ir.collective import Grid
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.transport.mpi import MpiTransport
import numpy as np
t = MpiTransport(Grid(1, 2), patience=3)
text = open(sys.argv[1]).read()
if t.device and sys.argv[2] == "other":
    text = text.replace("f32[4]", "f32[5]")
if t.device and sys.argv[2] == "absent":
    import time; time.sleep(6); sys.exit(0)
size = 5 if "f32[5]" in text else 4
try:
    compile(dx.loads(text, "sea"), engine="numpy", transport=t)(np.ones(size, "f4"))
except dx.RunError as e:
    print(e, file=sys.stderr)
    t.comm.Abort(5)
"""


@needs_mpi
@pytest.mark.parametrize(("kind", "message"), [("other", "do not meet in the same collective"), ("absent", "has waited 3 s")])
def test_devices_that_do_not_meet_end_with_an_error(tmp_path: Path, kind: str, message: str) -> None:
    from deepx_graph.ops import spmd_all_reduce

    (tmp_path / "m.sea").write_text(spmd_all_reduce.example.replace("channel_id = 0", "channel_id = 1").replace(
        "replica_groups = []", "replica_groups = [[0, 1]], channel_id = 1, use_global_device_ids = true"))
    (tmp_path / "run.py").write_text(DIFFERENT)
    done = ranks(2, str(tmp_path / "run.py"), str(tmp_path / "m.sea"), kind)
    assert done.returncode != 0 and message in done.stderr


STOPPED = """
import os, signal, sys
import numpy as np
from deepx_graph.ir.collective import Grid
from deepx_graph.runtime.transport.mpi import MpiTransport, communicator
t = MpiTransport(Grid(1, 2), patience=1, comm=communicator())
if t.device:
    os.kill(os.getpid(), signal.SIGSTOP)
t.gather([np.ones(1)])
"""


@needs_mpi
def test_a_call_of_mpi_that_blocks_does_not_wait_for_ever(tmp_path: Path) -> None:
    """A process that is stopped does not die, so MPI goes on waiting for it."""
    (tmp_path / "run.py").write_text(STOPPED)
    done = ranks(2, str(tmp_path / "run.py"))
    assert done.returncode == 5 and "device 0 has waited 1 s for the results of the others" in done.stderr


def test_without_mpi_what_is_missing_is_said() -> None:
    if importlib.util.find_spec("mpi4py") is not None:
        pytest.skip("mpi4py is installed here")
    with pytest.raises(UsageError, match="MPI is not available"):
        mpi_transport(Grid(1, 8))


def test_whole_arrays_in_and_out() -> None:
    """`Sharded` in one process: the results of the program that is not split."""
    module, plan = planned(dx.loads(MLP, "stablehlo"))
    arrays = inputs(module)
    f = Sharded(module, plan, engine="numpy")
    for got, want in zip(f(*arrays), dx.compile(module, engine="numpy", optimize=False)(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
