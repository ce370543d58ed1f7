"""The text of a pipeline: `inline{max-nodes=200},sccp,cse`, read into passes and printed back.

    pipeline = item {"," item}          item  = name [ "{" option { (" " | ",") option } "}" ]
    option   = name [ "=" value ]       value = word | '"' text '"'

Option names are a pass's field names with `-` for `_`; `true` may be left out. The name of a pipeline stands for its passes.
Every mistake is a UsageError that points into the text. Nothing is ever evaluated.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

from deepx_graph.errors import Diagnostic, Source, Span, UsageError, suggest
from deepx_graph.rewrite.base import Pass

_TOKEN = re.compile(r'[^\S\n]*(?:(?P<word>[^\s,{}="]+)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<sign>[,{}=]))|(?P<space>\s+)')
_PLAIN = re.compile(r'[^\s,{}="]+')
MAX_PASSES = 1000


def option_types(pass_: type[Pass]) -> dict[str, Any]:
    """Option name, as written in a pipeline, to its type."""
    hints = get_type_hints(pass_)
    return {f.name.replace("_", "-"): hints[f.name] for f in dataclasses.fields(pass_)}


def describe_options(pass_: type[Pass]) -> str:
    """`max-nodes=200 fast-math=false`: the options with their defaults; `no options` where there are none."""
    shown = [_show(f.name, None if f.default is dataclasses.MISSING else f.default) for f in dataclasses.fields(pass_)]
    return " ".join(shown) or "no options"


def format_pass(pass_: Pass) -> str:
    """The canonical text of one pass: options that are not the default, in the order of the fields."""
    given = [(f.name, getattr(pass_, f.name)) for f in dataclasses.fields(pass_) if getattr(pass_, f.name) != f.default]
    return pass_.name + (f"{{{' '.join(_show(*g) for g in given)}}}" if given else "")


def _show(name: str, value: Any) -> str:
    return f"{name.replace('_', '-')}={_show_value(value)}"


def _show_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = ",".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)
    if _PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _bool(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _words(text: str) -> tuple[str, ...]:
    return tuple(w.strip() for w in text.split(",") if w.strip())


_READERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    int: (int, "a whole number"), float: (float, "a number"), bool: (_bool, "true or false"), str: (str, "text"),
    tuple: (_words, 'names, as "a,b"'),
}  # fmt: skip


def _reader(type: Any) -> tuple[Callable[[str], Any], str]:
    if get_origin(type) is tuple:
        return _READERS[tuple]
    for member in get_args(type):  # an optional option: its other type
        if member in _READERS or get_origin(member) is tuple:
            return _reader(member)
    return _READERS[type]


class PipelineReader:
    """Reads one pipeline text against a table of passes and of named pipelines."""

    def __init__(self, text: str, passes: Mapping[str, type[Pass]], pipelines: Mapping[str, str]) -> None:
        self.source = Source("<pipeline>", text)
        self.passes, self.pipelines = passes, pipelines
        self.tokens = [m for m in _TOKEN.finditer(text) if m.lastgroup != "space"]
        self.at = 0
        covered = sum(m.end() - m.start() for m in _TOKEN.finditer(text))
        if covered < len(text):
            bad = next(k for k in range(len(text)) if not any(m.start() <= k < m.end() for m in _TOKEN.finditer(text)))
            self._fail("a quote is not closed", Span(self.source, bad, len(text)), expected='"')

    def read(self) -> list[Pass]:
        """The passes. Raises UsageError with the place of the first mistake."""
        made = self._item()
        while self._take(","):
            made += self._item()
            if len(made) > MAX_PASSES:
                self._fail(f"more than {MAX_PASSES} passes", self._here())
        if self.at < len(self.tokens):
            self._fail(f"unexpected '{self._peek()}'", self._here(), expected="',' or the end of the pipeline")
        return made

    def _peek(self) -> str:
        return self.tokens[self.at].group().strip() if self.at < len(self.tokens) else ""

    def _here(self) -> Span:
        if self.at >= len(self.tokens):
            return Span(self.source, len(self.source.text), len(self.source.text))
        m = self.tokens[self.at]
        return Span(self.source, *m.span(m.lastgroup or 0))

    def _take(self, sign: str) -> bool:
        found = self._peek() == sign
        self.at += found
        return found

    def _name(self, what: str) -> tuple[str, Span]:
        span = self._here()
        if self.at >= len(self.tokens) or self.tokens[self.at].lastgroup != "word":
            self._fail(f"{what} is missing", span, expected=what)
        self.at += 1
        return span.text, span

    def _fail(self, message: str, span: Span, expected: str | None = None, hint: str | None = None) -> NoReturn:
        raise UsageError(Diagnostic(message, span, expected, hint))

    def _item(self) -> list[Pass]:
        name, span = self._name("the name of a pass")
        if name in self.pipelines:
            return PipelineReader(self.pipelines[name], self.passes, {}).read()
        if name not in self.passes:
            known = sorted((*self.passes, *self.pipelines))
            self._fail(f"no pass '{name}'", span, expected="one of " + ", ".join(known), hint=suggest(name, known))
        pass_ = self.passes[name]
        given = self._options(pass_) if self._take("{") else {}
        for f in dataclasses.fields(pass_):
            if f.name not in given and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
                self._fail(f"pass '{name}' needs the option '{f.name.replace('_', '-')}'", span)
        try:
            return [pass_(**given)]
        except UsageError as e:  # a pass may check its own options
            raise UsageError(*(dataclasses.replace(d, span=d.span or span) for d in e.diagnostics)) from None

    def _options(self, pass_: type[Pass]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        types = option_types(pass_)
        while not self._take("}"):
            name, span = self._name("an option or '}'")
            if name not in types:
                self._fail(f"pass '{pass_.name}' has no option '{name}'", span, expected=describe_options(pass_),
                           hint=suggest(name, types))
            field = name.replace("-", "_")
            if field in given:
                self._fail(f"option '{name}' is given twice", span)
            given[field] = self._value(name, types[name], span)
            self._take(",")
        return given

    def _value(self, name: str, type: Any, span: Span) -> Any:
        convert, what = _reader(type)
        if not self._take("="):
            if type is not bool:
                self._fail(f"option '{name}' has no value", span, expected=f"{name}={what}")
            return True
        at = self._here()
        if self.at >= len(self.tokens) or self.tokens[self.at].lastgroup == "sign":
            self._fail(f"option '{name}' has no value", at, expected=what)
        self.at += 1
        text = re.sub(r"\\(.)", r"\1", at.text[1:-1]) if at.text.startswith('"') else at.text
        try:
            return convert(text)
        except (ValueError, KeyError):
            self._fail(f"option '{name}' is '{text}'", at, expected=what)
