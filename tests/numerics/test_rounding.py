"""Rounding errors: what is measured is what double precision says, what is predicted is what happens."""

import random

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.cli.main import main
from deepx_graph.errors import UsageError
from deepx_graph.numerics.rounding import explain_rounding
from deepx_graph.types import BF16, I32
from tests.support.generate import random_inputs, random_module

VARIANCE = """
func.func public @main(%x: tensor<1000xf32>) -> (tensor<f32>, tensor<1000xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.constant dense<1000.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] :
    (tensor<1000xf32>, tensor<f32>) -> tensor<f32>
  %m = stablehlo.divide %s, %n : tensor<f32>
  %x2 = stablehlo.multiply %x, %x : tensor<1000xf32>
  %s2 = stablehlo.reduce(%x2 init: %z) applies stablehlo.add across dimensions = [0] :
    (tensor<1000xf32>, tensor<f32>) -> tensor<f32>
  %m2 = stablehlo.divide %s2, %n : tensor<f32>
  %mm = stablehlo.multiply %m, %m : tensor<f32>
  %var = stablehlo.subtract %m2, %mm : tensor<f32>
  %e = stablehlo.exponential %x : tensor<1000xf32>
  return %var, %e : tensor<f32>, tensor<1000xf32>
}
"""


def test_the_subtraction_of_a_naive_variance_loses_the_digits():
    x = (30 + np.random.default_rng(0).standard_normal(1000) * 0.01).astype("f4")
    report = explain_rounding(dx.loads(VARIANCE), {"x": x})
    assert report.cancellations[0].node.name == "var"
    exact = np.var(x.astype("f8"))
    found = dx.compile(dx.loads(VARIANCE), engine="numpy", optimize=False)(x)[0]
    assert dict(report.outputs)["var"] == pytest.approx(abs(found - exact) / exact, rel=1e-3)
    assert dict(report.outputs)["e"] < 1e-6
    assert report.explained == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("mask", ["-1.0e9", "-1.0e30"])
def test_a_mask_hides_no_error_for_which_the_exponential_would_be_blamed(mask):
    text = f"""
func.func public @main(%x: tensor<8x8xf32>, %m: tensor<8x8xi1>) -> tensor<8x8xf32> {{
  %s = stablehlo.sine %x : tensor<8x8xf32>
  %h = stablehlo.convert %s : (tensor<8x8xf32>) -> tensor<8x8xbf16>
  %f = stablehlo.convert %h : (tensor<8x8xbf16>) -> tensor<8x8xf32>
  %k = stablehlo.constant dense<{mask}> : tensor<8x8xf32>
  %d = stablehlo.select %m, %f, %k : tensor<8x8xi1>, tensor<8x8xf32>
  %e = stablehlo.exponential %d : tensor<8x8xf32>
  return %e : tensor<8x8xf32>
}}
"""
    x = np.random.default_rng(0).standard_normal((8, 8)).astype("f4")
    report = explain_rounding(dx.loads(text), {"x": x, "m": np.tri(8, dtype=bool)})
    assert [n.node.name for n in report.cancellations if n.node.name != "h"] == []
    assert {n.node.name: n.total for n in report.nodes}["d"] == pytest.approx(2e-3, rel=0.5)


def test_what_an_iteration_decides_otherwise_is_said_and_no_conversion_blamed():
    """0.1 five times is 0.5 in single precision, and more in double: the count of iterations so far is another one."""
    text = """HloModule m
test { s = (f32[3], s32[3], s32[]) parameter(0)
  k = s32[] get-tuple-element(s), index=2
  n = s32[] constant(6)
  ROOT c = pred[] compare(k, n), direction=LT }
body { s = (f32[3], s32[3], s32[]) parameter(0)
  x = f32[3] get-tuple-element(s), index=0
  n = s32[3] get-tuple-element(s), index=1
  k = s32[] get-tuple-element(s), index=2
  tenth = f32[] constant(0.1)
  tenths = f32[3] broadcast(tenth), dimensions={}
  y = f32[3] add(x, tenths)
  half = f32[] constant(0.5)
  halves = f32[3] broadcast(half), dimensions={}
  within = pred[3] compare(y, halves), direction=LE
  more = s32[3] convert(within)
  m = s32[3] add(n, more)
  one = s32[] constant(1)
  j = s32[] add(k, one)
  ROOT t = (f32[3], s32[3], s32[]) tuple(y, m, j) }
ENTRY main { x = f32[3] parameter(0)
  zero = s32[] constant(0)
  none = s32[3] broadcast(zero), dimensions={}
  s = (f32[3], s32[3], s32[]) tuple(x, none, zero)
  w = (f32[3], s32[3], s32[]) while(s), condition=test, body=body
  n = s32[3] get-tuple-element(w), index=1
  ROOT r = f32[3] convert(n) }
"""
    report = explain_rounding(dx.loads(text), {"x": np.float32([0, 1, -7])})
    decided = {n.node.name: n.decided for n in report.nodes if n.decided}
    assert decided["within"] == 1 and dict(report.outputs)["r"] > 0.05
    assert not report.cancellations, "the conversion has a wrong operand, and loses nothing"


