"""What each module of a model holds and costs, by the name scopes of its nodes: operations, parameters, arithmetic and traffic.

The tree is that of `analysis/name_scopes.py`. A row counts all that lies below it, loops as often as they run and functions as
often as they are called; a parameter counts where it is used first. Equal siblings in a row are one line. The least time is that
of the roofline (Williams et al., 2009) of this machine for each operation by itself: what is fused moves less.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from deepx_graph.analysis.name_scopes import ROOT, NameScope, Path, name_scopes, within
from deepx_graph.analysis.work import NEVER, bytes_moved, flops, kernels, node_times
from deepx_graph.errors import InferError, human, printable, sized
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import CALL, CONSTANT, PARAM, callee_of
from deepx_graph.runtime.cost.counts import function_times
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.cost.model import roof_ns
from deepx_graph.session.report.info import is_weight
from deepx_graph.types import nbytes

DEPTH = 2
"""Levels that a report shows below the model itself."""


@dataclass
class ScopeCost:
    """What lies in a scope and the scopes inside it; arithmetic and traffic of one run, of the operations whose sizes are known."""

    operations: int = 0
    parameters: int = 0
    parameter_bytes: int = 0
    flops: int = 0
    bytes_moved: int = 0
    least_ms: float = 0.0

    def add(self, other: ScopeCost) -> None:
        """Counts another one in."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class ScopeInfo:
    """A scope, what it costs, and the scopes inside it in the order of the program."""

    name: str
    cost: ScopeCost = field(default_factory=ScopeCost)
    inside: dict[str, ScopeInfo] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The same as plain data, the scopes inside as a list."""
        return {"name": self.name, **asdict(self.cost), "inside": [s.to_json() for s in self.inside.values()]}

    def lines(self, depth: int = DEPTH) -> Iterator[str]:
        """A table with a row for each scope, as deep as asked."""
        top: ScopeInfo = self
        while len(top.inside) == 1 and not top.cost.operations - next(iter(top.inside.values())).cost.operations:
            top = next(iter(top.inside.values()))
        rows = [("scope", "operations", "parameters", "", "flops", "moved", "least ms"), *_rows(top, 0, depth)]
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        for row in rows:
            cells = (text.rjust(w) if k else text.ljust(w) for k, (text, w) in enumerate(zip(row, widths, strict=True)))
            yield "  ".join(cells).rstrip()


def _rows(scope: ScopeInfo, level: int, depth: int, name: str = "") -> Iterator[tuple[str, ...]]:
    c = scope.cost
    title = "  " * level + printable(name or scope.name or "program")
    yield (title, f"{c.operations:,}", human(c.parameters), sized(c.parameter_bytes), human(c.flops), sized(c.bytes_moved),
           f"{c.least_ms:.3f}")
    if level >= depth:
        return
    for same in _alike(list(scope.inside.values())):
        title = same[0].name if len(same) == 1 else f"{same[0].name} to {same[-1].name} ×{len(same)}, each"
        yield from _rows(same[0], level + 1, depth, title)


_NUMBER = re.compile(r"\d+$")


def _alike(scopes: list[ScopeInfo]) -> list[list[ScopeInfo]]:
    """Neighbours of one name but for its number, and of the same cost, together."""
    groups: list[list[ScopeInfo]] = []
    for s in scopes:
        last = groups[-1][-1] if groups else None
        if last is not None and (_NUMBER.sub("", last.name), last.cost) == (_NUMBER.sub("", s.name), s.cost):
            groups[-1].append(s)
        else:
            groups.append([s])
    return groups


def by_scope(module: Module, threads: int = 1) -> ScopeInfo:
    """The scopes of a program and what they cost, in time on that many threads."""
    root = ScopeInfo("")
    times = function_times(module)
    around = _callers(module)
    for function in module.entry_first:
        runs = times.get(function.name, NEVER).count
        if runs:
            outer = around.get(function.name, ROOT)
            for node, cost in _costs(function, runs, threads, entry=function.name == module.entry_name):
                _put(root, within(outer, node).path, cost)
    return root


def _callers(module: Module) -> Mapping[str, NameScope]:
    """The scope of the first call of each function."""
    found: dict[str, NameScope] = {module.entry_name: ROOT}
    waiting = [module.entry_name]
    while waiting:
        name = waiting.pop()
        function = module[name]
        scopes = name_scopes(function)
        for node in function.nodes:
            if node.op is CALL and callee_of(node) in module and callee_of(node) not in found:
                found[callee_of(node)] = within(found[name], scopes[node])
                waiting.append(callee_of(node))
    return found


def _costs(function: Function, runs: int, threads: int, *, entry: bool) -> Iterator[tuple[NameScope, ScopeCost]]:
    scopes, times = name_scopes(function), node_times(function)
    work = set(kernels(function))
    for node in (*function.nodes[len(function.params) :], *function.params):  # in the order of operations, not of names
        if node.op is PARAM:
            if entry and is_weight(node):
                yield scopes[node], ScopeCost(parameters=_elements(node), parameter_bytes=nbytes(node.type))
        elif node.op is not CONSTANT and node.inputs:
            often = times.get(node, NEVER).count * runs
            yield scopes[node], _cost(node, often, threads) if node in work else ScopeCost(1)


def _elements(node: Node) -> int:
    return int(getattr(node.type, "size", 0))


def _cost(node: Node, often: int, threads: int) -> ScopeCost:
    try:
        operations, moved = flops(node) or 0, bytes_moved(node) or 0
    except InferError:
        return ScopeCost(1)
    return ScopeCost(1, 0, 0, operations * often, moved * often, roof_ns(constants(), operations, moved, threads) * often / 1e6)


def _put(root: ScopeInfo, path: Path, cost: ScopeCost) -> None:
    root.cost.add(cost)
    for part in path:
        root = root.inside.setdefault(part, ScopeInfo(part))
        root.cost.add(cost)
