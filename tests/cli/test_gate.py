"""A program held to an earlier version of itself, and findings as SARIF."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.support.cli_runner import SEA, Run, checked_report
from tests.support.sarif_schema import LOG

MORE = SEA.replace("%m = add %n, %n", "%more = add %n, %n : i32[]\n  %m = multiply %more, %n")
BASELINE = '{"schema": "deepx-graph/baseline/1", "figures": FIGURES}'


@pytest.fixture
def baseline(run: Run, sea: str, tmp_path: Path) -> str:
    path = tmp_path / "baseline.json"
    assert run("check", sea, "-p", "none", "--save-baseline", str(path)).code == 0
    found = checked_report(path.read_text())
    assert found["schema"] == "deepx-graph/baseline/1" and found["figures"]["depth"] == 2
    return str(path)


def test_what_grows_beyond_the_baseline_fails(run: Run, sea: str, baseline: str) -> None:
    assert run("check", sea, "-p", "none", "--baseline", baseline).code == 0
    done = run("check", "-p", "none", "--baseline", baseline, stdin=MORE)
    assert done.code == 1
    assert "EXCEEDED  ops<=" in done.out and "ok        constant_bytes<=0 (baseline 0)" in done.out
    assert run("check", "-p", "none", "--baseline", baseline, "--slack", "100%", stdin=MORE).code == 0


@pytest.mark.parametrize("text", [
    "", "[]", '{"schema": "x", "figures": {}}', BASELINE.replace("FIGURES", '{"ops": -1}'),
    BASELINE.replace("FIGURES", '{"opps": 1}'),
    "[" * 100_000,
])  # fmt: skip
def test_a_file_that_is_no_baseline_is_refused(run: Run, sea: str, tmp_path: Path, text: str) -> None:
    (tmp_path / "b.json").write_text(text)
    done = run("check", sea, "--baseline", str(tmp_path / "b.json"))
    assert (done.code, done.out) == (2, "") and "baseline" in done.err


def test_findings_are_sarif(run: Run, sea: str, tmp_path: Path) -> None:
    log = tmp_path / "out.sarif"
    assert run("check", sea, "--budget", "ops<=1", "--budget", "ops<=900", "--sarif", str(log)).code == 1
    (found,) = json.loads(log.read_text())["runs"]
    (result,) = found["results"]
    assert (result["ruleId"], result["level"]) == ("budget/ops", "error") and "ops<=1 does not hold" in result["message"]["text"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("program.sea")
    assert [rule["id"] for rule in found["tool"]["driver"]["rules"]] == ["budget/ops"]


def test_an_error_of_the_program_is_a_finding_with_its_place(run: Run, tmp_path: Path) -> None:
    path, log = tmp_path / "a b.sea", tmp_path / "out.sarif"
    path.write_text(SEA.replace("exponential", "exponentiall"))
    assert run("check", str(path), "--budget", "ops<=9", "--sarif", str(log)).code == 3
    place = json.loads(log.read_text())["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    line = next(k for k, text in enumerate(path.read_text().splitlines(), 1) if "exponentiall" in text)
    assert place["region"]["startLine"] == line and place["artifactLocation"]["uri"].endswith("a%20b.sea")


@pytest.mark.parametrize(("text", "code"), [
    (SEA, 1), ("not a program", 3), (SEA.replace("multiply %x", "multiply %é"), 4),
    (SEA.replace("%y: f32[2,3],", "%y: f32[2,4],"), 4),
])  # fmt: skip
def test_every_log_is_what_the_standard_says(run: Run, tmp_path: Path, text: str, code: int) -> None:
    path, log = tmp_path / "a b é.sea", tmp_path / "out.sarif"
    path.write_text(text, encoding="utf-8")
    assert run("check", str(path), "--format", "sea", "--budget", "ops<=1", "--sarif", str(log)).code == code
    written = json.loads(log.read_text())
    assert written["runs"][0]["results"]
    jsonschema.validate(written, LOG, jsonschema.Draft202012Validator)
    ids = {rule["id"] for rule in written["runs"][0]["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in written["runs"][0]["results"]} <= ids
