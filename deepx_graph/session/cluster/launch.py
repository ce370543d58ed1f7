"""`--on`: where the devices of a program run, and MPI's processes started for them where nobody has.

Processes that die of a signal are started again, all of them, when there are checkpoints to go on from.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from deepx_graph.errors import Diagnostic, UsageError, printable
from deepx_graph.runtime.transport.dask import PREFIX

ATTEMPT = "DEEPX_GRAPH_ATTEMPT"
"""The environment variable that says how often the processes were started before."""
ENDED = "DEEPX_GRAPH_ENDED"
"""The environment variable that names the file in which the first process says with which exit code all have ended. They leave with
0 then, as mpiexec would add lines on the code to what was said."""
MPIEXEC = "DEEPX_GRAPH_MPIEXEC"
"""The environment variable that names mpiexec."""
_HINT = f"pip install 'deepx-graph[mpi]', or name it in {MPIEXEC}"
RESTARTS = 3
LOCKSTEP, MPI = "lockstep", "mpi"
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MPI_LOCALRANKID")
"""What launchers of MPI set for each process."""
_OURS = frozenset({0, 1, 2, 3, 4, 5, 70, 130, 143})
"""The exit codes of this command line, after which nothing is started again."""


def checked_place(text: str) -> str:
    """The place as written. Raises ValueError for one that there is not."""
    if text in (LOCKSTEP, MPI) or (text.startswith(PREFIX) and text != PREFIX):
        return text
    raise ValueError("lockstep, mpi, or dask:ADDRESS, such as dask:tcp://host:8786")


def is_rank() -> bool:
    """Whether a launcher of MPI has started this process."""
    return any(name in os.environ for name in _RANKS)


def is_first() -> bool:
    """Whether no launcher of MPI has started this process, or as the first."""
    return next((os.environ[name] for name in _RANKS if name in os.environ), "0") == "0"


def told(code: int) -> int:
    """The exit code of a process of which all end alike; who has started them is told."""
    path = os.environ.get(ENDED)
    if path is None:
        return code
    if is_first():
        Path(path).write_text(str(code), encoding="ascii")
    return 0


def is_told() -> bool:
    """Whether who has started this process knows from `told` how it ends."""
    path = os.environ.get(ENDED)
    return path is not None and Path(path).exists()


def attempt() -> int:
    """How often the processes were started before."""
    text = os.environ.get(ATTEMPT, "0")
    return int(text) if text.isdigit() else 0


def start_ranks(count: int, arguments: Sequence[str], *, restart: bool) -> int:
    """Runs the command line in so many processes of this machine; gives their exit code.

    With `restart` they are started again when one of them dies of a signal, at most three times. Raises UsageError without mpiexec
    or mpi4py.
    """
    mpiexec = find_mpiexec()
    if mpiexec is None:
        raise UsageError(Diagnostic("mpiexec is not found", hint=_HINT))
    if find_spec("mpi4py") is None:
        raise UsageError(Diagnostic("MPI is not available: No module named 'mpi4py'", hint="pip install 'deepx-graph[mpi]'"))
    command = [mpiexec, "-n", str(count), sys.executable, "-m", "mpi4py", "-m", "deepx_graph", *arguments]
    for k in range(RESTARTS + 1):
        code = _ended(command, environment(count) | {ATTEMPT: str(k)})
        if code in _OURS or not restart or k == RESTARTS:
            break
        print(f"note: a process died (exit code {code}); all are started again", file=sys.stderr)
    return code


def _ended(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """The exit code of mpiexec, or that which its processes tell of. Raises UsageError where it cannot be started."""
    with TemporaryDirectory() as folder:
        ended = Path(folder) / "code"
        try:
            code = subprocess.run(command, env={**variables, ENDED: str(ended)}, check=False).returncode
        except OSError as e:
            raise UsageError(Diagnostic(f"{printable(command[0])} cannot be started: {e.strerror}", hint=_HINT)) from None
        return int(ended.read_text(encoding="ascii")) if ended.exists() else code


def find_mpiexec() -> str | None:
    """The mpiexec that the environment names, is beside this Python, or on the path."""
    named, beside = os.environ.get(MPIEXEC), Path(sys.executable).with_name("mpiexec")
    return named or (str(beside) if beside.exists() else shutil.which("mpiexec"))


def environment(count: int) -> dict[str, str]:
    """For processes on this machine: more than there are cores are allowed, and then do not spin.

    None is bound to a core, as Open MPI does with two processes and fewer: their threads would share it.
    """
    few = count > (os.cpu_count() or 1)
    more = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_mpi_yield_when_idle": "1"} if few else {}
    return {"PRTE_MCA_hwloc_default_binding_policy": "none", **more, **os.environ}


def threads_of(ranks_here: int) -> int:
    """How many threads each of so many processes on a machine gets."""
    return max(1, (os.cpu_count() or 1) // max(1, ranks_here))
