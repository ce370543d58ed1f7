"""Attribute values of MLIR text: numbers, strings, lists, dictionaries, dense constants, words of a dialect; as plain values."""

from __future__ import annotations

import re
from typing import Any

from deepx_graph.errors import ParseError
from deepx_graph.text.stablehlo.reader.scanner import IDENT, STRING, Scanner
from deepx_graph.text.stablehlo.syntax import Dense, EnumWord, Noted, Symbol, Typed
from deepx_graph.text.xla.mlir_text import unescaped

_CONFIG = "backend_config"
_NUMBER = re.compile(r"[-+]?(?:0x[0-9a-fA-F]+|(?:\d+\.?\d*(?:[eE][-+]?\d+)?))")
_ENUM = re.compile(r"#(?:stablehlo|chlo|mhlo)<\s*([\w$.]+)\s+([\w.]+)\s*>")
_STRUCT = re.compile(r"#(?:stablehlo|chlo|mhlo)\.([\w]+)\s*<")
_ALIAS = re.compile(r"#[\w$.]+")
_CONV = re.compile(r"\[[^\]]*\]\s*x\s*\[[^\]]*\]\s*->\s*\[[^\]]*\]")


class AttributeScanner(Scanner):
    """A cursor that reads attribute values too."""

    def dictionary(self, close: str) -> dict[str, Any]:
        """`name = value, ...` up to `close`; the opening bracket is already read."""
        found: dict[str, Any] = {}
        while not self.accept(close):
            quoted = self.match(STRING)
            name = quoted[1] if quoted else self.name("an attribute's name")
            found[name] = self._value(name) if self.accept("=") or self.accept(":") else True
            if not self.accept(","):
                self.expect(close)
                break
        return found

    def _value(self, name: str) -> Any:
        """An attribute's value; as it stands when another dialect gives its meaning, and a configuration that is no string."""
        if "." not in name and name != _CONFIG:
            return self.attribute()
        self.skip()
        start = self.at
        value = self.attribute()
        text = self.text[start : self.at]
        if name == _CONFIG:
            return value if isinstance(value, str) else text
        return Noted(text)

    def attribute(self, bare: bool = False) -> Any:
        """An attribute value; `bare` leaves a type after a number unread."""
        with self.nested():
            value = self._attribute()
            return value if bare else self._typed(value)

    def _attribute(self) -> Any:
        self.skip()
        first = self.text[self.at : self.at + 1]
        if first == "[":
            if conv := self.match(_CONV):
                return conv[0]
            self.at += 1
            items = self._items("]")
            if self.text.startswith(" x [", self.at) or self.text.startswith("x[", self.at):
                self.accept("x")
                return items, self.attribute()
            return items
        if first in "{<" and first:
            self.at += 1
            return self.dictionary("}" if first == "{" else ">")
        if first == '"':
            string = self.match(STRING)
            if not string:
                self.fail("a string that does not end", expected='"')
            return unescaped(string[1])
        if first == "@":
            return Symbol(self.symbol() or "")
        if first == "#":
            return self._hash()
        if number := self.match(_NUMBER):
            return _number(number[0])
        return self._word()

    def _items(self, close: str) -> list[Any]:
        items: list[Any] = []
        while not self.accept(close):
            items.append(self.attribute())
            if not self.accept(","):
                self.expect(close)
                break
        return items

    def _hash(self) -> Any:
        if enum := self.match(_ENUM):
            return EnumWord(enum[2])
        if struct := self.match(_STRUCT):
            if struct[1] == "conv":
                found = self.match(_CONV)
                self.expect(">")
                return found[0] if found else ""
            return self.dictionary(">")
        start = self.at
        if self.match(_ALIAS) and self.peek("<"):
            self.at = self.closing("<", ">")
        return EnumWord(self.text[start : max(self.at, start + 1)])

    def _typed(self, value: Any) -> Any:
        if isinstance(value, (int, float)) and self.peek(":") and not self.peek("::"):
            mark = self.at
            self.accept(":")
            try:
                return Typed(value, self.type())
            except ParseError:
                self.at = mark
        return value

    def _word(self) -> Any:
        mark = self.at
        if self.accept("dense<"):
            return self.dense()
        if self.accept("array<"):
            self.name("an element type")
            return self._items(">") if self.accept(":") else self._none(">")
        if self.accept("dense_resource<"):
            self.fail("the constant's values are in a resource that this text does not hold", mark)
        word = self.match(IDENT)
        if word and word[0] in ("true", "false"):
            return word[0] == "true"
        if word and word[0] not in ("tensor", "tuple", "complex"):
            return EnumWord(word[0])
        self.at = mark
        return self.type()

    def _none(self, close: str) -> list[Any]:
        self.expect(close)
        return []

    def dense(self) -> Dense:
        """After `dense<`: the text up to the closing bracket, and the type that follows."""
        start = self.at
        self.skip()
        string = STRING.match(self.text, self.at)
        end = string.end() if string else self.text.find(">", start)
        if string:
            self.at = end
            self.expect(">")
        elif end < 0:
            self.fail("dense< does not close", start)
        else:
            self.at = end + 1
        type = self.type() if self.accept(":") else None
        return Dense(self.text[start:end].strip(), type, start)


def _number(text: str) -> int | float:
    if "x" in text:
        return int(text, 16)
    return float(text) if any(c in text for c in ".eE") else int(text)
