"""Reductions of Relay. `axis` may be None, one axis or several, counted from the end too; `exclude` inverts the choice."""

from __future__ import annotations

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.text.common.nn import back, count, mean
from deepx_graph.text.common.steps import axis_of, ranked
from deepx_graph.text.relay.rules.context import Context, Operator
from deepx_graph.types import I32, DType, mul_dims, scalar


def axes_of(c: Context) -> tuple[int, ...]:
    """The axes that a reduction goes over."""
    rank = c.known().rank or 0
    given = c.attr("axis")
    if given is None or given == ():
        chosen = set() if c.flag("exclude") and given == () else set(range(rank))
        return tuple(sorted(chosen if not c.flag("exclude") else set(range(rank)) - chosen))
    chosen = {axis_of(a, rank) for a in c.ints("axis")}
    return tuple(k for k in range(rank) if (k in chosen) is not c.flag("exclude"))


def kept(c: Context, node: Node, axes: tuple[int, ...]) -> Node:
    """A reduction with its axes as ones where `keepdims` asks for it."""
    if not c.flag("keepdims"):
        return node
    dims = c.known().dims or ()
    return c.shaped(node, [1 if k in axes else d for k, d in enumerate(dims)])


def _monoid(op: Op) -> Operator:
    def build(c: Context) -> Node:
        axes = axes_of(c)
        return kept(c, ops.reduction(c.b, op, c.args[0], axes) if axes else c.args[0], axes)

    return Operator(build)





def _mean(c: Context) -> Node:
    axes = axes_of(c)
    return kept(c, mean(c, c.args[0], axes), axes)


def _variance(c: Context) -> Node:
    axes = axes_of(c)
    x = c.args[0]
    center = c.args[1] if len(c.args) > 1 else back(c, mean(c, x, axes), x, axes)
    off = c(ops.subtract, x, c.broadcast_to(center, c.known().dims or ()) if len(c.args) > 1 else center)
    total = ops.reduction(c.b, ops.add, c(ops.multiply, off, off), axes)
    number = count(x, axes) - int(c.flag("unbiased"))
    return kept(c, c(ops.divide, total, c.like(number, x)), axes)


def _logsumexp(c: Context) -> Node:
    axes, x = axes_of(c), c.args[0]
    greatest = ops.reduction(c.b, ops.maximum, x, axes)
    total = ops.reduction(c.b, ops.add, c(ops.exponential, c(ops.subtract, x, back(c, greatest, x, axes))), axes)
    return kept(c, c(ops.add, c(ops.log, total), greatest), axes)


def place_body(dtype: DType, direction: str, last: bool) -> Function:
    """Of two elements with their places the one that wins; of equal ones the first, or the last."""
    b = Builder()
    t, i = scalar(dtype), scalar(I32)

    def body(x: Node, m: Node, y: Node, n: Node) -> list[Node]:
        first = b(ops.compare, m, n, direction="GT" if last else "LT")
        tie = b(ops.and_, b(ops.compare, x, y, direction="EQ"), first)
        wins = b(ops.or_, b(ops.compare, x, y, direction=direction), tie)
        return [b(ops.select, wins, x, y), b(ops.select, wins, m, n)]

    return b.function("place", (("x", t), ("m", i), ("y", t), ("n", i)), body, public=False)


def _place(op: Op, direction: str) -> Operator:
    def build(c: Context) -> Node:
        axes, x = axes_of(c), c.args[0]
        shape = c.known().shape
        if len(axes) == len(shape) != 1:  # over all axes: the place among all elements
            x, shape, inner = c.shaped(x, (mul_dims(shape),)), (c.known().size,), (0,)
        elif len(axes) == 1:
            inner = axes
        else:
            raise InferError(f"{c.name} over axes {list(axes)}", expected="one axis, or all")
        places = c.indices(I32, shape, inner[0])
        body = place_body(c.type().dtype, direction, c.flag("select_last_index"))
        start = op.identity_for(c.type().dtype)
        none = c.b.constant(-1 if c.flag("select_last_index") else 2**31 - 1, I32)
        whole = c(ops.reduce, x, places, c.like(start, x), none, dimensions=inner, body=body)
        return kept(c, c.b.proj(whole, 1), axes)

    return Operator(build)


def _cumulative(op: Op) -> Operator:
    def build(c: Context) -> Node:
        x = c.cast(c.args[0], c.dtype(default=c.type().dtype))
        if c.attr("axis") is None:
            x = c.shaped(x, (mul_dims(c.known().dims or ()),))
        shape = ranked(x).shape
        at = axis_of(c.number("axis", 0), len(shape))
        ones, none = (1,) * len(shape), (0,) * len(shape)
        low, high = list(none), list(none)
        low[at] = shape[at] if c.flag("exclusive") else shape[at] - 1
        high[at] = -1 if c.flag("exclusive") else 0
        window = tuple(shape[at] if k == at else 1 for k in range(len(shape)))
        if not shape[at]:
            return x
        return c(ops.reduce_window, x, c.like(op.identity_for(ranked(x).dtype), x), window_dimensions=window, window_strides=ones,
                 base_dilations=ones, window_dilations=ones, padding_low=tuple(low), padding_high=tuple(high),
                 body=monoid_body(op, ranked(x).dtype))

    return Operator(build)


REDUCE: dict[str, Operator] = {
    "sum": _monoid(ops.add), "max": _monoid(ops.maximum), "min": _monoid(ops.minimum), "prod": _monoid(ops.multiply),
    "all": _monoid(ops.and_), "any": _monoid(ops.or_), "mean": Operator(_mean), "variance": Operator(_variance),
    "logsumexp": Operator(_logsumexp), "argmax": _place(ops.maximum, "GT"), "argmin": _place(ops.minimum, "LT"),
    "cumsum": _cumulative(ops.add), "cumprod": _cumulative(ops.multiply),
}  # fmt: skip
