"""Facts about a module for people and for scripts: what it takes and gives, what it is made of, how deep it is, what it needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import Any

from deepx_graph.analysis.kinds import ByKind
from deepx_graph.analysis.name_scopes import parameter_name, parameter_path
from deepx_graph.analysis.schedule import schedule
from deepx_graph.analysis.work import NEVER, Times, bytes_moved, flops, kernels, node_times, open_loops
from deepx_graph.errors import DeepxGraphError, InferError, TextReport, counted, human, printable, sized
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import CONSTANT, PARAM, value_of
from deepx_graph.ops import FAMILY_OF
from deepx_graph.runtime.cost.counts import function_times
from deepx_graph.runtime.memory.assignment import BufferAssignment, changes, no_scratch, plan
from deepx_graph.runtime.program import callees
from deepx_graph.types import is_state, is_static, nbytes

SHOWN_PLACES = 6
"""How many lines of the user's program a report names."""

SHOWN_PORTS = 12
"""How many inputs, and how many outputs, of a function a report lists where it is not asked for all."""


@dataclass(frozen=True)
class FunctionInfo:
    """What is true of one function; arithmetic, traffic and memory (see `costs`) are None where sizes are not known.

    `flops` and `bytes_moved` are of one call with all iterations of its loops, but for those in `open`, of which one is counted.
    `runs` is how often one run of the program calls it, and not a whole answer where `runs_known` is false.
    """

    name: str
    public: bool
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    effects: bool
    input_bytes: int | None
    nodes: int
    edges: int
    depth: int
    ops: dict[str, int]
    families: dict[str, int]
    constant_bytes: int
    kernels: int
    flops: int | None
    bytes_moved: int | None
    peak_bytes: int | None
    """The most that values have at once, those of called functions included, where every kernel writes into the buffer that it is
    given. What kernels need beside them is a matter of the engine."""
    parameters: int
    """Elements of the inputs that are weights: those whose name is a path into the model."""
    parameter_bytes: int
    places: dict[str, int]
    """Lines of the user's own program, where the text tells them, with how many nodes each has become; the most first."""
    open: tuple[str, ...] = ()
    runs: int = 1
    runs_known: bool = True

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, most: int | None = SHOWN_PORTS) -> Iterator[str]:
        """The facts as text, with at most so many inputs and outputs."""
        yield f"function {self.name}{'' if self.public else ' (private)'}{_called(self)}"
        yield from _ports("in ", "input", self.inputs, most)
        yield from _ports("out", "output", self.outputs, most)
        if self.inputs:
            size = "of sizes not known yet" if self.input_bytes is None else sized(self.input_bytes)
            weights = f"; parameters: {human(self.parameters)} of {sized(self.parameter_bytes)}" if self.parameters else ""
            effects = "; takes and gives the state of effects" * self.effects
            yield f"  {counted(len(self.inputs), 'input')}, {size}{weights}{effects}"
        yield (f"  {counted(self.nodes, 'node')}, {counted(self.edges, 'edge')}, {self.depth} deep; "
               f"constants {sized(self.constant_bytes)}")
        yield f"  {_costs(self)}"
        yield "  " + ", ".join(f"{count} {name}" for name, count in self.ops.items())
        if self.places:
            listed = ", ".join(f"{printable(name)} ({count})" for name, count in list(self.places.items())[:SHOWN_PLACES])
            left = len(self.places) - SHOWN_PLACES
            yield f"  made from {listed}" + (f" and {counted(left, 'more line')}" if left > 0 else "")


@dataclass(frozen=True, repr=False)
class ModuleInfo(TextReport):
    """What is true of a module: its functions, the entry first, and what one run of it costs with everything that it calls."""

    name: str
    format: str
    entry: str
    functions: tuple[FunctionInfo, ...]

    @property
    def flops(self) -> int | None:
        """Arithmetic operations of one run; see `open`."""
        return _in_one_run([(f.flops, f.runs) for f in self.functions])

    @property
    def bytes_moved(self) -> int | None:
        """Bytes of operands and results of the kernels of one run; see `open`."""
        return _in_one_run([(f.bytes_moved, f.runs) for f in self.functions])

    @property
    def open(self) -> tuple[str, ...]:
        """What runs an unknown number of times, and is counted once in `flops` and `bytes_moved`."""
        calls = (f"calls of {f.name}" for f in self.functions if not f.runs_known)
        return (*(text for f in self.functions if f.runs for text in f.open), *calls)

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self) | {"flops": self.flops, "bytes_moved": self.bytes_moved, "open": list(self.open)}

    def lines(self, most: int | None = SHOWN_PORTS) -> Iterator[str]:
        """The facts as text, with at most so many inputs and outputs of each function."""
        yield f"{self.name or 'module'} ({self.format or 'built'}), entry {self.entry}"
        if self.flops is not None and self.bytes_moved is not None:
            yield f"one run: {counted(self.flops, 'operation')}, {sized(self.bytes_moved)} moved{once_each(self.open)}"
        folded = [f for f in self.functions if not f.public and f.name != self.entry and most is not None]
        for f in self.functions:
            if f not in folded:
                yield from f.lines(most)
        if folded:
            yield f"{counted(len(folded), 'private function')} (--all shows them):"
            yield from (f"  {f.name}{_called(f)}: {counted(f.nodes, 'node')}, {_costs(f)}" for f in folded)


