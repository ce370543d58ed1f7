"""Kernels of machine code as bytes: their tables, constants and words, and the object code that runs on them.

Addresses are written as what they are addresses of. Reading links the code and makes the kernel as it was, without its IR, its plan
or the function that it was made from. The bytes hold code: read only what this user has written (`llvm/store.py` sees to that).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from deepx_graph.literal import bits
from deepx_graph.runtime.array_type import ArrayType
from deepx_graph.runtime.kernels.memory import aligned
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.machine_kernel import KernelState, Layout, MachineKernel
from deepx_graph.runtime.native.whole_program.kernel import WholeProgramKernel
from deepx_graph.runtime.native.whole_program.words import ProgramWords, TableCall, WordsInMemory
from deepx_graph.types import dtype_named, dtype_of

Said = dict[str, Any]
"""What is said of something in JSON."""

LENGTH = 8
"""Bytes that say how long the description is, which comes first."""


class NotStorable(Exception):
    """A kernel that cannot be written."""


def form_said(form: ArrayType) -> Said:
    """The form of an array."""
    return {"dtype": dtype_of(form.dtype).name, "shape": list(form.shape)}


def form_read(said: Said) -> ArrayType:
    """The form that was said."""
    dtype = dtype_named(said["dtype"]).np
    assert dtype is not None
    return ArrayType(dtype, tuple(said["shape"]))


def written(kernel: MachineKernel, about: Said) -> bytes:
    """A kernel with something about it. Raises NotStorable for one that calls functions of the module."""
    writer = _Writer()
    said = writer.kernel(kernel)
    description = {"kernel": said, "about": about, "arrays": [len(a) for a in writer.arrays],
                   "codes": [[c.digest, list(c.addresses), len(c.object_code)] for c in writer.codes]}
    text = json.dumps(description).encode()
    return b"".join([len(text).to_bytes(LENGTH, "little"), text, *writer.arrays, *(c.object_code for c in writer.codes)])


def read(data: bytes) -> tuple[StoredKernel, Said]:
    """The kernel that was written, and what was about it. Raises RuntimeError where its code cannot be linked."""
    start = LENGTH + int.from_bytes(data[:LENGTH], "little")
    description = json.loads(data[LENGTH:start])
    kernel = StoredKernel()
    arrays = []
    for nbytes in description["arrays"]:
        array = aligned(nbytes)
        array[:] = np.frombuffer(data, np.uint8, nbytes, start)
        arrays.append(array)
        start += nbytes
    codes = []
    for digest, names, nbytes in description["codes"]:
        found = machine_code.linker().known(digest, kernel)
        codes.append(found or machine_code.linker().link(digest, data[start : start + nbytes], names, kernel))
        start += nbytes
    kernel.fill(description["kernel"], _Reader(arrays, codes))
    return kernel, description["about"]


class _Writer:
    def __init__(self) -> None:
        self.arrays: list[bytes] = []
        self._codes: dict[machine_code.LinkedCode, int] = {}
        self._numbers: dict[bytes, int] = {}

    @property
    def codes(self) -> Sequence[machine_code.LinkedCode]:
        """All code, in the order of its numbers."""
        return tuple(self._codes)

    def kernel(self, kernel: MachineKernel) -> Said:
        table = kernel.layout
        moved = [[at, *self._function(int(kernel.constants[0][at]))] for at in kernel.relocations]
        return {
            "layout": [table.scratch_bytes, table.objects, table.size], "params": list(kernel.params), "team": kernel.team,
            "results": list(map(form_said, kernel.results)), "in_place": [sorted(may) for may in kernel.in_place],
            "lowering": kernel.lowering, "constants": [self._array(a) for a in kernel.constants], "moved": moved,
            "own_bytes": list(kernel.own_bytes), "own_spans": [list(s) for s in kernel.own_spans], "threads": kernel.threads,
            "nanoseconds": float(kernel.nanoseconds), "is_one_call": kernel.is_one_call,
            "calls": [[*self._function(address), threads] for address, threads in kernel.calls],
            "words": self._words(kernel) if kernel.has_state else None}  # fmt: skip

    def _words(self, kernel: MachineKernel) -> Said:
        if not isinstance(kernel, WholeProgramKernel) or kernel.calls_functions:
            raise NotStorable
        words = kernel.words
        return {"nbytes": words.nbytes, "value_bytes": words.value_bytes, "limit": words.limit, "calls_at": words.calls_at,
                "arrays": [[at, self._array(a)] for at, a in words.arrays], "homes": [list(h) for h in words.homes],
                "calls": [[self.kernel(c.kernel), list(c.objects), c.own] for c in words.calls]}  # fmt: skip

    def _array(self, array: Array) -> int:
        data = bits(array).tobytes()
        if data not in self._numbers:
            self._numbers[data] = len(self.arrays)
            self.arrays.append(data)
        return self._numbers[data]

    def _function(self, address: int) -> tuple[int, str]:
        """The number of the code that has a function, and its name there."""
        found = machine_code.linker().at(address)
        if found is None:
            raise NotStorable
        code, name = found
        return self._codes.setdefault(code, len(self._codes)), name


class _Reader:
    """What descriptions refer to by number."""

    def __init__(self, arrays: Sequence[Array], codes: Sequence[dict[str, int]]) -> None:
        self.arrays, self._codes = arrays, codes

    def function(self, code: int, name: str) -> int:
        return self._codes[code][name]

    def words(self, said: Said) -> ProgramWords:
        def calls() -> Iterator[TableCall]:
            for kernel, objects, own in said["calls"]:
                yield TableCall(StoredKernel().fill(kernel, self), tuple(objects), own)

        return ProgramWords(said["nbytes"], said["value_bytes"], said["limit"],
                            tuple((at, self.arrays[k]) for at, k in said["arrays"]), tuple((at, to) for at, to in said["homes"]),
                            said["calls_at"], tuple(calls()))


class StoredKernel(MachineKernel):
    """A kernel that was read. The outermost one owns the code of those in it."""

    is_kept = True
    _team: int
    _words: ProgramWords | None = None

    def fill(self, said: Said, reader: _Reader) -> StoredKernel:
        """Makes it what was said; itself."""
        self.layout, self.params = Layout(*said["layout"]), tuple(said["params"])
        self.results, self.in_place = tuple(map(form_read, said["results"])), tuple(map(frozenset, said["in_place"]))
        self.lowering, self.threads, self.nanoseconds = said["lowering"], said["threads"], said["nanoseconds"]
        self.is_one_call, self._team = said["is_one_call"], said["team"]
        self.own_bytes, self.own_spans = tuple(said["own_bytes"]), tuple((a, b) for a, b in said["own_spans"])
        self.constants = tuple(reader.arrays[k] for k in said["constants"])
        if said["moved"]:
            first = aligned(self.constants[0].nbytes).view(np.int64)
            first[:] = self.constants[0].view(np.int64)
            for at, code, name in said["moved"]:
                first[at] = reader.function(code, name)
            self.constants = (first, *self.constants[1:])
        self.calls = tuple((reader.function(code, name), threads) for code, name, threads in said["calls"])
        if said["words"] is not None:
            self.has_state, self._words = True, reader.words(said["words"])
        return self

    @property
    def team(self) -> int:
        """As it was."""
        return self._team

    def new_state(self) -> KernelState:
        """The words of a whole program."""
        assert self._words is not None
        return WordsInMemory(self._words).state
