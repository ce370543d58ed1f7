"""The program in an object of another library, told by what the object can do, as text or bytes that a reader takes.

No library is imported: whoever has such an object has imported it. Names of places and scopes come along, as bytecode has them.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepx_graph.errors import Diagnostic, Source, UsageError, is_interrupt
from deepx_graph.session import programs
from deepx_graph.session.programs import Loaded
from deepx_graph.text import ReadOptions, read_source

Taken = str | bytes


@dataclass(frozen=True)
class ForeignObject:
    """A kind of object: `methods` tell it, `take` gives its program as text or bytes."""

    name: str
    methods: tuple[str, ...]
    take: Callable[[Any], Taken]


def _bytecode(module: Any) -> bytes:
    file = io.BytesIO()
    module.operation.write_bytecode(file=file)
    return file.getvalue()


def _optimised_by_xla(compiled: Any) -> bytes:
    return bytes(compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto())


def _archive(exported: Any) -> bytes:
    """What `torch.export.save` writes."""
    file = io.BytesIO()
    sys.modules["torch"].export.save(exported, file)
    return file.getvalue()


KINDS = (
    ForeignObject("a traced function of JAX", ("jaxpr", "lower"), lambda o: _bytecode(o.lower().compiler_ir("stablehlo"))),
    ForeignObject("a lowered function of JAX", ("compiler_ir", "as_text"), lambda o: _bytecode(o.compiler_ir("stablehlo"))),
    ForeignObject("a compiled function of JAX", ("runtime_executable", "as_text"), _optimised_by_xla),
    ForeignObject("an exported function of JAX", ("mlir_module_serialized", "in_tree"), lambda o: bytes(o.mlir_module_serialized)),
    ForeignObject("a module of MLIR", ("operation", "body"), _bytecode),
    ForeignObject("a module of XLA", ("as_serialized_hlo_module_proto",), lambda o: bytes(o.as_serialized_hlo_module_proto())),
    ForeignObject("an exported program of torch", ("graph_module", "graph_signature", "module_call_graph"), _archive),
    ForeignObject("a protocol buffer", ("SerializeToString", "ListFields"), lambda o: bytes(o.SerializeToString())),
    ForeignObject("a module of TVM", ("astext",), lambda o: str(o.astext())),
)
"""Every kind, in the order in which they are tried."""

HINTS = (
    (("lower", "trace"), "give example arguments: dx.from_jax(f, *args)"),
    (("forward", "state_dict"), "export it: dx.load(torch.export.export(model, args))"),
    (("__array__",), "an array is an input of a program: dx.compile(module)(array)"),
    (("__call__",), "give example arguments: dx.from_jax(f, *args), or dx.trace(f, *args) for functions of arrays"),
)
"""What to do with objects that have no program in them yet, by what they can do."""


def load(source: object, format: str | None, options: ReadOptions) -> Loaded:
    """The program in a file, an open file, bytes, or an object of another library.

    Raises UsageError for anything else, and for a file that cannot be opened; else as `programs.load`.
    """
    if isinstance(source, (str, Path)):
        return programs.load(source, format, options)
    if isinstance(source, os.PathLike):
        return programs.load(os.fsdecode(source), format, options)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return programs.loads(source, format, options)
    if callable(getattr(source, "read", None)):
        return programs.loads(_read(source, options), format, options)
    return programs.loads(taken(source), format, options)


def taken(value: object) -> Taken:
    """The program of an object as text or bytes. Raises UsageError where it has none, or does not give it."""
    for kind in KINDS:
        if not isinstance(value, type) and all(hasattr(value, method) for method in kind.methods):
            try:
                return kind.take(value)
            except Exception as e:  # whatever the other library raises
                if is_interrupt(e):
                    raise
                raise UsageError(f"{kind.name} did not give its program: {type(e).__name__}: {e}") from e
    hint = next((h for methods, h in HINTS if all(hasattr(value, m) for m in methods)), None)
    raise UsageError(Diagnostic(f"no program is in an object of type {type(value).__name__}",
                                expected="a path, bytes, an open file, " + ", ".join(kind.name for kind in KINDS), hint=hint))


def _read(file: Any, options: ReadOptions) -> Source:
    """What is left in an open file, of bytes or of text; no more than the bound on files."""
    name = str(getattr(file, "name", "<file>"))
    try:
        if isinstance(file.read(0), str):
            return Source(name, file.read(options.max_file_bytes + 1))
        return read_source(file, name, options.max_file_bytes)
    except (OSError, ValueError) as e:
        if is_interrupt(e):
            raise
        raise UsageError(f"cannot read '{name}': {e}") from None
