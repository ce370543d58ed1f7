"""Windows as loop programs: every kind of window, padding and dtype, interpreted and as machine code."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.loops.lower import lower
from deepx_graph.loops.passes.pipeline import optimised
from deepx_graph.loops.program import Conditional, walk
from deepx_graph.loops.weight import price_of, weighted
from deepx_graph.ops import add, compare, maximum, multiply, reduce_window, select, select_and_scatter, subtract
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.types import C64, F32, F64, I32, DType, dtype_of, scalar, tensor
from tests.support.loop_programs import agrees

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")


def window(sizes: tuple[int, ...], body: Function, **given: Any) -> dict[str, Any]:
    ones, zeros = (1,) * len(sizes), (0,) * len(sizes)
    return {"window_dimensions": sizes, "window_strides": ones, "base_dilations": ones, "window_dilations": ones,
            "padding_low": zeros, "padding_high": zeros, "body": body, **given}


def odds(dtype: DType) -> Function:
    """x + y + x y: associative, and no operation of its own."""
    b, t = Builder(), scalar(dtype)
    return b.function("odds", (("a", t), ("b", t)), lambda x, y: [b(add, b(add, x, y), b(multiply, x, y))], public=False)


def last(dtype: DType) -> Function:
    """The second of two, in a way that no rule sees through."""
    b, t = Builder(), scalar(dtype)

    def body(x: Node, y: Node) -> list[Node]:
        return [b(select, b(compare, x, x, direction="EQ"), y, x)]

    return b.function("last", (("a", t), ("b", t)), body, public=False)


POOLS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 9, 11, 5), (1, 3, 3, 1), {"window_strides": (1, 2, 2, 1), "padding_low": (0, 1, 1, 0), "padding_high": (0, 1, 0, 0)}),
    ((3, 9, 20), (1, 2, 3), {"window_strides": (1, 2, 3), "padding_low": (0, 1, 2), "padding_high": (0, 2, 3)}),
    ((4, 40), (1, 16), {}),
    ((4, 40), (1, 9), {"window_dilations": (1, 3), "padding_low": (0, 5), "padding_high": (0, 4), "window_strides": (1, 2)}),
    ((6, 7), (2, 3), {"base_dilations": (2, 3), "window_dilations": (2, 1), "padding_low": (1, 2)}),
    ((7, 6), (3, 2), {"padding_low": (-1, -2), "padding_high": (-2, 1)}),
    ((5, 300), (2, 1), {"window_strides": (3, 1)}),
    ((4, 6), (4, 6), {}),
    ((3, 6), (2, 9), {"padding_low": (0, 4), "padding_high": (0, 4)}),
    ((2, 7, 31), (1, 3, 3), {"window_strides": (1, 2, 2), "padding_low": (0, 1, 1), "padding_high": (0, 1, 1)}),
    ((2, 600), (1, 5), {"window_strides": (1, 2), "padding_low": (0, 2), "padding_high": (0, 3)}),
]


@pytest.mark.parametrize("case", POOLS)
@pytest.mark.parametrize(("op", "init"), [(add, 0.0), (add, 0.5), (maximum, -np.inf), (maximum, 0.7)])
def test_pooling(op: Op, init: float, case: tuple[Any, ...]) -> None:
    """Also from a number that is no identity, which then counts for every element of the padding."""
    shape, sizes, attrs = case
    x = np.random.default_rng(0).uniform(0.5, 1.5, shape).astype("f4")
    agrees(reduce_window, [x, np.float32(init)], window(sizes, monoid_body(op, F32), **attrs), interpreted=x.size < 500)


@pytest.mark.parametrize("dtype", ["i4", "c8", "bf16", "f8"])
def test_pooling_of_every_kind_of_number(dtype: str) -> None:
    type = np.dtype(ml_dtypes.bfloat16 if dtype == "bf16" else dtype)
    x = (np.random.default_rng(1).uniform(-4, 4, (3, 5, 6)) * (1 - 2j if dtype == "c8" else 1)).astype(type)
    attrs = window((1, 2, 3), monoid_body(add, dtype_of(type)), padding_low=(0, 1, 1), padding_high=(0, 0, 2))
    agrees(reduce_window, [x, np.zeros((), type)], attrs)


@pytest.mark.parametrize("shape", [(37,), (5, 40), (40, 5), (3, 7, 300), (2, 18, 9)])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("empty", [0, 2])
@pytest.mark.parametrize(("kind", "init"), [("add", 0.0), ("add", 0.25), ("maximum", -np.inf), ("odds", 0.0), ("odds", 0.1)])
def test_running_results(kind: str, init: float, empty: int, backwards: bool, shape: tuple[int, ...]) -> None:
    """Also behind windows that hold nothing, as where sums begin with a zero."""
    body = {"add": monoid_body(add, F64), "maximum": monoid_body(maximum, F64), "odds": odds(F64)}[kind]
    x = np.random.default_rng(2).uniform(0, 0.1, shape)
    for axis, size in enumerate(shape):
        reach = tuple(size - 1 if k == axis else 0 for k in range(len(shape)))
        sizes = tuple(r + 1 for r in reach)
        padded = tuple(r + empty if k == axis else 0 for k, r in enumerate(reach))
        padding = {"padding_high": padded} if backwards else {"padding_low": padded}
        agrees(reduce_window, [x, np.float64(init)], window(sizes, body, **padding), interpreted=x.size < 300)


def test_running_results_behind_nothing_are_scans() -> None:
    """Twice the elements take twice the work, or a little more."""
    def work(size: int) -> float:
        b = Builder()
        node = b(reduce_window, b.param(0, tensor(F32, (3, size))), b.constant(np.float32(0)),
                 **window((1, size + 1), monoid_body(add, F32), padding_low=(0, size + 1)))
        program = optimised(lower(Function("main", node.inputs[:1], (node,))))
        scans = [s for s in walk(program.body) if isinstance(s, Conditional)][:1]
        return sum(times * price_of(s) for s, times in weighted([*(scans[0].then if scans else program.body)]))

    assert work(2000) < 3 * work(1000)


def test_running_results_keep_the_order_of_a_reducer() -> None:
    """Of what takes the later of two every window gives its last element."""
    x = np.arange(1.0, 13).reshape(3, 4)
    agrees(reduce_window, [x, np.float64(0)], window((1, 4), last(F64), padding_low=(0, 3)))


def test_running_results_of_integers_and_several_rows() -> None:
    x = np.arange(-40, 40, dtype="i4").reshape(2, 40)
    agrees(reduce_window, [x, np.int32(0)], window((1, 40), monoid_body(add, I32), padding_low=(0, 39)))
    z = (x + 1j * x[:, ::-1]).astype("c8")
    agrees(reduce_window, [z, np.complex64(0)], window((1, 40), monoid_body(add, C64), padding_low=(0, 39)))


def test_a_window_of_two_results() -> None:
    """The greatest number with the number that came with it."""
    b, t = Builder(), scalar(F64)

    def body(x: Node, p: Node, y: Node, q: Node) -> list[Node]:
        keep = b(compare, x, y, direction="GE")
        return [b(select, keep, x, y), b(select, keep, p, q)]

    greatest = b.function("greatest", [(n, t) for n in "xpyq"], body, public=False)
    rng = np.random.default_rng(3)
    x, p = rng.random((4, 9)), rng.random((4, 9))
    for attrs in ({}, {"padding_low": (0, 2), "window_strides": (1, 2)}):
        agrees(reduce_window, [x, p, np.float64(-1), np.float64(0)], window((2, 3), greatest, **attrs))


@pytest.mark.parametrize(("shape", "attrs"), [
    ((2, 6, 8, 3), {"window_dimensions": (1, 2, 2, 1), "window_strides": (1, 2, 2, 1)}),
    ((3, 7, 9), {"window_dimensions": (1, 3, 3), "window_strides": (1, 2, 2), "padding_low": (0, 1, 1)}),
    ((9, 7), {"window_dimensions": (3, 1), "window_strides": (2, 1), "padding_high": (1, 0)}),
    ((9,), {"window_dimensions": (4,), "window_strides": (1,)}),
    ((2, 6, 7, 5), {"window_dimensions": (1, 3, 3, 1), "window_strides": (1, 2, 2, 1), "padding_low": (0, 1, 1, 0)}),
    ((5, 6, 300), {"window_dimensions": (3, 1, 1), "window_strides": (1, 1, 1), "padding_high": (1, 0, 0)}),
    ((2, 9, 14), {"window_dimensions": (1, 3, 4), "window_strides": (1, 1, 1), "padding_low": (0, 1, 0)}),
    ((21,), {"window_dimensions": (7,), "window_strides": (2,)}),
])
@pytest.mark.parametrize(("scatter", "dtype"), [(add, F32), (maximum, F32), (subtract, F32), (add, I32)])
def test_selection_and_scatter(scatter: Op, dtype: DType, shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    zeros = (0,) * len(shape)
    attrs = {"padding_low": zeros, "padding_high": zeros, **attrs}
    b, t = Builder(), scalar(dtype)
    prefer = b.function("prefer", (("a", t), ("b", t)), lambda x, y: [b(compare, x, y, direction="GE")], public=False)
    counts = [(n + lo + hi - w) // s + 1 for n, w, s, lo, hi in zip(
        shape, *(attrs[k] for k in ("window_dimensions", "window_strides", "padding_low", "padding_high")), strict=True)]
    rng = np.random.default_rng(4)
    x, source = (rng.integers(-5, 5, n).astype(dtype.np) for n in (shape, counts))  # equal candidates among them
    agrees(select_and_scatter, [x, source, np.asarray(1, dtype.np)], {
        **attrs, "select": prefer, "scatter": monoid_body(scatter, dtype)})


@pytest.mark.parametrize(("shape", "window"), [((2, 9, 14), (1, 3, 4)), ((3, 6, 7, 5), (1, 3, 3, 1)), ((2, 5, 9), (1, 3, 1))])
def test_windows_that_select_one_element_meet_it_in_order(shape: tuple[int, ...], window: tuple[int, ...]) -> None:
    b, t = Builder(), scalar(I32)
    prefer = b.function("prefer", (("a", t), ("b", t)), lambda x, y: [b(compare, x, y, direction="GE")], public=False)
    three = b.constant(np.int32(3))
    append = b.function("append", (("a", t), ("b", t)), lambda x, y: [b(add, b(multiply, x, three), y)], public=False)
    rng, zeros = np.random.default_rng(5), (0,) * len(shape)
    x = rng.integers(0, 9, shape).astype(np.int32)
    source = rng.integers(0, 9, [n - w + 1 for n, w in zip(shape, window, strict=True)]).astype(np.int32)
    agrees(select_and_scatter, [x, source, np.int32(1)], {
        "window_dimensions": window, "window_strides": (1,) * len(shape), "padding_low": zeros, "padding_high": zeros,
        "select": prefer, "scatter": append})
