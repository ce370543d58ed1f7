"""What operations mean in terms of others, for targets that lack them: the one home of such formulas.

A decomposition gets the operands and attributes of a node whose operation the target lacks and makes its meaning of plainer
operations, each of which may have a decomposition in its turn; the arithmetic at the bottom has none. An elementwise op without one
is its kernel expression. Formulas keep NaN, infinities and the signs of zeros; floats narrower than f32 are computed in f32 and
rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.ir import Builder, Node, Op
from deepx_graph.ir.rebuild import inlined, made_by
from deepx_graph.ir.scalar_expr import Apply, Expr, Immediate, Variable
from deepx_graph.ops import special_functions as special
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.types import BOOL, F32, DType, TensorType, as_tensor, dtype_named

Formula = Callable[..., Node | None]
"""`formula(b, *operands, *attributes)` makes nodes of other ops; None where it does not apply."""

DECOMPOSITIONS: dict[Op, Formula] = {}
"""Formulas by op."""


def decomposed(b: Builder, node: Node) -> Node | None:
    """The node by other operations, by its formula or its kernel expression; None where it has neither."""
    formula = DECOMPOSITIONS.get(node.op)
    made = formula(b, *node.inputs, *node.attrs) if formula else None
    return from_kernel(b, node) if made is None else made


def decomposition(*targets: Op, narrow: bool = False) -> Callable[[Formula], Formula]:
    """Registers the formula of ops; a `narrow` one is of real floats, in f32 where they are narrower."""

    def register(formula: Formula) -> Formula:
        DECOMPOSITIONS.update(dict.fromkeys(targets, in_f32(formula) if narrow else formula))
        return formula

    return register


def in_f32(formula: Formula) -> Formula:
    """The formula on real floats, narrow ones by way of f32 and rounded once; None for other types."""

    def wide(b: Builder, *xs: Node) -> Node | None:
        dtype = _dtype(xs[0])
        if not dtype.is_float:
            return None
        if dtype.bits >= 32:
            return formula(b, *xs)
        made = formula(b, *(b(ops.convert, x, dtype=F32) for x in xs))
        return made if made is None or _dtype(made) is not F32 else b(ops.convert, made, dtype=dtype)

    return wide


def _dtype(x: Node) -> DType:
    return as_tensor(x.type).dtype


def _compare(b: Builder, x: Node, direction: str, y: Node | float) -> Node:
    return b(ops.compare, x, y if isinstance(y, Node) else b.like(y, x), direction=direction)


# --- kernel expressions ---------------------------------------------------------------------------------------------

_PRIMITIVES: dict[str, Op] = {
    "add": ops.add, "sub": ops.subtract, "mul": ops.multiply, "div": ops.divide, "neg": ops.negate, "abs": ops.abs_,
    "sign": ops.sign, "floor": ops.floor, "ceil": ops.ceil, "pow": ops.power, "floor_mod": ops.floor_mod, "max": ops.maximum,
    "min": ops.minimum, "exp": ops.exponential, "expm1": ops.exponential_minus_one, "log": ops.log, "log1p": ops.log_plus_one,
    "sqrt": ops.sqrt, "sin": ops.sine, "cos": ops.cosine, "tan": ops.tan, "tanh": ops.tanh, "and": ops.and_, "or": ops.or_,
    "xor": ops.xor, "not": ops.not_, "where": ops.select, "rint": ops.round_nearest_even, "cbrt": ops.cbrt, "erf": ops.erf,
    "erfc": ops.erfc, "shl": ops.shift_left, "lshr": ops.shift_right_logical, "ashr": ops.shift_right_arithmetic,
}  # fmt: skip
"""The op that each primitive of the kernel vocabulary is; comparisons and casts have attributes and are made apart."""

_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_OF_COMPLEX = frozenset({"add", "sub", "mul", "div", "neg"})
"""Primitives that mean the same of complex numbers."""


def from_kernel(b: Builder, node: Node) -> Node | None:
    """An elementwise node as the kernel expression of its declaration; None where that is no plainer than the op itself."""
    tree = node.op.kernel(*node.attrs) if node.op.elementwise and node.op.kernel else None
    if not isinstance(tree, Apply) or not isinstance(node.type, TensorType) or not _takes(tree, node):
        return None
    alone = all(isinstance(a, Variable) for a in tree.args)
    first = _dtype(node.inputs[0])
    narrow = first.is_float and first.bits < 32 and not alone
    xs = [b(ops.convert, x, dtype=F32) if narrow and _dtype(x) is first else x for x in node.inputs]
    made = _built(b, tree, xs, node.type.dtype)
    if made.op is node.op:
        return None
    return made if _dtype(made) is node.type.dtype else b(ops.convert, made, dtype=node.type.dtype)


def _takes(tree: Expr, node: Node) -> bool:
    """Whether the expression is one of the node's element types."""
    if all(_dtype(x).kind != "complex" for x in node.inputs):
        return True
    return isinstance(tree, Variable) or (
        isinstance(tree, Apply) and tree.primitive in _OF_COMPLEX and all(_takes(a, node) for a in tree.args))


