"""Elementwise operations: each result element depends on the same element of the operands.

Edge cases follow XLA: integer division by zero gives -1 and remainder the dividend; float to integer truncates and saturates and
makes NaN 0; maximum and minimum are those of IEEE 754-2019; integer arithmetic wraps. Gradients follow JAX: ties share
equally, sign for abs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Attr, Builder, Node, Op, Operand, Relation, Result, one_of
from deepx_graph.ir.constraint import BOOLS, FLOATS, ORDERED, TENSOR, dtypes, tensor_of
from deepx_graph.ir.scalar_expr import Apply, Expr, Variable, expr
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.literal import Array
from deepx_graph.ops.contract.monoid import UfuncMonoid
from deepx_graph.ops.helpers import (
    EVERY,
    FLOATING,
    LOGICAL,
    NUMERIC,
    REAL,
    binary,
    dtype_attr,
    flat,
    highest,
    is_int,
    joint_type,
    like,
    loops_in,
    lowest,
    one,
    pair,
    split,
    transcendental,
    truth,
    ufunc,
    unary,
    widened,
)
from deepx_graph.ops.math import complex_math, extremes
from deepx_graph.types import ANY, BOOL, C64, C128, DTYPES, F32, F64, DType, TensorType, Type, as_tensor

# --- arithmetic ---------------------------------------------------------------------------------------------------

add: Op = binary(
    "add", "The sum; of bools, logical or.", ufunc(np.add), kernel="x + y", kinds=EVERY,
    vjp=lambda b, x, y, node, g: (g, g),
    commutative=True, associative=True, identity=lambda d: -0.0 if d.is_float else 0,
    monoid=UfuncMonoid(np.add, rounds=True, negative_zero=True),
)  # fmt: skip
subtract: Op = binary(
    "subtract", "The difference.", ufunc(np.subtract), kernel="x - y",
    vjp=lambda b, x, y, node, g: (g, b(negate, g)), identity=0,
)  # fmt: skip


def _multiply_vjp(b: Builder, x: Node, y: Node, node: Node, g: Node) -> Sequence[Node | None]:
    """A square in one term, whose 2 may meet other constants; inside a cube it is a multiple of what the cube gives x."""
    if x is y:
        two = b.like(2, g)
        if g.op is multiply and x in g.inputs:
            return b(multiply, b(multiply, g.inputs[g.inputs[0] is x], node), two), None
        return b(multiply, b(multiply, g, two), x), None
    return b(multiply, g, y), b(multiply, g, x)


multiply: Op = binary(
    "multiply", "The product; of bools, logical and. Of complex numbers the sums of four products, also at infinities.",
    ufunc(np.multiply), kernel="x * y", kinds=EVERY,
    vjp=_multiply_vjp, commutative=True, associative=True, identity=1, absorber=0, monoid=UfuncMonoid(np.multiply, rounds=True),
)  # fmt: skip


def _divide(xs: Sequence[Array]) -> Array:
    x, y = xs
    if not is_int(x):
        return like((complex_math.divide if x.dtype.kind == "c" else np.divide)(x, y), x.dtype)
    quotient = np.where(y == 0, like(-1, x.dtype) if x.dtype.kind == "i" else ~np.zeros((), x.dtype), _truncated(x, y))
    return like(quotient, x.dtype)


def _truncated(x: Array, y: Array) -> Array:
    """Integer quotient rounded toward zero; y = 0 gives anything. The least integer divided by -1 wraps to itself."""
    y = np.where(y == 0, np.ones((), y.dtype), y)
    if x.dtype.kind == "u":
        return like(x // y, x.dtype)
    y_is_minus_one = y == -1
    safe = np.where(y_is_minus_one, np.ones((), y.dtype), y)
    floor = x // safe
    floor = floor + ((floor * safe != x) & ((x < 0) != (safe < 0)))
    return like(np.where(y_is_minus_one, -x, floor), x.dtype)


def _divide_vjp(b: Builder, x: Node, y: Node, node: Node, g: Node) -> Sequence[Node]:
    by_x = b(divide, g, y)
    return by_x, b(negate, b(multiply, by_x, node))


divide: Op = binary(
    "divide",
    "Quotient; rounded toward zero for integers, x / 0 = -1. Of complex numbers at zeros and infinities as in C99 Annex G.",
    _divide, kernel="x / y", vjp=_divide_vjp, identity=1, domain=(0.5, 2.0),
)  # fmt: skip


def _remainder(xs: Sequence[Array]) -> Array:
    x, y = xs
    if not is_int(x):
        return like(np.fmod(x, y), x.dtype)
    if x.dtype.kind in "iu":
        return np.where(y == 0, x, np.fmod(x, y))
    return like(np.where(y == 0, x, x - _truncated(x, y) * y), x.dtype)


def _trunc_div(b: Builder, x: Node, y: Node) -> Node:
    quotient = b(divide, x, y)
    return b(multiply, b(sign, quotient), b(floor, b(abs_, quotient)))


remainder: Op = binary(
    "remainder", "Remainder with the sign of the dividend; x rem 0 = x for integers.", _remainder, kinds=REAL,
    element=loops_in("math", "remainder_element"),
    vjp=lambda b, x, y, node, g: (g, b(negate, b(multiply, g, _trunc_div(b, x, y)))), domain=(1.1, 1.9),
)  # fmt: skip


def _floor_mod(xs: Sequence[Array]) -> Array:
    x, y = xs
    if not is_int(x):
        return like(np.mod(x, y), x.dtype)
    return like(np.where(y == 0, x, np.mod(x, np.where(y == 0, np.ones((), y.dtype), y))), x.dtype)


floor_mod: Op = binary(
    "floor_mod", "x - floor(x / y) * y, with the sign of the divisor; x mod 0 = x for integers.", _floor_mod, kinds=REAL,
    kernel="floor_mod(x, y)", vjp=lambda b, x, y, node, g: (g, b(negate, b(multiply, g, b(floor, b(divide, x, y))))),
    domain=(1.1, 1.9), source="deepx mod",
)  # fmt: skip


def float_power(x: Array, y: Array, out: Array | None = None) -> Array:
    """x to the y as in C99. Where y is one half numpy may take a root, which is -0 of -0 and NaN of -inf."""
    if y.ndim == 0 and y != 0.5:
        return np.asarray(np.power(x, y, out=out))
    apart = (y == 0.5) & ((x == 0) | np.isinf(x))
    power = np.asarray(np.power(x, y, out=out))
    if apart.any():
        np.copyto(power, np.where(np.isnan(power), np.inf, np.abs(power)), where=apart, casting="same_kind")
    return power


def _power(xs: Sequence[Array]) -> Array:
    x, y = xs
    if not is_int(x):
        return like((np.power if x.dtype.kind == "c" else float_power)(x, y), x.dtype)
    negative = y < 0
    power = np.power(x, np.where(negative, np.zeros((), y.dtype), y))
    odd = (y & np.ones((), y.dtype)) == 1
    inverse = np.where(x == 1, 1, np.where(x == -1, np.where(odd, -1, 1), 0)) if x.dtype.kind == "i" else power
    return like(np.where(negative, inverse, power), x.dtype)


def _power_vjp(b: Builder, x: Node, y: Node, node: Node, g: Node) -> Sequence[Node]:
    one, zero = b.like(1, x), b.like(0, x)
    y_is_zero = b(compare, y, zero, direction="EQ")
    by_x = b(multiply, y, b(power, x, b(subtract, y, one)))
    x_is_zero = b(compare, x, zero, direction="EQ")
    log_x = b(select, x_is_zero, zero, b(log, b(select, x_is_zero, one, x)))
    return b(multiply, g, b(select, y_is_zero, zero, by_x)), b(multiply, g, b(multiply, node, log_x))


power: Op = binary("power", "x to the y; integer powers below 0 give 0 unless x is 1 or -1.", _power, kernel="pow(x, y)",
                   vjp=_power_vjp, identity=1, domain=(0.5, 2.0))


def _is_fixed(x: Node) -> bool:
    """Whether it is a constant, however it is shaped."""
    while x.op.view and len(x.inputs) == 1:
        x = x.inputs[0]
    return x.op is CONSTANT


def _winner_takes(direction: str) -> Callable[[Builder, Node, Node, Node, Node], Sequence[Node | None]]:
    """Maximum and minimum: the winner takes the gradient, a tie shares it. A constant needs no share of its own."""

    def vjp(b: Builder, x: Node, y: Node, node: Node, g: Node) -> Sequence[Node | None]:
        zero = b.like(0, g)
        if _is_fixed(x) or _is_fixed(y):
            free, bound = (y, x) if _is_fixed(x) else (x, y)
            wins = b(compare, node, bound, direction="NE") if g.type.dtype.kind == "complex" else None  # type: ignore[attr-defined]
            shared = b(select, b(compare, free, bound, direction="EQ"), b(multiply, g, b.like(0.5, g)), zero)
            taken = b(select, wins or b(compare, free, bound, direction=direction), g, shared)
            return (None, taken) if free is y else (taken, None)
        tie = b(compare, x, y, direction="EQ")
        half = b(multiply, g, b.like(0.5, g))
        x_wins, y_wins = (b(compare, node, operand, direction="EQ") for operand in (x, y))
        return tuple(b(select, tie, half, b(select, wins, g, zero)) for wins in (x_wins, y_wins))

    return vjp


maximum: Op = binary(
    "maximum", "The greater; NaN when either is, +0.0 of two zeros; complex numbers by their real parts; of bools, logical or.",
    ufunc(extremes.maximum),
    kernel="max(x, y)", kinds=EVERY,
    vjp=_winner_takes("GT"), commutative=True, associative=True, idempotent=True, identity=lowest,
    monoid=UfuncMonoid(extremes.maximum),
)  # fmt: skip
minimum: Op = binary(
    "minimum", "The lesser; NaN when either is, -0.0 of two zeros; complex numbers by their real parts; of bools, logical and.",
    ufunc(extremes.minimum),
    kernel="min(x, y)", kinds=EVERY,
    vjp=_winner_takes("LT"), commutative=True, associative=True, idempotent=True, identity=highest,
    monoid=UfuncMonoid(extremes.minimum),
)  # fmt: skip


def _atan2_vjp(b: Builder, x: Node, y: Node, node: Node, g: Node) -> Sequence[Node]:
    scaled = b(divide, g, b(add, b(multiply, x, x), b(multiply, y, y)))
    return b(multiply, scaled, y), b(negate, b(multiply, scaled, x))


atan2: Op = binary("atan2", "The angle of the point (rhs, lhs).", split(np.arctan2, complex_math.atan2), kinds=FLOATING,
                   element=loops_in("math", "formula_element"), vjp=_atan2_vjp, domain=(0.5, 2.0))

# --- logic --------------------------------------------------------------------------------------------------------


def _all_ones(dtype: DType) -> Any:
    return True if dtype is BOOL else (-1 if dtype.kind == "int" else (1 << dtype.bits) - 1)


and_: Op = binary(
    "and", "Logical and of bools, bitwise and of integers.", ufunc(np.bitwise_and), kernel="x & y", kinds=LOGICAL, commutative=True,
    associative=True, idempotent=True, identity=_all_ones, absorber=0, monoid=UfuncMonoid(np.bitwise_and),
)  # fmt: skip
or_: Op = binary(
    "or", "Logical or of bools, bitwise or of integers.", ufunc(np.bitwise_or), kernel="x | y", kinds=LOGICAL, commutative=True,
    associative=True, idempotent=True, identity=0, monoid=UfuncMonoid(np.bitwise_or),
)  # fmt: skip
xor: Op = binary(
    "xor", "Exclusive or of bools, bitwise exclusive or of integers.", ufunc(np.bitwise_xor), kernel="x ^ y", kinds=LOGICAL,
    commutative=True, associative=True, identity=0, monoid=UfuncMonoid(np.bitwise_xor),
)  # fmt: skip
not_: Op = unary("not", "Logical not of bools, bitwise of integers.", ufunc(np.invert), kernel="~x", kinds=LOGICAL,
                 involution=True)

# --- functions of one operand -------------------------------------------------------------------------------------

negate: Op = unary("negate", "The negative, -x.", ufunc(np.negative), kernel="-x", kinds=NUMERIC, involution=True,
                   vjp=lambda b, x, y, g: b(negate, g))


_PART = {C64: F32, C128: F64}
_WHOLE = {F32: C64, F64: C128}
_PARTS = dtypes(*_WHOLE)


def _complex_type(types: Sequence[Type]) -> Type:
    part = joint_type(types)
    return part.with_dtype(_WHOLE.get(part.dtype, ANY))


def _part_type(types: Sequence[Type]) -> Type:
    """That of the real part, or of the modulus; a real number is its own."""
    whole = as_tensor(types[0], 0)
    return whole.with_dtype(_PART.get(whole.dtype, whole.dtype))


def _complex(xs: Sequence[Array]) -> Array:
    real, imag = np.broadcast_arrays(*xs)
    out = np.empty(real.shape, np.complex64 if real.dtype.itemsize == 4 else np.complex128)
    out.real, out.imag = real, imag
    return out


def is_complex(type: Type) -> bool:
    """A tensor of complex numbers."""
    return isinstance(type, TensorType) and type.dtype.kind == "complex"


complex_: Op = Op(
    "complex", "The complex number of a real and an imaginary part.", operands=pair(_PARTS),
    algebraic=True, infer=_complex_type, eval=_complex, elementwise=True, source="StableHLO complex",
    element=loops_in("math", "complex_element"),
    vjp=lambda b, node, g: (b(real, g), b(negate, b(imag, g))),
)  # fmt: skip
real: Op = unary("real", "The real part.", lambda xs: xs[0].real.copy(), element=loops_in("math", "real_element"),
                 algebraic=True, infer=_part_type, vjp=lambda b, x, y, g: b(complex_, g, b.like(0, g)) if is_complex(x.type) else g)
imag: Op = unary(
    "imag", "The imaginary part; 0 for a real number.",
    lambda xs: xs[0].imag.copy(), element=loops_in("math", "imag_element"),
    algebraic=True, infer=_part_type,
    vjp=lambda b, x, y, g: b(complex_, b.like(0, g), b(negate, g)) if is_complex(x.type) else b.like(0, g),
)  # fmt: skip


def _abs(xs: Sequence[Array]) -> Array:
    return np.asarray(np.abs(xs[0]))


def _abs_vjp(b: Builder, x: Node, y: Node, g: Node) -> Node:
    """g sign(x); of a complex number g times the conjugate of its direction."""
    if as_tensor(x.type).dtype.kind != "complex":
        return b(multiply, g, b(sign, x))
    direction = b(sign, x)
    conjugate = b(complex_, b(real, direction), b(negate, b(imag, direction)))
    return b(multiply, b(complex_, g, b.like(0, g)), conjugate)


abs_: Op = unary("abs", "The absolute value; the modulus of a complex number.", _abs, kernel="abs(x)", infer=_part_type,
                 kinds=NUMERIC, vjp=_abs_vjp)


def _sign(xs: Sequence[Array]) -> Array:
    (x,) = xs
    if x.dtype.kind in "iu" or is_int(x):
        return like((x > 0).astype(np.int8) - (x < 0).astype(np.int8), x.dtype) if x.dtype.kind != "u" else like(x > 0, x.dtype)
    if x.dtype.kind == "c":
        return like(np.where(x == 0, x, x / np.abs(x)), x.dtype)
    return like(np.where((x == 0) | np.isnan(x), x, np.copysign(np.ones((), x.dtype), x)), x.dtype)


def _sign_vjp(b: Builder, x: Node, y: Node, g: Node) -> Node | None:
    """Zero; but of a complex number that of its direction: (g - conj(g y^2)) / 2|x|."""
    if as_tensor(x.type).dtype.kind != "complex":
        return None
    rotated = b(multiply, g, b(multiply, y, y))
    difference = b(subtract, g, b(complex_, b(real, rotated), b(negate, b(imag, rotated))))
    size = b(abs_, x)
    is_zero = b(compare, size, b.like(0, size), direction="EQ")
    twice = b(multiply, b(select, is_zero, b.like(1, size), size), b.like(2, size))
    return b(select, is_zero, b.like(0, g), b(divide, difference, b(complex_, twice, b.like(0, twice))))


sign: Op = unary("sign", "Minus one, zero or one; of a float zero or NaN the value itself.", _sign, kernel="sign(x)", kinds=NUMERIC,
                 vjp=_sign_vjp)
floor: Op = unary("floor", "Rounded down to an integer.", ufunc(np.floor), kernel="floor(x)", kinds=("float",),
                  vjp=flat)
ceil: Op = unary("ceil", "Rounded up to an integer.", ufunc(np.ceil), kernel="ceil(x)", kinds=("float",),
                 vjp=flat)
round_nearest_even: Op = unary(
    "round_nearest_even", "Rounded to the nearest integer, halves to the even one.", ufunc(np.rint), kernel="rint(x)",
    kinds=("float",), vjp=flat,
)  # fmt: skip
round_nearest_afz: Op = unary(
    "round_nearest_afz", "Rounded to the nearest integer, halves away from zero.",
    ufunc(lambda x: np.where(np.abs(x - np.trunc(x)) == 0.5, np.trunc(x) + np.copysign(np.ones((), x.dtype), x), np.rint(x))),
    kinds=("float",), element=loops_in("math", "formula_element"), vjp=flat,
)  # fmt: skip
exponential: Op = unary("exponential", "e to the x.", split(np.exp, complex_math.exp), kernel="exp(x)",
                       vjp=lambda b, x, y, g: b(multiply, g, y))
exponential_minus_one: Op = unary(
    "exponential_minus_one", "e to the x, minus 1, accurate near 0.", transcendental(np.expm1), kernel="expm1(x)",
    vjp=lambda b, x, y, g: b(multiply, g, b(add, y, b.like(1, y))),
)  # fmt: skip
log: Op = unary("log", "The natural logarithm.", transcendental(np.log), kernel="log(x)", domain=(0.3, 3.0),
                vjp=lambda b, x, y, g: b(divide, g, x))
log_plus_one: Op = unary("log_plus_one", "The logarithm of 1 + x, accurate near 0.", split(np.log1p, complex_math.log1p),
                         kernel="log1p(x)", domain=(-0.5, 2.0), vjp=lambda b, x, y, g: b(divide, g, b(add, x, b.like(1, x))))
sqrt: Op = unary("sqrt", "The square root.", transcendental(np.sqrt), kernel="sqrt(x)", domain=(0.3, 3.0),
                 vjp=lambda b, x, y, g: b(divide, b(multiply, g, b.like(0.5, g)), y))
rsqrt: Op = unary(
    "rsqrt", "One over the square root.", widened(lambda x: 1 / np.sqrt(x)), kernel="1 / sqrt(x)", domain=(0.3, 3.0),
    vjp=lambda b, x, y, g: b(multiply, b(multiply, g, b.like(-0.5, g)), b(divide, y, x)),
)  # fmt: skip
cbrt: Op = unary("cbrt", "The cube root.", split(np.cbrt, complex_math.cbrt), kernel="cbrt(x)", domain=(0.3, 3.0),
                 vjp=lambda b, x, y, g: b(divide, g, b(multiply, b.like(3, y), b(multiply, y, y))))
sine: Op = unary("sine", "The sine.", transcendental(np.sin), kernel="sin(x)",
                 vjp=lambda b, x, y, g: b(multiply, g, b(cosine, x)))
cosine: Op = unary("cosine", "The cosine.", transcendental(np.cos), kernel="cos(x)",
                   vjp=lambda b, x, y, g: b(negate, b(multiply, g, b(sine, x))))
tan: Op = unary("tan", "The tangent.", transcendental(np.tan), kernel="tan(x)", domain=(-1.2, 1.2),
                vjp=lambda b, x, y, g: b(multiply, g, b(add, b.like(1, y), b(multiply, y, y))))
tanh: Op = unary("tanh", "The hyperbolic tangent.", transcendental(np.tanh), kernel="tanh(x)",
                 vjp=lambda b, x, y, g: b(multiply, g, b(subtract, b.like(1, y), b(multiply, y, y))))


def _logistic(x: Array) -> Array:
    """e^x / (1 + e^x), which is subnormal where it has to be; above 40 it is 1 in every precision."""
    power = np.exp(np.minimum(x, x.dtype.type(40)))
    return np.asarray(power / (1 + power))


_LOGISTIC = "exp(where(40 < x, 40, x)) / (1 + exp(where(40 < x, 40, x)))"
"""As `_logistic`. The lesser of both in the form that is one instruction and lets NaN through."""

logistic: Op = unary(
    "logistic", "1 / (1 + e^-x).", widened(_logistic, complex_math.logistic), kernel=_LOGISTIC,
    vjp=lambda b, x, y, g: b(multiply, g, b(multiply, y, b(subtract, b.like(1, y), y))),
)  # fmt: skip
is_finite: Op = unary("is_finite", "Whether neither infinite nor NaN.", lambda xs: np.asarray(np.isfinite(xs[0])),
                      infer=truth, kinds=("float",), operand="x",
                      results=(Result("y", type=BOOLS),), kernel="abs(x) < 1e999")

# --- comparison, selection, conversion ----------------------------------------------------------------------------

_COMPARE: dict[str, tuple[np.ufunc, Expr]] = {
    "EQ": (np.equal, expr("x == y", "x", "y")), "NE": (np.not_equal, expr("x != y", "x", "y")),
    "LT": (np.less, expr("x < y", "x", "y")), "LE": (np.less_equal, expr("x <= y", "x", "y")),
    "GT": (np.greater, expr("x > y", "x", "y")), "GE": (np.greater_equal, expr("x >= y", "x", "y")),
}  # fmt: skip


COMPARE_TYPES = ("", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")


def _total_order(x: Array) -> Array:
    """Integers in the order -NaN < -inf < ... < -0 < 0 < ... < inf < NaN."""
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").reshape(x.shape)
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _compare(xs: Sequence[Array], direction: str, compare_type: str) -> Array:
    x, y = map(_total_order, xs) if compare_type == "TOTALORDER" else xs
    return np.asarray(_COMPARE[direction][0](x, y), dtype=np.bool_)


def _compare_element(b: Any, node: Node, xs: Sequence[Any], at: Sequence[Any]) -> Any:
    direction, compare_type = node.attrs
    sides = [x.at(b, at if x.shape else ()) for x in xs]
    if compare_type == "TOTALORDER":
        sides = [b.total_order(x) for x in sides]
    return b.expression(_COMPARE[direction][1], sides, BOOL)


compare: Op = Op(
    "compare", "Whether lhs stands in the given relation to rhs.", operands=pair(tensor_of(*EVERY)),
    attrs=(
        Attr("direction", "str", check=one_of(*_COMPARE)),
        Attr("compare_type", "str", "", "TOTALORDER orders all floats, -0 below 0 and NaN last", check=one_of(*COMPARE_TYPES)),
    ),
    constraints=(
        Relation("floats, for compare_type TOTALORDER", ("lhs", "compare_type"),
                 lambda x, kind: kind != "TOTALORDER" or FLOATS.holds(x)),
        Relation("direction EQ or NE, for complex numbers", ("lhs", "direction"),
                 lambda x, direction: direction in ("EQ", "NE") or ORDERED.holds(x)),
    ),
    infer=truth, algebraic=True, eval=_compare,
    kernel=lambda direction, compare_type: None if compare_type == "TOTALORDER" else _COMPARE[direction][1],
    element=_compare_element, elementwise=True, assembly="$direction, operands",
    results=(Result(type=BOOLS),), source="StableHLO compare",
    samples=lambda rng: [((rng.integers(0, 3, (2, 3)).astype("f4"), rng.integers(0, 3, (2, 3)).astype("f4")),
                          {"direction": d, "compare_type": t}) for d in _COMPARE for t in ("", "TOTALORDER")],
)  # fmt: skip


def _select_type(types: Sequence[Type]) -> Type:
    pred = as_tensor(types[0], 0)
    values = joint_type(types[1:])
    return joint_type([pred.with_dtype(values.dtype), values])


def _select_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    zero = b.like(0, g)
    return None, b(select, node.inputs[0], g, zero), b(select, node.inputs[0], zero, g)


select: Op = Op(
    "select", "on_true where pred holds, else on_false.",
    operands=(Operand("pred", type=BOOLS), Operand("on_true", type=TENSOR), Operand("on_false", type=TENSOR)),
    infer=_select_type, eval=lambda xs: np.asarray(np.where(xs[0], xs[1], xs[2]), dtype=xs[1].dtype),
    kernel=lambda: expr("where(p, x, y)", "p", "x", "y"), vjp=_select_vjp, elementwise=True,
    samples=lambda rng: [((rng.random((2, 3)) < 0.5, rng.random((2, 3)), rng.random((2, 3))), {})],
    source="StableHLO select",
)  # fmt: skip


def _clamp_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    """As JAX's, but that the lower of two equal bounds has the slope below them, where JAX gives it to neither."""
    low, x, high = node.inputs
    above, below = b(compare, x, low, direction="GT"), b(compare, x, high, direction="LT")
    zero = b.like(0, g)
    inside = b(and_, above, below)
    at_low = b(and_, b(compare, x, low, direction="LT"), b(compare, low, high, direction="LE"))
    at_high = b(or_, b(compare, x, high, direction="GT"), b(compare, low, high, direction="GT"))
    return b(select, at_low, g, zero), b(select, inside, g, zero), b(select, at_high, g, zero)


