"""Elementwise functions of tables in which scatters change few rows: done once for what all other rows hold, and for those rows.

The gradient of an embedding is zero but for the rows that were looked up, so what a step makes of the other weights does not depend
on it. Such a table is never made: the updates of a row are combined in a table with a row for each update, the function is done for
these rows alone, and its results replace the rows of what it gives for the number. Each element is computed as before, from updates
in the same order: results keep their bits. A row in which several updates meet is computed as often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.rebuild import alone, inlined, new_item, rebuilt, with_inputs
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops.contract.reduce import broadcast_in_dim
from deepx_graph.ops.data.fusion import fused, fusion
from deepx_graph.ops.math.elementwise import and_, compare, select
from deepx_graph.ops.tensor.index import gather, replacing, scatter
from deepx_graph.ops.tensor.layout import reshape
from deepx_graph.ops.tensor.shape import concatenate, iota
from deepx_graph.types import I32, I64, U32, TensorType, as_tensor, is_static, tensor

LEAST_BYTES = 1 << 18
"""Of a table: a smaller one is in a core's cache."""

UPDATE_ROWS = 8
"""A row of a table that is not made saves a store and a load; a row of updates costs several of each, at places far apart."""


@dataclass(frozen=True)
class _Sparse:
    """An elementwise function, the operands that are such tables, as scatters into one number along one axis, and their indices."""

    body: Function
    tables: dict[int, Node]
    axis: int
    indices: tuple[Node, ...]


def with_sparse_updates(function: Function) -> Function:
    """The function with elementwise operations and fusions of such tables done so; itself where there are none."""
    found = {n: sparse for n in function.nodes if (sparse := _sparse_of(function, n)) is not None}

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node in found:
            return _made(Builder(origin=node.origin), found[node], inputs)
        return new_item(node, inputs) or with_inputs(node, inputs)

    return rebuilt(function, step) if found else function


# --- where it pays


def _sparse_of(function: Function, node: Node) -> _Sparse | None:
    """How a node is done for few rows; None where it is not elementwise, or where that would not be less."""
    tables = {k: i for k, i in enumerate(node.inputs)
              if i.op is scatter and len(function.users[i]) == 1 and i not in function.results and _changes_rows(i)}
    if not tables or not (node.op is fusion or node.op.elementwise) or len({(_axis(t), t.type) for t in tables.values()}) > 1:
        return None
    body = node.attr("body") if node.op is fusion else alone(node)
    one, indices = next(iter(tables.values())), tuple(dict.fromkeys(t.inputs[1] for t in tables.values()))
    type, updates = as_tensor(one.type), sum(as_tensor(i.type).size for i in indices)
    if (not _is_elementwise(body, type.shape) or len({as_tensor(i.type).dtype for i in indices}) > 1
            or type.nbytes < LEAST_BYTES
            or UPDATE_ROWS * updates > len(tables) * type.shape[_axis(one)]):
        return None
    return _Sparse(body, tables, _axis(one), indices)


def _axis(table: Node) -> int:
    axis: int = table.attr("scatter_dims_to_operand_dims")[0]
    return axis


def _changes_rows(node: Node) -> bool:
    """Whether a scatter changes what is one number throughout, a whole row at one subscript each time."""
    window, inserted, batching, _, axes, vector_dim, _ = node.attrs
    if len(node.inputs) != 3 or splat_of(node.inputs[0]) is None or not all(is_static(i.type) for i in node.inputs):
        return False
    table, indices, updates = (as_tensor(i.type) for i in node.inputs)
    others, rank = tuple(n for k, n in enumerate(table.shape) if k not in axes), len(updates.shape)
    is_row = len(axes) == 1 and inserted == axes and not batching and updates.shape[rank - len(others) :] == others
    return (is_row and window == tuple(range(rank - len(others), rank)) and vector_dim >= len(indices.shape) - 1
            and indices.dtype in (I32, I64, U32))


def _is_elementwise(body: Function, shape: tuple[int, ...]) -> bool:
    """Whether the function is elementwise, of numbers and of tensors of one shape."""
    def fits(node: Node) -> bool:
        if node.op is CONSTANT:
            return splat_of(node) is not None
        return node.op is PARAM or node.op.elementwise or (node.op is broadcast_in_dim and not as_tensor(node.inputs[0].type).shape)
    return all(isinstance(n.type, TensorType) and n.type.dims in (shape, ()) and fits(n) for n in body.nodes)


# --- how it is done