def _built(b: Builder, tree: Expr, xs: list[Node], dtype: DType) -> Node:
    """The nodes of an expression over these operands; `cast` is to the dtype."""
    match tree:
        case Variable(index):
            return xs[index]
        case Immediate(value):
            return b.like(value, xs[0])
        case Apply(primitive, args):
            operands = [_built(b, a, xs, dtype) for a in args]
    if primitive in _COMPARISONS:
        return b(ops.compare, *operands, direction=primitive.upper())
    return b(ops.convert, *operands, dtype=dtype) if primitive == "cast" else b(_PRIMITIVES[primitive], *operands)


# --- what is the same value -----------------------------------------------------------------------------------------


@decomposition(ops.stop_gradient)
def _same(b: Builder, x: Node) -> Node:
    return x


@decomposition(ops.fusion)
def _fusion(b: Builder, *operands: Any) -> Node:
    *inputs, body = operands
    results = inlined(body, inputs, made_by(b))
    return results[0] if len(results) == 1 else b.pack(*results)


@decomposition(ops.conj)
def _conj(b: Builder, x: Node) -> Node:
    return b(ops.complex_, b(ops.real, x), b(ops.negate, b(ops.imag, x))) if _dtype(x).kind == "complex" else x


@decomposition(ops.convert)
def _convert(b: Builder, x: Node, dtype: DType) -> Node | None:
    """Of a complex number its real part, or whether it is not zero."""
    if _dtype(x).kind != "complex" or dtype.kind == "complex":
        return None
    if dtype is BOOL:
        return _compare(b, x, "NE", 0)
    part = b(ops.real, x)
    return part if _dtype(part) is dtype else b(ops.convert, part, dtype=dtype)


# --- arithmetic -----------------------------------------------------------------------------------------------------


def _signed(b: Builder, x: Node, size: Node) -> Node:
    """What is not negative, with the sign of x."""
    return b(ops.multiply, b(ops.sign, x), size)


@decomposition(ops.abs_)
def _abs(b: Builder, x: Node) -> Node | None:
    return x if _dtype(x).kind == "uint" else None


@decomposition(ops.sign)
def _sign(b: Builder, x: Node) -> Node | None:
    """A zero or NaN is its own sign."""
    one, kind = b.like(1, x), _dtype(x).kind
    if kind == "complex":
        return None
    if kind == "uint":
        return b(ops.minimum, x, one)
    below = b(ops.select, _compare(b, x, "LT", 0), b.like(-1, x), x)
    return b(ops.select, _compare(b, x, "GT", 0), one, below)


