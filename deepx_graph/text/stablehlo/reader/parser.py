"""StableHLO text to its syntax tree. One shape of pretty form serves nearly every operation: operands, words, `name = value` pairs,
brackets and regions in any order up to the colon, then the types. `reduce`, `while` and functions have forms of their own: `forms`.
"""

from __future__ import annotations

import re
from typing import Any

from deepx_graph.errors import Diagnostic, LimitError, Source, Span
from deepx_graph.text.stablehlo.notes import is_foreign
from deepx_graph.text.stablehlo.reader.attributes import AttributeScanner
from deepx_graph.text.stablehlo.reader.dialects import canonical, is_mistaken, nearest
from deepx_graph.text.stablehlo.reader.forms import FORMS
from deepx_graph.text.stablehlo.reader.rules import RULES
from deepx_graph.text.stablehlo.syntax import BlockArgument, Operation, RegionBlock
from deepx_graph.types import FunctionType

_NAME = re.compile(r'"([\w$.\-]+)"|([A-Za-z_][\w$]*(?:\.[\w$]+)*)')
_KEY = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_SLICE = re.compile(r"\[[\d:,\s]*\]")
_LABEL = re.compile(r"\^[\w$.\-]+")
_COUNT = re.compile(r":(\d+)")
_RESULT = re.compile(r"%[\w$.\-]+")
_LINE_END = re.compile(r"[ \t]*(//[^\n]*)?(\n(?!\s*([:{(]|[a-z_]\w*\s*=))|$|\})")
_DIRECTIVE = re.compile(r"(#[\w$.]+)\s*=\s*")
_DEFAULT_DIALECT = {"call": "func.call", "return": "func.return", "func": "func.func", "module": "builtin.module"}


