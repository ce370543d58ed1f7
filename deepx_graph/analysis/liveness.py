"""Which operands count: a branch value or loop variable that nobody uses takes no part in the schedule.

`Live` holds the nodes that results need and, of every region and loop, the columns (value numbers) that are read. A region used
whole, not through a phi, has all its columns read; a loop variable is read when its final value is or when its phi is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deepx_graph.errors import Diagnostic, VerifyError
from deepx_graph.ir.function import Function
from deepx_graph.ir.node import Node
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PHI, PROJ, REGION, branch_width, branches_of, index_of, phi_choices

_CONTROL = frozenset({REGION, LOOP_BEGIN, LOOP_END})


def has_control(function: Function) -> bool:
    """Whether there is a branch or a loop: without them all that results need runs once."""
    return any(n.op in _CONTROL for n in function.nodes)


@dataclass(frozen=True)
class Live:
    """What a function needs. `order` is topological; `columns` are sorted; `ends` maps every live loop_begin to its loop_end."""

    order: tuple[Node, ...]
    columns: dict[Node, tuple[int, ...]]
    ends: dict[Node, Node]

    def inputs(self, node: Node) -> Sequence[Node]:
        """The operands of a node that are needed; of a loop_end the loop_begin is left out."""
        if node.op is REGION:
            return (node.inputs[0], *(values[k] for values in branches_of(node) for k in self.columns[node]))
        if node.op is LOOP_END:
            return (node.inputs[1], *self.nexts(node))
        if node.op is LOOP_BEGIN:
            return self.inits(self.ends[node])
        return node.inputs

    def branch(self, region: Node, branch: int) -> tuple[Node, ...]:
        """The needed values of one branch, in the order of the columns."""
        first = 1 + branch * branch_width(region)
        return tuple(region.inputs[first + k] for k in self.columns[region])

    def nexts(self, end: Node) -> tuple[Node, ...]:
        """The needed next values of a loop, in the order of the columns."""
        return tuple(end.inputs[2 + k] for k in self.columns[end])

    def inits(self, end: Node) -> tuple[Node, ...]:
        """The needed first values of a loop, in the order of the columns."""
        return tuple(end.inputs[0].inputs[k] for k in self.columns[end])


def everything(function: Function) -> Live:
    """All that the function holds, as if every branch value and loop variable were read."""
    columns = {n: tuple(_columns_read(n, n)) for n in function.nodes if n.op is REGION or n.op is LOOP_END}
    return Live(function.nodes, columns, {n.inputs[0]: n for n in columns if n.op is LOOP_END})


def liveness(function: Function) -> Live:
    """What the results of a function need. Raises VerifyError for a loop variable whose loop is never closed."""
    if not has_control(function):
        read = set(function.results).union(*[n.inputs for n in function.nodes])  # only parameters may be missing
        return Live(tuple([n for n in function.nodes if n in read]), {}, {})
    ends = {n.inputs[0]: n for n in function.nodes if n.op is LOOP_END}
    columns: dict[Node, set[int]] = {}
    live: set[Node] = set()
    stack = list(function.results)
    while stack:
        node = stack.pop()
        control = _control(node, ends)
        if control is None:
            if node not in live:
                live.add(node)
                stack.extend(node.inputs)
            continue
        if control is not node:
            live.add(node)
        stack.extend(_read(control, _columns_read(node, control), columns, live))
    order = tuple(n for n in function.nodes if n in live)
    return Live(order, {n: tuple(sorted(c)) for n, c in columns.items()}, {b: e for b, e in ends.items() if e in live})


def _control(node: Node, ends: dict[Node, Node]) -> Node | None:
    """The region or loop_end that the node is, or of which it reads one value; None for any other node."""
    if node.op is REGION or node.op is LOOP_END:
        return node
    if node.op is not PHI and node.op is not PROJ:
        return None
    source = node.inputs[0]
    if source.op is LOOP_BEGIN:
        if source not in ends:
            raise VerifyError(Diagnostic("a loop variable is used and its loop is never closed", node.span))
        return ends[source]
    return source if source.op is REGION or source.op is LOOP_END else None


def _columns_read(node: Node, control: Node) -> Sequence[int]:
    if node is not control:
        return (index_of(node),)
    if node.op is LOOP_END:
        return range(len(node.inputs) - 2)
    return range(branch_width(node))


def _read(control: Node, wanted: Sequence[int], columns: dict[Node, set[int]], live: set[Node]) -> Iterator[Node]:
    """Records that these columns are read; gives the operands that are needed because of it and were not before."""
    read = columns.setdefault(control, set())
    is_loop = control.op is LOOP_END
    for k in wanted:
        if k in read:
            continue
        read.add(k)
        if is_loop:
            yield control.inputs[2 + k]
            yield control.inputs[0].inputs[k]
        else:
            yield from phi_choices(control, k)
    if control not in live:
        live.add(control)
        if is_loop:
            live.add(control.inputs[0])
        yield control.inputs[1 if is_loop else 0]
