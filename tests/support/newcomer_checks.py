"""What is true of the operations of docs/adding-an-op.md once they are declared; collected by tests/ops/test_adding_an_op.py alone.

Values are those of the formula in plain numpy, derivatives central differences of it in double precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph import ops
from deepx_graph.cli.reference import markdown
from deepx_graph.runtime import engines
from deepx_graph.text.formats import FORMATS
from deepx_graph.types import F32, F64, DType, tensor

softplus = ops.OPS["softplus"]
X = np.linspace(-3, 3, 13)
WRITTEN = [f.name for f in FORMATS.values() if f.writes and not f.binary]


def formula(x: Any) -> Any:
    return np.log(1 + np.exp(np.asarray(x, np.float64)))


def program(dtype: DType = F32) -> dx.Module:
    b = dx.Builder()
    return dx.Module((b.function("main", [("x", tensor(dtype, X.shape))], lambda x: [b(softplus, x)]),))


def test_softplus_is_an_attribute_of_the_package_and_of_the_family_of_its_file() -> None:
    assert vars(ops)["softplus"] is softplus
    assert ops.FAMILY_OF[softplus] == "elementwise"


def test_softplus_is_documented() -> None:
    (entry,) = [e for e in markdown().split("\n### ") if e.startswith("softplus\n")]
    assert "A smooth maximum of x and 0: log(1 + e^x)." in entry
    assert "PyTorch softplus" in entry


@pytest.mark.parametrize("language", WRITTEN)
def test_softplus_prints_in_every_written_language_and_reads_back(language: str) -> None:
    text = dx.dumps(program(), language)
    if language in ("sea", "anf", "cps"):
        assert "softplus" in text
    if language != "cps":
        np.testing.assert_allclose(dx.compile(dx.loads(text, language), optimize=False)(X.astype("f4"))[0], formula(X), rtol=1e-6)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_softplus_runs_in_machine_code(dtype: DType) -> None:
    pytest.importorskip("llvmlite")
    compiled = dx.compile(program(dtype), engine="native", optimize=False)
    np.testing.assert_allclose(compiled(X.astype(dtype.np))[0], formula(X), rtol=1e-6 if dtype is F32 else 1e-14)
    (node,) = [n for n in program(dtype).entry.nodes if n.op is softplus]
    engine: Any = engines.get("native")
    engine.kernel(node)
    assert engine.lowering(node).startswith("machine code")


def test_softplus_is_fused_with_its_neighbours() -> None:
    b = dx.Builder()
    twice = b.function("main", [("x", tensor(F32, X.shape))], lambda x: [b(softplus, b(softplus, x))])
    module = dx.optimize(dx.Module((twice,)), "fuse")
    assert [n.op.name for n in module.entry.nodes] == ["param", "fusion"]
    np.testing.assert_allclose(dx.compile(module, optimize=False)(X.astype("f4"))[0], formula(formula(X)), rtol=1e-6)


def test_softplus_differentiates() -> None:
    step = 1e-5
    slope = (formula(X + step) - formula(X - step)) / (2 * step)
    found = dx.compile(dx.grad(program(F64)), optimize=False)(X, np.ones_like(X))[-1]
    np.testing.assert_allclose(found, slope, rtol=1e-8)


@pytest.mark.parametrize("name", ["roll", "forward_fill"])
def test_what_is_not_elementwise_runs_in_loops(name: str) -> None:
    """Over samples of both, what numpy and pandas give by other ways."""
    pytest.importorskip("llvmlite")
    x = np.array([[np.nan, 1, np.nan, np.nan, 2], [3, np.nan, 4, 5, np.nan]], np.float32)
    attrs = {"dimension": 1, "shift": 2} if name == "roll" else {}
    expected = {
        "roll": [[np.nan, 2, np.nan, 1, np.nan], [5, np.nan, 3, np.nan, 4]],
        "forward_fill": [[np.nan, 1, 1, 1, 2], [3, 3, 4, 5, 5]],
    }
    b = dx.Builder()
    module = dx.Module((b.function("main", [("x", tensor(F32, x.shape))], lambda x: [b(ops.OPS[name], x, **attrs)]),))
    compiled = dx.compile(module, engine="native", optimize=False)
    np.testing.assert_array_equal(compiled(x)[0], np.array(expected[name], np.float32))
    assert compiled.python_steps == ()
