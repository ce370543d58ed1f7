"""HLO's operations in terms of ours: one table from opcode to rule, and the only place where opcodes are named for reading.

A rule says which attributes the operation may have, how many operands it takes, and how to build it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deepx_graph import ops
from deepx_graph.errors import an
from deepx_graph.ir import Node, Op
from deepx_graph.ops.data.fusion import mapped
from deepx_graph.text.hlo.reader import rules_control as control
from deepx_graph.text.hlo.reader import rules_windows as windows
from deepx_graph.text.hlo.reader.attributes import parse_padding, parse_slices
from deepx_graph.text.hlo.reader.context import Context
from deepx_graph.text.hlo.reader.literals import parse_literal, parse_tuple
from deepx_graph.text.hlo.reader.rules_devices import ATTRIBUTES, DEVICES
from deepx_graph.text.hlo.reader.shapes import ShapeError, layout_of
from deepx_graph.types import TupleType, as_tensor

Lower = Callable[[Context], Node]

COMMON_ATTRIBUTES = frozenset({
    "metadata", "sharding", "backend_config", "frontend_attributes", "control-predecessors", "parameter_replication", "statistics",
    "origin", "outer_dimension_partitions", "operand_precision", "result_accuracy", "original_value",
})  # fmt: skip
"""Attributes that any instruction may carry and that do not change what it computes."""

NOTED = COMMON_ATTRIBUTES - {"metadata", "origin"} | {"indices_are_sorted", "unique_indices", "domain", "inferred_dimension"}
"""Attributes that nodes keep as notes and that are written back as they stand."""

NAMING = frozenset({"condition", "body", "branch_computations", "true_computation", "false_computation"})
"""Attributes that name computations which become part of the one around; kept as notes, so that they get these names again."""


@dataclass(frozen=True)
class Rule:
    """How an opcode is read. `operands` are the numbers of operands it may have, None for any."""

    lower: Lower
    attributes: tuple[str, ...] = ()
    operands: tuple[int, ...] | None = None
    trusted: bool = False
    """XLA's parser believes the shape that the text states; where it cannot be right the instruction is kept, with a warning."""


def _same(op: Op, count: int, *attributes: str, **fixed: Any) -> Rule:
    """An opcode that is one of our ops on its operands."""
    return Rule(lambda c: c(op, *c.operands, **fixed), attributes, (count,))


# --- leaves, tuples, types ----------------------------------------------------------------------------------------


def _constant(c: Context) -> Node:
    payload = c.instruction.payload
    if "..." in payload.text:
        return opaque(c)
    try:
        if not isinstance(c.type, TupleType):
            return c.b.literal(parse_literal(payload.text, c.tensor, payload.start))
        values = parse_tuple(payload.text, c.type, payload.start)
        return c.lowering.pack(c.type, [c.b.literal(v) for v in values])
    except ShapeError as e:
        raise c.fail(e.message, payload, e.expected) from None


def _parameter(c: Context) -> Node:
    raise c.fail("a parameter stands where none can be")


def _get_tuple_element(c: Context) -> Node:
    operand, index = c.operands[0], c.number("index")
    if not isinstance(operand.type, TupleType) or not 0 <= index < len(operand.type.items):
        raise c.fail(f"item {index} of {an(operand.type)}", c.raw("index"), "an item of a tuple")
    return c.lowering.item(operand, index)


def opaque(c: Context) -> Node:
    """The instruction kept as it stands."""
    text = ", ".join(f"{name}={raw.text}" for name, raw in c.instruction.attributes.items() if name not in COMMON_ATTRIBUTES)
    name = c.instruction.opcode
    if c.has("custom_call_target"):
        name = f"{name} {c.word('custom_call_target')}"
    return c(ops.opaque, *c.operands, name=name, attributes=text, type=c.type, language="hlo")


def _first(c: Context) -> Node:
    return c.operands[0]


def _identity(role: str) -> Lower:
    return lambda c: c.lowering.pack(c.operands[0].type, [c(ops.identity, x, role=role) for x in c.lowering.flatten(c.operands[0])])


