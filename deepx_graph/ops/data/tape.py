"""Tapes: values laid on top of one another, of any types; what reverse mode keeps where sizes are not known beforehand.

A tape is a pure value, an immutable linked list that shares its tail, so pushing costs one copy of what is pushed. The empty tape
stands for zeros all the way down: what is popped from it is zero. So the cotangent of a tape is a tape, and an empty one is a zero
cotangent. A cotangent tape holds the cotangents of those values that can have one, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.errors import InferError, RunError, an
from deepx_graph.ir import Attr, Builder, Node, Op, Operand, Result, examples
from deepx_graph.ir.constraint import TAPE_VALUE, VALUE
from deepx_graph.types import TAPE, FunctionType, TapeType, TensorType, TupleType, Type

SOURCE = "B. Pearlmutter, J. Siskind, Reverse-Mode AD in a Functional Framework"


@dataclass(frozen=True, slots=True, eq=False)
class Tape:
    """At run time: a value on top of another tape. The empty tape is `EMPTY`."""

    below: Tape | None
    value: Any


EMPTY = Tape(None, None)

WHY_TAPES = ("a loop whose number of iterations is not known keeps values on a tape: let a counter be compared with a constant, "
             "or write sea, which has tapes")
"""A hint for a form without tapes."""


def tape_hint(node: Node) -> str | None:
    """`WHY_TAPES` for a node that gives or takes a tape."""
    types = [t for n in (node, *node.inputs) for t in (n.type.items if isinstance(n.type, TupleType) else (n.type,))]
    return WHY_TAPES if any(isinstance(t, TapeType) for t in types) else None


def cotangent_type(type: Type) -> Type | None:
    """The type of the cotangent of a value: a tape for a function value; None when it has none."""
    if isinstance(type, (FunctionType, TapeType)):
        return TAPE
    if isinstance(type, TupleType):
        return type if any(cotangent_type(t) is not None for t in type.items) else None
    return type if isinstance(type, TensorType) and type.dtype.is_differentiable else None


def _pop(xs: Sequence[Any], type: Type) -> tuple[Tape, Any]:
    tape: Tape = xs[0]
    if tape.below is None:
        return EMPTY, _zero(type)
    if isinstance(type, TensorType) and not (isinstance(tape.value, np.ndarray) and tape.value.dtype == type.dtype.np
                                             and tape.value.shape == type.dims):
        raise RunError(f"what lies on the tape is no {type}")
    return tape.below, tape.value


def _zero(type: Type) -> Any:
    if isinstance(type, TapeType):
        return EMPTY
    if isinstance(type, TensorType) and type.is_static:
        return np.zeros(type.shape, type.dtype.np)
    raise RunError(f"an empty tape holds no {type}")


def _add(xs: Sequence[Any]) -> Tape:
    """Item by item from the top; the longer one's rest stays as it is. Tapes on tapes are added in turn, on a stack."""
    work: list[tuple[Tape, Tape, list[Any]]] = [(xs[0], xs[1], [])]
    while True:
        a, b, sums = work.pop()
        if a.below is not None and b.below is not None:
            work.append((a.below, b.below, sums))
            if isinstance(a.value, Tape):
                work.append((a.value, b.value, []))
            else:
                sums.append(np.asarray(a.value + b.value))
            continue
        total = b if a.below is None else a
        for value in reversed(sums):
            total = Tape(total, value)
        if not work:
            return total
        work[-1][2].append(total)


def _push_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    type = cotangent_type(node.inputs[1].type)
    if type is None:
        return g, None
    below, value = b.items(b(tape_pop, g, type=type))
    return below, value


def _pop_vjp(b: Builder, node: Node, g: Sequence[Node | None]) -> Sequence[Node | None]:
    below, value = g
    below = b(tape_empty) if below is None else below
    type = cotangent_type(node.attr("type"))
    if type is None:
        return below,
    if value is None:
        if isinstance(type, TensorType) and not type.is_static:
            raise InferError(f"the gradient of {an(type)} on a tape needs its shape")
        value = b.splat(0, type) if isinstance(type, TensorType) else b(tape_empty)
    return b(tape_push, below, value),


_TAPE = Operand("tape", type=TAPE_VALUE)
_TAPES = (Result(type=TAPE_VALUE),)

tape_empty: Op = Op(
    "tape_empty", "A tape with nothing on it; as a cotangent, zero.", infer=lambda types: TAPE, eval=lambda xs: EMPTY,
    vjp=lambda b, node, g: (), foldable=False, results=_TAPES, example=examples.TAPE, source=SOURCE,
)  # fmt: skip
tape_push: Op = Op(
    "tape_push", "The tape with a value on top.", operands=(_TAPE, Operand("value")), infer=lambda types: TAPE,
    eval=lambda xs: Tape(xs[0], np.array(xs[1]) if isinstance(xs[1], (np.ndarray, np.generic)) else xs[1]),
    vjp=_push_vjp, foldable=False, results=_TAPES, example=examples.TAPE, source=SOURCE,
)  # fmt: skip
tape_pop: Op = Op(
    "tape_pop", "What lies below the top of a tape, and the value on top; zero from an empty one.", operands=(_TAPE,),
    attrs=(Attr("type", "type", summary="the value's type"),),
    infer=lambda types, type: TupleType((TAPE, type)), eval=_pop, vjp=_pop_vjp, foldable=False,
    results=(Result("below", type=TAPE_VALUE), Result("value", type=VALUE)), example=examples.TAPE, source=SOURCE,
)  # fmt: skip
tape_add: Op = Op(
    "tape_add", "The sum of two tapes, value by value from the top.", operands=(_TAPE, Operand("other", type=TAPE_VALUE)),
    infer=lambda types: TAPE,
    eval=_add, vjp=lambda b, node, g: (g, g), foldable=False, results=_TAPES, example=examples.TAPE, source=SOURCE,
)  # fmt: skip
