"""Operations of MLIR dialects: what StableHLO, CHLO and MHLO have is read or kept, what they do not have is a mistake."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph import ops
from deepx_graph.errors import DeepxGraphError, ParseError
from deepx_graph.session import programs
from deepx_graph.text.stablehlo.reader.rules import KEPT, RULES, canonical, is_mistaken, nearest

MHLO = re.findall(r"\w+", """
abs acos acosh add add_dependency after_all all_gather all_reduce all_to_all and asin asinh async_done async_start atan2
atanh batch_norm_grad batch_norm_inference batch_norm_training bitcast_convert broadcast broadcast_in_dim case cbrt ceil cholesky
clamp collective_broadcast collective_permute compare complex composite concatenate constant convert convolution copy cosh cosine
count_leading_zeros create_token custom_call divide domain dot dot_general dynamic_broadcast_in_dim dynamic_conv dynamic_gather
dynamic_iota dynamic_pad dynamic_reshape dynamic_slice dynamic_update_slice erf exponential exponential_minus_one fft floor fusion
gather get_dimension_size get_tuple_element if imag infeed iota is_finite log log_plus_one logistic map maximum minimum mulhi
multiply negate not optimization_barrier or outfeed pad partition_id popcnt power real real_dynamic_slice recv reduce
reduce_precision reduce_scatter reduce_window remainder replica_id reshape reverse rng rng_bit_generator round_nearest_afz
round_nearest_even rsqrt scatter select select_and_scatter send set_dimension_size shift_left shift_right_arithmetic
shift_right_logical sign sine sinh slice sort sqrt subtract tan tanh topk torch_index_select transpose triangular_solve tuple
uniform_dequantize uniform_quantize while xor""")
"""MHLO's operations that StableHLO or CHLO has too, or whose meaning is plain."""
FUNCTION = "func.func @main({arguments}) -> {result} {{\n{body}\n  return %0 : {result}\n}}\n"


def unary(name: str, quoted: bool = False, type: str = "tensor<4xf32>") -> str:
    call = f'"{name}"(%a) : ({type}) -> {type}' if quoted else f"{name} %a : {type}"
    return FUNCTION.format(arguments=f"%a: {type}", result=type, body=f"  %0 = {call}")


def swapped(name: str) -> str:
    return name[:-2] + name[-1] + name[-2]


@pytest.mark.parametrize("name", [n for n in RULES if "." in n and swapped(n) not in RULES and n[-1] != n[-2]])
def test_a_misspelt_operation_is_an_error_that_names_the_right_one(name: str) -> None:
    if not is_mistaken("foo." + name) and is_mistaken(swapped(name)):
        assert f"'{name}'" in (nearest(swapped(name)) or "")
    else:
        assert name.startswith("sdy.")  # a foreign dialect


@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize("name", ["stablehlo.tahn", "chlo.erff", "mhlo.tahn", "check.expect_eqq", "vhlo.tanh", "tanh"])
def test_misspelt_operations_are_refused_with_their_location(name: str, quoted: bool) -> None:
    with pytest.raises(ParseError) as e:
        programs.loads(unary(name, quoted), "stablehlo")
    (diagnostic,) = e.value.diagnostics
    assert diagnostic.message == f"unknown operation '{name}'"
    assert diagnostic.span is not None and diagnostic.span.text == name


@pytest.mark.parametrize("name", ["tf.Tanh", "stablehlo.einsum", "mhlo.stochastic_convert", "vhlo.tanh_v1", "sdy.unknown"])
def test_what_is_kept_is_said(name: str) -> None:
    loaded = programs.loads(unary(name, quoted=True), "stablehlo")
    assert [n.op for n in loaded.module.entry.nodes][-1] is ops.opaque
    (note,) = loaded.warnings
    assert note.severity == "note" and name.split(".")[0] in note.message
    assert programs.dumps(loaded.module, "stablehlo").count(name) == 1
    for language in ("hlo", "relay"):
        with pytest.raises(DeepxGraphError):
            programs.dumps(loaded.module, language)


@pytest.mark.parametrize("word", MHLO)
def test_operations_of_mhlo_are_those_of_stablehlo(word: str) -> None:
    name = canonical(f"mhlo.{word}")
    assert name in RULES and name not in KEPT


