"""Source spans, diagnostics and the exception family; the words of messages, sizes and counts among them.

Every user-facing failure is a `Diagnostic` (severity, message, place, what was expected, a hint) carried by a
`DeepxGraphError`, whose class decides the exit code. Text that came from a file is escaped when it is shown, never before.
This floor knows nothing of types, graphs or terminals.
"""

from __future__ import annotations

import bisect
import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

Severity = Literal["error", "warning", "note"]

LINE_WINDOW = 160
"""How many characters of a long source line a diagnostic shows."""

MAX_SHOWN = 20
"""How many diagnostics of one failure are rendered before the rest is only counted."""

BYTES = (" B", " KiB", " MiB", " GiB", " TiB")
COUNTS = ("", "K", "M", "G", "T")


def printable(text: str) -> str:
    """`text` with every control, escape, bidi or other invisible character written as an escape sequence.

    Safe to send to a terminal: nothing in the result can move the cursor, recolour or reorder.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if _is_visible(c) else c.encode("unicode_escape").decode("ascii") for c in text)


def printable_lines(text: str) -> str:
    """`text`, each character but tabs and line ends as `printable` shows it."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def _is_visible(char: str) -> bool:
    return char == " " or (char.isprintable() and unicodedata.category(char) not in ("Cf", "Cc", "Co", "Cs", "Cn"))


def is_interrupt(error: BaseException) -> bool:
    """Whether the handler of a signal raised it, as a caller's deadline does: no fault of the code that it passes through.

    Python calls such a handler with the frame that it interrupts.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        for value in trace.tb_frame.f_locals.values():
            if value is interrupted or (type(value) is tuple and any(v is interrupted for v in value)):
                return True
    return False


def suggest(name: str, known: Iterable[str], what: str = "") -> str | None:
    """A hint `did you mean 'x'?` with the known name nearest to `name`, or None when none is near."""
    if len(name) > 100:
        return None
    near = difflib.get_close_matches(name, [k for k in known if abs(len(k) - len(name)) < 4][:5000], n=5, cutoff=0.6)
    near.sort(key=lambda known: sorted(known) != sorted(name))  # the same letters in another order come first
    return f"did you mean {what + ' ' if what else ''}'{printable(near[0])}'?" if near else None


def an(thing: object) -> str:
    """The name of a thing with its indefinite article, as it is pronounced: `an f32[5]`, `an s8[2]`, `a tuple`, `a u8[3]`."""
    text = str(thing)
    spelled = len(text) > 1 and text[1].isdigit()  # the name of a letter comes first: an ef, an es
    return f"{'an' if text[:1] in ('aefhilmnorsxAEFHILMNORSX' if spelled else 'aeioAEIO') else 'a'} {text}"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """So many of a thing: `1 node`, `2,000 nodes`; `plural` where it is not the noun with an s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def sized(number: float | None) -> str:
    """Bytes to three digits, in units of 1024 each: `999 B`, `1.5 KiB`, `12 MiB`; `?` for what is not known."""
    return _scaled(number, 1024, BYTES)


def human(number: float | None) -> str:
    """A count to three digits, in units of 1000 each: `999`, `1.5K`, `12M`; `?` for what is not known."""
    return _scaled(number, 1000, COUNTS)


def _scaled(number: float | None, base: int, units: Sequence[str]) -> str:
    if number is None:
        return "?"
    for unit in units:
        if abs(number) < base - 0.5 or unit is units[-1]:  # what would round to `base` is 1 of the next unit
            break
        number /= base
    return f"{number:.3g}{unit}" if abs(number) < 99.95 else f"{number:.0f}{unit}"


class TextReport:
    """A result that tells itself in lines: `print` shows them all, its `repr` the first."""

    def lines(self) -> Iterable[str]:
        """The report."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        first = next(iter(self.lines()), "nothing")
        return f"<{type(self).__name__}: {first if len(first) <= REPR_LINE else first[: REPR_LINE - 1] + '…'}>"


REPR_LINE = 80
"""Characters of a report that its `repr` shows."""


@dataclass(frozen=True, eq=False)
class Source:
    """A text that was read, with its display name (a path, or `<stdin>`); or a binary file, whose bytes may be mapped memory."""

    name: str
    text: str = field(default="", repr=False)
    data: memoryview | None = field(default=None, repr=False)
    folder: Path | None = field(default=None, repr=False)
    """Where the file is, for what it names beside itself."""

    @property
    def binary(self) -> bool:
        return self.data is not None

    def __reduce__(self) -> tuple[Any, ...]:
        return _source, (self.name, self.text, None if self.data is None else bytes(self.data), self.folder)

    @cached_property
    def _starts(self) -> list[int]:
        starts, at = [0], self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1, of a character offset."""
        line = self.line(offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, offset: int) -> int:
        """The line, from 1, of a character offset."""
        return bisect.bisect_right(self._starts, offset)

    def line_bounds(self, line: int) -> tuple[int, int]:
        """Offsets of the first character of line `line` (from 1) and of its end, the newline left out."""
        start = self._starts[line - 1]
        end = self.text.find("\n", start)
        return start, len(self.text) if end < 0 else end


