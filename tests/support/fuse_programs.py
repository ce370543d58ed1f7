"""Programs that fusion is tried on, and ways to look at what came of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph.ir import Builder, Function, Module, Node, Origin
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    divide,
    exponential,
    fusion,
    maximum,
    multiply,
    reduction,
    reshape,
    reverse,
    rsqrt,
    subtract,
    tanh,
)
from deepx_graph.types import F32, tensor

S, ROWS, COLS, SCALAR = tensor(F32, (4, 8)), tensor(F32, (4,)), tensor(F32, (8,)), tensor(F32, ())
LONG = tensor(F32, (1 << 20,))


def module(body: Callable[..., Sequence[Node]], *types: Any) -> Module:
    b = Builder()
    names = ("x", "y", "z", "w")
    return Module((b.function("main", [(names[k], t) for k, t in enumerate(types)], lambda *p: body(b, *p)),))


def named(b: Builder, name: str, node: Node) -> Node:
    """The same operation under a name."""
    return Node(node.op, node.inputs, node.attrs, node.type, Origin(name, node.origin.spans))


def kernels(m: Module) -> list[Node]:
    return [n for f in m.functions for n in f.nodes if n.op is fusion]


def work(f: Function) -> list[Node]:
    return [n for n in f.nodes if n.op is not PARAM and n.op is not CONSTANT]


def along_columns(b: Builder, v: Node) -> Node:
    return b(broadcast_in_dim, v, shape=(4, 8), broadcast_dimensions=(1,))


def along_rows(b: Builder, v: Node, keep: bool = False) -> Node:
    if keep:
        return b(broadcast_in_dim, b(reshape, v, shape=(4, 1)), shape=(4, 8), broadcast_dimensions=(0, 1))
    return b(broadcast_in_dim, v, shape=(4, 8), broadcast_dimensions=(0,))


def opaque(b: Builder, x: Node) -> Node:
    """Something that no kernel holds, of the same type."""
    return b(reverse, x, dimensions=(0,))


def softmax(b: Builder, x: Node, keep: bool = False) -> list[Node]:
    e = b(exponential, b(subtract, x, along_rows(b, reduction(b, maximum, x, (1,)), keep)))
    return [b(divide, e, along_rows(b, reduction(b, add, e, (1,)), keep))]


def layer_norm(b: Builder, x: Node, gain: Node, bias: Node) -> list[Node]:
    """With rows of shape [4,1] in between, as texts that keep reduced axes have them."""
    def mean(v: Node) -> Node:
        return b(multiply, b(reshape, reduction(b, add, v, (1,)), shape=(4, 1)), b.splat(1 / 8, tensor(F32, (4, 1))))

    def spread(v: Node) -> Node:
        return b(broadcast_in_dim, v, shape=(4, 8), broadcast_dimensions=(0, 1))

    def column(v: Node) -> Node:
        return b(broadcast_in_dim, v, shape=(4, 8), broadcast_dimensions=(1,))

    d = b(subtract, x, spread(mean(x)))
    scale = b(rsqrt, b(add, mean(b(multiply, d, d)), b.splat(1e-5, tensor(F32, (4, 1)))))
    return [b(add, b(multiply, b(multiply, d, spread(scale)), column(gain)), column(bias))]


def gelu(b: Builder, x: Node) -> list[Node]:
    cube = b(multiply, b(multiply, x, x), x)
    inner = b(multiply, b(add, x, b(multiply, cube, b.like(0.044715, x))), b.like(0.7978846, x))
    return [b(multiply, b(multiply, x, b.like(0.5, x)), b(add, b(tanh, inner), b.like(1, x)))]


def shared(b: Builder, x: Node) -> list[Node]:
    t = named(b, "t", b(add, x, x))
    r = named(b, "r", reduction(b, add, t, (1,)))
    c = named(b, "c", reduction(b, add, t, (0,)))
    return [b(add, t, along_rows(b, r)), b(add, t, along_columns(b, c))]
