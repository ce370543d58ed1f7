"""Recurrent networks: LSTM, GRU and plain ones, in layers and both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.elements import part_of
from deepx_graph.text.common.recurrence import Cell, against, gates_of, over_rows, over_time, turned
from deepx_graph.text.torch.context import CallContext, Rule, Rules
from deepx_graph.types import as_tensor

MakeCell = Callable[[CallContext, Node, Node | None], Cell]
"""`make(c, weight of the state, its bias)`: the cell."""


def _with_bias(c: CallContext, x: Node, bias: Node | None) -> Node:
    return x if bias is None else c(ops.add, x, over_rows(c, bias, x))


def _lstm_cell(c: CallContext, weight: Node, bias: Node | None) -> Cell:
    def cell(given: Node, state: Sequence[Node]) -> Sequence[Node]:
        hidden, held = state
        i, f, g, o = gates_of(c, _with_bias(c, c(ops.add, given, against(c, hidden, weight)), bias), 4)
        held = c(ops.add, c(ops.multiply, c(ops.logistic, f), held), c(ops.multiply, c(ops.logistic, i), c(ops.tanh, g)))
        return [c(ops.multiply, c(ops.logistic, o), c(ops.tanh, held)), held]

    return cell


def _projected(c: CallContext, cell: Cell, weight: Node) -> Cell:
    """The cell with its first state, which is given out, times a matrix."""
    def smaller(given: Node, state: Sequence[Node]) -> Sequence[Node]:
        hidden, *others = cell(given, state)
        return [against(c, hidden, weight), *others]

    return smaller


def _gru_cell(c: CallContext, weight: Node, bias: Node | None) -> Cell:
    def cell(given: Node, state: Sequence[Node]) -> Sequence[Node]:
        hidden = state[0]
        parts = gates_of(c, _with_bias(c, against(c, hidden, weight), bias), 3)
        fresh = gates_of(c, given, 3)
        reset, update = (c(ops.logistic, c(ops.add, a, b)) for a, b in zip(fresh[:2], parts[:2], strict=True))
        new = c(ops.tanh, c(ops.add, fresh[2], c(ops.multiply, reset, parts[2])))
        return [c(ops.add, new, c(ops.multiply, update, c(ops.subtract, hidden, new)))]

    return cell


def _plain_cell(activation: Callable[[CallContext, Node], Node]) -> MakeCell:
    def make(c: CallContext, weight: Node, bias: Node | None) -> Cell:
        return lambda given, state: [activation(c, _with_bias(c, c(ops.add, given, against(c, state[0], weight)), bias))]

    return make


def _layers(make: MakeCell, states: int) -> Rule:
    """The outputs of the last layer, and of each state the last values of all layers and directions."""

    def build(c: CallContext) -> list[Node]:
        x = c.node(0)
        inits = list(c.nodes(1)) if states > 1 else [c.node(1)]
        weights, biased = c.nodes("params"), c.flag("has_biases")
        layers, both, front = c.number("num_layers"), c.flag("bidirectional"), c.flag("batch_first")
        count = layers * (2 if both else 1)
        per = (4 if biased else 2) + (states > 1 and len(weights) == count * (5 if biased else 3))  # one more projects the state
        if len(weights) != count * per or len(c.dims_of(x)) not in (2, 3):
            raise InferError(f"{len(weights)} weights of {count} layers and directions", expected=f"{count * per}")
        single = len(c.dims_of(x)) == 2
        if single:
            x, inits = c.add_axes(x, (1,)), [c.add_axes(s, (1,)) for s in inits]
        elif front:
            x = c.transposed(x, (1, 0, 2))
        lasts: list[list[Node]] = [[] for _ in inits]
        for layer in range(layers):
            outs = []
            for d in range(2 if both else 1):
                k = layer * (2 if both else 1) + d
                out, ends = _direction(c, make, x, [_at(c, s, k) for s in inits], weights[k * per : (k + 1) * per], biased, bool(d))
                outs.append(out)
                for pile, end in zip(lasts, ends, strict=True):
                    pile.append(c.add_axes(end, (0,)))
            x = c(ops.concatenate, *outs, dimension=2) if both else outs[0]
        ends = [c(ops.concatenate, *pile, dimension=0) if len(pile) > 1 else pile[0] for pile in lasts]
        if single:
            return [c.shaped(v, [d for k, d in enumerate(c.shape_of(v)) if k != 1]) for v in (x, *ends)]
        return [c.transposed(x, (1, 0, 2)) if front else x, *ends]

    return build


def _at(c: CallContext, x: Node, k: int) -> Node:
    return c.shaped(part_of(c, x, 0, k, k + 1), c.shape_of(x)[1:])


def _direction(c: CallContext, make: MakeCell, x: Node, inits: Sequence[Node], weights: Sequence[Node], biased: bool,
               backwards: bool) -> tuple[Node, Sequence[Node]]:
    """One layer in one direction: products with the inputs of all steps at once, then a loop over time."""
    line = turned(c, x, None) if backwards else x
    given = _with_bias(c, against(c, line, weights[0]), weights[2] if biased else None)
    time, batch, _ = c.shape_of(x)
    size = c.shape_of(inits[0])[1]
    cell = make(c, weights[1], weights[3] if biased else None)
    cell = _projected(c, cell, weights[-1]) if len(weights) % 2 else cell
    if time == 0:
        return c.full(0, as_tensor(x.type).with_dims((0, batch, size))), inits
    out, *ends = over_time(c, cell, given, inits, None, (time, batch, size))
    return turned(c, out, None) if backwards else out, ends


def _cell(make: MakeCell, states: int) -> Rule:
    """One step: lstm_cell, gru_cell, rnn_tanh_cell."""

    def build(c: CallContext) -> list[Node]:
        inits = list(c.nodes(1)) if states > 1 else [c.node(1)]
        given = _with_bias(c, against(c, c.node(0), c.node("w_ih")), c.optional("b_ih"))
        return list(make(c, c.node("w_hh"), c.optional("b_hh"))(given, inits))

    return build


_TANH = _plain_cell(lambda c, x: c(ops.tanh, x))
_RELU = _plain_cell(lambda c, x: c(ops.maximum, x, c.like(0, x)))

RECURRENT: Rules = {
    "lstm.input": _layers(_lstm_cell, 2), "gru.input": _layers(_gru_cell, 1), "rnn_tanh.input": _layers(_TANH, 1),
    "rnn_relu.input": _layers(_RELU, 1), "lstm_cell": _cell(_lstm_cell, 2), "gru_cell": _cell(_gru_cell, 1),
    "rnn_tanh_cell": _cell(_TANH, 1), "rnn_relu_cell": _cell(_RELU, 1),
}  # fmt: skip
