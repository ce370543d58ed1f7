"""How each of our operations is said in deepx: one table, from an op to the small function that writes it.

Each writes its node with deepx's own operations, so that they compute the same from the same inputs; what deepx cannot say has
no row and is legalised before, or says in its row why. A function gets the writer, the node and the tensor to write to; what it
needs on the way it makes with `w.apply`. Numbers are written as numbers where deepx has a form for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from deepx_graph.ir import Node, Op
from deepx_graph.ops import (
    abs_,
    add,
    and_,
    clamp,
    compare,
    cosine,
    divide,
    dot_general,
    exponential,
    floor_mod,
    log,
    maximum,
    minimum,
    multiply,
    negate,
    not_,
    or_,
    power,
    reduce,
    rng_normal,
    rng_uniform,
    select,
    sine,
    sqrt,
    subtract,
    tan,
    xor,
)
from deepx_graph.text.deepx.printer.forms import Argument, Flag, Number, Tensor, Tensors, Vector
from deepx_graph.text.deepx.printer.shapes import SHAPES
from deepx_graph.types import BOOL, Dims, TensorType

if TYPE_CHECKING:
    from deepx_graph.text.deepx.printer.function import FunctionWriter

Emit = Callable[["FunctionWriter", Node, Tensor], None]
Scalar = Number | Argument


def _plain(name: str) -> Emit:
    """The op of that name on all operands as tensors."""
    return lambda w, node, out: w.emit(name, *(w.tensor(i, out.type.dims) for i in node.inputs), into=out)


def _with_number(name: str, reversed_name: str = "", *, commutes: bool = False) -> Emit:
    """A binary op that has forms for a number on the right, and perhaps on the left."""

    def emit(w: FunctionWriter, node: Node, out: Tensor) -> None:
        x, y = node.inputs
        right, left = w.scalar(y), w.scalar(x)
        if right is not None and left is None:
            w.emit(f"{name}scalar", w.tensor(x, out.type.dims), right, into=out)
        elif left is not None and right is None and commutes:
            w.emit(f"{name}scalar", w.tensor(y, out.type.dims), left, into=out)
        elif left is not None and right is None and reversed_name:
            w.emit(reversed_name, left, w.tensor(y, out.type.dims), into=out)
        else:
            w.emit(name, w.tensor(x, out.type.dims), w.tensor(y, out.type.dims), into=out)

    return emit


def _by_minus_one(w: FunctionWriter, node: Node, out: Tensor) -> None:
    w.emit("mulscalar", w.tensor(node.inputs[0]), w.number(-1, out.type.dtype), into=out)


def _magnitude(w: FunctionWriter, node: Node, out: Tensor) -> None:
    """The greater of x and -x; of two zeros deepx may give either, and the sum with 0 is the one without a sign."""
    x = w.tensor(node.inputs[0])
    if x.type.dtype is not out.type.dtype:
        w.fail(node, "deepx has no complex numbers")
    if x.type.dtype.kind in ("uint", "bool"):
        w.emit("copytensor", x, into=out)
        return
    opposite = w.apply("mulscalar", x.type, x, w.number(-1, x.type.dtype))
    if not x.type.dtype.is_float:
        w.emit("max", x, opposite, into=out)
        return
    w.emit("addscalar", w.apply("max", x.type, x, opposite), w.number(0, x.type.dtype), into=out)


# --- bools --------------------------------------------------------------------------------------------------------


def _logical(name: str) -> Emit:
    """min, max of bools: and, or."""

    def emit(w: FunctionWriter, node: Node, out: Tensor) -> None:
        if out.type.dtype is not BOOL:
            w.fail(node, f"deepx has no bitwise operation on {out.type.dtype}", expected="bool operands")
        w.emit(name, *(w.tensor(i, out.type.dims) for i in node.inputs), into=out)

    return emit


def _differ(w: FunctionWriter, node: Node, out: Tensor) -> None:
    if out.type.dtype is not BOOL:
        w.fail(node, f"deepx has no bitwise operation on {out.type.dtype}", expected="bool operands")
    x, y = (w.tensor(i, out.type.dims) for i in node.inputs)
    w.emit("notequal", x, y, w.number(0, BOOL), into=out, dtype=BOOL)


_SWAPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}
_COMPARISONS = {"EQ": ("equal",), "NE": ("notequal",), "LT": ("less",), "GT": ("greater",), "LE": ("equal", "less"),
                "GE": ("equal", "greater")}  # fmt: skip


def _comparison(w: FunctionWriter, node: Node, out: Tensor) -> None:
    """`a <= b` is `a < b` or `a = b`, which is right for NaN too."""
    x, y = node.inputs
    direction = node.attr("direction")
    if node.attr("compare_type") == "TOTALORDER":
        w.fail(node, "deepx has no total order of floats")
    right: Scalar | None = w.scalar(y)
    if right is None and w.scalar(x) is not None:
        x, right, direction = y, w.scalar(x), _SWAPPED[direction]
    left = w.tensor(x, out.type.dims)
    other = right if right is not None and w.scalar(x) is None else w.tensor(y, out.type.dims)
    names = [n + ("" if isinstance(other, Tensor) else "scalar") for n in _COMPARISONS[direction]]
    dtype = left.type.dtype
    extra = {n: (w.number(0, dtype),) if "equal" in n else () for n in names}
    if len(names) == 1:
        w.emit(names[0], left, other, *extra[names[0]], into=out, dtype=dtype)
        return
    parts = [w.apply(n, out.type, left, other, *extra[n], dtype=dtype) for n in names]
    w.emit("max", *parts, into=out)


def _choice(w: FunctionWriter, node: Node, out: Tensor) -> None:
    pred, on_true, on_false = node.inputs
    lists = Tensors((w.tensor(on_false, out.type.dims), w.tensor(on_true, out.type.dims)))
    w.emit("switch", lists, w.tensor(pred), into=out)


def _between(w: FunctionWriter, node: Node, out: Tensor) -> None:
    low, x, high = node.inputs
    least, most = w.scalar(low), w.scalar(high)
    value = w.tensor(x, out.type.dims)
    if least is not None:
        value = w.apply("maxscalar", out.type, value, least)
    else:
        value = w.apply("max", out.type, value, w.tensor(low, out.type.dims))
    if most is not None:
        w.emit("minscalar", value, most, into=out)
    else:
        w.emit("min", value, w.tensor(high, out.type.dims), into=out)


# --- reductions, contractions, random numbers ----------------------------------------------------------------------

_REDUCTIONS: dict[Op, str] = {add: "sum", multiply: "prod", maximum: "reducemax", minimum: "reducemin", and_: "reducemin",
                              or_: "reducemax"}  # fmt: skip


def _reduced(w: FunctionWriter, node: Node, out: Tensor) -> None:
    op, dtype = node.attr("body").reducer, out.type.dtype
    if len(node.inputs) != 2 or op not in _REDUCTIONS or (op in (and_, or_) and dtype is not BOOL):
        w.fail(node, "deepx reduces by sum, prod, max and min only")
    x, init = node.inputs
    first, axes = w.splat(init), tuple(node.attr("dimensions"))
    identity = op.identity_for(dtype)
    is_plain = first is not None and bool(first == np.asarray(identity, dtype.np))
    target = out if is_plain else None
    total = w.tensor(x)
    if axes:
        total = w.apply(_REDUCTIONS[op], out.type, total, Vector(axes), Flag(False), into=target)
    elif is_plain:
        w.emit("copytensor", total, into=out)
    if not is_plain:
        w.emit(_COMBINED[op], total, w.tensor(init, out.type.dims), into=out)


_COMBINED: dict[Op, str] = {add: "add", multiply: "mul", maximum: "max", minimum: "min", and_: "min", or_: "max"}


def _product(w: FunctionWriter, node: Node, out: Tensor) -> None:
    """As one matmul, its operands permuted and reshaped where they are not a plain pair of matrices."""
    lb, rb, lc, rc = (node.attr(f"{side}_{what}_dimensions") for what in ("batching", "contracting") for side in ("lhs", "rhs"))
    batch = tuple(range(len(lb)))
    x, y = node.inputs
    n = len(lb)
    if (lb, rb, lc, rc) == (batch, batch, (n + 1,), (n,)) and _rank(x) in (n + 2, None) and _rank(y) in (n + 2, None):
        w.emit("matmul", w.tensor(x), w.tensor(y), into=out)
        return
    ld, rd = w.shape(x), w.shape(y)
    lf = tuple(k for k in range(len(ld)) if k not in lb + lc)
    rf = tuple(k for k in range(len(rd)) if k not in rb + rc)
    depth, size = math.prod(ld[k] for k in lc), tuple(ld[k] for k in lb)
    rows, columns = math.prod(ld[k] for k in lf), math.prod(rd[k] for k in rf)
    left = _arranged(w, w.tensor(x), lb + lf + lc, (*size, rows, depth))
    right = _arranged(w, w.tensor(y), rb + rc + rf, (*size, depth, columns))
    whole = (*size, rows, columns)
    if whole == out.type.dims:
        w.emit("matmul", left, right, into=out)
    else:
        w.emit("reshape", w.apply("matmul", out.type.with_dims(whole), left, right), Vector(w.dims(node)), into=out)


def _rank(node: Node) -> int | None:
    return node.type.rank if isinstance(node.type, TensorType) else None


def _arranged(w: FunctionWriter, x: Tensor, order: tuple[int, ...], shape: Dims) -> Tensor:
    dims = x.type.dims or ()
    if order != tuple(range(len(order))):
        dims = tuple(dims[k] for k in order)
        x = w.apply("transpose", x.type.with_dims(dims), x, Vector(order))
    return x if dims == shape else w.apply("reshape", x.type.with_dims(shape), x, Vector(shape))


def _draw(name: str) -> Emit:
    def emit(w: FunctionWriter, node: Node, out: Tensor) -> None:
        low, high, seed = node.inputs
        bounds = [w.scalar(low), w.scalar(high)]
        if None in bounds:
            w.fail(node, "deepx takes numbers as bounds of a draw", expected="constants or scalar parameters")
        w.emit(name, *(b for b in bounds if b is not None), w.seed(node, seed), into=out)

    return emit


EMITTERS: dict[Op, Emit] = {
    sqrt: _plain("sqrt"), exponential: _plain("exp"), log: _plain("log"), sine: _plain("sin"), cosine: _plain("cos"),
    tan: _plain("tan"), not_: _plain("invert"), negate: _by_minus_one, abs_: _magnitude,
    add: _with_number("add", commutes=True), multiply: _with_number("mul", commutes=True),
    subtract: _with_number("sub", "rsubscalar"), divide: _with_number("div", "rdivscalar"),
    power: _with_number("pow", "rpowscalar"), floor_mod: _with_number("mod"), maximum: _with_number("max", commutes=True),
    minimum: _with_number("min", commutes=True), and_: _logical("min"), or_: _logical("max"), xor: _differ,
    compare: _comparison, select: _choice, clamp: _between, **SHAPES, reduce: _reduced, dot_general: _product,
    rng_uniform: _draw("uniform"), rng_normal: _draw("normal"),
}  # fmt: skip
"""Every operation with one tensor as result that deepx can say."""


def is_unsaid(node: Node) -> bool:
    """Whether it is of a form that deepx has no words for."""
    if node.op in (and_, or_, xor):
        return isinstance(node.type, TensorType) and node.type.dtype is not BOOL
    return node.op is compare and node.attr("compare_type") == "TOTALORDER"
