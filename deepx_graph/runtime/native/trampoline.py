"""A machine function that Python calls: it looks at its arguments, takes memory for results, and runs a kernel.

`enter` is one generic function; what a kernel is stands in a frame of words that it reads. It looks at every argument by the
fields of the array object alone (exactly ndarray, dtype, shape, C-contiguous, aligned; writeable and apart from the others where it
is written over) and gives None, with nothing done, for whatever is not as the frame says. So nothing is complained of from here.
A kernel has one activation at a time: who finds it busy gets None too. Work that takes long lets other threads of Python run.

Where fields lie is checked in this process first; `entry` gives None where anything is elsewhere.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np

from deepx_graph.forking import renew_after_fork
from deepx_graph.literal import Array
from deepx_graph.runtime.array_type import ArrayType
from deepx_graph.runtime.engines.base import EntryFn
from deepx_graph.runtime.memory.pool import LEAST_BYTES, RESULTS
from deepx_graph.runtime.native import dispatch, trampoline_ir
from deepx_graph.runtime.native.dispatch import DATA
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.machine_kernel import CallMemory, MachineKernel
from deepx_graph.runtime.native.threads import pool
from deepx_graph.runtime.native.trampoline_ir import FRAME, PARAM, RESULT

_READABLE, _WRITEABLE = 0x1 | 0x100, 0x400
"""numpy's flags: C-contiguous and aligned; writeable."""

_NUMPY_2 = 0x2000000
_VERSION, _NEW_ARRAY = 0, 94
"""Entries of numpy's table of C functions: the version of its binary interface, and PyArray_NewFromDescr."""

_FASTCALL = 0x80


@dataclass(frozen=True, eq=False)
class EntryMemory:
    """What the entries of a kernel have in common: one of them runs at a time."""

    kernel: MachineKernel
    busy: Array = field(default_factory=lambda: np.zeros(1, np.int64))
    """A word that is not 0 while one runs."""

    def __post_init__(self) -> None:
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Whoever was running one is not in the child."""
        self.busy[:] = 0

    @cached_property
    def memory(self) -> CallMemory:
        """The memory of the kernel: what a call from Python has left, if there is one."""
        return self.kernel.take_memory()


def entry(shared: EntryMemory, params: Sequence[ArrayType], operands: Sequence[int], over: Sequence[int | None]) -> EntryFn | None:
    """The machine function that runs a kernel for arguments of those forms, whose numbers are those of its operands. Each result is
    a fresh array, or lies over the argument whose number `over` has; such an argument shares no memory with others. None where this
    machine cannot.
    """
    machine = _machine()
    if machine is None:
        return None
    frame = _Frame(shared, params, operands, over)
    words = frame.words(machine)
    words.kept = frame, machine
    return machine.function(words)


class _Words(np.ndarray[Any, Any]):
    """The words of a frame, whose address the function has, and with them all that they point to, and the machine with the
    description of the function: of threads that ask for the first machine at once each gets one of its own."""

    kept: tuple[_Frame, _Machine]


class _Frame:
    """Everything that the words of a frame point to."""

    def __init__(self, shared: EntryMemory, params: Sequence[ArrayType], operands: Sequence[int],
                 over: Sequence[int | None]) -> None:
        self.shared, self.params, self.over = shared, params, over
        self.given = [operands[p] for p in shared.kernel.params]
        self.kept: list[Any] = []

    def words(self, machine: _Machine) -> _Words:
        """The frame."""
        params, results, helpers = self.params, self.shared.kernel.results, self.shared.kernel.team - 1
        if helpers > 0:
            pool().hire(helpers)
        named: dict[str, int] = {
            "busy": self.shared.busy.ctypes.data, "long": self.shared.kernel.is_long,
            "params": self._rows(map(self._param, range(len(params)))), "param_count": len(params),
            "results": self._rows(map(self._result, results, self.over)), "result_count": len(results),
            "given": self._rows([self.given]), "given_count": len(self.given),
            "dispatch": dispatch.address(), "words": self.shared.memory.address,
            "pool": pool().address if helpers > 0 else 0, "workers": min(helpers, pool().most) if helpers > 0 else 0,
            "array_type": id(np.ndarray), "new_array": machine.new_array, "none": id(None),
        }  # fmt: skip
        return np.array([named[name] for name in FRAME], np.int64).view(_Words)

    def _rows(self, rows: Iterable[Sequence[int]]) -> int:
        """The address of a table of words."""
        table = np.array([w for row in rows for w in row], np.int64)
        self.kept.append(table)
        return int(table.ctypes.data)

    def _param(self, number: int) -> tuple[int, ...]:
        form, alone = self.params[number], number in self.over
        box = np.empty((), form.dtype) if not form.shape and not alone and _has_plain_numbers(form.dtype) else None
        self.kept += (form.dtype, box)
        named = {"kind": _kind(form.dtype), "flags": _READABLE | (_WRITEABLE if alone else 0), "rank": len(form.shape),
                 "dims": self._rows([form.shape]), "bytes": form.nbytes, "alone": alone,
                 "number": 0 if box is None else id(form.dtype.type), "box": 0 if box is None else id(box)}  # fmt: skip
        return tuple(named[name] for name in PARAM)

    def _result(self, form: ArrayType, over: int | None) -> tuple[int, ...]:
        maker = _maker(form) if form.nbytes >= LEAST_BYTES else None
        self.kept += (form.dtype, maker)
        named = {"over": -1 if over is None else over, "maker": 0 if maker is None else id(maker), "dtype": id(form.dtype),
                 "rank": len(form.shape), "dims": self._rows([form.shape])}  # fmt: skip
        return tuple(named[name] for name in RESULT)


def _maker(form: ArrayType) -> Any:
    """A callable that gives memory for a large result."""
    return functools.partial(RESULTS.empty, form.shape, form.dtype)


def _kind(dtype: np.dtype[Any]) -> int:
    """The eight bytes by which a dtype is told from others."""
    return ctypes.c_int64.from_address(id(dtype) + trampoline_ir.KIND).value


@cache
def _has_plain_numbers(dtype: np.dtype[Any]) -> bool:
    """Whether numpy's numbers of that type, which are no arrays, have their bytes where the trampoline reads them."""
    ones = np.frombuffer(bytes([1] * dtype.itemsize), dtype)
    return dtype.kind in "biuf" and dtype.isbuiltin == 1 and (
        ctypes.string_at(id(ones[0]) + trampoline_ir.NUMBER, dtype.itemsize) == ones.tobytes())


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


