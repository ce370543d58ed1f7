"""Reading StableHLO's operations that reach beyond one pure function: collectives, tokens and feeds, probes, custom calls.

Each acts on the state that the lowering threads through the text. The table is joined to that of `rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph import ops
from deepx_graph.ir import Node, Op
from deepx_graph.text.stablehlo.reader.context import Context
from deepx_graph.text.stablehlo.reader.effects import is_alone, numbers, without_tokens
from deepx_graph.text.stablehlo.syntax import Symbol
from deepx_graph.types import STATE, TupleType, as_tensor, is_static, scalar

Rule = Callable[[Context], list[Node]]


def act(c: Context, op: Op, *inputs: Node, **attrs: Any) -> list[Node]:
    """The results of an operation on the state, which is the new one afterwards."""
    lowering = c.lowering
    if lowering.state is None:
        raise c.fail(f"{c.op.name} has an effect and stands where none can be")
    node = c(op, lowering.state, *inputs, **attrs)
    if node.type == STATE:
        lowering.state = node
        return []
    *results, lowering.state = c.b.items(node)
    return results


def threaded(c: Context, k: int, args: Sequence[Node], state: Node | None) -> list[Node]:
    """What a region gives, run from `state`: its values, and the state after it where there is one."""
    c.lowering.state = state
    values = c.region(k, args)
    return values if state is None else [*values, _current(c)]


def _current(c: Context) -> Node:
    state = c.lowering.state
    assert state is not None
    return state


def state_of(c: Context) -> Node | None:
    """The state that goes through the operation's regions; None when they do not act on it."""
    return c.lowering.state if c.lowering.effects.acts(c.op) else None


# --- collectives --------------------------------------------------------------------------------------------------


def _channel(c: Context) -> int:
    handle = c.raw("channel_handle")
    return int(handle.get("handle", 0)) if isinstance(handle, dict) else c.number("channel_id", default=0)


def _common(c: Context) -> dict[str, Any]:
    return {"replica_groups": numbers(c.op.attributes.get("replica_groups")), "channel_id": _channel(c)}


def _flat(c: Context) -> dict[str, Any]:
    name = "use_global_device_ids"
    return _common(c) | {name: name in c.op.attributes and c.flag(name, True)}


def _unless_alone(rule: Rule) -> Rule:
    return lambda c: list(c.inputs) if is_alone(c.op) else rule(c)


def _all_reduce(c: Context) -> list[Node]:
    return act(c, ops.all_reduce, *c.inputs, **_flat(c), computation=c.body())


def _collective_reduce(c: Context) -> list[Node]:
    return act(c, ops.collective_reduce, *c.inputs, **_flat(c), computation=c.body())


def _shards(whole: Any, part: Any, dim: int) -> int:
    size, extent = as_tensor(whole).shape[dim], as_tensor(part).shape[dim]
    return size // extent if extent else 1


def _all_gather(c: Context) -> list[Node]:
    dim = c.number("all_gather_dim")
    count = _shards(c.op.result_types[0], c.inputs[0].type, dim)
    return act(c, ops.all_gather, *c.inputs, **_flat(c), all_gather_dim=dim, shard_count=count)


def _reduce_scatter(c: Context) -> list[Node]:
    dim = c.number("scatter_dimension")
    count = _shards(c.inputs[0].type, c.op.result_types[0], dim)
    return act(c, ops.reduce_scatter, *c.inputs, **_flat(c), scatter_dimension=dim, shard_count=count, computation=c.body())


def _all_to_all(c: Context) -> list[Node]:
    return act(c, ops.all_to_all, *c.inputs, **_common(c), split_dimension=c.number("split_dimension"),
               concat_dimension=c.number("concat_dimension"), split_count=c.number("split_count"))


def _permute(c: Context) -> list[Node]:
    pairs = numbers(c.op.attributes.get("source_target_pairs"))
    return act(c, ops.collective_permute, *c.inputs, source_target_pairs=pairs, channel_id=_channel(c))


def _broadcast(c: Context) -> list[Node]:
    dynamic = "has_dynamic_root" in c.op.attributes and c.flag("has_dynamic_root", True)
    return act(c, ops.collective_broadcast, *c.inputs, **_common(c), has_dynamic_root=dynamic)


# --- feeds and channels -------------------------------------------------------------------------------------------


def _token(c: Context) -> list[Node]:
    """A token is the state as it is; several joined are that too."""
    return []


def _text(c: Context, name: str) -> str:
    value = c.raw(name)
    return value if isinstance(value, str) else ""