def test_a_loss_that_reaches_no_output_is_not_reported():
    """A difference without digits, added to something large."""
    text = """
func.func public @main(%x: tensor<100xf32>) -> tensor<100xf32> {
  %e = stablehlo.exponential %x : tensor<100xf32>
  %l = stablehlo.log %e : tensor<100xf32>
  %d = stablehlo.subtract %l, %x : tensor<100xf32>
  %k = stablehlo.constant dense<1.0e-3> : tensor<100xf32>
  %t = stablehlo.multiply %d, %k : tensor<100xf32>
  %s = stablehlo.sine %x : tensor<100xf32>
  %y = stablehlo.add %s, %t : tensor<100xf32>
  return %y : tensor<100xf32>
}
"""
    report = explain_rounding(dx.loads(text), {"x": np.linspace(1, 2, 100, dtype="f4")})
    assert any(n.node.name == "d" and n.amplification > 100 for n in report.nodes)
    assert not report.cancellations


def test_contributions_add_up_to_what_is_measured():
    """Over generated programs, where errors are small: to first order."""
    counted = 0
    for seed in range(100):
        rng = random.Random(seed)
        module = random_module(rng, max_ops=15)
        inputs = dict(zip([p.name for p in dx.compile(module, optimize=False).inputs], random_inputs(rng, module), strict=True))
        try:
            report = explain_rounding(module, inputs)
        except UsageError:
            continue
        errors = [error for _, error in report.outputs]
        if report.why_not or not 0 < max(errors, default=0) < 1e-4 or any(n.decided for n in report.nodes):
            continue
        assert report.explained == pytest.approx(1, abs=0.1), seed
        counted += 1
    assert counted >= 10


def test_what_storing_one_value_does_is_what_was_predicted():
    text = """
func.func public @main(%x: tensor<50xf32>) -> tensor<50xf32> {
  %a = stablehlo.sine %x : tensor<50xf32>
  %b = stablehlo.exponential %a : tensor<50xf32>
  %y = stablehlo.multiply %b, %x : tensor<50xf32>
  return %y : tensor<50xf32>
}
"""
    x = np.linspace(0.5, 2, 50, dtype="f4")
    report = explain_rounding(dx.loads(text), {"x": x}, format=BF16)
    fine = dx.compile(dx.loads(text), engine="numpy", optimize=False)(x)[0].astype("f8")
    scale = np.abs(fine).max()

    def rounded(value):
        return value.astype(BF16.np).astype("f8")

    def root_mean_square(change):
        return np.sqrt((change**2).mean()) / scale

    a = np.sin(x.astype("f8"))
    by_name = {n.node.name: n.stored for n in report.nodes}
    assert by_name["a"] == pytest.approx(root_mean_square(np.exp(a) * x * (rounded(a) - a)), rel=0.4)
    b = np.exp(a)
    assert by_name["b"] == pytest.approx(root_mean_square(x * (rounded(b) - b)), rel=0.4)


def test_storing_a_value_is_told_where_its_errors_are_of_both_signs():
    """Two elements go the same way off, one up and one down, and the outputs' own errors have one sign."""
    text = """
func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %k = stablehlo.constant dense<1.0> : tensor<2xf32>
  %a = stablehlo.multiply %x, %k : tensor<2xf32>
  %b = stablehlo.exponential %a : tensor<2xf32>
  return %b : tensor<2xf32>
}
"""
    x = np.array([1 + 2**-10, 1 - 2**-10], "f4")
    report = explain_rounding(dx.loads(text), {"x": x}, format=BF16)
    (stored,) = [n.stored for n in report.nodes if n.node.name == "a"]
    assert stored == pytest.approx(2**-10, rel=0.4)


def test_comparisons_that_double_precision_decides_otherwise_are_named():
    text = """
func.func public @main(%x: tensor<f32>) -> tensor<i1> {
  %k = stablehlo.constant dense<1.0e-8> : tensor<f32>
  %s = stablehlo.add %x, %k : tensor<f32>
  %p = stablehlo.compare GT, %s, %x : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %p : tensor<i1>
}
"""
    report = explain_rounding(dx.loads(text), {"x": np.float32(1)})
    assert [n.node.name for n in report.nodes if n.decided] == ["p"]


def test_a_program_whose_outputs_are_integers_is_told_so():
    program = """func.func public @main(%x: tensor<4xf32>) -> tensor<4xi32> {
  %e = stablehlo.exponential %x : tensor<4xf32>
  %i = stablehlo.convert %e : (tensor<4xf32>) -> tensor<4xi32>
  return %i : tensor<4xi32>
}"""
    report = explain_rounding(dx.loads(program), {"x": np.zeros(4, "f4")}, format=BF16)
    assert list(report.lines()) == ["no output is of floats: only theirs have a relative error"]


def test_programs_without_narrow_floats_are_refused():
    text = "sea 1\nentry @main\nfunc public @main(%x: f64[2]) -> (%y: f64[2]) {\n  %y = exponential %x : f64[2]\n  return %y\n}\n"
    with pytest.raises(UsageError, match="double precision"):
        explain_rounding(dx.loads(text), {"x": np.ones(2)})
    with pytest.raises(UsageError, match="no format"):
        explain_rounding(dx.loads(VARIANCE), {"x": np.ones(1000, "f4")}, format=I32)


def test_the_command_line_says_both(tmp_path, capsys):
    file = tmp_path / "var.mlir"
    file.write_text(VARIANCE)
    assert main(["run", str(file), "--random-inputs", "--explain-nan", "--explain-error", "--what-if", "bf16"]) == 0
    said = capsys.readouterr().out
    assert "every output is finite" in said and "output 'var': relative error" in said and "stored as bf16" in said
    assert main(["run", str(file), "--random-inputs", "--what-if", "b16"]) == 2
    assert "bf16" in capsys.readouterr().err
