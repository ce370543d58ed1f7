"""How the processor time of the optimiser grows with a program, for graphs of five shapes.

    python -m bench.scaling.growth [--lengths 10000,30000,100000] [--shapes chain,line,fan,random,layered] [--command opt]

The programs are HLO: a chain of layers, a line of elementwise operations, one value that half of the instructions read, operands
drawn from all earlier values, and layers whose values read two of the layer before. One child process runs the command; its
processor time and peak memory are printed with the exponent, the slope of the logarithms between the shortest and the longest,
without the time to start. Exit code 1 when an exponent is above 1.1. Short programs cost little beside the start: the slope means
something from some 10 000 instructions on.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.harness.markdown import markdown
from bench.harness.process import ROOT
from bench.models.texts import hlo

MOST_EXPONENT = 1.1
WIDTH = 100
"""Values of a layer."""


def _program(lines: list[str], last: str) -> str:
    head = ["HloModule big", "", "ENTRY main {", "  x = f32[8,8]{1,0} parameter(0)", "  w = f32[8,8]{1,0} parameter(1)"]
    return "\n".join([*head, *lines, f"  ROOT end = f32[8,8]{{1,0}} negate({last})", "}", ""])


def _operation(k: int, a: str, b: str) -> str:
    """Instruction `v.k`, of the kind that its number says."""
    if k % 10 == 0:
        return f"  v.{k} = f32[8,8]{{1,0}} dot({a}, {b}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    kind = ("add", "multiply", "maximum", "subtract")[k % 4]
    return f"  v.{k} = f32[8,8]{{1,0}} {kind}({a}, {b})" if k % 3 else f"  v.{k} = f32[8,8]{{1,0}} tanh({a})"


def line(count: int) -> str:
    """Elementwise operations, each of the value before."""
    kinds = ("tanh", "negate", "cosine", "sine")
    lines = [f"  v.{k} = f32[8,8]{{1,0}} {kinds[k % 4]}({f'v.{k - 1}' if k else 'x'})" for k in range(count)]
    return _program(lines, f"v.{count - 1}")


def fan(count: int) -> str:
    """Half of the instructions read one value; the others add them up, pair by pair."""
    half = count // 2
    lines = [f"  v.{k} = f32[8,8]{{1,0}} {('tanh', 'cosine', 'sine')[k % 3]}({'x' if k == 0 else 'v.0'})" if k < 3 else
             f"  v.{k} = f32[8,8]{{1,0}} multiply(v.0, v.{k - 1 - (k % 2)})" for k in range(half)]
    level = [f"v.{k}" for k in range(half)]
    at = half
    while len(level) > 1:
        after = []
        for a, b in zip(level[::2], level[1::2], strict=False):
            lines.append(f"  v.{at} = f32[8,8]{{1,0}} add({a}, {b})")
            after.append(f"v.{at}")
            at += 1
        level = after + level[len(level) & ~1 :]
    return _program(lines, level[0])


def scattered(count: int) -> str:
    """Each instruction reads two of all earlier values."""
    rng, names = random.Random(0), ["x", "w"]
    lines = []
    for k in range(count):
        lines.append(_operation(k, names[-1] if rng.random() < 0.5 else rng.choice(names), rng.choice(names)))
        names.append(f"v.{k}")
    return _program(lines, names[-1])


def layered(count: int) -> str:
    """Layers of `WIDTH` values, each of two values of the layer before."""
    rng, before = random.Random(0), ["x", "w"]
    lines, layer = [], []
    for k in range(count):
        lines.append(_operation(k, rng.choice(before), rng.choice(before)))
        layer.append(f"v.{k}")
        if len(layer) == WIDTH:
            before, layer = layer, []
    return _program(lines, f"v.{count - 1}")


SHAPES: dict[str, Callable[[int], str]] = {"chain": hlo, "line": line, "fan": fan, "random": scattered, "layered": layered}


def measured(command: str, path: Path, environment: dict[str, str]) -> tuple[float, int]:
    """Processor seconds and peak bytes of a child process. Raises RuntimeError when it fails."""
    output = ["-o", os.devnull] if command == "opt" else []
    arguments = [sys.executable, "-m", "deepx_graph", command, str(path), *output]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, cwd=ROOT, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} {path}: exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def exponent(seconds: dict[int, float], start: float) -> float:
    """The slope of log time over log length, without the time to start."""
    short, long = min(seconds), max(seconds)
    return math.log((seconds[long] - start) / max(seconds[short] - start, 1e-3)) / math.log(long / short)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="10000,30000,100000", help="program lengths, separated by commas")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--command", default="opt", choices=("opt", "info"))
    options = parser.parse_args()
    lengths = [int(n) for n in options.lengths.split(",")]
    if len(set(lengths)) < 2:
        parser.error("an exponent needs two lengths: --lengths 10000,30000")
    rows, worst = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.hlo"
        path.write_text(_program([], "x"))
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}  # compiled once, as where the package is installed
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        start, _ = min(measured(options.command, path, environment) for _ in range(2))
        for shape in options.shapes.split(","):
            seconds: dict[int, float] = {}
            for n in lengths:
                path.write_text(SHAPES[shape](n))
                cache = os.path.join(folder, f"{shape}{n}")  # empty: kernels of another run would not be compiled
                seconds[n], peak = measured(options.command, path, environment | {"DEEPX_GRAPH_CACHE": cache})
            slope = exponent(seconds, start)
            worst = max(worst, slope)
            rows.append([shape, *(f"{seconds[n]:.1f}" for n in lengths), f"{peak / 1e6:.0f}", f"{slope:.2f}"])
            print(rows[-1], file=sys.stderr)
    print(markdown(["shape", *(f"{n:,}, s" for n in lengths), "peak MB", "exponent"], rows))
    return 0 if worst <= MOST_EXPONENT else 1


if __name__ == "__main__":
    sys.exit(main())