def _bitcast(c: Context) -> Node:
    """The same bytes in the same order in memory: the layouts of operand and result say which elements those are."""
    x, want = c.operands[0], c.tensor
    if as_tensor(x.type).dtype is not want.dtype:
        x = c(ops.bitcast_convert, x, dtype=want.dtype)
    before, after = (layout[::-1] for layout in (c.operand_layout(0), layout_of(c.instruction.shape)))
    if before:
        x = c(ops.transpose, x, permutation=before)
    shape = tuple(want.shape[k] for k in after) if after else want.shape
    x = x if as_tensor(x.type).dims == shape else c(ops.reshape, x, shape=shape)
    return c(ops.transpose, x, permutation=tuple(after.index(k) for k in range(len(after)))) if after else x


# --- elementwise with a twist -------------------------------------------------------------------------------------


def _compare(c: Context) -> Node:
    return c(ops.compare, *c.operands, direction=c.word("direction"), compare_type=c.word("type", ""))


def _reduce_precision(c: Context) -> Node:
    return c(ops.reduce_precision, *c.operands, exponent_bits=c.number("exponent_bits"), mantissa_bits=c.number("mantissa_bits"))


def _map(c: Context) -> Node:
    """The body applied to whole arrays where its scalar ops are elementwise."""
    body = c.body("to_apply")
    return mapped(c.b, body, c.operands, c.tensor) or c(ops.map_, *c.operands, computation=body)


# --- shapes -------------------------------------------------------------------------------------------------------


def _broadcast(c: Context) -> Node:
    dimensions = c.ints("dimensions", ())
    return c(ops.broadcast_in_dim, c.operands[0], shape=c.tensor.dims, broadcast_dimensions=dimensions)


def _slice(c: Context) -> Node:
    start, limit, strides = c.parsed("slice", parse_slices)
    return c(ops.slice_, c.operands[0], start_indices=start, limit_indices=limit, strides=strides)


def _starts(c: Context, first: int) -> list[Node]:
    """The operands, start indices that old texts give as one vector taken apart into scalars."""
    *arrays, last = c.operands
    dims = as_tensor(last.type).dims
    if len(arrays) != first or dims is None or len(dims) != 1 or dims[0] != as_tensor(arrays[0].type).rank:
        return c.operands
    parts = (c(ops.slice_, last, start_indices=(k,), limit_indices=(k + 1,), strides=(1,)) for k in range(dims[0]))
    return arrays + [c(ops.reshape, p, shape=()) for p in parts]


def _pad(c: Context) -> Node:
    low, high, interior = c.parsed("padding", parse_padding)
    return c(ops.pad, *c.operands, edge_padding_low=low, edge_padding_high=high, interior_padding=interior)


def _iota(c: Context) -> Node:
    return c(ops.iota, dtype=c.tensor.dtype, shape=c.tensor.dims, iota_dimension=c.number("iota_dimension", 0))


_GATHER = ("offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map",
           "slice_sizes")
_SCATTER = ("update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims",
            "scatter_dims_to_operand_dims")


def _gather(c: Context) -> Node:
    return c(ops.gather, *c.operands, index_vector_dim=c.number("index_vector_dim"), **{k: c.ints(k, ()) for k in _GATHER})


def _scatter(c: Context) -> Node:
    return c(ops.scatter, *c.operands, index_vector_dim=c.number("index_vector_dim"), update_computation=c.body("to_apply"),
             **{k: c.ints(k, ()) for k in _SCATTER})


def _top_k(c: Context) -> Node:
    return c(ops.top_k, *c.operands, k=c.number("k")) if c.flag("largest", default=True) else opaque(c)


# --- sizes and draws ----------------------------------------------------------------------------------------------


def _get_dimension_size(c: Context) -> Node:
    return c(ops.get_dimension_size, c.operands[0], dimension=c.number("dimensions"))


def _rng(c: Context) -> Node:
    op = {"rng_uniform": ops.rng_uniform, "rng_normal": ops.rng_normal}.get(c.word("distribution"))
    if op is None or c.tensor.dtype.kind not in ("float", "int", "uint"):
        return opaque(c)
    seed = c(ops.module_seed, index=c.lowering.next_seed())
    return c(op, *c.operands, seed, shape=c.tensor.shape, dtype=c.tensor.dtype)


_ALGORITHMS = {"rng_default": "DEFAULT", "rng_three_fry": "THREE_FRY", "rng_philox": "PHILOX"}


