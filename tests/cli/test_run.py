"""The command `run`: inputs and outputs in files, what is refused before anything runs, and what a program may touch."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

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
    (("opt", "-o", "x.xyz"), ".sea, .hlo, .stablehlo, .mlir"), (("grad", "-o", "x.ir"), ".sea, .hlo, .stablehlo, .mlir"),
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
