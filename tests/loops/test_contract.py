"""Sums of products, reductions and batch normalisation as loop programs, interpreted and as machine code."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ops import (
    OPS,
    add,
    compare,
    convolution,
    dot_general,
    map_,
    maximum,
    minimum,
    multiply,
    reduce,
    select,
    subtract,
)
from deepx_graph.ops.contract.convolution import conv_attrs
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.ops.contract.selection import is_any_order
from deepx_graph.types import F32, F64, I32, U8, DType, as_tensor, scalar
from tests.support.loop_programs import agrees

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

KINDS = ["f4", "f8", "i1", "u4", "i8", "?", "c8", "c16", "bf16"]


def numbers(kind: str, *shape: int, seed: int = 0) -> Any:
    """Small integers, which every kind of number has and sums without rounding; complex ones with both parts."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, shape)
    if kind.startswith("c"):
        return (x + 1j * rng.integers(-3, 4, shape)).astype(kind)
    return x.astype(ml_dtypes.bfloat16 if kind == "bf16" else kind)


def dtype_of(x: Any) -> DType:
    return as_tensor(Builder().constant(x).type).dtype


def dot(lhs_batch: Any, rhs_batch: Any, lhs_contract: Any, rhs_contract: Any) -> dict[str, Any]:
    return {"lhs_batching_dimensions": lhs_batch, "rhs_batching_dimensions": rhs_batch,
            "lhs_contracting_dimensions": lhs_contract, "rhs_contracting_dimensions": rhs_contract}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("left", "right", "attrs"), [
    ((3, 10), (10, 7), dot((), (), (1,), (0,))),
    ((3, 10), (7, 10), dot((), (), (1,), (1,))),
    ((2, 9, 3), (2, 9, 300), dot((0,), (0,), (1,), (1,))),
    ((6, 11), (11, 37), dot((), (), (1,), (0,))),
    ((3, 9, 5, 2), (9, 40, 3), dot((0,), (2,), (1,), (0,))),
    ((3, 2, 4, 5), (5, 4, 3, 6), dot((0,), (2,), (3, 2), (0, 1))),
    ((20,), (20,), dot((), (), (0,), (0,))),
    ((2, 5), (3,), dot((), (), (), ())),
    ((2, 0), (0, 5), dot((), (), (1,), (0,))),
])
def test_dot_general_of_any_layout_and_dtype(kind: str, left: Any, right: Any, attrs: dict[str, Any]) -> None:
    x, y = numbers(kind, *left), numbers(kind, *right, seed=1)
    agrees(dot_general, [x, y], attrs, interpreted=x.size * y.size < 4000)


def test_few_terms_are_summed_in_order() -> None:
    """Where terms cancel, another order gives something else."""
    x = np.float32([[1e8, 1, -1e8, 1]])
    agrees(dot_general, [x, np.ones((4, 5), "f4")], dot((), (), (1,), (0,)))
    agrees(dot_general, [x, np.ones((5, 4), "f4")], dot((), (), (1,), (1,)))


@pytest.mark.parametrize("kind", ["f4", "i4", "c8", "bf16"])
@pytest.mark.parametrize(("left", "right", "attrs"), [
    ((2, 4, 5, 6), (6, 2, 2, 3), conv_attrs(2, feature_group_count=2, padding_low=(1, -1), padding_high=(0, 2),
                                            window_strides=(2, 1))),
    ((4, 3, 7), (6, 3, 2), conv_attrs(1, batch_group_count=2, lhs_dilation=(3,), padding_low=(2,), window_reversal=(1,))),
    ((1, 2, 8), (4, 2, 3), conv_attrs(1, rhs_dilation=(2,), padding_low=(2,), padding_high=(2,))),
])
def test_convolution_of_any_dtype(kind: str, left: Any, right: Any, attrs: dict[str, Any]) -> None:
    agrees(convolution, [numbers(kind, *left), numbers(kind, *right, seed=1)], attrs)


def chosen(direction: str, dtype: DType = F32, *, in_order: bool = False) -> Function:
    """(value, position) of the greatest or least; of equal ones that with the least position, or that which comes first."""
    t, i = scalar(dtype), scalar(I32)
    b = Builder()

    def body(x: Node, k: Node, y: Node, n: Node) -> list[Node]:
        better, equal = b(compare, x, y, direction=direction), b(compare, x, y, direction="EQ")
        return [b(select, better, x, y), b(select, better, k, b(select, equal, k if in_order else b(minimum, k, n), n))]

    return b.function("chosen", (("x", t), ("k", i), ("y", t), ("n", i)), body, public=False)


