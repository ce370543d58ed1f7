"""The workloads that every contestant runs: the same computations as the texts in `programs/`."""

from bench.libraries.workloads.base import Array, Workload, listed
from bench.libraries.workloads.convolution import CONVOLUTION
from bench.libraries.workloads.elementwise import ELEMENTWISE
from bench.libraries.workloads.loops import LOOPS
from bench.libraries.workloads.networks import NETWORKS
from bench.libraries.workloads.rows import ROWWISE

SIZES = ("small", "medium", "large")
ALL: dict[str, Workload] = {w.name: w for w in (*ELEMENTWISE, *ROWWISE, *NETWORKS, *CONVOLUTION, *LOOPS)}

__all__ = ["ALL", "SIZES", "Array", "Workload", "listed"]
