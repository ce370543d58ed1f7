"""What of a function is printed, and in which block: the text of every node, and the innermost scope around all its mentions.

Users come before operands: a node is printed where something mentions it, in the block that encloses all mentions. Fields of a
value that stand in a branch of a match for their constructor are the variables of its pattern. States are mentioned and never
written: the order of effects is the order of the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from deepx_graph import ops
from deepx_graph.analysis.liveness import everything
from deepx_graph.analysis.scopes import Scope, ScopeTree
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CALL, CALL_VALUE, CONSTANT, PHI, PROJ, REGION, branch_count, index_of
from deepx_graph.types import StateType, TupleType, is_state

Text = Sequence[str | Node]
"""A node's expression: words, and the nodes whose names stand between them."""

EFFECTS = (ops.ref_create, ops.ref_read, ops.ref_write)


def whole(node: Node) -> Node:
    """The node whose name a node goes by: the call of its one result, the branch of its one value."""
    while node.op is PROJ or node.op is PHI:
        source = node.inputs[0]
        if source.op in (CALL, CALL_VALUE, *EFFECTS, REGION) and len(values(source)) == 1:
            node = source
        else:
            return node
    return node


def values(node: Node) -> tuple[int, ...]:
    """The places of the results that are no state."""
    assert isinstance(node.type, TupleType)
    return tuple(k for k, t in enumerate(node.type.items) if not is_state(t))


def is_effect(node: Node) -> bool:
    """Whether the node takes the state, so that its place in the order of the text matters."""
    return any(isinstance(i.type, StateType) for i in node.inputs)


class Blocks(ScopeTree):
    """`say(node)` gives the text of a node that is printed as an expression; regions are this class's own business.

    `cases` maps the branches of a match to value and constructor, `fields` to those fields of the value that they bind.
    """

    def __init__(self, function: Function, say: Callable[[Node], Text], inlined: Callable[[Node], bool]) -> None:
        super().__init__(function, everything(function))
        self.say, self.inlined = say, inlined
        self.mentions: Counter[Node] = Counter()
        self.texts: dict[Node, Text] = {}
        self.columns: dict[Node, set[int]] = {}
        self.cases: dict[Scope, tuple[Node, str]] = {}
        self.fields: dict[Scope, dict[int, Node]] = {}
        self.place_all()
        for scope in self.scopes:
            scope.nodes.reverse()

    def use(self, nodes: Iterable[Node], at: Scope) -> None:
        """Records that the text of `at` mentions the nodes."""
        for node in nodes:
            if node.op is not CONSTANT or not self.inlined(node):
                super().use((node,), at)
                self.mentions[node] += not isinstance(node.type, StateType)

    def place(self, node: Node, latest: Scope) -> None:
        if node.op is PHI and node.inputs[0].op is REGION:
            self.columns.setdefault(node.inputs[0], set()).add(index_of(node))
        if node.op is REGION:
            self._region(node, latest)
        elif (isinstance(node.type, StateType) and node.op in (PHI, PROJ)) or whole(node) is not node:
            self.use(node.inputs[:1], latest)
        elif node.op is not ops.field or not self._binds(node, latest):
            super().place(node, latest)

    def operands(self, node: Node) -> Sequence[Node]:
        """The nodes that the text of a node mentions, and the states that it takes."""
        text = self.texts[node] = self.say(node)
        return [*(part for part in text if isinstance(part, Node)), *(i for i in node.inputs if isinstance(i.type, StateType))]

    def _binds(self, node: Node, scope: Scope) -> bool:
        """Whether the field is a variable of the pattern of a match around it."""
        while self.cases.get(scope) != (node.inputs[0], node.attr("constructor")):
            if scope is self.root:
                return False
            scope = scope.parent
        return self.fields.setdefault(scope, {}).setdefault(node.attr("index"), node) is node

    def _region(self, region: Node, scope: Scope) -> None:
        self.home[region] = scope
        scope.nodes.append(region)
        selector, branches = region.inputs[0], branch_count(region)
        cases = selector.attr("cases") if selector.op is ops.tag else ()
        subject = selector.inputs[0] if cases else selector
        self.open_branches(region, scope)
        if branches >= len(cases):
            self.cases.update((branch, (subject, case)) for branch, case in zip(self.branches[region], cases, strict=False))
        columns = self.columns.get(region, ())
        for branch in self.branches[region]:
            values = self.live.branch(region, branch.branch)
            self.use((values[k] for k in columns), branch)
        self.use((subject,), scope)
