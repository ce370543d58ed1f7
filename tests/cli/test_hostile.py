"""The command line in hands that try everything: odd numbers, closed streams, suffixes, data and prints on one stream."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.cli.main import make_parser
from deepx_graph.cli.options import reading_options

PROGRAM = """\
newtensor (vector<int32>:[2]) -> (tensor<float32>:y)
print (tensor<float32>:x) -> ()
divscalar (tensor<float32>:x, var<float32>:0) -> (tensor<float32>:y)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "p.dx"
    path.write_text(PROGRAM)
    np.save(tmp_path / "x.npy", np.array([0, 1], np.float32))
    return str(path)


def cli(*arguments: str, shell: str = "") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "deepx_graph", *arguments]
    if shell:
        return subprocess.run(["bash", "-c", f'"$@" {shell}', "-", *command], capture_output=True, check=False)
    return subprocess.run(command, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("run", "--seed", "-1"), ("run", "--repeat", "0"), ("run", "--repeat", "x"), ("run", "--max-bytes", "²"),
        ("check-grad", "--seed", "-1"), ("check-grad", "--samples", "0"), ("opt", "--max-nodes", "0"),
        ("opt", "--rewrite-limit", "-1"), ("opt", "--rewrite-limit", "9" * 5000), ("draw", "--timeout", "nan"),
        ("draw", "--timeout", "-1"), ("draw", "--max-visible", "0"), ("draw", "--depth", "-1"),
    ],
)  # fmt: skip
def test_numbers_that_make_no_sense_are_usage_errors(program: str, capsys: pytest.CaptureFixture[str], command: str, option: str,
                                                     value: str) -> None:
    from deepx_graph.cli.main import main

    assert main([command, program, option, value, *(["-o", "x.svg"] if command == "draw" else [])]) == 2
    assert f"argument {option}" in capsys.readouterr().err


