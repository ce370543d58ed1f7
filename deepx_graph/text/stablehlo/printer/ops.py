"""Our operations in StableHLO's terms: one table, and the only place where they are named for printing.

A rule gives the operation's name, its attributes as text and the functions that become its regions; operands, types and
results are the writer's business. What StableHLO does not have is not in the table, and legalised before (`legal.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from deepx_graph import ops
from deepx_graph.ir import Function, Node, Op
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.ops.host import custom_calls
from deepx_graph.text.stablehlo.printer.devices import DEVICE_PARTS
from deepx_graph.text.stablehlo.printer.values import (
    bools_text,
    dense_text,
    float_text,
    ints_text,
    pairs_text,
    string_text,
    struct_text,
    type_text,
    word_text,
)
from deepx_graph.types import as_tensor


class Form(NamedTuple):
    """`"name"(...) <{attributes}> ({bodies})`."""

    name: str
    attributes: str = ""
    bodies: tuple[Function, ...] = ()
    notes: str = ""
    """Attributes that are none of the operation's own."""


Rule = Callable[[Node], Form]


def _plain(name: str) -> Rule:
    form = Form(name)
    return lambda n: form


def _with(op: Op, *names: str, body: str = "") -> Rule:
    """The operation of the same name whose attributes are written one by one, and a body."""

    def rule(n: Node) -> Form:
        shown = ", ".join(f"{name} = {_value(n.attr(name))}" for name in names)
        return Form(f"stablehlo.{op.name}", shown, (n.attr(body),) if body else ())

    return rule


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ints_text(value)
    return f"{value} : i64"


def _reaching(parts: Callable[[Node], tuple[str, str, tuple[Function, ...]]]) -> Rule:
    return lambda n: Form(*parts(n))


# --- operations with attributes of their own ------------------------------------------------------------------------


def _constant(n: Node) -> Form:
    return Form("stablehlo.constant", f"value = {dense_text(n.attrs[0])} : {type_text(n.type)}")


def _compare(n: Node) -> Form:
    direction, kind = n.attrs
    shown = f"comparison_direction = {word_text('comparison_direction', direction)}"
    return Form("stablehlo.compare", shown + (f", compare_type = {word_text('comparison_type', kind)}" if kind else ""))


def _reduce_precision(n: Node) -> Form:
    return Form("stablehlo.reduce_precision", f"exponent_bits = {n.attrs[0]} : i32, mantissa_bits = {n.attrs[1]} : i32")


_GATHER = ("offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map",
           "index_vector_dim")
_SCATTER = ("update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims",
            "scatter_dims_to_operand_dims", "index_vector_dim")
_DOT = ("lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions")


def _gather(n: Node) -> Form:
    numbers = struct_text("gather", {k: n.attr(k) for k in _GATHER})
    return Form("stablehlo.gather", f"dimension_numbers = {numbers}, indices_are_sorted = false, "
                                    f"slice_sizes = {ints_text(n.attr('slice_sizes'))}")


def _scatter(n: Node) -> Form:
    numbers = struct_text("scatter", {k: n.attr(k) for k in _SCATTER})
    return Form("stablehlo.scatter", f"indices_are_sorted = false, scatter_dimension_numbers = {numbers}, unique_indices = false",
                (n.attr("update_computation"),))


def _dot_general(n: Node) -> Form:
    return Form("stablehlo.dot_general", f"dot_dimension_numbers = {struct_text('dot', {k: n.attr(k) for k in _DOT})}")


def _padding(n: Node) -> str:
    return f"padding = {pairs_text(n.attr('padding_low'), n.attr('padding_high'))}"


def _each(n: Node, *names: str) -> str:
    return ", ".join(f"{name} = {ints_text(n.attr(name))}" for name in names)


def _reduce_window(n: Node) -> Form:
    windows = _each(n, "base_dilations", "window_dilations", "window_dimensions", "window_strides")
    return Form("stablehlo.reduce_window", f"{_padding(n)}, {windows}", (n.attr("body"),))


