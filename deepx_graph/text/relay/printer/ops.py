"""How our operations are said in Relay: one table, the other side of the rules.

What a rule builds is said so that it reads back as the same nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import Diagnostic, InferError, VerifyError
from deepx_graph.ir import Node, Op
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import PROJ, STRUCTURAL, TUPLE, index_of
from deepx_graph.rewrite.legalise import ConversionTarget
from deepx_graph.text.common.steps import comparator
from deepx_graph.text.relay.printer.window import WINDOW
from deepx_graph.text.relay.rules.elementwise import BINARY, COMPARE, LOGICAL, UNARY
from deepx_graph.text.relay.rules.reduce import place_body
from deepx_graph.text.relay.words import NAMES, Text, call, listed, type_text
from deepx_graph.types import BOOL, I32, TensorType, as_tensor

Say = Callable[[Node], Text | None]
"""The text of a node, or None where Relay has no words for this form of it."""


def unsaid(node: Node, why: str = "") -> VerifyError:
    """Relay cannot express the node."""
    what = f"{node.name}: Relay" if node.name else "Relay"
    return VerifyError(Diagnostic(f"{what} has no words for {node.op.name} : {node.type}{f' ({why})' if why else ''}", node.span))


@contextmanager
def writing(node: Node) -> Iterator[None]:
    """While the node is written: what is not known of its types, and what has no place yet, is told at the node."""
    try:
        yield
    except InferError as e:
        raise unsaid(node, e.message) from None
    except VerifyError as e:
        if all(d.span for d in e.diagnostics):
            raise
        raise unsaid(node, "; ".join(d.message for d in e.diagnostics)) from None


def _plain(name: str) -> Say:
    return lambda node: call(name, *node.inputs)


def _logical(name: str, bitwise: str) -> Say:
    return lambda node: call(name if as_tensor(node.type).dtype is BOOL else bitwise, *node.inputs)


def _compare(node: Node) -> Text | None:
    direction, kind = node.attrs
    return None if kind == "TOTALORDER" else call(next(n for n, d in COMPARE.items() if d == direction), *node.inputs)


def _convert(node: Node) -> Text | None:
    name = NAMES.get(as_tensor(node.type).dtype)
    return None if name is None else call("cast", node.inputs[0], dtype=name)


def _shift(kind: str) -> Say:
    """Relay's is arithmetic for signed and logical for unsigned integers."""
    return lambda node: call("right_shift", *node.inputs) if as_tensor(node.type).dtype.kind == kind else None


def _clamp(node: Node) -> Text:
    low, x, high = node.inputs
    bounds = [splat_of(low), splat_of(high)]
    if all(b is not None and np.isfinite(b) and as_tensor(n.type).dims == () for b, n in zip(bounds, (low, high), strict=True)):
        return call("clip", x, a_min=float(bounds[0]), a_max=float(bounds[1]))  # type: ignore[arg-type]
    return ["minimum(maximum(", x, ", ", low, "), ", high, ")"]


# --- shapes -------------------------------------------------------------------------------------------------------


def _sizes(type: TensorType) -> tuple[int, ...] | None:
    """The sizes with -1 for one that is not known."""
    assert type.dims is not None
    unknown = [d for d in type.dims if isinstance(d, str)]
    return None if len(unknown) > 1 else tuple(-1 if isinstance(d, str) else d for d in type.dims)


def _reshape(node: Node) -> Text | None:
    sizes = _sizes(as_tensor(node.type))
    if sizes is None:
        return None
    zero = {"allowzero": True} if 0 in sizes else {}
    return call("reshape", node.inputs[0], newshape=sizes, **zero)


def _broadcast(node: Node) -> Text | None:
    """Axes that go elsewhere than to the end are put there first."""
    type, old = as_tensor(node.type), as_tensor(node.inputs[0].type)
    axes: tuple[int, ...] = node.attr("broadcast_dimensions")
    known = _sizes(old) if old.dims is not None else None
    if not type.is_static or known is None:
        return None
    shape, rank = type.shape, len(type.shape)
    inner: list[str | Node] = [node.inputs[0]]
    order = sorted(range(len(axes)), key=axes.__getitem__)
    if order != list(range(len(axes))):
        inner = ["transpose(", *inner, f", axes={order})"]
    places = [axes[k] for k in order]
    if places != list(range(rank - len(places), rank)):
        sizes = [1] * (rank - places[0] if places else 0)
        for k, place in zip(order, places, strict=True):
            sizes[place - rank] = known[k]
        inner = ["reshape(", *inner, f", newshape={sizes})"]
    return ["broadcast_to(", *inner, f", shape={list(shape)})"]


def _slice(node: Node) -> Text:
    return call("strided_slice", node.inputs[0], **dict(zip(("begin", "end", "strides"), node.attrs, strict=True)), axes=None)


def _concatenate(node: Node) -> Text:
    return ["concatenate(", *tuple_text(node.inputs), f", axis={node.attr('dimension')})"]


def _pad(node: Node) -> Text | None:
    low, high, inside = node.attrs
    if any(inside) or min((*low, *high), default=0) < 0:
        return None
    return call("nn.pad", *node.inputs, pad_width=tuple(zip(low, high, strict=True)))


