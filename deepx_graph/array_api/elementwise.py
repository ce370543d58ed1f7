"""Elementwise functions of the standard, and the operators of arrays that are these functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from deepx_graph import ops
from deepx_graph.array_api.array import Array, C, as_array, cast, elementwise, promoted, shaped_alike
from deepx_graph.array_api.errors import ArrayTypeError
from deepx_graph.ir import Op
from deepx_graph.types import BOOL, I16, I32, I64, DType
from deepx_graph.types.dtypes import C64, F32, F64

Unary = Callable[[Array], Array]
Binary = Callable[[Any, Any], Array]


def _named(function: Any, name: str, doc: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc[0].upper()}{doc[1:]}, elementwise. Of the array's shape and dtype." if doc else None
    return function


def _floating(x: Any) -> Array:
    """The array, of a floating dtype: integers as the default one."""
    x = as_array(x)
    return x if x.dtype.is_differentiable else cast(x, F64)


def _function(name: str, op: Op, doc: str) -> Unary:
    """A function of floating numbers."""
    return _named(lambda x, /: elementwise(op, _floating(x)), name, doc)  # type: ignore[no-any-return]


def _exponential(name: str, op: Op, least: int) -> Unary:
    """An exponential, of complex numbers as C99 has it (Annex G): `least` far to the left, real on the real axis."""

    def function(x: Any, /) -> Array:
        x = _floating(x)
        y = elementwise(op, x)
        if x.dtype.kind != "complex":
            return y
        re, im = real(x), imag(x)
        flat, wild = equal(im, 0), logical_not(isfinite(im))
        parts = [where(flat, elementwise(op, re), real(y)) + 0.0, where(flat, im, imag(y))]
        for end, limits in ((-math.inf, (least, 0)), (math.inf, (math.inf, math.nan))):
            there = logical_and(wild, equal(re, end))
            parts = [where(there, limit, part) for part, limit in zip(parts, limits, strict=True)]
        return Array(C(ops.complex_, *(part.node for part in parts)))

    words = "exponential" if least == 0 else "exp(x) - 1"
    return _named(function, name, words)  # type: ignore[no-any-return]


def _whole(name: str, op: Op, doc: str) -> Unary:
    """Rounding, which leaves integers as they are."""
    return _named(lambda x, /: elementwise(op, x) if as_array(x).dtype.is_float else as_array(x), name, doc)  # type: ignore[no-any-return]


def _pair(name: str, op: Op, doc: str) -> Binary:
    def function(x1: Any, x2: Any, /) -> Array:
        return elementwise(op, x1, x2)

    return _named(function, name, doc)  # type: ignore[no-any-return]


def _compared(name: str, direction: str, doc: str) -> Binary:
    def function(x1: Any, x2: Any, /) -> Array:
        return elementwise(ops.compare, x1, x2, direction=direction)

    function = _named(function, name, doc)
    function.__doc__ = f"{doc}, elementwise, as bool."
    return function


acos, acosh = _function("acos", ops.acos, "inverse cosine"), _function("acosh", ops.acosh, "inverse hyperbolic cosine")
asin, asinh = _function("asin", ops.asin, "inverse sine"), _function("asinh", ops.asinh, "inverse hyperbolic sine")
atan, atanh = _function("atan", ops.atan, "inverse tangent"), _function("atanh", ops.atanh, "inverse hyperbolic tangent")
cos, cosh = _function("cos", ops.cosine, "cosine"), _function("cosh", ops.cosh, "hyperbolic cosine")
sin, sinh = _function("sin", ops.sine, "sine"), _function("sinh", ops.sinh, "hyperbolic sine")
tan, tanh = _function("tan", ops.tan, "tangent"), _function("tanh", ops.tanh, "hyperbolic tangent")
exp, expm1 = _exponential("exp", ops.exponential, 0), _exponential("expm1", ops.exponential_minus_one, -1)
log, log1p = _function("log", ops.log, "natural logarithm"), _function("log1p", ops.log_plus_one, "log(1 + x)")
sqrt = _function("sqrt", ops.sqrt, "square root")
floor, ceil = _whole("floor", ops.floor, "the next integer below"), _whole("ceil", ops.ceil, "the next integer above")

add, subtract = _pair("add", ops.add, "sum"), _pair("subtract", ops.subtract, "difference")
multiply = _pair("multiply", ops.multiply, "product")
maximum, minimum = _pair("maximum", ops.maximum, "the greater"), _pair("minimum", ops.minimum, "the smaller")
atan2 = _pair("atan2", ops.atan2, "angle of the point (x2, x1)")
nextafter = _pair("nextafter", ops.next_after, "the next number towards x2")
bitwise_and, bitwise_or = _pair("bitwise_and", ops.and_, "and of bits"), _pair("bitwise_or", ops.or_, "or of bits")
bitwise_xor = _pair("bitwise_xor", ops.xor, "exclusive or of bits")
equal, not_equal = _compared("equal", "EQ", "x1 == x2"), _compared("not_equal", "NE", "x1 != x2")
less, less_equal = _compared("less", "LT", "x1 < x2"), _compared("less_equal", "LE", "x1 <= x2")
greater, greater_equal = _compared("greater", "GT", "x1 > x2"), _compared("greater_equal", "GE", "x1 >= x2")


def abs(x: Any, /) -> Array:
    """Magnitude, elementwise; of complex numbers as floats."""
    x = as_array(x)
    return x if x.dtype.kind in ("uint", "bool") else Array(C(ops.abs_, x.node))


def positive(x: Any, /) -> Array:
    """The array itself."""
    return as_array(x)


def negative(x: Any, /) -> Array:
    """-x, elementwise."""
    return elementwise(ops.negate, x)


def square(x: Any, /) -> Array:
    """x * x, elementwise."""
    return multiply(x, x)


def reciprocal(x: Any, /) -> Array:
    """1 / x, elementwise."""
    return divide(1, _floating(x))


def conj(x: Any, /) -> Array:
    """Complex conjugate, elementwise; real numbers as they are."""
    x = as_array(x)
    return Array(C(ops.conj, x.node)) if x.dtype.kind == "complex" else x


def real(x: Any, /) -> Array:
    """The real parts, as floats."""
    x = as_array(x)
    return Array(C(ops.real, x.node)) if x.dtype.kind == "complex" else x


def imag(x: Any, /) -> Array:
    """The imaginary parts, as floats."""
    x = as_array(x)
    return Array(C(ops.imag, x.node)) if x.dtype.kind == "complex" else multiply(x, 0)


def _of_parts(function: Unary, x: Array) -> Array:
    parts = (function(Array(C(part, x.node))).node for part in (ops.real, ops.imag))
    return Array(C(ops.complex_, *parts))


def round(x: Any, /) -> Array:
    """The nearest integer, the even one of two, elementwise; of complex numbers each part."""
    x = as_array(x)
    if x.dtype.kind == "complex":
        return _of_parts(round, x)
    return elementwise(ops.round_nearest_even, x) if x.dtype.is_float else x


def trunc(x: Any, /) -> Array:
    """The next integer towards zero, elementwise."""
    x = as_array(x)
    return copysign(floor(abs(x)), x) if x.dtype.is_float else x


def sign(x: Any, /) -> Array:
    """-1, 0 or 1, elementwise; x / |x| of complex numbers."""
    x = as_array(x)
    if x.dtype.kind == "complex":
        zero = equal(x, 0)
        return choose(zero, 0, divide(x, choose(zero, 1, cast(abs(x), x.dtype))))
    if x.dtype.kind == "uint":
        return cast(not_equal(x, 0), x.dtype)
    return choose(equal(x, 0), 0, elementwise(ops.sign, x))


_BITS = {16: I16, 32: I32, 64: I64}


def signbit(x: Any, /) -> Array:
    """Whether the sign bit is set, of -0 and NaN too, elementwise."""
    x = as_array(x)
    if not x.dtype.is_float:
        raise ArrayTypeError(f"elements of {x.dtype} have no sign bit")
    return less(Array(C(ops.bitcast_convert, x.node, dtype=_BITS[x.dtype.bits])), 0)


def copysign(x1: Any, x2: Any, /) -> Array:
    """The magnitude of x1 with the sign of x2, elementwise."""
    a, b = promoted(x1, x2)
    magnitude = abs(a)
    return choose(signbit(b), negative(magnitude), magnitude)


def isnan(x: Any, /) -> Array:
    """Whether an element, or a part of it, is NaN, as bool."""
    return not_equal(x, x)


def _of_finite(x: Any, otherwise: bool, of_float: Unary, joined: Op) -> Array:
    x = as_array(x)
    if x.dtype.kind == "complex":
        return elementwise(joined, of_float(real(x)), of_float(imag(x)))
    return of_float(x) if x.dtype.is_float else choose(equal(x, x), otherwise, otherwise)


def isfinite(x: Any, /) -> Array:
    """Whether an element is neither infinite nor NaN, as bool."""
    return _of_finite(x, True, lambda f: elementwise(ops.is_finite, f), ops.and_)


def isinf(x: Any, /) -> Array:
    """Whether an element, or a part of it, is infinite, as bool."""
    return _of_finite(x, False, lambda f: elementwise(ops.is_inf, f), ops.or_)


def log2(x: Any, /) -> Array:
    """Logarithm to the base 2, elementwise."""
    return divide(log(x), math.log(2.0))


def log10(x: Any, /) -> Array:
    """Logarithm to the base 10, elementwise."""
    return divide(log(x), math.log(10.0))


def logaddexp(x1: Any, x2: Any, /) -> Array:
    """log(exp(x1) + exp(x2)) without overflow, elementwise."""
    a, b = (_floating(x) for x in promoted(x1, x2))
    more = log1p(exp(negative(abs(subtract(a, b)))))
    return choose(equal(a, b), add(a, math.log(2.0)), add(maximum(a, b), more))


def hypot(x1: Any, x2: Any, /) -> Array:
    """sqrt(x1**2 + x2**2) without overflow, elementwise."""
    a, b = (abs(_floating(x)) for x in promoted(x1, x2))
    most, least = maximum(a, b), minimum(a, b)
    ratio = divide(least, choose(equal(most, 0), 1.0, most))
    found = multiply(most, sqrt(add(1.0, multiply(ratio, ratio))))
    return choose(logical_or(isinf(a), isinf(b)), math.inf, found)


def divide(x1: Any, x2: Any, /) -> Array:
    """x1 / x2, elementwise; of integers as floats."""
    a, b = promoted(x1, x2)
    return elementwise(ops.divide, _floating(a), _floating(b))


def floor_divide(x1: Any, x2: Any, /) -> Array:
    """x1 / x2 rounded down, elementwise."""
    a, b = promoted(x1, x2)
    if a.dtype.is_float:
        return floor(divide(a, b))
    quotient = elementwise(ops.divide, a, b)
    if a.dtype.kind == "uint":
        return quotient
    rest = elementwise(ops.remainder, a, b)
    below = logical_and(not_equal(rest, 0), not_equal(less(rest, 0), less(b, 0)))
    return choose(below, subtract(quotient, 1), quotient)


def remainder(x1: Any, x2: Any, /) -> Array:
    """What is left of x1 / x2 rounded down, with the sign of x2, elementwise."""
    return elementwise(ops.floor_mod, x1, x2)


def pow(x1: Any, x2: Any, /) -> Array:
    """x1 to the power x2, elementwise."""
    return elementwise(ops.power, x1, x2)


def bitwise_invert(x: Any, /) -> Array:
    """The bits inverted; of bool, not x."""
    return elementwise(ops.not_, x)


def bitwise_left_shift(x1: Any, x2: Any, /) -> Array:
    """The bits of x1 shifted left, elementwise."""
    return elementwise(ops.shift_left, x1, x2)


def bitwise_right_shift(x1: Any, x2: Any, /) -> Array:
    """The bits of x1 shifted right, keeping the sign, elementwise."""
    a, b = promoted(x1, x2)
    return elementwise(ops.shift_right_logical if a.dtype.kind == "uint" else ops.shift_right_arithmetic, a, b)


def truth(x: Any) -> Array:
    """The array as bool: what is not zero."""
    x = as_array(x)
    return x if x.dtype is BOOL else not_equal(x, 0)


def logical_and(x1: Any, x2: Any, /) -> Array:
    """x1 and x2, elementwise, as bool."""
    return elementwise(ops.and_, truth(x1), truth(x2))


def logical_or(x1: Any, x2: Any, /) -> Array:
    """x1 or x2, elementwise, as bool."""
    return elementwise(ops.or_, truth(x1), truth(x2))


def logical_xor(x1: Any, x2: Any, /) -> Array:
    """Exclusive or, elementwise, as bool."""
    return elementwise(ops.xor, truth(x1), truth(x2))


def logical_not(x: Any, /) -> Array:
    """Not x, elementwise, as bool."""
    return elementwise(ops.not_, truth(x))


def clip(x: Any, /, min: Any = None, max: Any = None) -> Array:
    """The elements within bounds, of the dtype of x. Either bound may be None, or an array that broadcasts."""
    x = as_array(x)
    for bound, op in ((min, ops.maximum), (max, ops.minimum)):
        if bound is not None:
            found = elementwise(op, x, bound)
            x = found if found.dtype is x.dtype else cast(found, x.dtype)
    return Array(x.node)


def choose(condition: Array, x1: Any, x2: Any) -> Array:
    """Elements of x1 where the condition is true, of x2 elsewhere, all broadcast."""
    a, b = promoted(x1, x2)
    nodes = shaped_alike(condition, a, b)
    dims = next((d for n in nodes if (d := C.dims_of(n))), ())
    if C.dims_of(nodes[0]) == () or dims == ():
        nodes = [C.filled(n, dims) for n in nodes]
    return Array(C(ops.select, *nodes))


def where(condition: Array, x1: Any, x2: Any, /) -> Array:
    """Elements of x1 where the condition is true, of x2 elsewhere; all broadcast to one shape."""
    return choose(as_array(condition), x1, x2)


def real_dtype(dtype: DType) -> DType:
    """The dtype of the parts of complex numbers; any other as it is."""
    return {C64: F32}.get(dtype, F64) if dtype.kind == "complex" else dtype


_OPERATORS: dict[str, Binary] = {
    "add": add, "sub": subtract, "mul": multiply, "truediv": divide, "floordiv": floor_divide, "mod": remainder, "pow": pow,
    "and": bitwise_and, "or": bitwise_or, "xor": bitwise_xor, "lshift": bitwise_left_shift, "rshift": bitwise_right_shift,
}  # fmt: skip
_COMPARISONS: dict[str, Binary] = {"eq": equal, "ne": not_equal, "lt": less, "le": less_equal, "gt": greater, "ge": greater_equal}
_SIGNS: dict[str, Unary] = {"neg": negative, "pos": positive, "abs": abs, "invert": bitwise_invert}


def _operator(function: Binary, swapped: bool = False) -> Any:
    def method(self: Array, other: Any, /) -> Any:
        if not _is_operand(other):
            return NotImplemented
        return function(other, self) if swapped else function(self, other)

    return method


def _is_operand(other: Any) -> bool:
    return isinstance(other, (Array, bool, int, float, complex)) or hasattr(other, "__array__")


for _name, _binary in _OPERATORS.items():
    setattr(Array, f"__{_name}__", _operator(_binary))
    setattr(Array, f"__r{_name}__", _operator(_binary, swapped=True))
for _name, _binary in _COMPARISONS.items():
    setattr(Array, f"__{_name}__", _operator(_binary))
for _name, _unary in _SIGNS.items():
    setattr(Array, f"__{_name}__", _unary)
