"""What takes little is computed again where it is read: values stay, plans do not grow, and functions are computed once."""

from __future__ import annotations

import random

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node, Op
from deepx_graph.ops import add, exponential, maximum, multiply, negate, reshape, sqrt, subtract
from deepx_graph.ops.contract.linear import dot_general, matmul
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.ops.data.fusion import fused_body, fusion
from deepx_graph.types import F32, tensor
from deepx_graph.verify import verify

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.rewrite import rematerialisation
from deepx_graph.runtime.engines import arrangement
from deepx_graph.runtime.engines.native_engine import NativeEngine

ROWS = 96


def fused(b: Builder, x: Node, y: Node, *, by: Op) -> list[Node]:
    """A kernel with a dear result and two that are cheap functions of it and of an operand."""
    px, py = (b.param(k, n.type) for k, n in enumerate((x, y)))
    dear = b(by, px)
    body = Function("fusion", (px, py), (dear, b(multiply, dear, py), b(subtract, py, dear)), public=False)
    made = b(fusion, x, y, body=body)
    return list(b.items(made))


def layer(by: Op) -> Module:
    """Two products with a kernel between, whose results are read after the second one."""
    b = Builder()
    x, w = (b.param(k, tensor(F32, (ROWS, ROWS))) for k in range(2))
    first = matmul(b, x, w)
    dear, scaled, difference = fused(b, first, x, by=by)
    second = matmul(b, dear, w)
    return Module((Function("main", (x, w), (b(add, b(multiply, second, scaled), difference),)),))


def kept(module: Module) -> list[int]:
    """How many results each kernel of several has when the native engine runs it."""
    function = NativeEngine(1).arranged(module.entry)
    return [len(n.attr("body").results) for n in function.nodes if n.op is fusion]


@pytest.mark.parametrize("by", [exponential, negate], ids=lambda op: op.name)
def test_cheap_results_are_made_again_where_they_are_read(by: Op) -> None:
    module = layer(by)
    assert set(kept(module)) == {1}, "what the product reads is stored, and the end"
    x, w = np.random.default_rng(0).normal(size=(2, ROWS, ROWS)).astype("f4") / 16
    found, expected = (dx.compile(module, engine=e)(x, w)[0] for e in ("native", "numpy"))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_function_is_computed_once() -> None:
    """The exponential alone is stored, though two kernels read it."""
    function = NativeEngine(1).arranged(layer(exponential).entry)
    bodies = [n.attr("body") for n in function.nodes if n.op is fusion]
    assert sum(n.op is exponential for body in bodies for n in body.nodes) == 1


def normalised(steps: int) -> Module:
    """A function of so many differences and magnitudes, divided by its sum: the result may lie where the function's value does."""
    lines, value, type = list[str](), "%x", "tensor<1048576xf32>"
    for k in range(steps):
        lines += [f"%c{k} = stablehlo.constant dense<0.{k + 1}> : {type}", f"%d{k} = stablehlo.subtract {value}, %c{k} : {type}",
                  f"%v{k} = stablehlo.abs %d{k} : {type}"]
        value = f"%v{k}"
    return dx.optimize(dx.loads("\n".join([
        f"func.func @main(%x: {type}) -> {type} {{", *lines, "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
        f"%sum = stablehlo.reduce({value} init: %zero) applies stablehlo.add across dimensions = [0] : ({type}, tensor<f32>)"
        " -> tensor<f32>",
        f"%all = stablehlo.broadcast_in_dim %sum, dims = [] : (tensor<f32>) -> {type}",
        f"%r = stablehlo.divide {value}, %all : {type}", f"return %r : {type}", "}"])))


@pytest.mark.parametrize("steps", [2, 6])
def test_what_the_next_kernel_writes_over_is_kept(steps: int) -> None:
    """It takes no memory, and made again it takes a load as well."""
    assert kept(normalised(steps)) == [2]


