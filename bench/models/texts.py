"""Programs of any length, for measuring, the same every time.

    python -m bench.models.texts 100000 deepx > big.dx       # or hlo, stablehlo

deepx is a realistic mixture, made from a seed, in the current wire form. Training-script style: every value has a `newtensor`
before it, some are updated in place, some deleted again; among the arithmetic there is work for every pass: repeated lines, neutral
scalars, dead values, constants. Random tensors have seed 0, which only a run fills in, so the program cannot be computed away.
HLO and StableHLO are a chain of layers as JAX prints them: products, broadcasts, reductions, slices, elementwise operations,
constants, with the lines of the user's program that they come from.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable

ROWS, WIDTH = 8, 16
LIVE = 24


class _Writer:
    """The lines so far, the names in use, and a source of chance."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.live: list[str] = []
        self._unread: list[str] = []
        self._count = 0

    def line(self, op: str, inputs: str, output: str, author: str = "author=miaobyte") -> None:
        self.lines.append(f"{op} ({inputs}) -> ({output}) // {author} created_at=1745000000.{len(self.lines):06d}")

    def new(self, *shape: int) -> str:
        name = f"t{self._count}"
        self._count += 1
        self.line("newtensor", f"vector<int32>:[{' '.join(map(str, shape))}]", f"tensor<float32>:{name}", "")
        return name

    def keep(self, name: str) -> None:
        """A value that later lines may read."""
        self.live.append(name)
        self._unread.append(name)

    def touch(self, name: str) -> None:
        """The value has changed, and nobody has read what it is now."""
        if name not in self._unread:
            self._unread.append(name)

    def pick(self) -> str:
        """A live value: one that nobody has read yet, or a young one. So nearly all values reach the end of the program."""
        if len(self._unread) > LIVE // 2 or (len(self._unread) > 4 and self.rng.random() < 0.5):
            return self._unread.pop(0)
        return self.live[-1 - min(len(self.live) - 1, int(self.rng.expovariate(0.25)))]

    def forget(self) -> None:
        """Deletes values that have been read, once there are many."""
        while len(self.live) > LIVE:
            name = next((n for n in self.live if n not in self._unread), None)
            if name is None:
                return
            self.live.remove(name)
            self.line("deltensor", "", tensor(name), "")


def tensor(name: str) -> str:
    return f"tensor<float32>:{name}"


def _binary(w: _Writer) -> None:
    x, y = w.pick(), w.pick()
    if w.rng.random() < 0.25:  # updated in place
        w.line(w.rng.choice(("add", "sub")), f"{tensor(x)}, {tensor(y)}", tensor(x))
        w.touch(x)
        return
    op, out = w.rng.choice(("add", "sub", "mul", "max", "min")), w.new(ROWS, WIDTH)
    w.line(op, f"{tensor(x)}, {tensor(y)}", tensor(out))
    if w.rng.random() < 0.1:  # the same again under another name
        again = w.new(ROWS, WIDTH)
        w.line(op, f"{tensor(x)}, {tensor(y)}", tensor(again))
        w.keep(again)
    w.keep(out)


def _scalar(w: _Writer) -> None:
    op, value = w.rng.choice((("mulscalar", "0.5"), ("addscalar", "0.25"), ("mulscalar", "1.0"), ("divscalar", "4.0")))
    x, out = w.pick(), w.new(ROWS, WIDTH)
    w.line(op, f"{tensor(x)}, var<float32>:{value}", tensor(out))
    w.keep(out)


def _unary(w: _Writer) -> None:
    x, out = w.pick(), w.new(ROWS, WIDTH)
    w.line(w.rng.choice(("sin", "cos")), tensor(x), tensor(out))
    w.keep(out)


def _sum(w: _Writer) -> None:
    x, total, out = w.pick(), w.new(ROWS, 1), w.new(ROWS, WIDTH)
    w.line("sum", f"{tensor(x)}, vector<int32>:[1], var<bool>:True", tensor(total))
    w.line("mulscalar", f"{tensor(total)}, var<float32>:{1 / WIDTH}", tensor(total))
    w.line("broadcastTo", f"{tensor(total)}, vector<int32>:[{ROWS} {WIDTH}]", tensor(out))
    w.line("deltensor", "", tensor(total), "")
    w.keep(out)


def _product(w: _Writer) -> None:
    weight, x, out = w.new(WIDTH, WIDTH), w.pick(), w.new(ROWS, WIDTH)
    w.line("uniform", "var<float32>:-0.1, var<float32>:0.1, var<int32>:0", tensor(weight))
    w.line("matmul", f"{tensor(x)}, {tensor(weight)}", tensor(out), "author=cblas")
    w.line("deltensor", "", tensor(weight), "")
    w.keep(out)


def _dead(w: _Writer) -> None:
    """Computed and thrown away."""
    x, out = w.pick(), w.new(ROWS, WIDTH)
    w.touch(x)
    w.line("mul", f"{tensor(x)}, {tensor(x)}", tensor(out))
    w.line("deltensor", "", tensor(out), "")


def _constant(w: _Writer) -> None:
    out = w.new(ROWS, WIDTH)
    w.line("constant", f"var<float32>:{w.rng.choice(('0.0', '1.0', '0.5', '2.0'))}", tensor(out))
    w.keep(out)


MIXTURE: tuple[tuple[Callable[[_Writer], None], float], ...] = (
    (_binary, 0.45), (_scalar, 0.2), (_unary, 0.1), (_sum, 0.1), (_product, 0.08), (_constant, 0.04), (_dead, 0.03),
)  # fmt: skip


def deepx(instructions: int, seed: int = 0) -> str:
    """A text of about that many instructions (never fewer, at most a few more)."""
    w = _Writer(seed)
    _inputs(w)
    makers, weights = zip(*MIXTURE, strict=True)
    while len(w.lines) < instructions:
        w.rng.choices(makers, weights)[0](w)
        w.forget()
    return "\n".join(w.lines) + "\n"


def _inputs(w: _Writer) -> None:
    for _ in range(4):
        name = w.new(ROWS, WIDTH)
        w.line("uniform", "var<float32>:-1.0, var<float32>:1.0, var<int32>:0", tensor(name))
        w.keep(name)


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


TEXTS: dict[str, Callable[[int], str]] = {"deepx": deepx, "hlo": hlo, "stablehlo": stablehlo}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("length", type=int, nargs="?", default=1000, help="instructions, about")
    parser.add_argument("format", choices=TEXTS, nargs="?", default="deepx")
    args = parser.parse_args()
    sys.stdout.write(TEXTS[args.format](args.length))


if __name__ == "__main__":
    main()
