"""Which message of HLO's a file is, by its first bytes."""

from __future__ import annotations

import re

_PATH = (0x0A, 0x12, 0x1A, 0x0A, 0x12, 0x0A, 0x12)
"""The keys at the beginning of a module: its name, its entry's; a computation, its name; an instruction, its name and opcode."""
_STRINGS = (0, 1, 3, 5, 6)


DELIMITED = 3

_TEXT = re.compile(r"(?:\s|#[^\n]*+)*+(?:(hlo_module|hlo)\s*:?\s*[{<]|(name)\s*:\s*\"[^\"\n]*\"\s*entry_computation_name\s*:)")


def text_kind(text: str) -> str | None:
    """The field that the text form of a message with a module begins with: `name` of a module itself, `hlo_module` of a dump or an
    unoptimised snapshot, `hlo` of a snapshot; None for another text."""
    found = _TEXT.match(text)
    return None if found is None else found[1] or found[2]


def level(head: bytes) -> int | None:
    """How deep the module is within the message that begins like this: 0 for a module itself, 1 for a dump or an unoptimised
    snapshot, 2 for a snapshot, DELIMITED for an unoptimised snapshot with its length before it; None where there is no module.
    """
    start, length = _length(head, 0)
    if start is not None and length > len(_PATH) and head[:1] != b"\x0a" and head[start : start + 1] == b"\x0a":
        inner, _ = _length(head, start + 1)
        return DELIMITED if inner is not None and _is_module(head, inner) else None
    at = 0
    for depth in range(3):
        if _is_module(head, at):
            return depth
        start, _ = _length(head, at + 1)
        if head[at : at + 1] != b"\x0a" or start is None:
            return None
        at = start
    return None


def _is_module(head: bytes, at: int) -> bool:
    """Whether a module begins there, as far as the bytes go."""
    for k, key in enumerate(_PATH):
        if at >= len(head):
            return k > 2
        start, length = _length(head, at + 1)
        if head[at] != key or start is None:
            return False
        inner = head[start : start + length]
        if k in _STRINGS and not (length and all(byte >= 0x20 for byte in inner)):
            return False
        at = start + length if k in _STRINGS else start
    return True


def _length(head: bytes, at: int) -> tuple[int | None, int]:
    """Where the content after a length begins, and the length; None where the bytes end."""
    value = shift = 0
    while at < len(head) and shift < 70:
        value |= (head[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if head[at - 1] < 128:
            return at, value
    return None, 0
