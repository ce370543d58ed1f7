"""How operations that act on the state are written in HLO: collectives, feeds, channels, custom calls.

The state is a token where an instruction takes one, and has no value elsewhere. Results are known to the writer one by one
(`ComputationWriter.parts`), as the state among them is no part of what the instruction gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph import ops
from deepx_graph.ir import Node, Op
from deepx_graph.text.hlo.notes import noted_shape
from deepx_graph.text.hlo.printer.body import ComputationWriter, Emit
from deepx_graph.text.hlo.reader.devices import VERSIONS
from deepx_graph.text.hlo.shapes import legal, tuple_text, type_text
from deepx_graph.text.xla.devices import COLLECTIVES
from deepx_graph.text.xla.fields import OperationRow
from deepx_graph.text.xla.hlo_text import present, string_text
from deepx_graph.text.xla.table import ROWS
from deepx_graph.types import STATE, TupleType, Type


def _plain(node: Node) -> tuple[Type, ...]:
    """The types of the results that are not the state."""
    return tuple(t for t in node.type.items if t != STATE) if isinstance(node.type, TupleType) else ()


def _shape(types: Sequence[Type]) -> str:
    return type_text(types[0]) if len(types) == 1 else tuple_text(map(type_text, types))


def _noted(node: Node, types: Sequence[Type]) -> str:
    """The shape of results, with the layout that the text of the node gives it."""
    return noted_shape(node.origin, types[0] if len(types) == 1 else TupleType(tuple(types)))


def _spread(w: ComputationWriter, node: Node, name: str, types: Sequence[Type]) -> str:
    """Notes the results of the instruction `name`, which are one value or a tuple; gives the name."""
    w.parts[node] = [name] if len(types) == 1 else [w.item(f"{name}.{k}", t, name, k) for k, t in enumerate(types)]
    return name


def _data(w: ComputationWriter, inputs: Sequence[Node]) -> str:
    """Operands as one value."""
    return w.value(inputs[0]) if len(inputs) == 1 else w.pack("data", inputs)


# --- collectives --------------------------------------------------------------------------------------------------


def _collective(row: OperationRow) -> Emit:
    def emit(w: ComputationWriter, node: Node) -> str:
        types, operands = _plain(node), [w.value(i) for i in node.inputs[1:]]
        return _spread(w, node, w.write(node, row.hlo, operands, row.hlo_text(w, node), _noted(node, types)), types)

    return emit


# --- feeds and channels -------------------------------------------------------------------------------------------


def _attributes(w: ComputationWriter, node: Node) -> str:
    return ROWS[node.op].hlo_text(w, node)


def _received(w: ComputationWriter, node: Node, whole: str) -> str:
    """Notes the results of an instruction that gives data and a token; gives its name."""
    types = _plain(node)
    _spread(w, node, w.put(f"{whole}.data", _shape(types), "get-tuple-element", [whole], "index=0"), types)
    w.parts[node] = [*w.parts[node], w.item(f"{whole}.token", STATE, whole, 1)]
    return whole


def _infeed(w: ComputationWriter, node: Node) -> str:
    shape = tuple_text([_shape(_plain(node)), "token[]"])
    return _received(w, node, w.write(node, "infeed", [w.value(node.inputs[0])], _attributes(w, node), shape))


def _outfeed(w: ComputationWriter, node: Node) -> str:
    state, *inputs = node.inputs
    shape = f"outfeed_shape={_shape([i.type for i in inputs])}"
    return w.write(node, "outfeed", [_data(w, inputs), w.value(state)], present(shape, _attributes(w, node)), "token[]")


def _send(w: ComputationWriter, node: Node) -> str:
    state, *inputs = node.inputs
    shape, channel = tuple_text([_shape([i.type for i in inputs]), "u32[]", "token[]"]), _attributes(w, node)
    begun = w.write(node, "send", [_data(w, inputs), w.value(state)], channel, shape)
    return w.put("send-done", "token[]", "send-done", [begun], channel)


def _recv(w: ComputationWriter, node: Node) -> str:
    data, channel = _shape(_plain(node)), _attributes(w, node)
    begun = w.put("recv", tuple_text([data, "u32[]", "token[]"]), "recv", [w.value(node.inputs[0])], channel)
    return _received(w, node, w.write(node, "recv-done", [begun], channel, tuple_text([data, "token[]"])))


def _random_state(w: ComputationWriter, node: Node) -> str:
    types = _plain(node)
    name = w.put(legal(node.name or "state"), _noted(node, types), "rng-get-and-update-state", [], f"delta={node.attr('delta')}",
                 node.origin)
    return _spread(w, node, name, types)


# --- custom calls -------------------------------------------------------------------------------------------------

_NAMED_VERSIONS = {number: name for name, number in VERSIONS.items()}


def custom_attributes(node: Node) -> str:
    """What is known of a custom call that was not read from HLO."""
    version = _NAMED_VERSIONS.get(node.attr("api_version"), "")
    return present(
        f"custom_call_target={string_text(node.attr('target'))}",
        "custom_call_has_side_effect=true" if node.op is ops.custom_effect else "", f"api_version={version}" if version else "")


def _backend_config(node: Node) -> str:
    """What the target is told, unless the notes of the node have it."""
    text = node.attr("backend_config")
    said = any(name == "backend_config" for name, _ in node.origin.notes)
    return f"backend_config={text if text.startswith('{') else string_text(text)}" if text and not said else ""


def custom_call(kept: Callable[[ComputationWriter, Node, str], str]) -> Emit:
    """A custom call; `kept` writes attributes as an HLO text has them, with the computations that they name."""

    def emit(w: ComputationWriter, node: Node) -> str:
        acts = node.op is ops.custom_effect
        is_hlo = node.attr("language") == "hlo"
        attributes = present(kept(w, node, node.attr("text")) if is_hlo else custom_attributes(node), _backend_config(node))
        if not acts:
            return w.apply(node, "custom-call", attributes)
        types, operands = _plain(node), [w.value(i) for i in node.inputs[1:]]
        return _spread(w, node, w.write(node, "custom-call", operands, attributes, _noted(node, types)), types)

    return emit


DEVICES: dict[Op, Emit] = {
    **{row.op: _collective(row) for row in COLLECTIVES},
    ops.infeed: _infeed, ops.outfeed: _outfeed, ops.send: _send, ops.recv: _recv, ops.rng_get_and_update_state: _random_state,
}  # fmt: skip
"""How they are written, but for custom calls."""
