"""How primitives of loop programs are written as LLVM IR, beyond those of kernels: narrow floats, more of integers and floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from deepx_graph.loops.scalar import NotExpressible
from deepx_graph.loops.storage import TABLED
from deepx_graph.runtime.native.llvm import primitives as kernel
from deepx_graph.runtime.native.llvm.builder import BOOL, F4, F8, IRBuilder, VectorValue, library_function, scalar_type
from deepx_graph.runtime.native.llvm.builder import DType as NumpyDType
from deepx_graph.runtime.native.llvm.primitives import Write
from deepx_graph.runtime.native.llvm.target import Target
from deepx_graph.types import BF16, F16, F32, DType

_U1, _U2, _U4 = np.dtype("u1"), np.dtype("u2"), np.dtype("u4")

_LIBRARY = {"sin": 1, "cos": 1, "tan": 1, "pow": 2, "cbrt": 1, "erf": 1, "erfc": 1, "hypot": 2, "atan2": 2, "lgamma": 1}
"""Functions of the C library, and their arity."""
_LOOSE = (("erfc", F8),)
"""Those whose form for vectors is not within our bound."""
_SCALAR_ONLY = frozenset(("quotient", "modulo", "clz", "fmod"))
"""Those that no machine has for vectors."""


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
        found = _library(primitive, np_dtype(sources[0]), machine)
    elif "." in primitive:
        found = _part_of_complex(primitive, machine)
    else:
        found = kernel.lower_primitive(primitive, [np_dtype(s) for s in sources], np_dtype(target), machine)
    if found is None:
        raise NoPrimitive(f"{primitive} of {sources[0]}")
    return found


def np_dtype(dtype: DType) -> NumpyDType:
    """How a register holds a scalar: bf16 and floats of a byte as their bits."""
    assert dtype.np is not None
    return _U2 if dtype is BF16 else _U1 if dtype in TABLED else dtype.np


def array_dtype(dtype: DType) -> NumpyDType:
    """How an array holds elements: bf16 as itself."""
    assert dtype.np is not None
    return dtype.np


def has_vectors(primitive: str, sources: Sequence[DType], target: DType, machine: Target) -> bool:
    """Whether the writer of a primitive also writes vectors."""
    if "." in primitive or primitive in _SCALAR_ONLY:
        return False
    if primitive in _LIBRARY and sources[0].is_float:
        dtype = np_dtype(sources[0])
        return (primitive, dtype) not in _LOOSE and machine.vector_function(primitive, dtype, _LIBRARY[primitive]) is not None
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
    return lambda t, v: t.binary(("s" if source.kind == "int" else "u") + kind, v[0], v[1])


def _bitcast(source: DType, target: DType) -> Write | None:
    if source.itemsize != target.itemsize or np_dtype(source) == BOOL or np_dtype(target) == BOOL:
        return None
    if scalar_type(np_dtype(source)) == scalar_type(np_dtype(target)):
        return lambda t, v: VectorValue(v[0].text, np_dtype(target), v[0].more)
    return lambda t, v: t.convert("bitcast", v[0], np_dtype(target))


def _library(primitive: str, dtype: NumpyDType, machine: Target) -> Write | None:
    """A function of the C library, with what LLVM may call for several iterations at once."""
    symbol = machine.scalar_function(primitive, dtype)
    if symbol is None:
        return None
    arity = _LIBRARY[primitive]
    whole = machine.vector_function(primitive, dtype, arity)
    vectors = {} if (primitive, dtype) in _LOOSE else machine.vector_functions(primitive, dtype, arity)
    type = scalar_type(dtype)
    declared = {symbol: type, **{vector: f"<{lanes} x {type}>" for vector, lanes in vectors.items()}}
    mappings = ",".join(f"{vector}({vector})" for vector in vectors)
    variants = f' "vector-function-abi-variant"="{mappings}"' if vectors else ""

    def write(t: IRBuilder, v: Sequence[VectorValue]) -> VectorValue:
        if t.lanes > 1:
            assert whole is not None
            return machine.call(t, whole, v)
        for each, form in declared.items():
            t.declare(library_function(each, form, arity))
        return VectorValue(t.let(f"call {type} @{symbol}({', '.join(f'{type} {x.text}' for x in v)}){variants}"), dtype)

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
