"""How each kernel primitive, and each reduction, is lowered to numpy: a callable that writes into its last argument.

A primitive is lowered only for dtypes where it means exactly what the op's eval means; `lower_primitive` gives None for the others
(narrow floats, complex numbers, integer quotients, float to integer), which are then done by the op's eval on blocks.

A reduction is one loop of numpy's where that loses nothing, `einsum` for sums of large rows, else as `Monoid.quickly` does it.
`einsum` lets go of the interpreter's lock and adds up to three times as fast as `add.reduce`. It goes over short pieces whose sums
are added pairwise, so that no sum is worse than numpy's own. Only for f32 and f64, and only where the operand lies in C order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from deepx_graph.ir import Op
from deepx_graph.ops.contract.monoid import UfuncMonoid
from deepx_graph.ops.math.elementwise import float_power
from deepx_graph.runtime.kernels.costs import MASK_ELEMENTS
from deepx_graph.runtime.kernels.program import Array, Call, Shape

DTypeLike = np.dtype[Any]

WIDE_FLOATS = frozenset(map(np.dtype, ("f4", "f8")))
INTEGERS = frozenset(np.dtype(f"{s}{n}") for s in "iu" for n in (1, 2, 4, 8))
BOOL = frozenset((np.dtype(np.bool_),))
NUMBERS = WIDE_FLOATS | INTEGERS
ALL = NUMBERS | BOOL


@dataclass(frozen=True, slots=True)
class PrimitiveLowering:
    """The callable; the operand dtypes for which it is exact; whether the result is bool; whether it may work in place."""

    call: Call
    dtypes: frozenset[DTypeLike]
    is_predicate: bool = False
    in_place: bool = True


def _maximum(x: Array, y: Array, out: Array | None = None) -> Any:
    return np.maximum(x, y, out=out)


def _minimum(x: Array, y: Array, out: Array | None = None) -> Any:
    return np.minimum(x, y, out=out)


_ARITHMETIC: dict[str, Call] = {"add": np.add, "mul": np.multiply, "max": _maximum, "min": _minimum}
_NUMERIC: dict[str, Call] = {"sub": np.subtract, "neg": np.negative, "abs": np.absolute}
_FLOATING: dict[str, Call] = {
    "div": np.divide, "floor": np.floor, "ceil": np.ceil, "pow": float_power, "floor_mod": np.mod, "exp": np.exp, "expm1": np.expm1,
    "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh,
}  # fmt: skip
_BITWISE: dict[str, Call] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert}
_UNSIGNED = frozenset(d for d in INTEGERS if d.kind == "u")


def _shift_right_logical(x: Array, amount: Array, out: Array | None = None) -> Any:
    """Zeros come in from above, whatever the sign."""
    bits = f"u{x.dtype.itemsize}"
    if out is None:
        return np.right_shift(x.view(bits), amount.view(bits)).view(x.dtype)
    return np.right_shift(x.view(bits), amount.view(bits), out.view(bits))


_PREDICATES: dict[str, Call] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip

_LOWERINGS: dict[str, PrimitiveLowering] = {
    **{name: PrimitiveLowering(f, ALL) for name, f in _ARITHMETIC.items()},
    **{name: PrimitiveLowering(f, NUMBERS) for name, f in _NUMERIC.items()},
    **{name: PrimitiveLowering(f, WIDE_FLOATS) for name, f in _FLOATING.items()},
    **{name: PrimitiveLowering(f, INTEGERS | BOOL) for name, f in _BITWISE.items()},
    "shl": PrimitiveLowering(np.left_shift, INTEGERS),  # numpy's shifts by the width or more leave no bit but copies of the sign
    "ashr": PrimitiveLowering(np.right_shift, INTEGERS - _UNSIGNED),
    "lshr": PrimitiveLowering(_shift_right_logical, INTEGERS),
    **{name: PrimitiveLowering(f, ALL, is_predicate=True, in_place=False) for name, f in _PREDICATES.items()},
}


def lower_primitive(primitive: str, dtypes: Sequence[DTypeLike]) -> PrimitiveLowering | None:
    """The lowering of an arithmetic primitive or comparison for operands of these dtypes; None where numpy has no exact one."""
    found = _LOWERINGS.get(primitive)
    return found if found is not None and len(set(dtypes)) == 1 and dtypes[0] in found.dtypes else None


def copy(x: Array, out: Array) -> None:
    """Copies, broadcasts and converts as a C cast does."""
    np.copyto(out, x, casting="unsafe")


def is_nonzero(x: Array, out: Array) -> None:
    """Whether numbers are not 0."""
    np.not_equal(x, x.dtype.type(0), out)


def saturated(x: Array, out: Array) -> None:
    """Floats as integers of at most 32 bits: truncated, the nearest where there is none, and 0 for what is no number."""
    info = np.iinfo(out.dtype)
    np.copyto(out, np.fmin(np.fmax(x, info.min, dtype=np.float64), info.max), casting="unsafe")
    np.copyto(out, 0, where=np.isnan(x))


def lower_cast(source: DTypeLike, target: DTypeLike) -> Call | None:
    """Conversion between dtypes; None for floats to integers of 64 bits, whose limits no float has."""
    if source not in ALL or target not in ALL:
        return None
    if target in BOOL:
        return is_nonzero
    if source in WIDE_FLOATS and target in INTEGERS:
        return saturated if target.itemsize <= 4 else None
    return copy


BITS = {n: np.dtype(f"i{n}") for n in (1, 2, 4, 8)}
"""The dtypes of elements' bits, by their bytes."""


