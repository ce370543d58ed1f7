"""What of a function is printed, and in which block: the text of every node, and the innermost scope around all its mentions.

Users come before operands: a node is printed where something mentions it, in the block that encloses all mentions. Fields of a
value that stand in a branch of a match for their constructor are the variables of its pattern. States are mentioned and never
written: the order of effects is the order of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deepx_graph import ops
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CALL, CALL_VALUE, CONSTANT, PARAM, PHI, PROJ, REGION, branch_count, branches_of, index_of
from deepx_graph.types import StateType, TupleType, is_state

Text = Sequence[str | Node]
"""A node's expression: words, and the nodes whose names stand between them."""

EFFECTS = (ops.ref_create, ops.ref_read, ops.ref_write)


@dataclass(eq=False)
class Block:
    """A scope of the text. `case` is the value and constructor of the match branch that it is; `fields` those that it binds."""

    parent: Block | None = None
    case: tuple[Node, str] | None = None
    depth: int = 0
    nodes: list[Node] = field(default_factory=list)
    fields: dict[int, Node] = field(default_factory=dict)

    def inner(self, case: tuple[Node, str] | None = None) -> Block:
        return Block(self, case, self.depth + 1)


def common(a: Block, b: Block) -> Block:
    """The innermost block around both."""
    while a is not b:
        if a.depth >= b.depth:
            assert a.parent is not None
            a = a.parent
        else:
            assert b.parent is not None
            b = b.parent
    return a


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


class Placement:
    """`say(node)` gives the text of a node that is printed as an expression; regions are this class's own business."""

    def __init__(self, function: Function, say: Callable[[Node], Text], inlined: Callable[[Node], bool]) -> None:
        self.say, self.inlined = say, inlined
        self.root = Block()
        self.late: dict[Node, Block] = {}
        self.mentions: dict[Node, int] = {}
        self.texts: dict[Node, Text] = {}
        self.branches: dict[Node, tuple[Block, ...]] = {}
        self.columns: dict[Node, set[int]] = {}
        for r in function.results:
            self.mention(r, self.root)
        for node in reversed(function.nodes):
            if node in self.late:
                self._place(node, self.late[node])
        for block in self.blocks():
            block.nodes.reverse()

    def blocks(self) -> list[Block]:
        return [self.root, *(b for blocks in self.branches.values() for b in blocks)]

    def mention(self, node: Node, at: Block) -> None:
        """Records that the text of `at` needs the node."""
        if node.op is PARAM or (node.op is CONSTANT and self.inlined(node)):
            return
        known = self.late.get(node)
        self.late[node] = at if known is None else common(known, at)
        self.mentions[node] = self.mentions.get(node, 0) + (not isinstance(node.type, StateType))

    def _place(self, node: Node, block: Block) -> None:
        if node.op is PHI and node.inputs[0].op is REGION:
            self.columns.setdefault(node.inputs[0], set()).add(index_of(node))
            self.mention(node.inputs[0], block)
            if whole(node) is node and not isinstance(node.type, StateType):
                self.texts[node] = self.say(node)
                block.nodes.append(node)
        elif node.op is REGION:
            block.nodes.append(node)
            self._region(node, block)
        elif node.op is ops.field and self._binds(node, block):
            return
        elif (isinstance(node.type, StateType) and node.op is PROJ) or whole(node) is not node:
            self.mention(node.inputs[0], block)
        else:
            text = self.texts[node] = self.say(node)
            block.nodes.append(node)
            for part in text:
                if isinstance(part, Node):
                    self.mention(part, block)
            for i in node.inputs:
                if isinstance(i.type, StateType):
                    self.mention(i, block)

    def _binds(self, node: Node, block: Block) -> bool:
        """Whether the field is a variable of the pattern of a match around it."""
        around: Block | None = block
        while around is not None:
            if around.case == (node.inputs[0], node.attr("constructor")):
                around.fields.setdefault(node.attr("index"), node)
                return around.fields[node.attr("index")] is node
            around = around.parent
        return False

    def _region(self, region: Node, block: Block) -> None:
        selector = region.inputs[0]
        cases = selector.attr("cases") if selector.op is ops.tag else ()
        subject = selector.inputs[0] if cases else selector
        branches = branch_count(region)
        exact = selector.op is ops.tag and branches >= len(cases)
        made = [block.inner((subject, cases[k]) if exact and k < len(cases) else None) for k in range(branches)]
        self.branches[region] = tuple(made)
        for values, inner in zip(branches_of(region), made, strict=True):
            for column in sorted(self.columns.get(region, ())):
                self.mention(values[column], inner)
        self.mention(subject, block)
