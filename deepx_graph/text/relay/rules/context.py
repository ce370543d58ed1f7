"""What the rule of an operator sees of a call: operands as nodes, attributes as plain values, and small steps that rules share.

A rule raises InferError (or the builder VerifyError) where operands and attributes do not fit; the caller adds the place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError, an
from deepx_graph.ir import Builder, Node, Op
from deepx_graph.ir.structure import CONSTANT, TUPLE, value_of
from deepx_graph.literal import Array
from deepx_graph.text.relay.words import dtype_of_name
from deepx_graph.types import ANY, Dim, Dims, DType, TensorType, TupleType, as_tensor, same_dim, scalar

MAX_COUNT = 1 << 14
"""How many parts or axes one operator makes."""


class Unsupported(Exception):
    """Raised by a rule for a form of the operator that it does not know: the call is kept as it stands."""


class Context:
    """One call being lowered. `self(op, ...)` builds a node."""

    limit = 1 << 26
    """How many elements a constant made from nothing may have."""

    def __init__(self, b: Builder, name: str, args: Sequence[Node], attrs: dict[str, Any]) -> None:
        self.b, self.name, self.args, self.attrs = b, name, list(args), attrs

    def __call__(self, op: Op, *inputs: Node, **attrs: Any) -> Node:
        return self.b(op, *inputs, **attrs)

    # --- operands

    def type(self, k: int = 0) -> TensorType:
        return as_tensor(self.args[k].type, k)

    def known(self, k: int = 0) -> TensorType:
        """The type of an operand whose rank is known. Raises InferError."""
        return ranked(self.args[k])

    def items(self, k: int = 0) -> list[Node]:
        """The items of a tuple operand."""
        type = self.args[k].type
        if not isinstance(type, TupleType):
            raise InferError(f"operand {k} is {an(type)}", operand=k, expected="a tuple of tensors")
        if self.args[k].op is TUPLE:
            return list(self.args[k].inputs)
        return [self.b.proj(self.args[k], j) for j in range(len(type.items))]

    def static(self, k: int) -> Array:
        """The value of an operand that must be a constant, an option as it were. Raises InferError."""
        node = self.args[k]
        if node.op is not CONSTANT:
            raise InferError(f"operand {k} is not a constant", operand=k, expected="a constant")
        return value_of(node).bounded()

    # --- attributes

    def attr(self, name: str, default: Any = None) -> Any:
        value = self.attrs.get(name, default)
        return default if value is None else value

    def _typed(self, name: str, default: Any, kinds: tuple[Any, ...], expected: str) -> Any:
        """An attribute of one of these kinds; a bool is no number. Raises InferError."""
        value = self.attr(name, default)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.wrong(name, expected)
        return value

    def number(self, name: str, default: int | None = None) -> int:
        return int(self._typed(name, default, (int,), "an integer"))

    def real(self, name: str, default: float | None = None) -> float:
        return float(self._typed(name, default, (int, float), "a number"))

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self._typed(name, default, (bool, int), "True or False"))

    def text(self, name: str, default: str = "") -> str:
        return str(self._typed(name, default, (str,), "a string"))

    def ints(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        value = self.attr(name, default)
        value = (value,) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(value, (tuple, list)) or not all(isinstance(v, int) for v in value):
            raise self.wrong(name, "a list of integers")
        return tuple(value)

    def sizes(self, name: str, operand: int) -> tuple[int, ...]:
        """A shape: the attribute, or where the operand of that number is given, its constant value. Raises InferError."""
        given = len(self.args) > operand
        found = tuple(int(v) for v in np.ravel(self.static(operand))) if given else self.ints(name)
        if min(found, default=0) < 0:
            raise InferError(f"{name} {list(found)}", expected="sizes from 0")
        return found

    def dtype(self, name: str = "dtype", default: DType | None = None) -> DType:
        value = self.attr(name)
        if (value is None or value == "") and default is not None:
            return default
        found = dtype_of_name(value) if isinstance(value, str) else None
        if found is None:
            raise self.wrong(name, "an element type, like \"float32\"")
        return found

    def wrong(self, name: str, expected: str) -> InferError:
        if self.attr(name) is None:
            return InferError(f"{self.name} needs the attribute '{name}'", expected=f"{name} = {expected}")
        return InferError(f"{self.name}: '{name}' is {self.attrs[name]!r}", expected=expected)

    def count(self, name: str, default: int | None = None) -> int:
        """A number of things that are made. Raises InferError where they are too many."""
        found = self.number(name, default)
        if found > MAX_COUNT:
            raise self.wrong(name, f"at most {MAX_COUNT}")
        return found

    def axis(self, rank: int, name: str = "axis", default: int | None = None) -> int:
        return axis_of(self.number(name, default), rank)

    # --- steps

    def like(self, value: Any, node: Node) -> Node:
        """A scalar constant of the node's element type."""
        return self.b.like(value, node)

    def both(self, op: Op, x: Node, y: Node, **attrs: Any) -> Node:
        """An elementwise op over operands broadcast as numpy does."""
        return self(op, *self.broadcast(x, y), **attrs)

    def broadcast(self, *nodes: Node) -> list[Node]:
        """Operands in one shape, but for scalars, which stand for all elements as they are."""
        types = [as_tensor(n.type, k) for k, n in enumerate(nodes)]
        first = types[0].dims
        if first is None or all(t.dims == first for t in types) or any(t.dims is None for t in types):
            return list(nodes)
        dims = joint_dims([t.dims or () for t in types])
        if all(t.dims == () or _may_equal(t.dims, dims) for t in types):
            return list(nodes)
        return [n if t.dims in ((), dims) else self.broadcast_to(n, dims) for n, t in zip(nodes, types, strict=True)]

    def broadcast_to(self, x: Node, dims: Dims) -> Node:
        """The operand broadcast to `dims`, its axes being the last ones; ones are stretched. Raises InferError."""
        old = ranked(x).dims or ()
        if old == dims:
            return x
        joint_dims([old, dims], exact=dims)
        return self.along(x, dims, range(len(dims) - len(old), len(dims)))

    def along(self, x: Node, dims: Dims, axes: Sequence[int]) -> Node:
        """The operand broadcast to `dims`, its axis j being axis `axes[j]`; ones stand between, as Relay would write it."""
        axes = tuple(axes)
        first = axes[0] if axes else len(dims)
        if axes != tuple(range(first, len(dims))):
            old = ranked(x).dims or ()
            x = self.shaped(x, [old[axes.index(k)] if k in axes else 1 for k in range(first, len(dims))])
        return self(ops.broadcast_in_dim, x, shape=dims, broadcast_dimensions=tuple(range(first, len(dims))))

    def indices(self, dtype: DType, dims: Dims, axis: int) -> Node:
        """0, 1, 2, ... along one axis of a tensor of that shape."""
        line = self(ops.iota, dtype=dtype, shape=(dims[axis],), iota_dimension=0)
        return line if len(dims) == 1 else self.along(line, dims, (axis,))

    def shaped(self, x: Node, dims: Sequence[Dim]) -> Node:
        """The operand in another shape of as many elements; itself when it has that shape."""
        return x if ranked(x).dims == tuple(dims) else self(ops.reshape, x, shape=tuple(dims))

    def transposed(self, x: Node, order: Sequence[int]) -> Node:
        """The operand with its axes in another order; itself when that is the one it has."""
        return x if tuple(order) == tuple(range(len(order))) else self(ops.transpose, x, permutation=tuple(order))

    def cast(self, x: Node, dtype: DType) -> Node:
        return x if as_tensor(x.type).dtype is dtype else self(ops.convert, x, dtype=dtype)

    def sliced(self, x: Node, start: Sequence[int], limit: Sequence[int], strides: Sequence[int] | None = None) -> Node:
        return self(ops.slice_, x, start_indices=tuple(start), limit_indices=tuple(limit),
                    strides=tuple(strides) if strides is not None else (1,) * len(tuple(start)))

    def full(self, value: Any, type: TensorType) -> Node:
        """The tensor whose elements are all one number."""
        if type.is_static:
            return self.b.splat(value, type)
        return self.along(self.b.splat(value, scalar(type.dtype)), type.dims or (), ())


