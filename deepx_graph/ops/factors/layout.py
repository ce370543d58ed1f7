"""Factors of operations that move, repeat and join elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from deepx_graph.ir.factor_rule import FactorRule, Partitioning, Reading, RuleBuilder, placed_in, tensor_shape
from deepx_graph.ir.node import Node

Shape = tuple[int, ...]
Shapes = Sequence[Shape]


def _with(node: Node, **changes: Any) -> tuple[Any, ...]:
    return tuple((node.named_attrs | changes).values())


def _reshape(node: Node) -> FactorRule:
    """The sizes of both shapes, factored from the left as far as they divide each other; axes of size 1 apart."""
    r = RuleBuilder(node)
    before, after = ([[k, size] for k, size in enumerate(shape) if size != 1] for shape in (r.operands[0], r.results[0]))
    if 0 in r.operands[0]:
        return r.rule()
    while before and after and (shared := math.gcd(before[0][1], after[0][1])) > 1:
        r.factor(shared, (before[0][0],), (after[0][0],))
        for dims in (before, after):
            dims[0][1] //= shared
            if dims[0][1] == 1:
                del dims[0]
    for k, size in before:
        r.factor(size, (k,), (), "positional")
    for k, size in after:
        r.factor(size, (), (k,), "positional")
    return r.rule()


def _transpose(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    for k, axis in enumerate(node.attr("permutation")):
        r.factor(r.results[0][k], (axis,), (k,))
    return r.rule()


def _broadcast(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    axes = node.attr("broadcast_dimensions")
    for k, size in enumerate(r.results[0]):
        at = axes.index(k) if k in axes else None
        r.factor(size, (None if at is None or r.operands[0][at] != size else at,), (k,))
    return r.rule()


def _reverse(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    for k, size in enumerate(r.results[0]):
        r.factor(size, (k,), (k,), *["permuted"] * (k in node.attr("dimensions")))
    return r.rule()


def _reverse_reading(node: Node, dim: int) -> Reading:
    return Reading(mirrored=True)


def _slice(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    for k, (before, after) in enumerate(zip(r.operands[0], r.results[0], strict=True)):
        r.factor(before, (k,), (k,), *["permuted"] * (before != after))
    return r.rule()


def _slice_attrs(node: Node, operands: Shapes, results: Shapes) -> tuple[Any, ...]:
    whole = zip(node.attr("limit_indices"), tensor_shape(node.inputs[0].type), operands[0], strict=True)
    return _with(node, limit_indices=tuple(limit if size == local else local for limit, size, local in whole))


def _slice_reading(node: Node, dim: int) -> Reading:
    return Reading(node.attr("strides")[dim], -node.attr("start_indices")[dim], at=dim,
                   attrs=lambda size: {"start_indices": 0, "limit_indices": size})


def _pad(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    edges = zip(*(node.attr(name) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")), strict=True)
    for k, padding in enumerate(edges):
        r.factor(r.operands[0][k], (k,), (k,), *["permuted"] * any(padding))
    return r.rule()


def _pad_reading(node: Node, dim: int) -> Reading | None:
    if node.attr("interior_padding")[dim]:
        return None
    return Reading(low=node.attr("edge_padding_low")[dim], fill=1, at=dim,
                   attrs=lambda size: {"edge_padding_low": 0, "edge_padding_high": 0})


def _concatenate(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    for k, size in enumerate(r.results[0]):
        r.factor(size, [k] * len(r.operands), (k,), *["replicated"] * (k == node.attr("dimension")))
    return r.rule()


def _bitcast(node: Node) -> FactorRule:
    """Another width takes the last dimension of the longer shape whole."""
    r = RuleBuilder(node)
    for k, (before, after) in enumerate(zip(r.operands[0], r.results[0], strict=False)):
        r.factor(min(before, after), (k,), (k,))
    longer, one = max(r.operands[0], r.results[0], key=len), min(len(r.operands[0]), len(r.results[0]))
    if len(longer) > one:
        found = (one,)
        r.factor(longer[one], *((found, ()) if longer is r.operands[0] else ((), found)), "replicated")
    return r.rule()


def _iota(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    for k in range(len(r.results[0])):
        r.of_result(k, *["positional"] * (k == node.attr("iota_dimension")))
    return r.rule()


def _constant(node: Node) -> FactorRule:
    r = RuleBuilder(node)
    for k in range(len(r.results[0])):
        r.of_result(k, "positional")
    return r.rule()


def _of_shape(node: Node, operands: Shapes, results: Shapes) -> tuple[Any, ...]:
    return _with(node, shape=results[0])


RESHAPE = Partitioning(_reshape, _of_shape)
TRANSPOSE = Partitioning(_transpose)
BROADCAST = Partitioning(_broadcast, _of_shape, repeats=True)
REVERSE = Partitioning(_reverse, reading=_reverse_reading)
SLICE = Partitioning(_slice, _slice_attrs, reading=_slice_reading)
PAD = Partitioning(_pad, reading=_pad_reading)
CONCATENATE = Partitioning(_concatenate)
BITCAST = Partitioning(_bitcast)
IOTA = Partitioning(_iota, _of_shape, placed=placed_in("iota"))
CONSTANTS = Partitioning(_constant)
