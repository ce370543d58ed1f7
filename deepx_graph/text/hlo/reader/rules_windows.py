"""Reductions, windows, products, sorts, solves and norms of HLO: what `rules` refers to for them."""

from __future__ import annotations

from collections.abc import Callable

from deepx_graph import ops
from deepx_graph.ir import Node, Op
from deepx_graph.text.hlo.reader.attributes import parse_dim_labels
from deepx_graph.text.hlo.reader.context import Context
from deepx_graph.types import as_tensor


def _widen(c: Context, x: Node) -> Node:
    """An operand in the stated element type of the result: products may accumulate in a wider one."""
    return x if as_tensor(x.type).dtype is c.tensor.dtype else c(ops.convert, x, dtype=c.tensor.dtype)


def reduce(c: Context) -> Node:
    """A reduction of one array or several."""
    return c(ops.reduce, *c.operands, dimensions=c.ints("dimensions"), body=c.body("to_apply"))


def reduce_window(c: Context) -> Node:
    """A reduction over a sliding window."""
    w = c.window()
    return c(ops.reduce_window, *c.operands, window_dimensions=w.size, window_strides=w.stride, base_dilations=w.lhs_dilate,
             window_dilations=w.rhs_dilate, padding_low=w.low, padding_high=w.high, body=c.body("to_apply"))


def select_and_scatter(c: Context) -> Node:
    """What a window selects is where its value is scattered."""
    w = c.window()
    return c(ops.select_and_scatter, *c.operands, window_dimensions=w.size, window_strides=w.stride, padding_low=w.low,
             padding_high=w.high, select=c.body("select"), scatter=c.body("scatter"))


def dot(c: Context) -> Node:
    """A product of arrays, accumulated in the stated element type."""
    lhs, rhs = (_widen(c, x) for x in c.operands)
    names = ("lhs_batch", "rhs_batch", "lhs_contracting", "rhs_contracting")
    given = {f"{n}{'ing' if n.endswith('batch') else ''}_dimensions": c.ints(f"{n}_dims", ()) for n in names}
    return c(ops.dot_general, lhs, rhs, **given)


def convolution(c: Context) -> Node:
    """A convolution, accumulated in the stated element type."""
    w = c.window()
    labels = c.parsed("dim_labels", parse_dim_labels)
    names = ("input_batch", "input_feature", "input_spatial", "kernel_input_feature", "kernel_output_feature", "kernel_spatial",
             "output_batch", "output_feature", "output_spatial")
    dims = {f"{n}_dimension{'s' if isinstance(d, tuple) else ''}": d
            for n, d in zip(names, (*labels.input, *labels.kernel, *labels.output), strict=True)}
    return c(ops.convolution, *(_widen(c, x) for x in c.operands), window_strides=w.stride, padding_low=w.low, padding_high=w.high,
             lhs_dilation=w.lhs_dilate, rhs_dilation=w.rhs_dilate, window_reversal=w.rhs_reversal,
             feature_group_count=c.number("feature_group_count", 1), batch_group_count=c.number("batch_group_count", 1), **dims)


def sort(c: Context) -> Node:
    """A sort of one array or several by a comparator."""
    return c(ops.sort, *c.operands, dimension=c.number("dimensions"), is_stable=c.flag("is_stable"), comparator=c.body("to_apply"))


def triangular_solve(c: Context) -> Node:
    """The solution of a triangular system."""
    return c(ops.triangular_solve, *c.operands, left_side=c.flag("left_side"), lower=c.flag("lower"),
             unit_diagonal=c.flag("unit_diagonal"), transpose_a=c.word("transpose_a", "NO_TRANSPOSE"))


def norm(op: Op) -> Callable[[Context], Node]:
    """The rule of a batch normalisation."""
    return lambda c: c(op, *c.operands, epsilon=float(c.word("epsilon")), feature_index=c.number("feature_index"))
