"""Messages of a schema as the bytes of protocol buffers: the other side of `protobuf.Decoder`.

Fields that have their default are left out; repeated numbers are packed. Large values are handed on as they are, never copied.
Source: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import Any, cast

from deepx_graph.text.common.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Elements,
    Messages,
    Reals,
    Schema,
    Values,
    numbers,
    raw_bytes,
    text,
    text_or_bytes,
)

Chunks = list[bytes | memoryview]
"""Bytes in parts, one after the other."""


@dataclasses.dataclass(frozen=True, slots=True)
class Encoded:
    """A message that is bytes already, where a message of the schema may stand."""

    chunks: Chunks


def varint(value: int) -> bytes:
    """A number of at most 64 bits; a negative one in two's complement."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def packed(values: Iterable[int]) -> bytes:
    """Numbers as varints, one after the other."""
    return b"".join(map(varint, values))


def encode(message: Any, schema: Schema) -> Chunks:
    """The message as bytes. Raises ValueError for one of 2 GiB or more, which no reader takes."""
    chunks, size = _message(message, schema)
    if size >= 1 << 31:
        raise ValueError(f"a message of {size} bytes")
    return chunks


def _message(message: Any, schema: Schema) -> tuple[Chunks, int]:
    if isinstance(message, Encoded):
        return message.chunks, sum(map(len, message.chunks))
    chunks: Chunks = []
    defaults = _defaults(cast(Hashable, type(message)))
    for number, (name, values) in schema[type(message)].items():
        held = getattr(message, name)
        if name in defaults and held == defaults[name]:
            continue
        chunks += field_chunks(number, held, values, schema)
    return chunks, sum(map(len, chunks))


@lru_cache
def _defaults(kind: Any) -> dict[str, Any]:
    """The default of each field of a message; none for a list."""
    return {f.name: f.default for f in dataclasses.fields(kind) if f.default is not dataclasses.MISSING}


def field_chunks(number: int, held: Any, values: Values, schema: Schema) -> Chunks:
    """A field with its values, one after the other or packed."""
    items = held if isinstance(held, list) else [held]
    if isinstance(values, Messages):
        made: Chunks = []
        for item in items:
            inner, size = _message(item, schema)
            made += [_key(number, BYTES) + varint(size), *inner]
        return made
    if isinstance(values, Elements):
        return delimited(number, [_elements(values.code, b"".join(items))]) if items else []
    if isinstance(values, Reals):
        code, kind = values.code, FIXED32 if values.code == "f" else FIXED64
        if isinstance(held, list):
            return delimited(number, [struct.pack(f"<{len(items)}{code}", *items)]) if items else []
        return [_key(number, kind) + struct.pack(f"<{code}", held)]
    if values is numbers:
        if isinstance(held, list):
            return delimited(number, [packed(items)]) if items else []
        return [_key(number, VARINT) + varint(held)]
    return delimited(number, [_PLAIN[values](item) for item in items])


_PLAIN: dict[Values, Callable[[Any], bytes | memoryview]] = {
    text: str.encode, text_or_bytes: str.encode, raw_bytes: lambda held: held,
}  # fmt: skip


def _elements(code: str, held: bytes) -> bytes:
    """Elements held as their bytes, as the numbers that they are on the wire."""
    return held if code in "fd" else packed(v for (v,) in struct.iter_unpack(f"<{code}", held))


def delimited(number: int, parts: Iterable[bytes | memoryview]) -> Chunks:
    return [piece for part in parts for piece in (_key(number, BYTES) + varint(len(part)), part)]


def _key(number: int, kind: int) -> bytes:
    return varint(number << 3 | kind)
