"""The kernels of a program as an engine would run them: the lowering of each and why no faster one, bytes, operations, forecasts,
the constants that predict it; which kernel computes a node, and why two nodes share one. Nothing runs unless it is to be measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from deepx_graph.analysis.work import NEVER, Times, bytes_moved, flops, is_open, node_times
from deepx_graph.errors import DeepxGraphError, Diagnostic, InferError, Span, UsageError, counted, printable, sized, suggest
from deepx_graph.ir import Function, Module, Node, Origin
from deepx_graph.ir.rebuild import rebuilt
from deepx_graph.ir.structure import PARAM, STRUCTURAL
from deepx_graph.loops.printer import show
from deepx_graph.loops.program import LoopProgram
from deepx_graph.ops import FAMILY_OF
from deepx_graph.ops.data.fusion import kernel_body
from deepx_graph.passes.fusion.fuse import Fuse
from deepx_graph.passes.fusion.why import Kind, Reason, explain, find_node
from deepx_graph.runtime import engines
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.cost import file as cost_file
from deepx_graph.runtime.cost.counts import function_times
from deepx_graph.runtime.cost.model import SHIPPED, Constants
from deepx_graph.runtime.engines.base import Canonicalizes, Engine, Explains, Forecasting, WritesLoops
from deepx_graph.runtime.engines.outline import is_program
from deepx_graph.runtime.memory.alias import makes_memory
from deepx_graph.runtime.memory.assignment import in_words
from deepx_graph.runtime.program import engine_plans, is_kernel
from deepx_graph.runtime.python_steps import PythonStep
from deepx_graph.session.inputs import random_inputs
from deepx_graph.types import is_static

MOST = 200
"""Kernels that are made for a report: those of most bytes and operations."""

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
    """The kernels of all functions of a module; None where sizes are not known. Raises UsageError for an engine that is none."""
    chosen, original = engines.get(engine, threads), module
    if not all(is_static(n.type) for f in module.functions for n in f.nodes):
        return None
    if isinstance(chosen, Canonicalizes):
        module = module.with_functions(map(chosen.canonicalize, module.functions))
    times = run_times(module)
    nodes = [(f, n) for f in module.functions for n in f.nodes if computes(n) and times.get(n, NEVER).count]
    nodes.sort(key=lambda item: -(bytes_moved(item[1]) + flops(item[1])) * times[item[1]].count)
    known = cost_file.known()
    found = Kernels(chosen.name, getattr(chosen, "threads", None) or 1, known.source, known.note,
                    _rows(chosen, nodes[:MOST], times), max(0, len(nodes) - MOST))
    if found.left:
        return found
    plan = engine_plans(module, chosen)[module.entry_name]
    steps = _step_rows(original, chosen)
    rows = found.rows if steps is None else _joined(found.rows, {s.kind for s in steps})
    return replace(found, rows=rows, value_bytes=plan.value_bytes, peak_bytes=plan.peak_bytes, python_steps=steps)


def _joined(rows: Sequence[KernelRow], kinds: set[str]) -> tuple[KernelRow, ...]:
    """The rows, where operations that Python would compute by their eval, and does not, are part of one call with others."""
    own = [r.lowering != "eval" or f"{r.kernel.split()[0]} by eval" in kinds for r in rows]
    return tuple(r if is_own else replace(r, lowering="machine code") for r, is_own in zip(rows, own, strict=True))


STEP_NODES = 4
"""Nodes that a row of steps names."""


def _step_rows(module: Module, engine: Engine) -> tuple[StepRow, ...] | None:
    """The steps of one call, by kind and reason, the most first; None where the program cannot run as it is."""
    try:
        steps = compile(module, engine=engine).python_steps
    except DeepxGraphError:
        return None
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


def _called(node: Node) -> str:
    return node.op.name + (f" {node.reference}" if node.name else "")


def row(engine: Engine, function: Function, node: Node) -> KernelRow:
    """One kernel as the engine runs it; its share is that of all."""
    engine.kernel(node)
    lowering = engine.lowering(node) if isinstance(engine, Explains) else "eval"
    forecast = engine.forecast(node) if isinstance(engine, Forecasting) else None
    predicted = None if forecast is None or forecast.nanoseconds is None else forecast.nanoseconds / 1e3
    line = node.span.line if node.span else None
    return KernelRow(function.name, _called(node), str(node.type), line, lowering, bytes_moved(node), flops(node), predicted,
                     forecast.bound if forecast else "", 1.0)


RUNS = 5
"""Calls that a measurement takes the mean of, after one to warm up."""


@dataclass(frozen=True)
class Placed:
    """A node and its kernel; `measured_us` is the mean of a call, None where nothing was measured."""

    node: str
    kernel: KernelRow
    measured_us: float | None = None

    def __str__(self) -> str:
        k = self.kernel
        predicted = "nothing is predicted" if k.predicted_us is None else f"predicted {k.predicted_us:,.2f} us ({k.bound})"
        measured = "" if self.measured_us is None else f", measured {self.measured_us:,.2f} us"
        return (f"{printable(self.node)} is in {printable(k.kernel)}: {k.type} [{k.lowering}], {sized(k.bytes)}, "
                f"{k.flops:,} operations: {predicted}{measured}")

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class PlacedKernel:
    """A kernel where it stands: in a function called `owner`, or in the body of `outer`, a loop or program that is one kernel; and
    how often one run of the program runs it."""

    owner: str
    function: Function
    node: Node
    outer: Node | None
    times: Times


class Placing:
    """The kernels of a module after fusion as an engine would run them, and which of them computes what.

    Raises UsageError for an engine that is none.
    """

    def __init__(self, module: Module, engine: str = "auto", threads: int | None = None) -> None:
        self.module, self._choice = module, (engine, threads)
        self._engine = engines.get(engine, threads)
        self._origins: dict[Node, Origin] = {}
        self._fused = Fuse().run(module.with_functions(map(self._marked, module.functions)))
        arrange = self._engine.canonicalize if isinstance(self._engine, Canonicalizes) else lambda f: f
        self._functions = {f.name: arrange(f) for f in self._fused.functions}
        self._computing: dict[int, Node] = {}
        self._holders: dict[int, list[Node]] = {}
        for function in self._functions.values():
            for node in function.nodes:
                for origin in origins_inside(node):
                    self._holders.setdefault(id(origin), []).append(node)

    def _marked(self, function: Function) -> Function:
        """The function with an origin of its own for each node, by which it is found again: passes and engines hand origins on."""

        def step(node: Node, inputs: tuple[Node, ...]) -> Node:
            self._origins[node] = replace(node.origin)
            return node if node.op is PARAM else Node(node.op, inputs, node.attrs, node.type, self._origins[node])

        return rebuilt(function, step)

    def why(self, a: str | Node, b: str | Node) -> Reason:
        """Why two nodes are, or are not, in one kernel: by fusion, or by the engine, which joins more. Raises as `explain` does."""
        reason = explain(self.module, a, b)
        if reason.fused or len(reason.nodes) < 1 or reason.kind in (Kind.SAME_NODE, Kind.DEAD, Kind.FUNCTIONS):
            return reason
        nodes = [n if isinstance(n, Node) else find_node(self.module, n)[1] for n in (a, b)]
        nodes.sort(key=lambda n: n.serial)
        shared = [h for h in self.holders(nodes[0]) if h in self.holders(nodes[1])]
        if not shared:
            return reason
        function = next(f for f in self.module.functions if nodes[0] in f.users)
        return Reason(Kind.JOINED, tuple(nodes), f"{self._engine.name}: {self.lowering(shared[0])}").labelled(function)

    @property
    def engine_name(self) -> str:
        """What the engine is called."""
        return self._engine.name

    def origin(self, node: Node) -> Origin | None:
        """The origin that a node of the module has in the kernels; None for one that is not computed."""
        return self._origins.get(node)

    @property
    def fused(self) -> Module:
        """The module after fusion, before the engine arranges it."""
        return self._fused

    def fused_node(self, node: Node) -> Node:
        """The node of the fused module that computes a node of the module, which is computed."""
        if not self._computing:
            self._computing = {id(o): n for f in self._fused.functions for n in f.nodes for o in origins_inside(n)}
        return self._computing[id(self._origins[node])]

    def lowering(self, node: Node) -> str:
        """How the engine runs a kernel."""
        self._engine.kernel(node)
        return self._engine.lowering(node) if isinstance(self._engine, Explains) else "eval"

    def kernels(self) -> Iterator[PlacedKernel]:
        """The kernels that something runs, those inside of whole programs and loops instead of these."""
        runs = function_times(self.module)
        stack: list[tuple[str, Function, Node | None, Times]] = [
            (name, f, None, runs[name]) for name, f in self._functions.items() if name in runs]
        while stack:
            owner, function, outer, times = stack.pop()
            each = node_times(function)
            for node in function.nodes:
                if computes(node) and each.get(node, NEVER).count:
                    body = kernel_body(node)
                    if body is not None and (is_program(body) or any(map(kernel_body, body.nodes))):
                        stack.append((owner, body, outer or node, times * each[node]))
                    else:
                        yield PlacedKernel(owner, function, node, outer, times * each[node])

    def holders(self, node: Node) -> list[Node]:
        """The kernels, one or several, that compute a node of the module: it is that node, or stands inside."""
        return [h for h in self._holders.get(id(self._origins[node]), ()) if is_kernel(h)] if node in self._origins else []

    def placed(self, names: Sequence[str], *, measure: bool = False) -> list[Placed]:
        """The kernels of the nodes of these names (see `why.find_node`), but for those that no kernel computes or of unknown size.

        With `measure` the program runs, on generated inputs. Raises UsageError for a node that there is none of.
        """
        times = _measured_us(self._fused, *self._choice) if measure else {}
        found = []
        for name in names:
            owner, node = find_node(self.module, name)
            holder = next(iter(self.holders(node)), None)
            if holder is None or not is_sized(holder):
                continue
            origin = self._origins[node]
            ran = next((t for n, t in times.items() if any(o is origin for o in origins_inside(n))), None)
            found.append(Placed(name, row(self._engine, self._functions[owner.name], holder), ran))
        return found


def origins_inside(node: Node) -> Iterator[Origin]:
    """The origins of a node and of all that stands in its body, bodies of bodies included."""
    stack = [node]
    while stack:
        n = stack.pop()
        yield n.origin
        if FAMILY_OF.get(n.op) == "fusion":
            stack += (m for m in n.attr("body").nodes if m.op is not PARAM)  # a parameter has the origin of what it stands for


def is_sized(node: Node) -> bool:
    """Whether a kernel computes the node, and all sizes that it meets are known."""
    return computes(node) and all(is_static(n.type) for n in (node, *node.inputs))


def _measured_us(module: Module, engine: str, threads: int | None) -> dict[Node, float]:
    """Microseconds of a call of every kernel."""
    f = compile(module, engine=engine, threads=threads, profile=True)
    inputs: dict[str, Any] = random_inputs(f.inputs, 0)
    f(**inputs)
    assert f.profile is not None
    warm = f.profile.seconds()
    for _ in range(RUNS):
        f(**inputs)
    return {n: (s - warm[n][0]) * 1e6 / (calls - warm[n][1])
            for n, (s, calls, _) in f.profile.seconds().items() if n in warm and calls > warm[n][1]}


SHOWN_SOURCES = 6
"""Lines of the text that are shown of a kernel."""

QUOTED = 100
"""Characters that are shown of a line."""


@dataclass(frozen=True)
class KernelLoops:
    """A kernel, and the loops that it is machine code of: None where it was made in another way, or is none.

    `outer` is the kernel inside which it runs, a loop or a whole program; `sources` are the places in the text that it computes.
    """

    kernel: str
    type: str
    lowering: str
    outer: str
    sources: tuple[str, ...]
    names: frozenset[str]
    program: str | None

    def __str__(self) -> str:
        inside = f" in {printable(self.outer)}" if self.outer else ""
        head = f"{printable(self.kernel)}: {self.type}{inside} [{self.lowering}]"
        lines = [head, *(f"  from {printable(s)}" for s in self.sources[:SHOWN_SOURCES])]
        lines += [f"  and {counted(left, 'more line')}"] if (left := len(self.sources) - SHOWN_SOURCES) > 0 else []
        return "\n".join([*lines, *(f"    {line}" for line in (self.program or "").splitlines())])

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self) | {"names": sorted(self.names)}


def loop_programs(module: Module, engine: str = "auto", threads: int | None = None, node: str | None = None) -> list[KernelLoops]:
    """The kernels of a module as an engine would run them, in order, with their loops; with a name, those that compute that node.

    Raises UsageError for unknown sizes, an engine that writes no loop programs, and a name that no kernel computes.
    """
    chosen = engines.get(engine, threads)
    if not isinstance(chosen, WritesLoops) or not isinstance(chosen, Canonicalizes):
        raise UsageError(f"the engine {chosen.name} writes no loops: native does")
    if not all(is_static(n.type) for f in module.functions for n in f.nodes):
        raise UsageError("sizes are not known: there are no kernels yet")
    found = [k for f in module.functions for n in chosen.canonicalize(f).nodes if computes(n) for k in _loops_of(f, n, chosen)]
    if node is None:
        return found
    named = [k for k in found if node in k.names]
    if not named:
        names = {name for k in found for name in k.names}
        raise UsageError(Diagnostic(f"no kernel computes '{node}'", hint=suggest(node, names)))
    return named


def _loops_of(function: Function, node: Node, engine: Engine) -> Iterator[KernelLoops]:
    """A kernel, and those inside it where it is a loop or a whole program."""
    made = row(engine, function, node)
    program = engine.loop_program(node) if isinstance(engine, WritesLoops) else None
    inner = [] if program is not None or FAMILY_OF.get(node.op) != "fusion" else [
        (n, p) for n in node.attr("body").nodes if isinstance(engine, WritesLoops) and (p := engine.loop_program(n)) is not None]
    yield _kernel_loops(node, made.kernel, made.lowering, "", program)
    yield from (_kernel_loops(n, _called(n), "machine code of loops", made.kernel, p) for n, p in inner)


def _kernel_loops(node: Node, kernel: str, lowering: str, outer: str, program: LoopProgram | None) -> KernelLoops:
    origins = list(origins_inside(node))
    spans = {(s.line, _quoted(s)) for o in origins for s in o.spans}
    return KernelLoops(kernel, str(node.type), lowering, outer, tuple(text for _, text in sorted(spans)),
                       frozenset(o.name for o in origins if o.name), None if program is None else show(program))


def _quoted(span: Span) -> str:
    """A place and the line that stands there."""
    if span.source.binary:
        return span.described
    start, end = span.source.line_bounds(span.line)
    line = span.source.text[start:end].strip()
    return f"{span.described}: {line if len(line) <= QUOTED else line[:QUOTED] + ' ...'}"


@dataclass(frozen=True)
class Calibration:
    """Constants beside the shipped ones; `path` is where they are kept, None where they are not."""

    constants: Constants
    path: Path | None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"machine": cost_file.machine(), "path": None if self.path is None else str(self.path), "note": self.note,
                "constants": self.constants.to_json(), "shipped": SHIPPED.to_json()}  # fmt: skip

    def lines(self) -> Iterator[str]:
        """A table."""
        yield f"{'constant':<20} {'here':>14} {'shipped':>14}"
        now = self.constants.to_json()
        for name, shipped in SHIPPED.to_json().items():
            yield f"{name:<20} {now[name]:>14,.6g} {shipped:>14,.6g}"


def calibration_in_use() -> Calibration:
    """What this process goes by."""
    known = cost_file.known()
    return Calibration(known.constants, known.path, known.note)


def calibrate(path: str | None = None, tell: Callable[[str], object] = lambda what: None) -> Calibration:
    """Measures and stores, in `path` or where later processes look. Raises UsageError when it cannot be written."""
    from deepx_graph.runtime.cost.calibrate import calibrated

    target = Path(path) if path is not None else cost_file.location()
    measured = calibrated(tell)
    return Calibration(measured, cost_file.store(measured, target))


def forget_calibration() -> Path | None:
    """Forgets what was measured; the file that was removed."""
    return cost_file.reset()
