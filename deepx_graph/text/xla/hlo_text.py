"""Values of attributes in HLO text, read and written: `{0,1}`, names, strings, groups of devices."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from deepx_graph.literal import Array

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
    members of a group lie, `mesh['a'=4,'b'=2] {'a'}`, perhaps with `device_ids=([2,4]T(1,0))` between. Raises AttributeFault."""
    if text.startswith("["):
        return _iota_groups(text)
    if text.startswith("mesh"):
        return _mesh_groups(text)
    return tuple(parse_ints("{" + g + "}") for g in re.findall(r"\{([^{}]*)\}", text[1:-1]))


def _iota_groups(text: str) -> Groups:
    match = re.fullmatch(r"\[([\d,]+)\](?:<=(\[[\d,]+\](?:T\([\d,]+\))?))?", text)
    if not match:
        raise AttributeFault(f"'{text}' is not a list of groups", "{{0,1},{2,3}} or [2,2]<=[4]")
    shape, flat = parse_ints(match[1]), _iota(match[2] or f"[{match[1]}]")
    if math.prod(shape) != flat.size:
        raise AttributeFault(f"'{text}' does not make groups", "as many replicas on both sides")
    return _rows(flat.reshape(shape[0], -1))


def _iota(text: str) -> Array:
    """The numbers from 0 on in the order that `[4,2]T(1,0)` says, of at most a million."""
    import numpy as np

    match = re.fullmatch(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    sizes = parse_ints(match[1]) if match else ()
    order = parse_ints(match[2]) if match and match[2] else tuple(range(len(sizes)))
    if not sizes or math.prod(sizes) > 1 << 20 or sorted(order) != list(range(len(sizes))):
        raise AttributeFault(f"'{text}' does not make groups", "sizes, and each of their places once: [4,2]T(1,0)")
    return np.arange(math.prod(sizes)).reshape(sizes).transpose(order).ravel()


def _rows(groups: Array) -> Groups:
    return tuple(tuple(int(i) for i in row) for row in groups)


_MESH = re.compile(r"mesh\[((?:'[^']*'=\d+,?)*)\](?:,device_ids=\(([^()]*(?:\([\d,]*\))?)\))?"
                   r"\s*\{((?:'[^']*'(?::\(\d+\)\d+)?,?)*)\}")


def _mesh_groups(text: str) -> Groups:
    """Devices are numbered in the order of the axes, the last one fastest, or as `device_ids` says; `'a':(2)2` is a part of one."""
    expected = "mesh['a'=4,'b'=2] {'a'}"
    match = _MESH.fullmatch(text.replace(", ", ","))
    if not match:
        raise AttributeFault(f"'{text}' is not a mesh with the axes of its groups", expected)
    axes = [(name, int(size)) for name, size in re.findall(r"'([^']*)'=(\d+)", match[1])]
    sizes = dict(axes)
    count = math.prod(sizes.values())
    if not axes or not 0 < count <= 1 << 20:
        raise AttributeFault(f"'{text}' is a mesh of no devices, or of more than a million", expected)
    along = [(name, int(pre or 1), int(part or sizes.get(name, 0)))
             for name, pre, part in re.findall(r"'([^']*)'(?::\((\d+)\)(\d+))?", match[3])]
    names = [name for name, _, _ in along]
    if len(sizes) < len(axes) or len(set(names)) < len(names) or any(
            pre * part == 0 or sizes.get(name, 0) % (pre * part) for name, pre, part in along):
        raise AttributeFault(f"'{text}' names an axis that the mesh has not, or one twice", expected)
    return _along(_devices(match[2], count), axes, along)


def _devices(text: str | None, count: int) -> Array:
    """The number of each device of a mesh: `[4,2]T(1,0)`, or one by one."""
    import numpy as np

    found = _iota(f"[{count}]") if text is None else _iota(text) if text.startswith("[") else np.array(parse_ints(text), int)
    if sorted(found.tolist()) != list(range(count)):
        raise AttributeFault(f"'{text}' does not number {count} devices", "each number once")
    return found


def _along(devices: Array, axes: Sequence[tuple[str, int]], along: Sequence[tuple[str, int, int]]) -> Groups:
    """The devices that differ in the parts of axes alone, each a name, what is before it, and its size."""
    parts = {name: (pre, part) for name, pre, part in along}
    shape: list[int] = []
    places = {}
    for name, size in axes:
        pre, part = parts.get(name, (size, 1))
        places[name] = len(shape) + 1
        shape += [pre, part, size // (pre * part)]
    inner = [places[name] for name, _, _ in along]
    order = [k for k in range(len(shape)) if k not in inner] + inner
    return _rows(devices.reshape(shape).transpose(order).reshape(-1, math.prod(part for _, _, part in along)))


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