def beside(first: int) -> Module:
    """The module of `layer`, beside a kernel that stays as it is, of whose two results one is asked for first."""
    b = Builder()
    x, w, y = (b.param(k, tensor(F32, (ROWS, ROWS))) for k in range(3))
    dear, scaled, difference = fused(b, matmul(b, x, w), x, by=exponential)
    p = b.param(0, y.type)
    body = Function("fusion", (p,), (b(sqrt, b(multiply, p, p)), b(exponential, p)), public=False)
    made = b(fusion, y, body=body)
    asked = {k: b.proj(made, k) for k in (first, 1 - first)}
    ends = b(add, b(multiply, matmul(b, dear, w), scaled), difference)
    return Module((Function("main", (x, w, y), (ends, asked[0], asked[1])),))


@pytest.mark.parametrize("first", [0, 1])
def test_results_stay_in_their_order_whichever_is_asked_for_first(first: int) -> None:
    module = beside(first)
    verify(module.with_functions([NativeEngine(1).arranged(module.entry)]))
    x, w, y = np.random.default_rng(0).normal(size=(3, ROWS, ROWS)).astype("f4") / 16
    _, root, power = dx.compile(module, engine="native")(x, w, y)
    np.testing.assert_allclose(root, np.abs(y), rtol=1e-6)
    np.testing.assert_allclose(power, np.exp(y), rtol=1e-6)


def distances() -> Module:
    """A kernel whose results are a mask and polynomials of the roots of sums, all of which later kernels read, after a product."""
    b = Builder()
    x, w = b.param(0, tensor(F32, (ROWS, ROWS, 2))), b.param(1, tensor(F32, (ROWS, ROWS)))
    p = b.param(0, x.type)
    r = b(sqrt, reduction(b, add, b(multiply, p, p), (2,)))
    cubed = b(multiply, b(multiply, r, r), r)
    body = Function("fusion", (p,), (cubed, b(negate, r), b(subtract, cubed, r)), public=False)
    first, *others = b.items(b(fusion, x, body=body))
    second = matmul(b, matmul(b, w, w), w)
    return Module((Function("main", (x, w), (b(add, b(multiply, second, first), b(multiply, *others)),)),))


def test_what_results_are_made_of_is_kept_in_their_place() -> None:
    """The root, which is no result, dominates all three, and is the only one that is left."""
    module = distances()
    assert set(kept(module)) == {1}
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(ROWS, ROWS, 2)).astype("f4"), rng.normal(size=(ROWS, ROWS)).astype("f4") / 16
    r = np.sqrt((x.astype("f8") ** 2).sum(2))
    expected = np.linalg.matrix_power(w.astype("f8"), 3) * r**3 - r * (r**3 - r)
    np.testing.assert_allclose(dx.compile(module, engine="native")(x, w)[0], expected, rtol=1e-4, atol=1e-4)


def iterated(steps: int) -> Module:
    """Steps x -> a x + b (x x) x, as Newton and Schulz have them: passes make a kernel of each sum and what the next step takes."""
    type = f"tensor<{ROWS}x{ROWS}xf32>"
    dot = "contracting_dims = [1] x [0]"
    lines, x = [f"%a = stablehlo.constant dense<1.5> : {type}", f"%b = stablehlo.constant dense<-0.5> : {type}"], "%x"
    for k in range(steps):
        lines += [f"%s{k} = stablehlo.dot_general {x}, {x}, {dot} : ({type}, {type}) -> {type}",
                  f"%c{k} = stablehlo.multiply %s{k}, %b : {type}",
                  f"%p{k} = stablehlo.dot_general %c{k}, {x}, {dot} : ({type}, {type}) -> {type}",
                  f"%m{k} = stablehlo.multiply {x}, %a : {type}", f"%x{k} = stablehlo.add %m{k}, %p{k} : {type}"]
        x = f"%x{k}"
    return dx.loads("\n".join([f"func.func @main(%x: {type}) -> {type} {{", *lines, f"return {x} : {type}", "}"]))


