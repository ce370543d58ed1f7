"""The sizes in `deepx_graph/runtime/kernels/costs.py`, measured again on this machine.

    python -m bench.costs.calibrate

Prints the tables that block size, threads and masks were chosen from; whoever changes a size copies it by hand. (Prices are
measured by `deepx-graph calibrate`.)
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Builder, Node
from deepx_graph.ops import add, compare, multiply, select, subtract, tanh
from deepx_graph.runtime.kernels import costs
from deepx_graph.runtime.kernels.execute import build
from deepx_graph.types import F32, tensor


def microseconds(run: Callable[[], Any], rounds: int = 15) -> float:
    """Median over rounds of batches of about 2 ms."""
    run()
    start = time.perf_counter()
    run()
    count = max(1, int(0.002 / max(1e-7, time.perf_counter() - start)))
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            run()
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times) * 1e6


def _axpy(a: Node, x: Node, y: Node, d: Node) -> Sequence[Node]:
    b = Builder()
    return [b(subtract, b(add, b(multiply, a, x), y), b(multiply, d, b.constant(2.0, F32)))]


def _gelu(x: Node) -> Sequence[Node]:
    b = Builder()
    cube = b(multiply, b(multiply, b(multiply, x, x), x), b.constant(0.044715, F32))
    raised = b(add, b(tanh, b(multiply, b(add, x, cube), b.constant(0.7978846, F32))), b.constant(1.0, F32))
    return [b(multiply, b(multiply, x, b.constant(0.5, F32)), raised)]


def _for(body: Callable[..., Sequence[Node]], inputs: int, size: int, threads: int, block: int) -> float:
    params = [(f"x{k}", tensor(F32, (size,))) for k in range(inputs)]
    kernel = build(Builder().function("main", params, body), threads, block)
    assert kernel is not None
    args = [np.random.default_rng(k).standard_normal(size, dtype=np.float32) for k in range(inputs)]
    return microseconds(lambda: kernel(args), 9)


def blocks() -> None:
    """Block size and threads: two workloads over a range of sizes."""
    sizes = (32, 64, 128, 256, 512)
    print("\n| workload | elements | " + " | ".join(f"{t} thread{'s' * (t > 1)}, {s} Ki" for t in (1, 2) for s in sizes) + " |")
    print("|---|---|" + "---|" * 10)
    for name, body, inputs in (("axpy", _axpy, 4), ("gelu", _gelu, 1)):
        for n in (150_000, 300_000, 1_000_000):
            cells = [f"{_for(body, inputs, n, t, s * 1024):.0f}" for t in (1, 2) for s in sizes]
            print(f"| {name}, us | {n:,} | " + " | ".join(cells) + " |", flush=True)


def masks() -> None:
    """`where`, by masked copies and by bit masks, on a random mask."""
    from deepx_graph.runtime.kernels import lower_primitives

    def body(x: Node, y: Node) -> Sequence[Node]:
        b = Builder()
        return [b(select, b(compare, x, y, direction="LT"), x, y)]

    print("\n| elements of a where | masked copy, us | bit masks, us |\n|---|---|---|")
    rng, limit = np.random.default_rng(0), costs.MASK_ELEMENTS
    for n in (256, 512, 1024, 2048, 16384, 131072):
        cells = []
        args = [rng.standard_normal(n, dtype=np.float32) for _ in "xy"]
        for least in (1 << 30, 1):
            lower_primitives.MASK_ELEMENTS = least  # type: ignore[misc]
            kernel = build(Builder().function("where", [("x", tensor(F32, (n,))), ("y", tensor(F32, (n,)))], body), 1)
            cells.append(f"{microseconds(lambda kernel=kernel, args=args: kernel(args)):.1f}")  # type: ignore[misc]
        lower_primitives.MASK_ELEMENTS = limit  # type: ignore[misc]
        print(f"| {n:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    masks()
    blocks()
