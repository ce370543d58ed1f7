"""MindIR files as protocol buffer messages, written field by field."""

from __future__ import annotations

import struct
from typing import Any

import deepx_graph as dx
from deepx_graph.text import decode_source, read
from deepx_graph.verify import verify


def varint(n: int) -> bytes:
    n &= (1 << 64) - 1
    out = b""
    while True:
        out += bytes([n & 127 | (128 if n > 127 else 0)])
        n >>= 7
        if not n:
            return out


def field(number: int, value: Any) -> bytes:
    """One field: an int as a varint, a float as fixed 32 bits, text, bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def many(number: int, values: Any) -> bytes:
    return b"".join(field(number, v) for v in values)


def tensor(dims: Any, dtype: int = 1, name: str = "", raw: bytes = b"") -> bytes:
    return many(1, dims) + field(2, dtype) + (field(7, name) if name else b"") + (field(9, raw) if raw else b"")


def shape(dims: Any, dtype: int = 1) -> bytes:
    return field(5, field(1, "shape") + field(6, tensor(dims, dtype)) + field(16, 19))


def node(name: str, op: str, inputs: Any = (), extra: bytes = b"") -> bytes:
    return many(1, inputs) + field(2, name) + field(3, name) + field(4, op) + extra


def info(name: str, dims: Any, dtype: int = 1) -> bytes:
    return field(1, name) + field(2, tensor(dims, dtype))


def graph(name: str, nodes: Any, inputs: Any, outputs: Any, weights: Any = ()) -> bytes:
    return many(1, nodes) + field(2, name) + many(3, weights) + many(5, inputs) + many(6, outputs)


def model(main: bytes, functions: Any = (), primitives: Any = ()) -> bytes:
    head = field(1, "0.1.1") + field(2, "MindSpore") + field(5, "2.7.1")
    body = field(7, main) + many(8, functions)
    return head + body + many(12, (field(1, p) + field(2, p.partition(":")[0]) for p in primitives))


def load(data: bytes) -> dx.Module:
    found = read(decode_source(data, "m.mindir", 1 << 20)).module
    verify(found)
    return found
