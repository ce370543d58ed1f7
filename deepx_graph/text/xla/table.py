"""The operations of the XLA dialect, one row each: our op, its names, and its attributes as fields that read and write themselves.

The two readers and the two printers take from here whatever they say alike; what a syntax says in a way of its own is in its rules
and in its printer. Attributes stand in HLO's order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from deepx_graph import ops
from deepx_graph.ir import Builder, Node, Op
from deepx_graph.ir.structure import REGION, branch_count
from deepx_graph.ops.data.fusion import mapped
from deepx_graph.text.xla import hlo_text, mlir_text
from deepx_graph.text.xla.devices import DEVICES, SPMD
from deepx_graph.text.xla.fields import (
    AttributeField,
    Attrs,
    Derived,
    DotField,
    IndexedField,
    OperationRow,
    StatedField,
    body,
    flag,
    ints,
    number,
    real,
    row,
    stated,
    value,
    word,
)
from deepx_graph.text.xla.hlo_text import present
from deepx_graph.text.xla.lowering import DialectContext
from deepx_graph.text.xla.mlir_text import word_text
from deepx_graph.text.xla.windows import LABELS, PADDING, SLICES, window
from deepx_graph.types import I32, as_tensor, scalar

if TYPE_CHECKING:
    from deepx_graph.rewrite.legalise import Rule
    from deepx_graph.text.hlo.printer.body import ComputationWriter
    from deepx_graph.text.hlo.reader.context import InstructionContext
    from deepx_graph.text.stablehlo.reader.context import OperationContext

# --- how operations are built that are not just an op on the operands ---------------------------------------------


def _accumulated(c: DialectContext, op: Op, attrs: Attrs) -> Node:
    """A product, its operands in the stated element type: it may accumulate in a wider one."""
    dtype = c.tensor.dtype
    wide = [x if as_tensor(x.type).dtype is dtype else c(ops.convert, x, dtype=dtype) for x in c.inputs]
    return c(op, *wide, **attrs)


def _mapped(c: DialectContext, op: Op, attrs: Attrs) -> Node:
    """The body applied to whole arrays where its scalar ops are elementwise."""
    return mapped(c.b, attrs["computation"], c.inputs, c.tensor) or c(op, *c.inputs, **attrs)


_BITS: Derived = {
    "shape": lambda c, attrs: as_tensor(c.results[1]).shape, "dtype": lambda c, attrs: as_tensor(c.results[1]).dtype,
}  # fmt: skip
"""A generator gives bits beside its state."""


def drawn(c: DialectContext, op: Op) -> Node:
    """A draw between two bounds, from a seed of the module's."""
    seed = c(ops.module_seed, index=c.lowering.next_seed())
    return c(op, *c.inputs[:2], seed, shape=c.tensor.shape, dtype=c.tensor.dtype)


class ComparisonField(AttributeField):
    """Which comparison, and by which order of floats; pretty forms of MLIR have words alone."""

    def read_hlo(self, c: InstructionContext) -> Attrs:
        return {"direction": c.word("direction"), "compare_type": c.word("type", default="")}

    def read_mlir(self, c: OperationContext) -> Attrs:
        direction, kind = [*c.op.words, "", ""][:2]
        stated = c.word("compare_type", default=kind)
        return {"direction": c.word(self.mlir, default=direction), "compare_type": "" if stated == "NOTYPE" else stated}

    def write_hlo(self, w: ComputationWriter, node: Node) -> str:
        kind = node.attr("compare_type")
        return present(f"direction={node.attr('direction')}", f"type={kind}" if kind else "")

    def write_mlir(self, node: Node) -> str:
        kind = node.attr("compare_type")
        return present(f"{self.mlir} = {word_text(self.mlir, node.attr('direction'))}",
                       f"compare_type = {word_text('comparison_type', kind)}" if kind else "")


def _dimensions(node: Node) -> range:
    return range(as_tensor(node.type).rank or 0)


ALGORITHMS = {"rng_default": "DEFAULT", "rng_three_fry": "THREE_FRY", "rng_philox": "PHILOX"}
"""Algorithms of random bits, by HLO's name."""


def _algorithm(c: DialectContext, names: tuple[str, ...]) -> str:
    found = c.word(*names)
    return ALGORITHMS.get(found, found)


# --- the table ----------------------------------------------------------------------------------------------------

