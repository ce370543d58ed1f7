"""Kernels of machine code as bytes: the words and constants of a call, and the object code that runs on them.

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
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.memory.pages import aligned
from deepx_graph.runtime.native.call_image import CallImage, ConstantWord
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.machine_kernel import MachineKernel
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
    description = {"about": about, "kernel": said, "arrays": list(map(len, writer.arrays)),
                   "codes": [[c.digest, list(c.names), len(c.data)] for c in codes]}
    text = json.dumps(description).encode()
    return b"".join([len(text).to_bytes(LENGTH, "little"), text, *writer.arrays, *(c.data for c in codes)])


def read(data: bytes, accept: Callable[[Said], object] = bool) -> tuple[StoredKernel, Said]:
    """The kernel that was written, and what was about it, which `accept` is told before its code is linked. Raises RuntimeError
    where that cannot be done."""
    start = LENGTH + int.from_bytes(data[:LENGTH], "little")
    description = json.loads(data[LENGTH:start])
    accept(description["about"])
    parts = []
    for nbytes in [*description["arrays"], *(n for *_, n in description["codes"])]:
        parts.append(data[start : start + nbytes])
        start += nbytes
    kernel = StoredKernel()
    codes = [machine_code.linker().known(digest, kernel) or machine_code.linker().link(digest, code, names, kernel)
             for (digest, names, _), code in zip(description["codes"], parts[len(description["arrays"]) :], strict=True)]
    kernel.fill(description["kernel"], list(map(_array, parts[: len(description["arrays"])])), codes)
    return kernel, description["about"]


def _array(data: bytes) -> Array:
    array = aligned(len(data))
    array[:] = np.frombuffer(data, np.uint8)
    return array


class _Writer:
    def __init__(self, code_at: Callable[[int], tuple[ObjectCode, str]]) -> None:
        self._code_at = code_at
        self.arrays: list[bytes] = []
        self.codes: dict[str, tuple[int, ObjectCode]] = {}
        """All code and its numbers, by its digest."""
        self._numbers: dict[bytes, int] = {}

    def kernel(self, kernel: MachineKernel) -> Said:
        image = kernel.image
        return {
            "params": list(kernel.params), "results": list(map(form_said, kernel.results)),
            "in_place": [sorted(may) for may in kernel.in_place], "lowering": kernel.lowering,
            "nanoseconds": float(kernel.nanoseconds), "is_one_call": kernel.is_one_call, "words": self._array(image.words),
            "inner": self._array(image.inner), "nbytes": image.nbytes, "team": image.team,
            "constants": [[c.at, self._array(c.array)] for c in image.constants],
            "functions": [[at, *self._function(address)] for at, address in image.functions],
            "giving": None if kernel.giving is None else self.kernel(kernel.giving)}  # fmt: skip

    def _array(self, array: Array) -> int:
        data = bits(array).tobytes()
        if data not in self._numbers:
            self._numbers[data] = len(self.arrays)
            self.arrays.append(data)
        return self._numbers[data]

    def _function(self, address: int) -> tuple[int, str]:
        """The number of the code that has a function, and its name there."""
        code, name = self._code_at(address)
        number, _ = self.codes.setdefault(code.digest, (len(self.codes), code))
        return number, name


class StoredKernel(MachineKernel):
    """A kernel that was read. It owns its code."""

    is_kept = True

    def fill(self, said: Said, arrays: Sequence[Array], codes: Sequence[dict[str, int]]) -> None:
        """Makes it what was said, in terms of the numbers of arrays and codes."""
        self.params, self.lowering = tuple(said["params"]), said["lowering"]
        self.results, self.in_place = tuple(map(form_read, said["results"])), tuple(map(frozenset, said["in_place"]))
        if said["giving"] is not None:
            giving = StoredKernel()
            giving.fill(said["giving"], arrays, codes)
            self.giving = giving
        self.nanoseconds, self.is_one_call = said["nanoseconds"], said["is_one_call"]
        words, inner = (arrays[said[name]].view(np.int64) for name in ("words", "inner"))
        self.image = CallImage(words, inner, tuple(ConstantWord(at, arrays[k]) for at, k in said["constants"]),
                               tuple((at, codes[code][name]) for at, code, name in said["functions"]), said["nbytes"], said["team"])

    @property
    def team(self) -> int:
        """As it was."""
        return self.image.team

    @property
    def workspace_bytes(self) -> int:
        """As it was."""
        return self.image.value_bytes
