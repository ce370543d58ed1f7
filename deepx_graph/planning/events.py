"""Event simulation: tasks that wait for one another, each in order on one or several streams of devices.

A stream does its tasks in the order in which they are listed, one at a time; a task on several streams holds all of them. Tasks
that can never start are an error that names them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deepx_graph.errors import Diagnostic, UsageError

COMPUTE, NETWORK = "compute", "network"

DeviceStream = tuple[int, str]
"""A stream of a device: what it computes, or what it sends and receives."""


@dataclass(frozen=True)
class SimTask:
    """So many seconds on its streams, once the tasks with the numbers `after` are done."""

    name: str
    streams: tuple[DeviceStream, ...]
    seconds: float
    after: tuple[int, ...] = ()
    detail: str = ""


Interval = tuple[float, float]


@dataclass(frozen=True)
class SimulatedStep:
    """The tasks, and when each begins and ends."""

    tasks: tuple[SimTask, ...]
    when: tuple[Interval, ...]

    @property
    def seconds(self) -> float:
        """Until the last task is done."""
        return max((end for _, end in self.when), default=0.0)

    @property
    def devices(self) -> list[int]:
        """The devices that do something."""
        return sorted({d for t in self.tasks for d, _ in t.streams})

    def intervals(self, device: int, what: str) -> list[Interval]:
        """When a stream is busy, joined."""
        return joined(at for task, at in zip(self.tasks, self.when, strict=True) if (device, what) in task.streams)

    def busy(self, device: int, what: str) -> float:
        """For how many seconds a stream is busy."""
        return sum(end - start for start, end in self.intervals(device, what))

    def exposed(self, device: int) -> float:
        """For how many seconds a device only sends and receives."""
        computes = self.intervals(device, COMPUTE)
        return sum(end - start - sum(max(0.0, min(end, e) - max(start, s)) for s, e in computes)
                   for start, end in self.intervals(device, NETWORK))

    def bubble(self, device: int) -> float:
        """The share of the time in which a device neither computes nor sends nor receives."""
        busy = self.busy(device, COMPUTE) + self.exposed(device)
        return 1.0 - busy / self.seconds if self.seconds else 0.0


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Overlapping and touching intervals as one."""
    found: list[Interval] = []
    for start, end in sorted(i for i in intervals if i[1] > i[0]):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def run_events(tasks: Sequence[SimTask]) -> SimulatedStep:
    """When each task begins and ends. Raises UsageError for tasks that wait for one another in a circle."""
    waits: list[set[int]] = [set(t.after) for t in tasks]
    last: dict[DeviceStream, int] = {}
    for k, task in enumerate(tasks):
        for stream in task.streams:
            if stream in last:
                waits[k].add(last[stream])
            last[stream] = k
    followers: list[list[int]] = [[] for _ in tasks]
    for k, needed in enumerate(waits):
        for j in needed:
            followers[j].append(k)
    missing = [len(needed) for needed in waits]
    ready = deque(k for k, count in enumerate(missing) if not count)
    start = [0.0] * len(tasks)
    done = 0
    while ready:
        k = ready.popleft()
        done += 1
        end = start[k] + tasks[k].seconds
        for j in followers[k]:
            start[j] = max(start[j], end)
            missing[j] -= 1
            if not missing[j]:
                ready.append(j)
    if done < len(tasks):
        stuck = [t.name for t, count in zip(tasks, missing, strict=True) if count]
        raise UsageError(Diagnostic("these can never start, as they wait for one another", notes=tuple(stuck[:8])))
    return SimulatedStep(tuple(tasks), tuple((s, s + t.seconds) for s, t in zip(start, tasks, strict=True)))
