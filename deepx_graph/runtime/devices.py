"""Devices that run one program: each is a generator that stops where it meets others, however these are reached (`transport/`).
What each of them is given, and how many there may be.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, RunError, UsageError, an
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ir.collective import Grid
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