@decomposition(ops.floor_mod)
def _floor_mod(b: Builder, x: Node, y: Node) -> Node:
    """The remainder, moved by the divisor where the signs differ; a zero takes the sign of the divisor."""
    rest, zero = b(ops.remainder, x, y), b.like(0, x)
    if _dtype(x).kind == "uint":
        return rest
    y_below, nonzero = _compare(b, y, "LT", zero), _compare(b, rest, "NE", zero)
    apart = b(ops.and_, _compare(b, _compare(b, rest, "LT", zero), "NE", y_below), nonzero)
    kept = b(ops.select, nonzero, rest, b(ops.select, y_below, b.like(-0.0, x), zero)) if _dtype(x).is_float else rest
    return b(ops.select, apart, b(ops.add, rest, y), kept)


@decomposition(ops.remainder)
def _remainder(b: Builder, x: Node, y: Node) -> Node:
    """floor_mod of the sizes with the sign of the dividend; of integers floor_mod, moved back where the signs differ."""
    kind = _dtype(x).kind
    if kind == "uint":
        return b(ops.floor_mod, x, y)
    if kind == "float":
        return _signed(b, x, b(ops.floor_mod, b(ops.abs_, x), b(ops.abs_, y)))
    rest = b(ops.floor_mod, x, y)
    apart = _compare(b, _compare(b, rest, "LT", 0), "NE", _compare(b, x, "LT", 0))
    return b(ops.select, b(ops.and_, apart, _compare(b, rest, "NE", 0)), b(ops.subtract, rest, y), rest)


# --- rounding -------------------------------------------------------------------------------------------------------


@decomposition(ops.floor)
def _floor(b: Builder, x: Node) -> Node:
    """Less its part above a whole number; an infinity has none."""
    whole = b(ops.subtract, x, b(ops.floor_mod, x, b.like(1, x)))
    return b(ops.select, _compare(b, b(ops.abs_, x), "EQ", math.inf), x, whole)


@decomposition(ops.ceil)
def _ceil(b: Builder, x: Node) -> Node:
    return b(ops.negate, b(ops.floor, b(ops.negate, x)))


@decomposition(ops.round_nearest_afz)
def _round_nearest_afz(b: Builder, x: Node) -> Node:
    size = b(ops.abs_, x)
    down = b(ops.floor, size)
    up = _compare(b, b(ops.subtract, size, down), "GE", 0.5)
    return _signed(b, x, b(ops.select, up, b(ops.add, down, b.like(1, x)), down))


@decomposition(ops.round_nearest_even)
def _round_nearest_even(b: Builder, x: Node) -> Node:
    size = b(ops.abs_, x)
    down = b(ops.floor, size)
    part = b(ops.subtract, size, down)
    odd = _compare(b, b(ops.floor_mod, down, b.like(2, x)), "EQ", 1)
    up = b(ops.or_, _compare(b, part, "GT", 0.5), b(ops.and_, _compare(b, part, "EQ", 0.5), odd))
    return _signed(b, x, b(ops.select, up, b(ops.add, down, b.like(1, x)), down))


# --- exponentials, logarithms, powers -------------------------------------------------------------------------------


@decomposition(ops.exponential_minus_one, narrow=True)
def _exponential_minus_one(b: Builder, x: Node) -> Node:
    """Kahan's: with u = e^x rounded, (u - 1) x / log(u) is accurate where u - 1 is not."""
    u, one = b(ops.exponential, x), b.like(1, x)
    less = b(ops.subtract, u, one)
    plain = b(ops.or_, _compare(b, less, "EQ", -1), _compare(b, u, "EQ", math.inf))
    value = b(ops.select, plain, less, b(ops.divide, b(ops.multiply, less, x), b(ops.log, u)))
    return b(ops.select, _compare(b, u, "EQ", 1), x, value)


