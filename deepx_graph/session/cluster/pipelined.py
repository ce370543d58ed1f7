"""`Pipelined`: the gradients of a program by stages and microbatches, its devices in lock step or each in a process of MPI.

Each event of the schedule runs the forward or backward program of its stage, on what other events have sent; a stage keeps what it
was given for its backward part, which computes the rest again (as GPipe does). Gradients of a stage are added over microbatches in
the order of its device, and then those of the stages that use the same input, so that all ways to run it give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from deepx_graph.errors import Diagnostic, UsageError, counted
from deepx_graph.ir import Module, Node
from deepx_graph.literal import Array
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.planning.cluster import DeviceCluster
from deepx_graph.planning.events import SimulatedStep
from deepx_graph.planning.links import PERMUTE
from deepx_graph.planning.microbatches import microbatch_program
from deepx_graph.planning.schedules import BACKWARD, FORWARD, PipelineSchedule, StageEvent
from deepx_graph.planning.stages import PipelineStage, stages
from deepx_graph.runtime.compile import Compiled, compile
from deepx_graph.runtime.inputs import Port, bind, input_ports, output_ports
from deepx_graph.session import programs
from deepx_graph.session.cluster.training import check_alike
from deepx_graph.types import TensorType, as_tensor, nbytes

if TYPE_CHECKING:
    from deepx_graph.runtime.transport.mpi import MpiMessages, MpiTransport

Gradients = dict[tuple[int, str], Array]
"""By stage and input."""


@dataclass(frozen=True)
class _StagePrograms:
    """A stage, forward and backward, compiled where its device is."""

    forward: Compiled
    backward: Compiled | None


class _Stage:
    """A stage, with the names of the program's inputs among its own; `wanted` are the numbers of its inputs that have a gradient,
    `cotangents` those of its results that have one."""

    def __init__(self, stage: PipelineStage, params: Sequence[Node], batch: frozenset[str]) -> None:
        function = stage.function
        self.stage, self.module = stage, Module((function,), function.name)
        self.names = [params[k].name for k in stage.params]
        given = [*self.names, *[""] * len(stage.crossing)]
        self.wanted = [k for k, (p, name) in enumerate(zip(function.params, given, strict=True))
                       if _is_float(p.type) and name not in batch]
        self.cotangents = [k for k, r in enumerate(function.results) if _is_float(r.type)]
        if not self.cotangents:
            self.wanted = []

    def compiled(self, options: dict[str, Any]) -> _StagePrograms:
        """Both programs."""
        backward = None
        if self.wanted:
            backward = compile(grad(self.module, [self.stage.function.params[k].name for k in self.wanted]), **options)
        return _StagePrograms(compile(self.module, **options), backward)

    @property
    def differentiated(self) -> list[str]:
        """The inputs of the program of which it gives gradients."""
        return [self.names[k] for k in self.wanted if k < len(self.names)]

    @property
    def sent_back(self) -> list[int]:
        """The numbers of what crosses into it whose cotangents it sends back."""
        return [k - len(self.names) for k in self.wanted if k >= len(self.names)]


class Pipelined:
    """`f(x, y)` or `f(name=array)` takes whole arrays; gives the results, and the gradients of what is not in the batch by name.

    `batch` names the inputs that are cut into microbatches. Cotangents of results are ones. The devices are all in this process,
    in lock step, or with a `transport` it is one of them; then device 0 gets results and gradients, and the others nothing.
    Raises UsageError where the program has no such stages or microbatches, and where processes are given different ones.
    """

    compiled = None
    """It is several programs."""
    interfaces = 1
    """As of `OverMesh`."""

    def __init__(self, module: Module, batch: Sequence[str], schedule: PipelineSchedule, cluster: DeviceCluster, *,
                 transport: MpiTransport | None = None, **options: Any) -> None:
        self.schedule, self.cluster, self.batch = schedule, cluster, frozenset(batch)
        self.inputs: tuple[Port, ...] = input_ports(module.entry)
        self.entry = microbatch_program(module, batch, schedule.microbatches)
        self.stages = stages(self.entry, schedule.stages, cluster)
        self.order = schedule.order()
        self.parts = [_Stage(stage, self.entry.params, self.batch) for stage in self.stages]
        self.live = [0] * len(schedule.devices)
        """The most microbatches that each device has held at once, in the last run."""
        self.transport, self._options = transport, options
        self._programs: dict[int, _StagePrograms] = {}
        self._messages = None
        if transport is not None:
            check_alike(transport, {"program": [programs.dumps(part.module, "sea") for part in self.parts],
                                    "schedule": schedule, "seed": options.get("seed", 0)})
            self._messages = transport.messages()
        results, found = output_ports(module.entry), {name for part in self.parts for name in part.differentiated}
        self.outputs = (*results, *(Port(f"grad_{p.name}", p.type) for p in self.inputs if p.name in found))
        """The results, and the gradients in the order of inputs."""

    def __repr__(self) -> str:
        return f"<Pipelined of {counted(len(self.schedule.devices), 'device')}>"

    def programs(self, stage: int) -> _StagePrograms:
        """Those of a stage, compiled when they are first run."""
        if stage not in self._programs:
            self._programs[stage] = self.parts[stage].compiled(self._options)
        return self._programs[stage]

    def __call__(self, *arrays: Any, **named: Any) -> tuple[list[Array], dict[str, Array]]:
        """Runs all events, or those of the device that this process is. Raises RunError for inputs that do not fit, as the program
        does, and where another device does not come."""
        whole = bind(self.inputs, arrays, named)
        run = _Run(self, whole, self._messages)
        for event in self.order if self.transport is None else self.schedule.devices[self.transport.device]:
            run.do(event)
        self.live = run.most
        if self.transport is None:
            return run.results, self._added(run.gradients)
        return self._gathered(run)

    def values(self, *arrays: Any, **named: Any) -> tuple[Array, ...]:
        """The same as `outputs` lists it; nothing where another process has it."""
        results, gradients = self(*arrays, **named)
        return (*results, *(gradients[p.name] for p in self.inputs if p.name in gradients))

    def _gathered(self, run: _Run) -> tuple[list[Array], dict[str, Array]]:
        """What all devices have, on device 0."""
        assert self.transport is not None and self._messages is not None
        self._messages.finish()
        rows = self.transport.gather([*run.results, *(run.gradients[key] for key in self._keys(self.transport.device))])
        if rows is None:
            return [], {}
        results: list[Array] = []
        gradients: Gradients = {}
        for device, row in enumerate(rows):
            keys = self._keys(device)
            results += row[: len(row) - len(keys)]
            gradients |= zip(keys, row[len(row) - len(keys):], strict=True)
        return results, self._added(gradients)

    def _keys(self, device: int) -> list[tuple[int, str]]:
        """The gradients that a device has."""
        return [(k, name) for k, part in enumerate(self.parts) if self.schedule.device_of(k) == device
                for name in part.differentiated]

    def _added(self, gradients: Gradients) -> dict[str, Array]:
        """Those of an input that several stages use, added in their order."""
        found: dict[str, Array] = {}
        for (_, name), gradient in sorted(gradients.items(), key=lambda item: item[0][0]):
            found[name] = _sum(found[name], gradient) if name in found else gradient
        return found

    def simulated(self) -> SimulatedStep:
        """When each event is predicted to be; backward takes twice as long, and what it computes again."""
        return self.schedule.simulated(
            lambda e: self.stages[e.stage].seconds * (1 if e.direction == FORWARD else 3),
            self.transfer)

    def crossing(self, stage: int) -> Sequence[Node]:
        """What goes from a stage to the next."""
        return self.stages[stage + 1].crossing

    def transfer(self, stage: int) -> float:
        """Seconds for that, or for its cotangents to come back."""
        here, there = map(self.schedule.device_of, (stage, stage + 1))
        return self.cluster.collective(PERMUTE, ((here, there),), sum(nbytes(x.type) for x in self.crossing(stage)))[0]

    def device_bytes(self, device: int) -> int:
        """Bytes of a device: parameters of its stages with their gradients, and what it keeps of microbatches at work."""
        mine = [s for k, s in enumerate(self.stages) if self.schedule.device_of(k) == device]
        held = sum(nbytes(self.entry.params[k].type) for s in mine for k in s.params if self.entry.params[k].name not in self.batch)
        kept = max(sum(nbytes(p.type) for p in s.function.params[len(s.params):]) for s in mine)
        return 2 * held + self.schedule.live(device) * kept


class _Run:
    """One run: what was sent, what stages keep, and the sums so far."""

    def __init__(self, pipeline: Pipelined, whole: Sequence[Array], messages: MpiMessages | None) -> None:
        self.pipeline, self.schedule, self.messages = pipeline, pipeline.schedule, messages
        count = pipeline.schedule.microbatches
        self.parts = [np.split(a, count) if port.name in pipeline.batch else [a] * count
                      for port, a in zip(pipeline.inputs, whole, strict=True)]
        self.sent: dict[StageEvent, Sequence[Array]] = {}
        self.kept: dict[tuple[int, int], list[Array]] = {}
        self.results: list[Array] = []
        self.gradients: Gradients = {}
        self.held = [0] * len(pipeline.schedule.devices)
        self.most = list(self.held)
        if messages is not None:
            messages.step += 1

    def do(self, event: StageEvent) -> None:
        """One event: its program on what was sent to it."""
        device = self.schedule.device_of(event.stage)
        if event.direction == FORWARD:
            self._forward(event)
            self.held[device] += 1
            self.most[device] = max(self.most[device], self.held[device])
        else:
            self._backward(event)
            self.held[device] -= 1

    def _forward(self, event: StageEvent) -> None:
        part = self.pipeline.parts[event.stage]
        received = self._received(StageEvent(event.stage - 1, event.microbatch, FORWARD)) if event.stage else ()
        given = [self.parts[k][event.microbatch] for k in part.stage.params] + list(received)
        self.kept[event.stage, event.microbatch] = given
        made = list(self.pipeline.programs(event.stage).forward(*given))
        if event.stage < self.schedule.stages - 1:
            self._send(event, made)
        else:
            self.results = made if not self.results else [_sum(a, b) for a, b in zip(self.results, made, strict=True)]

    def _backward(self, event: StageEvent) -> None:
        part = self.pipeline.parts[event.stage]
        given = self.kept.pop((event.stage, event.microbatch))
        if event.stage == self.schedule.stages - 1:
            types = [as_tensor(part.stage.function.results[k].type) for k in part.cotangents]
            cotangents = [np.ones(type.shape, type.dtype.np) for type in types]
        else:
            back = StageEvent(event.stage + 1, event.microbatch, BACKWARD)
            came = dict(zip(self.pipeline.parts[back.stage].sent_back, self._received(back), strict=True))
            cotangents = [came[k] if k in came else _zeros(part.stage.function.results[k]) for k in part.cotangents]
        backward = self.pipeline.programs(event.stage).backward
        found = dict(zip(part.wanted, [] if backward is None else backward(*given, *cotangents), strict=True))
        for k, name in enumerate(part.names):
            if k in found:
                key = event.stage, name
                self.gradients[key] = _sum(self.gradients[key], found[k]) if key in self.gradients else found[k]
        if event.stage:
            self._send(event, [found[len(part.names) + k] for k in part.sent_back])

    def _send(self, event: StageEvent, arrays: Sequence[Array]) -> None:
        """To the stage that goes on with it."""
        to = self.schedule.device_of(event.stage + (1 if event.direction == FORWARD else -1))
        if self.messages is None or to == self.schedule.device_of(event.stage):
            self.sent[event] = arrays
        else:
            self.messages.send(to, self._number(event), arrays)

    def _received(self, event: StageEvent) -> Sequence[Array]:
        """What an event has sent, once. Raises UsageError where it has not been yet, RunError where it does not come."""
        if event in self.sent:
            return self.sent.pop(event)
        if self.messages is None:
            raise UsageError(Diagnostic(f"{event} has sent nothing yet"))
        part = self.pipeline.parts[event.stage]
        values = part.stage.function.results if event.direction == FORWARD else [part.stage.crossing[k] for k in part.sent_back]
        types = [(as_tensor(v.type).shape, np.dtype(as_tensor(v.type).dtype.np)) for v in values]
        return self.messages.receive(self.schedule.device_of(event.stage), self._number(event), types, str(event))

    def _number(self, event: StageEvent) -> int:
        """Of what an event sends, from 1."""
        return 1 + 2 * (event.stage * self.schedule.microbatches + event.microbatch) + (event.direction == BACKWARD)


def _sum(a: Array, b: Array) -> Array:
    """An array also where the rank is 0."""
    return np.asarray(a + b)


def _zeros(value: Node) -> Array:
    return np.zeros(as_tensor(value.type).shape, as_tensor(value.type).dtype.np)


def _is_float(type: object) -> bool:
    return isinstance(type, TensorType) and type.dtype.is_float
