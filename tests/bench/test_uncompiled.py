"""The measurement of the engine without a compiler: both sides compute the same, and ratios are told."""

from __future__ import annotations

import pytest

from bench.engines import uncompiled


def test_a_program_is_measured_beside_its_operations(capsys: pytest.CaptureFixture[str]) -> None:
    assert uncompiled.main(["--only", "^batched_matvec.small$", "--rounds", "1"]) == 0
    out = capsys.readouterr().out
    assert "batched_matvec.small" in out and "of 1, " in out and "wrong 0" in out


def test_a_workload_is_measured_beside_what_is_written_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    assert uncompiled.main(["--workloads", "--only", "^axpy.small$", "--rounds", "1"]) == 0
    assert "numpy" in (out := capsys.readouterr().out) and "numexpr" in out


def test_what_is_slower_than_allowed_is_told_by_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uncompiled, "measured", lambda contest, rounds: {"ours": 2.0, "operations": 1.0})
    assert uncompiled.main(["--only", "^batched_matvec.small$", "--above", "1.5"]) == 1
    assert uncompiled.main(["--only", "^batched_matvec.small$", "--above", "2.5"]) == 0
