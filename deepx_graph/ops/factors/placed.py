"""Operations that count positions, on the part of one device: of iota, and of what reads and writes at computed positions.

Each is `placed(b, node, operands, attrs, positions)` of `Partitioning`: operands are of this device, and `positions` say where
its part begins on each positional factor that is split. Index vectors are moved by that; what they point to in another part is
zero when read, and left alone when written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.ir.builder import Builder
from deepx_graph.ir.factor_rule import FactorRule, Position, tensor_shape
from deepx_graph.ir.node import Node
from deepx_graph.ops.contract.reduce import broadcast_in_dim, reduction
from deepx_graph.ops.math.elementwise import add, and_, clamp, compare, convert, multiply, select, subtract
from deepx_graph.ops.tensor import index as indexed
from deepx_graph.ops.tensor.layout import reshape
from deepx_graph.ops.tensor.shape import iota as iota_op
from deepx_graph.ops.tensor.shape import pad
from deepx_graph.types import I32, I64, as_tensor

Positions = Mapping[int, Position]


def rule_of(node: Node) -> FactorRule:
    """The rule of an operation that declares one."""
    rule = node.op.sharding.rule(node) if node.op.sharding is not None else None
    assert rule is not None
    return rule


def _made(b: Builder, node: Node, operands: Sequence[Node], attrs: Sequence[Any]) -> Node:
    return b(node.op, *operands, **dict(zip(node.op.attr_index, attrs, strict=True)))


def iota(b: Builder, node: Node, operands: Sequence[Node], attrs: tuple[Any, ...], positions: Positions) -> Node:
    """Counted from where the part begins."""
    (position,) = positions.values()
    here = _made(b, node, operands, attrs)
    return b(add, here, b(convert, position.start, dtype=as_tensor(node.type).dtype))


# --- index vectors ------------------------------------------------------------------------------------------------


class _Indices:
    """Index vectors of an operand of which a device has a part; `axes` are its dimensions that the components name."""

    def __init__(self, b: Builder, indices: Node, vector_dim: int, axes: Sequence[int], starts: Mapping[int, Position]) -> None:
        self.b, self.axes, self.starts, self.vector_dim = b, axes, starts, vector_dim
        type = as_tensor(indices.type)
        self.shape = type.shape
        is_wide = type.dtype.itemsize == 8 or (type.dtype.itemsize == 4 and type.dtype.kind == "uint")
        self.dtype = I64 if is_wide else I32
        self.values = b(convert, indices, dtype=self.dtype)

    def _along(self, components: Node) -> Node:
        """A vector of one number for each component, as large as the indices."""
        if self.vector_dim == len(self.shape):
            return self.b(reshape, components, shape=())
        return self.b(broadcast_in_dim, components, shape=self.shape, broadcast_dimensions=(self.vector_dim,))

    def _constants(self, numbers: Sequence[int]) -> Node:
        return self._along(self.b.constant(np.asarray(numbers), self.dtype))

    def clamped(self, most: Sequence[int]) -> None:
        """Moves all inside 0 to `most`, one number for each component."""
        self.values = self.b(clamp, _full(self.b, self._constants([0] * len(most)), self.shape), self.values,
                             _full(self.b, self._constants(most), self.shape))

    def local(self) -> Node:
        """Counted from where the part of this device begins."""
        b, offset = self.b, None
        for k, axis in enumerate(self.axes):
            if axis in self.starts:
                one = b.constant(np.arange(len(self.axes)) == k, self.dtype)
                start = b(multiply, one, b(convert, self.starts[axis].start, dtype=self.dtype))
                offset = start if offset is None else b(add, offset, start)
        return self.values if offset is None else b(subtract, self.values, self._along(offset))

    def inside(self, local: Node) -> Node:
        """Which of the local index vectors point into the part of this device; without the dimension of the components."""
        b = self.b
        large = np.iinfo(self.dtype.np).max
        most = [self.starts[a].size - 1 if a in self.starts else large for a in self.axes]
        least = [0 if a in self.starts else -large for a in self.axes]
        low = b(compare, local, self._constants(least), direction="GE")
        found = b(and_, low, b(compare, local, self._constants(most), direction="LE"))
        if self.vector_dim < len(self.shape):
            found = reduction(b, and_, found, (self.vector_dim,))
        for axis, position in self.starts.items():
            if axis not in self.axes:  # no component names it: read at 0
                found = b(and_, found, b(compare, position.start, b.constant(0, I32), direction="EQ"))
        return found


def _full(b: Builder, x: Node, shape: tuple[int, ...]) -> Node:
    return x if tensor_shape(x.type) == shape else b(broadcast_in_dim, x, shape=shape, broadcast_dimensions=())


def _masked(b: Builder, mask: Node, dims: Sequence[int], x: Node) -> Node:
    """`x`, and zero where the mask, which lies along some of its dimensions, is false."""
    type = as_tensor(x.type)
    whole = b(broadcast_in_dim, mask, shape=type.shape, broadcast_dimensions=tuple(dims))
    return b(select, whole, x, b.splat(0, type))


def _of_operand(node: Node, positions: Positions, operand: int = 0) -> dict[int, Position]:
    """The positions by the dimensions of an operand."""
    mapped = rule_of(node).operands[operand]
    return {d: positions[f] for d, dim in enumerate(mapped) for f in dim if f in positions}


def gather(b: Builder, node: Node, operands: Sequence[Node], attrs: tuple[Any, ...], positions: Positions) -> Node:
    """Zeros for what is in another part, so that the parts add up."""
    a, starts = node.named_attrs, _of_operand(node, positions)
    indices = _Indices(b, operands[1], a["index_vector_dim"], a["start_index_map"], starts)
    whole = tensor_shape(node.inputs[0].type)
    indices.clamped([whole[axis] - a["slice_sizes"][axis] for axis in a["start_index_map"]])
    local = indices.local()
    found = _made(b, node, (operands[0], local), attrs)
    batch = [k for k in range(len(tensor_shape(node.type))) if k not in a["offset_dims"]]
    return _masked(b, indices.inside(local), batch, found)


def index_select(b: Builder, node: Node, operands: Sequence[Node], attrs: tuple[Any, ...], positions: Positions) -> Node:
    """As gather."""
    dim = node.attr("dim")
    rank = len(tensor_shape(operands[1].type))
    indices = _Indices(b, operands[1], rank, (dim,), _of_operand(node, positions))
    indices.clamped([tensor_shape(node.inputs[0].type)[dim] - 1])
    local = indices.local()
    return _masked(b, indices.inside(local), range(dim, dim + rank), _made(b, node, (operands[0], local), attrs))


def scatter(b: Builder, node: Node, operands: Sequence[Node], attrs: tuple[Any, ...], positions: Positions) -> Node:
    """Updates of other parts lie outside and are dropped. Where updates are split, the operand counts in the first part alone."""
    a, count = node.named_attrs, len(node.inputs) // 2
    starts = _of_operand(node, positions)
    indices = _Indices(b, operands[count], a["index_vector_dim"], a["scatter_dims_to_operand_dims"], starts)
    inputs = list(operands[:count])
    zero = b.constant(0, I32)
    for f in rule_of(node).reduction & positions.keys():
        is_first = b(compare, positions[f].index, zero, direction="EQ")
        type = as_tensor(inputs[0].type)
        inputs[0] = b(select, is_first, inputs[0], b.splat(node.attr("update_computation").reducer.identity_for(type.dtype), type))
    found = _made(b, node, (*inputs, indices.local(), *operands[count + 1 :]), attrs)
    for axis, position in starts.items():
        if axis not in indices.axes:
            is_first = b(compare, position.start, zero, direction="EQ")
            found = b(select, is_first, found, inputs[0])
    return found


def dynamic_update_slice(b: Builder, node: Node, operands: Sequence[Node], attrs: tuple[Any, ...], positions: Positions) -> Node:
    """The update in the middle of a border as wide as the part, sliced where the part is; what comes of the border is kept."""
    x, update, starts = operands[0], operands[1], list(operands[2:])
    inside: Node | None = None
    zero = b.constant(0, I32)
    for dim, position in _of_operand(node, positions).items():
        whole, size = (tensor_shape(i.type)[dim] for i in node.inputs[:2])
        at = b(clamp, zero, b(convert, starts[dim], dtype=I32), b.constant(whole - size, I32))
        away = b(subtract, at, position.start)
        begin = b(clamp, zero, b(subtract, b.constant(position.size, I32), away), b.constant(position.size + size, I32))
        update = _shifted(b, update, dim, position.size, begin)
        mask = b(iota_op, dtype=I32, shape=tensor_shape(update.type), iota_dimension=dim)
        end = b(add, away, b.constant(size, I32))
        mask = b(and_, b(compare, mask, away, direction="GE"), b(compare, mask, end, direction="LT"))
        if inside is not None:
            inside = _shifted(b, inside, dim, position.size, begin)
        inside = mask if inside is None else b(and_, inside, mask)
        starts[dim] = b(convert, zero, dtype=as_tensor(starts[dim].type).dtype)
    assert inside is not None
    old = b(indexed.dynamic_slice, x, *starts, slice_sizes=tensor_shape(update.type))
    return b(indexed.dynamic_update_slice, x, b(select, inside, update, old), *starts)


def _shifted(b: Builder, x: Node, dim: int, size: int, begin: Node) -> Node:
    """`size` of what `x` has along a dimension from `begin` on, with as many zeros on both sides."""
    rank, zero = len(tensor_shape(x.type)), b.constant(0, I32)
    border = tuple(size if k == dim else 0 for k in range(rank))
    wide = b(pad, x, b.like(0, x), edge_padding_low=border, edge_padding_high=border, interior_padding=(0,) * rank)
    sizes = tuple(size if k == dim else n for k, n in enumerate(tensor_shape(x.type)))
    return b(indexed.dynamic_slice, wide, *(begin if k == dim else zero for k in range(rank)), slice_sizes=sizes)
