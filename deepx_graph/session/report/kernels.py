"""The kernels of a program as an engine would run them: the lowering of each and why no faster one, bytes, operations, forecasts.
Nothing runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from heapq import nlargest
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from deepx_graph.analysis.kinds import ByKind
from deepx_graph.analysis.work import NEVER, Times, bytes_moved, flops, is_open, node_times
from deepx_graph.errors import DeepxGraphError, InferError, counted, printable, sized
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.rebuild import rebuilt, with_inputs
from deepx_graph.ir.structure import CONSTANT, STRUCTURAL, value_of
from deepx_graph.literal import Literal
from deepx_graph.ops.data.fusion import kernel_body
from deepx_graph.runtime import engines
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.cost import file as cost_file
from deepx_graph.runtime.cost.counts import function_times
from deepx_graph.runtime.engines.base import Engine, canonicalized
from deepx_graph.runtime.memory.alias import makes_memory
from deepx_graph.runtime.memory.assignment import in_words
from deepx_graph.runtime.program import engine_plans, is_kernel
from deepx_graph.runtime.python_steps import PythonStep
from deepx_graph.types import Type, is_static

MOST = 200
"""Kernels that are made for a report: those of most bytes and operations."""

MOST_OPERATIONS = 2000
"""Operations of all the different kernels that are made for it, beyond the rows that it shows: each takes about as long."""

SHOWN = 20
"""Rows that a report shows."""


@dataclass(frozen=True)
class KernelRow:
    """One kernel: `lowering` is how it runs; `bytes`, `flops` and `predicted_us` are of one call, None where nothing is known.

    `runs` is how often one run of the program calls it, not the whole answer where `runs_known` is false (see `runtime.cost.runs`);
    `share` is of the predictions of all runs.
    """

    function: str
    kernel: str
    type: str
    line: int | None
    lowering: str
    bytes: int
    flops: int
    predicted_us: float | None
    bound: str
    share: float
    runs: int = 1
    runs_known: bool = True

    @property
    def total_us(self) -> float:
        """What is predicted of all its calls together."""
        return (self.predicted_us or 0.0) * self.runs


@dataclass(frozen=True)
class StepRow:
    """Steps of Python of one kind (see `PythonStep`): how many one call takes, for what reason, and the first of their nodes."""

    kind: str
    count: int
    count_known: bool
    reason: str
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        nodes = f": {', '.join(map(printable, self.nodes))}" if self.nodes else ""
        return f"{Times(self.count, self.count_known)} {self.kind}{f' ({self.reason})' if self.reason else ''}{nodes}"


@dataclass(frozen=True)
class Kernels:
    """The kernels of a module, the longest first, on one engine; `left` are those that were not looked at."""

    engine: str
    threads: int
    constants: str
    note: str
    rows: tuple[KernelRow, ...]
    left: int
    value_bytes: int | None = None
    """The most that values of one run have at once; None, as `peak_bytes`, where not all kernels were made."""
    peak_bytes: int | None = None
    """The same with the scratch memory of the kernels, which `--max-bytes` bounds."""
    python_steps: tuple[StepRow, ...] | None = None
    """What one call takes of Python beside one call of machine code; None where not all kernels were made, or it cannot run."""

    @property
    def predicted_us(self) -> float:
        """Of all kernels together, in one run of the program."""
        return sum(r.total_us for r in self.rows)

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self) | {"predicted_us": self.predicted_us, "engines": present()}

    def lines(self) -> Iterator[str]:
        """A table."""
        yield f"  engines: {', '.join(f'{name} {what}'.strip() for name, what in present().items())}"
        unknown = "" if all(r.runs_known for r in self.rows) else " x ? (what runs an unknown number of times is counted once)"
        yield (f"  kernels on {self.engine}, {counted(self.threads, 'thread')}, by {self.constants} constants: "
               f"{self.predicted_us:,.1f} us for one run{unknown}")
        if self.value_bytes is not None and self.peak_bytes is not None:
            yield f"  memory on {self.engine}: {in_words(self.value_bytes, self.peak_bytes)}"
        if self.python_steps is not None:
            count = Times(sum(r.count for r in self.python_steps), all(r.count_known for r in self.python_steps))
            yield f"  Python steps: {count} a call"
            yield from (f"    {row}" for row in self.python_steps)
        if self.note:
            yield f"  note: {self.note}"
        if self.rows:
            ways = Counter(r.lowering.partition(':')[0] for r in self.rows)
            yield "  " + ", ".join(f"{n} {how}" for how, n in ways.most_common())
            yield f"  {'share':>6} {'runs':>9} {'us per run':>12} {'bytes':>9} {'operations':>14}  kernel"
        for r in self.rows[:SHOWN]:
            predicted = "-" if r.predicted_us is None else f"{r.predicted_us:,.2f}"
            runs = str(Times(r.runs, r.runs_known))
            line = f" (line {r.line})" if r.line else ""
            yield (f"  {r.share:>6.1%} {runs:>9} {predicted:>12} {sized(r.bytes):>9} {r.flops:>14,}  "
                   f"{printable(r.kernel)}: {r.type}{line} [{r.lowering}{f'; {r.bound}' if r.bound else ''}]")
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
    """The kernels of all functions of a module; None where sizes are not known. Raises UsageError for an engine that is none.

    Those of a program that has many are only described: to compile them would take most of the time.
    """
    chosen, original = engines.get(engine, threads), module
    if not all(is_static(n.type) for f in module.functions for n in f.nodes):
        return None
    has_many = sum(map(computes, (n for f in module.functions for n in f.nodes))) > MOST
    with chosen.described() if has_many else nullcontext():
        module = canonicalized(alike(module) if has_many else module, chosen, apart=True)
        times = run_times(module)
        nodes = [(f, n) for f in module.functions for n in f.nodes if computes(n) and times.get(n, NEVER).count]
        made = _most_work(nodes, times)
        known = cost_file.known()
        found = Kernels(chosen.name, getattr(chosen, "threads", None) or 1, known.source, known.note,
                        _rows(chosen, made, times), len(nodes) - len(made))
    if found.left:
        return found
    running = engines.get(engine, threads) if has_many else chosen
    try:
        compiled = compile(original, engine=running)
    except DeepxGraphError:  # it cannot run as it is
        plan, steps, rows = engine_plans(module, running)[module.entry_name], None, found.rows
    else:
        plan, steps = compiled.plan, _step_rows(compiled.python_steps)
        rows = _joined(found.rows, {s.kind for s in steps})
    return replace(found, rows=rows, value_bytes=plan.value_bytes, peak_bytes=plan.peak_bytes, python_steps=steps)


def _most_work(nodes: Sequence[tuple[Function, Node]], times: Mapping[Node, Times]) -> list[tuple[Function, Node]]:
    """The nodes of most bytes and operations for which kernels are made: at most MOST, and beyond those that a report shows no
    more than MOST_OPERATIONS in bodies that differ."""
    of_one = ByKind(lambda n: bytes_moved(n) + flops(n))
    work = {n: of_one(n) * times[n].count for _, n in nodes}
    most = nlargest(MOST, nodes, key=lambda item: work[item[1]])
    bodies: set[Function] = set()
    operations = 0
    for k, (_, n) in enumerate(most):
        if (body := kernel_body(n)) is not None and body not in bodies:
            bodies.add(body)
            operations += len(body.nodes)
            if operations > MOST_OPERATIONS and k >= SHOWN:
                return most[:k]
    return most


def alike(module: Module) -> Module:
    """The module with one number of each type in place of all, in the bodies of kernels too, but for 0, 1 and infinities.

    Kernels that differ in numbers alone run alike. An engine makes each of them to arrange a function, which takes milliseconds: of
    an unrolled network with a constant in each layer, minutes.
    """
    step = _Alike()
    return module.with_functions(rebuilt(f, step) for f in module.functions)


class _Alike:
    """The node with one number of each type in place of all."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[Type, float | None], Literal] = {}
        self.bodies: dict[Function, Function] = {}

    def __call__(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        attrs = node.attrs
        if node.op is CONSTANT and (number := splat_of(node)) is not None and isinstance(number, np.floating):
            special = float(number) if number in (0, 1) or not np.isfinite(number) else None
            if (alike := self.numbers.setdefault((node.type, special), value_of(node))) is not value_of(node):
                attrs = (alike,)
        elif (body := kernel_body(node)) is not None:
            made = rebuilt(body, self)
            if (made := self.bodies.setdefault(made, made)) is not body:  # equal ones are one object: told at a glance
                attrs = (made,)
        return with_inputs(node, inputs) if attrs is node.attrs else Node(node.op, inputs, attrs, node.type, node.origin)


def _joined(rows: Sequence[KernelRow], kinds: set[str]) -> tuple[KernelRow, ...]:
    """The rows, where operations that Python would compute by their eval, and does not, are part of one call with others."""
    own = [r.lowering != "eval" or f"{r.kernel.split()[0]} by eval" in kinds for r in rows]
    return tuple(r if is_own else replace(r, lowering="machine code") for r, is_own in zip(rows, own, strict=True))


STEP_NODES = 4
"""Nodes that a row of steps names."""


def _step_rows(steps: Sequence[PythonStep]) -> tuple[StepRow, ...]:
    """The steps of one call, by kind and reason, the most first."""
    groups: dict[tuple[str, str], list[PythonStep]] = {}
    for step in steps:
        if step.times.count:
            groups.setdefault((step.kind, step.reason), []).append(step)
    rows = []
    for (kind, reason), group in groups.items():
        times = sum((s.times for s in group), NEVER)
        named = dict.fromkeys(_located(s.node) for s in group if s.node is not None and (s.node.name or s.node.span))
        rows.append(StepRow(kind, times.count, times.is_known, reason, tuple(named)[:STEP_NODES]))
    return tuple(sorted(rows, key=lambda r: -r.count))


def _located(node: Node) -> str:
    return f"{node.reference}{f' (line {node.span.line})' if node.span else ''}"


def run_times(module: Module) -> dict[Node, Times]:
    """How often one run of the module runs each node of its functions."""
    calls = function_times(module)
    return {n: t * calls[f.name] for f in module.functions if f.name in calls for n, t in node_times(f).items()}


def computes(node: Node) -> bool:
    """Whether a kernel computes the node, and how large it is is known."""
    if not is_kernel(node) or not makes_memory(node) or node.op.view or node.op in STRUCTURAL:
        return False
    try:
        bytes_moved(node)
    except InferError:
        return False
    return True


def _rows(engine: Engine, nodes: Sequence[tuple[Function, Node]], times: Mapping[Node, Times]) -> tuple[KernelRow, ...]:
    made = [replace(row(engine, f, n), runs=times[n].count, runs_known=times[n].is_known and not is_open(n)) for f, n in nodes]
    total = sum(r.total_us for r in made) or 1.0
    return tuple(sorted((replace(r, share=r.total_us / total) for r in made), key=lambda r: -r.total_us))


def called(node: Node) -> str:
    """What a kernel is called in reports: its operation, and its name where it has one."""
    return node.op.name + (f" {node.reference}" if node.name else "")


def row(engine: Engine, function: Function, node: Node) -> KernelRow:
    """One kernel as the engine runs it; its share is that of all."""
    engine.kernel(node)
    lowering = engine.lowering(node)
    forecast = engine.forecast(node)
    predicted = None if forecast is None or forecast.nanoseconds is None else forecast.nanoseconds / 1e3
    line = node.span.line if node.span else None
    return KernelRow(function.name, called(node), str(node.type), line, lowering, bytes_moved(node), flops(node), predicted,
                     forecast.bound if forecast else "", 1.0)
