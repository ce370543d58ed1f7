"""The smaller parts of a Relay text: parameters, attribute values, constants of the metadata section, types in comments."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepx_graph.errors import DeepxGraphError, InferError, ParseError
from deepx_graph.text.relay.literals import number
from deepx_graph.text.relay.scanner import Token, scan
from deepx_graph.text.relay.syntax import Binder, Constant, Expr
from deepx_graph.types import Type

if TYPE_CHECKING:
    from deepx_graph.text.relay.parser import Parser


@dataclass(frozen=True)
class Word:
    """A value of an attribute that is kept as it stands: a reference into the metadata section, a bare word."""

    text: str


class Parts:
    """Parses at the cursor of a parser."""

    def __init__(self, cursor: Parser) -> None:
        self.c = cursor

    def params(self) -> tuple[list[Binder], tuple[tuple[str, str], ...]]:
        """Passes `(%x: T, %y {virtual_device=...}: T, name=value)`: parameters, and attributes as text."""
        c, params, attributes = self.c, list[Binder](), dict[str, str]()
        c.expect("(")
        while not c.accept(")"):
            if c.next.kind == "local":
                params.append(self._param())
            else:
                start = c.next.start
                name, _ = self.attribute()
                text = c.source.text[start : c.tokens[c.at - 1].end]
                attributes[name.text] = text.split("=", 1)[1].strip()
            if not c.peek(")"):
                c.expect(",", "or ')'")
        return params, tuple(attributes.items())

    def _param(self) -> Binder:
        c = self.c
        token = c.advance()
        if token.text in c.scopes.innermost:
            c.fail(f"two parameters are named {token.text}", token=token)
        if c.accept("{"):
            while not c.accept("}"):
                self.attribute()
                if not c.peek("}"):
                    c.expect(",", "or '}'")
        return c.bind(token, c.type() if c.accept(":") else None)

    def attribute(self) -> tuple[Token, Any]:
        """Passes `name=value`."""
        c = self.c
        name = c.expect_kind("word", "a parameter, like %x: T, or an attribute, like axis=1")
        c.expect("=")
        return name, self._value()

    def _value(self) -> Any:
        c = self.c
        token = c.advance()
        match token.kind:
            case "string":
                return _string(c, token)
            case "number":
                return self._number(token, False)
            case "word":
                words = {"None": None, "True": True, "False": False}
                if token.text == "meta":
                    return self._reference(token)
                return words[token.text] if token.text in words else Word(token.text)
            case "sign" if token.text == "-" and c.next.kind == "number":
                return self._number(c.advance(), True)
            case "sign" if token.text in ("[", "("):
                return self._sequence("]" if token.text == "[" else ")")
            case "sign" if token.text == "{":
                return self._map()
        return c.fail(f"found '{token.text}'", token=token, expected="the value of an attribute")

    def _number(self, token: Token, negative: bool) -> Any:
        try:
            return number(token.text, negative).array.item()
        except InferError as e:
            raise ParseError(e.diagnostic(self.c.span(token.start, token.end), "")) from None

    def _sequence(self, close: str) -> tuple[Any, ...]:
        c, items = self.c, []
        c.enter()
        while not c.accept(close):
            items.append(self._value())
            if not c.peek(close):
                c.expect(",", f"or '{close}'")
        c.depth -= 1
        return tuple(items)

    def _map(self) -> tuple[Any, ...]:
        c, items = self.c, []
        c.enter()
        while not c.accept("}"):
            key = self._value()
            c.expect(":" if c.peek(":") else "=")
            items.append((key, self._value()))
            if not c.peek("}"):
                c.expect(",", "or '}'")
        c.depth -= 1
        return tuple(items)

    # --- the metadata section

    def _meta(self) -> tuple[str, int]:
        """Behind `meta`: `[key][index]`."""
        c = self.c
        c.expect("[")
        key = c.expect_kind("word", "a key of the metadata section").text
        c.expect("]")
        c.expect("[")
        index = c.expect_kind("number", "an index")
        c.expect("]")
        if not index.text.isdecimal() or len(index.text) > 9:
            c.fail(f"'{index.text}' is no index", token=index)
        return key, int(index.text)

    def constant(self) -> Expr:
        """Passes `meta[relay.Constant][0]` as an expression. Raises ParseError when the section has none."""
        c = self.c
        start = c.advance()
        key, index = self._meta()
        end = c.tokens[c.at - 1].end
        return Constant(start.start, end, c.metadata.constant(key, index, c.span(start.start, end)))

    def _reference(self, start: Token) -> Word:
        c = self.c
        key, index = self._meta()
        end = c.tokens[c.at - 1].end
        if not c.metadata.has(key, index):
            c.metadata.constant(key, index, c.span(start.start, end))
        return Word(f"meta[{key}][{index}]")

    # --- types in comments

    def stated_type(self) -> Type | None:
        """The type in a comment `/* ty=T span=... */` that stands here; None where none does, or it cannot be read."""
        c = self.c
        place = c.stated.get(c.at)
        if place is None:
            return None
        text = c.source.text
        start = text.index("ty=", place[0]) + 3
        end = place[1] - 2
        span = text.find(" span=", start, end)
        tokens, at, depth = c.tokens, c.at, c.depth
        try:
            c.tokens, c.at = scan(c.source, start, span if span >= 0 else end).tokens, 0
            found = c.type()
            return found if c.next.kind == "end" else None
        except DeepxGraphError:
            return None
        finally:
            c.tokens, c.at, c.depth = tokens, at, depth


def _string(c: Parser, token: Token) -> str:
    try:
        return str(json.loads(token.text))
    except ValueError:
        c.fail("not a string", token=token)
