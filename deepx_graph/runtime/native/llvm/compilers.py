"""Compilation on all cores: object code is made by other threads while the caller goes on, until it needs it.

Whoever waits for code compiles meanwhile what no thread has begun, so that a process of one core needs no other thread. What nobody
will ask for is not compiled.

llvmlite holds one lock around all of LLVM. The two long calls, of passes and of code generation, are made without it, each on a
context and a target machine that no other compilation has, which LLVM allows (LLVM Programmer's Manual, Threads and LLVM). They are
all that other threads do: whatever needs Python would wait there for the thread that plans.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import llvmlite.binding

from deepx_graph.blas import available_cores
from deepx_graph.forking import Lock, renew_after_fork

llvm: Any = llvmlite.binding
"""It has no types."""

ffi = llvm.ffi


def without_lock(name: str) -> Any:
    """A function of LLVM that does not hold llvmlite's lock; one that does, where llvmlite does not say where its library is."""
    locked = getattr(ffi.lib, name)
    try:
        free = getattr(ctypes.CDLL(ffi.lib._name), name)
    except (AttributeError, OSError):
        return locked
    free.argtypes, free.restype = locked.argtypes, locked.restype
    return free


_run_passes, _emit = without_lock("LLVMPY_RunNewModulePassManager"), without_lock("LLVMPY_TargetMachineEmitToMemory")


SOON = 0.0003
"""Seconds after which a thread that compiles gets Python's lock, which it needs between LLVM's calls: they often take less than the
5 ms that it would wait."""

AGAIN = 0.1
"""Seconds after which who waits looks again for what nobody has begun: another thread may have been interrupted."""


class CodeGeneration:
    """LLVM's part of a compilation: a module of a context of its own, what makes a builder of passes, if any are to run, and a
    target machine, which `release` gets back. `close` frees all of it in order, which the collector of cycles would not keep."""

    def __init__(self, ir: str, new_passes: Callable[[Any], Any] | None, machine: Any, release: Callable[[Any], object]) -> None:
        self._context = llvm.create_context()
        self.module = llvm.parse_assembly(ir, self._context)
        self._machine, self._release = machine, release
        self._new_passes, self._managers = new_passes, list[Any]()
        self._passes = None if new_passes is None else self._prepared(new_passes)
        self._error, self._buffer = ffi.OutputString(), None

    def _prepared(self, new_passes: Callable[[Any], Any]) -> tuple[Any, Any]:
        """A manager of passes and their builder, which are good for one run."""
        passes = new_passes(self._machine)
        self._managers.append(passes.getModulePassManager())
        return self._managers[-1], passes

    def run(self) -> None:
        """The two long calls. Begins anew after an interrupt."""
        if self._new_passes is not None:
            (manager, passes), self._passes = self._passes or self._prepared(self._new_passes), None
            _run_passes(manager, self.module, passes)
        self._buffer = _emit(self._machine, self.module, 1, self._error)

    def code(self) -> bytes:
        """What they made. Raises RuntimeError where that is nothing."""
        if not self._buffer:
            raise RuntimeError(str(self._error))
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(self._buffer), ffi.lib.LLVMPY_GetBufferSize(self._buffer))

    def close(self) -> None:
        """Frees what there is."""
        _dispose(self._managers)
        self.module.close()
        self._context.close()
        if self._buffer:
            ffi.lib.LLVMPY_DisposeMemoryBuffer(self._buffer)
        self._release(self._machine)


class Compilation:
    """Object code that is being made."""

    def __init__(self, generation: CodeGeneration) -> None:
        self._generation, self._close = generation, weakref.finalize(self, generation.close)
        self._close.atexit = False
        self._done, self._taking = threading.Event(), Lock()
        self._code: bytes | None = None

    @property
    def is_done(self) -> bool:
        """Whether the code is there, or LLVM made none."""
        return self._done.is_set()

    def begin(self) -> None:
        """Has it made by whoever comes first."""
        _COMPILERS.add(self)

    def run(self) -> None:
        """Makes the code."""
        self._generation.run()
        self._done.set()

    def code(self) -> bytes:
        """The code, once it is there. Raises RuntimeError where LLVM makes none."""
        while not self.is_done:
            if not _COMPILERS.help():
                self._done.wait(AGAIN)
        with self._taking:
            if self._code is None:
                self._code = self._generation.code()
                self._close()
        return self._code


