"""`simulate`: how long a step takes on a cluster, predicted: the program of one device as tasks on two streams.

All devices run one program at the same pace, so one stands for all. On a cluster from a text or preset, kernels take what the
roofline of its device says, and exchanges overlap with what does not need them. On this machine (`here`) kernels take what the
engine's cost model predicts, and nothing overlaps, as the transports wait in each collective. A loop of N iterations is one
that takes N times as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepx_graph.blas import available_cores
from deepx_graph.errors import counted, sized
from deepx_graph.files import read_text
from deepx_graph.ir import Module, Node
from deepx_graph.planning.cluster import PRESETS, DeviceCluster, preset, read_cluster
from deepx_graph.planning.events import COMPUTE, SimTask, SimulatedStep, run_events
from deepx_graph.planning.links import ALL_REDUCE, PERMUTE
from deepx_graph.planning.steps import SimulatedCollective, Timing, roofline, step_tasks
from deepx_graph.runtime import engines
from deepx_graph.runtime.cost.counts import alone
from deepx_graph.runtime.cost.file import constants as constants_in_use
from deepx_graph.runtime.cost.file import using
from deepx_graph.runtime.cost.model import Constants, crowded
from deepx_graph.runtime.engines.base import Engine, canonicalized
from deepx_graph.runtime.transport.mpi import plan_of_device
from deepx_graph.session.cluster.calibration import network_here
from deepx_graph.session.cluster.launch import threads_of
from deepx_graph.session.cluster.pipeline_plan import PipelinePlan
from deepx_graph.session.programs import optimise
from deepx_graph.sharding.mesh import Mesh
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.plan import Plan
from deepx_graph.types import nbytes

HERE = "here"
"""In place of a cluster: this machine, as `calibrate` and `calibrate --network` measured it."""

@dataclass(frozen=True)
class SimulationReport:
    """What is predicted of one step; times in seconds, memory in bytes of one device."""

    mesh: str
    devices: int
    cluster: str
    step: SimulatedStep
    collectives: tuple[SimulatedCollective, ...]
    peak_bytes: int
    memory_bytes: int
    runs_known: bool

    @property
    def busiest(self) -> int:
        """The device that computes longest, of which the report is."""
        return max(self.step.devices, key=lambda d: self.step.busy(d, COMPUTE), default=0)

    @property
    def compute_seconds(self) -> float:
        """Of all kernels of a device."""
        return self.step.busy(self.busiest, COMPUTE)

    @property
    def network_seconds(self) -> float:
        """Of all collectives."""
        return sum(c.seconds for c in self.collectives)

    @property
    def exposed_seconds(self) -> float:
        """In which a device waits for exchanges, and computes nothing."""
        return self.step.exposed(self.busiest)

    @property
    def bubble(self) -> float:
        """The share of the step in which devices neither compute nor exchange, on average."""
        devices = self.step.devices
        return max(0.0, sum(map(self.step.bubble, devices)) / len(devices)) if devices else 0.0

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {"mesh": self.mesh, "devices": self.devices, "cluster": self.cluster, "step_seconds": self.step.seconds,
                "compute_seconds": self.compute_seconds, "network_seconds": self.network_seconds,
                "exposed_seconds": self.exposed_seconds, "bubble": self.bubble, "peak_bytes": self.peak_bytes,
                "memory_bytes": self.memory_bytes, "runs_known": self.runs_known,
                "collectives": [c.__dict__ for c in self.collectives]}

    def lines(self) -> Iterator[str]:
        """A table."""
        total = self.step.seconds or 1.0
        unknown = "" if self.runs_known else " (loops of an unknown number of iterations are counted once)"
        yield f"{counted(self.devices, 'device')} {self.mesh} on {self.cluster}: predicted, not measured"
        yield f"  step: {in_time(self.step.seconds)}{unknown}"
        yield f"  kernels: {in_time(self.compute_seconds)}"
        yield (f"  collectives: {in_time(self.network_seconds)}, of which {in_time(self.exposed_seconds)} exposed "
               f"({self.exposed_seconds / total:.0%} of the step)")
        yield f"  bubble: {self.bubble:.1%}"
        fits = "" if self.peak_bytes <= self.memory_bytes else ": it does not fit"
        yield f"  memory of a device: {sized(self.peak_bytes)} at the peak, of {sized(self.memory_bytes)}{fits}"
        for c in sorted(self.collectives, key=lambda c: -c.seconds)[:SHOWN]:
            runs = f"{c.runs} x " if c.runs > 1 else ""
            yield f"    {in_time(c.seconds):>10}  {c.name}: {runs}{sized(c.bytes)}, {c.algorithm}"


SHOWN = 12
"""Collectives that a report shows, the longest."""


def in_time(seconds: float) -> str:
    """Seconds in words: `1.50 ms`."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def simulate(module: Module, plan: Plan, where: str = HERE, *, engine: str = "auto",
             threads: int | None = None) -> SimulationReport:
    """The prediction for a program without calls under a propagated plan.

    `where` is `here`, the name of a preset, or a file. Raises UsageError for one that is none, and as `partition` does.
    """
    local = partition(module, plan)
    chosen = engines.get(engine, threads or threads_of(plan.mesh.count)) if where == HERE else engines.get("numpy")
    cluster = cluster_of(where)
    # Kernels keep the constants that they are made with.
    with using(busy_constants(cluster, plan.mesh.count)) if where == HERE else nullcontext():
        fused = canonicalized(optimise(local.module, "default").module, chosen, apart=True)
        meets = any(n.op.exchange for n in fused.entry.nodes)
        timing = _predicted(chosen, plan.mesh.count, meets) if where == HERE else roofline(cluster)
        tasks, collectives, is_known = step_tasks(fused.entry, cluster, timing)
    if where == HERE and plan.mesh.count > 1 and cluster.device.step:
        tasks.append(SimTask("call", ((0, COMPUTE),), cluster.device.step, (len(tasks) - 1,) if tasks else ()))
    step = run_events(tasks)
    peak = plan_of_device(fused, chosen, plan.mesh.count).peak_bytes + sum(nbytes(p.type) for p in fused.entry.params)
    return SimulationReport(str(plan.mesh), plan.mesh.count, where, step, collectives, peak, int(cluster.device.memory), is_known)


