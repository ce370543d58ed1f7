"""What JAX itself says derivatives are: run by a Python that has JAX, it prints programs with its own gradients, as JSON.

Each case is a function and arguments. The answer holds its StableHLO text, the arguments, cotangents of the outputs and what
`jax.vjp` makes of them, tangents of the arguments and what `jax.jvp` makes of those. `recorded` asks from tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.support.paths import ROOT

Cases = dict[str, tuple[Any, list[Any]]]


def recorded() -> list[dict[str, Any]]:
    """All cases, asked of the interpreter that DEEPX_GRAPH_JAX_PYTHON names."""
    from tests.support.jax_oracle import VARIABLE

    command = [os.environ[VARIABLE], "-m", "tests.support.jax_gradients"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def _reductions(jax: Any, jnp: Any, lax: Any, np: Any, rng: Any) -> Cases:
    """Elementwise functions, reductions, windows, sorting; at ties and edges."""
    def real(*shape: int) -> Any:
        return rng.uniform(0.2, 1.8, shape)

    ties = np.array([[1.0, 3.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0]])
    zeros = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 4.0], [1.0, 2.0, 3.0]])
    signs, edges = np.array([-2.0, -0.0, 0.0, 3.0]), np.array([-1.0, 0.0, 0.5, 1.0, 2.0])
    return {
        "maximum_ties": (lambda x, y: (jnp.maximum(x, y), jnp.minimum(x, y)), [ties, ties[::-1].copy()]),
        "reduce_max_ties": (lambda x: (x.max(1), x.min(0), x.max()), [ties]),
        "prod_zeros": (lambda x: (x.prod(1), x.prod()), [zeros]),
        "abs_sign": (lambda x: (jnp.abs(x + 0.5), jnp.sign(x), jnp.floor(x), jnp.maximum(x, 0.0)), [signs]),
        "clamp_edges": (lambda x: lax.clamp(0.0, x, 1.0), [edges]),
        "sort_pairs": (lambda x, y: lax.sort((x, y), num_keys=1), [ties, real(2, 4)]),
        "top_k_ties": (lambda x: lax.top_k(x, 2)[0], [ties]),
        "cumulative": (lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 1), lax.cummax(x, 1), lax.cumlogsumexp(x, 1)), [real(2, 5)]),
        "max_pool_ties": (lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2), (1, 1), "SAME"), [ties]),
        "avg_pool": (lambda x: lax.reduce_window(x, 0.0, lax.add, (3, 2), (2, 1), ((1, 0), (0, 2)), (1, 2), (2, 1)), [real(6, 5)]),
        "power": (lambda x, y: (x**y, x**3, x**-2), [real(3), np.array([0.0, 1.0, 2.5])]),
        "atan2_rem": (lambda x, y: (jnp.arctan2(x, y), lax.rem(3 * x, y), jnp.mod(-3 * x, y)), [real(4), real(4)]),
        "special": (lambda x: (lax.lgamma(x), lax.digamma(x), lax.erf(x), lax.erfc(x), lax.erf_inv(x / 2), lax.bessel_i1e(x),
                               jax.scipy.special.i0e(x), lax.polygamma(2.0, x)), [real(4)]),
        "reduce_general": (lambda x: lax.reduce(x, 0.0, lambda a, b: a + b + a * b, (0,)), [real(5, 2)]),
        "logsumexp_softmax": (lambda x: (jax.nn.logsumexp(x, 1), jax.nn.softmax(x, 0), jnp.var(x, 1)), [real(3, 4)]),
        "reduce_precision": (lambda x: lax.reduce_precision(x, 8, 40) * x, [real(4)]),
    }


def _indexing(jax: Any, jnp: Any, lax: Any, np: Any, rng: Any) -> Cases:
    """Gather, scatter, dynamic slices and convolutions; outside the operand, twice in one place, in groups."""
    def real(*shape: int) -> Any:
        return rng.uniform(0.2, 1.8, shape)

    outside, twice = np.array([0, 2, 2, 9, -1], np.int32), np.array([0, 2, 2, 1])
    rivals = np.array([[1.0, 2.0], [3.0, 0.0], [3.0, 1.0], [0.0, 1.0]])

    def grouped(x: Any, w: Any) -> Any:
        layout = ("NHWC", "HWIO", "NCHW")
        return lax.conv_general_dilated(x, w, (2, 1), ((1, -1), (0, 2)), (1, 2), (2, 1), layout, feature_group_count=2)

    return {
        "gather_modes": (lambda x: (x[np.array([0, 3, 3])], x.at[outside].get(mode="fill", fill_value=0)), [real(4, 3)]),
        "scatter_add": (lambda x, u: x.at[outside].add(u), [real(4, 3), real(5, 3)]),
        "scatter_set": (lambda x, u: x.at[twice].set(u), [real(4, 3), real(4, 3)]),
        "scatter_max_ties": (lambda x, u: x.at[twice].max(u), [np.ones((4, 2)), rivals]),
        "scatter_mul": (lambda x, u: x.at[np.array([0, 2])].mul(u, unique_indices=True), [real(4, 3), real(2, 3)]),
        "dynamic_slices": (lambda x, u: lax.dynamic_update_slice(lax.dynamic_slice(x, (1, 9), (2, 3)), u, (0, 1)),
                           [real(4, 5), real(1, 2)]),
        "convolution": (grouped, [real(2, 7, 5, 4), real(2, 3, 2, 6)]),
        "convolution_batch_groups": (lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME", batch_group_count=2),
                                     [real(4, 3, 6), real(4, 3, 3)]),
    }  # fmt: skip


def _algebra(jax: Any, jnp: Any, lax: Any, np: Any, rng: Any) -> Cases:
    """Factorisations, solves, Fourier transforms, complex numbers."""
    def cplx(*shape: int) -> Any:
        return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)

    m, z = rng.standard_normal((4, 4)), cplx(3, 3)
    positive, hermitian = m @ m.T + 3 * np.eye(4), z @ z.conj().T + 3 * np.eye(3)
    solve, real = lax.linalg.triangular_solve, rng.standard_normal
    return {
        "cholesky": (jnp.linalg.cholesky, [positive]),
        "cholesky_complex": (lambda a: lax.linalg.cholesky((a + a.conj().T) / 2, symmetrize_input=False), [hermitian]),
        "triangular_solve": (lambda a, b: solve(a, b, left_side=True, lower=True, transpose_a=True), [positive, real((4, 2))]),
        "triangular_solve_complex": (lambda a, b: solve(a, b, left_side=False, lower=False, conjugate_a=True, transpose_a=True),
                                     [hermitian, cplx(2, 3)]),
        "fft": (lambda x: (jnp.fft.fft(x), jnp.fft.ifft2(x)), [cplx(3, 4)]),
        "rfft": (lambda x: (jnp.fft.rfft(x), jnp.fft.rfftn(x)), [real((3, 4))]),
        "irfft": (lambda x: (jnp.fft.irfft(x, 5), jnp.fft.irfft2(x)), [cplx(3, 3)]),
        "complex_parts": (lambda z: (jnp.abs(z), z.real, z.imag, jnp.conj(z), jnp.angle(z)), [cplx(4)]),
        "complex_functions": (lambda z, w: (jnp.exp(z) * w, jnp.sin(z) / w, jnp.sqrt(z), jnp.log(w), z**3, jnp.tanh(z)),
                              [cplx(4), cplx(4)]),
        "complex_dot": (lambda z, w: z @ w, [cplx(2, 3), cplx(3, 2)]),
    }  # fmt: skip


def _expanded(jax: Any, jnp: Any, lax: Any, np: Any, rng: Any) -> Cases:
    """Functions that HLO spells out by cases, each with a formula that means nothing outside its case."""
    positive, unit = np.array([0.1, 0.3, 0.9, 1.0, 1.5, 2.0, 3.7, 10.0, 1e4]), np.array([-0.999, -0.9, -0.5, 0.1, 0.5, 0.999])
    whole = np.array([-100.0, -30.0, -3.3, -1.5, -0.3, 0.2, 4.0, 30.0, 100.0])
    negative = whole[2:8]
    return {
        "lgamma": (lambda x: (lax.lgamma(x), lax.digamma(x)), [positive]),
        "lgamma_reflected": (lambda x: (lax.lgamma(x), lax.digamma(x)), [negative]),
        "erf_inv": (lambda x: (lax.erf_inv(x), jnp.arctanh(x), jnp.arcsin(x)), [unit]),
        "erf": (lambda x: (lax.erf(x), lax.erfc(x), jax.scipy.special.log_ndtr(x)), [whole]),
        "hyperbolic": (lambda x: (jnp.sinh(x), jnp.cosh(x), jnp.arcsinh(x)), [whole]),
        "bessel": (lambda x: (jax.scipy.special.i0e(x), lax.bessel_i1e(x)), [whole]),
        "betaln": (lambda x: jax.scipy.special.betaln(x, 2 * x), [positive]),
    }


def _answer(jax: Any, np: Any, function: Any, args: list[Any], rng: Any, *, expanded: bool) -> dict[str, Any]:
    from tests.support.jax_oracle import packed

    def drawn(x: Any) -> Any:
        x = np.asarray(x)
        v = rng.standard_normal(x.shape)
        return (v + 1j * rng.standard_normal(x.shape) if x.dtype.kind == "c" else v).astype(x.dtype)

    outputs, pull = jax.vjp(function, *args)
    cts, tangents = jax.tree.map(drawn, outputs), tuple(map(drawn, args))
    # elsewhere than on CPU, factorisations are operations of StableHLO and not calls of a library
    traced = jax.jit(function).trace(*args)
    text = traced.lower().as_text("hlo") if expanded else traced.lower(lowering_platforms=("tpu",)).as_text()
    return {"text": text, "args": list(map(packed, args)), "cts": [packed(x) for x in jax.tree.leaves(cts)],
            "tangents": list(map(packed, tangents)), "grads": [packed(x) for x in pull(cts)],
            "pushed": [packed(x) for x in jax.tree.leaves(jax.jvp(function, tuple(args), tangents)[1])]}


def _main() -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax

    jax.config.update("jax_enable_x64", True)
    rng, answers = np.random.default_rng(1), []
    for make in (_reductions, _indexing, _algebra, _expanded):
        for name, (function, args) in make(jax, jnp, lax, np, rng).items():
            answers.append({"name": name, **_answer(jax, np, function, args, rng, expanded=make is _expanded)})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    _main()
