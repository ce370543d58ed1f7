"""What fast engines change before they plan: transposed products, turned, and operands whose rows are scattered; nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.analysis.batched_gemm import batched_gemm_of
from deepx_graph.ir import Node
from deepx_graph.ops import dot_general, transpose
from deepx_graph.ops.data.fusion import fused_body
from deepx_graph.ops.math.elementwise import is_complex
from deepx_graph.rewrite.product_layouts import canonicalized, in_order
from deepx_graph.rewrite.product_types import widened

PRODUCT = """
HloModule m
ENTRY e {
  x = f32[5,7]{1,0} parameter(0)
  y = f32[7,3]{1,0} parameter(1)
  w = f32[3,5]{1,0} parameter(2)
  p = f32[5,3]{1,0} dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[3,5]{1,0} transpose(p), dimensions={1,0}
  %s
}
"""
ONCE = "ROOT r = f32[3,5]{1,0} subtract(w, t)"
TWICE = """q = f32[5,3]{1,0} negate(p)
  s = f32[3,5]{1,0} subtract(w, t)
  ROOT r = (f32[3,5]{1,0}, f32[5,3]{1,0}) tuple(s, q)"""
BATCHES = """
HloModule m
ENTRY e {
  x = f32[2,5,7]{2,1,0} parameter(0)
  y = f32[2,3,7]{2,1,0} parameter(1)
  p = f32[2,5,3]{2,1,0} dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
  ROOT t = f32[%s]{2,1,0} transpose(p), dimensions={%s}
}
"""


def _arrays(module: dx.Module) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random(p.type.shape, dtype=np.float32) for p in module.entry.params]


def _has_transpose(function: dx.Function) -> bool:
    return any(n.op is transpose for n in function.nodes)


@pytest.mark.parametrize(("text", "kept"), [
    (PRODUCT % ONCE, False), (PRODUCT % TWICE, True), (BATCHES % ("2,3,5", "0,2,1"), False), (BATCHES % ("5,2,3", "1,0,2"), True),
], ids=["read once", "read twice", "batches", "batches moved"])  # fmt: skip
def test_a_transposed_matmul_is_canonical_where_nobody_else_reads_it(text: str, kept: bool) -> None:
    module = dx.loads(text)
    assert _has_transpose(canonicalized(module.entry)) == kept
    args = _arrays(module)
    by_numpy, by_numexpr = (dx.compile(module, engine=engine, optimize=False)(*args) for engine in ("numpy", "numexpr"))
    for wanted, got in zip(by_numpy, by_numexpr, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("contracted", ["[0, 2] x [0, 1]", "[0, 2] x [0, 2]", "[0, 1] x [0, 2]", "[0, 1] x [0, 1]"])
def test_no_product_is_transposed_into_one_whose_operands_are_no_matrices(contracted: str) -> None:
    """Terms of several axes, as of a layer's weights over batches: turned, the lanes of a product would have nothing to read."""
    pytest.importorskip("llvmlite")
    from deepx_graph.runtime.engines.native_engine import NativeEngine
    from deepx_graph.runtime.native.gemm.kernel import transposed_before

    left, right = (f"tensor<{'8x96x48' if side == '[0, 1]' else '8x48x96'}xf32>" for side in contracted.split(" x "))
    module = dx.loads(f"""func.func @main(%x: {left}, %y: {right}) -> tensor<48x48xf32> {{
  %p = stablehlo.dot_general %x, %y, contracting_dims = {contracted} : ({left}, {right}) -> tensor<48x48xf32>
  %t = stablehlo.transpose %p, dims = [1, 0] : (tensor<48x48xf32>) -> tensor<48x48xf32>
  return %t : tensor<48x48xf32>
}}""")
    arranged = NativeEngine(1).arranged(module.entry)
    products = [n for f in (arranged, *filter(None, map(fused_body, arranged.nodes))) for n in f.nodes if n.op is dot_general]
    assert products and not any(any(transposed_before(n)) for n in products)
    by_numpy, by_native = (dx.compile(module, engine=engine)(*_arrays(module)) for engine in ("numpy", "native"))
    np.testing.assert_allclose(by_native[0], by_numpy[0], rtol=1e-5)


