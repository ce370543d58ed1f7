"""Numbers of a program beside its tensors: sizes and what is computed of them, which `_operator`, `math` and `torch.sym_` name."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from deepx_graph import ops
from deepx_graph.ir import Node, Op
from deepx_graph.text.common.steps import axis_of
from deepx_graph.text.torch.context import CallContext, Rule, SymbolicNumber, Value
from deepx_graph.types import BOOL, F64, I64, Dim, as_tensor


def _as_number(c: CallContext, value: Value) -> Node:
    """A number as a node: whole ones as int64."""
    if isinstance(value, SymbolicNumber):
        return value.node
    if isinstance(value, Node):
        return c.shaped(value, ())
    return c.scalar(value, BOOL if isinstance(value, bool) else I64 if isinstance(value, int) else F64)


def size_number(c: CallContext, x: Node, axis: int) -> Value:
    """The size of an axis: a number where it is known."""
    dim: Dim = c.dims_of(x)[axis]
    if isinstance(dim, int):
        return dim
    return SymbolicNumber(c.cast(c(ops.get_dimension_size, x, dimension=axis), I64), dim)


def _size(c: CallContext) -> Value:
    return size_number(c, c.node(0), axis_of(c.number(1), len(c.dims_of(c.node(0)))))


def _count(c: CallContext) -> Value:
    numbers = [size_number(c, c.node(0), k) for k in range(len(c.dims_of(c.node(0))))]
    if all(isinstance(n, int) for n in numbers):
        return math.prod(numbers)
    made = _as_number(c, 1)
    for n in numbers:
        made = c(ops.multiply, made, _as_number(c, n))
    return SymbolicNumber(made)


def _by(function: Callable[..., Any], op: Op | None, **attrs: Any) -> Rule:
    """Of numbers that are known the function, of others the operation."""

    def build(c: CallContext) -> Value:
        values = [c.get(k) for k in range(len(c.positional))]
        if not any(isinstance(v, (SymbolicNumber, Node)) for v in values):
            return function(*values)
        known = [None if (found := c.values(_as_number(c, v))) is None else found.reshape(-1)[0].item() for v in values]
        if all(v is not None for v in known):
            return function(*known)
        nodes = [_as_number(c, v) for v in values]
        if any(c.dtype_of(n).is_float for n in nodes) or function is operator.truediv:
            nodes = [c.cast(n, F64) for n in nodes]
        if op is None:  # it takes the values
            return function(*(c.whole(v) for v in values))
        return SymbolicNumber(c(op, *nodes, **attrs))

    return build


def _floor_divide(c: CallContext) -> Value:
    return _by(operator.floordiv, None)(c)


def _item(c: CallContext) -> Value:
    """One element of a tensor as a number."""
    x = c.shaped(c.node(0), ())
    dtype = as_tensor(x.type).dtype
    return SymbolicNumber(x if dtype is BOOL else c.cast(x, F64 if dtype.is_float else I64))


_COMPARISONS = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}

_NUMBERS: dict[str, Rule] = {
    "_operator.add": _by(operator.add, ops.add), "_operator.sub": _by(operator.sub, ops.subtract),
    "_operator.mul": _by(operator.mul, ops.multiply), "_operator.floordiv": _floor_divide,
    "_operator.truediv": _by(operator.truediv, ops.divide), "_operator.mod": _by(operator.mod, ops.floor_mod),
    "_operator.pow": _by(operator.pow, ops.power), "_operator.neg": _by(operator.neg, ops.negate),
    **{f"_operator.{name}": _by(getattr(operator, name), ops.compare, direction=d) for name, d in _COMPARISONS.items()},
    "_operator.and_": _by(operator.and_, ops.and_), "_operator.or_": _by(operator.or_, ops.or_),
    "_operator.not_": _by(operator.not_, None),
    "_operator.pos": _by(operator.pos, None), "math.ceil": _by(math.ceil, None), "math.floor": _by(math.floor, None),
    "math.trunc": _by(math.trunc, None), "builtins.round": _by(round, None),
    "torch.sym_int": _by(int, None), "torch.sym_float": _by(float, None), "torch.sym_max": _by(max, ops.maximum),
    "torch.sym_min": _by(min, ops.minimum), "torch.sym_not": _by(operator.not_, None), "torch._sym_sqrt": _by(math.sqrt, None),
    "torch.sym_ite": _by(lambda hit, yes, no: yes if hit else no, None), "torch.sym_sum": lambda c: _by(
        lambda *v: sum(v), None)(c),
}  # fmt: skip

SIZES: dict[str, Rule] = {
    **_NUMBERS, "aten.sym_size.int": _size, "aten.sym_size": _size, "aten.sym_numel": _count, "aten._local_scalar_dense": _item,
    "aten.item": _item,
}  # fmt: skip
