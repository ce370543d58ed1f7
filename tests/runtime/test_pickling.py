"""Compiled modules in other processes, and what a profile says of the way a kernel runs."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.runtime.engines import has_native

TEXT = """
HloModule m
ENTRY e {
  x = f32[40,50]{1,0} parameter(0)
  y = f32[50,30]{1,0} parameter(1)
  p = f32[40,30]{1,0} dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[40,30]{1,0} exponential(p)
  s = f32[40,30]{1,0} add(e, p)
  ROOT r = f32[40,30]{1,0} %s(s, p)
}
"""
PROGRAM = """
import pickle, sys
import numpy as np
import deepx_graph.passes.pipeline as manager
def refuse(*_, **__): raise AssertionError("optimised again")
manager.run_pipeline = manager._run = refuse
f = pickle.load(open(sys.argv[1], "rb"))
x = np.linspace(-1, 1, 2000, dtype=np.float32).reshape(40, 50)
np.save(sys.argv[2], f(x, x.reshape(50, 40)[:, :30].copy())[0])
"""


def _inputs() -> list[np.ndarray]:
    x = np.linspace(-1, 1, 2000, dtype=np.float32).reshape(40, 50)
    return [x, x.reshape(50, 40)[:, :30].copy()]


@pytest.mark.parametrize("engine", ["numpy", "auto"])
def test_another_process_runs_it_without_optimising_again(engine: str, tmp_path: Path) -> None:
    f = dx.compile(dx.loads(TEXT % "multiply"), engine=engine, threads=1)
    (tmp_path / "f.pickle").write_bytes(pickle.dumps(f))
    root = str(Path(dx.__file__).parents[1])
    subprocess.run([sys.executable, "-c", PROGRAM, tmp_path / "f.pickle", tmp_path / "out.npy"], check=True, cwd=root)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), f(*_inputs())[0])


def test_how_it_was_compiled_comes_along() -> None:
    f = dx.compile(dx.loads(TEXT % "multiply"), engine="numexpr", threads=3, seed=7, max_bytes=1 << 20, optimize=False)
    again = pickle.loads(pickle.dumps(f))
    assert (again.engine.name, again.engine.threads, again._seed, again._max_bytes) == ("numexpr", 3, 7, 1 << 20)
    assert [p.name for p in again.inputs] == ["x", "y"]


def test_feeds_stay_in_their_process() -> None:
    f = dx.compile(dx.loads(TEXT % "multiply"), infeed=[], optimize=False)
    with pytest.raises(TypeError, match="feeds"):
        pickle.dumps(f)


def _ways(text: str, engine: str) -> dict[str, str]:
    f = dx.compile(dx.loads(text), engine=engine, profile=True)
    f(*(a.astype(p.type.dtype.np) for a, p in zip(_inputs(), f.inputs, strict=True)))
    assert f.profile is not None
    return {r.kernel.split()[0]: r.lowering for r in f.profile.rows()}


def test_a_profile_says_how_kernels_run() -> None:
    assert _ways(TEXT % "multiply", "numexpr") == {"dot_general": "BLAS", "fusion": "numpy loops"}
    assert _ways(TEXT % "multiply", "numpy") == {"dot_general": "eval", "fusion": "eval"}


@pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")
def test_a_profile_says_why_a_kernel_is_no_machine_code() -> None:
    assert _ways(TEXT % "multiply", "native") == {"dot_general": "machine code", "fusion": "machine code of loops"}
    of_complex, of_narrow = (_ways((TEXT % "multiply").replace("f32", dtype), "native") for dtype in ("c64", "f8e5m2"))
    assert of_complex == {"dot_general": "machine code", "fusion": "machine code of loops"}
    assert of_narrow == {"dot_general": "eval", "fusion": "machine code of loops"}


def test_a_module_comes_back_as_it_was() -> None:
    module = dx.loads(TEXT % "multiply")
    again = pickle.loads(pickle.dumps(module))
    assert dx.dumps(again, "sea") == dx.dumps(module, "sea")
    assert again.entry.type == module.entry.type
