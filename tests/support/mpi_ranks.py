"""Processes of MPI that a test starts; needs mpi4py and mpiexec, of the extra `mpi`; DEEPX_GRAPH_MPIEXEC may name the latter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from deepx_graph.session.cluster.launch import find_mpiexec

MPIEXEC = find_mpiexec()
needs_mpi = pytest.mark.skipif(MPIEXEC is None or importlib.util.find_spec("mpi4py") is None,
                               reason="the extra 'mpi' is not installed: mpi4py and mpiexec")

ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
               "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_mpi_yield_when_idle": "1"}


def ranks(count: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What so many processes print that mpiexec starts."""
    assert MPIEXEC is not None
    return subprocess.run([MPIEXEC, "-n", str(count), sys.executable, *arguments], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **ENVIRONMENT}, check=False)
