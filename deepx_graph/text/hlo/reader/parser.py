"""HLO text to its syntax tree: a scannerless parser by regular expressions over the whole text, with offsets on everything.

An instruction on one line with an array type, plain operands and short attributes (nearly all of them) is one match. Names,
operand types and attribute values are kept as they stand; the lowering interprets them. Nothing here recurses over the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from deepx_graph.errors import Diagnostic, LimitError, Source, Span
from deepx_graph.text.common.cursor import TextCursor
from deepx_graph.text.hlo.shapes import MAX_DEPTH, SPACE, ShapeError, is_plain, parse_shape, stated_array
from deepx_graph.text.hlo.syntax import NAME, OPERAND, Computation, HloInstruction, HloProgram, Raw
from deepx_graph.types import Type

_HEAD = re.compile(rf"HloModule\s+({NAME})")
_TABLE = re.compile(r"(FileNames|FunctionNames|FileLocations|StackFrames)\b")
_ROW = re.compile(r"[ \t]*(\d{1,9})[ \t]+([^\n]+)\n?")
_COMPUTATION = re.compile(rf"(ENTRY\s+)?%?({NAME})\s*")
_INSTRUCTION = re.compile(rf"(ROOT\s+)?%?({NAME})\s*=\s*")
_PLAIN_INSTRUCTION = re.compile(
    rf"\s*()(ROOT\s+)?%?({NAME})\s*=\s*([a-z]\w*)\[([\d,]*)\](\{{(?:\d+(?:,\d+)*)?\}})?\s+([a-z][\w\-]*)"
    rf"\(((?:%?{NAME}(?:,\s*%?{NAME})*)?)\)")
"""An array type and operands that are names (a number that is not negative looks like one); the empty group is where it begins."""
_OPCODE = re.compile(r"([a-z][\w\-]*)\s*\(")
_PLAIN = re.compile(r"[^()\"{}/]*")
_OPERAND = re.compile(rf"\s*%?({NAME})\s*(?:,|$)")
_TEXT = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_ATTRIBUTE = re.compile(rf"\s*,\s*([A-Za-z_][\w\-]*)\s*=\s*(\{{[^{{}}\"]*(?:{_TEXT}[^{{}}\"]*)*\}}|[\w.\->]+(?=[,\s]))?", re.DOTALL)
"""A name and, where it is a word or stands in one pair of braces, its value."""
_WORD = re.compile(r"[^\s,(){}\"\[\]]+(?:\[[^\]]*\])?(?:\{[^{}]*\})?")
_GROUPS = re.compile(r"\[[^\]]*\](?:<=\[[^\]]*\](?:T\([^)]*\))?)?")
_MESH = re.compile(r"mesh\[[^\]{}]*\](?:,\s*device_ids=\([^(){}]*(?:\([^(){}]*\))?\))?\s*\{[^{}]*\}")
_STRING = re.compile(_TEXT, re.DOTALL)
_OPEN_OR_CLOSE = re.compile(r'[(){}\[\]"]|/\*')
OPERANDLESS = frozenset({"constant", "parameter", "iota", "partition-id", "replica-id", "rng-get-and-update-state"})
"""Opcodes whose parentheses hold no operand names."""


@dataclass(slots=True)
class OperandNames:
    """The names of operands; where shapes stand beside them, these and where the names stand."""

    names: list[str] = field(default_factory=list)
    types: list[Type | None] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)


class HloParser(TextCursor):
    """One pass over a text. `program()` gives the tree or raises ParseError at the place."""

    BLANK = SPACE

    def __init__(self, source: Source, max_nodes: int) -> None:
        super().__init__(source, MAX_DEPTH)
        self.left = max_nodes

    # --- helpers

    def missing(self, word: str, what: str) -> NoReturn:
        self.fail(f"expected '{word}' {what}", expected=f"'{word}'")

    def skip(self) -> int:
        if not "/" < self.text[self.at : self.at + 1] <= "~":  # most signs and all words come at once
            super().skip()
            if self.text.startswith("/*", self.at):
                self.fail("a comment that does not end", end=self.at + 2, expected="*/")
        return self.at

    def shape(self) -> Type:
        self.skip()
        try:
            type, self.at = parse_shape(self.text, self.at)
        except ShapeError as e:
            self.fail(e.message, e.at, expected=e.expected)
        return type

    # --- module

    def program(self) -> HloProgram:
        name, attributes = "", {}
        if match := self.match(_HEAD):
            name = match[1]
            self.accept(":")
            attributes = self.attributes()
        tables = self.tables()
        computations: list[Computation] = []
        self.skip()
        while self.at < len(self.text):
            computations.append(self.computation())
            self.skip()
        if not computations:
            self.fail("the module has no computation", expected="ENTRY name { ... }")
        return HloProgram(self.source, name, attributes, computations, tables)

    def tables(self) -> dict[str, dict[int, str]]:
        found: dict[str, dict[int, str]] = {}
        while match := self.match(_TABLE):
            rows = found.setdefault(match[1], {})
            self.skip()
            while row := _ROW.match(self.text, self.at):
                rows[int(row[1])] = row[2]
                self.at = row.end()
        return found

    def computation(self) -> Computation:
        start = self.at
        match = self.match(_COMPUTATION)
        if not match:
            self.fail("expected a computation", expected="[ENTRY] name { ... }")
        params: list[Type] | None = None
        result: Type | None = None
        if self.accept("("):
            params = self.items(")", self.parameter)
            self.expect("->", "before the result's shape")
            result = self.shape()
        self.expect("{", f"to open the computation '{match[2]}'")
        instructions = self.instructions()
        end = self.at
        self.attributes()
        return Computation(match[2], instructions, bool(match[1]), start, end, params, result)

    def parameter(self) -> Type:
        """`name: shape`."""
        if not self.match(OPERAND):
            self.fail("expected a parameter", expected="name: shape")
        self.expect(":", "after the parameter's name")
        return self.shape()

    # --- instructions

    def instructions(self) -> list[HloInstruction]:
        found: list[HloInstruction] = []
        while True:
            if plain := _PLAIN_INSTRUCTION.match(self.text, self.at):
                found.append(self.plain(plain))
            elif self.accept("}"):
                break
            elif self.at >= len(self.text):
                self.fail("the text ends inside a computation", len(self.text) - 1, expected="'}'")
            else:
                found.append(self.instruction())
            self.left -= 1
            if self.left < 0:
                raise LimitError(Diagnostic("the module has too many instructions", Span(self.source, self.at, self.at + 1),
                                            hint="raise --max-nodes if you trust it"))
        if not found:
            self.fail("a computation without instructions", self.at - 1, expected="instructions")
        return found

    def instruction(self) -> HloInstruction:
        start = self.at
        match = self.match(_INSTRUCTION)
        if not match:
            self.fail("expected an instruction", expected="[ROOT] name = shape opcode(operands)")
        type = self.shape()
        shape = self.text[match.end() : self.at]
        opcode = self.match(_OPCODE)
        if not opcode:
            self.fail("expected an operation", expected="opcode(")
        payload = self.parenthesised()
        operands = OperandNames() if opcode[1] in OPERANDLESS else self.operands(payload)
        attributes = self.attributes()
        return HloInstruction(match[2], type, opcode[1], payload, operands.names, attributes, bool(match[1]), start, self.at,
                              operands.types, operands.starts, "" if is_plain(shape) else shape)

    def plain(self, match: re.Match[str]) -> HloInstruction:
        """An instruction with an array type and operands that are names alone, up to its attributes: one match."""
        _, root, name, dtype, dims, layout, opcode, payload = match.groups()
        self.at = match.end()
        try:
            type, shape = stated_array(dtype, dims, layout)
        except ShapeError as e:
            self.fail(e.message, match.start(4), expected=e.expected)
        operands = [] if opcode in OPERANDLESS else OPERAND.findall(payload)
        attributes = self.attributes()
        return HloInstruction(name, type, opcode, Raw(payload, match.start(8)), operands, attributes, root is not None,
                              match.start(1), self.at, shape=shape)

    def parenthesised(self) -> Raw:
        """The text up to the parenthesis that closes; the opening one is already read."""
        start = self.at
        plain = _PLAIN.match(self.text, start)
        if plain and self.text.startswith(")", plain.end()):
            self.at = plain.end() + 1
            return Raw(plain[0], start)
        self.at = self.balanced(start, ")")
        return Raw(self.text[start : self.at - 1], start)

    def balanced(self, at: int, close: str) -> int:
        """The offset after the bracket that closes what was opened just before `at`."""
        stack = [close]
        pairs = {"(": ")", "{": "}", "[": "]"}
        while stack:
            match = _OPEN_OR_CLOSE.search(self.text, at)
            if not match:
                self.fail("a bracket that does not close", at, expected=f"'{stack[-1]}'")
            mark, at = match[0], match.end()
            if mark == '"':
                string = _STRING.match(self.text, match.start())
                if not string:
                    self.fail("a string that does not end", match.start(), expected='"')
                at = string.end()
            elif mark == "/*":
                comment = SPACE.match(self.text, match.start())
                at = comment.end() if comment and comment.end() > match.start() else at
            elif mark in pairs:
                stack.append(pairs[mark])
            elif mark == stack[-1]:
                stack.pop()
            else:
                self.fail(f"'{mark}' closes nothing here", match.start(), expected=f"'{stack[-1]}'")
        return at

    def operands(self, payload: Raw) -> OperandNames:
        found = OperandNames()
        at, end = 0, len(payload.text)
        while at < end:
            match = _OPERAND.match(payload.text, at)
            if not match:
                return self.operands_with_shapes(payload)
            found.names.append(match[1])
            at = match.end()
        return found

    def operands_with_shapes(self, payload: Raw) -> OperandNames:
        """Operands as `shape %name`, with comments between."""
        found = OperandNames()
        end, after = payload.start + len(payload.text), self.at
        self.at = payload.start
        self.skip()
        while self.at < end:
            type: Type | None = None
            match = OPERAND.match(self.text, self.at)
            if not match or self.text.startswith("[", match.end()):
                type = self.shape()
                self.skip()
                match = OPERAND.match(self.text, self.at)
                if not match or match.end() > end:
                    self.fail("expected an operand's name", expected="%name")
            found.names.append(match[1])
            found.types.append(type)
            found.starts.append(match.start(1))
            self.at = match.end()
            self.skip()
            if self.at < end and not self.accept(","):
                self.fail("expected ',' between operands", expected="','")
            self.skip()
        self.at = after
        return found

    def attributes(self) -> dict[str, Raw]:
        found: dict[str, Raw] = {}
        text = self.text
        while match := _ATTRIBUTE.match(text, self.at):
            name, value = match.groups()
            start = self.at = match.end()
            if value is None:
                self.value()
                value = text[start : self.at]
            else:
                start -= len(value)
            if name in found:
                self.fail(f"the attribute '{name}' stands twice", match.start(1), match.end(1))
            found[name] = Raw(value, start)
        return found

    def value(self) -> None:
        """Move over one attribute value."""
        text, at = self.text, self.at
        first = text[at : at + 1]
        if first == "{":
            self.at = self.balanced(at + 1, "}")
        elif first == "(":
            self.at = self.balanced(at + 1, ")")
        else:
            pattern = _STRING if first == '"' else _GROUPS if first == "[" else _WORD
            match = _MESH.match(text, at) or pattern.match(text, at)
            if not match:
                self.fail("expected the attribute's value", expected="a word, a number, {...} or \"...\"")
            self.at = match.end()
