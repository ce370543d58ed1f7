"""Fuzzing: programs are drawn of every operation; what is wrong is found; what hangs or dies is a finding."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.session.fuzzing import campaign, checks
from deepx_graph.session.fuzzing.checks import Case, Finding, examine, run
from deepx_graph.validation.programs import RandomProgram, drawable, random_program
from deepx_graph.verify import verify


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


def test_a_few_programs_pass_every_check() -> None:
    for seed in (1, 2):
        assert not list(examine(seed, random_program(seed, steps=3)))


def test_a_wrong_engine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "X"
    text = "sea 1\nentry @main\nfunc public @main(%x: f32[4]) -> (%y: f32[4]) {\n  %y = negate %x : f32[4]\n  return %y\n}\n"
    module = dx.loads(text)
    program = RandomProgram(module, {"x": np.float32([1, 2, 3, 4])})
    case = Case(program, run(module, program.inputs, "numpy"))
    monkeypatch.setattr(checks, "run", lambda *a: (np.float32([-1, -2, -3, 4]),))
    (message, *_) = checks.engines_agree(case)
    assert "1 of 4 elements; first at [3] 4.0 instead of -4.0" in message


def test_a_crash_is_a_finding_with_its_place() -> None:
    program = RandomProgram(dx.loads("sea 1\nentry @main\nfunc public @main(%x: f32[4]) -> (%y: f32[4]) {\n  return %x\n}\n"), {})
    (found,) = examine(7, program)
    assert found.seed == 7 and found.check == "reference" and " in deepx_graph." in found.signature


def test_a_campaign_counts_kinds_and_keeps_the_first_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Child:
        def __init__(self, first: int, count: int) -> None:
            self.first = first

        def lines(self, until: float) -> list[Finding | int]:
            return [Finding(self.first, "engines", "wrong", "kind"), self.first]

    monkeypatch.setattr(campaign, "_Child", Child)
    found = campaign.fuzz(0.2, 3, tmp_path)
    assert found.counts["kind"] == found.programs > 1 and found.findings["kind"].seed == 3
    assert json.loads((tmp_path / "seed3-engines.json").read_text())["message"] == "wrong"
    again = dx.load(tmp_path / "seed3-engines.sea")
    assert again.entry == random_program(3).module.entry


def test_a_process_that_dies_or_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    child = campaign._Child(0, 1)
    child.process.kill()
    found = list(child.lines(time.monotonic() + 60))
    assert [f.check for f in found if isinstance(f, Finding)] == ["died"]
    monkeypatch.setattr(campaign, "SECONDS_OF_A_SEED", 0.01)
    found = list(campaign._Child(0, 1).lines(time.monotonic() + 60))
    assert [f.check for f in found if isinstance(f, Finding)] == ["took-too-long"]
