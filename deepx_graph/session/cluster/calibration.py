"""`calibrate --network`: what collectives cost between processes of this machine, measured over MPI and kept beside the constants;
and how much slower each process computes while the others do, too.

Each process runs programs of one collective each, over all sizes, through the transport that programs use; so what the transport
does around MPI is in the figures. What other jobs do to a measurement only makes it longer: of collectives the least of many rounds
counts, of the slowest process in each. What they leave to computing is measured itself, in moments spread over the whole time,
as a prediction is about this machine as it is used.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deepx_graph import ops
from deepx_graph.blas import available_cores, limited
from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.files import make_folder, write_file
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.planning.cluster import PARTS, ComputeDevice, DeviceCluster, LinkLevel, read_cluster
from deepx_graph.planning.links import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, COLLECTIVES, PERMUTE, REDUCE_SCATTER, NetworkLink, Points
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.cost import file as cost_file
from deepx_graph.runtime.cost.calibrate import product_runs
from deepx_graph.session.cluster.launch import environment, find_mpiexec
from deepx_graph.types import F32, tensor

if TYPE_CHECKING:
    from deepx_graph.runtime.transport.mpi import MpiTransport

SIZES = tuple(2**k for k in range(8, 27, 2))
"""Bytes that are measured."""

ROUNDS, LEAST_ROUNDS, BUDGET_SECONDS = 60, 5, 0.5
"""Calls of each size: at most so many, and fewer where they last longer than this together."""

SHIPPED_LINK = NetworkLink(((0.0, 1e-6), (2.0**10, 2e-6), (2.0**20, 1.43e-4), (2.0**26, 0.04)))
"""Two MPI processes of one machine, measured on a 2-core AMD EPYC; where nothing was measured."""

SWEPT = 1 << 23
"""Elements of each of the three arrays by whose sum processes are timed beside each other; also by products of several shapes."""

SERIES_ROUNDS = 11
"""Calls of a series by which they are timed."""

PAUSE_SECONDS = 1e-3

QUIET = 0.93
"""The part of the speed of its core that is usually left to a process that computes alone on a quiet machine, at least."""

STEP = "step"
"""The field of a device that is what calling a program costs."""

SUFFIX = ".network"
MAX_BYTES = 1 << 16


@dataclass(frozen=True)
class NetworkCalibration:
    """The cluster that this machine is, and where the measurements are kept: None where nothing was measured."""

    cluster: DeviceCluster
    path: Path | None

    @property
    def note(self) -> str:
        """What is to be known of the figures: that other work was done while they were measured, else nothing."""
        left = self.cluster.device.alone_flops
        busy = (f"the machine was busy: {left:.0%} of its speed was left to a process that computed alone; predictions by these "
                "figures are about a machine as busy, so measure again on a quiet one")
        return busy if left < QUIET else ""

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {"machine": cost_file.machine(), "path": None if self.path is None else str(self.path), "cluster": str(self.cluster)}


def network_location(constants: Path | None = None) -> Path | None:
    """Beside the constants: those of this file, or those in use; None where none are kept."""
    beside = cost_file.location() if constants is None else constants
    return None if beside is None else beside.with_name(beside.name + SUFFIX)


def network_here() -> DeviceCluster:
    """This machine as a cluster: the constants of the cost model, and the measured network, else the shipped one. Its transports
    wait in each collective."""
    return network_in_use().cluster


def network_in_use() -> NetworkCalibration:
    """The same with where it comes from. A file that is damaged is left alone, as if nothing had been measured."""
    path = network_location()
    try:
        if path is not None and path.stat().st_size <= MAX_BYTES:
            stored = read_cluster(path.read_text(encoding="utf-8"), str(path))
            device = _device({name: getattr(stored.device, name) for name in (*PARTS, STEP)})
            return NetworkCalibration(DeviceCluster(device, stored.levels, overlaps=False), path)
    except (OSError, UnicodeDecodeError, UsageError):
        pass
    return NetworkCalibration(DeviceCluster(_device({}), (LinkLevel(0, SHIPPED_LINK),), overlaps=False), None)


def _device(parts: Mapping[str, float]) -> ComputeDevice:
    """One process, by the constants in use; the network file adds which parts of its rates are left to it, and its step."""
    c = cost_file.constants()
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return ComputeDevice(c.product_gflops * 1e9, c.memory_gbs * 1e9, memory, c.native_call_ns * 1e-9, **parts)


def calibrate_network(constants: str | None = None) -> NetworkCalibration:
    """Measures and stores beside the constants: those of the file so named, which need not be there, or those in use.

    Raises UsageError without MPI, and where there is no folder for the file.
    """
    target = network_location(None if constants is None else Path(constants))
    if target is None:
        raise UsageError("there is no folder for measurements: DEEPX_GRAPH_COSTS is empty, or there is no home")
    measured = _measurements(max(2, available_cores()))
    levels = (LinkLevel(0, _measured_link(measured.seconds)),)
    found = NetworkCalibration(DeviceCluster(_device(measured.parts), levels), target)
    make_folder(target.parent, mode=0o700)
    write_file(target, str(found.cluster).encode())
    return found


def forget_network() -> Path | None:
    """Removes what was measured; which file that was, None where there was none."""
    path = network_location()
    if path is None or not path.exists():
        return None
    path.unlink(missing_ok=True)
    return path


@dataclass(frozen=True)
class RankMeasurements:
    """What processes measured: seconds by bytes, by kind of collective and number of devices; the parts of a device's rates, and
    its step."""

    seconds: dict[str, dict[str, list[tuple[int, float]]]]
    parts: Mapping[str, float]


def _measurements(ranks: int) -> RankMeasurements:
    """Measured by so many processes. Raises UsageError where they cannot be started."""
    mpiexec = find_mpiexec()
    if mpiexec is None:
        raise UsageError(Diagnostic("mpiexec is not found", hint="pip install 'deepx-graph[mpi]'"))
    command = [mpiexec, "-n", str(ranks), sys.executable, "-m", "mpi4py", "-m", __spec__.name]
    done = subprocess.run(command, env=environment(ranks), capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(Diagnostic("the processes that measure have failed", notes=tuple(done.stderr.splitlines()[-4:])))
    said = json.loads(done.stdout.splitlines()[-1])
    return RankMeasurements(said["seconds"], said["parts"])


def _measured_link(found: dict[str, dict[str, list[tuple[int, float]]]]) -> NetworkLink:
    curves = {(kind, int(count)): _ascending(points) for kind, by_count in found.items() for count, points in by_count.items()}
    return NetworkLink(curves[PERMUTE, 2], "switch", {key: points for key, points in curves.items() if key[0] != PERMUTE})


def _ascending(points: list[tuple[int, float]]) -> Points:
    """More bytes never take less: what was disturbed is taken from the next larger size."""
    found, least = [], float("inf")
    for size, seconds in sorted(points, reverse=True):
        least = min(least, seconds)
        found.append((float(size), least))
    return tuple(reversed(found))


# --- in each process


def _program(kind: str, ranks: int, count: int, nbytes: int) -> tuple[Module, int]:
    """A program of one collective of `count` devices each, with the elements of its input."""
    groups = tuple(tuple(range(k, k + count)) for k in range(0, ranks, count))
    grouped = {"replica_groups": groups, "channel_id": 1}
    everyone = {**grouped, "use_global_device_ids": True}
    size = max(1, nbytes // 4 // (count if kind == ALL_GATHER else 1))
    b = Builder()
    body = monoid_body(ops.add, F32)
    write: dict[str, Callable[[Node], Node]] = {
        ALL_REDUCE: lambda x: b(ops.spmd_all_reduce, x, **everyone, computation=body),
        ALL_GATHER: lambda x: b(ops.spmd_all_gather, x, **everyone, all_gather_dim=0, shard_count=count),
        REDUCE_SCATTER: lambda x: b(ops.spmd_reduce_scatter, x, **everyone, scatter_dimension=0, shard_count=count,
                                    computation=body),
        ALL_TO_ALL: lambda x: b(ops.spmd_all_to_all, x, **grouped, split_dimension=0, concat_dimension=0, split_count=count),
        PERMUTE: lambda x: b(ops.spmd_collective_permute, x, channel_id=1, source_target_pairs=tuple(
            (d, group[(k + 1) % count]) for group in groups for k, d in enumerate(group))),
    }  # fmt: skip
    return Module((b.function("main", [("x", tensor(F32, (size,)))], lambda x: [write[kind](x)]),)), size


def _nothing(size: int) -> Module:
    """A program that does not meet anyone, so that what a call costs can be taken off."""
    b = Builder()
    return Module((b.function("main", [("x", tensor(F32, (size,)))], lambda x: [b(ops.negate, x)]),))


def _curves(transport: MpiTransport, call: float) -> Iterator[tuple[str, int, int, float]]:
    """Seconds of collectives beside those of a call, by kind, devices and bytes."""
    ranks = transport.grid.count
    for count in (c for c in (2, 4, 8, 16, 32, 64) if ranks % c == 0):
        for kind in COLLECTIVES:
            if kind == PERMUTE and count > 2:
                continue
            for nbytes in SIZES:
                yield kind, count, nbytes, max(1e-7, _timed(transport, *_program(kind, ranks, count, nbytes)) - call)


def _timed(transport: MpiTransport, module: Module, size: int) -> float:
    """Seconds of a call: what the slowest process takes, the median over rounds, as a step has them as they come."""
    f, x = compile(module, engine="numpy", transport=transport), np.ones(size, np.float32)
    f(x)
    found: list[float] = []
    while len(found) < LEAST_ROUNDS or (len(found) < ROUNDS and sum(found) < BUDGET_SECONDS):
        transport.comm.Barrier()
        start = time.perf_counter()
        f(x)
        found.append(max(transport.comm.allgather(time.perf_counter() - start)))
    return statistics.median(found)


class _Crowd:
    """The same work timed again and again: by the first process alone, and by all at once, of which the slowest counts."""

    def __init__(self, transport: MpiTransport, run: Callable[[], object]) -> None:
        self.transport, self.run = transport, run
        self.least = math.inf
        self.alone: list[float] = []
        self.together: list[float] = []

    def measure(self) -> None:
        """One more series of each. What counts of a series is its median, as all are to be busy throughout."""
        if self.transport.device == 0:
            times = self._times()
            self.least = min(self.least, *times)
            self.alone.append(statistics.median(times))
        wait_for_all(self.transport)
        self.together.append(max(self.transport.comm.allgather(statistics.median(self._times()))))

    def _times(self) -> list[float]:
        found: list[float] = []
        for _ in range(SERIES_ROUNDS + 1):
            start = time.perf_counter()
            self.run()
            found.append(time.perf_counter() - start)
        return found[1:]

    def parts(self) -> tuple[float, float]:
        """What is usually left of the speed of a quiet moment, which constants have: to one that works alone, to each of all."""
        alone, together = statistics.median(self.alone), statistics.median(self.together)
        return min(1.0, self.least / alone), min(1.0, self.least / together)


def wait_for_all(transport: MpiTransport) -> None:
    """For all processes, asleep: MPI's own waiting keeps a core busy."""
    request = transport.comm.Ibarrier()
    while not request.Test():
        time.sleep(PAUSE_SECONDS)


