"""Operators of higher order: cond, while_loop, scan, map, associative_scan, and those that only wrap a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.ops.known import NotKnown
from deepx_graph.text.common.elements import part_of
from deepx_graph.text.common.steps import Unsupported
from deepx_graph.text.torch.context import CallContext, Rules, SymbolicNumber, Value
from deepx_graph.text.torch.schema import NestedGraph
from deepx_graph.types import BOOL, I64, as_tensor


def _list(value: Value) -> list[Value]:
    return list(value) if isinstance(value, tuple) else [] if value is None else [value]


def _nodes(c: CallContext, values: Sequence[Value]) -> list[Node]:
    return [c.lowering.node_of(v) for v in values]


def _cond(c: CallContext) -> Sequence[Value]:
    condition, operands = c.get(0), _list(c.get(3))
    graphs = [c.graph(1), c.graph(2)]
    if isinstance(condition, bool):
        return c.body(graphs[0 if condition else 1], operands)
    hit = c.to(c.shaped(c.node(0), ()), BOOL)
    known = c.values(hit)
    if known is not None:
        return c.body(graphs[0 if bool(known) else 1], operands)
    found = [_nodes(c, c.body(g, operands)) for g in graphs]
    if any(x.type != y.type for x, y in zip(*found, strict=True)):
        raise NotKnown("the branches give values of different types, and which one is taken is not known")
    return c.b.branch(hit, *found)


def _while(c: CallContext) -> Sequence[Value]:
    test, body = c.graph(0), c.graph(1)
    state, more = _list(c.get(2)), _list(c.get(3))
    numbers = [isinstance(v, (int, SymbolicNumber)) for v in state]

    def step(now: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        values = [SymbolicNumber(v) if n else v for v, n in zip(now, numbers, strict=True)]
        going = c.lowering.node_of(c.body(test, [*values, *more])[0])
        nexts = _nodes(c, c.body(body, [*values, *more]))
        if any(n.type != v.type for n, v in zip(nexts, now, strict=True)):
            raise InferError("the types of the values of a loop change", expected="the same types after each iteration")
        return c.to(c.shaped(going, ()), BOOL), nexts

    return c.b.loop(_nodes(c, state), step)


# --- over slices ----------------------------------------------------------------------------------------------------


def slice_at(c: CallContext, x: Node, place: Node) -> Node:
    """The slice of that number along the first axis, without the axis."""
    shape = c.shape_of(x)
    starts = [place, *(c.scalar(0, I64) for _ in shape[1:])]
    return c.shaped(c(ops.dynamic_slice, x, *starts, slice_sizes=(1, *shape[1:])), shape[1:])


def put_at(c: CallContext, pile: Node, x: Node, place: Node) -> Node:
    starts = [place, *(c.scalar(0, I64) for _ in c.shape_of(x))]
    return c(ops.dynamic_update_slice, pile, c.add_axes(x, (0,)), *starts)


def scanned(c: CallContext, graph: NestedGraph, init: Sequence[Node], xs: Sequence[Node], more: Sequence[Value]) -> list[Node]:
    """State goes through slices along the first axis; what the graph gives beside it is stacked."""
    lengths = {c.shape_of(x)[0] for x in xs}
    if len(lengths) != 1:
        raise InferError(f"inputs of {' and '.join(map(str, sorted(lengths)))} slices", expected="equally many, and one input")
    (length,) = lengths
    zero = c.scalar(0, I64)
    first = _nodes(c, c.body(graph, [*init, *(slice_at(c, x, zero) for x in xs), *more]))
    piles = [c.full(0, as_tensor(v.type).with_dims((length, *c.shape_of(v)))) for v in first[len(init) :]]

    def step(now: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        place, *rest = now
        state, held = rest[: len(init)], rest[len(init) :]
        found = _nodes(c, c.body(graph, [*state, *(slice_at(c, x, place) for x in xs), *more]))
        piled = [put_at(c, p, v, place) for p, v in zip(held, found[len(init) :], strict=True)]
        going = c(ops.compare, place, c.scalar(length, I64), direction="LT")
        return going, [c(ops.add, place, c.scalar(1, I64)), *found[: len(init)], *piled]

    return list(c.b.loop([zero, *init, *piles], step)[1:])


def _scan(c: CallContext) -> list[Node]:
    return scanned(c, c.graph(0), _nodes(c, _list(c.get(1))), _nodes(c, _list(c.get(2))), _list(c.get(3)))


def _map(c: CallContext) -> list[Node]:
    return scanned(c, c.graph(0), [], _nodes(c, _list(c.get(1))), _list(c.get(2)))


def _associative_scan(c: CallContext) -> list[Node]:
    """Running results of a function of two slices, one after the other. The graph takes slices, or all of them at once."""
    graph, xs, more = c.graph(0), _nodes(c, _list(c.get(1))), _list(c.get(2))
    firsts = [c.shaped(part_of(c, x, 0, 0, 1), c.shape_of(x)[1:]) for x in xs]
    length = c.shape_of(xs[0])[0]
    piles = [c.full(0, as_tensor(x.type)) for x in xs]
    zero = c.scalar(0, I64)
    piles = [put_at(c, p, v, zero) for p, v in zip(piles, firsts, strict=True)]

    def step(now: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        place, *rest = now
        state, held = rest[: len(xs)], rest[len(xs) :]
        found = _nodes(c, c.body(graph, [*state, *(slice_at(c, x, place) for x in xs), *more]))
        piled = [put_at(c, p, v, place) for p, v in zip(held, found, strict=True)]
        going = c(ops.compare, place, c.scalar(length, I64), direction="LT")
        return going, [c(ops.add, place, c.scalar(1, I64)), *found, *piled]

    return list(c.b.loop([c.scalar(1, I64), *firsts, *piles], step)[1 + len(xs) :])


# --- wrappers -------------------------------------------------------------------------------------------------------


def _wrapped(c: CallContext) -> Sequence[Value]:
    """A graph with settings before it and operands behind it: its results."""
    at = next((k for k, v in enumerate(c.positional) if isinstance(v, NestedGraph)), None)
    if at is None:
        raise InferError("there is no graph among the arguments")
    graph: NestedGraph = c.positional[at]
    operands: list[Any] = [v for v in c.positional[at + 1 :] if not isinstance(v, str)]
    return c.body(graph, operands)


CHECKS = frozenset(("aten._linalg_check_errors", "aten._assert_async", "aten._assert_scalar", "aten._assert_tensor_metadata"))
"""Operators with effects that check what torch has made sure of."""


def _with_effects(c: CallContext) -> list[Value]:
    """A call that waits for a token and gives one. Checks give nothing beside it; other effects are not known."""
    if ".".join(c.text(1).removeprefix("torch.ops.").split(".")[:2]) not in CHECKS:
        raise Unsupported(f"the effects of {c.text(1)}")
    return [c.get(0)] + [None] * (len(c.call.outputs) - 1)


CONTROL: Rules = {
    f"higher_order.{name}": rule for name, rule in {
        "cond": _cond, "while_loop": _while, "scan": _scan, "map_impl": _map, "map": _map, "associative_scan": _associative_scan,
        "with_effects": _with_effects,
        **dict.fromkeys(("wrap_with_set_grad_enabled", "wrap_with_autocast", "invoke_subgraph", "wrap", "hints_wrapper",
                         "tag_activation_checkpoint", "wrap_activation_checkpoint", "checkpoint"), _wrapped),
    }.items()
}  # fmt: skip