def test_a_function_without_such_a_matmul_stays_the_same_object() -> None:
    function = dx.loads(PRODUCT % TWICE).entry
    assert canonicalized(function) is function


def test_a_training_step_runs_without_a_transpose() -> None:
    """The gradient of a product's right operand is a transposed product in many texts."""
    f = dx.compile(dx.loads(PRODUCT % ONCE), engine="numexpr")
    assert not _has_transpose(f.schedule.function)
    assert _has_transpose(dx.compile(dx.loads(PRODUCT % ONCE), engine="numpy").schedule.function)


SCATTERED = """func.func @main(%%x: tensor<%s>, %%y: tensor<%s>) -> tensor<%s> {
  %%0 = stablehlo.dot_general %%x, %%y, %s : (tensor<%s>, tensor<%s>) -> tensor<%s>
  return %%0 : tensor<%s>
}"""


@pytest.mark.parametrize(("x", "y", "z", "how"), [
    ("131x77xf32", "97x131x3xf32", "77x97x3xf32", "contracting_dims = [0] x [1]"),
    ("97x131x3xf32", "131x77xf32", "97x3x77xf32", "contracting_dims = [1] x [0]"),
    ("5x7x40x3xf32", "40x5x60x3xf32", "5x7x3x60x3xf32", "batching_dims = [0] x [1], contracting_dims = [2] x [0]"),
    ("6x9x2x70xf32", "9x50x6x3xf32", "2x70x50x3xf32", "contracting_dims = [1, 0] x [0, 2]"),
], ids=["right", "left", "batches", "two axes of terms"])  # fmt: skip
def test_operands_that_are_no_matrices_are_transposed(x: str, y: str, z: str, how: str) -> None:
    module = dx.loads(SCATTERED % (x, y, z, how, x, y, z, z))
    function = in_order(module.entry, _reordered)
    (product,) = (n for n in function.nodes if n.op is dot_general)
    gemm = batched_gemm_of(product)
    assert gemm is not None and not any(gemm.reorders) and _has_transpose(function)
    args = _arrays(module)
    wanted, got, by_native = (dx.compile(m, engine=e, optimize=False)(*args)[0] for m, e in (
        (module, "numpy"), (dx.Module((function,)), "numpy"), (module, "auto")))
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_allclose(by_native, wanted, rtol=1e-5)


SIZES = {"b": 160, "n": 132, "j": 16}


@pytest.mark.parametrize(("x", "y"), [
    *itertools.product(["bn", "nb"], ["bnj", "bjn", "nbj", "njb", "jbn", "jnb"]), ("nb", "nb"), ("jnb", "nb")])
def test_products_of_vectors_in_batches_fill_registers(x: str, y: str) -> None:
    """However their operands lie: where neighbours are of the batch, they are sums of products, or operands are copied."""
    pytest.importorskip("llvmlite")
    from deepx_graph.runtime.engines.native_engine import NativeEngine
    from deepx_graph.runtime.native.gemm.plan import plan_of

    z = "bj" if "j" in x + y else "b"
    types = ["x".join([*(str(SIZES[k]) for k in axes), "f32"]) for axes in (x, y, z)]
    how = ", ".join(f"{kind}_dims = [{x.index(k)}] x [{y.index(k)}]" for kind, k in (("batching", "b"), ("contracting", "n")))
    module = dx.loads(SCATTERED % (*types, how, *types, types[2]))
    arranged = NativeEngine(1).arranged(module.entry)
    products = [n for f in (arranged, *filter(None, map(fused_body, arranged.nodes))) for n in f.nodes if n.op is dot_general]
    assert not any(plan is None or plan.is_scalar for plan in map(plan_of, products))
    args = _arrays(module)
    (got,) = dx.compile(module, engine="native", threads=1)(*args)
    np.testing.assert_allclose(got, np.einsum(f"{x},{y}->{z}", *(a.astype("f8") for a in args)), rtol=1e-4, atol=1e-4)