def where(mask: Array, x: Array, y: Array, out: Array) -> None:
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


# --- reductions

PIECE = 1024
"""The longest row that `einsum` adds up as a whole, with 64 additions in a row; longer ones are cut."""

SHORT = 128
"""Floats that are combined one after the other."""

SMALL = 4096
"""Elements of rows that numpy's `add.reduce` adds up, pairwise, before `einsum` is set up."""


def reduction(op: Op, axes: tuple[int, ...], shape: Shape, dtype: np.dtype[Any]) -> Call:
    """What reduces an operand of at most that shape along axes of it, by the monoid of an op; the axes stay, with one element."""
    monoid = op.monoid
    assert monoid is not None
    if not axes:
        return copy
    if not isinstance(monoid, UfuncMonoid) or dtype not in ALL:
        return partial(_quickly, monoid, axes)
    is_float = dtype in WIDE_FLOATS
    adds_rows = is_float and monoid.function is np.add and axes == tuple(range(len(shape) - len(axes), len(shape)))
    count, size = math.prod(shape[k] for k in axes), math.prod(shape)
    if not (is_float and monoid.rounds) or (count <= SHORT and not (adds_rows and size > SMALL)):
        return _by_ufunc(monoid, axes, dtype)
    return _by_rows(monoid, axes, dtype, len(shape) - len(axes)) if adds_rows else partial(_quickly, monoid, axes)


def _quickly(monoid: Any, axes: tuple[int, ...], x: Array, out: Array) -> None:
    np.copyto(out, np.asarray(monoid.quickly(x, axes)).reshape(out.shape))


def _by_ufunc(monoid: UfuncMonoid, axes: tuple[int, ...], dtype: np.dtype[Any]) -> Call:
    """One loop; sums of nothing but -0.0 are -0.0, where numpy would begin with the other zero."""
    reduce: Any = monoid.function.reduce
    if monoid.negative_zero and dtype.kind == "f":
        zero = -dtype.type(0)
        return lambda x, out: reduce(x, axes, dtype, out, True, zero)
    return lambda x, out: reduce(x, axes, dtype, out, True)


def _by_rows(monoid: UfuncMonoid, axes: tuple[int, ...], dtype: np.dtype[Any], first: int) -> Call:
    """Sums along the last axes, from `first` on."""
    small = _by_ufunc(monoid, axes, dtype)

    def call(x: Array, out: Array) -> None:
        if not x.flags.c_contiguous:
            _quickly(monoid, axes, x, out)
        elif x.size <= SMALL:
            small(x, out)
        else:
            _sums(x.reshape(-1, math.prod(x.shape[first:])), out.reshape(-1))

    return call


def _sums(x: Array, out: Array) -> None:
    """Row sums of `x`."""
    count, rest = divmod(x.shape[1], PIECE)
    if count == 0 or (count == 1 and not rest):
        np.einsum("ij->i", x, out=out)
    else:
        parts = np.empty((len(out), count + (rest > 0)), x.dtype)
        np.einsum("ijk->ij", x[:, : count * PIECE].reshape(len(x), count, PIECE), out=parts[:, :count])
        if rest:
            np.einsum("ij->i", x[:, -rest:], out=parts[:, count])
        np.add.reduce(parts, axis=-1, out=out)
    _keep_negative_zeros(out, x)


def _keep_negative_zeros(out: Array, x: Array) -> None:
    """Sums of nothing but -0.0 are -0.0; `einsum` begins with the other zero."""
    rows = np.flatnonzero(out == 0)
    for width in (1, x.shape[1]):  # few rows begin so
        if not rows.size or not width:
            return
        rows = rows[np.signbit(x[rows, :width]).all(axis=1)]
    out[rows] = -0.0
