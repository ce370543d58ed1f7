"""What JAX programs use beyond the common operations: each test is a small text of the kind that JAX prints."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import deepx_graph as dx

APPROX_TOP_K = """
module @m {
  func.func @greater(%arg0: tensor<f32>, %arg1: tensor<f32>, %arg2: tensor<i32>, %arg3: tensor<i32>) -> tensor<i1> {
    %0 = stablehlo.compare GT, %arg0, %arg1 : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %0 : tensor<i1>
  }
  func.func public @main(%x: tensor<2x5xf32>) -> (tensor<2x3xf32>, tensor<2x3xi32>) {
    %0 = stablehlo.iota dim = 1 : tensor<2x5xi32>
    %c = stablehlo.constant dense<-1> : tensor<i32>
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1:2 = stablehlo.custom_call @ApproxTopK(%x, %0, %cst, %c) {backend_config = "", called_computations = [@greater],
      mhlo.backend_config = {aggregate_to_topk = true, is_fallback = true, recall_target = 0.949999988 : f32,
      reduction_dim = 1 : i64, reduction_input_size_override = -1 : i64, top_k = 3 : i64}}
      : (tensor<2x5xf32>, tensor<2x5xi32>, tensor<f32>, tensor<i32>) -> (tensor<2x3xf32>, tensor<2x3xi32>)
    return %1#0, %1#1 : tensor<2x3xf32>, tensor<2x3xi32>
  }
}
"""


def test_approximate_top_k_is_computed_exactly() -> None:
    x = np.array([[3, 9, 1, 7, 5], [-2, -8, 0, -1, 4]], np.float32)
    values, places = dx.compile(dx.loads(APPROX_TOP_K), optimize=False)(x)
    np.testing.assert_array_equal(values, [[9, 7, 5], [4, 0, -1]])
    np.testing.assert_array_equal(places, [[1, 3, 4], [4, 2, 3]])


def test_approximate_top_k_of_an_open_size() -> None:
    """How many there are, and the shapes of the results, are operands."""
    module = dx.loads("""
        func.func @greater(%arg0: tensor<f32>, %arg1: tensor<f32>, %arg2: tensor<i32>, %arg3: tensor<i32>) -> tensor<i1> {
          %0 = stablehlo.compare GT, %arg0, %arg1 : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %0 : tensor<i1>
        }
        func.func public @main(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xi32>) {
          %size = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
          %c = stablehlo.constant dense<-2> : tensor<i32>
          %k = stablehlo.add %size, %c : tensor<i32>
          %shape = stablehlo.reshape %k : (tensor<i32>) -> tensor<1xi32>
          %whole = stablehlo.reshape %size : (tensor<i32>) -> tensor<1xi32>
          %0 = stablehlo.dynamic_iota %whole, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
          %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
          %1:2 = stablehlo.custom_call @stablehlo.dynamic_approx_top_k(%x, %0, %least, %c, %k, %shape, %shape) {
            called_computations = [@greater], indices_of_shape_operands = dense<[5, 6]> : tensor<2xi64>, mhlo.backend_config = {
            aggregate_to_topk = true, is_fallback = true, recall_target = 0.949999988 : f32, reduction_dim = 0 : i64,
            reduction_input_size_override = -1 : i64}}
            : (tensor<?xf32>, tensor<?xi32>, tensor<f32>, tensor<i32>, tensor<i32>, tensor<1xi32>, tensor<1xi32>)
            -> (tensor<?xf32>, tensor<?xi32>)
          return %1#0, %1#1 : tensor<?xf32>, tensor<?xi32>
        }""", "stablehlo")
    for x in ([3, 9, 1, 7, 5], [2, 8, 4]):
        values, places = dx.compile(module, optimize=False)(np.array(x, np.float32))
        assert values.tolist() == sorted(x)[:1:-1] and [x[k] for k in places] == values.tolist()


SCATTER_SUBTRACT = """
HloModule m
minus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] subtract(a, b)
}
ENTRY main {
  x = f32[4] parameter(0)
  i = s32[3,1] parameter(1)
  u = f32[3] parameter(2)
  ROOT y = f32[4] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},
    index_vector_dim=1, to_apply=minus
}
"""


def test_scatter_that_subtracts_has_a_gradient() -> None:
    module = dx.loads(SCATTER_SUBTRACT)
    x, i, u = np.arange(4, dtype=np.float32), np.array([[2], [0], [2]], np.int32), np.array([1, 2, 4], np.float32)
    (y,) = dx.compile(module, optimize=False)(x, i, u)
    np.testing.assert_array_equal(y, [-2, 1, -3, 3])
    by_x, by_u = dx.compile(dx.grad(module), optimize=False)(x, i, u, np.array([10, 20, 30, 40], np.float32))
    np.testing.assert_array_equal(by_x, [10, 20, 30, 40])
    np.testing.assert_array_equal(by_u, [-30, -10, -30])


def test_a_constant_without_its_values_is_refused_before_anything_runs() -> None:
    module = dx.loads("HloModule m\nENTRY main {\n  ROOT c = f32[64,64] constant({...})\n}\n")
    with pytest.raises(dx.RunError, match="leaves out the values of this constant"):
        dx.compile(module, optimize=False)


def _lapack(routine: str, config: str, operands: str, results: str) -> str:
    """A function of one call to LAPACK, as JAX lowers it for CPU; types are those of MLIR without `tensor`."""
    params = [f"tensor<{t}>" for t in operands.split()]
    types = [f"tensor<{t}>" for t in results.split()]
    names = [f"%a{k}" for k in range(len(params))]
    given = ", ".join(f"{n}: {t}" for n, t in zip(names, params, strict=True))
    values = ", ".join([f"%0#{k}" for k in range(len(types))] if len(types) > 1 else ["%0"])
    return f"""
    func.func public @main({given}) -> ({", ".join(types)}) {{
      %0{f":{len(types)}" if len(types) > 1 else ""} = stablehlo.custom_call @lapack_{routine}_ffi({", ".join(names)})
        {{backend_config = "", mhlo.backend_config = {{{config}}}, mhlo.frontend_attributes = {{num_batch_dims = "0"}}}}
        : ({", ".join(params)}) -> ({", ".join(types)})
      return {values} : {", ".join(types)}
    }}"""


MATRIX = np.array([[4, 1, -2], [1, 3, 0], [-2, 0, 5]], np.float64)


def _ways(text: str) -> list[dx.Module]:
    """The program as it stands, and written and read in each language."""
    module = dx.loads(text)
    again = [dx.loads(dx.dumps(module, language), language) for language in ("hlo", "stablehlo", "sea")]
    return [module, *again, dx.loads(dx.dumps(again[0], "stablehlo"))]


# --- calls of earlier releases, whose options are operands

HERMITIAN = MATRIX + np.array([[0, 1j, 0], [-1j, 0, 2j], [0, -2j, 0]])


def _earlier(target: str, options: str, operands: str, results: str) -> str:
    """A function of one call as jaxlib 0.4.30 has it: its options are constants, and workspaces are among its results."""
    numbers = options.split()
    params, types = ([f"tensor<{t}>" for t in ts.split()] for ts in (operands, results))
    given = ", ".join(f"%a{k}: {t}" for k, t in enumerate(params))
    constants = [f"%c{k} = stablehlo.constant dense<{n}> : tensor<{'f64' if '.' in n else 'i32'}>" for k, n in enumerate(numbers)]
    names = ", ".join([*(f"%c{k}" for k in range(len(numbers))), *(f"%a{k}" for k in range(len(params)))])
    all_types = ", ".join([*(c.rpartition(": ")[2] for c in constants), *params])
    values = ", ".join([f"%0#{k}" for k in range(len(types))] if len(types) > 1 else ["%0"])
    joined = "\n      ".join(constants)
    return f"""
    func.func public @main({given}) -> ({", ".join(types)}) {{
      {joined}
      %0{f":{len(types)}" if len(types) > 1 else ""} = stablehlo.custom_call @{target}({names}) {{api_version = 2 : i32}}
        : ({all_types}) -> ({", ".join(types)})
      return {values} : {", ".join(types)}
    }}"""


def _run_earlier(*call: str, given: list[np.ndarray]) -> list[np.ndarray]:
    found: list[np.ndarray] | None = None
    for module in _ways(_earlier(*call)):
        again = dx.compile(module, optimize=False)(*given)
        assert found is None or all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))
        found = list(again)
    assert found is not None
    return found


def test_earlier_calls_of_lapack() -> None:
    (factor, info) = _run_earlier("lapack_dpotrf", "1 1 3", "3x3xf64", "3x3xf64 i32", given=[MATRIX])
    np.testing.assert_allclose(np.tril(factor) @ np.tril(factor).T, MATRIX, atol=1e-13)
    (x,) = _run_earlier("blas_dtrsm", "1 0 1 0 3 2 1 1.0", "3x3xf64 3x2xf64", "3x2xf64", given=[MATRIX, MATRIX[:, :2]])
    np.testing.assert_allclose(np.triu(MATRIX).T @ x, MATRIX[:, :2], atol=1e-13)
    lu, pivots, _ = _run_earlier("lapack_dgetrf", "1 3 3", "3x3xf64", "3x3xf64 3xi32 i32", given=[MATRIX])
    np.testing.assert_allclose(np.prod(np.diag(lu)) * (-1) ** np.sum(pivots != [1, 2, 3]), np.linalg.det(MATRIX))
    qr, tau, *_ = _run_earlier("lapack_dgeqrf", "1 3 3 96", "3x3xf64", "3x3xf64 3xf64 i32 96xf64", given=[MATRIX])
    (q, *_) = _run_earlier("lapack_dorgqr", "1 3 3 3 96", "3x3xf64 3xf64", "3x3xf64 i32 96xf64", given=[qr, tau])
    np.testing.assert_allclose(q @ np.triu(qr), MATRIX, atol=1e-13)
    _, s, u, vt, *_ = _run_earlier("lapack_dgesdd", "1 1 1 3 3 99", "3x3xf64",
                                   "3x3xf64 3xf64 3x3xf64 3x3xf64 i32 24xi32 99xf64", given=[MATRIX])
    np.testing.assert_allclose(u * s @ vt, MATRIX, atol=1e-13)
    vectors, values, *_ = _run_earlier("lapack_zheevd", "1 1 3", "3x3xcomplex<f64>",
                                       "3x3xcomplex<f64> 3xf64 i32 9xcomplex<f64> 9xf64 9xi32", given=[HERMITIAN])
    np.testing.assert_allclose(HERMITIAN @ vectors, vectors * values, atol=1e-13)
    *_, re, im, _, right, info = _run_earlier(
        "lapack_dgeev", "1 3 86 86", "3x3xf64",
        "3x3xf64 3x3xf64 3x3xf64 3xf64 3xf64 3x3xcomplex<f64> 3x3xcomplex<f64> i32", given=[np.triu(MATRIX, -1)])
    np.testing.assert_allclose(np.triu(MATRIX, -1) @ right, right * (re + 1j * im), atol=1e-13)
    assert info == 0


def test_reductions_to_simpler_forms_by_lapack() -> None:
    """Their factors are held against the matrix, so that signs do not matter."""
    text = _lapack("dgehrd", "low = 1 : i32, high = 3 : i32", "3x3xf64", "3x3xf64 2xf64 i32")
    h, tau, _ = dx.compile(dx.loads(text), optimize=False)(MATRIX)
    v = np.array([0, 1, h[2, 0]])
    reflector = np.eye(3) - tau[0] * np.outer(v, v)
    np.testing.assert_allclose(reflector @ np.triu(h, -1) @ reflector, MATRIX, atol=1e-13)
    text = _lapack("dgees", "mode = 86 : ui8, sort = 78 : ui8", "3x3xf64", "3x3xf64 3x3xf64 3xf64 3xf64 i32 i32")
    t, vectors, real, _, _, _ = dx.compile(dx.loads(text), optimize=False)(MATRIX)
    np.testing.assert_allclose(vectors @ t @ vectors.T, MATRIX, atol=1e-13)
    np.testing.assert_allclose(np.sort(real), np.linalg.eigvalsh(MATRIX))
    text = _lapack("dsytrd", "uplo = 76 : ui8", "3x3xf64", "3x3xf64 3xf64 2xf64 2xf64 i32")
    _, d, e, _, _ = dx.compile(dx.loads(text), optimize=False)(MATRIX)
    np.testing.assert_allclose(np.linalg.eigvalsh(np.diag(d) + np.diag(e, 1) + np.diag(e, -1)), np.linalg.eigvalsh(MATRIX))


def test_cholesky_by_lapack_is_the_operation_and_has_a_gradient() -> None:
    text = _lapack("dpotrf", "uplo = 76 : ui8", "3x3xf64", "3x3xf64 i32")
    for module in _ways(text):
        factor, info = dx.compile(module, optimize=False)(MATRIX)
        factor = np.tril(factor)
        np.testing.assert_allclose(factor @ factor.T, MATRIX, atol=1e-14)
        assert info == 0
    dx.grad(dx.loads(text))


@pytest.mark.parametrize(("side", "matrix"), [("L", lambda a, x: a @ x), ("R", lambda a, x: x @ a)])
def test_triangular_solves_by_lapack(side: str, matrix: Callable[..., np.ndarray]) -> None:
    config = f"diag = 78 : ui8, side = {ord(side)} : ui8, trans_x = 78 : ui8, uplo = 76 : ui8"
    b = np.arange(9, dtype=np.float64).reshape(3, 3)
    for module in _ways(_lapack("dtrsm", config, "3x3xf64 3x3xf64", "3x3xf64")):
        (x,) = dx.compile(module, optimize=False)(MATRIX, b)
        np.testing.assert_allclose(matrix(np.tril(MATRIX), x), b, atol=1e-13)


def test_a_triangular_solve_of_a_multiple_by_lapack() -> None:
    """As JAX 0.5 has it."""
    config = "diag = 78 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 76 : ui8"
    module = dx.loads(_lapack("dtrsm", config, "3x3xf64 3x3xf64 f64", "3x3xf64"))
    (x,) = dx.compile(module, optimize=False)(MATRIX, MATRIX, np.array(3.0))
    np.testing.assert_allclose(np.tril(MATRIX) @ x, 3 * MATRIX, atol=1e-13)


def test_eigenvalues_of_a_symmetric_matrix_by_lapack() -> None:
    for module in _ways(_lapack("dsyevd", "mode = 86 : ui8, uplo = 76 : ui8", "2x3x3xf64", "2x3x3xf64 2x3xf64 2xi32")):
        both = np.stack([MATRIX, MATRIX @ MATRIX])
        vectors, values, info = dx.compile(module, optimize=False)(both)
        np.testing.assert_allclose(both @ vectors, vectors * values[:, None, :], atol=1e-12)
        np.testing.assert_array_equal(info, [0, 0])
        assert np.all(np.diff(values) > 0)


def test_factors_by_lapack() -> None:
    rows = np.array([[1, 2], [3, 4], [5, 7]], np.float64)
    lu, pivots, info = dx.compile(dx.loads(_lapack("dgetrf", "", "3x2xf64", "3x2xf64 2xi32 i32")), optimize=False)(rows)
    lower, order = np.tril(lu, -1) + np.eye(3, 2), np.arange(3)
    for k, p in enumerate(pivots - 1):
        order[[k, p]] = order[[p, k]]
    np.testing.assert_allclose(lower @ np.triu(lu[:2]), rows[order], atol=1e-14)
    assert info == 0

    qr, tau = dx.compile(dx.loads(_lapack("dgeqrf", "", "3x2xf64", "3x2xf64 2xf64")), optimize=False)(rows)
    (q,) = dx.compile(dx.loads(_lapack("dorgqr", "", "3x2xf64 2xf64", "3x2xf64")), optimize=False)(qr, tau)
    np.testing.assert_allclose(q @ np.triu(qr[:2]), rows, atol=1e-14)

    types = "3x2xf64 2xf64 3x2xf64 2x2xf64 i32"
    _, s, u, vt, _ = dx.compile(dx.loads(_lapack("dgesdd", "mode = 83 : ui8", "3x2xf64", types)), optimize=False)(rows)
    np.testing.assert_allclose(u * s @ vt, rows, atol=1e-14)
    _, alone, *_ = dx.compile(dx.loads(_lapack("dgesdd", "mode = 78 : ui8", "3x2xf64", types)), optimize=False)(rows)
    np.testing.assert_allclose(alone, s, atol=1e-14)


def test_eigenvalues_of_any_matrix_by_lapack() -> None:
    turn = np.array([[0, -1], [1, 0]], np.float64)
    text = _lapack("dgeev", "compute_left = 78 : ui8, compute_right = 86 : ui8", "2x2xf64",
                   "2xf64 2xf64 2x2xcomplex<f64> 2x2xcomplex<f64> i32")
    real, imaginary, _, right, _ = dx.compile(dx.loads(text), optimize=False)(turn)
    np.testing.assert_allclose(real, [0, 0], atol=1e-15)
    np.testing.assert_allclose(sorted(imaginary), [-1, 1])
    np.testing.assert_allclose(turn @ right, right * (real + 1j * imaginary), atol=1e-15)


def test_a_tridiagonal_system_by_lapack() -> None:
    text = _lapack("dgtsv", "", "3xf64 3xf64 3xf64 3x1xf64", "3xf64 3xf64 3xf64 3x1xf64 i32")
    lower, diagonal, upper = np.array([9.0, 1, 2]), np.array([4.0, 5, 6]), np.array([3.0, 1, 9])
    *_, x, info = dx.compile(dx.loads(text), optimize=False)(lower, diagonal, upper, np.array([[1.0], [2], [3]]))
    whole = np.diag(diagonal) + np.diag(lower[1:], -1) + np.diag(upper[:-1], 1)
    np.testing.assert_allclose(whole @ x, [[1], [2], [3]], atol=1e-14)
    assert info == 0


def test_an_unknown_routine_of_lapack_is_refused_before_anything_runs() -> None:
    with pytest.raises(dx.RunError, match="nothing is registered for the custom call 'lapack_dgesvx_ffi'"):
        dx.compile(dx.loads(_lapack("dgesvx", "mode = 86 : ui8", "3x3xf64", "3x3xf64")), optimize=False)


def test_a_sort_of_a_size_that_is_not_known_yet() -> None:
    module = dx.loads("""
    func.func public @main(%x: tensor<?x2xi32>) -> tensor<?x2xi32> {
      %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
      ^bb0(%a: tensor<i32>, %b: tensor<i32>):
        %1 = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      }) : (tensor<?x2xi32>) -> tensor<?x2xi32>
      return %0 : tensor<?x2xi32>
    }""")
    (y,) = dx.compile(module, optimize=False)(np.array([[3, 1], [1, 5], [2, 0]], np.int32))
    np.testing.assert_array_equal(y, [[1, 0], [2, 1], [3, 5]])


def test_a_slice_to_the_end_of_a_size_that_is_not_known_yet() -> None:
    """As the shape-polymorphic form of `top_k` takes the first columns of all rows."""
    module = dx.loads("""
    func.func public @main(%x: tensor<?x4xf32>) -> tensor<?x2xf32> {
      %c0 = stablehlo.constant dense<[1, 0]> : tensor<2xi64>
      %c1 = stablehlo.constant dense<1> : tensor<2xi64>
      %two = stablehlo.constant dense<2> : tensor<1xi64>
      %0 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
      %1 = stablehlo.convert %0 : (tensor<i32>) -> tensor<i64>
      %2 = stablehlo.reshape %1 : (tensor<i64>) -> tensor<1xi64>
      %3 = stablehlo.concatenate %2, %two, dim = 0 : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
      %4 = stablehlo.real_dynamic_slice %x, %c0, %3, %c1
        : (tensor<?x4xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x2xf32>
      return %4 : tensor<?x2xf32>
    }""")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    (y,) = dx.compile(module, optimize=False)(x)
    np.testing.assert_array_equal(y, x[1:, :2])