@decomposition(ops.log_plus_one, narrow=True)
def _log_plus_one(b: Builder, x: Node) -> Node:
    """Kahan's: with u = 1 + x rounded, log(u) x / (u - 1)."""
    u = b(ops.add, x, b.like(1, x))
    value = b(ops.divide, b(ops.multiply, b(ops.log, u), x), b(ops.subtract, u, b.like(1, x)))
    value = b(ops.select, _compare(b, u, "EQ", math.inf), u, value)
    return b(ops.select, _compare(b, u, "EQ", 1), x, value)


def _large(b: Builder, x: Node, power: float) -> Node:
    """Whether x is near the power of the largest number of its type."""
    return _compare(b, x, "GT", special.greatest(x) ** power / 4)


@decomposition(ops.cbrt, narrow=True)
def _cbrt(b: Builder, x: Node) -> Node:
    """The size to the power 1/3, and one step of Halley's iteration."""
    a = b(ops.abs_, x)
    root = b(ops.power, a, b.like(1 / 3, x))
    cube = b(ops.multiply, b(ops.multiply, root, root), root)
    more, most = b(ops.subtract, a, cube), b(ops.add, b(ops.add, cube, cube), a)
    better = b(ops.add, root, b(ops.multiply, root, b(ops.divide, more, most)))
    small = b(ops.or_, _compare(b, a, "EQ", 0), _large(b, a, 1))
    return _signed(b, x, b(ops.select, small, root, better))


@decomposition(ops.tanh, narrow=True)
def _tanh(b: Builder, x: Node) -> Node:
    """-e / (2 + e) with e = e^(-2|x|) - 1, which is accurate near 0 and does not overflow."""
    e = b(ops.exponential_minus_one, b(ops.multiply, b(ops.abs_, x), b.like(-2, x)))
    return _signed(b, x, b(ops.divide, b(ops.negate, e), b(ops.add, e, b.like(2, x))))


# --- inverse and hyperbolic functions -------------------------------------------------------------------------------

decomposition(ops.atan2, narrow=True)(special.atan2)
decomposition(ops.atan, narrow=True)(lambda b, x: b(ops.atan2, x, b.like(1, x)))
decomposition(ops.asin, narrow=True)(lambda b, x: b(ops.atan2, x, _other_side(b, x)))
decomposition(ops.acos, narrow=True)(lambda b, x: b(ops.atan2, _other_side(b, x), x))


def _other_side(b: Builder, x: Node) -> Node:
    """sqrt(1 - x^2), accurate near 1."""
    one = b.like(1, x)
    return b(ops.sqrt, b(ops.multiply, b(ops.subtract, one, x), b(ops.add, one, x)))


def _log_of_twice(b: Builder, x: Node) -> Node:
    return b(ops.add, b(ops.log, x), b.like(math.log(2), x))


@decomposition(ops.acosh, narrow=True)
def _acosh(b: Builder, x: Node) -> Node:
    t = b(ops.subtract, x, b.like(1, x))
    root = b(ops.multiply, b(ops.sqrt, t), b(ops.sqrt, b(ops.add, t, b.like(2, x))))
    return b(ops.select, _large(b, x, 1), _log_of_twice(b, x), b(ops.log_plus_one, b(ops.add, t, root)))


@decomposition(ops.asinh, narrow=True)
def _asinh(b: Builder, x: Node) -> Node:
    a, one = b(ops.abs_, x), b.like(1, x)
    square = b(ops.multiply, a, a)
    more = b(ops.divide, square, b(ops.add, one, b(ops.sqrt, b(ops.add, square, one))))
    size = b(ops.select, _large(b, a, 0.5), _log_of_twice(b, a), b(ops.log_plus_one, b(ops.add, a, more)))
    return b(ops.multiply, b(ops.sign, x), size)


@decomposition(ops.atanh, narrow=True)
def _atanh(b: Builder, x: Node) -> Node:
    apart = b(ops.subtract, b(ops.log_plus_one, x), b(ops.log_plus_one, b(ops.negate, x)))
    return b(ops.multiply, b.like(0.5, x), apart)


