"""Writing files so that a reader never sees half of one: to a temporary name beside the target, then renamed.

Whatever this package writes goes through here. A failure, an interrupt included, leaves the old file as it was. What is there and
is no regular file (a pipe, a terminal, /dev/null) is written straight.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from deepx_graph.errors import RunError, UsageError, is_interrupt, printable

TEMPORARY = ".tmp-"
"""How the names of files begin that are not whole yet."""


@contextlib.contextmanager
def replacing(path: str | Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A binary file to write, which becomes `path` at the end of a block that does not fail.

    A link is followed, so that what it points to is replaced and not the link. A `durable` file is on the disk before the old one
    is gone, whatever happens to the machine. Raises UsageError when there can be no such file, RunError when writing fails.
    """
    try:
        special = Path(path).exists() and not Path(path).is_file()  # asked of the name: what a pipe's leads to is no file
        with _straight(Path(path)) if special else _renamed(Path(os.path.realpath(path)), durable) as stream:
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
