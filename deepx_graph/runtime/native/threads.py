"""Worker threads that take a job within a microsecond while they are awake, and sleep in the kernel when there is none.

A worker is a Python thread that never comes back from machine code: it waits for a job number to change, at first awake, for some
tens of microseconds, then in a futex, so that it takes no core from the matrix products that follow. The caller works too, and
waits for the others. Linux on x86-64 alone; elsewhere `pool()` is None and the threads of `runtime.kernels.threads` do it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
from typing import Any

import numpy as np

from deepx_graph.forking import Lock, renew_after_fork
from deepx_graph.runtime.kernels.memory import aligned
from deepx_graph.runtime.kernels.threads import TEAM
from deepx_graph.runtime.native.llvm import machine_code

SHARED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
"""`function(table, counter, scratch)`: takes shares of the work from the counter until there are none."""

SPIN = 1500
"""How often a worker looks for a job, a pause between, before it sleeps."""

BLOCK = 256
"""Bytes of a worker's state: job number, number of the last job done, whether it sleeps, and the job, a cache line each."""

_BUSY, WORKERS = 0, 64
"""In the block before the workers' own: whether somebody has the workers, and how many there are."""

_DONE, _SLEEPS, _JOB, _CLAIM = 64, 128, 192, 224
"""The claim is twice the number of a job that is free, and one more when the worker has taken it or the caller has taken it back:
the caller never waits for a worker that has not begun."""

_IR = f"""
declare i64 @syscall(i64, ...)
declare void @llvm.x86.sse2.pause()

define void @serve(ptr %state) {{
entry:
  %done = getelementptr i8, ptr %state, i64 {_DONE}
  %sleeps = getelementptr i8, ptr %state, i64 {_SLEEPS}
  %job = getelementptr i8, ptr %state, i64 {_JOB}
  %claims = getelementptr i8, ptr %state, i64 {_CLAIM}
  %first = load atomic i32, ptr %done seq_cst, align 4
  br label %wait
wait:
  %seen = phi i32 [ %first, %entry ], [ %now, %work ], [ %now, %claim ], [ %seen, %sleep ], [ %seen, %pause ]
  %looks = phi i64 [ 0, %entry ], [ 0, %work ], [ 0, %claim ], [ 0, %sleep ], [ %more, %pause ]
  %now = load atomic i32, ptr %state seq_cst, align 4
  %same = icmp eq i32 %now, %seen
  br i1 %same, label %idle, label %claim
idle:
  %awake = icmp ult i64 %looks, {SPIN}
  br i1 %awake, label %pause, label %sleep
pause:
  call void @llvm.x86.sse2.pause()
  %more = add i64 %looks, 1
  br label %wait
sleep:
  store atomic i32 1, ptr %sleeps seq_cst, align 4
  %slept = call i64 (i64, ...) @syscall(i64 202, ptr %state, i64 128, i32 %seen, ptr null, ptr null, i32 0)
  store atomic i32 0, ptr %sleeps seq_cst, align 4
  br label %wait
claim:
  %free = shl i32 %now, 1
  %taken = or i32 %free, 1
  %tried = cmpxchg ptr %claims, i32 %free, i32 %taken seq_cst seq_cst
  %got = extractvalue {{ i32, i1 }} %tried, 1
  br i1 %got, label %work, label %wait
work:
  %function = load ptr, ptr %job
  %at1 = getelementptr i8, ptr %job, i64 8
  %table = load ptr, ptr %at1
  %at2 = getelementptr i8, ptr %job, i64 16
  %counter = load ptr, ptr %at2
  %at3 = getelementptr i8, ptr %job, i64 24
  %scratch = load ptr, ptr %at3
  call void %function(ptr %table, ptr %counter, ptr %scratch)
  store atomic i32 %now, ptr %done seq_cst, align 4
  br label %wait
}}

define void @launch(ptr %states, i64 %workers, ptr %function, ptr %table, ptr %counter, ptr %scratches) {{
entry:
  br label %give
give:
  %k = phi i64 [ 0, %entry ], [ %k1, %given ]
  %some = icmp slt i64 %k, %workers
  br i1 %some, label %one, label %own
one:
  %offset = mul i64 %k, {BLOCK}
  %state = getelementptr i8, ptr %states, i64 %offset
  %job = getelementptr i8, ptr %state, i64 {_JOB}
  store ptr %function, ptr %job
  %at1 = getelementptr i8, ptr %job, i64 8
  store ptr %table, ptr %at1
  %at2 = getelementptr i8, ptr %job, i64 16
  store ptr %counter, ptr %at2
  %k1 = add i64 %k, 1
  %which = getelementptr ptr, ptr %scratches, i64 %k1
  %scratch = load ptr, ptr %which
  %at3 = getelementptr i8, ptr %job, i64 24
  store ptr %scratch, ptr %at3
  %old = load atomic i32, ptr %state seq_cst, align 4
  %number = add i32 %old, 1
  %claims = getelementptr i8, ptr %state, i64 {_CLAIM}
  %free = shl i32 %number, 1
  store atomic i32 %free, ptr %claims seq_cst, align 4
  store atomic i32 %number, ptr %state seq_cst, align 4
  %flag = getelementptr i8, ptr %state, i64 {_SLEEPS}
  %asleep = load atomic i32, ptr %flag seq_cst, align 4
  %must = icmp ne i32 %asleep, 0
  br i1 %must, label %wake, label %given
wake:
  %woken = call i64 (i64, ...) @syscall(i64 202, ptr %state, i64 129, i32 1, ptr null, ptr null, i32 0)
  br label %given
given:
  br label %give
own:
  %mine = load ptr, ptr %scratches
  call void %function(ptr %table, ptr %counter, ptr %mine)
  br label %collect
collect:
  %j = phi i64 [ 0, %own ], [ %j1, %next ]
  %left = icmp slt i64 %j, %workers
  br i1 %left, label %look, label %out
look:
  %offset2 = mul i64 %j, {BLOCK}
  %state2 = getelementptr i8, ptr %states, i64 %offset2
  %done = getelementptr i8, ptr %state2, i64 {_DONE}
  %wanted = load atomic i32, ptr %state2 seq_cst, align 4
  %claims2 = getelementptr i8, ptr %state2, i64 {_CLAIM}
  %free2 = shl i32 %wanted, 1
  %taken2 = or i32 %free2, 1
  %tried2 = cmpxchg ptr %claims2, i32 %free2, i32 %taken2 seq_cst seq_cst
  %idle2 = extractvalue {{ i32, i1 }} %tried2, 1
  br i1 %idle2, label %next, label %spin
spin:
  %times = phi i64 [ 0, %look ], [ %times1, %again ]
  %is = load atomic i32, ptr %done seq_cst, align 4
  %finished = icmp eq i32 %is, %wanted
  br i1 %finished, label %next, label %hold
hold:
  %times1 = add i64 %times, 1
  %long = icmp ugt i64 %times1, 20000
  br i1 %long, label %yield, label %rest
yield:
  %yielded = call i64 (i64, ...) @syscall(i64 24)
  br label %again
rest:
  call void @llvm.x86.sse2.pause()
  br label %again
again:
  br label %spin
next:
  %j1 = add i64 %j, 1
  br label %collect
out:
  ret void
}}

define void @share(ptr %pool, i64 %threads, ptr %function, ptr %table, ptr %counter, ptr %scratches) {{
entry:
  %states = getelementptr i8, ptr %pool, i64 {BLOCK}
  %busy = getelementptr i8, ptr %pool, i64 {_BUSY}
  %tried = cmpxchg ptr %busy, i32 0, i32 1 seq_cst seq_cst
  %got = extractvalue {{ i32, i1 }} %tried, 1
  br i1 %got, label %together, label %alone
together:
  %at = getelementptr i8, ptr %pool, i64 {WORKERS}
  %there = load i64, ptr %at
  %wanted = sub i64 %threads, 1
  %many = icmp slt i64 %there, %wanted
  %workers = select i1 %many, i64 %there, i64 %wanted
  call void @launch(ptr %states, i64 %workers, ptr %function, ptr %table, ptr %counter, ptr %scratches)
  store atomic i32 0, ptr %busy seq_cst, align 4
  ret void
alone:
  call void @launch(ptr %states, i64 0, ptr %function, ptr %table, ptr %counter, ptr %scratches)
  ret void
}}
"""

