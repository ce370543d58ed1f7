"""The kernels of a program as an engine would run them, without running it: the way of each and why no faster one, bytes,
operations, the time that the cost model predicts. Kernels are made, and so compiled, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from deepx_graph.errors import InferError, printable
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import STRUCTURAL
from deepx_graph.runtime import engines
from deepx_graph.runtime.cost import file as cost_file
from deepx_graph.runtime.cost.counts import bytes_moved, flops
from deepx_graph.runtime.engine import Arranging, Engine, Forecasting, Telling
from deepx_graph.runtime.flow import makes_memory
from deepx_graph.runtime.program import is_kernel
from deepx_graph.types import is_static

MOST = 200
"""Kernels that are made for a report: those of most bytes and operations."""

SHOWN = 20
"""Rows that a report shows."""


@dataclass(frozen=True)
class KernelRow:
    """One kernel: `way` is how it runs; `predicted_us` one call, None where nothing is known; `share` of all predictions."""

    function: str
    kernel: str
    type: str
    line: int | None
    way: str
    bytes: int
    flops: int
    predicted_us: float | None
    bound: str
    share: float


@dataclass(frozen=True)
class Kernels:
    """The kernels of a module, the longest first, on one engine; `left` are those that were not looked at."""

    engine: str
    threads: int
    constants: str
    note: str
    rows: tuple[KernelRow, ...]
    left: int

    @property
    def predicted_us(self) -> float:
        """Of all kernels together, each once."""
        return sum(r.predicted_us or 0.0 for r in self.rows)

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self) | {"predicted_us": self.predicted_us, "engines": present()}

    def lines(self) -> Iterator[str]:
        """A table."""
        yield f"  engines: {', '.join(f'{name} {what}'.strip() for name, what in present().items())}"
        yield (f"  kernels on {self.engine}, {self.threads} thread{'s' * (self.threads != 1)}, by {self.constants} constants: "
               f"{self.predicted_us:,.1f} us for one run of each")
        if self.note:
            yield f"  note: {self.note}"
        if self.rows:
            yield "  " + ", ".join(f"{n} {way}" for way, n in Counter(r.way.partition(':')[0] for r in self.rows).most_common())
            yield f"  {'share':>6} {'predicted us':>12} {'bytes':>14} {'operations':>14}  kernel"
        for r in self.rows[:SHOWN]:
            predicted = "-" if r.predicted_us is None else f"{r.predicted_us:,.2f}"
            yield (f"  {r.share:>6.1%} {predicted:>12} {r.bytes:>14,} {r.flops:>14,}  {printable(r.kernel)}: {r.type}"
                   f"{f' (line {r.line})' if r.line else ''} [{r.way}{f'; {r.bound}' if r.bound else ''}]")
        if len(self.rows) > SHOWN or self.left:
            yield f"  and {max(0, len(self.rows) - SHOWN) + self.left} more"


def present() -> dict[str, str]:
    """The engines that can be used, with the version of what they need; of `auto`, which one it is."""
    found = {"numpy": _version("numpy"), "numexpr": _version("numexpr")}
    if engines.has_native():
        found["native"] = f"(llvmlite {_version('llvmlite')})"
    return found | {"auto": f"= {'native' if engines.has_native() else 'numexpr'}"}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def kernels(module: Module, engine: str = "auto", threads: int | None = None) -> Kernels | None:
    """The kernels of all functions of a module; None where sizes are not known. Raises UsageError for an engine that is none."""
    chosen = engines.get(engine, threads)
    functions = module.functions
    if not all(is_static(n.type) for f in functions for n in f.nodes):
        return None
    if isinstance(chosen, Arranging):
        functions = tuple(map(chosen.arrange, functions))
    nodes = [(f, n) for f in functions for n in f.nodes if computes(n)]
    nodes.sort(key=lambda item: -(bytes_moved(item[1]) + flops(item[1])))
    known = cost_file.known()
    return Kernels(chosen.name, getattr(chosen, "threads", 1), known.source, known.note,
                   _rows(chosen, nodes[:MOST]), max(0, len(nodes) - MOST))


def computes(node: Node) -> bool:
    """Whether a kernel computes the node, and how large it is is known."""
    if not is_kernel(node) or not makes_memory(node) or node.op.view or node.op in STRUCTURAL:
        return False
    try:
        bytes_moved(node)
    except InferError:
        return False
    return True


def _rows(engine: Engine, nodes: Sequence[tuple[Function, Node]]) -> tuple[KernelRow, ...]:
    made = [row(engine, f, n) for f, n in nodes]
    total = sum(r.predicted_us or 0.0 for r in made) or 1.0
    shared = [KernelRow(**{**asdict(r), "share": (r.predicted_us or 0.0) / total}) for r in made]
    return tuple(sorted(shared, key=lambda r: -(r.predicted_us or 0.0)))


def row(engine: Engine, function: Function, node: Node) -> KernelRow:
    """One kernel as the engine runs it; its share is that of all."""
    engine.kernel(node)
    way = engine.way(node) if isinstance(engine, Telling) else "eval"
    forecast = engine.forecast(node) if isinstance(engine, Forecasting) else None
    predicted = None if forecast is None or forecast.nanoseconds is None else forecast.nanoseconds / 1e3
    name = node.op.name + (f" {node.name}" if node.name else "")
    line = node.span.line if node.span else None
    return KernelRow(function.name, name, str(node.type), line, way, bytes_moved(node), flops(node), predicted,
                     forecast.bound if forecast else "", 1.0)
