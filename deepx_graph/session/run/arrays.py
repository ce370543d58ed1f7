"""Arrays in `.npy` and `.npz` files: checked before anything is read, written whole or not at all.

The header says how many bytes follow; a file that claims another size, an archive member that would unpack to more, an object
array (which could hold code) and anything beyond `max_bytes` are refused first. Element types that numpy does not know are
stored as raw bytes, and read back as what the program expects.
"""

from __future__ import annotations

import io
import itertools
import math
import os
import zipfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from deepx_graph.errors import Diagnostic, LimitError, RunError, UsageError, suggest
from deepx_graph.files import replacing
from deepx_graph.literal import Array
from deepx_graph.runtime.compile import memory_limit
from deepx_graph.types import DType

MAX_HEADER = 10_000
"""Characters of an npy header that are looked at."""

_DAMAGED = (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, KeyError)
"""What numpy and zipfile raise for a file that is not what it says."""


def read_npy(path: str | Path, dtype: DType | None = None, max_bytes: int | None = None) -> Array:
    """The array of a `.npy` file. `dtype` is what raw bytes stand for.

    Raises UsageError when it cannot be opened, RunError when it is damaged or holds objects, LimitError when it is too large.
    """
    with _open(path) as stream:
        try:
            return _read_stream(stream, os.fstat(stream.fileno()).st_size, str(path), dtype, max_bytes)
        except _DAMAGED as e:
            raise _damaged(str(path), e) from None


def read_npz(path: str | Path, wanted: Mapping[str, DType | None] | None = None,
             max_bytes: int | None = None) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The wanted arrays of a `.npz` file by name (all of them for None), and the names that were left unread.

    Raises as `read_npy` does; the bound is on all arrays together.
    """
    left = memory_limit() if max_bytes is None else max_bytes
    found: dict[str, Array] = {}
    unread: list[str] = []
    with _open(path) as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                for member in archive.infolist():
                    name = member.filename.removesuffix(".npy")
                    if wanted is not None and name not in wanted:
                        unread.append(name)
                        continue
                    with archive.open(member) as data:
                        place = f"{path}[{name}]"
                        found[name] = _read_stream(data, member.file_size, place, (wanted or {}).get(name), left)
                    left -= found[name].nbytes
        except _DAMAGED as e:
            raise _damaged(str(path), e) from None
    return found, tuple(unread)


def write_npz(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """The arrays, by name, as an uncompressed `.npz` file. Raises as `replacing` does."""
    with replacing(path) as stream:
        pack_npz(stream, arrays)


def pack_npz(stream: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """The arrays, by name, as an uncompressed `.npz` archive at the end of a stream."""
    with zipfile.ZipFile(stream, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, np.asanyarray(array), allow_pickle=False)


def nearest_dtype(array: Array, dtype: DType | None) -> Array:
    """Raw bytes seen as elements of `dtype`, when they have its size; any other array as it is."""
    if array.dtype.kind == "V" and dtype is not None and dtype.np is not None and array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype.np)
    return array


def _open(path: str | Path) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as e:
        raise UsageError(f"cannot read '{path}': {e.strerror or e}") from None


def _damaged(place: str, error: Exception) -> RunError:
    return RunError(Diagnostic(f"{place} is damaged or no numpy file: {error}", expected="what numpy.save or numpy.savez writes"))


def _read_stream(stream: IO[bytes], size: int, place: str, dtype: DType | None, max_bytes: int | None) -> Array:
    """One array from the start of its header; `size` is how many bytes the stream is said to have."""
    shape, element, header = _header(stream)
    if element.hasobject:
        raise RunError(Diagnostic(f"{place} holds Python objects", expected="numbers"))
    needed = math.prod(shape) * element.itemsize
    limit = memory_limit() if max_bytes is None else max_bytes
    if needed > limit:
        raise LimitError(Diagnostic(f"{place} needs {needed:,} bytes, more than the {limit:,} allowed",
                                    hint="raise --max-bytes if you trust it"))
    if size != header + needed:
        raise RunError(f"{place} is damaged: {size:,} bytes for an array that needs {header + needed:,}")
    stream.seek(0)
    return nearest_dtype(npy.read_array(stream, allow_pickle=False, max_header_size=MAX_HEADER), dtype)


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, element type and length in bytes of an npy header. Raises ValueError for none."""
    version = npy.read_magic(stream)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"npy version {version[0]}.{version[1]}")
    stated = stream.read(2 * version[0])  # numpy would read as much as these bytes say before it looks at them
    length = int.from_bytes(stated, "little")
    if length > MAX_HEADER:
        raise ValueError(f"a header of {length:,} bytes")
    shape, _, element = readers[version](io.BytesIO(stated + stream.read(length)), max_header_size=MAX_HEADER)
    return shape, element, stream.tell()


def read_inputs(files: Mapping[str, str], archive: str | None, wanted: Mapping[str, DType | None],
                max_bytes: int | None = None) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The program's inputs from `NAME=FILE.npy` files and an archive, the files first, and the archive's unread names.

    Raises UsageError for a file given to a name that is no input; else as `read_npy`.
    """
    from_archive, unread = read_npz(archive, wanted, max_bytes) if archive is not None else ({}, ())
    check_names(files, wanted)
    return from_archive | {name: read_npy(path, wanted[name], max_bytes) for name, path in files.items()}, unread


def check_names(given: Collection[str], inputs: Collection[str]) -> None:
    """Raises UsageError, with the nearest name, for a name that is no input."""
    for name in given:
        if name not in inputs:
            known = ", ".join(inputs) or "none: the program has no inputs"
            raise UsageError(Diagnostic(f"no input '{name}'", expected=known, hint=suggest(name, inputs)))


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, later ones of the same made different: `y`, `y#1`, `y#2`."""
    taken: dict[str, None] = {}
    for name in names:
        free = next(n for n in itertools.chain((name,), (f"{name}#{k}" for k in itertools.count(1))) if n not in taken)
        taken[free] = None
    return list(taken)
