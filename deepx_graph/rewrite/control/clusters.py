"""Clusters: operations that the schedule does in a row, each row as a closed body that an engine may run as one kernel.

A collective, an effect or a call of a library is no part of a kernel, so a function with one is none as a whole; what stands
between two of them may be. A cluster lies within a block of the schedule and between what is no part of it, so it is computed where
its operations were: as lazily, and without any other value alive there. Takes linear time, and never recurses.

Source: subgraph partitioning, as by the auto-clustering of XLA in TensorFlow and `PartitionGraph` of TVM.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from heapq import heappop, heappush

from deepx_graph.analysis.schedule import Block, Eval, IfStep, LoopStep, Once, schedule
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import copied, rebuild, replaced
from deepx_graph.ir.structure import CONSTANT, PARAM, PROJ, TUPLE
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.types import TensorType

CLUSTER = "cluster"
"""The name of a body."""

ReadOutside = Callable[[Node, Container[Node]], bool]
"""Whether a node is read by others than some, or is a result."""


@dataclass(frozen=True, eq=False)
class OutlinedCluster:
    """Operations as a function: `captured` are the outside values for its parameters, `results` the members that others read."""

    members: tuple[Node, ...]
    body: Function
    captured: tuple[Node, ...]
    results: tuple[Node, ...]


def clustered(function: Function, takes: Callable[[Node], bool], accepts: Callable[[Function], bool]) -> Function:
    """The function with operations that stand in a row, each of which `takes` says may be part of a kernel, as one node where
    `accepts` says that there is a kernel for all; itself where there are none."""
    results = frozenset(function.results)

    def is_read_outside(node: Node, members: Container[Node]) -> bool:
        return node in results or any(u not in members for u in function.users[node])

    rows = _rows(schedule(function).root, takes)
    found = [c for row in rows if (c := _cluster(row, is_read_outside)) is not None and accepts(c.body)]
    return _without(function, found) if found else function


def _rows(root: Block, takes: Callable[[Node], bool]) -> Iterator[list[Node]]:
    """Operations that follow one another in a block, in order."""
    stack = [root]
    while stack:
        row: list[Node] = []
        for step in stack.pop().steps:
            if isinstance(step, Eval) and step.node.op is not TUPLE and (_looks(step.node) or takes(step.node)):
                row.append(step.node)
                continue
            yield row
            row = []
            match step:
                case IfStep():
                    stack += (branch.block for branch in step.branches)
                case LoopStep():
                    stack += (step.header, step.body)
                case Once():
                    stack.append(step.block)
        yield row


def _looks(node: Node) -> bool:
    """Whether the node only gives a name to memory of its operand."""
    return node.op is PROJ or (node.op.view and isinstance(node.type, TensorType))


def _cluster(row: Sequence[Node], is_read_outside: ReadOutside) -> OutlinedCluster | None:
    """The cluster of a row; None where there are not two kernels in it, or more than tensors goes in or out."""
    members = _members(row, is_read_outside)
    if sum(not _looks(n) for n in members) < 2:
        return None
    outside = list(dict.fromkeys(i for n in members for i in n.inputs if i not in members))
    captured = tuple(n for n in outside if n.op is not CONSTANT)
    results = tuple(n for n in members if is_read_outside(n, members))
    if not all(isinstance(n.type, TensorType) for n in (*captured, *results)):
        return None
    params = tuple(Node(PARAM, (), (k, n.type), n.type, n.origin) for k, n in enumerate(captured))
    new = dict(zip(captured, params, strict=True)) | {n: n for n in outside if n.op is CONSTANT}
    rebuild(list(members), new, copied)
    body = Function(CLUSTER, params, tuple(new[n] for n in results), public=False)
    return OutlinedCluster(tuple(members), body, captured, results)


def _members(row: Sequence[Node], is_read_outside: ReadOutside) -> dict[Node, None]:
    """Those of a row that are part of its cluster, in order: what only looks at a value from outside stays there if others look,
    too, and a column of what is outside always does."""
    members = dict.fromkeys(row)
    for node in row:
        is_of_outside = _looks(node) and not any(i in members for i in node.inputs)
        if is_of_outside and (node.op is PROJ or is_read_outside(node, members)):
            del members[node]
    return members


def _without(function: Function, clusters: Sequence[OutlinedCluster]) -> Function:
    """The function with each of the clusters as one node, and all in the order in which it was: a schedule goes by that."""
    cluster_of: dict[Node, Node | OutlinedCluster] = {n: c for c in clusters for n in c.members}
    order: TopologicalSorter[Node | OutlinedCluster] = TopologicalSorter()
    position: dict[Node | OutlinedCluster, int] = {}
    for at, node in enumerate(function.nodes):
        here = cluster_of.get(node, node)
        position[here] = at
        order.add(here, *(there for i in node.inputs if (there := cluster_of.get(i, i)) is not here))
    b, new, ready = Builder(), {p: p for p in function.params}, list[tuple[int, Node | OutlinedCluster]]()
    order.prepare()
    while order.is_active():
        for item in order.get_ready():
            heappush(ready, (position[item], item))
        _, item = heappop(ready)
        order.done(item)
        if isinstance(item, OutlinedCluster):
            new.update(zip(item.results, _outlined(b, item, [new[i] for i in item.captured]), strict=True))
        elif item not in new:
            new[item] = copied(item, tuple(new[i] for i in item.inputs))
    return replaced(function, new)


def _outlined(b: Builder, cluster: OutlinedCluster, captured: Sequence[Node]) -> Sequence[Node]:
    """The results of a cluster as those of one node."""
    kernel = b(fusion, *captured, body=cluster.body)
    return [kernel] if len(cluster.results) == 1 else [b.proj(kernel, k) for k in range(len(cluster.results))]
