"""Rules of comparisons, selections, logic and conversions. Exactness as in `arithmetic`: NaN compares unequal to itself."""

from __future__ import annotations

from collections.abc import Mapping

from deepx_graph.ir import Builder, Node
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.ops import and_, clamp, compare, convert, not_, or_, select, xor
from deepx_graph.passes.rules.arithmetic import filled, is_bool, is_integer
from deepx_graph.rewrite.engine import Rule, rule
from deepx_graph.rewrite.pattern import C, Var, X, Y, Z, op_of
from deepx_graph.types import DType, TensorType, as_tensor

SWAPPED = {"EQ": "EQ", "NE": "NE", "LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}
OPPOSITE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "LE": "GT", "GT": "LE"}
P = Var("p")


@rule(compare, over=(CONSTANT,))
def constant_compared_right(b: Builder, node: Node) -> Node | None:
    """c < x = x > c"""
    left, right = node.inputs
    if left.op is not CONSTANT or right.op is CONSTANT:
        return None
    return _compared(b, node, right, left, SWAPPED)


@rule(op_of(compare, X, X))
def compare_self(b: Builder, node: Node, x: Node) -> Node | None:
    """x < x is false; x == x is true for integers and bools"""
    direction = node.attr("direction")
    if direction in ("LT", "GT"):
        return filled(b, False, node)
    return filled(b, direction != "NE", node) if is_integer(x) else None


@rule(op_of(compare, X, X), fast_math=True)
def compare_self_float(b: Builder, node: Node) -> Node | None:
    """x == x is true"""
    return filled(b, node.attr("direction") in ("EQ", "LE", "GE"), node)


@rule(op_of(not_, op_of(compare, X, Y)))
def not_compare(b: Builder, node: Node, x: Node, y: Node) -> Node | None:
    """not (x == y) = x != y; of orders for integers only, as NaN has none"""
    direction = node.inputs[0].attr("direction")
    if direction not in ("EQ", "NE") and not is_integer(x):
        return None
    return _compared(b, node.inputs[0], x, y, OPPOSITE)


@rule(op_of(not_, op_of(compare, X, Y)), fast_math=True)
def not_order(b: Builder, node: Node, x: Node, y: Node) -> Node:
    """not (x < y) = x >= y"""
    return _compared(b, node.inputs[0], x, y, OPPOSITE)


def _compared(b: Builder, like: Node, x: Node, y: Node, direction: Mapping[str, str]) -> Node:
    """The comparison of x and y in the changed direction; what else `like` says of it stays."""
    return b(compare, x, y, **like.named_attrs | {"direction": direction[like.attr("direction")]})


@rule(op_of(compare, X, True, direction="EQ"))
def equals_true(node: Node, x: Node) -> Node | None:
    """x == true = x"""
    return x if is_bool(x) else None


@rule(op_of(compare, X, False, direction="NE"))
def differs_from_false(node: Node, x: Node) -> Node | None:
    """x != false = x"""
    return x if is_bool(x) else None


@rule(op_of(compare, X, False, direction="EQ"))
def equals_false(b: Builder, x: Node) -> Node | None:
    """x == false = not x"""
    return b(not_, x) if is_bool(x) else None


# --- selection ------------------------------------------------------------------------------------------------------


@rule(op_of(select, True, X, Y))
def select_true(x: Node) -> Node:
    """select(true, x, y) = x"""
    return x


@rule(op_of(select, False, X, Y))
def select_false(y: Node) -> Node:
    """select(false, x, y) = y"""
    return y


@rule(op_of(select, P, X, X))
def select_same(x: Node) -> Node:
    """select(p, x, x) = x"""
    return x


@rule(op_of(select, op_of(not_, P), X, Y))
def select_not(b: Builder, p: Node, x: Node, y: Node) -> Node:
    """select(not p, x, y) = select(p, y, x)"""
    return b(select, p, y, x)


@rule(op_of(select, P, True, False))
def select_bools(node: Node, p: Node) -> Node | None:
    """select(p, true, false) = p"""
    return p if is_bool(node) else None


@rule(op_of(select, P, False, True))
def select_bools_not(b: Builder, node: Node, p: Node) -> Node | None:
    """select(p, false, true) = not p"""
    return b(not_, p) if is_bool(node) else None


@rule(op_of(select, P, op_of(select, P, X, Y), Z))
def select_again_true(b: Builder, p: Node, x: Node, z: Node) -> Node:
    """select(p, select(p, x, y), z) = select(p, x, z)"""
    return b(select, p, x, z)


