"""Sizes as values: what is known of a vector of sizes where some of them are symbols of types.

Programs with dynamic shapes take sizes from their operands, put them together and reshape by what they get. Such a vector is known
as numbers and symbols: `[batch, 4, 16]`. Sizes are followed through operations that only move elements, by where these say that
each element is from (`ir/place.py`), through conversions between integers, and through products and sums, of many too; the
largest of equal sizes is that size, and what is computed of numbers alone is a number.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.ir import Node, Op
from deepx_graph.ir.evaluation import evaluation
from deepx_graph.ir.place import Integers, element
from deepx_graph.literal import Array
from deepx_graph.ops.contract.reduce import reduced_axes, reducer_of
from deepx_graph.ops.math.elementwise import add, convert, multiply
from deepx_graph.ops.tensor.layout import get_dimension_size
from deepx_graph.types import Dim, TensorType, add_dims, as_tensor, mul_dims

MOST_SIZES, MOST_NODES = 64, 512
"""Elements of a vector, and operations that it is made by: more are no sizes."""

Known = Callable[[Node], Any]


def known_sizes(node: Node, known: Known) -> tuple[Dim | None, ...] | None:
    """The elements of an integer tensor as numbers, symbols, or None for one that is neither; None where nothing is known of it.

    `known` gives the array of a node, or None.
    """
    found: dict[Node, Array | None] = {}
    stack = [node]
    while stack:
        n = stack[-1]
        waits = [] if n in found or not _may_be_sizes(n) or n.op is get_dimension_size else [
            i for i in n.inputs if i not in found]
        if n in found or not waits:
            found.setdefault(n, _sizes(n, found, known))
            stack.pop()
        elif len(found) + len(stack) > MOST_NODES:
            return None
        else:
            stack += waits
    sizes = found[node]
    return None if sizes is None else tuple(sizes.reshape(-1).tolist())


def known_array(node: Node, known: Known) -> Array | None:
    """The array of a node: as `known` gives it, or of sizes that are all numbers; None where neither says it."""
    value = known(node)
    if value is not None or not _may_be_sizes(node):
        return None if value is None else np.asarray(value)
    sizes = known_sizes(node, known)
    if sizes is None or not all(isinstance(d, int) for d in sizes):
        return None
    type = as_tensor(node.type)
    return np.asarray(sizes, type.dtype.np).reshape(type.shape)


def _may_be_sizes(node: Node) -> bool:
    type = node.type
    return isinstance(type, TensorType) and type.dtype.is_integer and type.is_static and type.size <= MOST_SIZES


def _sizes(node: Node, found: Mapping[Node, Array | None], known: Known) -> Array | None:
    """An array of numbers, symbols and None, of a node whose operands were looked at."""
    if not _may_be_sizes(node):
        return None
    type = as_tensor(node.type)
    if (value := known(node)) is not None:
        return _objects([int(v) for v in np.asarray(value).reshape(-1)], type.shape)
    if node.op is get_dimension_size:
        dims = as_tensor(node.inputs[0].type).dims
        return None if dims is None else _objects([dims[node.attr("dimension")]], ())
    operands = [found.get(i) for i in node.inputs]
    if node.op is convert:
        return operands[0]
    if node.op.place is not None:
        return _moved(node, operands)
    evaluated = _evaluated(node, operands)
    if evaluated is not None or len(operands) != 2:
        return evaluated
    x, y = operands
    if x is None or y is None:
        return None
    if node.op.monoid is not None:
        pairs = np.broadcast(x, y)
        return _objects([_joined(node.op, a, b) for a, b in pairs], pairs.shape)
    reducer, axes = reducer_of(node), reduced_axes(node)
    return None if reducer is None or axes is None else _reduced(reducer, x, y, axes)


def _evaluated(node: Node, operands: Sequence[Array | None]) -> Array | None:
    """The value of an operation on numbers alone."""
    if not operands or node.op.eval is None or not node.op.foldable or any(
            o is None or not all(isinstance(v, int) for v in o.reshape(-1).tolist()) for o in operands):
        return None
    arrays = [np.asarray(o, as_tensor(i.type).dtype.np) for o, i in zip(operands, node.inputs, strict=True)]
    with np.errstate(all="ignore"):
        value = evaluation(node.op, node.attrs, node.type)(arrays)
    return _objects([int(v) for v in np.asarray(value).reshape(-1)], as_tensor(node.type).shape)


def _joined(op: Op, a: Dim | None, b: Dim | None) -> Dim | None:
    """Two sizes by an operation: a product, a sum, or one of two that are the same."""
    if a is None or b is None:
        return None
    try:
        if op is multiply:
            return mul_dims([a, b])
        if op is add:
            return None if any(isinstance(d, int) and d < 0 for d in (a, b)) else add_dims(a, b)
        return a if op.idempotent and a == b else None
    except InferError:
        return None


def _reduced(op: Op, values: Array, first: Array, axes: tuple[int, ...]) -> Array:
    """Sizes along axes joined into one, from the first."""
    kept = [k for k in range(values.ndim) if k not in axes]
    shape = tuple(values.shape[k] for k in kept)
    rows = values.transpose(*kept, *axes).reshape(*shape, -1)
    made = [functools.reduce(functools.partial(_joined, op), rows[at].tolist(), first.item()) for at in np.ndindex(shape)]
    return _objects(made, shape)


def _moved(node: Node, operands: Sequence[Array | None]) -> Array | None:
    """The elements of an operation that only moves them; None where it takes subscripts from what is no number."""
    shapes = [as_tensor(i.type).dims for i in node.inputs]
    if any(s is None or not all(isinstance(d, int) for d in s) for s in shapes):
        return None
    assert node.op.place is not None
    arithmetic = Integers([_objects([], (0,)) if o is None else o for o in operands])
    shape, made = as_tensor(node.type).shape, list[Dim | None]()
    try:
        for at in itertools.product(*map(range, shape)):
            place = element(node.op.place(arithmetic, shapes, node.attrs, at))  # type: ignore[arg-type]
            operand = operands[place.operand]
            made.append(None if operand is None else operand[tuple(place.index)])
    except (LookupError, TypeError, ValueError):
        return None
    return _objects(made, shape)


def _objects(values: Sequence[Dim | None], shape: tuple[int, ...]) -> Array:
    made = np.empty(len(values), object)
    made[:] = values
    return made.reshape(shape)
