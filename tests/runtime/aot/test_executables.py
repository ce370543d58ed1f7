"""Executables: what a saved program computes once it is loaded, what it starts without, and which files are refused."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

import deepx_graph as dx
from deepx_graph.runtime.aot.build import built
from deepx_graph.runtime.aot.executable import DIGEST, HEAD
from deepx_graph.runtime.aot.stored_kernel import LENGTH
from deepx_graph.runtime.native.llvm.target import Target
from tests.support.generate import random_inputs, random_kernel, random_loop, random_module

TEXT = """
HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
most { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
ENTRY e {
  x = f32[300,40]{1,0} parameter(0)
  w = f32[40,50]{1,0} parameter(1)
  p = f32[300,50]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[300,50]{1,0} tanh(p)
  z = f32[] constant(0)
  s = f32[300]{0} reduce(t, z), dimensions={1}, to_apply=sum
  u = f32[] reduce(s, z), dimensions={0}, to_apply=most
  c = pred[] compare(u, z), direction=GT
  b = bf16[300]{0} convert(s)
  ROOT r = (f32[300,50]{1,0}, pred[], bf16[300]{0}) tuple(t, c, b)
}
"""

OTHER_PROCESS = """
import sys
import numpy as np
import deepx_graph as dx
from deepx_graph.passes import pipeline
from deepx_graph.runtime import compile, program
from deepx_graph.runtime.native.llvm.target import Target
def refuse(*_, **__): raise AssertionError("optimised, planned or compiled again")
pipeline.run_pipeline = pipeline._run = Target.parsed = Target.emit = Target.compilation = refuse
compile.specialise = compile.engine_plans = program.plan_functions = refuse
f = dx.load_compiled(sys.argv[1])
x = np.linspace(-1, 1, 12000, dtype=np.float32).reshape(300, 40)
np.save(sys.argv[2], f(x, w=x[:40].repeat(2, axis=1)[:, :50].copy())[0])
"""


def _inputs() -> list[Any]:
    x = np.linspace(-1, 1, 12000, dtype=np.float32).reshape(300, 40)
    return [x, x[:40].repeat(2, axis=1)[:, :50].copy()]


def _saved(folder: Path, **options: Any) -> Path:
    dx.compile(dx.loads(TEXT), engine="native", **options).save(folder / "program")
    return folder / "program"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _saved(tmp_path_factory.mktemp("executables"), threads=1)


def _described(path: Path) -> tuple[dict[str, Any], bytes]:
    """What a file says, and the arrays and code behind it."""
    rest = path.read_bytes()[len(HEAD) + DIGEST :]
    size = int.from_bytes(rest[:LENGTH], "little")
    return json.loads(rest[LENGTH : LENGTH + size]), rest[LENGTH + size :]


def _written(path: Path, about: Any, code: bytes) -> Path:
    """A file that says something else, with the digest that belongs to it."""
    text = json.dumps(about).encode()
    rest = len(text).to_bytes(LENGTH, "little") + text + code
    path.write_bytes(HEAD + hashlib.sha256(rest).digest() + rest)
    return path


@pytest.mark.parametrize("threads", [1, 2])
def test_a_loaded_program_computes_what_the_compiled_one_does(threads: int, tmp_path: Path) -> None:
    compiled = dx.compile(dx.loads(TEXT), engine="native", threads=threads)
    compiled.save(tmp_path / "program")
    loaded = dx.load_compiled(tmp_path / "program")
    assert [(p.name, p.type) for p in loaded.inputs] == [(p.name, p.type) for p in compiled.inputs]
    assert [p.type for p in loaded.outputs] == [p.type for p in compiled.outputs]
    for _ in range(3):
        for got, wanted in zip(loaded(*_inputs()), compiled(*_inputs()), strict=True):
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_so_does_every_generated_program_that_is_one_machine_function(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    module = (random_kernel, random_loop, lambda r: random_module(r, 30, control=False))[seed % 3](rng)
    inputs = random_inputs(rng, module)
    compiled = dx.compile(module, engine="native", threads=1 + seed % 2)
    try:
        compiled.save(tmp_path / "program")
    except dx.RunError as e:
        assert "is not one machine function" in str(e)  # noqa: PT017
        return
    for got, wanted in zip(dx.load_compiled(tmp_path / "program")(*inputs), compiled(*inputs), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def _layers(count: int) -> dx.Module:
    """Products with a matrix of each layer's own, a `tanh` behind each: steps that do not become one kernel."""
    params = ", ".join(f"%w{k}: tensor<12x12xf32>" for k in range(count))
    lines = [f"%p{k} = stablehlo.dot_general %t{k}, %w{k}, contracting_dims = [1] x [0] "
             f": (tensor<5x12xf32>, tensor<12x12xf32>) -> tensor<5x12xf32>\n%t{k + 1} = stablehlo.tanh %p{k} : tensor<5x12xf32>"
             for k in range(count)]
    return dx.loads(f"func.func @main(%t0: tensor<5x12xf32>, {params}) -> tensor<5x12xf32> {{\n" + "\n".join(lines)
                    + f"\nreturn %t{count} : tensor<5x12xf32> }}", "stablehlo")


def test_the_entry_of_a_long_program_is_no_longer_than_that_of_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM's time for a function grows with the square of its stores."""
    texts: list[str] = []
    parsed = Target.parsed
    monkeypatch.setattr(Target, "parsed", lambda self, ir, **options: texts.append(ir) or parsed(self, ir, **options))
    for count in (2, 120):
        built(_layers(count))
    short, long = ([line for line in t.splitlines() if not line.startswith(("@", "declare"))] for t in texts if "@model_run" in t)
    assert len(long) == len(short)
    assert len({t for t in texts if "define void @dispatch" in t}) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_a_long_program_computes_the_same(threads: int, tmp_path: Path) -> None:
    compiled = dx.compile(_layers(120), engine="native", threads=threads)
    compiled.save(tmp_path / "program")
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(shape).astype(np.float32) / 3 for shape in ((5, 12), *[(12, 12)] * 120)]
    expected = arrays[0].astype(np.float64)
    for w in arrays[1:]:
        expected = np.tanh(expected @ w)
    for f in (compiled, dx.load_compiled(tmp_path / "program")):
        for _ in range(2):
            np.testing.assert_allclose(f(*arrays)[0], expected, rtol=1e-3, atol=1e-4)


