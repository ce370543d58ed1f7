"""Functions of arrays as programs: inputs and results by name, numpy's functions, places, what cannot be traced."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import deepx_graph as dx

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
W = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)


def run(module: Any, *arrays: Any) -> Any:
    return dx.compile(module, engine="numpy", optimize=False)(*arrays)


class Layer(NamedTuple):
    """Weights."""

    w: Any
    scale: float = 2.0


def test_trees_go_in_and_out() -> None:
    def f(layer: Layer, batch: dict[str, Any], k: int = 3) -> Any:
        y = batch["x"] @ layer.w * layer.scale
        return {"y": y, "more": [y + k, None]}

    module = dx.trace(f, Layer("f32[3,4]"), {"x": X})
    assert [(p.name, str(p.type)) for p in module.entry.params] == [("layer.w", "f32[3,4]"), ("batch.x", "f32[2,3]")]
    assert module.entry_name == "f" and module.entry.result_names == ("y", "more.0")
    y, more = run(module, W, X)
    np.testing.assert_allclose(y, X @ W * 2, rtol=1e-6)
    np.testing.assert_allclose(more, X @ W * 2 + 3, rtol=1e-6)


def test_functions_of_numpy_are_traced() -> None:
    def f(x: Any, w: Any) -> Any:
        h = np.tanh(np.dot(x, w))
        s = np.exp(h - np.max(h, axis=1, keepdims=True))
        p = s / s.sum(axis=1, keepdims=True) if isinstance(s, np.ndarray) else s / np.sum(s, 1, keepdims=True)
        return np.concatenate([p, np.transpose(np.swapaxes(p, 0, 1))], axis=0), np.std(x, ddof=1), np.where(x > 0, x, 0.5 * x)

    got, want = run(dx.trace(f, X, W), X, W), f(X, W)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5)


def test_annotations_and_defaults_say_what_is_not_given() -> None:
    def f(x: f32[2, 3], y: Any = W[0, 0], *, k: float = 2.0) -> Any:  # type: ignore[name-defined]  # noqa: F821
        return x * k + y

    module = dx.trace(f)
    assert [str(p.type) for p in module.entry.params] == ["f32[2,3]", "f32[]"]
    with pytest.raises(dx.UsageError, match="nothing says what 'a' is"):
        dx.trace(lambda a: a)
    with pytest.raises(dx.UsageError, match="unexpected keyword"):
        dx.trace(lambda a: a, b=X)


def test_nodes_know_the_line_that_made_them() -> None:
    def f(x: Any) -> Any:
        y = dx.xp.sin(x)
        return y * y

    first = f.__code__.co_firstlineno
    places = {n.op.name: n.origin.spans[0].place for n in dx.trace(f, X).entry.nodes if n.origin.spans}
    assert {name: (p.file, p.line - first, p.function) for name, p in places.items() if p is not None} == {
        "sine": (__file__, 1, "f"), "multiply": (__file__, 2, "f")}


def test_gradients_of_what_was_traced() -> None:
    module = dx.trace(lambda x: dx.xp.sum(dx.xp.linalg.matmul(x, x.mT) ** 2), "f64[2,3]")
    x = X.astype(np.float64)
    (got,) = run(dx.grad(module), x, np.float64(1))
    np.testing.assert_allclose(got, 4 * (x @ x.T) @ x, rtol=1e-12)


def test_what_cannot_be_traced() -> None:
    with pytest.raises(dx.UsageError, match=r"test_trace.py:\d+: the value of an array is asked for"):
        dx.trace(lambda x: x if x[0, 0] > 0 else -x, X)
    with pytest.raises(dx.VerifyError, match="do not broadcast"):
        dx.trace(lambda x: x + np.ones(7, np.float32), X)
    with pytest.raises(dx.UsageError, match=r"numpy\.einsum of an array of this library is not known"):
        dx.trace(lambda x: np.einsum("ij->i", x), X)
    with pytest.raises(dx.UsageError, match="'function' cannot be of type int"):
        dx.trace(3)  # type: ignore[arg-type]


def test_a_file_without_jax_is_traced(run: Any, tmp_path: Any) -> None:
    (tmp_path / "traced_file.py").write_text("import numpy as np\ndef f(x, w):\n    return np.tanh(x @ w)\n")
    done = run("opt", f"{tmp_path / 'traced_file.py'}:f(f32[2,3], f32[3,4])", "--emit", "sea")
    assert done.code == 0 and "tanh" in done.out and "dot_general" in done.out


def test_a_function_of_numpy_is_interface() -> None:
    with pytest.raises(dx.UsageError, match="no option 'out'"):
        dx.trace(lambda x: np.add(x, x, out=np.zeros((2, 3))), X)  # type: ignore[call-overload]