def simulated_pipeline(plan: PipelinePlan, schedule: str, where: str) -> SimulationReport:
    """The prediction for a pipeline; its exchanges are those between stages and copies, what devices of a stage exchange is in the
    time of its programs."""
    rows, mesh = plan.schedule, Mesh((*plan.copied, *plan.mesh.axes))
    kinds = [SimulatedCollective(f"stage {k} to {k + 1}", PERMUTE, plan.sent_bytes(k), 2 * rows.microbatches,
                                 plan.transfer(k) * 2 * rows.microbatches, "direct")
             for k in range(rows.stages - 1) if rows.device_of(k) != rows.device_of(k + 1)]
    kinds += [SimulatedCollective(f"gradients of place {p}", ALL_REDUCE, plan.summed_bytes(p), 1, plan.summing(p), "over copies")
              for p in range(plan.places) if plan.copies > 1]
    said = f"{rows.stages} stages, {rows.microbatches} microbatches, {schedule}" + (f", each on {mesh}" if mesh.axes else "")
    said += f", {plan.copies} copies over {', '.join(name for name, _ in plan.copied)}" if plan.copies > 1 else ""
    memory = int(plan.cluster.device.memory)
    return SimulationReport(said, plan.devices, where, plan.simulated, tuple(kinds), plan.peak_bytes, memory, True)


def cluster_of(where: str) -> DeviceCluster:
    """This machine, the preset of that name, or what a file says. Raises UsageError, or ParseError for a text that is none."""
    if where == HERE:
        return network_here()
    if where in PRESETS or not Path(where).exists():
        return preset(where)
    return read_cluster(read_text(where), where)


def _predicted(engine: Engine, ranks: int, meets: bool) -> Timing:
    """What the engine predicts of its kernels by the constants in use; where it does not know, what the declaration says. Where
    several processes share a core, each takes so many times as long. A call of Python counts for each kernel of a program that
    meets others, though those between two collectives have one in common, and for such of any other as are no machine code."""
    crowd = max(1.0, ranks / available_cores())
    is_one_kernel = not meets and engine.writes_loops

    def seconds(node: Node) -> float:
        engine.kernel(node)
        forecast = engine.forecast(node)
        nanoseconds = None if forecast is None else forecast.nanoseconds
        if forecast is None or nanoseconds is None:
            nanoseconds = alone(node, getattr(engine, "threads", None) or 1).nanoseconds
        elif is_one_kernel:
            nanoseconds -= forecast.calls
        return (nanoseconds or 0.0) / 1e9 * crowd

    return seconds


def busy_constants(cluster: DeviceCluster, ranks: int) -> Constants:
    """The constants in use for one of so many processes of this machine: slowed down the more cores compute."""
    d, others = cluster.device, min(1.0, (ranks - 1) / max(1, available_cores() - 1))
    left = (alone + others * (busy - alone) for alone, busy in
            ((d.alone_flops, d.busy_flops), (d.alone_bandwidth, d.busy_bandwidth)))
    return crowded(constants_in_use(), *left)
