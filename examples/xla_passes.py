"""XLA's passes checked from outside: `python examples/xla_passes.py [--random N] [--seed S] [PROGRAM ...]` prints a table.

Each program is compiled by jaxlib in a child process (the Python that DEEPX_GRAPH_JAX_PYTHON names, else this one), which dumps it
after every pass; every stage is run by the reference engine on inputs at the edges of types. Programs are the given files, some
that are known to be miscompiled by some versions of XLA, and random programs of operations that move elements
(`deepx_graph.session.fuzzing.index_programs.py`). Many programs share a child process.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError
from deepx_graph.session.diagnose.bisection import Inputs, bisect_case
from deepx_graph.session.diagnose.xla import XlaCase, run_cases
from deepx_graph.session.fuzzing.index_programs import index_program

BATCH = 50
"""Programs of one child process."""

KNOWN = {
    "slice of a slice, out of range": """func.func @main(%x: tensor<8xi32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<3xi32> {
  %0 = stablehlo.dynamic_slice %x, %i, sizes = [6] : (tensor<8xi32>, tensor<i32>) -> tensor<6xi32>
  %1 = stablehlo.dynamic_slice %0, %j, sizes = [3] : (tensor<6xi32>, tensor<i32>) -> tensor<3xi32>
  return %1 : tensor<3xi32>
}""",
    "log(exp(x))": """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.exponential %x : tensor<2xf32>
  %1 = stablehlo.log %0 : tensor<2xf32>
  return %1 : tensor<2xf32>
}""",
    "sqrt(x * x)": """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.multiply %x, %x : tensor<2xf32>
  %1 = stablehlo.sqrt %0 : tensor<2xf32>
  return %1 : tensor<2xf32>
}""",
}
"""Programs that issues of XLA report."""

def programs(arguments: argparse.Namespace) -> Iterator[tuple[str, dx.Module]]:
    """What is checked, by name."""
    for name, text in KNOWN.items():
        yield name, dx.loads(text)
    for seed in range(arguments.seed, arguments.seed + arguments.random):
        yield f"random {seed}", index_program(seed, whole_windows=True).module
    for path in arguments.program:
        yield path, dx.load(path)


def examined(batch: dict[str, dx.Module], inputs: Inputs) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """What is found of each program of a batch, as plain data, or why it cannot be examined."""
    with tempfile.TemporaryDirectory(prefix="xla-passes-") as folder:
        cases, drawn = dict[str, XlaCase](), dict[str, Inputs]()
        for name, module in batch.items():
            try:
                drawn[name] = inputs.that_end(module)
                cases[name] = XlaCase(module, drawn[name](module))
            except DeepxGraphError as e:
                yield name, str(e)
        places = {name: Path(folder, str(k)) for k, name in enumerate(cases)}
        run_cases({places[name]: case for name, case in cases.items()}, timeout=BATCH * 60)
        for name, case in cases.items():
            try:
                yield name, bisect_case(case, places[name], drawn[name]).to_json()
            except DeepxGraphError as e:
                yield name, str(e)


def count(counts: Counter[str], name: str, found: dict[str, Any] | str) -> None:
    """Adds what was found to the figures, and prints a row where something differs or is left out."""
    if isinstance(found, str):
        counts["refused"] += 1
        print(f"| {name} | | {found.splitlines()[0]} | |", flush=True)
        return
    counts["programs"] += 1
    counts["stages"] += found["stages"]
    counts["evaluated"] += found["evaluated"]
    counts[found["kind"] or "right"] += 1
    stages = f"{found['evaluated']} of {found['stages']}"
    if found["found"]:
        print(f"| {name} | {stages} | {found['kind']} | {found['pass'] or 'none'} |", flush=True)
    elif found["skipped"]:
        print(f"| {name} | {stages} | left out: {found['skipped'][0]['reason']} | |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="*")
    parser.add_argument("--random", type=int, default=20, metavar="N", help="random programs")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the first of them")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    print("| program | stages evaluated | what differs | after pass |\n|---|---|---|---|")
    rest = programs(arguments)
    while batch := dict(islice(rest, BATCH)):
        for name, found in examined(batch, Inputs(seed=arguments.seed)):
            count(counts, name, found)
    print("\n" + ", ".join(f"{what}: {n}" for what, n in counts.items()))


if __name__ == "__main__":
    main()
