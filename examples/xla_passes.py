"""XLA's passes checked from outside: `python examples/xla_passes.py [--random N] [--seed S] [PROGRAM ...]` prints a table.

Each program is compiled by jaxlib in a child process (the Python that DEEPX_GRAPH_JAX_PYTHON names, else this one), which dumps it
after every pass; every stage is run by the reference engine on inputs at the edges of types. Programs are the given files, some
that are known to be miscompiled by some versions of XLA, and random programs of operations that move elements.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError
from deepx_graph.session.diagnose.bisection import Inputs, bisect_xla

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

SIZE = 8


def random_moves(rng: random.Random) -> str:
    """A program of slices at computed places, reversals and pads of a vector, in StableHLO."""
    lines, size, value = list[str](), SIZE, "%x"
    for k in range(rng.randint(2, 4)):
        now, kind = f"%{k}", rng.choice(("slice", "slice", "reverse", "pad"))
        old = f"tensor<{size}xi32>"
        if kind == "slice" and size > 1:
            size = rng.randint(1, size - 1)
            lines.append(f"{now} = stablehlo.dynamic_slice {value}, %{rng.choice('ij')}, sizes = [{size}] : "
                         f"({old}, tensor<i32>) -> tensor<{size}xi32>")
        elif kind == "pad":
            low, high = rng.randint(-1, 2), rng.randint(0, 2)
            size = max(1, size + low + high) if size + low + high > 0 else size
            low, high = (low, high) if f"tensor<{size}xi32>" != old or not low + high else (0, 0)
            lines.append(f"{now} = stablehlo.pad {value}, %z, low = [{low}], high = [{high}], interior = [0] : "
                         f"({old}, tensor<i32>) -> tensor<{size}xi32>")
        else:
            lines.append(f"{now} = stablehlo.reverse {value}, dims = [0] : {old}")
        value = now
    body = "\n  ".join(["%z = stablehlo.constant dense<7> : tensor<i32>", *lines])
    return (f"func.func @main(%x: tensor<{SIZE}xi32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<{size}xi32> {{\n  {body}\n"
            f"  return {value} : tensor<{size}xi32>\n}}")


def programs(arguments: argparse.Namespace) -> Iterator[tuple[str, dx.Module]]:
    """What is checked, by name."""
    for name, text in KNOWN.items():
        yield name, dx.loads(text)
    for k in range(arguments.random):
        yield f"random {k}", dx.loads(random_moves(random.Random(arguments.seed + k)))
    for path in arguments.program:
        yield path, dx.load(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="*")
    parser.add_argument("--random", type=int, default=20, metavar="N", help="random programs")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the first of them")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    print("| program | stages evaluated | what differs | after pass |\n|---|---|---|---|")
    for name, module in programs(arguments):
        try:
            found = bisect_xla(module, Inputs(seed=arguments.seed)).to_json()
        except DeepxGraphError as e:
            counts["refused"] += 1
            print(f"| {name} | | {str(e).splitlines()[0]} | |")
            continue
        counts["programs"] += 1
        counts["stages"] += found["stages"]
        counts["evaluated"] += found["evaluated"]
        counts[found["kind"] or "right"] += 1
        if found["found"]:
            stages = f"{found['evaluated']} of {found['stages']}"
            print(f"| {name} | {stages} | {found['kind']} | {found['pass'] or 'none'} |", flush=True)
    print("\n" + ", ".join(f"{what}: {n}" for what, n in counts.items()))


if __name__ == "__main__":
    main()
