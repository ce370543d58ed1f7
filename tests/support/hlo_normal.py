"""One normal form of HLO text, found without the package's own reader: what two texts must have in common to say the same.

Left out are comments, percent signs, the shapes of operands, the signatures of computations, row-major layouts, the header's
entry layout, unit strides, white space, the order of instructions and attributes, and what the entry does not reach.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

STRING = r'"(?:[^"\\]|\\.)*"'
_BRACKET = re.compile(STRING + r"|[(){}\[\]]|,")
_LAYOUT = re.compile(r"\[([\d, ]*)\]\{([\d, ]*)\}")
_COMPUTATION = re.compile(r"^\s*(ENTRY\s+)?([\w.\-]+)[^\n={]*?(?:\([^\n]*)?\{\n(.*?)^\s*\}", re.DOTALL | re.MULTILINE)

Computation = dict[str, tuple[Any, ...]]


def normal(text: str) -> tuple[str, list[str], dict[str, Computation]]:
    """The module's name, its other attributes, and each computation's instructions by name."""
    text = re.sub(rf"({STRING})|/\*.*?\*/|//[^\n]*|%", lambda m: (m[1] or "").replace("\\'", "'"), text, flags=re.DOTALL)
    text = _LAYOUT.sub(_layout, re.sub(r"\[(\d+:\d+):1\]", r"[\1]", text))
    head = re.match(r"\s*HloModule\s+([\w.\-]+):?([^\n]*)", text)
    assert head is not None
    said = sorted(a for a in _split(head[2]) if not a.startswith("entry_computation_layout"))
    found: dict[str, Computation] = {}
    entry = ""
    for m in _COMPUTATION.finditer(text, head.end()):
        lines = [line.strip() for line in re.sub(r",\s*\n\s*", ", ", m[3]).splitlines() if line.strip()]
        if not any(line.startswith("ROOT ") for line in lines):
            lines[-1] = "ROOT " + lines[-1]
        found[m[2]] = _live(dict(map(_instruction, lines)))
        entry = m[2] if m[1] or not entry else entry
    return head[1], said, {name: found[name] for name in sorted(_reached(found, entry))}


def _layout(m: re.Match[str]) -> str:
    dims, order = ("".join(part.split()) for part in m.groups())
    row_major = ",".join(map(str, reversed(range(dims.count(",") + 1)))) if dims else ""
    return f"[{dims}]" if order == row_major else f"[{dims}]{{{order}}}"


def _depths(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Brackets and commas with how many brackets are open after each."""
    depth = 0
    for m in _BRACKET.finditer(text):
        depth += (m[0] in "({[") - (m[0] in ")}]")
        yield m, depth


def _split(text: str) -> list[str]:
    """The parts between the outer commas."""
    cuts = [m.start() for m, depth in _depths(text) if m[0] == "," and depth == 0]
    parts = [text[a:b].strip(" ,\t") for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return [p for p in parts if p]


def _closing(text: str) -> int:
    """The offset after the bracket that closes the first."""
    return next(m.end() for m, depth in _depths(text) if depth == 0 and m[0] in ")}]")


def _instruction(line: str) -> tuple[str, tuple[Any, ...]]:
    name, _, rest = line.removeprefix("ROOT ").partition(" = ")
    at = _closing(rest) if rest.startswith("(") else rest.index(" ")
    shape, rest = rest[:at], rest[at:].strip()
    opcode = rest[: rest.index("(")]
    end = len(opcode) + _closing(rest[len(opcode) :])
    inner = rest[len(opcode) + 1 : end - 1]
    operands = ["".join(inner.split())] if opcode == "constant" else [p.split()[-1] for p in _split(inner)]
    attributes = sorted("".join(a.split()) for a in _split(rest[end:]))
    return name, (line.startswith("ROOT "), "".join(shape.split()), opcode, operands, attributes)


def _live(rows: Computation) -> Computation:
    """What the root needs, and the parameters."""
    work = [name for name, row in rows.items() if row[0] or row[2] == "parameter"]
    seen: set[str] = set()
    while work:
        name = work.pop()
        if name in rows and name not in seen:
            seen.add(name)
            work += rows[name][3]
    return {name: row for name, row in rows.items() if name in seen}


def _reached(computations: dict[str, Computation], entry: str) -> set[str]:
    work, seen = [entry], set()
    while work:
        name = work.pop()
        if name in computations and name not in seen:
            seen.add(name)
            for row in computations[name].values():
                work += [word for a in row[4] for word in re.findall(r"[\w.\-]+", a.partition("=")[2])]
    return seen