def _halves(b: Builder, a: Node) -> tuple[Node, Node]:
    """exp(a) / 2 and exp(-a) / 2, by way of exp(a / 2), which does not overflow before they do."""
    half = b.like(0.5, a)
    h = b(ops.exponential, b(ops.multiply, a, half))
    return b(ops.multiply, b(ops.multiply, half, h), h), b(ops.divide, b(ops.divide, half, h), h)


def _cosh(b: Builder, x: Node) -> Node:
    return b(ops.add, *_halves(b, b(ops.abs_, x)))


def _sinh(b: Builder, x: Node) -> Node:
    a, one = b(ops.abs_, x), b.like(1, x)
    e = b(ops.exponential_minus_one, a)
    small = b(ops.multiply, b.like(0.5, x), b(ops.add, e, b(ops.divide, e, b(ops.add, e, one))))
    size = b(ops.select, b(ops.compare, a, one, direction="LT"), small, b(ops.subtract, *_halves(b, a)))
    return b(ops.multiply, b(ops.sign, x), size)


def _real_or_complex(formula: Callable[[Builder, Node], Node], join: Op) -> Formula:
    """A hyperbolic function: exp(x) / 2 joined with exp(-x) / 2 for complex numbers."""
    real = in_f32(formula)

    def either(b: Builder, x: Node) -> Node | None:
        if _dtype(x).kind != "complex":
            return real(b, x)
        both = b(join, b(ops.exponential, x), b(ops.exponential, b(ops.negate, x)))
        return b(ops.multiply, b.like(0.5, x), both)

    return either


decomposition(ops.cosh)(_real_or_complex(_cosh, ops.add))
decomposition(ops.sinh)(_real_or_complex(_sinh, ops.subtract))
decomposition(ops.erf, narrow=True)(special.erf)
decomposition(ops.erfc, narrow=True)(special.erfc)
decomposition(ops.erf_inv, narrow=True)(special.erf_inv)
decomposition(ops.lgamma, narrow=True)(special.lgamma)
decomposition(ops.digamma, narrow=True)(special.digamma)
decomposition(ops.polygamma, narrow=True)(special.polygamma)
decomposition(ops.zeta, narrow=True)(special.zeta)
decomposition(ops.bessel_i0e, narrow=True)(special.bessel_i0e)
decomposition(ops.bessel_i1e, narrow=True)(special.bessel_i1e)
FOR_SINGLE: dict[Op, Formula] = {
    ops.bessel_i0e: partial(special.bessel_i0e, least=1e-10),
    ops.bessel_i1e: partial(special.bessel_i1e, least=1e-10),
}
"""Formulas of f64 for what is rounded to f32, or to less, where shorter ones will do."""
decomposition(ops.is_inf)(lambda b, x: _compare(b, b(ops.abs_, x), "EQ", math.inf))
decomposition(ops.is_pos_inf)(lambda b, x: _compare(b, x, "EQ", math.inf))
decomposition(ops.is_neg_inf)(lambda b, x: _compare(b, x, "EQ", -math.inf))


# --- integers and bits ----------------------------------------------------------------------------------------------


@decomposition(ops.shift_right_logical)
def _shift_right_logical(b: Builder, x: Node, y: Node) -> Node | None:
    """Of signed integers: as unsigned ones."""
    return _shifted(b, ops.shift_right_logical, x, y, "u") if _dtype(x).kind == "int" else None


@decomposition(ops.shift_right_arithmetic)
def _shift_right_arithmetic(b: Builder, x: Node, y: Node) -> Node | None:
    """Of unsigned integers: as signed ones."""
    return _shifted(b, ops.shift_right_arithmetic, x, y, "i") if _dtype(x).kind == "uint" else None


def _shifted(b: Builder, op: Op, x: Node, y: Node, kind: str) -> Node:
    dtype = _dtype(x)
    other = dtype_named(f"{kind}{dtype.bits}")
    return b(ops.convert, b(op, *(b(ops.convert, v, dtype=other) for v in (x, y))), dtype=dtype)


