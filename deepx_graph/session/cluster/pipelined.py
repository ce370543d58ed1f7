"""`Pipelined`: the gradients of a program by stages and microbatches, its devices in lock step or each in a process of MPI.

Each event of the schedule runs the forward or backward program of its stage, on what other events have sent; a stage keeps what it
was given for its backward part, which computes the rest again (as GPipe does). Where each place of the pipeline is a mesh, its
devices run an event together, and each sends its parts to the device of the next place that has its number. Gradients of a stage
are added over microbatches in the order of its place, then over copies of the pipeline, and then those of the stages that use the
same input, so that all ways to run it give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from deepx_graph.errors import Diagnostic, UsageError, counted
from deepx_graph.ir import Module
from deepx_graph.ir.collective import Grid
from deepx_graph.literal import Array
from deepx_graph.planning.cluster import DeviceCluster
from deepx_graph.planning.schedules import BACKWARD, FORWARD, PipelineSchedule, StageEvent
from deepx_graph.runtime.inputs import Port, bind, input_ports, output_ports
from deepx_graph.session import programs
from deepx_graph.session.cluster.pipeline_plan import PipelinePlan, decided_pipeline, pipeline_plan
from deepx_graph.session.cluster.stage_programs import PlacedStage
from deepx_graph.session.cluster.training import Parts, check_alike, compile_part, runner
from deepx_graph.sharding.mesh import Mesh, TensorSharding, local_shape
from deepx_graph.sharding.pieces import assembled, piece
from deepx_graph.sharding.plan import Plan
from deepx_graph.types import TensorType, as_tensor

if TYPE_CHECKING:
    from deepx_graph.runtime.transport.mpi import MpiMessages, MpiTransport

GradientParts = dict[tuple[int, str, int], Parts]
"""By stage, input and copy: on each device a row of one array."""


@dataclass(frozen=True)
class _Runners:
    """What runs the programs of a stage on the devices of a place that are in this process."""

    forward: Callable[[Parts], Parts]
    backward: Callable[[Parts], Parts]


class Pipelined:
    """`f(x, y)` or `f(name=array)` takes whole arrays; gives the results, and the gradients of what is not in the batch by name.

    `batch` names the inputs that are cut into microbatches. Cotangents of results are ones. Each place of the pipeline is a device,
    or a `mesh` of such, over which its stages are split as a plan is `said` or chosen (`pipeline_plan`). The devices are all in
    this process, in lock step, or with a `transport` it is one of them; then device 0 gets results and gradients, and the others
    nothing; device 0 plans for all. Raises UsageError where the program has no such stages or microbatches, and where processes are
    given different ones.
    """

    compiled = None
    """It is several programs."""
    interfaces = 1
    """As of `OverMesh`."""

    def __init__(self, module: Module, batch: Sequence[str], schedule: PipelineSchedule, cluster: DeviceCluster, *,
                 mesh: Mesh | None = None, said: Plan | None = None, transport: MpiTransport | None = None, **options: Any) -> None:
        self.inputs: tuple[Port, ...] = input_ports(module.entry)
        asked = module, batch, schedule, cluster, mesh, said
        self.plan = pipeline_plan(*asked) if transport is None else _planned_once(transport, *asked)
        self.schedule, self.order, self.stages = schedule, schedule.order(), self.plan.stages
        self.live = [0] * len(schedule.devices)
        """The most microbatches that each place has held at once, in the last run."""
        self.transport, self._options = transport, options
        self._runners: dict[int, _Runners] = {}
        self._messages: MpiMessages | None = None
        self._group: MpiTransport | None = None
        if transport is not None:
            self._join(transport)
        results, found = output_ports(module.entry), {name for part in self.stages for name in part.differentiated}
        self.outputs = (*results, *(Port(f"grad_{p.name}", p.type) for p in self.inputs if p.name in found))
        """The results, and the gradients in the order of inputs."""

    def __repr__(self) -> str:
        return f"<Pipelined of {counted(self.plan.devices, 'device')}>"

    def _join(self, transport: MpiTransport) -> None:
        """Makes sure that all processes are of one pipeline, and finds those of its own place and copy."""
        locals_ = [local for part in self.stages for local in (part.program.forward, part.program.backward) if local is not None]
        check_alike(transport, {"program": [programs.dumps(local.module, "sea") for local in locals_],
                                "plan": [(local.mesh, local.params, local.results) for local in locals_],
                                "seed": self._options.get("seed", 0)})
        self._messages = transport.messages()
        if self.plan.mesh.count > 1:
            self._group = transport.part(transport.device // self.plan.mesh.count, Grid(1, self.plan.mesh.count))

    @property
    def here(self) -> Sequence[int]:
        """The numbers of the devices that are in this process."""
        return range(self.plan.devices) if self.transport is None else [self.transport.device]

    def runners(self, stage: int) -> _Runners:
        """Those of a stage, compiled when they are first run."""
        if stage not in self._runners:
            program, count = self.stages[stage].program, 1 if self.transport else self.plan.mesh.count
            made = [runner(compile_part(local, self._group, self._options), count) if local else _nothing
                    for local in (program.forward, program.backward)]
            self._runners[stage] = _Runners(*made)
        return self._runners[stage]

    def __call__(self, *arrays: Any, **named: Any) -> tuple[list[Array], dict[str, Array]]:
        """Runs all events, or those of the device that this process is. Raises RunError for inputs that do not fit, as the program
        does, and where another device does not come."""
        whole = bind(self.inputs, arrays, named)
        run = _Run(self, whole, self._messages)
        if self.transport is None:
            for event in self.order:
                for copy in range(self.plan.copies):
                    run.do(event, copy)
        else:
            place, copy = divmod(self.transport.device // self.plan.mesh.count, self.plan.copies)
            for event in self.schedule.devices[place]:
                run.do(event, copy)
        self.live = run.most
        return self._found(run) if self.transport is None else self._gathered(run)

    def values(self, *arrays: Any, **named: Any) -> tuple[Array, ...]:
        """The same as `outputs` lists it; nothing where another process has it."""
        results, gradients = self(*arrays, **named)
        return (*results, *(gradients[p.name] for p in self.inputs if p.name in gradients))

    def _gathered(self, run: _Run) -> tuple[list[Array], dict[str, Array]]:
        """What all devices have, on device 0."""
        assert self.transport is not None and self._messages is not None
        self._messages.finish()
        mine = [*(a for rows in run.results.values() for a in rows[0]),
                *(run.gradients[key][0][0] for key in self._keys(self.transport.device))]
        rows = self.transport.gather(mine)
        if rows is None:
            return [], {}
        run.results, run.gradients = {}, {}
        for device, row in enumerate(rows):
            keys, copy = self._keys(device), device // self.plan.mesh.count % self.plan.copies
            count = len(row) - len(keys)
            if count:
                run.results.setdefault(copy, []).append(row[:count])
            for key, array in zip(keys, row[count:], strict=True):
                run.gradients.setdefault(key, []).append([array])
        return self._found(run)

    def _keys(self, device: int) -> list[tuple[int, str, int]]:
        """The gradients of which a device has parts."""
        place, copy = divmod(device // self.plan.mesh.count, self.plan.copies)
        return [(k, name, copy) for k in self.plan.stages_of(place) for name in self.stages[k].differentiated]

    def _found(self, run: _Run) -> tuple[list[Array], dict[str, Array]]:
        """The results and gradients, put together from the parts of all devices; those of an input that several stages use are
        added in their order."""
        copies = range(self.plan.copies)
        last = self.stages[-1].program.forward
        results = last.joined(_summed(run.results[c] for c in copies))
        found: dict[str, Array] = {}
        for k, part in enumerate(self.stages):
            for name in part.differentiated:
                rows = _summed(run.gradients[k, name, c] for c in copies)
                at = part.names.index(name)
                type = as_tensor(part.stage.function.params[at].type)
                whole = assembled([row[0] for row in rows], type.shape, self.plan.mesh, part.program.forward.params[at])
                found[name] = _sum(found[name], whole) if name in found else whole
        return results, found


def _planned_once(transport: MpiTransport, module: Module, batch: Sequence[str], schedule: PipelineSchedule,
                  cluster: DeviceCluster, mesh: Mesh | None, said: Plan | None) -> PipelinePlan:
    """The plan that device 0 finds, in every process: searches end at a time, and machines measure different networks."""
    check_alike(transport, {"program": programs.dumps(module, "sea"), "--batch": list(batch), "schedule": schedule, "--mesh": mesh,
                            "plan": said})
    decisions = transport.told(lambda: pipeline_plan(module, batch, schedule, cluster, mesh, said).decisions,
                               "for device 0 to plan the pipeline")
    return decided_pipeline(module, batch, schedule, cluster, mesh, said, decisions)


class _Run:
    """One run: what was sent, what stages keep, and the sums so far."""

    def __init__(self, pipeline: Pipelined, whole: Sequence[Array], messages: MpiMessages | None) -> None:
        self.pipeline, self.schedule, self.messages, self.plan = pipeline, pipeline.schedule, messages, pipeline.plan
        self.whole = whole
        count = self.schedule.microbatches * self.plan.copies
        self.batches = {k: np.split(a, count) for k, (port, a) in enumerate(zip(pipeline.inputs, whole, strict=True))
                        if port.name in self.plan.batch}
        self.devices = range(self.plan.mesh.count) if messages is None else [messages.device % self.plan.mesh.count]
        """The devices of a mesh that are here."""
        self.sent: dict[tuple[StageEvent, int], Parts] = {}
        self.kept: dict[tuple[int, int, int], Parts] = {}
        self.weights: dict[tuple[int, int], list[Array]] = {}
        self.results: dict[int, Parts] = {}
        """Of each copy."""
        self.gradients: GradientParts = {}
        self.held = [0] * self.plan.places
        self.most = list(self.held)
        if messages is not None:
            messages.step += 1

    def do(self, event: StageEvent, copy: int) -> None:
        """One event of a copy: its program on what was sent to it."""
        place, counts = self.schedule.device_of(event.stage), copy == 0 or self.messages is not None
        if event.direction == FORWARD:
            self._forward(event, copy)
            self.held[place] += counts
            self.most[place] = max(self.most[place], self.held[place])
        else:
            self._backward(event, copy)
            self.held[place] -= counts

    def _forward(self, event: StageEvent, copy: int) -> None:
        given = [self._given(event, copy, k) for k in range(len(self.pipeline.stages[event.stage].names))]
        rows: Parts = [list(row) for row in zip(*given, strict=True)] if given else [[] for _ in self.devices]
        if event.stage:
            before = StageEvent(event.stage - 1, event.microbatch, FORWARD)
            rows = [[*row, *more] for row, more in zip(rows, self._received(before, event.stage, copy), strict=True)]
        self.kept[event.stage, event.microbatch, copy] = rows
        made = self.pipeline.runners(event.stage).forward(rows)
        if event.stage < self.schedule.stages - 1:
            self._send(event, copy, made)
        else:
            self.results[copy] = _summed([self.results[copy], made]) if copy in self.results else made

    def _given(self, event: StageEvent, copy: int, k: int) -> list[Array]:
        """The parts that the devices here have of an input of the stage that is one of the program's."""
        part = self.pipeline.stages[event.stage]
        number, sharding = part.stage.params[k], part.program.forward.params[k]
        if number in self.batches:
            return self._cut(self.batches[number][copy * self.schedule.microbatches + event.microbatch], sharding)
        if (event.stage, k) not in self.weights:
            self.weights[event.stage, k] = self._cut(self.whole[number], sharding)
        return self.weights[event.stage, k]

    def _cut(self, array: Array, sharding: TensorSharding) -> list[Array]:
        return [np.asarray(piece(array, self.plan.mesh, sharding, d), order="C") for d in self.devices]

    def _backward(self, event: StageEvent, copy: int) -> None:
        part = self.pipeline.stages[event.stage]
        given = self.kept.pop((event.stage, event.microbatch, copy))
        cotangents = self._cotangents(event, copy, part)
        made = self.pipeline.runners(event.stage).backward([[*a, *b] for a, b in zip(given, cotangents, strict=True)])
        found = {k: [[row[n]] for row in made] for n, k in enumerate(part.wanted)}
        for k, name in enumerate(part.names):
            if k in found:
                key = event.stage, name, copy
                self.gradients[key] = _summed([self.gradients[key], found[k]]) if key in self.gradients else found[k]
        if event.stage:
            first = len(part.differentiated)
            self._send(event, copy, [row[first:] for row in made])

    def _cotangents(self, event: StageEvent, copy: int, part: PlacedStage) -> Parts:
        """Those of the results of a stage: ones of the last stage, else what comes back, and zeros where nothing does."""
        function, local = part.stage.function, part.program.forward
        types = [_part(as_tensor(function.results[k].type), local.results[k]) for k in part.cotangents]
        if event.stage == self.schedule.stages - 1:
            return [[np.ones(type.shape, type.dtype.np) for type in types] for _ in self.devices]
        came = self._received(StageEvent(event.stage + 1, event.microbatch, BACKWARD), event.stage, copy)
        numbers = {k: n for n, k in enumerate(self.pipeline.stages[event.stage + 1].sent_back)}
        return [[row[numbers[k]] if k in numbers else np.zeros(type.shape, type.dtype.np)
                 for k, type in zip(part.cotangents, types, strict=True)] for row in came]

    def _send(self, event: StageEvent, copy: int, rows: Parts) -> None:
        """To the stage that goes on with it: each device to the one of its number."""
        to = self.schedule.device_of(event.stage + (1 if event.direction == FORWARD else -1))
        if self.messages is None or to == self.schedule.device_of(event.stage):
            self.sent[event, copy] = rows
        else:
            self.messages.send(self.plan.number(to, copy, self.devices[0]), self._number(event), rows[0])

    def _received(self, event: StageEvent, stage: int, copy: int) -> Parts:
        """What an event has sent to a stage, once. Raises UsageError where it has not been yet, RunError where it does not come."""
        if (event, copy) in self.sent:
            return self.sent.pop((event, copy))
        if self.messages is None:
            raise UsageError(Diagnostic(f"{event} has sent nothing yet"))
        types = self.pipeline.stages[stage].received if event.direction == FORWARD else self.pipeline.stages[event.stage].returned
        source = self.plan.number(self.schedule.device_of(event.stage), copy, self.devices[0])
        return [self.messages.receive(source, self._number(event), [(t.shape, np.dtype(t.dtype.np)) for t in types], str(event))]

    def _number(self, event: StageEvent) -> int:
        """Of what an event sends, from 1."""
        return 1 + 2 * (event.stage * self.schedule.microbatches + event.microbatch) + (event.direction == BACKWARD)


def _nothing(values: Parts) -> Parts:
    """In place of the backward program of a stage that nothing is differentiated in."""
    return [[] for _ in values]


def _part(type: TensorType, sharding: TensorSharding) -> TensorType:
    """What one device has of a value."""
    return type.with_dims(local_shape(type.shape, sharding.axes))


def _summed(found: Iterable[Parts]) -> Parts:
    """The sums of parts, in their order."""
    first, *others = found
    for rows in others:
        first = [[_sum(a, b) for a, b in zip(row, other, strict=True)] for row, other in zip(first, rows, strict=True)]
    return first


def _sum(a: Array, b: Array) -> Array:
    """An array also where the rank is 0."""
    return np.asarray(a + b)
