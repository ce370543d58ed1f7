"""Slices chosen along one axis by a tensor of indices, and the transpose of that: slices added at the indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepx_graph.errors import InferError, an
from deepx_graph.ir import Attr, Builder, Node, Op, Operand
from deepx_graph.ir.constraint import INTEGERS, TENSOR, axes_of, same_element_type
from deepx_graph.ir.evaluation import WORD, wide
from deepx_graph.literal import Array
from deepx_graph.ops.factors.index import INDEX_SELECT
from deepx_graph.ops.helpers import is_int, loops_in, placed_by, wider
from deepx_graph.types import Type, as_tensor, merge_types


def _take_type(types: Sequence[Type], dim: int) -> Type:
    operand, index = as_tensor(types[0], 0), as_tensor(types[1], 1)
    if operand.dims is None or index.dims is None:
        return operand.with_dims(None)
    if operand.dims[dim] == 0 and all(isinstance(d, int) and d > 0 for d in index.dims):
        raise InferError(f"axis {dim} of the operand has no elements to choose from", operand=0, expected="a size of at least 1")
    return operand.with_dims(operand.dims[:dim] + index.dims + operand.dims[dim + 1 :])


def _clamped(index: Array, size: int) -> Array:
    return np.clip(index.astype(np.int64), 0, max(0, size - 1))


def _take_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    zeros = b.splat(0, as_tensor(node.inputs[0].type))
    return b(index_add, zeros, node.inputs[1], g, dim=node.attr("dim")), None


torch_index_select: Op = Op(
    "torch_index_select", "Slices of the operand chosen along one axis by a tensor of indices, which are clamped to the axis.",
    operands=(Operand("operand", type=TENSOR), Operand("index", type=INTEGERS)), attrs=(Attr("dim", "int"),),
    constraints=(axes_of("operand", "dim"),), sharding=INDEX_SELECT,
    algebraic=True, infer=_take_type, element=loops_in("layout", "take_element"),
    eval=lambda xs, dim: np.take(xs[0], _clamped(xs[1], xs[0].shape[dim]), axis=dim), vjp=_take_vjp,
    scratch=lambda types, result, dim: 2 * WORD * types[1].size + types[0].nbytes,
    assembly="operands, dim = $dim",
    place=placed_by("take_place"), source="StableHLO torch_index_select (batch_dims = 0); deepx indexselect",
    samples=lambda rng: [((rng.random((4, 3)), rng.integers(0, 3, (2, 2))), {"dim": d}) for d in (0, 1)],
)  # fmt: skip


def _index_add_type(types: Sequence[Type], dim: int) -> Type:
    operand, updates = as_tensor(types[0], 0), as_tensor(types[2], 2)
    expected = as_tensor(_take_type(types[:2], dim))
    try:
        merge_types(expected, updates)
    except InferError:
        raise InferError(f"the updates are {an(updates)}", operand=2, expected=str(expected)) from None
    return operand


def _index_add_eval(xs: Sequence[Array], dim: int) -> Array:
    operand, index, updates = xs
    if operand.size == 0 or updates.size == 0:
        return operand.copy()
    rows = np.moveaxis(operand, dim, 0).reshape(operand.shape[dim], -1)
    axes = tuple(range(dim, dim + index.ndim))
    added = np.moveaxis(updates, axes, tuple(range(index.ndim))).reshape(index.size, -1)
    flat = _clamped(index, operand.shape[dim]).reshape(-1)
    order = np.argsort(flat, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(flat[order]) != 0])
    rounds = operand.dtype.kind not in "biu" and not is_int(operand)
    sums = np.add.reduceat(added[order], starts, axis=0, dtype=wider(operand.dtype) if rounds else operand.dtype)
    total, positions = rows.copy(), flat[order][starts]
    total[positions] = total[positions] + sums
    return np.ascontiguousarray(np.moveaxis(total.reshape(np.moveaxis(operand, dim, 0).shape), 0, dim))


def _index_add_scratch(types: Sequence[Type], result: Type, dim: int) -> int:
    """The updates in the order of their indices, and their sums; the operand with the axis first; indices in order."""
    operand, index, updates = (as_tensor(t) for t in types)
    return 3 * updates.nbytes + 2 * wide(updates) + 3 * operand.nbytes + 6 * WORD * index.size


index_add: Op = Op(
    "index_add", "The operand with slices added at the indices, once for each time an index occurs.",
    operands=(Operand("operand", type=TENSOR), Operand("index", type=INTEGERS), Operand("updates", type=TENSOR)),
    attrs=(Attr("dim", "int"),), constraints=(axes_of("operand", "dim"), same_element_type("operand", "updates")),
    algebraic=True, infer=_index_add_type, eval=_index_add_eval, loops=loops_in("index", "index_add_loops"),
    scratch=_index_add_scratch, assembly="operands, dim = $dim",
    source="the transpose of torch_index_select",
    vjp=lambda b, node, g: (g, None, b(torch_index_select, g, node.inputs[1], dim=node.attr("dim"))),
    samples=lambda rng: [((rng.random((4, 3)), np.array([[0, 2], [2, 2]]), rng.random((2, 2, 3))), {"dim": 0}),
                         ((rng.random((4, 3)), np.array([2, 0]), rng.random((4, 2))), {"dim": 1})],
)  # fmt: skip
