"""Fuzzing: programs are drawn of every operation; what is wrong is found; what hangs or dies is a finding."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.session.fuzzing import campaign, checks
from deepx_graph.session.fuzzing.campaign import kept, least
from deepx_graph.session.fuzzing.checks import Case, Finding, Ran, examine
from deepx_graph.session.fuzzing.control_programs import control_program
from deepx_graph.session.fuzzing.index_programs import index_program
from deepx_graph.session.fuzzing.mutation import mutated
from deepx_graph.session.fuzzing.sources import Sources, mutable
from deepx_graph.validation.programs import RandomProgram, drawable, random_program
from deepx_graph.verify import verify
from tests.support.paths import ROOT


def test_programs_are_valid_and_the_same_each_time() -> None:
    for seed in range(20):
        one, again = random_program(seed), random_program(seed)
        verify(one.module)
        assert one.module.entry == again.module.entry
        assert all(np.array_equal(again.inputs[k], a, equal_nan=a.dtype.kind in "fc") for k, a in one.inputs.items())


def test_every_operation_that_computes_arrays_is_drawn() -> None:
    assert len(drawable()) > 100
    drawn = {n.op for seed in range(150) for n in random_program(seed).module.entry.nodes}
    assert len(set(drawable()) - drawn) < len(drawable()) // 4


SOURCES = mutable([ROOT / "examples" / "black_scholes.mlir", ROOT / "examples" / "classifier_loss.mlir"])


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.conformance) for n in range(16, 400, 16))])
def test_programs_of_every_source_pass_every_check(first: int) -> None:
    assert not [f for n in range(first, first + 16) for f in examine(n, SOURCES.program(n))]


def test_sources_are_drawn_in_turn_and_the_same_each_time() -> None:
    assert [SOURCES.kind(n) for n in range(5)] == ["operations", "indices", "control", "mutant", "operations"]
    for n in range(12):
        one, again = SOURCES.program(n), SOURCES.program(n)
        verify(one.module)
        assert one.module.entry == again.module.entry and one.inputs.keys() == again.inputs.keys()
    assert Sources().kind(3) == "operations"


def test_index_programs_use_every_operation_that_moves_elements() -> None:
    drawn = {n.op.name for seed in range(60) for n in index_program(seed).module.entry.nodes}
    assert drawn >= {"gather", "scatter", "pad", "slice", "dynamic_slice", "dynamic_update_slice", "reverse", "reshape",
                     "concatenate", "transpose", "broadcast_in_dim", "select"}  # fmt: skip


def test_control_programs_nest_branches_and_loops_and_have_effects() -> None:
    drawn = [control_program(seed).module for seed in range(30)]
    assert {n.op.name for m in drawn for n in m.entry.nodes} >= {"region", "loop_end", "print", "ref_read", "ref_write"}
    assert sum(any(p.op.name == "param" and str(p.type) == "state" for p in m.entry.params) for m in drawn) > 3


def test_mutants_are_other_programs() -> None:
    module = dx.load(ROOT / "examples" / "black_scholes.mlir")
    assert sum(mutated(module, seed).entry != module.entry for seed in range(20)) > 15


REDUCED = """func.func @main(%x: tensor<{shape}xf32>) -> tensor<{left}xf32> {{
  %init = stablehlo.constant dense<{init}> : tensor<f32>
  %y = stablehlo.reduce(%x init: %init) applies stablehlo.{op} across dimensions = [1] :
    (tensor<{shape}xf32>, tensor<f32>) -> tensor<{left}xf32>
  return %y : tensor<{left}xf32>
}}"""
WINDOW = """HloModule m
most { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
ENTRY main { x = f32[8,9] parameter(0)
  init = f32[] constant(0.25)
  ROOT y = f32[7,8] reduce-window(x, init), window={size=2x2}, to_apply=most }
"""


SEA = "sea 1\nentry @main\nfunc public @main(%x: f32[3]) -> (%y: {kind}[3]) {{\n  {line}\n  return %y\n}}\n"


@pytest.mark.parametrize(("text", "x"), [
    (REDUCED.format(shape="3x4", left="3", init="0x7F800000", op="minimum"), np.array([[-0.0, 0, 0, 0]] * 3, np.float32)),
    (REDUCED.format(shape="3x0", left="3", init="0.0", op="add"), np.zeros((3, 0), np.float32)),
    (WINDOW, np.random.default_rng(0).choice(np.array([0, 0.5, 1, 2], np.float32), (8, 9))),
    (SEA.format(kind="f32", line="%y = stop_gradient %x : f32[3]"), np.ones(3, np.float32)),
    (SEA.format(kind="bool", line="""%i = erf_inv %x : f32[3]
  %y = compare GT, %x, %i {compare_type = "TOTALORDER"} : bool[3]"""), np.array([1.5, -2, 0.25], np.float32)),
    (SEA.format(kind="f32", line="""%c = constant dense<0.5> : f32[]
  %y = power %x, %c : f32[3]"""), np.array([-0.0, -np.inf, 2], np.float32)),
    (SEA.format(kind="string", line="""%e = exponential %x : f32[3]
  %y = number_to_string %e : string[3]"""), np.array([0.1, 0.3, 0.7], np.float32)),
    (SEA.format(kind="f32", line="""%c = constant dense<0> : i32[]
  %one = constant dense<1.0> : f32[3]
  %begin = loop_begin %c, %one {loop = 0} : (i32[], f32[3])
  %i = phi %begin[0] : i32[]
  %never = compare LT, %i, %c : bool[]
  %step = constant dense<1> : i32[]
  %next = add %i, %step : i32[]
  %square = multiply %x, %x : f32[3]
  %end = loop_end %begin, %never, %next, %square : (i32[], f32[3])
  %y = proj %end[1] : f32[3]"""), np.array([-1, 0, 1], np.float32)),
    (SEA.format(kind="f32", line="""%low = constant dense<-1.0> : f32[3]
  %high = constant dense<1.5> : f32[3]
  %kept = clamp %low, %x, %high : f32[3]
  %y = clamp %low, %x, %kept : f32[3]"""), np.array([-0.5, 0.25, 1], np.float32)),
], ids=["zeros of a minimum", "a sum of nothing", "ties in windows", "where gradients stop", "signs of NaN", "powers of a half",
        "texts", "zeros of derivatives", "ties that a program makes"])
def test_what_a_language_leaves_open_is_no_finding(text: str, x: np.ndarray) -> None:
    """ONNX has other operations for most of them."""
    module = dx.loads(text)
    program = RandomProgram(module, {module.entry.params[0].name: x})
    assert not [f for number in (checks.CROSSED.index(("onnx", "numpy")), checks.OTHERS.index("onnx")) for f in
                (*checks.examine_by("languages", Case(program, number)), *checks.examine_by("crossed", Case(program, number)))]
    assert not list(checks.examine_by("engines", Case(program))) and not list(checks.examine_by("passes", Case(program)))


def test_a_wrong_engine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "sea 1\nentry @main\nfunc public @main(%x: f32[4]) -> (%y: f32[4]) {\n  %y = negate %x : f32[4]\n  return %y\n}\n"
    module = dx.loads(text)
    case = Case(RandomProgram(module, {"x": np.array([1, 2, 3, 4], np.float32)}))
    assert not case.reference.printed
    monkeypatch.setattr(checks, "run", lambda *a: Ran((np.array([-1, -2, -3, 4], np.float32),)))
    (message, *_) = checks.engines_agree(case)
    assert "1 of 4 elements; first at [3] 4.0 instead of -4.0" in message


PRINTS = """sea 1
entry @main
func public @main(%x: i32[], %s: state) -> (%t: state) {
  %t = print %s, %x {format = "%g;"} : state
  return %t
}
"""


def test_what_is_printed_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(RandomProgram(dx.loads(PRINTS), {"x": np.asarray(3, np.int32)}))
    assert "3;" in case.reference.printed and case.prints_exactly and not list(checks.engines_agree(case))
    monkeypatch.setattr(checks, "run", lambda *a: Ran(case.reference.outputs, "4;"))
    (message, *_) = checks.engines_agree(case)
    assert "prints something else: '4;'" in message


ENDLESS = """sea 1
entry @main
func public @main(%n: i32[]) -> (%y: i32[]) {
  %0 = constant dense<0> : i32[]
  %1 = loop_begin %0 {loop = 0} : (i32[])
  %2 = phi %1[0] : i32[]
  %3 = compare LT, %2, %n : bool[]
  %4 = loop_end %1, %3, %2 : (i32[])
  %5 = proj %4[0] : i32[]
  return %5
}
"""


def test_a_program_without_end_is_left_out() -> None:
    assert not list(examine(0, RandomProgram(dx.loads(ENDLESS), {"n": np.asarray(3, np.int32)})))


def test_a_crash_is_a_finding_with_its_place() -> None:
    program = RandomProgram(dx.loads("sea 1\nentry @main\nfunc public @main(%x: f32[4]) -> (%y: f32[4]) {\n  return %x\n}\n"), {})
    (found,) = examine(7, program)
    assert found.seed == 7 and found.check == "reference" and " in deepx_graph." in found.signature


def test_a_campaign_counts_kinds_and_keeps_small_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Child:
        def __init__(self, first: int, count: int, sources: Sources) -> None:
            self.first, self.count = first, count

        def lines(self, until: float) -> Iterator[Finding | int]:
            for n in range(self.first, self.first + self.count):
                yield Finding(n, "engines", "wrong", "kind" if n % 2 else "other")
                yield n

    def child(function: str, stem: str, *rest: object) -> subprocess.Popen[str]:
        Path(stem).with_suffix(".sea").write_text("small")
        return subprocess.Popen([sys.executable, "-c", "print('add sine')"], stdout=subprocess.PIPE, text=True)

    monkeypatch.setattr(campaign, "_Child", Child)
    monkeypatch.setattr(campaign, "_child", child)
    found = campaign.fuzz(60, 3, tmp_path, count=6)
    assert found.programs == 6 and found.counts == {"kind": 3, "other": 3} and found.findings["kind"].seed == 3
    assert sum(found.kinds.values()) == 6 and set(found.causes.values()) == {"engines: add sine"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["3-engines.json", "3-engines.sea"], "the second is of the same operations"
    assert "[engines: add sine]" in "\n".join(found.lines())


def test_a_finding_is_made_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong sine of the reference, which the check `engines` finds."""
    real = checks.run

    def run(module: dx.Module, inputs: dict[str, np.ndarray], engine: str, threads: int | None = None) -> Ran:
        ran = real(module, inputs, engine, threads)
        wrong = engine != "numpy" and any(n.op.name == "sine" for n in module.entry.nodes)
        return Ran(tuple(np.asarray(a + 1) if wrong and a.dtype == np.float32 else a for a in ran.outputs), ran.printed)

    monkeypatch.setattr(checks, "run", run)
    number = next(n for n in range(2, 90, 3) if "sine" in {x.op.name for x in Sources().program(n).module.entry.nodes})
    program = Sources().program(number)
    finding = next(f for f in examine(number, program) if f.check == "engines")
    small = least(finding, program, 60)
    assert small is not None and small.after < small.before
    assert any(n.op.name == "sine" for n in small.module.entry.nodes)
    kept(tmp_path / "small", small.module, small.inputs)
    assert dx.load(tmp_path / "small.sea").entry == small.module.entry


def test_a_process_that_dies_or_hangs_or_takes_memory_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    child = campaign._Child(0, 1)
    child.process.kill()
    found = list(child.lines(time.monotonic() + 60))
    assert [f.check for f in found if isinstance(f, Finding)] == ["died"]
    monkeypatch.setattr(campaign, "LOOK", 0.01)
    monkeypatch.setattr(campaign, "SECONDS_OF_A_PROGRAM", 0.001)
    found = list(campaign._Child(0, 1).lines(time.monotonic() + 60))
    assert [f.check for f in found if isinstance(f, Finding)] == ["took-too-long"]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
def test_a_process_that_takes_too_much_memory_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "LOOK", 0.01)
    monkeypatch.setattr(campaign, "RESIDENT_OF_A_CHILD", 1000)
    found = list(campaign._Child(0, 1).lines(time.monotonic() + 60))
    assert [f.check for f in found if isinstance(f, Finding)] == ["took-too-much-memory"]