def test_an_unknown_option_is_compared_with_those_of_its_command(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    from deepx_graph.cli.main import main

    assert main(["grad", program, "--infeed"]) == 2  # an option of others
    assert "did you mean" not in capsys.readouterr().err
    assert main(["run", program, "--profil"]) == 2
    assert "deepx-graph run: unrecognized arguments: --profil\n  hint: did you mean '--profile'?" in capsys.readouterr().err


def test_what_a_program_prints_does_not_get_into_the_data(program: str, tmp_path: Path) -> None:
    given = ("--input", f"x={tmp_path / 'x.npy'}")
    done = cli("run", program, *given, "--json")
    values = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["outputs"][0]["values"]
    assert values == ["NaN", "Infinity"]
    assert b"shape:[2]" in done.stderr
    done = cli("run", program, *given, "--output", "-")
    assert list(np.load(io.BytesIO(done.stdout))) == ["y"]
    done = cli("run", program, *given)
    assert done.stdout.startswith(b"shape:[2]\n")  # and in the order in which it happened


def test_streams_that_are_closed_or_full(program: str) -> None:
    assert cli("opt", shell="<&-").returncode == 2
    for shell, message in ((">&-", b"standard output"), (">/dev/full", b"cannot write standard output: No space left on device")):
        done = cli("opt", program, shell=shell)
        assert done.returncode == 5
        assert message in done.stderr
    assert cli("opt", "missing.dx", shell="2>&-").returncode == 2


def test_the_suffix_of_the_output_chooses_the_form(program: str, tmp_path: Path) -> None:
    from deepx_graph.cli.main import main

    for suffix, start in ((".svg", "<?xml"), (".sea", "sea 1"), (".json", "{"), (".txt", "newtensor"), (".dx", "newtensor")):
        out = tmp_path / f"out{suffix}"
        assert main(["opt", program, "-o", str(out)]) == 0
        assert out.read_text().startswith(start)
    assert main(["opt", program, "-o", str(out), "--emit", "sea"]) == 0
    assert out.read_text().startswith("sea 1")


def test_passes_that_make_another_program_are_not_run_on_the_inputs_of_this_one(capsys: pytest.CaptureFixture[str],
                                                                                tmp_path: Path) -> None:
    from deepx_graph.cli.main import main

    path = tmp_path / "p.sea"
    path.write_text("sea 1\nentry @f\nfunc public @f(%x: f32[2]) -> (%y: f32[2]) {\n  %y = exponential %x : f32[2]\n"
                    "  return %y\n}\n")
    assert main(["run", str(path), "--random-inputs", "-p", "grad"]) == 2
    assert "change what 'f' takes or gives" in capsys.readouterr().err


def test_bounds_and_weights_of_reading_are_options_of_the_library(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    from deepx_graph.cli.main import main

    with pytest.raises(dx.LimitError, match="3 instructions"):
        dx.load(program, max_nodes=2)
    with pytest.raises(dx.LimitError, match="more than 10 bytes"):
        dx.loads(PROGRAM.encode(), max_file_bytes=10)
    with pytest.raises(dx.UsageError, match="weights cannot become"):
        dx.load(program, weights="nothing")
    assert main(["opt", program, "--max-file-bytes", "10"]) == 5
    assert "--max-file-bytes" in capsys.readouterr().err


def test_numbers_of_thousands_of_digits_are_a_bound_and_no_crash() -> None:
    text = f"HloModule m\n\nENTRY main {{\n  ROOT x = f32[{'9' * 5000}] parameter(0)\n}}\n"
    with pytest.raises(dx.ParseError, match=r"9{40}' is not a dimension"):
        dx.loads(text)


@pytest.mark.parametrize("root", [f"f64[] constant({'1' * 10**6})", f"f64[] constant(1e{'9' * 10**4})", f"f32[] {'b' * 10**6}()",
                                  f"f32[] parameter({'9' * 10**5})", f"f32[{'2,' * 5000}2] parameter(0)"])  # fmt: skip
def test_messages_about_long_words_can_be_read(root: str) -> None:
    with pytest.raises(dx.DeepxGraphError) as caught:
        dx.loads(f"HloModule m\n\nENTRY main {{\n  ROOT x = {root}\n}}\n")
    assert len(str(caught.value)) < 3000


def test_what_python_hands_over(program: str) -> None:
    for text in (PROGRAM.encode(), bytearray(PROGRAM.encode()), memoryview(PROGRAM.encode())):
        assert dx.loads(text).entry.params[0].name == "x"
    with pytest.raises(dx.UsageError, match="'patience' cannot be of type str"):
        dx.distribute(dx.trace(lambda x: x, "f32[2]"), {"a": 2}, patience="long")  # type: ignore[arg-type]
    assert dx.distribute(dx.trace(lambda x: x + x, "f32[2]"), {"a": 2}, patience=3).mesh.count == 2
    for mesh in ({"a": "two"}, {"a": 1.5}, {3: 2}):
        with pytest.raises(dx.UsageError, match=r"'mesh' cannot be \{.*\}"):
            dx.distribute(dx.trace(lambda x: x + x, "f32[2]"), mesh)
    square = np.ones((4, 4), np.float32)
    piped = dx.pipeline(dx.trace(lambda x, w: dx.xp.sum(x @ w), square, square), 1, ["x"], microbatches=2, threads=0)
    with pytest.raises(dx.UsageError, match="0 threads"):
        piped(square, square)
    with pytest.raises(dx.UsageError, match="'text' cannot be of type NoneType"):
        dx.loads(None)  # type: ignore[arg-type]
    with pytest.raises(dx.UsageError, match="cannot read"):
        dx.load("a\0b")
    module = dx.loads("sea 1\nentry @f\nfunc public @f(%xy: f32[2]) -> (%z: f32[2]) {\n  %z = exponential %xy : f32[2]\n"
                      "  return %z\n}\n")
    for wrt in ("xy", ["xy"], None):
        assert [dx.grad(module, wrt).entry.result_name(0), len(dx.jvp(module, wrt).entry.params)] == ["grad_xy", 2]
    assert repr(dx.compile(module, engine="numpy", optimize=False)) == "<compiled <function f: (f32[2]) -> (f32[2])> on numpy>"
    assert len(dir(dx)) == len(set(dir(dx)))


def test_reports_of_opt_as_json_stand_beside_the_program(program: str) -> None:
    done = cli("opt", program, "--json", "--timing", "--pass-statistics", "--dump-rewrites")
    report = json.loads(done.stderr)
    assert {"name", "seconds", "nodes_before", "nodes_after"} <= set(report["passes"][0])
    assert set(report) == {"schema", "pipeline", "read", "passes", "applied", "declined", "rewrites"}
    assert done.stdout.startswith(b"newtensor")


def test_the_report_of_opt_is_on_standard_output_where_the_program_is_not(program: str, tmp_path: Path,
                                                                          capfd: pytest.CaptureFixture[str]) -> None:
    from deepx_graph.cli.main import main

    assert main(["opt", program, "-p", "cse", "--json", "-o", str(tmp_path / "o.dx")]) == 0
    out, err = capfd.readouterr()
    report = json.loads(out)
    assert (report["pipeline"], [row["name"] for row in report["passes"]], err) == ("cse", ["cse"], "")
    assert set(report) == {"schema", "pipeline", "read", "passes", "applied", "declined"}


def test_a_program_with_nothing_to_differentiate_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from deepx_graph.cli.main import main

    path = tmp_path / "p.dx"
    path.write_text("newtensor@float32 2 -> t\nconstant@float32 1 -> t\n")
    assert main(["check-grad", str(path)]) == 0
    assert capsys.readouterr().out == "nothing to compare: the program has no input with a gradient\n"


def test_a_timeout_that_is_none(program: str) -> None:
    with pytest.raises(dx.UsageError, match="timeout of nan"):
        dx.draw(dx.load(program), format="svg", timeout=float("nan"))


def test_the_browser_reads_within_the_bounds_of_the_command_line() -> None:
    args = make_parser().parse_args(["tui", "p.sea", "--max-file-bytes", "1K", "--max-nodes", "7", "--data-root", "d"])
    found = reading_options(args)
    assert (found.max_file_bytes, found.max_nodes, str(found.data_root)) == (1024, 7, "d")


BAD_NAMES = ("a\0b", "folder", "empty", "binary", "text", "text/below", "missing/below")
BESIDE = {"reduce": ("--while", "crash"), "run": ("--random-inputs",), "plan": ("--auto", "--mesh", "a=2"),
          "simulate": ("--cluster", "h100", "--mesh", "a=2"), "draw": ("--fusion", "-o", "x.html"), "bisect": ("-p", "clean"),
          "build": ("-o", "x.o"), "check": ("--budget", "ops<=9"), "diff": ("-p", "clean")}  # fmt: skip
"""What makes the commands that need more than a program do something."""


def names_of_files() -> list[tuple[str, str]]:
    """The options, and places in the line, of all commands that take the name of a file or folder; what several share once. Not
    of measuring, trying programs for a minute, and the browser."""
    (commands,) = (a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction))
    found = {(action.option_strings[-1] if action.option_strings else action.dest, action.help): name
             for name, parser in commands.choices.items() if name not in ("calibrate", "fuzz", "tui")
             for action in parser._actions if str(action.metavar).startswith(("FILE", "DIR"))}
    return [(name, option) for (option, _), name in found.items()]


@pytest.mark.parametrize(("command", "option"), names_of_files())
def test_no_name_of_a_file_is_an_internal_error(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                capsys: pytest.CaptureFixture[str], command: str, option: str) -> None:
    from deepx_graph.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    (tmp_path / "folder").mkdir()
    for name, content in (("empty", b""), ("binary", bytes(range(256))), ("text", b"{}\n")):
        (tmp_path / name).write_bytes(content)
    files = {"certify": [program] * 3, "diff": [program] * 2, "ops": [], "schema": []}.get(command, [program])
    for name in BAD_NAMES:
        for beside in (BESIDE.get(command, ()), ()):
            line = [f"{option}={name}", *files] if option.startswith("--") else [name, *files[1:]]
            assert main([command, *line, *beside]) in range(6), (name, capsys.readouterr().err)
