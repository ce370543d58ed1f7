"""How each primitive of loop programs is written as LLVM IR, for every dtype for which it means exactly what numpy's does.

Functions beyond `Maths` come from the C library, and for vectors from glibc's vector library, where it is present and as accurate,
else lane by lane; every such symbol is looked up before code that names it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.loops.scalar import NotExpressible, ScalarConst
from deepx_graph.loops.storage import TABLED
from deepx_graph.runtime.native.llvm.builder import BOOL, F4, F8, IRBuilder, VectorValue, library_function, scalar_type
from deepx_graph.runtime.native.llvm.builder import DType as NumpyDType
from deepx_graph.runtime.native.llvm.math import Maths
from deepx_graph.runtime.native.llvm.target import Target
from deepx_graph.runtime.native.loop_program.extremes import EXTREMES, extreme
from deepx_graph.types import BF16, F16, F32, DType

Write = Callable[[IRBuilder, Sequence[VectorValue]], VectorValue]

_U1, _U2, _U4 = np.dtype("u1"), np.dtype("u2"), np.dtype("u4")

FLOATS = frozenset((F4, F8))

_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_BOOL_BINARY = {"add": "or", "mul": "and", "and": "and", "or": "or", "xor": "xor", "max": "or", "min": "and"}
_FLOAT_UNARY = {"abs": "fabs", "floor": "floor", "ceil": "ceil", "sqrt": "sqrt", "rint": "roundeven"}
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_OWN = frozenset(("exp", "expm1", "log", "log1p", "tanh"))
_OWN_SINGLE = frozenset(("erf", "erfc"))
_OWN_WHERE_USUAL = frozenset(("sin", "cos"))
"""Functions of single precision: of every argument, and of usual ones in vectors."""
_LIBRARY = {"sin": 1, "cos": 1, "tan": 1, "pow": 2, "cbrt": 1, "erf": 1, "erfc": 1, "hypot": 2, "atan2": 2, "lgamma": 1}
"""Functions of the C library, and their arity."""
_LOOSE = (("erfc", F8),)
"""Those whose form for vectors is not within our bound."""
_SCALAR_ONLY = frozenset(("clz", "fmod"))
"""Those that no machine has for vectors."""
_DIVISIONS = frozenset(("quotient", "modulo"))
"""Those of integers, which no machine has for vectors either: of up to 32 bits floats are divided."""


class NoPrimitive(NotExpressible):
    """A primitive that has no machine code for some dtype, or not on this machine: says which."""


def lower_primitive(primitive: str, sources: Sequence[DType], target: DType, machine: Target) -> Write:
    """A writer of the primitive for these dtypes. Raises NoPrimitive."""
    found: Write | None
    if primitive == "cast" and {sources[0], target} & {BF16, F16}:
        found = _narrow(sources[0], target, machine)
    elif primitive in _MORE:
        found = _MORE[primitive](sources[0], target)
    elif primitive in _LIBRARY and sources[0].is_float:
        found = _function(primitive, np_dtype(sources[0]), machine)
    elif "." in primitive:
        found = _part_of_complex(primitive, machine)
    else:
        found = _plain(primitive, [np_dtype(s) for s in sources], np_dtype(target))
    if found is None:
        raise NoPrimitive(f"{primitive} of {sources[0]}")
    return found


def _plain(primitive: str, sources: Sequence[NumpyDType], target: NumpyDType) -> Write | None:
    """A writer of a primitive of bools, integers, or floats of single or double precision."""
    dtype = sources[0]
    if primitive == "copy":
        return lambda t, v: v[0]
    if primitive == "where":
        return lambda t, v: t.select(v[0], v[1], v[2])
    if primitive == "cast":
        return (lambda t, v: cast(t, v[0], target)) if _is_plain(dtype) and _is_plain(target) else None
    if not _is_plain(dtype) or len(set(sources)) > 1:
        return None
    if dtype in FLOATS:
        return _floating(primitive, dtype)
    return _boolean(primitive) if dtype == BOOL else _integer(primitive, dtype)


def _is_plain(dtype: NumpyDType) -> bool:
    return dtype.kind in "biu" or dtype in FLOATS


def np_dtype(dtype: DType) -> NumpyDType:
    """How a register holds a scalar: bf16 and floats of a byte as their bits."""
    assert dtype.np is not None
    return _U2 if dtype is BF16 else _U1 if dtype in TABLED else dtype.np


def held(x: ScalarConst) -> tuple[Any, NumpyDType]:
    """A number as a register holds it, and how that is."""
    dtype = np_dtype(x.dtype)
    return x.value.view(dtype) if x.dtype.is_float and dtype.kind == "u" else x.value, dtype


def array_dtype(dtype: DType) -> NumpyDType:
    """How an array holds elements: bf16 as itself."""
    assert dtype.np is not None
    return dtype.np


def has_vectors(primitive: str, sources: Sequence[DType], target: DType, machine: Target) -> bool:
    """Whether the writer of a primitive also writes vectors."""
    if "." in primitive or primitive in _SCALAR_ONLY or (primitive in _DIVISIONS and sources[0].itemsize > 4):
        return False
    if primitive in _LIBRARY and sources[0].is_float:
        dtype = np_dtype(sources[0])
        return machine.scalar_function(primitive, dtype) is not None
    try:
        lower_primitive(primitive, sources, target, machine)
    except NoPrimitive:
        return False
    return True


def _narrow(source: DType, target: DType, machine: Target) -> Write | None:
    """Conversions between a narrow float and single precision."""
    if {source, target} == {BF16, F32}:
        return _from_bf16 if source is BF16 else _to_bf16
    if {source, target} == {F16, F32} and machine.register_bytes > 16:  # F16C came with wider vectors
        instruction, type = ("fpext", F4) if source is F16 else ("fptrunc", np.dtype("f2"))
        return lambda t, v: t.convert(instruction, v[0], type)
    return None


def _from_bf16(t: IRBuilder, v: Sequence[VectorValue]) -> VectorValue:
    return t.convert("bitcast", t.binary("shl", t.convert("zext", v[0], _U4), t.splat(16, _U4)), F4)


def _to_bf16(t: IRBuilder, v: Sequence[VectorValue]) -> VectorValue:
    """Rounded to the nearest, ties to even; a NaN keeps its sign and is quiet."""
    bits, half = t.convert("bitcast", v[0], _U4), t.splat(16, _U4)
    odd = t.binary("and", t.binary("lshr", bits, half), t.splat(1, _U4))
    rounded = t.binary("add", t.binary("add", bits, t.splat(32767, _U4)), odd)
    quiet = t.binary("or", bits, t.splat(4194304, _U4))
    chosen = t.select(t.compare("fcmp uno", v[0], v[0]), quiet, rounded)
    return t.convert("trunc", t.binary("lshr", chosen, half), _U2)


def _division(kind: str, source: DType, target: DType) -> Write | None:
    if not source.is_integer:
        return None
    sign = "s" if source.kind == "int" else "u"

    def write(t: IRBuilder, v: Sequence[VectorValue]) -> VectorValue:
        x, y = v
        is_known = not y.text.startswith("%")  # of a number LLVM makes a product
        if t.lanes == 1 or is_known:
            return t.binary(sign + kind, x, y)
        quotient = _divided_as_floats(t, sign, x, y)
        return quotient if kind == "div" else t.binary("sub", x, t.binary("mul", quotient, y))

    return write


def _divided_as_floats(t: IRBuilder, sign: str, x: VectorValue, y: VectorValue) -> VectorValue:
    """A quotient rounded towards zero. Where it is no integer it differs from the next by at least 1 / y, the x-th part of it, so
    that floats with more digits than x has do not round that away."""
    wide = F8 if x.dtype.itemsize == 4 else F4
    parts = [t.convert(f"{sign}itofp", each, wide) for each in (x, y)]
    return t.convert(f"fpto{sign}i", t.binary("fdiv", *parts), x.dtype)


def _bitcast(source: DType, target: DType) -> Write | None:
    if source.itemsize != target.itemsize or np_dtype(source) == BOOL or np_dtype(target) == BOOL:
        return None
    if scalar_type(np_dtype(source)) == scalar_type(np_dtype(target)):
        return lambda t, v: VectorValue(v[0].text, np_dtype(target), v[0].more)
    return lambda t, v: t.convert("bitcast", v[0], np_dtype(target))


def _function(primitive: str, dtype: NumpyDType, machine: Target) -> Write | None:
    """Our own of single precision, else that of the C library."""
    own = dtype == F4 and machine.register_bytes > 16  # products added in one instruction came with wider vectors
    if own and primitive in _OWN_SINGLE:
        return lambda t, v: getattr(Maths(t, dtype), primitive)(*v)
    library = _library(primitive, dtype, machine)
    if own and primitive in _OWN_WHERE_USUAL and library is not None:
        return lambda t, v: getattr(Maths(t, dtype), primitive)(*v, lambda: library(t, v))
    return library


def _library(primitive: str, dtype: NumpyDType, machine: Target) -> Write | None:
    """A function of the C library, with what LLVM may call for several iterations at once; called for each lane of a vector where
    there is no form of it for vectors."""
    symbol = machine.scalar_function(primitive, dtype)
    if symbol is None:
        return None
    arity = _LIBRARY[primitive]
    vectors = {} if (primitive, dtype) in _LOOSE else machine.vector_functions(primitive, dtype, arity)
    type = scalar_type(dtype)
    declared = {symbol: type, **{vector: f"<{lanes} x {type}>" for vector, lanes in vectors.items()}}
    mappings = ",".join(f"{vector}({vector})" for vector in vectors)
    variants = f' "vector-function-abi-variant"="{mappings}"' if vectors else ""

    def write(t: IRBuilder, v: Sequence[VectorValue]) -> VectorValue:
        if t.lanes > 1 and vectors:
            return machine.call(t, vectors, v)
        for each, form in declared.items():
            t.declare(library_function(each, form, arity))

        def call(*args: str) -> str:
            return f"call {type} @{symbol}({', '.join(f'{type} {x}' for x in args)}){variants}"

        return t.lane_by_lane(call, dtype, *v) if t.lanes > 1 else t.value(call(*(x.text for x in v)), dtype)

    return write


def _part_of_complex(primitive: str, machine: Target) -> Write | None:
    """A part of what a function of complex numbers gives; LLVM makes one call of that for both."""
    name, part = primitive.split(".")
    symbol = machine.complex_function(name)
    if symbol is None:
        return None

    def write(t: IRBuilder, v: Sequence[VectorValue]) -> VectorValue:
        t.declare(library_function(symbol, "double", len(v), "{ double, double }"))
        both = t.let(f"call {{ double, double }} @{symbol}({', '.join(f'double {x.text}' for x in v)})")
        return VectorValue(t.let(f"extractvalue {{ double, double }} {both}, {int(part == 'imag')}"), v[0].dtype)

    return write


def _count_zeros(t: IRBuilder, v: Sequence[VectorValue]) -> VectorValue:
    type = scalar_type(v[0].dtype)
    t.declare(f"declare {type} @llvm.ctlz.{type}({type}, i1)")
    return VectorValue(t.let(f"call {type} @llvm.ctlz.{type}({type} {v[0].text}, i1 false)"), v[0].dtype)


_MORE: dict[str, Callable[[DType, DType], Write | None]] = {
    "quotient": lambda s, t: _division("div", s, t), "modulo": lambda s, t: _division("rem", s, t), "bitcast": _bitcast,
    "popcount": lambda s, t: (lambda b, v: b.intrinsic("ctpop", v[0])) if s.is_integer else None,
    "clz": lambda s, t: _count_zeros if s.is_integer else None,
    "fmod": lambda s, t: (lambda b, v: b.binary("frem", *v)) if s.is_float else None,
    "copysign": lambda s, t: (lambda b, v: b.intrinsic("copysign", *v)) if s.is_float else None,
}  # fmt: skip


# --- bools, integers, floats of single and double precision


def _floating(primitive: str, dtype: NumpyDType) -> Write | None:
    if primitive in _FLOAT_BINARY:
        return lambda t, v: t.binary(_FLOAT_BINARY[primitive], *v)
    if primitive in _FLOAT_COMPARE:
        return lambda t, v: t.compare(f"fcmp {_FLOAT_COMPARE[primitive]}", *v)
    if primitive in _FLOAT_UNARY:
        return lambda t, v: t.intrinsic(_FLOAT_UNARY[primitive], *v)
    if primitive in _OWN:
        return lambda t, v: getattr(Maths(t, dtype), primitive)(*v)
    if primitive == "neg":
        return lambda t, v: t.unary("fneg", v[0])
    if primitive in EXTREMES:
        return lambda t, v: extreme(t, primitive, *v)
    return (lambda t, v: _sign(t, v[0])) if primitive == "sign" else None


def _sign(t: IRBuilder, x: VectorValue) -> VectorValue:
    """One with the sign of x; a zero or NaN itself."""
    one = t.intrinsic("copysign", t.splat(1, x.dtype), x)
    return t.select(t.compare("fcmp one", x, t.splat(0, x.dtype)), one, x)


def _integer(primitive: str, dtype: NumpyDType) -> Write | None:
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


def cast(t: IRBuilder, x: VectorValue, target: NumpyDType) -> VectorValue:
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
