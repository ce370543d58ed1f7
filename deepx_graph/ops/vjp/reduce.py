"""The gradients of reduce, reduce_window and select_and_scatter.

Of reduce: of sums and extremes in closed form, of every other associative body through a tree.

The elements that equal an extreme share its cotangent. A body that is not one of these (a product, one that carries an index
along, several values at once) is applied to neighbouring pairs of elements, then of those results, until one is left; that
program is differentiated, so it is right where elements are zero, and to every order.

Of windows: a sum is transposed into a sum over windows of the cotangent. Maximum and minimum hand the cotangent to the first
position of the window that holds the extreme, as XLA's select_and_scatter does. Every other reducer is taken to be associative:
windows are combined axis by axis, the last axis first, by doubling, and that program is differentiated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.ir.op import Cotangents
from deepx_graph.ir.rebuild import inlined, made_by
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.ops.contract.convolution import transposed_padding
from deepx_graph.ops.contract.reduce import broadcast_in_dim, monoid_body, reduction
from deepx_graph.ops.contract.window import reduce_window, select_and_scatter
from deepx_graph.ops.data.fusion import mapped_all
from deepx_graph.ops.math.elementwise import add, and_, compare, convert, divide, maximum, minimum, multiply, not_, or_, select
from deepx_graph.ops.tensor.index import scatter
from deepx_graph.ops.tensor.layout import dims_of, reshape, transpose
from deepx_graph.ops.tensor.shape import concatenate, iota, pad, slice_
from deepx_graph.ops.vjp.accumulate import through
from deepx_graph.types import BOOL, I32, I64, DType, as_tensor, leaves, scalar


def reduce_vjp(b: Builder, node: Node, g: Any) -> Cotangents:
    """See the module. Raises InferError for a body that is not elementwise, or sizes that are not known."""
    op = node.attr("body").reducer if len(node.inputs) == 2 else None
    if op is not add and op is not maximum and op is not minimum:
        return through(b, node, _tree(b, node), g)
    x, init = node.inputs
    by_init: Node | None = None
    if not starts_from_identity(init, op):
        node = reduction(b, op, x, node.attr("dimensions"))
        assert op.vjp is not None
        by_init, g = op.vjp(b, b(op, init, node), g)
    return (_spread(b, x, g, node) if op is add else _extreme(b, x, node, g)), by_init


def known_value(x: Node) -> Any:
    """The one value of all elements of a constant, whatever its shape was made by; None where there is none."""
    while x.op is broadcast_in_dim or x.op is reshape:
        x = x.inputs[0]
    return value_of(x).splat_value if x.op is CONSTANT else None


def starts_from_identity(init: Node, op: Op) -> bool:
    """Whether an initial value is the identity of the reducer."""
    return bool(known_value(init) == op.identity_for(as_tensor(init.type).dtype))


def _spread(b: Builder, x: Node, value: Node, node: Node) -> Node:
    """A reduced value for each element that went into it."""
    kept = tuple(k for k in range(len(dims_of(x))) if k not in node.attr("dimensions"))
    return b(broadcast_in_dim, value, shape=dims_of(x), broadcast_dimensions=kept)


def _extreme(b: Builder, x: Node, node: Node, g: Node) -> Node:
    wins = b(convert, b(compare, x, _spread(b, x, node, node), direction="EQ"), dtype=as_tensor(x.type).dtype)
    share = b(divide, g, reduction(b, add, wins, node.attr("dimensions")))
    return b(multiply, wins, _spread(b, x, share, node))


# --- any body -----------------------------------------------------------------------------------------------------


def combined(b: Builder, body: Function, left: Sequence[Node], right: Sequence[Node]) -> list[Node]:
    """The body of a reduction applied to whole tensors. Raises InferError when one of its ops is not elementwise."""
    found = mapped_all(b, body, [*left, *right], [as_tensor(x.type) for x in left])
    if found is None:
        raise InferError(f"the gradient of a reduction by '{body.name}' is not known: an operation in it is not elementwise")
    return found


def _tree(b: Builder, node: Node) -> list[Node]:
    """The reduction by transposes, slices and the body on whole tensors: reduced axes as one, first, and halved to nothing."""
    half = len(node.inputs) // 2
    xs, inits = node.inputs[:half], node.inputs[half:]
    dimensions, body = node.attr("dimensions"), node.attr("body")
    shape = as_tensor(xs[0].type).shape
    rest = tuple(k for k in range(len(shape)) if k not in dimensions)
    kept = tuple(shape[k] for k in rest)
    count = math.prod(shape[k] for k in dimensions)
    start = [b(broadcast_in_dim, i, shape=kept, broadcast_dimensions=()) for i in inits]
    if count == 0:
        return start
    order = tuple(sorted(dimensions)) + rest
    rows = [b(reshape, b(transpose, x, permutation=order), shape=(count, *kept)) for x in xs]
    while count > 1:
        pairs = combined(b, body, [_rows(b, x, 0, count - 1, 2) for x in rows], [_rows(b, x, 1, count, 2) for x in rows])
        last = [_rows(b, x, count - 1, count, 1) for x in rows] if count % 2 else []
        rows = [b(concatenate, *both, dimension=0) for both in zip(pairs, last, strict=True)] if last else pairs
        count -= count // 2
    return combined(b, body, start, [b(reshape, x, shape=kept) for x in rows])


def _rows(b: Builder, x: Node, start: int, limit: int, stride: int) -> Node:
    shape = as_tensor(x.type).shape
    none = (0,) * (len(shape) - 1)
    return b(slice_, x, start_indices=(start, *none), limit_indices=(limit, *shape[1:]),
             strides=(stride, *(1 for _ in none)))  # fmt: skip


# --- windows ------------------------------------------------------------------------------------------------------


def reduce_window_vjp(b: Builder, node: Node, g: Any) -> Cotangents:
    """See the module. Raises InferError for a body that is not elementwise."""
    op = node.attr("body").reducer
    if len(node.inputs) == 2 and 0 not in as_tensor(node.type).shape:
        if op is add:
            is_fixed = known_value(node.inputs[1]) is not None
            return _sum_vjp(b, node, g), None if is_fixed else through(b, node, _doubled(b, node), g)[1]
        if op is maximum or op is minimum:
            return _extreme_vjp(b, node, g, op)
    return through(b, node, _doubled(b, node), g)


def _window(node: Node) -> list[tuple[int, int, int, int, int, int]]:
    """Of each axis: window size, stride, base dilation, window dilation, low and high padding."""
    return list(zip(*node.attrs[:6], strict=True))


def _sum_vjp(b: Builder, node: Node, g: Node) -> Node:
    sizes, counts = as_tensor(node.inputs[0].type).shape, as_tensor(node.type).shape
    padding = [transposed_padding(size, window, stride, count, low, base, dilation)
               for size, count, (window, stride, base, dilation, low, _) in zip(sizes, counts, _window(node), strict=True)]
    return b(reduce_window, g, b.like(0, g), window_dimensions=node.attr("window_dimensions"),
             window_strides=node.attr("base_dilations"), base_dilations=node.attr("window_strides"),
             window_dilations=node.attr("window_dilations"), padding_low=tuple(p[0] for p in padding),
             padding_high=tuple(p[1] for p in padding), body=node.attr("body"))  # fmt: skip


def _extreme_vjp(b: Builder, node: Node, g: Node | None, op: Op) -> Cotangents:
    x, init = node.inputs
    dtype = as_tensor(x.type).dtype
    by_init: Node | None = None
    window = dict(zip((a.name for a in node.op.attrs[:6]), node.attrs, strict=False))
    if not starts_from_identity(init, op):
        assert op.vjp is not None
        alone = b(reduce_window, x, b.like(op.identity_for(dtype), x), body=node.attr("body"), **window)
        by_init, g = op.vjp(b, b(op, init, alone), g)
    assert g is not None
    prefer = comparison("GE" if op is maximum else "LE", dtype)
    if set(node.attr("base_dilations") + node.attr("window_dilations")) <= {1}:
        scattered = b(select_and_scatter, x, g, b.like(0, g), window_dimensions=node.attr("window_dimensions"),
                      window_strides=node.attr("window_strides"), padding_low=node.attr("padding_low"),
                      padding_high=node.attr("padding_high"), select=prefer, scatter=monoid_body(add, dtype))  # fmt: skip
        return scattered, by_init
    positions = _positions(b, x, prefer, window)
    return _scattered(b, b.splat(0, as_tensor(x.type)), positions, g, monoid_body(add, dtype)), by_init


# --- the position that a window selects ---------------------------------------------------------------------------


@cache
def comparison(direction: str, dtype: DType) -> Function:
    """`(a, b) -> a direction b` on scalars."""
    t = scalar(dtype)
    return Builder().function(direction.lower(), (("a", t), ("b", t)), lambda x, y: [Builder()(compare, x, y, direction=direction)],
                              public=False)


def _index_dtype(count: int) -> DType:
    return I32 if count < 1 << 31 else I64


@lru_cache(maxsize=256)
def _chooser(prefer: Function, dtype: DType, index: DType) -> Function:
    """Of two elements with whether they lie inside and their positions, the first unless `prefer` refuses it."""
    types = (scalar(dtype), scalar(BOOL), scalar(index))

    def body(x: Node, x_in: Node, x_at: Node, y: Node, y_in: Node, y_at: Node) -> list[Node]:
        b = Builder()
        keep = b(and_, x_in, b(or_, b(not_, y_in), inlined(prefer, (x, y), made_by(b))[0]))
        return [b(select, keep, x, y), b(or_, x_in, y_in), b(select, keep, x_at, y_at)]

    params = [(name, t) for side in "xy" for name, t in zip((side, f"{side}_in", f"{side}_at"), types, strict=True)]
    return Builder().function("choose", params, body, public=False)


def _positions(b: Builder, x: Node, prefer: Function, window: dict[str, Any]) -> Node:
    """For each window the row-major number of the operand element it selects; that of no element where it holds none."""
    type = as_tensor(x.type)
    count = math.prod(type.shape)
    index = _index_dtype(count)
    inside = b.splat(True, type.with_dtype(BOOL))
    numbers = b(reshape, b(iota, dtype=index, shape=(count,)), shape=type.shape)
    inits = (b.like(0, x), b.constant(False), b.constant(count, index))
    found = b(reduce_window, x, inside, numbers, *inits, body=_chooser(prefer, type.dtype, index), **window)
    return b.proj(found, 2)


def _flat(b: Builder, x: Node) -> Node:
    return b(reshape, x, shape=(math.prod(as_tensor(x.type).shape),))


def _scattered(b: Builder, x: Node, positions: Node, source: Node, body: Function) -> Node:
    """The source elements combined into `x` at their positions."""
    found = b(scatter, _flat(b, x), _flat(b, positions), _flat(b, source), inserted_window_dims=(0,),
              scatter_dims_to_operand_dims=(0,), index_vector_dim=1, update_computation=body)
    return b(reshape, found, shape=as_tensor(x.type).shape)


def select_and_scatter_vjp(b: Builder, node: Node, g: Node) -> Cotangents:
    """By source and initial value, as the scatter of the source to the selected positions; the operand only selects."""
    x, source, init = node.inputs
    rank = len(as_tensor(x.type).shape)
    names = ("window_dimensions", "window_strides", "padding_low", "padding_high")
    window = {name: node.attr(name) for name in names} | {"base_dilations": (1,) * rank, "window_dilations": (1,) * rank}
    if 0 in as_tensor(x.type).shape:
        return None, None, None
    positions = _positions(b, x, node.attr("select"), window)
    start = b(broadcast_in_dim, init, shape=as_tensor(x.type).shape, broadcast_dimensions=())
    _, by_source, by_init = through(b, node, [_scattered(b, start, positions, source, node.attr("scatter"))], g)
    return None, by_source, by_init


# --- any reducer --------------------------------------------------------------------------------------------------


def _doubled(b: Builder, node: Node) -> list[Node]:
    """reduce_window of an associative body by padding, slices and the body on whole tensors."""
    half = len(node.inputs) // 2
    inits, body = node.inputs[half:], node.attr("body")
    counts = as_tensor(leaves(node.type)[0]).shape
    if 0 in counts or 0 in node.attr("window_dimensions"):
        return [b(broadcast_in_dim, i, shape=counts, broadcast_dimensions=()) for i in inits]
    low, high, base = (node.attr(name) for name in ("padding_low", "padding_high", "base_dilations"))
    xs = [b(pad, x, i, edge_padding_low=low, edge_padding_high=high, interior_padding=tuple(d - 1 for d in base))
          for x, i in zip(node.inputs[:half], inits, strict=True)]  # fmt: skip
    for axis in reversed(range(len(counts))):
        window, stride, _, dilation, _, _ = _window(node)[axis]
        xs = _windows_along(b, body, xs, axis, window, dilation)
        xs = [_cut(b, x, axis, 0, (counts[axis] - 1) * stride + 1, stride) for x in xs]
    spread = [b(broadcast_in_dim, i, shape=counts, broadcast_dimensions=()) for i in inits]
    return combined(b, body, spread, xs)


def _windows_along(b: Builder, body: Function, xs: list[Node], axis: int, window: int, dilation: int) -> list[Node]:
    """All windows of an axis, combined: those of 1, 2, 4, ... elements make up the wanted size."""
    total: list[Node] | None = None
    taken, power = 0, 1
    while True:
        if window & power:
            total = xs if total is None else _joined(b, body, total, xs, axis, taken * dilation)
            taken += power
        if 2 * power > window:
            return total or xs
        xs = _joined(b, body, xs, xs, axis, power * dilation)
        power *= 2


def _joined(b: Builder, body: Function, left: list[Node], right: list[Node], axis: int, shift: int) -> list[Node]:
    """Windows of the left, each combined with the window of the right that starts `shift` elements later."""
    sizes = [as_tensor(x.type).shape[axis] for x in (left[0], right[0])]
    count = min(sizes[0], sizes[1] - shift)
    first = [_cut(b, x, axis, 0, count, 1) for x in left]
    return combined(b, body, first, [_cut(b, x, axis, shift, shift + count, 1) for x in right])


def _cut(b: Builder, x: Node, axis: int, start: int, limit: int, stride: int) -> Node:
    shape = as_tensor(x.type).shape
    if (start, limit, stride) == (0, shape[axis], 1):
        return x
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], limits[axis], strides[axis] = start, limit, stride
    return b(slice_, x, start_indices=tuple(starts), limit_indices=tuple(limits), strides=tuple(strides))
