"""What the machine can do at most: bytes read and written a second, in cache and out of it, and multiply-adds.

Measured by three small loops of our own, written here as LLVM's IR and run on as many threads as the contestants have: a sum of two
arrays (reads only), `out = a + 3*b` (two reads, one write, with and without stores that pass the caches by) and chains of fused
multiply-adds in registers. Needs llvmlite. Measures nothing but these loops, and knows nothing of workloads.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

CACHE, MEMORY = 1_000_000, 30_000_000
"""Elements of each array: those of workloads of medium and of large size."""
ROUNDS = 25
CHAINS = 12
"""Independent chains: more than a core can have under way at once."""


def _loop(body: list[str], carried: dict[str, str], step: int) -> str:
    """A loop from 0 to %n by `step` elements, %i its counter, inside one of %repeat turns. `carried` is name to first value."""
    phis = [f"  %{c} = phi VEC [ {first}, %again ], [ %{c}.next, %loop ]" for c, first in carried.items()]
    return "\n".join((
        "  br label %again", "again:", "  %turn = phi i64 [ 0, %entry ], [ %turn.next, %done ]", "  br label %loop", "loop:",
        "  %i = phi i64 [ 0, %again ], [ %i.next, %loop ]", *phis, *body, f"  %i.next = add i64 %i, {step}",
        "  %more = icmp slt i64 %i.next, %n", "  br i1 %more, label %loop, label %done", "done:",
        *[f"  store VEC %{c}.next, ptr %out" for c in carried],
        "  %turn.next = add i64 %turn, 1", "  %left = icmp slt i64 %turn.next, %repeat", "  br i1 %left, label %again, label %end",
        "end:", "  ret void", "}"))


def _text(lanes: int) -> str:
    """Functions `sum`, `triad`, `stream` and `fma`, all of (out, a, b, n, repeat)."""
    chains = range(CHAINS)
    head = "define void @{}(ptr %out, ptr %a, ptr %b, i64 %n, i64 %repeat) {{\nentry:"
    zeros = {f"s{k}": "zeroinitializer" for k in chains}

    def at(k: int, array: str) -> str:
        return f"  %{array}{k}.at = getelementptr float, ptr %{array}, i64 %j{k}"

    places = [f"  %j{k} = add i64 %i, {k * lanes}" for k in chains]
    reads = {array: [line for k in chains for line in (at(k, array), f"  %{array}{k} = load VEC, ptr %{array}{k}.at, align ALIGN")]
             for array in "ab"}
    sums = [f"  %s{k}.{end} = fadd VEC %s{k}{start}, %{array}{k}" for k in chains
            for array, start, end in (("a", "", "half"), ("b", ".half", "next"))]
    three = "<" + ", ".join(["float 3.0"] * lanes) + ">"
    small = "<" + ", ".join(["float 0.5"] * lanes) + ">"
    products = [f"  %r{k} = call VEC @llvm.fma.NAME(VEC %b{k}, VEC {three}, VEC %a{k})" for k in chains]
    writes = [line for k in chains for line in (at(k, "out"), f"  store VEC %r{k}, ptr %out{k}.at, align ALIGNHINT")]
    chained = [f"  %s{k}.next = call VEC @llvm.fma.NAME(VEC %s{k}, VEC {small}, VEC {small})" for k in chains]
    step = CHAINS * lanes
    triad = "\n".join((head.format("KIND"), _loop([*places, *reads["a"], *reads["b"], *products, *writes], {}, step)))
    text = "\n".join((
        "declare VEC @llvm.fma.NAME(VEC, VEC, VEC)",
        head.format("sum"), _loop([*places, *reads["a"], *reads["b"], *sums], zeros, step),
        triad.replace("KIND", "triad").replace("HINT", ""), triad.replace("KIND", "stream").replace("HINT", ", !nontemporal !0"),
        head.format("fma"), _loop(chained, zeros, 1), "!0 = !{i32 1}", ""))
    return text.replace("VEC", f"<{lanes} x float>").replace("NAME", f"v{lanes}f32").replace("ALIGN", str(4 * lanes))


Function = Callable[..., None]


def functions() -> tuple[int, dict[str, Function]]:
    """The lanes of a register, and the compiled functions. Raises ImportError without llvmlite."""
    from deepx_graph.runtime.native.llvm.machine_code import functions as compiled
    from deepx_graph.runtime.native.llvm.target import this_machine

    machine = this_machine()
    lanes = machine.register_bytes // 4
    found = compiled(_text(lanes), ["sum", "triad", "stream", "fma"])
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)
    return lanes, {name: kind(function.address) for name, function in found.items()}


def _seconds(calls: Sequence[Callable[[], None]]) -> float:
    """Of calls that start together, each in a thread, until the last has ended."""
    gate = threading.Barrier(len(calls) + 1)

    def run(call: Callable[[], None]) -> None:
        gate.wait()
        call()
        gate.wait()

    for call in calls:
        threading.Thread(target=run, args=(call,), daemon=True).start()
    gate.wait()
    start = time.perf_counter()
    gate.wait()
    return time.perf_counter() - start


def _aligned(count: int) -> Any:
    block = np.ones(count + 16, np.float32)
    return block[(-block.ctypes.data % 64) // 4:][:count]


def measure(threads: int) -> dict[str, float]:
    """Bytes a second, only `read` or `moved` both ways, with `.cache` or `.memory` behind; `flops` a second. The best of rounds."""
    lanes, run = functions()
    found: dict[str, float] = {}
    for level, count, repeat in (("cache", CACHE, 100), ("memory", MEMORY, 1)):
        part = count // threads // (CHAINS * lanes) * CHAINS * lanes
        arrays = [[_aligned(part) for _ in range(3)] for _ in range(threads)]

        def best(name: str, part: int = part, repeat: int = repeat, arrays: Any = arrays) -> float:
            calls = [partial(run[name], *(a.ctypes.data for a in trio), part, repeat) for trio in arrays]
            return min(_seconds(calls) for _ in range(ROUNDS)) / (4 * part * threads * repeat)

        moved = 3 / min(best("triad"), best("stream"))
        found |= {f"read.{level}": max(2 / best("sum"), moved * 2 / 3), f"moved.{level}": moved}
    scratch, turns = _aligned(lanes).ctypes.data, 5_000_000
    seconds = min(_seconds([partial(run["fma"], scratch, scratch, scratch, turns, 1)] * threads) for _ in range(ROUNDS))
    return found | {"flops": 2.0 * CHAINS * lanes * turns * threads / seconds}


def seconds_at_least(limits: dict[str, float], read: int, written: int, flops: int, cached: bool) -> float:
    """The time below which no program can come that reads, writes and multiplies so much, all of which may overlap."""
    level = "cache" if cached else "memory"
    return max(read / limits[f"read.{level}"], (read + written) / limits[f"moved.{level}"], flops / limits["flops"])
