"""If, Loop and Scan. Their graphs see the names around them.

A loop whose values keep their types becomes a loop of the graph. One whose shapes change from iteration to iteration, whose values
are sequences or whose body has to know which iteration it is, is unrolled, where what it depends on is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph import ops
from deepx_graph.errors import InferError, LimitError, VerifyError
from deepx_graph.ir import Node
from deepx_graph.ops.known import NotKnown
from deepx_graph.text.common.elements import part_of
from deepx_graph.text.common.steps import axis_of
from deepx_graph.text.onnx.context import NodeContext, Rules, Value
from deepx_graph.text.onnx.schema import GraphProto
from deepx_graph.types import BOOL, I64, TupleType, is_static

MOST = 1 << 12
"""Iterations of a loop that is unrolled."""


def _if(c: NodeContext) -> Sequence[Value]:
    """The branch that is taken; both where that is not known, if they give values of the same types."""
    condition = c.shaped(c.node(), ())
    branches = [c.graph("then_branch"), c.graph("else_branch")]
    known = c.lowering.known(condition)
    if known is not None:
        return c.body(branches[0 if bool(known) else 1], ())
    with c.lowering.complete():
        found = [c.body(b, ()) for b in branches]
    alike = all(isinstance(x, Node) and isinstance(y, Node) and x.type == y.type and not isinstance(x.type, TupleType)
                for x, y in zip(*found, strict=True))
    if not alike:
        raise NotKnown("the branches give values of different types, and which one is taken is not known")
    return c.b.branch(condition, *found)


# --- loops ----------------------------------------------------------------------------------------------------------


def _loop(c: NodeContext) -> Sequence[Value]:
    body, state = c.graph("body"), [c.inputs[k] for k in range(2, len(c.inputs))]
    width = len(state)
    if len(body.inputs) != width + 2 or len(body.outputs) < width + 1:
        raise InferError(f"a body of {len(body.inputs)} inputs and {len(body.outputs)} outputs", expected=f"{width + 2} inputs")
    most = c.lowering.known(c.shaped(c.node(0), ())) if c.has(0) else None
    if c.has(0) and most is None and len(body.outputs) > width + 1:
        raise NotKnown("how often the loop runs is not known")
    limit = None if most is None else int(most)
    condition = c.shaped(c.node(1), ()) if c.has(1) else c.scalar(True, BOOL)
    found = _attempt(lambda: _graph_loop(c, body, state, limit, condition))
    return found if found is not None else _unrolled(c, body, state, limit, condition)


def _attempt(build: Callable[[], Any]) -> Any:
    """What is built; None where its types do not stay the same or something in it must be known."""
    try:
        return build()
    except (NotKnown, VerifyError):
        return None


def _graph_loop(c: NodeContext, body: GraphProto, state: Sequence[Value], limit: int | None,
                condition: Node) -> Sequence[Value] | None:
    """As a loop of the graph; None where it is none."""
    if not all(isinstance(s, Node) and is_static(s.type) and not isinstance(s.type, TupleType) for s in state):
        return None
    stacked = len(body.outputs) - len(state) - 1
    first = c.lowering.known(condition)
    fits = True
    with c.lowering.complete():
        if stacked:
            if limit is None or first is None or not _keeps_true(c, body, state):
                return None
            if not bool(first):
                limit = 0
            buffers = [c.full(0, c.type_of(x).with_dims((limit, *c.shape_of(x)))) for x in _first(c, body, state)[1 + len(state) :]]
        else:
            buffers = []
        inits = [c.scalar(0, I64), condition, *state, *buffers]
        bound = None if limit is None and not c.has(0) else c.scalar(limit, I64) if limit is not None else c.shaped(c.node(0), ())

        def step(now: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            nonlocal fits
            place, going, *rest = now
            values, piles = rest[: len(state)], rest[len(state) :]
            found = c.body(body, [place, going, *values])
            after = c.shaped(found[0], ())
            nexts = found[1 : 1 + len(state)]
            fits = all(isinstance(n, Node) and n.type == s.type for n, s in zip(nexts, state, strict=True))
            if not fits:
                raise NotKnown("the types of the values of a loop change")
            piled = [put(c, pile, x, place, 0) for pile, x in zip(piles, found[1 + len(state) :], strict=True)]
            within = going if bound is None else c(ops.and_, going, c(ops.compare, place, bound, direction="LT"))
            return within, [c(ops.add, place, c.scalar(1, I64)), after, *nexts, *piled]

        return c.b.loop(inits, step)[2:]


def _first(c: NodeContext, body: GraphProto, state: Sequence[Value]) -> list[Value]:
    """What the body gives in the first iteration: its types."""
    return c.body(body, [c.scalar(0, I64), c.scalar(True, BOOL), *state])


def _keeps_true(c: NodeContext, body: GraphProto, state: Sequence[Value]) -> bool:
    """Whether the condition that the body gives is true whenever the one that it gets is."""
    found = c.lowering.known(_first(c, body, state)[0])
    passed = bool(body.inputs) and body.outputs[0].name == body.inputs[1].name
    giver = next((n for n in body.nodes if body.outputs[0].name in n.outputs), None)
    through = giver is not None and giver.op_type == "Identity" and giver.inputs == [body.inputs[1].name]
    fixed = through or (giver is not None and giver.op_type == "Constant")
    return found is not None and bool(found) and (passed or fixed)


def put(c: NodeContext, pile: Node, x: Node, place: Node, axis: int) -> Node:
    """A slice of a larger tensor replaced."""
    rank = len(c.dims_of(pile))
    starts = [place if k == axis else c.scalar(0, I64) for k in range(rank)]
    return c(ops.dynamic_update_slice, pile, c.add_axes(x, (axis,)), *starts)


def _unrolled(c: NodeContext, body: GraphProto, state: Sequence[Value], limit: int | None, condition: Node) -> Sequence[Value]:
    """Iteration by iteration, while the condition is known to be true."""
    values: list[Value] = list(state)
    piles: list[list[Node]] = [[] for _ in range(len(body.outputs) - len(state) - 1)]
    going, k = condition, 0
    if limit is None and c.has(0):
        raise NotKnown("how often the loop runs is not known")
    shapes: list[Any] = []
    with c.lowering.complete():
        while (limit is None or k < limit) and bool(c.known(going)):
            if k >= MOST:
                raise LimitError(f"a loop of more than {MOST} iterations is unrolled")
            found = c.body(body, [c.scalar(k, I64), going, *values])
            going, values = c.shaped(found[0], ()), list(found[1 : 1 + len(state)])
            for pile, x in zip(piles, found[1 + len(state) :], strict=True):
                pile.append(c.add_axes(x, (0,)))
            k += 1
        if not k and piles:
            shapes = [c.full(0, c.type_of(x).with_dims((0, *c.shape_of(x)))) for x in _first(c, body, state)[1 + len(state) :]]
    made = [c(ops.concatenate, *pile, dimension=0) if len(pile) > 1 else pile[0] for pile in piles] if k else shapes
    return [*values, *made]


# --- Scan -----------------------------------------------------------------------------------------------------------


def _scan(c: NodeContext) -> Sequence[Value]:
    """State goes through slices of the inputs; what the body gives beside it is stacked."""
    body, number = c.graph("body"), c.number("num_scan_inputs")
    inputs = c.nodes()
    width = len(inputs) - number
    if number < 1 or width < 0 or len(body.inputs) != len(inputs) or len(body.outputs) < width:
        raise InferError(f"a body of {len(body.inputs)} inputs and {number} scanned", expected=f"{len(inputs)} operands")
    state, scanned = inputs[:width], inputs[width:]
    count = len(body.outputs) - width
    in_axes = [axis_of(a, len(c.dims_of(x))) for a, x in zip(c.ints("scan_input_axes", (0,) * number), scanned, strict=True)]
    lengths = {c.shape_of(x)[a] for x, a in zip(scanned, in_axes, strict=True)}
    if len(lengths) != 1:
        raise InferError(f"inputs of {' and '.join(map(str, sorted(lengths)))} slices", expected="equally many")
    (length,) = lengths
    backwards = c.ints("scan_input_directions", (0,) * number)
    sides, out_axes = c.ints("scan_output_directions", (0,) * count), c.ints("scan_output_axes", (0,) * count)
    with c.lowering.complete():
        firsts = [_slice_at(c, x, c.scalar(0, I64), a) for x, a in zip(scanned, in_axes, strict=True)]
        shapes = c.body(body, [*state, *firsts])
        if any(n.type != s.type for n, s in zip(shapes, state, strict=False)):
            raise InferError("the types of the state change", expected="the same types after each step")
        axes = [axis_of(a, len(c.dims_of(x)) + 1) for a, x in zip(out_axes, shapes[width:], strict=True)]
        piles = []
        for x, a in zip(shapes[width:], axes, strict=True):
            dims = list(c.shape_of(x))
            piles.append(c.full(0, c.type_of(x).with_dims((*dims[:a], length, *dims[a:]))))

        def step(now: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
            place, *rest = now
            last = c(ops.subtract, c.scalar(length - 1, I64), place)
            slices = [_slice_at(c, x, last if back else place, a) for x, a, back in zip(scanned, in_axes, backwards, strict=True)]
            found = c.body(body, [*rest[:width], *slices])
            piled = [put(c, pile, x, last if back else place, a)
                     for pile, x, a, back in zip(rest[width:], found[width:], axes, sides, strict=True)]
            going = c(ops.compare, place, c.scalar(length, I64), direction="LT")
            return going, [c(ops.add, place, c.scalar(1, I64)), *found[:width], *piled]

        return c.b.loop([c.scalar(0, I64), *state, *piles], step)[1:]


def _slice_at(c: NodeContext, x: Node, place: Node, axis: int) -> Node:
    """The slice at a place along an axis, without the axis."""
    shape = c.shape_of(x)
    starts = [place if k == axis else c.scalar(0, I64) for k in range(len(shape))]
    sizes = tuple(1 if k == axis else d for k, d in enumerate(shape))
    return c.shaped(c(ops.dynamic_slice, x, *starts, slice_sizes=sizes), [d for k, d in enumerate(shape) if k != axis])


def _scan_batched(c: NodeContext) -> Sequence[Value]:
    """As version 8 has it: an axis of batches around all, each scanned by itself, all of the same length."""
    if c.has(0):
        raise InferError("sequence_lens is not supported", expected="sequences of one length")
    inputs = [c.node(k) for k in range(1, len(c.inputs))]
    batch = c.shape_of(inputs[0])[0]
    rows = []
    for k in range(batch):
        cut = [part_of(c, x, 0, k, k + 1) for x in inputs]
        attrs = {**c.attrs, "scan_input_directions": c.ints("directions", (0,) * c.number("num_scan_inputs"))}
        single = NodeContext(c.lowering, c.message, [c.shaped(x, c.dims_of(x)[1:]) for x in cut], attrs, c.version)
        rows.append([c.add_axes(x, (0,)) for x in _scan(single)])
    return [c(ops.concatenate, *(row[j] for row in rows), dimension=0) if batch > 1 else rows[0][j] for j in range(len(rows[0]))]


CONTROL: Rules = {"If": _if, "Loop": _loop, "Scan": {8: _scan_batched, 9: _scan}}
