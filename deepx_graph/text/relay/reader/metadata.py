"""The metadata section: a JSON graph of TVM objects with arrays as base64. Only constants are taken from it.

Every index and size is checked before it is used; a damaged section is a ParseError at the section.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from deepx_graph.errors import Diagnostic, LimitError, ParseError, Source, Span, an
from deepx_graph.literal import Array, Literal
from deepx_graph.text.relay.words import NAMES
from deepx_graph.types import dtype_of

_MAGIC = 0xDD5E40F096B4A13F
_HEAD = struct.Struct("<QQiiiBBH")  # magic, reserved, device type, device id, rank, type code, bits, lanes
_CODES: dict[tuple[int, int], Any] = {
    **{(0, b): np.dtype(f"int{b}") for b in (8, 16, 32, 64)}, **{(1, b): np.dtype(f"uint{b}") for b in (8, 16, 32, 64)},
    (1, 1): np.dtype(np.bool_), (4, 16): np.dtype(ml_dtypes.bfloat16), **{(2, b): np.dtype(f"float{b}") for b in (16, 32, 64)},
}  # fmt: skip
_CODE_OF = {dtype: code for code, dtype in _CODES.items()}


class Metadata:
    """The objects that `meta[key][index]` names."""

    def __init__(self, source: Source, start: int | None, max_rank: int) -> None:
        self.source, self.start, self.max_rank = source, start, max_rank
        self._graph: dict[str, Any] = {} if start is None else self._parsed(start)
        self._keys = self._lists()

    def constant(self, key: str, index: int, span: Span) -> Literal:
        """The constant `meta[key][index]`. Raises ParseError when it is not there or is no constant."""
        if self.start is None:
            raise ParseError(Diagnostic(f"meta[{key}][{index}] is not in the text", span,
                                        expected="a section #[metadata] at the end of the text"))
        known = self._keys.get(key)
        if known is None or not 0 <= index < len(known):
            have = ", ".join(f"{k} ({len(v)})" for k, v in self._keys.items()) or "nothing"
            raise ParseError(Diagnostic(f"the metadata section has no meta[{key}][{index}]", span, expected=f"one of: {have}"))
        node = self._node(known[index])
        if node.get("type_key") not in ("relay.Constant", "relay.expr.Constant"):
            raise ParseError(Diagnostic(f"meta[{key}][{index}] is {an(node.get('type_key'))}", span, expected="a relay.Constant"))
        blobs = self._graph.get("b64ndarrays", [])
        try:
            number = int(node["attrs"]["data"])
            return Literal(_array(blobs[number], self.max_rank))
        except (KeyError, IndexError, TypeError, ValueError, binascii.Error, struct.error) as e:
            raise ParseError(Diagnostic(f"the array of meta[{key}][{index}] is damaged: {e}", span)) from None

    def has(self, key: str, index: int) -> bool:
        """Whether the section has an object there, of whatever kind."""
        return 0 <= index < len(self._keys.get(key, ()))

    def _parsed(self, start: int) -> dict[str, Any]:
        text = self.source.text
        try:
            graph = json.loads(text[start:])
        except (ValueError, RecursionError) as e:
            place = start + (e.pos if isinstance(e, json.JSONDecodeError) else 0)
            raise ParseError(Diagnostic(f"the metadata section is damaged: {str(e).split(':')[0]}",
                                        Span(self.source, place, min(place + 1, len(text))))) from None
        if not isinstance(graph, dict) or not isinstance(graph.get("nodes"), list):
            raise self._damaged("it has no nodes")
        return graph

    def _damaged(self, what: str) -> ParseError:
        at = self.start or 0
        return ParseError(Diagnostic(f"the metadata section is damaged: {what}", Span(self.source, at, at + 1)))

    def _node(self, number: Any) -> dict[str, Any]:
        nodes = self._graph["nodes"]
        if not isinstance(number, int) or not 0 <= number < len(nodes) or not isinstance(nodes[number], dict):
            raise self._damaged(f"there is no node {number}")
        node: dict[str, Any] = nodes[number]
        return node

    def _lists(self) -> dict[str, list[int]]:
        """Key to the numbers of its objects."""
        if not self._graph:
            return {}
        root = self._node(self._graph.get("root"))
        keys, data = root.get("keys", []), root.get("data", [])
        if not isinstance(keys, list) or not isinstance(data, list) or len(keys) != len(data):
            raise self._damaged("its root is no map")
        lists = {str(k): self._node(d).get("data", []) for k, d in zip(keys, data, strict=True)}
        if not all(isinstance(v, list) for v in lists.values()):
            raise self._damaged("its root is no map of arrays")
        return lists


def _array(text: Any, max_rank: int) -> Array:
    """The array in a blob of TVM's NDArray format. Raises ValueError, struct.error, binascii.Error."""
    blob = base64.b64decode(str(text), validate=True)
    magic, _, _, _, rank, code, bits, lanes = _HEAD.unpack_from(blob)
    dtype = _CODES.get((code, bits))
    if magic != _MAGIC or dtype is None or lanes != 1:
        raise ValueError("this is no array")
    if not 0 <= rank <= max_rank:
        raise LimitError(f"an array of rank {rank} in the metadata section")
    shape = struct.unpack_from(f"<{rank}q", blob, _HEAD.size)
    at = _HEAD.size + 8 * rank
    (size,) = struct.unpack_from("<q", blob, at)
    if min(shape, default=0) < 0 or size != math.prod(shape) * dtype.itemsize or len(blob) != at + 8 + size:
        raise ValueError(f"{len(blob) - at - 8} bytes for the shape {list(shape)}")
    return np.frombuffer(blob, dtype, offset=at + 8).reshape(shape)


