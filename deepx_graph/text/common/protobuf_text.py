"""Messages of a schema from their text form: `name: value`, `name { ... }`, lists in brackets.

Fields that the definition has and the schema does not are passed over, as on the wire. Numbers of messages and nesting are held
against bounds. Source: https://protobuf.dev/reference/protobuf/textformat-spec/.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from deepx_graph.errors import Diagnostic, LimitError, ParseError, Source, Span, suggest
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.common.protobuf import Elements, Messages, Reals, Schema, numbers, raw_bytes

Message = TypeVar("Message")


@dataclass(frozen=True, slots=True)
class NamedField:
    """A field by its number; the words of its enumeration, from 0 on; how numbers stand in bytes, as in `struct`, where they do."""

    number: int
    words: tuple[str, ...] = ()
    code: str = ""


TextNames = Mapping[type, Mapping[str, NamedField]]
"""For each message its fields by their names in the definition."""

_SPACE = re.compile(r"(?:\s|#[^\n]*)*")
_TOKEN = re.compile(r"""[A-Za-z_][\w.]*|[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[fF]?|"(?:[^"\\\n]|\\.)*"|"""
                    r"""'(?:[^'\\\n]|\\.)*'|[-:{}<>\[\],;/]""")
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_CLOSE = {"{": "}", "<": ">"}
_SPECIAL = {"inf": "inf", "infinity": "inf", "nan": "nan", "-inf": "-inf", "-infinity": "-inf", "-nan": "nan"}


