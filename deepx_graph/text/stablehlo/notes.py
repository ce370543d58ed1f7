"""What MLIR text says beside what is computed: attributes that other dialects give their meaning, as notes, read and written.

Sharding and frontend attributes have the words of HLO in the graph, so that they survive from one language to the other; the rest
keeps its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from deepx_graph.ir.node import Notes
from deepx_graph.text.stablehlo.syntax import Noted
from deepx_graph.text.xla.mlir_text import string_text

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
