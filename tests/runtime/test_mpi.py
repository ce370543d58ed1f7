"""Programs over MPI: each rank is a device; the results are those of lock step, and what does not meet ends with an error.

Needs mpi4py and mpiexec, of the extra `mpi`; DEEPX_GRAPH_MPIEXEC may name the latter.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import UsageError
from deepx_graph.session.sharded import Sharded, mpi_transport, planned
from tests.support.sharded_programs import LOOP, MLP, inputs

MPIEXEC = os.environ.get("DEEPX_GRAPH_MPIEXEC") or shutil.which("mpiexec")
needs_mpi = pytest.mark.skipif(MPIEXEC is None or importlib.util.find_spec("mpi4py") is None,
                               reason="the extra 'mpi' is not installed: mpi4py and mpiexec")

PLAN = """mesh <["a"=2, "b"=%d]>
x: [{"a"}, {"b"}]
"""

ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
               "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_mpi_yield_when_idle": "1"}


def ranks(count: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What so many processes print that mpiexec starts."""
    assert MPIEXEC is not None
    return subprocess.run([MPIEXEC, "-n", str(count), sys.executable, *arguments], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **ENVIRONMENT}, check=False)


@needs_mpi
@pytest.mark.parametrize(("text", "parts"), [(MLP.replace('"data"=4', '"data"=2'), 2), (LOOP, 1), (LOOP, 2)],
                         ids=["mlp", "two", "four"])
def test_ranks_compute_what_lock_step_does(tmp_path: Path, text: str, parts: int) -> None:
    """With `--deterministic` to the bit, else up to the order of sums."""
    (tmp_path / "m.mlir").write_text(text)
    (tmp_path / "m.plan").write_text(PLAN % parts)
    module = dx.loads(text, "stablehlo")
    np.savez(tmp_path / "in.npz", **{p.name: a for p, a in zip(module.entry.params, inputs(module), strict=True)})
    plan = "stated" if text is not LOOP else str(tmp_path / "m.plan")
    count = 4 if text is not LOOP else 2 * parts
    run = ["-m", "deepx_graph", "run", str(tmp_path / "m.mlir"), "--plan", plan, "--inputs", str(tmp_path / "in.npz"),
           "--engine", "numpy", "-o"]
    subprocess.run([sys.executable, *run, str(tmp_path / "lockstep.npz")], check=True, timeout=120)
    done = ranks(count, *run, str(tmp_path / "mpi.npz"), "--transport", "mpi")
    assert done.returncode == 0, done.stderr
    exact = ranks(count, *run, str(tmp_path / "exact.npz"), "--transport", "mpi", "--deterministic")
    assert exact.returncode == 0, exact.stderr
    want = np.load(tmp_path / "lockstep.npz")
    for name in want.files:
        np.testing.assert_array_equal(np.load(tmp_path / "exact.npz")[name], want[name])
        np.testing.assert_allclose(np.load(tmp_path / "mpi.npz")[name], want[name], rtol=1e-5, atol=1e-5)


@needs_mpi
def test_too_few_processes_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(MLP)
    done = ranks(2, "-m", "deepx_graph", "run", str(tmp_path / "m.mlir"), "--plan", "stated", "--transport", "mpi",
                 "--random-inputs")
    assert done.returncode != 0 and "2 processes run" in done.stderr and "mpiexec -n 8" in done.stderr


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
    t.abort(5)
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


def test_without_mpi_what_is_missing_is_said() -> None:
    if importlib.util.find_spec("mpi4py") is not None:
        pytest.skip("mpi4py is installed here")
    with pytest.raises(UsageError, match="MPI is not available"):
        mpi_transport(planned(dx.loads(MLP, "stablehlo"))[1])


def test_whole_arrays_in_and_out() -> None:
    """`Sharded` in one process: the results of the program that is not split."""
    module, plan = planned(dx.loads(MLP, "stablehlo"))
    arrays = inputs(module)
    f = Sharded(module, plan, engine="numpy")
    for got, want in zip(f(*arrays), dx.compile(module, engine="numpy", optimize=False)(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
