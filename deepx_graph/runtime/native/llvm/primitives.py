"""How each kernel primitive is written as LLVM IR, for every dtype for which it means exactly what numpy's does.

`lower_primitive` gives None where there is none: the kernel then goes to the engine that has one. Functions beyond
`maths` come from glibc's vector library, where it is present; every such symbol is looked up before a kernel that names it is
compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph.runtime.kernels import lower_primitives as reference
from deepx_graph.runtime.native.llvm.builder import BOOL, F4, F8, DType, IRBuilder, VectorValue
from deepx_graph.runtime.native.llvm.math import Maths
from deepx_graph.runtime.native.llvm.target import Target

FLOATS = frozenset((F4, F8))

_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_BOOL_BINARY = {"add": "or", "mul": "and", "and": "and", "or": "or", "xor": "xor", "max": "or", "min": "and"}
_FLOAT_UNARY = {"abs": "fabs", "floor": "floor", "ceil": "ceil", "sqrt": "sqrt", "rint": "roundeven"}
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_OWN = frozenset(("exp", "expm1", "log", "log1p", "tanh"))
_LIBRARY = {"sin": 1, "cos": 1, "tan": 1, "pow": 2, "cbrt": 1, "erf": 1, "erfc": 1}
_LOOSE = ("erfc", F8)
"""The one that glibc does not give within our bound."""
_BEYOND = frozenset(("sign", "rint", "cbrt", "erf", "erfc", "shl", "lshr", "ashr"))
"""Primitives for which numpy has no single call."""

Write = Callable[[IRBuilder, Sequence[VectorValue]], VectorValue]


def lower_primitive(primitive: str, sources: Sequence[DType], target: DType, machine: Target) -> Write | None:
    """A writer of the primitive for these dtypes, or None."""
    if primitive == "copy":
        return lambda t, v: v[0]
    if primitive == "where":
        return lambda t, v: t.select(v[0], v[1], v[2])
    if primitive == "cast":
        known = sources[0] in reference.ALL and target in reference.ALL
        return (lambda t, v: cast(t, v[0], target)) if known else None
    if reference.lower_primitive(primitive, sources) is None and (primitive not in _BEYOND or len(set(sources)) > 1):
        return None
    dtype = sources[0]
    if dtype in FLOATS:
        return _floating(primitive, dtype, machine)
    return _boolean(primitive) if dtype == BOOL else _integer(primitive, dtype)


def _floating(primitive: str, dtype: DType, machine: Target) -> Write | None:
    if primitive in _FLOAT_BINARY:
        return lambda t, v: t.binary(_FLOAT_BINARY[primitive], *v)
    if primitive in _FLOAT_COMPARE:
        return lambda t, v: t.compare(f"fcmp {_FLOAT_COMPARE[primitive]}", *v)
    if primitive in _FLOAT_UNARY:
        return lambda t, v: t.intrinsic(_FLOAT_UNARY[primitive], *v)
    if primitive in _OWN:
        return lambda t, v: getattr(Maths(t, dtype), primitive)(*v)
    if primitive in _LIBRARY and (primitive, dtype) != _LOOSE:
        return _library(primitive, dtype, machine)
    if primitive == "neg":
        return lambda t, v: t.unary("fneg", v[0])
    if primitive in ("max", "min"):
        return lambda t, v: extreme(t, primitive, *v)
    return (lambda t, v: _sign(t, v[0])) if primitive == "sign" else None


def _library(primitive: str, dtype: DType, machine: Target) -> Write | None:
    """A function of the C library, of vectors."""
    symbol = machine.vector_function(primitive, dtype, _LIBRARY[primitive])
    return None if symbol is None else lambda t, v: machine.call(t, symbol, v)


def _sign(t: IRBuilder, x: VectorValue) -> VectorValue:
    """One with the sign of x; a zero or NaN itself."""
    one = t.intrinsic("copysign", t.splat(1, x.dtype), x)
    return t.select(t.compare("fcmp one", x, t.splat(0, x.dtype)), one, x)


def _integer(primitive: str, dtype: DType) -> Write | None:
    sign = "s" if dtype.kind == "i" else "u"
    if primitive in _INTEGER_BINARY:
        return lambda t, v: t.binary(_INTEGER_BINARY[primitive], *v)
    if primitive in ("eq", "ne"):
        return lambda t, v: t.compare(f"icmp {primitive}", *v)
    if primitive in _FLOAT_COMPARE:
        return lambda t, v: t.compare(f"icmp {sign}{primitive}", *v)
    if primitive in ("max", "min"):
        return lambda t, v: t.intrinsic(f"{sign}{primitive}", *v)
    if primitive == "neg":
        return lambda t, v: t.binary("sub", t.splat(0, dtype), v[0])
    if primitive == "not":
        return lambda t, v: t.binary("xor", v[0], t.splat(-1, dtype))
    if primitive == "abs":
        return (lambda t, v: _absolute(t, v[0])) if sign == "s" else lambda t, v: v[0]
    if primitive == "sign":
        return lambda t, v: _integer_sign(t, v[0])
    return (lambda t, v: _shift(t, primitive, *v)) if primitive in ("shl", "lshr", "ashr") else None


def _integer_sign(t: IRBuilder, x: VectorValue) -> VectorValue:
    if x.dtype.kind == "u":
        return t.intrinsic("umin", x, t.splat(1, x.dtype))
    return t.intrinsic("smax", t.intrinsic("smin", x, t.splat(1, x.dtype)), t.splat(-1, x.dtype))


def _shift(t: IRBuilder, primitive: str, x: VectorValue, amount: VectorValue) -> VectorValue:
    """A shift; what LLVM leaves open, an amount that is not below the width, is chosen away."""
    width = 8 * x.dtype.itemsize
    if primitive == "ashr" and x.dtype.kind == "i":
        return t.binary("ashr", x, t.intrinsic("umin", amount, t.splat(width - 1, x.dtype)))
    inside = t.compare("icmp ult", amount, t.splat(width, x.dtype))
    return t.select(inside, t.binary("shl" if primitive == "shl" else "lshr", x, amount), t.splat(0, x.dtype))


def _absolute(t: IRBuilder, x: VectorValue) -> VectorValue:
    return t.select(t.compare("icmp slt", x, t.splat(0, x.dtype)), t.binary("sub", t.splat(0, x.dtype), x), x)


def _boolean(primitive: str) -> Write | None:
    if primitive in _BOOL_BINARY:
        return lambda t, v: t.binary(_BOOL_BINARY[primitive], *v)
    if primitive in _FLOAT_COMPARE:
        condition = primitive if primitive in ("eq", "ne") else f"u{primitive}"
        return lambda t, v: t.compare(f"icmp {condition}", *v)
    if primitive == "not":
        return lambda t, v: t.binary("xor", v[0], t.splat(True, BOOL))
    return None


def extreme(t: IRBuilder, primitive: str, x: VectorValue, y: VectorValue) -> VectorValue:
    """The greater or lesser of two floats; NaN where either is NaN."""
    beyond, is_nan = t.compare("fcmp ogt" if primitive == "max" else "fcmp olt", x, y), t.compare("fcmp uno", x, x)
    if t.lanes == 1:  # of two selects LLVM makes a jump here
        return t.select(t.binary("or", is_nan, beyond), x, y)
    return t.select(is_nan, x, t.select(beyond, x, y))


def cast(t: IRBuilder, x: VectorValue, target: DType) -> VectorValue:
    """A C cast; to bool, whether it is not zero; of a float to an integer, the nearest that there is, and 0 for NaN."""
    source = x.dtype
    if source == target:
        return x
    if target == BOOL:
        zero = t.splat(0, source)
        return t.compare("fcmp une" if source in FLOATS else "icmp ne", x, zero)
    if source == BOOL:
        return t.convert("uitofp" if target in FLOATS else "zext", x, target)
    if target in FLOATS:
        if source in FLOATS:
            return t.convert("fpext" if source == F4 else "fptrunc", x, target)
        return t.convert("sitofp" if source.kind == "i" else "uitofp", x, target)
    if source in FLOATS:
        return t.saturating(x, target)
    if source.itemsize == target.itemsize:
        return VectorValue(x.text, target, x.more)
    if source.itemsize > target.itemsize:
        return t.convert("trunc", x, target)
    return t.convert("sext" if source.kind == "i" else "zext", x, target)
