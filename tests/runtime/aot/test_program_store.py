"""Compiled programs kept on disk: what a later start computes and does not do again, and what is another program."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

import deepx_graph as dx
from deepx_graph.cli.main import main
from deepx_graph.ir import fingerprint as fingerprints
from deepx_graph.ir.fingerprint import fingerprint
from deepx_graph.passes.observer import STANDING, Timing
from deepx_graph.runtime import compile as compiling
from deepx_graph.runtime.aot import program_store
from deepx_graph.runtime.aot.program_store import StoredProgram
from deepx_graph.session import programs
from tests.support.generate import random_inputs, random_kernel, random_loop, random_module
from tests.support.kernel_store import kernel_store

TEXT = """
func.func @main(%x: tensor<300x40xf32>, %w: tensor<40x50xf32>) -> (tensor<300x50xf32>, tensor<300xbf16>) {
  %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<300x40xf32>, tensor<40x50xf32>) -> tensor<300x50xf32>
  %t = stablehlo.tanh %p : tensor<300x50xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%t init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<300x50xf32>, tensor<f32>) -> tensor<300xf32>
  %b = stablehlo.convert %s : (tensor<300xf32>) -> tensor<300xbf16>
  return %t, %b : tensor<300x50xf32>, tensor<300xbf16>
}
"""

ADAM = """
func.func @main(%p: tensor<5000xf32>, %m: tensor<5000xf32>, %g: tensor<5000xf32>) -> (tensor<5000xf32>, tensor<5000xf32>) {
  %n = stablehlo.add %m, %g : tensor<5000xf32>
  %s = stablehlo.sqrt %n : tensor<5000xf32>
  %q = stablehlo.subtract %p, %s : tensor<5000xf32>
  return %q, %n : tensor<5000xf32>, tensor<5000xf32>
}
"""

A_PROCESS = """
import sys
import numpy as np
import deepx_graph as dx
from deepx_graph.passes import pipeline
from deepx_graph.runtime import compile, program
from deepx_graph.runtime.native.llvm.target import Target
def refuse(*_, **__): raise AssertionError("optimised, planned or compiled again")
if sys.argv[3] == "later":
    pipeline.run_pipeline = pipeline._run = Target.parsed = Target.emit = Target.compilation = refuse
    compile.specialise = compile.engine_plans = program.plan_functions = refuse
