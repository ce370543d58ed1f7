"""Zip archives as `torch.export.save` and `torch.save` write them, read where they lie. Source: APPNOTE.TXT of PKWARE.

Files that are stored as they are become views of the archive's bytes; others are inflated, within a bound for all of them together.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

from deepx_graph.errors import Diagnostic, LimitError, ParseError

LOCAL_HEADER = struct.Struct("<4s22xHH")
"""The signature of a file's own header, and how long its name and its extra field are."""

Broken = (zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError, ArithmeticError, LookupError, ValueError,
          EOFError, OSError)
"""What zipfile says of archives that are damaged, encrypted or compressed in ways it does not know."""


class BytesFile(io.RawIOBase):
    """Bytes as a file, without a copy of them."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self.at, len(self.data))[whence]
        self.at = max(0, base + offset)
        return self.at

    def readinto(self, buffer: object) -> int:
        target = memoryview(buffer)  # type: ignore[arg-type]
        piece = self.data[self.at : self.at + len(target)]
        target[: len(piece)] = piece
        self.at += len(piece)
        return len(piece)


class Archive:
    """The files of an archive by name, without the folder that all of them are in. Raises ParseError for one that is damaged."""

    def __init__(self, data: memoryview, name: str, max_bytes: int) -> None:
        self.data, self.name, self.left, self.max_bytes = data, name, max_bytes, max_bytes
        try:
            self.zip = zipfile.ZipFile(io.BufferedReader(BytesFile(data)))
            entries = [i for i in self.zip.infolist() if not i.is_dir()]
        except Broken as e:
            raise self.damaged(e) from None
        root = _root([i.filename for i in entries])
        self.entries = {i.filename[len(root) :]: i for i in entries}
        if len(self.entries) != len(entries):
            raise ParseError(Diagnostic(f"{name} has two files of one name", expected="a name of its own for each file"))

    def damaged(self, why: object) -> ParseError:
        """The error of an archive that cannot be read."""
        return ParseError(Diagnostic(f"{self.name} is a damaged archive: {str(why) or type(why).__name__:.100}",
                                     expected="a zip archive as torch writes it"))

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def __getitem__(self, name: str) -> memoryview:
        """The bytes of a file. Raises ParseError where there is none, LimitError where they are too many."""
        entry = self.entries.get(name)
        if entry is None:
            raise ParseError(Diagnostic(f"{self.name} has no file '{name}'", expected="an archive with all of its files"))
        try:
            return self._stored(entry) if entry.compress_type == zipfile.ZIP_STORED else self._inflated(entry)
        except Broken as e:
            raise self.damaged(e) from None

    def _stored(self, entry: zipfile.ZipInfo) -> memoryview:
        signature, name, extra = LOCAL_HEADER.unpack(self.data[entry.header_offset : entry.header_offset + LOCAL_HEADER.size])
        start = entry.header_offset + LOCAL_HEADER.size + name + extra
        if signature != b"PK\3\4" or entry.flag_bits & 1 or start + entry.file_size > len(self.data):
            raise ValueError(f"'{entry.filename}' is not where the archive says")
        return self.data[start : start + entry.file_size]

    def _inflated(self, entry: zipfile.ZipInfo) -> memoryview:
        if entry.file_size > self.left:
            raise LimitError(Diagnostic(f"{self.name} has more than {self.max_bytes} bytes unpacked",
                                        hint="raise --max-file-bytes if you trust it"))
        with self.zip.open(entry) as file:
            found = file.read(entry.file_size + 1)
        if len(found) != entry.file_size:
            raise ValueError(f"'{entry.filename}' is not as long as the archive says")
        self.left -= len(found)
        return memoryview(found)


def _root(names: list[str]) -> str:
    """The folder that all files are in, with its slash; empty where there is none."""
    first = names[0].partition("/")[0] + "/" if names else ""
    return first if names and all(n.startswith(first) for n in names) else ""
