"""`automatic_plan`: how all values of a program lie on a mesh, chosen by an integer program of least predicted seconds.

One decision for each node: which of its candidates (`candidates.py`). Nodes of repeated blocks share theirs, and elementwise
operations lie as the one operand that is not made of constants. Between decisions stands what moving costs from how a value is made
to how it is needed; memory is bounded at the moments of most bytes alive. This is the formulation of Alpa's intra-operator pass
(Zheng et al., 2022), with its products of decisions relaxed to the marginals of each edge, solved by HiGHS.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from deepx_graph.analysis.repeats import repeated
from deepx_graph.analysis.work import NEVER, ONCE, bytes_moved, flops, node_times
from deepx_graph.errors import Diagnostic, UsageError, sized
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.planning.candidates import MeshCosts, SplitCandidate, splittable
from deepx_graph.planning.cluster import DeviceCluster
from deepx_graph.sharding.mesh import Mesh, TensorSharding, local_shape, merged, split
from deepx_graph.sharding.plan import Plan, labels_of
from deepx_graph.sharding.reshard import TensorLayout
from deepx_graph.sharding.values import CARRIERS, DataFlow
from deepx_graph.types import TensorType, as_tensor, nbytes

MOMENTS = 24
"""Memory is bounded at so many moments, those of most bytes alive."""

SECONDS = 120.0
"""How long the solver may search; then the best plan found counts, with its gap."""

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
class AutomaticPlan:
    """A plan with its predicted seconds of a step, and by how much of these at most the best plan is better (`gap`).

    `memory_bytes` is what values of one device take at the moment of most; `dearest` are the moves that cost most.
    """

    plan: Plan
    seconds: float
    gap: float
    memory_bytes: int
    decisions: int
    dearest: tuple[DearMove, ...]

    def lines(self) -> Iterator[str]:
        """In words."""
        yield (f"automatic: {self.seconds * 1e6:,.1f} us a step predicted, were every operation a kernel of its own; "
               f"at most {self.gap:.2%} above the best of {self.decisions} decisions; "
               f"values of a device take {sized(self.memory_bytes)} at most")
        for move in self.dearest:
            yield f"  {move.seconds * 1e6:,.1f} us to bring {move.value} to {move.at}"


@dataclass
class _Decision:
    """The candidates of a group of nodes, with their costs in seconds."""

    candidates: Sequence[SplitCandidate]
    costs: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.costs = np.zeros(len(self.candidates))


@dataclass(frozen=True)
class _Place:
    """How a value lies, or is needed, for each candidate of a decision; of no decision: in one way."""

    decision: int
    layouts: tuple[TensorLayout, ...]


def automatic_plan(function: Function, mesh: Mesh, cluster: DeviceCluster, *, memory: float | None = None,
                   given: Plan | None = None) -> AutomaticPlan:
    """The plan of least predicted seconds that fits into `memory` bytes of a device (all that it has when left out).

    What `given` says of values and results stays. Raises UsageError where no plan fits.
    """
    return _Planner(function, mesh, cluster, cluster.device.memory if memory is None else memory, given).result()


class _Planner:
    def __init__(self, function: Function, mesh: Mesh, cluster: DeviceCluster, memory: float, given: Plan | None) -> None:
        self.function, self.mesh, self.costs, self.memory = function, mesh, MeshCosts(mesh, cluster), memory
        self.given: Mapping[Node, TensorSharding] = {} if given is None else given.values
        self.asked: Mapping[int, TensorSharding] = {} if given is None else given.results
        self.flow, self.times = DataFlow(function), node_times(function)
        self.free = _free(function)
        working = [n for n in function.nodes if n not in self.free and n.op is not PARAM and n.op not in CARRIERS]
        self.first = repeated(working)
        self.decisions: list[_Decision] = []
        self.own: dict[tuple[Node, int], _Place] = {}
        self.needs: dict[tuple[Node, int], _Place] = {}
        self.edges: dict[tuple[int, int], np.ndarray] = {}
        self.moves: list[tuple[_Place, _Place, np.ndarray, Node, Node | None]] = []

    def result(self) -> AutomaticPlan:
        for node in self.function.nodes:
            self._decide(node)
        for node in self.function.nodes:
            self._connect(node)
        for k, sharding in self.asked.items():
            node = self.function.results[k]
            if isinstance(node.type, TensorType) and node not in self.free:
                self._edge(self.place(node), _Place(-1, (self._layout(sharding),)), node, None, 1)
        found, gap = _solved(self.decisions, self.edges, self._memory_rows(), self.memory)
        return self._plan(found, gap)

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

    def _share(self, node: Node, first: Node) -> None:
        for table, count in ((self.own, len(first.type.items) if hasattr(first.type, "items") else 1),
                             (self.needs, len(first.inputs))):
            for k in range(count):
                if (first, k) in table:
                    table[node, k] = table[first, k]

    def _value(self, node: Node) -> _Place:
        """A decision of its own for a value that nothing computes."""
        type, device = as_tensor(node.type), self.costs.cluster.device
        held = [(x, math.prod(local_shape(type.shape, x.dims)) * type.dtype.itemsize) for x in self.costs.layouts(type.shape)]
        return self._made([SplitCandidate((), (x,), size / device.bandwidth * HOLDING) for x, size in held], 0)

    def _made(self, candidates: Sequence[SplitCandidate], result: int) -> _Place:
        self.decisions.append(_Decision(candidates))
        return _Place(len(self.decisions) - 1, tuple(c.results[result] for c in candidates))

    def _fresh(self, node: Node) -> None:
        rule = splittable(node)
        if rule is None:
            self._whole(node)
            return
        leader = self._leader(node)
        if leader is not None:
            place = self.place(leader)
            self.own[node, 0] = place
            for k, i in enumerate(node.inputs):
                if isinstance(i.type, TensorType):
                    alike = i.type.shape == as_tensor(node.type).shape
                    none = TensorLayout(((),) * len(i.type.shape))
                    self.needs[node, k] = place if alike else _Place(-1, (none,))
            return
        candidates = self.costs.candidates(node, rule)
        place = self._made(candidates, 0)
        for k in range(len(candidates[0].results)):
            self.own[node, k] = _Place(place.decision, tuple(c.results[k] for c in candidates))
        for k, i in enumerate(node.inputs):
            if isinstance(i.type, TensorType):
                self.needs[node, k] = _Place(place.decision, tuple(c.operands[k] for c in candidates))

    def _whole(self, node: Node) -> None:
        """What has no rule is computed whole on every device."""
        for k, i in enumerate(node.inputs):
            if isinstance(i.type, TensorType) and i.type.is_static:
                self.needs[node, k] = _Place(-1, (TensorLayout(((),) * len(i.type.shape)),))
        if isinstance(node.type, TensorType) and node.type.is_static:
            self.own[node, 0] = _Place(-1, (TensorLayout(((),) * len(node.type.shape)),))

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
        return found or _Place(-1, (TensorLayout(((),) * len(as_tensor(node.type).shape)),))

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
        costs = np.array([[self.costs.path(type.shape, type.dtype.itemsize, a, b) for b in needed.layouts] for a in made.layouts])
        costs *= runs
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
            key, matrix = ((a, b), costs) if a < b else ((b, a), costs.T)
            self.edges[key] = self.edges.get(key, 0.0) + matrix

    # --- memory

    def _memory_rows(self) -> list[dict[tuple[int, int], float]]:
        """For the moments of most bytes alive: bytes of one device by decision and candidate."""
        order = {n: k for k, n in enumerate(self.function.nodes)}
        end = len(order)
        values = [n for n in self.function.nodes if isinstance(n.type, TensorType) and n not in self.free and n.op not in CARRIERS]
        last = {n: max((order[u] for u in self.function.users[n]), default=order[n]) for n in values}
        for n in (*self.function.params, *self.function.results):
            last[n] = end
        changes = np.zeros(end + 2)
        for n in values:
            size = nbytes(n.type)
            changes[0 if n.op is PARAM else order[n]] += size
            changes[last[n] + 1] -= size
        alive = np.cumsum(changes)[: end + 1]
        rows = []
        for moment in np.argsort(-alive, kind="stable")[:MOMENTS]:
            row: dict[tuple[int, int], float] = {}
            for n in values:
                if (n.op is PARAM or order[n] <= moment) and last[n] >= moment:
                    place, type = self.place(n), as_tensor(n.type)
                    for c, x in enumerate(place.layouts):
                        key = place.decision, c
                        row[key] = row.get(key, 0.0) + float(math.prod(local_shape(type.shape, x.dims)) * type.dtype.itemsize)
            rows.append(row)
        return rows

    # --- the plan

    def _plan(self, found: Sequence[int], gap: float) -> AutomaticPlan:
        values: dict[Node, TensorSharding] = {}
        for node in self.function.nodes:
            if isinstance(node.type, TensorType) and node.type.is_static and (node not in self.free or self._is_joined(node)):
                values[node] = _sharding(_taken(self.place(node), found))
        for node in reversed(self.function.nodes):
            if node in self.free and node not in values:
                values |= self._as_needed(node, found)
        seconds = sum(float(d.costs[k]) for d, k in zip(self.decisions, found, strict=True))
        seconds += sum(float(m[found[a], found[b]]) for (a, b), m in self.edges.items())
        used = max((sum(b for (d, c), b in row.items() if d < 0 or found[d] == c) for row in self._memory_rows()), default=0.0)
        plan = Plan(self.mesh, self.function, values, self.asked, dict.fromkeys(values, "automatic"), frozenset(self.given))
        return AutomaticPlan(plan, seconds, gap, int(used), len(self.decisions), tuple(self._dearest(found)))

    def _as_needed(self, node: Node, found: Sequence[int]) -> dict[Node, TensorSharding]:
        """What is made of constants lies as its first user needs it."""
        for user in self.function.users[node]:
            for k, i in enumerate(user.inputs):
                if i is node and (user, k) in self.needs:
                    return {node: _sharding(_taken(self.needs[user, k], found))}
        return {}

    def _dearest(self, found: Sequence[int]) -> Iterator[DearMove]:
        labels = labels_of(self.function)
        rows = [(float(costs[0 if a.decision < 0 else found[a.decision], 0 if b.decision < 0 else found[b.decision]]), value, at)
                for a, b, costs, value, at in self.moves]
        for seconds, value, at in sorted(rows, key=lambda row: -row[0])[:DEAREST]:
            if seconds > 0:
                yield DearMove(seconds, f"'{labels[value]}' ({value.op.name})",
                               "how it is asked" if at is None else f"'{labels[at]}' ({at.op.name})")


def _free(function: Function) -> set[Node]:
    """What is made of constants alone, which every device can make for itself."""
    found: set[Node] = set()
    for node in function.nodes:
        if node.op is CONSTANT or (node.op is not PARAM and node.op not in CARRIERS and node.op.eval is not None
                                   and isinstance(node.type, TensorType) and all(i in found for i in node.inputs)):
            found.add(node)
    return found


def _taken(place: _Place, found: Sequence[int]) -> TensorLayout:
    return place.layouts[0 if place.decision < 0 else found[place.decision]]


def _sharding(layout: TensorLayout) -> TensorSharding:
    return split(*map(merged, layout.dims))


# --- the integer program ------------------------------------------------------------------------------------------

_MICRO = 1e6
"""Costs are in microseconds, as solvers have absolute tolerances."""


def _solved(decisions: Sequence[_Decision], edges: Mapping[tuple[int, int], np.ndarray],
            rows: Sequence[Mapping[tuple[int, int], float]], memory: float) -> tuple[list[int], float]:
    """The candidate of each decision, and the relative gap. Raises UsageError where none fits into memory."""
    optimize, sparse = import_module("scipy.optimize"), import_module("scipy.sparse")
    offsets = np.cumsum([0, *(len(d.candidates) for d in decisions)])
    count = int(offsets[-1]) + sum(m.size for m in edges.values())
    if not decisions:
        return [], 0.0
    cost = [np.concatenate([d.costs for d in decisions]), *(m.ravel() for m in edges.values())]
    problem = _Rows()
    for k, d in enumerate(decisions):
        problem.add([(int(offsets[k]) + c, 1.0) for c in range(len(d.candidates))], 1.0, 1.0)
    at = int(offsets[-1])
    for (a, b), m in edges.items():
        numbers = at + np.arange(m.size).reshape(m.shape)
        at += m.size
        for end, each in ((a, numbers), (b, numbers.T)):
            for c, line in enumerate(each):
                problem.add([*((int(v), 1.0) for v in line), (int(offsets[end]) + c, -1.0)], 0.0, 0.0)
    for row in rows:
        fixed = sum(size for (d, _), size in row.items() if d < 0)
        problem.add([(int(offsets[d]) + c, size / memory) for (d, c), size in row.items() if d >= 0], -np.inf, 1.0 - fixed / memory)
    matrix = sparse.csr_matrix((problem.values, (problem.rows, problem.columns)), shape=(len(problem.low), count))
    integral = np.zeros(count)
    integral[: offsets[-1]] = 1
    found: Any = optimize.milp(np.concatenate(cost) * _MICRO, integrality=integral, bounds=optimize.Bounds(0, 1),
                               constraints=optimize.LinearConstraint(matrix, problem.low, problem.high),
                               options={"time_limit": SECONDS})
    if found.x is None:
        hint = "allow more memory, or use more devices"
        raise UsageError(Diagnostic(f"no plan was found that fits into {sized(int(memory))} of a device", hint=hint))
    chosen = [int(np.argmax(found.x[offsets[k]: offsets[k + 1]])) for k in range(len(decisions))]
    return chosen, float(found.mip_gap or 0.0)


class _Rows:
    """The rows of the constraints of an integer program."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.columns: list[int] = []
        self.values: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def add(self, terms: Sequence[tuple[int, float]], low: float, high: float) -> None:
        for column, value in terms:
            self.rows.append(len(self.low))
            self.columns.append(column)
            self.values.append(value)
        self.low.append(low)
        self.high.append(high)
