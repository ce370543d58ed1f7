"""What the collectives of a partitioned program are for: value, place, reason, where the axis came from, what would do instead."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from deepx_graph.errors import Diagnostic, UsageError, counted, printable, suggest
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import PARAM
from deepx_graph.session.report.figures import MESH_FIGURES
from deepx_graph.sharding.mesh import Axes, Mesh, merged, split
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.pieces import Partitioned
from deepx_graph.sharding.plan import AxisOrigin, Plan, labels_of
from deepx_graph.sharding.propagate import propagate
from deepx_graph.sharding.reasons import CollectiveCause, MeetingReason
from deepx_graph.sharding.reshard import TensorLayout
from deepx_graph.sharding.several_meshes import over_one_mesh
from deepx_graph.types import nbytes

NOTHING_LESS = "instead: nothing, however what is given for this value lies otherwise, devices exchange no less"
NOTHING_FOUND = "instead: nothing was found, however the inputs that are nearest to it lie otherwise, devices exchange no less"
NOT_TRIED = "instead: not looked for after so many others, ask for this one by its name"
ITSELF = "instead: nothing that is given otherwise, the program itself has devices meet here"

MOST_STEPS = 4
"""So many operations are named through which an axis came."""

MOST_TRIED, MOST_PLANS = 8, 16
"""So many other plans are tried for one collective, and for all that are asked for: each is propagated and partitioned."""


@dataclass(frozen=True)
class CollectiveRow:
    """One collective of the program of one device, in words."""

    name: str
    kind: str
    bytes: int
    axes: str
    devices: int
    value: str
    at: str
    location: str
    reason: MeetingReason
    before: str
    after: str
    origins: tuple[str, ...]

    def lines(self) -> list[str]:
        """The text of a report."""
        is_written = self.reason is MeetingReason.WRITTEN
        place = f"stands before {self.at}" if self.at else "is made by hand" if is_written else "makes a result as it is asked"
        where = f" ({self.location})" if self.location else ""
        first = f"{self.name} ({counted(self.bytes, 'byte')} over {self.axes}, {counted(self.devices, 'device')}) {place}{where}"
        lies = [f"  {self.value} has {self.before}, and {self.after} is needed"] if self.before and not is_written else []
        return [f"{first}: {self.reason.value}", *lies,
                *(f"  {line}" for line in self.origins)]

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {"name": self.name, "kind": self.kind, "bytes": self.bytes, "axes": self.axes, "devices": self.devices,
                "value": self.value, "at": self.at, "location": self.location, "reason": self.reason.value,
                "before": self.before, "after": self.after, "origins": list(self.origins)}


def collective_rows(local: Partitioned, plan: Plan) -> list[CollectiveRow]:
    """Every collective, in order, by a name of its own: `all_gather.0`."""
    plan = over_one_mesh(plan)
    labels, numbers, rows = labels_of(plan.function), dict[str, int](), []
    for m in local.meetings:
        kind = m.collective.op.name.removeprefix("spmd_")
        numbers[kind] = numbers.get(kind, -1) + 1
        is_written = m.reason is MeetingReason.WRITTEN
        at = labels[m.at] if m.at is not None and m.at is not m.value else ""
        axes = m.axes or tuple(a for dims in m.before.dims for a in dims)
        place = m.collective if is_written else m.at or m.value
        rows.append(CollectiveRow(
            f"{kind}.{numbers[kind]}", kind, nbytes(m.collective.type), _met_along(m) if is_written else _axes(axes, plan.mesh),
            _members(m), _named(m.value, labels), f"'{at}' ({m.at.op.name})" if at and m.at else "", str(place.span or ""),
            m.reason, _layout(m.before, plan.mesh), _layout(m.after, plan.mesh), tuple(_origins(m.value, axes, plan, labels))))
    return rows


def _members(m: CollectiveCause) -> int:
    groups = m.collective.named_attrs.get("replica_groups")
    return len(groups[0]) if groups else len({d for pair in m.collective.attr("source_target_pairs") for d in pair})


def _met_along(m: CollectiveCause) -> str:
    """The devices that meet in a collective of the program, as it says."""
    groups = m.collective.named_attrs.get("replica_groups")
    return f"groups as {list(groups[0])}" if groups else "pairs"


def _axes(axes: Axes, mesh: Mesh) -> str:
    return ", ".join(map(mesh.shown, merged(axes))) or "all axes"


def _layout(layout: TensorLayout, mesh: Mesh) -> str:
    said = split(*map(merged, layout.dims)).text(mesh)
    return said + (f" with sums over {_axes(layout.partial, mesh)} open" if layout.partial else "")


def _named(node: Node, labels: Mapping[Node, str]) -> str:
    return f"'{labels[node]}' ({node.op.name})" if node.op is not PARAM else f"'{labels[node]}'"


def _origins(value: Node, axes: Axes, plan: Plan, labels: Mapping[Node, str]) -> Iterator[str]:
    """Where each axis came from, step by step; of a partial sum, along its operands."""
    said: set[str] = set()
    for a in axes:
        holder = next((n for n in (value, *value.inputs) if a in plan.origins.get(n, {})), None)
        if holder is None:
            continue
        origin = plan.origins[holder][a]
        steps = [f"{o.by.op.name} '{labels[o.by]}' factor {o.factor}" for o in _path(origin, a, plan) if o.by is not None]
        by = f" by {', '.join(reversed(steps[:MOST_STEPS]))}" if steps else ""
        line = f'"{a.name}" of {_named(holder, labels)} came from {origin.source}{by}'
        if line not in said:
            said.add(line)
            yield line


def _path(origin: AxisOrigin, axis: Any, plan: Plan) -> Iterator[AxisOrigin]:
    seen: set[int] = set()
    at: AxisOrigin | None = origin
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = plan.origins.get(at.value, {}).get(axis) if at.value is not None else None


# --- what would do instead ----------------------------------------------------------------------------------------


class OtherPlans:
    """What devices exchange where inputs and results are given otherwise; a plan is tried once for all collectives.

    `given` is the plan before propagation, under which `local` was made.
    """

    def __init__(self, module: Module, given: Plan, local: Partitioned) -> None:
        self.module, self.given, self.now, self.count = module, over_one_mesh(given), _total(local), len(local.meetings)
        self.labels = labels_of(given.function)
        self._tried: dict[str, tuple[int, int] | None] = {}

    def instead(self, *causes: CollectiveCause) -> list[str]:
        """Changes of what is given under which devices exchange less, the best first, or that there is none. A collective may be
        one of several moves; what is nearest to it is tried first.
        """
        if all(c.reason is MeetingReason.WRITTEN for c in causes):
            return [ITSELF]
        plans = {words: plan for c in causes for words, plan in self._alternatives(c)}
        near = dict(islice(plans.items(), MOST_TRIED))
        known = {words: self._exchanged(words, plan) for words, plan in near.items()
                 if words in self._tried or len(self._tried) < MOST_PLANS}
        found = sorted((*total, words) for words, total in known.items() if total is not None and total[0] < self.now)
        if not found:
            return [NOT_TRIED if len(known) < len(near) else NOTHING_FOUND if len(near) < len(plans) else NOTHING_LESS]
        return [f"instead: {words} ({counted(total, 'byte')} in {counted(meetings, 'collective')}, "
                f"now {counted(self.now, 'byte')} in {self.count})" for total, meetings, words in found[:3]]

    def _exchanged(self, words: str, plan: Plan) -> tuple[int, int] | None:
        """Bytes and collectives under another plan; None where it cannot be."""
        if words not in self._tried:
            try:
                local = partition(self.module, propagate(plan))
                self._tried[words] = _total(local), len(local.meetings)
            except UsageError:
                self._tried[words] = None
        return self._tried[words]

    def _alternatives(self, meeting: CollectiveCause) -> Iterator[tuple[str, Plan]]:
        """The value itself as it is needed, or made; then without the axes of the move what it comes from, and all else."""
        given = self.given
        for layout, word in ((meeting.after, "as it is needed"), (meeting.before, "as it is made")):
            node, wanted = meeting.value, split(*map(merged, layout.dims))
            if node in given.values or node.op is PARAM:
                yield f"'{self.labels[node]}' as {wanted.text(given.mesh)}", replace(given, values={**given.values, node: wanted})
            for k, result in enumerate(given.function.results):
                if result is node and given.results.get(k) != wanted:
                    text = f"result {k} {word}, {wanted.text(given.mesh)}"
                    yield text, replace(given, results={**given.results, k: wanted})
        axes = set(meeting.axes)
        for node in dict.fromkeys((*(n for n in _back_from(meeting.value) if n in given.values), *given.values)):
            sharding = given.values[node]
            atoms = [given.mesh.atoms(dim) for dim in sharding.axes]
            if axes.intersection(a for dim in atoms for a in dim):
                freed = sharding.with_axes([merged(a for a in dim if a not in axes) for dim in atoms])
                yield f"'{self.labels[node]}' as {freed.text(given.mesh)}", replace(given, values={**given.values, node: freed})


def _total(local: Partitioned) -> int:
    return sum(nbytes(m.collective.type) for m in local.meetings)


def _back_from(value: Node) -> Iterator[Node]:
    """A value and what it is computed from, the nearest first."""
    seen, waiting = {value}, deque([value])
    while waiting:
        node = waiting.popleft()
        yield node
        new = [i for i in dict.fromkeys(node.inputs) if i not in seen]
        seen.update(new)
        waiting.extend(new)


# --- figures ------------------------------------------------------------------------------------------------------


def collectives_of(function: Function) -> list[Node]:
    """Where devices meet in the program of one device."""
    return [n for n in function.nodes if n.op.exchange is not None and n.inputs]


def mesh_figures(function: Function) -> dict[str, int]:
    """Figures of the program of one device for budgets: bytes of parameters and collectives, the number of each kind, as
    `all_gathers`.
    """
    met = collectives_of(function)
    found = {"collective_bytes": sum(nbytes(n.type) for n in met), "collectives": len(met),
             "parameter_bytes": sum(nbytes(p.type) for p in function.params)}
    counts = Counter(f"{n.op.name.removeprefix('spmd_')}s" for n in met)
    return {name: found.get(name, counts[name]) for name in MESH_FIGURES}


def mesh_lines(local: Partitioned, plan: Plan) -> list[str]:
    """The table of `info --mesh`: what one device holds, and how devices meet by kind and axes."""
    figures = mesh_figures(local.module.entry)
    whole = sum(nbytes(p.type) for p in plan.function.params)
    lines = [f"mesh {plan.mesh}: {counted(plan.mesh.count, 'device')}",
             f"  parameters: {counted(figures['parameter_bytes'], 'byte')} on each device, {counted(whole, 'byte')} as a whole",
             f"  collectives: {figures['collectives']}, {counted(figures['collective_bytes'], 'byte')} on each device"]
    rows: dict[tuple[str, str], list[int]] = {}
    for row in collective_rows(local, plan):
        rows.setdefault((row.kind, row.axes), []).append(row.bytes)
    lines += [f"    {len(sizes)} {kind} over {axes}: {counted(sum(sizes), 'byte')}" for (kind, axes), sizes in sorted(rows.items())]
    return lines


def chosen_rows(rows: Sequence[CollectiveRow], name: str) -> list[tuple[int, CollectiveRow]]:
    """The collective of that name, or all of a kind, with their numbers. Raises UsageError for one that is not there."""
    found = [(k, r) for k, r in enumerate(rows) if not name or name in (r.name, r.kind)]
    if not found and name:
        hint = suggest(name, [r.name for r in rows])
        raise UsageError(Diagnostic(f"no collective '{printable(name)}'", hint=hint or "why FILE --collective lists them"))
    return found

