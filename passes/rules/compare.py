"""Rules of comparisons that meet: of the same operands, of numbers whose sign is known, and choices between equals. All are exact.

Two numbers stand in one of four relations: less, equal, greater, or, with NaN, none. A direction is a set of them; `and` of two
comparisons of the same operands is the intersection of their sets, `or` the union.
"""

from __future__ import annotations

from deepx_graph.ir import Builder, Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ops import and_, clamp, compare, convert, count_leading_zeros, iota, maximum, or_, popcnt, select
from deepx_graph.passes.rules.arithmetic import is_bool, is_integer
from deepx_graph.rewrite.engine import Rule, rule
from deepx_graph.types import as_tensor

_MEANS = {"LT": "<", "LE": "<=", "EQ": "=", "GE": ">=", "GT": ">", "NE": "<>?"}
"""The relations in which each direction holds; `?` is that of NaN to anything."""


@rule(lambda op: op in (and_, or_), over=(compare,))
def comparisons_of_the_same(b: Builder, node: Node) -> Node | None:
    """x < y or x == y = x <= y, x < y and x != y = x < y, and so for all directions"""
    first, second = node.inputs
    if first.op is not compare or second.op is not compare or first.attr("compare_type") != second.attr("compare_type"):
        return None
    if set(first.inputs) != set(second.inputs) or first.attr("compare_type") == "TOTALORDER" or not is_bool(node):
        return None
    one, other = set(_MEANS[first.attr("direction")]), set(_MEANS[second.attr("direction")])
    if first.inputs != second.inputs:
        other = {{"<": ">", ">": "<"}.get(r, r) for r in other}
    found = one & other if node.op is and_ else one | other
    ignored = set("?") if all(is_integer(i) for i in first.inputs) else set[str]()
    for direction, means in _MEANS.items():
        if set(means) - ignored == found - ignored:
            return b(compare, *first.inputs, direction=direction, compare_type=first.attr("compare_type"))
    if not found - ignored or found - ignored == set("<=>?") - ignored:
        return b.splat(bool(found - ignored), as_tensor(node.type)) if as_tensor(node.type).is_static else None
    return None


@rule(compare)
def comparison_of_known_sign(b: Builder, node: Node) -> Node | None:
    """x < 0 is false and x >= 0 is true for an integer x that cannot be negative"""
    x, zero = node.inputs
    direction = node.attr("direction")
    if direction not in ("LT", "GE") or not is_integer(x) or splat_of(zero) != 0 or not as_tensor(node.type).is_static:
        return None
    return b.splat(direction == "GE", as_tensor(node.type)) if _never_negative(x) else None


def _never_negative(node: Node) -> bool:
    """Whether an integer tensor is known to hold no negative number, from the node itself."""
    dtype = as_tensor(node.type).dtype
    if dtype.kind == "uint" or node.op in (popcnt, count_leading_zeros):
        return True
    if node.op is iota:
        size = node.attr("shape")[node.attr("iota_dimension")]
        return isinstance(size, int) and size <= 1 << (dtype.bits - 1)
    if node.op is convert:
        source = as_tensor(node.inputs[0].type).dtype
        return source.kind == "bool" or (source.kind == "uint" and source.bits < dtype.bits)
    if node.op in (maximum, and_):
        return any(_is_not_negative_constant(i) for i in node.inputs)
    return node.op is clamp and _is_not_negative_constant(node.inputs[0]) and _is_not_negative_constant(node.inputs[2])


def _is_not_negative_constant(node: Node) -> bool:
    value = splat_of(node)
    return value is not None and int(value) >= 0


@rule(select, over=(compare,))
def select_of_equal(node: Node) -> Node | None:
    """select(x == y, x, y) = y and select(x != y, x, y) = x for integers, and bools"""
    test, x, y = node.inputs
    if test.op is not compare or set(test.inputs) != {x, y} or not is_integer(x):
        return None
    return {"EQ": y, "NE": x}.get(test.attr("direction"))


ORDERS: tuple[Rule, ...] = tuple(v for v in dict(globals()).values() if isinstance(v, Rule))
"""All rules of this file, in order."""
