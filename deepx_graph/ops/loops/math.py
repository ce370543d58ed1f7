"""Elements of operations on numbers that are no kernel expressions: formulas of others, bits, parts of complex numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.loops import LazyTensor, LoopBuilder, NotExpressible, ScalarConst, call
from deepx_graph.loops.arithmetic import divided
from deepx_graph.loops.builder import computed_dtype
from deepx_graph.loops.complex import Complex
from deepx_graph.loops.complex import apply as of_complex
from deepx_graph.loops.elements import scalars, settled, tensor_type
from deepx_graph.loops.scalar import Affine, Index, Scalar
from deepx_graph.loops.storage import widened
from deepx_graph.ops.decompositions import DECOMPOSITIONS, FOR_SINGLE
from deepx_graph.types import F64, DType, dtype_named, scalar

Operands = Sequence[LazyTensor]


# --- formulas -------------------------------------------------------------------------------------------------------


def formula_element(b: LoopBuilder, node: Node, xs: Operands, at: Index) -> Any:
    """The op's decomposition, of scalars; of complex numbers the rule of its name."""
    values = scalars(b, xs, at)
    if any(isinstance(v, Complex) for v in values):
        return of_complex(b, node.op.name, values)
    return _by_formula(b, node, values, tuple(x.dtype for x in xs))


def double_element(b: LoopBuilder, node: Node, xs: Operands, at: Index) -> Any:
    """The decomposition in double precision, rounded once: that of single precision is not accurate enough."""
    dtype = tensor_type(node.type).dtype
    values = [b.cast(x, F64) for x in scalars(b, xs, at)]
    found = _by_formula(b, node, values, (F64,) * len(xs), rounded=dtype is not F64)
    return settled(b, b.cast(found, computed_dtype(dtype)), dtype)


def single_element(b: LoopBuilder, node: Node, xs: Operands, at: Index) -> Any:
    """As `double_element`. Raises NotExpressible for operands in double precision, of which the decomposition is not accurate."""
    if xs[0].dtype is F64:
        raise NotExpressible(f"{node.op.name} of f64")
    return double_element(b, node, xs, at)


def lgamma_element(b: LoopBuilder, node: Node, xs: Operands, at: Index) -> Any:
    """In double precision the C library's."""
    if xs[0].dtype is F64:
        return b.apply("lgamma", *scalars(b, xs, at))
    return double_element(b, node, xs, at)


def _by_formula(b: LoopBuilder, node: Node, values: Sequence[Any], dtypes: tuple[DType, ...], *, rounded: bool = False) -> Any:
    (found,) = call(b, _formula(node.op, dtypes, rounded), values)
    return found


@cache
def _formula(op: Op, dtypes: tuple[DType, ...], rounded: bool) -> Function:
    """The decomposition of an op without attributes, as a function of scalars, of f64 also one whose result is `rounded` to f32.
    Raises NotExpressible where it has none of these."""
    b = Builder()
    params = [b.param(k, scalar(d)) for k, d in enumerate(dtypes)]
    formula = (FOR_SINGLE if rounded else DECOMPOSITIONS).get(op, DECOMPOSITIONS[op])
    made = formula(b, *params)
    if made is None:
        raise NotExpressible(f"{op.name} of {dtypes[0]}")
    return Function(op.name, tuple(params), (made,))


# --- arithmetic -----------------------------------------------------------------------------------------------------


def remainder_element(b: LoopBuilder, node: Node, xs: Operands, at: Index) -> Any:
    """With the sign of the dividend; of integers the dividend itself for the divisor 0."""
    x, y = scalars(b, xs, at)
    if xs[0].dtype.is_float:
        return b.apply("fmod", x, y)
    return divided(b, "modulo", x, y, x, _number(0, x.dtype))


def _number(value: Any, dtype: DType) -> ScalarConst:
    assert dtype.np is not None
    return ScalarConst(dtype.np.type(value), dtype)


# --- complex numbers ------------------------------------------------------------------------------------------------


def complex_element(b: LoopBuilder, node: Node, xs: Operands, at: Index) -> Any:
    """Of its parts."""
    real, imag = scalars(b, xs, at)
    return Complex(real, imag)


