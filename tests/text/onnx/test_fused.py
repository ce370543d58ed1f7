"""Operators of `com.microsoft`, held against numpy as their documentation has them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.support.mindir_messages import field
from tests.support.onnx_messages import graph, info, model, node, run, tensor

RNG = np.random.default_rng(1)
UINT8 = 2


def reals(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def bytes_tensor(array: Any, name: str) -> bytes:
    return b"".join(field(1, int(d)) for d in array.shape) + field(2, UINT8) + field(8, name) + field(9, array.tobytes())


def found(op: str, *inputs: Any, outputs: Any = ("y",), weights: Any = (), **attrs: Any) -> Any:
    """What the operator gives for inputs of floats; `weights` are initialisers as bytes, by name."""
    names = [f"x{k}" for k in range(len(inputs))]
    made = node(op, [*names, *(n for n, _ in weights)], outputs, domain="com.microsoft", **attrs)
    results = [info(o, ("a", "b", "c")) for o in outputs if o]
    data = model(graph([made], [info(n, x.shape) for n, x in zip(names, inputs, strict=True)], results, [w for _, w in weights]))
    return run(data, *inputs)


def erf(x: Any) -> Any:
    return np.vectorize(math.erf)(x)


def test_gelus() -> None:
    x, bias = reals(2, 3), reals(3)
    for op, given, value in (("Gelu", (x,), x), ("BiasGelu", (x, bias), x + bias)):
        np.testing.assert_allclose(found(op, *given)[0], value * (1 + erf(value / math.sqrt(2))) / 2, rtol=1e-5)
    v = x + bias
    fast = v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) / 2
    np.testing.assert_allclose(found("FastGelu", x, bias)[0], fast, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found("QuickGelu", x, alpha=1.5)[0], x / (1 + np.exp(-1.5 * x)), rtol=1e-5)


def test_products_with_turned_operands() -> None:
    x, y = reals(2, 4, 3), reals(2, 5, 4)
    wanted = 0.5 * np.swapaxes(x, 1, 2) @ np.swapaxes(y, 1, 2)
    np.testing.assert_allclose(found("FusedMatMul", x, y, transA=1, transB=1, alpha=0.5)[0], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("centred", [True, False])
def test_the_norm_of_a_sum(centred: bool) -> None:
    x, skip, scale, offset, bias = reals(2, 3, 4), reals(2, 3, 4), reals(4), reals(4), reals(4)
    total = x + skip + bias
    off = total - total.mean(-1, keepdims=True) if centred else total
    wanted = off / np.sqrt((off**2).mean(-1, keepdims=True) + np.float32(1e-5)) * scale + (offset if centred else 0)
    op = "SkipLayerNormalization" if centred else "SkipSimplifiedLayerNormalization"
    given = (scale, offset, bias) if centred else (scale, bias)
    made = found(op, x, skip, *given, outputs=("y", "", "", "s"), epsilon=1e-5)
    np.testing.assert_allclose(made[0], wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(made[1], total, rtol=1e-6)


@pytest.mark.parametrize("zeros", [False, True])
def test_weights_of_four_bits(zeros: bool) -> None:
    """Each byte has two, the low half first; 40 columns are two blocks of 16 and one of 8."""
    x, scale = reals(3, 40), reals(6, 3)
    whole = RNG.integers(0, 16, (6, 3, 16)).astype(np.uint8)
    points = RNG.integers(0, 16, (6, 3)).astype(np.uint8)
    packed = whole[..., ::2] | whole[..., 1::2] << 4
    weights = [("w", bytes_tensor(packed, "w")), ("s", tensor(scale.reshape(-1), "s"))]
    if zeros:
        padded = np.concatenate([points, np.zeros((6, 1), np.uint8)], 1)
        weights.append(("z", bytes_tensor((padded[:, ::2] | padded[:, 1::2] << 4).reshape(-1), "z")))
    real = ((whole.astype(np.float32) - (points[..., None] if zeros else 8)) * scale[..., None]).reshape(6, 48)[:, :40]
    made = found("MatMulNBits", x, weights=weights, K=40, N=6, bits=4, block_size=16)[0]
    np.testing.assert_allclose(made, x @ real.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_arithmetic_of_quantised_numbers(op: str) -> None:
    a, b = RNG.integers(0, 256, (2, 3)).astype(np.uint8), RNG.integers(0, 256, 3).astype(np.uint8)
    scales, points = np.array([0.1, 0.2, 0.25], np.float32), np.array([3, 7, 9], np.uint8)
    weights = [("a", bytes_tensor(a, "a")), ("sa", tensor(scales[0], "sa")), ("za", bytes_tensor(points[0], "za")),
               ("b", bytes_tensor(b, "b")), ("sb", tensor(scales[1], "sb")), ("zb", bytes_tensor(points[1], "zb")),
               ("sc", tensor(scales[2], "sc")), ("zc", bytes_tensor(points[2], "zc"))]
    left, right = (a - np.float32(3)) * scales[0], (b - np.float32(7)) * scales[1]
    value = left + right if op == "QLinearAdd" else left * right
    wanted = np.clip(np.round(value / scales[2]) + 9, 0, 255).astype(np.uint8)
    np.testing.assert_array_equal(found(op, weights=weights)[0], wanted)


def test_rotary_embeddings_from_a_position() -> None:
    """Position 1 is that of the first element; the halves of each head of four are turned."""
    x, angles = reals(2, 3, 8), reals(5, 2)
    position = field(1, 1) + field(2, 7) + field(8, "p") + field(9, np.array([1]).tobytes())
    weights = [("p", position), ("c", tensor(np.cos(angles), "c")), ("s", tensor(np.sin(angles), "s"))]
    split = x.reshape(2, 3, 2, 2, 2)
    cos, sin = np.cos(angles)[1:4][None, :, None], np.sin(angles)[1:4][None, :, None]
    wanted = np.stack([cos * split[..., 0, :] - sin * split[..., 1, :], sin * split[..., 0, :] + cos * split[..., 1, :]], 3)
    np.testing.assert_allclose(found("RotaryEmbedding", x, weights=weights)[0], wanted.reshape(2, 3, 8), rtol=1e-5, atol=1e-6)


def test_a_norm_that_is_in_no_list() -> None:
    x, scale = reals(2, 4), reals(4)
    made = run(model(graph([node("SimplifiedLayerNormalization", ["x", "s"], ["y"], axis=-1)], [info("x", (2, 4)), info("s", (4,))],
                           [info("y", (2, 4))])), x, scale)[0]
    np.testing.assert_allclose(made, x / np.sqrt((x**2).mean(-1, keepdims=True) + np.float32(1e-5)) * scale, rtol=1e-5)
