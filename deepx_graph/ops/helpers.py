"""Helpers that families of declarations share: type rules, numpy wrappers, kernel text, and small graph builders for gradients.

`unary` and `binary` make an elementwise op in a few lines. Nothing here knows a particular operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np

from deepx_graph.errors import InferError, an
from deepx_graph.ir import Attr, Builder, Constraint, Node, Op, Operand
from deepx_graph.ir.constraint import SIZES, element, tensor_of
from deepx_graph.ir.scalar_expr import expr
from deepx_graph.literal import Array
from deepx_graph.types import ANY, BOOL, DType, Kind, TensorType, Type, as_tensor, merge_dims, tensor

Ufunc = Callable[..., Any]
VjpRule = Callable[..., Sequence[Node | None]]

NUMERIC: tuple[Kind, ...] = ("int", "uint", "float", "complex")
REAL: tuple[Kind, ...] = ("int", "uint", "float")
FLOATING: tuple[Kind, ...] = ("float", "complex")
EVERY: tuple[Kind, ...] = ("bool", *NUMERIC)
LOGICAL: tuple[Kind, ...] = ("bool", "int", "uint")


# --- types --------------------------------------------------------------------------------------------------------


def joint_type(types: Sequence[Type]) -> TensorType:
    """The type of an elementwise result: one dtype, one shape; rank-0 operands stand for all elements."""
    first = as_tensor(types[0], 0)
    if len(types) == 1:
        return first
    dtype, dims = first.dtype, first.dims
    for k in range(1, len(types)):
        other = as_tensor(types[k], k)
        if other.dtype is not dtype:
            if dtype is not ANY and other.dtype is not ANY:
                raise InferError(f"operand {k} is {an(other)} and operand 0 {an(first)}", operand=k, expected=f"{dtype}")
            dtype = other.dtype if dtype is ANY else dtype
        if other.dims != dims:
            dims = _joint_dims(dims, other.dims, types, k)
    return tensor(dtype, dims)


def _joint_dims(a: Any, b: Any, types: Sequence[Type], operand: int) -> Any:
    if a is None or b is None:  # an unknown rank may turn out to be 0
        return (a or b) or None
    if not a or not b:
        return a or b
    try:
        return merge_dims(a, b)
    except InferError:
        raise InferError(
            f"operand {operand} is {an(types[operand])} and operand 0 {an(types[0])}: the shapes differ",
            operand=operand, expected="equal shapes, or a scalar",
        ) from None  # fmt: skip


def truth(types: Sequence[Type], *attrs: Any) -> Type:
    """The type rule: bool, in the joint shape of the operands."""
    return joint_type(types).with_dtype(BOOL)


# --- numpy --------------------------------------------------------------------------------------------------------


def like(result: Any, dtype: np.dtype[Any]) -> Array:
    """`result` as an array of exactly that dtype."""
    return np.asarray(result, dtype=dtype)


def ufunc(function: Ufunc) -> Callable[..., Array]:
    """The eval of an elementwise op whose result has the dtype of its operands."""
    return lambda xs: like(function(*xs), xs[0].dtype)


def vectorised(x: Array) -> Array:
    """Floats that numpy itself does not have as f32, for functions that are called for each of their elements otherwise."""
    return x if x.dtype.kind in "fc" else x.astype(np.float32)


def transcendental(function: Ufunc) -> Callable[..., Array]:
    """As `ufunc`; complex numbers of single precision are computed in double, as numpy's own formulas lose several places."""

    def eval(xs: Sequence[Array]) -> Array:
        wide = [x.astype(np.complex128) if x.dtype == np.complex64 else vectorised(x) for x in xs]
        return like(function(*wide), xs[0].dtype)

    return eval


def split(real: Ufunc, whole: Ufunc) -> Callable[..., Array]:
    """As `ufunc`, with a function of its own for complex numbers."""
    return lambda xs: like((whole if xs[0].dtype.kind == "c" else real)(*map(vectorised, xs)), xs[0].dtype)


def widened(function: Ufunc, whole: Ufunc | None = None) -> Callable[..., Array]:
    """As `ufunc`, computed in f32 for narrower floats so that a formula of several steps is rounded once.

    `whole` is the function for complex numbers, where it is another.
    """

    def eval(xs: Sequence[Array]) -> Array:
        dtype = xs[0].dtype
        if dtype.kind == "c" and whole is not None:
            return like(whole(*xs), dtype)
        if dtype.itemsize < 4 and dtype.kind not in "biu":
            return like(function(*(x.astype(np.float32) for x in xs)), dtype)
        return like(function(*xs), dtype)

    return eval


