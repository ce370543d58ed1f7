"""Gradients of Relay programs: against the gradient program that TVM made, and against differences."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import VerifyError
from tests.support.relay_corpus import CORPUS, load
from tests.support.relay_programs import LIST

pytestmark = pytest.mark.validated

FIRST_ORDER = ["let_chain", "tuple_nested", "if_scalar", "closure_capture", "meta_constants", "mlp", "ref_counter"]


def test_the_gradient_is_the_one_that_tvm_made() -> None:
    """grad_first_dense is TVM's gradient of this program: the value, and the gradient for each input."""
    text = "def @main(%x: Tensor[(2, 3), float32], %w: Tensor[(4, 3), float32]) { sum(tanh(nn.dense(%x, %w))) }"
    load(CORPUS / "grad_first_dense.relay")
    with np.load(CORPUS / "grad_first_dense.npz") as z:
        x, w, value, by_x, by_w = (z[n] for n in ("in0", "in1", "out0", "out1", "out2"))
    module = dx.loads(text)
    np.testing.assert_allclose(dx.compile(module, optimize=False)(x, w)[0], value, rtol=1e-6)
    for version in (dx.grad(module), dx.optimize(dx.grad(module))):
        found = dx.compile(version, optimize=False)(x, w, np.float32(1))
        np.testing.assert_allclose(found[0], by_x, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[1], by_w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FIRST_ORDER)
def test_gradients_of_the_corpus_agree_with_differences(name: str) -> None:
    module = load(CORPUS / f"{name}.relay")
    with np.load(CORPUS / f"{name}.npz") as z:
        inputs = [z[f"in{k}"] for k in range(sum(n.startswith("in") for n in z.files))]
    run, rng = dx.compile(module, engine="numpy", optimize=False), np.random.default_rng(3)
    cotangents = [rng.standard_normal(o.shape).astype(o.dtype) for o in run(*inputs)]
    gradients = dx.compile(dx.grad(module), optimize=False)(*inputs, *cotangents)
    floating = [k for k, i in enumerate(inputs) if i.dtype.kind == "f"]
    assert len(gradients) == len(floating)

    def value(at: list[np.ndarray]) -> float:
        return sum(float((o.astype(np.float64) * c).sum()) for o, c in zip(run(*at), cotangents, strict=True))

    for k, g in zip(floating, gradients, strict=True):
        direction = rng.standard_normal(inputs[k].shape).astype(np.float32)
        direction /= np.linalg.norm(direction)  # a short step stays on one side of the kinks of relu
        moved = [[i + np.float32(s * 5e-3) * direction if j == k else i for j, i in enumerate(inputs)] for s in (1, -1)]
        slope = (value(moved[0]) - value(moved[1])) / 1e-2
        np.testing.assert_allclose((g * direction).sum(), slope, rtol=2e-2, atol=2e-3)


def test_the_second_derivative_of_a_relay_program() -> None:
    module = dx.grad(dx.grad(dx.loads("def @main(%x: float32) { %x * %x * %x }")))
    inputs = {p.name: np.float32(1) for p in module.entry.params}
    inputs["x"] = np.float32(3)
    assert any(abs(float(o) - 18) < 1e-4 for o in dx.compile(module, optimize=False)(**inputs))


DATA = LIST + "def @main(%x: float32) { match (Cons(%x * 2f, Nil)) { Cons(%h, _) => %h * %h, Nil => %x } }"


def test_data_that_simplification_sees_through_have_gradients() -> None:
    gradient = dx.compile(dx.grad(dx.loads(DATA)), optimize=False)(np.float32(3), np.float32(1))
    np.testing.assert_allclose(gradient[0], 24)


@pytest.mark.parametrize(("text", "what"), [
    (LIST + "def @sum(%l: List[float32]) -> float32 { match (%l) { Cons(%h, %t) => %h + @sum(%t), Nil => 0f } }\n"
     "def @main(%l: List[float32], %x: float32) { @sum(Cons(%x, %l)) }", "fields of data"),
    ("def @count(%r: ref(float32), %n: int32) -> ()"
     " { if (%n == 0) { () } else { @count(%r, %n - 1); ref_write(%r, ref_read(%r) * 2f) } }\n"
     "def @main(%x: float32) { let %r = ref(%x); @count(%r, 3); ref_read(%r) }", "references"),
])  # fmt: skip
def test_what_has_no_gradient_is_refused_and_not_taken_for_constant(text: str, what: str) -> None:
    with pytest.raises(VerifyError, match=what) as caught:
        dx.grad(dx.loads(text))
    assert caught.value.diagnostics[0].span is not None
