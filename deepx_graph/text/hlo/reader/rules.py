"""HLO's operations in terms of ours: the rows of the dialect's table that HLO has, and what HLO says in a way of its own.

A rule says which attributes the operation may have, how many operands it takes, and how to build it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from deepx_graph import ops
from deepx_graph.errors import an
from deepx_graph.ir import Node
from deepx_graph.text.hlo.reader import control
from deepx_graph.text.hlo.reader.context import InstructionContext
from deepx_graph.text.hlo.reader.devices import ATTRIBUTES, DEVICES
from deepx_graph.text.hlo.reader.literals import parse_literal, parse_tuple
from deepx_graph.text.hlo.reader.shapes import ShapeError, layout_of
from deepx_graph.text.xla.rows import OperationRow
from deepx_graph.text.xla.table import ALGORITHMS, ROWS, TABLE, drawn
from deepx_graph.types import TupleType, as_tensor

Lower = Callable[[InstructionContext], Node]

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
class OpcodeRule:
    """How an opcode is read. `operands` are the numbers of operands it may have, None for any."""

    lower: Lower
    attributes: tuple[str, ...] = ()
    operands: tuple[int, ...] | None = None
    trusted: bool = False
    """XLA's parser believes the shape that the text states; where it cannot be right the instruction is kept, with a warning."""


# --- leaves, tuples, types ----------------------------------------------------------------------------------------


def _constant(c: InstructionContext) -> Node:
    payload = c.instruction.payload
    if "..." in payload.text:
        return opaque(c)
    try:
        if not isinstance(c.type, TupleType):
            return c.b.literal(parse_literal(payload.text, c.tensor, payload.start))
        values = parse_tuple(payload.text, c.type, payload.start)
        return c.lowering.pack(c.type, [c.b.literal(v) for v in values])
    except ShapeError as e:
        raise c.fail(e.message, e.expected, payload) from None


def _parameter(c: InstructionContext) -> Node:
    raise c.fail("a parameter stands where none can be")


def _get_tuple_element(c: InstructionContext) -> Node:
    operand, index = c.inputs[0], c.number("index")
    if not isinstance(operand.type, TupleType) or not 0 <= index < len(operand.type.items):
        raise c.fail(f"item {index} of {an(operand.type)}", "an item of a tuple", c.raw("index"))
    return c.lowering.item(operand, index)


def opaque(c: InstructionContext) -> Node:
    """The instruction kept as it stands."""
    text = ", ".join(f"{name}={raw.text}" for name, raw in c.instruction.attributes.items() if name not in COMMON_ATTRIBUTES)
    name = c.instruction.opcode
    if c.has("custom_call_target"):
        name = f"{name} {c.word('custom_call_target')}"
    return c(ops.opaque, *c.inputs, name=name, attributes=text, type=c.type, language="hlo")


def _identity(role: str) -> Lower:
    return lambda c: c.lowering.pack(c.inputs[0].type, [c(ops.identity, x, role=role) for x in c.lowering.flatten(c.inputs[0])])


def _bitcast(c: InstructionContext) -> Node:
    """The same bytes in the same order in memory: the layouts of operand and result say which elements those are."""
    x, want = c.inputs[0], c.tensor
    if as_tensor(x.type).dtype is not want.dtype:
        x = c(ops.bitcast_convert, x, dtype=want.dtype)
    before, after = (layout[::-1] for layout in (c.operand_layout(0), layout_of(c.instruction.shape)))
    if before:
        x = c(ops.transpose, x, permutation=before)
    shape = tuple(want.shape[k] for k in after) if after else want.shape
    x = x if as_tensor(x.type).dims == shape else c(ops.reshape, x, shape=shape)
    return c(ops.transpose, x, permutation=tuple(after.index(k) for k in range(len(after)))) if after else x


# --- rows with a twist --------------------------------------------------------------------------------------------


def _broadcast(c: InstructionContext) -> Node:
    row = ROWS[ops.broadcast_in_dim]
    return row.node(c) if c.has("dimensions") else row.node(c, broadcast_dimensions=())


