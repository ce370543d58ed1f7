"""Devices that run side by side in one process, in lock step.

A device runs until it comes to a collective, or to something another one has not sent yet. When all members of a group stand at
the same collective, its results are given out and they go on. When nobody can go on the run ends with an error that says where
everybody waits: there is nothing to hang. Which device runs first is fixed, so a run repeats exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deepx_graph.errors import DeepxGraphError, Diagnostic, RunError, is_interrupt
from deepx_graph.ir.collective import Devices, Grid, nothing
from deepx_graph.runtime.devices import Running, Stop, operands_of, value_at

Key = tuple[Any, ...]


def run_devices(running: Sequence[Running], grid: Grid) -> list[list[Any]]:
    """The results of every device. Raises RunError when devices wait for each other, or what one of them raises."""
    return _Run(running, grid).results()


class _Run:
    def __init__(self, running: Sequence[Running], grid: Grid) -> None:
        self.running, self.grid = running, grid
        self.ready: deque[tuple[int, Any]] = deque((d, None) for d in range(len(running)))
        self.arrived: dict[Key, dict[int, Stop]] = {}
        self.stopped: dict[int, tuple[Stop, Devices]] = {}
        self.waiting: dict[int, Stop] = {}
        self.found: dict[int, list[Any]] = {}

    def results(self) -> list[list[Any]]:
        """Runs all devices to their ends."""
        while len(self.found) < len(self.running):
            moved = self._advance()
            retried, self.waiting = self.waiting, {}
            if not moved and not retried:
                raise self._stuck()
            before = {d: s.awaits for d, s in retried.items()}
            self.ready.extend((d, None) for d in sorted(retried))
            if retried and not self._advance(before):
                raise self._stuck()
        return [self.found[d] for d in range(len(self.running))]

    def _advance(self, before: dict[int, str] | None = None) -> bool:
        """Runs whoever can run; whether anybody came further. `before`: what devices that are tried again waited for."""
        moved = False
        while self.ready:
            device, value = self.ready.popleft()
            stop = self._step(device, value)
            again = stop is not None and bool(stop.awaits) and (before or {}).pop(device, None) == stop.awaits
            moved |= not again
            if stop is not None and stop.awaits:
                self.waiting[device] = stop
            elif stop is not None:
                self._arrive(device, stop)
        return moved

    def _step(self, device: int, value: Any) -> Stop | None:
        try:
            return self.running[device].send(value)
        except StopIteration as e:
            self.found[device] = e.value
        except DeepxGraphError as e:
            if self.grid.count == 1 or is_interrupt(e):
                raise
            note = f"on device {self._name(device)}"
            raise type(e)(*(replace(d, notes=(*d.notes, note)) for d in e.diagnostics)) from e
        return None

    def _arrive(self, device: int, stop: Stop) -> None:
        exchange, attrs = stop.node.op.exchange, stop.node.attrs
        assert exchange is not None
        try:
            group = exchange.group(self.grid, device, *attrs)
            if not group:
                self.ready.append((device, value_at(stop, nothing(operands_of(stop)))))
                return
            if len(group) > 1:
                key = (stop.node.op, attrs, group)
                present = self.arrived.setdefault(key, {})
                present[device], self.stopped[device] = stop, (stop, group)
                if len(present) < len(group):
                    return
                del self.arrived[key]
                stops = [present[d] for d in group]
            else:
                stops = [stop]
            results = exchange.combine(self.grid, group, list(map(operands_of, stops)), *attrs)
        except (ValueError, LookupError) as e:
            if is_interrupt(e):
                raise
            hint = f"the program runs on {self.grid}: replicas= and partitions=, or --replicas and --partitions, say on how many"
            raise RunError(Diagnostic(f"{stop.node.op.name}: {e}", stop.node.span, hint=hint)) from None
        for d, s, result in zip(group, stops, results, strict=True):
            self.stopped.pop(d, None)
            self.ready.append((d, value_at(s, result)))

    def _name(self, device: int) -> str:
        return f"{device} (replica {self.grid.replica(device)}, partition {self.grid.partition(device)})"

    def _stuck(self) -> RunError:
        """Who waits where, and who has ended."""
        notes, first = [], None
        for device in range(len(self.running)):
            if device in self.found:
                notes.append(f"device {self._name(device)} has ended")
                continue
            stop, group = self.stopped.get(device, (self.waiting.get(device), ()))
            if stop is None:
                continue
            first = first or stop.node
            missing = [d for d in group if self.stopped.get(d, (None, ()))[0] is None or not _together(stop, self.stopped[d][0])]
            awaited = stop.awaits or f"device{'s' * (len(missing) != 1)} {', '.join(map(str, missing))}"
            location = f" at {stop.node.span}" if stop.node.span else ""
            notes.append(f"device {self._name(device)} waits{location} in {stop.node.op.name} for {awaited}")
        if self.grid.count == 1 and first is not None:
            return RunError(Diagnostic(f"{first.op.name} waits for {self.waiting[0].awaits}, which nobody sends", first.span))
        message = "the devices wait for each other, and none can go on"
        return RunError(Diagnostic(message, first.span if first else None, notes=tuple(notes[:32])))


def _together(a: Stop, b: Stop) -> bool:
    return a.node.op is b.node.op and a.node.attrs == b.node.attrs
