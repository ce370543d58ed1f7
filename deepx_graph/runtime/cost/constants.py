"""What a machine takes for the parts of a kernel: the constants of the cost model (`cost`), with their units.

Those shipped here were measured on a 2-core AMD EPYC with AVX-512, 1 MiB of L2 each, 32 MiB of L3, numpy 2.4; `calibrate` measures
them anew. They decide how kernels are cut and shared out, and so the order of sums, and never what is computed.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

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
    """Sharing a sweep out among workers."""
    native_element_ns: float = 0.07
    """What an element of a sweep costs beside arithmetic: loads, stores and the loop."""
    native_op_ns: float = 0.0155
    """An addition of one element with an operand in cache; other primitives by their price (`ir.kernel.price`)."""

    blocks_call_ns: float = 2_800
    """One call of a kernel of numpy's loops, before its first block."""
    block_ns: float = 600
    """Making one block ready."""
    blocks_share_ns: float = 48_000
    """Handing blocks to sleeping threads, and the interpreter's lock."""
    ufunc_call_ns: float = 500
    ufunc_element_ns: float = 0.078
    ufunc_op_ns: float = 0.012

    vm_call_ns: float = 780
    vm_input_ns: float = 360
    vm_step_ns: float = 9.3
    vm_element_ns: float = 0.33
    """A step and element of numexpr's machine, which is scalar."""

    product_call_ns: float = 2_600
    product_gflops: float = 100.0
    """Single precision, one thread."""

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