def odds() -> Function:
    """x + y + x y: associative, and no operation of its own."""
    b, t = Builder(), scalar(F64)
    return b.function("odds", (("a", t), ("b", t)), lambda x, y: [b(add, b(add, x, y), b(multiply, x, y))], public=False)


SHAPES = [((5, 200), (1,)), ((200, 5), (0,)), ((20, 30), (1,)), ((3, 300), (0,)), ((3, 40, 9), (0, 1)), ((3, 4, 150), (0, 2)),
          ((400,), (0,)), ((7, 2), (0,)), ((3, 4, 5), (0, 2))]  # fmt: skip


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
@pytest.mark.parametrize("direction", ["GT", "LT"])
@pytest.mark.parametrize("kind", ["f4", "i4", "u1", "i8", "?"])
@pytest.mark.parametrize("in_order", [False, True])
def test_positions_of_the_greatest_and_the_least(in_order: bool, kind: str, direction: str, shape: Any, axes: Any) -> None:
    """Also of equal numbers, whose positions do not ascend."""
    rng = np.random.default_rng(5)
    x = rng.integers(0, 9, shape).astype(kind)
    k = rng.permutation(x.size).astype("i4").reshape(shape)
    body = chosen(direction, dtype_of(x), in_order=in_order)
    worst = np.asarray(x.min() if direction == "GT" else x.max(), x.dtype)
    agrees(reduce, [x, k, worst, np.int32(x.size)], {"dimensions": axes, "body": body}, interpreted=x.size < 500)


def test_reducers_of_which_the_order_of_elements_is_known_to_make_no_difference() -> None:
    """Others are sums that round, floats, of which some are neither less nor greater, and what keeps the left one of equals."""
    assert is_any_order(chosen("GT", I32)) and is_any_order(chosen("LT", U8)) and is_any_order(monoid_body(maximum, I32))
    assert not any(map(is_any_order, (odds(), chosen("GT"), chosen("GT", I32, in_order=True), monoid_body(add, I32))))


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_reductions_by_any_function(shape: Any, axes: Any) -> None:
    x = np.random.default_rng(6).uniform(-0.1, 0.1, shape)
    agrees(reduce, [x, np.float64(0.5)], {"dimensions": axes, "body": odds()}, interpreted=x.size < 500)


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
@pytest.mark.parametrize("kind", ["f4", "i2", "c8", "bf16"])
def test_sums_and_extremes(kind: str, shape: Any, axes: Any) -> None:
    x = numbers(kind, *shape)
    dtype = dtype_of(x)
    for op, init in ((add, 1), (maximum, -3)):
        if op is add or kind != "c8":
            agrees(reduce, [x, np.asarray(init, x.dtype)], {"dimensions": axes, "body": monoid_body(op, dtype)},
                   interpreted=x.size < 300)


def test_a_long_sum_is_as_exact_as_eval() -> None:
    x = np.random.default_rng(7).random((9000, 6)).astype("f4")
    agrees(reduce, [x, np.float32(0)], {"dimensions": (0,), "body": monoid_body(add, F32)}, interpreted=False)


@pytest.mark.parametrize("name", ["batch_norm_training", "batch_norm_inference", "batch_norm_grad"])
@pytest.mark.parametrize(("shape", "feature"), [((6, 5, 8), 2), ((4, 6, 9), 1), ((5, 3), 0), ((7, 2), 1)])
@pytest.mark.parametrize("kind", ["f4", "f8", "bf16"])
def test_batch_norm(kind: str, shape: Any, feature: int, name: str) -> None:
    rng = np.random.default_rng(8)
    type = ml_dtypes.bfloat16 if kind == "bf16" else kind
    op = OPS[name]
    vectors = [rng.uniform(0.5, 1.5, shape[feature]).astype(type) for o in op.operands if o.name not in ("operand", "grad_output")]
    more = [rng.random(shape).astype(type)] if name == "batch_norm_grad" else []
    agrees(op, [rng.random(shape).astype(type), *vectors, *more], {"epsilon": 0.01, "feature_index": feature})


def test_map_of_a_function_without_branches() -> None:
    b, t = Builder(), scalar(F32)
    body = b.function("f", (("x", t), ("y", t)), lambda x, y: [b(subtract, b(multiply, x, y), x)], public=False)
    agrees(map_, [numbers("f4", 3, 40), numbers("f4", 3, 40, seed=1)], {"computation": body})
