"""Rules of sums and products, and the laws that ops declare. Unmarked ones are exact: to the bit, NaN payloads aside.

`fast_math` rules are true of real numbers and change float results: reassociation, cancellation of infinities and NaN, signs of
zeros. Where a rule is exact for integers only, one function serves as both; constants stand on the right.
"""

from __future__ import annotations

import math

import numpy as np

from deepx_graph.ir import Builder, Node
from deepx_graph.ir.peephole import commutes, simplify, splat_of
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.ops import add, divide, multiply, negate, subtract
from deepx_graph.passes.rules.fold import folded
from deepx_graph.rewrite.engine import Rule, rule
from deepx_graph.rewrite.pattern import C, D, X, Y, op_of
from deepx_graph.types import TensorType


def is_integer(node: Node) -> bool:
    """A tensor of integers or bools, whose arithmetic is exact."""
    return isinstance(node.type, TensorType) and (node.type.dtype.is_integer or node.type.dtype.kind == "bool")


def is_unsigned(node: Node) -> bool:
    """A tensor of unsigned integers, where `-x` is `2^bits - x`."""
    return isinstance(node.type, TensorType) and node.type.dtype.kind == "uint"


def is_float(node: Node) -> bool:
    """A tensor of real floats."""
    return isinstance(node.type, TensorType) and node.type.dtype.is_float


def is_bool(node: Node) -> bool:
    """A tensor of bools."""
    return isinstance(node.type, TensorType) and node.type.dtype.kind == "bool"


def filled(b: Builder, value: object, node: Node) -> Node | None:
    """A constant of the node's type with one value; None where its shape is not known."""
    return b.splat(value, node.type) if isinstance(node.type, TensorType) and node.type.is_static else None


# --- what the declarations say --------------------------------------------------------------------------------------


@rule(lambda op: op.identity is not None or op.absorber is not None or op.idempotent or op.involution)
def declared_law(node: Node) -> Node | None:
    """op(x, e) = x, op(x, z) = z, op(x, x) = x, op(op(x)) = x, as the op declares"""
    return simplify(node.op, node.inputs, node.attrs, node.type)


@rule(lambda op: op.absorber is not None and op.commutative, over=(CONSTANT,))
def absorbing_number(b: Builder, node: Node) -> Node | None:
    """op(x, z) = z, throughout, for a number z beside a tensor of integers or bools"""
    absorbs = is_integer(node) and any(splat_of(i) == node.op.absorber for i in node.inputs if i.op is CONSTANT)
    return filled(b, node.op.absorber, node) if absorbs else None


@rule(lambda op: op.commutative, over=(CONSTANT,))
def constant_right(b: Builder, node: Node) -> Node | None:
    """op(c, x) = op(x, c) for a commutative op"""
    left, right = node.inputs
    if left.op is not CONSTANT or right.op is CONSTANT or not commutes(node.op, node.type):
        return None
    return b(node.op, right, left)


@rule(lambda op: op.associative and op.commutative, over=(CONSTANT,), exact=is_integer)
def combine_constants(b: Builder, node: Node) -> Node | None:
    """op(op(x, c), d) = op(x, op(c, d)) for an associative op on integers"""
    inner, d = node.inputs
    if d.op is not CONSTANT or inner.op is not node.op or inner.inputs[1].op is not CONSTANT:
        return None
    both = folded(b, node.op, inner.inputs[1], d)
    return None if both is None else b(node.op, inner.inputs[0], both)


combine_float_constants = combine_constants.under_fast_math("combine-float-constants")


@rule(lambda op: op.associative and op.idempotent)
def absorb_again(node: Node) -> Node | None:
    """op(op(x, y), y) = op(x, y) for an associative idempotent op"""
    for inner, outer in (node.inputs, node.inputs[::-1]):
        if inner.op is node.op and outer in inner.inputs and (is_integer(node) or outer is inner.inputs[1]):
            return inner
    return None


# --- sums -----------------------------------------------------------------------------------------------------------


@rule(op_of(subtract, X, X), exact=is_integer)
def subtract_self(b: Builder, x: Node) -> Node | None:
    """x - x = 0 for integers"""
    return filled(b, 0, x)


subtract_self_float = subtract_self.under_fast_math("subtract-self-float")


@rule(op_of(add, X, 0.0), fast_math=True)
def add_zero(x: Node) -> Node:
    """x + 0 = x"""
    return x


@rule(op_of(subtract, X, C))
def subtract_constant(b: Builder, x: Node, c: Node) -> Node | None:
    """x - c = x + (-c)"""
    minus = folded(b, negate, c) if x.op is not CONSTANT else None
    return None if minus is None else b(add, x, minus)


@rule(op_of(subtract, -0.0, X))
def minus_zero_minus(b: Builder, x: Node) -> Node | None:
    """-0.0 - x = -x"""
    return b(negate, x)


@rule(op_of(subtract, 0, X), exact=is_integer)
def zero_minus(b: Builder, x: Node) -> Node:
    """0 - x = -x for integers"""
    return b(negate, x)


