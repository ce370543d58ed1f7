"""The one language in which nodes are asked for, wherever nodes are chosen: `op:dot_general users>2 bytes>1M not name:~attn`.

    query = all {"or" all}       all = part {["and"] part}        part = ["not"] part | "(" query ")" | term
    term  = field ":" value | field sign number | flag | word     sign = "=" "!=" ">" ">=" "<" "<="

A `value` is a word, in which `*` stands for anything, or `~pattern`, a regular expression found anywhere; several, with commas
between them, are alternatives. A `word` alone is looked for in names and operations, and `#17` is the node of that number.
Every mistake is a UsageError that points into the text. Nothing is evaluated.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from deepx_graph.errors import Diagnostic, Source, Span, UsageError, suggest
from deepx_graph.ir import Function, Module, Node
from deepx_graph.session.query.facts import FLAGS, NUMBERS, RELATIONS, TEXTS, WORDS, Facts
from deepx_graph.text.common.cursor import whole

Test = Callable[[Facts, Node], bool]

MAX_TERMS = 200
MAX_NESTING = 50

_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    "=": operator.eq, "!=": operator.ne, ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, ":": operator.eq,
}  # fmt: skip
_DECIMAL = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_BINARY = {"": 1.0, "k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40}
_TOKEN = re.compile(
    r'\s*(?:(?P<sign>[()])|(?P<field>[A-Za-z_]+)(?P<is>!=|>=|<=|[:=<>])|(?P<text>"(?:[^"\\]|\\.)*")|(?P<word>[^\s()"]+))'
)
_VALUE = re.compile(r'"(?:[^"\\]|\\.)*"|(?:[^\s()"]|\([^\s()]*\))+')
_COMMA = re.compile(r",(?![^\[(]*[\])])")
"""A comma between alternatives: not one within brackets, as in `f32[2,3]`."""
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)([kmgtKMGT]?)(?:i?[bB])?")


@dataclass(frozen=True)
class Query:
    """A question about nodes. `text` is as it was asked, `measured` names what of it only a run can tell."""

    text: str
    test: Test
    measured: tuple[str, ...] = ()

    def matches(self, facts: Facts, node: Node) -> bool:
        """Whether a node of the function of `facts` is asked for."""
        return self.test(facts, node)

    def nodes(self, where: Module | Function | Facts) -> list[Node]:
        """The nodes that are asked for, in order; of a module those of the entry first."""
        return [n for facts in _facts(where) for n in facts.function.nodes if self.test(facts, n)]

    def __str__(self) -> str:
        return self.text


def _facts(where: Module | Function | Facts) -> Iterable[Facts]:
    if isinstance(where, Module):
        return map(Facts, where.entry_first)
    return (where if isinstance(where, Facts) else Facts(where),)


def parse_query(text: str) -> Query:
    """The query that a text asks; an empty one asks for every node. Raises UsageError, pointing at the mistake."""
    parser = _Parser(text)
    return Query(text.strip(), parser.query(), tuple(parser.measured))


def completions(text: str) -> list[str]:
    """How the last word of a half-written query may go on."""
    last = re.split(r"[\s()]", text)[-1]
    if last.partition(":")[1]:
        field, _, begun = last.partition(":")
        known = WORDS.get(field, lambda: ())()
        return [f"{field}:{v}" for v in known if v.startswith(begun) and v != begun]
    names = [*(f"{n}:" for n in (*TEXTS, *RELATIONS)), *(f"{n}>" for n in NUMBERS), *FLAGS, "not", "or"]
    return sorted(n for n in names if n.startswith(last)) if last else []


class _Parser:
    def __init__(self, text: str) -> None:
        self.source = Source("<query>", text)
        self.at = 0
        self.terms = self.nesting = 0
        self.measured: dict[str, None] = {}

    def query(self) -> Test:
        if not self.source.text.strip():
            return lambda facts, node: True
        found = self.any_of()
        if self.peek() is not None:
            self.fail("a parenthesis is closed that was not opened", self.at, len(self.source.text.rstrip()))
        return found

    def fail(self, message: str, start: int, end: int, expected: str | None = None, hint: str | None = None) -> NoReturn:
        raise UsageError(Diagnostic(message, Span(self.source, start, end), expected, hint))

    def peek(self) -> re.Match[str] | None:
        if not self.source.text[self.at :].strip():
            return None
        m = _TOKEN.match(self.source.text, self.at)
        if m is None:
            self.fail("a quote is not closed", self.at, len(self.source.text), expected='"')
        return m

    def take(self, *words: str) -> bool:
        m = self.peek()
        if m is None or (m["sign"] or m["word"]) not in words:
            return False
        self.at = m.end()
        return True

    def any_of(self) -> Test:
        tests = [self.all_of()]
        while self.take("or", "|", "||"):
            tests.append(self.all_of())
        return tests[0] if len(tests) == 1 else lambda facts, node: any(t(facts, node) for t in tests)

    def all_of(self) -> Test:
        tests = [self.part()]
        while (m := self.peek()) is not None and m["sign"] != ")" and m["word"] not in ("or", "|", "||"):
            self.take("and", "&", "&&")
            tests.append(self.part())
        return tests[0] if len(tests) == 1 else lambda facts, node: all(t(facts, node) for t in tests)

    def part(self) -> Test:
        negative = False
        while self.take("not", "!"):
            negative = not negative
        if self.take("("):
            opened = self.at
            self.nesting += 1
            if self.nesting > MAX_NESTING:
                self.fail(f"more than {MAX_NESTING} parentheses within each other", opened - 1, opened)
            test = self.any_of()
            if not self.take(")"):
                self.fail("a parenthesis is not closed", opened - 1, opened, expected="')'")
            self.nesting -= 1
        else:
            test = self.term()
        return (lambda facts, node: not test(facts, node)) if negative else test

    def term(self) -> Test:
        m = self.peek()
        self.terms += 1
        end = len(self.source.text)
        if m is None or m["sign"] or m["word"] in ("or", "|", "||", "and", "&", "&&"):
            self.fail("a term is missing", *(m.span(m.lastgroup or 0) if m else (end, end)), expected=_KNOWN)
        if self.terms > MAX_TERMS:
            self.fail(f"more than {MAX_TERMS} terms", m.start(), m.end())
        self.at = m.end()
        if m["field"]:
            return self.field(m)
        word, begin, stop = self.unquoted(m[0].strip()), m.start(m.lastgroup or 0), m.end()
        if m["word"] and word.startswith("!") and len(word) > 1:
            self.at = m.start("word") + 1
            inner = self.part()
            return lambda facts, node: not inner(facts, node)
        if m["word"] and word in FLAGS:
            self.measured |= {word: None} if FLAGS[word].measured else {}
            return FLAGS[word].test
        if m["word"] and word in (*TEXTS, *NUMBERS, *RELATIONS):
            self.fail(f"'{word}' needs a value", begin, stop, expected=f"{word}{'>1' if word in NUMBERS else ':VALUE'}")
        return _anywhere(word)

    def field(self, m: re.Match[str]) -> Test:
        name, sign = m["field"], m["is"]
        value = _VALUE.match(self.source.text, self.at)
        if value is None:
            self.fail(f"'{name}' has no value", m.start("field"), m.end(), expected=f"{name}{sign}VALUE")
        self.at = value.end()
        known = (*TEXTS, *NUMBERS, *RELATIONS)
        if name not in known:
            self.fail(f"no field '{name}'", *m.span("field"), expected=", ".join(sorted(known)), hint=suggest(name, known))
        if name in NUMBERS and not (name in TEXTS and sign == ":"):
            return self.number(name, sign, value)
        if sign not in (":", "=", "!="):
            self.fail(f"'{name}' is text and has no order", *m.span("is"), expected=":")
        if name in RELATIONS:
            return self.relation(name, value)
        texts = TEXTS[name].get
        fits = self.pattern(value)
        if sign == "!=":
            return lambda facts, node: not any(map(fits, texts(facts, node)))
        return lambda facts, node: any(map(fits, texts(facts, node)))

    def unquoted(self, text: str) -> str:
        return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text

    def pattern(self, value: re.Match[str]) -> Callable[[str], bool]:
        """Whether a text is what `value` asks for."""
        text = value[0]
        if text.startswith("~"):
            try:
                return _searching(re.compile(self.unquoted(text[1:]), re.IGNORECASE))
            except (re.error, RecursionError, OverflowError) as e:
                self.fail(f"no pattern: {e}", value.start() + 1, value.end(), expected="a regular expression")
        if text.startswith('"'):
            whole = self.unquoted(text)
            return lambda given: given == whole
        parts = [re.escape(p).replace(r"\*", ".*") for p in _COMMA.split(text) if p] or [""]
        globbed = re.compile("|".join(parts), re.DOTALL)
        return lambda given: globbed.fullmatch(given) is not None

    def number(self, name: str, sign: str, value: re.Match[str]) -> Test:
        m = _NUMBER.fullmatch(value[0])
        if m is None:
            what = f"'{name}' is compared with '{value[0]}'"
            self.fail(what, *value.span(), expected=f"a number, as in {name}>2 or {name}>=1.5M")
        field, compare = NUMBERS[name], _SIGNS[sign]
        self.measured |= {name: None} if field.measured else {}
        bound = float(m[1]) * (_BINARY if field.binary else _DECIMAL)[m[2].lower()]

        def test(facts: Facts, node: Node) -> bool:
            found = field.get(facts, node)
            return found is not None and compare(found, bound)

        return test

    def relation(self, name: str, value: re.Match[str]) -> Test:
        """Nodes that lie somewhere with respect to another, which is looked up once in each function."""
        fits = _anchor(self.unquoted(value[0]))
        reach = RELATIONS[name].reach
        cache: dict[int, tuple[Facts, frozenset[Node]]] = {}

        def test(facts: Facts, node: Node) -> bool:
            if id(facts) not in cache:
                anchors = (n for n in facts.function.nodes if fits(facts, n))
                cache[id(facts)] = facts, frozenset().union(*(reach(facts, a) for a in anchors))
            return node in cache[id(facts)][1]

        return test


def _searching(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda given: pattern.search(given) is not None


def _anchor(text: str) -> Test:
    """The node that is called so: by number, or by its whole name."""
    number = whole(text[1:])
    if text.startswith("#") and number is not None:
        return lambda facts, node: facts.number[node] == number
    return lambda facts, node: node.name == text


def _anywhere(word: str) -> Test:
    """A word alone: in the name or in the operation, or the number of a node."""
    if word.startswith("#") and whole(word[1:]) is not None:
        return _anchor(word)
    low = word.lower()
    return lambda facts, node: low in node.name.lower() or low in node.op.name


_KNOWN = "a field as in op:add, a flag such as const, or a word"


def describe() -> Iterator[tuple[str, str]]:
    """Every field and flag with what it means, for help."""
    yield from ((f"{name}:TEXT", f.summary) for name, f in TEXTS.items())
    yield from ((f"{name}>N", f.summary) for name, f in NUMBERS.items())
    yield from ((f"{name}:NODE", r.summary) for name, r in RELATIONS.items())
    yield from ((name, f.summary) for name, f in FLAGS.items())
