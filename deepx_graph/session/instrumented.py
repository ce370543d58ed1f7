"""Running a program and looking on: time, calls and statistics of every kernel, values kept for a look, the first NaN.

`watch_run` compiles with an engine that wraps another one, so results are those of the engine alone. Time is measured around the
kernel and nothing else. Of a node that runs several times the last value counts, and the first odd one is remembered.
"""

from __future__ import annotations

import io
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, Source, Span, UsageError
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import PARAM
from deepx_graph.literal import Array
from deepx_graph.runtime import engines
from deepx_graph.runtime.compile import Compiled, compile
from deepx_graph.runtime.engines.base import Engine, KernelFn
from deepx_graph.runtime.inputs import flatten
from deepx_graph.runtime.memory.alias import makes_memory
from deepx_graph.runtime.profile import Profile
from deepx_graph.session.progress import Monitor
from deepx_graph.session.query.facts import Measured
from deepx_graph.session.report.info import Memory, from_plan

BINS = 32
MAX_ELEMENTS = 1 << 24
"""Elements above which statistics are those of evenly spaced ones; NaN and infinities are counted in all."""


@dataclass(frozen=True)
class Statistics:
    """Figures of the finite elements, and how many others there are. `counts` are those of `BINS` equal steps from low to high."""

    elements: int
    nans: int = 0
    infs: int = 0
    zeros: int = 0
    low: float = 0.0
    high: float = 0.0
    mean: float = 0.0
    deviation: float = 0.0
    counts: tuple[int, ...] = ()

    @property
    def odd(self) -> int:
        """Elements that are no finite number."""
        return self.nans + self.infs


def statistics(array: Array) -> Statistics:
    """The figures of an array; of a complex one those of its absolute values."""
    flat = np.asarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        flat = np.abs(flat)
    if flat.dtype.kind in "biu":
        return _finite(flat.size, flat[:: _stride(flat.size)].astype(np.float64), 0, 0)
    if flat.dtype.itemsize < 4:  # the small floats of ml_dtypes have no isnan of their own in every case
        flat = flat.astype(np.float32)
    finite = np.isfinite(flat)
    odd = flat.size - int(np.count_nonzero(finite))
    nans = int(np.count_nonzero(np.isnan(flat))) if odd else 0
    step = _stride(flat.size)
    chosen = flat[::step] if not odd else flat[::step][finite[::step]]
    return _finite(flat.size, chosen.astype(np.float64), nans, odd - nans)