def _made(b: Builder, sparse: _Sparse, operands: Sequence[Node]) -> Node:
    """The results of the function over its operands, packed where they are several."""
    type, axis = as_tensor(operands[next(iter(sparse.tables))].type), sparse.axis
    indices = dict.fromkeys(operands[k].inputs[1] for k in sparse.tables)
    rows = {i: b(reshape, i, shape=(as_tensor(i.type).size,)) for i in indices}
    changed = _joined(b, list(rows.values()))
    count = as_tensor(changed.type).size
    slot_of_row = _replaced(b, b.splat(0, tensor(I32, (type.shape[axis],))), changed, b(iota, dtype=I32, shape=(count,)))
    slots = {i: _slots(b, slot_of_row, rows[i], count) for i in indices}
    elsewhere, there = list(operands), list(operands)
    for k, operand in enumerate(operands):
        if k in sparse.tables:
            elsewhere[k] = b.like(splat_of(operand.inputs[0]), operand)
            combined = _combined(b, operand, slots[operand.inputs[1]], count)
            there[k] = _rows(b, combined, _joined(b, list(slots.values())), 0)
        elif as_tensor(operand.type).shape:
            there[k] = _rows(b, operand, changed, axis)
    new = [_replaced(b, table, changed, row, axis)
           for table, row in zip(_elsewhere(b, sparse.body, elsewhere, type.shape), _over(b, sparse.body, there), strict=True)]
    return new[0] if len(new) == 1 else b.pack(*new)


def _joined(b: Builder, parts: Sequence[Node]) -> Node:
    return parts[0] if len(parts) == 1 else b(concatenate, *parts, dimension=0)


def _slots(b: Builder, slot_of_row: Node, rows: Node, count: int) -> Node:
    """Where the updates of a row are combined; `count`, where there is nothing, for a row that is none."""
    dtype, size = as_tensor(rows.type).dtype, as_tensor(slot_of_row.type).size
    low, high = (b(compare, rows, b.constant(n, dtype), direction=relation) for n, relation in ((0, "GE"), (size, "LT")))
    return b(select, b(and_, low, high), _rows(b, slot_of_row, rows, 0), b.constant(count, I32))


def _combined(b: Builder, table: Node, slots: Node, count: int) -> Node:
    """A table with a row for each slot, in which the updates of a scatter are combined."""
    old, _, updates = table.inputs
    shape = as_tensor(updates.type).shape
    others = shape[len(shape) - len(table.attr("update_window_dims")) :]
    return _scattered(b, b.splat(splat_of(old), tensor(as_tensor(old.type).dtype, (count, *others))), slots,
                      b(reshape, updates, shape=(as_tensor(slots.type).size, *others)), 0, table.attr("update_computation"))


def _replaced(b: Builder, table: Node, rows: Node, new: Node, axis: int = 0) -> Node:
    """The table with new rows."""
    return _scattered(b, table, rows, new, axis, replacing(as_tensor(table.type).dtype))


def _scattered(b: Builder, table: Node, rows: Node, updates: Node, axis: int, body: Function) -> Node:
    others = tuple(range(1, len(as_tensor(table.type).shape)))
    return b(scatter, table, rows, updates, update_window_dims=others, inserted_window_dims=(axis,),
             scatter_dims_to_operand_dims=(axis,), index_vector_dim=1, update_computation=body)


def _rows(b: Builder, table: Node, rows: Node, axis: int) -> Node:
    """Rows of a table, one after the other."""
    shape = as_tensor(table.type).shape
    return b(gather, table, rows, offset_dims=tuple(range(1, len(shape))), collapsed_slice_dims=(axis,), start_index_map=(axis,),
             slice_sizes=tuple(1 if k == axis else n for k, n in enumerate(shape)), index_vector_dim=1)


def _over(b: Builder, body: Function, operands: Sequence[Node]) -> list[Node]:
    """The results of an elementwise function over operands of another shape; numbers stand for constants."""
    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node.op is CONSTANT:
            return b.like(splat_of(node), node)
        return inputs[0] if node.op is broadcast_in_dim else b(node.op, *inputs, **node.named_attrs)
    return inlined(body, operands, step)


def _elsewhere(b: Builder, body: Function, operands: Sequence[Node], shape: tuple[int, ...]) -> list[Node]:
    """The results over operands of which some are numbers: these, or items of one kernel for all that is not known."""
    inside = Builder(peephole=True)
    params = {i: inside.param(k, i.type) for k, i in enumerate(i for i in dict.fromkeys(operands) if i.op is not CONSTANT)}
    results = [r if as_tensor(r.type).shape else inside(broadcast_in_dim, r, shape=shape, broadcast_dimensions=())
               for r in _over(inside, body, [params.get(i, i) for i in operands])]
    return fused(b, {p: i for i, p in params.items()}, results)
