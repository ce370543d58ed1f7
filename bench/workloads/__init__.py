"""The workloads that every contestant runs: the same computations as the texts in `programs/`."""

from bench.workloads.base import Array, Workload, listed
from bench.workloads.convolution import CONVOLUTION
from bench.workloads.elementwise import ELEMENTWISE
from bench.workloads.loops import LOOPS
from bench.workloads.networks import NETWORKS
from bench.workloads.rows import ROWWISE

SIZES = ("small", "medium", "large")
ALL: dict[str, Workload] = {w.name: w for w in (*ELEMENTWISE, *ROWWISE, *NETWORKS, *CONVOLUTION, *LOOPS)}

__all__ = ["ALL", "SIZES", "Array", "Workload", "listed"]
