"""Local simplification of one node from its declaration and inputs alone: folding and the laws of its traits.

Used by `Builder(peephole=True)` while a graph is made, and by the `fold` and `algebra` passes afterwards, so that both agree.
Everything here is exact for every value, NaN, infinities and signed zeros included; `x + 0` on floats is not (-0 + 0 = 0),
which is why identities are those that hold bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deepx_graph.ir.evaluation import evaluation, scratch
from deepx_graph.ir.scalar_expr import Apply, Variable
from deepx_graph.ir.structure import CONSTANT, PHI, PROJ, TUPLE, value_of
from deepx_graph.literal import Literal
from deepx_graph.types import TensorType, Type, is_static, nbytes

if TYPE_CHECKING:
    from deepx_graph.ir.node import Node
    from deepx_graph.ir.op import Op

FOLD_LIMIT = 1 << 20
"""Folding never has more bytes than this in memory, those of the result and of the temporaries of its eval, unless its operands
already held as many."""


def splat_of(node: Node) -> np.generic | None:
    """The one value that all elements of a constant node have; None when it is not such a constant."""
    if node.op is not CONSTANT:
        return None
    literal = value_of(node)
    return literal.splat_value


def primitive_of(op: Op, attrs: Sequence[Any] = ()) -> str:
    """The primitive of the kernel vocabulary that makes an element of those of the operands, in order; empty where none does."""
    kernel = op.kernel(*attrs) if op.kernel is not None else None
    operands = tuple(map(Variable, range(len(op.operands))))
    return kernel.primitive if isinstance(kernel, Apply) and kernel.args == operands else ""


def fold(op: Op, inputs: Sequence[Node], attrs: tuple[Any, ...], type: Type, limit: int = FOLD_LIMIT) -> Any:
    """The value of the op when all inputs are constants, as Literal or a tuple of them; None when it is not folded."""
    if not op.foldable or op.eval is None or not inputs or any(i.op is not CONSTANT or not is_static(i.type) for i in inputs):
        return None
    stored = sum(value_of(i).array.nbytes for i in inputs if not value_of(i).is_splat)
    work = sum(nbytes(i.type) for i in inputs)  # a splat takes no memory, and may stand for any amount of work
    if not is_static(type):
        return None
    made = nbytes(type) + scratch(op, [i.type for i in inputs], type, attrs)
    if max(made, work) > max(limit, stored):
        return None
    with np.errstate(all="ignore"):
        value = evaluation(op, attrs, type)([value_of(i).array for i in inputs])
    return tuple(map(Literal, value)) if isinstance(value, tuple) else Literal(value)


def simplify(op: Op, inputs: Sequence[Node], attrs: tuple[Any, ...], type: Type) -> Node | None:
    """An existing node that equals the op applied to the inputs, by the traits the op declares; None when there is none."""
    if op is PROJ and inputs[0].op is TUPLE:
        item: int = attrs[0]
        return inputs[0].inputs[item]
    found: Node | None = None
    if op.involution and inputs[0].op is op and inputs[0].attrs == attrs:
        found = inputs[0].inputs[0]
    elif op.idempotent and inputs[0] is inputs[1]:
        found = inputs[0]
    elif op.elementwise and len(inputs) == 2:
        found = _by_unit(op, inputs)
    return found if found is not None and found.type == type else None


def _by_unit(op: Op, inputs: Sequence[Node]) -> Node | None:
    """x op e = x, and z op x = z for integers."""
    for k in (1, 0) if op.commutative else (1,):
        value = splat_of(inputs[k])
        operand_type = inputs[k].type
        if value is None or not isinstance(operand_type, TensorType):
            continue
        if op.identity is not None and _is_exact_unit(value, op.identity_for(operand_type.dtype)):
            return inputs[1 - k]
        if op.absorber is not None and not operand_type.dtype.is_differentiable and value == op.absorber:
            return inputs[k]
    return None


def _is_exact_unit(value: np.generic, unit: Any) -> bool:
    """Equal, and of the same sign when zero: x + (-0.0) = x for every float, x + 0.0 is not."""
    if unit is None or not bool(value == unit):
        return False
    if value.dtype.kind in "biu" or unit != 0:
        return True
    return bool(np.signbit(np.real(value)) == np.signbit(np.real(unit))) and value.dtype.kind != "c"


def mergeable(op: Op, type: Type) -> bool:
    """Whether equal nodes of the op may be one: it may be computed where the program would not have, and passes no state on.

    The same effect after the same state is had in different branches only; one for both would happen before either is taken.
    """
    return op.total and (not type.holds_state or op is PROJ or op is PHI)


def commutes(op: Op, type: Type) -> bool:
    """Whether operands may be swapped to the bit: max and min of floats tell 0.0 from -0.0 by their order."""
    return op.commutative and not (op.idempotent and isinstance(type, TensorType) and type.dtype.is_float)
