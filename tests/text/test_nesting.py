"""What nests in a text is read or refused with a diagnostic, however deep it is."""

from __future__ import annotations

import contextlib

import pytest

import deepx_graph as dx

OF_TYPE, OF_ATTRIBUTE = "func.func @main(%a: ", "func.func @main(%a: tensor<f32>) attributes {x = "
HLO, SEA = "HloModule m\n\nENTRY e {\n  ROOT x = ", "sea 1\nentry @f\nfunc public @f(%x: "
RELAY, ONNX = '#[version = "0.0.5"]\ndef @main(%x: ', '<ir_version: 8, opset_import: ["" : 18]>\ng ('
TENSOR = "Tensor[(2), float32]"

TEXTS = {
    "tuple type": ("stablehlo", OF_TYPE, "tuple<", "tensor<f32>", ">", ") { return }"),
    "function type": ("stablehlo", OF_TYPE, "(", "tensor<f32>", ") -> tensor<f32>", ") { return }"),
    "future type": ("stablehlo", OF_TYPE, "!stablehlo.future<", "tensor<f32>", ">", ") { return }"),
    "list": ("stablehlo", OF_ATTRIBUTE, "[", "1", "]", "} { return }"),
    "dictionary": ("stablehlo", OF_ATTRIBUTE, "{a = ", "1", "}", "} { return }"),
    "attribute": ("stablehlo", OF_ATTRIBUTE, "#stablehlo.a<a = ", "1", ">", "} { return }"),
    "region": ("stablehlo", "func.func @main(%p: tensor<i1>) {\n", '"stablehlo.if"(%p) ({\n', "stablehlo.return\n",
               "}, {stablehlo.return}) : (tensor<i1>) -> ()\nstablehlo.return\n", "}"),
    "module": ("stablehlo", "", "module {", "", "}", ""),
    "hlo tuple": ("hlo", HLO, "(", "f32[]", ")", " parameter(0)\n}\n"),
    "hlo constant": ("hlo", HLO + "f32[2] constant(", "{", "1", "}", ")\n}\n"),
    "hlo messages": ("hlo-proto", "hlo_module { ", "computations { ", "", "} ", "}"),
    "sea type": ("sea", SEA, "(", "f32[]", ")", ") -> () {\n  return\n}\n"),
    "sea list": ("sea", SEA + "f32[2]) -> () {\n  %y = transpose %x {permutation = ", "[", "", "]", "} : f32[2]\n}\n"),
    "relay type": ("relay", RELAY, "(", TENSOR, ",)", ") { %x }\n"),
    "relay call": ("relay", f"{RELAY}{TENSOR}) {{ ", "add(", "%x", ", %x)", " }\n"),
    "relay function": ("relay", f"{RELAY}{TENSOR}) {{ ", "fn () { ", "%x", " }", " }\n"),
    "onnx type": ("onnxtxt", ONNX, "seq(", "float[2]", ")", " x) => (float[2] y) { y = Identity(x) }"),
    "anf": ("anf", "", "(", "", ")", ""),
}  # fmt: skip
"""By what nests: the language, what stands before, what opens and closes a level, what stands within, and what behind."""


@pytest.mark.parametrize("depth", [30, 63, 99, 101, 100_000])
@pytest.mark.parametrize("name", TEXTS)
def test_nesting_is_read_or_refused(name: str, depth: int) -> None:
    """Nothing else is raised, a RecursionError least of all; what is read can be written."""
    language, before, opening, within, closing, behind = TEXTS[name]
    with contextlib.suppress(dx.DeepxGraphError):
        module = dx.loads(before + opening * depth + within + closing * depth + behind, language)
        assert dx.loads(dx.dumps(module, "sea")).entry.type == module.entry.type
