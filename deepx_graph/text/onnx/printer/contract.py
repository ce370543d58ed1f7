"""Products, convolutions, reductions, windows, gathers, scatters and sorting in ONNX."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Function, Node, Op
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.literal import Literal
from deepx_graph.text.onnx.printer.graph import GraphWriter, Say
from deepx_graph.text.onnx.values import NUMBERS
from deepx_graph.types import BOOL, I32, I64, U8, TupleType, as_tensor

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _shape(node: Node) -> tuple[int, ...]:
    return as_tensor(node.type).shape


def _rank(node: Node) -> int:
    rank = as_tensor(node.type).rank
    if rank is None:
        raise InferError("the rank of an operand is not known")
    return rank


def turned(w: GraphWriter, x: str | Node, order: Sequence[int]) -> str | Node:
    """The axes in another order; itself where that is the one they have."""
    return x if list(order) == list(range(len(order))) else w.emit("Transpose", x, perm=list(order))


def named(w: GraphWriter, x: str | Node) -> str:
    return x if isinstance(x, str) else w.use(x)


# --- products -------------------------------------------------------------------------------------------------------


def _dot(w: GraphWriter, node: Node) -> str:
    """MatMul where the batches lead and one axis is summed, the last two of an operand turned where they must be; else Einsum."""
    x, y = node.inputs
    batch, batch_y, sum_x, sum_y = node.attrs
    a, b, n = _rank(x), _rank(y), len(batch)
    leading = tuple(range(n))
    if batch == batch_y == leading and len(sum_x) == len(sum_y) == 1 and a > n and b > n:
        if b == 2 and not n and (sum_x[0] == a - 1 or a == 2):  # many rows of x, one matrix
            left = x if sum_x[0] == a - 1 else turned(w, x, (1, 0))
            return w.emit("MatMul", left, y if sum_y[0] == 0 else turned(w, y, (1, 0)))
        if a == b == n + 2:
            swap = (*leading, n + 1, n)
            left = x if sum_x[0] == n + 1 else turned(w, x, swap)
            return w.emit("MatMul", left, y if sum_y[0] == n else turned(w, y, swap))
        if not n and (a, b) in ((1, 1), (2, 1)) and sum_x[0] == a - 1:
            return w.emit("MatMul", x, y)
    free = iter(LETTERS)
    one, other = [""] * a, [""] * b
    for i, j in (*zip(batch, batch_y, strict=True), *zip(sum_x, sum_y, strict=True)):
        one[i] = other[j] = next(free)
    one, other = [c or next(free) for c in one], [c or next(free) for c in other]
    out = [one[i] for i in batch] + [c for k, c in enumerate(one) if k not in (*batch, *sum_x)]
    out += [c for k, c in enumerate(other) if k not in (*batch_y, *sum_y)]
    return w.emit("Einsum", x, y, equation=f"{''.join(one)},{''.join(other)}->{''.join(out)}")


def _convolution(w: GraphWriter, node: Node) -> str:
    """Conv over batch, channels, space: axes are turned, dilated operands padded between elements, windows reversed."""
    c = node.named_attrs
    x, kernel = node.inputs
    if not as_tensor(node.type).dtype.is_float:
        raise InferError("Conv is of floats")
    spatial, k_spatial, n = c["input_spatial_dimensions"], c["kernel_spatial_dimensions"], len(c["input_spatial_dimensions"])
    left = turned(w, x, (c["input_batch_dimension"], c["input_feature_dimension"], *spatial))
    right = turned(w, kernel, (c["kernel_output_feature_dimension"], c["kernel_input_feature_dimension"], *k_spatial))
    sizes = [_shape(x)[k] for k in (c["input_batch_dimension"], c["input_feature_dimension"], *spatial)]
    if any(c["window_reversal"]):
        axes = [k + 2 for k, r in enumerate(c["window_reversal"]) if r]
        many = [-1] * len(axes)
        right = w.emit("Slice", right, w.ints(many), w.ints([-(1 << 62)] * len(axes)), w.ints(axes), w.ints(many))
    groups, batches = c["feature_group_count"], c["batch_group_count"]
    if batches > 1:  # each group of batches has outputs of its own
        split = w.reshape(left, [batches, sizes[0] // batches, *sizes[1:]])
        moved = w.emit("Transpose", split, perm=[1, 0, *range(2, n + 3)])
        sizes[:2] = [sizes[0] // batches, batches * sizes[1]]
        left, groups = w.reshape(moved, sizes), batches * groups
    for k, d in enumerate(c["lhs_dilation"]):
        if d > 1 and sizes[k + 2] > 1:
            axis, size = k + 2, sizes[k + 2]
            gaps = [*sizes[: axis + 1], 1, *sizes[axis + 1 :]]
            after = [d - 1 if j == axis + 1 else 0 for j in range(len(gaps))]
            wide = w.emit("Pad", w.reshape(left, gaps), w.ints([0] * len(gaps) + after))
            sizes[axis] = size * d
            wide = w.reshape(wide, sizes)
            left = w.emit("Slice", wide, w.ints([0]), w.ints([size * d - d + 1]), w.ints([axis]))
            sizes[axis] = size * d - d + 1
    low, high = list(c["padding_low"]), list(c["padding_high"])
    if min((*low, *high), default=0) < 0:
        cut = [[min(p, 0) for p in side] for side in (low, high)]
        left = w.emit("Pad", left, w.ints([0, 0, *cut[0], 0, 0, *cut[1]]))
        low, high = [max(p, 0) for p in low], [max(p, 0) for p in high]
    made = w.emit("Conv", left, right, kernel_shape=[_shape(kernel)[k] for k in k_spatial], group=groups if groups > 1 else None,
                  strides=_unless_ones(c["window_strides"]), dilations=_unless_ones(c["rhs_dilation"]),
                  pads=[*low, *high] if any((*low, *high)) else None)
    places = (c["output_batch_dimension"], c["output_feature_dimension"], *c["output_spatial_dimensions"])
    return named(w, turned(w, made, [places.index(k) for k in range(n + 2)]))


def _unless_ones(values: Sequence[int]) -> Sequence[int] | None:
    return None if set(values) <= {1} else values


# --- reductions and windows -----------------------------------------------------------------------------------------

TOTALS: dict[Op, str] = {
    ops.add: "ReduceSum", ops.maximum: "ReduceMax", ops.minimum: "ReduceMin", ops.multiply: "ReduceProd", ops.or_: "ReduceMax",
    ops.and_: "ReduceMin",
}  # fmt: skip
COMBINE: dict[Op, str] = {
    ops.add: "Add", ops.maximum: "Max", ops.minimum: "Min", ops.multiply: "Mul", ops.or_: "Or", ops.and_: "And",
}  # fmt: skip


def _reduce(w: GraphWriter, node: Node) -> str | Sequence[str]:
    if len(node.inputs) != 2:
        return _places(w, node)
    op, dtype = node.attr("body").reducer, as_tensor(node.type).dtype
    if op not in TOTALS or (dtype is not BOOL and op in (ops.or_, ops.and_)):
        raise InferError("this is no sum, product, minimum or maximum")
    x: str | Node = node.inputs[0]
    if dtype is BOOL:
        x = w.emit("Cast", x, to=NUMBERS[U8])
        op = {ops.add: ops.or_, ops.multiply: ops.and_}.get(op, op)
    made = named(w, x)
    if node.attr("dimensions"):
        made = w.emit(TOTALS[op], x, w.ints(node.attr("dimensions")), keepdims=0)
    if dtype is BOOL:
        made = w.emit("Cast", made, to=NUMBERS[BOOL])
    start = splat_of(node.inputs[1])
    if start is not None and start == op.identity_for(dtype):
        return made
    return w.emit(COMBINE[op], made, node.inputs[1])


def _places(w: GraphWriter, node: Node) -> Sequence[str]:
    """The greatest or least element along an axis, and where it is: the first one."""
    x, places = node.inputs[:2]
    axes, body = node.attr("dimensions"), node.attr("body")
    directions = {n.attr("direction") for n in body.nodes if n.op is ops.compare} - {"EQ", "NE"}
    is_iota = places.op is ops.iota and len(axes) == 1 and places.attr("iota_dimension") == axes[0]
    if places.op is ops.broadcast_in_dim and len(axes) == 1:
        line = places.inputs[0]
        is_iota = line.op is ops.iota and line.attr("iota_dimension") == 0 and places.attr("broadcast_dimensions") == axes
    if len(node.inputs) != 4 or not is_iota or len(directions - {"LT", "LE"}) > 1 or not _chooses(body):
        raise InferError("this reduction is none of those of ONNX")
    direction = "GT" if directions & {"GT", "GE"} else "LT"
    word = "Max" if direction == "GT" else "Min"
    best = w.emit(f"Reduce{word}", x, w.ints(axes), keepdims=0)
    where = w.emit(f"Arg{word}", x, axis=axes[0], keepdims=0)
    return [best, w.emit("Cast", where, to=NUMBERS[as_tensor(places.type).dtype])]


def _chooses(body: Function) -> bool:
    """Whether a body gives elements of one of its pairs."""
    return len(body.results) == 2 and all(r.op is ops.select and set(r.inputs[1:]) <= set(body.params) for r in body.results)


def _window_axes(node: Node) -> tuple[list[int], list[int]]:
    """The axes along which windows go, and the others."""
    a = node.named_attrs
    rank = len(a["window_dimensions"])
    moved = [k for k in range(rank) if (a["window_dimensions"][k], a["window_strides"][k], a["padding_low"][k],
                                        a["padding_high"][k]) != (1, 1, 0, 0)]
    return moved, [k for k in range(rank) if k not in moved]


def _pooled(w: GraphWriter, node: Node, x: Node) -> tuple[str, list[int], list[int]]:
    """The operand as batch, one channel, space; its axes in that order, and their sizes."""
    moved, others = _window_axes(node)
    order = [*others, *moved]
    sizes = [_shape(x)[k] for k in order]
    return named(w, turned(w, x, order)), order, sizes


def _window_attributes(node: Node, moved: Sequence[int]) -> dict[str, object]:
    a = node.named_attrs
    low, high = ([a[side][k] for k in moved] for side in ("padding_low", "padding_high"))
    return {"kernel_shape": [a["window_dimensions"][k] for k in moved],
            "strides": _unless_ones([a["window_strides"][k] for k in moved]), "pads": [*low, *high] if any((*low, *high)) else None}


def _reduce_window(w: GraphWriter, node: Node) -> str:
    """MaxPool, or AveragePool times the size of a window; CumSum; otherwise slices, one for each place in a window."""
    a = node.named_attrs
    op = a["body"].reducer if len(node.inputs) == 2 else None
    x = node.inputs[0]
    dtype = as_tensor(x.type).dtype
    if op not in COMBINE or dtype is BOOL or set(a["base_dilations"]) != {1}:
        raise InferError("these windows are none of those of ONNX")
    moved, others = _window_axes(node)
    start = splat_of(node.inputs[1])
    plain = start is not None and start == op.identity_for(dtype) and as_tensor(x.type).dims != ()
    sizes, low = a["window_dimensions"], a["padding_low"]
    if op is ops.add and plain and len(moved) == 1 and set(a["window_strides"]) == {1} and not any(a["padding_high"]):
        axis = moved[0]
        if sizes[axis] == _shape(x)[axis] == low[axis] + 1 and set(a["window_dilations"]) == {1}:
            return w.emit("CumSum", x, w.number(axis, I64))
    small = all(p < sizes[k] for side in ("padding_low", "padding_high") for k, p in enumerate(a[side]) if k in moved)
    positive = min((*low, *a["padding_high"])) >= 0
    if plain and dtype.is_float and op in (ops.add, ops.maximum) and moved and small and positive and set(
            a["window_dilations"]) == {1}:
        view, order, shape = _pooled(w, node, x)
        count = len(others)
        flat = count == 2
        if not flat:
            view = w.reshape(view, [math.prod(shape[:count]), 1, *shape[count:]])
        attributes = _window_attributes(node, moved)
        if op is ops.maximum:
            made = w.emit("MaxPool", view, **attributes)
        else:
            made = w.emit("AveragePool", view, count_include_pad=1 if attributes["pads"] else None, **attributes)
            made = w.emit("Mul", made, w.number(math.prod(sizes), dtype))
        if not flat:
            made = w.reshape(made, [*shape[:count], *(_shape(node)[k] for k in moved)])
        return named(w, turned(w, made, [order.index(k) for k in range(len(order))]))
    return _unrolled(w, node, op)


MOST = 256
"""Places in a window that are written one by one."""


def _unrolled(w: GraphWriter, node: Node, op: Op) -> str:
    """The padded operand sliced once for each place in a window."""
    a = node.named_attrs
    if math.prod(a["window_dimensions"]) > MOST:
        raise InferError(f"windows of more than {MOST} elements")
    x: str | Node = node.inputs[0]
    if any((*a["padding_low"], *a["padding_high"])):
        x = w.emit("Pad", x, w.ints([*a["padding_low"], *a["padding_high"]]), node.inputs[1])
    made, axes = "", list(range(len(_shape(node))))
    for place in np.ndindex(*a["window_dimensions"]):
        first = [p * d for p, d in zip(place, a["window_dilations"], strict=True)]
        last = [f + (n - 1) * s + 1 for f, n, s in zip(first, _shape(node), a["window_strides"], strict=True)]
        part = w.emit("Slice", x, w.ints(first), w.ints(last), w.ints(axes), w.ints(a["window_strides"]))
        made = w.emit(COMBINE[op], made, part) if made else part
    start = splat_of(node.inputs[1])
    neutral = start is not None and start == op.identity_for(as_tensor(node.type).dtype)
    return made if neutral else w.emit(COMBINE[op], made, node.inputs[1])


def _select_and_scatter(w: GraphWriter, node: Node) -> str:
    """Where MaxPool found the greatest elements, the sources are added."""
    a, (x, source, start) = node.named_attrs, node.inputs
    chosen = a["select"].results[0]
    added = a["scatter"].reducer is ops.add and splat_of(start) == 0
    if chosen.op is not ops.compare or chosen.attr("direction") != "GE" or not added:
        raise InferError("this is not the gradient of a maximum over windows")
    moved, others = _window_axes(node)
    view, order, shape = _pooled(w, node, x)
    count = len(others)
    view = w.reshape(view, [math.prod(shape[:count]), 1, *shape[count:]])
    _, places = w.emit_many("MaxPool", 2, view, **_window_attributes(node, moved))
    flat = w.reshape(turned(w, source, order), [-1])
    zeros = w.emit("ConstantOfShape", w.ints([math.prod(shape)]))
    if as_tensor(x.type).dtype.bits != 32:
        zeros = w.emit("Cast", zeros, to=NUMBERS[as_tensor(x.type).dtype])
    made = w.emit("ScatterElements", zeros, w.reshape(places, [-1]), flat, reduction="add")
    return named(w, turned(w, w.reshape(made, shape), [order.index(k) for k in range(len(order))]))


# --- places that are computed ---------------------------------------------------------------------------------------


def _starts(w: GraphWriter, node: Node, sizes: Sequence[int], limits: Sequence[int], scalars: Sequence[Node]) -> str:
    """Where a slice begins, held so that it stays inside."""
    if all(s.op is CONSTANT for s in scalars):
        values = [int(value_of(s).array) for s in scalars]
        return w.ints([max(0, min(v, d - n)) for v, d, n in zip(values, limits, sizes, strict=True)])
    parts = [w.reshape(w.emit("Cast", s, to=NUMBERS[I64]), [1]) for s in scalars]
    whole = w.emit("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]
    most = w.ints([d - n for d, n in zip(limits, sizes, strict=True)])
    return w.emit("Min", w.emit("Max", whole, w.ints([0] * len(sizes))), most)


def _dynamic_slice(w: GraphWriter, node: Node) -> str:
    x, scalars, sizes = node.inputs[0], node.inputs[1:], node.attr("slice_sizes")
    if not sizes:
        return w.use(x)
    first = _starts(w, node, sizes, _shape(x), scalars)
    return w.emit("Slice", x, first, w.emit("Add", first, w.ints(sizes)), w.ints(range(len(sizes))))


def _dynamic_update_slice(w: GraphWriter, node: Node) -> str:
    """The update moved to its place along each axis, and the operand where it is not."""
    x, update, scalars = node.inputs[0], node.inputs[1], node.inputs[2:]
    shape, sizes = _shape(x), _shape(update)
    if not shape or sizes == shape:
        return w.use(update)
    first = _starts(w, node, sizes, shape, scalars)
    moved, inside = named(w, update), ""
    for k, (d, n) in enumerate(zip(shape, sizes, strict=True)):
        if n == d:
            continue
        start = w.emit("Slice", first, w.ints([k]), w.ints([k + 1]))
        off = w.emit("Sub", w.constant(Literal(np.arange(d, dtype=np.int64))), start)
        held = w.emit("Min", w.emit("Max", off, w.ints([0])), w.ints([n - 1]))
        hit = w.emit("Equal", held, off)
        moved = w.emit("Gather", moved, held, axis=k)
        hit = w.reshape(hit, [d if j == k else 1 for j in range(len(shape))])
        inside = w.emit("And", inside, hit) if inside else hit
    return w.emit("Where", inside, moved, x)


def _index_rows(w: GraphWriter, indices: Node, vector: int, count: int) -> tuple[str, list[int]]:
    """The index vectors along the last axis, as int64, and the sizes of the other axes."""
    shape = list(_shape(indices))
    rows = w.emit("Cast", indices, to=NUMBERS[I64]) if as_tensor(indices.type).dtype is not I64 else w.use(indices)
    if vector == len(shape):
        return w.reshape(rows, [*shape, 1]), shape
    order = [k for k in range(len(shape)) if k != vector]
    return named(w, turned(w, rows, [*order, vector])), [shape[k] for k in order]


def _gather(w: GraphWriter, node: Node) -> str:
    """Whole slices behind index vectors, which are held inside: Gather along one axis, else GatherND."""
    x, indices = node.inputs
    a = node.named_attrs
    shape, index_map, offset = _shape(x), a["start_index_map"], a["offset_dims"]
    sizes, batching = a["slice_sizes"], a["operand_batching_dims"]
    indexed = [*index_map]
    if sorted(a["collapsed_slice_dims"]) != sorted(indexed) or any(
            sizes[k] != shape[k] for k in range(len(shape)) if k not in (*indexed, *batching)):
        raise InferError("it takes parts of several elements")
    rows, outer = _index_rows(w, indices, a["index_vector_dim"], len(indexed))
    rows = w.emit("Min", w.emit("Max", rows, w.ints([0] * len(indexed))), w.ints([shape[k] - 1 for k in indexed]))
    starts_batching = [k if k < a["index_vector_dim"] else k - 1 for k in a["start_indices_batching_dims"]]
    rest = [k for k in range(len(shape)) if k not in (*indexed, *batching)]
    many = len(batching)
    if many:
        order = [*starts_batching, *(k for k in range(len(outer)) if k not in starts_batching)]
        rows = named(w, turned(w, rows, [*order, len(outer)]))
        outer_axes = order
    else:
        outer_axes = list(range(len(outer)))
    if len(indexed) == 1 and not many:
        axis = indexed[0]
        flat = w.reshape(rows, outer)
        made = w.emit("Gather", x, flat, axis=axis)
        before = len([k for k in rest if k < axis])  # the axes of the index stand where the indexed axis was
        current = [("x", k) for k in range(before)] + [("i", k) for k in range(len(outer))] + [
            ("x", k) for k in range(before, len(rest))]
    else:
        made = w.emit("GatherND", turned(w, x, [*batching, *indexed, *rest]), rows, batch_dims=many or None)
        current = [("i", k) for k in outer_axes] + [("x", k) for k in range(len(rest))]
    wanted, own, windows = [], iter(range(len(outer))), iter(range(len(rest)))
    for k in range(len(outer) + len(rest)):
        wanted.append(("x", next(windows)) if k in offset else ("i", next(own)))
    return named(w, turned(w, made, [current.index(c) for c in wanted]))


REDUCTIONS: dict[Op, str] = {ops.add: "add", ops.multiply: "mul", ops.maximum: "max", ops.minimum: "min"}


def _scatter(w: GraphWriter, node: Node) -> str:
    """ScatterND of whole slices. Those outside go to a place that is cut off again."""
    a = node.named_attrs
    if len(node.inputs) != 3 or a["input_batching_dims"]:
        raise InferError("it scatters several tensors, or batches")
    x, indices, updates = node.inputs
    body: Function = a["update_computation"]
    second = len(body.params) == 2 and body.results == body.params[1:]
    if not second and body.reducer not in REDUCTIONS:
        raise InferError("the way that it combines elements is none of ONNX")
    shape, indexed = _shape(x), list(a["scatter_dims_to_operand_dims"])
    rest = [k for k in range(len(shape)) if k not in indexed]
    windows = list(a["update_window_dims"])
    if sorted(a["inserted_window_dims"]) != sorted(indexed) or any(
            _shape(updates)[u] != shape[k] for u, k in zip(windows, rest, strict=True)):
        raise InferError("it writes parts of several elements")
    rows, _ = _index_rows(w, indices, a["index_vector_dim"], len(indexed))
    order = [*indexed, *rest]
    sizes = [shape[k] for k in order]
    count = len(indexed)
    left = turned(w, x, order)
    inside = indices.op is CONSTANT and bool((value_of(indices).array >= 0).all()) and bool(
        (value_of(indices).array < min(sizes[:count])).all())
    if not inside:
        left = w.emit("Pad", left, w.ints([0] * len(sizes) + [1] * count + [0] * len(rest)))
        limits = w.ints(sizes[:count])
        out = w.emit("Or", w.emit("Less", rows, w.ints([0])), w.emit("GreaterOrEqual", rows, limits))
        rows = w.emit("Where", out, limits, rows)
    placed = turned(w, updates, [*(k for k in range(_rank(updates)) if k not in windows), *windows])
    made = w.emit("ScatterND", left, rows, placed, reduction=None if second else REDUCTIONS[body.reducer])  # type: ignore[index]
    if not inside:
        made = w.emit("Slice", made, w.ints([0] * count), w.ints(sizes[:count]), w.ints(range(count)))
    return named(w, turned(w, made, [order.index(k) for k in range(len(order))]))


def _index_select(w: GraphWriter, node: Node) -> str:
    most = w.number(_shape(node.inputs[0])[node.attr("dim")] - 1, as_tensor(node.inputs[1].type).dtype)
    held = w.emit("Clip", node.inputs[1], w.number(0, as_tensor(node.inputs[1].type).dtype), most)
    return w.emit("Gather", node.inputs[0], held, axis=node.attr("dim"))


# --- order ----------------------------------------------------------------------------------------------------------


def _sort(w: GraphWriter, node: Node) -> str | Sequence[str]:
    """TopK of all elements, and what goes with them taken from the same places."""
    first = node.attr("comparator").results[0]
    params = node.attr("comparator").params
    if first.op is not ops.compare or tuple(first.inputs) != params[:2] or first.attr("direction") not in ("LT", "GT"):
        raise InferError("the order is not that of one of the tensors")
    axis, x = node.attr("dimension"), node.inputs[0]
    largest = int(first.attr("direction") == "GT")
    values, places = w.emit_many("TopK", 2, x, w.ints([_shape(x)[axis]]), axis=axis, largest=largest)
    others = [w.emit("GatherElements", y, places, axis=axis) for y in node.inputs[1:]]
    return [values, *others] if isinstance(node.type, TupleType) else values


def _top_k(w: GraphWriter, node: Node) -> Sequence[str]:
    values, places = w.emit_many("TopK", 2, node.inputs[0], w.ints([node.attr("k")]), axis=-1)
    return [values, w.emit("Cast", places, to=NUMBERS[I32])]


CONTRACT: dict[Op, Say] = {
    ops.dot_general: _dot, ops.convolution: _convolution, ops.reduce: _reduce, ops.reduce_window: _reduce_window,
    ops.select_and_scatter: _select_and_scatter, ops.dynamic_slice: _dynamic_slice,
    ops.dynamic_update_slice: _dynamic_update_slice, ops.gather: _gather, ops.scatter: _scatter, ops.sort: _sort,
    ops.top_k: _top_k, ops.torch_index_select: _index_select,
}  # fmt: skip
