"""Calls of oneDNN in compiled programs mean what numpy says of softmax, normalisation and products."""

from __future__ import annotations

import json

import numpy as np
import pytest

import deepx_graph as dx

RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
Y = RNG.standard_normal((2, 5, 4)).astype(np.float32)
SCALE, SHIFT = RNG.standard_normal((2, 4)).astype(np.float32)
BIAS, TERM = RNG.standard_normal(5).astype(np.float32), RNG.standard_normal((2, 3, 5)).astype(np.float32)


def bits(value: float) -> int:
    return int(np.float32(value).view(np.int32))


def call(kind: str, config: dict[str, object], arrays: list[np.ndarray], shape: tuple[int, ...]) -> dx.Module:
    """A module of one call."""
    def typed(dims: tuple[int, ...]) -> str:
        return f"f32[{','.join(map(str, dims))}]"

    names = [f"p{k}" for k in range(len(arrays))]
    params = "\n".join(f"  {n} = {typed(a.shape)} parameter({k})" for k, (n, a) in enumerate(zip(names, arrays, strict=True)))
    told = json.dumps({"outer_dimension_partitions": [], f"onednn_{kind}_config": config})
    return dx.loads(f"HloModule m\n\nENTRY e {{\n{params}\n  ROOT r = {typed(shape)} custom-call({', '.join(names)}), "
                    f'custom_call_target="__onednn${kind}", backend_config={told}\n}}\n')


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    raised = np.exp(x - x.max(axis, keepdims=True))
    return raised / raised.sum(axis, keepdims=True)


def normal(x: np.ndarray, epsilon: float) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)


PRODUCT = X @ Y.transpose(0, 2, 1)
CALLS = {
    "softmax": ("softmax", {"softmax_axis": 2}, [X], softmax(X, 2)),
    "softmax of axis 0": ("softmax", {}, [X], softmax(X, 0)),
    "layernorm": ("layernorm", {"rescale": "SCALE_AND_SHIFT", "epsilon_typecast": bits(1e-3)}, [X, SCALE, SHIFT],
                  normal(X, 1e-3) * SCALE + SHIFT),
    "layernorm that shifts": ("layernorm", {"rescale": "SHIFT"}, [X, SHIFT], normal(X, 0) + SHIFT),
    "matmul": ("matmul", {"transpose_b": True}, [X, Y], PRODUCT),
    "matmul of both transposed": ("matmul", {"transpose_a": True}, [X.transpose(0, 2, 1), Y.transpose(0, 2, 1)], PRODUCT),
    "matmul with what follows": (
        "matmul", {"transpose_b": True, "fusions": {"ops": ["LINEAR", "BIAS", "TANH", "BINARY_ADD"], "alpha_typecast": bits(0.5)}},
        [X, Y, BIAS, TERM], np.tanh(PRODUCT / 2 + BIAS) + TERM),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_onednn_is_computed(name: str) -> None:
    kind, config, arrays, wanted = CALLS[name]
    (found,) = dx.compile(call(kind, config, arrays, wanted.shape), engine="numpy", optimize=False)(*arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("config", [{"transpose_b": True, "fusions": {"ops": ["SOFTPLUS"]}}, {"fusions": {"ops": ["BIAS"]}}])
def test_what_is_not_known_stays_a_call(config: dict[str, object]) -> None:
    with pytest.raises(dx.RunError, match=r"nothing is registered for the custom call '__onednn\$matmul'"):
        dx.compile(call("matmul", config, [X, Y.transpose(0, 2, 1)], PRODUCT.shape), engine="numpy", optimize=False)
