"""One program through HLO, StableHLO and sea and back: the same graph; and the places and notes that its text tells, kept."""

from __future__ import annotations

import json

import numpy as np
import pytest

from deepx_graph.errors import ParseError, RunError, Source, VerifyError
from deepx_graph.ir import Module
from deepx_graph.session.report.diff import diff
from deepx_graph.session.report.info import module_info
from deepx_graph.text import read, write
from deepx_graph.verify import verify
from deepx_graph.viz.view.labels import tooltip
from tests.support.jax_corpus import JAX, files, needs_corpus
from tests.support.reference import evaluate


def load(text: str, format: str, name: str = "t") -> Module:
    return read(Source(name, text), format).module


def check_chain(name: str) -> None:
    """HLO -> StableHLO -> HLO -> sea -> HLO. A StableHLO file is brought to HLO first: the two differ in what a broadcast is."""
    path = JAX / name
    module = load(path.read_text(), path.suffix[1:], name)
    if path.suffix == ".stablehlo":
        module = load(write(module, "hlo"), "hlo")
    now = module
    for format in ("stablehlo", "hlo", "sea", "hlo"):
        now = load(write(now, format), format)
        assert list(diff(module, now).lines()) == []
    verify(now)


@needs_corpus
@pytest.mark.parametrize("name", sorted(files("hlo", "stablehlo"))[::5])
def test_the_same_graph_through_all_languages_sampled(name: str) -> None:
    check_chain(name)


@needs_corpus
@pytest.mark.conformance
@pytest.mark.parametrize("name", sorted(files("hlo", "stablehlo")))
def test_the_same_graph_through_all_languages(name: str) -> None:
    check_chain(name)


@needs_corpus
@pytest.mark.parametrize("name", ["call_nested_jit", "model_mlp", "model_attention", "model_mlp_train_sgd"])
def test_both_languages_report_the_same_locations(name: str) -> None:
    """JAX writes the frames of a program into HLO as tables and into StableHLO as `loc` aliases. What is in both agrees."""
    told = []
    for suffix in ("locations.stablehlo", "long.hlo"):
        module = load((JAX / f"{name}.{suffix}").read_text(), suffix.rpartition(".")[2])
        places = [n.span.place for n in module.entry.nodes if n.span and n.span.place and n.span.place.file]
        told.append({(p.label, p.chain(99)) for p in places})
    assert told[1]
    assert len(told[1] & told[0]) >= len(told[1]) * 0.8


@needs_corpus
@pytest.mark.parametrize("format", ["hlo", "stablehlo"])
def test_locations_are_kept_from_language_to_language(format: str) -> None:
    module = load((JAX / "model_mlp.locations.stablehlo").read_text(), "stablehlo")
    again = load(write(module, format), format)
    assert places(again) == places(module)
    assert len(places(module)) > 5


def places(module: Module) -> set[tuple[str, str]]:
    found = {n.span.place for f in module.functions for n in f.nodes if n.span}
    return {(p.label, p.chain(99)) for p in found if p and p.file}


# --- by hand

LOCATED = """\
#loc = loc(unknown)
#loc1 = loc("model.py":42:4 to :9)
#loc2 = loc("train.py":7:1)
#loc3 = loc("loss"(#loc1))
#loc4 = loc("main"(#loc2))
#loc5 = loc(callsite(#loc3 at #loc4))
module @told attributes {mhlo.num_partitions = 2 : i32} {
  func.func public @main(%x: tensor<2xf32> {mhlo.sharding = "{replicated}"} loc("x[0]")) -> tensor<2xf32> {
    %0 = stablehlo.negate %x {mhlo.frontend_attributes = {a = "b"}, mhlo.sharding = "{devices=[2]<=[2]}"} : tensor<2xf32> loc(#loc6)
    %1 = stablehlo.sine %0 : tensor<2xf32> loc(#loc7)
    %2 = stablehlo.cosine %1 : tensor<2xf32> loc(fused<"m">[#loc8, #loc1])
    %3 = "stablehlo.tanh"(%2) : (tensor<2xf32>) -> tensor<2xf32> loc("plain.py":3:2)
    return %3 : tensor<2xf32> loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc6 = loc("jit(f)/neg"(#loc5))
#loc7 = loc("jit(f)/sin"(#loc2))
#loc8 = loc("jit(f)/cos")
"""


def test_locations_named_called_fused_and_aliased() -> None:
    module = load(LOCATED, "stablehlo")
    x, negated, sine, cosine, tanh = module.entry.nodes
    assert x.span.place.label == "x[0]"
    assert negated.span.place.chain() == "model.py:42 in loss, called from train.py:7 in main"
    assert negated.span.place.label == "jit(f)/neg"
    assert (str(sine.span.place), sine.span.place.label) == ("train.py:7", "jit(f)/sin")
    assert cosine.span.place.label == "jit(f)/cos"
    assert str(tanh.span.place) == "plain.py:3"