class TextDecoder:
    """Reads the messages of a schema from a text."""

    def __init__(self, source: Source, schema: Schema, names: TextNames, options: ReadOptions) -> None:
        self.source, self.schema, self.names = source, schema, names
        self.left, self.max_depth = 8 * options.max_nodes, options.max_depth
        self.at, self.token = 0, ""
        self._next(0)

    def whole(self, kind: type[Message]) -> Message:
        """The message that the text is. Raises ParseError, LimitError."""
        return self._message(kind, "", 0)

    # --- tokens

    def _next(self, at: int) -> None:
        self.at = _SPACE.match(self.source.text, at).end()  # type: ignore[union-attr]
        found = _TOKEN.match(self.source.text, self.at)
        if found is None and self.at < len(self.source.text):
            raise self._fail("this is no part of a message", "a name, a number, a text or a bracket")
        self.token = "" if found is None else found[0]

    def _take(self) -> str:
        token = self.token
        self._next(self.at + len(token))
        return token

    def _accept(self, word: str) -> bool:
        if self.token != word or not word:
            return False
        self._take()
        return True

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._fail(f"found {self.token[:40]!r}" if self.token else "the text ends here", f"'{word}'")

    def _fail(self, message: str, expected: str | None = None, hint: str | None = None) -> ParseError:
        span = Span(self.source, self.at, self.at + max(1, len(self.token)))
        return ParseError(Diagnostic(message, span, expected=expected, hint=hint))

    def _deeper(self, depth: int) -> None:
        self.left -= 1
        if self.left < 0 or depth > self.max_depth:
            what = "too many messages" if self.left < 0 else f"messages nest more than {self.max_depth} deep"
            raise LimitError(self._fail(what).diagnostics[0])

    # --- messages

    def _message(self, kind: type[Message], close: str, depth: int) -> Message:
        self._deeper(depth)
        made: Any = kind()
        made.at = self.at
        while self.token != close:
            name = self._field_name()
            field = self.names[kind].get(name)
            if field is None or field.number not in self.schema[kind]:
                self._skip(depth)
            else:
                attribute, read = self.schema[kind][field.number]
                held = getattr(made, attribute)
                values = self._values(field, read, depth)
                if isinstance(held, list):
                    held += values
                elif values:
                    setattr(made, attribute, values[-1])
            if not self._accept(","):
                self._accept(";")
        if close:
            self._expect(close)
        return made  # type: ignore[no-any-return]

    def _field_name(self) -> str:
        if self._accept("["):  # an extension, or the type of an Any
            while self.token not in ("]", ""):
                self._take()
            self._expect("]")
            return ""
        if not self.token or not (self.token[0].isalpha() or self.token[0] == "_"):
            raise self._fail(f"found {self.token[:40]!r}" if self.token else "the text ends here", "the name of a field")
        return self._take()

    def _values(self, field: NamedField, read: Any, depth: int) -> list[Any]:
        """What stands behind the name of a field: a value, or several in brackets."""
        has_colon = self._accept(":")
        if self._accept("["):
            found: list[Any] = []
            while not self._accept("]"):
                found.append(self._value(field, read, depth))
                if not self._accept(",") and self.token != "]":
                    self._expect(",")
            return found
        if not has_colon and self.token not in _CLOSE:
            self._expect(":")
        return [self._value(field, read, depth)]

    def _value(self, field: NamedField, read: Any, depth: int) -> Any:
        if isinstance(read, Messages):
            if self.token not in _CLOSE:
                raise self._fail(f"found {self.token[:40]!r}", "a message in braces")
            return self._message(read.kind, _CLOSE[self._take()], depth + 1)
        if self.token[:1] in ("'", '"') and self.token:
            return self._string(read)
        if isinstance(read, Reals):
            return self._real()
        if field.code:
            return self._packed(field.code, self._real())
        if isinstance(read, Elements):
            mask = (1 << 8 * struct.calcsize(f"<{read.code}")) - 1
            return self._packed(read.code.upper(), self._integer(field) & mask)
        if read is numbers:
            return self._integer(field)
        raise self._fail(f"found {self.token[:40]!r}", "a text in quotes")

    def _packed(self, code: str, value: float) -> bytes:
        try:
            return struct.pack(f"<{code}", value)
        except OverflowError:
            return struct.pack(f"<{code}", float("-inf") if value < 0 else float("inf"))

    def _string(self, read: Any) -> Any:
        """Texts that follow each other are one."""
        if isinstance(read, Reals | Elements) or read is numbers:
            raise self._fail(f"found {self.token[:40]!r}", "a number")
        parts = []
        while self.token[:1] in ("'", '"') and self.token:
            parts.append(_ESCAPE.sub(_unescaped, self.token[1:-1].encode("utf-8", "surrogatepass")))
            self._take()
        data = b"".join(parts)
        return data if read is raw_bytes else str(data, "utf-8", "replace")

    def _sign(self) -> str:
        return "-" if self._accept("-") else ""

    def _real(self) -> float:
        word = (self._sign() + self.token).lower()
        try:
            value = float(_SPECIAL.get(word, word.removesuffix("f")))
        except ValueError:
            raise self._fail(f"found {self.token[:40]!r}", "a number") from None
        self._take()
        return value

    def _integer(self, field: NamedField) -> int:
        sign, word = self._sign(), self.token
        if word in ("true", "True", "t"):
            value = 1
        elif word in ("false", "False", "f"):
            value = 0
        elif word in field.words:
            value = field.words.index(word)
        else:
            try:
                value = int(sign + word, 8 if re.fullmatch(r"[-+]?0[0-7]+", word) else 0)
            except ValueError:
                known = ", ".join(field.words) or "an integer"
                raise self._fail(f"found {word[:40]!r}", known, suggest(word, field.words)) from None
            if not -(1 << 63) <= value < 1 << 64:
                raise self._fail("a number has more than 64 bits")
        self._take()
        return value - (1 << 64) if value >> 63 > 0 else value

    # --- what the schema does not have

    def _skip(self, depth: int) -> None:
        """Passes what stands behind the name of a field that is not known."""
        self._accept(":")
        opened: list[str] = []
        while True:
            self._deeper(depth + len(opened))
            if not self.token:
                raise self._fail("the text ends within a message")
            token = self._take()
            if token in _CLOSE or token == "[":
                opened.append(_CLOSE.get(token, "]"))
            elif opened and token == opened[-1]:
                opened.pop()
            if not opened and token not in ("-", "/") and not (token[:1] in "'\"" and self.token[:1] in ("'", '"') and self.token):
                return


def _unescaped(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, letter = match.groups()
    if octal or hexadecimal:
        return bytes([int(octal, 8) & 255 if octal else int(hexadecimal, 16)])
    if short or long:
        number = int(short or long, 16)
        return chr(number).encode("utf-8", "surrogatepass") if number < 0x110000 else b"?"
    return _LETTERS.get(letter, letter)