f = dx.compile(dx.load(sys.argv[1]), engine="native")
x = np.linspace(-1, 1, 12000, dtype=np.float32).reshape(300, 40)
for _ in range(2):
    np.save(sys.argv[2], f(x, w=x[:40].repeat(2, axis=1)[:, :50])[0])
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A store of the test's own, in which everything is kept."""
    monkeypatch.setattr(program_store, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(fingerprints, "_added", [])
    monkeypatch.setattr(programs, "STANDING", [])
    with kernel_store(monkeypatch, tmp_path / "kernels"):
        yield tmp_path / "kernels"


def _inputs() -> list[Any]:
    x = np.linspace(-1, 1, 12000, dtype=np.float32).reshape(300, 40)
    return [x, x[:40].repeat(2, axis=1)[:, :50].copy()]


def _compiled(module: dx.Module, **options: Any) -> compiling.Compiled:
    return dx.compile(module, engine="native", **options)


def _is_kept(f: compiling.Compiled) -> bool:
    return isinstance(f._runner, StoredProgram)


def _same(got: Any, wanted: Any) -> bool:
    return [(x.dtype, x.shape, x.tobytes()) for x in got] == [(x.dtype, x.shape, x.tobytes()) for x in wanted]


@pytest.mark.parametrize("seed", range(15))
def test_what_was_kept_computes_the_same_bits(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    module = (random_kernel, random_loop, lambda r: random_module(r, 30, control=False))[seed % 3](rng)
    inputs = random_inputs(rng, module)
    made, later = (_compiled(module, threads=1 + seed % 2) for _ in range(2))
    assert not _is_kept(made)
    assert _is_kept(later) or made.python_steps or any(not p.type.shape for p in made.inputs)
    assert [(p.name, p.type) for p in later.outputs] == [(p.name, p.type) for p in made.outputs]
    wanted = made(*inputs)
    for _ in range(3):
        assert _same(later(*inputs), wanted)


def test_another_process_starts_it_without_optimising_planning_or_compiling(tmp_path: Path) -> None:
    (tmp_path / "model.stablehlo").write_text(TEXT)
    for which in ("first", "later"):
        subprocess.run([sys.executable, "-c", A_PROCESS, tmp_path / "model.stablehlo", tmp_path / f"{which}.npy", which],
                       check=True, cwd=Path(dx.__file__).parents[1])
    np.testing.assert_array_equal(np.load(tmp_path / "later.npy"), np.load(tmp_path / "first.npy"))


def test_so_does_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.stablehlo").write_text(TEXT)
    run = ["run", str(tmp_path / "model.stablehlo"), "--random-inputs", "--digest", "--engine", "native"]
    assert main(run) == 0
    first = capsys.readouterr().out
    monkeypatch.setattr(compiling, "specialise", None)
    assert main(run) == 0
    assert capsys.readouterr().out == first


def test_donated_inputs_are_written_over_as_before() -> None:
    _compiled(dx.loads(ADAM))
    f = _compiled(dx.loads(ADAM))
    assert _is_kept(f)
    p, m, g = (np.full(5000, k, np.float32) for k in (1, 2, 7))
    for k in range(3):
        q, n = f(p, m, g, donate=["p", "m"])
        assert q is p
        assert n is m
        assert n[0] == 2 + 7 * (k + 1)
    with pytest.raises(dx.RunError, match="no input 'z'"):
        f(p, m, g, donate=["z"])


def test_so_are_those_over_which_a_result_lies_only_where_it_holds_nothing_before() -> None:
    """As two plans are kept: with values in the result while that is not there, and without."""
    text = """func.func @main(%w: tensor<256x256xf32>, %g: tensor<64x256xf32>) -> tensor<256x256xf32> {
      %p = stablehlo.dot_general %g, %w, contracting_dims = [1] x [0]
        : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
      %q = stablehlo.dot_general %p, %w, contracting_dims = [1] x [0]
        : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
      %s = stablehlo.slice %q [0:1, 0:256] : (tensor<64x256xf32>) -> tensor<1x256xf32>
      %t = stablehlo.reshape %s : (tensor<1x256xf32>) -> tensor<256xf32>
      %u = stablehlo.broadcast_in_dim %t, dims = [1] : (tensor<256xf32>) -> tensor<256x256xf32>
      %r = stablehlo.subtract %w, %u : tensor<256x256xf32>
      return %r : tensor<256x256xf32>
    }"""
    _compiled(dx.loads(text))
    f = _compiled(dx.loads(text))
    assert _is_kept(f)
    w, g = (np.random.default_rng(0).normal(size=(n, 256)).astype(np.float32) / 16 for n in (256, 64))
    for is_given in (True, True, False, True, False):
        wanted, given = w - (g @ w @ w)[0], np.array(w)
        (found,) = f(given, g, donate=["w"] if is_given else [])
        assert (found is given) == is_given
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
        w = np.array(found)


def test_arguments_are_bound_and_refused_as_ever() -> None:
    wanted = _compiled(dx.loads(TEXT))(*_inputs())
    f, (x, w) = _compiled(dx.loads(TEXT)), _inputs()
    assert _same(f(x=np.asfortranarray(x), w=w), wanted)
    assert _same(f(x[::-1][::-1], w), wanted)
    assert _is_kept(f)
    with pytest.raises(dx.RunError, match="input 'w' is missing"):
        f(x)
    with pytest.raises(dx.RunError, match="f64"):
        f(x.astype(np.float64), w)


def test_several_threads_may_call_it() -> None:
    wanted = _compiled(dx.loads(TEXT))(*_inputs())
    f = _compiled(dx.loads(TEXT))
    with ThreadPoolExecutor(4) as pool:
        assert all(_same(found, wanted) for found in pool.map(lambda _: f(*_inputs()), range(60)))
    assert _is_kept(f)


def test_what_it_was_made_of_is_made_when_it_is_asked_for() -> None:
    made, later = (_compiled(dx.loads(TEXT)) for _ in range(2))
    assert _is_kept(later)
    assert str(later.lowered) == str(made.lowered)
    assert later.plan.peak_bytes == made.plan.peak_bytes
    assert later.python_steps == made.python_steps == ()
    assert _same(later(*_inputs()), made(*_inputs()))


def test_a_damaged_entry_is_made_anew(folder: Path) -> None:
    wanted = _compiled(dx.loads(TEXT))(*_inputs())
    rng = random.Random(3)
    for path in folder.iterdir():
        data = bytearray(path.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data[: rng.choice((len(data), len(data) // 2))])
    f = _compiled(dx.loads(TEXT))
    assert not _is_kept(f)
    assert _same(f(*_inputs()), wanted)
    assert _is_kept(_compiled(dx.loads(TEXT)))


@pytest.mark.parametrize("options", [{"threads": 1}, {"seed": 5}, {"max_bytes": 1 << 30}, {"vector_bits": 128},
                                     {"optimize": False}], ids=lambda o: next(iter(o)))
def test_other_options_are_another_program(options: dict[str, Any]) -> None:
    _compiled(dx.loads(TEXT), **({"threads": 2} if "threads" in options else {}))
    assert not _is_kept(_compiled(dx.loads(TEXT), **options))
    assert _is_kept(_compiled(dx.loads(TEXT), **options))


def test_so_are_other_files_of_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    _compiled(dx.loads(TEXT))
    monkeypatch.setattr(program_store, "_package", lambda: "another")
    assert not _is_kept(_compiled(dx.loads(TEXT)))


def test_observers_of_passes_see_every_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    _compiled(dx.loads(TEXT))
    monkeypatch.setattr(programs, "STANDING", [Timing])
    assert not _is_kept(_compiled(dx.loads(TEXT)))
    assert STANDING is not programs.STANDING


def test_nothing_has_a_fingerprint_once_a_plugin_has_added_something() -> None:
    _compiled(dx.loads(TEXT))
    fingerprints.add("cubed")
    assert fingerprint(dx.loads(TEXT)) is None
    assert not _is_kept(_compiled(dx.loads(TEXT)))


def test_fingerprints_tell_programs_apart_and_no_more() -> None:
    assert fingerprint(dx.loads(TEXT)) == fingerprint(dx.loads(TEXT.replace("%s", "%other").replace("%p", "%product")))
    changed = [("tanh", "sine"), ("300", "301"), ("dense<0.0>", "dense<-0.0>"), ("dense<0.0>", "dense<1e-45>"), ("bf16", "f16"),
               ("%x", "%y"), ("return %t", "return %p"),
               ("applies stablehlo.add", "applies stablehlo.maximum")]
    found = [fingerprint(dx.loads(TEXT)), *(fingerprint(dx.loads(TEXT.replace(*pair))) for pair in changed)]
    assert None not in found
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("seed", range(4))
def test_generated_programs_have_fingerprints_of_their_own(seed: int) -> None:
    modules = [random_module(random.Random(100 * seed + k), 20) for k in range(10)]
    found = [fingerprint(m) for m in modules]
    assert None not in found
    assert len(set(found)) == len({dx.dumps(m, "sea") for m in modules})
    assert found == [fingerprint(dx.loads(dx.dumps(m, "sea"))) for m in modules]
