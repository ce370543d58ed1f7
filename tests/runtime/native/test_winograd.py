"""Convolutions by Winograd's filtering against the reference: sizes, layouts, groups, epilogues, special values, errors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ops import add, broadcast_in_dim, maximum
from deepx_graph.ops.contract.convolution import conv_attrs, convolution
from deepx_graph.ops.interpret import evaluate
from deepx_graph.rewrite.epilogue import split_epilogue
from deepx_graph.runtime.memory.pool import RESULTS
from deepx_graph.runtime.native.convolution import kernel, winograd
from deepx_graph.runtime.native.convolution.problem import problems_of
from deepx_graph.runtime.native.convolution.winograd import WinogradPlan
from deepx_graph.types import type_of_array
from tests.support import laws

Array = np.ndarray[Any, Any]

PADDED = {"padding_low": (1, 1), "padding_high": (1, 1)}
CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 64, 28, 28), (64, 64, 3, 3), conv_attrs(2, **PADDED)),
    ((2, 5, 9, 10), (20, 5, 3, 3), conv_attrs(2, **PADDED)),
    ((1, 16, 13, 13), (24, 16, 3, 3), conv_attrs(2)),
    ((2, 8, 40, 33), (7, 8, 3, 3), conv_attrs(2, padding_low=(0, 2), padding_high=(3, 0), window_reversal=(1, 1))),
    ((3, 8, 11, 50), (24, 4, 3, 3), conv_attrs(2, feature_group_count=2, window_reversal=(0, 1), **PADDED)),
    ((6, 4, 12, 12), (24, 4, 3, 3), conv_attrs(2, batch_group_count=3)),
    ((1, 16, 3, 10), (24, 16, 3, 3), conv_attrs(2)),
    ((2, 8, 17, 17), (9, 8, 3, 3), conv_attrs(2, padding_low=(-3, -2), padding_high=(-1, 5))),
    ((1, 20, 21, 12), (3, 3, 12, 10), conv_attrs(
        2, input_feature_dimension=3, input_spatial_dimensions=(1, 2), kernel_spatial_dimensions=(0, 1),
        kernel_input_feature_dimension=2, kernel_output_feature_dimension=3)),
]
"""Layouts of input and weights differ; results are neighbours along the last axis."""


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However small: transformed."""
    monkeypatch.setattr(winograd, "LEAST_GAIN", np.inf)
    with np.errstate(all="ignore"):
        yield


def function_of(x: Array, w: Array, attrs: dict[str, Any], then: bool = False) -> Function:
    """A convolution by constant weights; then an offset a feature, another array, and a maximum."""
    b = Builder()
    node = b(convolution, b.param(0, type_of_array(x)), b.constant(w), **attrs)
    params, last = [node.inputs[0]], node
    if then:
        shape = node.type.shape  # type: ignore[attr-defined]
        params.append(b.param(1, node.type))
        offset = b(broadcast_in_dim, b.constant(numbers(9, shape[1:2])), shape=shape, broadcast_dimensions=(1,))
        last = b(maximum, b(add, b(add, node, offset), params[1]), b.constant(np.zeros(shape, "f4")))
    return Function("f", tuple(params), (last,))


def numbers(seed: int, shape: tuple[int, ...]) -> Array:
    """Small whole numbers: their sums are exact in any order, their quarters too."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("f4")


def check(x: Array, w: Array, attrs: dict[str, Any], then: bool = False, threads: int = 2) -> None:
    function = function_of(x, w, attrs, then)
    made = kernel.build(function, threads)
    assert made.lowering.startswith("convolution by transforms of squares")
    other = [numbers(7, function.results[0].type.shape)] if then else []  # type: ignore[attr-defined]
    (want,) = evaluate(function, [x, *other])
    for out in (None, [np.full_like(want, np.nan)]):
        np.testing.assert_array_equal(made([x, *other], out)[0], want)


@pytest.mark.parametrize("then", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}x{c[1]}")
def test_named_cases(case: Any, then: bool) -> None:
    x, w, attrs = case
    check(numbers(0, x), numbers(1, w), attrs, then)


def test_generated_sizes_blocks_and_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the plan: any of a problem, not the cheapest alone."""
    rng, kinds = np.random.default_rng(3), set()
    for seed in range(12):
        n, c, o, h, w = (int(rng.integers(2, most)) for most in (4, 9, 30, 24, 40))
        monkeypatch.setattr(winograd, "SUMS_BYTES", 1 << int(rng.integers(12, 20)))
        monkeypatch.setattr(winograd, "INPUT_BYTES", (1 << int(rng.integers(12, 16))) * c)
        attrs = conv_attrs(2, padding_low=tuple(map(int, rng.integers(0, 3, 2))), padding_high=(2, 2))
        x, weights = numbers(seed, (n, c, h, w)), numbers(seed + 1, (o, c, 3, 3))
        function = function_of(x, weights, attrs)
        parts = split_epilogue(function, convolution)
        assert parts is not None
        (problem,) = problems_of(parts.node)
        plans = list(winograd.plans(problem, 8, 16))
        if plans:
            chosen = plans[int(rng.integers(len(plans)))]
            kinds.add((chosen.blocks[0] > 1, chosen.parts > 1))
            made = kernel.kernel_of(function, parts, [chosen], None, 2)
            np.testing.assert_array_equal(made([x])[0], evaluate(function, [x])[0])
    assert len(kinds) == 4


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_reach_their_own_windows_and_no_others(special: float) -> None:
    for at, in_weights in itertools.product(((0, 0, 0, 0), (0, 3, 2, 2), (0, 1, 1, 0)), (False, True)):
        x, w = numbers(0, (1, 4, 12, 19)), numbers(1, (10, 4, 3, 3))
        (w if in_weights else x)[at] = special
        check(x, w, conv_attrs(2, **PADDED))


