"""Activation functions of networks, step by step."""

from __future__ import annotations

import math

from deepx_graph import ops
from deepx_graph.ir import Node
from deepx_graph.text.common.steps import Steps


def hard_sigmoid_of(c: Steps, x: Node, alpha: float, beta: float) -> Node:
    line: Node = c(ops.add, c(ops.multiply, x, c.like(alpha, x)), c.like(beta, x))
    return c(ops.clamp, c.like(0, x), line, c.like(1, x))


def softplus_of(c: Steps, x: Node) -> Node:
    """log(1 + exp(x)), without overflow."""
    tail = c(ops.log_plus_one, c(ops.exponential, c(ops.negate, c(ops.abs_, x))))
    return c(ops.add, c(ops.maximum, x, c.like(0, x)), tail)


def gelu_of(c: Steps, x: Node, approximate: bool) -> Node:
    """x times the normal distribution at x, by `erf` or by the formula with `tanh`."""
    if approximate:
        cube = c(ops.multiply, c(ops.multiply, x, x), x)
        inner = c(ops.multiply, c(ops.add, x, c(ops.multiply, cube, c.like(0.044715, x))), c.like(math.sqrt(2 / math.pi), x))
        part = c(ops.tanh, inner)
    else:
        part = c(ops.erf, c(ops.multiply, x, c.like(math.sqrt(0.5), x)))
    return c(ops.multiply, c(ops.multiply, x, c.like(0.5, x)), c(ops.add, part, c.like(1, x)))
