"""The command `run`: inputs and outputs in files, what is refused before anything runs, and what a program may touch."""

from __future__ import annotations

import io
import os
import signal
import stat
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cli_runner import SEA, Result, Run


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


def test_arrays_without_names_are_inputs_in_order(run: Run, tmp_path: Path) -> None:
    """What `np.savez(file, a, b)` writes. A name goes before a place, and what is too much is told."""
    head = "sea 1\nentry @main\nfunc public @main(%x: f32[2], %w: f32[2]) -> (%y: f32[2]) {\n"
    (tmp_path / "m.sea").write_text(f"{head}  %y = subtract %x, %w : f32[2]\n  return %y\n}}\n")
    command = ("run", str(tmp_path / "m.sea"), "--inputs", str(tmp_path / "in.npz"), "--output", str(tmp_path / "out.npz"))
    one, three = np.float32([1, 1]), np.float32([3, 3])
    np.savez(tmp_path / "in.npz", three, one, one)
    done = run(*command)
    assert done.code == 0, done.err
    assert "not inputs of this program: arr_2" in done.err
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["y"], three - one)
    np.savez(tmp_path / "in.npz", one, three, x=three)
    assert run(*command).code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["y"], three - three)


def test_run_prints_and_reports(run: Run, sea: str) -> None:
    done = run("run", sea, "--random-inputs", "--seed", "3", "--profile")
    assert done.code == 0
    assert "y: f32[2,3]" in done.out
    assert "exponential" in done.err or "fusion" in done.err
    facts = run("run", sea, "--random-inputs", "--seed", "3", "--json").json
    assert [o["name"] for o in facts["outputs"]] == ["y", "m"]
    reference = run("run", sea, "--random-inputs", "--seed", "3", "--json", "--engine", "numpy").json["outputs"]
    for found, wanted in zip(facts["outputs"], reference, strict=True):
        np.testing.assert_allclose(found.pop("values"), wanted.pop("values"), rtol=1e-6)
        assert found == wanted
    facts = run("run", sea, "--random-inputs", "--seed", "3", "--json").json
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


@pytest.mark.parametrize("limit", [(), ("--max-bytes", "1M")], ids=str)
def test_inputs_that_are_made_up_are_bounded(run: Run, tmp_path: Path, limit: tuple[str, ...]) -> None:
    path = tmp_path / "big.hlo"
    size = "1000000" if limit else "4000000000,4000000"
    path.write_text(f"HloModule m\nENTRY e {{ x = f32[{size}] parameter(0) y = f32[2] parameter(1) ROOT r = f32[2] negate(y) }}\n")
    done = run("run", str(path), "--random-inputs", "--engine", "numpy", *limit)
    assert done.code == 5
    assert "input 'x' needs" in done.err


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


# --- where outputs go


@pytest.mark.parametrize("option", ["-o", "--output"])
def test_outputs_go_to_a_device(run: Run, sea: str, option: str) -> None:
    assert run("run", sea, "--random-inputs", option, "/dev/null").code == 0


