"""Whether devices that run one program meet: every member of a group comes to the same collectives, in the same order.

For each value the devices are in classes that have it alike: one class for constants and inputs of the program (as lengths of loops
are; what a group makes of them is that of the group), one for each number where it was computed from the number of the device, the
groups of an all-reduce for its result. A branch is taken, and a loop goes on, alike within a class of its condition; a collective
below it is sound where each of its groups is within a class, or where all branches meet alike. What is left is run in lock step
without values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.analysis.schedule import Block, Eval, IfStep, LoopStep, Once, schedule
from deepx_graph.errors import DeepxGraphError, Diagnostic, counted
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.collective import Devices, Grid
from deepx_graph.ir.structure import (
    CONSTANT,
    LOOP_END,
    PARAM,
    PARTIAL,
    PHI,
    PROJ,
    REGION,
    callee_of,
    index_of,
    phi_choices,
    value_of,
)
from deepx_graph.ops.tensor.parallel import parallel_grid
from deepx_graph.types import StateType, is_state

Classes = tuple[int, ...]
"""The class of each device, by the first device that is in it."""

_AGREEING = ("all_reduce", "all_gather", "collective_broadcast")
"""After these all members of a group have the same."""

MOST_DEVICES, MOST_STEPS = 256, 100_000


@dataclass(frozen=True)
class _Meets:
    """A device comes to a collective of a group."""

    node: Node
    group: Devices

    def __str__(self) -> str:
        return f"{self.node.op.name}{f' at {self.node.span}' if self.node.span else ''}"

    def same(self, other: _Meets) -> bool:
        return self.node.op is other.node.op and self.node.attrs == other.node.attrs and self.group == other.group


def unmet(module: Module) -> list[Diagnostic]:
    """What keeps devices from meeting: in the entry, and in each function that runs side by side; of a module without calls."""
    found: list[Diagnostic] = []
    entry = module.entry
    if any(_collective(n) for n in entry.nodes):
        found += _Checked(entry, _grid(entry), {}).problems()
    for function in module.functions:
        for node in function.nodes:
            grid = parallel_grid(node)
            if grid is not None and 1 < grid.count <= MOST_DEVICES:
                found += _side_by_side(module, node, grid)
    return list(dict.fromkeys(found))


def _collective(node: Node) -> bool:
    return node.op.exchange is not None and bool(node.inputs)


def _grid(function: Function) -> Grid:
    """The devices that the groups of a function name: partitions where collectives have channels, else replicas; at least two."""
    largest, channels = 1, False
    for node in filter(_collective, function.nodes):
        attrs = node.named_attrs
        for group in (*(attrs.get("replica_groups") or ()), *(attrs.get("source_target_pairs") or ())):
            largest = max(largest, *group)
        channels = channels or (attrs.get("channel_id") or 0) > 0
    count = min(largest + 1, MOST_DEVICES)
    return Grid(1, count) if channels else Grid(count, 1)


def _side_by_side(module: Module, node: Node, grid: Grid) -> list[Diagnostic]:
    """The problems of one function on all devices; other functions on each are not looked at."""
    partials = node.inputs[1 : 1 + grid.count]
    names = {callee_of(p) for p in partials if p.op is PARTIAL}
    if len(names) != 1 or any(p.op is not PARTIAL for p in partials):
        return []
    function = module[names.pop()]
    taken = [p for p in function.params if not is_state(p.type)]
    args = node.inputs[len(node.inputs) - grid.count * len(taken):]
    given = {p: _by_value([id(args[d * len(taken) + k]) for d in range(grid.count)]) for k, p in enumerate(taken)}
    return _Checked(function, grid, given).problems()


def _by_value(values: Sequence[Any]) -> Classes:
    first: dict[Any, int] = {}
    return tuple(first.setdefault(v, d) for d, v in enumerate(values))


def _refined(every: Iterable[Classes], count: int) -> Classes:
    """The classes that are alike in all."""
    rows = list(every)
    return _by_value(list(zip(*rows, strict=True))) if rows else (0,) * count


@dataclass
class _Checked:
    """One function on a grid; `given` are the classes of its parameters, where they are not alike on all devices."""

    function: Function
    grid: Grid
    given: dict[Node, Classes]
    classes: dict[Node, Classes] = field(default_factory=dict)
    values: dict[Node, list[Any]] = field(default_factory=dict)
    found: list[Diagnostic] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.grid.count

    def problems(self) -> list[Diagnostic]:
        """All that is found."""
        self._classify()
        try:
            root = schedule(self.function).root
        except DeepxGraphError:  # what has no schedule does not run
            return []
        traces = [list(self._trace(root, d)) for d in range(self.count)]
        if not self.found:
            self._run(traces)
        return self.found

    # --- classes of values

    def _classify(self) -> None:
        """The classes of all values; those of loop variables to a fixed point, from alike on."""
        before: dict[Node, Classes] | None = None
        while before != self.classes:
            before = dict(self.classes)
            for node in self.function.nodes:
                self.classes[node] = self._of(node)

    def _of(self, node: Node) -> Classes:
        if node.op is PARAM:
            return self.given.get(node, (0,) * self.count)
        if node.op is CONSTANT:
            self.values[node] = [value_of(node).array] * self.count
            return (0,) * self.count
        if node.op in (ops.partition_id, ops.replica_id):
            number = self.grid.partition if node.op is ops.partition_id else self.grid.replica
            self.values[node] = [np.asarray(number(d), np.uint32) for d in range(self.count)]
            return _by_value([number(d) for d in range(self.count)])
        if _collective(node):
            return self._met(node)
        known = self._known(node)
        return self._refined(self._sources(node)) if known is None else known

    def _refined(self, nodes: Iterable[Node]) -> Classes:
        """The classes of what is computed from values; the order of effects is no value."""
        return _refined((self.classes.get(n, (0,) * self.count) for n in nodes if not isinstance(n.type, StateType)), self.count)

    def _sources(self, node: Node) -> Sequence[Node]:
        """What a value depends on: of a loop, its own variable; after it the test, too, as iterations may differ in number."""
        first = node.inputs[0] if node.inputs else node
        if node.op is PHI and first.op is REGION:
            return [first.inputs[0], *phi_choices(first, index_of(node))]
        if node.op is PHI:
            k = index_of(node)
            return [first.inputs[k], *(u.inputs[2 + k] for u in self.function.users[first] if u.op is LOOP_END)]
        if node.op is PROJ and first.op is LOOP_END:
            k = index_of(node)
            return [first.inputs[0].inputs[k], first.inputs[1], first.inputs[2 + k]]
        return node.inputs

    def _known(self, node: Node) -> Classes | None:
        """The classes of a value that is computed from the number of the device and constants alone."""
        if node.op.eval is None or not node.inputs or any(i not in self.values for i in node.inputs):
            return None
        try:
            values = [node.op.eval([self.values[i][d] for i in node.inputs], *node.attrs) for d in range(self.count)]
            found = _by_value([v.tobytes() for v in values])
        except (DeepxGraphError, ArithmeticError, ValueError, TypeError, AttributeError):
            return None
        self.values[node] = values
        return found

    def _met(self, node: Node) -> Classes:
        if node.op.name.removeprefix("spmd_") in _AGREEING:
            groups = [self._group(node, d) for d in range(self.count)]
            return _by_value([g or (d,) for d, g in enumerate(groups)])
        return tuple(range(self.count))

    def _group(self, node: Node, device: int) -> Devices:
        assert node.op.exchange is not None
        try:
            return node.op.exchange.group(self.grid, device, *node.attrs)
        except (ValueError, LookupError):  # groups that name other devices are an error when it runs
            return ()

    # --- what each device comes to

    def _trace(self, block: Block, device: int) -> Iterator[_Meets]:
        """The collectives of a block in order; of an unknown branch those of its first side, once all are known to be sound."""
        for step in block.steps:
            match step:
                case Eval(node) if _collective(node):
                    group = self._group(node, device)
                    if len(group) > 1:
                        yield _Meets(node, group)
                case IfStep():
                    sides = [list(self._trace(b.block, device)) for b in step.branches]
                    yield from sides[self._side(step, sides, device)]
                case LoopStep():
                    inside = [*self._trace(step.header, device), *self._trace(step.body, device)]
                    self._sound(step.condition, step.node, [inside, []], "loop", device)
                    yield from inside
                case Once():
                    yield from self._trace(step.block, device)

    def _side(self, step: IfStep, sides: Sequence[Sequence[_Meets]], device: int) -> int:
        if step.selector in self.values:
            value = self.values[step.selector][device]
            chosen = int(not value) if value.dtype == bool else int(value)
            return chosen if 0 <= chosen < len(sides) else len(sides) - 1
        self._sound(step.selector, step.node, sides, "branch", device)
        return 0

    def _sound(self, condition: Node, at: Node, sides: Sequence[Sequence[_Meets]], word: str, device: int) -> None:
        """Remembers a collective of one side that some members of its group may not come to."""
        if all(len(s) == len(sides[0]) and all(a.same(b) for a, b in zip(s, sides[0], strict=True)) for s in sides):
            return
        classes = self.classes[condition]
        for meets in (m for side in sides for m in side):
            if len({classes[d] for d in meets.group}) > 1 and device in meets.group:
                where = next((s for n in (condition, at, *condition.inputs) if (s := n.span)), None)
                decided = f"the condition at {where}" if where else "its condition"
                message = f"{meets.node.op.name} is below a {word} that devices of one group may decide differently"
                self.found.append(Diagnostic(
                    message, meets.node.span, notes=(f"{decided} is not the same on devices {_shown(meets.group)}",),
                    hint="decide by what all of them have: the result of an all_reduce, a constant, an input"))
                return

    def _run(self, traces: Sequence[Sequence[_Meets]]) -> None:
        """Lock step without values: whoever stands at the same collective as all of its group goes on."""
        at = [0] * self.count
        for _ in range(MOST_STEPS):
            standing = [t[k] if k < len(t) else None for t, k in zip(traces, at, strict=True)]
            moved = False
            for device, meets in enumerate(standing):
                if meets is not None and device == min(meets.group):
                    others = [standing[d] for d in meets.group]
                    if all(o is not None and o.same(meets) for o in others):
                        moved = True
                        for d in meets.group:
                            at[d] += 1
            if not moved:
                if any(standing):
                    self.found.append(_stuck(standing))
                return


def _stuck(standing: Sequence[_Meets | None]) -> Diagnostic:
    """Who stands where, each place once."""
    first = next(m for m in standing if m is not None)
    places: dict[str, list[int]] = {}
    for device, meets in enumerate(standing):
        places.setdefault("no more collectives" if meets is None else str(meets), []).append(device)
    notes = tuple(f"{counted(len(devices), 'device')} ({_shown(devices)}): {place}" for place, devices in places.items())
    return Diagnostic("devices of one group come to different collectives", first.node.span, notes=notes)


def _shown(devices: Sequence[int]) -> str:
    return ", ".join(map(str, devices[:8])) + (", ..." if len(devices) > 8 else "")