def _with_starts(row: OperationRow, first: int) -> Lower:
    """Start indices that old texts give as one vector, taken apart into scalars."""
    def lower(c: InstructionContext) -> Node:
        *arrays, last = c.inputs
        dims = as_tensor(last.type).dims
        if len(arrays) == first and dims is not None and len(dims) == 1 and dims[0] == as_tensor(arrays[0].type).rank:
            parts = (c(ops.slice_, last, start_indices=(k,), limit_indices=(k + 1,), strides=(1,)) for k in range(dims[0]))
            c.inputs = arrays + [c(ops.reshape, p, shape=()) for p in parts]
        return row.node(c)

    return lower


def _top_k(c: InstructionContext) -> Node:
    return ROWS[ops.top_k].node(c) if c.flag("largest", default=True) else opaque(c)


def _rng(c: InstructionContext) -> Node:
    op = {"rng_uniform": ops.rng_uniform, "rng_normal": ops.rng_normal}.get(c.word("distribution"))
    if op is None or c.tensor.dtype.kind not in ("float", "int", "uint"):
        return opaque(c)
    return drawn(c, op)


def _rng_bits(c: InstructionContext) -> Node:
    if not isinstance(c.type, TupleType) or len(c.type.items) != 2 or c.word("algorithm") not in ALGORITHMS:
        raise c.fail("rng-bit-generator gives a state and bits", ", ".join(ALGORITHMS), c.raw("algorithm"))
    return ROWS[ops.rng_bit_generator].node(c)


# --- the table ----------------------------------------------------------------------------------------------------

IDENTITY = {"copy": "copy", "domain": "domain", **dict.fromkeys(("opt-barrier", "optimization-barrier"), "optimization_barrier")}
"""What HLO calls an `identity`, with its role."""
_KEPT: dict[str, tuple[str, ...]] = {
    "set-dimension-size": ("dimensions",), "dynamic-reshape": (), "stochastic-convert": (),
    "ragged-dot": ("lhs_batch_dims", "rhs_batch_dims", "lhs_contracting_dims", "rhs_contracting_dims", "lhs_ragged_dims",
                   "rhs_group_dims"),
    "ragged-all-to-all": ("replica_groups", "channel_id"),
}  # fmt: skip
"""Operations that are kept as they stand, with the attributes that each may have."""
_TRUSTED = (ops.pad, ops.reduce, ops.dot_general, ops.convolution)
_OF_ROWS = {row.hlo: OpcodeRule(row.node, row.hlo_attributes, row.arity, row.op in _TRUSTED) for row in TABLE if row.hlo}
_OWN: dict[str, Lower] = {
    "broadcast": _broadcast, "dynamic-slice": _with_starts(ROWS[ops.dynamic_slice], 1),
    "dynamic-update-slice": _with_starts(ROWS[ops.dynamic_update_slice], 2), "topk": _top_k, "rng-bit-generator": _rng_bits,
}  # fmt: skip

RULES: dict[str, OpcodeRule] = {
    **_OF_ROWS,
    **{name: replace(_OF_ROWS[name], lower=lower) for name, lower in _OWN.items()},
    **{name: OpcodeRule(_identity(role), ("domain",) * (name == "domain"), (1,)) for name, role in IDENTITY.items()},
    "add-dependency": OpcodeRule(lambda c: c.inputs[0], operands=(2,)),
    **{name: OpcodeRule(opaque, attributes) for name, attributes in _KEPT.items()},
    **{name: OpcodeRule(lower, ATTRIBUTES.get(name, ())) for name, lower in DEVICES.items()},
    "constant": OpcodeRule(_constant, operands=(0,)),
    "parameter": OpcodeRule(_parameter, operands=(0,)),
    "tuple": OpcodeRule(lambda c: c.b.pack(*c.inputs)),
    "get-tuple-element": OpcodeRule(_get_tuple_element, ("index",), (1,)),
    "bitcast": OpcodeRule(_bitcast, operands=(1,)),
    "while": OpcodeRule(control.while_, ("condition", "body"), (1,)),
    "conditional": OpcodeRule(control.conditional, ("branch_computations", "true_computation", "false_computation")),
    "call": OpcodeRule(control.call, ("to_apply", "is_composite")),
    "fusion": OpcodeRule(control.fusion, ("kind", "calls")),
    "rng": OpcodeRule(_rng, ("distribution",), (2,)),
}
"""Every opcode that is read."""
