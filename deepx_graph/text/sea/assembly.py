"""Declarative assembly: how the uses of an op are written, from one line of its declaration; printer and reader are derived.

The line holds, in the order of the text: `$name`, an operand (a run of them for a variadic one) or attribute; `operands`, all of
them; other words and signs, which stand for themselves; and `( ... )?`, a part that is left out while all its attributes have
their defaults, and that begins with a word or sign. Attributes that the line does not name follow in braces. Example, of
transpose: `operands, dims = $permutation`, as in `%y = transpose %x, dims = [1, 0] : f32[3,2]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from deepx_graph.ir import Attr, Node, Op
from deepx_graph.ir.signature import SEGMENTS
from deepx_graph.text.sea.cursor import VALUE, SeaCursor

_TOKEN = re.compile(r"\$(\w+)|(\()|(\)\?)|(\w+|[^\w\s])")
_ONE = re.compile(VALUE, re.ASCII)
_RUN = re.compile(rf"{VALUE}(?:\s*,\s*{VALUE})*", re.ASCII)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class Keyword:
    """A word or sign of the text."""

    text: str


@dataclass(frozen=True)
class Operands:
    """The position of operands: of those of one name, or of all."""

    name: str = ""
    single: bool = False


@dataclass(frozen=True)
class Value:
    """The position of the value of an attribute."""

    attr: Attr


@dataclass(frozen=True)
class Part:
    """A part that may be missing."""

    elements: tuple[Keyword | Operands | Value, ...]


@dataclass(frozen=True)
class FormText:
    """The text at a cursor, for reading a form; `resolve` gives the nodes of a list of values that stands somewhere."""

    cursor: SeaCursor
    resolve: Callable[[str, int], tuple[Node, ...]]

    def word(self, text: str) -> bool:
        """Passes a word or sign if it comes next."""
        return self.cursor.accept_word(text) if text[0].isalpha() else self.cursor.accept(text)

    def need(self, text: str) -> None:
        """Passes a word or sign. Raises ParseError."""
        if not self.word(text):
            self.cursor.missing(text, "")

    def operands(self, single: bool) -> tuple[Node, ...]:
        """Passes one value, or any number of them. Raises ParseError."""
        found = self.cursor.match(_ONE if single else _RUN)
        if found is None and single:
            self.cursor.mismatch("a value, like %x")
        return self.resolve(found[0], found.start()) if found else ()

    def value(self, attr: Attr) -> Any:
        """Passes the value of an attribute; a word may stand without quotes. Raises ParseError."""
        if attr.kind == "str" and not self.cursor.peek('"'):
            return self.cursor.name(f"a word, {attr.check.words}" if attr.check else "a word")
        return self.cursor.value()


@dataclass(frozen=True)
class Assembly:
    """The form of one op; `named` are the attributes that it places."""

    elements: tuple[Keyword | Operands | Value | Part, ...]
    named: frozenset[str]

    def write(self, node: Node, operand: Callable[[Node], str], value: Callable[[Attr, Any], str]) -> str:
        """The text of a node after the name of its op, without the attributes that the form does not place."""
        words = list(self._words(self.elements, node, operand, value))
        text = ""
        for word in words:
            glued = not text or word in (",", "[", "]", ")") or text[-1] in "[("
            text += word if glued else f" {word}"
        return text

    def _words(self, elements: Sequence[Any], node: Node, operand: Callable[[Node], str],
               value: Callable[[Attr, Any], str]) -> Iterator[str]:
        for e in elements:
            match e:
                case Keyword(text):
                    yield text
                case Operands(name, single):
                    found = node.inputs if not name else node.operand(name)
                    yield ", ".join(map(operand, (found,) if single else found))
                case Value(attr):
                    yield value(attr, node.attr(attr.name))
                case Part(inner):
                    if any(isinstance(i, Value) and node.attr(i.attr.name) != i.attr.default for i in inner):
                        yield from self._words(inner, node, operand, value)

    def read(self, text: FormText) -> tuple[dict[str, Any], tuple[Node, ...]]:
        """Attributes by name, and the operands. Raises what `text` raises where the form is not met."""
        attrs: dict[str, Any] = {}
        operands: list[Node] = []
        self._read(self.elements, text, attrs, operands)
        return attrs, tuple(operands)

    def _read(self, elements: Sequence[Any], text: FormText, attrs: dict[str, Any], operands: list[Node]) -> None:
        for e in elements:
            match e:
                case Keyword(word):
                    text.need(word)
                case Operands(_, single):
                    operands += text.operands(single)
                case Value(attr):
                    attrs[attr.name] = text.value(attr)
                case Part(inner):
                    rest = _begun(inner, text)
                    if rest is not None:
                        self._read(rest, text, attrs, operands)


def _begun(inner: Sequence[Any], text: FormText) -> Sequence[Any] | None:
    """The rest of a part whose first words come next; None when they do not, and nothing is passed then."""
    start = text.cursor.at
    for k, e in enumerate(inner):
        if not isinstance(e, Keyword):
            return inner[k:]
        if not text.word(e.text):
            break
    text.cursor.at = start
    return None


@cache
def assembly_of(op: Op) -> Assembly:
    """The form that the op declares. Raises ValueError for a line that does not name what the op has, each once and in order."""
    assert op.assembly is not None
    elements: list[Any] = []
    inner: list[Any] | None = None
    named: list[str] = []
    for name, opened, closed, word in _TOKEN.findall(op.assembly):
        into = elements if inner is None else inner
        if opened:
            inner = []
        elif closed:
            elements.append(Part(tuple(inner or ())))
            inner = None
        else:
            into.append(_element(op, name, word))
            named += [o.name for o in op.operands] if word == "operands" else [name] if name else []
    operands = [n for n in named if n in op.operand_names]
    if operands != [o.name for o in op.operands] or len(set(named)) < len(named) or inner is not None:
        raise ValueError(f"the assembly of {op.name} does not name each operand once, in order: {op.assembly}")
    return Assembly(tuple(elements), frozenset(named))


def _element(op: Op, name: str, word: str) -> Keyword | Operands | Value:
    if not name:
        return Operands() if word == "operands" else Keyword(word)
    for operand in op.operands:
        if operand.name == name and SEGMENTS not in op.attr_index:
            return Operands(name, operand.single)
    if name not in op.attr_index:
        raise ValueError(f"the assembly of {op.name} names '{name}', which the op does not have")
    return Value(op.attrs[op.attr_index[name]])


def bare(attr: Attr, value: Any) -> bool:
    """Whether a form places this value as a plain word, without quotes."""
    return attr.kind == "str" and isinstance(value, str) and _WORD.fullmatch(value) is not None