clamp: Op = Op(
    "clamp", "operand kept between min and max.", operands=tuple(Operand(n, type=ORDERED) for n in ("min", "operand", "max")),
    infer=lambda types: joint_type([types[1], types[0], types[2]]),
    eval=lambda xs: like(extremes.minimum(np.asarray(extremes.maximum(xs[1], xs[0])), xs[2]), xs[1].dtype),
    kernel=lambda: expr("min(max(x, lo), hi)", "lo", "x", "hi"), vjp=_clamp_vjp, elementwise=True, ordered=("min", "max"),
    source="StableHLO clamp",
    samples=lambda rng: [((np.float64(-0.5), rng.uniform(-1, 1, (2, 3)), np.float64(0.5)), {})],
)  # fmt: skip


def convert_array(x: Array, dtype: DType) -> Array:
    """`x` in another dtype: floats to integers truncate, saturate and make NaN 0; integers wrap; to bool is `x != 0`."""
    assert dtype.np is not None
    if dtype is BOOL:
        return np.asarray(x != 0)
    if x.dtype.kind == "c" and dtype.kind != "complex":
        x = x.real
    if dtype.is_integer and not is_int(x) and x.dtype.kind != "b" and dtype.bits <= 32:  # whose ends are doubles
        wide = np.array(x, np.float64)
        wide[np.isnan(wide)] = 0
        np.clip(wide, lowest(dtype), highest(dtype), out=wide)
        return wide.astype(np.int32 if dtype.bits < 8 else dtype.np).astype(dtype.np, copy=False)
    if dtype.is_integer and not is_int(x) and x.dtype.kind != "b":
        wide = x.astype(np.float64)
        info_low, info_high = lowest(dtype), highest(dtype)
        clipped = np.where(np.isnan(wide), 0.0, np.trunc(wide))
        inside = np.where((clipped >= float(info_low)) & (clipped < float(info_high)), clipped, 0.0).astype(
            np.uint64 if dtype.kind == "uint" else np.int64
        )
        result = np.where(clipped < float(info_low), info_low, np.where(clipped >= float(info_high), info_high, inside))
        return result.astype(np.uint64 if dtype.kind == "uint" else np.int64).astype(dtype.np)
    if x.itemsize == 1 and x.dtype.kind != "b":  # numpy cannot cast between all pairs of these
        x = x.astype(np.int16 if is_int(x) else np.float32)
    return np.asarray(x.astype(dtype.np))


def _convert_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    operand = node.inputs[0].type
    assert isinstance(operand, TensorType)
    return (b(convert, g, dtype=operand.dtype) if operand.dtype.is_differentiable else None,)


convert: Op = Op(
    "convert", "The same values in another element type; floats truncate toward zero and saturate to become integers.",
    operands=one(TENSOR), attrs=(dtype_attr(),),
    infer=lambda types, dtype: as_tensor(types[0], 0).with_dtype(dtype), eval=lambda xs, dtype: convert_array(xs[0], dtype),
    kernel=lambda dtype: Apply("cast", (Variable(0),)), vjp=_convert_vjp, elementwise=True, source="StableHLO convert",
    samples=lambda rng: [((rng.uniform(-3, 3, (2, 3)),), {"dtype": d}) for d in DTYPES if d is not ANY],
)  # fmt: skip
