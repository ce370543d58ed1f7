"""Measures the constants of the cost model on this machine: a few seconds of small kernels, each timed many times.

What other jobs do to a measurement only makes it longer, so the least of many counts. Constants of an engine that is not installed
stay as shipped. Nothing is stored here.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deepx_graph.blas import available_cores, limited
from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.ir.scalar_expr import price
from deepx_graph.ops import add, broadcast_in_dim, dot_general, exponential, multiply, negate, reduce, reverse, subtract
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.runtime import engines
from deepx_graph.runtime.cost.file import using
from deepx_graph.runtime.cost.model import LEAST, SHIPPED, Constants, packing_ns
from deepx_graph.runtime.engines import has_native
from deepx_graph.runtime.kernels.costs import BLOCK_ELEMENTS
from deepx_graph.runtime.kernels.execute import build
from deepx_graph.runtime.kernels.threads import TEAM
from deepx_graph.types import F32, tensor

SMALL, FITTING, STREAMED = 16, 4096, 16384
"""Elements that cost nothing beside their call, elements whose arrays fit a core's own cache, and so many that the call does not
count beside them."""

SHORT, LONG = 32, 2048
"""Elements of rows over which starting a loop counts, and of rows over which it does not."""

ROUNDS, BATCH_SECONDS = 60, 0.002

PRODUCTS = ((512, 512, 512), (1024, 256, 512), (256, 1024, 512), (512, 256, 1024), (128, 1024, 1024))
"""Rows, depth and columns of the products whose rate is measured: square, flat, deep, wide, and of few rows."""

Run = Callable[[], Any]


def calibrated(tell: Callable[[str], object] = lambda what: None) -> Constants:
    """The constants of this machine. `tell` hears of each part before it is measured. Takes about ten seconds."""
    found = SHIPPED
    for what, measure in PARTS:
        tell(what)
        found = replace(found, **{name: max(LEAST, value) for name, value in measure().items() if math.isfinite(value)})
    return found


def nanoseconds(run: Run, rounds: int = ROUNDS) -> float:
    """The least over batches of calls, a call."""
    run()
    start = time.perf_counter_ns()
    run()
    count = max(1, int(BATCH_SECONDS * 1e9 / max(1, time.perf_counter_ns() - start)))
    return min(_batch(run, count) for _ in range(rounds))


def _batch(run: Run, count: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(count):
        run()
    return (time.perf_counter_ns() - start) / count


# --- memory


def _memory() -> dict[str, float]:
    cache = _cache_bytes()
    inside, outside = max(1 << 19, min(4 << 20, int(cache) // 8)), int(2 * cache)
    cores = available_cores()
    one = _bandwidth(outside, 1)
    return {"cache_bytes": cache, "cache_gbs": _bandwidth(inside, 1), "memory_gbs": one,
            "memory_all_gbs": max(one, _bandwidth(outside, cores)) if cores > 1 else one}


def _cache_bytes() -> float:
    """Of the largest cache that the system tells of."""
    names = ("SC_LEVEL3_CACHE_SIZE", "SC_LEVEL2_CACHE_SIZE")
    sizes = [os.sysconf(n) for n in names if n in getattr(os, "sysconf_names", ())]
    return float(next((s for s in sizes if s > 0), SHIPPED.cache_bytes))


def _bandwidth(nbytes: int, threads: int) -> float:
    """Of a sum of two arrays into a third, `nbytes` in all, a part for each thread."""
    size = nbytes // 12 // threads
    arrays = [[np.full(size, 0.5, np.float32) for _ in range(3)] for _ in range(threads)]

    def run() -> None:
        left = iter(arrays)

        def part() -> None:
            a, b, out = next(left)
            np.add(a, b, out=out)

        TEAM.run(part, threads)

    return 12 * size * threads / nanoseconds(run, 20)


# --- numpy's loops and numexpr's machine


def _chain(ops: Sequence[Op], inputs: int, size: int) -> Function:
    """A function of `ops` one after the other, each of what came before and, where it takes two, one of the inputs."""

    def body(*xs: Node) -> Sequence[Node]:
        b, y = Builder(), xs[0]
        for k, op in enumerate(ops):
            y = b(op, y, xs[k % inputs]) if len(op.operands) == 2 else b(op, y)
        return [y]

    return Builder().function("chain", [(f"x{k}", tensor(F32, (size,))) for k in range(inputs)], body)


def _arithmetic(count: int) -> list[Op]:
    return [(add, multiply)[k % 2] for k in range(count)]


def _functions(count: int) -> list[Op]:
    """exp, with a negation after each, so that its argument stays small."""
    return [(exponential, negate)[k % 2] for k in range(2 * count)]


def _call(kernel: Callable[..., Any], inputs: int, size: int, value: float = 0.5) -> float:
    """Nanoseconds of a kernel into memory that is there. The inputs are small: chains of multiplications stay finite."""
    args = [np.full(size, value, np.float32) for _ in range(inputs)]
    out = [np.empty(size, np.float32)]
    return nanoseconds(lambda: kernel(args, out))


def _blocks(ops: Sequence[Op], inputs: int, size: int, *, machine: bool = False, block: int = BLOCK_ELEMENTS) -> float:
    return _call(build(_chain(ops, inputs, size), 1, block, machine=machine), inputs, size)


def _loops() -> dict[str, float]:
    step = {n: (_blocks(_arithmetic(60), 2, n) - _blocks(_arithmetic(20), 2, n)) / 40 for n in (SMALL, FITTING)}
    element = (step[FITTING] - step[SMALL]) / (FITTING - SMALL)
    functions = (_blocks(_functions(9), 2, FITTING) - _blocks(_functions(3), 2, FITTING)) / 6 - step[FITTING]
    op = max(0.0, functions - step[FITTING]) / FITTING / (price("exp") - 1)
    call = step[SMALL] - SMALL * element
    whole = _blocks(_arithmetic(1), 2, SMALL) - call
    shared = nanoseconds(lambda: TEAM.run(lambda: None, 2)) if available_cores() > 1 else 0.0
    block = (_blocks(_arithmetic(2), 2, FITTING, block=FITTING // 16) - _blocks(_arithmetic(2), 2, FITTING)) / 16
    return {"ufunc_call_ns": call, "ufunc_element_ns": element - op, "ufunc_op_ns": op, "blocks_call_ns": whole,
            "block_ns": block - 2 * call, "blocks_share_ns": shared}


def _machine() -> dict[str, float]:
    step = {n: (_blocks(_arithmetic(90), 2, n, machine=True) - _blocks(_arithmetic(30), 2, n, machine=True)) / 60
            for n in (SMALL, 1024)}
    element = (step[1024] - step[SMALL]) / (1024 - SMALL)
    few, many = (_blocks(_arithmetic(60), n, SMALL, machine=True) for n in (2, 22))
    call = step[SMALL] - SMALL * element
    rest = few - 60 * step[SMALL] - 2 * (many - few) / 20 - _blocks(_arithmetic(0), 1, SMALL)
    return {"vm_call_ns": rest, "vm_input_ns": (many - few) / 20, "vm_step_ns": call, "vm_element_ns": element}


# --- machine code


def _native() -> dict[str, float]:
    if not has_native():
        return {}
    from deepx_graph.runtime.native.loop_program.kernel import build

    def timed(count: int, size: int, threads: int = 1) -> float:
        kernel = build(_chain(_arithmetic(count), 2, size), threads)
        return _call(kernel, 2, size)

    def by_rows(rows: int, columns: int) -> float:
        kernel, x = build(row_deviations(rows, columns), 1), np.full((rows, columns), 0.5, np.float32)
        out = [np.empty(rows, np.float32)]
        return nanoseconds(lambda: kernel([x], out))

    few, some = 4, 20  # operations that a core does beside those of the next elements: of longer chains it measures the latency
    call, short, long = timed(few, SMALL), timed(few, STREAMED), timed(some, STREAMED)
    op = (long - short) / (some - few) / STREAMED
    started = (by_rows(STREAMED // SHORT, SHORT) - by_rows(STREAMED // LONG, LONG)) / (2 * (STREAMED // SHORT - STREAMED // LONG))
    return {"native_call_ns": call, "native_op_ns": op, "native_element_ns": (short - call) / STREAMED - few * op,
            "native_loop_ns": started, "native_share_ns": _shared(timed)}


def row_deviations(rows: int, columns: int) -> Function:
    """For each row the sum of squares of what its elements are beside their sum: two loops over it."""

    def body(x: Node) -> Sequence[Node]:
        b = Builder()

        def total(y: Node) -> Node:
            return b(reduce, y, b.constant(0.0, F32), dimensions=(1,), body=monoid_body(add, F32))

        apart = b(subtract, x, b(broadcast_in_dim, total(x), shape=(rows, columns), broadcast_dimensions=(0,)))
        return [total(b(multiply, apart, apart))]

    return Builder().function("deviations", [("x", tensor(F32, (rows, columns)))], body)


def _shared(timed: Callable[..., float]) -> float:
    """What it costs to share a kernel out: its time on all cores beyond an equal part of its time on one."""
    cores = available_cores()
    if cores < 2:
        return SHIPPED.native_share_ns
    size = cores << 15
    with using(replace(SHIPPED, native_share_ns=LEAST)):  # else so small a kernel is not shared out
        shared = timed(40, size, cores)
    return shared - timed(40, size) / cores


# --- what else there is


def _products() -> dict[str, float]:
    call = nanoseconds(_product(4, 4, 4))
    here = replace(SHIPPED, cache_gbs=_bandwidth(3 * 4 * 512**2, 1))
    runs = product_runs()
    every = _product_gflops(here, runs, call, available_cores())
    with limited(1):
        alone = _product_gflops(here, runs, call, 1)
    return {"product_call_ns": call, "product_gflops": alone, "product_all_gflops": every}


def product_runs() -> list[Run]:
    """Products of several shapes, each on operands of its own; all have been run once."""
    return [_product(*shape) for shape in PRODUCTS]


def _product_gflops(c: Constants, runs: Sequence[Run], call: float, threads: int) -> float:
    """The usual rate of products beside their calls and packing.

    They run in turn, each on operands of its own, as in a program: again and again on the same ones BLAS is up to a tenth faster.
    """
    taken: float = sum(map(min, zip(*([_batch(run, 1) for run in runs] for _ in range(ROUNDS)), strict=True)))
    flops = sum(2 * rows * depth * columns for rows, depth, columns in PRODUCTS)
    nbytes = sum(4 * (rows * depth + depth * columns + rows * columns) for rows, depth, columns in PRODUCTS)
    return flops / (taken - len(runs) * call - packing_ns(c, nbytes, threads))


def _product(rows: int, depth: int, columns: int) -> Run:
    """The product of two matrices, as the engines make it, on all threads that BLAS may use; run once."""
    b = Builder()
    x, y = b.param(0, tensor(F32, (rows, depth))), b.param(1, tensor(F32, (depth, columns)))
    kernel = engines.get("numexpr").kernel(b(dot_general, x, y, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,)))
    values = [np.full(shape, 0.5, np.float32) for shape in ((rows, depth), (depth, columns))]
    out = [np.empty((rows, columns), np.float32)]
    kernel(values, out)
    return lambda: kernel(values, out)


def _evals() -> dict[str, float]:
    """Elements picked out of order stand for all that numpy does alone."""
    few, many = np.zeros((4, 4), np.float32), np.zeros((1024, 1024), np.float32)
    assert reverse.eval is not None
    evaluate = reverse.eval
    order = np.random.default_rng(0).permutation(many.size).astype(np.int32)
    return {"eval_call_ns": nanoseconds(lambda: np.ascontiguousarray(evaluate([few], (1,)))),
            "eval_gbs": 3 * many.nbytes / nanoseconds(lambda: many.ravel()[order])}


PARTS: tuple[tuple[str, Callable[[], dict[str, float]]], ...] = (
    ("memory", _memory), ("numpy's loops", _loops), ("numexpr's machine", _machine), ("machine code", _native),
    ("products", _products), ("other operations", _evals),
)  # fmt: skip


def rows(before: Constants, after: Constants) -> Iterator[tuple[str, float, float]]:
    """The constants of two sets by name."""
    new = after.to_json()
    for name, value in before.to_json().items():
        yield name, value, new[name]
