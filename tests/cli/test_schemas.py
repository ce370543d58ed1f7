"""Reports as JSON: every command that has `--json` writes what its schema says, in every form that it has."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.cli import main as cli
from deepx_graph.cli.report_fields import REPORTS
from deepx_graph.cli.report_records import RECORDS
from deepx_graph.cli.schemas import markdown, schema
from deepx_graph.errors import UsageError
from deepx_graph.session.diagnose.reproducer import recorded
from deepx_graph.session.programs import Watch, optimise
from deepx_graph.session.report.certificates import WriteCertificate
from tests.support.cli_runner import SEA, Run, checked_report

MLIR = """\
module @m {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%a: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>},
                         %b: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<4x4xf32> {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
    %1 = stablehlo.log %0 : tensor<4x4xf32>
    %2 = stablehlo.add %1, %0 : tensor<4x4xf32>
    return %2 : tensor<4x4xf32>
  }
}
"""

HLO = """\
HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  ROOT y = f32[4] {op}(x, x)
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sea").write_text(SEA)
    (tmp_path / "m.mlir").write_text(MLIR)
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    for stage, op in (("before_optimizations", "add"), ("0001.simplify.after_fold.before_end", "multiply")):
        (dumps / f"module_0000.m.{stage}.txt").write_text(HLO.replace("{op}", op))
    certificate = WriteCertificate(dx.load("a.sea"))
    Path("b.sea").write_text(dx.dumps(optimise(certificate.input, "clean", Watch(observers=(certificate,))).module, "sea"))
    Path("c.jsonl").write_text(certificate.text)
    recorded(["info", "a.sea"], "KeyError").write("crash.json")
    np.savez(tmp_path / "nan.npz", a=-np.ones((4, 8), np.float32), b=np.ones((8, 4), np.float32))
    return tmp_path


COMMANDS = {
    name: p for a in cli.make_parser()._actions if isinstance(a, argparse._SubParsersAction) for name, p in a.choices.items()
    if any("--json" in action.option_strings for action in p._actions)
}  # fmt: skip
"""The parsers of the commands that report."""

CALLS: dict[str, tuple[str, ...]] = {
    "opt": ("opt", "a.sea", "-o", "b.sea", "--dump-rewrites"),
    "passes": ("opt", "--list-passes"),
    "grad": ("grad", "a.sea", "-o", "g.sea"),
    "run": ("run", "a.sea", "--random-inputs", "--profile", "--digest"),
    "explain": ("run", "m.mlir", "--inputs", "nan.npz", "--explain-nan", "--explain-error"),
    "check-grad": ("check-grad", "a.sea"),
    "info": ("info", "a.sea"),
    "scopes": ("info", "m.mlir", "--by", "scope"),
    "check": ("check", "a.sea", "--budget", "ops<=1"),
    "loops": ("loops", "a.sea", "--engine", "native"),
    "why": ("why", "a.sea", "#1", "#2", "-p", ""),
    "made": ("why", "m.mlir", "--made", "#0"),
    "fusion": ("why", "m.mlir"),
    "plan": ("plan", "m.mlir"),
    "collectives": ("why", "m.mlir", "--collective", "all_reduce.0"),
    "mesh": ("info", "m.mlir", "--mesh"),
    "simulate": ("simulate", "m.mlir", "--cluster", "h100"),
    "network": ("calibrate", "--network", "--show"),
    "stages": ("stages", "dumps"),
    "bisect": ("bisect", "dumps", "--samples", "2"),
    "replay": ("replay", "crash.json"),
    "certify": ("certify", "a.sea", "b.sea", "c.jsonl"),
    "reduce": ("reduce", "m.mlir", "--while", "slow", "--slower-than", "0", "--seconds", "1"),
    "diff": ("diff", "a.sea", "m.mlir"),
    "ops": ("ops", "dot_general"),
    "calibrate": ("calibrate", "--show"),
    "cache": ("cache",),
    "fuzz": ("fuzz", "--seconds", "0"),
    "build": ("build", "a.sea", "-o", "a.o"),
    "draw": ("draw", "a.sea", "-o", "a.svg"),
}  # fmt: skip
ELSEWHERE = {"baseline": "tests/cli/test_gate.py",
             "error": "below", "shrink": "tests/text/onnx",
             "check-vjp": "tests/interop", "foreign-profile": "tests/session/test_profile_files.py"}


