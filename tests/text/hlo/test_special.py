"""Special functions that HLO has no operation for: written as formulas, they keep their values, as scipy has them."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx

scipy_special = pytest.importorskip("scipy.special")

FUNCTIONS = {
    "erfc": (scipy_special.erfc, (-9.0, 9.0)),
    "erf_inv": (scipy_special.erfinv, (-0.999, 0.999)),
    "lgamma": (scipy_special.gammaln, (-6.1, 40.0)),
    "digamma": (scipy_special.digamma, (-6.1, 40.0)),
    "bessel_i1e": (scipy_special.i1e, (-40.0, 40.0)),
}


def _through_hlo(name: str, dtype: str, *arrays: np.ndarray) -> np.ndarray:
    """What `chlo.NAME` gives once it was written as HLO and read again."""
    tensor = f"tensor<{len(arrays[0])}x{dtype}>"
    params = ", ".join(f"%x{k}: {tensor}" for k in range(len(arrays)))
    names, types = (", ".join(each) for each in ([f"%x{k}" for k in range(len(arrays))], [tensor] * len(arrays)))
    text = f"""
    func.func public @main({params}) -> {tensor} {{
      %0 = chlo.{name} {names} : {types} -> {tensor}
      return %0 : {tensor}
    }}"""
    hlo = dx.dumps(dx.loads(text, "stablehlo"), "hlo")
    assert "custom-call" not in hlo
    (result,) = dx.compile(dx.loads(hlo, "hlo"), engine="numpy", optimize=False)(*arrays)
    return result


@pytest.mark.parametrize(("dtype", "np_dtype", "tolerance"), [("f32", np.float32, 2e-6), ("f64", np.float64, 1e-14)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_special_function_keeps_its_values(name: str, dtype: str, np_dtype: type, tolerance: float) -> None:
    function, (low, high) = FUNCTIONS[name]
    x = np.linspace(low, high, 2001).astype(np_dtype)
    want = function(x.astype(np.float64))
    np.testing.assert_allclose(_through_hlo(name, dtype, x), want, rtol=30 * tolerance, atol=tolerance)


def test_special_functions_at_their_edges() -> None:
    inf, nan = np.inf, np.nan
    edges = {
        "erfc": ([0.0, inf, -inf, nan, 30.0], [1.0, 0.0, 2.0, nan, 0.0]),
        "erf_inv": ([1.0, -1.0, 0.0, 2.0], [inf, -inf, 0.0, nan]),
        "lgamma": ([0.0, -3.0, inf, -inf, nan], [inf, inf, inf, inf, nan]),
        "digamma": ([0.0, -3.0, 1.0], [nan, nan, -0.57721566490153286]),
        "bessel_i1e": ([0.0, inf], [0.0, 0.0]),
    }
    for name, (x, want) in edges.items():
        np.testing.assert_allclose(_through_hlo(name, "f64", np.array(x)), want, rtol=1e-12, err_msg=name)


def test_zeta_and_polygamma() -> None:
    s, q = (m.ravel() for m in np.meshgrid([1.5, 2.0, 5.5, 20.0], [0.2, 1.0, 7.7, 300.0]))
    np.testing.assert_allclose(_through_hlo("zeta", "f64", s, q), scipy_special.zeta(s, q), rtol=1e-13)
    edges = _through_hlo("zeta", "f64", np.array([1.0, 0.5, 2.0, 2.5]), np.array([3.0, 3.0, -1.0, -1.5]))
    np.testing.assert_array_equal(edges, [np.inf, np.nan, np.inf, np.nan])
    s, q = (m.ravel() for m in np.meshgrid([2.0, 3.0, 6.0], [-0.2, -3.75, -9.25, -99.875]))
    np.testing.assert_allclose(_through_hlo("zeta", "f64", s, q), scipy_special.zeta(s, q), rtol=1e-12)
    n, x = (m.ravel() for m in np.meshgrid([0.0, 1.0, 2.0, 5.0], [-99.875, -9.25, -3.75, -0.2, 0.2, 1.3, 7.7, 300.0]))
    np.testing.assert_allclose(_through_hlo("polygamma", "f64", n, x), scipy_special.polygamma(n, x), rtol=1e-12)
    np.testing.assert_array_equal(_through_hlo("polygamma", "f64", np.array([-1.0, 0.5]), np.ones(2)), [np.nan, np.nan])


@pytest.mark.parametrize(("dtype", "np_dtype"), [("f16", np.float16), ("f32", np.float32), ("f64", np.float64)])
def test_next_after(dtype: str, np_dtype: type) -> None:
    special = [0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan, np.finfo(np_dtype).tiny, np.finfo(np_dtype).max]
    x, y = (m.ravel().astype(np_dtype) for m in np.meshgrid(special, special))
    with np.errstate(all="ignore"):
        want = np.nextafter(x, y)
    got = _through_hlo("next_after", dtype, x, y)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(np.where(x == y, y, want)))


def test_the_scaled_bessel_function_of_order_0_is_written_as_a_formula_in_both_languages() -> None:
    """It has a name in neither; the derivative of bessel_i1e uses it."""
    text = """
    func.func public @main(%x: tensor<5xf64>) -> tensor<5xf64> {
      %0 = chlo.bessel_i1e %x : tensor<5xf64> -> tensor<5xf64>
      return %0 : tensor<5xf64>
    }"""
    x = np.array([-20.0, -3.0, 0.0, 0.5, 9.0])
    want = scipy_special.ivp(1, x) * np.exp(-abs(x)) - np.sign(x) * scipy_special.i1e(x)
    gradient = dx.grad(dx.loads(text))
    for language in ("hlo", "stablehlo"):
        (got,) = dx.compile(dx.loads(dx.dumps(gradient, language)), optimize=False)(x, np.ones(5))
        np.testing.assert_allclose(got, want, rtol=1e-13, err_msg=language)