def test_notes_travel_between_the_languages() -> None:
    module = load(LOCATED, "stablehlo")
    hlo = write(module, "hlo")
    assert hlo.startswith("HloModule told,")
    assert "x = f32[2]{0} parameter(0), sharding={replicated}" in hlo
    assert 'frontend_attributes={a="b"}, sharding={devices=[2]<=[2]}, metadata={op_name="jit(f)/neg" stack_frame_id=2}' in hlo
    text = write(load(hlo, "hlo"), "stablehlo")
    assert '%x: tensor<2xf32> {mhlo.sharding = "{replicated}"} loc("x[0]")' in text
    assert '{mhlo.frontend_attributes = {"a" = "b"}, mhlo.sharding = "{devices=[2]<=[2]}"}' in text
    assert places(load(text, "stablehlo")) == places(module)
    own = write(module, "stablehlo")
    assert "module @told attributes {mhlo.num_partitions = 2 : i32} {" in own
    assert write(load(own, "stablehlo"), "stablehlo") == own


@pytest.mark.parametrize(
    "text", ["loc(", "#loc1", "callsite(#a at", "fused[", '"a"(' * 5000, "callsite(" * 5000, '"f":99999999999:1']
)  # fmt: skip
def test_locations_that_make_no_sense_are_ignored(text: str) -> None:
    from deepx_graph.text.stablehlo.notes import Locations

    place = Locations({"#loc1": "#loc2", "#loc2": "#loc1"}).of(text)
    assert place is None or place.line < 1 << 31


def test_a_program_and_its_locations_from_json() -> None:
    """What `--json` shows of an error in a program with places."""
    with pytest.raises(VerifyError) as failure:
        load(LOCATED.replace("sine %0 : tensor<2xf32>", "sine %0 : (tensor<2xf32>) -> tensor<3xf32>"), "stablehlo")
    assert json.loads(json.dumps(failure.value.diagnostics[0].to_json()))["made_from"] == "train.py:7"

# --- what is not known here


FOREIGN = """\
module @jit_f attributes {foo.bar = #foo<x = 1>} {
  sdy.mesh @mesh = <["x"=2]>
  func.func @main(%arg0: tensor<2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<2xf32>) {
    %0 = "my.frob"(%arg0) <{level = 3 : i32}> {some.thing = "x"} : (tensor<2xf32>) -> tensor<2xf32>
    %1 = my.twist %0, %arg0 level = 4 : tensor<2xf32>
    %2 = sdy.sharding_constraint %1 <@mesh, [{}]> : tensor<2xf32>
    return %2 : tensor<2xf32>
  }
}
"""


def test_other_dialects_survive_and_are_not_run() -> None:
    module = load(FOREIGN, "stablehlo")
    text = write(module, "stablehlo")
    for line in FOREIGN.splitlines():
        if "sharding_constraint" not in line:
            assert line in text
    assert '%2 = "sdy.sharding_constraint"(%1) <{sharding = #sdy.sharding<@mesh, [{}]>}> : (tensor<2xf32>) -> tensor<2xf32>' in text
    assert write(load(text, "stablehlo"), "stablehlo") == text
    with pytest.raises(RunError, match=r"'my\.frob' cannot be run"):
        evaluate(module, [np.zeros(2, "f4")])


def test_a_sharding_constraint_does_not_change_its_operand() -> None:
    text = "\n".join(line for line in FOREIGN.splitlines() if "my." not in line).replace("constraint %1", "constraint %arg0")
    assert evaluate(load(text, "stablehlo"), [np.array([1, 2], "f4")])[0].tolist() == [1, 2]


def test_tuple_constants_bounds_and_tiles() -> None:
    module = load("""HloModule t
ENTRY e { p = f32[<=4,2]{1,0:T(8,128)(2,1)} parameter(0)
 c = (f32[2]{0}, (s32[], pred[2]{0})) constant(({1, 2}, (3, {1, 0})))
 a = f32[2]{0} get-tuple-element(c), index=0
 d = (s32[], pred[2]{0}) get-tuple-element(c), index=1
 q = f32[<=4,2]{1,0:T(8,128)(2,1)} negate(p)
 ROOT t = (f32[2]{0}, (s32[], pred[2]{0}), f32[<=4,2]{1,0:T(8,128)(2,1)}) tuple(a, d, q) }""", "hlo")
    text = write(module, "hlo")
    assert "q = f32[<=4,2]{1,0:T(8,128)(2,1)} negate(p)" in text
    a, three, flags, q = evaluate(load(text, "hlo"), [np.ones((4, 2), "f4")])
    assert (a.tolist(), three.tolist(), flags.tolist(), q.shape) == ([1, 2], 3, [True, False], (4, 2))


@pytest.mark.parametrize(
    ("constant", "message"),
    [("({1, 2})", "1 values for a"), ("{1, 2}, 3", "0 values for a"), ("({1, 2}, {3})", "braces do not have the shape"),
     ("({1, x}, 3)", "is not an f32 value")],
)  # fmt: skip
def test_constants_that_are_no_tuple_of_the_shape(constant: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        load(f"HloModule t\nENTRY e {{ ROOT c = (f32[2], s32[]) constant({constant}) }}", "hlo")


def test_reports_name_the_lines_of_the_users_program() -> None:
    module = load(LOCATED, "stablehlo")
    assert module_info(module).functions[0].places == {"model.py:42": 1, "train.py:7": 1, "plain.py:3": 1}
    assert "made from model.py:42 (1), train.py:7 (1), plain.py:3 (1)" in str(module_info(module))
    shown = tooltip(module.entry.nodes[1], "main.1")
    assert "made from model.py:42 in loss, called from train.py:7 in main" in shown