def test_every_report_is_here() -> None:
    assert set(CALLS) | set(ELSEWHERE) == set(REPORTS)
    assert set(COMMANDS) == {call[0] for call in CALLS.values()}
    assert set(cli.COMMANDS) - set(COMMANDS) == {"tui", "schema", "completion"}, "which say nothing that is data"


@pytest.mark.parametrize("name", CALLS)
def test_a_report_is_what_its_schema_says(run: Run, folder: Path, name: str) -> None:
    done = run(*CALLS[name], "--json")
    assert done.code in (0, 1), done.err
    assert done.json["schema"] == f"deepx-graph/{name}/1"


@pytest.mark.parametrize("name", CALLS)
def test_an_error_is_a_report_too(run: Run, folder: Path, name: str) -> None:
    """Beside the text; where the program would have been on standard output, it is the last line of standard error."""
    done = run(*CALLS[name], "--json", "--no-such-option")
    assert done.code == done.json["exit_code"] == 2 and done.json["schema"] == "deepx-graph/error/1"
    assert "--no-such-option" in done.json["errors"][0]["message"] and "error: " in done.err


READ_PROGRAMS = [name for name, p in COMMANDS.items() if "file" in {a.dest for a in p._actions} and name != "replay"]
"""The commands of which FILE is a program; that of `replay` is the record of a crash."""


@pytest.mark.parametrize("command", READ_PROGRAMS)
def test_the_report_of_an_error_has_the_place(run: Run, folder: Path, command: str) -> None:
    (folder / "wrong.sea").write_text(SEA.replace("exponential", "exponentiall"))
    more = {"check": ("--budget", "ops<=1"), "reduce": ("--while", "crash")}.get(command, ())
    done = run(command, "wrong.sea", *more, "--json")
    found = checked_report(done.err.splitlines()[-1]) if command in ("opt", "grad") else done.json
    (fault,) = found["errors"]
    assert (found["exit_code"], done.code, fault["file"], fault["line"], fault["column"]) == (3, 3, "wrong.sea", 6, 8)
    assert fault["end_column"] - fault["column"] == len("exponentiall") and "exponential" in fault["hint"]


def test_values_of_both_are_in_the_report_of_diff(run: Run, folder: Path) -> None:
    assert run("diff", "m.mlir", "m.mlir", "--values", "--json").json["values"]["same"] is True


@pytest.mark.parametrize("name", ["opt", "grad"])
def test_beside_a_program_the_report_goes_to_standard_error(run: Run, folder: Path, name: str) -> None:
    done = run(name, "a.sea", "--json")
    assert checked_report(done.err)["schema"] == f"deepx-graph/{name}/1"


def _paths(found: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all fields of a report."""
    items = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    return [p for key, value in items for p in [(*at, key), *_paths(value, (*at, key))]]


@pytest.mark.parametrize("name", ["info", "check", "run"])
def test_a_schema_refuses_what_a_report_is_not(run: Run, folder: Path, name: str) -> None:
    """A field more at any place, and a value of another kind in any field, are refused."""
    text, validator = run(*CALLS[name], "--json").bytes, jsonschema.Draft202012Validator(schema(name))
    for path in _paths(json.loads(text)):
        wrong = json.loads(text)
        parent = wrong
        for key in path[:-1]:
            parent = parent[key]
        if "values" in path:  # numbers in lists, as deep as the array
            continue
        parent[path[-1]] = object
        assert not validator.is_valid(wrong), path
    assert not validator.is_valid({**json.loads(text), "more": 1})


@pytest.mark.parametrize("name", REPORTS)
def test_a_schema_is_one(run: Run, name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(run("schema", name).json)


def test_schemas_are_listed_and_the_nearest_is_named(run: Run) -> None:
    assert [line.split()[0] for line in run("schema").out.splitlines()] == list(REPORTS)
    assert all(f"## {name}\n" in markdown() for name in (*REPORTS, *RECORDS))
    with pytest.raises(UsageError, match="info"):
        schema("inof")
