"""What the caller of a program on several devices gives: inputs for each device or for all, and infeeds.

A list or tuple of as many values as there are devices is one value for each; anything else is for all of them. Devices are
numbered replica by replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deepx_graph.errors import Diagnostic, RunError, UsageError, an
from deepx_graph.ir import Module
from deepx_graph.ir.exchange import Grid
from deepx_graph.literal import Array
from deepx_graph.ops import Feed, Wires, World, run_parallel
from deepx_graph.types import type_of_array

MOST_DEVICES = 4096
"""More devices than this are refused: every one of them runs the program."""


def grid_of(replicas: int, partitions: int) -> Grid:
    """The grid. Raises UsageError for numbers that make none."""
    if min(replicas, partitions) < 1 or replicas * partitions > MOST_DEVICES:
        raise UsageError(f"{replicas} replicas of {partitions} partitions cannot be run: 1 to {MOST_DEVICES} devices can")
    return Grid(replicas, partitions)


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


def worlds(world: World, grid: Grid, feeds: Sequence[Feed] | None) -> list[World]:
    """The world of every device for one run, with channels between them."""
    channels: dict[Any, Any] = {}
    return [world.wired(Wires(feeds[d] if feeds else None, [], channels, {}, d)) for d in range(grid.count)]


def feeds_of(infeed: Any, grid: Grid) -> list[Feed] | None:
    """The infeed of every device: `infeed` itself for one, one of its items for each of several. Raises UsageError."""
    if infeed is None:
        return None
    each = [infeed] if grid.count == 1 else infeed
    if not isinstance(each, (list, tuple)) or len(each) != grid.count or not all(isinstance(e, Iterable) for e in each):
        wanted = "an iterable of arrays, or of tuples of arrays" if grid.count == 1 else f"a list of {grid.count} iterables"
        raise UsageError(Diagnostic(f"infeed is {an(type(infeed).__name__)}", expected=f"{wanted}, one for each device"))
    return [Feed(e.values() if isinstance(e, Mapping) else e) for e in each]


def check_ready(module: Module, names: Iterable[str], world: World) -> None:
    """Raises RunError with all that keeps the functions from running: unknown custom calls, a missing infeed."""
    nodes = [node for name in names for node in module[name].nodes]
    if any(n.op is run_parallel and n.op.named(n.inputs, n.attrs)["infeed"] for n in nodes):
        world = world.wired(Wires(Feed(())))  # the devices inside are fed by the program
    problems = [
        Diagnostic(complaint, node.span)
        for node in nodes
        if node.op.ready is not None and (complaint := node.op.ready(world, *node.attrs)) is not None
    ]  # fmt: skip
    if problems:
        raise RunError(*dict.fromkeys(problems))
