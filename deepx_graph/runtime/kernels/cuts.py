"""Where a kernel can be cut into blocks: an axis of its largest value, and the axis of each other value that runs along with it.

Operands and results of an elementwise operation run together, axis by axis; so do the axes that a broadcast or a reduction keeps.
Views of arguments and constants are whole before the first block, and tie nothing together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops.contract.reduce import reducer_of
from deepx_graph.runtime.kernels import costs
from deepx_graph.types import as_tensor


class CannotCut(Exception):
    """A program that is not cut that way."""


@dataclass(frozen=True)
class BlockCut:
    """The axis along which each value is cut, where it is; the extent of those axes, and how much of it a block takes."""

    axes: Mapping[Node, int] = field(default_factory=dict)
    extent: int = 1
    rows: int = 1

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return -(-self.extent // self.rows)


def cuts(function: Function, block_elements: int) -> Iterator[BlockCut]:
    """The cuts into blocks of about that many elements, the best one first; none where all fits in one.

    They are no matter of the number of threads, on which no sum may depend.
    """
    leaves = leaves_of(function)
    used = [n for n in function.nodes
            if n not in leaves or n in function.results or not leaves.issuperset(function.users[n])]
    widest = max(used, key=lambda n: as_tensor(n.type).size)
    shape, size = as_tensor(widest.type).shape, as_tensor(widest.type).size
    if size >= costs.THREADED_ELEMENTS:
        block_elements = min(block_elements, -(-size // 2))
    if size > block_elements:
        for axis in sorted(range(len(shape)), key=lambda k: (size // shape[k] > block_elements, k)):
            axes = _along(function, leaves, widest, axis)
            if axes is not None and shape[axis] > 1:
                rows = max(1, block_elements * shape[axis] // size)
                yield BlockCut(axes, shape[axis], -(-shape[axis] // -(-shape[axis] // rows)))


def leaves_of(function: Function) -> set[Node]:
    """The nodes made of parameters and constants by views alone."""
    leaves: set[Node] = set()
    for node in function.nodes:
        if node.op in (PARAM, CONSTANT) or (node.op.view and len(node.inputs) == 1 and node.inputs[0] in leaves):
            leaves.add(node)
    return leaves


def _along(function: Function, leaves: set[Node], widest: Node, axis: int) -> dict[Node, int] | None:
    """The axis of each value that runs along with one of the widest, and with that of what has its shape; None where one value
    would have two."""
    found: dict[Node, int] = {}
    alike = [n for n in function.nodes if as_tensor(n.type).dims == as_tensor(widest.type).dims]
    for first in (widest, *alike):
        if first in found or (first in leaves and first is not widest and first not in function.results):
            continue
        found[first] = axis
        stack = [first]
        while stack:
            node = stack.pop()
            if any(_is_whole(n, leaves) for n in (node, *function.users[node])):
                return None
            at = found[node]
            ties = [(i, k) for i, k, mine in ties_of(node, leaves) if mine == at]
            ties += [(u, mine) for u in function.users[node] for i, k, mine in ties_of(u, leaves) if i is node and k == at]
            for other, k in ties:
                if other not in found:
                    found[other] = k
                    stack.append(other)
                elif found[other] != k:
                    return None
    return found


def ties_of(node: Node, leaves: set[Node]) -> Iterator[tuple[Node, int, int]]:
    """Each operand with an axis of it that runs along with an axis of the node."""
    if node in leaves:
        return
    if node.op.elementwise:
        for operand in node.inputs:
            yield from ((operand, k, k) for k in range(len(as_tensor(operand.type).shape)))
        return
    old, new = as_tensor(node.inputs[0].type).shape, as_tensor(node.type).shape
    if reducer_of(node) is not None:
        kept = [i for i in range(len(old)) if i not in node.attr("dimensions")]
        yield from ((node.inputs[0], i, k) for k, i in enumerate(kept))
    else:
        yield from ((node.inputs[0], i, k) for i, k in enumerate(moved_axes(node) or ()) if k is not None and old[i] == new[k] != 1)


def _is_whole(node: Node, leaves: set[Node]) -> bool:
    """Whether a node brings elements into another order."""
    return node not in leaves and not node.op.elementwise and reducer_of(node) is None and moved_axes(node) is None


def moved_axes(view: Node) -> tuple[int | None, ...] | None:
    """Along which axis of a view each axis of its operand lies, where it only repeats elements, adds and drops axes."""
    op = view.op
    return None if op.axes is None else op.axes(as_tensor(view.inputs[0].type).shape, *view.attrs)