def _may_equal(a: Dims | None, b: Dims) -> bool:
    """Whether the shapes differ in nothing but symbols."""
    return a is not None and len(a) == len(b) and all(map(same_dim, a, b)) and all(
        x == y or isinstance(x, str) for x, y in zip(a, b, strict=True))


def ranked(node: Node) -> TensorType:
    """The type of a tensor whose rank is known. Raises InferError."""
    type = as_tensor(node.type)
    if type.dims is None or type.dtype is ANY:
        raise InferError(f"the shape of {node.name or 'an operand'} is not known", expected="a tensor of known rank")
    return type


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the end where it is negative. Raises InferError beyond the rank."""
    if not -rank <= axis < rank:
        raise InferError(f"axis {axis} of a tensor of rank {rank}", expected=f"{-rank} to {rank - 1}")
    return axis % rank


def joint_dims(shapes: Sequence[Dims], exact: Dims | None = None) -> Dims:
    """The shape that numpy broadcasting gives; a symbol is taken for the size that it meets. Raises InferError."""
    rank = max(map(len, shapes))
    joint: list[Dim] = []
    for k in range(rank):
        sizes = [s[k - rank + len(s)] for s in shapes if k >= rank - len(s)]
        wide = [d for d in sizes if d != 1]
        ints = {d for d in wide if isinstance(d, int)}
        if len(ints) > 1:
            raise InferError(f"the shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast")
        joint.append(next(iter(ints)) if ints else wide[0] if wide else 1)
    if exact is not None and (len(joint) != len(exact)
                              or any(d != e for d, e in zip(joint, exact, strict=True) if isinstance(e, int))):
        raise InferError(f"{list(shapes[0])} does not broadcast to {list(exact)}")
    return tuple(joint)


@dataclass(frozen=True)
class Operator:
    """How an operator is built. `arity` is how many operands it takes where it is used as a value."""

    build: Callable[[Context], Node]
    arity: int = 1
    takes_tuple: bool = False
    """Whether an operand may be a tuple."""
