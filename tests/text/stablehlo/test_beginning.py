"""The beginning of a large text, which is seen while all of it is read."""

from __future__ import annotations

import zipfile
from collections import Counter
from pathlib import Path

import pytest

import deepx_graph as dx
from deepx_graph.ir import Module
from deepx_graph.text.stablehlo import beginning

MODELS = zipfile.ZipFile(Path(__file__).parents[2] / "viz" / "models.zip")
TEXTS = {name: MODELS.read(f"jax/{name}.mlir").decode() for name in ("resnet18", "lstm", "gpt12_scan")}


def operations(module: Module) -> Counter[tuple[str, str]]:
    return Counter((n.op.name, str(n.type)) for n in module.entry.nodes)


@pytest.mark.parametrize("name", TEXTS)
def test_the_beginning_of_a_model_is_a_part_of_it(name: str) -> None:
    whole = dx.loads(TEXTS[name])
    found = {count: beginning(TEXTS[name], count) for count in (8, 25)}
    parts = {count: dx.loads(text) for count, text in found.items() if text is not None}
    assert parts
    for part in parts.values():
        assert not operations(part) - operations(whole)
        assert [p.type for p in part.entry.params] == [p.type for p in whole.entry.params]


def test_loops_and_called_functions_are_whole_and_locations_left_out() -> None:
    text = beginning("""#loc1 = loc("x")
module @m {
  func.func public @main(%x: tensor<4xf32> loc("x")) -> (tensor<4xf32> {jax.result_info = "(result"}) {
    %0 = call @inner(%x) : (tensor<4xf32>) -> tensor<4xf32> loc(#loc3)
    %1 = "stablehlo.reduce"(%0, %c) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32> loc(#loc4)
        stablehlo.return %s : tensor<f32>
    }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %2 = stablehlo.tanh %0 : tensor<4xf32> loc("tanh"("f.py":1:1))
""" + "    %2 = stablehlo.tanh %2 : tensor<4xf32>\n    return %2 : tensor<4xf32>\n  }\n" + """
  func.func private @inner(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = call @last(%x) : (tensor<4xf32>) -> tensor<4xf32> loc(#loc5)
    return %0 : tensor<4xf32>
  } loc(#loc6)
  func.func private @last(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
  func.func private @unused(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}
""", 5)
    assert text is not None
    assert {f.name for f in dx.loads(text).functions} == {"main", "inner", "last"}


def test_a_small_program_and_one_of_another_form_have_no_beginning() -> None:
    assert beginning(next(iter(TEXTS.values())), 100_000) is None
    assert beginning("module {}", 10) is None