def test_operands_that_are_matrices_stay_as_they_are() -> None:
    function = dx.loads(BATCHES % ("2,3,5", "0,2,1")).entry
    assert in_order(function, _reordered) is function


def _reordered(node: Node) -> tuple[bool, bool]:
    """The operands that become matrices by copies."""
    gemm = batched_gemm_of(node)
    assert gemm is not None
    return gemm.reorders


@pytest.mark.parametrize(("x", "y", "z", "how"), [
    ("200x40x8xf32", "8x40x96xf32", "8x200x96xf32", "batching_dims = [2] x [0], contracting_dims = [1] x [1]"),
    ("64x50x16xf32", "64x16x60xf32", "50x60xf32", "contracting_dims = [2, 0] x [1, 0]"),
    ("4x60x8x32xf32", "4x60x8x32xf32", "4x8x60x60xf32", "batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3]"),
    ("64x32x40xf32", "32x10x64x20xf32", "40x10x20xf32", "contracting_dims = [1, 0] x [0, 2]"),
    ("12x20x9x10xf32", "9x12x60x10xf32", "9x20x60xf32", "batching_dims = [2] x [0], contracting_dims = [0, 3] x [1, 3]"),
], ids=["batch last", "terms apart", "heads inside", "terms in another order", "batches and terms"])  # fmt: skip
def test_products_of_what_is_no_matrix_are_one_kernel(x: str, y: str, z: str, how: str) -> None:
    module = dx.loads(SCATTERED % (x, y, z, how, x, y, z, z))
    args = _arrays(module)
    native = dx.compile(module, engine="native", optimize=False)
    np.testing.assert_allclose(native(*args)[0], dx.compile(module, engine="numpy", optimize=False)(*args)[0], rtol=2e-5)
    assert not native.python_steps


@pytest.mark.parametrize("dtype", ["complex<f32>", "complex<f64>"])
@pytest.mark.parametrize(("x", "y", "z", "how"), [
    ("40x30", "30x20", "40x20", "contracting_dims = [1] x [0]"),
    ("30x40", "20x30", "40x20", "contracting_dims = [0] x [1]"),
    ("5x17x40", "40x5x16", "5x17x16", "batching_dims = [0] x [1], contracting_dims = [2] x [0]"),
    ("6x19x2x7", "9x5x6x19", "2x7x9x5", "contracting_dims = [1, 0] x [3, 2]"),
], ids=["plain", "transposed", "batches", "two axes of terms"])  # fmt: skip
def test_complex_products_are_products_of_reals(x: str, y: str, z: str, how: str, dtype: str) -> None:
    """The same numbers, in machine code alone."""
    pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")
    a, b, c = (f"{shape}x{dtype}" for shape in (x, y, z))
    module = dx.loads(SCATTERED % (a, b, c, how, a, b, c, c))
    assert not is_complex(next(n for n in widened(module.entry, lambda node: True).nodes if n.op is dot_general).type)
    rng = np.random.default_rng(1)
    parts = [rng.standard_normal((2, *p.type.shape)) for p in module.entry.params]
    args = [(u + 1j * v).astype("c8" if "f32" in dtype else "c16") for u, v in parts]
    native = dx.compile(module, engine="native")
    assert not native.python_steps
    (wanted,), (found,) = dx.compile(module, engine="numpy")(*args), native(*args)
    np.testing.assert_allclose(found, wanted, rtol=1e-4 if "f32" in dtype else 1e-12, atol=1e-4 if "f32" in dtype else 1e-12)
