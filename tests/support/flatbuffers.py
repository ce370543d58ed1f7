"""Files of jax.export as small as can be: FlatBuffers, written without their library."""

from __future__ import annotations

Part = int | bytes | list[bytes]


def word(n: int, size: int = 4) -> bytes:
    return n.to_bytes(size, "little")


def text(of: str) -> bytes:
    return word(len(of)) + of.encode() + b"\0"


def table(slots: dict[int, Part]) -> tuple[bytes, int]:
    """A table of a FlatBuffer and where in these bytes it begins: numbers stand in it, bytes behind it, a list of bytes as a vector
    of offsets. A table within another is a pair of this kind, made bytes by `inner`.
    """
    last = max(slots)
    vtable = word(4 + 2 * (last + 1), 2) + word(4 + 4 * len(slots), 2)
    at = {slot: 4 + 4 * k for k, slot in enumerate(slots)}
    vtable += b"".join(word(at.get(slot, 0), 2) for slot in range(last + 1))
    start, body, behind = len(vtable), word(len(vtable)), b""
    end = start + 4 + 4 * len(slots)
    for slot, part in slots.items():
        if isinstance(part, int):
            body += word(part)
            continue
        place = end + len(behind)
        if isinstance(part, list):
            offsets, items = b"", b""
            for k, item in enumerate(part):
                offsets += word(4 * (len(part) - k) + len(items))
                items += item
            blob = word(len(part)) + offsets + items
        else:
            blob = part
        body += word(place - (start + at[slot]))
        behind += blob
    return vtable + body + behind, start


def exported(module: bytes, extra: dict[int, Part] | None = None) -> bytes:
    """A file with a module as bytecode; `extra` are slots of its table."""
    slots: dict[int, Part] = {0: 3, 1: text("f"), 9: [text("cpu")], 13: word(len(module)) + module, 14: 10,
                              15: word(2) + word(0, 2) + word(1, 2), **(extra or {})}  # fmt: skip
    made, start = table(slots)
    return word(start + 4) + made
