"""Convolutions whose one window has all of the input are matrix products, and those of lone features are loops."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops.contract.convolution import conv_attrs, convolution
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.rewrite.whole_windows import as_products
from deepx_graph.types import type_of_array

SEEDS = 60


def convolved(rng: Random) -> tuple[Function, list[np.ndarray[Any, Any]]]:
    """A convolution of one or two spatial axes in any layout: windows of all of the input, single elements, and others."""
    rank, batch, features, outputs = rng.randint(1, 2), *(rng.randint(1, 5) for _ in range(3))
    sizes = [rng.randint(1, 6) for _ in range(rank)]
    windows = [rng.choice([n, n, 1, max(1, n - 1)]) for n in sizes]
    orders = [rng.sample(range(rank + 2), rank + 2) for _ in range(3)]
    (ib, fi, *isp), (ko, ki, *ks), (ob, of, *osp) = orders
    low, stride = [rng.choice([0, 0, 0, 1]) for _ in range(rank)], [rng.choice([1, 1, 2]) for _ in range(rank)]
    x, w = [0] * (rank + 2), [0] * (rank + 2)
    for shape, axes, counts in ((x, (ib, fi, *isp), (batch, features, *sizes)), (w, (ko, ki, *ks), (outputs, features, *windows))):
        for axis, n in zip(axes, counts, strict=True):
            shape[axis] = n
    attrs = conv_attrs(
        rank, input_batch_dimension=ib, input_feature_dimension=fi, input_spatial_dimensions=tuple(isp),
        kernel_input_feature_dimension=ki, kernel_output_feature_dimension=ko, kernel_spatial_dimensions=tuple(ks),
        output_batch_dimension=ob, output_feature_dimension=of, output_spatial_dimensions=tuple(osp), padding_low=tuple(low),
        window_strides=tuple(stride), window_reversal=tuple(rng.choice([0, 0, 1]) for _ in range(rank)))
    made = np.random.default_rng(rng.randrange(1 << 30))
    arrays = [made.standard_normal(shape).astype("f4") for shape in (x, w)]
    b = Builder()
    params = [b.param(k, type_of_array(a)) for k, a in enumerate(arrays)]
    return Function("main", tuple(params), (b(convolution, *params, **attrs),)), arrays


def test_a_product_computes_what_the_convolution_does() -> None:
    seen = 0
    for seed in range(SEEDS * 5):
        function, arrays = convolved(Random(seed))
        found = as_products(function)
        expected, result = (dx.compile(Module((f,)), engine="numpy", optimize=False)(*arrays)[0] for f in (function, found))
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
        assert (found is function) == (not any(n.op is dot_general for n in found.nodes))
        seen += found is not function
    assert seen > SEEDS / 2


@pytest.mark.parametrize("size", [8, 16])
@pytest.mark.parametrize("constant", [False, True])
def test_few_results_by_constant_weights_stay_a_convolution(size: int, constant: bool) -> None:
    """Weights that are packed once are worth it there; features come first, so that a product is transposed."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 5, size, size)).astype("f4"), rng.standard_normal((7, 5, 1, 1)).astype("f4")
    b = Builder()
    p, q = b.param(0, type_of_array(x)), b.constant(w) if constant else b.param(1, type_of_array(w))
    attrs = conv_attrs(2, input_feature_dimension=1, input_spatial_dimensions=(2, 3), kernel_output_feature_dimension=0,
                       kernel_input_feature_dimension=1, kernel_spatial_dimensions=(2, 3), output_feature_dimension=1,
                       output_spatial_dimensions=(2, 3))
    function = Function("main", (p,) if constant else (p, q), (b(convolution, p, q, **attrs),))
    assert (as_products(function) is function) == (constant and size == 8)
    (got,) = dx.compile(Module((function,)), engine="native")(*((x,) if constant else (x, w)))
    np.testing.assert_allclose(got, np.einsum("ncij,oc->noij", x, w[:, :, 0, 0]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("images", "size", "features", "window"), [(4, 9, 24, 3), (2, 6, 70, 5), (1, 5, 16, 1), (3, 12, 7, 3)])
@pytest.mark.parametrize("threads", [1, 2])
def test_gradients_of_weights_of_lone_features_are_loops(images: int, size: int, features: int, window: int, threads: int) -> None:
    """Against sums in double of shifted images."""
    shape, low = (images, size, size, features), window // 2
    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal(shape).astype("f4") for _ in range(2))
    b = Builder()
    p, q = (b.param(k, type_of_array(a)) for k, a in enumerate((x, dy)))
    attrs = conv_attrs(
        2, input_batch_dimension=3, input_feature_dimension=0, input_spatial_dimensions=(1, 2), kernel_input_feature_dimension=0,
        kernel_output_feature_dimension=3, kernel_spatial_dimensions=(1, 2), output_batch_dimension=2, output_feature_dimension=3,
        output_spatial_dimensions=(0, 1), padding_low=(low, low), padding_high=(low, low), batch_group_count=features)
    made: Node = b(convolution, p, q, **attrs)
    f = dx.compile(Module((Function("main", (p, q), (made,)),)), engine="native", threads=threads, profile=True)
    padded = np.pad(x, ((0, 0), (low, low), (low, low), (0, 0))).astype("f8")
    expected = np.zeros((window, window, 1, features))
    for i, j in itertools.product(range(window), repeat=2):
        expected[i, j, 0] = (padded[:, i : i + size, j : j + size] * dy).sum((0, 1, 2))
    np.testing.assert_allclose(f(x, dy)[0], expected, rtol=1e-4, atol=1e-4)
    assert "eval" not in str(f.profile)
