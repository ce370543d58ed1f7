"""What runs cost, kernel by kernel: calls, the median and least time of a call beside what was predicted, bytes moved, rates, how
near that is to the machine's roof, the share of the whole. Figures leave out the first call, which fills caches and pays for what
is done once, where there are others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from deepx_graph.errors import counted, printable, sized
from deepx_graph.ir import Node
from deepx_graph.ir.function import InNotebook
from deepx_graph.literal import Array
from deepx_graph.ops.interpret import fallbacks
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.cost.model import roof_ns
from deepx_graph.runtime.engines.base import Engine, KernelFn
from deepx_graph.runtime.inputs import flatten

COLUMNS = (("share", 6), ("ms/call", 10), ("least", 10), ("predicted", 10), ("calls", 7), ("per call", 9), ("GB/s", 7), ("roof", 5))
"""Columns of the table, and their widths."""

SAMPLES = 1000
"""Calls of a kernel of which the times are kept for their median."""


@dataclass(frozen=True)
class KernelProfile:
    """One kernel. `seconds` and `bytes` are those of all calls, `median` is the time of one call, `share` is of the medians of all
    calls; `warm` is false where only the first call was seen, which is slower than others.

    `fallback` says how an operation's body was applied where no whole-array form of it was found; empty where there was one.
    `operations` are those of one call, `roof` is the time that the machine's bandwidth and arithmetic allow at best, as a part of
    the median: 1 is as fast as the machine can be, by the constants of the cost model; both None where nothing is known.

    `lowering` is how the engine runs the kernel, `predicted` the seconds that a call was to take by the cost model, as far as the
    engine tells.
    """

    function: str
    kernel: str
    type: str
    line: int | None
    calls: int
    seconds: float
    bytes: int
    gb_per_s: float
    share: float
    fallback: str = ""
    lowering: str = ""
    predicted: float | None = None
    median: float = 0.0
    warm: bool = True
    minimum: float = 0.0
    operations: int | None = None
    roof: float | None = None


class KernelCall(NamedTuple):
    """One call of a kernel: when it began and how long it took, in seconds since the first call of all."""

    kernel: str
    node: str
    type: str
    line: int | None
    lowering: str
    start: float
    seconds: float


@dataclass(slots=True)
class _Meter:
    function: str
    node: Node
    lowering: str = ""
    predicted: float | None = None
    operations: int | None = None
    threads: int = 1
    calls: int = 0
    nanoseconds: int = 0
    bytes: int = 0
    fallback: str = ""
    samples: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What the kernel is called."""
        return self.node.op.name + (f" {self.node.name}" if self.node.name else "")

    def add(self, start: int, nanoseconds: int, bytes: int) -> None:
        self.calls += 1
        self.nanoseconds += nanoseconds
        self.bytes += bytes
        if len(self.samples) < SAMPLES:
            self.samples.append(nanoseconds)
            self.starts.append(start)

    def minimum(self) -> int:
        """Nanoseconds of the shortest call, the first left out as in `median`."""
        return min(self.samples[1:] or self.samples)

    def roof(self) -> float | None:
        """The least time that the machine allows as a part of the median."""
        call = self.median()
        if self.operations is None or not call:
            return None
        return roof_ns(constants(), self.operations, self.bytes / self.calls, self.threads) / call

    def median(self) -> float:
        """Nanoseconds of one call; the first, which is slower, does not count where there are others."""
        return median(self.samples[1:] or self.samples)


