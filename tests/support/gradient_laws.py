"""Gradients of one op beside finite differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.ops.interpret import evaluate
from deepx_graph.ops.vjp.accumulate import pullback
from deepx_graph.types import TupleType
from tests.support.laws import one_op

BY_CONVENTION = {
    "stop_gradient": "its gradient is zero by definition",
    "next_after": "its gradient is zero, as in JAX, although it moves with its operand",
}
"""Ops whose gradient is not the derivative."""

Arrays = list[Any]


def wide(x: Any) -> bool:
    return x.dtype in (np.float64, np.complex128)


def drawn(rng: np.random.Generator, x: Any) -> Any:
    """A random direction at x."""
    v = rng.standard_normal(x.shape)
    return np.asarray(v + 1j * rng.standard_normal(x.shape) if x.dtype.kind == "c" else v)


def paired(a: Sequence[Any], b: Sequence[Any]) -> float:
    """The real part of sum(a * b), without conjugation: how cotangents meet tangents."""
    return float(sum(np.sum(x * y).real for x, y in zip(a, b, strict=True)))


def run(function: Function, arrays: Sequence[Any]) -> Arrays:
    """The floating results, the items of a tuple one by one."""
    with np.errstate(all="ignore"):
        found = [item for value in evaluate(function, arrays) for item in (value if isinstance(value, tuple) else (value,))]
    return [x for x in map(np.asarray, found) if wide(x)]


def function_of(op: Op, arrays: Arrays, attrs: dict[str, Any], by: list[int]) -> Function:
    """The op on parameters; scalars that are not differentiated by are constants, which rules look at."""
    function = one_op(op, arrays, attrs)
    b = Builder()
    fixed = [k for k, a in enumerate(arrays) if wide(a) and not a.shape and k not in by]
    inputs = [b.constant(arrays[k]) if k in fixed else p for k, p in enumerate(function.params)]
    return function.with_(results=(b(op, *inputs, **attrs),))


def slots(b: Builder, node: Node, cts: Arrays) -> Any:
    """The cotangents as constants, in the shape `vjp` takes them in."""
    rest = iter(cts)
    items = node.type.items if isinstance(node.type, TupleType) else (node.type,)
    given = tuple(b.constant(next(rest)) if t.dtype.is_differentiable else None for t in items)
    return given if isinstance(node.type, TupleType) else given[0]


def gradient(function: Function, cts: Arrays, by: list[int]) -> Function:
    """The function of the same parameters that gives the gradients by some, zeros included."""
    b = Builder(peephole=True)
    wrt = [function.params[k] for k in by]
    found = pullback(b, function.results, [slots(b, function.results[0], cts)], wrt)
    assert all(g is None or g.type == x.type for g, x in zip(found, wrt, strict=True))
    return function.with_(results=tuple(g if g is not None else b.splat(0, x.type) for g, x in zip(found, wrt, strict=True)))


def slope(function: Function, arrays: Arrays, by: list[int], direction: Arrays, cts: Arrays) -> float:
    """The derivative of <cts, f> along a direction, by central differences of fourth order."""
    def at(step: float) -> float:
        moved = list(arrays)
        for k, v in zip(by, direction, strict=True):
            moved[k] = np.asarray(arrays[k] + step * v)
        return paired(cts, run(function, moved))

    eps = 1e-4
    return (8 * (at(eps) - at(-eps)) - (at(2 * eps) - at(-2 * eps))) / (12 * eps)
