"""Ten models in pipelines by each schedule, in stages of equal and of unequal depth: gradients are those of the whole program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Module
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.planning.cluster import preset
from deepx_graph.planning.schedules import pipeline_schedule
from deepx_graph.session.cluster.pipelined import Pipelined

xp = dx.xp
BATCH, WIDTH = 8, 6
CASES = [("1f1b", 3), ("interleaved", 2),
         *(pytest.param(*c, marks=pytest.mark.conformance) for c in (("gpipe", 2), ("gpipe", 3), ("1f1b", 2), ("interleaved", 4)))]
"""Schedules and devices: of eight layers, stages of the same depth, and of different depths."""

X, SQUARE, VECTOR = f"f32[{BATCH},{WIDTH}]", f"f32[{WIDTH},{WIDTH}]", f"f32[{WIDTH}]"


def plain(x: Any, *ws: Any) -> Any:
    for w in ws:
        x = xp.tanh(x @ w)
    return xp.sum(x * x)


def residual(x: Any, *ws: Any) -> Any:
    for w in ws:
        x = x + xp.tanh(x @ w)
    return xp.sum(x * x)


def gated(x: Any, *ws: Any) -> Any:
    for w, u in zip(ws[::2], ws[1::2], strict=True):
        x = (x @ w) / (1 + xp.exp(-(x @ u)))
    return xp.sum(x * x)


def normalised(x: Any, *ws: Any) -> Any:
    for w in ws:
        y = x @ w
        y = y - xp.mean(y, axis=1, keepdims=True)
        x = y / xp.sqrt(xp.mean(y * y, axis=1, keepdims=True) + 1)
    return xp.sum(xp.abs(x))


def classifier(x: Any, target: Any, *ws: Any) -> Any:
    for w in ws:
        x = xp.tanh(x @ w)
    return xp.sum(xp.log(xp.sum(xp.exp(x), axis=1))) - xp.sum(x * target)


def autoencoder(x: Any, *ws: Any) -> Any:
    y = x
    for w in ws:
        y = xp.tanh(y @ w)
    return xp.mean((y - x) ** 2) * BATCH


def tied(x: Any, *ws: Any) -> Any:
    for w in (*ws, *ws[::-1]):
        x = xp.tanh(x @ w) + x
    return xp.sum(x * x)


def rectified(x: Any, *ws: Any) -> Any:
    for w in ws:
        x = xp.maximum(x @ w, 0.1 * (x @ w))
    return xp.sum(x)


def attending(x: Any, *ws: Any) -> Any:
    for w in ws:
        scores = xp.exp(xp.tanh(x @ w))
        x = x * (scores / xp.sum(scores, axis=1, keepdims=True)) + x
    return xp.sum(x * x)


def skipping(x: Any, *ws: Any) -> Any:
    before = x
    for k, w in enumerate(ws):
        x, before = xp.tanh(x @ w) + (before if k % 2 else 0 * x), x
    return xp.sum(x * before)


MODELS: tuple[Callable[..., Any], ...] = (plain, residual, gated, normalised, classifier, autoencoder, tied, rectified, attending,
                                          skipping)  # fmt: skip
DEPTH = {tied: 4}


def traced(model: Callable[..., Any]) -> tuple[Module, list[str]]:
    """The module of a model of eight layers, and the names of what is cut into microbatches."""
    batch = [X, X] if model is classifier else [X]
    module = dx.trace(model, *batch, *[SQUARE] * DEPTH.get(model, 8))
    return module, [p.name for p in module.entry.params[: len(batch)]]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("name", "devices"), CASES)
def test_gradients_are_those_of_the_whole_program(model: Callable[..., Any], name: str, devices: int) -> None:
    module, batch = traced(model)
    count = 4 if devices % 2 == 0 else 8
    chunks = 2 if name == "interleaved" else 1
    rng = np.random.default_rng(0)
    arrays = [np.asarray(rng.standard_normal(p.type.shape) * 0.4, "f4") for p in module.entry.params]
    pipelined = Pipelined(module, batch, pipeline_schedule(name, devices, count, chunks), preset("h100"), engine="numpy")
    results, gradients = pipelined(*arrays)
    whole = dx.compile(module, engine="numpy", optimize=False)(*arrays)
    np.testing.assert_allclose(results[0], whole if isinstance(whole, np.ndarray) else whole[0], rtol=1e-4, atol=1e-4)
    names = [p.name for p in module.entry.params if p.name not in batch]
    wanted = dx.compile(grad(module, names), engine="numpy", optimize=False)(*arrays, np.float32(1))
    assert sorted(gradients) == sorted(names)
    for weight, want in zip(names, wanted, strict=True):
        np.testing.assert_allclose(gradients[weight], want, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(want).max())))
