"""Where nodes live: the tree of scopes of a function, and for every node the scope that holds all its uses.

The sea has no blocks; they follow from dependence alone. A region opens a scope for each branch, a loop_end for its test and
its body. Nodes are placed users before inputs, each at first at the lowest common ancestor of its uses in the tree (C. Click,
Global Code Motion / Global Value Numbering, 1995). From there it may move out of loops that it does not depend on, and how far
is what those who ask disagree on: a schedule must not run what the program would not have run, a text puts a node where a
reader looks for it, reverse mode keeps what an iteration computes. Each says so in a subclass; that of the schedule, whose
blocks the scheduler makes steps of and fusion keeps every node in, is here. Nothing recurses; all is near-linear.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Literal

from deepx_graph.analysis.liveness import Live
from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.errors import Diagnostic, VerifyError
from deepx_graph.ir.function import Function
from deepx_graph.ir.node import Node
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PARAM, REGION, branch_count, is_loop_variable

ScopeKind = Literal["root", "branch", "header", "body", "shared", "once"]


class Scope:
    """A scope in the tree of its function; the outermost one, at depth 0, has no `parent`.

    `owner` is the region or loop_end it belongs to, `branch` its number there, `loop` the loop_end of the innermost loop that makes
    it run again and again, `nodes` what lives there, newest first. A second pointer, further out than `parent`, lets a walk of n
    levels take log n steps (E. Myers, An applicative random-access stack, 1983).
    """

    __slots__ = ("branch", "depth", "jump", "kind", "loop", "nodes", "owner", "parent")

    def __init__(self, kind: ScopeKind = "root", parent: Scope | None = None, owner: Node | None = None, loop: Node | None = None,
                 branch: int = 0) -> None:
        self.kind, self.owner, self.loop, self.branch = kind, owner, loop, branch
        self.nodes: list[Node] = []
        self.depth: int = 0 if parent is None else parent.depth + 1
        if parent is not None:  # a scope that pointed to itself would keep its nodes until cycles are looked for
            self.parent: Scope = parent
            self.jump: Scope = parent
            if parent.depth and (far := parent.jump).depth and parent.depth - far.depth == far.depth - far.jump.depth:
                self.jump = far.jump

    @property
    def is_root(self) -> bool:
        """Whether this is the function itself."""
        return self.kind == "root"

    def at_depth(self, depth: int) -> Scope:
        """The scope at that depth around this one; the scope itself where it is no deeper."""
        at = self
        while at.depth > depth:
            at = at.jump if at.jump.depth >= depth else at.parent
        return at

    def within(self, other: Scope) -> bool:
        """Whether this is `other` or lies inside it."""
        return self.at_depth(other.depth) is other


def common_scope(a: Scope, b: Scope) -> Scope:
    """The lowest common ancestor: the innermost scope that holds both."""
    a, b = a.at_depth(b.depth), b.at_depth(a.depth)
    while a is not b:
        a, b = (a.jump, b.jump) if a.jump is not b.jump else (a.parent, b.parent)
    return a


class Loops:
    """The loop nest: which loops a node depends on, those of the loop variables it reaches, a loop_end taking its own out.

    In a valid graph these loops nest, so the innermost one, the one that closes first, stands for all: `innermost[node]` and
    `around[loop]` are each a loop_end or None.
    """

    def __init__(self, live: Live) -> None:
        self.innermost: dict[Node, Node | None] = {}
        self.around: dict[Node, Node | None] = {}
        self._above: dict[Node, set[Node]] = {}
        for node in live.order:
            inner: Node | None = None
            for i in live.inputs(node):
                inner = self._join(inner, self.innermost[i])
            if is_loop_variable(node):
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


class ScopeTree:
    """The scopes of a function, and the `home` of every node that is placed in one.

    Parameters, loop_begins and loop variables are there from the start and are not placed. A subclass says where a node moves to
    (`hoisted`), which scopes a loop has (`open_loop`) and what a node needs where it lives (`operands`), and calls `place_all`.
    """

    def __init__(self, function: Function, live: Live) -> None:
        self.function, self.live = function, live
        self.root = Scope()
        self.scopes = [self.root]
        """All scopes, parents first."""
        self.home: dict[Node, Scope] = {}
        self.branches: dict[Node, tuple[Scope, ...]] = {}
        self.headers: dict[Node, Scope] = {}
        self.bodies: dict[Node, Scope] = {}
        self._late: dict[Node, Scope] = {}

    @cached_property
    def loops(self) -> Loops:
        """Which loops nodes depend on."""
        return Loops(self.live)

    def place_all(self) -> None:
        """Places whatever the results need, users before inputs."""
        self.use(self.function.results, self.root)
        for node in reversed(self.live.order):
            latest = self._late.get(node)
            if latest is not None and node.op is not PARAM and node.op is not LOOP_BEGIN and not is_loop_variable(node):
                self.place(node, latest)

    def place(self, node: Node, latest: Scope) -> None:
        """The node, all of whose uses are known and lie in `latest`, gets its home."""
        scope = self.home[node] = self.hoisted(node, latest) if self.live.columns else latest  # without control there is one scope
        scope.nodes.append(node)
        if node.op is REGION:
            self.open_branches(node, scope)
            self.use(node.inputs[:1], scope)
            for branch in self.branches[node]:
                self.use(self.live.branch(node, branch.branch), branch)
        elif node.op is LOOP_END:
            self.open_loop(node, scope)
            self.use(self.live.inits(node), scope)
            self.use(node.inputs[1:2], self.headers[node])
            self.use(self.live.nexts(node), self.bodies[node])
        else:
            self.use(self.operands(node), scope)

    def use(self, nodes: Iterable[Node], at: Scope) -> None:
        """Records that the nodes are used in a scope."""
        late = self._late
        for n in nodes:
            known = late.get(n)
            late[n] = at if known is None or known is at else common_scope(known, at)

    def open(self, kind: ScopeKind, parent: Scope, owner: Node | None, loop: Node | None, branch: int = 0) -> Scope:
        """A new scope."""
        scope = Scope(kind, parent, owner, loop, branch)
        self.scopes.append(scope)
        return scope

    def open_branches(self, region: Node, around: Scope) -> None:
        """Opens a scope for each branch of a region."""
        count = branch_count(region)
        self.branches[region] = tuple(self.open("branch", around, region, around.loop, k) for k in range(count))

    # --- what subclasses say

    def hoisted(self, node: Node, latest: Scope) -> Scope:
        """Where the node lives: at `latest`, which holds all its uses, or further out."""
        return latest

    def open_loop(self, end: Node, around: Scope) -> None:
        """Opens the scopes of a loop's test and of its body; as the test runs before each iteration, the body sees what it has."""
        header = self.headers[end] = self.open("header", around, end, end)
        self.bodies[end] = self.open("body", header, end, end)

    def operands(self, node: Node) -> Sequence[Node]:
        """What a node, other than a region or loop_end, needs where it lives."""
        return node.inputs


