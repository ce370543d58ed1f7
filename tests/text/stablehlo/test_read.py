"""StableHLO text: real programs against what XLA computed, the official suite that checks itself, and errors at their places."""

from __future__ import annotations

import numpy as np
import pytest

from deepx_graph import ops
from deepx_graph.errors import CheckFailed, ParseError, Source, VerifyError
from deepx_graph.ops.host.host import Host
from deepx_graph.text import ReadOptions, detect
from deepx_graph.text.stablehlo import read
from deepx_graph.text.stablehlo.literals import parse_dense
from deepx_graph.types import BF16, BOOL, C64, F32, I8, tensor
from deepx_graph.verify import verify
from tests.support import jax_corpus
from tests.support.reference import evaluate
from tests.support.stablehlo_suite import ADD, failing, needs_suite, run_section, sections


@jax_corpus.needs_corpus
@pytest.mark.parametrize("name", jax_corpus.files("stablehlo"))
def test_real_programs_mean_what_xla_computed(name: str) -> None:
    module = jax_corpus.load(name)
    verify(module)
    assert jax_corpus.mismatches(name, evaluate(module, jax_corpus.arguments(name, module))) == []


# --- the official suite


def mark(folder: str, rows: list[tuple[str, int]]) -> list[object]:
    known = failing()
    reason = "the suite disables it: RUN-DISABLED(inaccurate)"
    return [
        pytest.param(folder, n, k, marks=[pytest.mark.xfail(reason=reason, strict=True)] if f"{folder}/{n}#{k}" in known else [])
        for n, k in rows
    ]


@needs_suite
@pytest.mark.parametrize(("folder", "name", "k"), [
    *mark("testdata", sections("testdata", 12)), *mark("interpret", sections("interpret")), *mark("math", sections("math"))])
def test_official_suite_sampled(folder: str, name: str, k: int) -> None:
    run_section(folder, name, k)


@needs_suite
@pytest.mark.conformance
@pytest.mark.parametrize(("folder", "name", "k"), mark("testdata", sections("testdata")))
def test_official_testdata(folder: str, name: str, k: int) -> None:
    run_section(folder, name, k)


# --- by hand


def load(text: str):
    return read(Source("t.mlir", text), ReadOptions()).module


@pytest.mark.parametrize(("said", "most"), [("max_ulp_difference = 0 : i64", 0), ("max_ulp_difference = 7 : i64", 7), ("", 1)])
def test_a_check_has_the_bound_that_its_text_says(said: str, most: int) -> None:
    module = load(f"""func.func @main(%x: tensor<2xf32>) {{
      "check.expect_close"(%x, %x) <{{{said}}}> : (tensor<2xf32>, tensor<2xf32>) -> ()
      return
    }}""")
    (check,) = (n for n in module.entry.nodes if n.op is ops.expect_close)
    assert (check.attr("max_ulp_difference"), check.attr("min_ulp_difference")) == (most, 0)


@pytest.mark.parametrize("text", ["sdy.mesh @mesh = <[\"a\"=2]>", "module { sdy.mesh @mesh = <[\"a\"=2]> }", ""])
def test_a_text_without_functions_is_no_program(text: str) -> None:
    with pytest.raises(ParseError, match="the text holds no function"):
        load(text)


def test_pretty_and_generic_forms_are_one_program() -> None:
    generic = """"builtin.module"() ({ "func.func"() <{function_type = (tensor<2xf32>) -> tensor<2xf32>, sym_name = "main"}> ({
      ^bb0(%x: tensor<2xf32>):
        %c = "stablehlo.constant"() <{value = dense<1.5> : tensor<2xf32>}> : () -> tensor<2xf32>
        %y = "stablehlo.add"(%x, %c) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
        "func.return"(%y) : (tensor<2xf32>) -> ()
    }) : () -> () }) : () -> ()"""
    assert load(ADD).entry == load(generic).entry
    np.testing.assert_array_equal(evaluate(load(ADD), [np.array([1, 2], "f4")])[0], [2.5, 3.5])


def test_a_region_uses_values_from_outside() -> None:
    module = load("""func.func @main(%p: tensor<i1>, %x: tensor<f32>) -> tensor<f32> {
      %0 = "stablehlo.if"(%p) ({
        %1 = stablehlo.negate %x : tensor<f32>
        stablehlo.return %1 : tensor<f32>
      }, {
        stablehlo.return %x : tensor<f32>
      }) : (tensor<i1>) -> tensor<f32>
      return %0 : tensor<f32>
    }""")
    assert evaluate(module, [np.array(True), np.float32(2)]) == [-2]
    assert evaluate(module, [np.array(False), np.float32(2)]) == [2]


def test_checks_are_effects_that_fail() -> None:
    module = load("""func.func @main() {
      %0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
      check.expect_eq_const %0, dense<[1, 3]> : tensor<2xi32>
      func.return
    }""")
    with pytest.raises(CheckFailed, match=r"1 of 2 elements differ; at \[1\] got 2 and expected 3"):
        evaluate(module, [Host()])


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "message", "error"),
    [
        ("%cst : tensor", "%csd : tensor", 3, 29, "no value '%csd'", ParseError),
        ("tensor<2xf32>\n  return", "tensor<3xf32>\n  return", 3, 3, "text says f32[3]", VerifyError),
        ("dense<1.5>", "dense<[1.5]>", 2, 3, "brackets do not have the shape", ParseError),
        ("(%arg0: tensor<2xf32>)", "(%arg0: tensor<2xf31>)", 1, 49, "unknown element type 'f31'", ParseError),
        ("  return %0 : tensor<2xf32>\n", "", 1, 10, "does not return", ParseError),
    ],
)
def test_errors_have_their_location(old: str, new: str, line: int, column: int, message: str, error) -> None:
    with pytest.raises(error) as failure:
        load(ADD.replace(old, new))
    (diagnostic,) = failure.value.diagnostics
    assert message in diagnostic.message
    assert (diagnostic.span.line, diagnostic.span.column) == (line, column)


def test_recognised_by_content() -> None:
    assert detect(ADD) == "stablehlo"


def test_constants() -> None:
    def value(text, dtype, dims):
        return parse_dense(text, tensor(dtype, dims)).array

    np.testing.assert_array_equal(value('"0x0000803F00000040"', F32, (2,)), [1, 2])
    np.testing.assert_array_equal(value('"0x010001"', BOOL, (3,)), [True, False, True])
    np.testing.assert_array_equal(value("0x7F800000", F32, (2,)), [np.inf, np.inf])
    np.testing.assert_array_equal(value("[[1, -2]]", I8, (1, 2)), [[1, -2]])
    assert value("0xFF80", BF16, ()) == -np.inf
    assert value("(1.0, -2.0)", C64, ()) == 1 - 2j
