"""Reading HLO's instructions that reach beyond one pure function: collectives, tokens and feeds, copies in steps, custom calls.

Each acts on the state that the lowering threads through the text; a token stands for the state that is current. What is started
and ended by two instructions (send, recv, the collectives with -start and -done) is done by one of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph import ops
from deepx_graph.ir import Node, Op
from deepx_graph.ops.host import custom_calls
from deepx_graph.text.common.lapack import as_operations
from deepx_graph.text.hlo.reader.attributes import parse_groups
from deepx_graph.text.hlo.reader.context import Context
from deepx_graph.text.hlo.reader.effects import acts_itself, groups_of, is_alone, plain_leaves, text_of
from deepx_graph.types import STATE, TensorType, TupleType, Type, as_tensor

Lower = Callable[[Context], Node]


def act(c: Context, op: Op, *inputs: Node, **attrs: Any) -> list[Node]:
    """The results of an operation on the state, which is the new one afterwards."""
    lowering = c.lowering
    if lowering.state is None:
        raise c.fail(f"{c.instruction.opcode} has an effect and stands where none can be")
    node = c(op, lowering.state, *inputs, **attrs)
    if node.type == STATE:
        lowering.state = node
        return []
    *results, lowering.state = c.b.items(node)
    return results


def _inputs(c: Context) -> list[Node]:
    """All tensors among the operands."""
    return [leaf for x in c.operands for leaf in c.lowering.flatten(x)]


def token(c: Context) -> Node:
    """The state as it is now."""
    assert c.lowering.state is not None
    return c.lowering.state


# --- collectives --------------------------------------------------------------------------------------------------


def _groups(c: Context) -> dict[str, Any]:
    c.parsed("replica_groups", parse_groups) if c.has("replica_groups") else ()
    return {"replica_groups": tuple(g for g in groups_of(c.instruction) if g), "channel_id": c.number("channel_id", 0)}


def _flat(c: Context) -> dict[str, Any]:
    return _groups(c) | {"use_global_device_ids": c.flag("use_global_device_ids")}


def _stated(c: Context) -> Type:
    """The type of what a collective gives; where it is started, of that part of what it gives."""
    type = c.type
    if c.instruction.opcode in ("all-gather-start", "collective-permute-start") and isinstance(type, TupleType):
        return type.items[1]
    return type


def _shards(whole: Type, part: Type, dim: int) -> int:
    size, extent = as_tensor(whole).shape[dim], as_tensor(part).shape[dim]
    return size // extent if extent else 1


def _all_reduce(c: Context) -> list[Node]:
    return act(c, ops.all_reduce, *_inputs(c), **_flat(c), computation=c.body("to_apply"))


def _all_gather(c: Context) -> list[Node]:
    dim, inputs = c.number("dimensions"), _inputs(c)
    count = _shards(plain_leaves(_stated(c))[0], inputs[0].type, dim)
    return act(c, ops.all_gather, *inputs, **_flat(c), all_gather_dim=dim, shard_count=count)


def _reduce_scatter(c: Context) -> list[Node]:
    dim, inputs = c.number("dimensions"), _inputs(c)
    count = _shards(inputs[0].type, plain_leaves(c.type)[0], dim)
    return act(c, ops.reduce_scatter, *inputs, **_flat(c), scatter_dimension=dim, shard_count=count,
               computation=c.body("to_apply"))


def _all_to_all(c: Context) -> list[Node]:
    """With a dimension one operand is split, without one there is an operand for each device."""
    inputs = _inputs(c)
    if not c.has("dimensions"):
        return act(c, ops.all_to_all, *inputs, **_groups(c), split_count=len(inputs))
    dim, groups = c.number("dimensions"), groups_of(c.instruction)
    if not groups:
        raise c.fail("all-to-all along a dimension needs its groups", expected="replica_groups={{0,1}}")
    return act(c, ops.all_to_all, *inputs, **_groups(c), split_dimension=dim, concat_dimension=dim, split_count=len(groups[0]))


def _permute(c: Context) -> list[Node]:
    c.parsed("source_target_pairs", parse_groups)
    return act(c, ops.collective_permute, *_inputs(c), source_target_pairs=groups_of(c.instruction),
               channel_id=c.number("channel_id", 0))


def _broadcast(c: Context) -> list[Node]:
    return act(c, ops.collective_broadcast, *_inputs(c), **_groups(c))


_COLLECTIVE: dict[str, Callable[[Context], list[Node]]] = {
    "all-reduce": _all_reduce, "all-gather": _all_gather, "reduce-scatter": _reduce_scatter, "all-to-all": _all_to_all,
    "collective-permute": _permute, "collective-broadcast": _broadcast,
}  # fmt: skip


def collective(c: Context) -> Node:
    """A collective, or the start of one, with its result."""
    inputs = _inputs(c)
    if is_alone(c.instruction) and [x.type for x in inputs] == list(plain_leaves(_stated(c))):
        results = inputs
    else:
        results = _COLLECTIVE[c.instruction.opcode.removesuffix("-start")](c)
    if _stated(c) is c.type:
        return c.lowering.pack(c.type, results)
    return c.lowering.pack(c.type, [*inputs, *results, *_zeros(c, plain_leaves(c.type)[len(inputs) + len(results) :])])


def _zeros(c: Context, types: Sequence[Type]) -> list[Node]:
    """What stands for the contexts of things begun: nobody may look at them."""
    return [c.b.splat(0, as_tensor(t)) for t in types]


def _item(k: int) -> Lower:
    return lambda c: c.lowering.item(c.operands[0], k)


def number(op: Op) -> Lower:
    """The number of this device's replica or partition."""
    return lambda c: c(op) if c.tensor == op.infer([]) else c(ops.convert, c(op), dtype=c.tensor.dtype)


