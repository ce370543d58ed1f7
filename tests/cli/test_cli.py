"""The command line as a user meets it: results, diagnostics, exit codes, files, and what a terminal is sent."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deepx_graph import __version__
from deepx_graph.cli import main as cli
from deepx_graph.cli.programs import PICTURES
from deepx_graph.rewrite.base import PassError
from deepx_graph.text import FORMATS
from tests.support.cli_runner import BLOCK, PLAIN, ROOT, SEA, Run
from tests.support.pages import data_of, nodes_of

# --- the frame


def test_version_and_help(run: Run) -> None:
    assert run("--version").out == f"deepx-graph {__version__}\n"
    shown = run("--help")
    assert shown.code == 0
    listed = [line.split()[0] for line in shown.out.splitlines() if line.startswith("  ") and "-" not in line.split()[0][:1]]
    assert listed == list(cli.COMMANDS)
    assert run().out == shown.out


def test_a_file_alone_is_told_of(run: Run, sea: str) -> None:
    assert run(sea).out == run("info", sea).out


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_every_command_explains_itself(run: Run, command: str) -> None:
    shown = run(command, "--help")
    assert shown.code == 0
    assert shown.out.startswith("usage: deepx-graph " + command)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("optt", "x"), "did you mean 'opt'?"),
        (("opt", "--timming", BLOCK), "did you mean '--timing'?"),
        (("opt", BLOCK, "-p", "cse,fuze"), "did you mean 'fuse'?"),
        (("opt", BLOCK, "-p", "fuse{max-op=3}"), "did you mean 'max-ops'?"),
        (("opt", BLOCK, "--emit", "se"), "did you mean 'sea'?"),
        (("opt", BLOCK, "--format", "deepxx"), "did you mean 'deepx'?"),
        (("ops", "dot_genral"), "did you mean 'dot_general'?"),
        (("run", BLOCK, "--random-inputs", "--engine", "numpi"), "did you mean 'numpy'?"),
        (("why", BLOCK, "slop", "raised"), "did you mean 'slope'?"),
        (("opt", BLOCK, "--entry", "gelo"), "did you mean 'gelu'?"),
        (("grad", BLOCK, "--wrt", "gain3"), "did you mean 'gain"),
        (("draw", BLOCK, "-o", "x.svgg"), "did you mean"),
    ],
)
def test_a_wrong_word_gets_the_nearest_one(run: Run, arguments: tuple[str, ...], hint: str) -> None:
    done = run(*arguments)
    assert (done.code, done.bytes) == (2, b"")
    assert hint in done.err
    assert "Traceback" not in done.err


def test_no_command_shows_what_there_is(run: Run) -> None:
    done = run()
    assert (done.code, done.err) == (0, "")
    assert done.out == run("--help").out
    assert "130 interrupted, 143 terminated" in " ".join(done.out.split())


def test_help_names_every_format_and_form(run: Run) -> None:
    def named(command: str, option: str) -> set[str]:
        commands = next(a for a in cli.make_parser()._actions if isinstance(a.choices, dict)).choices
        action = next(a for a in commands[command]._actions if option in a.option_strings)
        return set(re.split(", | or ", re.match(r"[\w, -]+", action.help)[0].strip()))

    assert named("info", "--format") == {name for name, f in FORMATS.items() if f.reads}
    assert named("opt", "--emit") == {name for name, f in FORMATS.items() if f.writes} | {*PICTURES, "json"}


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("", 3, "the text is empty"),
        ("what is this\n", 3, "cannot tell what language"),
        ('mesh <["x"=2]>\na: [{"x"}]\n', 3, "this is a plan for a program"),
        ('program "m.mlir"\nmesh <["x"=2]>\na: [{"x"}]\n', 3, "this is a plan for a program"),
        ("add (tensor<float32>:a, tensor<float32>:b) > (tensor<float32>:\n", 3, "<stdin>:1:"),
        ("newtensor (vector<int32>:[2]) -> (tensor<float32>:t)\nad (tensor<float32>:t, tensor<float32>:t) -> (tensor<float32>:t)\n",
         None, "<stdin>:2:1: error: "),
        ("sea 1\nentry @f\nfunc public @f(%x: f32[2], %y: f32[3]) -> (%z: f32[2]) {\n  %z = add %x, %y : f32[2]\n  return %z\n}\n",
         4, "<stdin>:4:"),
    ],
)  # fmt: skip
def test_errors_of_bad_programs_have_a_location(run: Run, text: str, code: int | None, message: str) -> None:
    done = run("opt", stdin=text)
    assert done.code in ((3, 4) if code is None else (code,))
    assert message in done.err
    assert done.bytes == b""
    assert "Traceback" not in done.err


def test_a_file_that_is_not_there(run: Run) -> None:
    done = run("opt", "no/such.dx")
    assert done.code == 2
    assert done.err == "error: cannot read 'no/such.dx': No such file or directory\n"


def test_binary_input(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.dx"
    path.write_bytes(bytes(range(256)))
    done = run("info", str(path))
    assert done.code == 3
    assert "binary data" in done.err


def test_hostile_names_reach_no_terminal(run: Run, tmp_path: Path) -> None:
    name = "\x1b[31mred\u202e\x07"
    path = tmp_path / "x.sea"
    path.write_text(SEA.replace("%x", f'%"{name}"'))
    for arguments in (("info", str(path)), ("run", str(path), "--random-inputs"), ("diff", str(path), BLOCK),
                      ("run", str(path)), ("why", str(path), name, "y"), ("opt", "--print-ir-after-all", str(path))):  # fmt: skip
        done = run(*arguments)
        shown = done.out + done.err
        assert not any(c in shown for c in "\x1b\u202e\x07"), arguments


def test_colour_is_asked_for_or_for_terminals_only(run: Run) -> None:
    assert "\x1b" not in run("opt", "no.dx").err
    assert "\x1b[1;31merror:\x1b[0m" in run("opt", "no.dx", "--color", "always").err
    assert "\x1b" not in run("opt", "no.dx", "--color", "never").err


def test_an_internal_error_leaves_a_reproducer(run: Run, monkeypatch: pytest.MonkeyPatch, sea: str) -> None:
    def fail(args: object) -> int:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setitem(cli.COMMANDS, "info", cli.COMMANDS["info"]._replace(run=fail))
    done = run("info", sea)
    assert done.code == 70
    assert "Traceback" not in done.err
    report = Path(done.err.split()[-1])
    kept = json.loads(report.read_text())
    assert "ZeroDivisionError: a fault of ours" in kept["traceback"] and kept["signature"].startswith("ZeroDivisionError")
    assert kept["arguments"] == ["info", "{0}"] and "exponential" in kept["files"][0]["text"]
    assert kept["settings"]["command"] == "info"
    again = run("replay", str(report))  # in a process of its own, where nobody has planted the fault
    report.unlink()
    assert (again.code, again.out) == (0, "it does not happen any more: exit code 0\n")


def test_a_failing_pass_is_an_internal_error(run: Run, monkeypatch: pytest.MonkeyPatch, sea: str) -> None:
    from deepx_graph.passes.scalar.cse import Cse

    def fail(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(Cse, "run_under", fail)
    done = run("opt", sea, "-p", "cse")
    assert done.code == PassError.exit_code == 70
    assert "pass 'cse' failed: KeyError" in done.err
    Path(done.err.split()[-1]).unlink()


def test_an_interrupt_is_one_word(run: Run, monkeypatch: pytest.MonkeyPatch, sea: str) -> None:
    def stop(args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(cli.COMMANDS, "info", cli.COMMANDS["info"]._replace(run=stop))
    done = run("info", sea)
    assert (done.code, done.bytes, done.err) == (130, b"", "interrupted\n")


def test_a_closed_pipe_is_quiet() -> None:
    command = f"'{sys.executable}' -m deepx_graph ops --markdown | head -n 1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("# Operations\n", "")


# --- opt


def test_opt_reads_standard_input_and_writes_the_same_language(run: Run) -> None:
    done = run("opt", stdin=PLAIN)
    assert done.code == 0
    again = run("opt", "-", "-o", "-", stdin=done.out)
    assert again.out == done.out
    assert "mulscalar" in done.out


def test_opt_emits_what_it_is_asked_for(run: Run, sea: str) -> None:
    text = run("opt", sea, "-p", "clean", "--emit", "sea").out
    assert "multiply" not in text
    assert "exponential %x" in text
    nodes = run("opt", sea, "-p", "clean", "--emit", "json").json["functions"][0]["nodes"]
    assert [n["op"] for n in nodes] == ["param", "param", "add", "exponential"]
    assert run("opt", sea, "--emit", "dot").out.startswith("digraph")
    assert "<svg" in run("opt", sea, "--emit", "svg").out


def test_opt_writes_the_file_whole_or_not_at_all(run: Run, sea: str, tmp_path: Path) -> None:
    out = tmp_path / "out.sea"
    out.write_text("old")
    assert run("opt", sea, "-p", "cse,nonsense", "-o", str(out)).code == 2
    assert out.read_text() == "old"
    assert run("opt", sea, "-o", str(out)).bytes == b""
    assert out.read_text().startswith("sea 1")
    missing = run("opt", sea, "-o", str(tmp_path / "no" / "x.sea"))
    assert missing.code == 2
    assert "cannot write" in missing.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.sea", "program.sea"]


def test_opt_shows_passes_at_work(run: Run, sea: str) -> None:
    done = run("opt", sea, "-p", "simplify,cse", "--print-ir-before", "cse", "--print-ir-after=simplify", "--timing",
               "--pass-statistics", "--dump-rewrites")  # fmt: skip
    assert done.err.count("// ---- ") == 2
    assert "// ---- after simplify ----" in done.err
    assert "pass  " in done.err
    assert "1 simplify: " in done.err
    quiet = run("opt", sea, "-p", "simplify,cse", "--print-ir-after-change")
    assert quiet.err.count("// ---- ") == 1
    everything = run("opt", sea, "-p", "simplify,cse", "--print-ir-after-all")
    assert everything.err.count("// ---- ") == 2


def test_both_spellings_of_a_flag_of_mlir_opt(run: Run, sea: str) -> None:
    several = run("opt", sea, "-p", "simplify,cse,dce", "--print-ir-after=cse,dce", "--verify-each=0")
    assert (several.code, several.err.count("// ---- after ")) == (0, 2)
    assert run("opt", sea, "--no-verify-each").out == run("opt", sea, "--verify-each").out
    wrong = run("opt", sea, "-p", "cse", "--print-ir-after=cse,fuse")
    assert (wrong.code, "no pass 'fuse' in this pipeline" in wrong.err) == (2, True)


def test_rewrite_limit_stops_the_passes(run: Run, sea: str) -> None:
    assert "multiply" in run("opt", sea, "-p", "clean", "--rewrite-limit", "0").out
    assert "multiply" not in run("opt", sea, "-p", "clean", "--rewrite-limit", "1").out


def test_list_passes(run: Run) -> None:
    listed = run("opt", "--list-passes").out
    facts = run("opt", "--list-passes", "--json").json
    assert {"cse", "fuse", "grad"} <= {p["name"] for p in facts["passes"]}
    assert all(p["name"] in listed and p["summary"] for p in facts["passes"])
    assert "default" in facts["pipelines"]


# --- grad


def test_grad_prints_a_program_that_runs(run: Run, sea: str, tmp_path: Path) -> None:
    out = tmp_path / "grad.sea"
    assert run("grad", sea, "-o", str(out)).code == 0
    x = np.linspace(-1, 1, 6, dtype="f4").reshape(2, 3)
    np.savez(tmp_path / "in.npz", x=x, n=np.int32(0), ct_y=np.ones_like(x))
    done = run("run", str(out), "--inputs", str(tmp_path / "in.npz"), "--json")
    (gradient,) = done.json["outputs"]
    assert gradient["name"] == "grad_x"
    np.testing.assert_allclose(gradient["values"], np.exp(x), rtol=1e-6)


# --- draw


STARTS = {"dot": b"digraph", "svg": b"<", "html": b"<!DOCTYPE html>", "png": b"\x89PNG"}


@pytest.mark.parametrize(("suffix", "start"), STARTS.items())
def test_draw_writes_every_form(run: Run, sea: str, tmp_path: Path, suffix: str, start: bytes) -> None:
    path = tmp_path / f"p.{suffix}"
    assert run("draw", sea, "-o", str(path)).code == 0
    assert path.read_bytes().startswith(start)


def test_draw_shows_a_stage_a_function_or_a_neighbourhood(run: Run, tmp_path: Path) -> None:
    def picture(*arguments: str) -> str:
        done = run("draw", BLOCK, "-o", "-", "--as", "dot", *arguments)
        assert done.code == 0, done.err
        return done.out

    assert "fusion" in picture("--stage", "output")
    assert "fusion" not in picture("--function", "gelu")
    assert "exponential" in picture("--function", "gelu")
    near = picture("--function", "gelu", "--around", "slope", "--depth", "1")
    assert len(near) < len(picture("--function", "gelu"))
    assert run("draw", BLOCK, "-o", str(tmp_path / "x.dot"), "--stage", "nonsense").code == 2


def test_a_profile_is_of_the_kernels_that_run_and_of_warm_calls(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "p.html"
    done = run("draw", BLOCK, "-o", str(path), "--profile")
    assert done.code == 0
    assert re.search(r"times are medians of \d+ runs, the first left out", done.err)
    boxes = [n for n in nodes_of(data_of(path.read_bytes())["graphs"][0]) if "time" in n]
    assert {n["op"] for n in boxes} >= {"fusion", "dot_general"}
    read = run("draw", BLOCK, "-o", str(path), "--profile", "--stage", "input")
    assert read.code == 0
    assert "fusion" not in {n.get("op") for n in nodes_of(data_of(path.read_bytes())["graphs"][0])}
    assert "timeline" in run("draw", BLOCK, "-o", str(path), "--profile", "--timeline").err


# --- reports


def test_info(run: Run, sea: str) -> None:
    text = run("info", sea).out
    assert "in   x: f32[2,3]" in text
    (main,) = run("info", sea, "--json").json["functions"]
    assert main["inputs"] == [["x", "f32[2,3]"], ["n", "i32[]"]]
    assert main["ops"] == {"constant": 1, "multiply": 1, "exponential": 1, "add": 1}
    assert main["depth"] == 2
    assert main["flops"] == 6 + 6 + 1
    assert main["bytes_moved"] == (24 + 4 + 24) + (24 + 24) + (4 + 4 + 4)


def test_diff_says_what_is_different(run: Run, sea: str, tmp_path: Path) -> None:
    same = run("diff", sea, sea)
    assert (same.code, same.out.count("\n")) == (0, 1)
    assert same.out.startswith("verdict: same mathematics: operation by operation")
    assert "no difference" in run("diff", sea, sea, "--as-written").err
    other = tmp_path / "other.sea"
    other.write_text(SEA.replace("exponential", "tanh"))
    done = run("diff", sea, str(other))
    assert done.code == 1
    assert "exponential" in done.out
    assert "tanh" in done.out
    facts = run("diff", sea, str(other), "--json").json
    assert facts["equal"] is False
    assert [c["kind"] for c in facts["changes"]] == ["changed"]
    helper = tmp_path / "fused.sea"
    assert run("opt", sea, "-p", "default", "-o", str(helper)).code == 0
    fused = run("diff", sea, str(helper))
    assert fused.code == 0 and "kernels taken apart" in fused.out, "the same mathematics"
    renamed = tmp_path / "renamed.sea"
    renamed.write_text(SEA.replace("%1", "%hidden"))
    assert run("diff", sea, str(renamed)).code == 0


def test_why(run: Run) -> None:
    done = run("why", BLOCK, "slope", "raised")
    assert "run in one kernel" in done.out
    facts = run("why", BLOCK, "hidden", "biased", "--engine", "numexpr", "--json").json
    assert (facts["fused"], facts["kind"]) == (False, "not-elementwise")


def test_ops(run: Run) -> None:
    assert "The sum; of bools, logical or." in run("ops").out
    assert "attribute  dimension: int, required" in run("ops", "concatenate").out
    names = [op["name"] for op in run("ops", "--json").json["operations"]]
    assert len(names) == len(set(names)) > 60
    assert all(f"### {n}\n" in run("ops", "--markdown").out for n in names[:5])
