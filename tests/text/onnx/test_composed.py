"""Operators that are found again when a program of another language is written as ONNX, and what must not be taken for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import Source
from deepx_graph.text import ReadOptions, formats
from deepx_graph.text.onnx.messages import model_in
from tests.support.paths import ROOT

xp = dx.xp
X = np.linspace(-2, 3, 24, dtype=np.float32).reshape(2, 3, 4) ** 2 % 3 - 1
ROW = np.array([1, -2, 0.5, 3], np.float32)
W = np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)
C = np.linspace(0, 1, 5, dtype=np.float32)
HEADS = np.linspace(-1, 2, 2 * 3 * 6 * 4, dtype=np.float32).reshape(2, 3, 6, 4)
MASK = np.where(np.tri(6, dtype=bool), 0, -1e9).astype(np.float32).reshape(1, 1, 6, 6)


def softmax(x: Any, axis: int = -1) -> Any:
    e = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return e / xp.sum(e, axis=axis, keepdims=True)


def log_softmax(x: Any) -> Any:
    less = x - xp.max(x, axis=1, keepdims=True)
    return less - xp.log(xp.sum(xp.exp(less), axis=1, keepdims=True))


def layer_norm(x: Any, scale: Any, bias: Any, axis: Any = -1) -> Any:
    less = x - xp.mean(x, axis=axis, keepdims=True)
    return less / xp.sqrt(xp.mean(less * less, axis=axis, keepdims=True) + 1e-5) * scale + bias


def gelu(x: Any) -> Any:
    return x * 0.5 * (1 + xp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return softmax(xp.matmul(q, xp.permute_dims(k, (0, 1, 3, 2))) * 0.5 + mask) @ v


def attention_plus(number: float) -> Callable[..., Any]:
    return lambda q, k, v: attention(q, k, v, number)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, int]]] = {
    "Softmax": (softmax, (X,), {"Softmax": 1}),
    "Softmax along another axis": (lambda x: softmax(x, 0), (X,), {"Softmax": 1}),
    "LogSoftmax": (log_softmax, (X,), {"LogSoftmax": 1}),
    "LayerNormalization": (layer_norm, (X, ROW, ROW), {"LayerNormalization": 1}),
    "LayerNormalization of two axes": (lambda x, s, b: layer_norm(x, s, b, (1, 2)), (X, X[0], X[1]), {"LayerNormalization": 1}),
    "Gelu": (gelu, (X,), {"Gelu": 1}),
    "Gemm": (lambda x, w, c: x @ w + c, (X[0], W, C), {"Gemm": 1}),
    "Gemm, turned": (lambda x, w, c: c + xp.tensordot(x, w, axes=((0,), (1,))), (X[0].T.copy(), W.T.copy(), C), {"Gemm": 1}),
    "Attention": (attention, (HEADS, HEADS + 1, HEADS - 2, MASK), {"Attention": 1}),
    "Attention without a mask": (attention_plus(0.0), (HEADS, HEADS + 1, HEADS - 2), {"Attention": 1}),
    "no Attention, a number for a mask": (attention_plus(1.0), (HEADS, HEADS + 1, HEADS), {"Softmax": 1}),
    "no Softmax, as its exponentials are results": (
        lambda x: (softmax(x), xp.exp(x - xp.max(x, axis=-1, keepdims=True))), (X,), {}),
    "no Softmax, another axis": (
        lambda x: xp.exp(x - xp.max(x, axis=0, keepdims=True)) / xp.sum(xp.exp(x - xp.max(x, axis=0, keepdims=True)), axis=1,
                                                                        keepdims=True), (X,), {}),
    "no LayerNormalization, an axis before": (lambda x, s: layer_norm(x, s, s, 1), (X, ROW), {}),
    "no Gelu, another number": (lambda x: x * 0.5 * (1 + xp.tanh(0.9 * (x + 0.044715 * x * x * x))), (X,), {}),
    "no Gemm, a product of three axes": (lambda x, w, c: x @ w + c, (X, W, C), {}),
}  # fmt: skip

LEVELS = {"Softmax", "LogSoftmax", "LayerNormalization", "Gelu", "Gemm", "Attention"}


def operators(data: bytes) -> Counter[str]:
    model = model_in(Source("m", data=memoryview(data)), ReadOptions())
    assert model.graph is not None
    return Counter(n.op_type for n in model.graph.nodes)


@pytest.mark.parametrize("name", CASES)
def test_operators_are_found_again_and_mean_the_same(name: str) -> None:
    function, arrays, wanted = CASES[name]
    module = dx.optimize(dx.trace(function, *arrays), "clean")
    data = formats.encode(module, "onnx", opset=23)
    assert {k: v for k, v in operators(data).items() if k in LEVELS} == wanted
    again = formats.read(formats.decode_source(data, "again", 1 << 20)).module
    found, want = (dx.compile(m, engine="numpy", optimize=False)(*arrays) for m in (again, module))
    for f, w in zip(found, want, strict=True):
        np.testing.assert_allclose(f, w, rtol=2e-5, atol=1e-6)


def test_operators_of_later_versions_are_not_written_in_earlier_ones() -> None:
    for name in ("Gelu", "Attention"):
        function, arrays, _ = CASES[name]
        assert name not in operators(formats.encode(dx.trace(function, *arrays), "onnx", opset=18))


def test_programs_of_jax() -> None:
    corpus = ROOT.parent / "shared" / "corpus" / "jax"
    if not corpus.is_dir():
        pytest.skip("the corpus is not on this machine")
    norm = operators(formats.encode(dx.optimize(dx.load(corpus / "model_layernorm.stablehlo"), "clean"), "onnx"))
    assert norm == {"LayerNormalization": 1}
    assert operators(formats.encode(dx.load(corpus / "model_mlp.stablehlo"), "onnx"))["Gemm"] == 3
