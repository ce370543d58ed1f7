"""Which region of a nested text each node stands in: for languages whose branches and loops see the values around them.

A node's place is the innermost region that holds all its uses; from there it leaves every loop whose variables it does not
depend on, unless it may not end (a call, a loop) or is a constant. The test and the body of a loop share nothing: what
both need and depends on the loop's variables stands in the block `shared`, and is written in both. Nothing here recurses.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepx_graph.analysis.liveness import everything
from deepx_graph.analysis.loop_nest import Loops
from deepx_graph.analysis.nesting import Nested, common
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import (
    CALL,
    CALL_VALUE,
    CONSTANT,
    LOOP_BEGIN,
    LOOP_END,
    PARAM,
    PHI,
    REGION,
    branch_count,
    branches_of,
)
from deepx_graph.ops import custom_call, opaque
from deepx_graph.types import is_state

_UNSURE = frozenset((CALL, CALL_VALUE, LOOP_END, opaque, custom_call))


class Block(Nested):
    """A region; `loop` is the loop_end whose test or body (or `shared` part of both) it is, None for a branch."""

    __slots__ = ("loop", "nodes", "shared")

    def __init__(self, parent: Block | None, loop: Node | None = None, shared: bool = False) -> None:
        super().__init__(parent)
        self.loop, self.shared = loop, shared
        self.nodes: list[Node] = []


@dataclass(eq=False, slots=True)
class Loop:
    """The three blocks of a loop."""

    shared: Block
    condition: Block
    body: Block

    def turn(self, block: Block) -> list[Node]:
        """What the test or the body holds, in order."""
        return sorted(self.shared.nodes + block.nodes, key=lambda n: n.serial)


class Placement:
    """The regions of a function. A block's nodes are in reverse order."""

    def __init__(self, function: Function) -> None:
        self.root = Block(None)
        self.branches: dict[Node, list[Block]] = {}
        self.loops: dict[Node, Loop] = {}
        self._late: dict[Node, Block] = dict.fromkeys(function.results, self.root)
        self._loops = Loops(everything(function)).innermost
        self._stays = _staying(function)
        for node in reversed(function.nodes):
            is_variable = node.op is PHI and node.inputs[0].op is LOOP_BEGIN
            if node.op is not PARAM and node.op is not LOOP_BEGIN and not is_variable:
                self._place(node)

    def _place(self, node: Node) -> None:
        block = self._home(node, self._late[node])
        block.nodes.append(node)
        if node.op is REGION:
            self._use(node.inputs[:1], block)
            self.branches[node] = [Block(block) for _ in range(branch_count(node))]
            for values, inner in zip(branches_of(node), self.branches[node], strict=True):
                self._use(values, inner)
        elif node.op is LOOP_END:
            begin = node.inputs[0]
            shared = Block(block, node, shared=True)
            loop = self.loops[node] = Loop(shared, Block(shared, node), Block(shared, node))
            self._use(begin.inputs, block)
            self._use(node.inputs[1:2], loop.condition)
            self._use(node.inputs[2:], loop.body)
        else:
            self._use(node.inputs, block)

    def _home(self, node: Node, block: Block) -> Block:
        innermost, stays = self._loops[node], node in self._stays
        while block.loop is not None and block.loop is not innermost and (block.shared or not stays):
            block = block.parent
        return block

    def _use(self, nodes: tuple[Node, ...], at: Block) -> None:
        late = self._late
        for n in nodes:
            known = late.get(n)
            late[n] = at if known is None or known is at else common(known, at)


def _staying(function: Function) -> set[Node]:
    """The nodes that do not leave a loop for being no part of it."""
    stays: set[Node] = set()
    for node in function.nodes:
        is_pinned = node.op in _UNSURE or node.op is CONSTANT or is_state(node.type)
        if is_pinned or any(i in stays and i.op is not CONSTANT for i in node.inputs):
            stays.add(node)
    return stays