def section(literals: Sequence[Literal]) -> str:
    """The metadata section that holds these constants as meta[relay.Constant]."""
    nodes: list[dict[str, Any]] = [
        {"type_key": ""}, {"type_key": "Map", "keys": ["relay.Constant"], "data": [2]},
        {"type_key": "Array", "data": []},
        {"type_key": "VirtualDevice", "attrs": {"device_type_int": "-1", "memory_scope": "4", "target": "0",
                                                "virtual_device_id": "-1"}},
        {"type_key": "runtime.String"},
    ]  # fmt: skip
    for k, literal in enumerate(literals):
        nodes[2]["data"].append(len(nodes))
        shape = len(nodes) + 2
        ints = [shape + 1 + j for j in range(len(literal.type.shape))]
        nodes.append({"type_key": "relay.Constant", "attrs": {"_checked_type_": str(shape - 1), "data": str(k), "span": "0",
                                                              "virtual_device_": "3"}})
        nodes.append({"type_key": "relay.TensorType", "attrs": {"dtype": NAMES[literal.dtype], "shape": str(shape), "span": "0"}})
        nodes.append({"type_key": "Array", "data": ints})
        nodes += ({"type_key": "IntImm", "attrs": {"dtype": "int32", "span": "0", "value": str(d)}} for d in literal.type.shape)
    graph = {"root": 1, "nodes": nodes, "b64ndarrays": list(map(_blob, literals)), "attrs": {"tvm_version": "0.16.dev0"}}
    return f"#[metadata]\n{json.dumps(graph, indent=2)}"


def _blob(literal: Literal) -> str:
    array = np.ascontiguousarray(literal.array)
    code, bits = _CODE_OF[np.dtype(dtype_of(array.dtype).np)]
    shape = literal.type.shape
    head = _HEAD.pack(_MAGIC, 0, 1, 0, len(shape), code, bits, 1)
    return base64.b64encode(head + struct.pack(f"<{len(shape)}qq", *shape, array.nbytes) + array.tobytes()).decode("ascii")
