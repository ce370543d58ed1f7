"""Which frame of the picture each node of a function stands in: the schedule's blocks as nested clusters.

A branch and a loop are a cluster each, the test and the body of a loop share one. What a loop needs once stands outside its frame
where it runs for certain, and else in a frame `once` inside. `control` says what leads to a branch or loop: the side of an If
(`(region, branch)`), the head of a loop (its loop_begin), or the start of the function (None).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deepx_graph.analysis.schedule import Block, Eval, IfStep, LoopStep, Once, schedule
from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import branch_count
from deepx_graph.viz.view.builder import Canvas

Head = Node | tuple[Node, int] | None


@dataclass
class Frames:
    """The clusters of a function; a node that is in none of the maps stands in `root`."""

    root: int
    home: dict[Node, int] = field(default_factory=dict)
    sides: dict[Node, tuple[int, ...]] = field(default_factory=dict)
    """The cluster of each branch of a region."""
    control: dict[Node, Head] = field(default_factory=dict)
    """What leads to a region or loop_end."""


@dataclass(frozen=True)
class _Place:
    """Where the nodes of a block are drawn, what leads there, and the loops of which each run reaches the block for certain."""

    cluster: int
    head: Head
    sure: frozenset[Node] = frozenset()


def frames(function: Function, canvas: Canvas, root: int) -> Frames:
    """Adds the clusters of a function inside the cluster `root`. Raises VerifyError where the function has no schedule."""
    found = Frames(root)
    around: dict[Node, _Place] = {}
    stack = [(schedule(function).root, _Place(root, None))]
    while stack:
        block, place = stack.pop()
        inner: list[tuple[Block, _Place]] = []
        for step in block.steps:
            match step:
                case Eval(node):
                    found.home[node] = place.cluster
                case Once(block=once, loop=loop):
                    inner.append((once, around[loop] if loop in place.sure else _once(place, canvas)))
                case IfStep():
                    inner += _branches(step, place, found, canvas)
                case LoopStep():
                    around[step.node] = place
                    inner += _loop(step, place, found, canvas)
        stack += reversed(inner)
    return found


def _once(place: _Place, canvas: Canvas) -> _Place:
    """The frame of what runs at most once while the loop around it goes on, and perhaps never."""
    return _Place(canvas.cluster("once", "once", place.cluster), place.head)


def side_name(branch: int, branches: int, is_bool: bool) -> str:
    """What a branch of a region is called: `true`, `false`, `case 2`, `otherwise`."""
    if is_bool:
        return "true" if branch == 0 else "false"
    return f"case {branch}" if branch < branches - 1 else "otherwise"


def selects_by_bool(region: Node) -> bool:
    """The region's selector is a bool (or not known yet) and picks one of two."""
    dtype = getattr(region.inputs[0].type, "dtype", None)
    return branch_count(region) == 2 and not (dtype is not None and dtype.is_integer)


def _branches(step: IfStep, place: _Place, found: Frames, canvas: Canvas) -> list[tuple[Block, _Place]]:
    region = step.node
    found.home[region], found.control[region] = place.cluster, place.head
    names = [side_name(b, len(step.branches), selects_by_bool(region)) for b in range(len(step.branches))]
    found.sides[region] = tuple(canvas.cluster("branch", f"branch {name}", place.cluster) for name in names)
    return [(b.block, _Place(found.sides[region][k], (region, k))) for k, b in enumerate(step.branches)]


def _loop(step: LoopStep, place: _Place, found: Frames, canvas: Canvas) -> list[tuple[Block, _Place]]:
    begin = step.node.inputs[0]
    names = ", ".join(dict.fromkeys(p.reference for column in step.phis for p in column if p.name))
    inside = canvas.cluster("loop", f"loop over {names}" if names else "loop", place.cluster)
    found.control[step.node] = place.head
    found.home[begin] = found.home[step.node] = inside
    for column in step.phis:
        for phi in column:
            found.home[phi] = inside
    sure = place.sure | {step.node}
    goes_round = bool(trip_count(step.node))
    return [(step.header, _Place(inside, begin, sure)), (step.body, _Place(inside, begin, sure if goes_round else frozenset()))]
