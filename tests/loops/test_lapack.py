"""Routines of LAPACK as loop programs, interpreted and as machine code, against the library's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ops import custom_call
from deepx_graph.types import I32, TensorType, TupleType, type_of_array
from tests.support.loop_programs import agrees

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

LETTERS = {"f4": "s", "f8": "d", "c8": "c", "c16": "z"}


@pytest.mark.parametrize("kind", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(1, 1), (2, 5, 5), (4, 6), (6, 4), (20, 20)])
def test_getrf(shape: tuple[int, ...], kind: str) -> None:
    """The second matrix of a batch has no inverse: `info` says at which pivot."""
    rng = np.random.default_rng(0)
    a: Any = (rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if kind[0] == "c" else 0)).astype(kind)
    if len(shape) == 3:
        a[1, :, 2] = 0
    batch, type = shape[:-2], type_of_array(a)
    results = (type, TensorType(I32, (*batch, min(shape[-2:]))), TensorType(I32, batch))
    agrees(custom_call, [a], {"target": f"lapack_{LETTERS[kind]}getrf_ffi", "types": TupleType(results)}, interpreted=a.size < 60)


def test_what_is_registered_for_a_target_is_called() -> None:
    target = "lapack_sgetrf_ffi"
    text = f"""func.func @main(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {{
  %0:3 = stablehlo.custom_call @{target}(%a) : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2xi32>, tensor<i32>)
  return %0#0 : tensor<2x2xf32> }}"""
    a = np.array([[1, 2], [3, 4]], "f4")
    dx.register_custom_call(target, lambda x: (-x, np.zeros(2, "i4"), np.int32(0)))
    try:
        np.testing.assert_array_equal(dx.compile(dx.loads(text), engine="native")(a)[0], -a)
    finally:
        dx.register_custom_call(target, None)
    np.testing.assert_allclose(dx.compile(dx.loads(text), engine="native")(a)[0], [[3, 4], [1 / 3, 2 / 3]], rtol=1e-6)


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize(("operand", "results"), [
    ("20x20xf64", "1x1xf64, 20xi32, i32"), ("2x2xf64", "60x60xf64, 2xi32, i32"), ("20x20xf64", "20x20xf64, 1xi32, i32"),
    ("3x2x2xf64", "3x2x2xf64, 3x2xi32, i32"), ("0x4xf64", "3x4xf64, 3xi32, i32"), ("4xf64", "4xf64, 4xi32, i32"),
    ("2x2xf64", "2x2xf64, 2xi32"),
])  # fmt: skip
def test_results_that_are_not_those_of_a_routine_are_refused(operand: str, results: str, engine: str) -> None:
    """Nothing is read or written beyond what a text states."""
    stated = ", ".join(f"tensor<{t}>" for t in results.split(", "))
    first = stated.partition(", ")[0]
    module = dx.loads(f"""func.func @main(%a: tensor<{operand}>) -> {first} {{
  %0:{results.count(",") + 1} = stablehlo.custom_call @lapack_dgetrf_ffi(%a) : (tensor<{operand}>) -> ({stated})
  return %0#0 : {first} }}""")
    with pytest.raises(dx.RunError, match="lapack_dgetrf_ffi"):
        dx.run(module, np.ones(module.entry.params[0].type.shape), engine=engine)
