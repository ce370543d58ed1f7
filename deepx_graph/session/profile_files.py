"""Profiles as files: those of other runtimes laid over a program, and ours in the forms that other tools read.

Read are traces in the Trace Event Format of Chrome, which onnxruntime, XLA (`jax.profiler.trace`) and PyTorch
(`export_chrome_trace`) write, also compressed, and our own. Their events are found in the program by name: of onnxruntime by the
name of the ONNX node, of XLA by the instruction of the compiled HLO, of PyTorch by its modules (`with_stack=True,
with_modules=True`), matched with the name scopes in order, by annotations (`record_function`) called like a scope, or by its
operators, of each sort in order. Written are the same format (Perfetto and chrome://tracing show it) and the node data of Model
Explorer.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from statistics import median
from typing import Any

from deepx_graph.analysis.name_scopes import name_scopes, split_path
from deepx_graph.errors import Diagnostic, UsageError, printable
from deepx_graph.files import naming
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.runtime.profile import Profile
from deepx_graph.session.query.facts import Measured, moved_by, work_of

LEVELS = 2
"""Levels of scopes that a report sums up."""

MAX_BYTES = 1 << 30
"""Bytes of a profile, unpacked, that are read."""

Names = tuple[str, ...]
"""The names of modules, from the outermost on."""

FORMAT = "a trace in Chrome's Trace Event Format"


@dataclass
class Events:
    """Events of one name or module: how long each took, in microseconds, in order. `path` are the modules around it and itself."""

    name: str
    durations: list[float] = field(default_factory=list)
    path: Names = ()

    @property
    def typical(self) -> float:
        """The median; the first event, which warms up, does not count where there are others."""
        return median(self.durations[1:] or self.durations)


@dataclass(frozen=True)
class ForeignProfile:
    """What a runtime measured: events of kernels by name, of modules by path, in the order of their first times, and of operators
    that no other called by their sort."""

    runtime: str
    kernels: Mapping[str, Events]
    modules: Mapping[Names, Events]
    operators: Mapping[str, Events] = field(default_factory=dict)


@dataclass(frozen=True)
class TimedNode:
    """An event of a profile and the node that stands for it in the program; None where it was not found there. `seconds` and
    `calls` are those of one run, `share` is of the time of all events."""

    name: str
    node: Node | None
    scope: str
    seconds: float
    calls: int
    share: float


@dataclass(frozen=True)
class Overlay:
    """A foreign profile laid over a program."""

    runtime: str
    runs: int
    rows: tuple[TimedNode, ...]

    @property
    def measured(self) -> dict[Node, Measured]:
        """What is known of each node that an event was found for."""
        found: dict[Node, Measured] = {}
        for r in self.rows:
            if r.node is not None:
                old = found.get(r.node, Measured(0.0, 0.0, 0))
                found[r.node] = Measured(old.seconds + r.seconds, old.share + r.share, old.calls + r.calls)
        return found

    @property
    def matched(self) -> float:
        """The share of the time whose events were found in the program."""
        return sum(r.share for r in self.rows if r.node is not None)

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"runtime": self.runtime, "runs": self.runs, "matched": self.matched, "rows": [
            {"name": r.name, "node": r.node.name if r.node else None, "scope": r.scope, "seconds": r.seconds, "calls": r.calls,
             "share": r.share} for r in self.rows]}  # fmt: skip

    def lines(self, most: int = 30) -> Iterator[str]:
        """A table, the longest first, and a sum for each scope."""
        total = sum(r.seconds for r in self.rows)
        yield (f"profile of {self.runtime}: {total * 1e3:.3f} ms a run (medians of {self.runs} runs, the first left out); "
               f"{self.matched:.0%} of it found in the program")
        yield f"{'share':>6} {'ms':>9} {'calls':>6}  event"
        for r in self.rows[:most]:
            where = f" in {r.scope}" if r.scope else ""
            found = "" if r.node is None else f": {r.node.op.name} {r.node.reference}{where}"
            yield printable(f"{r.share:>6.1%} {r.seconds * 1e3:>9.4f} {r.calls:>6}  {r.name}{found or ' (not found)'}")
        if len(self.rows) > most:
            yield f"and {len(self.rows) - most} more"
        scopes: dict[str, float] = {}
        for r in self.rows:
            if r.scope:
                top = "/".join(r.scope.split("/")[:LEVELS])
                scopes[top] = scopes.get(top, 0.0) + r.share
        if len(scopes) > 1:
            yield "by module:"
            ranked = sorted(scopes.items(), key=lambda item: -item[1])
            yield from (printable(f"{share:>6.1%}  {scope}") for scope, share in ranked[:most])


# --- reading ---------------------------------------------------------------------------------------------------------


def read_profile(path: str | Path) -> ForeignProfile:
    """The events of a file. Raises UsageError when it cannot be read, is no trace, or has no events that are known."""
    events = [e for e in _trace(path) if isinstance(e, dict) and e.get("ph") == "X" and _is_time(e.get("dur"))]
    for runtime, name_of in KERNEL_NAMES.items():
        found: dict[str, Events] = {}
        for e in events:
            args = e.get("args")
            name = name_of(e, args if isinstance(args, dict) else {})
            if name:
                found.setdefault(name, Events(name)).durations.append(float(e["dur"]))
        if found:
            return ForeignProfile(runtime, found, {})
    modules, operators = _modules(events), _operators(events)
    if modules or operators:
        return ForeignProfile("PyTorch", {}, modules, operators)
    raise UsageError(Diagnostic(f"no kernels are named in the profile {printable(str(path))}", expected="a trace of onnxruntime, "
                                "XLA (jax.profiler.trace), PyTorch (torch.profiler) or deepx_graph"))


def _trace(path: str | Path) -> list[Any]:
    try:
        with naming("read", path), open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            data = (gzip.GzipFile(fileobj=file) if packed else file).read(MAX_BYTES + 1)
    except (EOFError, zlib.error) as e:
        raise UsageError(f"cannot read '{printable(str(path))}': {e}") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"the profile {printable(str(path))} has more than {MAX_BYTES:,} bytes")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise UsageError(Diagnostic(f"{printable(str(path))} is no JSON", expected=FORMAT)) from None
    events = found.get("traceEvents") if isinstance(found, dict) else found
    if not isinstance(events, list):
        raise UsageError(Diagnostic(f"{printable(str(path))} has no events", expected=FORMAT))
    return events


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _onnxruntime_name(event: Mapping[str, Any], args: Mapping[str, Any]) -> str:
    name = _text(event.get("name"))
    found = name.removesuffix("_kernel_time") if event.get("cat") == "Node" and name.endswith("_kernel_time") else ""
    return found.removeprefix("fused ").removesuffix("_nchwc")  # what it makes of a convolution in blocks of channels


KERNEL_NAMES: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], str]] = {
    "deepx_graph": lambda event, args: _text(args.get("node") or event.get("name")) if event.get("cat") == "deepx_graph" else "",
    "onnxruntime": _onnxruntime_name,
    "XLA": lambda event, args: _text(args.get("hlo_op")),
}
"""By runtime, what an event's kernel is called; empty for other events."""

