"""Crashes as files that replay: the command with all that it read, what happened, and by which version.

A file is one JSON object. It holds the arguments of the command, in which `{0}`, `{1}`, ... stand for files whose contents are in
it too, so that it says everything wherever it is taken; after MLIR's crash reproducers, which hold a module and its pipeline.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deepx_graph.errors import INTERNAL, DeepxGraphError, Diagnostic, UsageError, is_interrupt, printable
from deepx_graph.files import replacing, write_file
from deepx_graph.ir import Module
from deepx_graph.session.diagnose.children import death_of
from deepx_graph.session.diagnose.crash import is_fault, signature_of
from deepx_graph.session.inputs import write_npz
from deepx_graph.session.programs import encoded
from deepx_graph.version import __version__

SCHEMA = "deepx-graph/reproducer/1"
MAX_FILE_BYTES = 1 << 26
"""Bytes of a file that is taken along, and of a reproducer that is read."""

MAX_LEFT = 8
"""Reproducers that one process leaves on its own."""

_left: dict[str, str] = {}
"""The reproducers that this process has left, by the signature of the error."""

_PLACE = re.compile(r"\{(\d+)\}")
_OUTSIDE = re.compile(r"(^|=|^-\w)/|(^|/|=)\.\.(/|$)")
_RUNS_CODE = re.compile(r"--plugin\b.*|--on\b.*|.*\.py(:\w*)?")


@dataclass(frozen=True)
class KeptFile:
    """A file that a command read: the end of its name, and its contents as text, or in base64 where they are none."""

    suffix: str
    text: str | None = None
    base64: str | None = None

    @classmethod
    def of(cls, name: str, data: bytes) -> KeptFile:
        """The contents of a file of that name."""
        suffix = "".join(re.findall(r"\.[A-Za-z0-9]+", name)[-2:])
        try:
            return cls(suffix, text=data.decode())
        except UnicodeDecodeError:
            return cls(suffix, base64=base64.b64encode(data).decode())

    @property
    def data(self) -> bytes:
        """The contents."""
        return self.text.encode() if self.text is not None else base64.b64decode(self.base64 or "")


@dataclass(frozen=True)
class Reproducer:
    """A command, the files that it reads, and the crash that it ends in; `settings` are its options as they were understood."""

    arguments: tuple[str, ...]
    files: tuple[KeptFile, ...]
    signature: str
    traceback: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    version: str = __version__
    python: str = platform.python_version()
    machine: str = platform.machine()
    stdin: int | None = None
    """The file that standard input was."""

    def write(self, path: str | Path) -> None:
        """Writes it. Raises UsageError where there can be no such file."""
        with replacing(path) as stream:
            stream.write(json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1).encode())

    def keep(self) -> str:
        """Writes it to a new file among temporary ones, whose path it gives."""
        handle, path = tempfile.mkstemp(prefix="deepx-graph-", suffix=".json")
        os.close(handle)
        self.write(path)
        return path

    @classmethod
    def read(cls, path: str) -> Reproducer:
        """What a file holds. Raises UsageError for one that is no reproducer."""
        try:
            if os.path.getsize(path) > MAX_FILE_BYTES:
                raise ValueError("it is too large")
            found = json.loads(Path(path).read_bytes())
            if not isinstance(found, dict) or found.pop("schema", None) != SCHEMA:
                raise ValueError(f"its schema is not {SCHEMA}")
            files = tuple(KeptFile(str(f["suffix"]), f.get("text"), f.get("base64")) for f in found.pop("files"))
            arguments = tuple(map(str, found.pop("arguments")))
            made = cls(arguments, files, str(found.pop("signature")), **found)
            if any(int(k) >= len(files) for a in arguments for k in _PLACE.findall(a)):
                raise ValueError("a file is missing")
            return made
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
            why = e.strerror if isinstance(e, OSError) else str(e)
            raise UsageError(Diagnostic(f"'{printable(path)}' is no reproducer: {printable(str(why))}",
                                        expected="a file that deepx-graph wrote after an internal error")) from None

    def untrusted(self) -> str | None:
        """The argument that would run code of the file's author, or reach files outside; None where none does."""
        return next((a for a in self.arguments if _RUNS_CODE.fullmatch(a) or _OUTSIDE.search(a)), None) or next(
            (f.suffix for f in self.files if f.suffix.endswith(".py")), None)


def recorded(arguments: Sequence[str], error: BaseException | str, settings: Mapping[str, Any] | None = None,
             stdin: bytes | None = None) -> Reproducer:
    """The reproducer of a command that ended in an exception, or in what is said here; takes along the files that it names."""
    files: list[KeptFile] = []
    texts = [_with_files(a, files) for a in arguments]
    told = signature_of(error) if isinstance(error, BaseException) else error
    trace = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""
    number = None
    if stdin is not None:
        number = len(files)
        files.append(KeptFile.of("", stdin))
    plain = {k: v for k, v in (settings or {}).items() if isinstance(v, (str, int, float, list, type(None)))}
    return Reproducer(tuple(texts), tuple(files), told, trace, plain, stdin=number)


Command = Callable[[str], Sequence[str]]
"""The arguments of a command that does the same to a module in the file of a path; of inputs beside it, `inputs_of(path)`."""


