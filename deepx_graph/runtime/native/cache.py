"""Object code kept on disk, by a digest of its IR and of the machine.

The folder is the user's own (`DEEPX_GRAPH_CACHE`, else under the user's cache folder) and is used only while nobody else can write
to it. An entry carries a digest of its own contents, so that a torn or foreign file is no more than a miss. Writing is a rename;
failing to read or write is never an error.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from deepx_graph.errors import DeepxGraphError
from deepx_graph.files import write_file
from deepx_graph.runtime.native.target import this_machine

MAX_BYTES = 4 << 20
"""Of one entry; larger code is compiled anew."""


def functions(ir: str, names: Sequence[str]) -> dict[str, int]:
    """The addresses of the functions that some IR defines, compiled now or by an earlier process.

    Raises as `Target.compile` does.
    """
    machine = this_machine()
    digest = machine.digest(ir)
    code = load(digest)
    if code is None:
        code = machine.compile(ir)
        save(digest, code)
    return machine.load(code, names)


def load(digest: str) -> bytes | None:
    """The code stored under that digest, or None."""
    folder = _folder()
    if folder is None:
        return None
    path = folder / f"{digest}.o"
    try:
        if path.is_symlink() or path.stat().st_size > MAX_BYTES:
            return None
        stored = path.read_bytes()
    except OSError:
        return None
    code, check = stored[:-32], stored[-32:]
    return code if hashlib.sha256(digest.encode() + code).digest() == check else None


def save(digest: str, code: bytes) -> None:
    """Stores code for later processes."""
    folder = _folder()
    if folder is None or len(code) > MAX_BYTES:
        return
    try:
        write_file(folder / f"{digest}.o", code + hashlib.sha256(digest.encode() + code).digest())
    except DeepxGraphError:  # a cache that cannot be written is a slow one, no more
        return


@cache
def _folder() -> Path | None:
    """The folder, made where missing; None where others could write to it."""
    named = os.environ.get("DEEPX_GRAPH_CACHE")
    base = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deepx_graph" / "kernels"
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = base.stat()
    except (OSError, RuntimeError):
        return None
    if not hasattr(os, "getuid"):
        return base
    return base if info.st_uid == os.getuid() and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else None