MODULE = "nn.Module: "


def _modules(events: Iterable[Mapping[str, Any]]) -> dict[Names, Events]:
    """The modules of PyTorch and annotations, by what encloses them on their thread."""
    found: dict[Names, Events] = {}
    stacks: dict[Any, list[tuple[float, str]]] = defaultdict(list)
    named = [e for e in events if _is_time(e.get("ts")) and (
        _text(e.get("name")).startswith(MODULE) or e.get("cat") == "user_annotation")]  # fmt: skip
    for e in sorted(named, key=lambda e: (e["ts"], -e["dur"])):
        stack = stacks[str(e.get("tid"))]
        while stack and stack[-1][0] <= e["ts"]:
            stack.pop()
        stack.append((e["ts"] + e["dur"], _text(e["name"]).removeprefix(MODULE)))
        path = tuple(name for _, name in stack)
        found.setdefault(path, Events(path[-1], path=path)).durations.append(float(e["dur"]))
    return found


OPERATOR = "aten::"


def _operators(events: Iterable[Mapping[str, Any]]) -> dict[str, Events]:
    """The operators of PyTorch that no other operator on their thread called, in the order of time: `aten::conv2d`."""
    found: dict[str, Events] = {}
    ends: dict[Any, float] = defaultdict(float)
    named = [e for e in events if _is_time(e.get("ts")) and e.get("cat") == "cpu_op"]
    for e in sorted(named, key=lambda e: (e["ts"], -e["dur"])):
        thread, name = str(e.get("tid")), _text(e.get("name"))
        if e["ts"] >= ends[thread]:
            ends[thread] = e["ts"] + e["dur"]
            if name.startswith(OPERATOR):
                kind = name.removeprefix(OPERATOR).removesuffix("_")  # relu_ is relu in place
                found.setdefault(kind, Events(name)).durations.append(float(e["dur"]))
    return found


