"""Compiled programs kept on disk, so that a later process starts them without optimising, planning or compiling.

A program that is one kernel of machine code is kept beside the code of kernels (`llvm/store.py`, whose bounds hold), under a key of
all that it depends on: the fingerprint of the module and what was done to it, the options, the machine and its measured constants,
this package's own files, and those versions of others that decide what is computed. Whatever else differs is another program.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import Any

import llvmlite
import numpy as np

from deepx_graph.ir import Module
from deepx_graph.ir.fingerprint import fingerprint
from deepx_graph.literal import Array
from deepx_graph.runtime.aot.stored_kernel import (
    NotStorable,
    Said,
    StoredKernel,
    form_read,
    form_said,
    port_read,
    port_said,
    read,
    written,
)
from deepx_graph.runtime.array_type import checker, form_of
from deepx_graph.runtime.cost import file as costs
from deepx_graph.runtime.engines.base import EntryFn
from deepx_graph.runtime.inputs import Port
from deepx_graph.runtime.memory.donation import Donatable, chosen, donatable
from deepx_graph.runtime.native import vectors
from deepx_graph.runtime.native.llvm import store
from deepx_graph.runtime.native.llvm.target import running_machine
from deepx_graph.runtime.native.trampoline import EntryMemory, entry
from deepx_graph.runtime.program import Unit
from deepx_graph.runtime.unit_code import NONE, one_kernel
from deepx_graph.version import __version__

LEAST_SECONDS = 0.02
"""Of processor time: what is quicker to make is not kept."""


def key(module: Module, prepared: str, vector_bits: int | None, options: Sequence[Any]) -> str | None:
    """What a module is kept under that is mapped as `prepared` says and compiled with these options; None where that is not known,
    or nothing is kept."""
    if not store.limit():
        return None
    found = fingerprint(module)
    if found is None:
        return None
    with vectors(vector_bits):
        target = running_machine().key
    words = (target, vector_bits, prepared, *options, costs.constants(), _package(), np.__version__,
             llvmlite.__version__, platform.libc_ver(), platform.python_version(), found.hex())
    return hashlib.sha256("\n".join(["program", *map(repr, words)]).encode()).hexdigest()


@cache
def _package() -> str:
    """A digest of the names, sizes and times of this package's files."""
    folders = set[str]()
    for name in ("deepx_graph", "deepx_graph.passes"):
        spec = find_spec(name)
        folders |= set(spec.submodule_search_locations or ()) if spec is not None else set()
    files = sorted(_files(folders))
    return hashlib.sha256(repr((__version__, files)).encode()).hexdigest()


def _files(folders: set[str]) -> list[tuple[str, int, int]]:
    found = []
    for folder in folders:
        for where, inside, names in os.walk(folder):
            inside[:] = [d for d in inside if d != "__pycache__"]
            for name in names:
                if name.endswith((".py", ".so")):
                    info = os.stat(os.path.join(where, name))
                    found.append((os.path.relpath(os.path.join(where, name), folder), info.st_size, info.st_mtime_ns))
    return found


def load(kept_as: str, vector_bits: int | None) -> StoredProgram | None:
    """The program kept under a key; None where there is none."""
    data = store.load(kept_as)
    if data is None:
        return None
    try:
        with vectors(vector_bits):
            return StoredProgram(*read(data), vector_bits)
    except RuntimeError:  # code that this process cannot link
        return None


def save(kept_as: str, unit: Unit, outputs: Sequence[Port]) -> None:
    """Keeps a program of one kernel under a key; does nothing with others."""
    from deepx_graph.runtime.engines.native_engine import NativeEngine

    engine, node, params = unit.engine, one_kernel(unit.function), unit.function.params
    if not isinstance(engine, NativeEngine) or node is None or (kernel := engine.entered(node)) is None:
        return
    (over,) = donatable(unit.plan, unit.engine.overwrites).values() or [()]
    about = {"operands": [params.index(i) for i in node.inputs], "params": [form_said(form_of(p.type)) for p in params],
             "outputs": list(map(port_said, outputs)), "over": [list(may) for may in over]}
    with suppress(NotStorable):
        store.save(kept_as, written(kernel, about))


class StoredProgram:
    """A program that was kept. It runs as a `UnitCode` does that is one call."""

    has_run = True

    def __init__(self, kernel: StoredKernel, about: Said, vector_bits: int | None) -> None:
        self._kernel, self._operands, self._vector_bits = kernel, about["operands"], vector_bits
        self._forms = tuple(map(form_read, about["params"]))
        self.takes = checker(self._forms)
        """Whether the arguments are arrays of the very types of the parameters, in the order of C."""
        self.outputs = tuple(map(port_read, about["outputs"]))
        self._over: Donatable = tuple(map(tuple, about["over"]))
        self._memory = EntryMemory(kernel)
        self._memory_giving = self._memory if kernel.giving is None else EntryMemory(kernel.giving)
        self._entries: dict[frozenset[int], EntryFn | None] = {}

    def entry(self, donated: frozenset[int] = NONE) -> EntryFn | None:
        """All of it as one call, with the arguments `donated` away."""
        if donated not in self._entries:
            over = chosen(self._over, donated) or (None,) * len(self.outputs)
            with vectors(self._vector_bits):
                memory = self._memory if over == (None,) * len(over) else self._memory_giving
                self._entries[donated] = entry(memory, self._forms, self._operands, over)
        return self._entries[donated]

    def __call__(self, arrays: Sequence[Array], donated: frozenset[int] = NONE) -> tuple[Array, ...]:
        """The results, in arrays of their own."""
        return tuple(self._kernel([arrays[k] for k in self._operands]))
