"""Two programs that compute the same, both optimised and run by us: kernels, operations, bytes and the ratio of times, in Markdown.

    python -m bench.engines.pairs                                    # tail recursion beside a loop
    DEEPX_GRAPH_JAX_PYTHON=PYTHON python -m bench.engines.pairs      # and our gradient programs beside those that JAX lowers
    python -m bench.engines.pairs --texts FILE.json                  # the same, from the output of jax_models.py

Kernels and floating-point operations are counted as they run, loops iteration by iteration; times are medians of interleaved runs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: times of two programs on a busy machine

import numpy as np

import deepx_graph as dx
from bench.harness.markdown import markdown
from bench.harness.process import ROOT
from deepx_graph.analysis.work import flops
from deepx_graph.ir import Module
from deepx_graph.ir.structure import STRUCTURAL

ITERATIONS = 2000

RECURSIVE = """
def @go(%i: int32, %n: int32, %x: Tensor[(SIZE), float32]) -> Tensor[(SIZE), float32] {
  if (%i == %n) { %x } else { @go(%i + 1, %n, tanh(%x * 0.5f + 1f) * %x) }
}
def @main(%n: int32, %x: Tensor[(SIZE), float32]) { @go(0, %n, %x) }
"""
"""Relay."""

LOOP = """
HloModule loop

condition {
  p = (s32[], s32[], f32[SIZE]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  ROOT go = pred[] compare(i, n), direction=NE
}

body {
  p = (s32[], s32[], f32[SIZE]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  n = s32[] get-tuple-element(p), index=1
  x = f32[SIZE] get-tuple-element(p), index=2
  half = f32[] constant(0.5)
  halves = f32[SIZE] broadcast(half), dimensions={}
  product = f32[SIZE] multiply(x, halves)
  unit = f32[] constant(1)
  units = f32[SIZE] broadcast(unit), dimensions={}
  sum = f32[SIZE] add(product, units)
  t = f32[SIZE] tanh(sum)
  y = f32[SIZE] multiply(t, x)
  ROOT r = (s32[], s32[], f32[SIZE]) tuple(next, n, y)
}

ENTRY main {
  n = s32[] parameter(0)
  x = f32[SIZE] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], s32[], f32[SIZE]) tuple(zero, n, x)
  w = (s32[], s32[], f32[SIZE]) while(t), condition=condition, body=body
  ROOT out = f32[SIZE] get-tuple-element(w), index=2
}
"""


@dataclass(frozen=True)
class Pair:
    """Two optimised modules and the inputs of both."""

    name: str
    ours: Module
    other: Module
    args: tuple[Any, ...]


def recursion() -> Iterator[Pair]:
    """Tail recursion in Relay, and the same loop as an HLO while, over few and many elements."""
    for size in (1, 1000, 100_000):
        iterations = ITERATIONS if size <= 1000 else ITERATIONS // 20
        programs = [dx.optimize(dx.loads(text.replace("SIZE", str(size)))) for text in (RECURSIVE, LOOP)]
        args = np.int32(iterations), np.linspace(-1, 1, size, dtype=np.float32)
        yield Pair(f"recursion beside while: {iterations} iterations over {size}", programs[0], programs[1], args)


def gradients(texts: dict[str, dict[str, str]]) -> Iterator[Pair]:
    """The gradient that we make of a model, and the one that JAX lowers for it."""
    for name, model in texts.items():
        ours, jax = dx.optimize(dx.grad(dx.loads(model["forward"]))), dx.optimize(dx.loads(model["gradient"]))
        rng = np.random.default_rng(0)
        inputs = dx.compile(jax, optimize=False).inputs
        yield Pair(name, ours, jax, tuple(rng.standard_normal(p.type.shape).astype(p.type.dtype.np) * 0.3 for p in inputs))


def models(path: str | None) -> dict[str, dict[str, str]]:
    """The models' texts: of a file, or of the Python with JAX; none where neither is named."""
    if path is not None:
        return dict(json.loads(Path(path).read_text(encoding="utf-8")))
    if "DEEPX_GRAPH_JAX_PYTHON" not in os.environ:
        return {}
    script = ROOT / "bench" / "models" / "jax_models.py"
    done = subprocess.run([os.environ["DEEPX_GRAPH_JAX_PYTHON"], str(script)], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def counted(program: Module, args: tuple[Any, ...]) -> tuple[int, int]:
    """Kernels run and floating-point operations of one run."""
    f = dx.compile(program, engine="numpy", profile=True, optimize=False)  # others may run a whole loop as one kernel
    f(*args)
    assert f.profile is not None
    runs = [(node, calls) for node, (_, calls, _) in f.profile.seconds().items() if not node.op.view and node.op not in STRUCTURAL]
    return sum(c for _, c in runs), sum(c * flops(n) for n, c in runs)


def row(pair: Pair, repeat: int) -> list[str]:
    """Kernels, operations and bytes of both, and the ratio of times. Raises AssertionError when the results differ."""
    compiled = [dx.compile(p, optimize=False) for p in (pair.ours, pair.other)]
    for x, y in zip(compiled[0](*pair.args), compiled[1](*pair.args), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-3 * max(1e-3, float(np.abs(y).max())), err_msg=pair.name)
    times: list[list[float]] = [[], []]
    for number in range(repeat):
        for f, found in list(zip(compiled, times, strict=True))[:: 1 if number % 2 else -1]:
            start = time.perf_counter()
            f(*pair.args)
            found.append(time.perf_counter() - start)
    counts = [(*counted(p, pair.args), f.plan.peak_bytes) for p, f in zip((pair.ours, pair.other), compiled, strict=True)]
    cells = [f"{n:,}{' !' if who == 0 and n > counts[1][k] else ''}".replace(",", " ") for k in range(3)
             for who, n in enumerate((counts[0][k], counts[1][k]))]
    return [pair.name, *cells, f"{statistics.median(times[0]) / statistics.median(times[1]):.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts")
    parser.add_argument("--repeat", type=int, default=31)
    args = parser.parse_args()
    head = ["model", "kernels", "other", "operations", "other", "peak bytes", "other", "time / other"]
    pairs = (*recursion(), *gradients(models(args.texts)))
    print(markdown(head, (row(pair, args.repeat) for pair in pairs)))


if __name__ == "__main__":
    main()