@decomposition(ops.mulhi)
def _mulhi(b: Builder, x: Node, y: Node) -> Node:
    """By halves, as in Warren's Hacker's Delight, 8-2: no product of two halves leaves the width."""
    dtype = _dtype(x)
    half = b.like(dtype.bits // 2, x)
    mask = b.like((1 << (dtype.bits // 2)) - 1, x)
    down = ops.shift_right_arithmetic if dtype.kind == "int" else ops.shift_right_logical
    (x0, x1), (y0, y1) = ((b(ops.and_, v, mask), b(down, v, half)) for v in (x, y))
    low = b(ops.shift_right_logical, b(ops.multiply, x0, y0), half)
    middle = b(ops.add, b(ops.multiply, x1, y0), low)
    other = b(ops.add, b(ops.multiply, x0, y1), b(ops.and_, middle, mask))
    return b(ops.add, b(ops.add, b(ops.multiply, x1, y1), b(down, middle, half)), b(down, other, half))


@decomposition(ops.next_after)
def _next_after(b: Builder, x: Node, y: Node) -> Node:
    """One more or one less than the bits of x: towards 0 when y lies that way, else away from it."""
    whole = dtype_named(f"u{_dtype(x).bits}")
    bits, other = (b(ops.bitcast_convert, v, dtype=whole) for v in (x, y))
    sign = b.like(1 << (whole.bits - 1), bits)
    one, zero = b.like(1, bits), b.like(0, x)
    inwards = b(ops.compare, b(ops.compare, x, zero, direction="GT"), b(ops.compare, y, x, direction="LT"), direction="EQ")
    moved = b(ops.select, inwards, b(ops.subtract, bits, one), b(ops.add, bits, one))
    least = b(ops.or_, b(ops.and_, other, sign), one)
    moved = b(ops.select, b(ops.compare, x, zero, direction="EQ"), least, moved)
    value = b(ops.select, b(ops.compare, x, y, direction="EQ"), y, b(ops.bitcast_convert, moved, dtype=_dtype(x)))
    nan = b(ops.or_, *(b(ops.compare, v, v, direction="NE") for v in (x, y)))
    return b(ops.select, nan, b.like(math.nan, value), value)


# --- indices --------------------------------------------------------------------------------------------------------


def _around(operand: Node, index: Node, dim: int) -> tuple[int, tuple[int, ...]]:
    """The rank of the index, and the dimensions of the slices that are not of the index."""
    rank, count = len(as_tensor(operand.type).shape), len(as_tensor(index.type).shape)
    return count, (*range(dim), *range(dim + count, rank - 1 + count))


@decomposition(ops.torch_index_select)
def _index_select(b: Builder, operand: Node, index: Node, dim: int) -> Node:
    """Slices along one dimension, as a gather."""
    count, offsets = _around(operand, index, dim)
    sizes = tuple(1 if k == dim else d for k, d in enumerate(as_tensor(operand.type).shape))
    return b(ops.gather, operand, index, offset_dims=offsets, collapsed_slice_dims=(dim,), start_index_map=(dim,),
             index_vector_dim=count, slice_sizes=sizes)


@decomposition(ops.index_add)
def _index_add(b: Builder, operand: Node, index: Node, updates: Node, dim: int) -> Node:
    """A scatter drops what falls outside, `index_add` clamps it."""
    count, offsets = _around(operand, index, dim)
    whole, positions = as_tensor(operand.type), as_tensor(index.type)
    last = min(max(whole.shape[dim] - 1, 0), int(np.iinfo(positions.dtype.np).max))
    clamped = b(ops.clamp, b.like(0, index), index, b.like(last, index))
    return b(ops.scatter, operand, clamped, updates, update_window_dims=offsets, inserted_window_dims=(dim,),
             scatter_dims_to_operand_dims=(dim,), index_vector_dim=count, update_computation=monoid_body(ops.add, whole.dtype))
