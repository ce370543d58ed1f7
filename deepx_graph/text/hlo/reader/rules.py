"""HLO's operations in terms of ours: the rows of the dialect's table that HLO has, and what HLO says in a way of its own.

A rule says which attributes the operation may have, how many operands it takes, and how to build it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from deepx_graph import ops
from deepx_graph.errors import an
from deepx_graph.ir import Node
from deepx_graph.text.hlo.literals import parse_literal, parse_tuple
from deepx_graph.text.hlo.notes import COMMON_ATTRIBUTES
from deepx_graph.text.hlo.reader.context import InstructionContext
from deepx_graph.text.hlo.reader.devices import ATTRIBUTES, DEVICES
from deepx_graph.text.hlo.shapes import layout_of
from deepx_graph.text.hlo.syntax import Computation, HloInstruction, plain_leaves
from deepx_graph.text.xla.fields import OperationRow
from deepx_graph.text.xla.hlo_text import AttributeFault
from deepx_graph.text.xla.table import ALGORITHMS, ROWS, TABLE, drawn
from deepx_graph.types import TupleType, Type, as_tensor


def while_(c: InstructionContext) -> Node:
    """A loop variable for each leaf of the state; what the body passes on as it got it is a value from outside."""
    lowering, state = c.lowering, c.inputs[0]
    _, body = (c.names(name)[0] for name in ("condition", "body"))
    inits = lowering.flatten(state)
    fixed = _fixed_leaves(lowering.computation(body, c.raw("body")), state.type)
    varying = [k for k in range(len(inits)) if k not in fixed] or list(range(len(inits)))

    def whole(values: Sequence[Node]) -> Node:
        now = dict(zip(varying, values, strict=True))
        return lowering.pack(state.type, [now.get(k, init) for k, init in enumerate(inits)])

    def iterate(variables: Sequence[Node]) -> tuple[Node, Sequence[Node]]:
        packed = whole(variables)
        go_on = c.inline("condition", [packed])
        after = lowering.flatten(c.inline("body", [packed]))
        return go_on, [after[k] for k in varying]

    return whole(c.loop([inits[k] for k in varying], iterate))


def _fixed_leaves(body: Computation, state: Type) -> set[int]:
    """The leaves of a loop's state whose item the body's root passes on unchanged."""
    if not isinstance(state, TupleType) or body.root.opcode != "tuple":
        return set()
    by_name = {i.name: i for i in body.instructions}
    found: set[int] = set()
    first = 0
    for k, (item, operand) in enumerate(zip(state.items, body.root.operands, strict=False)):
        count = len(plain_leaves(item))
        i = by_name.get(operand)
        if i and _is_item(i, k, by_name):
            found.update(range(first, first + count))
        first += count
    return found


def _is_item(i: HloInstruction, k: int, by_name: Mapping[str, HloInstruction]) -> bool:
    """Whether the instruction takes item k of the parameter."""
    if i.opcode != "get-tuple-element" or not i.operands or "index" not in i.attributes:
        return False
    whole = by_name.get(i.operands[0])
    return whole is not None and whole.opcode == "parameter" and i.attributes["index"].text == str(k)


def conditional(c: InstructionContext) -> Node:
    """A branch whose computations are inlined."""
    selector, *args = c.inputs
    if c.has("branch_computations"):
        named, index = [("branch_computations", k) for k in range(len(c.names("branch_computations")))], "i32"
    else:
        named, index = [("true_computation", 0), ("false_computation", 0)], "bool"
        for attribute, _ in named:
            c.raw(attribute)
    if len(args) != len(named):
        raise c.fail(f"{len(named)} branches and {len(args)} operands for them")
    dtype = as_tensor(selector.type).dtype
    if as_tensor(selector.type).dims != () or dtype.name != index:
        raise c.fail(f"the selector is {an(selector.type)}",
                     "pred[] for true_computation and false_computation, s32[] for branch_computations", c.instruction.operand(0))

    def way(attribute: str, k: int, arg: Node) -> Callable[[], list[Node]]:
        return lambda: c.lowering.flatten(c.inline(attribute, [arg], k))

    ways = [way(attribute, k, arg) for (attribute, k), arg in zip(named, args, strict=True)]
    return c.packed(c.branch(selector, ways))


def call(c: InstructionContext) -> Node:
    """A call; in the body of another operation, which cannot call, what is called."""
    name, at = c.names("to_apply")[0], c.raw("to_apply")
    if c.lowering.closed:
        return c.inline("to_apply", c.inputs)
    takes = c.lowering.parameters(c.lowering.computation(name, at))
    if len(takes) != len(c.inputs):
        raise c.fail(f"'{name}' takes {len(takes)} and is given {len(c.inputs)} operands", at=at)
    function = c.lowering.called(name, at)
    return c.packed(c.call(c.state, function, c.tensors))


def fusion(c: InstructionContext) -> Node:
    """A fusion, inlined."""
    return c.inline("calls", c.inputs)


Lower = Callable[[InstructionContext], Node]


@dataclass(frozen=True)
class OpcodeRule:
    """How an opcode is read. `operands` are the numbers of operands it may have, None for any."""

    lower: Lower
    attributes: tuple[str, ...] = ()
    operands: tuple[int, ...] | None = None
    trusted: bool = False
    """XLA's parser believes the shape that the text states; where it cannot be right the instruction is kept, with a warning."""
    is_row: bool = False
    """A row of the dialect's table: all but names and places follows from attributes, stated type and types of operands."""


# --- leaves, tuples, types ----------------------------------------------------------------------------------------


def _constant(c: InstructionContext) -> Node:
    payload = c.instruction.payload
    if "..." in payload.text:
        return opaque(c)
    if (values := c.instruction.literals) is not None:
        return c.lowering.pack(c.type, [c.b.literal(v) for v in values])
    try:
        if not isinstance(c.type, TupleType):
            return c.b.literal(parse_literal(payload.text, c.tensor))
        return c.lowering.pack(c.type, [c.b.literal(v) for v in parse_tuple(payload.text, c.type)])
    except AttributeFault as e:
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
_OF_ROWS = {
    row.hlo: OpcodeRule(row.node, row.hlo_attributes, row.arity, row.op in _TRUSTED, not row.acts) for row in TABLE if row.hlo
}
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
    "while": OpcodeRule(while_, ("condition", "body"), (1,)),
    "conditional": OpcodeRule(conditional, ("branch_computations", "true_computation", "false_computation")),
    "call": OpcodeRule(call, ("to_apply", "is_composite")),
    "fusion": OpcodeRule(fusion, ("kind", "calls")),
    "rng": OpcodeRule(_rng, ("distribution",), (2,)),
}
"""Every opcode that is read."""