zero_minus_float = zero_minus.under_fast_math("zero-minus-float")


@rule(op_of(add, X, op_of(negate, Y)))
def add_negative(b: Builder, x: Node, y: Node) -> Node:
    """x + (-y) = x - y"""
    return b(subtract, x, y)


@rule(op_of(subtract, X, op_of(negate, Y)))
def subtract_negative(b: Builder, x: Node, y: Node) -> Node:
    """x - (-y) = x + y"""
    return b(add, x, y)


@rule(op_of(negate, op_of(subtract, X, Y)), exact=is_integer)
def negate_difference(b: Builder, x: Node, y: Node) -> Node:
    """-(x - y) = y - x for integers"""
    return b(subtract, y, x)


negate_difference_float = negate_difference.under_fast_math("negate-difference-float")


@rule(op_of(subtract, op_of(add, X, Y), Y), exact=is_integer)
def add_then_subtract(x: Node) -> Node:
    """(x + y) - y = x for integers"""
    return x


@rule(op_of(add, op_of(subtract, X, Y), Y), exact=is_integer)
def subtract_then_add(x: Node) -> Node:
    """(x - y) + y = x for integers"""
    return x


# --- products -------------------------------------------------------------------------------------------------------


@rule(op_of(multiply, X, -1))
def times_minus_one(b: Builder, x: Node) -> Node:
    """x * -1 = -x"""
    return b(negate, x)


@rule(op_of(divide, X, -1.0))
def by_minus_one(b: Builder, node: Node, x: Node) -> Node | None:
    """x / -1 = -x"""
    return b(negate, x) if is_float(node) else None


@rule(op_of(multiply, op_of(negate, X), op_of(negate, Y)))
def product_of_negatives(b: Builder, x: Node, y: Node) -> Node:
    """(-x) * (-y) = x * y"""
    return b(multiply, x, y)


@rule(op_of(divide, op_of(negate, X), op_of(negate, Y)))
def quotient_of_negatives(b: Builder, node: Node, x: Node, y: Node) -> Node | None:
    """(-x) / (-y) = x / y"""
    return b(divide, x, y) if is_float(node) else None


@rule(op_of(multiply, op_of(negate, X), C))
def negative_times_constant(b: Builder, x: Node, c: Node) -> Node | None:
    """(-x) * c = x * (-c)"""
    minus = folded(b, negate, c)
    return None if minus is None else b(multiply, x, minus)


@rule(op_of(negate, op_of(multiply, X, C)))
def negate_constant_product(b: Builder, x: Node, c: Node) -> Node | None:
    """-(x * c) = x * (-c)"""
    minus = folded(b, negate, c) if is_float(x) or is_integer(x) else None
    return None if minus is None else b(multiply, x, minus)


@rule(op_of(divide, X, C))
def divide_by_power_of_two(b: Builder, node: Node, x: Node, c: Node) -> Node | None:
    """x / 2^k = x * 2^-k where both are normal numbers"""
    if not is_float(node) or x.op is CONSTANT or not _is_power_of_two(splat_of(c)):
        return None
    return _times_inverse(b, x, c)


@rule(op_of(divide, X, C), fast_math=True)
def divide_by_constant(b: Builder, node: Node, x: Node, c: Node) -> Node | None:
    """x / c = x * (1 / c)"""
    return _times_inverse(b, x, c) if is_float(node) and x.op is not CONSTANT else None


def _times_inverse(b: Builder, x: Node, c: Node) -> Node | None:
    inverse = folded(b, divide, b.like(1, c), c)
    return None if inverse is None else b(multiply, x, inverse)


def _is_power_of_two(value: np.generic | None) -> bool:
    """Within what even bf16 and f16 hold as normal numbers, the inverse included."""
    if value is None or not math.isfinite(float(value)):
        return False
    mantissa, exponent = math.frexp(abs(float(value)))
    return mantissa == 0.5 and (value.dtype.itemsize > 1 or exponent in (0, 1, 2)) and -12 <= exponent <= 14


@rule(op_of(add, op_of(multiply, X, C), op_of(multiply, X, D)), exact=is_integer)
def common_factor(b: Builder, node: Node, x: Node, c: Node, d: Node) -> Node | None:
    """x * c + x * d = x * (c + d) for integers"""
    total = folded(b, add, c, d) if c.type == d.type and not is_bool(node) else None
    return None if total is None else b(multiply, x, total)


common_factor_float = common_factor.under_fast_math("common-factor-float")


@rule(op_of(multiply, X, 0), fast_math=True)
def times_zero(b: Builder, node: Node) -> Node | None:
    """x * 0 = 0"""
    return filled(b, 0, node)


@rule(op_of(divide, X, X), fast_math=True)
def divide_self(b: Builder, node: Node) -> Node | None:
    """x / x = 1"""
    return filled(b, 1, node) if is_float(node) else None


ARITHMETIC: tuple[Rule, ...] = tuple(v for v in dict(globals()).values() if isinstance(v, Rule))
"""All rules of this file, in order."""
