"""`automatic_plan`: how all values of a program lie on a mesh, chosen by an integer program of least predicted seconds.

One decision for each node: which of its candidates (`candidates.py`). Nodes of repeated blocks share theirs, and elementwise
operations lie as the one operand that is not made of constants. Between decisions stands what moving costs from how a value is made
to how it is needed; memory is bounded at the moments of most bytes alive. This is the formulation of Alpa's intra-operator pass
(Zheng et al., 2022). The search (`search.py`) begins from the plans that people write by hand (`known.py`), whose ways to split
are among the candidates of every node, and ends after a stated time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from deepx_graph.analysis.repeats import repeated
from deepx_graph.analysis.work import NEVER, ONCE, bytes_moved, flops, node_times
from deepx_graph.errors import sized
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import PARAM
from deepx_graph.literal import Array
from deepx_graph.planning.candidates import MeshCosts, SplitCandidate, splittable
from deepx_graph.planning.choices import SLACK, ChoiceProblem, SearchLimit
from deepx_graph.planning.cluster import DeviceCluster
from deepx_graph.planning.known import Folded, KnownPlan, known_plans
from deepx_graph.planning.search import FoundChoice, best_choice
from deepx_graph.sharding.annotations import stated_at_borders
from deepx_graph.sharding.by_hand.borders import across_border, axes_by_hand
from deepx_graph.sharding.mesh import AxisRef, Mesh, TensorSharding, local_shape, merged, split
from deepx_graph.sharding.plan import Plan, labels_of
from deepx_graph.sharding.reshard import TensorLayout
from deepx_graph.sharding.rules import is_border
from deepx_graph.sharding.values import CARRIERS, DataFlow, made_of_constants
from deepx_graph.types import TensorType, as_tensor

MOMENTS = 24
"""Memory is bounded at so many moments, those of most bytes alive, and where a plan that is found needs more than there is."""

SECONDS = 10.0
"""How long a plan is searched for when nothing else is said, in seconds of the processor, so that a busy machine finds the same."""

BUILDING = 0.5
"""The share of that in which candidates are made; then nodes have those of the known plans alone."""

DEAREST = 3

HOLDING = 1e-3
"""What it costs to hold a value, in times of reading it: of plans that are else equal that of less memory is taken."""


@dataclass(frozen=True)
class DearMove:
    """A move that the plan takes, in predicted seconds of one step."""

    seconds: float
    value: str
    at: str


@dataclass(frozen=True)
class RivalPlan:
    """A plan that people write by hand, in the same model: its predicted seconds, and what values of one device take; the plan
    itself, where it fits."""

    name: str
    seconds: float
    memory_bytes: int
    plan: AutomaticPlan | None = None

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {"name": self.name, "seconds": self.seconds, "memory_bytes": self.memory_bytes}


@dataclass(frozen=True)
class AutomaticPlan:
    """A plan with its predicted seconds of a step, and by how much of these at most the best plan is better (`gap`).

    `memory_bytes` is what values of one device take at the moment of most; `dearest` are the moves that cost most; `rivals` are
    the plans from which the search began, whether they fit or not.
    """

    plan: Plan
    seconds: float
    gap: float
    memory_bytes: int
    decisions: int
    dearest: tuple[DearMove, ...]
    rivals: tuple[RivalPlan, ...] = ()
    remark: str = ""
    """Why it is not the plan of least cost in the model of the search."""

    def lines(self) -> Iterator[str]:
        """In words."""
        yield (f"automatic: {self.seconds * 1e6:,.1f} us a step predicted, were every operation a kernel of its own; "
               f"at most {self.gap:.2%} above the best of {self.decisions} decisions; "
               f"values of a device take {sized(self.memory_bytes)} at most")
        if self.remark:
            yield f"  {self.remark}"
        for move in self.dearest:
            yield f"  {move.seconds * 1e6:,.1f} us to bring {move.value} to {move.at}"
        for rival in self.rivals:
            yield f"  beside it, {rival.name}: {rival.seconds * 1e6:,.1f} us, {sized(rival.memory_bytes)}"


@dataclass
class _Decision:
    """The candidates of a group of nodes, with their costs in seconds, and the one that each known plan takes."""

    candidates: Sequence[SplitCandidate]
    starts: Sequence[int]
    costs: Array = field(init=False)

    def __post_init__(self) -> None:
        self.costs = np.zeros(len(self.candidates))


class _Place:
    """How a value lies, or is needed, for each candidate of a decision; of no decision (-1): in one way.

    `kinds` are the layouts that differ, `kind` says for each candidate which of them.
    """

    def __init__(self, decision: int, layouts: Sequence[TensorLayout]) -> None:
        numbers = {x: k for k, x in enumerate(dict.fromkeys(layouts))}
        self.decision, self.layouts, self.kinds = decision, tuple(layouts), tuple(numbers)
        self.kind = np.array([numbers[x] for x in layouts])

    @cached_property
    def shardings(self) -> tuple[TensorSharding, ...]:
        """The layouts that differ, as a plan says them."""
        return tuple(split(*map(merged, x.dims)) for x in self.kinds)

    def sharding(self, found: Sequence[int]) -> TensorSharding:
        """How it lies by a choice."""
        return self.shardings[int(self.kind[0 if self.decision < 0 else found[self.decision]])]


def automatic_plan(function: Function, mesh: Mesh, cluster: DeviceCluster, *, memory: float | None = None,
                   given: Plan | None = None, seconds: float = SECONDS,
                   clock: Callable[[], float] = time.process_time) -> AutomaticPlan:
    """The plan of least predicted seconds that fits into `memory` bytes of a device (all that it has when left out).

    What `given` says of values and results stays. The search ends after so many seconds by a clock, that of the processor. Raises
    UsageError where no plan is found that fits, which says how much is missing.
    """
    limit = SearchLimit(seconds, clock)
    return _Planner(function, mesh, cluster, cluster.device.memory if memory is None else memory, given, limit).result()


class _Planner:
    def __init__(self, function: Function, mesh: Mesh, cluster: DeviceCluster, memory: float, given: Plan | None,
                 limit: SearchLimit) -> None:
        self.function, self.mesh, self.costs, self.memory, self.limit = function, mesh, MeshCosts(mesh, cluster), memory, limit
        self.by_hand = axes_by_hand(function, mesh)
        stated = stated_at_borders(Plan(mesh, function)) if self.by_hand else {}
        self.given: Mapping[Node, TensorSharding] = {**stated, **({} if given is None else given.values)}
        self.asked: Mapping[int, TensorSharding] = {} if given is None else given.results
        self.flow, self.times = DataFlow(function), node_times(function)
        self.free = made_of_constants(function)
        working = [n for n in function.nodes if n not in self.free and n.op is not PARAM and n.op not in CARRIERS]
        self.first = {n: first for n, first in repeated(working).items() if self._is_alike(n, first)}
        folded = Folded(function, self.flow, self.first, self.by_hand)
        fixed = {folded.value(n): self._layout(s) for n, s in self.given.items()}
        self.folded, self.known = folded, known_plans(folded, self.costs.axes, fixed)
        self.decisions: list[_Decision] = []
        self.own: dict[tuple[Node, int], _Place] = {}
        self.needs: dict[tuple[Node, int], _Place] = {}
        self.edges: dict[tuple[int, int], Array] = {}
        self.moves: list[tuple[_Place, _Place, Array, Node, Node | None]] = []
        self._paths: dict[tuple[_Place, _Place, tuple[int, ...], int], Array] = {}

    def result(self) -> AutomaticPlan:
        for node in self.function.nodes:
            self._decide(node)
        for node in self.function.nodes:
            self._connect(node)
        for k, sharding in self.asked.items():
            node = self.function.results[k]
            if isinstance(node.type, TensorType) and node not in self.free:
                self._edge(self.place(node), _Place(-1, (self._layout(sharding),)), node, None, 1)
        return self._plan(*self._searched())

    def _searched(self) -> tuple[FoundChoice, _Lifetimes, list[list[int]]]:
        """The best choice, when what is alive, and the choices of the known plans. Where a choice needs more than there is at a
        moment that was not looked at, that is bounded, too."""
        alive = _Lifetimes(self)
        starts = [[d.starts[k] for d in self.decisions] for k in range(len(self.known))]
        moments = alive.moments(starts)
        while True:
            problem = ChoiceProblem([d.costs for d in self.decisions], self.edges, *alive.held(moments), self.memory)
            found = best_choice(problem, starts, self.limit)
            used = alive.curve(found.candidates)
            worst = int(used.argmax())
            if used[worst] <= self.memory * (1 + SLACK) or worst in moments:
                return found, alive, starts
            moments.append(worst)
            starts.append(list(found.candidates))

    # --- decisions

    def _decide(self, node: Node) -> None:
        """How the results of a node may lie, and how it needs its operands."""
        if node in self.free or node.op in CARRIERS:
            if node in self.free and self._is_joined(node):
                self.own[node, 0] = self._value(node)
            return
        first = self.first.get(node, node)
        if first is not node:
            self._share(node, first)
        elif node.op is PARAM:
            if isinstance(node.type, TensorType) and node.type.is_static:
                self.own[node, 0] = self._value(node)
        else:
            self._fresh(node)
        place = self.own.get((node, 0))
        if place is not None and place.decision >= 0:
            self._add_work(node, place)

    def _is_alike(self, node: Node, first: Node) -> bool:
        """Whether a node can share the decision of another one of a repeated block: in computations by hand along the same axes."""
        return not is_border(node) and self.by_hand.get(node) == self.by_hand.get(first)

    def _share(self, node: Node, first: Node) -> None:
        for table, count in ((self.own, len(first.type.items) if hasattr(first.type, "items") else 1),
                             (self.needs, len(first.inputs))):
            for k in range(count):
                if (first, k) in table:
                    table[node, k] = table[first, k]

    def _value(self, node: Node) -> _Place:
        """A decision of its own for a value that nothing computes."""
        type, device = as_tensor(node.type), self.costs.cluster.device
        apart = frozenset[AxisRef]().union(*(self.by_hand.get(u, ()) for u in self.function.users[node] if u.op in CARRIERS))
        layouts = self.costs.layouts(type.shape, apart)
        held = [math.prod(local_shape(type.shape, x.dims)) * type.dtype.itemsize for x in layouts]
        return self._made(node, [SplitCandidate((), (x,), size / device.bandwidth * HOLDING)
                                 for x, size in zip(layouts, held, strict=True)])

    def _made(self, node: Node, candidates: Sequence[SplitCandidate]) -> _Place:
        self.decisions.append(_Decision(candidates, [self._start(node, candidates, plan) for plan in self.known.values()]))
        return _Place(len(self.decisions) - 1, [c.results[0] for c in candidates])

    def _start(self, node: Node, candidates: Sequence[SplitCandidate], plan: KnownPlan) -> int:
        """The candidate that a known plan takes: that gives results as it says, and of these the cheapest from its operands."""
        types = [as_tensor(t) for t in getattr(node.type, "items", (node.type,))]
        asked = tuple(plan.layout((node, k), len(t.shape)) for k, t in enumerate(types))
        alike = [k for k, c in enumerate(candidates) if c.results == asked] or range(len(candidates))

        def seconds(k: int) -> float:
            found = candidates[k].seconds
            for i, needed in zip(node.inputs, candidates[k].operands, strict=False):
                if needed.dims and i not in self.free:
                    made = plan.layout(self.folded.value(i), len(needed.dims))
                    found += self.costs.path(as_tensor(i.type).shape, as_tensor(i.type).dtype.itemsize, made, needed)
            return found

        return min(alike, key=seconds)

    def _fresh(self, node: Node) -> None:
        rule = splittable(node)
        if rule is None:
            self._whole(node)
            return
        if is_border(node):
            before, after = across_border(node, lambda n: self.place(n if n in self.given else node).layouts[0])
            self.needs[node, 0], self.own[node, 0] = _Place(-1, (before,)), _Place(-1, (after,))
            return
        leader = self._leader(node)
        if leader is not None:
            place = self.place(leader)
            self.own[node, 0] = place
            for k, i in enumerate(node.inputs):
                if isinstance(i.type, TensorType):
                    alike = i.type.shape == as_tensor(node.type).shape
                    self.needs[node, k] = place if alike else _Place(-1, (TensorLayout.whole(len(i.type.shape)),))
            return
        known = [plan.axes[node] for plan in self.known.values() if node in plan.axes]
        candidates = self.costs.candidates(node, rule, known, lambda: self.limit.left(BUILDING) > 0,
                                           self.by_hand.get(node, ()))
        place = self._made(node, candidates)
        for k in range(len(candidates[0].results)):
            self.own[node, k] = _Place(place.decision, [c.results[k] for c in candidates])
        for k, i in enumerate(node.inputs):
            if isinstance(i.type, TensorType):
                self.needs[node, k] = _Place(place.decision, [c.operands[k] for c in candidates])

    def _whole(self, node: Node) -> None:
        """What has no rule is computed whole on every device."""
        for k, i in enumerate(node.inputs):
            if isinstance(i.type, TensorType) and i.type.is_static:
                self.needs[node, k] = _Place(-1, (TensorLayout.whole(len(i.type.shape)),))
        if isinstance(node.type, TensorType) and node.type.is_static:
            self.own[node, 0] = _Place(-1, (TensorLayout.whole(len(node.type.shape)),))

    def _leader(self, node: Node) -> Node | None:
        """The one operand, of the same shape, as which an elementwise operation lies."""
        if not node.op.elementwise or not isinstance(node.type, TensorType) or node in self.given or not node.type.shape:
            return None
        others = [i for i in node.inputs if i not in self.free and isinstance(i.type, TensorType) and i.type.shape]
        alike = [i for i in dict.fromkeys(others) if as_tensor(i.type).shape == node.type.shape]
        return alike[0] if len(alike) == 1 == len(set(others)) else None

    def _add_work(self, node: Node, place: _Place) -> None:
        """The seconds of a node, for each candidate."""
        decision, runs = self.decisions[place.decision], self._runs(node)
        first = self.first.get(node, node)
        if first.op is PARAM or self._leader(first) is None:
            decision.costs += np.array([c.seconds for c in decision.candidates]) * runs
        else:
            shape, device = as_tensor(node.type).shape, self.costs.cluster.device
            shares = [math.prod(local_shape(shape, x.dims)) / max(1, math.prod(shape)) for x in place.layouts]
            decision.costs += np.array([device.seconds(flops(node) * s, bytes_moved(node) * s) for s in shares]) * runs

    def _runs(self, node: Node) -> int:
        return self.times.get(node, NEVER).count or ONCE.count

    def _is_joined(self, node: Node) -> bool:
        """Whether a constant is where a loop variable begins, or a value of a branch."""
        users = self.function.users[node]
        return isinstance(node.type, TensorType) and bool(node.type.dims) and any(u.op in CARRIERS for u in users)

    # --- moves

    def place(self, node: Node) -> _Place:
        """How a value lies: as was given, or as the first of the values does with which it is joined."""
        if node in self.given:
            return _Place(-1, (self._layout(self.given[node]),))
        root = self.flow.of(node)
        found = self.own.get(root) or self.own.get((node, 0))
        return found or _Place(-1, (TensorLayout.whole(len(as_tensor(node.type).shape)),))

    def _layout(self, sharding: TensorSharding) -> TensorLayout:
        return TensorLayout(tuple(self.mesh.atoms(axes) for axes in sharding.axes))

    def _connect(self, node: Node) -> None:
        """What it costs to bring operands to a node, and its result to where it is joined with others."""
        runs = self._runs(node)
        for k, i in enumerate(node.inputs):
            if (node, k) in self.needs and i not in self.free:
                self._edge(self.place(i), self.needs[node, k], i, node, runs)
        if (node, 0) in self.own and isinstance(node.type, TensorType):
            self._edge(self.own[node, 0], self.place(node), node, None, runs)

    def _edge(self, made: _Place, needed: _Place, value: Node, at: Node | None, runs: int) -> None:
        if made is needed:
            return
        type = as_tensor(value.type)
        key = made, needed, type.shape, type.dtype.itemsize
        if key not in self._paths:
            kinds = np.array([[self.costs.path(*key[2:], a, b) for b in needed.kinds] for a in made.kinds])
            self._paths[key] = kinds[made.kind][:, needed.kind]
        costs = self._paths[key] * runs
        if not costs.any():
            return
        self.moves.append((made, needed, costs, value, at))
        a, b = made.decision, needed.decision
        if a < 0 and b < 0:
            return
        if a < 0:
            self.decisions[b].costs += costs[0]
        elif b < 0:
            self.decisions[a].costs += costs[:, 0]
        elif a == b:
            self.decisions[a].costs += np.diagonal(costs)
        else:
            pair, matrix = ((a, b), costs) if a < b else ((b, a), costs.T)
            self.edges[pair] = self.edges.get(pair, 0.0) + matrix

    # --- the plan

    def _plan(self, choice: FoundChoice, alive: _Lifetimes, starts: Sequence[Sequence[int]]) -> AutomaticPlan:
        problem = ChoiceProblem([d.costs for d in self.decisions], self.edges, *alive.held([]), self.memory)
        least, rivals = choice.seconds * (1 - choice.gap), []
        for name, start in zip(self.known, starts, strict=False):
            held, seconds = int(alive.curve(start).max()), problem.seconds(start)
            fits, gap = held <= self.memory * (1 + SLACK), max(0.0, 1 - least / seconds) if seconds else 0.0
            rivals.append(RivalPlan(name, seconds, held, self._automatic(start, seconds, gap, held) if fits else None))
        found = self._automatic(choice.candidates, choice.seconds, choice.gap, int(alive.curve(choice.candidates).max()))
        return replace(found, rivals=tuple(rivals))

    def _automatic(self, choice: Sequence[int], seconds: float, gap: float, held: int) -> AutomaticPlan:
        return AutomaticPlan(self._written(choice), seconds, gap, held, len(self.decisions), tuple(self._dearest(choice)))

    def _written(self, found: Sequence[int]) -> Plan:
        """How all values lie by a choice."""
        values: dict[Node, TensorSharding] = {}
        for node in self.function.nodes:
            if isinstance(node.type, TensorType) and node.type.is_static and (node not in self.free or self._is_joined(node)):
                values[node] = self.place(node).sharding(found)
        for node in reversed(self.function.nodes):
            if node in self.free and node not in values:
                values |= self._as_needed(node, found)
        return Plan(self.mesh, self.function, values, self.asked, dict.fromkeys(values, "automatic"), frozenset(self.given))

    def _as_needed(self, node: Node, found: Sequence[int]) -> dict[Node, TensorSharding]:
        """What is made of constants lies as its first user needs it."""
        for user in self.function.users[node]:
            for k, i in enumerate(user.inputs):
                if i is node and (user, k) in self.needs:
                    return {node: self.needs[user, k].sharding(found)}
        return {}

    def _dearest(self, found: Sequence[int]) -> Iterator[DearMove]:
        labels = labels_of(self.function)
        rows = [(float(costs[0 if a.decision < 0 else found[a.decision], 0 if b.decision < 0 else found[b.decision]]), value, at)
                for a, b, costs, value, at in self.moves]
        for seconds, value, at in sorted(rows, key=lambda row: -row[0])[:DEAREST]:
            if seconds > 0:
                yield DearMove(seconds, f"'{labels[value]}' ({value.op.name})",
                               "how it is asked" if at is None else f"'{labels[at]}' ({at.op.name})")


class _Lifetimes:
    """When values are alive, and what they hold on one device for each candidate of the decision of how they lie."""

    def __init__(self, planner: _Planner) -> None:
        function = planner.function
        order = {n: k for k, n in enumerate(function.nodes)}
        self.end, self.decisions = len(order), planner.decisions
        whole = {*function.params, *function.results}
        values = [n for n in function.nodes
                  if isinstance(n.type, TensorType) and n not in planner.free and n.op not in CARRIERS]
        known: dict[tuple[_Place, tuple[int, ...], int], Array] = {}
        self.rows: list[tuple[int, int, int, Array]] = []
        """From which moment to which, by which decision, and the bytes of each candidate."""
        for n in values:
            place, type = planner.place(n), as_tensor(n.type)
            key = place, type.shape, type.dtype.itemsize
            if key not in known:
                parts = [math.prod(local_shape(type.shape, x.dims)) * type.dtype.itemsize for x in place.kinds]
                known[key] = np.array(parts, float)[place.kind]
            last = self.end if n in whole else max((order[u] for u in function.users[n]), default=order[n])
            self.rows.append((0 if n.op is PARAM else order[n], last, place.decision, known[key]))

    def curve(self, choice: Sequence[int] | None) -> Array:
        """The bytes alive at each moment, by a choice, or of whole values."""
        changes = np.zeros(self.end + 2)
        for start, last, decision, held in self.rows:
            size = held.max() if choice is None else held[choice[decision] if decision >= 0 else 0]
            changes[start] += size
            changes[last + 1] -= size
        return np.cumsum(changes)[: self.end + 1]

    def moments(self, choices: Sequence[Sequence[int]]) -> list[int]:
        """The moments of most, of whole values and under each of some choices."""
        curves = [self.curve(choice) for choice in (None, *choices)]
        most = MOMENTS // len(curves)
        return list(dict.fromkeys(int(k) for curve in curves for k in np.argsort(-curve, kind="stable")[:most]))

    def held(self, moments: Sequence[int]) -> tuple[list[Array], Array]:
        """What candidates hold at moments, decision by decision, and what is held there whatever is decided."""
        at = np.array(moments, int)
        held, fixed = [np.zeros((len(d.candidates), len(at))) for d in self.decisions], np.zeros(len(at))
        for start, last, decision, sizes in self.rows:
            now = np.flatnonzero((at >= start) & (at <= last))
            if decision < 0:
                fixed[now] += sizes[0]
            elif len(now):
                held[decision][:, now] += sizes[:, None]
        return held, fixed
