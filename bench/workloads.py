"""What the engines are measured on: each workload once as a graph, and once as an expert writes it in plain numpy.

A workload gives its arguments for a size, builds its graph on parameter nodes of their types, and computes the same in numpy,
in float32 throughout and with fresh arrays. The results of both are compared before anything is timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops import abs_ as absolute
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    divide,
    exponential,
    maximum,
    multiply,
    negate,
    rsqrt,
    select,
    sqrt,
    subtract,
    tanh,
    transpose,
)
from deepx_graph.ops.elementwise import compare
from deepx_graph.ops.linear import matmul
from deepx_graph.ops.reduce import reduction
from deepx_graph.types import F32, tensor

Array = np.ndarray[Any, Any]
F = np.float32


@dataclass(frozen=True)
class Workload:
    """`make(size, rng)` gives the arguments, `graph(*nodes)` the result nodes, `numpy(*arrays)` the results."""

    name: str
    sizes: dict[str, int]
    make: Callable[[int, np.random.Generator], list[Array]]
    graph: Callable[..., Sequence[Node]]
    numpy: Callable[..., Sequence[Array]]

    def module(self, args: Sequence[Array]) -> Module:
        """The graph for arguments of these shapes, as a module with entry `main`."""
        params = [(f"x{k}", tensor(F32, a.shape)) for k, a in enumerate(args)]
        return Module((Function(*_function(params, self.graph)),))


def _function(params: Sequence[tuple[str, Any]], graph: Callable[..., Sequence[Node]]) -> tuple[Any, ...]:
    made = Builder().function("main", params, graph)
    return made.name, made.params, made.results


def _normal(count: int) -> Callable[[int, np.random.Generator], list[Array]]:
    return lambda n, rng: [rng.standard_normal(n, dtype=F) for _ in range(count)]


B = Builder()


def const(value: float) -> Node:
    return B.constant(value, F32)


def shape(x: Node) -> tuple[int, ...]:
    return x.type.shape  # type: ignore[attr-defined, no-any-return]


def along(x: Node, like: Node) -> Node:
    """Row statistics repeated along the last axis of `like`."""
    return B(broadcast_in_dim, x, shape=shape(like), broadcast_dimensions=tuple(range(len(shape(like)) - 1)))


def across(x: Node, like: Node) -> Node:
    """A vector repeated over all but the last axis of `like`."""
    return B(broadcast_in_dim, x, shape=shape(like), broadcast_dimensions=(len(shape(like)) - 1,))


def row_sum(x: Node) -> Node:
    return reduction(B, add, x, (len(shape(x)) - 1,))


# --- elementwise ----------------------------------------------------------------------------------------------------


def axpy(a: Node, b: Node, c: Node, d: Node) -> Sequence[Node]:
    return [B(subtract, B(add, B(multiply, a, b), c), B(multiply, d, const(2)))]


def axpy_np(a: Array, b: Array, c: Array, d: Array) -> Sequence[Array]:
    return [a * b + c - d * F(2)]


def trans(x: Node, y: Node, z: Node) -> Sequence[Node]:
    decay = B(exponential, B(multiply, B(negate, x), x))
    return [B(add, B(multiply, decay, B(tanh, y)), B(sqrt, B(absolute, z)))]


def trans_np(x: Array, y: Array, z: Array) -> Sequence[Array]:
    return [np.exp(-x * x) * np.tanh(y) + np.sqrt(np.abs(z))]


def gelu_of(x: Node) -> Node:
    cube = B(multiply, B(multiply, x, x), x)
    inner = B(multiply, const(math.sqrt(2 / math.pi)), B(add, x, B(multiply, const(0.044715), cube)))
    return B(multiply, B(multiply, const(0.5), x), B(add, const(1), B(tanh, inner)))


def gelu_np(x: Array) -> Sequence[Array]:
    return [F(0.5) * x * (F(1) + np.tanh(F(math.sqrt(2 / math.pi)) * (x + F(0.044715) * (x * x * x))))]


LR, B1, B2, EPS = 1e-3, 0.9, 0.999, 1e-8
C1, C2 = 1 / (1 - B1**10), 1 / (1 - B2**10)


def adam(p: Node, m: Node, v: Node, g: Node) -> Sequence[Node]:
    m = B(add, B(multiply, const(B1), m), B(multiply, const(1 - B1), g))
    v = B(add, B(multiply, const(B2), v), B(multiply, B(multiply, const(1 - B2), g), g))
    step = B(divide, B(multiply, const(LR * C1), m), B(add, B(sqrt, B(multiply, v, const(C2))), const(EPS)))
    return [B(subtract, p, step), m, v]


def adam_np(p: Array, m: Array, v: Array, g: Array) -> Sequence[Array]:
    m = F(B1) * m + F(1 - B1) * g
    v = F(B2) * v + F(1 - B2) * g * g
    return [p - F(LR * C1) * m / (np.sqrt(v * F(C2)) + F(EPS)), m, v]


def adam_args(n: int, rng: np.random.Generator) -> list[Array]:
    p, m, v, g = _normal(4)(n, rng)
    return [p, F(0.1) * m, F(0.1) * v * v, g]


# --- reductions -----------------------------------------------------------------------------------------------------


def distance(x: Node, y: Node) -> Sequence[Node]:
    d = B(subtract, x, y)
    return [reduction(B, add, B(multiply, d, d), (0,))]


def distance_np(x: Array, y: Array) -> Sequence[Array]:
    d = x - y
    return [np.asarray(np.sum(d * d))]


def softmax_of(x: Node) -> Node:
    e = B(exponential, B(subtract, x, along(reduction(B, maximum, x, (len(shape(x)) - 1,)), x)))
    return B(divide, e, along(row_sum(e), x))


def softmax_np(x: Array) -> Sequence[Array]:
    e = np.exp(x - np.max(x, -1, keepdims=True))
    return [e / np.sum(e, -1, keepdims=True)]


def layernorm(x: Node, w: Node, b: Node) -> Sequence[Node]:
    count = const(shape(x)[-1])
    d = B(subtract, x, along(B(divide, row_sum(x), count), x))
    scale = B(rsqrt, B(add, B(divide, row_sum(B(multiply, d, d)), count), const(1e-5)))
    return [B(add, B(multiply, B(multiply, d, along(scale, x)), across(w, x)), across(b, x))]


def layernorm_np(x: Array, w: Array, b: Array) -> Sequence[Array]:
    d = x - np.mean(x, -1, keepdims=True)
    return [d / np.sqrt(np.mean(d * d, -1, keepdims=True) + F(1e-5)) * w + b]


def _rows(n: int, rng: np.random.Generator) -> list[Array]:
    return [rng.standard_normal((n, 1024), dtype=F)]


def _rows_and_vectors(n: int, rng: np.random.Generator) -> list[Array]:
    return _rows(n, rng) + [rng.standard_normal(1024, dtype=F) for _ in "wb"]


# --- networks -------------------------------------------------------------------------------------------------------


def mlp(x: Node, w: Node, b: Node, v: Node, c: Node) -> Sequence[Node]:
    hidden = matmul(B, x, w)
    hidden = gelu_of(B(add, hidden, across(b, hidden)))
    out = matmul(B, hidden, v)
    return [B(add, out, across(c, out))]


def mlp_np(x: Array, w: Array, b: Array, v: Array, c: Array) -> Sequence[Array]:
    return [gelu_np(x @ w + b)[0] @ v + c]


def mlp_args(n: int, rng: np.random.Generator) -> list[Array]:
    def normal(*dims: int) -> Array:
        return rng.standard_normal(dims, dtype=F)

    return [normal(n, 1024), normal(1024, 4096) / F(32), normal(4096), normal(4096, 1024) / F(64), normal(1024)]


def attention(q: Node, k: Node, v: Node) -> Sequence[Node]:
    scores = matmul(B, q, B(transpose, k, permutation=(0, 2, 1)))
    return [matmul(B, softmax_of(B(multiply, scores, const(1 / math.sqrt(shape(q)[-1])))), v)]


def attention_np(q: Array, k: Array, v: Array) -> Sequence[Array]:
    return [softmax_np(q @ k.transpose(0, 2, 1) * F(1 / math.sqrt(q.shape[-1])))[0] @ v]


def attention_args(n: int, rng: np.random.Generator) -> list[Array]:
    return [rng.standard_normal((8, n, 64), dtype=F) for _ in "qkv"]


TINY_STEPS = tuple(
    (("add", "sub", "mul", "max")[op], k + 3, k % 4 if back == 0 else k + 3 - back)
    for k, (op, back) in enumerate(np.random.default_rng(7).integers([0, 0], [4, 3], (2000, 2)).tolist())
)
"""(op, i, j): value k + 4 comes from the value before it and an earlier one, or an argument."""


def tiny(*xs: Node) -> Sequence[Node]:
    values, half = list(xs), const(0.5)
    graph: dict[str, Callable[[Node, Node], Node]] = {
        "add": lambda x, y: B(multiply, B(add, x, y), half), "sub": lambda x, y: B(multiply, B(subtract, x, y), half),
        "mul": lambda x, y: B(multiply, x, y), "max": lambda x, y: B(select, B(compare, x, y, direction="GT"), x, y),
    }  # fmt: skip
    for op, i, j in TINY_STEPS:
        values.append(graph[op](values[i], values[j]))
    return [values[-1]]


def tiny_np(*xs: Array) -> Sequence[Array]:
    values = list(xs)
    for op, i, j in TINY_STEPS:
        x, y = values[i], values[j]
        values.append((x + y) * F(0.5) if op == "add" else (x - y) * F(0.5) if op == "sub" else
                      x * y if op == "mul" else np.maximum(x, y))
    return [values[-1]]


def tiny_args(n: int, rng: np.random.Generator) -> list[Array]:
    return [rng.uniform(-1, 1, n).astype(F) for _ in "abcd"]


ELEMENTS = {"small": 1_000, "medium": 1_000_000, "large": 30_000_000}
ROWS = {"small": 1, "medium": 1_000, "large": 30_000}

WORKLOADS: tuple[Workload, ...] = (
    Workload("a*b+c-d*2", ELEMENTS, _normal(4), axpy, axpy_np),
    Workload("exp, tanh, sqrt chain", ELEMENTS, _normal(3), trans, trans_np),
    Workload("gelu", ELEMENTS, _normal(1), lambda x: [gelu_of(x)], gelu_np),
    Workload("Adam step", ELEMENTS, adam_args, adam, adam_np),
    Workload("sum((x-y)^2)", ELEMENTS, _normal(2), distance, distance_np),
    Workload("softmax, rows of 1024", ROWS, _rows, lambda x: [softmax_of(x)], softmax_np),
    Workload("layernorm, rows of 1024", ROWS, _rows_and_vectors, layernorm, layernorm_np),
    Workload("MLP 1024-4096-1024", {"medium": 256}, mlp_args, mlp, mlp_np),
    Workload("attention, 8 heads", {"medium": 512}, attention_args, attention, attention_np),
    Workload("2 000 tiny operations", {"small": 64}, tiny_args, tiny, tiny_np),
)
