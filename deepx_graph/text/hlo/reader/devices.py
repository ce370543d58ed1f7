"""Reading HLO's instructions that reach beyond one pure function: collectives, tokens and feeds, copies in steps, custom calls.

Each acts on the state that the lowering threads through the text; a token stands for the state that is current. What is started
and ended by two instructions (send, recv, the collectives with -start and -done) is done by one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph import ops
from deepx_graph.ir import Node
from deepx_graph.ops.host import custom_calls
from deepx_graph.text.hlo.reader.context import InstructionContext
from deepx_graph.text.hlo.syntax import acts_itself, is_alone, plain_leaves
from deepx_graph.text.xla.devices import COLLECTIVES
from deepx_graph.text.xla.fields import OperationRow
from deepx_graph.text.xla.lapack import lapack_operations
from deepx_graph.text.xla.onednn import onednn_operations
from deepx_graph.text.xla.table import ROWS
from deepx_graph.types import STATE, TensorType, TupleType, Type, as_tensor

Lower = Callable[[InstructionContext], Node]


def token(c: InstructionContext) -> Node:
    """The state as it is now."""
    assert c.lowering.state is not None
    return c.lowering.state


def _zeros(c: InstructionContext, begun: Sequence[Node] = ()) -> list[Node]:
    """What has begun, and what stands for its contexts: nobody may look at them."""
    return [*begun, *(c.b.splat(0, as_tensor(t)) for t in plain_leaves(c.type)[len(begun) :])]


def _collective(row: OperationRow) -> Lower:
    """A collective, or the start of one, with its result."""
    def lower(c: InstructionContext) -> Node:
        inputs = c.tensors
        moves = not is_alone(c.instruction) or [x.type for x in inputs] != list(c.results)
        results = row.results(c) if moves else inputs
        return c.packed(results if c.given is c.type else _zeros(c, [*inputs, *results]))

    return lower


def _item(k: int) -> Lower:
    return lambda c: c.lowering.item(c.inputs[0], k)


def _outfeed(c: InstructionContext) -> Node:
    ROWS[ops.outfeed].results(c)
    return token(c)


def _send(c: InstructionContext) -> Node:
    """Sending does not wait, so that it is all done where it begins."""
    ROWS[ops.send].results(c)
    return c.packed(_zeros(c, c.tensors))


def _random_state(c: InstructionContext) -> Node:
    return c.packed(c.act(ops.rng_get_and_update_state, delta=c.number("delta"), index=c.lowering.next_seed()))


# --- copies and other things in steps -----------------------------------------------------------------------------


def _copy_start(c: InstructionContext) -> Node:
    """The copy, in most texts the operand, and what nobody may look at."""
    x = c.inputs[0]
    return c.packed(_zeros(c, [x, x] if plain_leaves(c.type)[1:2] == (x.type,) else [x]))


def _async_start(c: InstructionContext) -> Node:
    """What is begun is done: operands, result, and what nobody may look at."""
    result = c.inline("calls", c.inputs)
    return c.packed(_zeros(c, [*c.tensors, *c.lowering.flatten(result)]))


# --- custom calls -------------------------------------------------------------------------------------------------

_BY_OPERAND = ("operand_layout_constraints", "output_to_operand_aliasing", "output_operand_aliasing")
"""Attributes that say something of operands by number, tokens included."""


def _custom_call(c: InstructionContext) -> Node:
    """A call of the host, or what a target that XLA knows means."""
    inputs = [x for x in c.inputs if x.type != STATE]
    target, config = c.string("custom_call_target"), c.string("backend_config")
    if target in custom_calls.UNCHANGED and [x.type for x in inputs] == [c.type] and isinstance(c.type, TensorType):
        return c(ops.identity, inputs[0], role=target)
    if target == "TopK" and isinstance(c.type, TupleType) and len(c.type.items) == 2 and custom_calls.find(target) is None:
        return c(ops.top_k, *inputs, k=as_tensor(c.type.items[0]).shape[-1])
    libraries = () if custom_calls.find(target) else (lapack_operations, onednn_operations)
    found = next((f for of in libraries if (f := of(c.b, target, config, inputs, plain_leaves(c.type))) is not None), None)
    if found is not None and tuple(f.type for f in found) == plain_leaves(c.type):
        return c.packed(found)
    given = {
        "target": target, "backend_config": config, "language": "hlo", "api_version": VERSIONS.get(c.string("api_version"), 0),
        "text": ", ".join(f"{name}={raw.text}" for name, raw in c.instruction.attributes.items()
                          if name in ATTRIBUTES["custom-call"] and (name not in _BY_OPERAND or len(inputs) == len(c.inputs))),
    }  # fmt: skip
    if acts_itself(c.instruction):
        return c.packed(c.act(ops.custom_effect, *inputs, types=TupleType(plain_leaves(c.type)), **given))
    types: Type = c.type if isinstance(c.type, TupleType) else TupleType((c.type,))
    node = c(ops.custom_call, *inputs, types=types, **given)
    return node if node.type == c.type else c.b.pack(node)


VERSIONS = {"API_VERSION_ORIGINAL": 1, "API_VERSION_STATUS_RETURNING": 2, "API_VERSION_STATUS_RETURNING_UNIFIED": 3,
            "API_VERSION_TYPED_FFI": 4}  # fmt: skip

# --- the table ----------------------------------------------------------------------------------------------------

_GROUPS = ("replica_groups", "channel_id", "constrain_layout", "use_global_device_ids", "to_apply", "dimensions", "split_dimension")
_PERMUTES = ("source_target_pairs", "channel_id", "slice_sizes")
_CHANNELS = ("channel_id", "is_host_transfer")
_ASYNC = ("calls", "async_execution_thread", "async_group_id")

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    **{row.hlo: _GROUPS for row in COLLECTIVES}, "all-reduce-start": _GROUPS, "all-gather-start": _GROUPS,
    "collective-permute": _PERMUTES, "collective-permute-start": _PERMUTES,
    **dict.fromkeys(("send", "send-done", "recv", "recv-done"), _CHANNELS),
    "rng-get-and-update-state": ("delta",), "infeed": ("infeed_config",), "outfeed": ("outfeed_config", "outfeed_shape"),
    "copy-start": ("cross_program_prefetch_index", "is_cross_program_prefetch"),
    **dict.fromkeys(("async-start", "async-update", "async-done"), _ASYNC),
    "custom-call": (
        "custom_call_target", "window", "dim_labels", "feature_group_count", "batch_group_count", "called_computations", "to_apply",
        "operand_layout_constraints", "literal", "schedule", "padding_type", "dilation", "slice", "replica_groups",
        "output_operand_aliasing", "output_to_operand_aliasing", "custom_call_has_side_effect", "api_version",
    ),
}  # fmt: skip
"""The attributes that each of the operations may have."""

DEVICES: dict[str, Lower] = {
    **{row.hlo: _collective(row) for row in COLLECTIVES},
    **{f"{ROWS[op].hlo}-start": _collective(ROWS[op]) for op in (ops.all_reduce, ops.all_gather, ops.collective_permute)},
    "all-reduce-done": lambda c: c.inputs[0], "all-gather-done": _item(1), "collective-permute-done": _item(1),
    "replica-id": ROWS[ops.replica_id].node, "partition-id": ROWS[ops.partition_id].node,
    "after-all": token, "infeed": lambda c: c.packed(ROWS[ops.infeed].results(c)), "outfeed": _outfeed,
    "send": _send, "send-done": token,
    "recv": lambda c: c.packed(_zeros(c)), "recv-done": lambda c: c.packed(ROWS[ops.recv].results(c)),  # which waits
    "copy-start": _copy_start, "copy-done": _item(0),
    "async-start": _async_start, "async-update": lambda c: c.inputs[0], "async-done": _item(1),
    "custom-call": _custom_call, "rng-get-and-update-state": _random_state,
}  # fmt: skip
"""How they are read."""