def once_each(open: Sequence[str]) -> str:
    """What is said behind a cost in which some things are counted once that run who knows how often."""
    more = f" and {len(open) - SHOWN_PLACES} more" if len(open) > SHOWN_PLACES else ""
    return f" x ? {', '.join(map(printable, open[:SHOWN_PLACES]))}{more} (one is counted)" if open else ""


def _in_one_run(costs: Sequence[tuple[int | None, int]]) -> int | None:
    known = [cost * runs for cost, runs in costs if cost is not None]
    return sum(known) if len(known) == sum(cost is not None or runs > 0 for cost, runs in costs) else None


def module_info(module: Module) -> ModuleInfo:
    """The facts of all functions."""
    times = function_times(module)
    peaks = _peaks(module)
    found = (replace(_facts(f), runs=t.count, runs_known=t.is_known, peak_bytes=peaks.get(f.name))
             for f in module.entry_first for t in [times.get(f.name, NEVER)])  # fmt: skip
    return ModuleInfo(module.source.name if module.source else "", module.format, module.entry_name, tuple(found))


def function_info(function: Function) -> FunctionInfo:
    """The facts of one function, as if nothing called it. The depth is that of its critical path, in operations.

    Where it calls others, its peak is not known, as they are not.
    """
    alone = None if callees(function) else _peaks(Module((function,), function.name)).get(function.name)
    return replace(_facts(function), peak_bytes=alone)


def _facts(function: Function) -> FunctionInfo:
    """What is true of one function whatever calls it; its peak is left out."""
    body = [n for n in function.nodes if n.op is not PARAM]
    work, times = kernels(function), node_times(function)
    operations, moved = _costs_of_all(work, times) if all(map(is_static, {n.type for n in function.nodes})) else (None, None)
    ops = Counter([n.op for n in body])
    inputs = [(p.name or f"arg{k}", p.type) for k, p in enumerate(function.params)]
    outputs = [(function.result_name(k), r.type) for k, r in enumerate(function.results)]
    data = [t for _, t in inputs if not is_state(t)]
    weights = [p for p in function.params if is_weight(p)]
    return FunctionInfo(
        function.name,
        function.public,
        tuple((n, str(t)) for n, t in inputs if not is_state(t)),
        tuple((n, str(t)) for n, t in outputs if not is_state(t)),
        len(data) < len(inputs),
        sum(map(nbytes, data)) if all(map(is_static, data)) else None,
        len(body),
        sum(len(n.inputs) for n in body),
        len(critical_path(function)),
        _by_count((op.name, count) for op, count in ops.items()),
        _by_count((FAMILY_OF.get(op, "other"), count) for op, count in ops.items()),
        sum(value_of(n).array.nbytes for n in body if n.op is CONSTANT and not value_of(n).is_splat),
        len(work),
        operations,
        moved,
        None,
        sum(getattr(p.type, "size", 0) for p in weights),
        sum(nbytes(p.type) for p in weights),
        _by_count((f"{file}:{line}", count) for (file, line), count in Counter(_places(body)).items()),
        tuple(f"iterations of {loop_title(n)}" for n in open_loops(function)),
    )


