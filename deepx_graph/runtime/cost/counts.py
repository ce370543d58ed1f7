"""What running a function would cost, counted from the declarations of its operations, and the forecasts of single nodes.

Arithmetic: one operation for each primitive of an elementwise kernel and element, one per operation of a reducer and element, what
`Op.flops` says of products, convolutions and the like; other operations count none. Bytes: operands and results of every kernel,
each once. Of a single node and one run of it; how often it runs is told by `runs`.
"""

from __future__ import annotations

from deepx_graph.ir import Function, Node
from deepx_graph.ir.scalar_expr import Apply, Expr
from deepx_graph.ir.structure import LOOP_END, STRUCTURAL
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.cost.model import Forecast, ForecastParts, evaluated, product
from deepx_graph.runtime.cost.runs import ONCE, node_times
from deepx_graph.types import TensorType, leaves, nbytes


def kernels(function: Function) -> list[Node]:
    """The nodes that compute something: neither structure nor another way to look at an operand."""
    return [n for n in function.nodes if n.op.eval is not None and not n.op.view and n.op not in STRUCTURAL]


def bytes_moved(node: Node) -> int:
    """Bytes of the operands and results of a node whose types are known."""
    return nbytes(node.type) + sum(nbytes(i.type) for i in node.inputs)


def forecast(node: Node, parts: ForecastParts) -> Forecast:
    """The prediction of a kernel that has these parts, with the bytes and operations of its node."""
    return parts.forecast(bytes_moved(node), flops(node))


def alone(node: Node, threads: int) -> Forecast:
    """The prediction of an operation that no kernel of ours computes: a product or the like by a library, a view, or its eval."""
    if node.op.view or node.op in STRUCTURAL:
        return Forecast(0.0, 0, 0)
    return forecast(node, parts_alone(node, threads))


def parts_alone(node: Node, threads: int) -> ForecastParts:
    """The parts of a prediction that knows no more than the node's declaration."""
    c, moved, work = constants(), bytes_moved(node), flops(node)
    if node.op.flops is None:
        return evaluated(c, work, moved)
    itemsize = max((t.dtype.np.itemsize for t in leaves(node.type) if isinstance(t, TensorType) and t.dtype.np), default=1)
    return product(c, work, moved, itemsize, threads)


def flops(node: Node) -> int:
    """Arithmetic operations of a node whose types are known; see the module's text for what counts."""
    bodies = [v for a, v in zip(node.op.attrs, node.attrs, strict=True) if a.kind == "function"]
    if bodies:
        per_element = all(isinstance(p.type, TensorType) and p.type.dims == () for p in bodies[0].params)
        times = _size(node.inputs[0]) if per_element and node.inputs else 1
        runs = node_times(bodies[0]) if any(n.op is LOOP_END for n in bodies[0].nodes) else {}
        return times * sum(flops(n) * runs.get(n, ONCE).count for n in bodies[0].nodes)
    if node.op.elementwise and node.op.kernel is not None:
        expression = node.op.kernel(*node.attrs)
        return 0 if expression is None else _primitives(expression) * _size(node)
    return 0 if node.op.flops is None else node.op.flops([i.type for i in node.inputs], node.type, *node.attrs)


def _primitives(expression: Expr) -> int:
    found: set[Apply] = set()
    stack = [expression]
    while stack:
        e = stack.pop()
        if isinstance(e, Apply) and e not in found:
            found.add(e)
            stack.extend(e.args)
    return len(found)


def _size(node: Node) -> int:
    return sum(t.size for t in leaves(node.type) if isinstance(t, TensorType))
