"""The cost model: how long a kernel takes, predicted from bytes, operations and the constants of the machine.

A kernel takes its call, what it takes to share it out, and the longer of two: its arithmetic, spread over the threads that it is
shared among, or its bytes at the bandwidth of where they lie. Predictions are for warm calls into memory that is there. They
decide how a kernel runs, so also the order of sums, and never what it computes; nothing is measured here (`calibrate`).

The constants shipped here were measured on a 2-core AMD EPYC with AVX-512, 1 MiB of L2 each, 32 MiB of L3, numpy 2.4.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from deepx_graph.ir.scalar_expr import FUNCTION_PRICE, price

LEAST, MOST = 1e-6, 1e12
"""Bounds on every constant: what lies outside was not measured."""


@dataclass(frozen=True)
class Constants:
    """Nanoseconds (`_ns`), bytes a nanosecond of one thread (`_gbs`), operations a nanosecond (`_gflops`), bytes (`_bytes`).

    "An element" is one of 4 bytes: one of 8 counts twice, as vector registers hold half as many.
    """

    cache_bytes: float = 32 << 20
    """Data up to this size comes from a cache that all threads share."""
    cache_gbs: float = 95.0
    memory_gbs: float = 38.0
    memory_all_gbs: float = 44.0
    """Of memory, all threads together."""

    native_call_ns: float = 3_800
    """One call of a kernel of machine code, its arguments put into their table."""
    native_share_ns: float = 7_000
    """Sharing a loop nest out among workers."""
    native_element_ns: float = 0.07
    """What an element of a loop nest costs beside arithmetic: loads, stores and the loop."""
    native_op_ns: float = 0.0155
    """An addition of one element with an operand in cache; other primitives by their price (`ir.scalar_expr.price`)."""
    native_loop_ns: float = 2.3
    """Starting a loop of vectors: what is left over under a mask, and what its lanes have made put together."""

    blocks_call_ns: float = 2_800
    """One call of a kernel of numpy's loops, before its first block."""
    block_ns: float = 600
    """Making one block ready."""
    blocks_share_ns: float = 48_000
    """Handing blocks to sleeping threads, and the interpreter's lock."""
    ufunc_call_ns: float = 500
    ufunc_element_ns: float = 0.078
    ufunc_op_ns: float = 0.0085

    vm_call_ns: float = 780
    vm_input_ns: float = 360
    vm_step_ns: float = 9.3
    vm_element_ns: float = 0.33
    """A step and element of numexpr's machine, which is scalar."""

    product_call_ns: float = 2_600
    product_gflops: float = 100.0
    """Single precision, one thread."""
    product_all_gflops: float = 200.0
    """All threads together."""

    eval_call_ns: float = 1_800
    """One call of an operation's own eval."""
    eval_gbs: float = 4.5
    """Bytes of operands and results that an eval goes through, fresh memory included."""

    def to_json(self) -> dict[str, float]:
        """The constants by name."""
        return asdict(self)


SHIPPED = Constants()
"""Where nothing was measured."""

NAMES = tuple(f.name for f in fields(Constants))


def from_json(values: Any) -> Constants:
    """The constants that a mapping names. Raises ValueError where one is missing, no number, or out of bounds."""
    if not isinstance(values, dict) or set(values) != set(NAMES):
        raise ValueError("other constants than this version has")
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or not LEAST <= value <= MOST:
            raise ValueError(f"{name} is no constant of a machine")
    return replace(SHIPPED, **{name: float(value) for name, value in values.items()})


def crowded(c: Constants, arithmetic: float, memory: float) -> Constants:
    """The constants of a process that others slow down: what is left to it of the speed of its core, and of the memory's.

    Only going through memory goes by the latter; calls, loops, products and caches are the core's.
    """
    def slowed(name: str, value: float) -> float:
        if name.endswith("_bytes"):
            return value
        if name.endswith("_ns"):
            return value / arithmetic
        return value * (memory if name.startswith("memory_") else arithmetic)

    return Constants(**{name: slowed(name, value) for name, value in c.to_json().items()})


LANE_BYTES = 4
"""An element of this size has the prices as they stand."""


@dataclass(frozen=True)
class Forecast:
    """What a kernel is expected to take: time, bytes of operands and results, arithmetic operations, and which of them decides.

    `nanoseconds` is None where nothing is known of how it runs.
    """

    nanoseconds: float | None
    bytes: int
    operations: int
    bound: str = ""
    """`calls`, `memory` or `arithmetic`: the largest part of the time."""
    calls: float = 0.0
    """The nanoseconds of these that are calls: where machine code calls the kernel, it takes as good as none."""


