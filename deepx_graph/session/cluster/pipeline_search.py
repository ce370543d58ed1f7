"""How many stages, copies and parts of stages: a pipeline on so many devices of a cluster, of least simulated time.

A way writes the number of devices as places x copies x devices of a stage. It is estimated by pieces: the program of its microbatch
is cut between layers, each piece is planned on the mesh of a stage, and what pieces are simulated to take makes the longest stage
of any number of them. Ways of few places come first. Those of so many that filling and draining the pipeline alone takes as long
as what was found are left out, and so are stages over more devices once these take longer. Of the ways that are best by that
pipelines are planned in full (`pipeline_plan.py`), and the fastest that fits is taken.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from deepx_graph.errors import Diagnostic, UsageError, counted, sized
from deepx_graph.ir import Module
from deepx_graph.planning.cluster import DeviceCluster
from deepx_graph.planning.links import ALL_REDUCE, PERMUTE
from deepx_graph.planning.microbatches import microbatch_program
from deepx_graph.planning.schedules import FORWARD, PipelineSchedule, pipeline_schedule
from deepx_graph.planning.stages import Pieces, PipelineStage
from deepx_graph.session.cluster.pipeline_plan import PipelinePlan, planned_pipeline
from deepx_graph.session.cluster.stage_programs import PlacedStage, StagePrograms
from deepx_graph.sharding.mesh import Mesh
from deepx_graph.types import nbytes

WIDEST = 64
"""Devices of a stage, at most."""

IN_FULL = 2
"""Ways that fit of which pipelines are planned in full."""

MOST_IN_FULL = 6
"""Ways that are planned in full at most, where some turn out not to fit, or not to be possible."""

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
class WayEstimate:
    """Seconds of a step, and what the device that has most holds at least."""

    seconds: float
    device_bytes: int


@dataclass(frozen=True)
class FoundPipeline:
    """The plan, and the ways that were estimated, the best first, those that cannot fit last; `ways` is how many there are."""

    plan: PipelinePlan
    way: PipelineWay
    estimates: Mapping[PipelineWay, WayEstimate]
    ways: int

    def lines(self) -> Iterator[str]:
        """In words."""
        memory = self.plan.cluster.device.memory
        yield f"found: {self.way}; {len(self.estimates)} of {counted(self.ways, 'way')} estimated to take"
        for way, found in list(self.estimates.items())[:8]:
            fits = "" if found.device_bytes <= memory else f", and does not fit: {sized(found.device_bytes)}"
            yield f"  {found.seconds * 1e3:,.3g} ms  {way}{fits}"


def searched_pipeline(module: Module, batch: Sequence[str], devices: int, schedule: str, microbatches: int,
                      cluster: DeviceCluster) -> FoundPipeline:
    """The pipeline of a module without calls on all of so many devices, each place with one stage and each copy with so many
    microbatches. Raises UsageError where there is none."""
    search = PipelineSearch(module, batch, devices, schedule, microbatches, cluster)
    estimates = search.estimates()
    found: list[tuple[PipelineWay, PipelinePlan]] = []
    for way in list(estimates)[:MOST_IN_FULL]:
        try:
            found.append((way, planned_pipeline(module, batch, search.schedule(way.places), cluster, way.mesh, 1)))
        except UsageError as e:
            search.refused[way] = e
        if sum(plan.fits for _, plan in found) == IN_FULL:
            break
    if not found:
        raise search.refused[min(search.refused, key=lambda w: w.copies)]
    way, plan = min(found, key=lambda item: (not item[1].fits, item[1].simulated.seconds))
    return FoundPipeline(plan, way, estimates, len(search.ways))


class PipelineSearch:
    """The ways, and what they are estimated to take. `refused` are the errors of those that cannot be had."""

    def __init__(self, module: Module, batch: Sequence[str], devices: int, schedule: str, microbatches: int,
                 cluster: DeviceCluster) -> None:
        self.module, self.batch, self.devices, self.cluster = module, batch, devices, cluster
        self.kind, self.microbatches = schedule, microbatches
        self.ways = [PipelineWay(places, devices // places // width, width) for places in _divisors(devices)
                     for width in _divisors(devices // places) if width <= WIDEST]
        self.refused: dict[PipelineWay, UsageError] = {}
        self.pieces = cache(self._pieces)

    def _pieces(self, copies: int) -> Pieces:
        """Those of the program of one microbatch where there are so many copies. Raises as `microbatch_program` does."""
        return Pieces(microbatch_program(self.module, self.batch, self.microbatches * copies), self.cluster)

    def schedule(self, places: int) -> PipelineSchedule:
        """The events of so many places. Raises UsageError where there are no such."""
        return pipeline_schedule(self.kind, places, self.microbatches, 1)

    def estimates(self) -> dict[PipelineWay, WayEstimate]:
        """What is to be planned in full, the best first; what cannot fit comes last."""
        found: dict[PipelineWay, WayEstimate] = {}
        for places in dict.fromkeys(way.places for way in self.ways):
            fitting = sorted(e.seconds for e in found.values() if self._fits(e))
            if len(fitting) >= IN_FULL and self.least_seconds(places) >= fitting[IN_FULL - 1]:
                break
            found |= self._of_places(places)
        return dict(sorted(found.items(), key=lambda item: (not self._fits(item[1]), item[1].seconds)))

    def _of_places(self, places: int) -> dict[PipelineWay, WayEstimate]:
        """Those of so many places: over more and more devices, as long as that takes less, or what is held does not fit."""
        found: dict[PipelineWay, WayEstimate] = {}
        before = math.inf
        for way in (w for w in self.ways if w.places == places):
            try:
                found[way] = self.estimate(way)
            except UsageError as e:
                self.refused[way] = e
                continue
            if found[way].seconds >= before:
                break
            before = found[way].seconds if self._fits(found[way]) else math.inf
        return found

    def _fits(self, estimate: WayEstimate) -> bool:
        return estimate.device_bytes <= self.cluster.device.memory

    @cached_property
    def alone(self) -> float:
        """Seconds of one device for one microbatch of the only copy, without the starts of kernels."""
        cluster = replace(self.cluster, device=replace(self.cluster.device, launch=0.0))
        make = StagePrograms(self.pieces(1).function, self.batch, Mesh(()), cluster, None)
        return sum(stage.program.seconds for stage in make(self.pieces(1).stages))

    def least_seconds(self, places: int) -> float:
        """What a step takes at least where all devices share the work, and nothing is sent: place k begins when those before have
        worked on the first microbatch, and those work on the last when it ends. So a step takes m t_k and all t before t_k."""
        m = self.microbatches
        return self.alone * places / self.devices / (1 - (1 - 1 / m) ** places)

    def estimate(self, way: PipelineWay) -> WayEstimate:
        """By the pieces of the program. Raises UsageError where it cannot be cut so often."""
        schedule, pieces = self.schedule(way.places), self.pieces(way.copies)
        if way.places > len(pieces.stages):
            hint = f"it has {counted(len(pieces.stages), 'piece')}"
            raise UsageError(Diagnostic(f"the program has no {way.places} stages", hint=hint))
        make = StagePrograms(pieces.function, self.batch, Mesh(((MODEL, way.width),)), self.cluster, None)
        placed = make(pieces.stages)
        programs = [stage.program for stage in placed]
        forward = sum(p.costs[0].seconds for p in programs) / sum(p.seconds for p in programs)
        stages = pieces.joined([p.seconds for p in programs], way.places)
        groups = (tuple(range(0, way.copies * way.width, way.width)),)

        def transfer(stage: int) -> float:
            pair = (0, way.copies * way.width)
            return self.cluster.collective(PERMUTE, (pair,), sum(nbytes(x.type) for x in stages[stage + 1].crossing))[0]

        held = [_held(stage, placed, self.batch) for stage in stages]
        step = schedule.simulated(lambda e: stages[e.stage].seconds * (forward if e.direction == FORWARD else 1 - forward),
                                  transfer, lambda place: self.cluster.collective(ALL_REDUCE, groups, held[place])[0])
        kept = [schedule.live(k) * sum(nbytes(x.type) for x in stage.crossing) // way.width for k, stage in enumerate(stages)]
        return WayEstimate(step.seconds, max(2 * a + b + c for a, b, c in zip(held, kept, _peaks(stages, placed), strict=True)))


def _held(stage: PipelineStage, pieces: Sequence[PlacedStage], batch: Collection[str]) -> int:
    """Bytes of parameters that one device of a stage has at least, as they lie in the pieces."""
    least: dict[int, int] = {}
    for piece in pieces:
        for k, name, type in zip(piece.stage.params, piece.names, piece.parameters(piece.names), strict=True):
            if name not in batch:
                least[k] = min(nbytes(type), least.get(k, nbytes(type)))
    return sum(least.get(k, 0) for k in stage.params)


def _peaks(stages: Sequence[PipelineStage], pieces: Sequence[PlacedStage]) -> Iterator[int]:
    """Bytes that the programs of each stage take at least: those of the piece that takes most of those that end in it."""
    start = 0
    for stage in stages:
        inside = [p.program.costs for p in pieces if start < p.stage.end <= stage.end]
        yield max((cost.peak_bytes for costs in inside for cost in costs), default=0)
        start = stage.end


def _divisors(number: int) -> list[int]:
    return [k for k in range(1, number + 1) if number % k == 0]