def _select_and_scatter(n: Node) -> Form:
    return Form("stablehlo.select_and_scatter", f"{_padding(n)}, {_each(n, 'window_dimensions', 'window_strides')}",
                (n.attr("select"), n.attr("scatter")))


def _labels(first: tuple[int, str], second: tuple[int, str], spatial: tuple[int, ...]) -> str:
    words = dict((first, second)) | {d: str(k) for k, d in enumerate(spatial)}
    return f"[{', '.join(words[k] for k in sorted(words))}]"


def _convolution(n: Node) -> Form:
    lhs, rhs, out = (
        _labels((n.attr(f"{of}_{one}_dimension"), a), (n.attr(f"{of}_{two}_dimension"), c), n.attr(f"{of}_spatial_dimensions"))
        for of, one, a, two, c in (("input", "batch", "b", "feature", "f"), ("kernel", "input_feature", "i", "output_feature", "o"),
                                   ("output", "batch", "b", "feature", "f"))
    )
    parts = (
        f"batch_group_count = {n.attr('batch_group_count')} : i64",
        f"dimension_numbers = #stablehlo.conv<{lhs}x{rhs}->{out}>",
        f"feature_group_count = {n.attr('feature_group_count')} : i64",
        _each(n, "lhs_dilation", "rhs_dilation", "window_strides"),
        _padding(n),
        f"window_reversal = {bools_text(n.attr('window_reversal'))}",
    )
    return Form("stablehlo.convolution", ", ".join(parts))


def _norm(op: Op) -> Rule:
    def rule(n: Node) -> Form:
        shown = f"epsilon = {float_text(n.attr('epsilon'))} : f32, feature_index = {n.attr('feature_index')} : i64"
        return Form(f"stablehlo.{op.name}", shown)

    return rule


def _triangular_solve(n: Node) -> Form:
    flags = ", ".join(f"{k} = {_value(n.attr(k))}" for k in ("left_side", "lower"))
    way = word_text("transpose", n.attr("transpose_a"))
    return Form("stablehlo.triangular_solve", f"{flags}, transpose_a = {way}, unit_diagonal = {_value(n.attr('unit_diagonal'))}")


def _fft(n: Node) -> Form:
    kind = word_text("fft_type", n.attr("fft_type"))
    return Form("stablehlo.fft", f"fft_length = {ints_text(n.attr('fft_length'))}, fft_type = {kind}")


def _top_k(n: Node) -> Form:
    return Form("chlo.top_k", f"k = {n.attr('k')} : i64")


def _almost(n: Node) -> Form:
    return Form("check.expect_almost_eq", f"tolerance = {float_text(n.attr('tolerance'))} : f64")


def _close(n: Node) -> Form:
    return Form("check.expect_close", f"max_ulp_difference = {n.attr('max_ulp_difference')} : i64, "
                                      f"min_ulp_difference = {n.attr('min_ulp_difference')} : i64")


def _rng_bits(n: Node) -> Form:
    return Form("stablehlo.rng_bit_generator", f"rng_algorithm = {word_text('rng_algorithm', n.attr('rng_algorithm'))}")


def _identity(n: Node) -> Form:
    """StableHLO has the barrier alone; what else it is for is said beside it."""
    if n.attrs[0] in custom_calls.UNCHANGED:
        return Form("stablehlo.custom_call", f"call_target_name = {string_text(n.attrs[0])}")
    if n.attrs[0] == "sharding_constraint" and (said := dict(n.origin.notes).get("constraint")):
        return Form("sdy.sharding_constraint", f"sharding = {said}")
    barrier = n.attrs[0] == "optimization_barrier"
    return Form("stablehlo.optimization_barrier", notes="" if barrier else f"role = {string_text(n.attrs[0])}")


def _map(n: Node) -> Form:
    return Form("stablehlo.map", f"dimensions = {ints_text(range(as_tensor(n.type).rank or 0))}", (n.attr("computation"),))


def _distribution(word: str) -> Rule:
    form = Form("stablehlo.rng", f"rng_distribution = {word_text('rng_distribution', word)}")
    return lambda n: form