_POINTER = ctypes.c_void_p


class WorkerPool:
    """The workers of this process. One caller at a time has them; another finds them busy and works alone.

    `address` is that of the pool's state, and `share_address` that of the machine function that `run` calls with it, for machine
    code that calls it too: `share(pool, threads, function, table, counter, scratches)`.
    """

    def __init__(self) -> None:
        at = machine_code.functions(_IR, ["serve", "share"])
        self._serve = ctypes.CFUNCTYPE(None, _POINTER)(at["serve"])
        self._share = ctypes.CFUNCTYPE(None, _POINTER, ctypes.c_int64, *[_POINTER] * 4)(at["share"])
        self.share_address: int = at["share"]
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

    def run(self, function: int, table: int, counter: int, scratches: int, threads: int) -> None:
        """Calls a machine function in the caller and in `threads - 1` workers, each with scratch memory of its own."""
        self.hire(threads - 1)
        self._share(self.address, threads, function, table, counter, scratches)

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


_POOL: list[WorkerPool | None] = []


def pool() -> WorkerPool | None:
    """The pool of this process, made when first asked for; None where this machine has no such thing."""
    if not _POOL:
        fit = sys.platform == "linux" and platform.machine() == "x86_64" and np.dtype(np.intp).itemsize == 8
        _POOL.append(WorkerPool() if fit else None)
    return _POOL[0]


def run_shared(function: Any, table: int, threads: int, scratch: Any = None) -> None:
    """Runs a `SHARED` machine function in so many threads until all shares are done. `scratch` is an array of the addresses of each
    thread's own memory, where the function has any."""
    counter = ctypes.c_int64()
    count, own = ctypes.addressof(counter), (ctypes.c_void_p * threads)() if scratch is None else scratch
    if threads == 1:
        function(table, count, own[0])
    elif (workers := pool()) is not None:
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        workers.run(address, table, count, ctypes.addressof(own), threads)
    else:
        each = iter(own)
        TEAM.run(lambda: function(table, count, next(each)), threads)
