"""What can be asked of the nodes of one function: sizes, costs, users, places, depths; each worked out once, when first asked for.

`Facts` belongs to a function and costs nothing until a question needs it. A size that is not known is None, never a guess. What a
run measured comes from outside, in `measured`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from deepx_graph.analysis.schedule import Block, Eval, IfStep, LoopStep, Once, schedule
from deepx_graph.errors import DeepxGraphError, InferError
from deepx_graph.ir import Function, Node
from deepx_graph.runtime.cost.counts import bytes_moved, flops
from deepx_graph.types import TensorType, leaves, nbytes


@dataclass(frozen=True, slots=True)
class Nesting:
    """Where the schedule puts a node: how many loops and branches are around it."""

    loops: int = 0
    branches: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of a node: seconds and calls of one run, their share of all kernels, and odd elements of its last value."""

    seconds: float
    share: float
    calls: int
    nans: int = 0
    infs: int = 0


class Facts:
    """The facts of a function's nodes."""

    def __init__(self, function: Function, measured: Mapping[Node, Measured] | None = None) -> None:
        self.function = function
        self.measured: Mapping[Node, Measured] = measured or {}

    @cached_property
    def number(self) -> dict[Node, int]:
        """The place of each node in the function: what `#17` means."""
        return {n: k for k, n in enumerate(self.function.nodes)}

    @cached_property
    def results(self) -> frozenset[Node]:
        return frozenset(self.function.results)

    @cached_property
    def depth(self) -> dict[Node, int]:
        """How many operations lie on the longest way to a node."""
        found: dict[Node, int] = {}
        for n in self.function.nodes:
            found[n] = 1 + max((found[i] for i in n.inputs), default=-1)
        return found

    @cached_property
    def places(self) -> dict[Node, Nesting]:
        """Where the schedule puts each node; a node that it leaves out is in no loop and no branch."""
        found: dict[Node, Nesting] = {}
        try:
            stack = [(schedule(self.function).root, Nesting())]
        except DeepxGraphError:
            return found
        while stack:
            block, place = stack.pop()
            for step in block.steps:
                match step:
                    case Eval(node):
                        found[node] = place
                    case Once():  # it runs as often as what lies around the loop that it outlives
                        stack.append((step.block, Nesting(found[step.loop].loops, place.branches)))
                    case IfStep():
                        found[step.node] = place
                        inside = Nesting(place.loops, place.branches + 1)
                        stack += ((b.block, inside) for b in step.branches)
                    case LoopStep():
                        stack += _loop(step, place, found)
        return found

    def place(self, node: Node) -> Nesting:
        return self.places.get(node, Nesting())

    def users(self, node: Node) -> int:
        """How many operands, of other nodes, the node is."""
        return len(self.function.users.get(node, ()))

    def before(self, node: Node) -> frozenset[Node]:
        """What a node depends on, itself included."""
        return _reached(node, lambda n: n.inputs)

    def after(self, node: Node) -> frozenset[Node]:
        """What depends on a node, itself included."""
        return _reached(node, lambda n: self.function.users.get(n, ()))


def _loop(step: LoopStep, place: Nesting, found: dict[Node, Nesting]) -> list[tuple[Block, Nesting]]:
    inside = Nesting(place.loops + 1, place.branches)
    found[step.node] = place
    found[step.node.inputs[0]] = inside
    found.update((phi, inside) for column in step.phis for phi in column)
    return [(step.header, inside), (step.body, inside)]


def _reached(start: Node, beside: Callable[[Node], Iterable[Node]]) -> frozenset[Node]:
    seen = {start}
    stack = [start]
    while stack:
        for n in beside(stack.pop()):
            if n not in seen:
                seen.add(n)
                stack.append(n)
    return frozenset(seen)


def size_of(node: Node) -> int | None:
    """Bytes of a node's value; None where its type is not known."""
    return _known(lambda: nbytes(node.type))


def moved_by(node: Node) -> int | None:
    """Bytes of a node's operands and results; None where a type is not known."""
    return _known(lambda: bytes_moved(node))


def work_of(node: Node) -> int | None:
    """Arithmetic operations of a node (see `costs`); None where a type is not known."""
    return _known(lambda: flops(node))


def _known(count: Callable[[], int]) -> int | None:
    try:
        return count()
    except InferError:
        return None


def rank_of(node: Node) -> int | None:
    """The rank of a node's value; None for what is no tensor of known rank."""
    return node.type.rank if isinstance(node.type, TensorType) else None


def dtypes_of(node: Node) -> tuple[str, ...]:
    """The element types in a node's value."""
    return tuple(dict.fromkeys(t.dtype.name for t in leaves(node.type) if isinstance(t, TensorType)))


def ops_inside(node: Node) -> tuple[str, ...]:
    """The names of the operations in the functions that a node holds as attributes: what a fusion or reduction is made of."""
    bodies = (v for a, v in zip(node.op.attrs, node.attrs, strict=True) if a.kind == "function" and isinstance(v, Function))
    return tuple(dict.fromkeys(n.op.name for body in bodies for n in body.nodes if n.inputs))
