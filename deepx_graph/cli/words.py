"""The words of a command line: split as a shell does, of a file alone, with options from `pyproject.toml`.

Those of all commands stand in `[tool.deepx_graph]`, those of one in `[tool.deepx_graph.COMMAND]`:

    [tool.deepx_graph]
    engine = "numpy"
    [tool.deepx_graph.check]
    budget = ["ops<=120", "peak_bytes<=64M"]

The file is the nearest `pyproject.toml` above the working directory. What it says stands in front of the words of the command line,
which therefore override it, or add to it where an option may be repeated. It cannot name plugins, nor files to write: to look at a
program in a folder from elsewhere must not run that folder's code.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deepx_graph.errors import Diagnostic, Source, Span, UsageError, suggest

TABLE = "deepx_graph"
REFUSED = frozenset({"plugin", "output", "help", "json", "no-config", "data-root"})
"""Options that only a person gives."""


def split_line(line: str) -> list[str]:
    """The words of a line that ends at the cursor, the last of them half written; quotes may be open."""
    for closing in ("", "'", '"', "\\"):
        with contextlib.suppress(ValueError):
            words = shlex.split(line + closing)
            return words if closing or (line and not line[-1].isspace()) else [*words, ""]
    return []


def whole(given: Sequence[str], commands: Mapping[str, argparse.ArgumentParser]) -> list[str]:
    """All words that a command line stands for: a file alone is one for `info`, and the configuration stands behind the command."""
    words = list(given)
    if words and words[0] not in commands and not words[0].startswith("-") and (os.path.isfile(words[0]) or ".py:" in words[0]):
        words.insert(0, "info")
    return configured(words, commands)


def configured(words: Sequence[str], commands: Mapping[str, argparse.ArgumentParser], folder: Path | None = None) -> list[str]:
    """The words of a command line with what the configuration says of its command. Raises UsageError, with its place, for what
    no command takes.
    """
    if not words or words[0] not in commands or "--no-config" in words:
        return list(words)
    found = _find(folder or Path.cwd())
    if found is None:
        return list(words)
    source, table = found
    own = {name: value for name, value in table.items() if name in commands}
    shared = {name: value for name, value in table.items() if name not in commands}
    everywhere = {option for c in commands.values() for option in _options(c)}
    for name in shared:
        if name not in everywhere or name in REFUSED:
            raise _unknown(source, name, [*(everywhere - REFUSED), *commands])
    command = _options(commands[words[0]])
    given = own.get(words[0], {})
    if not isinstance(given, dict):
        raise _unknown(source, words[0], ["a table"])
    for name in given:
        if name not in command or name in REFUSED:
            raise _unknown(source, name, sorted(set(command) - REFUSED))
    merged = {name: value for name, value in shared.items() if name in command} | given
    return [words[0], *(w for name, value in merged.items() for w in _words(source, name, value, command[name])), *words[1:]]


def _find(folder: Path) -> tuple[Source, dict[str, Any]] | None:
    """The table of the nearest file, with its text; None where there is none. Raises UsageError for a file that is no TOML."""
    for parent in (folder, *folder.parents):
        path = parent / "pyproject.toml"
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            if TABLE not in text:
                return None
            try:
                table = tomllib.loads(text).get("tool", {}).get(TABLE)
            except tomllib.TOMLDecodeError as e:
                raise UsageError(Diagnostic(f"{path}: {e}", hint="--no-config leaves it out")) from None
            return (Source(str(path), text), table) if isinstance(table, dict) else None
    return None


def _options(command: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """The long options of a command by name."""
    return {o[2:]: a for a in command._actions for o in a.option_strings if o.startswith("--") and "=" not in o}


def _words(source: Source, name: str, value: Any, action: argparse.Action) -> Iterator[str]:
    """The value as words; a list repeats the option."""
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise UsageError(Diagnostic(f"'{name}' is a switch", _span(source, name), expected="true or false"))
        yield from (f"--{name}",) if value else ()
        return
    if isinstance(value, (bool, dict)):
        raise UsageError(Diagnostic(f"'{name}' has no such value", _span(source, name), expected="text, a number, or a list"))
    yield from (f"--{name}={v}" for v in (value if isinstance(value, list) else (value,)))


def _span(source: Source, name: str) -> Span:
    start = max(source.text.find(name, source.text.find(TABLE)), 0)
    return Span(source, start, start + len(name))


def _unknown(source: Source, name: str, known: Sequence[str]) -> UsageError:
    if name in REFUSED:
        return UsageError(Diagnostic(f"'{name}' cannot be configured", _span(source, name), hint="give it on the command line"))
    hint = suggest(name, known) or "--no-config leaves it out"
    return UsageError(Diagnostic(f"no option '{name}'", _span(source, name), hint=hint))
