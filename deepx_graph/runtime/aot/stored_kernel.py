"""Kernels of machine code as bytes: their tables, constants and words, and the object code that runs on them.

Addresses are written as what they are addresses of. Reading links the code and makes the kernel as it was, without its IR, its plan
or the function that it was made from. The bytes hold code: read only what comes from where one trusts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from deepx_graph.literal import bits
from deepx_graph.runtime.array_type import ArrayType, form_of
from deepx_graph.runtime.inputs import Port
from deepx_graph.runtime.kernels.memory import aligned
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.machine_kernel import Layout, MachineKernel
from deepx_graph.runtime.native.threads import pool
from deepx_graph.runtime.native.whole_program.image import ConstantWord, ProgramImage
from deepx_graph.runtime.native.whole_program.kernel import WholeProgramKernel
from deepx_graph.types import TensorType, dtype_named, dtype_of, tensor

Said = dict[str, Any]
"""What is said of something in JSON."""

LENGTH = 8
"""Bytes that say how long the description is, which comes first."""


class ObjectCode(NamedTuple):
    """Object code and its functions."""

    digest: str
    names: Sequence[str]
    data: bytes


class NotStorable(Exception):
    """A kernel that cannot be written."""


def linked(address: int) -> tuple[ObjectCode, str]:
    """The code of this process that has a function at an address, and the name of that. Raises NotStorable where there is none."""
    found = machine_code.linker().at(address)
    if found is None:
        raise NotStorable
    code, name = found
    return ObjectCode(code.digest, list(code.addresses), code.object_code), name


def form_said(form: ArrayType) -> Said:
    """The form of an array."""
    return {"dtype": dtype_of(form.dtype).name, "shape": list(form.shape)}


def form_read(said: Said) -> ArrayType:
    """The form that was said."""
    return form_of(_type_read(said))


def port_said(port: Port) -> Said:
    """The name and the type of an input or a result."""
    assert isinstance(port.type, TensorType)
    return {"name": port.name, "dtype": port.type.dtype.name, "shape": list(port.type.shape)}


def port_read(said: Said) -> Port:
    """The input or result that was said. Raises KeyError, TypeError or ValueError where it is none."""
    return Port(str(said["name"]), _type_read(said))


def _type_read(said: Said) -> TensorType:
    shape = tuple(map(int, said["shape"]))
    if any(d < 0 for d in shape):
        raise ValueError(shape)
    return tensor(dtype_named(said["dtype"]), shape)


def written(kernel: MachineKernel, about: Said, code_at: Callable[[int], tuple[ObjectCode, str]] = linked) -> bytes:
    """A kernel with something about it; `code_at` gives the code that has a function, by its address, and its name there. Raises
    NotStorable for one that calls functions of the module."""
    if isinstance(kernel, WholeProgramKernel) and kernel.calls_functions:
        raise NotStorable
    writer = _Writer(code_at)
    said = writer.kernel(kernel)
    codes = [code for _, code in writer.codes.values()]
    description = {"about": about, "kernel": said, "arrays": [[len(data), moved] for data, moved in writer.arrays],
                   "codes": [[c.digest, list(c.names), len(c.data)] for c in codes]}
    text = json.dumps(description).encode()
    return b"".join([len(text).to_bytes(LENGTH, "little"), text, *(data for data, _ in writer.arrays), *(c.data for c in codes)])


def read(data: bytes, accept: Callable[[Said], object] = bool) -> tuple[StoredKernel, Said]:
    """The kernel that was written, and what was about it, which `accept` is told before its code is linked. Raises RuntimeError
    where that cannot be done, or threads are needed that this process cannot have."""
    start = LENGTH + int.from_bytes(data[:LENGTH], "little")
    description = json.loads(data[LENGTH:start])
    accept(description["about"])
    parts = []
    for nbytes in [n for n, _ in description["arrays"]] + [n for *_, n in description["codes"]]:
        parts.append(data[start : start + nbytes])
        start += nbytes
    kernel = StoredKernel()
    codes = [machine_code.linker().known(digest, kernel) or machine_code.linker().link(digest, code, names, kernel)
             for (digest, names, _), code in zip(description["codes"], parts[len(description["arrays"]) :], strict=True)]
    arrays = [_array(part, [(at, codes[code][name]) for at, code, name in moved])
              for part, (_, moved) in zip(parts, description["arrays"], strict=False)]
    kernel.fill(description["kernel"], arrays, codes)
    if kernel.team > 1 and pool() is None:
        raise RuntimeError("no workers that machine code can call")
    return kernel, description["about"]


def _array(data: bytes, moved: Sequence[tuple[int, int]]) -> Array:
    """The bytes as an array, in which some words are addresses."""
    array = aligned(len(data))
    array[:] = np.frombuffer(data, np.uint8)
    for at, address in moved:
        array.view(np.int64)[at] = address
    return array


class _Writer:
    def __init__(self, code_at: Callable[[int], tuple[ObjectCode, str]]) -> None:
        self._code_at = code_at
        self.arrays: list[tuple[bytes, list[list[Any]]]] = []
        """Each with the words that are addresses of functions."""
        self.codes: dict[str, tuple[int, ObjectCode]] = {}
        """All code and its numbers, by its digest."""
        self._numbers: dict[bytes, int] = {}

    def kernel(self, kernel: MachineKernel) -> Said:
        table = kernel.layout
        return {
            "layout": [table.scratch_bytes, table.objects, table.size], "params": list(kernel.params), "team": kernel.team,
            "results": list(map(form_said, kernel.results)), "in_place": [sorted(may) for may in kernel.in_place],
            "lowering": kernel.lowering,
            "constants": [self._array(a, () if k else kernel.relocations) for k, a in enumerate(kernel.constants)],
            "own_bytes": list(kernel.own_bytes), "own_spans": [list(s) for s in kernel.own_spans], "threads": kernel.threads,
            "nanoseconds": float(kernel.nanoseconds), "is_one_call": kernel.is_one_call,
            "calls": [[*self._function(address), threads] for address, threads in kernel.calls],
            "image": None if kernel.image is None else self._image(kernel.image)}  # fmt: skip

    def _image(self, image: ProgramImage) -> Said:
        return {"words": self._array(image.words), "inner": self._array(image.inner), "nbytes": image.nbytes,
                "constants": [[c.at, self._array(c.array, c.relocations)] for c in image.constants],
                "functions": [[at, *self._function(address)] for at, address in image.functions]}

    def _array(self, array: Array, relocations: Sequence[int] = ()) -> int:
        data = bits(array).tobytes()
        if data not in self._numbers:
            self._numbers[data] = len(self.arrays)
            self.arrays.append((data, [[at, *self._function(int(array[at]))] for at in relocations]))
        return self._numbers[data]

    def _function(self, address: int) -> tuple[int, str]:
        """The number of the code that has a function, and its name there."""
        code, name = self._code_at(address)
        number, _ = self.codes.setdefault(code.digest, (len(self.codes), code))
        return number, name


class StoredKernel(MachineKernel):
    """A kernel that was read. It owns its code."""

    is_kept = True
    _team: int

    def fill(self, said: Said, arrays: Sequence[Array], codes: Sequence[dict[str, int]]) -> None:
        """Makes it what was said, in terms of the numbers of arrays and codes."""
        self.layout, self.params = Layout(*said["layout"]), tuple(said["params"])
        self.results, self.in_place = tuple(map(form_read, said["results"])), tuple(map(frozenset, said["in_place"]))
        self.lowering, self.threads, self.nanoseconds = said["lowering"], said["threads"], said["nanoseconds"]
        self.is_one_call, self._team = said["is_one_call"], said["team"]
        self.own_bytes, self.own_spans = tuple(said["own_bytes"]), tuple((a, b) for a, b in said["own_spans"])
        self.constants = tuple(arrays[k] for k in said["constants"])
        self.calls = tuple((codes[code][name], threads) for code, name, threads in said["calls"])
        if (image := said["image"]) is not None:
            words, inner = (arrays[image[name]].view(np.int64) for name in ("words", "inner"))
            self.image = ProgramImage(words, inner, tuple(ConstantWord(at, arrays[k], ()) for at, k in image["constants"]),
                                      tuple((at, codes[code][name]) for at, code, name in image["functions"]), image["nbytes"])

    @property
    def team(self) -> int:
        """As it was."""
        return self._team
