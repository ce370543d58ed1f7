"""Writing files so that a reader never sees half of one: to a temporary name beside the target, then renamed. Files as memory. What
the system says of a name that cannot be read or made is an error of whoever gave that name.

Whatever this package writes goes through here. A failure, an interrupt included, leaves the old file as it was. What is there and
is no regular file (a pipe, a terminal, /dev/null) is written straight. Files that may be larger than memory are mapped; whoever
goes through all of one lets its pages go behind him.
"""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakValueDictionary

import numpy as np

from deepx_graph.errors import RunError, UsageError, is_interrupt, printable

TEMPORARY = ".tmp-"
"""How the names of files begin that are not whole yet."""


@contextlib.contextmanager
def naming(what: str, path: str | Path) -> Iterator[None]:
    """A block that does `what`, such as `read`, with the file or folder `path`.

    Raises UsageError where the system refuses, or takes no such name (one with a zero byte).
    """
    try:
        yield
    except (OSError, ValueError) as e:
        if isinstance(e, BrokenPipeError) or is_interrupt(e) or (isinstance(e, ValueError) and "\0" not in str(path)):
            raise
        raise UsageError(f"cannot {what} '{printable(str(path))}': {getattr(e, 'strerror', None) or e}") from None


def read_text(path: str | Path) -> str:
    """The text of a small file. Raises UsageError where it cannot be read or is not UTF-8."""
    with naming("read", path):
        data = Path(path).read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise UsageError(f"'{printable(str(path))}' is not UTF-8 text: byte {data[e.start]:#04x} at offset {e.start}") from None


def make_folder(path: str | Path, mode: int = 0o777) -> None:
    """Makes a folder, with those around it, unless it is there. Raises UsageError where there can be none."""
    with naming("make the folder", path):
        Path(path).mkdir(mode, parents=True, exist_ok=True)


@contextlib.contextmanager
def replacing(path: str | Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A binary file to write, which becomes `path` at the end of a block that does not fail.

    A link is followed, so that what it points to is replaced and not the link. A `durable` file is on the disk before the old one
    is gone, whatever happens to the machine. Raises UsageError when there can be no such file, RunError when writing fails.
    """
    with naming("write", path):
        target = Path(os.path.realpath(path))
    try:
        special = Path(path).exists() and not Path(path).is_file()  # asked of the name: what a pipe's leads to is no file
        with _straight(Path(path)) if special else _renamed(target, durable) as stream:
            yield stream
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as e:
        raise UsageError(f"cannot write '{printable(str(path))}': {e.strerror}") from None
    except OSError as e:
        if isinstance(e, BrokenPipeError) or is_interrupt(e):
            raise
        raise RunError(f"cannot write '{printable(str(path))}': {e.strerror or e}") from None


class _Forward(io.BufferedWriter):
    """Only goes on: where a device says that it stands means nothing to those who would go back, as archives do."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise io.UnsupportedOperation("tell")


@contextlib.contextmanager
def _straight(target: Path) -> Iterator[BinaryIO]:
    with _Forward(open(target, "wb", buffering=0)) as stream:
        yield stream


@contextlib.contextmanager
def _renamed(target: Path, durable: bool) -> Iterator[BinaryIO]:
    temporary = target.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as stream:
            yield stream
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Puts the names in a folder on the disk, where the system does such."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def write_file(path: str | Path, data: bytes, *, durable: bool = True) -> None:
    """The whole of `data` as the file `path`, or nothing; raises as `replacing` does."""
    with replacing(path, durable=durable) as stream:
        stream.write(data)


# --- files as memory --------------------------------------------------------------------------------------------------

STEP = 1 << 24
"""Bytes of a file that are in memory at a time where all of it is gone through."""

MAX_EXTENTS = 1 << 10
"""Of so many stretches of a sparse file is it known where they are."""


class MappedFile(mmap.mmap):
    """All bytes of a file, to be read. Those that were looked at stay in memory until they are let go."""

    extents: tuple[tuple[int, int], ...]
    """From where to where bytes are stored; all others are zero. In order."""

    def let_go(self, start: int, end: int) -> None:
        """Takes the whole pages between two places out of this process; what is asked for again is read again."""
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = end if end == len(self) else end - end % mmap.PAGESIZE
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self.madvise(mmap.MADV_DONTNEED, first, last - first)

    def is_hole(self, start: int, end: int) -> bool:
        """Whether nothing is stored between two places."""
        return not any(a < end and start < b for a, b in self.extents)


_MAPPED: WeakValueDictionary[tuple[int, ...], MappedFile] = WeakValueDictionary()
"""The files that are mapped now, by which file it is and its state: so equal parts of one file are the same memory."""


def mapped(handle: int) -> memoryview:
    """The bytes of an open file. Raises OSError where it cannot be mapped."""
    about = os.fstat(handle)
    if not about.st_size:
        return memoryview(b"")
    key = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
    found = _MAPPED.get(key)
    if found is None:
        found = MappedFile(handle, about.st_size, access=mmap.ACCESS_READ)
        found.extents = tuple(_extents(handle, about.st_size))
        _MAPPED[key] = found
    return memoryview(found)


def _extents(handle: int, size: int) -> Iterator[tuple[int, int]]:
    """The stretches of a file that are stored, as far as the file system tells."""
    at = 0
    try:
        for _ in range(MAX_EXTENTS if hasattr(os, "SEEK_DATA") else 0):
            start = os.lseek(handle, at, os.SEEK_DATA)
            at = os.lseek(handle, start, os.SEEK_HOLE)
            yield start, at
    except OSError as e:
        if e.errno == errno.ENXIO:  # there is no more behind
            return
    yield at, size


def pieces(data: np.ndarray[Any, np.dtype[np.uint8]]) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
    """The bytes `STEP` at a time; pages of a mapped file are let go behind those who read on, where there are many, and holes in it
    are not read."""
    file: object = data
    while file is not None and not isinstance(file, MappedFile):
        file = file.obj if isinstance(file, memoryview) else getattr(file, "base", None)
    if len(data) <= STEP or file is None:
        yield from (data[k : k + STEP] for k in range(0, len(data), STEP))
        return
    start = data.ctypes.data - np.frombuffer(file, np.uint8).ctypes.data
    zeros = np.zeros(STEP, np.uint8)  # takes no memory before it is written
    for k in range(0, len(data), STEP):
        piece = data[k : k + STEP]
        if file.is_hole(start + k, start + k + len(piece)):
            yield zeros[: len(piece)]
        else:
            yield piece
            file.let_go(start + k, start + k + len(piece))


def write_pieces(stream: BinaryIO, data: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    """Writes bytes that may be more than memory has; long rows of zeros as holes, where the file can have such."""
    for piece in pieces(data):
        if piece.size == STEP and stream.seekable() and not piece.any():
            stream.seek(STEP, os.SEEK_CUR)
            stream.truncate()
        else:
            stream.write(piece.data)
