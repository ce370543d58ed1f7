"""Factors of operations that read and write at computed positions, and of those that need an axis whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from deepx_graph.ir.factor_rule import FactorRule, Partitioning, RuleBuilder, placed_in, tensor_shape
from deepx_graph.ir.node import Node
from deepx_graph.ir.op import Op
from deepx_graph.ops.math.elementwise import add, or_
from deepx_graph.types import BOOL, as_tensor

Shapes = Sequence[tuple[int, ...]]


def _dynamic_slice(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    for k, size in enumerate(r.operands[0]):
        r.factor(size, (k,), (k,), *["replicated", "blocked"] * (size != r.results[0][k]))
    return r.rule()


def _dynamic_slice_attrs(node: Node, operands: Shapes, results: Shapes) -> tuple[Any, ...]:
    return (results[0],)


def _dynamic_update_slice(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    for k, (size, part) in enumerate(zip(r.operands[0], r.operands[1], strict=True)):
        if size == part:
            r.factor(size, (k, k), (k,))
        else:
            r.factor(size, (k, None), (k,), "positional")
            r.factor(part, (None, k), (), "replicated")
    return r.rule()


def _batch_dims(rank: int, windows: Sequence[int]) -> list[int]:
    return [k for k in range(rank) if k not in windows]


def _gather(node: Node) -> FactorRule:
    """Batch axes lie as the indices do; axes taken whole pass; what is indexed is summed over the parts that have it."""
    r = RuleBuilder(node)
    a = node.named_attrs
    (operand, starts), result = r.operands, r.results[0]
    batch = iter(_batch_dims(len(result), a["offset_dims"]))
    windows = iter(a["offset_dims"])
    kept = a["collapsed_slice_dims"] + a["operand_batching_dims"]
    paired = dict(zip(a["start_indices_batching_dims"], a["operand_batching_dims"], strict=True))
    for k, size in enumerate(starts):
        if k == a["index_vector_dim"]:
            r.of_operand(k, "replicated", operand=1)
        else:
            r.factor(size, (paired.get(k), k), (next(batch),))
    for k, size in enumerate(operand):
        taken = a["slice_sizes"][k]
        if k in a["operand_batching_dims"]:
            continue
        at = None if k in kept else next(windows)
        if taken == size and at is not None:
            r.factor(size, (k, None), (at,))
        elif taken == 1:
            r.of_operand(k, "reduction", "positional")
            if at is not None:
                r.factor(1, (), (at,))
        else:
            r.factor(size, (k, None), (at,), "replicated", "blocked")
    return r.rule()


def _gather_attrs(node: Node, operands: Shapes, results: Shapes) -> tuple[Any, ...]:
    taken = node.attr("slice_sizes")
    whole = zip(taken, tensor_shape(node.inputs[0].type), operands[0], strict=True)
    return tuple((node.named_attrs | {"slice_sizes": tuple(n if n != size else local for n, size, local in whole)}).values())


def _gather_combiner(node: Node) -> Op:
    """Every element is of one part, and zero in the others."""
    return or_ if as_tensor(node.type).dtype is BOOL else add


def _scatter_combiner(node: Node) -> Op | None:
    """The op of the body, of one array."""
    op: Op | None = node.attr("update_computation").reducer
    return op if len(node.inputs) == 3 and op and op.identity_for(as_tensor(node.type).dtype) is not None else None


def _scatter_neutral(node: Node, operand: int) -> Any:
    """What updates have that change nothing; indices beyond their end may be any."""
    op = _scatter_combiner(node)
    return op.identity_for(as_tensor(node.type).dtype) if op and operand == 2 else 0 if operand == 1 else None


def _scatter(node: Node) -> FactorRule:
    """As gather, with the updates where that has results; updates are summed into what is indexed."""
    r = RuleBuilder(node)
    a = node.named_attrs
    n = len(node.inputs) // 2
    operand, starts, updates = r.operands[0], r.operands[n], r.operands[n + 1]
    batch = iter(_batch_dims(len(updates), a["update_window_dims"]))
    windows = iter(a["update_window_dims"])
    paired = dict(zip(a["scatter_indices_batching_dims"], a["input_batching_dims"], strict=True))

    def dims(inputs: int | None, indices: int | None, update: int | None) -> list[int | None]:
        return [*[inputs] * n, indices, *[update] * n]

    for k, size in enumerate(starts):
        if k == a["index_vector_dim"]:
            r.factor(size, dims(None, k, None), (), "replicated")
        elif k in paired:
            r.factor(size, dims(paired[k], k, next(batch)), [paired[k]] * n)
        else:
            kind = "reduction" if a["update_computation"].reducer else "replicated"
            r.factor(size, dims(None, k, next(batch)), (), kind, "positional")
    for k, size in enumerate(operand):
        if k in a["input_batching_dims"]:
            continue
        at = None if k in a["inserted_window_dims"] else next(windows)
        if at is not None and updates[at] == size:
            r.factor(size, dims(k, None, at), [k] * n)
            continue
        r.factor(size, dims(k, None, None), [k] * n, "positional", *["whole"] * (at is not None and updates[at] != 1))
        if at is not None:
            r.factor(updates[at], dims(None, None, at), (), "replicated")
    return r.rule()


def _index_select(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    dim, at = node.attr("dim"), 0
    for k, size in enumerate(r.operands[0]):
        if k != dim:
            r.factor(size, (k, None), (at,))
            at += 1
            continue
        r.of_operand(k, "reduction", "positional")
        for j, count in enumerate(r.operands[1]):
            r.factor(count, (None, j), (at,))
            at += 1
    return r.rule()


def _bits(node: Node) -> FactorRule:
    """Elements are counted along their first axis of several positions, row by row."""
    r = RuleBuilder(node)
    (state,), shape = r.operands[0], r.results[1]
    r.factor(state, (0,), (0, None), "replicated")
    major = next((k for k, size in enumerate(shape) if size > 1), None)
    for k, size in enumerate(shape):
        r.factor(size, (None,), (None, k), "positional" if k == major else "replicated")
    return r.rule()


def _uniform(node: Node) -> FactorRule | None:
    r = RuleBuilder(node)
    shape = r.results[0]
    first = next((k for k, size in enumerate(shape) if size > 1), None)
    for k, size in enumerate(shape):
        r.factor(size, (None,) * len(r.operands), (k,), "positional" if k == first else "replicated")
    return r.rule()


def _bits_attrs(node: Node, operands: Shapes, results: Shapes) -> tuple[Any, ...]:
    return tuple((node.named_attrs | {"shape": results[1]}).values())


def _sort(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    for k, size in enumerate(r.results[0]):
        kinds = ["replicated", *["blocked"] * (size == math.prod(r.results[0]))] if k == node.attr("dimension") else []
        r.factor(size, [k] * len(r.operands), [k] * len(r.results), *kinds)
    return r.rule()


def _fft(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    first = len(r.operands[0]) - len(node.attr("fft_length"))
    for k, size in enumerate(r.operands[0]):
        kinds = ["replicated", *["blocked"] * (size != r.results[0][k])] if k >= first else []
        r.factor(size, (k,), (k,), *kinds)
    return r.rule()


def _top_k(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    last = len(r.operands[0]) - 1
    for k, size in enumerate(r.operands[0]):
        r.factor(size, (k,), (k, k), *["replicated", "blocked"] * (k == last))
    return r.rule()


def _cholesky(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    rank = len(r.results[0])
    for k, size in enumerate(r.results[0]):
        r.factor(size, (k,), (k,), *["replicated"] * (k >= rank - 2))
    return r.rule()


def _triangular_solve(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    rank = len(r.results[0])
    for k in range(rank - 2):
        r.factor(r.results[0][k], (k, k), (k,))
    solved, kept = (rank - 2, rank - 1) if node.attr("left_side") else (rank - 1, rank - 2)
    r.factor(r.results[0][solved], (rank - 1, solved), (), "replicated")
    r.factor(r.results[0][solved], (rank - 2, None), (solved,), "replicated")
    r.factor(r.results[0][kept], (None, kept), (kept,), "replicated")
    return r.rule()


DYNAMIC_SLICE = Partitioning(_dynamic_slice, _dynamic_slice_attrs, selects=True)
DYNAMIC_UPDATE_SLICE = Partitioning(_dynamic_update_slice, placed=placed_in("dynamic_update_slice"), selects=True)
GATHER = Partitioning(_gather, _gather_attrs, _gather_combiner, placed=placed_in("gather"))
SCATTER = Partitioning(_scatter, None, _scatter_combiner, _scatter_neutral, placed=placed_in("scatter"))
INDEX_SELECT = Partitioning(_index_select, None, _gather_combiner, placed=placed_in("index_select"))
BITS = Partitioning(_bits, _bits_attrs, placed=placed_in("drawn", "counters"))
UNIFORM = Partitioning(_uniform, lambda node, operands, results: (results[0], node.attr("dtype")),
                       placed=placed_in("drawn_evenly", "counters"))
SORT = Partitioning(_sort)
FFT = Partitioning(_fft)
TOP_K = Partitioning(_top_k)
CHOLESKY = Partitioning(_cholesky)
TRIANGULAR_SOLVE = Partitioning(_triangular_solve)