def _reverse(node: Node) -> Text:
    text: list[str | Node] = [node.inputs[0]]
    for axis in node.attr("dimensions"):
        text = ["reverse(", *text, f", axis={axis})"]
    return text


def _iota(node: Node) -> Text | None:
    type, axis = as_tensor(node.type), node.attr("iota_dimension")
    name = NAMES.get(type.dtype)
    if name is None or not type.is_static:
        return None
    line = f'arange(0, {type.shape[axis]}, 1, dtype="{name}")'
    if len(type.shape) == 1:
        return [line]
    sizes = [type.shape[axis] if k == axis else 1 for k in range(len(type.shape))]
    return [f"broadcast_to(reshape({line}, newshape={sizes}), shape={list(type.shape)})"]


# --- reductions ---------------------------------------------------------------------------------------------------

_TOTALS: dict[Op, str] = {ops.add: "sum", ops.maximum: "max", ops.minimum: "min", ops.multiply: "prod"}


def _reduce(node: Node) -> Text | None:
    dimensions, body = node.attrs
    op = body.reducer
    if len(node.inputs) != 2 or op is None:
        return None
    type = as_tensor(node.inputs[0].type)
    name = {ops.and_: "all", ops.or_: "any"}.get(op) if type.dtype is BOOL else _TOTALS.get(op)
    start = splat_of(node.inputs[1])
    if name is None or start is None or start != op.identity_for(type.dtype) or not dimensions:
        return None
    return call(name, node.inputs[0], axis=dimensions)


def _place_of(node: Node) -> Text | None:
    """proj(reduce(x, places), 1) as argmax or argmin."""
    whole = node.inputs[0]
    if whole.op is not ops.reduce or index_of(node) != 1 or len(whole.inputs) != 4 or len(whole.attr("dimensions")) != 1:
        return None
    x = whole.inputs[0]
    for (name, direction), last in product((("argmax", "GT"), ("argmin", "LT")), (False, True)):
        if whole.attr("body") == place_body(as_tensor(x.type).dtype, direction, last):
            attrs = {"select_last_index": True} if last else {}
            return call(name, x, axis=whole.attr("dimensions"), **attrs)
    return None


# --- order and choice ---------------------------------------------------------------------------------------------


def _direction(node: Node) -> str | None:
    dtypes = tuple(as_tensor(i.type).dtype for i in node.inputs)
    return next((d for d in ("LT", "GT") if node.attr("comparator") == comparator(dtypes, d)), None)


def _sort(node: Node) -> Text | None:
    direction = _direction(node)
    if len(node.inputs) != 1 or direction is None:
        return None
    return call("sort", node.inputs[0], axis=node.attr("dimension"), is_ascend=direction == "LT")


def _sorted_item(node: Node) -> Text | None:
    """proj(sort(x, places), k): the sorted values, or argsort."""
    whole = node.inputs[0]
    if whole.op is not ops.sort or len(whole.inputs) != 2 or as_tensor(whole.inputs[1].type).dtype is not I32:
        return None
    direction = _direction(whole)
    if direction is None:
        return None
    attrs = {"axis": whole.attr("dimension"), "is_ascend": direction == "LT"}
    return call("argsort", whole.inputs[0], **attrs, dtype="int32") if index_of(node) else call("sort", whole.inputs[0], **attrs)


def _top_k(node: Node) -> Text | None:
    """Relay takes 0 for all."""
    attrs = {"axis": -1, "ret_type": "both", "is_ascend": False, "dtype": "int32"}
    return call("topk", node.inputs[0], k=node.attr("k"), **attrs) if node.attr("k") else None


def _gather(node: Node) -> Text | None:
    offset, collapsed, batching, start_batching, index_map, vector, sizes = node.attrs
    rank, indices = len(as_tensor(node.inputs[0].type).shape), len(as_tensor(node.inputs[1].type).shape)
    shape = as_tensor(node.inputs[0].type).shape
    if len(collapsed) == 1 and index_map == collapsed and vector == indices == rank and not offset and set(sizes) == {1}:
        others = tuple(k for k in range(rank) if k != collapsed[0])
        if batching == start_batching == others:
            return call("gather", *node.inputs, axis=collapsed[0])
    depth = len(index_map)
    front = tuple(range(depth))
    behind = tuple(range(indices - 1, indices - 1 + rank - depth))
    if vector == 0 and not batching and index_map == collapsed == front and offset == behind and sizes[depth:] == shape[depth:]:
        return call("gather_nd", *node.inputs)
    return None


# --- products -----------------------------------------------------------------------------------------------------


def _dot(node: Node) -> Text | None:
    x, y = node.inputs
    lhs_batch, rhs_batch, lhs, rhs = node.attrs
    a, b = as_tensor(x.type).rank, as_tensor(y.type).rank
    if a is None or b is None:
        return None
    if len(lhs) == 1 and not lhs_batch and b == 2:
        if lhs == (a - 1,):
            return call("nn.dense", x, y, units=None) if rhs == (1,) else call("nn.matmul", x, y, units=None)
        if a == 2:
            return call("nn.matmul", x, y, units=None, transpose_a=True, transpose_b=rhs == (1,))
    if len(lhs) == 1 and lhs_batch == rhs_batch == (0,) and a == b == 3:
        return call("nn.batch_matmul", x, y, transpose_a=lhs == (1,), transpose_b=rhs == (2,))
    return _general_dot(node, a, b)