def _stated(c: Context) -> TupleType:
    return TupleType(tuple(without_tokens(c.op.result_types)))


def _infeed(c: Context) -> list[Node]:
    return act(c, ops.infeed, types=_stated(c), infeed_config=_text(c, "infeed_config"))


def _outfeed(c: Context) -> list[Node]:
    return act(c, ops.outfeed, *c.inputs, outfeed_config=_text(c, "outfeed_config"))


def _pairs(c: Context) -> tuple[tuple[int, ...], ...]:
    return numbers(c.op.attributes.get("source_target_pairs"))


def _send(c: Context) -> list[Node]:
    return act(c, ops.send, *c.inputs, channel_id=_channel(c), is_host_transfer=c.flag("is_host_transfer"),
               source_target_pairs=_pairs(c))


def _recv(c: Context) -> list[Node]:
    return act(c, ops.recv, types=_stated(c), channel_id=_channel(c), is_host_transfer=c.flag("is_host_transfer"),
               source_target_pairs=_pairs(c))


# --- the interpreter's own ----------------------------------------------------------------------------------------


def _print(c: Context) -> list[Node]:
    return act(c, ops.print_, c.inputs[0], format="")


def _probe(c: Context) -> list[Node]:
    act(c, ops.probe, c.inputs[0], probe_id=c.word("probe_id"))
    return [c.inputs[0]]


def _expect_probed(c: Context) -> list[Node]:
    return act(c, ops.expect_probed, c.inputs[0], probe_id=c.word("probe_id"), iteration=c.number("iter", "iteration", default=0))


def _run_parallel(c: Context) -> list[Node]:
    """Rows of `programs` are replicas, columns partitions; what `infeed` functions give is fed to all devices."""
    rows = [[_symbol(f) for f in row] for row in c.op.attributes.get("programs") or ()]
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise c.fail("run_parallel needs as many programs in every row", "programs = [[@f, @g], ...]")
    programs = [c.b.partial((name, c.lowering.signature(name, c.op))) for row in rows for name in row]
    fed = [x for f in c.op.attributes.get("infeed") or () for x in call(c, _symbol(f), ())]
    sizes = (1, len(programs), len(fed), len(c.inputs))
    return act(c, ops.run_parallel, *programs, *fed, *c.inputs, replicas=len(rows), partitions=len(rows[0]),
               operand_segment_sizes=sizes)


def _symbol(value: Any) -> str:
    return value.name if isinstance(value, Symbol) else str(value)


def call(c: Context, name: str, args: Sequence[Node]) -> list[Node]:
    """The results of a function of the text; inlined where a body stands for a whole, and where sizes pass through the call."""
    lowering = c.lowering
    signature = lowering.signature(name, c.op)
    if lowering.closed or not is_static(signature):
        return lowering.inlined(name, args, c.op)
    acts = bool(signature.params) and signature.params[-1] == STATE
    results = list(c.b.call((name, signature), *args, *([_current(c)] if acts else [])))
    if acts:
        lowering.state = results.pop()
    return results


def _number(op: Op) -> Rule:
    def rule(c: Context) -> list[Node]:
        node, type = c(op), c.tensor
        return [node if type == scalar(as_tensor(node.type).dtype) else c(ops.convert, node, dtype=type.dtype)]

    return rule


DEVICES: dict[str, Rule] = {
    "stablehlo.all_reduce": _unless_alone(_all_reduce),
    "stablehlo.all_gather": _unless_alone(_all_gather),
    "stablehlo.all_to_all": _unless_alone(_all_to_all),
    "stablehlo.reduce_scatter": _unless_alone(_reduce_scatter),
    "stablehlo.collective_permute": _unless_alone(_permute),
    "stablehlo.collective_broadcast": _unless_alone(_broadcast),
    "stablehlo.collective_reduce": _unless_alone(_collective_reduce),
    "stablehlo.partition_id": _number(ops.partition_id),
    "stablehlo.replica_id": _number(ops.replica_id),
    "stablehlo.after_all": _token,
    "stablehlo.create_token": _token,
    "stablehlo.async_start": lambda c: c.region(0, c.inputs),
    "stablehlo.async_done": lambda c: list(c.inputs),
    "stablehlo.infeed": _infeed,
    "stablehlo.outfeed": _outfeed,
    "stablehlo.send": _send,
    "stablehlo.recv": _recv,
    "interpreter.print": _print,
    "interpreter.probe": _probe,
    "interpreter.run_parallel": _run_parallel,
    "check.expect_serialized_eq": _expect_probed,
}
"""How they are read."""
