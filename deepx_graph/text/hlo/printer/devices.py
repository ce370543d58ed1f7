"""How operations that act on the state are written in HLO: collectives, feeds, channels, custom calls.

The state is a token where an instruction takes one, and has no value elsewhere. Results are known to the writer one by one
(`Writer.parts`), as the state among them is no part of what the instruction gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph import ops
from deepx_graph.ir import Node, Op
from deepx_graph.text.hlo.printer.body import Emit, Writer
from deepx_graph.text.hlo.printer.notes import noted_shape
from deepx_graph.text.hlo.printer.values import legal, string_text, tuple_text, type_text
from deepx_graph.text.hlo.reader.rules_devices import VERSIONS
from deepx_graph.types import STATE, TupleType, Type


def _joined(*parts: str) -> str:
    return ", ".join(p for p in parts if p)


def groups_text(name: str, groups: Sequence[Sequence[int]]) -> str:
    """`name={{0,1},{2}}`."""
    return f"{name}={{{','.join('{' + ','.join(map(str, g)) + '}' for g in groups)}}}"


def _plain(node: Node) -> tuple[Type, ...]:
    """The types of the results that are not the state."""
    return tuple(t for t in node.type.items if t != STATE) if isinstance(node.type, TupleType) else ()


def _shape(types: Sequence[Type]) -> str:
    return type_text(types[0]) if len(types) == 1 else tuple_text(map(type_text, types))


def _noted(node: Node, types: Sequence[Type]) -> str:
    """The shape of results, with the layout that the text of the node gives it."""
    return noted_shape(node.origin, types[0] if len(types) == 1 else TupleType(tuple(types)))


def _spread(w: Writer, node: Node, name: str, types: Sequence[Type]) -> str:
    """Notes the results of the instruction `name`, which are one value or a tuple; gives the name."""
    w.parts[node] = [name] if len(types) == 1 else [w.item(f"{name}.{k}", t, name, k) for k, t in enumerate(types)]
    return name


def _data(w: Writer, inputs: Sequence[Node]) -> str:
    """Operands as one value."""
    return w.value(inputs[0]) if len(inputs) == 1 else w.pack("data", inputs)


# --- collectives --------------------------------------------------------------------------------------------------


def _collective(opcode: str, *words: Callable[[Writer, Node], str]) -> Emit:
    def emit(w: Writer, node: Node) -> str:
        types = _plain(node)
        channel = f"channel_id={node.attr('channel_id')}" if node.attr("channel_id") else ""
        attributes = _joined(channel, *(word(w, node) for word in words))
        operands = [w.value(i) for i in node.inputs[1:]]
        name = w.put(legal(node.name or opcode), _noted(node, types), opcode, operands, attributes, node.origin)
        return _spread(w, node, name, types)

    return emit


def _replicas(w: Writer, node: Node) -> str:
    return groups_text("replica_groups", node.attr("replica_groups"))


def _pairs(w: Writer, node: Node) -> str:
    return groups_text("source_target_pairs", node.attr("source_target_pairs"))


def _flat(w: Writer, node: Node) -> str:
    return "use_global_device_ids=true" if node.attr("use_global_device_ids") else ""


def _reducer(w: Writer, node: Node) -> str:
    return f"to_apply={w.body(node.attr('computation'), node)}"


def _along(name: str) -> Callable[[Writer, Node], str]:
    return lambda w, node: f"dimensions={{{node.attr(name)}}}"


def _exchanged(w: Writer, node: Node) -> str:
    split, concat = node.attr("split_dimension"), node.attr("concat_dimension")
    if split < 0:
        return ""
    if split != concat:
        raise w.fail(node, "HLO's all-to-all joins along the dimension that it splits")
    if not node.attr("replica_groups"):
        raise w.fail(node, "HLO's all-to-all along a dimension needs its groups")
    return f"dimensions={{{split}}}"


def _static_root(w: Writer, node: Node) -> str:
    if node.attr("has_dynamic_root"):
        raise w.fail(node, "HLO's collective-broadcast has a fixed root")
    return ""


# --- feeds and channels -------------------------------------------------------------------------------------------


def _config(node: Node, name: str) -> str:
    return f"{name}={string_text(node.attr(name))}" if node.attr(name) else ""


def _infeed(w: Writer, node: Node) -> str:
    types = _plain(node)
    whole = w.put(legal(node.name or "infeed"), tuple_text([_shape(types), "token[]"]), "infeed", [w.value(node.inputs[0])],
                  _config(node, "infeed_config"), node.origin)
    data = w.put(f"{whole}.data", _shape(types), "get-tuple-element", [whole], "index=0")
    _spread(w, node, data, types)
    w.parts[node] = [*w.parts[node], w.item(f"{whole}.token", STATE, whole, 1)]
    return whole


def _outfeed(w: Writer, node: Node) -> str:
    state, *inputs = node.inputs
    shape = f"outfeed_shape={_shape([i.type for i in inputs])}"
    return w.put(legal(node.name or "outfeed"), "token[]", "outfeed", [_data(w, inputs), w.value(state)],
                 _joined(shape, _config(node, "outfeed_config")), node.origin)


def _channel(node: Node) -> str:
    host = "is_host_transfer=true" if node.attr("is_host_transfer") else ""
    pairs = node.attr("source_target_pairs")
    said = any(name == "frontend_attributes" for name, _ in node.origin.notes)
    text = groups_text("", pairs).removeprefix("=")
    given = f'frontend_attributes={{_xla_send_recv_source_target_pairs="{text}"}}' if pairs and not said else ""
    return _joined(f"channel_id={node.attr('channel_id')}", host, given)


def _send(w: Writer, node: Node) -> str:
    state, *inputs = node.inputs
    shape = tuple_text([_shape([i.type for i in inputs]), "u32[]", "token[]"])
    begun = w.put(legal(node.name or "send"), shape, "send", [_data(w, inputs), w.value(state)], _channel(node), node.origin)
    return w.put("send-done", "token[]", "send-done", [begun], _channel(node))


def _recv(w: Writer, node: Node) -> str:
    types, state = _plain(node), w.value(node.inputs[0])
    shape = tuple_text([_shape(types), "u32[]", "token[]"])
    begun = w.put("recv", shape, "recv", [state], _channel(node))
    whole = w.put(legal(node.name or "recv-done"), tuple_text([_shape(types), "token[]"]), "recv-done", [begun], _channel(node),
                  node.origin)
    _spread(w, node, w.put(f"{whole}.data", _shape(types), "get-tuple-element", [whole], "index=0"), types)
    w.parts[node] = [*w.parts[node], w.item(f"{whole}.token", STATE, whole, 1)]
    return whole


def _random_state(w: Writer, node: Node) -> str:
    types = _plain(node)
    name = w.put(legal(node.name or "state"), _noted(node, types), "rng-get-and-update-state", [], f"delta={node.attr('delta')}",
                 node.origin)
    return _spread(w, node, name, types)


# --- custom calls -------------------------------------------------------------------------------------------------

_NAMED_VERSIONS = {number: name for name, number in VERSIONS.items()}


def custom_attributes(node: Node) -> str:
    """What is known of a custom call that was not read from HLO."""
    version = _NAMED_VERSIONS.get(node.attr("api_version"), "")
    return _joined(
        f"custom_call_target={string_text(node.attr('target'))}",
        "custom_call_has_side_effect=true" if node.op is ops.custom_effect else "", f"api_version={version}" if version else "")


def _backend_config(node: Node) -> str:
    """What the target is told, unless the notes of the node have it."""
    text = node.attr("backend_config")
    said = any(name == "backend_config" for name, _ in node.origin.notes)
    return f"backend_config={text if text.startswith('{') else string_text(text)}" if text and not said else ""


def custom_call(kept: Callable[[Writer, Node, str], str]) -> Emit:
    """A custom call; `kept` writes attributes as an HLO text has them, with the computations that they name."""

    def emit(w: Writer, node: Node) -> str:
        acts = node.op is ops.custom_effect
        is_hlo = node.attr("language") == "hlo"
        attributes = _joined(kept(w, node, node.attr("text")) if is_hlo else custom_attributes(node), _backend_config(node))
        if not acts:
            return w.apply(node, "custom-call", attributes)
        types = _plain(node)
        operands = [w.value(i) for i in node.inputs[1:]]
        name = w.put(legal(node.name or "custom-call"), _noted(node, types), "custom-call", operands, attributes, node.origin)
        return _spread(w, node, name, types)

    return emit


DEVICE_EMITTERS: dict[Op, Emit] = {
    ops.all_reduce: _collective("all-reduce", _replicas, _flat, _reducer),
    ops.all_gather: _collective("all-gather", _replicas, _along("all_gather_dim"), _flat),
    ops.reduce_scatter: _collective("reduce-scatter", _replicas, _flat, _along("scatter_dimension"), _reducer),
    ops.all_to_all: _collective("all-to-all", _replicas, _exchanged),
    ops.collective_permute: _collective("collective-permute", _pairs),
    ops.collective_broadcast: _collective("collective-broadcast", _replicas, _static_root),
    ops.replica_id: lambda w, node: w.apply(node, "replica-id"),
    ops.partition_id: lambda w, node: w.apply(node, "partition-id"),
    ops.infeed: _infeed, ops.outfeed: _outfeed, ops.send: _send, ops.recv: _recv, ops.rng_get_and_update_state: _random_state,
}  # fmt: skip
"""Every operation that can be written, but for custom calls."""