# --- the table ------------------------------------------------------------------------------------------------------

_STABLEHLO_PLAIN = (
    ops.abs_, ops.add, ops.and_, ops.atan2, ops.cbrt, ops.ceil, ops.complex_, ops.cosine, ops.count_leading_zeros, ops.divide,
    ops.exponential, ops.exponential_minus_one, ops.floor, ops.imag, ops.is_finite, ops.log, ops.log_plus_one, ops.logistic,
    ops.maximum, ops.minimum, ops.multiply, ops.negate, ops.not_, ops.or_, ops.popcnt, ops.power, ops.real, ops.remainder,
    ops.round_nearest_afz, ops.round_nearest_even, ops.rsqrt, ops.select, ops.shift_left, ops.shift_right_arithmetic,
    ops.shift_right_logical, ops.sign, ops.sine, ops.sqrt, ops.subtract, ops.tan, ops.tanh, ops.xor, ops.dynamic_update_slice,
    ops.clamp, ops.convert, ops.bitcast_convert, ops.reshape,
)  # fmt: skip
_CHLO_PLAIN = (
    ops.acos, ops.acosh, ops.asin, ops.asinh, ops.atan, ops.atanh, ops.bessel_i1e, ops.conj, ops.cosh, ops.digamma, ops.erf,
    ops.erf_inv, ops.erfc, ops.is_inf, ops.is_neg_inf, ops.is_pos_inf, ops.lgamma, ops.next_after, ops.polygamma, ops.sinh,
    ops.mulhi, ops.square, ops.zeta,
)  # fmt: skip

FORMS: dict[Op, Rule] = {
    **{op: _plain(f"stablehlo.{op.name}") for op in _STABLEHLO_PLAIN},
    **{op: _plain(f"chlo.{op.name}") for op in _CHLO_PLAIN},
    CONSTANT: _constant,
    ops.compare: _compare,
    ops.reduce_precision: _reduce_precision,
    ops.iota: _with(ops.iota, "iota_dimension"),
    ops.broadcast_in_dim: _with(ops.broadcast_in_dim, "broadcast_dimensions"),
    ops.transpose: _with(ops.transpose, "permutation"),
    ops.reverse: _with(ops.reverse, "dimensions"),
    ops.concatenate: _with(ops.concatenate, "dimension"),
    ops.slice_: _with(ops.slice_, "limit_indices", "start_indices", "strides"),
    ops.pad: _with(ops.pad, "edge_padding_high", "edge_padding_low", "interior_padding"),
    ops.dynamic_slice: _with(ops.dynamic_slice, "slice_sizes"),
    ops.gather: _gather,
    ops.scatter: _scatter,
    ops.dot_general: _dot_general,
    ops.reduce: _with(ops.reduce, "dimensions", body="body"),
    ops.reduce_window: _reduce_window,
    ops.select_and_scatter: _select_and_scatter,
    ops.convolution: _convolution,
    ops.map_: _map,
    ops.sort: _with(ops.sort, "dimension", "is_stable", body="comparator"),
    ops.top_k: _top_k,
    ops.batch_norm_training: _norm(ops.batch_norm_training),
    ops.batch_norm_inference: _norm(ops.batch_norm_inference),
    ops.batch_norm_grad: _norm(ops.batch_norm_grad),
    ops.cholesky: _with(ops.cholesky, "lower"),
    ops.triangular_solve: _triangular_solve,
    ops.fft: _fft,
    ops.identity: _identity,
    ops.expect_eq: _plain("check.expect_eq"),
    ops.expect_almost_eq: _almost,
    ops.expect_close: _close,
    ops.rng_uniform: _distribution("UNIFORM"),
    ops.rng_normal: _distribution("NORMAL"),
    ops.get_dimension_size: _with(ops.get_dimension_size, "dimension"),
    ops.rng_bit_generator: _rng_bits,
    **{op: _reaching(parts) for op, parts in DEVICE_PARTS.items()},
}
"""Every operation that StableHLO, CHLO or the check dialect has, with how it is written."""
