"""Worker threads that take a job within a microsecond while they are awake, and sleep in the kernel when there is none.

A worker is a Python thread that never comes back from machine code: it waits for a job number to change, at first awake, for some
tens of microseconds, then in a futex, so that it takes no core from the matrix products that follow. The caller works too, and
waits for the others. Linux on x86-64 alone; elsewhere the threads of `runtime.kernels.threads` do it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from deepx_graph.forking import Lock, renew_after_fork
from deepx_graph.runtime.kernels.threads import TEAM
from deepx_graph.runtime.memory.pages import aligned
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.builder import IRBuilder, branch, least

SHARED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
"""`function(table, counter, scratch)`: takes shares of the work from the counter until there are none."""

SHARE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 4)
"""`share(pool, threads, function, table, counter, scratches)`: does a `SHARED` function in so many threads, each with memory
of its own, until all shares are done."""

SPIN = 1500
"""How often a worker looks for a job, a pause between, before it sleeps."""

BLOCK = 256
"""Bytes of a worker's state: job number, number of the last job done, whether it sleeps, and the job, a cache line each."""

_BUSY, WORKERS = 0, 64
"""In the block before the workers' own: whether somebody has the workers, and how many there are."""

_DONE, _SLEEPS, _JOB, _CLAIM = 64, 128, 192, 224
"""The claim is twice the number of a job that is free, and one more when the worker has taken it or the caller has taken it back:
the caller never waits for a worker that has not begun."""

PATIENCE, SCHED_YIELD, FUTEX, FUTEX_WAIT, FUTEX_WAKE = 20_000, 24, 202, 128, 129
"""How often a thread looks before it lets others run; the numbers of system calls and of what they are to do."""

_DECLARATIONS = """
declare i64 @syscall(i64, ...)
declare void @llvm.x86.sse2.pause()
"""


def wait_until(t: IRBuilder, holds: Callable[[], str]) -> None:
    """Writes code that goes on once something holds; others are at work on it. It needs `syscall` and the pause."""
    before, look, hold, go = t.block, t.name("look"), t.name("hold"), t.name("go")
    looks, more = "%" + t.name("i"), "%" + t.name("n")
    t.line(f"br label %{look}")
    t.start(look)
    position = len(t.lines)
    t.line(f"br i1 {holds()}, label %{go}, label %{hold}")
    t.start(hold)
    branch(t, t.let(f"icmp ugt i64 {looks}, {PATIENCE}"),
           lambda: t.let(f"call i64 (i64, ...) @syscall(i64 {SCHED_YIELD})"), lambda: t.line("call void @llvm.x86.sse2.pause()"))
    t.line(f"{more} = add i64 {looks}, 1")
    t.lines.insert(position, f"  {looks} = phi i64 [ 0, %{before} ], [ {more}, %{t.block} ]")
    t.line(f"br label %{look}")
    t.start(go)


def _atomic(t: IRBuilder, at: str) -> str:
    return t.let(f"load atomic i32, ptr {at} seq_cst, align 4")


def _put(t: IRBuilder, value: str, at: str) -> None:
    t.line(f"store atomic i32 {value}, ptr {at} seq_cst, align 4")


def _exchanged(t: IRBuilder, at: str, old: str, new: str) -> str:
    """Whether a word was an old value, and is a new one now."""
    tried = t.let(f"cmpxchg ptr {at}, i32 {old}, i32 {new} seq_cst seq_cst")
    return t.let(f"extractvalue {{ i32, i1 }} {tried}, 1")


def _claimed(t: IRBuilder, state: str, number: str) -> str:
    """Whether the job of that number was free, and is whoever's asks now."""
    free = t.let(f"shl i32 {number}, 1")
    return _exchanged(t, t.behind(state, _CLAIM), free, t.let(f"or i32 {free}, 1"))


def _serve() -> str:
    """`serve(state)`: what a worker does for ever."""
    t = IRBuilder(1)
    seen, looks = t.let("alloca i32"), t.let("alloca i64")
    done, sleeps, job = (t.behind("%state", at) for at in (_DONE, _SLEEPS, _JOB))

    def look_again(times: str) -> None:
        t.line(f"store i64 {times}, ptr {looks}")

    def pause() -> None:
        t.line("call void @llvm.x86.sse2.pause()")
        look_again(t.let(f"add i64 {t.word(looks)}, 1"))

    def sleep() -> None:
        _put(t, "1", sleeps)
        t.let(f"call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr %state, i64 {FUTEX_WAIT}, i32 {now}, ptr null, ptr null, i32 0)")
        _put(t, "0", sleeps)
        look_again("0")

    def work() -> None:
        function, *arguments = (t.word(job, k, "ptr") for k in range(4))
        t.line(f"call void {function}({', '.join(f'ptr {a}' for a in arguments)})")
        _put(t, now, done)

    def claim() -> None:
        t.line(f"store i32 {now}, ptr {seen}")
        look_again("0")
        branch(t, _claimed(t, "%state", now), work)

    t.line(f"store i32 {_atomic(t, done)}, ptr {seen}")
    look_again("0")
    t.line("br label %wait")
    t.start("wait")
    now = _atomic(t, "%state")
    branch(t, t.let(f"icmp eq i32 {now}, {t.let(f'load i32, ptr {seen}')}"),
           lambda: branch(t, t.let(f"icmp ult i64 {t.word(looks)}, {SPIN}"), pause, sleep), claim)
    return t.function("void @serve(ptr %state)", "br label %wait")


