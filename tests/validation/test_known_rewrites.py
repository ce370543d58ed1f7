"""Simplifications that compilers make (XLA's simplifier, ONNX optimizers, TVM), each with one that is nearly it and wrong.

The wrong ones are faults that such passes have had: another axis or order, an overflow or NaN that is forgotten, a sign, a size
that is one more. `equivalent` has to tell both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import deepx_graph as dx

xp = dx.xp
F, SQUARE, N, U, B = "f32[4,6]", "f32[4,4]", "i32[4,6]", "u32[4,6]", "bool[4,6]"
Program = Callable[..., Any]


class Rewrite(NamedTuple):
    """A program, another that is the same, one that is not, and the types of their inputs."""

    name: str
    before: Program
    right: Program
    wrong: Program
    types: tuple[str, ...]


def rows(x: Any, *order: int) -> Any:
    return xp.take(x, xp.asarray(np.array(order)), axis=0)


def padded(x: Any) -> Any:
    none = xp.zeros((4, 1), dtype=x.dtype)
    return xp.concat([none, x, none], axis=1)


REWRITES = [
    Rewrite("transpose twice", lambda x: x.T.T, lambda x: x, lambda x: x.T, (SQUARE,)),
    Rewrite("reshape twice", lambda x: xp.reshape(xp.reshape(x, (2, 12)), (6, 4)), lambda x: xp.reshape(x, (6, 4)),
            lambda x: x.T, (F,)),
    Rewrite("concatenated slices", lambda x: xp.concat([x[:2], x[2:]]), lambda x: x, lambda x: xp.concat([x[2:], x[:2]]), (F,)),
    Rewrite("sum of transposed", lambda x: xp.sum(x.T, axis=0), lambda x: xp.sum(x, axis=1),
            lambda x: xp.sum(x, axis=0), (SQUARE,)),
    Rewrite("maximum again", lambda x, y: xp.maximum(x, xp.maximum(x, y)), xp.maximum, xp.minimum, (F, F)),
    Rewrite("relu twice", lambda x: xp.maximum(xp.maximum(x, 0.0), 0.0), lambda x: xp.maximum(x, 0.0),
            lambda x: xp.minimum(x, 0.0), (F,)),
    Rewrite("times a power of two", lambda x: x * 8, lambda x: x << 3, lambda x: x << 2, (N,)),
    Rewrite("remainder of a power of two", lambda x: x % 8, lambda x: x & 7, lambda x: x & 8, (U,)),
    Rewrite("difference and sum", lambda x, y: x - y + y, lambda x, y: x, lambda x, y: x + y - y + 1, (N, N)),
    Rewrite("common factor", lambda x, y, z: x * y + x * z, lambda x, y, z: x * (y + z), lambda x, y, z: x * (y - z), (N, N, N)),
    Rewrite("transpose of a product", lambda x, y: (x @ y).T, lambda x, y: y.T @ x.T, lambda x, y: x.T @ y.T, (SQUARE, SQUARE)),
    Rewrite("product of products", lambda x, y, z: (x @ y) @ z, lambda x, y, z: x @ (y @ z), lambda x, y, z: x @ (z @ y),
            ("i32[4,4]",) * 3),
    Rewrite("sum of sums", lambda x: xp.sum(xp.sum(x, axis=0)), xp.sum, lambda x: xp.sum(xp.sum(x[1:], axis=0)), (F,)),
    Rewrite("slice of padded", lambda x: padded(x)[:, 1:7], lambda x: x, lambda x: padded(x)[:, 0:6], (F,)),
    Rewrite("reverse twice", lambda x: xp.flip(xp.flip(x, axis=1), axis=1), lambda x: x, lambda x: xp.flip(x, axis=0), (F,)),
    Rewrite("sum of repeated", lambda x: xp.sum(xp.broadcast_to(x, (5, 4, 6)), axis=0, dtype=xp.int32),
            lambda x: x * 5, lambda x: x * 6, (N,)),
    Rewrite("either is the same", lambda c, x: xp.where(c, x, x), lambda c, x: x, lambda c, x: xp.where(c, x, -x), (B, F)),
    Rewrite("select by not", lambda c, x, y: xp.where(~c, x, y), lambda c, x, y: xp.where(c, y, x),
            lambda c, x, y: xp.where(c, x, y),
            (B, F, F)),
    Rewrite("clip twice", lambda x: xp.clip(xp.clip(x, 0, 6), 1, 5), lambda x: xp.clip(x, 1, 5), lambda x: xp.clip(x, 0, 5), (N,)),
    Rewrite("both extremes", lambda x, y: xp.maximum(x, y) + xp.minimum(x, y), lambda x, y: x + y, lambda x, y: x - y, (N, N)),
    Rewrite("absolute of negative", lambda x: xp.abs(-x), xp.abs, lambda x: -xp.abs(x), (F,)),
    Rewrite("square of absolute", lambda x: xp.abs(x) * xp.abs(x), lambda x: x * x, lambda x: xp.abs(x) * x, (F,)),
    Rewrite("not less", lambda x, y: ~(x < y), lambda x, y: ~(y > x), lambda x, y: x >= y, (F, F)),
    Rewrite("not less, integers", lambda x, y: ~(x < y), lambda x, y: x >= y, lambda x, y: x > y, (N, N)),
    Rewrite("equal to itself", lambda x: x == x, lambda x: ~xp.isnan(x), lambda x: x == x + 0.0 * x, (F,)),
    Rewrite("times zero, integers", lambda x: x * 0, lambda x: x - x, lambda x: x * 0 + 1, (N,)),
    Rewrite("times zero", lambda x: x * 0.0, lambda x: 0.0 * x, lambda x: xp.zeros((4, 6), dtype=xp.float32), (F,)),
    Rewrite("less itself", lambda x: x - x, lambda x: x + -x, lambda x: xp.zeros((4, 6), dtype=xp.float32), (F,)),
    Rewrite("log of exp", lambda x: xp.log(xp.exp(-xp.abs(x))), lambda x: xp.log(xp.exp(xp.minimum(x, -x))),
            lambda x: -xp.abs(x), (F,)),
    Rewrite("root of a square", lambda x: xp.sqrt(x * x), lambda x: xp.sqrt(xp.abs(x) * xp.abs(x)), xp.abs, (F,)),
    Rewrite("floor twice", lambda x: xp.floor(xp.floor(x)), lambda x: xp.ceil(xp.floor(x)), xp.ceil, (F,)),
    Rewrite("sign times absolute", lambda x: xp.sign(x) * xp.abs(x), lambda x: x, xp.abs, (N,)),
    Rewrite("rows taken twice", lambda x: rows(rows(x, 0, 2, 1, 3), 0, 2, 1, 3), lambda x: x, lambda x: rows(x, 0, 2, 1, 3), (F,)),
    Rewrite("rows turned twice", lambda x: rows(rows(x, 1, 2, 3, 0), 1, 2, 3, 0), lambda x: rows(x, 2, 3, 0, 1), lambda x: x, (F,)),
    Rewrite("extreme of negatives", lambda x: xp.argmax(-x, axis=1), lambda x: xp.argmin(x, axis=1), lambda x: xp.argmax(x, axis=1),
            (F,)),
    Rewrite("end of a running sum", lambda x: xp.cumulative_sum(x, axis=1)[:, 5], lambda x: xp.sum(x, axis=1),
            lambda x: xp.sum(x[:, 1:], axis=1), (N,)),
    Rewrite("product by one", lambda x: x @ xp.eye(6, dtype=xp.int32), lambda x: x,
            lambda x: x @ xp.eye(6, k=1, dtype=xp.int32), (N,)),
    Rewrite("first of a stack", lambda x, y: xp.stack([x, y])[0], lambda x, y: x, lambda x, y: y, (F, F)),
    Rewrite("an axis put in and taken out", lambda x: xp.squeeze(xp.expand_dims(x, axis=1), axis=1), lambda x: x,
            lambda x: -x, (F,)),
    Rewrite("halves", lambda x: x / 2.0, lambda x: x * 0.5, lambda x: x * 0.25, (F,)),
    Rewrite("mean", lambda x: xp.mean(x, axis=1), lambda x: xp.sum(x, axis=1) / 6.0, lambda x: xp.sum(x, axis=1) / 5.0, (F,)),
    Rewrite("shift there and back", lambda x: (x >> 2) << 2, lambda x: x & -4, lambda x: x, (N,)),
    Rewrite("shift back and there", lambda x: (x << 2) >> 2, lambda x: ((x * 4) >> 2), lambda x: x, (N,)),
    Rewrite("xor twice", lambda x, y: (x ^ y) ^ y, lambda x, y: x, lambda x, y: x | y, (N, N)),
    Rewrite("any by all", xp.any, lambda x: ~xp.all(~x), lambda x: ~xp.any(~x), (B,)),
    Rewrite("absorption", lambda x, y: x & (x | y), lambda x, y: x, lambda x, y: y, (B, B)),
    Rewrite("de Morgan", lambda x, y: ~(x & y), lambda x, y: ~x | ~y, lambda x, y: ~x & ~y, (B, B)),
]  # fmt: skip


def told(r: Rewrite, other: Program) -> bool:
    def program(f: Program) -> dx.Module:
        return dx.trace(named(f, len(r.types)), *r.types)

    return bool(dx.equivalent(program(r.before), program(other)))


def named(f: Program, count: int) -> Program:
    """The function with parameters of given names, which inputs have then."""
    return (lambda x: f(x)) if count == 1 else (lambda x, y: f(x, y)) if count == 2 else (lambda x, y, z: f(x, y, z))


@pytest.mark.parametrize("r", [pytest.param(r, id=r.name, marks=[pytest.mark.conformance] * (k % 5 > 0))
                               for k, r in enumerate(REWRITES)])
def test_right_and_wrong_rewrites_are_told_apart(r: Rewrite) -> None:
    assert told(r, r.right) and not told(r, r.wrong)


def test_there_are_forty_of_each() -> None:
    assert len(REWRITES) >= 40 and len({r.name for r in REWRITES}) == len(REWRITES)
