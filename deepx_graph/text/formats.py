"""The languages this package reads and writes, one row each, and the way in and out of them: recognise, read, write.

A text is recognised by what it says; its file name decides only where that does not. Binary input, whose kinds are told with the
line that makes a text of them, and oversized files are refused before any reader sees them. A reader is imported when its language
is first met. Nothing here verifies or runs a program.
"""

from __future__ import annotations

import importlib
import os
import re
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from deepx_graph.cycles import no_collection
from deepx_graph.errors import (
    Diagnostic,
    InferError,
    LimitError,
    ParseError,
    Source,
    Span,
    UsageError,
    VerifyError,
    suggest,
)
from deepx_graph.files import mapped, naming
from deepx_graph.ir import Module
from deepx_graph.rewrite import TARGETS
from deepx_graph.text import mindir, onnx, torch
from deepx_graph.text.common.options import ReadOptions, ReadResult
from deepx_graph.text.hlo import is_protobuf
from deepx_graph.text.stablehlo import is_binary

if TYPE_CHECKING:
    from deepx_graph.rewrite.legalise import ConversionTarget


PIECE = 1 << 24
"""Bytes that are read of a file at a time: asking for many takes memory for as many."""

SAMPLE = 1 << 16
"""How many leading characters recognition looks at."""

SURE = 0.9
"""How likely a text is of a language that it is said to look like."""

HEAD = 1024
"""How many leading bytes tell the kind of a binary file."""


class Language(Protocol):
    """What the package of a language offers."""

    def detect(self, text: str) -> float:
        """How likely the text, or its beginning, is of this language: 0 to 1."""

    def read(self, source: Source, options: ReadOptions) -> ReadResult:
        """The program. Raises ParseError or VerifyError with spans, LimitError where a bound is exceeded."""

    @property
    def write(self) -> Callable[..., str | bytes]:
        """`write(module, **options)`: the text, or the bytes of a binary form.

        Raises VerifyError for a node that the language cannot express.
        """


@dataclass(frozen=True)
class Format:
    """A language: `package` implements it (see Language), `options` are what its `write` takes; `target` is the module in it whose
    `TARGET` says which operations the language has, where its printer decomposes the others.
    """

    name: str
    summary: str
    suffixes: tuple[str, ...]
    package: str
    options: tuple[str, ...] = ()
    reads: bool = True
    writes: bool = True
    target: str = ""
    binary: bool = False
    """Whether what it writes is bytes."""
    begins: Callable[[bytes], bool] | None = None
    """Whether a file with these first bytes is a binary one of this language."""
    language: Any = None
    """What a plugin gives in place of a package, with the functions of `Language`."""

    def conversion_target(self) -> ConversionTarget:
        """What the language has, for legalisation. Imports its printer."""
        return cast("ConversionTarget", importlib.import_module(f"{self.package}.{self.target}").TARGET)

    def _language(self) -> Language:
        return cast(Language, self.language or importlib.import_module(self.package))

    def detect(self, text: str) -> float:
        return self._language().detect(text) if self.reads else 0.0

    def read(self, source: Source, options: ReadOptions) -> ReadResult:
        if not self.reads:
            raise UsageError(Diagnostic(f"{self.name} is written and not read",
                                        expected=" | ".join(n for n, f in FORMATS.items() if f.reads)))
        return self._language().read(source, options)

    def beginning(self, source: Source, instructions: int) -> Source | None:
        """A program of the first instructions of a large one, where the language can tell them apart. Raises ParseError."""
        of_language = getattr(self._language(), "beginning", None)
        if of_language is None:
            return None
        if source.data is None:
            text = of_language(source.text, instructions)
            return None if text is None else Source(source.name, text)
        data = of_language(source, instructions)
        return None if data is None else Source(source.name, data=memoryview(data), folder=source.folder)

    def write(self, module: Module, **options: object) -> str | bytes:
        for name in options:
            if name not in self.options:
                raise UsageError(Diagnostic(f"writing {self.name} has no option '{name}'",
                                            expected=" | ".join(self.options) or "no option",
                                            hint=suggest(name, self.options)))
        if not self.writes:
            raise UsageError(Diagnostic(f"{self.name} is read and not written",
                                        expected=" | ".join(n for n, f in FORMATS.items() if f.writes)))
        return self._language().write(module, **options)


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("sea", "our own form; reads back exactly what was written", (".sea",), "deepx_graph.text.sea"),
        Format("hlo", "XLA HLO as text or protocol buffer", (".hlo",), "deepx_graph.text.hlo", target="printer.ops",
               begins=is_protobuf),
        Format("hlo-proto", "XLA HLO as a protocol buffer, written; read as hlo", (".pb",), "deepx_graph.text.hlo.proto.writer",
               reads=False, binary=True),
        Format("stablehlo", "StableHLO as MLIR text or bytecode, alone or exported by JAX", (".stablehlo", ".mlir"),
               "deepx_graph.text.stablehlo", target="printer.legal", begins=is_binary),
        Format("mlirbc", "StableHLO as a portable artifact, written; read as stablehlo", (".mlirbc",),
               "deepx_graph.text.stablehlo.bytecode.artifact", reads=False, binary=True),
        Format("mindir", "MindSpore MindIR, binary, or as its compiler dumps it", (".mindir", ".ir"), "deepx_graph.text.mindir",
               writes=False, begins=mindir.looks_like_model),
        Format("onnx", "ONNX models, binary, every version of the operators", (".onnx",), "deepx_graph.text.onnx", ("opset",),
               target="printer.ops", binary=True, begins=onnx.looks_like_model),
        Format("onnxtxt", "ONNX models in the text syntax of the standard", (".onnxtxt", ".onnxtext"),
               "deepx_graph.text.onnx.syntax", ("opset",)),
        Format("torch", "programs of torch.export, binary (.pt2)", (".pt2",), "deepx_graph.text.torch", writes=False,
               begins=torch.looks_like_program),
        Format("relay", "TVM Relay text", (".relay", ".rly"), "deepx_graph.text.relay", target="printer.ops"),
        Format("anf", "A-normal form: S-expressions with a name for every step", (".anf",), "deepx_graph.text.anf"),
        Format("cps", "continuation-passing style, written for looking and not read", (".cps",),
               "deepx_graph.text.anf.continuations", reads=False),
        Format("deepx", "deepx IR, all dialects", (".dx", ".deepx", ".deepxir"), "deepx_graph.text.deepx", ("dialect",),
               target="printer.module"),
    )
}
"""Every language by name, in the order in which they are tried."""

