"""Schedules of pipelines as lists of events: what each device does in which order, a stage for a microbatch, forward or backward.

Device d has the stages d, d + devices, ...; with one stage a device stage k is on device k. GPipe: all forward, then all backward
(Huang et al., 2019). 1F1B: as few microbatches at work as fill the pipeline, then one forward, one backward (Narayanan et al.,
PipeDream-Flush, 2021); interleaved as in Megatron-LM (Narayanan et al., 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from deepx_graph.errors import Diagnostic, UsageError, suggest
from deepx_graph.planning.events import COMPUTE, NETWORK, SimTask, SimulatedStep, run_events

FORWARD, BACKWARD = "F", "B"


@dataclass(frozen=True)
class StageEvent:
    """One stage for one microbatch, forward or backward."""

    stage: int
    microbatch: int
    direction: str

    def __str__(self) -> str:
        return f"{self.direction}{self.microbatch} of stage {self.stage}"

    def needs(self, stages: int) -> tuple[StageEvent, ...]:
        """The events that give it what it works on."""
        if self.direction == FORWARD:
            return (StageEvent(self.stage - 1, self.microbatch, FORWARD),) if self.stage else ()
        own = StageEvent(self.stage, self.microbatch, FORWARD)
        return (own, StageEvent(self.stage + 1, self.microbatch, BACKWARD)) if self.stage < stages - 1 else (own,)


@dataclass(frozen=True)
class PipelineSchedule:
    """The events of each device in their order."""

    stages: int
    microbatches: int
    devices: tuple[tuple[StageEvent, ...], ...]

    def device_of(self, stage: int) -> int:
        """The device that has a stage."""
        return stage % len(self.devices)

    def live(self, device: int) -> int:
        """The most microbatches of stages that a device holds for their backward part at once."""
        return max(accumulate(1 if e.direction == FORWARD else -1 for e in self.devices[device]))

    def order(self) -> list[StageEvent]:
        """All events in an order in which each has what it needs. Raises UsageError where devices wait for one another for ever,
        or an event is missing, or done twice."""
        wanted = {StageEvent(s, m, d) for s in range(self.stages) for m in range(self.microbatches) for d in (FORWARD, BACKWARD)}
        every = [e for events in self.devices for e in events]
        if set(every) != wanted or len(every) != len(wanted):
            wrong = sorted(map(str, wanted ^ set(every)))[:4]
            raise UsageError(Diagnostic("a schedule has each stage of each microbatch once each way", notes=tuple(wrong)))
        times = self.simulated(lambda e: 1.0, lambda stage: 0.0).when
        return [e for _, e in sorted(zip(times[: len(every)], every, strict=True), key=lambda item: item[0])]

    def simulated(self, seconds: Callable[[StageEvent], float], transfer: Callable[[int], float],
                  ending: Callable[[int], float] = lambda device: 0.0) -> SimulatedStep:
        """When each event is: `transfer(k)` seconds for what goes from stage k to the next, or comes back, `ending(d)` for what
        device d exchanges behind its last event. The events are the first tasks, device by device. Raises UsageError where devices
        wait for one another for ever."""
        every = [(d, e) for d, events in enumerate(self.devices) for e in events]
        number = {e: k for k, (_, e) in enumerate(every)}
        sends: list[SimTask] = []
        arrives: dict[StageEvent, int] = {}
        for d, e in every:
            to = e.stage + (1 if e.direction == FORWARD else -1)
            arrives[e] = number[e]
            if 0 <= to < self.stages and self.device_of(to) != d:
                arrives[e] = len(every) + len(sends)
                sends.append(SimTask(f"{e} to {self.device_of(to)}", ((d, NETWORK),), transfer(min(to, e.stage)), (number[e],)))
        tasks = [SimTask(str(e), ((d, COMPUTE),), seconds(e),
                         tuple(number[n] if n.stage == e.stage else arrives[n] for n in e.needs(self.stages))) for d, e in every]
        last = {d: k for k, (d, _) in enumerate(every)}
        sums = [SimTask(f"sums of device {d}", ((d, NETWORK),), ending(d), (k,)) for d, k in last.items() if ending(d)]
        return run_events([*tasks, *sends, *sums])

    def bubble(self, seconds: Mapping[str, float]) -> float:
        """The share of the time in which devices wait, where each stage takes so many seconds in each direction."""
        step = self.simulated(lambda e: seconds[e.direction], lambda stage: 0.0)
        busy = [step.busy(d, COMPUTE) for d in range(len(self.devices))]
        return 1.0 - sum(busy) / (len(busy) * step.seconds)


def gpipe(devices: int, microbatches: int, chunks: int = 1) -> PipelineSchedule:
    """All forward, then all backward."""
    rows = []
    for d in range(devices):
        mine = range(d, devices * chunks, devices)
        forward = [StageEvent(s, m, FORWARD) for s in mine for m in range(microbatches)]
        backward = [StageEvent(s, m, BACKWARD) for s in reversed(mine) for m in range(microbatches)]
        rows.append((*forward, *backward))
    return PipelineSchedule(devices * chunks, microbatches, tuple(rows))


def one_forward_one_backward(devices: int, microbatches: int, chunks: int = 1) -> PipelineSchedule:
    """As few microbatches at work as fill the pipeline. Raises UsageError for several stages a device."""
    if chunks != 1:
        raise UsageError(Diagnostic("1f1b has one stage a device", hint="schedule=interleaved has several"))
    rows = []
    for d in range(devices):
        warm = min(devices - d - 1, microbatches)
        forward = [StageEvent(d, m, FORWARD) for m in range(microbatches)]
        backward = [StageEvent(d, m, BACKWARD) for m in range(microbatches)]
        rows.append(_alternating(forward, backward, warm))
    return PipelineSchedule(devices, microbatches, tuple(rows))


def interleaved(devices: int, microbatches: int, chunks: int = 2) -> PipelineSchedule:
    """1F1B over several stages a device, which shortens the bubble by their number. Raises UsageError for microbatches that are
    no multiple of the devices."""
    if microbatches % devices:
        raise UsageError(Diagnostic(f"{microbatches} microbatches over {devices} devices", expected="a multiple of the devices"))
    rows = []
    for d in range(devices):
        def events(direction: str, d: int = d) -> list[StageEvent]:
            found = []
            for k in range(microbatches * chunks):
                turn, within = divmod(k, devices * chunks)
                chunk = within // devices if direction == FORWARD else chunks - 1 - within // devices
                found.append(StageEvent(chunk * devices + d, turn * devices + k % devices, direction))
            return found

        warm = min((devices - d - 1) * 2 + (chunks - 1) * devices, microbatches * chunks)
        rows.append(_alternating(events(FORWARD), events(BACKWARD), warm))
    return PipelineSchedule(devices * chunks, microbatches, tuple(rows))


def _alternating(forward: Sequence[StageEvent], backward: Sequence[StageEvent], warm: int) -> tuple[StageEvent, ...]:
    """So many forward, then one of each in turn, then what is left backward."""
    steady = [e for pair in zip(forward[warm:], backward, strict=False) for e in pair]
    return (*forward[:warm], *steady, *backward[len(forward) - warm:])


SCHEDULES: Mapping[str, Callable[[int, int, int], PipelineSchedule]] = {
    "gpipe": gpipe, "1f1b": one_forward_one_backward, "interleaved": interleaved}  # fmt: skip


def pipeline_schedule(name: str, devices: int, microbatches: int, chunks: int) -> PipelineSchedule:
    """The schedule of that name, with `chunks` stages a device. Raises UsageError for an unknown name or numbers that make none."""
    if name not in SCHEDULES:
        known = ", ".join(SCHEDULES)
        raise UsageError(Diagnostic(f"no schedule '{name}'", expected=f"one of {known}", hint=suggest(name, SCHEDULES)))
    if min(devices, microbatches, chunks) < 1 or devices * chunks * microbatches > MOST_EVENTS:
        numbers = f"{devices} devices, {chunks} stages on each, {microbatches} microbatches"
        raise UsageError(f"{numbers}: no pipeline that can be run")
    return SCHEDULES[name](devices, microbatches, chunks)


MOST_EVENTS = 100_000
"""Of one direction."""
