"""Our gradient programs beside those that JAX lowers for the same models, both optimised and run by us: a table in Markdown.

    python -m bench.gradients [--texts FILE.json] [--repeat N]

The texts come from `jax_models.py`, run by the Python that DEEPX_GRAPH_JAX_PYTHON names, or from a file with its output.
Kernels, floating-point operations and peak bytes are counted, loops turn by turn; times are medians of runs that take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: times of two programs on a busy machine

import numpy as np

import deepx_graph as dx
from deepx_graph.ir import Module
from deepx_graph.ir.structure import STRUCTURAL
from deepx_graph.runtime.cost_counts import flops


def measured(program: Module, args: Sequence[Any]) -> tuple[int, int]:
    """Kernels run and floating-point operations of one run."""
    f = dx.compile(program, profile=True)
    f(*args)
    assert f.profile is not None
    runs = [(node, calls) for node, (_, calls, _) in f.profile.seconds().items() if not node.op.view and node.op not in STRUCTURAL]
    return sum(c for _, c in runs), sum(c * flops(n) for n, c in runs)


def texts(path: str | None) -> dict[str, dict[str, str]]:
    """The models' texts."""
    if path is None:
        script = Path(__file__).with_name("jax_models.py")
        done = subprocess.run([os.environ["DEEPX_GRAPH_JAX_PYTHON"], str(script)], capture_output=True, text=True, check=True)
        return dict(json.loads(done.stdout))
    return dict(json.loads(Path(path).read_text()))


def row(name: str, model: dict[str, str], repeat: int) -> list[Any]:
    """Kernels, operations and bytes of ours and JAX's, and the ratio of times."""
    programs = [dx.optimize(dx.grad(dx.loads(model["forward"]))), dx.optimize(dx.loads(model["gradient"]))]
    compiled = [dx.compile(p) for p in programs]
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(p.type.shape).astype(p.type.dtype.np) * 0.3 for p in compiled[1].inputs]
    for x, y in zip(compiled[0](*args), compiled[1](*args), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-3 * max(1e-3, float(np.abs(y).max())), err_msg=name)
    times: list[list[float]] = [[], []]
    for _ in range(repeat):
        for f, found in zip(compiled, times, strict=True):
            start = time.perf_counter()
            f(*args)
            found.append(time.perf_counter() - start)
    ratio = statistics.median(times[0]) / statistics.median(times[1])
    counts = [measured(p, args) for p in programs]
    peaks = [f.plan.peak_bytes for f in compiled]
    return [name, *(c[0] for c in counts), *(c[1] for c in counts), *peaks, ratio]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts")
    parser.add_argument("--repeat", type=int, default=31)
    args = parser.parse_args()
    print("| model | kernels | JAX | operations | JAX | peak bytes | JAX | time, ours / JAX |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, model in texts(args.texts).items():
        cells = row(name, model, args.repeat)
        worse = [" !" if a > b else "" for a, b in zip(cells[1:7:2], cells[2:7:2], strict=True)]
        numbers = (f"{a:,}{w} | {b:,}".replace(",", " ") for a, b, w in zip(cells[1:7:2], cells[2:7:2], worse, strict=True))
        print(f"| {cells[0]} | {' | '.join(numbers)} | {cells[7]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