# --- the schedule -------------------------------------------------------------------------------------------------


class Placement(ScopeTree):
    """The blocks of a function as scopes, with the `once` blocks in each by the loop whose iterations make them run again.

    A node that depends on fewer loops than the scope of its uses runs in moves out of the test of a loop, which always runs, and
    elsewhere into a `once` block: it runs in the first iteration that needs it and never again while the loops it does not depend
    on iterate. So nothing runs that the program would not have run (a call whose recursion the branch guards, an index that is out
    of range), and nothing runs twice for the same operands. Where it `hoists`, a node moves out of the body of a loop that is known
    to run, too: what it reads may end there.
    `outermost[once]` is the outermost loop that does not make a `once` block run again.
    """

    def __init__(self, function: Function, live: Live, *, hoists: bool = False) -> None:
        super().__init__(function, live)
        self.hoists = hoists
        self.outermost: dict[Scope, Node] = {}
        self.onces: dict[Scope, dict[Node | None, Scope]] = {}
        self._trips: dict[Node, int] = {}
        if not live.columns:  # no branch and no loop
            self.root.nodes = [n for n in reversed(live.order) if n.op is not CONSTANT and n.op is not PARAM]
            self.home = dict.fromkeys(self.root.nodes, self.root)
            return
        self.place_all()

    def place(self, node: Node, latest: Scope) -> None:
        if node.op is not CONSTANT:
            super().place(node, latest)

    def hoisted(self, node: Node, latest: Scope) -> Scope:
        innermost = self.loops.innermost[node]
        while latest.loop is not innermost and (latest.kind == "header" or self._surely_runs(latest)):
            latest = latest.parent
        return latest if latest.loop is innermost else self._once(latest, innermost, node)

    def _surely_runs(self, scope: Scope) -> bool:
        """Whether a scope is the body of a loop that has an iteration, which its count says."""
        if not self.hoists or scope.kind != "body" or scope.loop is None:
            return False
        if scope.loop not in self._trips:
            self._trips[scope.loop] = trip_count(scope.loop) or 0
        return self._trips[scope.loop] > 0

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