def test_numbers_that_are_too_large_for_the_transforms() -> None:
    rng = np.random.default_rng(5)
    x, w = rng.choice([-3e38, 3e38], (1, 4, 12, 19)).astype("f4"), rng.standard_normal((10, 4, 3, 3), "f4") * np.float32(1e-3)
    function = function_of(x, w, conv_attrs(2, **PADDED))
    (got,), (want,) = kernel.build(function, 2)([x]), evaluate(function, [x])
    assert np.isfinite(want).all() and np.abs(got - want).max() < 1e-6 * np.abs(want).max()


def test_errors_are_of_the_size_of_those_of_direct_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((1, 128, 28, 28), "f4"), rng.standard_normal((64, 128, 3, 3), "f4")
    function = function_of(x, w, conv_attrs(2, **PADDED))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x.astype("f8"), ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    want = np.einsum("nchwij,ocij->nohw", windows, w.astype("f8"), optimize=True)

    def error() -> float:
        return float(np.sqrt(np.mean(np.square(kernel.build(function, 2)([x])[0] - want))))

    transformed = error()
    monkeypatch.setattr(winograd, "LEAST_GAIN", 0)
    assert 0 < transformed < 3 * error() and transformed < 3e-5


def test_results_are_the_same_by_any_number_of_threads() -> None:
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((1, 40, 30, 30), "f4"), rng.standard_normal((64, 40, 3, 3), "f4")
    function = function_of(x, w, conv_attrs(2, **PADDED))
    np.testing.assert_array_equal(kernel.build(function, 1)([x])[0], kernel.build(function, 2)([x])[0])


def test_what_lies_behind_the_input_in_memory_is_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes without a tile see what was in memory: NaN there does not change how the tiles beside are summed."""
    rng = np.random.default_rng(6)
    x, w = rng.standard_normal((1, 40, 30, 30), "f4"), rng.standard_normal((64, 40, 3, 3), "f4")
    function = function_of(x, w, conv_attrs(2, **PADDED))
    found = []
    for byte in (0x00, 0xFF):
        def filled(shape: tuple[int, ...], dtype: Any, byte: int = byte) -> Array:
            made = np.empty(shape, dtype)
            made.view(np.uint8)[...] = byte
            return made

        monkeypatch.setattr(RESULTS, "empty", filled)
        found.append(kernel.build(function, 1)([x])[0])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("change", [{"window_strides": (2, 1)}, {"rhs_dilation": (1, 2)}, {"lhs_dilation": (2, 2)}])
def test_other_windows_are_direct(change: dict[str, Any]) -> None:
    x, w = numbers(0, (1, 8, 20, 20)), numbers(1, (16, 8, 3, 3))
    assert kernel.build(function_of(x, w, conv_attrs(2, **change)), 2).lowering.startswith("direct")


def test_double_precision_and_weights_of_a_call_are_direct() -> None:
    def kind(node: Node) -> type:
        return type(kernel.planned(node)[0])

    x, w = numbers(0, (1, 8, 20, 20)), numbers(1, (16, 8, 3, 3))
    assert kind(function_of(x, w, conv_attrs(2)).results[0]) is WinogradPlan
    assert kind(function_of(x.astype("f8"), w.astype("f8"), conv_attrs(2)).results[0]) is not WinogradPlan
    assert kind(laws.one_op(convolution, [x, w], conv_attrs(2)).results[0]) is not WinogradPlan
