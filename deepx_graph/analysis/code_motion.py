"""Where each node runs: global code motion over the sea, as a tree of blocks.

Users are placed before inputs; a node's latest place is the lowest common ancestor of its uses, and there it stays unless it
depends on fewer loops than that place runs in. Then it moves out of the test of a loop, which always runs, and elsewhere into a
`once` block: it runs in the first iteration that needs it and never again while the loops it does not depend on iterate. So nothing
runs that the program would not have run (a call whose recursion the branch guards, an index that is out of range), and nothing
runs twice for the same operands. The scheduler makes steps of the blocks; fusion keeps every node in its own.
Nothing here recurses and every step is near-linear in the size of the function.
"""

from __future__ import annotations

from typing import Literal

from deepx_graph.analysis.liveness import Live
from deepx_graph.analysis.loop_nest import Loops
from deepx_graph.analysis.nesting import Nested, common
from deepx_graph.errors import Diagnostic, VerifyError
from deepx_graph.ir.function import Function
from deepx_graph.ir.node import Node
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PARAM, PHI, REGION, branch_count

BlockKind = Literal["root", "branch", "header", "body", "once"]


class Draft(Nested):
    """A block and its nodes, newest first, without an order of running yet.

    `owner` is the region or loop_end it belongs to, `loop` the innermost loop (its loop_end) that makes it run again and again.
    """

    __slots__ = ("kind", "loop", "nodes", "onces", "outermost", "owner")

    def __init__(self, kind: BlockKind, parent: Draft | None, owner: Node | None, loop: Node | None) -> None:
        super().__init__(parent)
        self.kind, self.owner, self.loop = kind, owner, loop
        self.nodes: list[Node] = []
        self.onces: dict[Node | None, Draft] = {}
        self.outermost: Node | None = None


class Placement:
    """The draft blocks of a function. Read `blocks` (parents first) and the owners' maps afterwards."""

    def __init__(self, function: Function, live: Live) -> None:
        self._live = live
        self._loops = Loops(live)
        self.root = Draft("root", None, None, None)
        self.blocks = [self.root]
        self.branches: dict[Node, tuple[Draft, ...]] = {}
        self.headers: dict[Node, Draft] = {}
        self.bodies: dict[Node, Draft] = {}
        self._late: dict[Node, Draft] = dict.fromkeys(function.results, self.root)
        for node in reversed(live.order):
            if node.op is PARAM or node.op is CONSTANT or node.op is LOOP_BEGIN:
                continue
            if node.op is not PHI or node.inputs[0].op is not LOOP_BEGIN:
                self._place(node)

    def _block(self, kind: BlockKind, parent: Draft, owner: Node | None, loop: Node | None) -> Draft:
        block = Draft(kind, parent, owner, loop)
        self.blocks.append(block)
        return block

    def _place(self, node: Node) -> None:
        home = self._loops.innermost[node]
        place = self._late[node]
        while place.loop is not home and place.kind == "header":
            place = place.parent
        if place.loop is not home:
            place = self._once(place, home, node)
        place.nodes.append(node)
        if node.op is REGION:
            self._region(node, place)
        elif node.op is LOOP_END:
            self._loop(node, place)
        else:
            self._use(node.inputs, place)

    def _use(self, nodes: tuple[Node, ...], at: Draft) -> None:
        late = self._late
        for n in nodes:
            known = late.get(n)
            late[n] = at if known is None or known is at else common(known, at)

    def _once(self, place: Draft, home: Node | None, node: Node) -> Draft:
        """The block inside `place` that runs again only when the loop `home` goes round."""
        block = place.onces.get(home)
        if block is None:
            block = place.onces[home] = self._block("once", place, place.owner, home)
            loop = place.loop
            while loop is not None and self._loops.around[loop] is not home:
                loop = self._loops.around[loop]
            if loop is None:
                raise VerifyError(Diagnostic(f"{node.op.name} uses a loop variable outside its loop", node.span))
            block.outermost = loop
        return block

    def _region(self, region: Node, place: Draft) -> None:
        self._use(region.inputs[:1], place)
        self.branches[region] = tuple(
            self._block("branch", place, region, place.loop) for _ in range(branch_count(region))
        )
        for b, block in enumerate(self.branches[region]):
            self._use(self._live.branch(region, b), block)

    def _loop(self, end: Node, place: Draft) -> None:
        header = self.headers[end] = self._block("header", place, end, end)
        body = self.bodies[end] = self._block("body", header, end, end)
        self._use(self._live.inits(end), place)
        self._use(end.inputs[1:2], header)
        self._use(self._live.nexts(end), body)