def test_kernels_that_have_one_result_left_are_epilogues() -> None:
    module = dx.optimize(iterated(3))
    function = NativeEngine(1).arranged(module.entry)
    assert all(any(n.op is dot_general for n in body.nodes) for body in map(fused_body, function.nodes) if body is not None)
    x = np.random.default_rng(0).normal(size=(ROWS, ROWS)).astype("f4") / 16
    expected = x.astype("f8")
    for _ in range(3):
        expected = 1.5 * expected - 0.5 * expected @ expected @ expected
    np.testing.assert_allclose(dx.compile(module, engine="native", optimize=False)(x)[0], expected, rtol=1e-4, atol=1e-5)


CLAMPED = """func.func @main(%x: {t}, %w: {t}) -> {t} {{
  %z = stablehlo.constant dense<0.0> : {t}
  %h = stablehlo.constant dense<0.5> : {t}
  %a = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}
  %m = stablehlo.maximum %a, %z : {t}
  %n = stablehlo.minimum %m, %h : {t}
  %p = stablehlo.compare GT, %m, %h : ({t}, {t}) -> {b}
  %q = stablehlo.select %p, %h, %m : {b}, {t}
  %r = stablehlo.add %q, %n : {t}
  %s = stablehlo.subtract %q, %m : {t}
  %d = stablehlo.dot_general %n, %w, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}
  %e = stablehlo.dot_general %d, %n, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}
  %f = stablehlo.dot_general %e, %w, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}
  %g = stablehlo.multiply %f, %r : {t}
  %i = stablehlo.multiply %g, %s : {t}
  return %i : {t}
}}"""


def test_results_are_made_of_operands_where_those_are_fewer() -> None:
    """Two results are read after a third has ended: what all are made of is kept alone, though the third could serve."""
    module = dx.optimize(dx.loads(CLAMPED.format(t=f"tensor<{ROWS}x{ROWS}xf32>", b=f"tensor<{ROWS}x{ROWS}xi1>")))
    assert 2 not in kept(module) and 3 not in kept(module)
    x, w = np.random.default_rng(0).normal(size=(2, ROWS, ROWS)).astype("f4") / 4
    m = np.maximum(x.astype("f8") @ w, 0)
    n = np.minimum(m, 0.5)
    expected = n @ w @ n @ w * (n + n) * (n - m)
    np.testing.assert_allclose(dx.compile(module, engine="native", optimize=False)(x, w)[0], expected, rtol=1e-4, atol=1e-4)


def program(rng: random.Random) -> Module:
    """Products and kernels of several results, which read earlier values at random, some in another shape."""
    b = Builder()
    values = [b.param(k, tensor(F32, (ROWS, ROWS))) for k in range(2)]
    params = tuple(values)
    for _ in range(rng.randint(3, 6)):
        x, y = (rng.choice(values[-5:]) for _ in range(2))
        kind = rng.random()
        if kind < 0.4:
            values.append(b(multiply, matmul(b, x, y), b.constant(np.float32(0.1))))
        elif kind < 0.8:
            values += fused(b, x, y, by=rng.choice([exponential, negate]))
            values[-3] = b(multiply, values[-3], b.constant(np.float32(0.01)))
        else:
            flat = b(reshape, b(add, x, y), shape=(ROWS * ROWS,))
            values.append(b(reshape, b(maximum, flat, b(negate, flat)), shape=(ROWS, ROWS)))
    return Module((Function("main", params, tuple(rng.sample(values[2:], min(2, len(values) - 2)))),))


def test_values_stay_and_plans_do_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rematerialisation, "LEAST_BYTES", 1)
    changed = 0
    for seed in range(12):
        module = program(random.Random(seed))
        x, w = np.random.default_rng(seed).normal(size=(2, ROWS, ROWS)).astype("f4") / 32
        expected = dx.compile(module, engine="numpy")(x, w)
        found = dx.compile(module, engine="native", optimize=False)
        for a, e in zip(found(x, w), expected, strict=True):
            np.testing.assert_allclose(a, e, rtol=2e-4, atol=1e-5)
        with monkeypatch.context() as plain:
            plain.setattr(arrangement, "with_rematerialised", lambda function, has_kernel: function)
            before = dx.compile(module, engine="native", optimize=False).plan.peak_bytes
        assert found.plan.peak_bytes <= before
        changed += found.plan.peak_bytes < before
    assert changed


