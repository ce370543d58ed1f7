"""Rules of elements that are taken in an order: the first few of a sort are looked for, and the rest is not. All are exact."""

from __future__ import annotations

from deepx_graph.ir import Builder, Node
from deepx_graph.ir.structure import PROJ, index_of
from deepx_graph.ops import compare, convert, gather, iota, negate, not_, select, slice_, sort, top_k
from deepx_graph.ops.tensor.index import gather_along
from deepx_graph.ops.tensor.sort import Key, keys_of
from deepx_graph.passes.rules.shape import static_dims
from deepx_graph.rewrite.engine import Rule, rule
from deepx_graph.types import BOOL, as_tensor

FEW = 8
"""One of so many elements, and fewer, are looked for without putting all in order."""


@rule(slice_, over=(sort, PROJ))
def first_of_sorted(b: Builder, node: Node) -> Node | None:
    """slice(sort(x, y), to k) = y at the places of top_k(x, k), along the last axis"""
    ordered = node.inputs[0]
    ordered, number = (ordered.inputs[0], index_of(ordered)) if ordered.op is PROJ else (ordered, 0)
    dims = static_dims(node.inputs[0])
    if ordered.op is not sort or not dims or ordered.attr("dimension") != len(dims) - 1:
        return None
    start, limit, strides = node.attrs
    kept = limit[-1]
    if any(start) or limit[:-1] != dims[:-1] or any(s != 1 for s in strides) or not 0 < kept <= dims[-1] // FEW:
        return None
    keys = keys_of(ordered.attr("comparator"))
    if keys is None or len(keys) > 1 or (plain := keys[0].plain) is None:
        return None
    places = b.items(b(top_k, _greatest_first(b, ordered.inputs[plain], keys[0]), k=kept))[1]
    return _along_last(b, ordered.inputs[number], places)


def _greatest_first(b: Builder, x: Node, key: Key) -> Node:
    """What is the greater, in the total order of `top_k`, the earlier a key is wanted; the same for keys that are equal."""
    dtype = as_tensor(x.type).dtype
    if dtype.is_float and not key.total:
        zero, nan = b.like(0, x), b.like(float("nan"), x)
        x = b(select, b(compare, x, zero, direction="EQ"), zero, b(select, b(compare, x, x, direction="EQ"), x, nan))
    if key.descending:
        return x
    return b(negate if dtype.is_float else not_, x)


def _along_last(b: Builder, x: Node, places: Node) -> Node:
    """The elements at places of the last axis."""
    rank = len(static_dims(x) or ())
    if x.op is iota and x.attr("iota_dimension") == rank - 1 and as_tensor(x.type).dtype != BOOL:
        return b(convert, places, dtype=as_tensor(x.type).dtype)
    return b(gather, x, places, **gather_along(rank, rank - 1))


SELECTIONS: tuple[Rule, ...] = tuple(v for v in dict(globals()).values() if isinstance(v, Rule))
"""All rules of this file, in order."""
