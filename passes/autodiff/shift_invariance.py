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
from deepx_graph.ir.peephole import primitive_of, splat_of
from deepx_graph.ops import add, maximum
from deepx_graph.ops.contract.reduce import reduced_axes
from deepx_graph.types import TensorType, as_tensor

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
    return {n for n in function.nodes if _is_maximum(n) and _cancels(function, n, number)}


def _is_maximum(node: Node) -> bool:
    type = node.type
    is_known = isinstance(type, TensorType) and type.dtype.is_float and type.is_static
    return is_known and reduced_axes(node) is not None and node.attr("body").reducer is maximum


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
    if (dropped := reduced_axes(node)) is not None:
        return _reduced(node, own, dropped)
    primitive = primitive_of(node.op, node.attrs)
    if primitive in ("add", "sub", "mul", "div"):
        return _binary(node, own, primitive)
    if primitive == "max":
        return _maximum(node, own)
    (how,) = own if len(own) == 1 else (None,)
    return None if how is None else _moved(node, how) if node.op.axes is not None else _unary(primitive, how)


def _unary(primitive: str, how: Dependence) -> Dependence | None:
    match primitive:
        case "exp":
            return None if how.scaled else how._replace(scaled=True)
        case "log":
            return how._replace(scaled=False) if how.scaled else None
        case "neg":
            return how if how.scaled else how._replace(power=-how.power)
    return how if primitive == "cast" else None


def _moved(node: Node, how: Dependence) -> Dependence | None:
    """Through an operation that repeats elements, or adds and drops axes of size 1."""
    old = as_tensor(node.inputs[0].type).dims
    to = node.op.axes(old, *node.attrs) if node.op.axes is not None and old is not None else None
    axes = tuple([k for a in how.axes if to is not None and (k := to[a]) is not None])
    return how._replace(axes=axes) if len(axes) == len(how.axes) else None


def _maximum(node: Node, own: Sequence[Dependence | None]) -> Dependence | None:
    """The maximum of m and the least number is m."""
    other = node.inputs[1 if own[0] is not None else 0]
    least = splat_of(other.inputs[0] if other.op.axes is not None else other)
    return (own[0] or own[1]) if least is not None and least == -float("inf") else None


def _binary(node: Node, own: Sequence[Dependence | None], primitive: str) -> Dependence | None:
    x, y = own
    scaled = primitive in ("mul", "div")
    sign = -1 if primitive in ("sub", "div") else 1
    some = x or y
    assert some is not None
    if any(w is not None and (w.axes != some.axes or (w.power and w.scaled != scaled)) for w in own):
        return None
    if node.inputs[0].type != node.inputs[1].type:
        return None
    return Dependence((x.power if x else 0) + sign * (y.power if y else 0), scaled, some.axes)


def _reduced(node: Node, own: Sequence[Dependence | None], dropped: Sequence[int]) -> Dependence | None:
    """A sum of values that are scaled alike."""
    how = own[0]
    if how is None or any(own[1:]) or len(node.inputs) != 2 or not how.scaled or node.attr("body").reducer is not add:
        return None
    if any(a in dropped for a in how.axes) or splat_of(node.inputs[1]) != 0:
        return None
    return how._replace(axes=tuple(a - sum(d < a for d in dropped) for a in how.axes))
