"""A recursive function beside the same loop written as an HLO while, both optimised and run by us: the ratio of their times.

    python bench/recursion.py [--turns N] [--rounds N]

Tail recursion in Relay, over a vector and a counter; the two results are compared first, and rounds are interleaved. Exit code 1
when the recursive form takes more than 1.2 times as long.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import numpy as np

import deepx_graph as dx

BOUND = 1.2

RECURSIVE = """
def @go(%i: int32, %n: int32, %x: Tensor[(SIZE), float32]) -> Tensor[(SIZE), float32] {
  if (%i == %n) { %x } else { @go(%i + 1, %n, tanh(%x * 0.5f + 1f) * %x) }
}
def @main(%n: int32, %x: Tensor[(SIZE), float32]) { @go(0, %n, %x) }
"""

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


def seconds(f: Any, args: tuple[Any, ...]) -> float:
    start = time.perf_counter()
    f(*args)
    return time.perf_counter() - start


def measured(size: int, turns: int, rounds: int) -> tuple[float, float, float]:
    """Median seconds of the recursive form, of the loop, and the median of their ratios, round by round."""
    recursive, loop = (dx.compile(dx.optimize(dx.loads(t.replace("SIZE", str(size))))) for t in (RECURSIVE, LOOP))
    args = np.int32(turns), np.linspace(-1, 1, size, dtype=np.float32)
    np.testing.assert_allclose(recursive(*args)[0], loop(*args)[0], rtol=1e-6)
    pairs = []
    for k in range(rounds):
        order = (recursive, loop) if k % 2 == 0 else (loop, recursive)
        times = [seconds(f, args) for f in order]
        pairs.append((times[0], times[1]) if k % 2 == 0 else (times[1], times[0]))
    firsts, seconds_ = zip(*pairs, strict=True)
    return statistics.median(firsts), statistics.median(seconds_), statistics.median(a / b for a, b in pairs)


def report(turns: int, rounds: int) -> bool:
    """Prints a row for each size; whether every ratio is within the bound."""
    print("| elements | turns | recursive | HLO while | ratio |\n|---|---|---|---|---|")
    good = True
    for size in (1, 1000, 100_000):
        count = turns if size <= 1000 else turns // 20
        a, b, ratio = measured(size, count, rounds)
        good &= ratio <= BOUND
        print(f"| {size} | {count} | {a * 1e3:.1f} ms | {b * 1e3:.1f} ms | {ratio:.2f} |", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    return 0 if report(given.turns, given.rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