TARGETS.update({name: f.conversion_target for name, f in FORMATS.items() if f.target})


def format_named(name: str) -> Format:
    """The format of that name. Raises UsageError, with the nearest name, when there is none."""
    if name not in FORMATS:
        raise UsageError(Diagnostic(f"unknown format '{name}'", expected=" | ".join(FORMATS), hint=suggest(name, FORMATS)))
    return FORMATS[name]


PLAN = ("mesh <[", 'program "')
"""What the text of a plan begins with, behind comments ([sharding](docs/sharding.md))."""


def detect(text: str, file_name: str = "") -> str:
    """The name of the format that `text` is in. Raises ParseError when neither it nor the file's suffix tells."""
    sample = text[:SAMPLE]
    best, likelihood = "", 0.0
    for name, f in FORMATS.items():
        if (found := f.detect(sample)) > likelihood:
            best, likelihood = name, found
        if likelihood >= 1:  # it is certain: the languages after it need not even be imported
            break
    if best:
        return best
    for name, f in FORMATS.items():
        if file_name.endswith(f.suffixes):
            return name
    start = len(text) - len(text.lstrip())
    end = text.find("\n", start)
    span = Span(Source(file_name or "<text>", text), start, len(text) if end < 0 else end)
    if text.startswith(PLAN, start):
        raise ParseError(Diagnostic("this is a plan for a program, not a program", span,
                                    hint="give it beside the program: deepx-graph run PROGRAM --plan FILE"))
    raise ParseError(Diagnostic("cannot tell what language this is in", span,
                                expected=" | ".join(FORMATS), hint="name it (--format, or format=) if it is one of these"))


def read(source: Source, format: str | None = None, options: ReadOptions | None = None) -> ReadResult:
    """The program of a text, in `format` or in the one it is recognised as.

    Raises ParseError, VerifyError, LimitError as the readers do, UsageError for an unknown format. The module is not yet
    verified.
    """
    options = options or ReadOptions()
    chosen = format_named(format) if format is not None else None
    _refuse_unreadable(source, options)
    with no_collection():
        try:
            return (chosen or FORMATS[recognise(source)]).read(source, options)
        except (ParseError, VerifyError) as e:
            other = chosen and _other_language(source, chosen)
            if not other or isinstance(e, InferError):
                raise
            first, *more = e.diagnostics
            noted = replace(first, notes=(*first.notes, f"this looks like {other}, and was read as {format}"))
            raise type(e)(noted, *more) from None
        except ValueError as e:
            if "integer string conversion" not in str(e):
                raise
            limit = sys.get_int_max_str_digits()
            raise LimitError(f"{source.name} holds a whole number of more than {limit} digits") from None


def _other_language(source: Source, chosen: Format) -> str | None:
    """The language that a text is surely in, where it does not look like that which was chosen."""
    sample = source.text[:SAMPLE]
    if source.data is not None or chosen.detect(sample) > 0:
        return None
    return next((name for name, f in FORMATS.items() if f.detect(sample) >= SURE), None)