def real_element(b: LoopBuilder, node: Node, xs: Operands, at: Index) -> Any:
    """A real number is its own."""
    (x,) = scalars(b, xs, at)
    return x.real if isinstance(x, Complex) else x


def imag_element(b: LoopBuilder, node: Node, xs: Operands, at: Index) -> Any:
    """0 for a real number."""
    (x,) = scalars(b, xs, at)
    return x.imag if isinstance(x, Complex) else _number(0, x.dtype)


# --- bits -----------------------------------------------------------------------------------------------------------


def popcnt_element(b: LoopBuilder, node: Node, xs: Operands, at: Index) -> Any:
    """The number of one bits."""
    return b.apply("popcount", *scalars(b, xs, at))


def clz_element(b: LoopBuilder, node: Node, xs: Operands, at: Index) -> Any:
    """The number of zeros before the first one bit."""
    return b.apply("clz", *scalars(b, xs, at))


def bitcast_element(b: LoopBuilder, node: Node, xs: Operands, at: Index) -> Any:
    """A wider element from its parts along the last axis, the lowest first; a narrower one is such a part."""
    (x,), target = xs, tensor_type(node.type).dtype
    if {x.dtype.kind, target.kind} & {"bool", "complex"} or min(x.dtype.bits, target.bits) < 8:
        raise NotExpressible(f"the bits of {x.dtype} as {target}")
    old, new = (dtype_named(f"u{d.bits}") for d in (x.dtype, target))
    if old.bits == new.bits:
        raw = _raw(b, x, at, old)
    elif old.bits > new.bits:
        amount = b.number(at[-1] * new.bits, old)
        raw = b.cast(b.apply("lshr", _raw(b, x, at[:-1], old), amount), new)
    else:
        raw = _number(0, new)
        for k in range(new.bits // old.bits):
            part = b.cast(_raw(b, x, (*at, Affine((), k)), old), new)
            raw = b.apply("or", raw, b.apply("shl", part, _number(k * old.bits, new)))
    return widened(b, _as_bits(b, raw, target), target)


def _raw(b: LoopBuilder, x: LazyTensor, at: Index, whole: DType) -> Any:
    """The bits of an element."""
    return _as_bits(b, b.load(x.buffer, at) if x.buffer is not None else b.rounded(x.at(b, at), x.dtype), whole)


def _as_bits(b: LoopBuilder, x: Scalar, dtype: DType) -> Any:
    return x if x.dtype is dtype else b.apply("bitcast", x, dtype=dtype)


def reduce_precision_element(b: LoopBuilder, node: Node, xs: Operands, at: Index) -> Any:
    """The mantissa rounded among the bits of a double; then what has no exponent is infinite, or zero."""
    exponent_bits, mantissa_bits = node.attrs
    dtype = xs[0].dtype
    x = b.cast(xs[0].at(b, at), F64)
    rounded = _rounded_mantissa(b, x, 52 - mantissa_bits)
    bias = (1 << (exponent_bits - 1)) - 1
    largest = math.ldexp(2.0 - math.ldexp(1.0, -mantissa_bits), min(bias, 1023))
    smallest = math.ldexp(1.0, max(1 - bias, -1074))
    size = b.apply("abs", rounded)
    above, below = b.apply("lt", _number(largest, F64), size), b.apply("lt", size, _number(smallest, F64))
    found = b.apply("where", above, b.apply("copysign", _number(math.inf, F64), x), rounded)
    found = b.apply("where", below, b.apply("copysign", _number(0.0, F64), x), found)
    found = b.apply("where", b.apply("lt", b.apply("abs", x), _number(math.inf, F64)), found, x)
    return settled(b, b.cast(found, computed_dtype(dtype)), dtype)


def _rounded_mantissa(b: LoopBuilder, x: Scalar, dropped: int) -> Any:
    """To the nearest number whose last bits are zeros, ties to even."""
    if dropped <= 0:
        return x
    whole = dtype_named("u64")
    bits = b.apply("bitcast", x, dtype=whole)
    odd = b.apply("and", b.apply("lshr", bits, _number(dropped, whole)), _number(1, whole))
    half = b.apply("add", odd, _number((1 << (dropped - 1)) - 1, whole))
    kept = b.apply("and", b.apply("add", bits, half), _number((1 << 64) - (1 << dropped), whole))
    return b.apply("bitcast", kept, dtype=F64)
