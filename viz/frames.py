"""Which frame of the picture each node of a function stands in: the schedule's blocks as nested clusters.

A branch and a loop are a cluster each, the test and the body of a loop share one. `control` says what leads to a branch or
loop: the side of an If (`(region, branch)`), the head of a loop (its loop_begin), or the start of the function (None).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deepx_graph.ir import Function, Node
from deepx_graph.runtime.schedule import Block, Eval, If, Loop, Once, schedule
from deepx_graph.viz.canvas import Canvas

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


def frames(function: Function, canvas: Canvas, root: int) -> Frames:
    """Adds the clusters of a function inside the cluster `root`. Raises VerifyError where the function has no schedule."""
    found = Frames(root)
    stack: list[tuple[Block, int, Head]] = [(schedule(function).root, root, None)]
    while stack:
        block, cluster, head = stack.pop()
        inner: list[tuple[Block, int, Head]] = []
        for step in block.steps:
            match step:
                case Eval(node):
                    found.home[node] = cluster
                case Once(block=once):
                    inner.append((once, cluster, head))
                case If():
                    inner += _branches(step, cluster, head, found, canvas)
                case Loop():
                    inner += _loop(step, cluster, head, found, canvas)
        stack += reversed(inner)
    return found


def side_name(branch: int, branches: int, is_bool: bool) -> str:
    """What a branch of a region is called: `true`, `false`, `case 2`, `otherwise`."""
    if is_bool:
        return "true" if branch == 0 else "false"
    return f"case {branch}" if branch < branches - 1 else "otherwise"


def selects_by_bool(region: Node) -> bool:
    """The region's selector is a bool (or not known yet) and picks one of two."""
    dtype = getattr(region.inputs[0].type, "dtype", None)
    return region.attrs[0] == 2 and not (dtype is not None and dtype.is_integer)


def _branches(step: If, cluster: int, head: Head, found: Frames, canvas: Canvas) -> list[tuple[Block, int, Head]]:
    region = step.node
    found.home[region], found.control[region] = cluster, head
    names = [side_name(b, len(step.branches), selects_by_bool(region)) for b in range(len(step.branches))]
    found.sides[region] = tuple(canvas.cluster("branch", f"branch {name}", cluster) for name in names)
    return [(b.block, found.sides[region][k], (region, k)) for k, b in enumerate(step.branches)]


def _loop(step: Loop, cluster: int, head: Head, found: Frames, canvas: Canvas) -> list[tuple[Block, int, Head]]:
    begin = step.node.inputs[0]
    names = ", ".join(dict.fromkeys(p.name for column in step.phis for p in column if p.name))
    inside = canvas.cluster("loop", f"loop over {names}" if names else "loop", cluster)
    found.control[step.node] = head
    found.home[begin] = found.home[step.node] = inside
    for column in step.phis:
        for phi in column:
            found.home[phi] = inside
    return [(step.header, inside, begin), (step.body, inside, begin)]
