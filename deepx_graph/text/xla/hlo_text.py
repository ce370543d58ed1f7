"""Values of attributes in HLO text, read and written: `{0,1}`, names, strings, groups of devices."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

Groups = tuple[tuple[int, ...], ...]


class AttributeFault(ValueError):
    """What is wrong with a value, and what was expected."""

    def __init__(self, message: str, expected: str) -> None:
        super().__init__(message)
        self.message, self.expected = message, expected


@lru_cache(maxsize=65536)
def parse_ints(text: str) -> tuple[int, ...]:
    """`{0,1}`, `{}` or a single number. Raises AttributeFault."""
    inner = text.strip().removeprefix("{").removesuffix("}").strip()
    try:
        return tuple(int(p) for p in inner.split(",")) if inner else ()
    except ValueError:
        raise AttributeFault(f"'{text}' is not a list of integers", "{0,1}") from None


def parse_names(text: str) -> tuple[str, ...]:
    """`{r1, %r2}` or a single name."""
    inner = text.strip().removeprefix("{").removesuffix("}").strip()
    return tuple(p.strip().removeprefix("%") for p in inner.split(",")) if inner else ()


@lru_cache(maxsize=4096)
def parse_groups(text: str) -> Groups:
    """`{{0,1},{2,3}}`; the compressed form `[2,4]<=[8]` with an optional transpose `T(1,0)`; or the axes of a mesh along which the
    members of a group lie, `mesh['a'=4,'b'=2] {'a'}`. Raises AttributeFault."""
    if text.startswith("["):
        return _iota_groups(text)
    if text.startswith("mesh"):
        return _mesh_groups(text)
    return tuple(parse_ints("{" + g + "}") for g in re.findall(r"\{([^{}]*)\}", text[1:-1]))


def _iota_groups(text: str) -> Groups:
    import numpy as np

    match = re.fullmatch(r"\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?)?", text)
    if not match:
        raise AttributeFault(f"'{text}' is not a list of groups", "{{0,1},{2,3}} or [2,2]<=[4]")
    shape, source = parse_ints(match[1]), parse_ints(match[2] or match[1])
    order = parse_ints(match[3]) if match[3] else tuple(range(len(source)))
    count = math.prod(source)
    if count > 1 << 20 or math.prod(shape) != count or sorted(order) != list(range(len(source))):
        raise AttributeFault(f"'{text}' does not make groups", "as many replicas on both sides")
    flat = np.arange(count).reshape(source).transpose(order).reshape(shape)
    return tuple(tuple(int(i) for i in row) for row in flat.reshape(shape[0], -1))


def _mesh_groups(text: str) -> Groups:
    """Devices are numbered in the order of the axes, the last one fastest."""
    expected = "mesh['a'=4,'b'=2] {'a'}"
    match = re.fullmatch(r"mesh\[((?:'[^']*'=\d+,?)*)\]\s*\{((?:'[^']*',?)*)\}", text.replace(", ", ","))
    if not match:
        raise AttributeFault(f"'{text}' is not a mesh with the axes of its groups", expected)
    axes = [(name, int(size)) for name, size in re.findall(r"'([^']*)'=(\d+)", match[1])]
    names, along = [name for name, _ in axes], re.findall(r"'([^']*)'", match[2])
    if len(set(names)) < len(names) or len(set(along)) < len(along) or not set(along) <= set(names):
        raise AttributeFault(f"'{text}' names an axis that the mesh has not, or one twice", expected)
    order = [k for k, name in enumerate(names) if name not in along] + [names.index(name) for name in along]
    inner = math.prod(size for name, size in axes if name in along)
    sizes, count = ",".join(str(size) for _, size in axes), math.prod(size for _, size in axes)
    if not axes or not count:
        raise AttributeFault(f"'{text}' is a mesh of no devices", expected)
    return _iota_groups(f"[{count // inner},{inner}]<=[{sizes}]T({','.join(map(str, order))})")


_QUOTES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}


def string_text(text: str) -> str:
    """A string in quotes, with C's escapes."""
    return '"' + "".join(_QUOTES.get(c) or (f"\\{ord(c):03o}" if c < " " or c == "\x7f" else c) for c in text) + '"'


def parse_string(text: str) -> str:
    """A string without its quotes; any other text as it is."""
    return unescaped(text[1:-1]) if text.startswith('"') and text.endswith('"') else text


def unescaped(text: str) -> str:
    """The string that is between the quotes: C's escapes, whose numbers are bytes of UTF-8, as XLA writes what is not ASCII."""
    return _ESCAPE.sub(_byte, text.encode()).decode(errors="replace") if "\\" in text else text


def _byte(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    if code[:1] == b"x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    return bytes([int(code, 8) & 255]) if code[:1] in b"01234567" else _ESCAPED.get(code, code)


def ints_text(values: Iterable[int]) -> str:
    """`{0,1}`."""
    return "{" + ",".join(map(str, values)) + "}"


def groups_text(groups: Sequence[Sequence[int]]) -> str:
    """`{{0,1},{2}}`."""
    return "{" + ",".join(map(ints_text, groups)) + "}"


def present(*parts: str) -> str:
    """The parts that are not empty, with commas between."""
    return ", ".join(filter(None, parts))
