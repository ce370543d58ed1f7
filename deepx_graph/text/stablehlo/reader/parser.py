"""StableHLO text to its syntax tree. One shape of pretty form serves nearly every operation: operands, words, `name = value` pairs,
brackets and regions in any order up to the colon, then the types. `reduce`, `while` and functions have forms of their own: `forms`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from deepx_graph.errors import Diagnostic, LimitError, Source, Span
from deepx_graph.text.stablehlo.notes import is_foreign
from deepx_graph.text.stablehlo.reader.forms import FORMS
from deepx_graph.text.stablehlo.reader.rules import RULES, canonical, is_mistaken, nearest
from deepx_graph.text.stablehlo.reader.scanner import STRING, MlirCursor
from deepx_graph.text.stablehlo.syntax import BlockArgument, Operation, ParsedProgram, RegionBlock, unwrapped
from deepx_graph.types import FunctionType

_NAME = re.compile(r'"([\w$.\-]+)"|([A-Za-z_][\w$]*(?:\.[\w$]+)*)')
_KEY = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_SLICE = re.compile(r"\[[\d:,\s]*\]")
_LABEL = re.compile(r"\^[\w$.\-]+")
_COUNT = re.compile(r":(\d+)")
_RESULT = re.compile(r"%[\w$.\-]+")
_LINE_END = re.compile(r"[ \t]*(//[^\n]*)?(\n(?!\s*([:{(]|[a-z_]\w*\s*=))|$|\})")
_DIRECTIVE = re.compile(r"(#[\w$.]+)\s*=\s*")
_DEFAULT_DIALECT = {"call": "func.call", "return": "func.return", "func": "func.func", "module": "builtin.module"}


class MlirParser:
    """One pass over a text."""

    def __init__(self, source: Source, max_nodes: int, unregistered: bool = False) -> None:
        self.cursor = MlirCursor(source)
        self.left, self.unregistered = max_nodes, unregistered
        self.aliases: dict[str, str] = {}
        """Locations by alias: `#loc3`, and what stands between the parentheses."""
        self.named: list[int] = []
        """How many results the operations around the cursor name, the innermost last."""

    def program(self) -> ParsedProgram:
        """All that the text holds."""
        c = self.cursor
        found: list[Operation] = []
        while True:
            c.skip()
            if c.at >= len(c.text):
                break
            if directive := c.match(_DIRECTIVE):
                self._alias(directive[1])
                continue
            found.append(self.operation())
        module, functions = unwrapped(found)
        if not functions:
            c.fail("the text holds no function", 0, expected="func.func @main(...) { ... }")
        return ParsedProgram(functions, self.aliases, module)

    def _alias(self, name: str) -> None:
        """Aliases of attributes are read over."""
        if location := self.cursor.location():
            self.aliases[name] = location
        else:
            self.cursor.attribute()

    def block_operations(self) -> list[Operation]:
        c = self.cursor
        found: list[Operation] = []
        while not c.peek("}") and not c.peek("^"):
            if c.at >= len(c.text):
                c.fail("the text ends inside a region", expected="'}'")
            found.append(self.operation())
        return found

    def region(self, args: Sequence[BlockArgument] = ()) -> list[RegionBlock]:
        """After `{`: blocks up to `}`; `args` are those of the first, where it has no label."""
        c = self.cursor
        blocks: list[RegionBlock] = []
        with c.nested():
            if not c.peek("^"):
                blocks.append(RegionBlock(list(args), self.block_operations()))
            while c.match(_LABEL):
                args = self.block_args() if c.accept("(") else []
                c.expect(":", "after the block's label")
                blocks.append(RegionBlock(args, self.block_operations()))
            c.expect("}", "at the end of a region")
        return blocks

    def block_args(self) -> list[BlockArgument]:
        """Up to `)`: `%name: type {attributes} loc(...)`."""
        return self.cursor.items(")", self._block_arg)

    def _block_arg(self) -> BlockArgument:
        c = self.cursor
        name, at = c.need_value("an argument", "%name: type")
        c.expect(":", "before the argument's type")
        type = c.type()
        attributes = c.dictionary("}") if c.accept("{") else {}
        return BlockArgument(name, type, at, c.location(), attributes)

    # --- operations

    def operation(self) -> Operation:
        c = self.cursor
        c.skip()
        start = c.at
        self.left -= 1
        if self.left < 0:
            raise LimitError(Diagnostic("the module has too many operations", Span(c.source, start, start + 1),
                                        hint="raise --max-nodes if you trust it"))
        results = self.results()
        self.named.append(_total(results))
        found = c.match(_NAME)
        if not found:
            c.fail("expected an operation", expected="dialect.operation")
        name = self.known(found[1] or found[2], found.end() - bool(found[1]))
        op = Operation(name, [n for n, _ in results], start, start)
        form = MlirParser.generic if found[1] else FORMS.get(name, MlirParser.pretty)
        form(self, op)
        if self.named.pop() > len(results):
            op.results = self.numbered(results, op)
        op.location = c.location() or op.location
        op.end = c.at
        return op

    def known(self, written: str, end: int) -> str:
        """The name that rules have for an operation. Raises ParseError where its dialect is one of ours and has none such."""
        name = _DEFAULT_DIALECT.get(written, written)
        if name in RULES:
            return name
        name = canonical(name)
        if is_mistaken(name) and not self.unregistered:
            self.cursor.fail(f"unknown operation '{written}'", end - len(written), end, hint=nearest(written))
        return name

    def results(self) -> list[tuple[str, int | None]]:
        """The names before `=`, each with the number of results that it stands for, where the text gives one."""
        c = self.cursor
        names: list[tuple[str, int | None]] = []
        if not c.peek("%"):
            return names
        while found := c.match(_RESULT):
            count = c.match(_COUNT) if c.text.startswith(":", c.at) else None
            if count and not int(count[1]):
                c.fail("a name for no result", count.start(), count.end(), expected="a number from 1 on")
            names.append((found[0], int(count[1]) if count else None))
            if not c.accept(","):
                break
        c.expect("=", "after the results")
        return names

    def numbered(self, results: list[tuple[str, int | None]], op: Operation) -> list[str]:
        """A name for every result: `%x#0`, `%x#1` of `%x:2`. There are as many as types, which the text holds."""
        total = _total(results)
        if total != len(op.result_types):
            self.cursor.fail(f"{total} results are named and {op.name} has types for {len(op.result_types)}", op.start)
        return [n for name, count in results for n in ([name] if count is None else [f"{name}#{k}" for k in range(count)])]

    def generic(self, op: Operation) -> None:
        """`"dialect.op"(operands) <{properties}> ({regions}) {attributes} : (types) -> types`."""
        c = self.cursor
        c.expect("(", "before the operands")
        op.operands = self.operands()
        if c.accept("<{"):
            op.attributes = c.dictionary("}")
            c.expect(">")
        if c.accept("("):
            while c.accept("{"):
                op.regions.append(self.region())
                if not c.accept(","):
                    break
            c.expect(")", "after the regions")
        if c.accept("{"):
            op.attributes |= c.dictionary("}")
        c.expect(":", "before the types")
        type = c.type()
        if not isinstance(type, FunctionType):
            c.fail("expected a function type", expected="(types) -> types")
        op.operand_types, op.result_types = list(type.params), list(type.results)

    def operands(self) -> list[tuple[str, int]]:
        """Up to `)`."""
        return self.cursor.items(")", lambda: self.cursor.need_value("an operand", "%name"))

    def pretty(self, op: Operation) -> None:
        """Anything up to the colon, then types. A line's end ends the operation, unless a comma stands before it."""
        goes_on = False
        while (goes_on or not self.match_here(_LINE_END)) and not self.cursor.peek(":") and self._part(op):
            goes_on = not self.match_here(_LINE_END) and self.cursor.accept(",")
        if not self.match_here(_LINE_END) and self.cursor.accept(":"):
            self.signature(op)

    def match_here(self, pattern: re.Pattern[str]) -> bool:
        """Whether the pattern stands at the cursor, white space included."""
        return pattern.match(self.cursor.text, self.cursor.at) is not None

    def _part(self, op: Operation) -> bool:
        """One piece of the pretty form; False where none stands."""
        c = self.cursor
        first = c.text[c.skip() : c.at + 1]
        if first.isalpha() or first == "_":
            return self._word(op)
        if operand := c.value_name():
            op.operands.append(operand)
            if slices := c.match(_SLICE):
                op.extra["slice"] = slices[0]
        elif (symbol := c.symbol()) is not None:
            op.extra["symbol"] = symbol
        elif c.accept("("):
            self._parenthesised(op)
        elif c.accept("{"):
            op.attributes |= c.dictionary("}")
        elif slices := c.match(_SLICE):
            op.extra["slice"] = slices[0]
        elif is_foreign(op.name) and (c.accept("=") or c.peek("<")):  # a form that another dialect gives its meaning
            c.accept("#sdy.mesh")
            if not c.peek("<"):
                return True
            start, c.at = c.at, c.closing("<", ">")
            op.extra["form"] = c.text[start : c.at]
        elif string := c.match(STRING):
            op.extra["string"] = string[1]
        else:
            return False
        return True

    def _word(self, op: Operation) -> bool:
        """`name = value`, a dense constant or a bare word; False where none stands."""
        c, mark = self.cursor, self.cursor.at
        if c.peek("loc("):
            return False
        if key := c.match(_KEY):
            op.attributes[key[1]] = c.attribute(bare=True)
        elif c.accept("dense<"):
            op.attributes["value"] = c.dense()
            op.result_types = [op.attributes["value"].type] if op.results and op.attributes["value"].type else []
        elif word := c.match(_WORD):
            if "." in c.text[word.end() : word.end() + 1] or c.text.startswith("=", word.end() + 1):
                c.at = mark
                return False
            op.words.append(word[0])
        return c.at > mark

    def _parenthesised(self, op: Operation) -> None:
        def part() -> None:
            if not self._part(op):
                self.cursor.fail("expected an operand", expected="%name")

        self.cursor.items(")", part)

    def signature(self, op: Operation) -> None:
        """`type`, `type, type`, `type -> types` or `(types) -> types`."""
        types = self.cursor.types()
        if self.cursor.accept("->"):
            op.operand_types, op.result_types = types, self.cursor.result_types()
        elif len(types) == 1 and isinstance(types[0], FunctionType):
            op.operand_types, op.result_types = list(types[0].params), list(types[0].results)
        else:
            op.operand_types = types
            count = self.named[-1]
            each = len(types) == 1 and count == len(op.operands)
            op.result_types = [] if count == 0 else types[-1:] if count == 1 else types * count if each else types


def _total(results: list[tuple[str, int | None]]) -> int:
    return sum([1 if count is None else count for _, count in results])
