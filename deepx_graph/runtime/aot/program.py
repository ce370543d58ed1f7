"""A built program: its object code, the C header that describes it, and a shared library of it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import llvmlite.binding

from deepx_graph.errors import Diagnostic, RunError, UsageError, printable, sized
from deepx_graph.files import write_file
from deepx_graph.runtime.aot.entry import BAD_POINTER, BAD_WORKSPACE
from deepx_graph.runtime.inputs import Port
from deepx_graph.runtime.memory.pages import ALIGNMENT
from deepx_graph.runtime.native.llvm.target import Processor
from deepx_graph.types import TensorType
from deepx_graph.types.dtypes import DType

llvm: Any = llvmlite.binding
"""It has no types."""


@dataclass(frozen=True)
class BuiltProgram:
    """A program as object code; `libraries` are those that it is linked with."""

    name: str
    code: bytes
    inputs: tuple[Port, ...]
    results: tuple[Port, ...]
    workspace_bytes: int
    libraries: tuple[str, ...]
    processor: Processor

    def __repr__(self) -> str:
        return f"<built {self.name}: {sized(len(self.code))} for {self.processor.cpu}>"

    @cached_property
    def header(self) -> str:
        """The C header."""
        return header_text(self)

    def link_shared(self, path: str | Path) -> None:
        """Writes a shared library, linked by this machine's `cc`. Raises UsageError where there is none, or the program is for
        another machine; RunError where linking fails."""
        compiler = shutil.which("cc")
        if compiler is None:
            command = f"cc -shared -o {self.name}.so {self.name}.o {' '.join(self.link_options)}"
            raise UsageError(Diagnostic("a shared library is linked by cc, and there is none", hint=f"elsewhere: {command}"))
        if self.processor.triple.partition("-")[0] != llvm.get_process_triple().partition("-")[0]:
            raise UsageError(Diagnostic(f"cc links nothing for '{printable(self.processor.triple)}' here"))
        with tempfile.TemporaryDirectory() as folder:
            code, library = Path(folder, "model.o"), Path(folder, "model.so")
            code.write_bytes(self.code)
            done = subprocess.run([compiler, "-shared", "-o", library, code, *self.link_options], capture_output=True, text=True)
            if done.returncode:
                raise RunError(Diagnostic("cc did not link the program", notes=tuple(done.stderr.splitlines()[:5])))
            write_file(path, library.read_bytes())

    @property
    def link_options(self) -> list[str]:
        """What a linker needs to know."""
        return [f"-l{library}" for library in self.libraries]


_C_TYPES = {"bool": "uint8_t", "f32": "float", "f64": "double", "c64": "float", "c128": "double"}


def c_type(dtype: DType) -> str:
    """What C calls the elements: of complex ones each of the two parts, of floats that C lacks the bits."""
    prefix = "int" if dtype.kind == "int" else "uint"
    return _C_TYPES.get(dtype.name, f"{prefix}{8 * dtype.itemsize}_t")


def header_text(program: BuiltProgram) -> str:
    """Sizes as macros, inputs and results as constant tables, and the entry."""
    name, inputs, results = program.name, program.inputs, program.results
    processor = f"{program.processor.cpu} ({program.processor.triple})"
    big = name.upper()
    return "\n".join([
        f"/* {name}: a program compiled by deepx-graph for {processor}.", " *",
        f" * Link it with: {' '.join(program.link_options)}",
        " *", *_comment("in", inputs), *_comment("out", results), " */",
        f"#ifndef {big}_H", f"#define {big}_H", "", "#include <stddef.h>", "#include <stdint.h>", "",
        "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
        f"#define {big}_WORKSPACE_BYTES {program.workspace_bytes}", f"#define {big}_WORKSPACE_ALIGNMENT {ALIGNMENT}",
        f"#define {big}_BAD_WORKSPACE {BAD_WORKSPACE}", f"#define {big}_BAD_POINTER {BAD_POINTER}", "",
        *_macros(f"{big}_INPUT", inputs), "", *_macros(f"{big}_RESULT", results), "",
        f"struct {name}_tensor {{", "  const char *name;", "  const char *dtype;", "  int rank;", "  const int64_t *shape;",
        "  size_t count; /* elements */", "  size_t bytes;", "};", "",
        *_table(name, "input", inputs), "", *_table(name, "result", results), "",
        "/* in[k] and out[k] are C-contiguous arrays, aligned as their elements, those of out on 8 bytes, too.",
        " * No array of out shares memory with another.",
        " * The workspace may hold anything; calls with workspaces of their own may run at once. Returns 0, or one of:",
        f" * {big}_BAD_WORKSPACE: it is NULL, or not aligned; {big}_BAD_POINTER: an array is NULL, or one of out not aligned. */",
        f"int {name}_run(const void **in, void **out, void *workspace);", "",
        "#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {big}_H */", "",
    ])  # fmt: skip


def _comment(array: str, ports: Sequence[Port]) -> list[str]:
    return [f" * {array}[{k}]: {printable(p.name).replace('*/', '* /')}: {p.type}" for k, p in enumerate(ports)]


def _macros(prefix: str, ports: Sequence[Port]) -> list[str]:
    lines = [f"#define {prefix}S {len(ports)}"]
    for k, type in enumerate(map(_tensor, ports)):
        lines += [f"#define {prefix}_{k}_TYPE {c_type(type.dtype)} /* {type.dtype} */",
                  f"#define {prefix}_{k}_RANK {len(type.shape)}",
                  f"#define {prefix}_{k}_COUNT {type.nbytes // type.dtype.itemsize}", f"#define {prefix}_{k}_BYTES {type.nbytes}"]
    return lines


def _table(name: str, kind: str, ports: Sequence[Port]) -> list[str]:
    """The descriptions of tensors; those of none have one empty entry, as C has no empty arrays."""
    shapes, rows = [], []
    for k, port in enumerate(ports):
        type = _tensor(port)
        shape = f"{name}_{kind}_{k}_shape"
        shapes.append(f"static const int64_t {shape}[] = {{{', '.join(map(str, type.shape)) or '1'}}};")
        rows.append(f'  {{"{_quoted(port.name)}", "{type.dtype}", {len(type.shape)}, {shape}, '
                    f"{type.nbytes // type.dtype.itemsize}, {type.nbytes}}},")
    return [*shapes, f"static const struct {name}_tensor {name}_{kind}s[] = {{", *(rows or ["  {0}"]), "};"]


def _quoted(text: str) -> str:
    """A text between the quotes of a C string, bytes beyond plain letters by number."""
    return "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode())


def _tensor(port: Port) -> TensorType:
    assert isinstance(port.type, TensorType)
    return port.type
