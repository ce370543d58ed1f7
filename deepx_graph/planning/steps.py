"""A step of the program of one device as tasks: its kernels and collectives on two streams, each after what it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deepx_graph.analysis.work import NEVER, bytes_moved, flops, kernels, node_times
from deepx_graph.errors import InferError, UsageError, sized
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import LOOP_END, PHI, PROJ, index_of
from deepx_graph.planning.cluster import DeviceCluster
from deepx_graph.planning.events import COMPUTE, NETWORK, SimTask
from deepx_graph.types import nbytes

Timing = Callable[[Node], float]
"""The seconds of a kernel."""


@dataclass(frozen=True)
class SimulatedCollective:
    """A collective of the program of one device, with its predicted seconds for all its runs together."""

    name: str
    kind: str
    bytes: int
    runs: int
    seconds: float
    algorithm: str


def roofline(cluster: DeviceCluster) -> Timing:
    """What the device of a cluster takes at least."""
    return lambda node: cluster.device.seconds(flops(node), bytes_moved(node))


def step_tasks(function: Function, cluster: DeviceCluster,
               timing: Timing) -> tuple[list[SimTask], tuple[SimulatedCollective, ...], bool]:
    """The kernels and collectives of a function in its order, each after those that it needs; whether all runs are known.

    Raises UsageError for a kernel of which nothing is known.
    """
    times, computing = node_times(function), set(kernels(function))
    made_by: dict[Node, frozenset[int]] = {}
    tasks: list[SimTask] = []
    met: list[SimulatedCollective] = []
    is_known = True
    numbers: dict[str, int] = {}
    waited: frozenset[int] = frozenset()
    for node in function.nodes:
        after = frozenset().union(*(made_by[s] for s in _sources(node)))
        runs = times.get(node, NEVER)
        if not runs.count or not (node in computing or node.op.exchange):
            made_by[node] = after
            continue
        is_known = is_known and runs.is_known
        after = after if cluster.overlaps else after | waited
        if node.op.exchange is not None:
            kind = node.op.name.removeprefix("spmd_")
            numbers[kind] = numbers.get(kind, -1) + 1
            seconds, algorithm = cluster.collective(kind, _groups(node), _moved(node))
            name, seconds = f"{kind}.{numbers[kind]}", seconds * runs.count
            met.append(SimulatedCollective(name, kind, nbytes(node.type), runs.count, seconds, algorithm))
            task = SimTask(name, ((0, NETWORK),), seconds, tuple(sorted(after)), f"{sized(nbytes(node.type))}, {algorithm}")
        else:
            task = SimTask(node.name or node.op.name, ((0, COMPUTE),), _seconds(node, timing) * runs.count, tuple(sorted(after)),
                           str(node.type))
        made_by[node] = waited = frozenset((len(tasks),))
        tasks.append(task)
    return tasks, tuple(met), is_known


def _sources(node: Node) -> tuple[Node, ...]:
    """What a value comes from: of a loop's result, its own variable alone."""
    source = node.inputs[0] if node.inputs else None
    if node.op is PROJ and source is not None and source.op is LOOP_END:
        return (source.inputs[1], source.inputs[2 + index_of(node)])
    if node.op is LOOP_END:
        return node.inputs[:1]
    return node.inputs[:1] if node.op is PHI else node.inputs


def _seconds(node: Node, timing: Timing) -> float:
    try:
        return timing(node)
    except InferError as e:
        raise UsageError(e.diagnostic(node.span)) from None


def _groups(node: Node) -> tuple[tuple[int, ...], ...]:
    attrs = node.named_attrs
    return tuple(map(tuple, attrs.get("replica_groups") or attrs.get("source_target_pairs") or ()))


def _moved(node: Node) -> int:
    """The larger of what one device has before and after a collective."""
    return max(nbytes(node.type), sum(nbytes(i.type) for i in node.inputs))
