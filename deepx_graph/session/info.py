"""Figures on a module: what is in it, how deep it is, and what running it would cost.

Costs are estimates read from the declarations: arithmetic counts one operation for each primitive of an elementwise kernel and
element, one per element and operation of a reducer, two per multiply-add of a contraction; other operations count none. Bytes are
operands and results of every kernel, each once. Loops count one turn, branches all sides. What depends on unknown sizes is None.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from deepx_graph.errors import DeepxGraphError, InferError
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.kernel import Apply, Expr
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, PARAM, STRUCTURAL
from deepx_graph.runtime.inputs import input_ports, output_ports
from deepx_graph.types import TensorType, is_static, leaves, nbytes


@dataclass(frozen=True)
class FunctionInfo:
    """One function. `depth` is the number of nodes on the longest path from an input to a result; `kernels` are computing nodes."""

    name: str
    public: bool
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    nodes: int
    kernels: int
    depth: int
    loops: int
    operations: dict[str, int]
    constant_bytes: int
    flops: int | None
    bytes_moved: int | None


@dataclass(frozen=True)
class Info:
    """A module. `peak_bytes` is what the memory plan of the entry needs at once."""

    source: str
    format: str
    entry: str
    nodes: int
    functions: tuple[FunctionInfo, ...]
    peak_bytes: int | None

    @property
    def main(self) -> FunctionInfo:
        """The entry."""
        return next(f for f in self.functions if f.name == self.entry)


def info(module: Module) -> Info:
    """Figures on the module and each of its functions."""
    functions = tuple(map(function_info, module.functions))
    source = module.source.name if module.source else ""
    return Info(source, module.format, module.entry_name, sum(f.nodes for f in functions), functions, _peak(module))


def function_info(function: Function) -> FunctionInfo:
    """Figures on one function."""
    inside = [n for n in function.nodes if n.op is not PARAM]
    kernels = [n for n in inside if is_kernel(n)]
    known = all(is_static(n.type) for n in function.nodes)
    return FunctionInfo(
        name=function.name,
        public=function.public,
        inputs=tuple((p.name, str(p.type)) for p in input_ports(function)),
        outputs=tuple((p.name, str(p.type)) for p in output_ports(function)),
        nodes=len(inside),
        kernels=len(kernels),
        depth=_depth(function),
        loops=sum(n.op is LOOP_BEGIN for n in inside),
        operations=dict(sorted(Counter(n.op.name for n in inside).items(), key=lambda item: (-item[1], item[0]))),
        constant_bytes=sum(_constant_bytes(n) for n in inside if n.op is CONSTANT),
        flops=sum(flops(n) for n in kernels) if known else None,
        bytes_moved=sum(nbytes(n.type) + sum(nbytes(i.type) for i in n.inputs) for n in kernels) if known else None,
    )


def is_kernel(node: Node) -> bool:
    """Whether running the node computes something: neither structure nor another way to look at its operand."""
    return node.op.eval is not None and not node.op.view and node.op not in STRUCTURAL


def critical_path(function: Function) -> tuple[Node, ...]:
    """The longest chain of nodes that each need the one before, oldest first."""
    import networkx

    from deepx_graph.ir.nx import function_to_networkx

    graph = function_to_networkx(function)
    graph.remove_edges_from([(u, v, k) for u, v, k, kind in graph.edges(keys=True, data="kind") if kind == "back"])
    return tuple(graph.nodes[n]["node"] for n in networkx.dag_longest_path(graph, weight=None))


def flops(node: Node) -> int:
    """Arithmetic of one node whose types are known; see the module's text for what counts."""
    bodies = [v for a, v in zip(node.op.attrs, node.attrs, strict=True) if a.kind == "function"]
    if bodies:
        per_element = all(isinstance(p.type, TensorType) and p.type.dims == () for p in bodies[0].params)
        times = _size(node.inputs[0]) if per_element and node.inputs else 1
        return times * sum(flops(n) for n in bodies[0].nodes)
    if node.op.elementwise and node.op.kernel is not None:
        expression = node.op.kernel(*node.attrs)
        return 0 if expression is None else _primitives(expression) * _size(node)
    contracted = node.op.attr_index.get("lhs_contracting_dimensions")
    if contracted is None:
        return 0
    lhs = node.inputs[0].type
    assert isinstance(lhs, TensorType)
    return 2 * _size(node) * math.prod(lhs.shape[k] for k in node.attrs[contracted])


def _primitives(expression: Expr) -> int:
    count, stack = 0, [expression]
    while stack:
        e = stack.pop()
        if isinstance(e, Apply):
            count += 1
            stack.extend(e.args)
    return count


def _size(node: Node) -> int:
    return sum(t.size for t in leaves(node.type) if isinstance(t, TensorType))


def _constant_bytes(node: Node) -> int:
    literal: Any = node.attrs[0]
    return 0 if literal.is_splat else int(literal.array.nbytes)


def _depth(function: Function) -> int:
    depth: dict[Node, int] = {}
    for n in function.nodes:
        own = 0 if n.op in (PARAM, CONSTANT) else 1
        depth[n] = own + max((depth[i] for i in n.inputs), default=0)
    return max((depth[r] for r in function.results), default=0)


def _peak(module: Module) -> int | None:
    from deepx_graph.runtime.plan import always
    from deepx_graph.runtime.program import plan_functions

    try:
        return plan_functions(module, always)[module.entry_name].peak_bytes
    except (InferError, DeepxGraphError):
        return None
