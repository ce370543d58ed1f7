"""Every operation that deepx has, printed in each dialect, reads back as the same function of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder, Node, Op
from deepx_graph.ops import (
    abs_,
    add,
    and_,
    broadcast_in_dim,
    clamp,
    compare,
    concatenate,
    convert,
    cosine,
    divide,
    dot_general,
    exponential,
    floor_mod,
    iota,
    log,
    logistic,
    maximum,
    minimum,
    multiply,
    negate,
    not_,
    or_,
    pad,
    power,
    reduce,
    reduction,
    reshape,
    reverse,
    rsqrt,
    select,
    slice_,
    sqrt,
    subtract,
    torch_index_select,
    transpose,
    xor,
)
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.types import BOOL, F16, F32, F64, I8, I32, I64, Type, scalar, tensor
from tests.support.deepx_printed import DIALECTS, X, assert_same, module

CASES: dict[str, tuple[Callable[..., Any], tuple[Type, ...]]] = {
    "numbers on either side": (
        lambda b, x: [
            b(op, *pair)
            for op in (add, subtract, multiply, divide, power, maximum, minimum, floor_mod)
            for pair in ((x, b.like(1.5, x)), (b.like(0.1, x), x))
        ],
        (X,),
    ),
    "a computed scalar": (
        lambda b, x, s: [b(add, x, b(negate, s)), b(subtract, s, x), b(exponential, s)],
        (X, scalar(F32)),
    ),
    "scalar parameters": (lambda b, s, x, n: [b(multiply, s, x), b(add, s, s), n], (scalar(F32), X, scalar(I64))),
    "splats": (
        lambda b, x: [
            b(add, x, b.splat(2, X)),
            b.splat(float("-inf"), X),
            b.splat(-0.0, X),
            b.constant(np.float32(np.nan)),
        ],
        (X,),
    ),
    "made of others": (lambda b, x: [b(op, x) for op in (negate, abs_, rsqrt, logistic, sqrt, cosine, log)], (X,)),
    "integers": (
        lambda b, x: [b(negate, x), b(abs_, x), b(add, x, b.like(100, x)), b(divide, x, b.like(-3, x))],
        (tensor(I8, (4,)),),
    ),
    "wide integers": (lambda b, x: [b(add, x, b.like(2**62 + 1, x))], (tensor(I64, (4,)),)),
    "half floats": (
        lambda b, x: [b(multiply, x, b.like(0.1, x)), b.constant(np.array([1, 1.5, 2, 2.5], np.float16))],
        (tensor(F16, (4,)),),
    ),
    "bools": (
        lambda b, x, y: [b(and_, x, y), b(or_, x, y), b(xor, x, y), b(not_, x), b(select, x, y, x)],
        (tensor(BOOL, (5,)), tensor(BOOL, (5,))),
    ),
    "comparisons": (
        lambda b, x, y: [
            b(compare, *p, direction=d)
            for d in ("EQ", "NE", "LT", "LE", "GT", "GE")
            for p in ((x, y), (x, b.like(0, x)), (b.like(0, x), y))
        ],
        (X, X),
    ),
    "choices": (
        lambda b, p, x, s: [
            b(select, p, x, b.like(0, x)),
            b(select, b(compare, s, s, direction="EQ"), x, x),
            b(clamp, b.like(-1, x), x, s),
        ],
        (tensor(BOOL, (2, 3)), X, scalar(F32)),
    ),
    "conversions": (lambda b, x: [b(convert, x, dtype=d) for d in (F64, I32, BOOL, I8)], (X,)),
    "shapes": (
        lambda b, x: [
            b(reshape, x, shape=(6,)),
            b(transpose, x, permutation=(1, 0)),
            b(reshape, b(reshape, x, shape=(6, 1)), shape=(3, 2)),
            b(broadcast_in_dim, x, shape=(4, 2, 3), broadcast_dimensions=(1, 2)),
            b(broadcast_in_dim, x, shape=(2, 4, 3), broadcast_dimensions=(0, 2)),
            b(broadcast_in_dim, x, shape=(3, 2), broadcast_dimensions=(1, 0)),
        ],
        (X,),
    ),
    "cutting and joining": (
        lambda b, x: [
            b(slice_, x, start_indices=(0, 1), limit_indices=(2, 3), strides=(1, 2)),
            b(reverse, x, dimensions=(0, 1)),
            b(concatenate, x, x, x, dimension=1),
            b(slice_, x, start_indices=(1, 0), limit_indices=(1, 3), strides=(1, 1)),
            b(pad, x, b.like(9, x), edge_padding_low=(1, 0), edge_padding_high=(2, 3), interior_padding=(0, 0)),
        ],
        (X,),
    ),
    "picking": (
        lambda b, x, i: [b(torch_index_select, x, b(maximum, i, b.like(0, i)), dim=1)],
        (tensor(F32, (2, 3)), tensor(I32, (5,))),
    ),
    "counting": (
        lambda b: [
            b(iota, dtype=d, shape=s, iota_dimension=k)
            for d in (I32, F32)
            for s, k in (((4,), 0), ((2, 3), 0), ((2, 3), 1), ((1, 3), 1))
        ],
        (),
    ),
    "constants": (
        lambda b: (
            [b.constant(np.array(v, np.float32)) for v in ([1, 3, 5], [[0, 0.25], [0.5, 0.75]], [[3, 1], [4, 1]])]
            + [b.constant(np.zeros((0, 2), np.int32)), b.constant(np.array([True, False]))]
        ),
        (),
    ),
    "reductions": (
        lambda b, x: [
            reduction(b, op, x, d) for op in (add, multiply, maximum, minimum) for d in ((0,), (1,), (0, 1), ())
        ],
        (X,),
    ),
    "reductions that start elsewhere": (
        lambda b, x: [
            b(reduce, x, b.constant(start, F32), dimensions=d, body=monoid_body(op, F32))
            for op, start in ((add, 0.5), (multiply, 2), (maximum, 0.25), (minimum, 0.25)) for d in ((0,), (0, 1))
        ],
        (X,),
    ),
    "reductions of bools": (lambda b, x: [reduction(b, op, x, (0,)) for op in (and_, or_)], (tensor(BOOL, (2, 3)),)),
    "products": (
        lambda b, x, y: [
            _dot(b, x, y, (), (), (1,), (0,)),
            _dot(b, x, x, (), (), (1,), (1,)),
            _dot(b, x, x, (), (), (0, 1), (0, 1)),
            _dot(b, x, x, (0,), (0,), (1,), (1,)),
            _dot(b, x, y, (), (), (), ()),
        ],
        (X, tensor(F32, (3, 4))),
    ),
    "batched products": (
        lambda b, x, y: [_dot(b, x, y, (0,), (0,), (2,), (1,)), _dot(b, x, y, (1,), (2,), (2,), (1,))],
        (tensor(F64, (2, 3, 4)), tensor(F64, (2, 4, 3))),
    ),
    "results twice and parameters": (lambda b, x, y: [y, b.like(1, x), b(add, x, y), x, y], (X, X)),
    "empty tensors": (lambda b, x: [b(add, x, x), b(concatenate, x, x, dimension=0)], (tensor(F32, (0, 3)),)),
}


def _dot(b: Builder, x: Node, y: Node, *axes: tuple[int, ...]) -> Node:
    names = (
        "lhs_batching_dimensions",
        "rhs_batching_dimensions",
        "lhs_contracting_dimensions",
        "rhs_contracting_dimensions",
    )
    return b(dot_general, x, y, **dict(zip(names, axes, strict=True)))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("case", CASES)
def test_every_operation(case: str, dialect: str) -> None:
    make, types = CASES[case]
    b = Builder()
    assert_same(module(lambda *xs: make(b, *xs), *types, b=b), dialect)


def test_every_row_of_the_table_is_tried() -> None:
    from deepx_graph.text.deepx.printer.ops import EMITTERS

    tried: set[Op] = set()
    for make, types in CASES.values():
        b = Builder()
        tried |= {n.op for n in module(lambda *xs, make=make, b=b: make(b, *xs), *types, b=b).entry.nodes}
    left = {op.name for op in set(EMITTERS) - tried}
    assert left <= {"sine", "tan", "ensure_type", "rng_uniform", "rng_normal", "exponential"}
