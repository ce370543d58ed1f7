"""Processor seconds to read HLO and StableHLO text against its length, and to write it again.

    python bench/reading.py [--lengths 10000,100000] [--rounds 3]

The text is a chain of layers as JAX prints them: products, broadcasts, reductions, slices, elementwise operations, constants, with
the lines of the user's program that they come from. Prints a markdown table. Exit code 1 when 100 000 instructions of HLO take more
than 8 s to read, or 10 times the length takes more than 14 times as long.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from deepx_graph.errors import Source
from deepx_graph.text import ReadOptions, read, write

MOST_SECONDS, MOST_RATIO = 8.0, 14.0

_HLO = (
    "  c.{k} = f32[] constant({k})\n"
    "  b.{k} = f32[64]{{0}} broadcast(c.{k}), dimensions={{}}, metadata={{op_name=\"jit(f)/layer_{m}/mul\" stack_frame_id={m}}}\n"
    "  m.{k} = f32[64]{{0}} multiply({x}, b.{k}), metadata={{op_name=\"jit(f)/{m}/mul\" source_file=\"m.py\" source_line={m}}}\n"
    "  s.{k} = f32[32]{{0}} slice(m.{k}), slice={{[0:64:2]}}, metadata={{op_name=\"jit(f)/layer_{m}/slice\" stack_frame_id={m}}}\n"
    "  d.{k} = f32[64]{{0}} dot(s.{k}, w), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}\n"
    "  t.{k} = f32[64]{{0}} tanh(d.{k}), metadata={{op_name=\"jit(f)/layer_{m}/tanh\" source_file=\"model.py\" source_line={m}}}\n"
    "  r.{k} = f32[] reduce(t.{k}, zero), dimensions={{0}}, to_apply=sum, metadata={{op_name=\"jit(f)/layer_{m}/sum\"}}\n"
    "  e.{k} = f32[64]{{0}} broadcast(r.{k}), dimensions={{}}\n"
    "  x.{k} = f32[64]{{0}} add(t.{k}, e.{k}), metadata={{op_name=\"jit(f)/layer_{m}/add\" stack_frame_id={m}}}\n"
)
_V, _W, _S, _F = "tensor<64xf32>", "tensor<32x64xf32>", "tensor<32xf32>", "tensor<f32>"
_STABLEHLO = "".join(f"    {line} loc(#loc{{m}})\n" for line in (
    f"%c{{k}} = stablehlo.constant dense<{{k}}.0> : {_F}",
    f"%b{{k}} = stablehlo.broadcast_in_dim %c{{k}}, dims = [] : ({_F}) -> {_V}",
    f"%m{{k}} = stablehlo.multiply {{x}}, %b{{k}} : {_V}",
    f"%s{{k}} = stablehlo.slice %m{{k}} [0:64:2] : ({_V}) -> {_S}",
    f"%d{{k}} = stablehlo.dot_general %s{{k}}, %w, contracting_dims = [0] x [0] : ({_S}, {_W}) -> {_V}",
    f"%t{{k}} = stablehlo.tanh %d{{k}} : {_V}",
    f"%r{{k}} = stablehlo.reduce(%t{{k}} init: %z) applies stablehlo.add across dimensions = [0] : ({_V}, {_F}) -> {_F}",
    f"%e{{k}} = stablehlo.broadcast_in_dim %r{{k}}, dims = [] : ({_F}) -> {_V}",
    f"%x{{k}} = stablehlo.add %t{{k}}, %e{{k}} : {_V}",
))  # fmt: skip
LAYER = 9
"""Instructions of a layer."""


def layers(form: str, count: int, value: str) -> str:
    """As many layers as make so many instructions, each on the value of the one before."""
    return "".join(form.format(k=k, m=k % 50 + 1, x=f"{value}{k - 1}" if k else value.rstrip(".")) for k in range(count // LAYER))


def hlo(count: int) -> str:
    """A program of about so many instructions."""
    rows = range(1, 51)
    tables = ("FileNames\n1 \"model.py\"\n", "FunctionNames\n1 \"f\"\n",
              "FileLocations\n" + "".join(f"{k} {{file_name_id=1 function_name_id=1 line={k} column=1}}\n" for k in rows),
              "StackFrames\n" + "".join(f"{k} {{file_location_id={k} parent_frame_id=1}}\n" for k in rows))
    return "\n".join((
        "HloModule big\n", *tables, "sum {", "  a = f32[] parameter(0)", "  b = f32[] parameter(1)", "  ROOT s = f32[] add(a, b)",
        "}\n", "ENTRY main {", "  x = f32[64]{0} parameter(0)", "  w = f32[32,64]{1,0} parameter(1)", "  zero = f32[] constant(0)",
        layers(_HLO, count, "x.") + f"  ROOT end = f32[64]{{0}} negate(x.{count // LAYER - 1})", "}", ""))


def stablehlo(count: int) -> str:
    """The same program as StableHLO."""
    places = "".join(f'#loc{m} = loc("jit(f)/layer"("model.py":{m}:4))\n' for m in range(1, 51))
    return "\n".join((
        places + "module @big {", f"  func.func public @main(%x: {_V}, %w: {_W}) -> {_V} {{",
        f"    %z = stablehlo.constant dense<0.0> : {_F}",
        layers(_STABLEHLO, count, "%x") + f"    return %x{count // LAYER - 1} : {_V}", "  }", "}", ""))


TEXTS: dict[str, Callable[[int], str]] = {"hlo": hlo, "stablehlo": stablehlo}


def seconds(format: str, text: str) -> tuple[float, float]:
    """To read the text, and to write it."""
    start = time.process_time()
    module = read(Source("bench", text), format, ReadOptions()).module
    done = time.process_time()
    write(module, format)
    return done - start, time.process_time() - done


def report(lengths: list[int], rounds: int) -> bool:
    """Prints the table; whether all is within bounds."""
    print("| format | instructions | read, s | against the shortest | write, s |\n|---|---|---|---|---|")
    good = True
    for format, text in TEXTS.items():
        first = 0.0
        for length in lengths:
            reading, writing = (min(t) for t in zip(*(seconds(format, text(length)) for _ in range(rounds)), strict=True))
            first = first or reading
            print(f"| {format} | {length:,} | {reading:.2f} | {reading / first:.1f} | {writing:.2f} |", flush=True)
            good &= format != "hlo" or length != 100_000 or reading <= MOST_SECONDS
            good &= reading / first <= MOST_RATIO * length / lengths[0] / 10 or length == lengths[0]
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lengths", default="10000,100000")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    return 0 if report([int(n) for n in args.lengths.split(",")], args.rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