LOOP = """func.func @main(%x: tensor<48x4096xf32>, %y: tensor<1x4096xf32>) -> tensor<1x4096xf32> {{
  %z = stablehlo.constant dense<0> : tensor<i32>
  %o = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<48> : tensor<i32>
  %e = stablehlo.constant dense<0.0> : tensor<f32>
  %c = stablehlo.constant dense<2.0> : tensor<48x4096xf32>
  %r:2 = stablehlo.while(%k = %z, %s = %y) : tensor<i32>, tensor<1x4096xf32>
    cond {{
      %l = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %l : tensor<i1>
    }} do {{
      %t = stablehlo.multiply %x, %c : tensor<48x4096xf32>
      {row}
      %h = stablehlo.tanh %s : tensor<1x4096xf32>
      %a = stablehlo.add %h, %w : tensor<1x4096xf32>
      %j = stablehlo.add %k, %o : tensor<i32>
      stablehlo.return %j, %a : tensor<i32>, tensor<1x4096xf32>
    }}
  return %r#1 : tensor<1x4096xf32>
}}"""
ROW = ("%w = stablehlo.dynamic_slice %t, %k, %z, sizes = [1, 4096] : (tensor<48x4096xf32>, tensor<i32>, tensor<i32>)"
       " -> tensor<1x4096xf32>")
SUMS = """%v = stablehlo.reduce(%t init: %e) applies stablehlo.add across dimensions = [0] : (tensor<48x4096xf32>, tensor<f32>)
        -> tensor<4096xf32>
      %u = stablehlo.sine %v : tensor<4096xf32>
      %w = stablehlo.reshape %u : (tensor<4096xf32>) -> tensor<1x4096xf32>"""


@pytest.mark.parametrize("row", [ROW, SUMS], ids=["row", "sums"])
def test_what_iterations_read_parts_of_is_computed_in_them(row: str) -> None:
    f = dx.compile(dx.loads(LOOP.format(row=row)), engine="native", threads=1)
    x, y = np.random.default_rng(0).normal(size=(49, 4096)).astype("f4")[:48], np.zeros((1, 4096), "f4")
    expected = y
    for k in range(48):
        expected = np.tanh(expected) + (2 * x[k] if row is ROW else np.sin((2 * x).sum(0)))
    np.testing.assert_allclose(f(x, y)[0], expected, rtol=1e-4, atol=1e-4)
    assert f.plan.peak_bytes < x.nbytes / 4, "no matrix of products"


ONE_HOT = """%i = stablehlo.iota dim = 0 : tensor<48x4096xi32>
      %b = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<i32>) -> tensor<48x4096xi32>
      %m = stablehlo.compare EQ, %i, %b : (tensor<48x4096xi32>, tensor<48x4096xi32>) -> tensor<48x4096xi1>
      %f = stablehlo.convert %m : (tensor<48x4096xi1>) -> tensor<48x4096xf32>
      %p = stablehlo.multiply %f, %x : tensor<48x4096xf32>
      %v = stablehlo.reduce(%p init: %e) applies stablehlo.add across dimensions = [0] : (tensor<48x4096xf32>, tensor<f32>)
        -> tensor<4096xf32>
      %w = stablehlo.reshape %v : (tensor<4096xf32>) -> tensor<1x4096xf32>"""


def test_numbers_that_iterations_count_are_not_in_memory() -> None:
    """An iota, which needs nothing, is computed where each iteration reads it."""
    f = dx.compile(dx.loads(LOOP.format(row=ONE_HOT)), engine="native", threads=1)
    assert f.plan.peak_bytes < 48 * 4096
    x, y = np.random.default_rng(0).normal(size=(48, 4096)).astype("f4"), np.zeros((1, 4096), "f4")
    expected = y
    for k in range(48):
        expected = np.tanh(expected) + x[k]
    np.testing.assert_allclose(f(x, y)[0], expected, rtol=1e-4, atol=1e-4)
