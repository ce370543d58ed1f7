"""Regions and loops without the branch values and loop variables that nobody reads."""

from __future__ import annotations

from deepx_graph.analysis.liveness import Live
from deepx_graph.ir import Function, Node
from deepx_graph.ir.rebuild import replaced, with_inputs
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PHI, PROJ, REGION, index_of
from deepx_graph.types import TupleType


def unread(live: Live) -> Node | None:
    """The first region or loop_end that has a column which nobody reads; None where there is none."""
    return next((node for node, columns in live.columns.items() if len(columns) < len(_type(node).items)), None)


def with_live_columns(function: Function, live: Live) -> Function:
    """The function over regions and loops of the columns that are live in it; itself where that is all of them. A loop keeps its
    identity."""
    new = dict[Node, Node]()
    for node in live.order:
        new[node] = _narrowed(node, live, new)
    return replaced(function, new)


def _narrowed(node: Node, live: Live, new: dict[Node, Node]) -> Node:
    """A node over the new ones of its operands; itself where that changes nothing."""
    control = _control(node, live)
    if control is None or len(live.columns[control]) == len(_type(control).items):
        return with_inputs(node, tuple([new[i] for i in node.inputs]))
    columns = live.columns[control]
    if node.op is PHI or node.op is PROJ:
        return Node(node.op, (new[node.inputs[0]],), (columns.index(index_of(node)),), node.type, node.origin)
    begin = node.inputs[:1] if node.op is LOOP_END else ()
    type = TupleType(tuple(_type(node).items[k] for k in columns))
    return Node(node.op, tuple(new[i] for i in (*begin, *live.inputs(node))), node.attrs, type, node.origin)


def _control(node: Node, live: Live) -> Node | None:
    """The region or loop_end that the node is, begins, or has a column of; None for any other node."""
    source = node.inputs[0] if node.op is PHI or node.op is PROJ else node
    if source.op is LOOP_BEGIN:
        return live.ends[source]
    return source if source.op is REGION or source.op is LOOP_END else None


def _type(node: Node) -> TupleType:
    assert isinstance(node.type, TupleType)
    return node.type
