"""The command line as a user meets it: results, diagnostics, exit codes, files, and what a terminal is sent."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepx_graph import __version__
from deepx_graph.cli import main as cli
from deepx_graph.passes.base import PassError

ROOT = Path(__file__).parents[1]
BLOCK = str(ROOT / "examples" / "transformer_block.dx")

PLAIN = """\
newtensor (vector<int32>:[2 3]) -> (tensor<float32>:y)
mulscalar (tensor<float32>:x, var<float32>:2.0) -> (tensor<float32>:y)
newtensor (vector<int32>:[2 3]) -> (tensor<float32>:z)
addscalar (tensor<float32>:y, var<float32>:1.0) -> (tensor<float32>:z)
"""
"""x is an input; its shape follows from what it is written to."""

SEA = """\
sea 1
entry @main
func public @main(%x: f32[2,3], %n: i32[]) -> (%y: f32[2,3], %m: i32[]) {
  %0 = constant {value = dense<1.0> : f32[]}
  %1 = multiply %x, %0 : f32[2,3]
  %y = exponential %1 : f32[2,3]
  %m = add %n, %n : i32[]
  return %y, %m
}
"""


class Result:
    """What one command did."""

    def __init__(self, code: int, out: bytes, err: str) -> None:
        self.code, self.bytes, self.err = code, out, err

    @property
    def out(self) -> str:
        return self.bytes.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.bytes)


Run = Callable[..., Result]


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("opt", "a.dx", stdin="...")`."""

    def call(*arguments: str, stdin: str = "") -> Result:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = cli.main(arguments)
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Result(code, out, err.decode())

    return call


@pytest.fixture
def sea(tmp_path: Path) -> str:
    path = tmp_path / "program.sea"
    path.write_text(SEA)
    return str(path)


# --- the frame


def test_version_and_help(run: Run) -> None:
    assert run("--version").out == f"deepx-graph {__version__}\n"
    shown = run("--help")
    assert shown.code == 0
    listed = {line.split()[0] for line in shown.out.split("COMMAND\n")[1].split("\n\n")[0].splitlines()}
    assert {"opt", "run", "grad", "draw", "ops", "diff", "why", "info", "tui", "completion"} <= listed


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


def test_no_command_is_a_usage_error(run: Run) -> None:
    done = run()
    assert done.code == 2
    assert "COMMAND" in done.err


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("", 3, "the text is empty"),
        ("what is this\n", 3, "cannot tell what language"),
        ("add (tensor<float32>:a, tensor<float32>:b) > (tensor<float32>:\n", 3, "<stdin>:1:"),
        ("newtensor (vector<int32>:[2]) -> (tensor<float32>:t)\nad (tensor<float32>:t, tensor<float32>:t) -> (tensor<float32>:t)\n",
         None, "<stdin>:2:1: error: "),
        ("sea 1\nentry @f\nfunc public @f(%x: f32[2], %y: f32[3]) -> (%z: f32[2]) {\n  %z = add %x, %y : f32[2]\n  return %z\n}\n",
         4, "<stdin>:4:"),
    ],
)  # fmt: skip
def test_bad_programs_are_placed(run: Run, text: str, code: int | None, message: str) -> None:
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

    monkeypatch.setitem(cli.COMMANDS, "info", (*cli.COMMANDS["info"][:2], fail))
    done = run("info", sea)
    assert done.code == 70
    assert "Traceback" not in done.err
    report = Path(done.err.split()[-1])
    text = report.read_text()
    report.unlink()
    assert "ZeroDivisionError: a fault of ours" in text
    assert "exponential" in text
    assert f"'info' {sea!r}" in text


