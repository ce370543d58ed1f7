"""Maxima that only keep exponentials in range: softmax, its logarithm, the logarithm of a sum of exponentials.

`exp(x - m) / sum(exp(x - m))` does not depend on `m`, and a derivative through it is zero for certain. A value found to depend on a
maximum `m` only by a shift (`value + k m`) or a scale (`value * exp(k m)`) whose k is followed from operation to operation; where
every use ends at k = 0, no derivative need pass `m`. JAX's models say `stop_gradient` there, which its texts do not show.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from deepx_graph.ir import Function, Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    convert,
    divide,
    exponential,
    log,
    maximum,
    multiply,
    negate,
    reduce,
    reshape,
    subtract,
)
from deepx_graph.types import TensorType

MAX_NODES = 64
"""How many values are looked at for one maximum."""


class Dependence(NamedTuple):
    """How a value depends on m: shifted by `power * m`, or with `scaled` multiplied by `exp(power * m)`; `axes[i]` is the axis of
    the value along which m's axis i lies."""

    power: int
    scaled: bool
    axes: tuple[int, ...]


def shifts_only(function: Function) -> set[Node]:
    """The maxima on which no result depends."""
    number = {n: k for k, n in enumerate(function.nodes)}
    return {n for n in function.nodes if n.op is reduce and _is_maximum(n) and _cancels(function, n, number)}


def _is_maximum(node: Node) -> bool:
    type = node.type
    return isinstance(type, TensorType) and type.dtype.is_float and type.is_static and node.attr("body").reducer is maximum


def _cancels(function: Function, m: Node, number: Mapping[Node, int]) -> bool:
    """Whether every path from m on ends at a value that does not depend on it; users are looked at in order."""
    assert isinstance(m.type, TensorType)
    results = set(function.results)
    known: dict[Node, Dependence] = {m: Dependence(1, False, tuple(range(len(m.type.shape))))}
    seen = {m}
    heap = [(number[m], m)]
    while heap:
        _, node = heapq.heappop(heap)
        how = known[node] if node is m else _dependence(node, known)
        if how is None or len(seen) > MAX_NODES:
            return False
        if not how.power:
            continue
        if node in results:
            return False
        known[node] = how
        for user in function.users[node]:
            if user not in seen:
                seen.add(user)
                heapq.heappush(heap, (number[user], user))
    return True


def _dependence(node: Node, known: Mapping[Node, Dependence]) -> Dependence | None:
    """How the node depends on m, given how its operands do; None where that is not followed."""
    own = [known.get(i) for i in node.inputs]
    if node.op is reduce:
        return _reduced(node, own)
    if node.op in (broadcast_in_dim, reshape, convert, negate, exponential, log):
        return _unary(node, own[0])
    if node.op in (add, subtract, multiply, divide, maximum) and len(own) == 2:
        return _binary(node, own)
    return None


def _unary(node: Node, how: Dependence | None) -> Dependence | None:
    if how is None:
        return None
    if node.op is exponential:
        return None if how.scaled else how._replace(scaled=True)
    if node.op is log:
        return how._replace(scaled=False) if how.scaled else None
    if node.op is broadcast_in_dim:
        return how._replace(axes=tuple(node.attr("broadcast_dimensions")[a] for a in how.axes))
    if node.op is reshape:
        return _reshaped(node, how)
    return how if node.op is convert or how.scaled else how._replace(power=-how.power) if node.op is negate else None


def _reshaped(node: Node, how: Dependence) -> Dependence | None:
    """Through a reshape that only adds or drops dimensions of size 1."""
    old, new = node.inputs[0].type, node.type
    assert isinstance(old, TensorType) and isinstance(new, TensorType)
    if [d for d in old.shape if d != 1] != [d for d in new.shape if d != 1]:
        return None
    kept = [k for k, d in enumerate(new.shape) if d != 1]
    moved = dict(zip((k for k, d in enumerate(old.shape) if d != 1), kept, strict=True))
    return how._replace(axes=tuple(moved[a] for a in how.axes)) if all(a in moved for a in how.axes) else None


def _binary(node: Node, own: Sequence[Dependence | None]) -> Dependence | None:
    x, y = own
    if node.op is maximum:  # the maximum of m and the least number is m
        other = node.inputs[1 if x is not None else 0]
        least = splat_of(other.inputs[0] if other.op is broadcast_in_dim else other)
        return (x or y) if least is not None and least == -float("inf") else None
    scaled = node.op is multiply or node.op is divide
    sign = -1 if node.op is subtract or node.op is divide else 1
    some = x or y
    assert some is not None
    if any(w is not None and (w.axes != some.axes or (w.power and w.scaled != scaled)) for w in own):
        return None
    if node.inputs[0].type != node.inputs[1].type:
        return None
    return Dependence((x.power if x else 0) + sign * (y.power if y else 0), scaled, some.axes)


def _reduced(node: Node, own: Sequence[Dependence | None]) -> Dependence | None:
    """A sum of values that are scaled alike."""
    how, axes = own[0], node.attr("dimensions")
    if how is None or any(own[1:]) or len(node.inputs) != 2 or not how.scaled or node.attr("body").reducer is not add:
        return None
    if any(a in axes for a in how.axes) or splat_of(node.inputs[1]) != 0:
        return None
    return how._replace(axes=tuple(a - sum(d < a for d in axes) for a in how.axes))