def _by_count(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """How many there are of each name, the most first, and of as many those that come first."""
    found: Counter[str] = Counter()
    for name, count in counts:
        found[name] += count
    return dict(found.most_common())


def _places(nodes: Iterable[Node]) -> Iterator[tuple[str, int]]:
    """The line of the user's own program from which each node comes that has one."""
    for n in nodes:
        span = n.origin.span
        if span is not None and (place := span.place) is not None and place.file:
            yield place.file, place.line


def _costs_of_all(work: Sequence[Node], times: Mapping[Node, Times]) -> tuple[int, int]:
    """Operations and bytes of so many runs of each node."""
    costs = ByKind(lambda n: (flops(n), bytes_moved(n)))
    operations = moved = 0
    for n in work:
        (of_one, bytes_of_one), count = costs(n), times.get(n, NEVER).count
        operations += of_one * count
        moved += bytes_of_one * count
    return operations, moved


def is_weight(param: Node) -> bool:
    """Whether a parameter of a function is a parameter of the model: its name is a path, and its size is known."""
    return not is_state(param.type) and len(parameter_path(parameter_name(param))) > 1 and is_static(param.type)


def loop_title(end: Node) -> str:
    """What a loop is called in a report: by its line, or its name."""
    return f"the loop at line {end.span.line}" if end.span else f"the loop {end.name}".rstrip()


def critical_path(function: Function) -> list[Node]:
    """The longest chain of operations; parameters and constants are none."""
    length: dict[Node, int] = {}
    before: dict[Node, Node] = {}
    for n in function.nodes:
        most = -1
        for i in n.inputs:
            if length[i] > most:
                most, before[n] = length[i], i
        length[n] = max(most, 0) + (n.op is not PARAM and n.op is not CONSTANT)
    path = [max(function.nodes, key=length.__getitem__)] if function.nodes else []
    while path and (earlier := before.get(path[-1])) is not None:
        path.append(earlier)
    return [n for n in reversed(path) if n.op is not PARAM and n.op is not CONSTANT]


def _peaks(module: Module) -> dict[str, int]:
    """The most bytes that values have at once in one call of a function, for each whose sizes and callees' sizes are known."""
    from deepx_graph.runtime.memory.assignment import no_scratch
    from deepx_graph.runtime.program import plan_functions

    found: dict[str, int] = {}
    for f in module.entry_first:
        if f.name not in found:
            try:
                plans = plan_functions(module.with_entry(f.name), scratch=no_scratch)
            except (InferError, DeepxGraphError):
                continue
            found |= {called: plan.peak_bytes for called, plan in plans.items()}
    return found


def _called(f: FunctionInfo) -> str:
    """How often one run calls a function, where that is not once."""
    if (f.runs, f.runs_known) == (1, True):
        return ""
    return ", never called" if not f.runs else f", called {f.runs:,}{'' if f.runs_known else ' x ?'} times"


def _ports(word: str, noun: str, ports: Sequence[tuple[str, str]], most: int | None) -> Iterator[str]:
    shown = ports if most is None or len(ports) <= most else ports[:most]
    yield from (f"  {word}  {name}: {type}" for name, type in shown)
    if len(shown) < len(ports):
        yield f"  and {counted(len(ports) - len(shown), f'more {noun}')} (--all lists them)"


def _costs(f: FunctionInfo) -> str:
    if f.flops is None or f.bytes_moved is None:
        return "costs are not known before the inputs are"
    peak = f", {sized(f.peak_bytes)} of values at the peak" if f.peak_bytes is not None else ""
    return (f"{counted(f.kernels, 'kernel')}: {counted(f.flops, 'operation')}, {sized(f.bytes_moved)} moved"
            f"{once_each(f.open)}{peak}")


def module_json(module: Module) -> dict[str, Any]:
    """Every node of a module as plain data: op, inputs by number, attributes as text, type, name, place."""
    return {"entry": module.entry_name, "functions": [_function_json(f) for f in module.functions]}


def _function_json(function: Function) -> dict[str, Any]:
    number = {n: k for k, n in enumerate(function.nodes)}
    return {
        "name": function.name,
        "public": function.public,
        "params": [number[p] for p in function.params],
        "results": [{"name": function.result_name(k), "node": number[r]} for k, r in enumerate(function.results)],
        "nodes": [
            {
                "id": number[n], "op": n.op.name, "inputs": [number[i] for i in n.inputs], "type": str(n.type), "name": n.name,
                "attributes": {a.name: repr(v) for a, v in zip(n.op.attrs, n.attrs, strict=True)},
                "source": [s.described for s in n.origin.spans], "rewrites": list(n.origin.rewrites),
            }
            for n in function.nodes
        ],
    }  # fmt: skip


@dataclass(frozen=True)
class Life:
    """When a node's value is in memory: from its instruction to the last that may read it; and how many bytes it has."""

    first: int
    last: int
    bytes: int
    offset: int | None
    in_place: bool


@dataclass(frozen=True)
class Memory:
    """Bytes alive at each instruction (`alive`), the most at once, with and without the scratch memory of kernels, and the life of
    each node's value."""

    alive: tuple[int, ...]
    peak_bytes: int
    value_bytes: int
    lives: dict[Node, Life]

    @property
    def peak_at(self) -> int:
        """The instruction at which most bytes are alive."""
        return max(range(len(self.alive)), key=self.alive.__getitem__, default=0)

    def at_peak(self, count: int = 10) -> list[tuple[Node, Life]]:
        """The largest values that are alive at the peak."""
        at = self.peak_at
        alive = [(n, life) for n, life in self.lives.items() if life.first <= at <= life.last]
        return sorted(alive, key=lambda item: -item[1].bytes)[:count]


def memory(function: Function) -> Memory | None:
    """The memory of a function's values, on any engine; None where a size is not known or it has no schedule."""
    try:
        return from_plan(plan(schedule(function), scratch=no_scratch))
    except (InferError, DeepxGraphError):
        return None


def from_plan(found: BufferAssignment) -> Memory:
    """The memory that a plan stands for, with the scratch memory of its kernels."""
    lives = {p.node: Life(p.first, p.last, p.bytes, p.offset, p.in_place) for p in found.pieces}
    return Memory(tuple(accumulate(changes(found)[:-1])), found.peak_bytes, found.value_bytes, lives)