def test_a_failing_pass_is_an_internal_error(run: Run, monkeypatch: pytest.MonkeyPatch, sea: str) -> None:
    from deepx_graph.passes.cse import Cse

    def fail(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(Cse, "run_under", fail)
    done = run("opt", sea, "-p", "cse")
    assert done.code == PassError.exit_code == 70
    assert "pass 'cse' failed: KeyError" in done.err
    Path(done.err.split()[-1]).unlink()


def test_interrupt_is_quiet(run: Run, monkeypatch: pytest.MonkeyPatch, sea: str) -> None:
    def stop(args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(cli.COMMANDS, "info", (*cli.COMMANDS["info"][:2], stop))
    done = run("info", sea)
    assert (done.code, done.bytes, done.err) == (130, b"", "")


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


# --- run


def test_run_reads_files_and_writes_an_archive(run: Run, sea: str, tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 6, dtype="f4").reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "in.npz", n=np.int32(4), other=np.zeros(3))
    done = run("run", sea, "--input", f"x={tmp_path / 'x.npy'}", "--inputs", str(tmp_path / "in.npz"),
               "--output", str(tmp_path / "out.npz"))  # fmt: skip
    assert done.code == 0, done.err
    assert done.bytes == b""
    assert "not inputs of this program: other" in done.err
    found = np.load(tmp_path / "out.npz")
    np.testing.assert_allclose(found["y"], np.exp(x), rtol=1e-6)
    assert found["m"] == 8


def test_run_prints_and_reports(run: Run, sea: str) -> None:
    done = run("run", sea, "--random-inputs", "--seed", "3", "--profile")
    assert done.code == 0
    assert "y: f32[2,3]" in done.out
    assert "exponential" in done.err or "fusion" in done.err
    facts = run("run", sea, "--random-inputs", "--seed", "3", "--json").json
    assert [o["name"] for o in facts["outputs"]] == ["y", "m"]
    assert facts["outputs"] == run("run", sea, "--random-inputs", "--seed", "3", "--json", "--engine", "numpy").json["outputs"]
    assert facts["outputs"] != run("run", sea, "--random-inputs", "--seed", "4", "--json").json["outputs"]


def test_two_outputs_of_one_name_are_both_given(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "p.sea"
    path.write_text(SEA.replace("%m: i32[])", "%y: i32[])"))
    assert len(run("run", str(path), "--random-inputs", "--json").json["outputs"]) == 2
    assert run("run", str(path), "--random-inputs", "--output", str(tmp_path / "o.npz")).code == 0
    assert len(np.load(tmp_path / "o.npz").files) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 5, "input 'x' is missing"),
        (("--input", "x"), 2, "NAME=FILE.npy"),
        (("--input", "xx=a.npy"), 2, "no input 'xx'"),
        (("--input", "x=no.npy"), 2, "cannot read 'no.npy'"),
        (("--random-inputs", "--threads", "0"), 2, "at least 1"),
        (("--random-inputs", "--max-bytes", "10"), 5, "max-bytes"),
        (("--random-inputs", "--max-bytes", "ten"), 2, "'ten' is not a number of bytes"),
    ],
)
def test_runs_that_cannot_start(run: Run, sea: str, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = run("run", sea, *arguments)
    assert (done.code, done.bytes) == (code, b"")
    assert message in done.err


def test_input_files_are_checked_before_they_are_read(run: Run, sea: str, tmp_path: Path) -> None:
    def attempt(path: Path, option: str = "--input") -> Result:
        return run("run", sea, "--random-inputs", option, f"x={path}" if option == "--input" else str(path), "--max-bytes", "1M")

    wrong = tmp_path / "wrong.npy"
    np.save(wrong, np.zeros((3, 2), "f4"))
    assert "expected: f32[2,3]" in attempt(wrong).err

    objects = tmp_path / "objects.npy"
    np.save(objects, np.array([{}], dtype=object), allow_pickle=True)
    assert "holds Python objects" in attempt(objects).err

    short = tmp_path / "short.npy"
    short.write_bytes(wrong.read_bytes()[:-1])
    assert "is damaged" in attempt(short).err

    huge = tmp_path / "huge.npz"  # 64 MB of zeros in a small archive
    np.savez_compressed(huge, x=np.zeros(1 << 24, "f4"))
    assert huge.stat().st_size < 1 << 20
    assert "more than the 1,048,576 allowed" in attempt(huge, "--inputs").err

    liar = tmp_path / "liar.npz"
    with zipfile.ZipFile(liar, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", wrong.read_bytes() + b"\0" * 1000)
    assert "is damaged" in attempt(liar, "--inputs").err

    text = tmp_path / "text.npz"
    text.write_text("hello")
    for path, option in ((text, "--inputs"), (text, "--input")):
        assert "no numpy file" in attempt(path, option).err


def test_bfloat16_comes_back_from_an_archive(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "b.sea"
    program.write_text(SEA.replace("f32", "bf16").replace("1.0", "1"))
    assert run("run", str(program), "--random-inputs", "--output", str(tmp_path / "o.npz")).code == 0
    saved = np.load(tmp_path / "o.npz")["y"]
    np.savez(tmp_path / "i.npz", x=saved, n=np.int32(1))
    assert run("run", str(program), "--inputs", str(tmp_path / "i.npz")).code == 0


def test_files_are_touched_under_the_data_root_only(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()

    def save(path: str, *arguments: str) -> Result:
        return run("run", *arguments, stdin=(
            "newtensor (vector<int32>:[2]) -> (tensor<float32>:t)\nconstant (var<float32>:3.0) -> (tensor<float32>:t)\n"
            f"save (tensor<float32>:t, var<string>:{path}) -> ()\n"))  # fmt: skip

    assert "no data root is given" in save("here").err
    refused = save("../escaped", "--data-root", str(root))
    assert refused.code == 5
    assert "not a path inside the data root" in refused.err
    assert list(tmp_path.rglob("*")) == [root]
    assert save("here", "--data-root", str(root)).code == 0
    assert np.fromfile(root / "here.data", "f4").tolist() == [3, 3]


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
    assert (same.code, same.bytes) == (0, b"")
    other = tmp_path / "other.sea"
    other.write_text(SEA.replace("exponential", "tanh"))
    done = run("diff", sea, str(other))
    assert done.code == 1
    assert "exponential" in done.out
    assert "tanh" in done.out
    facts = run("diff", sea, str(other), "--json").json
    assert facts["equal"] is False
    assert [c["kind"] for c in facts["changes"]] == ["changed"]
    renamed = tmp_path / "renamed.sea"
    renamed.write_text(SEA.replace("%1", "%hidden"))
    assert run("diff", sea, str(renamed)).code == 0


def test_why(run: Run) -> None:
    done = run("why", BLOCK, "slope", "raised")
    assert "run in one kernel" in done.out
    facts = run("why", BLOCK, "hidden", "biased", "--json").json
    assert (facts["fused"], facts["kind"]) == (False, "not-elementwise")


def test_ops(run: Run) -> None:
    assert "Sum; or of bools." in run("ops").out
    assert "attribute  dimension: int, required" in run("ops", "concatenate").out
    names = [op["name"] for op in run("ops", "--json").json]
    assert len(names) == len(set(names)) > 60
    assert all(f"### {n}\n" in run("ops", "--markdown").out for n in names[:5])


# --- completion


def test_completion_covers_commands_and_options(run: Run) -> None:
    for shell in ("bash", "zsh", "fish"):
        script = run("completion", shell).out
        assert "opt" in script
        assert "pass-pipeline" in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_completion_completes_in_bash(run: Run) -> None:
    script = run("completion", "bash").out
    ask = 'COMP_WORDS=(deepx-graph opt --print-ir-after-c); COMP_CWORD=2; _deepx_graph; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script + ask], capture_output=True, text=True, check=True)
    assert done.stdout == "--print-ir-after-change\n"
    ask = 'COMP_WORDS=(deepx-graph gr); COMP_CWORD=1; _deepx_graph; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script + ask], capture_output=True, text=True, check=True)
    assert done.stdout == "grad\n"
