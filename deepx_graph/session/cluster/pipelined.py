"""`Pipelined`: the gradients of a program by stages and microbatches, its devices in lock step in this process.

Each event of the schedule runs the forward or backward program of its stage, on what other events have sent; a stage keeps what it
was given for its backward part, which computes the rest again (as GPipe does). Gradients are added over microbatches in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, UsageError
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
from deepx_graph.runtime.inputs import Port, bind, input_ports
from deepx_graph.types import TensorType, as_tensor, nbytes


@dataclass(frozen=True)
class _StagePrograms:
    """A stage, forward and backward; `wanted` are the numbers of its inputs that have a gradient."""

    stage: PipelineStage
    forward: Compiled
    backward: Compiled | None
    wanted: tuple[int, ...]
    cotangents: tuple[int, ...]
    """The numbers of its results that have a cotangent."""


class Pipelined:
    """`f(x, y)` or `f(name=array)` takes whole arrays; gives the results, and the gradients of what is not in the batch by name.

    `batch` names the inputs that are cut into microbatches. Cotangents of results are ones. Raises UsageError where the program
    has no such stages or microbatches.
    """

    def __init__(self, module: Module, batch: Sequence[str], schedule: PipelineSchedule, cluster: DeviceCluster,
                 **options: Any) -> None:
        self.schedule, self.cluster, self.batch = schedule, cluster, frozenset(batch)
        self.inputs: tuple[Port, ...] = input_ports(module.entry)
        self.entry = microbatch_program(module, batch, schedule.microbatches)
        self.stages = stages(self.entry, schedule.stages, cluster)
        self.order = schedule.order()
        self._programs = [self._compiled(stage, options) for stage in self.stages]
        self.live = [0] * len(schedule.devices)
        """The most microbatches that each device has held at once, in the last run."""

    def _compiled(self, stage: PipelineStage, options: dict[str, Any]) -> _StagePrograms:
        module = Module((stage.function,), stage.function.name)
        names = [self.entry.params[k].name for k in stage.params] + [""] * len(stage.crossing)
        wanted = tuple(k for k, (p, name) in enumerate(zip(stage.function.params, names, strict=True))
                       if _is_float(p.type) and name not in self.batch)
        cotangents = tuple(k for k, r in enumerate(stage.function.results) if _is_float(r.type))
        backward = None
        if wanted and cotangents:
            backward = compile(grad(module, [stage.function.params[k].name for k in wanted]), **options)
        return _StagePrograms(stage, compile(module, **options), backward, wanted, cotangents)

    def __call__(self, *arrays: Any, **named: Any) -> tuple[list[Array], dict[str, Array]]:
        """Runs all events. Raises RunError for inputs that do not fit, and as the program does."""
        whole = bind(self.inputs, arrays, named)
        run = _Run(self, whole)
        for event in self.order:
            run.do(event)
        self.live = run.most
        return run.results, run.gradients

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

    def __init__(self, pipeline: Pipelined, whole: Sequence[Array]) -> None:
        self.pipeline = pipeline
        count = pipeline.schedule.microbatches
        self.parts = [np.split(a, count) if port.name in pipeline.batch else [a] * count
                      for port, a in zip(pipeline.inputs, whole, strict=True)]
        self.sent: dict[StageEvent, Sequence[Array | None]] = {}
        self.kept: dict[tuple[int, int], list[Array]] = {}
        self.results: list[Array] = []
        self.gradients: dict[str, Array] = {}
        self.held = [0] * len(pipeline.schedule.devices)
        self.most = list(self.held)

    def do(self, event: StageEvent) -> None:
        """One event: its program on what was sent to it."""
        programs = self.pipeline._programs[event.stage]
        device = self.pipeline.schedule.device_of(event.stage)
        if event.direction == FORWARD:
            self._forward(event, programs)
            self.held[device] += 1
            self.most[device] = max(self.most[device], self.held[device])
        else:
            self._backward(event, programs)
            self.held[device] -= 1

    def _forward(self, event: StageEvent, programs: _StagePrograms) -> None:
        received = self._received(StageEvent(event.stage - 1, event.microbatch, FORWARD)) if event.stage else ()
        given = [self.parts[k][event.microbatch] for k in programs.stage.params] + list(received)
        self.kept[event.stage, event.microbatch] = given
        made = list(programs.forward(*given))
        if event.stage < self.pipeline.schedule.stages - 1:
            self.sent[event] = made
        else:
            self.results = made if not self.results else [a + b for a, b in zip(self.results, made, strict=True)]

    def _backward(self, event: StageEvent, programs: _StagePrograms) -> None:
        given = self.kept.pop((event.stage, event.microbatch))
        function = programs.stage.function
        if event.stage == self.pipeline.schedule.stages - 1:
            cotangents = [np.ones(as_tensor(function.results[k].type).shape, as_tensor(function.results[k].type).dtype.np)
                          for k in programs.cotangents]
        else:
            received = self._received(StageEvent(event.stage + 1, event.microbatch, BACKWARD))
            cotangents = [x for k in programs.cotangents if (x := received[k]) is not None]
        found = [] if programs.backward is None else programs.backward(*given, *cotangents)
        by_input = dict(zip(programs.wanted, found, strict=True))
        own = len(programs.stage.params)
        for k, gradient in by_input.items():
            if k < own:
                name = self.pipeline.entry.params[programs.stage.params[k]].name
                self.gradients[name] = self.gradients[name] + gradient if name in self.gradients else gradient
        self.sent[event] = [by_input.get(own + k) for k in range(len(programs.stage.crossing))]

    def _received(self, event: StageEvent) -> Sequence[Any]:
        """What an event has sent, once. Raises UsageError where it has not been yet."""
        if event not in self.sent:
            raise UsageError(Diagnostic(f"{event} has sent nothing yet"))
        return self.sent.pop(event)


def _is_float(type: object) -> bool:
    return isinstance(type, TensorType) and type.dtype.is_float

