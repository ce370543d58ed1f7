"""`PipelinePlan`: a program cut into stages, each on a mesh of its own, and what a step of that is predicted to take.

A pipeline has as many places as its schedule has rows, and each place the devices of the mesh. The first axes of the mesh carry
copies of the whole pipeline, each with microbatches of its own, whose gradients are added once a step (data parallelism, as in
Megatron-LM; Narayanan et al., 2021); over the others each stage is split (`stage_programs.py`). How many axes carry copies, the
cuts and the plans of stages are chosen by what a step is simulated to take, in the two levels of Alpa (Zheng et al., 2022).

Device d of place p is number p * mesh.count + d; the devices of a copy lie together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from deepx_graph.errors import UsageError
from deepx_graph.ir import Function, Module
from deepx_graph.planning.cluster import DeviceCluster
from deepx_graph.planning.events import SimulatedStep
from deepx_graph.planning.links import ALL_REDUCE, PERMUTE
from deepx_graph.planning.microbatches import microbatch_program
from deepx_graph.planning.schedules import FORWARD, PipelineSchedule
from deepx_graph.planning.stages import balanced_stages, stages, stages_at
from deepx_graph.session.cluster.stage_programs import PlacedStage, StagePrograms
from deepx_graph.sharding.mesh import Mesh, TensorSharding
from deepx_graph.sharding.plan import Plan, PortablePlan
from deepx_graph.types import nbytes


@dataclass(frozen=True)
class PipelineDecisions:
    """What is decided of a pipeline, to be told to other processes: how many of the first axes carry copies, where all stages but
    the last end, and the plans of their programs, equal ones once."""

    copied: int
    cuts: tuple[int, ...]
    plans: tuple[PortablePlan, ...]


@dataclass(frozen=True)
class PipelinePlan:
    """A program in stages; `entry` is that of one microbatch. Each of `copies` pipelines has places of `mesh` devices."""

    entry: Function
    batch: frozenset[str]
    schedule: PipelineSchedule
    cluster: DeviceCluster
    copied: tuple[tuple[str, int], ...]
    """The axes along which there are copies."""
    mesh: Mesh
    stages: tuple[PlacedStage, ...]

    @cached_property
    def copies(self) -> int:
        """How many pipelines there are side by side."""
        return Mesh(self.copied).count

    @property
    def places(self) -> int:
        """How many places a pipeline has."""
        return len(self.schedule.devices)

    @property
    def devices(self) -> int:
        """Of all places of all copies."""
        return self.places * self.copies * self.mesh.count

    def number(self, place: int, copy: int, device: int) -> int:
        """Of a device of the mesh in a place of a copy, among all."""
        return (place * self.copies + copy) * self.mesh.count + device

    def stages_of(self, place: int) -> list[int]:
        """The numbers of the stages that a place has."""
        return [k for k in range(len(self.stages)) if self.schedule.device_of(k) == place]

    @property
    def decisions(self) -> PipelineDecisions:
        """What `decided_pipeline` makes it again by."""
        programs = dict.fromkeys(stage.program for stage in self.stages)
        cuts = tuple(stage.stage.end for stage in self.stages[:-1])
        return PipelineDecisions(len(self.copied), cuts, tuple(PortablePlan.of(program.plan) for program in programs))

    # --- predictions

    @cached_property
    def simulated(self) -> SimulatedStep:
        """When each event is predicted to be, in one of the copies."""
        return self.schedule.simulated(
            lambda e: self.stages[e.stage].program.costs[e.direction != FORWARD].seconds, self.transfer, self.summing)

    def transfer(self, stage: int) -> float:
        """Seconds for what goes from a stage to the next, or for its cotangents to come back."""
        here, there = map(self.schedule.device_of, (stage, stage + 1))
        devices = [(c, d) for c in range(self.copies) for d in range(self.mesh.count)]
        pairs = tuple((self.number(here, *at), self.number(there, *at)) for at in devices)
        return self.cluster.collective(PERMUTE, pairs, self.sent_bytes(stage))[0]

    def sent_bytes(self, stage: int) -> int:
        """What one device sends to the next stage."""
        return sum(map(nbytes, self.stages[stage + 1].received))

    def summed_bytes(self, place: int) -> int:
        """The gradients that one device of a place has."""
        return sum(nbytes(t) for k in self.stages_of(place) for t in self.stages[k].parameters(self.stages[k].differentiated))

    def summing(self, place: int) -> float:
        """Seconds in which the devices of a place add their gradients over copies."""
        groups = tuple(tuple(self.number(place, c, d) for c in range(self.copies)) for d in range(self.mesh.count))
        return self.cluster.collective(ALL_REDUCE, groups, self.summed_bytes(place))[0] if self.copies > 1 else 0.0

    def device_bytes(self, place: int) -> int:
        """Bytes of a device of a place: parameters of its stages with their gradients, what it keeps of microbatches at work, and
        what its programs take."""
        mine = [self.stages[k] for k in self.stages_of(place)]
        held = sum(nbytes(t) for s in mine for t in s.parameters([n for n in s.names if n not in self.batch]))
        kept = max(sum(map(nbytes, s.received)) for s in mine)
        peak = max(cost.peak_bytes for s in mine for cost in s.program.costs)
        return 2 * held + self.schedule.live(place) * kept + peak

    @cached_property
    def peak_bytes(self) -> int:
        """Of the device that has most."""
        return max(map(self.device_bytes, range(self.places)))

    @property
    def fits(self) -> bool:
        """Whether every device has the memory."""
        return self.peak_bytes <= self.cluster.device.memory

    def lines(self) -> Iterator[str]:
        """How stages lie, equal ones together."""
        copies = " x ".join(f"{name}={size}" for name, size in self.copied)
        yield f"{self.copies} copies of the pipeline over {copies}" if self.copied else "one pipeline"
        first: dict[int, tuple[list[int], PlacedStage]] = {}
        for k, stage in enumerate(self.stages):
            first.setdefault(id(stage.program), ([], stage))[0].append(k)
        for numbers, stage in first.values():
            yield f"stage {', '.join(map(str, numbers))} on {self.mesh}"
            function, local = stage.stage.function, stage.program.forward
            for p, sharding in zip(function.params, local.params, strict=True):
                yield f"  {p.name}: {sharding.text(self.mesh)}"
            for k, sharding in enumerate(local.results):
                yield f"  -> {k}: {sharding.text(self.mesh)}"


def pipeline_plan(module: Module, batch: Sequence[str], schedule: PipelineSchedule, cluster: DeviceCluster,
                  mesh: Mesh | None = None, said: Plan | None = None) -> PipelinePlan:
    """The plan of a module without calls: as `said`, which is propagated, or of least simulated time on a mesh for each stage.

    Raises UsageError where there are no such stages or microbatches, and as `partition` and `automatic_plan` do.
    """
    whole = Mesh(()) if mesh is None else mesh
    if said is not None:
        copied = _carries_copies(said, batch)
        return planned_pipeline(module, batch, schedule, cluster, said.mesh, copied, said)
    best, refused = None, None
    for copied in range(len(whole.axes), -1, -1):
        try:
            found = planned_pipeline(module, batch, schedule, cluster, whole, copied)
        except UsageError as e:
            refused = refused or e
            continue
        if best is not None and (not best.fits, best.simulated.seconds) <= (not found.fits, found.simulated.seconds):
            break
        best = found
    if best is None:
        assert refused is not None
        raise refused
    return best


def planned_pipeline(module: Module, batch: Sequence[str], schedule: PipelineSchedule, cluster: DeviceCluster, mesh: Mesh,
                     copied: int, said: Plan | None = None) -> PipelinePlan:
    """The plan with copies along the first so many axes."""
    outer, inner = mesh.axes[:copied], Mesh(mesh.axes[copied:])
    entry = microbatch_program(module, batch, schedule.microbatches * Mesh(outer).count)
    make = StagePrograms(entry, batch, inner, cluster, None if said is None else _inside(said, entry, inner))
    if inner.count == 1:
        cut = stages(entry, schedule.stages, cluster)
    else:
        cut = balanced_stages(entry, schedule.stages, cluster, lambda found: [s.program.seconds for s in make(found)])
    return PipelinePlan(entry, frozenset(batch), schedule, cluster, outer, inner, tuple(make(cut)))


def decided_pipeline(module: Module, batch: Sequence[str], schedule: PipelineSchedule, cluster: DeviceCluster,
                     mesh: Mesh | None, said: Plan | None, decisions: PipelineDecisions) -> PipelinePlan:
    """The plan of `pipeline_plan`, of which another process has told what is decided: nothing is searched for."""
    whole = said.mesh if said is not None else mesh or Mesh(())
    outer, inner = whole.axes[:decisions.copied], Mesh(whole.axes[decisions.copied:])
    entry = microbatch_program(module, batch, schedule.microbatches * Mesh(outer).count)
    make = StagePrograms(entry, batch, inner, cluster, None if said is None else _inside(said, entry, inner), decisions.plans)
    placed = make(stages_at(entry, decisions.cuts, cluster))
    return PipelinePlan(entry, frozenset(batch), schedule, cluster, outer, inner, tuple(placed))


def _carries_copies(said: Plan, batch: Sequence[str]) -> int:
    """How many of the first axes split the rows of the batch alone, and nothing else."""
    count = 0
    for name, size in said.mesh.axes:
        rows = [s.axes[0] for p, s in said.values.items() if p.name in batch and s.axes]
        others = [axes for p, s in said.values.items() for axes in s.axes[p.name in batch:]]
        others += [axes for s in said.results.values() for axes in s.axes]
        is_copied = any(a.name == name and a.size == size for axes in rows for a in axes)
        if not is_copied or any(a.name == name for axes in others for a in axes):
            break
        count += 1
    return count


def _inside(said: Plan, entry: Function, inner: Mesh) -> Plan:
    """The plan for the program of one microbatch: what is left without the axes that carry copies."""
    names = dict(inner.axes)

    def left(sharding: TensorSharding) -> TensorSharding:
        return replace(sharding, dims=tuple(replace(d, axes=tuple(a for a in d.axes if a.name in names)) for d in sharding.dims))

    place = {p: k for k, p in enumerate(said.function.params)}
    values = {entry.params[place[p]]: left(s) for p, s in said.values.items() if p in place}
    results = {k: left(s) for k, s in said.results.items()}
    return Plan(inner, entry, values, results)
