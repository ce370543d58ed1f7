"""Pipelines: named ones, their text, and running them under observers.

    run_pipeline(module, parse_pipeline("default"), [Verify(), Timing()])

    pipeline = item {"," item}          item  = pass | anchor "(" [ pipeline ] ")" | "fix" [options] "(" pipeline ")"
    pass     = name [options]           options = "{" option { (" " | ",") option } "}"
    option   = name [ "=" value ]       value = word | '"' text '"' | word { "," word }

`builtin.module(...)` and `func.func(...)`, as MLIR writes them, say where passes work; ours work on the whole module, so they are
left out of the canonical text. `fix{rounds=10}(...)` repeats its passes until nothing changes any more.

Option names are a pass's field names with `-` for `_`; `true` may be left out. The name of a pipeline stands for its passes.
Every mistake in a text is a UsageError that points into it.

Passes run one after the other on whole modules; between them observers look on. A failure inside a pass that is not a user's
error is wrapped as PassError, which names the pass.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, get_args, get_origin, get_type_hints

from deepx_graph.cycles import no_collection
from deepx_graph.errors import DeepxGraphError, Diagnostic, Source, Span, UsageError, is_interrupt, suggest
from deepx_graph.ir import Module
from deepx_graph.passes import REGISTRY
from deepx_graph.passes.observer import STANDING, Observer
from deepx_graph.progress import stage
from deepx_graph.rewrite.base import Pass, PassError, RewriteControl

PIPELINES: dict[str, str] = {
    "default": "inline,partial-evaluation,tail-calls,inline,promote,sccp,cse,simplify,dce,fuse",
    "clean": "inline,partial-evaluation,tail-calls,inline,promote,sccp,cse,simplify,dce",
    "first-order": "internalize,inline,partial-evaluation,tail-calls,inline,promote,canonicalize,dce",
    "none": "",
}
"""Named pipelines. `default` is what `optimize` does; `clean` is the same without fusion, for reading and for gradients;
`first-order` takes closures, data, references and tail recursion away where it can, for languages that have none of them."""


def parse_pipeline(text: str) -> tuple[Pass, ...]:
    """The passes that the text names, with their options; an empty text is no pass at all.

    Raises UsageError with the place of the mistake, the nearest name, and what would be allowed there.
    """
    if not text.strip() or not PIPELINES.get(text.strip(), "-"):
        return ()
    return tuple(PipelineReader(text, REGISTRY, PIPELINES).read())


def format_pipeline(passes: Sequence[Pass]) -> str:
    """The canonical text: parsing it gives equal passes."""
    return ",".join(map(format_pass, passes))


@dataclasses.dataclass(frozen=True)
class Fix(Pass):
    """Repeats the passes in its parentheses, as in `fix{rounds=5}(cse,simplify)`, until nothing changes."""

    name: ClassVar[str] = "fix"
    passes: tuple[Pass, ...] = dataclasses.field(metadata={"nested": True})
    rounds: int = 10

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        return _run_fix(self, module, (), control)


@no_collection()
def run_pipeline(module: Module, passes: Sequence[Pass], observers: Sequence[Observer] = (), *,
                 control: RewriteControl | None = None, limit: int | None = None) -> Module:
    """The module after all passes. `limit` allows the first so many rewrites only; `control` is for callers that count them.

    Raises PassError when a pass fails inside; errors meant for the user pass through.
    """
    observers = [*observers, *(make() for make in STANDING)]
    listeners = tuple(o.on_rewrite for o in observers if type(o).on_rewrite is not Observer.on_rewrite)
    control = control or RewriteControl(limit)
    control.listeners += listeners
    return _run_all(module, passes, observers, control)


def _run_all(module: Module, passes: Sequence[Pass], observers: Sequence[Observer], control: RewriteControl) -> Module:
    for k, pass_ in enumerate(passes):
        stage(pass_.name, k, len(passes))
        if isinstance(pass_, Fix):
            module = _run_fix(pass_, module, observers, control)
            continue
        control.pass_name = pass_.name
        for o in observers:
            o.before_pass(pass_, module)
        after = _run(pass_, module, control)
        for o in observers:
            o.after_pass(pass_, module, after)
        module = after
    for o in observers:
        o.after_all()
    return module


def _run_fix(fix: Fix, module: Module, observers: Sequence[Observer], control: RewriteControl) -> Module:
    """Rounds of the passes until one has changed nothing, each pass seen by the observers."""
    for _ in range(fix.rounds):
        before, module = module, _run_all(module, fix.passes, observers, control)
        if module.functions == before.functions:
            break
    return module


def _run(pass_: Pass, module: Module, control: RewriteControl) -> Module:
    try:
        return pass_.run_under(module, control)
    except PassError as e:
        raise PassError(Diagnostic(f"pass '{pass_.name}' failed"), *e.diagnostics) from e
    except DeepxGraphError:
        raise
    except Exception as e:  # the boundary between a user and our own faults
        if is_interrupt(e):
            raise
        raise PassError(Diagnostic(f"pass '{pass_.name}' failed: {type(e).__name__}: {e}")) from e


# --- the text of a pipeline -------------------------------------------------------------------------------------------

_TOKEN = re.compile(r'[^\S\n]*(?:(?P<word>[^\s,{}()="]+)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<sign>[,{}()=]))|(?P<space>\s+)')
_PLAIN = re.compile(r'[^\s,{}()="]+')
ANCHORS = ("builtin.module", "func.func", "any")
MAX_NESTING = 20
MAX_PASSES = 1000


def options_of(pass_: type[Pass] | Pass) -> list[dataclasses.Field[Any]]:
    """The fields that are options: all but the passes that one stands in front of."""
    return [f for f in dataclasses.fields(pass_) if not f.metadata.get("nested")]


def option_types(pass_: type[Pass]) -> dict[str, Any]:
    """Option name, as written in a pipeline, to its type."""
    hints = get_type_hints(pass_)
    return {f.name.replace("_", "-"): hints[f.name] for f in options_of(pass_)}


def describe_options(pass_: type[Pass]) -> str:
    """`max-nodes=200 fast-math=false`: the options with their defaults; `no options` where there are none."""
    shown = [_show(f.name, None if f.default is dataclasses.MISSING else f.default) for f in options_of(pass_)]
    return " ".join(shown) or "no options"


def flattened(passes: Sequence[Pass]) -> Iterator[Pass]:
    """The passes, with those inside of others."""
    for p in passes:
        yield from flattened(p.passes) if isinstance(p, Fix) else (p,)


def format_pass(pass_: Pass) -> str:
    """The canonical text of one pass: options that are not the default, in the order of the fields."""
    given = [(f.name, value) for f in options_of(pass_) if (value := getattr(pass_, f.name)) != f.default]
    inside = f"({format_pipeline(pass_.passes)})" if isinstance(pass_, Fix) else ""
    return pass_.name + (f"{{{' '.join(_show(*g) for g in given)}}}" if given else "") + inside


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
        self.at = self.nesting = 0
        covered = sum(m.end() - m.start() for m in _TOKEN.finditer(text))
        if covered < len(text):
            bad = next(k for k in range(len(text)) if not any(m.start() <= k < m.end() for m in _TOKEN.finditer(text)))
            self._fail("a quote is not closed", Span(self.source, bad, len(text)), expected='"')

    def read(self) -> list[Pass]:
        """The passes. Raises UsageError with the place of the first mistake."""
        made = self._list()
        if self.at < len(self.tokens):
            self._fail(f"unexpected '{self._peek()}'", self._here(), expected="',' or the end of the pipeline")
        return made

    def _list(self) -> list[Pass]:
        made = self._item()
        while self._take(","):
            made += self._item()
            if len(made) > MAX_PASSES:
                self._fail(f"more than {MAX_PASSES} passes", self._here())
        return made

    def _nested(self, what: str) -> list[Pass]:
        """`(passes)`, which may be none."""
        opened = self._here()
        if not self._take("("):
            self._fail(f"'{what}' stands in front of passes", opened, expected=f"{what}(cse,dce)")
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            self._fail(f"more than {MAX_NESTING} pipelines within each other", opened)
        made = [] if self._peek() == ")" and what != Fix.name else self._list()
        if not self._take(")"):
            self._fail("a parenthesis is not closed", self._here(), expected="')'")
        self.nesting -= 1
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
        if name in ANCHORS:
            return self._nested(name)
        if name == Fix.name:
            given = self._options(Fix) if self._take("{") else {}
            return [Fix(tuple(self._nested(name)), **given)]
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
            while self._take(",") and isinstance(given[field], tuple) and self._goes_on(types):
                given[field] += _words(self._name("a word")[0])
        return given

    def _goes_on(self, types: Mapping[str, Any]) -> bool:
        """Whether what stands behind a comma is one more word of an option of several, and no option."""
        return self.at < len(self.tokens) and self.tokens[self.at].lastgroup == "word" and self._peek() not in types

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
