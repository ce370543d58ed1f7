"""How many stages, copies and parts of stages: a pipeline on so many devices of a cluster, of least simulated time.

Every way to write the number of devices as places x copies x devices of a stage is estimated: the program of its microbatch is cut
between layers, each piece is planned on the mesh of a stage, and what pieces are simulated to take makes the longest
stage of any number of them. Of the ways that are best by that pipelines are planned in full (`pipeline_plan.py`), and the fastest
that fits is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from deepx_graph.errors import Diagnostic, UsageError, counted
from deepx_graph.ir import Function, Module
from deepx_graph.planning.cluster import DeviceCluster
from deepx_graph.planning.links import ALL_REDUCE, PERMUTE
from deepx_graph.planning.microbatches import microbatch_program
from deepx_graph.planning.schedules import FORWARD, PipelineSchedule, pipeline_schedule
from deepx_graph.planning.stages import Pieces
from deepx_graph.session.cluster.pipeline_plan import PipelinePlan, planned_pipeline
from deepx_graph.session.cluster.stage_programs import StagePrograms
from deepx_graph.sharding.mesh import Mesh
from deepx_graph.types import nbytes

WIDEST = 64
"""Devices of a stage, at most."""

IN_FULL = 2
"""Ways that are planned in full."""

DATA, MODEL = "data", "model"


@dataclass(frozen=True)
class PipelineWay:
    """So many places, copies of the pipeline, and devices of a stage."""

    places: int
    copies: int
    width: int

    @property
    def mesh(self) -> Mesh:
        """That of a place."""
        return Mesh(((DATA, self.copies), (MODEL, self.width)))

    def __str__(self) -> str:
        return f"--stages {self.places} --mesh {DATA}={self.copies},{MODEL}={self.width}"


@dataclass(frozen=True)
class FoundPipeline:
    """The plan, and all ways with the seconds of a step that they were estimated to take, the best first."""

    plan: PipelinePlan
    way: PipelineWay
    estimates: Mapping[PipelineWay, float]

    def lines(self) -> Iterator[str]:
        """In words."""
        yield f"found: {self.way}; of {len(self.estimates)} ways, estimated to take"
        for way, seconds in list(self.estimates.items())[:8]:
            yield f"  {seconds * 1e3:,.3g} ms  {way}"


def searched_pipeline(module: Module, batch: Sequence[str], devices: int, schedule: str, microbatches: int,
                      cluster: DeviceCluster) -> FoundPipeline:
    """The pipeline of a module without calls on all of so many devices, each place with one stage and each copy with so many
    microbatches. Raises UsageError where there is none."""
    estimates: dict[PipelineWay, float] = {}
    refused: UsageError | None = None
    for copies in _divisors(devices):
        try:
            entry = microbatch_program(module, batch, microbatches * copies)
        except UsageError as e:
            refused = refused or e
            continue
        for width in (w for w in _divisors(devices // copies) if w <= WIDEST):
            way = PipelineWay(devices // copies // width, copies, width)
            try:
                estimates[way] = _estimate(entry, batch, way, pipeline_schedule(schedule, way.places, microbatches, 1), cluster)
            except UsageError as e:
                refused = refused or e
    found = []
    ranked = sorted(estimates, key=lambda w: estimates[w])
    for way in ranked[:IN_FULL]:
        order = pipeline_schedule(schedule, way.places, microbatches, 1)
        found.append((way, planned_pipeline(module, batch, order, cluster, way.mesh, 1)))
    if not found:
        raise refused or UsageError(Diagnostic(f"no pipeline on {devices} devices"))
    way, plan = min(found, key=lambda item: (not item[1].fits, item[1].simulated.seconds))
    return FoundPipeline(plan, way, {w: estimates[w] for w in ranked})


def _estimate(entry: Function, batch: Sequence[str], way: PipelineWay, schedule: PipelineSchedule, cluster: DeviceCluster) -> float:
    """Seconds of a step, by the pieces of the program. Raises UsageError where it cannot be cut so often."""
    pieces = Pieces(entry, cluster)
    if way.places > len(pieces.stages):
        hint = f"it has {counted(len(pieces.stages), 'piece')}"
        raise UsageError(Diagnostic(f"the program has no {way.places} stages", hint=hint))
    make = StagePrograms(entry, batch, Mesh(((MODEL, way.width),)), cluster, None)
    programs = [stage.program for stage in make(pieces.stages)]
    forward = sum(p.costs[0].seconds for p in programs) / sum(p.seconds for p in programs)
    stages = pieces.joined([p.seconds for p in programs], way.places)
    groups = (tuple(range(0, way.copies * way.width, way.width)),)

    def transfer(stage: int) -> float:
        pair = (0, way.copies * way.width)
        return cluster.collective(PERMUTE, (pair,), sum(nbytes(x.type) for x in stages[stage + 1].crossing))[0]

    def ending(place: int) -> float:
        held = sum(nbytes(entry.params[k].type) for k in stages[place].params if entry.params[k].name not in batch)
        return cluster.collective(ALL_REDUCE, groups, held / way.width)[0]

    return schedule.simulated(lambda e: stages[e.stage].seconds * (forward if e.direction == FORWARD else 1 - forward),
                              transfer, ending).seconds


def _divisors(number: int) -> list[int]:
    return [k for k in range(1, number + 1) if number % k == 0]
