"""What MLIR text says beside what is computed, read and written: attributes that other dialects give their meaning, and locations.

Sharding and frontend attributes have the words of HLO in the graph, so that they survive from one language to the other; the rest
keeps its own. Locations are `loc(...)` and `#loc` aliases, as places in the user's program. `"file":line:column` is a line; a name
around a line is a function where a call leads there or another name stands around it, else what the framework calls the operation;
`callsite(a at b)` is a called from b; of `fused[...]` the first counts. What is not understood is no error: the operation then has
no place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from deepx_graph.errors import Place
from deepx_graph.ir.node import Notes
from deepx_graph.text.stablehlo.syntax import Noted
from deepx_graph.text.xla.mlir_text import string_text, unescaped

LINE = "line"
"""The name of a note of a module that is a whole operation beside its functions, as it stands."""

OWN = ("stablehlo", "chlo", "check", "func", "mhlo", "builtin", "vhlo")
"""The dialects whose operations mean something here."""

_STRING = r'"(?:[^"\\]|\\.)*"'
_ENTRY = re.compile(rf"({_STRING}|[\w.$\-]+)\s*=\s*({_STRING})")
_SHARDING, _FRONTEND = "sharding", "frontend_attributes"


def is_foreign(operation: str) -> bool:
    """Whether another dialect gives the operation its meaning."""
    return "." in operation and operation.partition(".")[0] not in OWN


def notes_of(attributes: Mapping[str, Any]) -> Notes:
    """The notes among the attributes of an operation, argument or module."""
    return tuple(_note(name, value.text) for name, value in attributes.items() if isinstance(value, Noted))


def _note(name: str, text: str) -> tuple[str, str]:
    if name == "mhlo.sharding" and text.startswith('"') and "\\" not in text:
        return _SHARDING, text.strip('"')
    if name == "mhlo.frontend_attributes" and text.startswith("{"):
        return _FRONTEND, "{" + ",".join(f"{_bare(k)}={v}" for k, v in _ENTRY.findall(text)) + "}"
    return name, text


def _bare(word: str) -> str:
    inner = word.strip('"')
    return inner if re.fullmatch(r"[A-Za-z_][\w.]*", inner) else word


def notes_text(notes: Notes) -> str:
    """`name = value, ...` for the notes that MLIR has words for."""
    return ", ".join(word for name, text in notes if (word := _word(name, text)))


def _word(name: str, text: str) -> str:
    if name == _SHARDING:
        return f"mhlo.sharding = {string_text(text)}"
    if name == _FRONTEND:
        return "mhlo.frontend_attributes = {" + ", ".join(f"{_quoted(k)} = {v}" for k, v in _ENTRY.findall(text)) + "}"
    return f"{name} = {text}" if "." in name else ""


def _quoted(word: str) -> str:
    return word if word.startswith('"') else f'"{word}"'


_PIECE = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|(#[\w$.]+)|(\w+)|(.))', re.DOTALL)
_LINE = re.compile(r":(\d+):(\d+)(?:\s*to\s*(?:\d+)?:\d+)?")
MAX_DEPTH = 50
"""How deep one location may nest; aliases defined before it do not count."""


class Locations:
    """The places of one text. `aliases` are the texts of its locations by name."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._texts = aliases
        self._aliases: dict[str, Place | None] = {}
        self._known: dict[str, Place | None] = {}
        self._met = False

    def of(self, text: str) -> Place | None:
        """The place that the text between `loc(` and `)` tells."""
        if not self._met:  # texts are printed with aliases in order, so that each finds those it names
            self._met = True
            for name in self._texts:
                self._alias(name, 0)
        if text not in self._known:
            self._known[text] = self._read(text, 0, 0)[0]
        return self._known[text]

    def _alias(self, name: str, depth: int) -> Place | None:
        if name not in self._aliases:
            self._aliases[name] = None
            if name in self._texts:
                self._aliases[name] = self._read(self._texts[name], 0, depth)[0]
        return self._aliases[name]

    def _read(self, text: str, at: int, depth: int) -> tuple[Place | None, int]:
        """The place written at an offset, and the offset after it."""
        piece = _PIECE.match(text, at)
        if piece is None or depth > MAX_DEPTH:
            return None, len(text)
        if piece[1] is not None:
            return self._string(text, piece, depth)
        if piece[2]:
            return self._alias(piece[2], depth + 1), piece.end()
        if piece[3] == "callsite":
            callee, at = self._read(text, piece.end() + 1, depth + 1)
            caller, at = self._read(text, _after(text, at, "at"), depth + 1)
            return _called(callee, caller), at + 1
        if piece[3] == "fused":
            return self._read(text, text.find("[", at) + 1 or len(text), depth + 1)[0], len(text)
        return None, piece.end()

    def _string(self, text: str, piece: re.Match[str], depth: int) -> tuple[Place | None, int]:
        """A line of a file, or a name, alone or around another location."""
        string = unescaped(piece[1])
        if line := _LINE.match(text, piece.end()):
            return Place(string, int(line[1][:9]), int(line[2][:9])), line.end()
        if not text.startswith("(", piece.end()):
            return Place(label=string), piece.end()
        inner, at = self._read(text, piece.end() + 1, depth + 1)
        return _named(string, inner), at + 1


def _after(text: str, at: int, word: str) -> int:
    found = text.find(word, at)
    return found + len(word) if found >= 0 else len(text)


def _frame(place: Place) -> Place:
    """A place that a call leads to: the name around it is its function."""
    return replace(place, function=place.function or place.label, label="") if place.file else place


def _called(callee: Place | None, caller: Place | None) -> Place | None:
    if callee is None or not callee.file:
        return _frame(caller) if caller else callee
    return replace(_frame(callee), caller=_frame(caller) if caller and caller.file else None)


def _named(name: str, inner: Place | None) -> Place:
    if inner is None or not inner.file:
        return Place(label=name)
    return replace(_frame(inner), label=name)


class LocationTable:
    """The locations of a text that is written, each once, as aliases that stand at its end."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}
        self._known: dict[Place, str] = {}

    def of(self, place: Place | None) -> str:
        """` loc(#loc3)`; nothing for no place."""
        if place is None:
            return ""
        if not place.file:
            return f" loc({string_text(place.label)})" if place.label else ""
        name = self._chain(place)
        return f" loc({self._add(f'{string_text(place.label)}({name})') if place.label else name})"

    def _chain(self, place: Place) -> str:
        """The alias of the place with all its callers, outermost first."""
        chain: list[Place] = []
        at: Place | None = place
        while at is not None:
            chain.append(at)
            at = at.caller
        outer = ""
        for p in reversed(chain):
            if p not in self._known:
                line = self._add(f"{string_text(p.file)}:{p.line}:{p.column}")
                own = self._add(f"{string_text(p.function)}({line})") if p.function else line
                self._known[p] = self._add(f"callsite({own} at {outer})") if outer else own
            outer = self._known[p]
        return outer

    def _add(self, text: str) -> str:
        return self._lines.setdefault(text, f"#loc{len(self._lines) + 1}")

    def lines(self) -> list[str]:
        """`#loc1 = loc(...)`, in an order in which each names earlier ones only."""
        return [f"{name} = loc({text})" for text, name in self._lines.items()]