@contextlib.contextmanager
def reproducible(module: Module, command: Command) -> Iterator[None]:
    """Inside, an internal error leaves a file that `replay` takes, and says so in a note of its own."""
    try:
        yield
    except Exception as e:
        leave(e, module, command)
        raise


def inputs_of(path: str) -> str:
    """The file of the inputs of the program in the file of that path."""
    return f"{path}.npz"


def leave(error: Exception, module: Module, command: Command, inputs: Mapping[str, Any] | None = None) -> None:
    """Writes the file that replays an internal error, and says so in a note of the error; does nothing for any other. Errors of one
    signature have one file, and a process leaves `MAX_LEFT`. What has no text, and inputs that no file can hold, leave none."""
    if not is_fault(error) or is_interrupt(error) or any("deepx-graph replay " in n for n in getattr(error, "__notes__", ())):
        return
    signature = signature_of(error)
    if os.path.exists(earlier := _left.get(signature, "")):
        error.add_note(f"deepx-graph replay {earlier} repeats the first error of this kind")
        return
    if len(_left) >= MAX_LEFT:
        error.add_note(f"no file that repeats it is written: this process has left {MAX_LEFT}")
        return
    with contextlib.suppress(DeepxGraphError, TypeError, ValueError), tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.sea")
        write_file(path, encoded(module, "sea"))
        if inputs is not None:
            write_npz(inputs_of(path), {name: np.asarray(array) for name, array in inputs.items()})
        _left[signature] = recorded(command(path), error).keep()
        error.add_note(f"deepx-graph replay {_left[signature]} repeats it")


def _with_files(argument: str, files: list[KeptFile]) -> str:
    """The argument with a number for the file, or the folder, that it names; one outside that is to be written is not outside."""
    option, sign, value = argument.partition("=") if argument.startswith("-") or "=" in argument else ("", "", argument)
    if os.path.isdir(value):
        inside = sorted(p for p in Path(value).iterdir() if p.is_file())
        files.append(KeptFile("/", text=json.dumps({p.name: asdict(KeptFile.of(p.name, p.read_bytes())) for p in inside})))
    elif os.path.isfile(value) and os.path.getsize(value) <= MAX_FILE_BYTES:
        files.append(KeptFile.of(value, Path(value).read_bytes()))
    else:
        return f"{option}{sign}{os.path.basename(value)}" if os.path.isabs(value) else argument
    return f"{option}{sign}{{{len(files) - 1}}}"


@dataclass(frozen=True)
class Replayed:
    """What came of a reproducer: `outcome` is the crash, or how else it ended."""

    outcome: str
    crashed: bool
    same: bool
    """Whether it is the crash that was recorded."""

    def lines(self) -> list[str]:
        """What `replay` says."""
        if self.same:
            return [f"it still happens: {self.outcome}"]
        return [f"it crashes otherwise: {self.outcome}" if self.crashed else f"it does not happen any more: {self.outcome}"]


def replay(found: Reproducer, seconds: float = 600.0, trust: bool = False) -> Replayed:
    """Runs the command again, in a process and a folder of its own.

    Raises UsageError for one that would run code, or reach outside of its folder, unless it is to be trusted.
    """
    if not trust and (what := found.untrusted()) is not None:
        raise UsageError(Diagnostic(f"the reproducer would run code or reach outside: '{printable(what)}'",
                                    hint="--trust, if you know who wrote it"))
    with tempfile.TemporaryDirectory(prefix="deepx-graph-") as folder:
        paths = [_unpacked(Path(folder), k, f) for k, f in enumerate(found.files)]
        arguments = [_PLACE.sub(lambda m: paths[int(m[1])], a) for a in found.arguments]
        given = None if found.stdin is None else found.files[found.stdin].data
        command = [sys.executable, "-m", "deepx_graph", *arguments]
        try:
            done = subprocess.run(command, cwd=folder, env={**os.environ, "TMPDIR": folder}, input=given, timeout=seconds,
                                  stdin=subprocess.DEVNULL if given is None else None, capture_output=True, check=False)
        except subprocess.TimeoutExpired:
            return Replayed(f"it takes longer than {seconds:g} s", crashed=False, same=False)
        if done.returncode == INTERNAL:
            told = [Reproducer.read(str(p)).signature for p in Path(folder).glob("deepx-graph-*.json")]
            outcome = told[0] if told else "an internal error"
        else:
            outcome = death_of(done.returncode)
    return Replayed(outcome or f"exit code {done.returncode}", crashed=bool(outcome), same=outcome == found.signature)


def _unpacked(folder: Path, number: int, kept: KeptFile) -> str:
    """Writes a file of the reproducer; its path."""
    if kept.suffix == "/":
        inside = folder / f"folder{number}"
        inside.mkdir()
        for name, each in json.loads(kept.data).items():
            if name != os.path.basename(name) or name in ("", ".", ".."):
                raise UsageError(f"the reproducer names a file outside of its folder: '{printable(name)}'")
            (inside / name).write_bytes(KeptFile(**each).data)
        return str(inside)
    suffix = kept.suffix if re.fullmatch(r"(\.[A-Za-z0-9]{1,16}){0,2}", kept.suffix) else ""
    path = folder / f"file{number}{suffix}"
    path.write_bytes(kept.data)
    return str(path)
