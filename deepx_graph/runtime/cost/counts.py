"""What running a function would cost, from declarations: the forecast of each node, and how often each function runs.

What is counted, and of loops, is said in `analysis/work.py`. Of recursion and calls of function values one run is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from deepx_graph.analysis.work import NEVER, ONCE, UNKNOWN, Times, bytes_moved, flops, node_times
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import CALL, PARTIAL, STRUCTURAL, callee_of
from deepx_graph.ops.tensor.parallel import parallel_grid
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.cost.model import Forecast, ForecastParts, evaluated, product
from deepx_graph.runtime.program import call_order
from deepx_graph.types import TensorType, leaves


def function_times(module: Module) -> dict[str, Times]:
    """How often each function that the entry reaches runs, the entry once."""
    order, recursive = call_order(module)
    found = {name: UNKNOWN if name in recursive else NEVER for name in order}
    found[module.entry_name] = UNKNOWN if module.entry_name in recursive else ONCE
    for name in reversed(order):
        for callee, times in _calls(module[name]):
            if name not in recursive or callee not in recursive:
                found[callee] += found[name] * times
    return found


def _calls(function: Function) -> Iterator[tuple[str, Times]]:
    times: Mapping[Node, Times] | None = None
    for node in function.nodes:
        if node.op is CALL or node.op is PARTIAL:
            times = node_times(function) if times is None else times
            yield callee_of(node), times.get(node, NEVER) * (ONCE if node.op is CALL else _uses(function, node))


def _uses(function: Function, closure: Node) -> Times:
    """How often a closure is called for each time that it is made: once on each device, else not known."""
    grids = [parallel_grid(u) for u in function.users[closure]]
    known = [g.count for g in grids if g is not None]
    return Times(sum(known)) if known and len(known) == len(grids) else UNKNOWN


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
