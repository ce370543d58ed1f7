"""Relay's operators in terms of ours: one table, gathered from the families; the only place where they are named for reading."""

from __future__ import annotations

from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Node
from deepx_graph.text.relay.rules.context import Context, Operator
from deepx_graph.text.relay.rules.elementwise import ELEMENTWISE
from deepx_graph.text.relay.rules.nn import NN
from deepx_graph.text.relay.rules.reduce import REDUCE
from deepx_graph.text.relay.rules.select import SELECT
from deepx_graph.text.relay.rules.shape import SHAPE
from deepx_graph.text.relay.rules.window import WINDOW
from deepx_graph.types import TensorType, VarType

RULES: dict[str, Operator] = {**ELEMENTWISE, **SHAPE, **SELECT, **REDUCE, **NN, **WINDOW}
"""Every operator that is known, by name."""


def build(b: Builder, name: str, args: list[Node], attrs: dict[str, object]) -> Node:
    """The node that an operator's call is. Raises InferError, VerifyError."""
    rule = RULES[name]
    if rule.arity > len(args):
        raise InferError(f"{name} takes {rule.arity} operands and got {len(args)}")
    for k, a in enumerate(args):
        if not isinstance(a.type, (TensorType, VarType)) and not rule.takes_tuple:
            raise InferError(f"operand {k} is no tensor", operand=k, expected="a tensor")
    return rule.build(Context(b, name, args, attrs))