_BOTH = (
    ops.abs_, ops.add, ops.and_, ops.atan2, ops.cbrt, ops.ceil, ops.complex_, ops.cosine, ops.count_leading_zeros, ops.divide,
    ops.exponential, ops.exponential_minus_one, ops.floor, ops.imag, ops.is_finite, ops.log, ops.log_plus_one, ops.logistic,
    ops.maximum, ops.minimum, ops.multiply, ops.negate, ops.not_, ops.or_, ops.popcnt, ops.power, ops.real, ops.remainder,
    ops.round_nearest_afz, ops.round_nearest_even, ops.rsqrt, ops.select, ops.shift_left, ops.shift_right_arithmetic,
    ops.shift_right_logical, ops.sign, ops.sine, ops.sqrt, ops.subtract, ops.tan, ops.tanh, ops.xor, ops.dynamic_update_slice,
    ops.clamp, ops.convert, ops.bitcast_convert,
)  # fmt: skip
_IN_CHLO = (ops.acos, ops.acosh, ops.asin, ops.asinh, ops.atanh, ops.cosh, ops.erf, ops.sinh)
_OF_CHLO = (
    ops.atan, ops.bessel_i1e, ops.conj, ops.digamma, ops.erf_inv, ops.erfc, ops.is_inf, ops.is_neg_inf, ops.is_pos_inf,
    ops.lgamma, ops.next_after, ops.polygamma, ops.mulhi, ops.square, ops.zeta,
)  # fmt: skip
_NORM = (real("epsilon", 32), number("feature_index"))
_ALGORITHM = value("rng_algorithm", ("algorithm",), "algorithm", _algorithm, lambda v: f"rng_{v.lower()}",
                   lambda v: word_text("rng_algorithm", v))
_PAD = ("pad", "padding")
_ALL_DIMENSIONS = StatedField(lambda node: hlo_text.ints_text(_dimensions(node)),
                              lambda node: mlir_text.ints_text(_dimensions(node)), hlo=("dimensions",), mlir="dimensions")
_UNSORTED, _REPEATED = stated("indices_are_sorted", mlir="false"), stated("unique_indices", mlir="false")


def _indexed(mlir: str, kind: str, *lists: str) -> IndexedField:
    """The dimensions of a gather or scatter; the third and fourth lists are those of batches."""
    return IndexedField(kind, lists, (0, 1, 4, 2, 3), frozenset(lists[2:4]), hlo=(*lists, "index_vector_dim"), mlir=mlir)


_GATHER = _indexed("dimension_numbers", "gather", "offset_dims", "collapsed_slice_dims", "operand_batching_dims",
                   "start_indices_batching_dims", "start_index_map")
_SCATTER = _indexed("scatter_dimension_numbers", "scatter", "update_window_dims", "inserted_window_dims", "input_batching_dims",
                    "scatter_indices_batching_dims", "scatter_dims_to_operand_dims")
_DOT_LISTS = ("lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions")
_DOT = DotField("dot", _DOT_LISTS, (0, 2, 1, 3), frozenset(_DOT_LISTS), mlir="dot_dimension_numbers",
                hlo=("lhs_batch_dims", "rhs_batch_dims", "lhs_contracting_dims", "rhs_contracting_dims"))

