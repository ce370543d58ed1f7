"""How each kernel primitive, and each reduction, is lowered to numpy.

A primitive is lowered only for dtypes where it means exactly what the op's eval means; `lower_primitive` raises Declined for the
others (narrow floats, complex numbers, integer quotients), which are then done by the op's eval on blocks.

A reduction is one loop of numpy's where that loses nothing, which adds the elements of a row pairwise; else as `Monoid.quickly`
does it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from deepx_graph.ir import Op
from deepx_graph.ir.evaluation import in_blocks
from deepx_graph.ops.contract.monoid import UfuncMonoid
from deepx_graph.ops.math.elementwise import float_power
from deepx_graph.ops.math.extremes import Extreme, maximum, minimum
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.kernels.costs import MASK_ELEMENTS
from deepx_graph.runtime.kernels.program import Array, Shape, StepFunction

DTypeLike = np.dtype[Any]

WIDE_FLOATS = frozenset(map(np.dtype, ("f4", "f8")))
INTEGERS = frozenset(np.dtype(f"{s}{n}") for s in "iu" for n in (1, 2, 4, 8))
BOOL = frozenset((np.dtype(np.bool_),))
NUMBERS = WIDE_FLOATS | INTEGERS
ALL = NUMBERS | BOOL

_OF_ALL: dict[str, Callable[..., Any]] = {
    "add": np.add, "mul": np.multiply, "max": maximum, "min": minimum, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_NUMERIC: dict[str, Callable[..., Any]] = {"sub": np.subtract, "neg": np.negative, "abs": np.absolute}
_FLOATING: dict[str, Callable[..., Any]] = {
    "div": np.divide, "floor": np.floor, "ceil": np.ceil, "pow": float_power, "floor_mod": np.mod, "exp": np.exp, "expm1": np.expm1,
    "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh,
}  # fmt: skip
_BITWISE: dict[str, Callable[..., Any]] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert}

_LOWERINGS: dict[str, tuple[Callable[..., Any], frozenset[DTypeLike]]] = {
    **{name: (f, ALL) for name, f in _OF_ALL.items()},
    **{name: (f, NUMBERS) for name, f in _NUMERIC.items()},
    **{name: (f, WIDE_FLOATS) for name, f in _FLOATING.items()},
    **{name: (f, INTEGERS | BOOL) for name, f in _BITWISE.items()},
    "shl": (np.left_shift, INTEGERS),  # numpy's shifts by the width or more leave no bit but copies of the sign
    "ashr": (np.right_shift, frozenset(d for d in INTEGERS if d.kind == "i")),
    "lshr": (np.right_shift, frozenset(d for d in INTEGERS if d.kind == "u")),
}  # fmt: skip
"""The function of a primitive, which may be given where to write, and the dtypes of operands for which it is exact."""

PREDICATES = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))

F32 = np.dtype(np.float32)
HALF = np.dtype(np.float16)
UNROUNDED = PREDICATES | {"neg", "abs", "floor", "ceil", "max", "min", "where"}
"""What computes of f32 that are values of a narrow float one of them."""
_BASIC = frozenset(("add", "sub", "mul", "div", "sqrt"))
"""Of f32 and rounded to a narrow float they are the narrow operation, as f32 has twice its digits and two more (Figueroa 1995)."""
ROUNDED: dict[DTypeLike, frozenset[str]] = {
    HALF: _BASIC, np.dtype(bfloat16): _BASIC | {"exp", "expm1", "log", "log1p", "sin", "cos", "tan", "tanh"},
}  # fmt: skip
"""What of narrow floats is computed in f32 and rounded, to the bits of the op's eval."""


def lower_primitive(primitive: str, dtypes: Sequence[DTypeLike]) -> StepFunction:
    """Arithmetic or a comparison of operands of these dtypes. Raises Declined where numpy has no exact one."""
    function, exact = _LOWERINGS.get(primitive, (None, frozenset()))
    if function is None or len(set(dtypes)) != 1 or dtypes[0] not in exact:
        raise Declined("no exact lowering")
    value = function.ufunc if isinstance(function, Extreme) and dtypes[0] not in WIDE_FLOATS else function
    return StepFunction(function, value)


def _copy(x: Array, out: Array) -> None:
    np.copyto(out, x, casting="unsafe")


def _full(shape: Shape, dtype: DTypeLike, x: Any) -> Array:
    out = np.empty(shape, dtype)
    out[...] = x
    return out


def lower_copy(shape: Shape, dtype: DTypeLike) -> StepFunction:
    """Elements repeated to fill a shape."""
    return StepFunction(_copy, partial(_full, shape, dtype))


def lower_convert(target: DTypeLike) -> StepFunction:
    """A narrow float as f32, or f32 that has been rounded as a narrow float."""
    return StepFunction(_copy, methodcaller("astype", target))


def lower_round(narrow: DTypeLike) -> StepFunction:
    """Elements of f32 rounded to the values that a narrow float has."""
    return StepFunction(_round_to_half, _rounded_to_half) if narrow == HALF else StepFunction(
        lambda x, out: _copy(x.astype(narrow), out), lambda x: x.astype(narrow).astype(F32))


_EXPONENT, _SIGN = np.int32(0x7F800000), np.int32(-0x80000000)
_LEAST, _MOST = np.int32(0x38800000), np.int32(0x70000000)
"""The exponent of the least normal half, and one far above the greatest: powers of two as bits of f32."""
_UP = np.int32((13 << 23) | 0x400000)
"""Makes of a power of two one and a half times 2^13 of it."""
_RANGE = np.float32(2.0**112)
"""By this what is too large for a half becomes infinite."""