def _source(name: str, text: str, data: bytes | None, folder: Path | None) -> Source:
    """A pickled source in this process."""
    return Source(name, text, None if data is None else memoryview(data), folder)


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A line of the user's own program, as a text that was made from it says: `model.py:42` in `function`, called from `caller`.

    `label` is what its framework calls the operation there (`jit(f)/mul`), `kind` its sort of operation; any field may be empty.
    Equality is identity: a reader makes one place of one text.
    """

    file: str = ""
    line: int = 0
    column: int = 0
    function: str = ""
    caller: Place | None = field(default=None, repr=False)
    label: str = ""
    kind: str = ""

    def __str__(self) -> str:
        if not self.file:
            return printable(self.label or self.kind)
        where = f"{printable(self.file)}:{self.line}"
        return f"{where} in {printable(self.function)}" if self.function else where

    def chain(self, most: int = 3) -> str:
        """The place and those it is called from, at most so many."""
        words: list[str] = []
        place: Place | None = self
        while place is not None and len(words) < most:
            words.append(str(place))
            place = place.caller
        return ", called from ".join(words)


def slot_setters(cls: type) -> tuple[Callable[[Any, Any], None], ...]:
    """What stores each slot of a frozen class: half the time of `object.__setattr__`, which looks for the slot each time."""
    return tuple(getattr(cls, name).__set__ for name in cls.__dataclass_fields__)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, init=False)
class Span:
    """The half-open range of characters `[start, end)` of a source, and the place in the user's program that it stands for."""

    source: Source
    start: int
    end: int
    place: Place | None = None

    def __init__(self, source: Source, start: int, end: int, place: Place | None = None) -> None:
        set_source, set_start, set_end, set_place = _SPAN
        set_source(self, source)
        set_start(self, start)
        set_end(self, end)
        set_place(self, place)

    @property
    def line(self) -> int:
        return self.source.line(self.start)

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def __str__(self) -> str:
        if self.source.binary:
            return f"{printable(self.source.name)}: byte {self.start}"
        line, column = self.source.position(self.start)
        return f"{printable(self.source.name)}:{line}:{column}"

    @property
    def described(self) -> str:
        """`t.hlo:3:1 (model.py:42 in loss)`."""
        return f"{self} ({self.place})" if self.place else str(self)

    def excerpt(self) -> str:
        """The source line with carets under the span; long lines are cut around it. Of a binary source, the bytes from there on."""
        if self.source.data is not None:
            shown = bytes(self.source.data[self.start : self.start + 16]).hex(" ")
            return f"{self.start:#x} | {shown}"
        line, _ = self.source.position(self.start)
        start, end = self.source.line_bounds(line)
        left = max(start, min(self.start - LINE_WINDOW // 3, end - LINE_WINDOW)) if end - start > LINE_WINDOW else start
        right = min(end, left + LINE_WINDOW)
        before = printable(self.source.text[left : self.start])
        marked = printable(self.source.text[self.start : max(self.start, min(self.end, right))])
        after = printable(self.source.text[min(max(self.start, self.end), right) : right])
        head, tail = "…" if left > start else "", "…" if right < end else ""
        number = f"{line} | "
        return (
            f"{number}{head}{before}{marked}{after}{tail}\n"
            f"{' ' * (len(number) - 2)}| {' ' * (len(head) + len(before))}{'^' * max(1, len(marked))}"
        )


_SPAN = slot_setters(Span)


_LONG_WORD = re.compile(r"(\S{300})\S{100,}(\S{50})")
"""Such as a number of thousands of digits: where it begins, and how it ends."""


def _readable(text: str) -> str:
    """A line of a message, its longest words cut."""
    return printable(_LONG_WORD.sub(r"\1…\2", text))


@dataclass(frozen=True)
class Diagnostic:
    """One thing to tell the user: what, where, what was expected instead, and how to mend it.

    >>> print(dx.Diagnostic("no pass 'fuze'", hint="did you mean 'fuse'?").render())
    error: no pass 'fuze'
      hint: did you mean 'fuse'?
    """

    message: str
    span: Span | None = None
    expected: str | None = None
    hint: str | None = None
    severity: Severity = "error"
    notes: tuple[str, ...] = field(default=())

    def render(self) -> str:
        """`file:line:col: error: message`, the line, carets, then expected / hint / notes. Escaped; no colour."""
        where = f"{self.span}: " if self.span else ""
        lines = [f"{where}{self.severity}: {_readable(self.message)}"]
        if self.span:
            lines.append(self.span.excerpt())
            if self.span.place:
                lines.append(f"  made from: {self.span.place.chain()}")
        if self.expected:
            lines.append(f"  expected: {_readable(self.expected)}")
        if self.hint:
            lines.append(f"  hint: {_readable(self.hint)}")
        lines += [f"  note: {_readable(n)}" for n in self.notes]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """The same facts as plain data, for `--json`."""
        place: dict[str, object] = {}
        if self.span:
            place = {"file": self.span.source.name, "line": self.span.line, "column": self.span.column}
            if self.span.place:
                place["made_from"] = self.span.place.chain()
        return {
            "severity": self.severity,
            "message": self.message,
            **place,
            "expected": self.expected,
            "hint": self.hint,
            "notes": list(self.notes),
        }


INTERNAL = 70
"""The exit code of a fault of this package, as EX_SOFTWARE of sysexits.h."""


class DeepxGraphError(Exception):
    """Base of all errors this package raises for a user to read; holds one or more diagnostics.

    >>> try: dx.loads("", "hloo")
    ... except dx.DeepxGraphError as e: print(e.exit_code, e.diagnostics[0].hint)
    2 did you mean 'hlo'?
    """

    exit_code: ClassVar[int] = INTERNAL

    def __init__(self, *diagnostics: Diagnostic | str) -> None:
        self.diagnostics = tuple(Diagnostic(d) if isinstance(d, str) else d for d in diagnostics)
        super().__init__(*self.diagnostics)

    def __str__(self) -> str:
        shown = "\n".join(d.render() for d in self.diagnostics[:MAX_SHOWN])
        more = len(self.diagnostics) - MAX_SHOWN
        return shown if more <= 0 else f"{shown}\n... and {more} more"


class UsageError(DeepxGraphError):
    """The call itself is wrong: an unknown option, pass, file or argument.

    >>> try: dx.loads("", "no such format")
    ... except dx.UsageError as e: print(type(e).__name__)
    UsageError
    """

    exit_code = 2


class ParseError(DeepxGraphError):
    """The text is not a program of its language.

    >>> try: dx.loads("HloModule m\\nENTRY e { x = f32[2 }", "hlo")
    ... except dx.ParseError as e: print(type(e).__name__)
    ParseError
    """

    exit_code = 3


class VerifyError(DeepxGraphError):
    """The program is well-formed text but breaks a rule of its operations or types.

    >>> try: dx.loads("sea 1\\nentry @f\\nfunc public @f(%x: f32[2]) -> (%y: f32[3]) {\\n return %x\\n}")
    ... except dx.VerifyError as e: print(type(e).__name__)
    VerifyError
    """

    exit_code = 4


class RunError(DeepxGraphError):
    """The program cannot run, or failed while running: inputs, files, limits.

    >>> try: dx.run(dx.trace(abs, "f32[2]"), np.float32([1, 2]), max_bytes=0)
    ... except dx.RunError as e: print(type(e).__name__)
    RunError
    """

    exit_code = 5


class LimitError(RunError):
    """A bound (`--max-bytes`, `--max-nodes`, depth, rank, file size) would be exceeded; nothing was allocated.

    >>> try: dx.loads("HloModule m\\nENTRY e { x = f32[2] parameter(0)\\n ROOT y = f32[2] add(x, x) }", max_nodes=1)
    ... except dx.LimitError as e: print(type(e).__name__)
    LimitError
    """


class CheckFailed(RunError):
    """A `check.expect_*` operation of the program does not hold.

    >>> issubclass(dx.CheckFailed, dx.RunError)
    True
    """


class InferError(VerifyError):
    """Operands and attributes do not fit, or a size is not known that something needs; who knows the place adds it.

    `operand` is the number of the operand at fault, None where it is the node as a whole.
    """

    def __init__(self, message: str, *, operand: int | None = None, expected: str | None = None,
                 hint: str | None = None) -> None:
        super().__init__(Diagnostic(message, expected=expected, hint=hint))
        self.message, self.operand, self.expected, self.hint = message, operand, expected, hint

    def diagnostic(self, span: Span | None, prefix: str = "") -> Diagnostic:
        return Diagnostic(prefix + self.message, span, expected=self.expected, hint=self.hint)
