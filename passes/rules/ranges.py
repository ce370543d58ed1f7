"""Rules of integers whose ranges are known: comparisons, extremes, and divisions that are none. All are exact."""

from __future__ import annotations

from collections.abc import Callable

from deepx_graph.ir import Builder, Node, Op
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.ops import (
    add,
    and_,
    clamp,
    compare,
    divide,
    floor_mod,
    maximum,
    minimum,
    remainder,
    select,
    shift_right_logical,
    subtract,
)
from deepx_graph.passes.rules.arithmetic import is_integer
from deepx_graph.rewrite.engine import Rule, rule
from deepx_graph.rewrite.exact_values import integer_range
from deepx_graph.rewrite.pattern import C, X, Y, Z, op_of
from deepx_graph.types import as_tensor


@rule(op_of(compare, X, Y))
def comparison_of_known_ranges(b: Builder, node: Node, x: Node, y: Node) -> Node | None:
    """x < y, and so for all directions, is true or false where the ranges of integers decide it"""
    if not is_integer(x) or not as_tensor(node.type).is_static:
        return None
    p, q = integer_range(x), integer_range(y)
    less, not_greater, apart = p[-1] < q[0], p[-1] <= q[0], p[-1] < q[0] or q[-1] < p[0]
    greater, not_less = q[-1] < p[0], q[-1] <= p[0]
    same = p[0] == p[-1] and p == q
    always, never = {"LT": (less, not_less), "LE": (not_greater, greater), "GT": (greater, not_greater), "GE": (not_less, less),
                     "NE": (apart, same), "EQ": (same, apart)}[node.attr("direction")]
    return b.splat(always, as_tensor(node.type)) if always or never else None


@rule(lambda op: op in (maximum, minimum))
def extreme_of_known_ranges(node: Node) -> Node | None:
    """max(x, y) = x and min(x, y) = y where no integer of x is below one of y"""
    x, y = node.inputs
    if not is_integer(x) or not is_integer(y):
        return None
    p, q = integer_range(x), integer_range(y)
    above = x if q[-1] <= p[0] else y if p[-1] <= q[0] else None
    if above is None or node.op is maximum:
        return above
    return y if above is x else x


@rule(op_of(clamp, X, Y, Z))
def clamp_of_known_range(x: Node, y: Node, z: Node) -> Node | None:
    """clamp(x, y, z) = y where no integer of y is below one of x or above one of z"""
    if not all(map(is_integer, (x, y, z))):
        return None
    low, found, high = map(integer_range, (x, y, z))
    return y if low[-1] <= found[0] and found[-1] <= high[0] else None


# --- divisions by a number ----------------------------------------------------------------------------------------------


_IS_REMAINDER: Callable[[Op], bool] = (remainder, floor_mod).__contains__


@rule(_IS_REMAINDER, over=(CONSTANT,))
def remainder_of_less(node: Node) -> Node | None:
    """x rem c = x for integers from 0 to below c"""
    x, c = node.inputs
    divisor = _positive(c)
    return x if divisor is not None and _is_within(x, divisor) else None


@rule(_IS_REMAINDER, over=(CONSTANT,))
def remainder_of_less_than_twice(b: Builder, node: Node) -> Node | None:
    """x rem c = select(x >= c, x - c, x) for integers from 0 to below 2 c"""
    x, c = node.inputs
    divisor = _positive(c)
    if divisor is None or _bits(divisor) is not None or not _is_within(x, 2 * divisor):
        return None
    return b(select, b(compare, x, c, direction="GE"), b(subtract, x, c), x)


@rule(_IS_REMAINDER, over=(CONSTANT,))
def remainder_by_power_of_two(b: Builder, node: Node) -> Node | None:
    """x rem c = x & (c - 1) for a power of two c and integers x that are not negative; so is floor_mod of all integers"""
    x, c = node.inputs
    divisor = _positive(c)
    if divisor is None or _bits(divisor) is None or (node.op is remainder and integer_range(x)[0] < 0):
        return None
    return b(and_, x, b.like(divisor - 1, c))


_REST = op_of(remainder, X, C)


@rule(op_of(select, op_of(compare, _REST, 0, direction="LT"), op_of(add, _REST, C), _REST))
def floor_mod_by_power_of_two(b: Builder, x: Node, c: Node) -> Node | None:
    """select(x rem c < 0, x rem c + c, x rem c) = x & (c - 1) for a power of two c"""
    divisor = _positive(c)
    return b(and_, x, b.like(divisor - 1, c)) if divisor is not None and _bits(divisor) is not None else None


@rule(op_of(divide, X, C), exact=is_integer)
def quotient_by_power_of_two(b: Builder, x: Node, c: Node) -> Node | None:
    """x / c = x >> log2(c) for a power of two c and integers x that are not negative"""
    divisor = _positive(c)
    bits = None if divisor is None else _bits(divisor)
    return b(shift_right_logical, x, b.like(bits, c)) if bits and integer_range(x)[0] >= 0 else None


def _positive(c: Node) -> int | None:
    """The integer that all elements of a constant are, where it is above 0."""
    value = splat_of(c)
    return int(value) if value is not None and value.dtype.kind in "iu" and int(value) > 0 else None


def _is_within(x: Node, end: int) -> bool:
    """Whether integers are not negative and below an end."""
    found = integer_range(x)
    return found[0] >= 0 and found[-1] < end


def _bits(x: int) -> int | None:
    """k of 2^k."""
    return x.bit_length() - 1 if x & (x - 1) == 0 else None


RANGES: tuple[Rule, ...] = tuple(v for v in dict(globals()).values() if isinstance(v, Rule))
"""All of them, in order."""
