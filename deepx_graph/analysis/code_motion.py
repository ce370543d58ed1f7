"""Where each node runs: global code motion over the sea, as a tree of blocks.

A node stays at the lowest common ancestor of its uses (`analysis/scopes.py`) unless it depends on fewer loops than that scope runs
in. Then it moves out of the test of a loop, which always runs, and elsewhere into a `once` block: it runs in the first iteration
that needs it and never again while the loops it does not depend on iterate. So nothing runs that the program would not have run (a
call whose recursion the branch guards, an index that is out of range), and nothing runs twice for the same operands. The scheduler
makes steps of the blocks; fusion keeps every node in its own.
"""

from __future__ import annotations

from deepx_graph.analysis.liveness import Live
from deepx_graph.analysis.scopes import Scope, ScopeTree
from deepx_graph.errors import Diagnostic, VerifyError
from deepx_graph.ir.function import Function
from deepx_graph.ir.node import Node
from deepx_graph.ir.structure import CONSTANT


class Placement(ScopeTree):
    """The blocks of a function as scopes, with the `once` blocks in each by the loop whose iterations make them run again.

    `outermost[once]` is the outermost loop that does not make a `once` block run again.
    """

    def __init__(self, function: Function, live: Live) -> None:
        super().__init__(function, live)
        self.outermost: dict[Scope, Node] = {}
        self.onces: dict[Scope, dict[Node | None, Scope]] = {}
        self.place_all()

    def place(self, node: Node, latest: Scope) -> None:
        if node.op is not CONSTANT:
            super().place(node, latest)

    def hoisted(self, node: Node, latest: Scope) -> Scope:
        innermost = self.loops.innermost[node]
        while latest.loop is not innermost and latest.kind == "header":
            latest = latest.parent
        return latest if latest.loop is innermost else self._once(latest, innermost, node)

    def _once(self, scope: Scope, loop: Node | None, node: Node) -> Scope:
        """The block inside `scope` that runs again only in another iteration of `loop`."""
        onces = self.onces.setdefault(scope, {})
        block = onces.get(loop)
        if block is None:
            block = onces[loop] = self.open("once", scope, scope.owner, loop)
            inner = scope.loop
            while inner is not None and self.loops.around[inner] is not loop:
                inner = self.loops.around[inner]
            if inner is None:
                raise VerifyError(Diagnostic(f"{node.op.name} uses a loop variable outside its loop", node.span))
            self.outermost[block] = inner
        return block
