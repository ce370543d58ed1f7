"""Padding: by a value, by what lies inside the borders, by the nearest element, or around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.elements import taken
from deepx_graph.text.torch.context import CallContext, Rule, Rules


def padding_of(c: CallContext, key: int | str, rank: int) -> tuple[list[int], list[int]]:
    """What is added before and after each axis; the list begins with the last axis."""
    given = c.ints(key)
    if len(given) % 2 or len(given) > 2 * rank:
        raise InferError(f"padding {list(given)} of {rank} axes", expected="two numbers for each of the last axes")
    low, high = [0] * rank, [0] * rank
    for k in range(len(given) // 2):
        low[rank - 1 - k], high[rank - 1 - k] = given[2 * k], given[2 * k + 1]
    return low, high


def constant_padded(c: CallContext, x: Node, low: Sequence[int], high: Sequence[int], value: Node) -> Node:
    return c(ops.pad, x, value, edge_padding_low=tuple(low), edge_padding_high=tuple(high), interior_padding=(0,) * len(low))


def _constant_pad(c: CallContext) -> Node:
    x = c.node()
    low, high = padding_of(c, 1, len(c.dims_of(x)))
    return constant_padded(c, x, low, high, c.as_node(c.get("value", 0), c.dtype_of(x)))


def _mirrored(size: int, low: int, high: int) -> Any:
    places = np.abs(np.arange(-low, size + high))
    return np.where(places >= size, 2 * (size - 1) - places, places)


def _index_pad(mode: str) -> Rule:
    """Elements of the operand beyond its borders: mirrored at them, the last ones again, or from the other end."""

    def build(c: CallContext) -> Node:
        x, shape = c.node(), c.shape_of(c.node())
        low, high = padding_of(c, 1, len(shape))
        return index_padded(c, x, low, high, mode)

    return build


def index_padded(c: CallContext, x: Node, low: Sequence[int], high: Sequence[int], mode: str) -> Node:
    for a, size in enumerate(c.shape_of(x)):
        if not low[a] and not high[a]:
            continue
        if mode == "reflect" and max(low[a], high[a]) >= size:
            raise InferError(f"padding {low[a]}, {high[a]} of an axis of {size}", expected="less than the axis")
        line = np.arange(-low[a], size + high[a])
        places = (
            _mirrored(size, low[a], high[a])
            if mode == "reflect"
            else np.clip(line, 0, size - 1)
            if mode == "replicate"
            else (line % size)
        )
        x = taken(c, x, a, places)
    return x


def _pad(c: CallContext) -> Node:
    mode = c.one_of("mode", "constant", "constant", "reflect", "replicate", "circular")
    return _constant_pad(c) if mode == "constant" else _index_pad(mode)(c)


PADDING: Rules = {
    "constant_pad_nd": _constant_pad, "pad": _pad, **{f"reflection_pad{n}d": _index_pad("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d": _index_pad("replicate") for n in (1, 2, 3)}, "_pad_circular": _index_pad("circular"),
}  # fmt: skip
