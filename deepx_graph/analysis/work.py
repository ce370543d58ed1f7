"""What nodes have to do, counted from declarations: operations, bytes, and how often each node runs.

Arithmetic: one operation for each primitive of an elementwise kernel and element, one per operation of a reducer and element, what
`Op.flops` says of products, convolutions and the like; other operations count none. Bytes: operands and results of every kernel,
each once.

A loop whose text fixes the number of its iterations runs its body so often and its test once more. Where the number is not
known, one iteration is counted, and the count says so. Branches count all sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from deepx_graph.analysis.liveness import has_control
from deepx_graph.analysis.schedule import Block, Eval, IfStep, LoopStep, Once, schedule
from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Function, Node, Op
from deepx_graph.ir.scalar_expr import Apply, Expr
from deepx_graph.ir.structure import CONSTANT, LOOP_END, PARAM, STRUCTURAL
from deepx_graph.types import TensorType, leaves, nbytes


@dataclass(frozen=True, slots=True)
class Times:
    """So many times; `is_known` is false where it is so many for each iteration or call of an unknown number."""

    count: int
    is_known: bool = True

    def __mul__(self, other: Times) -> Times:
        return Times(self.count * other.count, self.is_known and other.is_known)

    def __add__(self, other: Times) -> Times:
        return Times(self.count + other.count, self.is_known and other.is_known)

    def __str__(self) -> str:
        return f"{self.count:,}" if self.is_known else f"{self.count:,} x ?"


NEVER, ONCE, UNKNOWN = Times(0), Times(1), Times(1, False)


def node_times(function: Function) -> dict[Node, Times]:
    """How often each node runs in one call of its function; what is not in it never runs."""
    if not has_control(function):
        return dict.fromkeys((n for n in function.nodes if n.op is not PARAM and n.op is not CONSTANT), ONCE)
    try:
        return dict(_times(schedule(function).root))
    except DeepxGraphError:  # what has no schedule is still drawn and counted
        return dict.fromkeys(function.nodes, ONCE)


def _times(root: Block) -> Iterator[tuple[Node, Times]]:
    of_loop: dict[Node, Times] = {}
    stack = [(root, ONCE)]
    while stack:
        block, times = stack.pop()
        for step in block.steps:
            match step:
                case Eval(node):
                    yield node, times
                case Once():
                    stack.append((step.block, of_loop[step.loop] if times.count else NEVER))
                case IfStep():
                    yield step.node, times
                    stack += ((b.block, times) for b in step.branches)
                case LoopStep():
                    yield step.node, times
                    of_loop[step.node] = times
                    stack += _inside(step, times)


def _inside(step: LoopStep, times: Times) -> list[tuple[Block, Times]]:
    trips = trip_count(step.node)
    if trips is None:
        return [(step.header, times * UNKNOWN), (step.body, times * UNKNOWN)]
    return [(step.header, times * Times(trips + 1)), (step.body, times * Times(trips))]


def open_loops(function: Function) -> list[Node]:
    """The loops, each by its loop_end, that run an unknown number of iterations."""
    return [n for n in function.nodes if n.op is LOOP_END and trip_count(n) is None]


def is_open(node: Node) -> bool:
    """Whether one run of a node has a loop of an unknown number of iterations in its body."""
    return any(isinstance(v, Function) and open_loops(v) for v in node.attrs)


def kernels(function: Function) -> list[Node]:
    """The nodes that compute something: neither structure nor a view of an operand."""
    return [n for n in function.nodes if n.op.eval is not None and not n.op.view and n.op not in STRUCTURAL]


def bytes_moved(node: Node) -> int:
    """Bytes of the operands and results of a node whose types are known."""
    return nbytes(node.type) + sum(nbytes(i.type) for i in node.inputs)


def flops(node: Node) -> int:
    """Arithmetic operations of a node whose types are known; see the module's text for what counts."""
    if node.op.function_attrs:
        bodies = [v for v in node.attrs if isinstance(v, Function)]
        per_element = all(isinstance(p.type, TensorType) and p.type.dims == () for p in bodies[0].params)
        return _of_body(bodies[0]) * (_size(node.inputs[0]) if per_element and node.inputs else 1)
    if node.op.elementwise and node.op.kernel is not None:
        return _primitives(node.op, node.attrs) * _size(node)
    return 0 if node.op.flops is None else node.op.flops([i.type for i in node.inputs], node.type, *node.attrs)


_KNOWN: WeakKeyDictionary[Function, int] = WeakKeyDictionary()
"""What bodies do: many kernels of a program have equal ones, and reports ask for each several times."""


def _of_body(body: Function) -> int:
    """Arithmetic operations of one call of a body."""
    if (known := _KNOWN.get(body)) is None:
        runs = node_times(body) if any(n.op is LOOP_END for n in body.nodes) else {}
        known = _KNOWN[body] = sum(flops(n) * runs.get(n, ONCE).count for n in body.nodes)
    return known


@lru_cache(maxsize=4096)
def _primitives(op: Op, attrs: tuple[Any, ...]) -> int:
    """The primitives of an elementwise kernel."""
    found: set[Apply] = set()
    stack: list[Expr | None] = [op.kernel(*attrs)] if op.kernel is not None else []
    while stack:
        e = stack.pop()
        if isinstance(e, Apply) and e not in found:
            found.add(e)
            stack.extend(e.args)
    return len(found)


def _size(node: Node) -> int:
    return sum(t.size for t in leaves(node.type) if isinstance(t, TensorType))
