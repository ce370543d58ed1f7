"""Reductions, windows, products, sorts, solves and norms of StableHLO: what `rules` refers to for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from deepx_graph import ops
from deepx_graph.ir import Function, Node, Op
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.text.stablehlo.reader.context import Context
from deepx_graph.text.stablehlo.syntax import Dense
from deepx_graph.types import TupleType, as_tensor

APPLIED: dict[str, Op] = {f"stablehlo.{op.name}": op for op in
                          (ops.add, ops.multiply, ops.maximum, ops.minimum, ops.and_, ops.or_, ops.xor)}


def several(c: Context, node: Node) -> list[Node]:
    """The results of a node, as many as the operation names."""
    if isinstance(node.type, TupleType):
        return [c.lowering.item(node, k) for k in range(len(node.type.items))]
    return [node]


def reduce(c: Context) -> list[Node]:
    """A reduction of one array or several."""
    if "applies" in c.op.extra:
        op = APPLIED.get(c.op.extra["applies"])
        if op is None or len(c.inputs) != 2:
            raise c.fail(f"cannot apply '{c.op.extra['applies']}'", ", ".join(APPLIED))
        body: Function = monoid_body(op, as_tensor(c.inputs[0].type).dtype)
    else:
        body = c.body()
    return several(c, c(ops.reduce, *c.inputs, dimensions=c.ints("dimensions"), body=body))


def _pairs(c: Context, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Low and high of a `padding` attribute of shape rank x 2."""
    value = c.raw("padding")
    if value is None:
        return (0,) * rank, (0,) * rank
    flat = c.dense(value).array if isinstance(value, Dense) else np.asarray(value)
    rows = np.broadcast_to(flat, (rank, 2)) if flat.ndim == 0 else flat.reshape(-1, 2)
    return tuple(int(p) for p in rows[:, 0]), tuple(int(p) for p in rows[:, 1])


def reduce_window(c: Context) -> list[Node]:
    """A reduction over a sliding window."""
    sizes = c.ints("window_dimensions")
    ones = (1,) * len(sizes)
    low, high = _pairs(c, len(sizes))
    node = c(ops.reduce_window, *c.inputs, window_dimensions=sizes, window_strides=c.ints("window_strides", default=ones),
             base_dilations=c.ints("base_dilations", default=ones), window_dilations=c.ints("window_dilations", default=ones),
             padding_low=low, padding_high=high, body=c.body())
    return several(c, node)


def select_and_scatter(c: Context) -> list[Node]:
    """What a window selects is where its value is scattered."""
    rank = len(as_tensor(c.inputs[0].type).shape)
    low, high = _pairs(c, rank)
    return [c(ops.select_and_scatter, *c.inputs, window_dimensions=c.ints("window_dimensions", default=(1,) * rank),
              window_strides=c.ints("window_strides", default=(1,) * rank), padding_low=low, padding_high=high,
              select=c.body(0), scatter=c.body(1))]


def _widened(c: Context) -> list[Node]:
    dtype = c.tensor.dtype
    return [x if as_tensor(x.type).dtype is dtype else c(ops.convert, x, dtype=dtype) for x in c.inputs]


def dot_general(c: Context) -> list[Node]:
    """A product over any dimensions."""
    numbers = c.raw("dot_dimension_numbers") or {}
    batch, contract = c.raw("batching_dims") or ((), ()), c.raw("contracting_dims") or ((), ())
    names = {"lhs_batching_dimensions": batch[0], "rhs_batching_dimensions": batch[1],
             "lhs_contracting_dimensions": contract[0], "rhs_contracting_dimensions": contract[1]}
    return [c(ops.dot_general, *_widened(c), **{k: tuple(numbers.get(k, v)) for k, v in names.items()})]


def dot(c: Context) -> list[Node]:
    """A product of arrays, accumulated in the stated element type."""
    rank = len(as_tensor(c.inputs[0].type).shape)
    return [c(ops.dot_general, *_widened(c), lhs_contracting_dimensions=(rank - 1,), rhs_contracting_dimensions=(0,))]


def _labels(text: str, letters: str) -> tuple[int, int, tuple[int, ...]]:
    parts = [p.strip() for p in text.split(",")]
    spatial = sorted((int(p), k) for k, p in enumerate(parts) if p.isdigit())
    return parts.index(letters[0]), parts.index(letters[1]), tuple(k for _, k in spatial)


def convolution(c: Context) -> list[Node]:
    """A convolution, accumulated in the stated element type."""
    text = c.word("dim_numbers", "dimension_numbers")
    lhs, rhs, out = (part.strip().strip("[]") for part in text.replace("]x[", "] x [").replace("->", " x ").split(" x "))
    numbers = (*_labels(lhs, "bf"), *_labels(rhs, "io"), *_labels(out, "bf"))
    names = ("input_batch", "input_feature", "input_spatial", "kernel_input_feature", "kernel_output_feature", "kernel_spatial",
             "output_batch", "output_feature", "output_spatial")
    dims = {f"{n}_dimension{'s' if isinstance(d, tuple) else ''}": d for n, d in zip(names, numbers, strict=True)}
    window = c.raw("window") or {}
    rank = len(numbers[2])
    ones = (1,) * rank

    def field(short: str, long: str, default: Sequence[int]) -> tuple[int, ...]:
        return tuple(int(v) for v in window[short]) if short in window else c.ints(long, default=default)

    if "pad" in window:
        low, high = tuple(p[0] for p in window["pad"]), tuple(p[1] for p in window["pad"])
    else:
        low, high = _pairs(c, rank)
    reverse = window.get("reverse", c.raw("window_reversal") or (0,) * rank)
    reverse = c.dense(reverse).array.reshape(-1).tolist() if isinstance(reverse, Dense) else reverse
    return [c(ops.convolution, *_widened(c), window_strides=field("stride", "window_strides", ones), padding_low=low,
              padding_high=high, lhs_dilation=field("lhs_dilate", "lhs_dilation", ones),
              rhs_dilation=field("rhs_dilate", "rhs_dilation", ones), window_reversal=tuple(int(r) for r in reverse),
              feature_group_count=c.number("feature_group_count", default=1),
              batch_group_count=c.number("batch_group_count", default=1), **dims)]


def sort(c: Context) -> list[Node]:
    """A sort of one array or several by a comparator."""
    rank = as_tensor(c.inputs[0].type).rank or 0
    dimension = c.number("dimension", default=-1)
    node = c(ops.sort, *c.inputs, dimension=dimension + rank if dimension < 0 else dimension, is_stable=c.flag("is_stable"),
             comparator=c.body())
    return several(c, node)


def norm(op: Op) -> Callable[[Context], list[Node]]:
    """The rule of a batch normalisation."""
    def rule(c: Context) -> list[Node]:
        node = c(op, *c.inputs, epsilon=float(c.need("epsilon")), feature_index=c.number("feature_index"))
        return several(c, node)

    return rule


def triangular_solve(c: Context) -> list[Node]:
    """The solution of a triangular system."""
    return [c(ops.triangular_solve, *c.inputs, left_side=c.flag("left_side"), lower=c.flag("lower"),
              unit_diagonal=c.flag("unit_diagonal"), transpose_a=c.word("transpose_a", default="NO_TRANSPOSE"))]


def fft(c: Context) -> list[Node]:
    """A Fourier transform."""
    return [c(ops.fft, *c.inputs, fft_type=c.word("fft_type", "type"), fft_length=c.ints("fft_length", "length"))]
