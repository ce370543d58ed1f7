"""Gradients of functional programs, first and second: closures, recursion, references, higher-order functions, data that is known.

Against central differences of double precision, and against what MindSpore stored of its own gradient.
"""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir.structure import CALL, CALL_VALUE, LOOP_END, PARTIAL
from tests.support.grad_functional import PROGRAMS
from tests.support.paths import SHARED
from tests.support.relay_programs import LIST

pytestmark = pytest.mark.validated

CORPUS = SHARED / "corpus" / "mindir"


def scalar(module: dx.Module, *inputs: float) -> float:
    """The first result for these inputs."""
    return float(dx.compile(module, optimize=False)(*map(np.float64, inputs))[0])


@pytest.mark.parametrize("name", PROGRAMS)
def test_first_and_second_derivatives_are_the_slopes(name: str) -> None:
    module = dx.loads(PROGRAMS[name])
    first = dx.grad(module)
    second = dx.grad(first, wrt=["x"])
    x, step = 0.7, 1e-5
    by_first, by_second = scalar(first, x, 1), scalar(second, x, 1, 1)
    slope = (scalar(module, x + step) - scalar(module, x - step)) / (2 * step)
    curve = (scalar(first, x + step, 1) - scalar(first, x - step, 1)) / (2 * step)
    np.testing.assert_allclose(by_first, slope, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(by_second, curve, rtol=1e-5, atol=1e-6)
    for version in (dx.optimize(first), dx.optimize(second)):
        given = (x, 1) if len(version.entry.params) <= len(first.entry.params) else (x, 1, 1)
        np.testing.assert_allclose(scalar(version, *given), by_first if len(given) == 2 else by_second, rtol=1e-9)


@pytest.mark.parametrize("name", ["closure", "branchclosure", "tail", "hof", "list", "mapfold", "iter", "tuplefn", "refloop"])
def test_no_closure_is_left_where_everything_is_known(name: str) -> None:
    gradient = dx.optimize(dx.grad(dx.loads(PROGRAMS[name])))
    assert not any(n.op in (CALL, CALL_VALUE, PARTIAL) for n in gradient.entry.nodes)


def test_a_list_of_unknown_length_is_refused() -> None:
    text = (LIST + "def @upto(%n: int32, %x: float32, %l: List[float32]) -> List[float32] "
            "{ if (%n == 0) { %l } else { @upto(%n - 1, %x * %x, Cons(%x, %l)) } }\n"
            "def @sum(%l: List[float32]) -> float32 { match (%l) { Cons(%h, %t) => %h + @sum(%t), Nil => 0f } }\n"
            "def @main(%x: float32, %n: int32) { @sum(@upto(%n, %x, Nil)) }")  # fmt: skip
    with pytest.raises(dx.DeepxGraphError, match="fields of data") as caught:
        dx.grad(dx.loads(text))
    assert caught.value.diagnostics[0].span is not None


# --- MindSpore --------------------------------------------------------------------------------------------------------


def stored(name: str) -> dict[str, np.ndarray]:
    path = CORPUS / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"{path.name} of the shared corpus is not here")
    with np.load(path, allow_pickle=False) as z:
        return {k: z[k] for k in z.files}


def test_the_gradient_that_mindspore_stored() -> None:
    """grad_poly is MindSpore's gradient of sum(sin(x) * x * y)."""
    arrays = stored("grad_poly")
    text = "def @main(%x: Tensor[(3), float32], %y: Tensor[(3), float32]) { sum(sin(%x) * %x * %y) }"
    found = dx.compile(dx.grad(dx.loads(text)), optimize=False)(arrays["in0"], arrays["in1"], np.float32(1))
    for k in range(2):
        np.testing.assert_allclose(found[k], arrays[f"out{k}"], rtol=1e-5, atol=1e-6)


def check_slope(module: dx.Module, inputs: list[np.ndarray], seed: int) -> None:
    """The gradient by the first input, against a difference along a direction, with cotangents drawn at random."""
    rng = np.random.default_rng(seed)
    run = dx.compile(module, engine="numpy", optimize=False)
    floating = [o for o in run(*inputs) if o.dtype.kind == "f"]
    cotangents = [rng.standard_normal(o.shape).astype(o.dtype) for o in floating]
    by_x = dx.compile(dx.grad(module), optimize=False)(*inputs, *cotangents)[0]
    direction = rng.standard_normal(inputs[0].shape).astype(np.float32)

    def value(step: float) -> float:
        outputs = [o for o in run(inputs[0] + np.float32(step) * direction, *inputs[1:]) if o.dtype.kind == "f"]
        return sum(float((o.astype(np.float64) * c).sum()) for o, c in zip(outputs, cotangents, strict=True))

    np.testing.assert_allclose(float((by_x * direction).sum()), (value(1e-2) - value(-1e-2)) / 2e-2, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("iterations", [0, 1, 3, 10])
def test_the_gradient_of_a_recursive_loop_of_func_graphs(iterations: int) -> None:
    """MindSpore does not load such a gradient that it has exported itself."""
    arrays = stored("while")
    module = dx.load(CORPUS / "while.mindir")
    check_slope(module, [arrays["in0"], np.int32(iterations)], iterations)
    loop = dx.optimize(dx.grad(module))
    assert any(n.op is LOOP_END for n in loop.entry.nodes) and not any(n.op is CALL for n in loop.entry.nodes)


@pytest.mark.parametrize("name", ["if", "closure", "grad_poly", "mlp", "add_relu"])
def test_the_corpus_has_the_gradients_of_differences(name: str) -> None:
    arrays = stored(name)
    check_slope(dx.load(CORPUS / f"{name}.mindir"), [arrays[k] for k in sorted(arrays) if k.startswith("in")], 5)
