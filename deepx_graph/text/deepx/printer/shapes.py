"""Writing operations that move elements: rows of the table in `print_ops`.

deepx has reshape, transpose, broadcastTo, concat and indexselect; slices, reversals, padding and iota are made of these, with
`arange` as the index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deepx_graph.ir import Node, Op
from deepx_graph.ops import (
    broadcast_in_dim,
    concatenate,
    convert,
    ensure_type,
    iota,
    pad,
    reshape,
    reverse,
    slice_,
    torch_index_select,
    transpose,
)
from deepx_graph.text.deepx.printer.forms import Tensor, Tensors, Vector
from deepx_graph.types import I32, tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from deepx_graph.text.deepx.printer.function import FunctionWriter

    Emit = Callable[[FunctionWriter, Node, Tensor], None]


def _converted(w: FunctionWriter, node: Node, out: Tensor) -> None:
    if not w.form.states_types:
        w.dims(node)  # the element type is that of a tensor made before
    w.emit("todtype", w.tensor(node.inputs[0]), into=out, dtype=None)


def _reshaped(w: FunctionWriter, node: Node, out: Tensor) -> None:
    w.emit("reshape", w.tensor(node.inputs[0]), Vector(w.dims(node)), into=out)


def _permuted(w: FunctionWriter, node: Node, out: Tensor) -> None:
    w.emit("transpose", w.tensor(node.inputs[0]), Vector(node.attr("permutation")), into=out)


def _broadcast(w: FunctionWriter, node: Node, out: Tensor) -> None:
    number = w.scalar(node.inputs[0])
    if number is not None:
        w.dims(node)
        w.emit("constant", number, into=out)
        return
    x, axes, shape = w.tensor(node.inputs[0]), node.attr("broadcast_dimensions"), w.dims(node)
    order = tuple(sorted(range(len(axes)), key=axes.__getitem__))
    dims = w.dims(node.inputs[0])
    if order != tuple(range(len(axes))):
        dims = tuple(dims[k] for k in order)
        x = w.apply("transpose", x.type.with_dims(dims), x, Vector(order))
    axes = tuple(sorted(axes))
    if axes != tuple(range(len(shape) - len(axes), len(shape))):
        size = dict(zip(axes, dims, strict=True))
        dims = tuple(size.get(k, 1) for k in range(len(shape)))
        x = w.apply("reshape", x.type.with_dims(dims), x, Vector(dims))
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


def _selected(w: FunctionWriter, node: Node, out: Tensor) -> None:
    x, index = node.inputs
    w.emit("indexselect", w.tensor(x), w.tensor(index), w.number(node.attr("dim"), I32), into=out)


def _refined(w: FunctionWriter, node: Node, out: Tensor) -> None:
    w.emit("copytensor", w.tensor(node.inputs[0]), into=out)


SHAPES: dict[Op, Emit] = {
    convert: _converted, reshape: _reshaped, transpose: _permuted, broadcast_in_dim: _broadcast, concatenate: _joined,
    slice_: _sliced, reverse: _reversed, pad: _padded, iota: _counted, torch_index_select: _selected, ensure_type: _refined,
}  # fmt: skip
"""The rows of this family."""
