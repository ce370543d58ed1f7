"""Recurrent networks, with explicit parameters: a cell that goes over time in one loop, and what its rules are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph import ops
from deepx_graph.ir import Node
from deepx_graph.text.common.elements import along_axis, part_of
from deepx_graph.text.common.known_steps import KnownSteps
from deepx_graph.types import I64

Cell = Callable[[Node, Sequence[Node]], Sequence[Node]]
"""`cell(inputs of the gates, states)`: the new states; the first is what is given out."""


def gates_of(c: KnownSteps, x: Node, count: int) -> list[Node]:
    """The parts of [batch, count * size]."""
    size = c.shape_of(x)[1] // count
    return [part_of(c, x, 1, k * size, (k + 1) * size) for k in range(count)]


def against(c: KnownSteps, x: Node, w: Node) -> Node:
    """x times the transpose of w."""
    rank = len(c.dims_of(x))
    return c(ops.dot_general, x, w, lhs_contracting_dimensions=(rank - 1,), rhs_contracting_dimensions=(1,))


def over_rows(c: KnownSteps, bias: Node, x: Node) -> Node:
    dims = c.dims_of(x)
    return c.along(bias, dims, (len(dims) - 1,))


def turned(c: KnownSteps, x: Node, lengths: Node | None) -> Node:
    """Time backwards; of sequences of several lengths each within its own."""
    if lengths is None:
        return c(ops.reverse, x, dimensions=(0,))
    dims = c.shape_of(x)
    places, ends = c.indices(I64, dims, 0), c.along(lengths, dims, (1,))
    back = c(ops.subtract, c(ops.subtract, ends, c.like(1, ends)), places)
    return along_axis(c, x, c(ops.select, c(ops.compare, places, ends, direction="LT"), back, places), 0)


def over_time(c: KnownSteps, cell: Cell, given: Node, inits: Sequence[Node], lengths: Node | None,
               shape: tuple[int, int, int]) -> Sequence[Node]:
    """What the cell gives at each step, zero past the end of a sequence, and the last states."""
    time, batch, size = shape
    width = c.shape_of(given)[2]
    pile = c.full(0, c.type_of(inits[0]).with_dims(shape))
    zero = c.scalar(0, I64)

    def step(now: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        place, piled, *state = now
        row = c.shaped(c(ops.dynamic_slice, given, place, zero, zero, slice_sizes=(1, batch, width)), (batch, width))
        new = list(cell(row, state))
        out = new[0]
        if lengths is not None:
            running = c(ops.compare, c.along(place, (batch,), ()), lengths, direction="LT")
            within = c.along(running, (batch, size), (0,))
            new = [c(ops.select, within, n, s) for n, s in zip(new, state, strict=True)]
            out = c(ops.select, within, out, c.full(0, c.type_of(out)))
        piled = c(ops.dynamic_update_slice, piled, c.add_axes(out, (0,)), place, zero, zero)
        return c(ops.compare, place, c.scalar(time, I64), direction="LT"), [c(ops.add, place, c.scalar(1, I64)), piled, *new]

    return c.b.loop([zero, pile, *inits], step)[1:]
