"""Rules of powers, roots, exponentials, signs and roundings. Exactness as in `arithmetic`."""

from __future__ import annotations

from deepx_graph.ir import Builder, Node
from deepx_graph.ops import (
    abs_,
    add,
    ceil,
    divide,
    exponential,
    exponential_minus_one,
    floor,
    log,
    log_plus_one,
    logistic,
    multiply,
    negate,
    power,
    rsqrt,
    sign,
    sqrt,
)
from deepx_graph.passes.rules.arithmetic import filled, is_float, is_integer, is_unsigned
from deepx_graph.rewrite.engine import Rule, rule
from deepx_graph.rewrite.pattern import X, Y, op_of

# --- powers, roots, exponentials ------------------------------------------------------------------------------------


@rule(op_of(power, X, 0))
def power_zero(b: Builder, node: Node) -> Node | None:
    """x ^ 0 = 1, for NaN too (IEEE 754)"""
    return filled(b, 1, node)


@rule(op_of(power, 1, X))
def power_of_one(b: Builder, node: Node) -> Node | None:
    """1 ^ x = 1, for NaN too (IEEE 754)"""
    return filled(b, 1, node) if is_float(node) or is_integer(node) else None


@rule(op_of(power, X, 2))
def square(b: Builder, x: Node) -> Node:
    """x ^ 2 = x * x, which is the square rounded once"""
    return b(multiply, x, x)


@rule(op_of(power, X, -1.0))
def inverse(b: Builder, node: Node, x: Node) -> Node | None:
    """x ^ -1 = 1 / x, which is the inverse rounded once"""
    return b(divide, b.like(1, x), x) if is_float(node) else None


@rule(op_of(power, X, 0.5), fast_math=True)
def power_half(b: Builder, node: Node, x: Node) -> Node | None:
    """x ^ 0.5 = sqrt(x); they differ at -inf and -0.0"""
    return b(sqrt, x) if is_float(node) else None


@rule(op_of(power, X, -0.5), fast_math=True)
def power_minus_half(b: Builder, node: Node, x: Node) -> Node | None:
    """x ^ -0.5 = rsqrt(x)"""
    return b(rsqrt, x) if is_float(node) else None


@rule(op_of(power, X, 3), fast_math=True)
def cube(b: Builder, x: Node) -> Node:
    """x ^ 3 = x * x * x"""
    return b(multiply, b(multiply, x, x), x)


@rule(op_of(multiply, op_of(sqrt, X), op_of(sqrt, X)), fast_math=True)
def square_of_root(x: Node) -> Node:
    """sqrt(x) * sqrt(x) = x"""
    return x


@rule(op_of(sqrt, op_of(multiply, X, X)), fast_math=True)
def root_of_square(b: Builder, node: Node, x: Node) -> Node | None:
    """sqrt(x * x) = |x|"""
    return b(abs_, x) if is_float(node) else None


@rule(op_of(divide, X, op_of(sqrt, Y)), fast_math=True)
def divide_by_root(b: Builder, x: Node, y: Node) -> Node:
    """x / sqrt(y) = x * rsqrt(y)"""
    return b(multiply, x, b(rsqrt, y))


@rule(op_of(log, op_of(exponential, X)), fast_math=True)
def log_of_exponential(node: Node, x: Node) -> Node | None:
    """log(e^x) = x"""
    return x if is_float(node) else None


@rule(op_of(exponential, op_of(log, X)), fast_math=True)
def exponential_of_log(x: Node) -> Node:
    """e^(log x) = x"""
    return x


@rule(op_of(multiply, op_of(exponential, X), op_of(exponential, Y)), fast_math=True)
def product_of_exponentials(b: Builder, x: Node, y: Node) -> Node:
    """e^x * e^y = e^(x + y)"""
    return b(exponential, b(add, x, y))


@rule(op_of(log, op_of(add, X, 1)), fast_math=True)
def log_of_one_plus(b: Builder, x: Node) -> Node:
    """log(x + 1) = log_plus_one(x)"""
    return b(log_plus_one, x)


@rule(op_of(add, op_of(exponential, X), -1), fast_math=True)
def exponential_less_one(b: Builder, x: Node) -> Node:
    """e^x - 1 = exponential_minus_one(x)"""
    return b(exponential_minus_one, x)


@rule(op_of(divide, 1, op_of(add, op_of(exponential, op_of(negate, X)), 1)), fast_math=True)
def recognise_logistic(b: Builder, x: Node) -> Node:
    """1 / (e^-x + 1) = logistic(x)"""
    return b(logistic, x)


# --- signs and roundings --------------------------------------------------------------------------------------------


@rule(op_of(abs_, op_of(negate, X)))
def abs_of_negative(b: Builder, x: Node) -> Node | None:
    """|-x| = |x|, but for unsigned integers, where -x is another number"""
    return None if is_unsigned(x) else b(abs_, x)


@rule(lambda op: op in (abs_, floor, ceil, sign))
def once_is_enough(node: Node) -> Node | None:
    """f(f(x)) = f(x) for abs, floor, ceil, sign"""
    return node.inputs[0] if node.inputs[0].op is node.op else None


@rule(lambda op: op in (floor, ceil))
def already_whole(node: Node) -> Node | None:
    """floor(ceil(x)) = ceil(x), ceil(floor(x)) = floor(x)"""
    return node.inputs[0] if node.inputs[0].op in (floor, ceil) else None


@rule(op_of(abs_, op_of(multiply, X, X)))
def abs_of_square(node: Node, x: Node) -> Node | None:
    """|x * x| = x * x for floats"""
    return node.inputs[0] if is_float(x) and is_float(node) else None


POWERS: tuple[Rule, ...] = tuple(v for v in dict(globals()).values() if isinstance(v, Rule))
"""All rules of this file, in order."""
