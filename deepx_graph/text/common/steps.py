"""Steps by which rules of several languages build a call: broadcasting, shapes, casts, on a builder.

A step raises InferError (or the builder VerifyError) where operands do not fit; the caller adds the place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.types import ANY, Dim, Dims, DType, TensorType, as_tensor, same_dim, scalar


class Unsupported(InferError):
    """Raised by a rule for a form of the operator that it does not know: the call is kept as it stands."""


class Steps:
    """What rules build with. `self(op, ...)` builds a node."""

    limit = 1 << 26
    """How many elements a constant made from nothing may have."""

    def __init__(self, b: Builder) -> None:
        self.b = b

    def __call__(self, op: Op, *inputs: Node, **attrs: Any) -> Node:
        return self.b(op, *inputs, **attrs)

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
        """Elements from some places to others; the tensor itself where these are all of them."""
        strides = (1,) * len(start) if strides is None else tuple(strides)
        if not any(start) and tuple(limit) == as_tensor(x.type).dims and set(strides) <= {1}:
            return x
        return self(ops.slice_, x, start_indices=tuple(start), limit_indices=tuple(limit), strides=strides)

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


def comparator(dtypes: tuple[DType, ...], direction: str) -> Function:
    """Compares the first of each pair of elements."""
    params = [(f"{side}{k}", scalar(d)) for k, d in enumerate(dtypes) for side in "ab"]
    return Builder().function("before", params, lambda a, b, *_: [Builder()(ops.compare, a, b, direction=direction)], public=False)
