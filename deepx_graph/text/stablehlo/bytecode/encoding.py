"""Numbers, lists and sections as MLIR bytecode has them."""

from __future__ import annotations

import struct
from collections.abc import Sequence


def varint(value: int) -> bytes:
    """A number of 64 bits; as many zeros end its first byte as bytes follow."""
    length = max(1, -(-value.bit_length() // 7))
    if length > 8:
        return b"\0" + value.to_bytes(8, "little")
    return ((value << 1 | 1) << (length - 1)).to_bytes(length, "little")


def signed(value: int) -> bytes:
    return varint((value << 1 ^ value >> 63) & (1 << 64) - 1)


def listed(parts: Sequence[bytes]) -> bytes:
    """A list: how many, then each."""
    return varint(len(parts)) + b"".join(parts)


def section(number: int, data: bytes) -> bytes:
    return bytes([number]) + varint(len(data)) + data


def double(value: float) -> bytes:
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return signed(bits)
