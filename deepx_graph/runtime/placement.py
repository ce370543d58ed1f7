"""Where each node runs: global code motion over the sea, as a tree of draft blocks.

The loops that a node depends on are those of the loop variables it reaches, a loop_end taking its own out; in a valid graph they
nest, so the innermost one (the one that closes first) stands for all. Users are placed before inputs; a node's latest place is
the lowest common ancestor of its uses, and there it stays unless it depends on fewer loops than that place runs in. Then it
moves out of the test of a loop, which always runs, and elsewhere into a `once` block: it runs in the first turn that needs it
and never again while the loops it does not depend on go round. So nothing runs that the program would not have run (a call
whose recursion the branch guards, an index that is out of range), and nothing runs twice for the same operands.
Nothing here recurses and every step is near-linear in the size of the function.
"""

from __future__ import annotations

from typing import Literal

from deepx_graph.errors import Diagnostic, VerifyError
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PARAM, PHI, REGION
from deepx_graph.runtime.liveness import Live

BlockKind = Literal["root", "branch", "header", "body", "once"]


class Draft:
    """A block under construction. `loop` is the innermost loop (its loop_end) in which the block runs again and again."""

    __slots__ = ("depth", "jump", "kind", "loop", "nodes", "onces", "outermost", "parent")

    def __init__(self, kind: BlockKind, parent: Draft | None, loop: Node | None) -> None:
        self.kind, self.loop = kind, loop
        self.nodes: list[Node] = []
        self.onces: dict[Node | None, Draft] = {}
        self.outermost: Node | None = None
        self.parent: Draft = self if parent is None else parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        # A second, longer way up, so that a walk of n levels takes log n steps (Myers, An applicative random-access stack).
        if parent is None:
            self.jump: Draft = self
        elif parent.depth - parent.jump.depth == parent.jump.depth - parent.jump.jump.depth:
            self.jump = parent.jump.jump
        else:
            self.jump = parent


def common(a: Draft, b: Draft) -> Draft:
    """The lowest common ancestor of two blocks."""
    if a.depth < b.depth:
        a, b = b, a
    while a.depth > b.depth:
        a = a.jump if a.jump.depth >= b.depth else a.parent
    while a is not b:
        a, b = (a.jump, b.jump) if a.jump is not b.jump else (a.parent, b.parent)
    return a


class Loops:
    """The loops that nodes depend on: `innermost[node]` and `around[loop]`, each a loop_end or None."""

    def __init__(self, live: Live) -> None:
        self.innermost: dict[Node, Node | None] = {}
        self.around: dict[Node, Node | None] = {}
        self._above: dict[Node, set[Node]] = {}
        for node in live.order:
            inner: Node | None = None
            for i in live.inputs(node):
                inner = self._join(inner, self.innermost[i])
            if node.op is PHI and node.inputs[0].op is LOOP_BEGIN:
                inner = self._join(inner, live.ends[node.inputs[0]])
            if node.op is LOOP_END:
                self._join(self._join(inner, self.innermost[node.inputs[0]]), node)
                inner = self._close(node)
            self.innermost[node] = inner

    def _join(self, a: Node | None, b: Node | None) -> Node | None:
        """The innermost of two loops that some node depends on both; the one that closes first lies in the other."""
        if a is b or b is None:
            return a
        if a is None:
            return b
        inner, outer = (a, b) if a.serial < b.serial else (b, a)
        self._above.setdefault(inner, set()).add(outer)
        return inner

    def _close(self, end: Node) -> Node | None:
        """The loop around `end`, once all loops that its nodes depend on are known; they then lie around that one."""
        above = self._above.pop(end, set())
        parent = min(above, key=lambda n: n.serial, default=None)
        self.around[end] = parent
        if parent is not None and len(above) > 1:
            above.discard(parent)
            further = self._above.get(parent, set())
            small, large = (above, further) if len(above) < len(further) else (further, above)
            large |= small  # the smaller set moves: n log n in all
            self._above[parent] = large
        return parent


class Placement:
    """The draft blocks of a function. Read `blocks` (parents first) and the owners' maps afterwards."""

    def __init__(self, function: Function, live: Live) -> None:
        self._live = live
        self._loops = Loops(live)
        self.root = Draft("root", None, None)
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

    def _block(self, kind: BlockKind, parent: Draft, loop: Node | None) -> Draft:
        block = Draft(kind, parent, loop)
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
            block = place.onces[home] = self._block("once", place, home)
            loop = place.loop
            while loop is not None and self._loops.around[loop] is not home:
                loop = self._loops.around[loop]
            if loop is None:
                raise VerifyError(Diagnostic(f"{node.op.name} uses a loop variable outside its loop", node.span))
            block.outermost = loop
        return block

    def _region(self, region: Node, place: Draft) -> None:
        self._use(region.inputs[:1], place)
        self.branches[region] = tuple(self._block("branch", place, place.loop) for _ in range(region.attrs[0]))
        for b, block in enumerate(self.branches[region]):
            self._use(self._live.branch(region, b), block)

    def _loop(self, end: Node, place: Draft) -> None:
        header = self.headers[end] = self._block("header", place, end)
        body = self.bodies[end] = self._block("body", header, end)
        self._use(self._live.inits(end), place)
        self._use(end.inputs[1:2], header)
        self._use(self._live.nexts(end), body)
