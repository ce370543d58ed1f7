"""Our operations in deepx: tables from an op to the small function that writes it.

Each writes its node with deepx's own operations, so that they compute the same from the same inputs; what deepx cannot say has
no row and is legalised before, or says in its row why. A function gets the writer, the node and the tensor to write to; what it
needs on the way it makes with `w.apply`. Numbers are written as numbers where deepx has a form for them. Elements are moved by
reshape, transpose, broadcastTo, concat and indexselect; slices, reversals, padding and iota are made of these, with `arange` as the
index.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deepx_graph.ir import Node, Op
from deepx_graph.ir.structure import CALL, CONSTANT, PROJ, TUPLE, callee_of, index_of, signature_of, value_of
from deepx_graph.ops import (
    abs_,
    add,
    and_,
    broadcast_in_dim,
    clamp,
    compare,
    concatenate,
    convert,
    cosine,
    divide,
    dot_general,
    ensure_type,
    exponential,
    floor_mod,
    iota,
    load,
    log,
    maximum,
    minimum,
    module_seed,
    multiply,
    negate,
    not_,
    or_,
    pad,
    power,
    print_,
    reduce,
    reshape,
    reverse,
    rng_normal,
    rng_uniform,
    save,
    select,
    sine,
    slice_,
    sqrt,
    subtract,
    tan,
    torch_index_select,
    transpose,
    xor,
)
from deepx_graph.text.deepx.printer.forms import Argument, Flag, Instruction, Number, Operand, Tensor, Tensors, Text, Vector
from deepx_graph.types import BOOL, I32, Dims, TensorType, as_tensor, is_state, tensor

if TYPE_CHECKING:
    from deepx_graph.text.deepx.printer.function import FunctionWriter

Emit = Callable[["FunctionWriter", Node, Tensor], None]
Write = Callable[["FunctionWriter", Node], Any]
Scalar = Number | Argument


def _plain(name: str) -> Emit:
    """The op of that name on all operands as tensors."""
    return lambda w, node, out: w.emit(name, *(w.tensor(i, out.type.dims) for i in node.inputs), into=out)


def _on_first(name: str, *operands: Callable[[FunctionWriter, Node], Operand]) -> Emit:
    """The op of that name on the first input, with operands made of the rest of the node."""
    return lambda w, node, out: w.emit(name, w.tensor(node.inputs[0]), *(o(w, node) for o in operands), into=out)


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


def _bools(w: FunctionWriter, node: Node, out: Tensor) -> Sequence[Tensor]:
    """The operands of a logical operation. Raises VerifyError for a bitwise one."""
    if out.type.dtype is not BOOL:
        w.fail(node, f"deepx has no bitwise operation on {out.type.dtype}", expected="bool operands")
    return [w.tensor(i, out.type.dims) for i in node.inputs]


def _logical(name: str) -> Emit:
    """min, max of bools: and, or."""
    return lambda w, node, out: w.emit(name, *_bools(w, node, out), into=out)


def _differ(w: FunctionWriter, node: Node, out: Tensor) -> None:
    w.emit("notequal", *_bools(w, node, out), w.number(0, BOOL), into=out, dtype=BOOL)


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
    choices = Tensors((w.tensor(on_false, out.type.dims), w.tensor(on_true, out.type.dims)))
    w.emit("switch", choices, w.tensor(pred), into=out)


def _between(w: FunctionWriter, node: Node, out: Tensor) -> None:
    low, x, high = node.inputs
    value = w.tensor(x, out.type.dims)
    for name, bound, into in (("max", low, None), ("min", high, out)):
        number = w.scalar(bound)
        if number is not None:
            value = w.apply(f"{name}scalar", out.type, value, number, into=into)
        else:
            value = w.apply(name, out.type, value, w.tensor(bound, out.type.dims), into=into)


# --- reductions, contractions, random numbers ----------------------------------------------------------------------

_REDUCTIONS: dict[Op, tuple[str, str]] = {
    add: ("sum", "add"), multiply: ("prod", "mul"), maximum: ("reducemax", "max"), minimum: ("reducemin", "min"),
    and_: ("reducemin", "min"), or_: ("reducemax", "max"),
}  # fmt: skip
"""By what deepx reduces, and by what it combines two totals."""


def _reduced(w: FunctionWriter, node: Node, out: Tensor) -> None:
    op, dtype = node.attr("body").reducer, out.type.dtype
    if len(node.inputs) != 2 or op not in _REDUCTIONS or (op in (and_, or_) and dtype is not BOOL):
        w.fail(node, "deepx reduces by sum, prod, max and min only")
    (x, init), (reducing, combining) = node.inputs, _REDUCTIONS[op]
    first, axes = w.splat(init), tuple(node.attr("dimensions"))
    is_plain = first is not None and bool(first == np.asarray(op.identity_for(dtype), dtype.np))
    total = w.tensor(x)
    if axes:
        total = w.apply(reducing, out.type, total, Vector(axes), Flag(False), into=out if is_plain else None)
    elif is_plain:
        w.emit("copytensor", total, into=out)
    if not is_plain:
        w.emit(combining, total, w.tensor(init, out.type.dims), into=out)


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


# --- elements moved ---------------------------------------------------------------------------------------------------


def _converted(w: FunctionWriter, node: Node, out: Tensor) -> None:
    if not w.form.states_types:
        w.dims(node)  # the element type is that of a tensor made before
    w.emit("todtype", w.tensor(node.inputs[0]), into=out, dtype=None)


def _broadcast(w: FunctionWriter, node: Node, out: Tensor) -> None:
    number = w.scalar(node.inputs[0])
    if number is not None:
        w.dims(node)
        w.emit("constant", number, into=out)
        return
    x, axes, shape = w.tensor(node.inputs[0]), node.attr("broadcast_dimensions"), w.dims(node)
    dims = w.dims(node.inputs[0])
    size = dict(zip(axes, dims, strict=True))
    lead = len(shape) - len(axes)
    aligned = tuple(size.get(k, 1) for k in range(lead if min(axes, default=lead) == lead else 0, len(shape)))
    order = tuple(sorted(range(len(axes)), key=axes.__getitem__))
    x = _arranged(w, x._replace(type=x.type.with_dims(dims)), order, aligned)
    w.emit("broadcastTo", x, Vector(shape), into=out)


def _joined(w: FunctionWriter, node: Node, out: Tensor) -> None:
    w.emit("concat", Tensors(tuple(w.tensor(i) for i in node.inputs)), w.number(node.attr("dimension"), I32), into=out)


def _take(w: FunctionWriter, x: Tensor, axis: int, start: int, step: int, count: int, out: Tensor | None) -> Tensor:
    """Elements start, start + step, ... along an axis."""
    index = w.apply("arange", tensor(I32, (count,)), w.number(start, I32), w.number(step, I32))
    dims = (*(x.type.dims or ())[:axis], count, *(x.type.dims or ())[axis + 1 :])
    return w.apply("indexselect", x.type.with_dims(dims), x, index, w.number(axis, I32), into=out)


def _taken(w: FunctionWriter, node: Node, out: Tensor, runs: Sequence[tuple[int, int, int, int]]) -> None:
    """`runs` are axis, start, step, count of the axes that change."""
    x = w.tensor(node.inputs[0])
    for k, (axis, start, step, count) in enumerate(runs):
        x = _take(w, x, axis, start, step, count, out if k == len(runs) - 1 else None)
    if not runs:
        w.emit("copytensor", x, into=out)


def _sliced(w: FunctionWriter, node: Node, out: Tensor) -> None:
    old, new = w.shape(node.inputs[0]), w.shape(node)
    starts, _, strides = node.attrs
    _taken(w, node, out, [(k, s, t, n) for k, (s, t, n, o) in enumerate(zip(starts, strides, new, old, strict=True)) if n != o])


def _reversed(w: FunctionWriter, node: Node, out: Tensor) -> None:
    sizes = w.shape(node)
    _taken(w, node, out, [(k, sizes[k] - 1, -1, sizes[k]) for k in node.attr("dimensions")])


def _padded(w: FunctionWriter, node: Node, out: Tensor) -> None:
    low, high, interior = node.attrs
    if any(interior) or min((*low, *high), default=0) < 0:
        w.fail(node, "deepx cannot pad between elements or by less than nothing")
    x, value = w.tensor(node.inputs[0]), node.inputs[1]
    todo = [k for k in range(len(low)) if low[k] or high[k]]
    dims = list(w.shape(node.inputs[0]))
    for k in todo:
        edges = [w.tensor(value, (*dims[:k], count, *dims[k + 1 :])) if count else None for count in (low[k], high[k])]
        dims[k] += low[k] + high[k]
        parts = Tensors(tuple(p for p in (edges[0], x, edges[1]) if p is not None))
        x = w.apply("concat", x.type.with_dims(dims), parts, w.number(k, I32), into=out if k == todo[-1] else None)
    if not todo:
        w.emit("copytensor", x, into=out)


def _counted(w: FunctionWriter, node: Node, out: Tensor) -> None:
    axis, shape = node.attr("iota_dimension"), w.shape(node)
    run = (w.number(0, out.type.dtype), w.number(1, out.type.dtype))
    if math.prod(shape) == shape[axis]:
        w.emit("arange", *run, into=out)
        return
    flat = tuple(n if k == axis else 1 for k, n in enumerate(shape))
    w.emit("broadcastTo", w.apply("arange", out.type.with_dims(flat), *run), Vector(shape), into=out)


# --- constants, tuples, calls and effects -------------------------------------------------------------------------------


def _item(w: FunctionWriter, node: Node) -> Any:
    whole = w.values[node.inputs[0]]
    return whole[index_of(node)] if type(whole) is tuple else w.broken(node)


def _call(w: FunctionWriter, node: Node) -> Any:
    signature = signature_of(node)
    if not w.form.has_functions:
        w.fail(node, f"dialect '{w.form.name}' has no calls", hint="inline it first, or write dialect 'function'")
    args = [w.tensor(i, (1,) if i.type.dims == () else None) for i in node.inputs if isinstance(i.type, TensorType)]
    args = [w.apply("reshape", a.type.with_dims((1,)), a, Vector((1,))) if a.type.dims == () else a for a in args]
    if len(args) + sum(is_state(i.type) for i in node.inputs) < len(node.inputs):
        w.fail(node, "deepx passes tensors only")
    outs = [None if is_state(t) else _item_target(w, node, k, t) for k, t in enumerate(signature.results)]
    w.made.append(Instruction(w.names[callee_of(node)], tuple(args), tuple(o for o in outs if o is not None)))
    return tuple(outs)


def _item_target(w: FunctionWriter, node: Node, index: int, type: Any) -> Tensor:
    out = w.item_targets.get((node, index))
    if out is None:
        if not isinstance(type, TensorType):
            w.fail(node, f"deepx has no values of type {type}")
        out = Tensor(w.name_for(""), type)
        w.create(out, node)
    return out


# --- effects ------------------------------------------------------------------------------------------------------


def _text(w: FunctionWriter, node: Node, text: str) -> Text:
    if not w.form.legal_text.fullmatch(text):
        w.fail(node, f"dialect '{w.form.name}' cannot hold the text '{text}'",
               expected="no comma, bracket, arrow or //" if w.form.name == "wire" else "one plain word")
    return Text(text)


def _print(w: FunctionWriter, node: Node) -> None:
    """The format is left out where it is what it would be without, and the dialect cannot hold it."""
    x, format = w.tensor(node.inputs[1]), node.attr("format")
    is_default = format == ("%.4f" if x.type.dtype.is_float else "%d") and x.type.dtype.kind != "any"
    can_omit = not format or (is_default and not w.form.legal_text.fullmatch(format))
    w.made.append(Instruction("print", (x,) if can_omit else (x, _text(w, node, format))))


def _save(w: FunctionWriter, node: Node) -> None:
    w.made.append(Instruction("save", (w.tensor(node.inputs[1]), _text(w, node, node.attr("path")))))


def loaded_name(path: str) -> str:
    """The name that `load` gives: that of the file, cut at its last dot."""
    base = posixpath.basename(path)
    return base.rpartition(".")[0] or base


def _load(w: FunctionWriter, node: Node) -> Any:
    """`load` names the tensor after the file, so it is renamed at once; then its type is stated."""
    path, type = node.attrs
    name = loaded_name(path)
    if not w.form.accepts_name(name):
        w.fail(node, f"deepx would name what it loads '{name}'", expected="a path that ends in a plain name")
    if type.dtype.np is not None:
        w.word(type.dtype, node)
    made = Tensor(name, type)
    out = w.item_targets.get((node, 0), made)
    w.made.append(Instruction("load", (_text(w, node, path),)))
    if out.name != name or w.item_targets.get((node, 0)) is None:
        out = Tensor(w.name_for(""), type)
        w.made.append(Instruction("renametensor", (Text(out.name),), (made,)))
    w.declare(out, node)
    return (out, None)


EMITTERS: dict[Op, Emit] = {
    sqrt: _plain("sqrt"), exponential: _plain("exp"), log: _plain("log"), sine: _plain("sin"), cosine: _plain("cos"),
    tan: _plain("tan"), not_: _plain("invert"),
    negate: _on_first("mulscalar", lambda w, node: w.number(-1, as_tensor(node.type).dtype)),
    abs_: _magnitude,
    add: _with_number("add", commutes=True), multiply: _with_number("mul", commutes=True),
    subtract: _with_number("sub", "rsubscalar"), divide: _with_number("div", "rdivscalar"),
    power: _with_number("pow", "rpowscalar"), floor_mod: _with_number("mod"), maximum: _with_number("max", commutes=True),
    minimum: _with_number("min", commutes=True), and_: _logical("min"), or_: _logical("max"), xor: _differ,
    compare: _comparison, select: _choice, clamp: _between, reduce: _reduced, dot_general: _product,
    rng_uniform: _draw("uniform"), rng_normal: _draw("normal"), convert: _converted,
    reshape: _on_first("reshape", lambda w, node: Vector(w.dims(node))),
    transpose: _on_first("transpose", lambda w, node: Vector(node.attr("permutation"))),
    broadcast_in_dim: _broadcast, concatenate: _joined, slice_: _sliced, reverse: _reversed, pad: _padded, iota: _counted,
    torch_index_select: _on_first("indexselect", lambda w, node: w.tensor(node.inputs[1]),
                                  lambda w, node: w.number(node.attr("dim"), I32)),
    ensure_type: _on_first("copytensor"),
}  # fmt: skip
"""Every operation with one tensor as result that deepx can say."""

STRUCTURE: dict[Op, Write] = {
    CONSTANT: lambda w, node: value_of(node), TUPLE: lambda w, node: tuple(w.values[i] for i in node.inputs), PROJ: _item,
    CALL: _call, print_: _print, save: _save, load: _load, module_seed: lambda w, node: None,
}  # fmt: skip
"""Every other operation: each function gives the value that the node has from then on, which is None for a state."""


def is_unsaid(node: Node) -> bool:
    """Whether it is of a form that deepx has no words for."""
    if node.op in (and_, or_, xor):
        return isinstance(node.type, TensorType) and node.type.dtype is not BOOL
    return node.op is compare and node.attr("compare_type") == "TOTALORDER"
