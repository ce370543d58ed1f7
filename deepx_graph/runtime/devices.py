"""Devices that run side by side in one process, in lock step: each is a generator that stops where it meets others.

A device runs until it comes to a collective, or to something another one has not sent yet. When all members of a group stand at
the same collective, its results are given out and they go on. When nobody can go on the run ends with an error that says where
everybody waits: there is nothing to hang. Which device runs first is fixed, so a run repeats exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deepx_graph.errors import DeepxGraphError, Diagnostic, RunError, UsageError, an, is_interrupt
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ir.collective import Devices, Grid, nothing
from deepx_graph.ir.rebuild import rebuilt, with_inputs
from deepx_graph.literal import Array
from deepx_graph.ops.host.host import Channels, Feed, Host
from deepx_graph.ops.tensor.parallel import parallel_grid
from deepx_graph.types import StateType, TupleType, type_of_array


@dataclass(frozen=True, eq=False)
class Stop:
    """Where a device stands: at a collective with the values of its operands, or waiting for something, said in words."""

    node: Node
    values: Sequence[Any] = ()
    awaits: str = ""
    donated: frozenset[int] = frozenset()
    """The numbers of the values that are arrays which nothing else holds, and nobody reads any more."""


def on_one_device(module: Module) -> Module:
    """The module where one device runs it: which one it is, is known, unless the program itself runs functions on others."""
    b, nodes = Builder(), [n for f in module.functions for n in f.nodes]
    if any(parallel_grid(n) is not None for n in nodes):
        return module
    known = {n: b.constant(n.op.eval([])) for n in nodes if n.op.exchange is not None and n.op.eval is not None and not n.inputs}

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        return known[node] if node in known else with_inputs(node, inputs)

    return module.with_functions([rebuilt(f, step) for f in module.functions]) if known else module


Running = Generator[Stop, Any, list[Any]]
"""A device at work: says where it stops, is sent the result, and gives its results at the end."""

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


def _has_state(node: Node) -> bool:
    return bool(node.inputs) and isinstance(node.inputs[0].type, StateType)


def operands_of(stop: Stop) -> Sequence[Any]:
    """What a device brings to a collective, without the state."""
    return stop.values[1:] if _has_state(stop.node) else stop.values


def value_at(stop: Stop, results: Sequence[Any], *, fresh: bool = False) -> Any:
    """The value of a collective for its results: arrays of this device's own, which `fresh` ones are already, and the state."""
    arrays = list(results) if fresh else [np.array(r) for r in results]
    if not isinstance(stop.node.type, TupleType):
        return arrays[0]
    return (*arrays, stop.values[0]) if _has_state(stop.node) else tuple(arrays)


MOST_DEVICES = 4096
"""More devices than this are refused: every one of them runs the program."""


def grid_of(replicas: int, partitions: int) -> Grid:
    """The grid. Raises UsageError for numbers that make none."""
    if min(replicas, partitions) < 1 or replicas * partitions > MOST_DEVICES:
        raise UsageError(f"{replicas} replicas of {partitions} partitions cannot be run: 1 to {MOST_DEVICES} devices can")
    return Grid(replicas, partitions)


def stated_grid(module: Module) -> Grid:
    """The devices of an HLO text whose program is that of one of them: they meet in it, or XLA's partitioner has named its entry.

    One for any other. Raises UsageError as `grid_of`.
    """
    is_local = module.entry_name.endswith("_spmd") or any(n.op.exchange is not None for f in module.functions for n in f.nodes)
    said = dict(module.notes) if is_local else {}
    replicas, partitions = (said.get(name, "1") for name in ("replica_count", "num_partitions"))
    return grid_of(int(replicas), int(partitions)) if f"{replicas}{partitions}".isdecimal() else Grid()


def for_each(grid: Grid, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[tuple[list[Any], dict[str, Any]]]:
    """What every device is given, by position and by name. Raises RunError for a list of another length."""
    if grid.count == 1:
        return [(list(arrays), dict(named))]
    for name, value in [*enumerate(arrays), *named.items()]:
        if isinstance(value, (list, tuple)) and len(value) != grid.count:
            message = f"input {name!r} is given for {len(value)} devices, and {grid.count} run"
            raise RunError(Diagnostic(message, expected="one array for all devices, or a list of one for each"))
    return [([_of(v, d) for v in arrays], {k: _of(v, d) for k, v in named.items()}) for d in range(grid.count)]


def _of(value: Any, device: int) -> Any:
    return value[device] if isinstance(value, (list, tuple)) else value


def same_types(names: Sequence[str], given: Sequence[Sequence[Array]]) -> None:
    """Raises RunError when a device is given an input of another type than the first one: all run one program."""
    for device, arrays in enumerate(given[1:], 1):
        for name, first, other in zip(names, given[0], arrays, strict=True):
            if first.shape != other.shape or first.dtype != other.dtype:
                found, wanted = type_of_array(other), type_of_array(first)
                raise RunError(Diagnostic(f"input '{name}' is {an(found)} on device {device}",
                                          expected=f"{wanted}, as on device 0"))


def worlds(world: Host, grid: Grid, feeds: Sequence[Feed] | None) -> list[Host]:
    """The world of every device for one run, with channels between them."""
    channels: dict[Any, Any] = {}
    return [world.wired(Channels(feeds[d] if feeds else None, [], channels, {}, d)) for d in range(grid.count)]


def feeds_of(infeed: Any, grid: Grid) -> list[Feed] | None:
    """The infeed of every device: `infeed` itself for one, one of its items for each of several. Raises UsageError."""
    if infeed is None:
        return None
    each = [infeed] if grid.count == 1 else infeed
    if not isinstance(each, (list, tuple)) or len(each) != grid.count or not all(isinstance(e, Iterable) for e in each):
        wanted = "an iterable of arrays, or of tuples of arrays" if grid.count == 1 else f"a list of {grid.count} iterables"
        raise UsageError(Diagnostic(f"infeed is {an(type(infeed).__name__)}", expected=f"{wanted}, one for each device"))
    return [Feed(e.values() if isinstance(e, Mapping) else e) for e in each]


def check_ready(module: Module, names: Iterable[str], world: Host) -> None:
    """Raises RunError with all that keeps the functions from running: unknown custom calls, a missing infeed."""
    nodes = [node for name in names for node in module[name].nodes]
    if any(parallel_grid(n) is not None and n.op.named(n.inputs, n.attrs)["infeed"] for n in nodes):
        world = world.wired(Channels(Feed(())))  # the devices inside are fed by the program
    problems = [
        Diagnostic(complaint, node.span)
        for node in nodes
        if node.op.ready is not None and (complaint := node.op.ready(world, *node.attrs)) is not None
    ]  # fmt: skip
    if problems:
        raise RunError(*dict.fromkeys(problems))
