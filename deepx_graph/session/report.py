"""Facts about a module for people and for scripts: what it takes and gives, what it is made of, how deep it is, what it needs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from deepx_graph.errors import DeepxGraphError, InferError, printable
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops import FAMILY_OF
from deepx_graph.runtime.cost.counts import bytes_moved, flops, kernels
from deepx_graph.types import is_static

SHOWN_PLACES = 6
"""How many lines of the user's program a report names."""


@dataclass(frozen=True)
class FunctionInfo:
    """What is true of one function; arithmetic, traffic and memory (see `costs`) are None where sizes are not known."""

    name: str
    public: bool
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
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
    places: dict[str, int]
    """Lines of the user's own program, where the text tells them, with how many nodes each has become; the most first."""

    def __str__(self) -> str:
        return _show(self)


@dataclass(frozen=True)
class ModuleInfo:
    """What is true of a module."""

    name: str
    format: str
    entry: str
    functions: tuple[FunctionInfo, ...]

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join([f"{self.name or 'module'} ({self.format or 'built'}), entry {self.entry}", *map(str, self.functions)])


def module_info(module: Module) -> ModuleInfo:
    """The facts of all functions."""
    name = module.source.name if module.source else ""
    return ModuleInfo(name, module.format, module.entry_name, tuple(map(function_info, module.functions)))


def function_info(function: Function) -> FunctionInfo:
    """The facts of one function. The depth is that of its critical path, in operations."""
    body = [n for n in function.nodes if n.op is not PARAM]
    work = kernels(function)
    known = all(is_static(n.type) for n in function.nodes)
    return FunctionInfo(
        function.name,
        function.public,
        tuple((p.name or f"arg{k}", str(p.type)) for k, p in enumerate(function.params)),
        tuple((function.result_name(k), str(r.type)) for k, r in enumerate(function.results)),
        len(body),
        sum(len(n.inputs) for n in body),
        len(critical_path(function)),
        dict(Counter(n.op.name for n in body).most_common()),
        dict(Counter(FAMILY_OF.get(n.op, "other") for n in body).most_common()),
        sum(n.attrs[0].array.nbytes for n in body if n.op is CONSTANT and not n.attrs[0].is_splat),
        len(work),
        sum(map(flops, work)) if known else None,
        sum(map(bytes_moved, work)) if known else None,
        _peak(function) if known else None,
        dict(Counter(f"{p.file}:{p.line}" for n in body if n.span and (p := n.span.place) and p.file).most_common()),
    )


def critical_path(function: Function) -> list[Node]:
    """The longest chain of operations, found by networkx on the function's graph."""
    import networkx

    from deepx_graph.ir.nx import function_to_networkx

    graph = function_to_networkx(function)
    back: list[tuple[Any, Any]] = [e[:2] for e in graph.edges(data=True) if e[2]["kind"] == "back"]
    graph.remove_edges_from(back)
    path = networkx.dag_longest_path(graph, weight=None, default_weight=1)
    nodes = [graph.nodes[k]["node"] for k in path]
    return [n for n in nodes if n.op is not PARAM and n.op is not CONSTANT]


def _peak(function: Function) -> int | None:
    from deepx_graph.runtime.plan import plan
    from deepx_graph.runtime.schedule import schedule

    try:
        return plan(schedule(function)).peak_bytes
    except (InferError, DeepxGraphError):
        return None


def _show(f: FunctionInfo) -> str:
    costs = "costs are not known before the inputs are"
    if f.flops is not None and f.bytes_moved is not None:
        costs = f"{f.kernels} kernels: {f.flops:,} operations, {f.bytes_moved:,} bytes moved"
        costs += f", {f.peak_bytes:,} bytes at the peak" if f.peak_bytes is not None else ""
    lines = [
        f"function {f.name}{'' if f.public else ' (private)'}",
        *(f"  in   {n}: {t}" for n, t in f.inputs),
        *(f"  out  {n}: {t}" for n, t in f.outputs),
        f"  {f.nodes} nodes, {f.edges} edges, {f.depth} deep; constants {f.constant_bytes:,} bytes",
        f"  {costs}",
        "  " + ", ".join(f"{count} {name}" for name, count in f.ops.items()),
    ]
    if f.places:
        listed = ", ".join(f"{printable(name)} ({count})" for name, count in list(f.places.items())[:SHOWN_PLACES])
        lines.append(f"  made from {listed}" + (f" and {len(f.places) - SHOWN_PLACES} more lines" * (len(f.places) > SHOWN_PLACES)))
    return "\n".join(lines)


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
