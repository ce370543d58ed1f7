"""How a class says the fields of a message: each with its number in the definition, how it is read, and its words there."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any

from deepx_graph.text.common.protobuf import Values, messages, numbers, text
from deepx_graph.text.common.protobuf_text import NamedField


def _field(number: int, read: Values, name: str, words: tuple[str, ...], **default: Any) -> Any:
    """`name` is that of the message's definition where it is another one, `words` are those of its enumeration, from 0 on."""
    return field(**default, metadata={"number": number, "read": read, "name": name, "words": words})


def one(number: int, default: Any = 0, read: Values = numbers, name: str = "", words: tuple[str, ...] = ()) -> Any:
    """A field of one value, the default where it is missing."""
    return _field(number, read, name, words, default=default)


def word(number: int, name: str = "") -> Any:
    return one(number, "", text, name)


def many(number: int, read: Values = numbers, name: str = "", words: tuple[str, ...] = ()) -> Any:
    """A field of several values."""
    return _field(number, read, name, words, default_factory=list)


def message(number: int, kind: type, name: str = "") -> Any:
    """A field of one message, None where it is missing."""
    return one(number, None, messages(kind), name)


def message_list(number: int, kind: type, name: str = "") -> Any:
    return many(number, messages(kind), name)


def read_by_number(kind: type) -> dict[int, tuple[str, Values]]:
    """The fields of a message by their numbers."""
    return {f.metadata["number"]: (f.name, f.metadata["read"]) for f in fields(kind) if f.metadata}


def named(kind: type) -> dict[str, NamedField]:
    """The fields of a message by their names in its definition."""
    return {f.metadata["name"] or f.name: NamedField(f.metadata["number"], f.metadata["words"]) for f in fields(kind) if f.metadata}