def wider(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which sums of floats or complex numbers of a dtype are kept: double precision."""
    return np.dtype(np.complex128 if dtype.kind == "c" else np.float64)


def is_int(array: Array) -> bool:
    """An integer array; numpy files the types below 8 bits under a kind of their own."""
    kind = array.dtype.kind
    return kind in "iu" or (kind == "V" and array.dtype.name in ("int2", "uint2", "int4", "uint4"))


def written_in(file: str, rule: str) -> VjpRule:
    """The gradient rule of that name in a sibling file, which is in terms of operations declared later; found when first used."""

    def vjp(b: Builder, node: Node, g: Any) -> Sequence[Node | None]:
        found: VjpRule = getattr(import_module(f"deepx_graph.ops.vjp.{file}"), rule)
        return found(b, node, g)

    return vjp


def loops_in(file: str, rule: str) -> Callable[..., Any]:
    """The element or the loops of that name in a file of `ops/loops`; found when first used."""

    def found(*args: Any) -> Any:
        return getattr(import_module(f"deepx_graph.ops.loops.{file}"), rule)(*args)

    return found


def placed_by(rule: str) -> Callable[..., Any]:
    """Where elements come from, by the function of that name in `ops/places.py`; found when first used."""
    return lambda *args: getattr(import_module("deepx_graph.ops.places"), rule)(*args)


def staged_in(file: str, rule: str) -> Callable[..., Any]:
    """What is staged by the function of that name in a file of `ops`; found when first used."""

    def found(*args: Any) -> Any:
        return getattr(import_module(f"deepx_graph.ops.{file}"), rule)(*args)

    return found


# --- declarations -------------------------------------------------------------------------------------------------


def _kernel(text: str | None, *operands: str) -> Callable[..., Any] | None:
    if text is None:
        return None
    tree = expr(text, *operands)
    return lambda *attrs: tree


def one(type: Constraint, name: str = "operand") -> tuple[Operand, ...]:
    """One operand of that type."""
    return (Operand(name, type=type),)


def pair(type: Constraint) -> tuple[Operand, ...]:
    """Operands `lhs` and `rhs` of that type."""
    return Operand("lhs", type=type), Operand("rhs", type=type)


def unary(name: str, summary: str, function: Callable[..., Array], *, kernel: str | None = None,
          vjp: Callable[[Builder, Node, Node, Node], Node | None] | None = None, kinds: Sequence[Kind] = FLOATING,
          source: str = "", operand: str = "operand", **fields: Any) -> Op:
    """An elementwise op of one operand. `vjp(b, x, y, g)` gives the cotangent of x, with y the op's own result."""
    rule = None if vjp is None else lambda b, node, g: (vjp(b, node.inputs[0], node, g),)
    fields.setdefault("infer", joint_type)
    return Op(name, summary, operands=one(tensor_of(*kinds), operand), eval=function, kernel=_kernel(kernel, "x"), vjp=rule,
              elementwise=True, source=source or f"StableHLO {name}", **fields)


def binary(name: str, summary: str, function: Callable[..., Array], *, kernel: str | None = None,
           vjp: Callable[[Builder, Node, Node, Node, Node], Sequence[Node | None]] | None = None,
           kinds: Sequence[Kind] = NUMERIC, source: str = "", **fields: Any) -> Op:
    """An elementwise op of two operands. `vjp(b, x, y, node, g)` gives both cotangents."""
    rule = None if vjp is None else lambda b, node, g: vjp(b, node.inputs[0], node.inputs[1], node, g)
    return Op(name, summary, operands=pair(tensor_of(*kinds)), infer=joint_type, eval=function,
              kernel=_kernel(kernel, "x", "y"), vjp=rule, elementwise=True, source=source or f"StableHLO {name}", **fields)


def flat(b: Builder, x: Node, y: Node, g: Node) -> None:
    """The gradient rule of a function of one operand that is constant between jumps."""


def dtype_attr(*kinds: Kind) -> Attr:
    """The attribute `dtype`: an element type of one of these kinds, or any."""
    return Attr("dtype", "dtype", summary="the element type of the result", check=element(*kinds) if kinds else None,
                from_type=lambda t: t.dtype if isinstance(t, TensorType) else None)


def shape_attr() -> Attr:
    """The attribute `shape`: sizes, or symbols that are replaced when a module is specialised."""
    return Attr("shape", "dims", summary="the shape of the result", check=SIZES,
                from_type=lambda t: t.dims if isinstance(t, TensorType) else None)


def lowest(dtype: DType) -> Any:
    """The least value: the identity of maximum."""
    return _extreme(dtype, least=True)


def highest(dtype: DType) -> Any:
    """The greatest value: the identity of minimum."""
    return _extreme(dtype, least=False)


def _extreme(dtype: DType, least: bool) -> Any:
    if dtype.kind == "float":
        limits: Any = ml_dtypes.finfo(dtype.np)  # type: ignore[no-untyped-call]
        extreme = limits.min if least else limits.max
        infinity = np.asarray(-np.inf if least else np.inf).astype(dtype.np)
        return float(infinity) if np.isinf(infinity) else float(extreme)
    if dtype.kind == "bool":
        return not least
    if not dtype.is_integer:
        return None
    low, high = (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if dtype.kind == "int" else (0, (1 << dtype.bits) - 1)
    return low if least else high