def _round_to_half(x: Array, out: Array) -> None:
    """Adding 1.5 * 2^(e + 13) to a number of exponent e, and taking it away, leaves 10 binary digits after the first, halves to
    even; below the normal halves e stays that of the least of them. Bits put the sign of a zero back."""
    if out.ndim == 0:  # numpy makes scalars of it, which hold no results
        _copy(x.astype(HALF), out)
        return
    bits = np.bitwise_and(x.view(np.int32), _EXPONENT)
    np.maximum(bits, _LEAST, out=bits)
    np.minimum(bits, _MOST, out=bits)
    np.add(bits, _UP, out=bits)
    shift = bits.view(F32)
    sign = np.bitwise_and(x.view(np.int32), _SIGN)
    np.add(x, shift, out=out)
    np.subtract(out, shift, out=out)
    np.multiply(out, _RANGE, out=out)
    np.multiply(out, 1 / _RANGE, out=out)
    np.bitwise_or(out.view(np.int32), sign, out=out.view(np.int32))


def _rounded_to_half(x: Any) -> Any:
    out = np.empty_like(x)
    _round_to_half(x, out)
    return out[()]


def _is_nonzero(x: Array, out: Array | None = None) -> Any:
    return np.not_equal(x, x.dtype.type(0), out)


def lower_cast(source: DTypeLike, target: DTypeLike) -> StepFunction:
    """Conversion between dtypes. Raises Declined for floats to integers, which numpy does not saturate."""
    if source not in ALL or target not in ALL or (source in WIDE_FLOATS and target in INTEGERS):
        raise Declined("no exact lowering")
    if target in BOOL:
        return StepFunction(_is_nonzero, _is_nonzero)
    return StepFunction(_copy, methodcaller("astype", target))


BITS = {n: np.dtype(f"i{n}") for n in (1, 2, 4, 8)}
"""The dtypes of elements' bits, by their bytes."""


def _where(mask: Array, x: Array, y: Array, out: Array) -> None:
    """For elements of so many bytes as `BITS` has; `out` shares memory with no operand. Large arrays are done as
    `y ^ ((x ^ y) * mask)` on the bits: no branch, so a random mask costs no more than a constant one, and no memory besides."""
    if out.size < MASK_ELEMENTS:
        np.copyto(out, y)
        np.copyto(out, x, where=mask)
        return
    bits = BITS[out.dtype.itemsize]
    b, result = y.view(bits), out.view(bits)
    np.bitwise_xor(x.view(bits), b, result)
    np.multiply(result, mask.view(np.int8), result)
    np.bitwise_xor(result, b, result)


def lower_where(dtype: DTypeLike) -> StepFunction:
    """A choice between operands of that dtype. Raises Declined for elements of other widths than numbers have."""
    if dtype.itemsize not in BITS:
        raise Declined("no exact lowering")
    return StepFunction(_where, np.where)


def lower_eval(eval: Callable[..., Any], attrs: Sequence[Any]) -> StepFunction:
    """The eval of an elementwise op. Its temporaries, which no plan counts, are of blocks smaller than a kernel's own."""

    def into(*args: Any) -> None:
        *xs, out = args
        (value,) = in_blocks(lambda parts: [eval(parts, *attrs)], xs, [out.dtype], [out])
        if value is not out:
            np.copyto(out, value)

    def value(*xs: Any) -> Any:
        found = eval([np.asarray(x) for x in xs], *attrs)
        return found[()] if found.ndim == 0 else found.copy() if found.base is not None or any(found is x for x in xs) else found

    return StepFunction(into, value)


# --- reductions

SHORT = 128
"""Floats that are combined one after the other."""


def lower_reduction(op: Op, axes: tuple[int, ...], shape: Shape, dtype: DTypeLike) -> StepFunction:
    """What reduces an operand of at most that shape along axes of it, which go, by the monoid of an op."""
    monoid = op.monoid
    assert monoid is not None
    if isinstance(monoid, UfuncMonoid) and dtype in ALL:
        is_rows = monoid.function is np.add and axes == tuple(range(len(shape) - len(axes), len(shape)))
        if dtype.kind != "f" or not monoid.rounds or is_rows or math.prod(shape[k] for k in axes) <= SHORT:
            return _by_ufunc(monoid, axes, dtype, contiguous=is_rows)
    value = partial(_quickly, monoid, axes)
    return StepFunction(lambda x, out: np.copyto(out, value(x)), value)


def _quickly(monoid: Any, axes: tuple[int, ...], x: Array) -> Any:
    return monoid.quickly(np.asarray(x), axes)


def _by_ufunc(monoid: UfuncMonoid, axes: tuple[int, ...], dtype: DTypeLike, contiguous: bool) -> StepFunction:
    """One loop; sums of nothing but -0.0 are -0.0, where numpy would begin with the other zero. Rows that do not lie in order
    would not be added pairwise."""
    reduce: Any = monoid.function.reduce
    start = (-dtype.type(0),) if monoid.negative_zero and dtype.kind == "f" else ()

    def into(x: Any, out: Array | None = None) -> Any:
        if contiguous and not x.flags.c_contiguous:
            found = _quickly(monoid, axes, x)
            return found if out is None else np.copyto(out, found)
        return reduce(x, axes, dtype, out, False, *start)

    return StepFunction(into, into)