def test_outputs_go_through_a_pipe_with_a_name(run: Run, sea: str, tmp_path: Path) -> None:
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    done = run("run", sea, "--random-inputs", "--output", str(pipe))
    reader.join()
    assert done.code == 0, done.err
    assert sorted(np.load(io.BytesIO(found[0])).files) == ["m", "y"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_standard_output_by_its_name_is_that() -> None:
    command = [sys.executable, "-c", "from deepx_graph.files import write_file; write_file('/dev/stdout', b'whole')"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"whole"


@pytest.mark.parametrize(("arguments", "known"), [
    (("run", "--random-inputs", "--output", "o.txt"), ".npz"), (("run", "--random-inputs", "--outfeed", "o.npy"), ".npz"),
    (("opt", "-o", "x.xyz"), ".sea, .hlo, .pb"), (("grad", "-o", "x.ir"), ".sea, .hlo, .pb"),
    (("draw", "-o", "x.gif"), ""),
])
def test_a_name_that_says_another_form_is_refused_before_anything_is_done(
        run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], known: str) -> None:
    monkeypatch.chdir(tmp_path)
    command, *rest = arguments
    (tmp_path / "p.sea").write_text(SEA)
    done = run(command, "p.sea", *rest)
    assert done.code == 2
    assert known in done.err
    assert [p.name for p in tmp_path.iterdir()] == ["p.sea"]


def test_a_name_without_an_ending_takes_the_language_that_was_read(run: Run, sea: str, tmp_path: Path) -> None:
    assert run("opt", sea, "-p", "none", "-o", str(tmp_path / "out")).code == 0
    assert (tmp_path / "out").read_text().startswith("sea 1")
    assert run("opt", sea, "-p", "none", "--emit", "hlo", "-o", str(tmp_path / "out.txt")).code == 0


# --- inputs that are generated or converted


def values(done: Result) -> list[list[float]]:
    return [o["values"] for o in done.json["outputs"]]


def test_inputs_are_generated_by_a_type_or_a_few_words(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "open.sea"
    path.write_text("sea 1\nentry @f\nfunc public @f(%x: f32[?1,?2], %n: i32[2]) -> (%y: f32[?1,?2], %m: i32[2]) {\n"
                    "  %y = negate %x : f32[?1,?2]\n  %m = negate %n : i32[2]\n  return %y, %m\n}\n")
    done = run("run", str(path), "--input", "x=ones f32[2,3]", "--input", "n=iota", "--json")
    assert values(done) == [[[-1.0] * 3] * 2, [0, -1]]
    one, again, other = (values(run("run", str(path), "--input", "x=f32[2,3]", "--random-inputs", "--json", "--seed", seed))[0]
                         for seed in ("0", "0", "1"))
    assert one == again != other
    assert np.shape(one) == (2, 3) and np.unique(one).size == 6
    for wish, message in (("x=f32[2]", "expected: f32[?1,?2]"), ("x=f3[2]", "cannot have the type"), ("z=i8[2]", "no input 'z'")):
        assert message in run("run", str(path), "--input", wish, "--random-inputs").err
    assert run("run", str(path), "--input", "x=f32[9,9]", "--random-inputs", "--max-bytes", "100").code == 5


def test_each_device_has_its_generated_input(run: Run, sea: str) -> None:
    done = run("run", sea, "--replicas", "2", "--input", "x@0=zeros", "--input", "x@1=ones", "--input", "n=ones", "--json")
    assert values(done)[:2] == [[[1.0] * 3] * 2, [[pytest.approx(np.e, rel=1e-6)] * 3] * 2]


def test_inputs_of_another_type_are_converted_when_asked(run: Run, sea: str, tmp_path: Path) -> None:
    def attempt(x: np.ndarray[Any, Any], n: np.ndarray[Any, Any], *arguments: str) -> Result:
        np.savez(tmp_path / "i.npz", x=x, n=n)
        return run("run", sea, "--inputs", str(tmp_path / "i.npz"), "--json", *arguments)

    x, n = np.zeros((2, 3)), np.int64(7)
    refused = attempt(x, n)
    assert refused.code == 5
    assert "--cast on the command line, makes it f32" in refused.err
    assert values(attempt(x, n, "--cast")) == values(attempt(np.zeros((2, 3), "i8"), n, "--cast")) == [[[1.0] * 3] * 2, 14]
    for wrong in (np.float64(7), np.int64(1 << 40)):
        done = attempt(x, np.asarray(wrong), "--cast")
        assert (done.code, "cannot all be of type i32" in done.err) == (5, True)


# --- time


ENDLESS = """HloModule m
cond { s = (f32[16], pred[]) parameter(0)  ROOT c = pred[] get-tuple-element(s), index=1 }
body {
  s = (f32[16], pred[]) parameter(0)
  x = f32[16] get-tuple-element(s), index=0
  c = pred[] get-tuple-element(s), index=1
  y = f32[16] sine(x)
  ROOT t = (f32[16], pred[]) tuple(y, c)
}
ENTRY e {
  x = f32[16] parameter(0)
  t = pred[] constant(true)
  i = (f32[16], pred[]) tuple(x, t)
  w = (f32[16], pred[]) while(i), condition=cond, body=body
  ROOT r = f32[16] get-tuple-element(w), index=0
}
"""


@pytest.mark.parametrize("arguments", [("numpy",), ("numexpr",), ("native",), ("auto", "--replicas", "2"), ("auto", "-p", "none")])
def test_a_run_ends_in_time(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    if arguments[0] == "native":
        pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")
    (tmp_path / "endless.hlo").write_text(ENDLESS)
    before = signal.getsignal(signal.SIGALRM)
    done = run("run", str(tmp_path / "endless.hlo"), "--random-inputs", "--timeout", "0.3", "--engine", *arguments)
    assert (done.code, done.bytes) == (5, b"")
    assert done.err.startswith("error: not done within 0.3 s\n")
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_run_that_is_done_in_time_is_not_ended(run: Run, sea: str) -> None:
    assert run("run", sea, "--random-inputs", "--timeout", "1000").code == 0
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


# --- what is missing


@pytest.mark.parametrize(("installed", "terminal", "engine", "told"), [
    (False, True, "auto", 1), (True, True, "auto", 0), (False, False, "auto", 0), (False, True, "numpy", 0),
])
def test_the_user_is_told_what_the_extra_would_give(run: Run, sea: str, monkeypatch: pytest.MonkeyPatch, installed: bool,
                                                    terminal: bool, engine: str, told: int) -> None:
    monkeypatch.setattr("deepx_graph.runtime.engines.has_native", lambda: installed)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    done = run("run", sea, "--random-inputs", "--repeat", "2", "--engine", engine, "--color", "never")
    assert done.code == 0
    assert done.err.count("deepx-graph[native]") == told