# --- finding the events in a program -----------------------------------------------------------------------------------


def laid_over(profile: ForeignProfile, module: Module) -> Overlay:
    """The profile over the entry of a module: each event at the node of most work among those that it stands for."""
    ways = [way for way, events in ((_by_name, profile.kernels), (_by_scope, profile.modules), (_by_operator, profile.operators))
            if events]  # fmt: skip
    return max((_placed(profile, module.entry, *way(profile, module.entry)) for way in ways), key=lambda o: o.matched)


def _placed(profile: ForeignProfile, function: Function, events: Sequence[Events], nodes: Sequence[list[Node]]) -> Overlay:
    """Events, and the nodes that each stands for, as what was measured of a function."""
    scopes = name_scopes(function)
    counts = [len(e.durations) for e in events if e.durations]
    runs = reduce(math.gcd, counts) if counts else 1
    seconds = [t * max(1, len(e.durations) // runs) / 1e6 for e, t in zip(events, _own_times(profile, events), strict=True)]
    total = sum(seconds) or 1.0
    rows = []
    for e, s, found in zip(events, seconds, nodes, strict=True):
        node = max(found, key=_work, default=None)
        rows.append(TimedNode(e.name if not e.path else "/".join(e.path), node, str(scopes[node]) if node is not None else "", s,
                              max(1, len(e.durations) // runs), s / total))
    return Overlay(profile.runtime, runs, tuple(sorted(rows, key=lambda r: -r.seconds)))


def _work(node: Node) -> int:
    return (work_of(node) or 0) + (moved_by(node) or 0)


def _own_times(profile: ForeignProfile, events: Sequence[Events]) -> list[float]:
    """The typical time of each event without that of the modules directly inside it."""
    inside: dict[Names, float] = defaultdict(float)
    for path, e in profile.modules.items():
        outer = profile.modules.get(path[:-1])
        if outer is not None:
            inside[path[:-1]] += e.typical * len(e.durations) / len(outer.durations)
    return [max(0.0, e.typical - inside[e.path]) if e.path else e.typical for e in events]


def _by_name(profile: ForeignProfile, function: Function) -> tuple[list[Events], list[list[Node]]]:
    """The nodes whose name, or name in the text, an event has; of a fusion of compiled HLO those of its computation.

    torch writes the modules around an operator before its name, onnxruntime what it fused behind it.
    """
    called: dict[str, list[Node]] = defaultdict(list)
    places: dict[str, set[str]] = defaultdict(set)
    lines: dict[int, list[Node]] = defaultdict(list)
    for n in function.nodes:
        if n.op is not PARAM and n.op is not CONSTANT:
            for name in {n.name, *(s.place.label for s in n.origin.spans if s.place is not None)}:
                called[name].append(n)
                places[name.rpartition("/")[2]].add(name)
            if n.span is not None:
                lines[n.span.line].append(n)
    source = next((n.span.source for n in function.nodes if n.span is not None), None)
    ranges = _fusion_lines(source.text) if source is not None and not source.binary and profile.runtime == "XLA" else {}
    for last, names in places.items():
        if len(names) == 1 and last not in called:
            called[last] = called[next(iter(names))]
    nodes = [called.get(name) or called.get(name.rpartition("/")[0]) or
             [n for k in ranges.get(name, ()) for n in lines.get(k, ())] for name in profile.kernels]  # fmt: skip
    return list(profile.kernels.values()), nodes


_FUSION = re.compile(r"^\s*(?:ROOT\s+)?%?([\w.\-]+) = .*\b(?:calls|to_apply)=%?([\w.\-]+)")
_COMPUTATION = re.compile(r"^(?:ENTRY\s+)?%?([\w.\-]+)\s.*\{\s*$")


def _fusion_lines(text: str) -> dict[str, range]:
    """Of each instruction of an HLO text that calls a computation, the lines of that."""
    start, bodies, called = ("", 0), {}, {}
    for number, line in enumerate(text.split("\n"), 1):
        if found := _COMPUTATION.match(line):
            start = found[1], number
        elif line.startswith("}"):
            bodies[start[0]] = range(start[1], number + 1)
        elif found := _FUSION.match(line):
            called[found[1]] = found[2]
    return {name: bodies[body] for name, body in called.items() if body in bodies}


class _Tree:
    """Modules inside one another, in order."""

    def __init__(self) -> None:
        self.inside: dict[str, _Tree] = {}
        self.path: Names = ()
        self.nodes: list[Node] = []

    def at(self, path: Names) -> _Tree:
        """What lies at a path; made where it is not there."""
        tree = self
        for k, part in enumerate(path):
            tree = tree.inside.setdefault(part, _Tree())
            tree.path = path[: k + 1]
        return tree


def _by_scope(profile: ForeignProfile, function: Function) -> tuple[list[Events], list[list[Node]]]:
    """The operations of each module: of the scope of that name, else of the scope at that place among its neighbours."""
    scopes = _Tree()
    for node, scope in name_scopes(function).items():
        if node.op is not PARAM and node.op is not CONSTANT and scope.path:
            scopes.at(tuple(p for part in scope.path for p in split_path(part))).nodes.append(node)
    modules = _Tree()
    for path in profile.modules:
        modules.at(path)
    found: dict[Names, list[Node]] = {}
    stack = [(modules, scopes)]
    while stack:
        outer, where = stack.pop()
        inside, there = list(outer.inside.items()), where.inside
        same: list[tuple[_Tree, _Tree]] = [(m, there[name]) for name, m in inside if name in there]
        if not same and len(inside) == 1 != len(there):  # the module that is the whole model has no scope of its own
            same = [(inside[0][1], where)]
        elif not same and len(inside) == len(there):
            same = [(m, by_place) for (_, m), by_place in zip(inside, there.values(), strict=True)]
        elif not same:  # what was folded away has no scope: those with modules in them can still be counted
            same = _with_modules([m for _, m in inside], list(there.values()))
        for module, tree in same:
            found[module.path] = tree.nodes
            stack.append((module, tree))
    return list(profile.modules.values()), [found.get(path, []) for path in profile.modules]


def _by_operator(profile: ForeignProfile, function: Function) -> tuple[list[Events], list[list[Node]]]:
    """The nodes of each operator of the source, of each sort in order: the third `conv2d` of a run is the third in the text.

    Events of a sort are found where there are so many in each run.
    """
    read: dict[str, dict[int, list[Node]]] = defaultdict(dict)
    for n in function.nodes:
        place = n.span.place if n.span is not None else None
        if n.span is not None and place is not None and place.kind:
            read[place.kind].setdefault(n.span.start, []).append(n)
    events: list[Events] = []
    nodes: list[list[Node]] = []
    for kind, e in profile.operators.items():
        places = [read[kind][start] for start in sorted(read[kind])] if kind in read else []
        if not places or len(e.durations) % len(places):
            places = [[]]
        for k, there in enumerate(places):
            events.append(Events(e.name, e.durations[k :: len(places)]))
            nodes.append(there)
    return events, nodes


def _with_modules(modules: Sequence[_Tree], scopes: Sequence[_Tree]) -> list[tuple[_Tree, _Tree]]:
    """In order, those that have modules inside, where there are as many of both."""
    here, there = ([tree for tree in trees if tree.inside] for trees in (modules, scopes))
    return list(zip(here, there, strict=True)) if len(here) == len(there) else []


# --- writing ---------------------------------------------------------------------------------------------------------


def trace_events(profile: Profile) -> dict[str, Any]:
    """Our own profile in the Trace Event Format: an event for every call of which the time is kept, in microseconds."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": 1, "name": "process_name", "args": {"name": "deepx_graph"}}]
    for call in profile.call_times():
        args = {"node": call.node, "type": call.type, "lowering": call.lowering, "line": call.line}
        events.append({"ph": "X", "cat": "deepx_graph", "pid": 1, "tid": 1, "name": call.kernel, "ts": call.start * 1e6,
                       "dur": call.seconds * 1e6, "args": args})
    return {"displayTimeUnit": "ns", "traceEvents": sorted(events, key=lambda e: e.get("ts", -1.0))}


def node_data(profile: Profile, graph: str) -> dict[str, Any]:
    """Our own profile as node data of Model Explorer: milliseconds of one call by the names of nodes, with a scale of colours."""
    results: dict[str, dict[str, float]] = {}
    for row in profile.rows():
        name = row.kernel.partition(" ")[2]
        if name:
            results[name] = {"value": round(results.get(name, {}).get("value", 0.0) + row.median * 1e3, 6)}
    return {graph: {"results": results, "gradient": [{"stop": 0, "bgColor": "#fff7ec"}, {"stop": 1, "bgColor": "#d7301f"}]}}