@pytest.mark.parametrize("word", [o.name for o in (ops.acos, ops.asinh, ops.erf, ops.tan, ops.tanh, ops.sine)])
def test_elementwise_operations_of_mhlo_run(word: str) -> None:
    x = np.array([0.1, 0.2, 0.3, 0.9], np.float32)
    known = {"acos": np.arccos, "asinh": np.arcsinh, "tan": np.tan, "tanh": np.tanh, "sine": np.sin}
    want = known[word](x) if word in known else np.array([0.112462916, 0.222702589, 0.328626759, 0.796908212])
    (got,) = dx.compile(dx.loads(unary(f"mhlo.{word}")), engine="numpy", optimize=False)(x)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_other_operations_of_mhlo_run() -> None:
    """A loop and a reduction in their own forms, a token, a copy."""
    body = """
  %c = mhlo.constant dense<0> : tensor<i32>
  %one = mhlo.constant dense<1> : tensor<i32>
  %z = mhlo.constant dense<0.0> : tensor<f32>
  %t = mhlo.create_token : !mhlo.token
  %d = "mhlo.add_dependency"(%a, %t) : (tensor<4xf32>, !mhlo.token) -> tensor<4xf32>
  %w:2 = mhlo.while(%x = %d, %i = %c) : tensor<4xf32>, tensor<i32>
   cond {
    %p = mhlo.compare LT, %i, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
    mhlo.return %p : tensor<i1>
  } do {
    %y = mhlo.add %x, %x : tensor<4xf32>
    %j = mhlo.add %i, %one : tensor<i32>
    mhlo.return %y, %j : tensor<4xf32>, tensor<i32>
  }
  %k = "mhlo.copy"(%w#0) : (tensor<4xf32>) -> tensor<4xf32>
  %v:2 = mhlo.topk(%k, k = 2, largest = true) : tensor<4xf32> -> (tensor<2xf32>, tensor<2xi32>)
  %0 = mhlo.reduce(%v#0 init: %z) applies mhlo.add across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>"""
    module = dx.loads(FUNCTION.format(arguments="%a: tensor<4xf32>", result="tensor<f32>", body=body))
    (got,) = dx.compile(module, engine="numpy", optimize=False)(np.array([1, 5, 2, 4], np.float32))
    assert got == 18


TOP_K = """func.func @main(%a: tensor<{n}x{t}>) -> (tensor<{n}x{t}>, tensor<{n}xi32>) {{
  %0, %1 = chlo.top_k(%a, k = {n}) : tensor<{n}x{t}> -> (tensor<{n}x{t}>, tensor<{n}xi32>)
  return %0, %1 : tensor<{n}x{t}>, tensor<{n}xi32>
}}
"""


@pytest.mark.parametrize("engine", ["numpy", "numexpr", "auto"])
@pytest.mark.parametrize(("type", "dtype"), [("f32", np.float32), ("f64", np.float64), ("f16", np.float16)])
def test_the_greatest_are_found_in_the_total_order(engine: str, type: str, dtype: type[np.floating[Any]]) -> None:
    """As XLA gives them: NaN, inf, ..., 0, -0, ..., -inf, -NaN, and the first of equal bits first."""
    x = np.array([1, -0.0, 0.0, np.nan, np.nan, np.inf, -np.inf, np.nan, 0.0, -0.0, 2], dtype)
    x[3:5] = np.copysign(x[3:5], np.array([1, -1], dtype))
    _, places = dx.compile(dx.loads(TOP_K.format(n=11, t=type)), engine=engine, optimize=False)(x)
    assert places.tolist() == [3, 7, 5, 10, 0, 2, 8, 1, 9, 6, 4]


def test_the_greatest_of_truth_values() -> None:
    values, places = dx.compile(dx.loads(TOP_K.format(n=3, t="i1")), engine="numpy", optimize=False)(np.array([False, True, True]))
    assert values.tolist() == [True, True, False] and places.tolist() == [1, 2, 0]


@pytest.mark.parametrize("type", ["f16", "bf16", "f32", "f64", "complex<f32>", "i8", "ui16", "i64"])
@pytest.mark.parametrize("engine", ["numpy", "auto"])
def test_a_number_is_true_unless_it_is_zero(type: str, engine: str) -> None:
    text = FUNCTION.format(arguments=f"%a: tensor<6x{type}>", result="tensor<6xi1>",
                           body=f"  %0 = stablehlo.convert %a : (tensor<6x{type}>) -> tensor<6xi1>")
    compiled = dx.compile(dx.loads(text), engine=engine, optimize=False)
    dtype = compiled.inputs[0].type.dtype
    real = dtype.kind in ("float", "complex")
    numbers = [0.0, -0.0, 0.3, -0.7, np.nan, np.inf] if real else [0, 0, 1, 2, 16, 127]
    (got,) = compiled(np.array(numbers).astype(dtype.np))
    assert got.tolist() == [False, False, True, True, True, True]


@pytest.mark.parametrize("count", ["0", "2", "30000000", "9" * 25])
def test_as_many_results_as_the_text_has_types_for(count: str) -> None:
    body = f"  %1:{count} = func.call @f(%a) : (tensor<2xf32>) -> tensor<2xf32>\n  %0 = stablehlo.negate %1#0 : tensor<2xf32>"
    main = FUNCTION.format(arguments="%a: tensor<2xf32>", result="tensor<2xf32>", body=body)
    function = "func.func private @f(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> }\n"
    with pytest.raises(ParseError, match="result"):
        programs.loads(main + function)
    programs.loads((main + function).replace(f":{count} ", ":1 "))