def run_passes(manager: Any, module: Any, passes: Any) -> None:
    """Runs the passes of a manager at once, and frees it."""
    try:
        manager.run(module, passes)
    finally:
        _dispose([manager])


def _dispose(managers: list[Any]) -> None:
    """Frees managers of passes: llvmlite's own destructor does not (to 0.50), since `ObjectRef._dispose`, which does nothing, comes
    before that of pass managers in the order of bases. Some 50 KB would be kept for every module."""
    for manager in managers:
        llvm.newpassmanagers.NewPassManager._dispose(manager)
        manager.detach()


class Compilers:
    """The threads of the process that compile, one fewer than its cores, and what they have not begun."""

    def __init__(self) -> None:
        self._waiting: weakref.WeakValueDictionary[int, Compilation] = weakref.WeakValueDictionary()
        """By the numbers in which they came."""
        self._numbers = itertools.count()
        self._running, self._idle = 0, threading.Condition()
        self._threads: ThreadPoolExecutor | None = None
        self._busy, self._starting = 0, Lock()
        self._interval = sys.getswitchinterval()
        """Python's, while no thread is busy."""
        renew_after_fork(self)

    def after_fork(self) -> None:
        """A forked child has none of the threads. What waits is made by whoever needs it."""
        self._threads = None
        if self._busy:
            self._count(-self._busy)

    def add(self, compilation: Compilation) -> None:
        """Has it made."""
        with self._idle:
            self._waiting[next(self._numbers)] = compilation
        with self._starting:
            if self._busy >= (count := available_cores() - 1):
                return
            self._threads = self._threads or ThreadPoolExecutor(count, "deepx-graph compiler")
            with suppress(RuntimeError):  # Python is about to end: no new threads
                self._threads.submit(self._run_all)
                self._count(1)

    def _count(self, more: int) -> None:
        """So many more threads are busy."""
        if not self._busy:
            self._interval = sys.getswitchinterval()
            sys.setswitchinterval(min(SOON, self._interval))
        self._busy += more
        if not self._busy:
            sys.setswitchinterval(self._interval)

    def _run_all(self) -> None:
        """Makes one after the other until none is left: what a thread does."""
        try:
            while self.help():
                pass
        finally:
            with self._starting:
                self._count(-1)

    def help(self) -> bool:
        """Makes the first of those that nobody has begun; whether there was one."""
        with self._idle:
            number, compilation = next(iter(self._waiting.items()), (0, None))
            if compilation is None:
                return False
            del self._waiting[number]
            self._running += 1
        try:
            compilation.run()
        finally:
            with self._idle:
                if not compilation.is_done:  # an interrupt of the thread that runs it, which need not be the one that wants it
                    self._waiting[number] = compilation
                self._running -= 1
                self._idle.notify_all()
        return True

    def hold(self) -> None:
        """Waits until nothing is compiled, and has it stay so until `release`."""
        self._idle.acquire()
        while self._running:
            self._idle.wait()

    def release(self) -> None:
        """Ends `hold`."""
        self._idle.release()


_COMPILERS = Compilers()


def _hold_llvm_while_forking() -> None:
    """A fork waits for what other threads have LLVM do: a child would find it half done, and its locks taken for ever."""
    lock = getattr(ffi.lib, "_lock", None)
    if hasattr(os, "register_at_fork"):
        if lock is not None:
            os.register_at_fork(before=lock.__enter__, after_in_parent=lock.__exit__, after_in_child=lock.__exit__)
        os.register_at_fork(before=_COMPILERS.hold, after_in_parent=_COMPILERS.release, after_in_child=_COMPILERS.release)


_hold_llvm_while_forking()
