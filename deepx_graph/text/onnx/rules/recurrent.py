"""RNN, LSTM and GRU: one loop over time for each direction; products with the inputs are done for all steps at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.activations import hard_sigmoid_of, softplus_of
from deepx_graph.text.common.elements import part_of
from deepx_graph.text.common.recurrence import Cell, against, gates_of, over_rows, over_time, turned
from deepx_graph.text.onnx.context import NodeContext, Rules
from deepx_graph.types import I64

Activation = Callable[[NodeContext, Node], Node]
_ALPHA = {"LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "Elu": 1.0, "HardSigmoid": 0.2, "Affine": 1.0, "ScaledTanh": 1.0}
_BETA = {"HardSigmoid": 0.5, "Affine": 0.0, "ScaledTanh": 1.0}


def _below(c: NodeContext, x: Node, most: float, yes: Node, no: Node) -> Node:
    return c(ops.select, c(ops.compare, x, c.like(most, x), direction="LT"), yes, no)


def _times(c: NodeContext, x: Node, a: float) -> Node:
    return c(ops.multiply, x, c.like(a, x))


_FUNCTIONS: dict[str, Callable[[NodeContext, Node, float, float], Node]] = {
    "Relu": lambda c, x, a, b: c(ops.maximum, x, c.like(0, x)),
    "Tanh": lambda c, x, a, b: c(ops.tanh, x),
    "Sigmoid": lambda c, x, a, b: c(ops.logistic, x),
    "Affine": lambda c, x, a, b: c(ops.add, _times(c, x, a), c.like(b, x)),
    "LeakyRelu": lambda c, x, a, b: _below(c, x, 0, _times(c, x, a), x),
    "ThresholdedRelu": lambda c, x, a, b: _below(c, x, a, c.full(0, c.type_of(x)), x),
    "ScaledTanh": lambda c, x, a, b: _times(c, c(ops.tanh, _times(c, x, b)), a),
    "HardSigmoid": lambda c, x, a, b: hard_sigmoid_of(c, x, a, b),
    "Elu": lambda c, x, a, b: _below(c, x, 0, _times(c, c(ops.exponential_minus_one, x), a), x),
    "Softsign": lambda c, x, a, b: c(ops.divide, x, c(ops.add, c(ops.abs_, x), c.like(1, x))),
    "Softplus": lambda c, x, a, b: softplus_of(c, x),
}  # fmt: skip


def activations(c: NodeContext, default: Sequence[str], directions: int) -> list[list[Activation]]:
    """The activations of each direction; their parameters are taken from two lists in order, by those that have any."""
    names = [n[:1].upper() + n[1:] for n in c.texts("activations", tuple(default) * directions)]
    known = {n.lower(): n for n in _FUNCTIONS}
    if len(names) != len(default) * directions or any(n.lower() not in known for n in names):
        raise InferError(f"activations {names}", expected=f"{len(default) * directions} of {' '.join(_FUNCTIONS)}")
    alphas, betas = iter(c.reals("activation_alpha", ())), iter(c.reals("activation_beta", ()))
    most = c.real("clip", 0.0)
    made = []
    for name in (known[n.lower()] for n in names):
        a = next(alphas, _ALPHA[name]) if name in _ALPHA else 0.0
        b = next(betas, _BETA[name]) if name in _BETA else 0.0
        made.append(_clipped(_FUNCTIONS[name], a, b, most))
    width = len(default)
    return [made[k * width : (k + 1) * width] for k in range(directions)]


def _clipped(function: Callable[..., Node], a: float, b: float, most: float) -> Activation:
    def build(c: NodeContext, x: Node) -> Node:
        held = c(ops.clamp, c.like(-most, x), x, c.like(most, x)) if most else x
        return function(c, held, a, b)

    return build


# --- cells ----------------------------------------------------------------------------------------------------------


def _rnn_cell(c: NodeContext, f: Sequence[Activation], r: Node, bias: Node, extra: Any) -> Cell:
    def cell(given: Node, state: Sequence[Node]) -> Sequence[Node]:
        total = c(ops.add, given, against(c, state[0], r))
        return [f[0](c, c(ops.add, total, over_rows(c, bias, total)))]

    return cell


def _gru_cell(c: NodeContext, f: Sequence[Activation], r: Node, bias: Node, extra: Any) -> Cell:
    """Gates z r h; the bias of the hidden gate is inside the reset where `linear_before_reset` asks for it."""
    size = c.shape_of(r)[1]
    gates, hidden = part_of(c, r, 0, 0, 2 * size), part_of(c, r, 0, 2 * size, 3 * size)
    outer, inner = part_of(c, bias, 0, 0, 2 * size), part_of(c, bias, 0, 2 * size, 3 * size)

    def cell(given: Node, state: Sequence[Node]) -> Sequence[Node]:
        h = state[0]
        total = c(ops.add, part_of(c, given, 1, 0, 2 * size), against(c, h, gates))
        z, reset = (f[0](c, g) for g in gates_of(c, c(ops.add, total, over_rows(c, outer, total)), 2))
        fresh = part_of(c, given, 1, 2 * size, 3 * size)
        if c.flag("linear_before_reset"):
            back = against(c, h, hidden)
            back = c(ops.multiply, reset, c(ops.add, back, over_rows(c, inner, back)))
        else:
            back = against(c, c(ops.multiply, reset, h), hidden)
            back = c(ops.add, back, over_rows(c, inner, back))
        new = f[1](c, c(ops.add, fresh, back))
        return [c(ops.add, c(ops.multiply, c(ops.subtract, c.like(1, z), z), new), c(ops.multiply, z, h))]

    return cell


def _lstm_cell(c: NodeContext, f: Sequence[Activation], r: Node, bias: Node, extra: Node | None) -> Cell:
    """Gates i o f c; peepholes let i and f see the old cell, and o the new one."""
    size = c.shape_of(r)[1]
    peepholes = None if extra is None else [part_of(c, extra, 0, k * size, (k + 1) * size) for k in range(3)]

    def peep(x: Node, seen: Node, k: int) -> Node:
        return x if peepholes is None else c(ops.add, x, c(ops.multiply, over_rows(c, peepholes[k], seen), seen))

    def cell(given: Node, state: Sequence[Node]) -> Sequence[Node]:
        h, old = state
        total = c(ops.add, given, against(c, h, r))
        i, o, forget, new = gates_of(c, c(ops.add, total, over_rows(c, bias, total)), 4)
        i = f[0](c, peep(i, old, 0))
        forget = c(ops.subtract, c.like(1, i), i) if c.flag("input_forget") else f[0](c, peep(forget, old, 2))
        held = c(ops.add, c(ops.multiply, forget, old), c(ops.multiply, i, f[1](c, new)))
        o = f[0](c, peep(o, held, 1))
        return [c(ops.multiply, o, f[2](c, held)), held]

    return cell


# --- over time ------------------------------------------------------------------------------------------------------


def _recurrent(make: Callable[..., Cell], gates: int, default: Sequence[str], states: int) -> Callable[[NodeContext], list[Node]]:
    def build(c: NodeContext) -> list[Node]:
        direction = c.one_of("direction", "forward", "forward", "reverse", "bidirectional")
        count = 2 if direction == "bidirectional" else 1
        batched = c.flag("layout")
        x = c.transposed(c.node(), (1, 0, 2)) if batched else c.node()
        time, batch, _ = c.shape_of(x)
        size = c.shape(2)[2]
        if c.shape(1)[:2] != (count, gates * size) or c.shape(2) != (count, gates * size, size):
            raise InferError(f"weights {c.type(1)} and {c.type(2)}", expected=f"[{count}, {gates} * hidden, ...]")
        lengths = c.cast(c.node(4), I64) if c.has(4) else None
        functions = activations(c, default, count)
        outs, lasts = [], []
        for d in range(count):
            backwards = direction == "reverse" or d == 1
            own = [_own(c, k, d) for k in (1, 2)]
            bias = _own(c, 3, d) if c.has(3) else c.full(0, c.type().with_dims((2 * gates * size,)))
            half = gates * size
            peepholes = _own(c, 7, d) if states == 2 and c.has(7) else None
            cell = make(c, functions[d], own[1], part_of(c, bias, 0, half, 2 * half), peepholes)
            inits = [_initial(c, 5 + k, d, batched, (batch, size)) for k in range(states)]
            line = turned(c, x, lengths) if backwards else x
            given = against(c, line, own[0])
            given = c(ops.add, given, over_rows(c, part_of(c, bias, 0, 0, half), given))
            out, *last = over_time(c, cell, given, inits, lengths, (time, batch, size))
            outs.append(c.add_axes(turned(c, out, lengths) if backwards else out, (1,)))
            lasts.append(last)
        axis_of_directions = 1 if batched else 0
        ends = [_joined(c, [c.add_axes(row[k], (axis_of_directions,)) for row in lasts], axis_of_directions) for k in range(states)]
        whole = _joined(c, outs, 1)
        return [c.transposed(whole, (2, 0, 1, 3)) if batched else whole, *ends]

    return build


def _own(c: NodeContext, k: int, d: int) -> Node:
    """What operand k has for direction d."""
    return c.shaped(part_of(c, c.node(k), 0, d, d + 1), c.shape(k)[1:])


def _initial(c: NodeContext, k: int, d: int, batched: bool, shape: tuple[int, int]) -> Node:
    if not c.has(k):
        return c.full(0, c.type().with_dims(shape))
    return c.shaped(part_of(c, c.node(k), 1 if batched else 0, d, d + 1), shape)


def _joined(c: NodeContext, parts: Sequence[Node], axis: int) -> Node:
    return c(ops.concatenate, *parts, dimension=axis) if len(parts) > 1 else parts[0]


RECURRENT: Rules = {
    "RNN": _recurrent(_rnn_cell, 1, ("Tanh",), 1), "GRU": _recurrent(_gru_cell, 3, ("Sigmoid", "Tanh"), 1),
    "LSTM": _recurrent(_lstm_cell, 4, ("Sigmoid", "Tanh", "Tanh"), 2),
}  # fmt: skip