def _launch() -> str:
    """`launch(states, workers, function, table, counter, scratches)`: has workers do a job, does it, too, and waits for them."""
    t = IRBuilder(1)

    def state_of(k: str) -> str:
        return t.behind("%states", t.let(f"mul i64 {k}, {BLOCK}"))

    def give(k: str) -> None:
        state = state_of(k)
        scratch = t.word("%scratches", t.let(f"add i64 {k}, 1"), "ptr")
        for at, word in enumerate(("%function", "%table", "%counter", scratch)):
            t.line(f"store ptr {word}, ptr {t.behind(state, _JOB + 8 * at)}")
        number = t.let(f"add i32 {_atomic(t, state)}, 1")
        _put(t, t.let(f"shl i32 {number}, 1"), t.behind(state, _CLAIM))
        _put(t, number, state)
        branch(t, t.let(f"icmp ne i32 {_atomic(t, t.behind(state, _SLEEPS))}, 0"), lambda: t.let(
            f"call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr {state}, i64 {FUTEX_WAKE}, i32 1, ptr null, ptr null, i32 0)"))

    def collect(k: str) -> None:
        state = state_of(k)
        number = _atomic(t, state)
        branch(t, _claimed(t, state, number), None, lambda: wait_until(
            t, lambda: t.let(f"icmp eq i32 {_atomic(t, t.behind(state, _DONE))}, {number}")))

    t.rows("0", "%workers", give)
    t.line(f"call void %function(ptr %table, ptr %counter, ptr {t.word('%scratches', 0, 'ptr')})")
    t.rows("0", "%workers", collect)
    return t.function("void @launch(ptr %states, i64 %workers, ptr %function, ptr %table, ptr %counter, ptr %scratches)")


def _share() -> str:
    """`share(pool, threads, function, table, counter, scratches)`: launches a job with the workers, unless somebody has them."""
    t = IRBuilder(1)
    busy, states = t.behind("%pool", _BUSY), t.behind("%pool", BLOCK)

    def launch(workers: str) -> None:
        t.line(f"call void @launch(ptr {states}, i64 {workers}, ptr %function, ptr %table, ptr %counter, ptr %scratches)")

    def together() -> None:
        launch(least(t, t.word(t.behind("%pool", WORKERS)), t.let("sub i64 %threads, 1")))
        _put(t, "0", busy)

    branch(t, _exchanged(t, busy, "0", "1"), together, lambda: launch("0"))
    return t.function("void @share(ptr %pool, i64 %threads, ptr %function, ptr %table, ptr %counter, ptr %scratches)")


_IR = "\n".join([_DECLARATIONS, _serve(), _launch(), _share(), ""])

_POINTER = ctypes.c_void_p


class WorkerPool:
    """The workers of this process. One caller at a time has them; another finds them busy and works alone.

    `address` is that of the pool's state, and `share_address` that of the `SHARE` which is called with it. `most` is how many
    workers there can be.
    """

    def __init__(self) -> None:
        at = machine_code.functions(_IR, ["serve", "share"])
        self._serve = ctypes.CFUNCTYPE(None, _POINTER)(at["serve"].address)
        self.share_address = at["share"].address
        self.most = os.cpu_count() or 1
        self._state = aligned(BLOCK * (1 + self.most))
        self.address: int = self._state.ctypes.data
        self._hiring = Lock()
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Starts with no workers: a forked child has none of its parent's threads."""
        self._state[:] = 0
        self._workers = 0

    def hire(self, count: int) -> None:
        """Sees to it that there are so many workers, or one for every core."""
        if self._workers >= min(count, self.most):
            return
        with self._hiring:
            while self._workers < min(count, self.most):
                state = self.address + BLOCK * (1 + self._workers)
                threading.Thread(target=self._serve, args=(state,), name="deepx-graph native kernel", daemon=True).start()
                self._workers += 1
                ctypes.c_int64.from_address(self.address + WORKERS).value = self._workers


class TeamPool:
    """What stands for workers where there are none: the threads of the process's team, which Python has share the work."""

    address, most = 0, 0

    def __init__(self) -> None:
        self._share = SHARE(self._run)
        self.share_address = ctypes.cast(self._share, _POINTER).value or 0

    def hire(self, count: int) -> None:
        """The team has its threads."""

    @staticmethod
    def _run(pool: int, threads: int, function: int, table: int, counter: int, scratches: int) -> None:
        each, run = iter((_POINTER * threads).from_address(scratches)), SHARED(function)
        TEAM.run(lambda: run(table, counter, next(each)), threads)


@cache
def pool() -> WorkerPool | TeamPool:
    """The pool of this process, made when first asked for."""
    fit = sys.platform == "linux" and platform.machine() == "x86_64" and np.dtype(np.intp).itemsize == 8
    return WorkerPool() if fit else TeamPool()


def run_shared(function: Any, table: int, threads: int) -> None:
    """Runs a `SHARED` machine function that needs no memory of its own in so many threads until all shares are done."""
    counter = ctypes.c_int64()
    if threads == 1:
        function(table, ctypes.addressof(counter), None)
        return
    pool().hire(threads - 1)
    address, own = ctypes.cast(function, _POINTER).value, (_POINTER * threads)()
    SHARE(pool().share_address)(pool().address, threads, address, table, ctypes.addressof(counter), ctypes.addressof(own))
