"""Programs that derivatives are tested on, and gradients beside finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import deepx_graph as dx
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops import (
    add,
    compare,
    convert,
    dynamic_slice,
    exponential,
    logistic,
    multiply,
    reduction,
    reshape,
    sine,
    subtract,
)
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.types import F64, I32, TensorType, tensor
from deepx_graph.verify import verify
from tests.support.reference import evaluate

Body = Callable[..., Sequence[Node]]

M, N, V, S = tensor(F64, (2, 3)), tensor(F64, (3, 4)), tensor(F64, (3,)), tensor(F64, ())


def module(body: Body, *types: Any, names: Sequence[str] = (), results: tuple[str, ...] = ()) -> Module:
    b = Builder()
    params = [(names[k] if names else f"x{k}", t) for k, t in enumerate(types)]
    return Module((b.function("main", params, lambda *x: body(b, *x), result_names=results),))


def finite_difference(m: Module, args: list[Any], cts: list[Any], k: int) -> np.ndarray[Any, Any]:
    """The gradient of sum(ct * out) with respect to args[k], by central differences."""
    step, out = 1e-6, np.zeros_like(args[k])
    for at in np.ndindex(args[k].shape):
        values = []
        for sign in (1, -1):
            moved = [np.array(a) for a in args]
            moved[k][at] += sign * step
            values.append(sum(float(np.sum(c * r)) for c, r in zip(cts, evaluate(m, moved), strict=True)))
        out[at] = (values[0] - values[1]) / (2 * step)
    return out


def sampled(types: Sequence[Any], seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.uniform(0.3, 1.4, t.shape), t.dtype.np) for t in types]


def less(b: Builder, x: Node, y: Node) -> Node:
    return b(compare, x, y, direction="LT")


def total(b: Builder, x: Node) -> Node:
    return reduction(b, add, x, (0, 1))


def counted(b: Builder, iterations: int, inits: Sequence[Node], body: Any) -> tuple[Node, ...]:
    """`for i in range(iterations)`; `body(i, *variables)` gives the next values."""
    return b.loop([b.constant(0, I32), *inits], lambda v: (
        less(b, v[0], b.constant(iterations, I32)), [b(add, v[0], b.constant(1, I32)), *body(*v)]))[1:]


def real(b: Builder, i: Node) -> Node:
    return b(convert, b(add, i, b.constant(1, I32)), dtype=F64)


def branch(b: Builder, x: Node, p: Node) -> list[Node]:
    return list(b.branch(less(b, p, b.like(0.8, p)), [b(sine, x), x], [b(multiply, x, b(exponential, x)), b(sine, x)]))


def three_ways(b: Builder, x: Node, w: Node) -> list[Node]:
    at = b(convert, b(multiply, total(b, x), b.constant(0.5)), dtype=I32)
    return list(b.branch(at, [b(sine, x)], [b(multiply, x, w)], [b(exponential, b(multiply, w, b(sine, x)))]))


def nested_branches(b: Builder, x: Node, w: Node) -> list[Node]:
    inner = b.branch(less(b, total(b, w), b.constant(5.0)), [b(multiply, b(sine, x), w)], [x])[0]
    return list(b.branch(less(b, total(b, x), b.constant(5.0)), [b(exponential, inner)], [b(multiply, x, x)]))


def loop(b: Builder, x: Node) -> list[Node]:
    return [b(exponential, y) for y in counted(b, 3, [x], lambda i, y: [b(sine, y)])]


def invariant(b: Builder, x: Node, w: Node) -> list[Node]:
    return list(counted(b, 3, [x], lambda i, y: [b(sine, b(multiply, y, b(exponential, w)))]))


def crossed(b: Builder, x: Node, w: Node) -> list[Node]:
    return list(counted(b, 4, [x, w], lambda i, y, z: [z, b(multiply, b(sine, y), real(b, i))]))


def rows(b: Builder, x: Node) -> list[Node]:
    def body(i: Node, y: Node) -> list[Node]:
        row = b(reshape, b(dynamic_slice, x, i, b.constant(0, I32), slice_sizes=(1, 3)), shape=(3,))
        return [b(add, b(sine, b(multiply, y, row)), row)]

    return list(counted(b, 2, [b.splat(1, tensor(F64, (3,)))], body))


def backwards(b: Builder, x: Node) -> list[Node]:
    start = b.constant(9, I32)
    return [b.loop([start, x], lambda v: (b(compare, b.constant(2, I32), v[0], direction="LE"),
                                          [b(subtract, v[0], b.constant(3, I32)), b(sine, b(multiply, v[1], real(b, v[0])))]))[1]]


def data_dependent(b: Builder, x: Node, w: Node) -> list[Node]:
    y, = b.loop([x], lambda v: (less(b, total(b, v[0]), b.constant(8.0)), [b(add, v[0], b(multiply, w, b(multiply, v[0], v[0])))]))
    return [b(logistic, y)]


def never(b: Builder, x: Node, w: Node) -> list[Node]:
    return list(b.loop([x], lambda v: (less(b, total(b, v[0]), b.constant(-1.0)), [b(multiply, w, v[0])])))


def never_known(b: Builder, x: Node, w: Node) -> list[Node]:
    return list(counted(b, 0, [x], lambda i, y: [b(multiply, w, y)]))


def nested(b: Builder, x: Node, w: Node) -> list[Node]:
    def outer(i: Node, x: Node) -> list[Node]:
        y, = counted(b, 3, [x], lambda k, y: [b(multiply, y, b(sine, b(multiply, w, real(b, k))))])
        return list(b.branch(less(b, total(b, y), b.constant(0.0)), [b(sine, b(multiply, w, y))], [b(multiply, y, b(logistic, y))]))

    return list(counted(b, 4, [x], outer))


def nested_data_dependent(b: Builder, x: Node, w: Node) -> list[Node]:
    def outer(i: Node, x: Node) -> list[Node]:
        limit = b(add, real(b, i), b.constant(8.0))
        y, = b.loop([x], lambda u: (less(b, total(b, u[0]), limit), [b(add, u[0], b(exponential, b(multiply, w, b(sine, u[0]))))]))
        return list(b.branch(less(b, i, b.constant(1, I32)), [b(sine, b(multiply, w, y))], [b(sine, b(multiply, y, w))]))

    return list(counted(b, 3, [x], outer))


def loop_in_branch(b: Builder, x: Node, w: Node) -> list[Node]:
    y, = counted(b, 3, [x], lambda i, y: [b(sine, b(multiply, y, w))])
    z, = b.loop([x], lambda v: (less(b, total(b, v[0]), b.constant(9.0)), [b(add, v[0], b(multiply, w, w))]))
    return list(b.branch(less(b, total(b, x), b.constant(5.0)), [b(exponential, y)], [b(sine, z)]))

PROGRAMS: dict[str, tuple[Body, tuple[TensorType, ...]]] = {
    "branch": (branch, (M, S)), "three ways": (three_ways, (M, M)), "nested branches": (nested_branches, (M, M)),
    "loop": (loop, (M,)), "invariant": (invariant, (M, M)), "crossed": (crossed, (M, M)), "rows": (rows, (M,)),
    "backwards": (backwards, (M,)), "data dependent": (data_dependent, (M, M)), "never": (never, (M, M)),
    "never, known": (never_known, (M, M)), "nested": (nested, (M, M)), "loop in branch": (loop_in_branch, (M, M)),
    "nested, data dependent": (nested_data_dependent, (M, M)),
}  # fmt: skip


def check(m: Module, order: int, seed: int, rtol: float = 1e-5) -> None:
    for _ in range(order - 1):
        m = grad(m)
    g = grad(m)
    verify(g)
    args = sampled(m.entry.type.params, seed)
    cts = sampled([t for t in m.entry.type.results if isinstance(t, TensorType) and t.dtype.is_float], seed=seed + 10)
    want = [finite_difference(m, args, cts, k) for k, t in enumerate(m.entry.type.params) if t.dtype.is_float]  # type: ignore[union-attr]
    found = {"reference": evaluate(g, [*args, *cts]), "engine": dx.compile(g, optimize=False)(*args, *cts),
             "optimised": dx.compile(g)(*args, *cts)}  # fmt: skip
    for name, values in found.items():
        for k, (value, w) in enumerate(zip(values, want, strict=True)):
            np.testing.assert_allclose(value, w, rtol=rtol, atol=1e-6 * max(1, np.abs(w).max()), err_msg=f"{name} {k}")
