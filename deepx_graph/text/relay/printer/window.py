"""How windows are said in Relay: convolutions with their layouts, poolings, running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Function, Node, Op
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ops.interpret import evaluate
from deepx_graph.text.common.nn import SPATIAL, elements_inside
from deepx_graph.text.relay.words import Text, call
from deepx_graph.types import as_tensor

# --- convolution --------------------------------------------------------------------------------------------------


def _word(rank: int, places: dict[int, str], spatial: tuple[int, ...], letters: str) -> str:
    """A layout from the places of its letters."""
    found = {**places, **dict(zip(spatial, letters, strict=True))}
    return "".join(found[k] for k in range(rank))


def _convolution(node: Node) -> Text | None:
    a = {attr.name: v for attr, v in zip(node.op.attrs, node.attrs, strict=True)}
    n = len(a["window_strides"])
    letters = SPATIAL.get(n)
    if letters is None or a["batch_group_count"] != 1:
        return None
    data, out = (_word(n + 2, {a[f"{side}_batch_dimension"]: "N", a[f"{side}_feature_dimension"]: "C"},
                       a[f"{side}_spatial_dimensions"], letters) for side in ("input", "output"))
    kernel = _word(n + 2, {a["kernel_input_feature_dimension"]: "I", a["kernel_output_feature_dimension"]: "O"},
                   a["kernel_spatial_dimensions"], letters)
    layouts = {"data_layout": data, "kernel_layout": kernel, **({} if out == data else {"out_layout": out})}
    if any(a["window_reversal"]) or set(a["lhs_dilation"]) != {1}:
        return _transposed(node, a, n, layouts) if out == data else None
    low, high = a["padding_low"], a["padding_high"]
    if min((*low, *high)) < 0:
        return None
    sizes = as_tensor(node.inputs[1].type).shape
    return call(f"nn.conv{n}d", *node.inputs, strides=a["window_strides"], padding=(*low, *high), dilation=a["rhs_dilation"],
                 groups=a["feature_group_count"], channels=sizes[a["kernel_output_feature_dimension"]],
                 kernel_size=tuple(sizes[k] for k in a["kernel_spatial_dimensions"]), **layouts)


def _transposed(node: Node, a: dict[str, Any], n: int, layouts: dict[str, str]) -> Text | None:
    if set(a["window_reversal"]) != {1} or set(a["window_strides"]) != {1} or a["feature_group_count"] != 1:
        return None
    sizes = as_tensor(node.inputs[1].type).shape
    kernel = tuple(sizes[k] for k in a["kernel_spatial_dimensions"])
    reach = [(k - 1) * d for k, d in zip(kernel, a["rhs_dilation"], strict=True)]
    before = tuple(r - p for r, p in zip(reach, a["padding_low"], strict=True))
    extra = tuple(h - r + p for h, r, p in zip(a["padding_high"], reach, before, strict=True))
    if min((*before, *extra)) < 0:
        return None
    return call(f"nn.conv{n}d_transpose", *node.inputs, strides=a["lhs_dilation"], padding=(*before, *before),
                 dilation=a["rhs_dilation"], channels=sizes[a["kernel_output_feature_dimension"]], kernel_size=kernel,
                 output_padding=extra, **layouts)


# --- windows that are reduced -------------------------------------------------------------------------------------


def _window(node: Node) -> tuple[Op, dict[str, Any]] | None:
    """The monoid and the attributes of a pooling by it; None where it starts from something else."""
    if node.op is not ops.reduce_window or len(node.inputs) != 2:
        return None
    attrs = {attr.name: v for attr, v in zip(node.op.attrs, node.attrs, strict=True)}
    op: Op | None = attrs["body"].reducer
    start = splat_of(node.inputs[1])
    if op is None or start is None or start != op.identity_for(as_tensor(node.type).dtype) or set(attrs["base_dilations"]) != {1}:
        return None
    return op, attrs


def _pooling(name: str, node: Node, attrs: dict[str, Any], **more: Any) -> Text | None:
    rank = len(attrs["window_dimensions"])
    letters = SPATIAL.get(rank - 2)
    if letters is None:
        return None
    for layout in ("NC" + letters, "N" + letters + "C"):
        inside = [k for k, s in enumerate(layout) if s in letters]
        trivial = all(attrs["window_dimensions"][k] == attrs["window_strides"][k] == attrs["window_dilations"][k] == 1
                      and attrs["padding_low"][k] == attrs["padding_high"][k] == 0 for k in range(rank) if k not in inside)
        low, high = ([attrs[p][k] for k in inside] for p in ("padding_low", "padding_high"))
        if trivial and min((*low, *high)) >= 0:
            words = ("dimensions", "strides", "dilations")
            size, strides, dilation = (tuple(attrs[f"window_{p}"][k] for k in inside) for p in words)
            return call(f"{name}{rank - 2}d", node.inputs[0], pool_size=size, strides=strides, dilation=dilation,
                         padding=(*low, *high), layout=layout, **more)
    return None


def _reduce_window(node: Node) -> Text | None:
    found = _window(node)
    if found is None:
        return None
    op, attrs = found
    if op is ops.add and _running(node, op, attrs) is None and as_tensor(node.type).dtype.is_float:
        mean = _pooling("nn.avg_pool", node, attrs, count_include_pad=True)
        return None if mean is None else [*mean, f" * {_number(node, int(np.prod(attrs['window_dimensions'])))}"]
    return _running(node, op, attrs) or (_pooling("nn.max_pool", node, attrs) if op is ops.maximum else None)


def _number(node: Node, value: int) -> str:
    return f"{value}f" if as_tensor(node.type).dtype.bits == 32 else f"{value}f{as_tensor(node.type).dtype.bits}"


def _running(node: Node, op: Op, attrs: dict[str, Any]) -> Text | None:
    """A sum or product of all elements up to each, along one axis."""
    name = {ops.add: "cumsum", ops.multiply: "cumprod"}.get(op)
    shape = as_tensor(node.inputs[0].type).shape
    wide = [k for k, w in enumerate(attrs["window_dimensions"]) if w != 1 or attrs["padding_low"][k]]
    if name is None or len(wide) > 1 or {*attrs["window_strides"], *attrs["window_dilations"]} != {1}:
        return None
    axis = wide[0] if wide else 0
    low, high, size = attrs["padding_low"][axis], attrs["padding_high"][axis], shape[axis]
    if attrs["window_dimensions"][axis] != size or (low, high) not in ((size - 1, 0), (size, -1)):
        return None
    if any(p for k, p in enumerate((*attrs["padding_low"], *attrs["padding_high"])) if k % len(shape) != axis):
        return None
    return call(name, node.inputs[0], axis=axis, exclusive=high == -1)


def _divide(node: Node) -> Text:
    """A quotient; of the sums of windows by the sizes of the windows, a mean."""
    found = _window(node.inputs[0])
    if found is not None and found[0] is ops.add:
        text = _mean(node, found[1])
        if text is not None:
            return text
    return ["divide(", node.inputs[0], ", ", node.inputs[1], ")"]


def _mean(node: Node, attrs: dict[str, Any]) -> Text | None:
    windows, by = node.inputs
    size = int(np.prod(attrs["window_dimensions"], dtype=np.int64))
    padded = any(attrs["padding_low"]) or any(attrs["padding_high"])
    if as_tensor(by.type).dims == ():
        value = splat_of(by)
        return _pooling("nn.avg_pool", windows, attrs, count_include_pad=padded) if value is not None and value == size else None
    try:
        counts = evaluate(Function("counts", (), (by,)), [])[0]
    except DeepxGraphError:
        return None
    shape = as_tensor(node.type).shape
    real = np.ones((), np.int64)
    for n, length in zip(elements_inside(as_tensor(windows.inputs[0].type).shape, shape, attrs), shape, strict=True):
        real = np.multiply.outer(real, np.ones(length, np.int64) if n is None else n)
    if not np.array_equal(np.asarray(counts, np.float64), np.maximum(real, 1)):
        return None
    return _pooling("nn.avg_pool", windows, attrs, count_include_pad=False)


WINDOW: dict[Op, Callable[[Node], Text | None]] = {
    ops.convolution: _convolution, ops.reduce_window: _reduce_window, ops.divide: _divide,
}
