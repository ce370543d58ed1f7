"""Branches and loops in the body of another operation, which no schedule runs: evaluated in the order of the graph.

A body has no effects, so both branches may be computed and one of them taken. What depends on a loop's variables is computed anew
in every turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph.ir import Node
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PHI, REGION, branch_width

Values = dict[Node, Any]
Run = Callable[[Sequence[Node], Values], None]

CONTROL = (REGION, PHI, LOOP_BEGIN, LOOP_END)


def compute(node: Node, nodes: Sequence[Node], values: Values, run: Run) -> None:
    """Gives a control node its value; a loop's beginning runs the whole loop, of which `nodes` has the rest."""
    if node.op is REGION:
        selector, *given = (values[i] for i in node.inputs)
        count: int = node.attrs[0]
        width = branch_width(len(node.inputs), count)
        taken = _branch(selector, count)
        values[node] = tuple(given[taken * width : (taken + 1) * width])
    elif node.op is PHI:
        values[node] = values[node.inputs[0]][node.attrs[0]]
    else:
        _loop(node, nodes, values, run)


def _branch(selector: Any, count: int) -> int:
    if selector.dtype.kind == "b":
        return 0 if selector else 1
    return int(selector) if 0 <= int(selector) < count else count - 1


def _loop(begin: Node, nodes: Sequence[Node], values: Values, run: Run) -> None:
    at = next(k for k, n in enumerate(nodes) if n.op is LOOP_END and n.inputs[0] is begin)
    end, inside = nodes[at], {begin}
    turn, before = [], []
    for n in nodes[:at]:
        if any(i in inside for i in n.inputs):
            inside.add(n)
            turn.append(n)
        elif n not in values and n is not begin:
            before.append(n)
    run(before, values)
    _, condition, *nexts = end.inputs
    variables = tuple(values[i] for i in begin.inputs)
    while True:
        now = {**values, begin: variables}
        run(turn, now)
        if not now[condition]:
            break
        variables = tuple(now[n] for n in nexts)
    values[end] = variables
    values.update(dict.fromkeys(inside))