class Profile(InNotebook):
    """Collects over all calls of what was compiled with `profile=True`. Call costs are those of kernels, not of the walk."""

    def __init__(self) -> None:
        self._meters: dict[Node, _Meter] = {}

    def __repr__(self) -> str:
        return f"<profile of {counted(len(self._meters), 'kernel')}>"

    def measured(self, function: str, node: Node, kernel: KernelFn, engine: Engine | None = None) -> KernelFn:
        """The kernel, timed. The engine, which made it, is asked how it runs and how long it should take."""
        lowering = engine.lowering(node) if engine is not None else ""
        forecast = engine.forecast(node) if engine is not None else None
        meter = self._meters.setdefault(node, _Meter(
            function, node, lowering, None if forecast is None else forecast.nanoseconds,
            None if forecast is None else forecast.operations, getattr(engine, "threads", None) or 1))

        def run(values: Sequence[Any], out: Sequence[Array] | None) -> Any:
            start = time.perf_counter_ns()
            with fallbacks() as found:
                result = kernel(values, out)
            meter.fallback = ", ".join(found) or meter.fallback
            spent = time.perf_counter_ns() - start
            meter.add(start, spent, _bytes(values) + _bytes(result))
            return result

        return run

    def rows(self) -> list[KernelProfile]:
        """The kernels that ran, the most expensive first."""
        meters = sorted((m for m in self._meters.values() if m.calls), key=lambda m: -m.median() * m.calls)
        total = sum(m.median() * m.calls for m in meters) or 1.0
        return [_row(m, total) for m in meters]

    def per_run(self, runs: int) -> dict[Node, tuple[float, int]]:
        """Seconds and calls of one of `runs` runs, of every kernel by its node: the median call as often as a run makes it."""
        calls = {n: max(1, round(m.calls / runs)) for n, m in self._meters.items() if m.calls}
        return {n: (self._meters[n].median() / 1e9 * k, k) for n, k in calls.items()}

    def seconds(self) -> dict[Node, tuple[float, int, int]]:
        """Seconds, calls and bytes of every kernel that ran, by its node."""
        return {n: (m.nanoseconds / 1e9, m.calls, m.bytes) for n, m in self._meters.items() if m.calls}

    def call_times(self) -> list[KernelCall]:
        """The calls of which the times are kept, in order."""
        first = min((m.starts[0] for m in self._meters.values() if m.starts), default=0)
        found = [KernelCall(m.name, m.node.name, str(m.node.type), _line(m.node), m.lowering, (start - first) / 1e9, spent / 1e9)
                 for m in self._meters.values() for start, spent in zip(m.starts, m.samples, strict=True)]
        return sorted(found, key=lambda call: call.start)

    def to_json(self) -> list[dict[str, object]]:
        """The rows as plain data."""
        return [asdict(row) for row in self.rows()]

    def __str__(self) -> str:
        rows = self.rows()
        said = "times are medians of calls, the first left out" if any(r.warm for r in rows) else \
            "times are those of first calls, which are slower than others"
        head = "".join(f"{title:>{width}} " for title, width in COLUMNS) + " kernel"
        lines = [f"{said}; roof is what the machine allows at best, as a part of the median", head]
        lines += (
            f"{r.share:>6.1%} {r.median * 1e3:>10.3f} {r.minimum * 1e3:>10.3f}"
            f" {'-' if r.predicted is None else f'{r.predicted * 1e3:.3f}':>10}"
            f" {r.calls:>7} {sized(r.bytes / r.calls):>9} {r.gb_per_s:>7.2f}"
            f" {'-' if r.roof is None else f'{r.roof:.0%}':>5}"
            f"  {printable(r.kernel)}: {r.type}{f' (line {r.line})' if r.line else ''}"
            f"{f' [general: {r.fallback}]' if r.fallback else ''}{f' [{r.lowering}]' if r.lowering else ''}"
            for r in rows
        )
        return "\n".join(lines) + "\n"


def _row(m: _Meter, total: float) -> KernelProfile:
    call = m.median()
    return KernelProfile(
        m.function, m.name, str(m.node.type), _line(m.node), m.calls, m.nanoseconds / 1e9, m.bytes,
        m.bytes / m.calls / call if call else 0.0, call * m.calls / total,
        m.fallback, m.lowering, None if m.predicted is None else m.predicted / 1e9, call / 1e9, m.calls > 1,
        m.minimum() / 1e9, m.operations, m.roof(),
    )  # fmt: skip


def _line(node: Node) -> int | None:
    return node.span.line if node.span else None


def _bytes(value: Any) -> int:
    items = [leaf for v in value for leaf in flatten(v)] if isinstance(value, (list, tuple)) else [value]
    return sum(v.nbytes for v in items if isinstance(v, (np.ndarray, np.generic)))
