"""What deepx_graph does, in one minute: `make demo`.

Prices options, a program that fusion makes much faster. Then reads examples/transformer_block.dx, optimises it, differentiates it,
runs all of it against the plain numpy reference, and draws every stage into out/. What it says of speed it has measured just then.
It is also an example of the library in use.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import deepx_graph as dx
from deepx_graph.errors import sized
from deepx_graph.runtime.engines import WITHOUT_NATIVE, has_native
from deepx_graph.session.report.info import module_info
from deepx_graph.types import TensorType

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "out"
ROUNDS, SECONDS = 31, 3.0
"""Calls of each program that are timed, or fewer when so much time is over."""

Arrays = tuple[np.ndarray[Any, Any], ...]


def main() -> None:
    """The whole demonstration."""
    OUT.mkdir(exist_ok=True)
    if not has_native():
        print(f"note: {WITHOUT_NATIVE}")
    options()
    print("2. read        examples/transformer_block.dx")
    program = dx.load(HERE / "transformer_block.dx")
    print(f"               {len(program.functions)} functions of deepx IR; enters {program.entry.name}")
    inputs = make_inputs(program)

    plain = dx.optimize(program, "inline,dce")
    best = dx.optimize(program)
    print("3. optimise    inlined, simplified, fused")
    table(plain, best)

    gradient = dx.grad(program)
    best_gradient = dx.optimize(gradient)
    print("4. differentiate   a gradient for each of the", len(gradient.entry.results), "inputs, as a graph like any other")
    table(gradient, best_gradient)

    print(f"5. run         {SIDES}")
    compare("forward", plain, best, inputs)
    cotangents = {name: np.ones(type.shape, type.dtype.np) for name, type in inputs_of(gradient) if name not in inputs}
    compare("gradient", gradient, best_gradient, inputs | cotangents)
    check_gradient(best, best_gradient, inputs | cotangents)

    print("6. draw        open these in a browser")
    for name, module in (("1_read", program), ("2_optimised", best), ("3_gradient", best_gradient)):
        draw(module, OUT / f"transformer_{name}.svg")
    (OUT / "transformer_optimised.dx").write_text(dx.dumps(best, "deepx", dialect="function"))
    print(f"               {shown(OUT / 'transformer_optimised.dx')}   the optimised program, as deepx IR again")


ENGINES = ("numexpr", "native") if has_native() else ("numexpr",)
SIDES = "as it was read on the numpy reference, against optimised on the other engines"


def options() -> None:
    """Elementwise work on much data: as many passes over memory as operations, until it is one kernel."""
    program = dx.load(HERE / "black_scholes.mlir")
    best = dx.optimize(program)
    print("1. fuse        examples/black_scholes.mlir, a million options:", SIDES)
    table(program, best)
    rng = np.random.default_rng(0)
    ranges = {"spot": (50, 150), "strike": (50, 150), "years": (0.1, 2), "volatility": (0.1, 0.5)}
    inputs = {name: rng.uniform(*ends, 1_000_000).astype(np.float32) for name, ends in ranges.items()}
    compare("prices", program, best, inputs)


def make_inputs(program: dx.Module) -> dict[str, np.ndarray[Any, Any]]:
    """Random inputs of a sensible size: weights shrink with the width they sum over."""
    rng = np.random.default_rng(0)
    made = {}
    for name, type in inputs_of(program):
        scale = 1.0 if name == "x" or len(type.shape) < 2 else type.shape[0] ** -0.5
        made[name] = (rng.standard_normal(type.shape) * scale).astype(np.float32)
    return made


def inputs_of(module: dx.Module) -> list[tuple[str, TensorType]]:
    """Name and type of every input."""
    return [(p.name, p.type) for p in dx.compile(module, optimize=False).inputs if isinstance(p.type, TensorType)]


def table(before: dx.Module, after: dx.Module) -> None:
    """How much smaller the entry became, and what is in memory at the peak on the engine that runs each."""
    old, new = (next(f for f in module_info(m).functions if f.name == m.entry_name) for m in (before, after))
    rows: Sequence[tuple[str, int | None, int | None]] = (
        ("nodes", old.nodes, new.nodes), ("kernels", old.kernels, new.kernels),
        ("bytes moved", old.bytes_moved, new.bytes_moved),
    )  # fmt: skip
    for name, a, b in rows:
        if a and b:
            row(name, f"{a:,}", f"{b:,}", changed(a, b, "less", "more"))
    was, now = (dx.compile(m, engine=engine, optimize=False).plan for m, engine in ((before, "numpy"), (after, "auto")))
    values = (was.value_bytes, now.value_bytes)
    row("values in memory", *map(sized, values), changed(*values, "less", "more"))
    row("scratch memory", *(sized(plan.peak_bytes - plan.value_bytes) for plan in (was, now)), "beside the values, at the peak")


def row(name: str, before: str, after: str, words: str) -> None:
    """One line of a table."""
    print(f"               {name:<18}{before:>13} -> {after:>11}   {words}")


def compare(what: str, plain: dx.Module, best: dx.Module, inputs: Mapping[str, Any]) -> None:
    """Runs all by turns, compares their results, and prints the median times: a line for each fast engine."""
    slow = dx.compile(plain, engine="numpy", optimize=False)
    fast = [dx.compile(best, engine=name, optimize=False) for name in ENGINES]
    expected = slow(**inputs)
    worst = [max(float(np.max(np.abs(e - x)) / np.max(np.abs(e))) for e, x in zip(expected, f(**inputs), strict=True))
             for f in fast]
    assert max(worst) < 1e-4, f"the optimised {what} differs by {max(worst):.1e}"
    times: list[list[float]] = [[] for _ in (slow, *fast)]
    end = time.perf_counter() + SECONDS
    while len(times[0]) < ROUNDS and (len(times[0]) < 3 or time.perf_counter() < end):
        for f, spent in zip((slow, *fast), times, strict=True):
            spent.append(timed(f, inputs))
    a, *others = map(statistics.median, times)
    for name, b, error in zip(ENGINES, others, worst, strict=True):
        found = f"{name}: {changed(a, b, 'faster', 'slower')} (medians of {len(times[0])})"
        print(f"               {what:<10}{a * 1e3:>8.2f} ms -> {b * 1e3:>7.2f} ms   {found};"
              f" values {f'agree to {error:.0e}' if error else 'are the same'}")


def changed(before: float, after: float, better: str, worse: str) -> str:
    """How much smaller the second is, or larger, in words."""
    found = f"{before / after:.1f} times {better}" if before >= after else f"{after / before:.1f} times {worse}"
    return "about the same" if found.startswith("1.0 ") else found


def timed(f: Callable[..., Arrays], inputs: Mapping[str, Any]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    f(**inputs)
    return time.perf_counter() - start


def check_gradient(program: dx.Module, gradient: dx.Module, inputs: Mapping[str, Any]) -> None:
    """The gradient along a random direction against the slope measured by two runs of the program itself."""
    rng = np.random.default_rng(1)
    f = dx.compile(program, optimize=False)
    names = [p.name for p in f.inputs]
    direction = {n: rng.standard_normal(inputs[n].shape).astype(np.float32) * 1e-2 for n in names}
    slope = sum(float(np.sum(g * direction[n])) for n, g in zip(names, dx.compile(gradient, optimize=False)(**inputs), strict=True))
    ahead, behind = (f(**{n: inputs[n] + sign * 0.1 * direction[n] for n in names})[0] for sign in (1, -1))
    measured = float(np.sum(ahead.astype(np.float64) - behind)) / 0.2
    assert abs(slope - measured) < 2e-2 * abs(measured) + 1e-2, f"slope {slope}, measured {measured}"
    print(f"               slope along a random direction: gradient {slope:.4f}, finite difference {measured:.4f}")


def draw(module: dx.Module, path: Path) -> None:
    """Draws a module, and says what the picture leaves out."""
    notes = dx.draw(module, path).notes
    print(f"               {shown(path)}{'   ' + '; '.join(notes) if notes else ''}")


def shown(path: Path) -> str:
    """The path as one would type it here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    main()
