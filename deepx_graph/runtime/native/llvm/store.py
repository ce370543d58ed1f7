"""Object code kept on disk, by a digest of its IR and of the machine, and whole programs (`aot/program_store.py`).

The folder is the user's own (`DEEPX_GRAPH_CACHE`, else under the user's cache folder) and is used only while nobody else can write
to it or to a folder above it. An entry says what it is and carries a digest of its contents; one that is torn, of another owner,
writable by others, or no regular file is a miss. Failing to read or write is never an error. What was not used for long goes:
`DEEPX_GRAPH_CACHE_LIMIT` bounds the bytes (`64M`; 0 switches the store off), `DEEPX_GRAPH_CACHE_DAYS` the days since the last use.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from deepx_graph.errors import DeepxGraphError
from deepx_graph.files import TEMPORARY, write_file

MAX_BYTES = 16 << 20
"""Of one entry; larger code is compiled anew."""

LIMIT, DAYS = 128 << 20, 60
"""The bounds where the environment has none."""

OFTEN = 64
"""A look at the bounds for so many new entries: it lists the folder, which takes a good part of a second where it has 50 000."""

DAY = 86400
_TOUCHED = DAY
"""Seconds after which reading an entry counts as use anew."""

_HEAD = b"deepx_graph object code 1\n"


@dataclass(frozen=True)
class StoredCode:
    """A file of the store and when it was last used, in seconds of the epoch."""

    path: Path
    nbytes: int
    used: float


def load(digest: str) -> bytes | None:
    """The code stored under that digest, or None."""
    folder = _folder()
    if folder is None or not limit():
        return None
    try:
        stored = _contents(folder / f"{digest}.o")
    except OSError:
        return None
    head, code = stored[: len(_HEAD) + 32], stored[len(_HEAD) + 32 :]
    return code if head == _HEAD + _check(digest, code) else None


def save(digest: str, code: bytes) -> None:
    """Stores code for later processes."""
    folder = _folder()
    if folder is None or len(code) > min(MAX_BYTES, limit()):
        return
    path = folder / f"{digest}.o"
    if not _is_free(path):
        return
    with contextlib.suppress(DeepxGraphError):  # a cache that cannot be written is a slow one, no more
        write_file(path, _HEAD + _check(digest, code) + code, durable=False)
        _count_entry()


def entries(folder: Path) -> list[StoredCode]:
    """What a store has, the longest unused first."""
    found = []
    with contextlib.suppress(OSError):
        for item in os.scandir(folder):
            with contextlib.suppress(OSError):
                info = item.stat(follow_symlinks=False)
                if item.name.endswith(".o") or item.name.startswith(TEMPORARY):
                    found.append(StoredCode(Path(item.path), info.st_size, info.st_mtime))
    return sorted(found, key=lambda e: e.used)


def prune(limit_bytes: int | None = None, days: float | None = None) -> tuple[int, int]:
    """Takes away what was not used for so many days, and the longest unused until the rest is within the limit.

    Gives how many entries went, and their bytes.
    """
    folder = _folder()
    if folder is None:
        return 0, 0
    known = entries(folder)
    left, bound = sum(e.nbytes for e in known), limit() if limit_bytes is None else limit_bytes
    oldest = time.time() - DAY * (longest() if days is None else days)
    count = gone = 0
    for entry in known:
        stale = entry.used < (time.time() - DAY if entry.path.name.startswith(TEMPORARY) else oldest)
        if left - gone <= bound and not stale:
            continue
        with contextlib.suppress(OSError):
            entry.path.unlink()
            count, gone = count + 1, gone + entry.nbytes
    return count, gone


def location() -> Path | None:
    """Where the store is to be; None where the user has no folder."""
    named = os.environ.get("DEEPX_GRAPH_CACHE")
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return Path(os.path.realpath(named or base / "deepx_graph" / "kernels"))
    except (OSError, RuntimeError):
        return None


def objection(folder: Path) -> str | None:
    """Why a folder is not used, in words; makes it where it is missing."""
    try:
        for path in reversed([p for p in (folder, *folder.parents) if not p.exists()]):
            path.mkdir(mode=0o700, exist_ok=True)
        for path in (folder, *folder.parents):
            if not _is_safe(path.stat(), own=path == folder):
                return f"others can write to '{path}'"
    except OSError as e:
        return e.strerror or str(e)
    return None


def limit() -> int:
    """The most bytes that are kept."""
    text = os.environ.get("DEEPX_GRAPH_CACHE_LIMIT", "").strip().upper()
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    digits = text[:-1] if factor > 1 else text
    return int(digits) * factor if digits.isascii() and digits.isdigit() and len(digits) < 19 else LIMIT


def longest() -> int:
    """The most days without use."""
    text = os.environ.get("DEEPX_GRAPH_CACHE_DAYS", "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else DAYS


@cache
def _folder() -> Path | None:
    """The folder; None where it is not to be used."""
    folder = location()
    return folder if folder is not None and objection(folder) is None else None


def _is_safe(info: os.stat_result, *, own: bool) -> bool:
    """Whether nobody but this user can change a file or what is in a folder. One above may be root's, or sticky: what a user has in
    such a folder is safe from others."""
    if not hasattr(os, "getuid"):
        return True
    owners = {os.getuid()} if own else {os.getuid(), 0}
    writable = bool(info.st_mode & stat.S_IWOTH) or bool(info.st_mode & stat.S_IWGRP and not _is_private(info.st_gid))
    return info.st_uid in owners and (not writable or (not own and bool(info.st_mode & stat.S_ISVTX)))


def _is_private(group: int) -> bool:
    """Whether a group is this user's alone, as many systems give every user one."""
    import grp
    import pwd

    try:
        found, user = grp.getgrgid(group), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return found.gr_name == user.pw_name and set(found.gr_mem) <= {user.pw_name}


def _contents(path: Path) -> bytes:
    """The bytes of an entry, which is then in use. Raises OSError where it is not to be trusted, or no regular file."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES + 64 or not _is_safe(info, own=True):
            raise OSError("not an entry of this user's")
        if info.st_mtime < time.time() - _TOUCHED:
            os.utime(path, follow_symlinks=False)
        return file.read()


def _is_free(path: Path) -> bool:
    """Whether an entry can be written there. Takes away what is no regular file: nothing is written through it."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            path.unlink()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _check(digest: str, code: bytes) -> bytes:
    return hashlib.sha256(digest.encode() + code).digest()


def _counting() -> Iterator[None]:
    """Starts anywhere in the count, so that of many short processes, too, one in `OFTEN` new entries looks."""
    for _ in range(random.randrange(OFTEN)):
        yield
    while True:
        prune()
        for _ in range(OFTEN):
            yield


_COUNT = _counting()


def _count_entry() -> None:
    """Looks at the bounds now and then."""
    with contextlib.suppress(ValueError):  # another thread is at it
        next(_COUNT)
