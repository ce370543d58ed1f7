"""What the command line writes: results to standard output or files, all else to standard error; and signs of life.

On a terminal, these are one line that says what is being done, once that takes a second; it is gone when it is done.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from deepx_graph.cli.schemas import report
from deepx_graph.errors import DeepxGraphError, Diagnostic, RunError, UsageError, is_interrupt, printable, printable_lines, suggest
from deepx_graph.forking import renew_after_fork
from deepx_graph.progress import StageProgress, listening

if TYPE_CHECKING:
    from deepx_graph.viz.draw import Drawing


def say(text: str) -> None:
    """A line on standard error: diagnostics, timings, notes. Coloured by its first word where colour is wanted."""
    stream = sys.stderr
    text = printable_lines(text) if stream.isatty() else text
    if _colour(stream):
        for word, code in (("error:", "31"), ("warning:", "33")):
            text = text.replace(word, f"\x1b[1;{code}m{word}\x1b[0m", 1)
    with contextlib.suppress(OSError), aside():  # when there is nowhere to say it, the exit code still says it
        print(text, file=stream)


def say_notes(drawn: Drawing) -> None:
    """What a picture comes with."""
    for note in drawn.notes:
        say(f"note: {note}")


COLOUR = "auto"
"""`auto`, `always` or `never`; set once by `main` from --color."""


def _colour(stream: Any) -> bool:
    if COLOUR == "auto":
        return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return COLOUR == "always"


def check_suffix(path: str, known: Iterable[str], hint: str | None = None) -> None:
    """Raises UsageError where the name of a file to write ends in something that says another form than the known."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix and suffix not in known and (os.path.isfile(path) or not os.path.exists(path)):
        near = suggest(suffix, known)
        raise UsageError(Diagnostic(f"'{printable(path)}' ends in no form that can be written", expected=", ".join(known),
                                    hint=near or hint))


def emit(text: str | bytes, path: str | None) -> None:
    """A result to a file, whole or not at all, or to standard output for `-` and None."""
    data = text.encode() if isinstance(text, str) else text
    if path in (None, "-"):
        _to_standard_output(data)
        return
    from deepx_graph.files import write_file

    write_file(str(path), data)


def _to_standard_output(data: bytes) -> None:
    """Behind what a program has printed. Raises RunError when it is closed or full.

    A terminal gets what came from a file as text that cannot move its cursor, recolour or reorder; files and pipes get it as it is.
    """
    if sys.stdout is None:
        raise RunError("standard output is closed")
    if sys.stdout.isatty():
        data = printable_lines(data.decode("utf-8", "backslashreplace")).encode()
    try:
        with aside():
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    except OSError as e:
        if isinstance(e, BrokenPipeError) or is_interrupt(e):
            raise
        raise RunError(f"cannot write standard output: {e.strerror or e}") from None


def emit_json(value: Any, path: str | None = None) -> None:
    """A report as JSON; numbers that JSON has not are the texts `NaN`, `Infinity` and `-Infinity`."""
    emit(json.dumps(_finite(value), indent=2, default=str, allow_nan=False) + "\n", path)


def emit_report(name: str, values: Mapping[str, Any], path: str | None = None) -> None:
    """A report of `--json`, with the name of its schema (`cli.schemas`)."""
    emit_json(report(name, values), path)


def emit_report_beside(name: str, values: Mapping[str, Any], path: str | None) -> None:
    """The report of a command that writes a program to `path`: where that is standard output, on standard error, as one line."""
    if path in (None, "-"):
        say(json.dumps(_finite(report(name, values)), default=str, allow_nan=False))
    else:
        emit_report(name, values)


def emit_errors(error: DeepxGraphError, code: int, beside: str | bool | None) -> None:
    """What went wrong, as a report where that of the command would be; `beside` is where it writes a program, False where it does
    not."""
    values = {"exit_code": code, "errors": [_fault(d) for d in error.diagnostics]}
    with contextlib.suppress(DeepxGraphError, OSError):  # when there is nowhere to say it, the exit code still says it
        emit_report("error", values) if isinstance(beside, bool) else emit_report_beside("error", values, beside)


def _fault(d: Diagnostic) -> dict[str, Any]:
    span, place = d.span, dict.fromkeys(("file", "line", "column", "end_line", "end_column", "byte"))
    if span is not None and span.source.binary:
        place |= {"file": span.source.name, "byte": span.start}
    elif span is not None:
        end = span.source.position(max(span.start, span.end))
        place |= dict(zip(place, (span.source.name, span.line, span.column, *end), strict=False))
    return {"message": d.message, "severity": d.severity, **place, "expected": d.expected, "hint": d.hint, "notes": list(d.notes)}


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, (list, tuple)) else value


# --- the line of progress ----------------------------------------------------------------------------------------------


DELAY, PERIOD = 1.0, 0.2
"""Seconds until the line is shown, and between two looks at it."""

ERASED = "\r\x1b[2K"


class StatusLine:
    """The last line of a terminal; `update` writes it and `hide` takes it away."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.stage, self.start = stream, StageProgress("start"), time.monotonic()
        self.shown = False
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """A lock that nobody holds; one that a signal handler may take again."""
        self.lock = threading.RLock()

    def update(self, seconds: float) -> None:
        """Says what is being done for so many seconds."""
        if seconds < DELAY:
            return
        text = printable(f"{self.stage}, {seconds:.0f} s")[: shutil.get_terminal_size().columns - 1]
        with self.lock:
            self._write(f"{ERASED}{text}\r")  # what a program prints itself begins at the left
            self.shown = True

    def hide(self) -> None:
        """Leaves the terminal as it was."""
        with self.lock:
            if self.shown:
                self._write(ERASED)
            self.shown = False

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone
            self.stream.write(text)
            self.stream.flush()

    def heard(self, stage: StageProgress) -> None:
        self.stage = stage

    def run(self, ended: threading.Event) -> None:
        """Keeps the line until `ended`."""
        while not ended.wait(PERIOD):
            self.update(time.monotonic() - self.start)


_line: StatusLine | None = None


@contextlib.contextmanager
def shown(stream: TextIO, wanted: bool = True) -> Iterator[None]:
    """While in the block, says on a terminal what is being done; nothing on what is none."""
    global _line
    if not wanted or not stream.isatty():
        yield
        return
    _line, ended = StatusLine(stream), threading.Event()
    thread = threading.Thread(target=_line.run, args=(ended,), daemon=True)
    thread.start()
    try:
        with listening(_line.heard):
            yield
    finally:
        ended.set()
        thread.join()
        _line.hide()
        _line = None


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """While in the block, something else may be written to the terminal."""
    if _line is None:
        yield
        return
    with _line.lock:
        _line.hide()
        yield