TABLE: tuple[OperationRow, ...] = (
    *map(row, _BOTH),
    *(row(op, dialect="chlo") for op in _IN_CHLO),
    *(row(op, hlo="", dialect="chlo") for op in _OF_CHLO),
    row(ops.compare, ComparisonField(hlo=("direction", "type"), mlir="comparison_direction")),
    row(ops.reduce_precision, number("exponent_bits", width=32), number("mantissa_bits", width=32)),
    row(ops.iota, number("iota_dimension", "dim", default=0)),
    row(ops.reshape, stated("inferred_dimension")),
    row(ops.broadcast_in_dim, ints("broadcast_dimensions", "dims", hlo="dimensions"), hlo="broadcast"),
    row(ops.transpose, ints("permutation", "dims", hlo="dimensions")),
    row(ops.reverse, ints("dimensions", "dims")),
    row(ops.concatenate, number("dimension", "dim", hlo="dimensions")),
    row(ops.slice_, SLICES),
    row(ops.pad, PADDING),
    row(ops.dynamic_slice, ints("slice_sizes", "sizes", hlo="dynamic_slice_sizes")),
    row(ops.gather, _GATHER, ints("slice_sizes"), _UNSORTED),
    row(ops.scatter, _SCATTER, _UNSORTED, _REPEATED, body("update_computation")),
    row(ops.reduce, ints("dimensions"), body("body")),
    row(ops.reduce_window, window(_PAD, ("lhs_dilate", "base_dilations"), ("rhs_dilate", "window_dilations"),
                                  ("size", "window_dimensions"), ("stride", "window_strides"), must_say_size=True), body("body")),
    row(ops.select_and_scatter, window(_PAD, ("size", "window_dimensions"), ("stride", "window_strides")),
        body("select", "select"), body("scatter", "scatter", 1)),
    row(ops.dot_general, _DOT, stated("algorithm"), hlo="dot", build=_accumulated),
    row(ops.convolution, window(("lhs_dilate", "lhs_dilation"), ("rhs_dilate", "rhs_dilation"), ("stride", "window_strides"), _PAD,
                                ("rhs_reversal", "window_reversal")), LABELS,
        number("feature_group_count", default=1, hidden=True), number("batch_group_count", default=1, hidden=True),
        build=_accumulated),
    row(ops.map_, _ALL_DIMENSIONS, body("computation"), build=_mapped),
    row(ops.sort, number("dimension", hlo="dimensions"), flag("is_stable"), body("comparator")),
    row(ops.top_k, number("k"), stated("largest", hlo="true"), hlo="topk", dialect="chlo"),
    row(ops.cholesky, flag("lower")),
    row(ops.triangular_solve, flag("left_side"), flag("lower"), flag("unit_diagonal"),
        word("transpose_a", kind="transpose", default="NO_TRANSPOSE")),
    row(ops.fft, word("fft_type", "type"), ints("fft_length", "length")),
    *(row(op, *_NORM) for op in (ops.batch_norm_training, ops.batch_norm_inference, ops.batch_norm_grad)),
    row(ops.get_dimension_size, number("dimension", "dim", hlo="dimensions")),
    row(ops.rng_bit_generator, _ALGORITHM, derived=_BITS),
    *DEVICES,
)  # fmt: skip
"""What both syntaxes have, and CHLO beside them."""

ROWS: dict[Op, OperationRow] = {r.op: r for r in (*TABLE, *SPMD)}
"""The rows by op."""


# --- uses of operations that the dialect has not ------------------------------------------------------------------


def _is_unsigned(node: Node) -> bool:
    return as_tensor(node.type).dtype.kind == "uint"


def _region(b: Builder, node: Node) -> Node:
    """A case is selected by an i32; numbers beyond the branches stay beyond them."""
    narrow = node.inputs[0]
    selector = as_tensor(narrow.type).dtype
    least, most = (-1 if selector.kind == "int" else 0), branch_count(node)
    if selector.bits >= 32:
        narrow = b(ops.clamp, b.like(least, narrow), narrow, b.like(most, narrow))
    return b.make(REGION, (b(ops.convert, narrow, dtype=I32), *node.inputs[1:]), node.attrs, node.type)


def _draw(b: Builder, node: Node) -> Node:
    """The bounds of a draw have the dtype of its result."""
    dtype = as_tensor(node.type).dtype
    bounds = [x if as_tensor(x.type).dtype is dtype else b(ops.convert, x, dtype=dtype) for x in node.inputs[:2]]
    return b.make(node.op, (*bounds, node.inputs[2]), node.attrs, node.type)


def _selects_otherwise(node: Node) -> bool:
    selector = as_tensor(node.inputs[0].type).dtype
    return selector.is_integer and selector is not I32


def _draws_otherwise(node: Node) -> bool:
    return any(as_tensor(x.type).dtype is not as_tensor(node.type).dtype for x in node.inputs[:2])


LACKING_IN_BOTH: dict[Op, Callable[[Node], bool]] = {
    ops.abs_: _is_unsigned, ops.sign: _is_unsigned, ops.iota: lambda node: not node.attr("shape"), REGION: _selects_otherwise,
    ops.rng_uniform: _draws_otherwise, ops.rng_normal: _draws_otherwise,
}  # fmt: skip
"""Which uses of its ops neither syntax has."""

LEGAL_FORMS: dict[Op | None, Rule] = {
    REGION: _region, ops.rng_uniform: _draw, ops.rng_normal: _draw,
    ops.iota: lambda b, node: b.splat(0, scalar(node.attr("dtype"))),
}  # fmt: skip
"""What is written for them."""