@dataclass(frozen=True)
class ForecastParts:
    """The parts of a prediction, in nanoseconds: arithmetic and memory overlap, calls do not."""

    calls: float = 0.0
    arithmetic: float = 0.0
    memory: float = 0.0

    @property
    def nanoseconds(self) -> float:
        """The whole."""
        return self.calls + max(self.arithmetic, self.memory)

    @property
    def bound(self) -> str:
        """The name of the largest part."""
        return max(("calls", self.calls), ("memory", self.memory), ("arithmetic", self.arithmetic), key=lambda p: p[1])[0]

    def forecast(self, nbytes: int, operations: int) -> Forecast:
        """The prediction of a kernel of so many bytes and operations."""
        return Forecast(self.nanoseconds, nbytes, operations, self.bound, self.calls)


def lane_price(primitive: str, itemsize: int) -> float:
    """The price of a primitive for an element of that size, in additions of an element of 4 bytes.

    Half as many elements of 8 bytes fit a register, and the functions of double precision are half as long again.
    """
    plain = price(primitive) * max(1.0, itemsize / LANE_BYTES)
    return plain * 1.5 if itemsize > LANE_BYTES and price(primitive) >= FUNCTION_PRICE else plain


def memory_ns(c: Constants, nbytes: float, threads: int) -> float:
    """To go once through so many bytes, that many threads sharing them."""
    if nbytes <= c.cache_bytes:
        return nbytes / (c.cache_gbs * threads)
    return nbytes / min(c.memory_gbs * threads, max(c.memory_gbs, c.memory_all_gbs))


def roof_ns(c: Constants, operations: float, nbytes: float, threads: int) -> float:
    """The least time for so many operations (single precision) over so many bytes: the roofline (Williams et al.)."""
    return max(operations / product_rate(c, threads), memory_ns(c, nbytes, threads))


def product_rate(c: Constants, threads: int) -> float:
    """Operations a nanosecond of that many threads together."""
    return min(c.product_gflops * threads, max(c.product_gflops, c.product_all_gflops))


def nest_ns(c: Constants, elements: float, work: float, nbytes: float = 0.0, starts: float = 0.0) -> float:
    """One thread of machine code through so many elements of 4 bytes, each with arithmetic of that price, and so many bytes;
    loops of vectors are started so often."""
    return max(elements * (c.native_element_ns + c.native_op_ns * work) + starts * c.native_loop_ns, memory_ns(c, nbytes, 1))


def chunk_ns(c: Constants) -> float:
    """The least work that is worth a share of its own: handing it to a worker costs half as much."""
    return 2 * c.native_share_ns


def ufunc_ns(c: Constants, elements: float, work: float = 1.0) -> float:
    """One loop of numpy over so many elements of 4 bytes that lie in cache."""
    return c.ufunc_call_ns + elements * (c.ufunc_element_ns + c.ufunc_op_ns * work)


def vm_ns(c: Constants, steps: int, inputs: int, elements: float) -> float:
    """One program of numexpr's machine."""
    return c.vm_call_ns + c.vm_input_ns * inputs + steps * (c.vm_step_ns + c.vm_element_ns * elements)


def blocks(c: Constants, steps_ns: float, block_count: int, nbytes: int, threads: int) -> ForecastParts:
    """A kernel of numpy's loops: `steps_ns` is what all its loops take in one thread; without blocks it is in one piece."""
    workers = min(threads, max(1, block_count))
    calls = c.blocks_call_ns + block_count * c.block_ns / workers + (c.blocks_share_ns if workers > 1 else 0.0)
    return ForecastParts(calls, steps_ns / workers, memory_ns(c, nbytes, workers))


def product(c: Constants, flops: int, nbytes: int, itemsize: int, threads: int) -> ForecastParts:
    """A matrix product by BLAS."""
    rate = product_rate(c, threads) * LANE_BYTES / max(LANE_BYTES, itemsize)
    return ForecastParts(c.product_call_ns, flops / rate + packing_ns(c, nbytes, threads), memory_ns(c, nbytes, threads))


def packing_ns(c: Constants, nbytes: float, threads: int = 1) -> float:
    """To copy the operands of a product into panels and read these again: of so many bytes three times, in cache."""
    return 3 * nbytes / (c.cache_gbs * threads)


def evaluated(c: Constants, flops: int, nbytes: int) -> ForecastParts:
    """An operation by its own eval, on one thread."""
    return ForecastParts(c.eval_call_ns, flops * c.ufunc_element_ns, nbytes / c.eval_gbs)
