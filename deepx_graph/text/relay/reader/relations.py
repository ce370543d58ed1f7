"""The type of an operator's call: what its rule builds from operands of the given types, in a builder that is thrown away."""

from __future__ import annotations

from functools import lru_cache

from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Node
from deepx_graph.literal import Literal
from deepx_graph.text.relay.reader.context import Context, Unsupported
from deepx_graph.text.relay.reader.unify import settled
from deepx_graph.text.relay.rules.table import RULES
from deepx_graph.text.relay.syntax import Call, Constant, Expr, OpRef, TupleOf, VariableUse
from deepx_graph.types import TensorType, Type, VarType

Known = Type | Literal | tuple["Known", ...]
"""What is known of an operand: its type, or its value."""


def relation(call: Call) -> Type | None:
    """The type of a call whose operands' types are known; None for an operator, or a form of one, that is not known.

    Raises InferError, VerifyError.
    """
    assert isinstance(call.callee, OpRef)
    if call.callee.name not in RULES:
        return None
    known = tuple(map(_known, call.args))
    try:
        return _result(call.callee.name, known, tuple(call.attrs.items()))
    except Unsupported:
        return None
    except (TypeError, LookupError, ValueError, ArithmeticError, AssertionError) as e:  # values of a form that no rule expects
        raise InferError(f"the operands or attributes do not fit: {e or type(e).__name__}") from None


def _known(e: Expr) -> Known:
    if isinstance(e, VariableUse) and e.binder.value is not None and isinstance(e.binder.value, (Constant, TupleOf)):
        e = e.binder.value
    if isinstance(e, Constant):
        return e.value
    if isinstance(e, TupleOf):
        return tuple(map(_known, e.items))
    return settled(e.type, {})


@lru_cache(maxsize=4096)
def _result(name: str, known: tuple[Known, ...], attrs: tuple[tuple[str, object], ...]) -> Type:
    b = Builder()
    return build(b, name, [_operand(b, k, v) for k, v in enumerate(known)], dict(attrs)).type


def _operand(b: Builder, index: int, known: Known) -> Node:
    if isinstance(known, Literal):
        return b.literal(known)
    if isinstance(known, tuple):
        return b.pack(*(_operand(b, index, k) for k in known))
    return b.param(index, known)


def build(b: Builder, name: str, args: list[Node], attrs: dict[str, object]) -> Node:
    """The node that an operator's call is. Raises InferError, VerifyError."""
    rule = RULES[name]
    if rule.arity > len(args):
        raise InferError(f"{name} takes {rule.arity} operands and got {len(args)}")
    for k, a in enumerate(args):
        if not isinstance(a.type, (TensorType, VarType)) and not rule.takes_tuple:
            raise InferError(f"operand {k} is no tensor", operand=k, expected="a tensor")
    return rule.build(Context(b, name, args, attrs))
