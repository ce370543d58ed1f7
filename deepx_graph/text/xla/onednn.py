"""Custom calls to oneDNN, as XLA compiles softmax, normalisation and matrix products for CPU in some of its builds.

Source: openxla/xla, xla/service/cpu/onednn_config.proto and the rewriters beside it (onednn_ops_rewriter,
onednn_contraction_rewriter).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.ir import Builder, Node
from deepx_graph.text.common.activations import gelu_of
from deepx_graph.text.common.nn import centered, softmax
from deepx_graph.text.common.steps import Steps, axis_of, ranked
from deepx_graph.types import F32, TensorType, Type

Config = Mapping[str, Any]


def onednn_operations(b: Builder, target: str, config: str, inputs: Sequence[Node], types: Sequence[Type]) -> list[Node] | None:
    """The result of the call; None for another target, a configuration that is not known, or results beside the one.

    Computed in single precision, as oneDNN does for narrower elements, and rounded once.
    """
    kind = target.removeprefix("__onednn$")
    result = types[0] if len(types) == 1 else None
    if kind not in _CALLS or not isinstance(result, TensorType) or not all(isinstance(x.type, TensorType) for x in inputs):
        return None
    c = Steps(b)
    given = _configuration(config, f"onednn_{kind}_config")
    made = None if given is None else _CALLS[kind](c, [c.cast(x, F32) for x in inputs], given)
    return None if made is None else [c.cast(made, result.dtype)]


def _configuration(text: str, name: str) -> Config | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    given = found.get(name) if isinstance(found, dict) else None
    return given if isinstance(given, dict) else None


def _softmax(c: Steps, inputs: Sequence[Node], given: Config) -> Node | None:
    axis = given.get("softmax_axis", 0)
    if len(inputs) != 1 or type(axis) is not int:
        return None
    return softmax(c, inputs[0], (axis_of(axis, ranked(inputs[0]).rank or 0),))


def _layer_norm(c: Steps, inputs: Sequence[Node], given: Config) -> Node | None:
    """Over the last axis; scale and shift are vectors of its size."""
    steps = _RESCALES.get(given.get("rescale", "UNDEFINED"))
    epsilon = _as_float(given.get("epsilon_typecast", 0))
    if steps is None or len(inputs) != 1 + len(steps) or epsilon is None or given.get("fusions"):
        return None
    last = (ranked(inputs[0]).rank or 0) - 1
    made = centered(c, inputs[0], (last,), epsilon)
    for op, vector in zip(steps, inputs[1:], strict=True):
        made = c(op, *c.broadcast(made, vector))
    return made


_RESCALES = {"UNDEFINED": (), "SCALE": (ops.multiply,), "SHIFT": (ops.add,), "SCALE_AND_SHIFT": (ops.multiply, ops.add)}


def _matmul(c: Steps, inputs: Sequence[Node], given: Config) -> Node | None:
    """A product of matrices in batches, and what is done to it; biases and terms are further operands, in order."""
    if len(inputs) < 2:
        return None
    x, y, *more = inputs
    rank, other = ranked(x).rank or 0, ranked(y).rank or 0
    fused: Config = given.get("fusions") or {}
    names = fused.get("ops", ())
    if rank != other or rank < 2 or not all(name in _AFTER for name in names):
        return None
    batch = tuple(range(rank - 2))
    made = c(ops.dot_general, x, y, lhs_batching_dimensions=batch, rhs_batching_dimensions=batch,
             lhs_contracting_dimensions=(rank - 2 if given.get("transpose_a") else rank - 1,),
             rhs_contracting_dimensions=(rank - 1 if given.get("transpose_b") else rank - 2,))
    alpha, operands = _as_float(fused.get("alpha_typecast", 0)), iter(more)
    for name in names:
        after = _AFTER[name](c, made, operands, alpha)
        if after is None:
            return None
        made = after
    return made if next(operands, None) is None else None


def _as_float(bits: Any) -> float | None:
    """A number in single precision that a configuration holds as the integer of its bits."""
    return float(np.int32(bits).view(np.float32)) if type(bits) is int and -(1 << 31) <= bits < 1 << 31 else None


After = Callable[[Steps, Node, Iterator[Node], float | None], Node | None]


def _plus(c: Steps, x: Node, operands: Iterator[Node], alpha: float | None) -> Node | None:
    term = next(operands, None)
    return None if term is None else c(ops.add, *c.broadcast(x, term))


_AFTER: dict[str, After] = {
    "BIAS": _plus, "BINARY_ADD": _plus,
    "RELU": lambda c, x, operands, alpha: c(ops.maximum, x, c.like(0, x)),
    "TANH": lambda c, x, operands, alpha: c(ops.tanh, x),
    "SIGMOID": lambda c, x, operands, alpha: c(ops.logistic, x),
    "GELU_ERF": lambda c, x, operands, alpha: gelu_of(c, x, approximate=False),
    "GELU_TANH": lambda c, x, operands, alpha: gelu_of(c, x, approximate=True),
    "LINEAR": lambda c, x, operands, alpha: None if alpha is None else c(ops.multiply, x, c.like(alpha, x)),
}  # fmt: skip
_CALLS: dict[str, Callable[[Steps, Sequence[Node], Config], Node | None]] = {
    "softmax": _softmax, "layernorm": _layer_norm, "matmul": _matmul,
}
