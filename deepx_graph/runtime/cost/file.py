"""The constants that this process goes by: those that `calibrate` stored for this machine, else the shipped ones.

They are a small JSON file of the user's: `DEEPX_GRAPH_COSTS`, where that is set (to nothing: there is none), else in the user's
cache folder. It is written whole or not at all, so that processes may write at once. One that is damaged, of another version or of
another machine is left alone and told of in `note`: reading never fails.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from deepx_graph.blas import available_cores
from deepx_graph.errors import UsageError
from deepx_graph.files import make_folder, write_file
from deepx_graph.runtime.cost.model import SHIPPED, Constants, from_json

VERSION = 2
"""Of the file: raised when a constant comes to mean something else."""

MAX_BYTES = 1 << 16


@dataclass(frozen=True)
class KnownConstants:
    """The constants, where they come from, and what is to be said about that ("" for nothing)."""

    constants: Constants
    path: Path | None = None
    note: str = ""

    @property
    def source(self) -> str:
        """In a few words."""
        return "shipped" if self.path is None else f"measured, {self.path}"


_override: list[KnownConstants] = []


def constants() -> Constants:
    """Those of this process. They are read once."""
    return known().constants


def known() -> KnownConstants:
    """The same with their source."""
    return _override[-1] if _override else _read_once()


@contextmanager
def using(given: Constants) -> Iterator[None]:
    """Within the block this process goes by the constants given. Kernels made before keep what they were made with."""
    _override.append(KnownConstants(given))
    try:
        yield
    finally:
        _override.pop()


def location() -> Path | None:
    """Where measured constants are kept; None where the user wants none or has no folder."""
    named = os.environ.get("DEEPX_GRAPH_COSTS")
    if named is not None:
        return Path(named) if named else None
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "deepx_graph" / "costs.json"
    except RuntimeError:
        return None


@cache
def machine() -> str:
    """What tells this machine from others to which constants do not apply: its processor and how many cores may be used."""
    return f"{_processor()}, {available_cores()} cores"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = (line.partition(":") for line in file)
            return next(value.strip() for name, _, value in lines if name.strip() == "model name")
    except (OSError, StopIteration):
        return platform.processor() or platform.machine() or "unknown"


def read(path: Path | None) -> KnownConstants:
    """The constants of a file; the shipped ones, with a note, where it cannot be used."""
    if path is None:
        return KnownConstants(SHIPPED)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError("it is too large")
        stored = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(stored, dict) or stored.get("version") != VERSION:
            raise ValueError("it is of another version")
        if stored.get("machine") != machine():
            raise ValueError("it is of another machine")
        return KnownConstants(from_json(stored.get("constants")), path)
    except FileNotFoundError:
        return KnownConstants(SHIPPED)
    except (OSError, ValueError, RecursionError) as e:
        what = "it is no JSON" if isinstance(e, json.JSONDecodeError) else (e.strerror if isinstance(e, OSError) else str(e))
        return KnownConstants(SHIPPED, note=f"measured constants are not used, as {what}: {path}")


@cache
def _read_once() -> KnownConstants:
    return read(location())


def text(measured: Constants) -> str:
    """What is stored."""
    return json.dumps({"version": VERSION, "machine": machine(), "constants": measured.to_json()}, indent=1) + "\n"


def store(measured: Constants, path: Path | None = None) -> Path:
    """Stores constants for processes to come; where. Raises UsageError where there is no folder for them."""
    path = location() if path is None else path
    if path is None:
        raise UsageError("there is no folder for measured constants: DEEPX_GRAPH_COSTS is empty, or there is no home")
    make_folder(path.parent, mode=0o700)
    write_file(path, text(measured).encode())
    _read_once.cache_clear()
    return path


def reset() -> Path | None:
    """Removes stored constants; which file that was, None where there was none."""
    path = location()
    if path is None or not path.exists():
        return None
    path.unlink(missing_ok=True)
    _read_once.cache_clear()
    return path