def _stride(size: int) -> int:
    return max(1, -(-size // MAX_ELEMENTS))


def _finite(elements: int, flat: Array, nans: int, infs: int) -> Statistics:
    if flat.size == 0:
        return Statistics(elements, nans, infs)
    low, high = float(flat.min()), float(flat.max())
    with np.errstate(all="ignore"):
        spread = high - low
        if spread > 0 and np.isfinite(spread):
            bins = np.minimum(((flat - low) * (BINS / spread)).astype(np.int64), BINS - 1)
            counts = tuple(np.bincount(bins, minlength=BINS).tolist())
        else:
            counts = (flat.size,)
        mean, deviation = float(flat.mean()), float(flat.std())
    zeros = int(np.count_nonzero(flat == 0))
    return Statistics(elements, nans, infs, zeros, low, high, mean, deviation, counts)


_INDEX = re.compile(r"\s*(?:(-?\d+)|(-?\d*)\s*:\s*(-?\d*)(?:\s*:\s*(-?\d*))?|(\.\.\.))\s*")


def parse_slice(text: str) -> tuple[int | slice | ellipsis, ...]:  # noqa: F821  a name that type checkers know
    """An index such as `0, 2:8, ..., ::2`. Raises UsageError, pointing at what is none."""
    if not text.strip():
        return ()
    found: list[int | slice | ellipsis] = []  # noqa: F821
    at = 0
    for part in text.split(","):
        m = _INDEX.fullmatch(part)
        if m is None or (m[4] and int(m[4]) == 0):
            raise UsageError(Diagnostic("this is no index", Span(Source("<slice>", text), at, at + len(part)),
                                        expected="numbers, ranges a:b:step and ..., with commas between them"))
        if m[1]:
            found.append(int(m[1]))
        elif m[5]:
            found.append(...)
        else:
            found.append(slice(*(int(g) if g else None for g in (m[2], m[3], m[4]))))
        at += len(part) + 1
    return tuple(found)


def slice_text(array: Array, text: str, width: int = 78) -> str:
    """The part of an array that an index names, as numpy prints it. Raises UsageError for an index that does not fit."""
    try:
        part = array[parse_slice(text)]
    except (IndexError, ValueError) as e:
        raise UsageError(Diagnostic(f"the index does not fit: {e}", expected=f"one for the shape {array.shape}")) from None
    return np.array2string(np.asarray(part), threshold=600, edgeitems=3, precision=5, max_line_width=width)


KEEP_BYTES = 1 << 28
"""Bytes of values that are kept for a look; of what does not fit there are statistics only."""

PRINTED_CHARACTERS = 1 << 16
"""Characters that are kept of what a program prints."""


@dataclass(frozen=True)
class Seen:
    """One value: `order` says when it was first computed; `array` is a copy, None where it was not kept."""

    order: int
    statistics: Statistics
    array: Array | None


@dataclass
class RecordedValues:
    """The values of a run by node; of one with several results the first tensor. `born` are nodes that made NaN or infinity out
    of finite operands, the first first."""

    seen: dict[Node, Seen] = field(default_factory=dict)
    born: list[Node] = field(default_factory=list)
    kept_bytes: int = 0

    def take(self, node: Node, value: Any, operands: Sequence[Any]) -> None:
        """Records a value. What is computed from an odd value is not said to have made it."""
        arrays = [v for v in flatten(value) if isinstance(v, (np.ndarray, np.generic))]
        if not arrays:
            return
        array = np.asarray(arrays[0])
        figures = statistics(array)
        before = self.seen.get(node)
        if figures.odd and node not in self.born and not any(_is_odd(o) for o in operands):
            self.born.append(node)
        old = before.array.nbytes if before is not None and before.array is not None else 0
        fits = self.kept_bytes - old + array.nbytes <= KEEP_BYTES
        self.kept_bytes += (array.nbytes if fits else 0) - old
        self.seen[node] = Seen(len(self.seen) if before is None else before.order, figures, array.copy() if fits else None)


def _is_odd(operand: Any) -> bool:
    arrays = (np.asarray(v) for v in flatten(operand) if isinstance(v, (np.ndarray, np.generic)))
    return any(a.dtype.kind not in "biu" and not np.isfinite(a if a.dtype.itemsize > 2 else a.astype("f4")).all() for a in arrays)


class WatchedEngine(Engine):
    """An engine whose kernels are those of another, looked at."""

    def __init__(self, inner: Engine, monitor: Monitor, profile: Profile, values: RecordedValues | None) -> None:
        self.name, self.inner, self.monitor, self.profile, self.values = inner.name, inner, monitor, profile, values
        self.kernels = self.calls = 0

    def writes(self, node: Node) -> bool:
        """As the inner engine."""
        return self.inner.writes(node)

    def scratch(self, node: Node, loose: frozenset[int]) -> int:
        """As the inner engine."""
        return self.inner.scratch(node, loose)

    def kernel(self, node: Node) -> KernelFn:
        """The inner engine's kernel, timed, reported and its result recorded."""
        kernel = self.inner.kernel(node)
        self.kernels += 1
        if makes_memory(node):
            kernel = self.profile.measured("", node, kernel, self.inner)
        title = f"{node.op.name} {node.name}"

        def run(operands: Sequence[Any], out: Sequence[Array] | None) -> Any:
            self.calls += 1
            self.monitor.report(title, self.calls, self.kernels)
            before = list(operands) if self.values is None else [_kept(o, out) for o in operands]
            result = kernel(operands, out)
            if self.values is not None:
                self.values.take(node, result, before)
            return result

        return run


def _kept(operand: Any, out: Sequence[Array] | None) -> Any:
    """The operand; a copy where the kernel may write over it."""
    shared = isinstance(operand, np.ndarray) and out is not None and any(np.may_share_memory(operand, o) for o in out)
    return operand.copy() if shared else operand


@dataclass(frozen=True)
class RunResult:
    """A run: its module (types known; the nodes that all else is about), outputs, and what was seen."""

    module: Module
    inputs: Mapping[str, Array]
    outputs: tuple[tuple[str, Array], ...]
    seconds: float
    measured: dict[Node, Measured]
    values: RecordedValues
    memory: Memory
    profile: Profile
    runs: int = 1
    printed: str = ""

    @property
    def first_odd(self) -> Node | None:
        """The first node that made NaN or infinity out of finite operands."""
        return self.values.born[0] if self.values.born else None


def watch_run(module: Module, inputs: Mapping[str, Any], *, engine: str = "auto", seed: int = 0,
              max_bytes: int | None = None, data_root: str | None = None, keep: bool = True, runs: int = 1,
              within: float = math.inf, monitor: Monitor | None = None) -> RunResult:
    """Runs the entry `runs` times, fewer when `within` seconds are over; with `keep`, statistics and values of the last run are
    recorded.

    Raises what compiling and running raise, and Cancelled.
    """
    monitor, profile, values = monitor or Monitor(), Profile(), RecordedValues() if keep else None
    watched = WatchedEngine(engines.get(engine), monitor, profile, values)
    ready: list[Module] = []

    def remember(specialised: Module) -> Module:
        ready[:] = [specialised]
        return specialised

    printed = _Printed()
    f = compile(module, engine=watched, seed=seed, max_bytes=max_bytes, data_root=data_root, out=printed, prepare=remember)
    watched.calls = 0
    start = time.perf_counter()
    outputs = f(**inputs)
    done = 1
    while done < runs and time.perf_counter() - start < within:
        outputs = f(**inputs)
        done += 1
    spent = time.perf_counter() - start
    seen = values or RecordedValues()
    _inputs_seen(ready[0].entry, f, inputs, seen)
    named = tuple(zip((p.name for p in f.outputs), outputs, strict=True))
    return RunResult(ready[0], dict(inputs), named, spent, _measured(profile, done, seen), seen, from_plan(f.plan), profile, done,
                     printed.getvalue())


def _inputs_seen(entry: Function, f: Compiled, inputs: Mapping[str, Any], values: RecordedValues) -> None:
    """The inputs as values of their parameters, where a parameter is one input."""
    given = {p.name for p in f.inputs}
    for k, p in enumerate(entry.params):
        name = p.name or f"arg{k}"
        if p.op is PARAM and name in given and name in inputs:
            values.take(p, np.asarray(inputs[name]), ())


def _measured(profile: Profile, runs: int, values: RecordedValues) -> dict[Node, Measured]:
    times = profile.per_run(runs)
    total = sum(s for s, _ in times.values()) or 1.0
    found: dict[Node, Measured] = {}
    for node in times.keys() | values.seen.keys():
        seconds, calls = times.get(node, (0.0, 0))
        seen = values.seen.get(node)
        nans, infs = (seen.statistics.nans, seen.statistics.infs) if seen else (0, 0)
        found[node] = Measured(seconds, seconds / total, calls, nans, infs)
    return found


class _Printed(io.StringIO):
    """What a watched program prints: kept, up to a bound, as the screen belongs to the one who watches."""

    def write(self, text: str) -> int:
        if self.tell() < PRINTED_CHARACTERS:
            super().write(text[: PRINTED_CHARACTERS - self.tell()])
        return len(text)