@rule(op_of(select, P, X, op_of(select, P, Y, Z)))
def select_again_false(b: Builder, p: Node, x: Node, z: Node) -> Node:
    """select(p, x, select(p, y, z)) = select(p, x, z)"""
    return b(select, p, x, z)


@rule(op_of(clamp, X, op_of(clamp, X, Y, Z), Z))
def clamp_again(node: Node) -> Node | None:
    """clamp(x, clamp(x, y, z), z) = clamp(x, y, z) for integers"""
    return node.inputs[1] if is_integer(node) else None


# --- and, or, xor ---------------------------------------------------------------------------------------------------


@rule(op_of(and_, X, op_of(not_, X)))
def and_not(b: Builder, node: Node) -> Node | None:
    """x and not x = 0"""
    return filled(b, 0, node)


@rule(op_of(or_, X, op_of(not_, X)))
def or_not(b: Builder, node: Node, x: Node) -> Node | None:
    """x or not x = all ones"""
    return _all_ones(b, node)


@rule(op_of(or_, X, C))
def or_ones(b: Builder, node: Node, c: Node) -> Node | None:
    """x or all ones = all ones"""
    ones = _all_ones(b, node)
    return ones if ones is not None and value_of(ones).splat_value == value_of(c).splat_value else None


@rule(op_of(xor, X, X))
def xor_self(b: Builder, x: Node) -> Node | None:
    """x xor x = 0"""
    return filled(b, 0, x)


@rule(op_of(xor, X, True))
def xor_true(b: Builder, node: Node, x: Node) -> Node | None:
    """x xor true = not x"""
    return b(not_, x) if is_bool(node) else None


@rule(op_of(and_, X, op_of(or_, X, Y)))
def absorb_or(x: Node) -> Node:
    """x and (x or y) = x"""
    return x


@rule(op_of(or_, X, op_of(and_, X, Y)))
def absorb_and(x: Node) -> Node:
    """x or (x and y) = x"""
    return x


def _all_ones(b: Builder, node: Node) -> Node | None:
    assert isinstance(node.type, TensorType)
    return filled(b, and_.identity_for(node.type.dtype), node)


# --- conversion -----------------------------------------------------------------------------------------------------


@rule(convert)
def convert_to_same(node: Node) -> Node | None:
    """convert(x) = x where x has that dtype"""
    return node.inputs[0] if node.inputs[0].type == node.type else None


@rule(op_of(convert, op_of(convert, X)))
def convert_twice(b: Builder, node: Node, x: Node) -> Node | None:
    """convert(convert(x)) = convert(x) where the dtype between holds every value of the first

    From a float to an integer saturates, from an integer to a narrower one wraps: a float between makes a difference then.
    """
    between, to = node.inputs[0].type, node.attr("dtype")
    if not isinstance(x.type, TensorType) or not isinstance(between, TensorType) or not holds(between.dtype, x.type.dtype):
        return None
    saturates = x.type.dtype.is_integer and between.dtype.is_float and to.is_integer and not holds(to, x.type.dtype)
    return None if saturates else b(convert, x, dtype=to)


_WHOLE_BITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
_WIDENINGS = {("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64"), ("f32", "f64"), ("c64", "c128")}


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`, so that going through it changes nothing."""
    if wide is narrow:
        return True
    if narrow.kind == "bool":
        return wide.is_integer or wide.is_float
    if narrow.is_integer and wide.is_integer:
        return wide.bits > narrow.bits and (wide.kind == narrow.kind or narrow.kind == "uint")
    if narrow.is_integer and wide.is_float:
        return narrow.bits <= _WHOLE_BITS.get(wide.name, 0)
    return (narrow.name, wide.name) in _WIDENINGS


LOGIC: tuple[Rule, ...] = tuple(v for v in dict(globals()).values() if isinstance(v, Rule))
"""All rules so far, in order."""


# --- what comparisons imply ------------------------------------------------------------------------------------------

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


@rule(select, over=(compare,))
def select_of_equal(node: Node) -> Node | None:
    """select(x == y, x, y) = y and select(x != y, x, y) = x for integers, and bools"""
    test, x, y = node.inputs
    if test.op is not compare or set(test.inputs) != {x, y} or not is_integer(x):
        return None
    return {"EQ": y, "NE": x}.get(test.attr("direction"))


ORDERS: tuple[Rule, ...] = tuple(v for v in dict(globals()).values() if isinstance(v, Rule) and v not in LOGIC)
"""The rules of what comparisons imply, in order."""
