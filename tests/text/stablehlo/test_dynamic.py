"""StableHLO operations with computed shapes, quantised types, and CHLO's broadcasting ones: what they give."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import CheckFailed, ParseError, Source
from deepx_graph.text import ReadOptions
from deepx_graph.text.stablehlo import read
from tests.support.reference import evaluate

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def load(body: str, params: str, result: str) -> Any:
    text = f"func.func @main({params}) -> {result} {{\n{body}\n  return %r : {result}\n}}"
    return read(Source("t.mlir", text), ReadOptions()).module


def run(body: str, params: str, result: str, *args: Any) -> Any:
    return evaluate(load(body, params, result), list(args))[0]


# --- shapes as operands --------------------------------------------------------------------------------------------


def test_padding_that_is_computed_from_constants() -> None:
    got = run("""  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<[1, 0]> : tensor<2xi64>
  %low = stablehlo.add %one, %one : tensor<2xi64>
  %high = stablehlo.constant dense<[0, -1]> : tensor<2xi64>
  %in = stablehlo.constant dense<[0, 1]> : tensor<2xi64>
  %r = stablehlo.dynamic_pad %x, %z, %low, %high, %in
    : (tensor<3x4xf32>, tensor<f32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<5x6xf32>""",
              "%x: tensor<3x4xf32>", "tensor<5x6xf32>", X)
    want = np.zeros((5, 7), np.float32)
    want[2:, ::2] = X
    np.testing.assert_array_equal(got, want[:, :6])


@pytest.mark.parametrize("start", ["dense<[1, 1]> : tensor<2xi64>", None])
def test_real_dynamic_slice(start: str | None) -> None:
    begin = f"  %a = stablehlo.constant {start}\n" if start else ""
    body = begin + """  %b = stablehlo.constant dense<[3, 4]> : tensor<2xi64>
  %s = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
  %r = stablehlo.real_dynamic_slice %x, %a, %b, %s
    : (tensor<3x4xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<2x2xf32>"""
    params = "%x: tensor<3x4xf32>" + ("" if start else ", %a: tensor<2xi64>")
    args = [X] if start else [X, np.array([1, 1])]
    np.testing.assert_array_equal(run(body, params, "tensor<2x2xf32>", *args), X[1:3, 1:4:2])


@pytest.mark.parametrize("sizes", ["  %n = stablehlo.constant dense<[1, 2]> : tensor<2xi32>\n", ""])
def test_dynamic_gather(sizes: str) -> None:
    """With sizes that only a run knows, the result's type says them."""
    body = sizes + """  %r = "stablehlo.dynamic_gather"(%x, %i, %n) {
    dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0, 1],
      index_vector_dim = 1>, indices_are_sorted = false
  } : (tensor<3x4xf32>, tensor<2x2xi64>, tensor<2xi32>) -> tensor<2x2xf32>"""
    params = "%x: tensor<3x4xf32>, %i: tensor<2x2xi64>" + ("" if sizes else ", %n: tensor<2xi32>")
    args = [X, np.array([[2, 1], [0, 9]])] + ([] if sizes else [np.array([1, 2], np.int32)])
    np.testing.assert_array_equal(run(body, params, "tensor<2x2xf32>", *args), [[9, 10], [2, 3]])


def test_a_dynamic_result_takes_the_shape_that_is_known() -> None:
    module = load("""  %s = stablehlo.constant dense<[2, 6]> : tensor<2xi64>
  %r = stablehlo.dynamic_reshape %x, %s : (tensor<3x4xf32>, tensor<2xi64>) -> tensor<?x?xf32>""",
                  "%x: tensor<3x4xf32>", "tensor<?x?xf32>")
    assert str(module.entry.results[0].type) == "f32[2,6]"


def test_what_a_run_decides_waits_for_it() -> None:
    module = load("  %r = stablehlo.dynamic_reshape %x, %s : (tensor<3x4xf32>, tensor<2xi64>) -> tensor<?x?xf32>",
                  "%x: tensor<3x4xf32>, %s: tensor<2xi64>", "tensor<?x?xf32>")
    compiled = dx.compile(module)
    for shape in ([2, 6], [1, 12]):
        np.testing.assert_array_equal(compiled(X, np.array(shape))[0], X.reshape(shape))


def test_set_dimension_size_to_a_known_one() -> None:
    body = """  %n = stablehlo.constant dense<3> : tensor<i32>
  %r = stablehlo.set_dimension_size %x, %n, dim = 1 : (tensor<3x4xf32>, tensor<i32>) -> tensor<3x?xf32>"""
    np.testing.assert_array_equal(run(body, "%x: tensor<3x4xf32>", "tensor<3x?xf32>", X), X[:, :3])


@pytest.mark.parametrize(("dim", "batch"), [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2)])
def test_torch_index_select(dim: int, batch: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.random((2, 3, 4)).astype(np.float32)
    index = rng.integers(0, 2, (*x.shape[:batch], 5, 2))
    want = np.empty((*x.shape[:dim], *index.shape[batch:], *x.shape[dim + 1 :]), np.float32)
    for at in np.ndindex(want.shape):
        pick = index[at[:batch] + at[dim : dim + 2]]
        want[at] = x[(*at[:dim], pick, *at[dim + 2 :])]

    def shown(shape: tuple[int, ...], element: str) -> str:
        return f"tensor<{'x'.join(map(str, shape))}x{element}>"

    types = shown(x.shape, "f32"), shown(index.shape, "i64"), shown(want.shape, "f32")
    body = (f'  %r = "stablehlo.torch_index_select"(%x, %i) <{{dim = {dim} : i64, batch_dims = {batch} : i64}}> '
            f": ({types[0]}, {types[1]}) -> {types[2]}")
    np.testing.assert_array_equal(run(body, f"%x: {types[0]}, %i: {types[1]}", types[2], x, index), want)


# --- CHLO's broadcasting ops ---------------------------------------------------------------------------------------


def test_chlo_broadcasts() -> None:
    body = "  %r = chlo.broadcast_multiply %x, %y : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>"
    y = np.array([1, 2, 3, 4], np.float32)
    np.testing.assert_array_equal(run(body, "%x: tensor<3x4xf32>, %y: tensor<4xf32>", "tensor<3x4xf32>", X, y), X * y)
    body = ('  %r = "chlo.broadcast_compare"(%x, %y) <{broadcast_dimensions = array<i64: 0>, comparison_direction = '
            "#chlo<comparison_direction LT>}> : (tensor<3x4xf32>, tensor<3xf32>) -> tensor<3x4xi1>")
    z = np.array([1, 9, 9], np.float32)
    np.testing.assert_array_equal(run(body, "%x: tensor<3x4xf32>, %y: tensor<3xf32>", "tensor<3x4xi1>", X, z), z[:, None] > X)


# --- quantised types -----------------------------------------------------------------------------------------------

Q = "!quant.uniform<i8:f32, 0.5:-20>"


def test_a_matmul_of_quantised_matrices() -> None:
    """Integers in, integers out; computed as ((a + 20) / 2) @ ((b - 3) / 4), in steps of 1, held within [-100, 100]."""
    elements = ("i8:f32, 0.5:-20", "i8:f32, 2.5e-1:3", "i8<-100:100>:f32, 1.0")
    a_type, b_type, r_type = (f"tensor<2x2x!quant.uniform<{p}>>" for p in elements)
    body = f"  %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({a_type}, {b_type}) -> {r_type}"
    a, b = np.array([[-20, -18], [4, 100]], np.int8), np.array([[3, 7], [-1, 43]], np.int8)
    exact = ((a.astype(float) + 20) / 2) @ ((b.astype(float) - 3) / 4)
    got = run(body, f"%a: {a_type}, %b: {b_type}", r_type, a, b)
    assert got.dtype == np.int8
    np.testing.assert_array_equal(got, np.clip(np.rint(exact), -100, 100))


def test_quantised_along_an_axis_and_from_floats() -> None:
    q = "tensor<2x3x!quant.uniform<u8:f32:1, {1.0, 2.0:10, 0.1:255}>>"
    body = f"  %r = stablehlo.uniform_quantize %x : (tensor<2x3xf32>) -> {q}"
    x = np.array([[2.5, 3.0, -1.0], [-4, 1e9, 1.0]], np.float32)
    np.testing.assert_array_equal(run(body, "%x: tensor<2x3xf32>", q, x), [[2, 12, 245], [0, 255, 255]])


def test_regions_compute_on_quantised_values() -> None:
    t = f"tensor<3x{Q}>"
    body = f"""  %z = "stablehlo.uniform_quantize"(%c) : (tensor<f32>) -> tensor<{Q}>
  %r = "stablehlo.reduce"(%x, %z) <{{dimensions = array<i64: 0>}}> ({{
    ^bb0(%a: tensor<{Q}>, %b: tensor<{Q}>):
      %s = stablehlo.add %a, %b : tensor<{Q}>
      stablehlo.return %s : tensor<{Q}>
  }}) : ({t}, tensor<{Q}>) -> tensor<{Q}>"""
    got = run(body, f"%x: {t}, %c: tensor<f32>", f"tensor<{Q}>", np.array([-18, -16, -10], np.int8), np.float32(0))
    assert got == -20 + 2 + 4 + 10


def test_a_type_that_is_no_quantised_one() -> None:
    with pytest.raises(ParseError, match="unknown element type"):
        load("  %r = stablehlo.negate %x : tensor<2xf32>", "%x: tensor<2x!quant.uniform<i8:f32, {0.1, 0.2}>>", "tensor<2xf32>")


# --- sizes that stay symbols until the inputs are known ------------------------------------------------------------

ANY_BATCH = """func.func @main(%x: tensor<?x4xf32>, %y: tensor<?xf32>) -> (tensor<?x4xf32>, tensor<?xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<f32>) {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %one = stablehlo.constant dense<2> : tensor<i32>
  %good = stablehlo.compare GE, %n, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%good, %n) {api_version = 2 : i32, has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
  %r:5 = call @inner(%n, %x, %y) : (tensor<i32>, tensor<?x4xf32>, tensor<?xf32>) -> (tensor<?x4xf32>, tensor<?xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<f32>)
  return %r#0, %r#1, %r#2, %r#3, %r#4 : tensor<?x4xf32>, tensor<?xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<f32>
}
func.func private @inner(%n: tensor<i32>, %x: tensor<?x4xf32>, %y: tensor<?xf32>) -> (tensor<?x4xf32>, tensor<?xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<f32>) {
  %four = stablehlo.constant dense<4> : tensor<1xi32>
  %more = stablehlo.constant dense<-1> : tensor<i32>
  %half = stablehlo.constant dense<0.5> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<1xi32>
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %shape = stablehlo.concatenate %n1, %four, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %h = stablehlo.dynamic_broadcast_in_dim %half, %shape, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x4xf32>
  %a = stablehlo.add %x, %h : tensor<?x4xf32>
  %all = stablehlo.multiply %n1, %four : tensor<1xi32>
  %flat = stablehlo.dynamic_reshape %a, %all : (tensor<?x4xf32>, tensor<1xi32>) -> tensor<?xf32>
  %less = stablehlo.add %n, %more : tensor<i32>
  %less1 = stablehlo.reshape %less : (tensor<i32>) -> tensor<1xi32>
  %size = stablehlo.concatenate %less1, %four, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %part = "stablehlo.dynamic_gather"(%a, %zero, %size) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1],
    start_index_map = [0]>, indices_are_sorted = true}> : (tensor<?x4xf32>, tensor<1xi32>, tensor<2xi32>) -> tensor<?x4xf32>
  %count = stablehlo.dynamic_iota %n1, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  %f = stablehlo.convert %n : (tensor<i32>) -> tensor<f32>
  %i = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%y init: %i) applies stablehlo.add across dimensions = [0] : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
  %mean = stablehlo.divide %s, %f : tensor<f32>
  return %a, %flat, %part, %count, %mean : tensor<?x4xf32>, tensor<?xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<f32>
}
"""  # noqa: E501


@pytest.mark.parametrize("optimised", [False, True])
def test_a_program_for_any_batch_size(optimised: bool) -> None:
    """Shapes computed from shapes, through a call; sizes of different inputs are different symbols."""
    module = dx.loads(ANY_BATCH)
    run = dx.compile(dx.optimize(module) if optimised else module, optimize=False)
    assert [str(p.type) for p in run.inputs] == ["f32[?0,4]", "f32[?1]"]
    for n in (3, 2):
        x = np.arange(4 * n, dtype=np.float32).reshape(n, 4)
        a, flat, part, count, mean = run(x, np.array([1, 2, 3, 6, 0], np.float32))
        np.testing.assert_array_equal(a, x + 0.5)
        np.testing.assert_array_equal(flat, (x + 0.5).reshape(-1))
        np.testing.assert_array_equal(part, (x + 0.5)[: n - 1])
        np.testing.assert_array_equal(count, np.arange(n))
        assert mean == np.float32(12 / n)


def test_the_assertion_of_a_program_about_its_shapes_holds_or_fails() -> None:
    with pytest.raises(CheckFailed):
        dx.compile(dx.loads(ANY_BATCH), optimize=False)(np.zeros((1, 4), np.float32), np.zeros(1, np.float32))


HALVES = """
func.func public @main(%x: tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?xf32>, tensor<?x?xf32>, tensor<?x?xf32>) {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
  %m = stablehlo.get_dimension_size %x, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>
  %half = call @half(%n) : (tensor<i32>) -> tensor<i32>
  %h1 = stablehlo.reshape %half : (tensor<i32>) -> tensor<1xi32>
  %m1 = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
  %two1 = stablehlo.constant dense<2> : tensor<1xi32>
  %one1 = stablehlo.constant dense<1> : tensor<1xi32>
  %zero1 = stablehlo.constant dense<0> : tensor<1xi32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %shape = stablehlo.concatenate %two1, %h1, %m1, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
  %halves = stablehlo.dynamic_reshape %x, %shape : (tensor<?x?xf32>, tensor<3xi32>) -> tensor<2x?x?xf32>
  %sum = stablehlo.reduce(%halves init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<2x?x?xf32>, tensor<f32>) -> tensor<?x?xf32>
  %window = stablehlo.concatenate %h1, %one1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %ones = stablehlo.constant dense<1> : tensor<2xi32>
  %zeros = stablehlo.constant dense<0> : tensor<2x2xi32>
  %windows = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%x, %zero, %window, %ones, %ones, %ones, %zeros)
    {called_computations = [@plus]} : (tensor<?x?xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>,
    tensor<2x2xi32>) -> tensor<?x?xf32>
  %start = stablehlo.dynamic_broadcast_in_dim %zero, %h1, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  %k = stablehlo.constant dense<3> : tensor<i32>
  %0:3 = stablehlo.while(%left = %k, %size = %half, %total = %start) : tensor<i32>, tensor<i32>, tensor<?xf32>
    cond {
      %none = stablehlo.constant dense<0> : tensor<i32>
      %more = stablehlo.compare GT, %left, %none : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %next = stablehlo.subtract %left, %one : tensor<i32>
      %s1 = stablehlo.reshape %size : (tensor<i32>) -> tensor<1xi32>
      %f = stablehlo.convert %left : (tensor<i32>) -> tensor<f32>
      %b = stablehlo.dynamic_broadcast_in_dim %f, %s1, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
      %more = stablehlo.add %total, %b : tensor<?xf32>
      stablehlo.return %next, %size, %more : tensor<i32>, tensor<i32>, tensor<?xf32>
    }
  %low = stablehlo.concatenate %h1, %zero1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %none = stablehlo.constant dense<0> : tensor<2xi32>
  %padded = stablehlo.dynamic_pad %x, %zero, %low, %none, %none
    : (tensor<?x?xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x?xf32>
  %top:2 = stablehlo.custom_call @stablehlo.dynamic_top_k(%x, %m)
    : (tensor<?x?xf32>, tensor<i32>) -> (tensor<?x?xf32>, tensor<?x?xi32>)
  return %sum, %windows, %0#2, %padded, %top#0 : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?xf32>, tensor<?x?xf32>, tensor<?x?xf32>
}
func.func private @half(%n: tensor<i32>) -> tensor<i32> {
  %two = stablehlo.constant dense<2> : tensor<i32>
  %half = stablehlo.divide %n, %two : tensor<i32>
  return %half : tensor<i32>
}
func.func private @plus(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.add %a, %b : tensor<f32>
  return %0 : tensor<f32>
}
"""


@pytest.mark.parametrize("optimize", [False, True])
def test_sizes_that_are_halves_of_others_wait_for_the_inputs(optimize: bool) -> None:
    """As JAX writes polymorphic shapes such as `2*k`: sizes are results of functions, and go through loops."""
    module = dx.loads(HALVES)
    for again in (module, dx.loads(dx.dumps(module, "stablehlo")), pickle.loads(pickle.dumps(module))):
        compiled = dx.compile(again, optimize=optimize)
        for shape in ((4, 3), (6, 2)):
            x, half = np.arange(np.prod(shape), dtype=np.float32).reshape(shape), shape[0] // 2
            total, windows, sums, padded, top = compiled(x)
            np.testing.assert_allclose(total, x[:half] + x[half:])
            np.testing.assert_allclose(windows, [x[k : k + half].sum(0) for k in range(half + 1)])
            np.testing.assert_allclose(sums, np.full(half, 6))
            np.testing.assert_allclose(padded, np.pad(x, ((half, 0), (0, 0))))
            np.testing.assert_allclose(top, x[:, ::-1])