def recognise(source: Source) -> str:
    """The name of the format of a source, text or binary."""
    return detect(source.text, source.name) if source.data is None else binary_format(bytes(source.data[:HEAD])) or ""


@no_collection()
def write(module: Module, format: str, **options: object) -> str:
    """The module as text. Raises UsageError for an unknown format or option, VerifyError for what it cannot express."""
    if format_named(format).binary:
        suffix = format_named(format).suffixes[0]
        raise UsageError(Diagnostic(f"{format} is no text", hint=f"write it to a file: opt FILE -o OUT{suffix}"))
    text = _written(module, format, **options)
    assert isinstance(text, str)
    return text


def encode(module: Module, format: str, **options: object) -> bytes:
    """The module as the bytes of a file. Raises as `write`, for another format than a binary one the same text in UTF-8."""
    data = _written(module, format, **options)
    return data if isinstance(data, bytes) else data.encode()


def _written(module: Module, format: str, **options: object) -> str | bytes:
    with no_collection():
        try:
            return format_named(format).write(module, **options)
        except InferError as e:  # found by no writer at a node of its own
            raise VerifyError(e.diagnostic(module.entry.span, f"{format}: ")) from None


# --- bytes to sources ---------------------------------------------------------------------------------------------


def binary_format(head: bytes) -> str | None:
    """The format of a binary file that begins like this; None for texts and for binary files of other kinds."""
    return next((name for name, f in FORMATS.items() if f.begins is not None and f.begins(head)), None)


def open_source(path: str | Path, options: ReadOptions | None = None) -> Source:
    """The text of a file, or a binary one as mapped memory. Raises UsageError when it cannot be opened; else as `decode_source`."""
    limit = (options or ReadOptions()).max_file_bytes
    if Path(path).is_dir():
        raise _is_folder(Path(path))
    with naming("read", path), open(path, "rb") as file:
        if binary_format(file.peek(HEAD)[:HEAD]):
            return _mapped_source(file, str(path), limit)
        return replace(read_source(file, str(path), limit), folder=Path(path).parent)


def _mapped_source(file: BinaryIO, name: str, limit: int) -> Source:
    """A binary file as mapped memory; one that is no file but a pipe, say, as its bytes. Raises LimitError."""
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return read_source(file, name, limit)
    data = mapped(file.fileno())
    if len(data) > limit:
        raise LimitError(_too_large(name, limit))
    return Source(name, data=data, folder=Path(name).parent)


def read_source(file: BinaryIO, name: str, limit: int) -> Source:
    """The text of an open file, or of standard input; no more than `limit` bytes are taken from it."""
    pieces, left = [], limit + 1
    while left > 0 and (piece := file.read(min(left, PIECE))):
        pieces.append(piece)
        left -= len(piece)
    return decode_source(b"".join(pieces), name, limit)


def decode_source(data: bytes, name: str, limit: int) -> Source:
    """The text in `data`. Raises LimitError when it is too large, ParseError when it is not UTF-8 text."""
    if len(data) > limit:
        raise LimitError(_too_large(name, limit))
    if binary_format(data[:HEAD]):
        return Source(name, data=memoryview(data))
    refuse_known(data[:HEAD], name)
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ParseError(Diagnostic(f"{name} is UTF-16 text", expected="UTF-8 text", hint="convert it to UTF-8"))
    try:
        return Source(name, data.decode("utf-8-sig"))
    except UnicodeDecodeError as e:
        what = "binary data" if b"\0" in data[:SAMPLE] else "not UTF-8 text"
        raise ParseError(Diagnostic(f"{name} is {what}: byte 0x{data[e.start]:02x} at offset {e.start}",
                                    expected="a program as UTF-8 text")) from None


def _refuse_unreadable(source: Source, options: ReadOptions) -> None:
    if len(source.text if source.data is None else source.data) > options.max_file_bytes:
        raise LimitError(_too_large(source.name, options.max_file_bytes))
    if source.binary:
        return
    nul = source.text.find("\0")
    if nul >= 0:
        raise ParseError(Diagnostic(f"{source.name} is binary data: a zero byte at offset {nul}",
                                    expected="a program as UTF-8 text"))
    if not source.text.strip():
        raise ParseError(Diagnostic(f"{source.name} holds no program: the text is empty",
                                    expected=" | ".join(FORMATS)))


def _too_large(name: str, limit: int) -> Diagnostic:
    return Diagnostic(f"{name} has more than {limit} bytes", hint="raise --max-file-bytes if you trust it")


# --- binary files that are not read as programs: nothing here unpacks or unpickles them ---------------------------------

