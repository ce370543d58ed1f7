"""Reading Shardy's dialect: constraints on how values lie, which are kept as notes of identities; computations by hand have a file
of their own (`shardy_by_hand.py`).

Its collectives (`sdy.all_gather`, ...) are constraints, too: they move a value from one sharding to another and change nothing of
it as a whole; neither does `sdy.all_reduce`, which sums what is unreduced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from deepx_graph import ops
from deepx_graph.ir import Node
from deepx_graph.sharding.annotations import ASKED, BORDER, CONSTRAINT, MOVED
from deepx_graph.sharding.priorities import BARRIER
from deepx_graph.sharding.values import GROUP
from deepx_graph.text.stablehlo.reader.context import OperationContext
from deepx_graph.text.stablehlo.reader.shardy_by_hand import manual_computation
from deepx_graph.text.stablehlo.reader.shardy_checks import check_axes, check_constraint, check_edge, check_move, fitting
from deepx_graph.text.stablehlo.reader.shardy_forms import COLLECTIVES
from deepx_graph.text.stablehlo.reader.shardy_places import is_dangling
from deepx_graph.types import STATE, Type

Rule = Callable[[OperationContext], list[Node]]


def _noted(c: OperationContext, x: Node, role: str, *notes: tuple[str, str]) -> Node:
    """The value, with notes of its own."""
    before = c.b.origin
    c.b.origin = replace(before, notes=(*before.notes, *notes))
    found = c(ops.identity, x, role=role)
    c.b.origin = before
    return found


def sharding_constraint(c: OperationContext) -> list[Node]:
    """The operand: where its parts lie does not change it. The constraint is a note; one that nothing uses, of the operand."""
    said = c.op.extra.get("form") or c.word("sharding", "out_sharding", default="").removeprefix("#sdy.sharding")
    made = fitting(c, said, c.op.result_types or [c.inputs[0].type]) if said else []
    if not c.inputs:  # a token
        return []
    if said and "axes" in c.op.extra:
        check_axes(c, said)
    if made and c.op.name in COLLECTIVES:
        check_move(c, made[0])
    elif made:
        check_constraint(c, made[0])
    note = (CONSTRAINT, f"#sdy.sharding{said}")
    if c.op.name == "sdy.sharding_constraint":
        found = _noted(c, c.inputs[0], ASKED, note)
    else:
        found = _noted(c, c.inputs[0], MOVED, note, (BARRIER, "NONE"))
    if is_dangling(c.op):
        c.scope[c.op.operands[0][0]] = found
    return [found]


def _barrier(c: OperationContext) -> list[Node]:
    """The operand; shardings are propagated over it in the directions named alone."""
    return [_noted(c, c.inputs[0], "propagation_barrier", (BARRIER, c.word("allowed_direction", default="NONE")))]


def _edge(c: OperationContext) -> list[Node]:
    """What flows along a data-flow edge, with the sharding of all that does."""
    check_edge(c)
    said = c.op.extra.get("form") or c.word("sharding", default="").removeprefix("#sdy.sharding")
    if said:
        fitting(c, said, [c.inputs[0].type])
    return [_noted(c, c.inputs[0], "data_flow_edge", *([(CONSTRAINT, f"#sdy.sharding{said}")] if said else []))]


def _group(c: OperationContext) -> list[Node]:
    """Nothing; the value is one that lies as all of its group do."""
    name = c.op.operands[0][0]
    c.scope[name] = _noted(c, c.inputs[0], "sharding_group", (GROUP, str(c.number("group_id", default=0))))
    return []


def _named_computation(c: OperationContext) -> list[Node]:
    """Its body, inlined; what is said of operands and results is a constraint on them."""
    def said(values: Sequence[Node], word: str, types: Sequence[Type]) -> list[Node]:
        texts = re.findall(r"<@[^>]*>", c.op.extra.get(word, ""))
        if not texts:
            return list(values)
        fitting(c, f"<[{', '.join(texts)}]>", types)
        notes = [(CONSTRAINT, f"#sdy.sharding{t}") for t, type in zip(texts, types, strict=True) if type != STATE]
        return [_noted(c, x, BORDER, note) for x, note in zip(values, notes, strict=True)]

    return said(c.region(0, said(c.inputs, "in_shardings", c.op.operand_types)), "out_shardings", c.op.result_types)


def _manual_computation(c: OperationContext) -> list[Node]:
    """What every device does with its part; along no axes it has only a name."""
    return manual_computation(c) if '"' in c.op.extra["manual_axes"] else _named_computation(c)


SHARDY: dict[str, Rule] = {
    **dict.fromkeys(("sdy.sharding_constraint", "sdy.reshard", *COLLECTIVES), sharding_constraint),
    "sdy.propagation_barrier": _barrier,
    **dict.fromkeys(("sdy.data_flow_edge", "sdy.func_data_flow_edge"), _edge),
    "sdy.sharding_group": _group,
    "sdy.named_computation": _named_computation,
    "sdy.manual_computation": _manual_computation,
}
"""How they are read."""