def test_another_process_starts_it_without_optimising_planning_or_compiling(path: Path, tmp_path: Path) -> None:
    root = str(Path(dx.__file__).parents[1])
    expected = dx.load_compiled(path)(*_inputs())[0]  # stores what runs every kernel, which a new machine compiles once
    subprocess.run([sys.executable, "-c", OTHER_PROCESS, path, tmp_path / "out.npy"], check=True, cwd=root)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


def test_a_damaged_file_is_refused(path: Path, tmp_path: Path) -> None:
    data, rng = path.read_bytes(), random.Random(0)
    damaged = [data[:end] for end in (0, 5, len(HEAD), len(HEAD) + DIGEST + 3, len(data) // 2, len(data) - 1)]
    for at in [0, len(HEAD) + 1, len(HEAD) + DIGEST, *(rng.randrange(len(data)) for _ in range(30))]:
        damaged.append(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
    for each in (*damaged, data + b"\n", b"\x80\x04K\x01."):
        (tmp_path / "damaged").write_bytes(each)
        with pytest.raises(dx.UsageError, match="is no executable"):
            dx.load_compiled(tmp_path / "damaged")


def test_a_description_of_something_else_is_refused(path: Path, tmp_path: Path) -> None:
    said, data = _described(path)
    about, kernel = said["about"], said["kernel"]
    changes: list[Any] = [
        [], {}, {**said, "kernel": {**kernel, "functions": [[0, 7, "no code"]]}}, {**said, "arrays": None},
        *({**said, "about": each} for each in (
            {**about, "inputs": [{"name": "x", "dtype": "f31", "shape": [1]}]}, {**about, "results": "many"},
            {**about, "inputs": [{"name": "x", "dtype": "f32", "shape": [-1]}]}, {**about, "processor": {}}))]
    for each in changes:
        with pytest.raises(dx.UsageError, match="is no executable"):
            dx.load_compiled(_written(tmp_path / "changed", each, data))
    changed = {**said, "about": {**about, "symbols": ["no_such_function"]}}
    with pytest.raises(dx.UsageError, match="calls 'no_such_function'"):
        dx.load_compiled(_written(tmp_path / "changed", changed, data))
    (code,) = said["codes"]
    with pytest.raises(dx.UsageError, match="cannot be linked"):
        dx.load_compiled(_written(tmp_path / "changed", {**said, "codes": [["another", *code[1:]]]}, data[: -code[2]] + b"none"))


@pytest.mark.parametrize("change", [{"features": "+sse2,+made-up"}, {"bits": 1024}, {"triple": "riscv64-unknown-linux-gnu"}])
def test_one_for_another_machine_is_refused(change: dict[str, Any], path: Path, tmp_path: Path) -> None:
    said, data = _described(path)
    about = said["about"]
    other = {**said, "about": {**about, "processor": {**about["processor"], **change}}}
    with pytest.raises(dx.UsageError, match="another machine"):
        dx.load_compiled(_written(tmp_path / "other", other, data))


def test_an_executable_of_narrow_vectors_says_so(tmp_path: Path) -> None:
    said, _ = _described(_saved(tmp_path, vector_bits=128, threads=1))
    assert (said["about"]["processor"]["bits"], said["about"]["processor"]["cpu"]) == (128, "x86-64-v2")


def test_memory_is_bounded_before_it_is_taken(path: Path, tmp_path: Path) -> None:
    said, data = _described(path)
    kernel = said["kernel"]
    large = {**said, "kernel": {**kernel, "nbytes": 1 << 60}}
    with pytest.raises(dx.LimitError, match="beside inputs and results"):
        dx.load_compiled(_written(tmp_path / "large", large, data))
    with pytest.raises(dx.LimitError, match="more than the limit"):
        dx.load_compiled(path, max_bytes=64)


def test_wrong_arguments_are_refused_as_by_a_compiled_program(path: Path) -> None:
    f, (x, w) = dx.load_compiled(path), _inputs()
    for arrays, named in (((x,), {}), ((x, x), {}), ((x, w, w), {}), ((x,), {"v": w}), ((x, w.astype(np.int32)), {})):
        with pytest.raises(dx.RunError):
            f(*arrays, **named)


def test_what_cannot_be_saved_says_why(tmp_path: Path) -> None:
    with pytest.raises(dx.UsageError, match="only a program of the native engine"):
        dx.compile(dx.loads(TEXT), engine="numpy", optimize=False).save(tmp_path / "program")
    effect = dx.loads("""HloModule m
ENTRY e { x = c64[131073]{0} parameter(0)
  ROOT y = c64[131073]{0} fft(x), fft_type=FFT, fft_length={131073} }""")
    with pytest.raises(dx.RunError, match="is not one machine function"):
        dx.compile(effect, engine="native", optimize=False).save(tmp_path / "program")
    assert not (tmp_path / "program").exists()
