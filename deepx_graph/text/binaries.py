"""Binary files that are not read as programs: what they are called, how they begin, and the line that makes a text of them."""

from __future__ import annotations

import re
from typing import NamedTuple

from deepx_graph.errors import Diagnostic, ParseError


class Binary(NamedTuple):
    """A kind of file, the pattern that its first bytes match, and how to go on; FILE stands for its name."""

    name: str
    pattern: re.Pattern[bytes]
    hint: str


def _binary(name: str, pattern: bytes, hint: str) -> Binary:
    return Binary(name, re.compile(pattern, re.DOTALL), hint)


_BYTECODE = ('python -c "from jax._src.interpreters.mlir import make_ir_context as c; '
             "from jaxlib.mlir.dialects import stablehlo as s; "
             "print(s.deserialize_portable_artifact(c(), open('FILE', 'rb').read()))\" > FILE.mlir")  # fmt: skip
_HLO = ('python -c "from jaxlib._hlo import HloModule as M; '
        "print(M.from_serialized_hlo_module_proto(open('FILE', 'rb').read()).to_string())\" > FILE.hlo")  # fmt: skip
_ONNX = 'python -c "import onnx, tvm.relay as r; print(r.frontend.from_onnx(onnx.load(\'FILE\'))[0].astext())" > FILE.relay'
_TORCH = ('python -c "import torch; from torch_xla.stablehlo import exported_program_to_stablehlo as s; '
          "print(s(torch.export.load('FILE')).get_stablehlo_text())\" > FILE.mlir")  # fmt: skip
_ARRAYS = "arrays are inputs: run PROGRAM --input NAME=FILE, or --inputs FILE for an archive"

BINARIES: tuple[Binary, ...] = (
    _binary("MLIR bytecode (a StableHLO portable artifact)", rb"ML\xefR", _BYTECODE),
    _binary("an XLA HLO protocol buffer", rb"\x0a(?:[\x80-\xff]+[\x00-\x7f]\x0a)?[\x01-\x7f][\x20-\x7e]+\x12", _HLO),
    _binary("an ONNX model", rb"\x08[\x01-\x1f](?:\x12|:|\x1a|\x42).", _ONNX),
    _binary("an archive of numpy arrays", rb"PK\x03\x04.{26}[^/\\]{1,80}\.npy", _ARRAYS),
    _binary("a zip archive (.pt2 of torch.export, or another)", rb"PK\x03\x04", _TORCH),
    _binary("a numpy array", rb"\x93NUMPY", _ARRAYS),
    _binary("compressed by gzip", rb"\x1f\x8b", "gzip -dc FILE | deepx-graph info -"),
    _binary("compressed by zstd", rb"\x28\xb5\x2f\xfd", "zstd -dc FILE | deepx-graph info -"),
    _binary("compressed by xz", rb"\xfd7zXZ\x00", "xz -dc FILE | deepx-graph info -"),
    _binary("compressed by bzip2", rb"BZh[1-9]1AY", "bzip2 -dc FILE | deepx-graph info -"),
    _binary("a TensorFlow Lite model", rb".{4}TFL3", "export StableHLO or HLO text from the framework that made it"),
    _binary("LLVM bitcode", rb"BC\xc0\xde", "a program of tensors is needed, before it is compiled"),
    _binary("an HDF5 file", rb"\x89HDF", "export StableHLO or HLO text from the framework that made it"),
    _binary("a Python pickle", rb"\x80[\x02-\x05]", "print the program as text where it was pickled; a pickle may hold any code"),
)
"""The kinds that are told apart, in the order in which they are tried."""


def refuse_known(data: bytes, name: str) -> None:
    """Raises ParseError for a binary file of a known kind."""
    for kind in BINARIES:
        if kind.pattern.match(data):
            raise ParseError(Diagnostic(f"{name} is {kind.name}: it is not read as a program", expected="a program as UTF-8 text",
                                        hint=kind.hint))
