"""Functions of JAX in and out, against JAX itself. In an environment without JAX these tests are skipped."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx

jax = pytest.importorskip("jax", reason="JAX is not installed in this environment")
jnp = jax.numpy

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
W = np.linspace(-2, 1, 20, dtype=np.float32).reshape(4, 5)


def layer(x: Any, w: Any, unused: Any = 0.0) -> Any:
    with jax.named_scope("dense"):
        y = jnp.tanh(x @ w)
    return {"y": y, "sum": x.sum()}


def close(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    assert jax.tree_util.tree_structure(got) == jax.tree_util.tree_structure(want)
    for g, w in zip(jax.tree_util.tree_leaves(got), jax.tree_util.tree_leaves(want), strict=True):
        assert np.asarray(g).dtype == np.asarray(w).dtype
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=tolerance, atol=tolerance)


def _forms() -> dict[str, Any]:
    from jax import export

    traced = jax.jit(layer, keep_unused=True).trace(X, W, 1.0)
    lowered = traced.lower()
    compiled = lowered.compile()
    return {
        "traced": traced, "lowered": lowered, "compiled": compiled, "module": lowered.compiler_ir("stablehlo"),
        "hlo": compiled.runtime_executable().hlo_modules()[0],
        "exported": export.export(jax.jit(layer, keep_unused=True))(X, W, 1.0),
        "bytes": lowered.as_text().encode(), "file": io.StringIO(lowered.as_text()),
        "proto": compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto(),
    }  # fmt: skip


@pytest.mark.parametrize("form", ["traced", "lowered", "compiled", "module", "hlo", "exported", "bytes", "file", "proto"])
def test_objects_of_jax_load(form: str) -> None:
    want = layer(X, W)
    got = dx.compile(dx.load(_forms()[form]), engine="numpy", optimize=False)(X, W, np.float32(1))
    close(got, (want["sum"], want["y"]))


@pytest.mark.parametrize("form", ["traced", "lowered", "compiled", "module", "hlo"])
def test_scopes_and_places_are_kept(form: str) -> None:
    nodes = [n for f in dx.load(_forms()[form]).functions for n in f.nodes]
    places = [span.place for n in nodes for span in n.origin.spans if span.place is not None]
    assert any("dense" in p.label and p.file == __file__ and p.line == layer.__code__.co_firstlineno + 2 for p in places)


def test_from_jax_takes_trees_and_shapes() -> None:
    def f(p: Any, x: Any) -> Any:
        return p["a"] * x + p["b"][0], p["b"][1]

    shape = jax.ShapeDtypeStruct((2, 3), np.float32)
    module = dx.from_jax(f, {"a": shape, "b": (2.0, shape)}, x=shape)
    assert [str(p.type) for p in module.entry.params] == ["f32[2,3]", "f32[]", "f32[2,3]", "f32[2,3]"]


def test_jit_keeps_trees_and_is_compiled_once_for_each_shape() -> None:
    f = dx.jit(layer)
    for x in (X, X + 1, jnp.asarray(X)):
        close(f(x, w=W), layer(x, w=W))
    assert len(f.programs) == 1
    close(f(X[:2], W, 3.0), layer(X[:2], W, 3.0))
    assert len(f.programs) == 2
    assert f.__name__ == "layer"


def test_jit_static_arguments_keys_and_no_leaves() -> None:
    def f(x: Any, n: int, mode: str = "sum") -> Any:
        return getattr(x * n, mode)(), None, []

    g = dx.jit(f, static_argnames=("n", "mode"))
    close(g(X, 2), f(X, 2))
    close(g(X, 3, mode="max"), f(X, 3, mode="max"))
    close(g(n=2, x=X), f(n=2, x=X))
    assert len(g.programs) == 3
    key = jax.random.key(3)
    close(dx.jit(lambda k: jax.random.uniform(k, (5,)))(key), jax.random.uniform(key, (5,)))
    split = dx.jit(lambda k: jax.random.split(k)[1])(key)
    assert (jax.random.key_data(split) == jax.random.key_data(jax.random.split(key)[1])).all()
    with pytest.raises(dx.UsageError, match="no parameter 'm'"):
        dx.jit(f, static_argnames="m")
    for numbers in ((1, 2), (-1, -2)):
        close(dx.jit(f, static_argnums=numbers)(X, 2, "sum"), f(X, 2, "sum"))
    with pytest.raises(dx.UsageError, match="no parameter number 3"):
        dx.jit(f, static_argnums=3)


def test_jit_inside_jax_is_the_function() -> None:
    f = dx.jit(lambda x: jnp.sin(x).sum())
    close(jax.grad(f)(X), jnp.cos(X))
    close(jax.jit(f)(X), jnp.sin(X).sum())


def test_to_jax_is_native_and_differentiable() -> None:
    def f(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w).sum()

    back = dx.to_jax(dx.optimize(dx.from_jax(f, X, W), "default"))
    close(jax.jit(back)(X, W), (f(X, W),))
    close(back(arg1=W, arg0=X), (f(X, W),))
    close(jax.grad(lambda x, w: back(x, w)[0], argnums=(0, 1))(X, W), jax.grad(f, argnums=(0, 1))(X, W))
    ours = jax.grad(lambda x: jax.grad(lambda x: back(x, W)[0])(x).sum())
    close(ours(X), jax.grad(lambda x: jax.grad(f)(x, W).sum())(X), 1e-4)
    assert "custom_call" not in jax.jit(back).lower(X, W).as_text()


def test_to_jax_under_vmap_and_derivatives_of_it() -> None:
    def f(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w), (x * x).sum()

    back = dx.to_jax(dx.from_jax(f, X, W))
    many, weights = np.stack([X, X + 1, X * 2]), np.stack([W, W * 2, W - 1])
    for axes in ((0, None), (None, 0), (0, 0)):
        given = [(many if axes[0] == 0 else X), (weights if axes[1] == 0 else W)]
        close(jax.vmap(back, axes)(*given), jax.vmap(f, axes)(*given))
        by = [jax.grad(lambda x, w, g=g, axes=axes: sum(r.sum() for r in jax.vmap(g, axes)(x, w)), (0, 1)) for g in (back, f)]
        close(by[0](*given), by[1](*given), 1e-4)
    rows = [jax.vmap(jax.grad(lambda x, g=g: g(x, W)[1]))(many) for g in (back, f)]
    close(*rows)
    twice = [jax.vmap(jax.vmap(lambda x, g=g: g(x, W)))(np.stack([many, -many])) for g in (back, f)]
    close(*twice)
    close(jax.jit(jax.vmap(back, (0, None)))(many, W), jax.vmap(f, (0, None))(many, W))


def test_to_jax_takes_integers_and_open_sizes() -> None:
    module = dx.loads("anf 1\n(entry @go)\n(define public (@go (%x : f32[n]) (%k : i32[])) -> ((%y : f32[n]) (%z : i32[]))\n"
                      "  (let (%y : f32[n] (sine %x))\n  (values %y %k)))\n", "anf")  # fmt: skip
    f = dx.to_jax(module)
    for n in (3, 5):
        close(f(np.ones(n, "f4"), 2), (jnp.sin(np.ones(n, "f4")), jnp.asarray(2)))
    close(jax.grad(lambda x: f(x, 2)[0].sum())(np.ones(3, "f4")), jnp.cos(np.ones(3, "f4")))


def test_to_jax_refuses_by_name() -> None:
    wide = dx.loads("HloModule m\nENTRY e { ROOT x = f64[] parameter(0) }")
    with pytest.raises(dx.UsageError, match="types of 32 bits"):
        dx.to_jax(wide)
    narrow = dx.loads("HloModule m\nENTRY e { ROOT x = f32[] parameter(0) }")
    with pytest.raises(dx.UsageError, match="2 inputs are given"):
        dx.to_jax(narrow)(1.0, 2.0)


def test_functions_are_refused_with_the_way_on() -> None:
    with pytest.raises(dx.UsageError, match=r"dx\.from_jax\(f, \*args\)"):
        dx.load(jax.jit(layer))
