"""Deepx programs that make few of their names: what no line creates is an input, gradients included, of the rank that is used."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import deepx_graph as dx

X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
Y = X[::-1].copy() / 2
G = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def run(text: str, pipeline: str = "none", **inputs: np.ndarray) -> dict[str, np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module = dx.optimize(dx.loads(text), pipeline)
    f = dx.compile(module, optimize=False)
    return dict(zip([p.name for p in f.outputs], f(**inputs), strict=True))


@pytest.mark.parametrize("pipeline", ["none", "default"])
@pytest.mark.parametrize(
    ("op", "left", "right"),
    [("add", G, G), ("sub", G, -G), ("mul", G * Y, G * X), ("div", G / Y, -G * X / Y**2)],
)  # fmt: skip
def test_one_backward_line_is_a_program(pipeline: str, op: str, left: np.ndarray, right: np.ndarray) -> None:
    found = run(f"{op}@float32 t1(t1_grad) t2(t2_grad)<-t3(t3_grad)\n", pipeline, t1=X, t2=Y, t3_grad=G, t1_grad=X, t2_grad=Y)
    assert list(found) == ["t1_grad", "t2_grad"]
    np.testing.assert_allclose(found["t1_grad"], X + left, rtol=1e-5)  # accumulated
    np.testing.assert_allclose(found["t2_grad"], Y + right, rtol=1e-5)


def test_the_gradient_that_comes_in_is_an_input() -> None:
    text = ("argset@int32 2 3->v\nargset@float32 0->z\nnewtensor@float32 v->g\nconstant@float32 z->g\nnewtensor@float32 v->y\n"
            "mul@float32 x(g) x(g)->y(y_grad)\nexp@float32 y(h)->e\nexp@float32 y(h)<-e(e_grad)\nmul@float32 x(g) x(g)<-y(h)\n"
            .replace("exp@float32 y(h)->e\n", "newtensor@float32 v->h\nconstant@float32 z->h\n"))  # fmt: skip
    found = run(text, "default", x=X / 4, e_grad=G)
    np.testing.assert_allclose(found["g"], G * np.exp((X / 4) ** 2) * X / 2, rtol=1e-5)


def test_the_rank_of_what_is_reduced_follows_from_the_target() -> None:
    head = "newtensor (vector<int32>:[2 1]) -> (tensor<float32>:s)\nnewtensor (vector<int32>:[3 1]) -> (tensor<float32>:p)\n"
    text = head + ("sum (tensor<float32>:x, vector<int32>:[-1], var<bool>:True) -> (tensor<float32>:s)\n"
                   "reducemax (tensor<float32>:y, vector<int32>:[0], var<bool>:False) -> (tensor<float32>:p)\n")  # fmt: skip
    cube = np.stack([X.T, -X.T]).reshape(4, 3, 1)
    found = run(text, x=X, y=cube)
    np.testing.assert_allclose(found["s"], X.sum(-1, keepdims=True))
    np.testing.assert_allclose(found["p"], cube.max(0))
    np.testing.assert_allclose(run("newtensor@float32 2 -> s\nsum@float32 x 1 -> s\n", x=X)["s"], X.sum(1))
    repeat = ("newtensor (vector<int32>:[4 3]) -> (tensor<float32>:r)\n"
              "repeat (tensor<float32>:x, vector<int32>:[2 1]) -> (tensor<float32>:r)\n")  # fmt: skip
    np.testing.assert_allclose(run(repeat, x=X)["r"], np.repeat(X, 2, 0))


def test_a_rank_that_does_not_follow_is_asked_for() -> None:
    text = ("newtensor (vector<int32>:[1]) -> (tensor<float32>:s)\n"
            "sum (tensor<float32>:x, vector<int32>:[0], var<bool>:False) -> (tensor<float32>:s)\n")  # fmt: skip
    with pytest.raises(dx.VerifyError, match="the rank of 'x' is not known"):
        dx.loads(text)