def _rng_bits(c: Context) -> Node:
    if not isinstance(c.type, TupleType) or len(c.type.items) != 2 or c.word("algorithm") not in _ALGORITHMS:
        raise c.fail("rng-bit-generator gives a state and bits", c.raw("algorithm"), ", ".join(_ALGORITHMS))
    bits = as_tensor(c.type.items[1])
    return c(ops.rng_bit_generator, *c.operands, rng_algorithm=_ALGORITHMS[c.word("algorithm")], shape=bits.shape, dtype=bits.dtype)


# --- the table ----------------------------------------------------------------------------------------------------

UNARY: dict[str, Op] = {
    "abs": ops.abs_, "negate": ops.negate, "sign": ops.sign, "floor": ops.floor, "ceil": ops.ceil, "exponential": ops.exponential,
    "exponential-minus-one": ops.exponential_minus_one, "log": ops.log, "log-plus-one": ops.log_plus_one, "sqrt": ops.sqrt,
    "rsqrt": ops.rsqrt, "cbrt": ops.cbrt, "sine": ops.sine, "cosine": ops.cosine, "tan": ops.tan, "tanh": ops.tanh,
    "logistic": ops.logistic, "not": ops.not_, "is-finite": ops.is_finite, "popcnt": ops.popcnt, "erf": ops.erf,
    "count-leading-zeros": ops.count_leading_zeros, "round-nearest-afz": ops.round_nearest_afz,
    "round-nearest-even": ops.round_nearest_even, "real": ops.real, "imag": ops.imag, "acos": ops.acos, "acosh": ops.acosh,
    "asin": ops.asin, "asinh": ops.asinh, "atanh": ops.atanh, "cosh": ops.cosh, "sinh": ops.sinh,
}  # fmt: skip
BINARY: dict[str, Op] = {
    "add": ops.add, "subtract": ops.subtract, "multiply": ops.multiply, "divide": ops.divide, "remainder": ops.remainder,
    "power": ops.power, "maximum": ops.maximum, "minimum": ops.minimum, "atan2": ops.atan2, "and": ops.and_, "or": ops.or_,
    "xor": ops.xor, "shift-left": ops.shift_left, "shift-right-arithmetic": ops.shift_right_arithmetic,
    "shift-right-logical": ops.shift_right_logical, "complex": ops.complex_,
}  # fmt: skip
IDENTITY = {"copy": "copy", "domain": "domain", **dict.fromkeys(("opt-barrier", "optimization-barrier"), "optimization_barrier")}
"""What HLO calls an `identity`, with its role."""
_KEPT: dict[str, tuple[str, ...]] = {
    "set-dimension-size": ("dimensions",), "dynamic-reshape": (), "stochastic-convert": (),
    "ragged-dot": ("lhs_batch_dims", "rhs_batch_dims", "lhs_contracting_dims", "rhs_contracting_dims", "lhs_ragged_dims",
                   "rhs_group_dims"),
    "ragged-all-to-all": ("replica_groups", "channel_id"),
}  # fmt: skip
"""Operations that are kept as they stand, with the attributes that each may have."""