_ZIP = rb"PK\x03\x04.{26}"
"""The head of an archive, up to the name of its first file."""
_ARRAYS = "arrays are inputs: run PROGRAM --input NAME=FILE, or --inputs FILE for an archive"
_WEIGHTS = "it has weights and no program: export the model that they belong to, as ONNX, StableHLO or HLO"
_TF2ONNX = "python -m tf2onnx.convert --{} --output FILE.onnx"
_SAVED = _TF2ONNX.format("saved-model FOLDER")
_SCRIPT = "python -c \"import torch; torch.onnx.export(torch.jit.load('FILE'), (ARGUMENTS,), 'FILE.onnx', dynamo=False)\""
_KERAS = "python -c \"import keras; m = keras.saving.load_model('FILE'); m(ARGUMENTS); m.export('FILE.onnx', format='onnx')\""
_BACK = "convert the model that it was made from: there is no way back from this form"

BINARIES: tuple[tuple[str, bytes, str], ...] = (
    ("an archive of numpy arrays", _ZIP + rb"[^/\\]{1,80}\.npy", _ARRAYS),
    ("a Keras model", _ZIP + rb"(?:metadata|config)\.json", _KERAS),
    ("an archive of torch, TorchScript or weights",
     _ZIP + rb"[^/\x00]{1,200}/(?:data\.pkl|code/|data/\d|constants\.pkl|byteorder|\.data)", _SCRIPT),
    ("a zip archive", rb"PK\x03\x04", "unpack it: it may hold a program"),
    ("a numpy array", rb"\x93NUMPY", _ARRAYS),
    ("weights as safetensors", rb".{4}\0{4}\{\s*\"", _WEIGHTS),
    ("weights as GGUF", rb"GGUF", _WEIGHTS),
    ("a TensorFlow SavedModel", rb"\x08\x01\x12[\x80-\xff]{0,4}[\x00-\x7f]\x0a[\x80-\xff]{0,4}[\x00-\x7f][\x12\x1a\x22]", _SAVED),
    ("a Core ML model", rb"\x08[\x01-\x1f]\x12[\x80-\xff]{0,4}[\x00-\x7f]\x0a", _BACK),
    ("a TensorFlow graph", rb"\x0a[\x80-\xff]{0,4}[\x00-\x7f]\x0a[\x01-\x7f][\x20-\x7e]+\x12[\x01-\x40][A-Z]\w+",
     _TF2ONNX.format("graphdef FILE --inputs NAME:0 --outputs NAME:0")),
    ("a TensorFlow Lite model", rb".{4}TFL3", _TF2ONNX.format("tflite FILE")),
    ("an ExecuTorch program", rb".{4}ET\d\d", _BACK),
    ("a TensorRT engine", rb"[pf]trt", _BACK),
    ("an HDF5 file, of Keras or with arrays", rb"\x89HDF", _KERAS),
    ("a Python pickle", rb"\x80[\x02-\x05]", "print the program as text where it was pickled; a pickle may hold any code"),
    ("compressed by gzip", rb"\x1f\x8b", "gzip -dc FILE | deepx-graph info -"),
    ("compressed by zstd", rb"\x28\xb5\x2f\xfd", "zstd -dc FILE | deepx-graph info -"),
    ("compressed by xz", rb"\xfd7zXZ\x00", "xz -dc FILE | deepx-graph info -"),
    ("compressed by bzip2", rb"BZh[1-9]1AY", "bzip2 -dc FILE | deepx-graph info -"),
    ("LLVM bitcode", rb"BC\xc0\xde", "a program of tensors is needed, before it is compiled"),
    ("machine code", rb"\x7fELF|\xcf\xfa\xed\xfe|MZ.{58}", "a program of tensors is needed, before it is compiled"),
)  # fmt: skip
"""What each is called, the pattern that its first bytes match, and how to go on, FILE being its name; in the order of trying."""

FOLDERS: tuple[tuple[str, str, str], ...] = (
    ("a TensorFlow SavedModel", "saved_model.pb", _SAVED),
    ("a Core ML package", "Manifest.json", _BACK),
)
"""What a folder is called, the file in it that shows so, and how to go on, FOLDER being its name."""


def _is_folder(path: Path) -> UsageError:
    """The error of a folder that is given for a file: what it is by the files in it, and what takes it."""
    for kind, file, hint in FOLDERS:
        if (path / file).exists():
            return UsageError(Diagnostic(f"{path} is {kind}: it is not read as a program", expected="a program", hint=hint))
    return UsageError(Diagnostic(f"cannot read '{path}': it is a folder",
                                 hint="a folder that XLA dumped is shown by: deepx-graph stages FOLDER"))


def refuse_known(data: bytes, name: str) -> None:
    """Raises ParseError for a binary file of a known kind."""
    for kind, pattern, hint in BINARIES:
        if re.match(pattern, data, re.DOTALL):
            raise ParseError(Diagnostic(f"{name} is {kind}: it is not read as a program", expected="a program", hint=hint))