# --- feeds and channels -------------------------------------------------------------------------------------------


def _infeed(c: Context) -> Node:
    types = TupleType(plain_leaves(c.type))
    return c.lowering.pack(c.type, act(c, ops.infeed, types=types, infeed_config=text_of(c.instruction, "infeed_config")))


def _random_state(c: Context) -> Node:
    return c.lowering.pack(c.type, act(c, ops.rng_get_and_update_state, delta=c.number("delta"), index=c.lowering.next_seed()))


def _outfeed(c: Context) -> Node:
    act(c, ops.outfeed, *_inputs(c), outfeed_config=text_of(c.instruction, "outfeed_config"))
    return token(c)


_PAIRS = re.compile(r'_xla_send_recv_source_target_pairs\s*=\s*"(\{.*?\}\s*\}|\{\s*\})"')


def _channel(c: Context) -> dict[str, Any]:
    text = c.instruction.attributes["frontend_attributes"].text if c.has("frontend_attributes") else ""
    found = _PAIRS.search(text)
    return {"channel_id": c.number("channel_id", 0), "is_host_transfer": c.flag("is_host_transfer"),
            "source_target_pairs": parse_groups(found[1]) if found else ()}


def _send(c: Context) -> Node:
    """Sending does not wait, so that it is all done where it begins."""
    inputs = _inputs(c)
    act(c, ops.send, *inputs, **_channel(c))
    return c.lowering.pack(c.type, [*inputs, *_zeros(c, plain_leaves(c.type)[len(inputs) :])])


def _recv(c: Context) -> Node:
    """Receiving waits where it ends."""
    return c.lowering.pack(c.type, _zeros(c, plain_leaves(c.type)))


def _recv_done(c: Context) -> Node:
    return c.lowering.pack(c.type, act(c, ops.recv, types=TupleType(plain_leaves(c.type)), **_channel(c)))


# --- copies and other things in steps -----------------------------------------------------------------------------


def _copy_start(c: Context) -> Node:
    """The copy, in most texts the operand, and what nobody may look at."""
    x = c.operands[0]
    types = plain_leaves(c.type)
    source = [x] if types[1:2] == (x.type,) else []
    return c.lowering.pack(c.type, [x, *source, *_zeros(c, types[1 + len(source) :])])


def _async_start(c: Context) -> Node:
    """What is begun is done: operands, result, and what nobody may look at."""
    result = c.inline(c.names("calls")[0], c.raw("calls"), c.operands)
    done = [*_inputs(c), *c.lowering.flatten(result)]
    return c.lowering.pack(c.type, [*done, *_zeros(c, plain_leaves(c.type)[len(done) :])])


# --- custom calls -------------------------------------------------------------------------------------------------

_BY_OPERAND = ("operand_layout_constraints", "output_to_operand_aliasing", "output_operand_aliasing")
"""Attributes that say something of operands by number, tokens included."""


def _custom_call(c: Context) -> Node:
    """A call of the host, or what a target that XLA knows means."""
    i, inputs = c.instruction, [x for x in c.operands if x.type != STATE]
    target, acts = text_of(i, "custom_call_target"), acts_itself(i)
    if target in custom_calls.UNCHANGED and [x.type for x in inputs] == [c.type] and isinstance(c.type, TensorType):
        return c(ops.identity, inputs[0], role=target)
    if target == "TopK" and isinstance(c.type, TupleType) and len(c.type.items) == 2 and custom_calls.find(target) is None:
        return c(ops.top_k, *inputs, k=as_tensor(c.type.items[0]).shape[-1])
    config = text_of(i, "backend_config")
    found = None if custom_calls.find(target) else as_operations(c.b, target, config, inputs)
    if found is not None and tuple(f.type for f in found) == plain_leaves(c.type):
        return c.lowering.pack(c.type, found)
    given = {
        "target": target, "backend_config": config, "language": "hlo",
        "api_version": VERSIONS.get(text_of(i, "api_version"), 0),
        "text": ", ".join(f"{name}={raw.text}" for name, raw in i.attributes.items()
                          if name in ATTRIBUTES["custom-call"] and (name not in _BY_OPERAND or len(inputs) == len(c.operands))),
    }  # fmt: skip
    if acts:
        return c.lowering.pack(c.type, act(c, ops.custom_effect, *inputs, types=TupleType(plain_leaves(c.type)), **given))
    types = c.type if isinstance(c.type, TupleType) else TupleType((c.type,))
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
    **dict.fromkeys(_COLLECTIVE, _GROUPS), "all-reduce-start": _GROUPS, "all-gather-start": _GROUPS,
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
    **dict.fromkeys((*_COLLECTIVE, "all-reduce-start", "all-gather-start", "collective-permute-start"), collective),
    "all-reduce-done": lambda c: c.operands[0], "all-gather-done": _item(1), "collective-permute-done": _item(1),
    "replica-id": number(ops.replica_id), "partition-id": number(ops.partition_id),
    "after-all": token, "infeed": _infeed, "outfeed": _outfeed,
    "send": _send, "send-done": token, "recv": _recv, "recv-done": _recv_done,
    "copy-start": _copy_start, "copy-done": _item(0),
    "async-start": _async_start, "async-update": lambda c: c.operands[0], "async-done": _item(1),
    "custom-call": _custom_call, "rng-get-and-update-state": _random_state,
}  # fmt: skip
"""How they are read."""
