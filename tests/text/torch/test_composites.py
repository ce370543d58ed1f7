"""Operators of torch that are made of others, against numpy and scipy: factorisations, special functions, orders, losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from tests.support.torch_archives import archive, call, meta, n, program, t

R = np.random.default_rng(3)
X = R.standard_normal((3, 4)).astype(np.float32)
A = R.standard_normal((2, 3, 3)).astype(np.float32)
P = (A @ A.transpose(0, 2, 1) + 3 * np.eye(3)).astype(np.float32)
B = R.standard_normal((2, 3, 2)).astype(np.float32)
K = np.array([[12, -18, 7], [0, 9, -35]], np.int64)
L = np.array([[8, 27, 0], [5, -6, 14]], np.int64)


def f(value: float) -> dict[str, Any]:
    return {"as_float": value}


def entropy(x: Any) -> Any:
    return np.where(x > 0, -x * np.log(np.where(x > 0, x, 1)), np.where(x == 0, 0.0, -np.inf))


def scaled_erfc(x: Any) -> Any:
    from scipy import special

    return special.erfcx(x)


def log_normal(x: Any) -> Any:
    from scipy import special

    return special.log_ndtr(x)


def exponential(x: Any) -> Any:
    from scipy import linalg

    return linalg.expm(x)  # type: ignore[no-untyped-call]


def on_a_grid(x: Any) -> Any:
    return (np.clip(np.round(x / np.float32(0.05)) + 10, 0, 40) - 10) * np.float32(0.05)


WIDE = (X * 6).astype(np.float32)
CASES: dict[str, tuple[str, tuple[Any, ...], tuple[Any, ...], Callable[..., Any]]] = {
    "heaviside": ("heaviside.default", (np.round(X), X), (), np.heaviside),
    "sinc": ("sinc.default", (np.round(X * 2) / 2,), (), np.sinc), "entropy": ("special_entr.default", (np.round(X),), (), entropy),
    "erfcx": ("special_erfcx.default", (WIDE,), (), scaled_erfc), "log_ndtr": ("special_log_ndtr.default", (WIDE,), (), log_normal),
    "i0": ("i0.default", (X,), (), np.i0), "gcd": ("gcd.default", (K, L), (), np.gcd), "lcm": ("lcm.default", (K, L), (), np.lcm),
    "ldexp": ("ldexp.Tensor", (X, np.round(X)), (), lambda x, e: x * 2.0**e),
    "kron": ("kron.default", (X, X[:2]), (), np.kron),
    "fft2": ("fft_fft2.default", (X,), (), np.fft.fft2), "rfftn": ("fft_rfftn.default", (A,), (), np.fft.rfftn),
    "irfft2": ("fft_irfft2.default", (np.fft.rfft2(A).astype(np.complex64)[..., [0, 1]],), (),
               lambda z: np.fft.irfft2(z, (3, 2))),
    "solve": ("linalg_solve.default", (A, B), (), np.linalg.solve), "inverse": ("linalg_inv.default", (A,), (), np.linalg.inv),
    "slogdet": ("linalg_slogdet.default", (A,), (), np.linalg.slogdet), "svdvals": (
        "linalg_svdvals.default", (X,), (), lambda x: np.linalg.svd(x, compute_uv=False)),
    "eigvalsh": ("linalg_eigvalsh.default", (P,), (), np.linalg.eigvalsh), "pinv": (
        "pinverse.default", (X,), (), np.linalg.pinv),
    "power": ("linalg_matrix_power.default", (A,), (("n", n(-3)),), lambda a: np.linalg.matrix_power(a, -3)),
    "exponential": ("matrix_exp.default", (A,), (), exponential), "trace": ("trace.default", (A[0],), (), np.trace),
    "nuclear": ("linalg_matrix_norm.str_ord", (A,), (("ord", {"as_string": "nuc"}),), lambda a: np.linalg.norm(a, "nuc", (1, 2))),
    "vander": ("vander.default", (X[0],), (), np.vander),
    "histogram": ("histc.default", (X,), (("bins", n(5)), ("min", f(-2)), ("max", f(2))),
                  lambda x: np.histogram(x, 5, (-2, 2))[0].astype(np.float32)),
    "quantile": ("quantile.scalar", (X,), (("q", f(0.3)), ("dim", n(1))), lambda x: np.quantile(x, 0.3, 1)),
    "differences": ("diff.default", (X, X[:, :2]), (("n", n(2)), ("prepend", t("x1")), ("append", t("x1"))),
                    lambda x, more: np.diff(x, 2, 1, prepend=more, append=more)),
    "trapezoid": ("trapezoid.dx", (X,), (("dx", f(0.5)),), lambda x: ((x[:, 1:] + x[:, :-1]) / 4).sum(1)),
    "least so far": ("cummin.default", (np.round(X),), (("dim", n(0)),), lambda x: (
        np.minimum.accumulate(x, 0), np.array([[max(k for k in range(i + 1) if x[k, j] == x[: i + 1, j].min()) for j in range(4)]
                                               for i in range(3)]))),
    "renorm": ("renorm.default", (X,), (("p", n(2)), ("dim", n(0)), ("maxnorm", n(1))),
               lambda x: x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)),
    "a grid": ("fake_quantize_per_tensor_affine.default", (X,), (
        ("scale", f(0.05)), ("zero_point", n(10)), ("quant_min", n(0)), ("quant_max", n(40))), on_a_grid),
    "soft margin": ("soft_margin_loss.default", (X, np.sign(X)), (), lambda x, y: np.log1p(np.exp(-x * y)).mean()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_numpy_says(name: str) -> None:
    op, given, more, meaning = CASES[name]
    wanted = meaning(*given)
    wanted = [np.asarray(w) for w in (wanted if isinstance(wanted, tuple) else (wanted,))]
    names, outs = [f"x{k}" for k in range(len(given))], [f"y{k}" for k in range(len(wanted))]
    kinds = {"f": "float32", "i": "int64", "c": "complex64"}
    tensors = {v: meta(kinds[a.dtype.kind], a.shape) for v, a in zip((*names, *outs), (*given, *wanted), strict=True)}
    node = call(f"aten.{op}", " ".join(outs), *((f"a{k}", t(v)) for k, v in enumerate(names)), *more)
    module = dx.loads(archive(program([node], tensors, names, outs)))
    for engine in ("numpy", "auto"):
        found = dx.compile(module, engine=engine, optimize=False)(*given)
        for got, want in zip(found, wanted, strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-4, err_msg=engine)


def test_what_is_written_through_a_diagonal_is_seen_in_the_whole() -> None:
    nodes = [call("aten.clone.default", "y", ("self", t("x"))), call("aten.diagonal.default", "d", ("self", t("y")),
             ("offset", n(1))), call("aten.mul_.Tensor", "e", ("self", t("d")), ("other", n(5))),
             call("aten.relu.default", "z", ("self", t("y")))]  # fmt: skip
    tensors = {name: meta("float32", [3, 4]) for name in "xyz"} | {name: meta("float32", [3]) for name in "de"}
    x = abs(X)
    wanted = x.copy()
    wanted[[0, 1, 2], [1, 2, 3]] *= 5
    found = dx.compile(dx.loads(archive(program(nodes, tensors, ["x"], ["z"]))), engine="numpy", optimize=False)(x)
    np.testing.assert_array_equal(found[0], wanted)


def test_checks_that_wait_for_a_token_are_passed_over() -> None:
    """As `run_decompositions` writes them of a factorisation."""
    check = {"as_string": "torch.ops.aten._linalg_check_errors.default"}
    nodes = [call("higher_order.with_effects", "after", ("token", t("token")), ("op", check), ("info", t("x"))),
             call("aten.relu.default", "y", ("self", t("x")))]  # fmt: skip
    tensors = {name: meta("float32", [3, 4]) for name in "xy"} | {name: meta("float32", [0]) for name in ("token", "after")}
    made = program(nodes, tensors, ["x"], ["y"])
    made["graph_module"]["graph"]["inputs"].insert(0, t("token"))
    made["graph_module"]["signature"]["input_specs"].insert(0, {"token": {"arg": {"name": "token"}}})
    found = dx.compile(dx.loads(archive(made)), engine="numpy", optimize=False)(X)
    np.testing.assert_array_equal(found[0], np.maximum(X, 0))