class _Machine:
    """What all entries share: the machine function and numpy's own."""

    def __init__(self, new_array: int) -> None:
        enter = machine_code.functions(trampoline_ir.IR, ["enter"])["enter"].address
        self.new_array, self._method = new_array, _Method(b"entry", enter, _FASTCALL, None)
        new_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        self._make = new_function(("PyCFunction_NewEx", ctypes.pythonapi))

    def function(self, words: _Words) -> EntryFn:
        """A Python function that enters machine code with those words."""
        return self._make(ctypes.addressof(self._method), words, None)  # type: ignore[no-any-return]


@cache
def _machine() -> _Machine | None:
    """None where Python or numpy is not as `enter` expects them."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED") or not _fields_are_as_expected():
        return None
    new_array = _numpy_function()
    try:
        return None if new_array is None else _Machine(new_array)
    except RuntimeError:  # no such function in this process
        return None


def _fields_are_as_expected() -> bool:
    """Whether objects keep what `enter` reads where it reads it."""
    probe = np.empty((2, 3), "f4")[:, ::-1]
    whole, at = np.empty((2, 3), "f4"), id(probe)
    items = (object(), object())
    dims = ctypes.c_void_p.from_address(at + trampoline_ir.DIMS).value
    return (
        ctypes.sizeof(ctypes.c_void_p) == 8 and sys.byteorder == "little"
        and ctypes.c_void_p.from_address(at + trampoline_ir.TYPE).value == id(np.ndarray)
        and ctypes.c_void_p.from_address(at + DATA).value == probe.ctypes.data
        and ctypes.c_int32.from_address(at + trampoline_ir.RANK).value == 2
        and dims is not None and tuple((ctypes.c_int64 * 2).from_address(dims)) == (2, 3)
        and ctypes.c_void_p.from_address(at + trampoline_ir.DTYPE).value == id(probe.dtype)
        and ctypes.c_int32.from_address(at + trampoline_ir.FLAGS).value == probe.flags.num
        and ctypes.c_int32.from_address(id(whole) + trampoline_ir.FLAGS).value == whole.flags.num
        and (whole.flags.num & _READABLE, whole.flags.num & _WRITEABLE) == (_READABLE, _WRITEABLE)
        and all(_kind_is_as_expected(np.dtype(d)) for d in ("?", "i1", "u2", "i8", "f4", ">f4", "f8", "c16"))
        and [ctypes.c_void_p.from_address(id(items) + trampoline_ir.ITEMS + 8 * k).value for k in range(2)] == list(map(id, items))
    )  # fmt: skip


def _kind_is_as_expected(dtype: np.dtype[Any]) -> bool:
    kind, letter, order, _, number = struct.unpack("<cccbi", struct.pack("<q", _kind(dtype)))
    return bool((kind + letter + order).decode() == dtype.kind + dtype.char + dtype.byteorder and number == dtype.num)


def _numpy_function() -> int | None:
    """The address of PyArray_NewFromDescr, in numpy's table of C functions."""
    try:
        capsule = np._core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]
    except AttributeError:
        return None
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    table = (ctypes.c_void_p * (_NEW_ARRAY + 1)).from_address(pointer(capsule, None))
    version = ctypes.CFUNCTYPE(ctypes.c_uint)(table[_VERSION] or 0)()
    return table[_NEW_ARRAY] if version == _NUMPY_2 else None