RULES: dict[str, Rule] = {
    **{name: _same(op, 1) for name, op in UNARY.items()},
    **{name: _same(op, 2) for name, op in BINARY.items()},
    **{name: Rule(_identity(role), ("domain",) * (name == "domain"), (1,)) for name, role in IDENTITY.items()},
    "add-dependency": Rule(_first, operands=(2,)),
    **{name: Rule(opaque, attributes) for name, attributes in _KEPT.items()},
    **{name: Rule(lower, ATTRIBUTES.get(name, ())) for name, lower in DEVICES.items()},
    "constant": Rule(_constant, operands=(0,)),
    "parameter": Rule(_parameter, operands=(0,)),
    "tuple": Rule(lambda c: c.b.pack(*c.operands)),
    "get-tuple-element": Rule(_get_tuple_element, ("index",), (1,)),
    "bitcast": Rule(_bitcast, operands=(1,)),
    "bitcast-convert": Rule(lambda c: c(ops.bitcast_convert, *c.operands, dtype=c.tensor.dtype), operands=(1,)),
    "convert": Rule(lambda c: c(ops.convert, *c.operands, dtype=c.tensor.dtype), operands=(1,)),
    "compare": Rule(_compare, ("direction", "type"), (2,)),
    "select": _same(ops.select, 3),
    "clamp": _same(ops.clamp, 3),
    "reduce-precision": Rule(_reduce_precision, ("exponent_bits", "mantissa_bits"), (1,)),
    "map": Rule(_map, ("dimensions", "to_apply")),
    "broadcast": Rule(_broadcast, ("dimensions",), (1,)),
    "reshape": Rule(lambda c: c(ops.reshape, *c.operands, shape=c.tensor.dims), ("inferred_dimension",), (1,)),
    "transpose": Rule(lambda c: c(ops.transpose, *c.operands, permutation=c.ints("dimensions")), ("dimensions",), (1,)),
    "reverse": Rule(lambda c: c(ops.reverse, *c.operands, dimensions=c.ints("dimensions")), ("dimensions",), (1,)),
    "concatenate": Rule(lambda c: c(ops.concatenate, *c.operands, dimension=c.number("dimensions")), ("dimensions",)),
    "slice": Rule(_slice, ("slice",), (1,)),
    "pad": Rule(_pad, ("padding",), (2,), trusted=True),
    "iota": Rule(_iota, ("iota_dimension",), (0,)),
    "dynamic-slice": Rule(lambda c: c(ops.dynamic_slice, *_starts(c, 1), slice_sizes=c.ints("dynamic_slice_sizes")),
                          ("dynamic_slice_sizes",)),
    "dynamic-update-slice": Rule(lambda c: c(ops.dynamic_update_slice, *_starts(c, 2))),
    "gather": Rule(_gather, (*_GATHER, "index_vector_dim", "indices_are_sorted"), (2,)),
    "scatter": Rule(_scatter, (*_SCATTER, "index_vector_dim", "indices_are_sorted", "unique_indices", "to_apply")),
    "reduce": Rule(windows.reduce, ("dimensions", "to_apply"), trusted=True),
    "reduce-window": Rule(windows.reduce_window, ("window", "to_apply")),
    "select-and-scatter": Rule(windows.select_and_scatter, ("window", "select", "scatter"), (3,)),
    "dot": Rule(windows.dot, ("lhs_batch_dims", "rhs_batch_dims", "lhs_contracting_dims", "rhs_contracting_dims", "algorithm"),
                (2,), trusted=True),
    "convolution": Rule(windows.convolution, ("window", "dim_labels", "feature_group_count", "batch_group_count"), (2,),
                        trusted=True),
    "sort": Rule(windows.sort, ("dimensions", "is_stable", "to_apply")),
    "topk": Rule(_top_k, ("k", "largest"), (1,)),
    "cholesky": Rule(lambda c: c(ops.cholesky, *c.operands, lower=c.flag("lower")), ("lower",), (1,)),
    "triangular-solve": Rule(windows.triangular_solve, ("left_side", "lower", "unit_diagonal", "transpose_a"), (2,)),
    "fft": Rule(lambda c: c(ops.fft, *c.operands, fft_type=c.word("fft_type"), fft_length=c.ints("fft_length")),
                ("fft_type", "fft_length"), (1,)),
    "batch-norm-training": Rule(windows.norm(ops.batch_norm_training), ("epsilon", "feature_index"), (3,)),
    "batch-norm-inference": Rule(windows.norm(ops.batch_norm_inference), ("epsilon", "feature_index"), (5,)),
    "batch-norm-grad": Rule(windows.norm(ops.batch_norm_grad), ("epsilon", "feature_index"), (5,)),
    "while": Rule(control.while_, ("condition", "body"), (1,)),
    "conditional": Rule(control.conditional, ("branch_computations", "true_computation", "false_computation")),
    "call": Rule(control.call, ("to_apply", "is_composite")),
    "fusion": Rule(control.fusion, ("kind", "calls")),
    "get-dimension-size": Rule(_get_dimension_size, ("dimensions",), (1,)),
    "rng": Rule(_rng, ("distribution",), (2,)),
    "rng-bit-generator": Rule(_rng_bits, ("algorithm",), (1,)),
}
"""Every opcode that is read."""