def main() -> None:
    """In a process of MPI: measures, and prints what was found from the first one."""
    from deepx_graph.ir.collective import Grid
    from deepx_graph.runtime.transport.mpi import MpiTransport, communicator

    transport = MpiTransport(Grid(1, communicator().Get_size()))
    products = product_runs()
    a, b, out = (np.full(SWEPT, 0.5, np.float32) for _ in range(3))
    arithmetic, memory = _Crowd(transport, lambda: [run() for run in products]), _Crowd(transport, lambda: np.add(a, b, out=out))
    found: dict[str, dict[int, list[tuple[int, float]]]] = {}
    with limited(1):
        call = _timed(transport, _nothing(1), 1)
        for kind, count, nbytes, seconds in _curves(transport, call):
            found.setdefault(kind, {}).setdefault(count, []).append((nbytes, seconds))
            if nbytes in (SIZES[0], SIZES[-1]):
                arithmetic.measure()
                memory.measure()
    if transport.device == 0:
        flops, bandwidth = arithmetic.parts(), memory.parts()
        parts = {"alone_flops": flops[0], "busy_flops": flops[1], "alone_bandwidth": bandwidth[0], "busy_bandwidth": bandwidth[1],
                 STEP: call}
        print(json.dumps({"seconds": found, "parts": parts}))


if __name__ == "__main__":
    main()