class MlirParser(AttributeScanner):
    """One pass over a text."""

    def __init__(self, source: Source, max_nodes: int) -> None:
        super().__init__(source)
        self.left = max_nodes
        self.aliases: dict[str, str] = {}
        """Locations by alias: `#loc3`, and what stands between the parentheses."""
        self.named: list[int] = []
        """How many results the operations around the cursor name, the innermost last."""
        self.module: Operation | None = None

    def program(self) -> list[Operation]:
        """The functions of the module."""
        found: list[Operation] = []
        while True:
            self.skip()
            if self.at >= len(self.text):
                break
            if directive := self.match(_DIRECTIVE):
                self._alias(directive[1])
                continue
            found.append(self.operation())
        while len(found) == 1 and found[0].name == "builtin.module":
            self.module = found[0]
            found = [op for block in found[0].regions[0] for op in block.operations]
        if not found:
            self.fail("the text holds no function", 0, expected="func.func @main(...) { ... }")
        return found

    def _alias(self, name: str) -> None:
        """Aliases of attributes are read over."""
        if location := self.location():
            self.aliases[name] = location
        else:
            self.attribute()

    def block_operations(self) -> list[Operation]:
        found: list[Operation] = []
        while not self.peek("}") and not self.peek("^"):
            if self.at >= len(self.text):
                self.fail("the text ends inside a region", expected="'}'")
            found.append(self.operation())
        return found

    def region(self) -> list[RegionBlock]:
        """After `{`: blocks up to `}`."""
        blocks: list[RegionBlock] = []
        with self.nested():
            if not self.peek("^"):
                blocks.append(RegionBlock([], self.block_operations()))
            while self.match(_LABEL):
                args = self.block_args() if self.accept("(") else []
                self.expect(":", "after the block's label")
                blocks.append(RegionBlock(args, self.block_operations()))
            self.expect("}", "at the end of a region")
        return blocks

    def block_args(self) -> list[BlockArgument]:
        """Up to `)`: `%name: type {attributes} loc(...)`."""
        args: list[BlockArgument] = []
        while not self.accept(")"):
            name = self.value_name()
            if not name:
                self.fail("expected an argument", expected="%name: type")
            self.expect(":", "before the argument's type")
            type = self.type()
            attributes = self.dictionary("}") if self.accept("{") else {}
            args.append(BlockArgument(name[0], type, name[1], self.location(), attributes))
            if not self.accept(","):
                self.expect(")")
                break
        return args

    # --- operations

    def operation(self) -> Operation:
        self.skip()
        start = self.at
        self.left -= 1
        if self.left < 0:
            raise LimitError(Diagnostic("the module has too many operations", Span(self.source, start, start + 1),
                                        hint="raise --max-nodes if you trust it"))
        results = self.results()
        self.named.append(_total(results))
        found = self.match(_NAME)
        if not found:
            self.fail("expected an operation", expected="dialect.operation")
        name = self.known(found[1] or found[2], found.end() - bool(found[1]))
        if found[1]:
            op = self.generic(name, [n for n, _ in results], start)
        else:
            special = FORMS.get(name)
            names = [n for n, _ in results]
            op = special(self, name, names, start) if special else self.pretty(name, names, start)
        if self.named.pop() > len(results):
            op.results = self.numbered(results, op)
        op.location = self.location()
        op.end = self.at
        return op

    def known(self, written: str, end: int) -> str:
        """The name that rules have for an operation. Raises ParseError where its dialect is one of ours and has none such."""
        name = canonical(_DEFAULT_DIALECT.get(written, written), RULES)
        if is_mistaken(name, RULES):
            self.fail(f"unknown operation '{written}'", end - len(written), end, hint=nearest(written, RULES))
        return name

    def results(self) -> list[tuple[str, int | None]]:
        """The names before `=`, each with the number of results that it stands for, where the text gives one."""
        names: list[tuple[str, int | None]] = []
        if not self.peek("%"):
            return names
        while found := self.match(_RESULT):
            count = self.match(_COUNT) if self.text.startswith(":", self.at) else None
            if count and not int(count[1]):
                self.fail("a name for no result", count.start(), count.end(), expected="a number from 1 on")
            names.append((found[0], int(count[1]) if count else None))
            if not self.accept(","):
                break
        self.expect("=", "after the results")
        return names

    def numbered(self, results: list[tuple[str, int | None]], op: Operation) -> list[str]:
        """A name for every result: `%x#0`, `%x#1` of `%x:2`. There are as many as types, which the text holds."""
        total = _total(results)
        if total != len(op.result_types):
            self.fail(f"{total} results are named and {op.name} has types for {len(op.result_types)}", op.start)
        return [n for name, count in results for n in ([name] if count is None else [f"{name}#{k}" for k in range(count)])]

    def generic(self, name: str, results: list[str], start: int) -> Operation:
        """`"dialect.op"(operands) <{properties}> ({regions}) {attributes} : (types) -> types`."""
        self.expect("(", "before the operands")
        operands = self.operand_list(")")
        attributes: dict[str, Any] = {}
        regions: list[list[RegionBlock]] = []
        if self.accept("<{"):
            attributes |= self.dictionary("}")
            self.expect(">")
        if self.accept("("):
            while self.accept("{"):
                regions.append(self.region())
                if not self.accept(","):
                    break
            self.expect(")", "after the regions")
        if self.accept("{"):
            attributes |= self.dictionary("}")
        self.expect(":", "before the types")
        type = self.type()
        if not isinstance(type, FunctionType):
            self.fail("expected a function type", expected="(types) -> types")
        return Operation(name, results, operands, attributes, [], regions, list(type.params), list(type.results), start, self.at)

    def operand_list(self, close: str) -> list[tuple[str, int]]:
        operands: list[tuple[str, int]] = []
        while not self.accept(close):
            name = self.value_name()
            if not name:
                self.fail("expected an operand", expected="%name")
            operands.append(name)
            if not self.accept(","):
                self.expect(close)
                break
        return operands

    def pretty(self, name: str, results: list[str], start: int) -> Operation:
        """Anything up to the colon, then types. A line's end ends the operation, unless a comma stands before it."""
        op = Operation(name, results, [], {}, [], [], [], [], start, start)
        goes_on = False
        while (goes_on or not self.match_here(_LINE_END)) and not self.peek(":") and self._part(op):
            goes_on = not self.match_here(_LINE_END) and self.accept(",")
        if not self.match_here(_LINE_END) and self.accept(":"):
            self.signature(op)
        return op

    def match_here(self, pattern: re.Pattern[str]) -> bool:
        """Whether the pattern stands at the cursor, white space included."""
        return pattern.match(self.text, self.at) is not None

    def _part(self, op: Operation) -> bool:
        """One piece of the pretty form; False where none stands."""
        mark = self.at
        if operand := self.value_name():
            op.operands.append(operand)
            if slices := self.match(_SLICE):
                op.extra["slice"] = slices[0]
        elif self.peek("loc("):
            return False
        elif key := self.match(_KEY):
            op.attributes[key[1]] = self.attribute(bare=True)
        elif (symbol := self.symbol()) is not None:
            op.extra["symbol"] = symbol
        elif self.accept("("):
            self._parenthesised(op)
        elif self.accept("{"):
            op.attributes |= self.dictionary("}")
        elif self.accept("dense<"):
            op.attributes["value"] = self.dense()
            op.result_types = [op.attributes["value"].type] if op.results and op.attributes["value"].type else []
        elif slices := self.match(_SLICE):
            op.extra["slice"] = slices[0]
        elif is_foreign(op.name) and (self.accept("=") or self.peek("<")):  # a form that another dialect gives its meaning
            if not self.peek("<"):
                return True
            start, self.at = self.at, self.closing("<", ">")
            op.extra["form"] = self.text[start : self.at]
        elif string := self.match(_STRING):
            op.extra["string"] = string[1]
        elif word := self.match(_WORD):
            if "." in self.text[word.end() : word.end() + 1] or self.text.startswith("=", word.end() + 1):
                self.at = mark
                return False
            op.words.append(word[0])
        else:
            return False
        return True

    def _parenthesised(self, op: Operation) -> None:
        while not self.accept(")"):
            if not self._part(op):
                self.fail("expected an operand", expected="%name")
            if not self.accept(","):
                self.expect(")")
                break

    def signature(self, op: Operation) -> None:
        """`type`, `type, type`, `type -> types` or `(types) -> types`."""
        types = [self.type()]
        while self.accept(","):
            types.append(self.type())
        if self.accept("->"):
            op.operand_types, op.result_types = types, self.result_types()
        elif len(types) == 1 and isinstance(types[0], FunctionType):
            op.operand_types, op.result_types = list(types[0].params), list(types[0].results)
        else:
            op.operand_types = types
            count = self.named[-1]
            each = len(types) == 1 and count == len(op.operands)
            op.result_types = [] if count == 0 else types[-1:] if count == 1 else types * count if each else types


def _total(results: list[tuple[str, int | None]]) -> int:
    return sum(1 if count is None else count for _, count in results)
