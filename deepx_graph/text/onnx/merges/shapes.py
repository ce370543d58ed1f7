"""Operators in a row that only arrange elements are one: reshapings, transpositions, concatenations, also by way of sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepx_graph.ir import Node
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.text.onnx.keep import reshaped
from deepx_graph.text.onnx.merges.operator import KeptOperator, Uses, literal, operator
from deepx_graph.text.onnx.schema import AttributeProto
from deepx_graph.types import I64, Dims, as_tensor

VIEWS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")


def view(u: Uses, outer: KeptOperator) -> Node | None:
    """Reshapings in a row are one; none where the shape is that of the beginning."""
    x, after = outer.operands[0], as_tensor(outer.node.type)
    if x is not None and x.type == after and after.dims is not None:
        return x
    inner = u.single(x, *VIEWS, "Transpose")
    if inner is None or (inner.name == "Transpose" and not _moves_units(inner)) or inner.operands[0] is None:
        return None
    start = inner.operands[0]
    if start.type == after and after.dims is not None:
        return start
    before = as_tensor(start.type).dims
    if before is None or after.dims is None or outer.lowering.opsets.get("", 1) < 5:
        return None
    shape = reshaped(before, after.dims)
    return None if shape is None else outer.again([start, literal(np.asarray(shape, np.int64))], {}, "Reshape")


def _order(turned: KeptOperator, rank: int) -> list[int]:
    return turned.ints("perm", list(reversed(range(rank))))


def _moves_units(turned: KeptOperator) -> bool:
    """Whether a transposition moves only axes of size 1, so that elements stay in their order."""
    x = turned.operands[0]
    dims: Dims | None = None if x is None else as_tensor(x.type).dims
    if dims is None:
        return False
    wide = [k for k in _order(turned, len(dims)) if dims[k] != 1]
    return wide == sorted(wide)


def transposed(u: Uses, outer: KeptOperator) -> Node | None:
    """Transpositions in a row are one, or none; one of axes of size 1 is a reshaping."""
    inner = operator(outer.operands[0])  # others may read it
    rank = as_tensor(outer.node.type).rank
    if inner is None or inner.name != "Transpose" or rank is None or inner.operands[0] is None:
        single = u.single(outer.operands[0], *VIEWS)
        return view(u, outer) if single is not None and _moves_units(outer) else None
    first, second = _order(inner, rank), _order(outer, rank)
    order = [first[k] for k in second]
    if order == list(range(rank)):
        return inner.operands[0]
    return outer.again([inner.operands[0]], {"perm": AttributeProto("perm", 7, ints=order)})


def turned_later(u: Uses, outer: KeptOperator) -> Node | None:
    """f(Transpose(x), c) = Transpose(f(x, c')) for an elementwise operator, so that transpositions meet others that undo them.

    Of several operands all are turned alike, or constants, which are turned back.
    """
    type = as_tensor(outer.node.type)
    turned = [u.single(x, "Transpose") for x in outer.operands]
    first = next((t for t in turned if t is not None), None)
    if first is None or type.dims is None or outer.lowering.opsets.get("", 1) < 7:
        return None
    order = _order(first, len(type.dims))
    back = [order.index(k) for k in range(len(order))] if sorted(order) == list(range(len(type.dims))) else []
    operands: list[Node] = []
    for x, t in zip(outer.operands, turned, strict=True):
        if t is not None and _spread(as_tensor(t.node.type).dims, type.dims) and _order(t, len(order)) == order:
            made = t.operands[0]
        else:
            made = None if x is None or x.op is not CONSTANT else _turned_back(u, x, back)
        if made is None:
            return None
        operands.append(made)
    inner = outer.again(operands)
    inner = Node(inner.op, inner.inputs, inner.attrs, type.with_dims(tuple(type.dims[k] for k in back)), first.node.origin)
    u.counts[inner] = 1
    made = first.again([inner])
    return Node(made.op, made.inputs, made.attrs, type, outer.node.origin)


def spread_by_itself(u: Uses, outer: KeptOperator) -> Node | None:
    """f(Expand(x), y) = f(x, y) for an elementwise operator, where y has the shape of the result."""
    if len(outer.operands) != 2 or outer.lowering.opsets.get("", 1) < 7:
        return None
    for k in (0, 1):
        wide, other = u.single(outer.operands[k], "Expand"), outer.operands[1 - k]
        if wide is None or other is None or as_tensor(other.type).dims != as_tensor(outer.node.type).dims or (
                as_tensor(other.type).dims is None):
            continue
        x = wide.operands[0]
        return outer.again([x, other] if k == 0 else [other, x])
    return None


def _spread(dims: Dims | None, wide: Dims) -> bool:
    """Whether a tensor of as many axes is made so wide by repeating."""
    return dims is not None and len(dims) == len(wide) and all(d in (1, w) for d, w in zip(dims, wide, strict=True))


def _turned_back(u: Uses, x: Node, back: Sequence[int]) -> Node | None:
    """A constant as it stands beside what is not turned yet; None where others read it as it is."""
    array = value_of(x).array
    if array.size == 1:
        return x if array.ndim <= len(back) else None
    if u.counts.get(x) != 1 or array.ndim > len(back):
        return None
    wide = array.reshape((1,) * (len(back) - array.ndim) + array.shape).transpose(back)
    return literal(wide.reshape(wide.shape[next(k for k, d in enumerate(wide.shape) if d != 1) :]), x)


def concatenated(u: Uses, outer: KeptOperator) -> Node | None:
    """Concatenations within one another along one axis are one; so are constants beside each other in a vector of sizes."""
    type, axis = as_tensor(outer.node.type), outer.number("axis")
    if type.rank is None or any(x is None for x in outer.operands):
        return None
    parts: list[Node] = []
    for x in outer.operands:
        inner = u.single(x, "Concat")
        within = inner is not None and inner.number("axis") % type.rank == axis % type.rank
        parts += [p for p in (inner.operands if within and inner is not None else [x]) if p is not None]
    if type.rank == 1 and type.dtype is I64:
        parts = _joined(parts)
    if parts == outer.operands or len(parts) < 2:
        return None
    return outer.again(parts)


def _joined(parts: Sequence[Node]) -> list[Node]:
    """Vectors, with those that are constants and neighbours as one."""
    made: list[Node] = []
    for p in parts:
        if made and p.op is CONSTANT and made[-1].op is CONSTANT:
            made[-1] = literal(np.concatenate([value_of(made[-1]).array, value_of(p).array]), made[-1])
        else:
            made.append(p)
    return made


# --- sequences ------------------------------------------------------------------------------------------------------


def _items(node: Node | None) -> list[Node] | None:
    """The items of a sequence that is put together item by item."""
    kept = operator(node)
    if kept is None or kept.name not in ("SequenceEmpty", "SequenceConstruct", "SequenceInsert"):
        return None
    if kept.name != "SequenceInsert":
        return [x for x in kept.operands if x is not None]
    items, (_, x, *at) = _items(kept.operands[0]), kept.operands
    if items is None or x is None or (at and at[0] is not None and at[0].op is not CONSTANT):
        return None
    place = int(value_of(at[0]).array) if at and at[0] is not None else len(items)
    items.insert(place, x)  # of those below 0, as the standard has it
    return items


def concatenated_items(_u: Uses, outer: KeptOperator) -> Node | None:
    """ConcatFromSequence(SequenceInsert(..., x)) = Concat(..., x)."""
    items = _items(outer.operands[0])
    if not items or outer.number("new_axis"):
        return None
    return outer.again(items, {"axis": outer.attributes["axis"]}, "Concat") if len(items) > 1 else items[0]


def item(_u: Uses, outer: KeptOperator) -> Node | None:
    """SequenceAt(SequenceConstruct(..., x), -1) = x, and SequenceAt(SplitToSequence(x, keepdims=0), k) = Gather(x, k)."""
    sequence, place = outer.operands[:2]
    if place is None or place.op is not CONSTANT:
        return None
    items, k = _items(sequence), int(value_of(place).array)
    if items is not None:
        return items[k] if -len(items) <= k < len(items) else None
    split = operator(sequence)
    if split is None or split.name != "SplitToSequence" or len(split.operands) > 1 or split.number("keepdims", 1):
        return None
    return outer.again([split.operands[0], place], {n: a for n, a in split.attributes.items() if n == "axis"}, "Gather")
