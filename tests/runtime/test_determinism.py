"""The same bits for the same inputs, version and threads; with `deterministic`, whatever the threads."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.cli.running import digest
from deepx_graph.runtime.engines import has_native
from tests.support.generate import awkward_arguments, random_kernel, random_module

X, Y, D, R = "tensor<301x403xf32>", "tensor<403x201xf32>", "tensor<301x201xf32>", "tensor<301xf32>"
PROGRAM = f"""func.func public @main(%x: {X}, %y: {Y}) -> ({R}, tensor<f32>) {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %d = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({X}, {Y}) -> {D}
  %e = stablehlo.tanh %d : {D}
  %r = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [1] : ({D}, tensor<f32>) -> {R}
  %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0, 1] : ({X}, tensor<f32>) -> tensor<f32>
  return %r, %s : {R}, tensor<f32>
}}"""


LARGE = ((257, 1030), (1030,))

ENGINES = ["numpy", "numexpr", pytest.param("native", marks=pytest.mark.skipif(
    not has_native(), reason="llvmlite, of the extra deepx-graph[native], is not installed"))]


@pytest.mark.parametrize("engine", ENGINES)
def test_twenty_runs_with_one_to_four_threads(engine: str) -> None:
    module, rng = dx.loads(PROGRAM), np.random.default_rng(0)
    inputs = [rng.standard_normal(s).astype(np.float32) for s in ((301, 403), (403, 201))]
    seen = set()
    for threads in (1, 2, 3, 4):
        f = dx.compile(module, engine=engine, threads=threads, deterministic=True)
        for _ in range(5):
            seen.add(b"".join(np.asarray(x).tobytes() for x in f(*inputs)))
    assert len(seen) == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("first", [0, *(pytest.param(k, marks=pytest.mark.conformance) for k in range(12, 204, 12))])
def test_random_programs_have_one_digest_whatever_the_threads(first: int, engine: str) -> None:
    """Graphs of many small operations, with loops and branches, and sums, maps and kernels large enough to be divided."""
    for seed in range(first, first + 12):
        rng = random.Random(seed)
        kinds = random_module(rng), random_module(rng, 20, control=False, shapes=LARGE), random_kernel(rng, large=True)
        module = kinds[seed % 3]
        inputs, seen = awkward_arguments(rng, module), dict[tuple[str, ...], int]()
        for threads in (1, 2, 3):
            f = dx.compile(module, engine=engine, threads=threads, deterministic=True)
            for _ in range(2):
                results = f(*inputs)
                outputs = results if isinstance(results, (tuple, list)) else (results,)
                seen.setdefault(tuple(digest(np.asarray(x)) for x in outputs), threads)
        assert len(seen) == 1, f"program {seed} gives other bits with {list(seen.values())} threads"


def test_processes_with_other_hashes_print_the_same_digest(tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM)
    said = set()
    for hashes, threads in (("1", "1"), ("2", "3")):
        command = [sys.executable, "-m", "deepx_graph", "run", str(path), "--random-inputs", "--digest", "--deterministic",
                   "--threads", threads]
        done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True)
        said.add(done.stdout)
    assert len(said) == 1 and all(len(line) >= 64 for line in said.pop().splitlines())


@pytest.mark.skipif(not has_native(), reason="llvmlite, of the extra deepx-graph[native], is not installed")
def test_processes_with_other_hashes_write_the_same_machine_code(tmp_path: Path) -> None:
    """Also of positions that depend on several axes around a loop of vectors."""
    path, x, y = tmp_path / "program.mlir", "tensor<5x3x4x64xi64>", "tensor<3x5x4x64xi64>"
    path.write_text(f"""func.func public @main(%x: {y}) -> {y} {{
  %i = stablehlo.iota dim = 0 : tensor<3840xi64>
  %p = stablehlo.reshape %i : (tensor<3840xi64>) -> {x}
  %t = stablehlo.transpose %p, dims = [1, 0, 2, 3] : ({x}) -> {y}
  %r = stablehlo.multiply %t, %x : {y}
  return %r : {y}
}}""")
    made = set()
    for hashes in ("1", "2", "3", "4"):
        command = [sys.executable, "-m", "deepx_graph", "build", str(path), "-o", str(tmp_path / "program.o")]
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, check=True)
        made.add((tmp_path / "program.o").read_bytes())
    assert len(made) == 1