def _general_dot(node: Node, a: int, b: int) -> Text | None:
    """Any product as one of three axes: batch, what stays, what is summed."""
    x, y = node.inputs
    lhs_batch, rhs_batch, lhs, rhs = node.attrs
    types = [as_tensor(x.type), as_tensor(y.type), as_tensor(node.type)]
    if not all(t.is_static and t.size for t in types):
        return None

    def matrix(node: Node, rank: int, batch: Sequence[int], contracted: Sequence[int]) -> list[str | Node]:
        shape = as_tensor(node.type).shape
        free = [k for k in range(rank) if k not in batch and k not in contracted]
        sizes = [math.prod(shape[k] for k in group) for group in (batch, free, contracted)]
        inner = ["transpose(", node, f", axes={[*batch, *free, *contracted]})"] if rank else [node]
        return ["reshape(", *inner, f", newshape={sizes})"]

    left, right = matrix(x, a, lhs_batch, lhs), matrix(y, b, rhs_batch, rhs)
    return ["reshape(nn.batch_matmul(", *left, ", ", *right, f"), newshape={list(types[2].shape)})"]


# --- values of other kinds ----------------------------------------------------------------------------------------


def tuple_text(items: Sequence[Node]) -> Text:
    """`(a, b)`, `(a,)`, `()`."""
    return ["(", *listed(items), ",)" if len(items) == 1 else ")"]


def _item(node: Node) -> Text:
    return _place_of(node) or _sorted_item(node) or [node.inputs[0], f".{index_of(node)}"]


def _construct(node: Node) -> Text:
    return call(node.attr("constructor"), *node.inputs) if node.inputs else [node.attr("constructor")]


def _tag(node: Node) -> Text:
    cases = ", ".join(f"{c} => {k}" for k, c in enumerate(node.attr("cases")))
    return ["match (", node.inputs[0], f") {{ {cases}, _ => {len(node.attr('cases'))} }}"]


def _opaque(node: Node) -> Text:
    name, attributes, type, language = node.attrs
    if language != "relay":
        raise unsaid(node, f"'{name}' is no operation of Relay")
    if name.startswith("@"):
        return [name]
    said = [attributes] if attributes else []
    if name == "()":
        return ["(", node.inputs[0], ")(", *listed([*node.inputs[1:], *said]), ")"]
    stated = type_text(type)
    return [f"{name}(", *listed([*node.inputs, *said]), ")", "" if "_" in stated else f" /* ty={stated} */"]


SAY: dict[Op, Say] = {
    **{op: _plain(n) for n, op in (*UNARY.items(), *BINARY.items())},
    **{op: _logical(n, f"bitwise_{n.removeprefix('logical_')}") for n, op in LOGICAL.items()},
    ops.not_: _logical("logical_not", "bitwise_not"), ops.atan2: _plain("atan2"), ops.shift_right_arithmetic: _shift("int"),
    ops.shift_right_logical: _shift("uint"), ops.compare: _compare, ops.convert: _convert, ops.clamp: _clamp,
    ops.select: _plain("where"), ops.reshape: _reshape, ops.broadcast_in_dim: _broadcast,
    ops.transpose: lambda node: call("transpose", node.inputs[0], axes=node.attr("permutation")), ops.slice_: _slice,
    ops.concatenate: _concatenate, ops.pad: _pad, ops.reverse: _reverse, ops.iota: _iota, ops.reduce: _reduce, ops.sort: _sort,
    ops.top_k: _top_k, ops.gather: _gather, ops.dot_general: _dot, **WINDOW,
    TUPLE: lambda node: tuple_text(node.inputs), PROJ: _item, ops.construct: _construct, ops.tag: _tag, ops.opaque: _opaque,
    ops.torch_index_select: lambda node: call("take", *node.inputs, axis=node.attr("dim"), mode="clip"),
    ops.square: lambda node: call("multiply", node.inputs[0], node.inputs[0]), ops.stop_gradient: _plain("copy"),
}  # fmt: skip
"""Every operation that Relay has words for."""


def said(node: Node) -> Text:
    """The node's expression. Raises VerifyError where Relay has none."""
    rule = SAY.get(node.op)
    text = None if rule is None else rule(node)
    if text is None:
        raise unsaid(node)
    return text


_ELSEWHERE = {*STRUCTURAL, ops.ref_create, ops.ref_read, ops.ref_write, ops.field, ops.match_failed}
"""What has no row because the function's writer says it."""


def _has(node: Node) -> bool:
    """An elementwise op in a form that has words; of others it is told where they are written."""
    rule = SAY.get(node.op)
    return node.op in _ELSEWHERE or (rule is not None and (not node.op.elementwise or rule(node) is not None))


TARGET = ConversionTarget(_has)
"""What Relay has."""
