"""A gate on what kernels cost, in counts and not in time: the table that `make counts` writes is what is counted now.

A number that rises is a regression. One that falls belongs into the table: `make counts`, and the difference is part of the change.
"""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from bench import counts
from bench.ours import PROGRAMS


def lines(text: str, engine: str) -> list[str]:
    """The rows of an engine's table."""
    _, _, rest = text.partition(f"## {engine}\n")
    return [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("|")]


@pytest.mark.parametrize("engine", counts.ENGINES)
def test_every_measured_program_costs_what_is_written_down(engine: str) -> None:
    if engine == "native":
        target = pytest.importorskip("deepx_graph.runtime.native.target")
        if target.this_machine().register_bytes != 64:
            pytest.skip("the counts of native kernels are those of a machine with AVX-512")
    known = lines(counts.GOLDEN.read_text(encoding="utf-8"), engine)
    found = lines(counts.table(engine), engine)
    changed = [f"was {a}\nis  {b}" for a, b in zip(known, found, strict=False) if a != b]
    assert known == found, "\n".join(["look at these; if they are meant, `make counts`:", known[0], *changed])


def test_every_program_is_in_the_table() -> None:
    known = lines(counts.GOLDEN.read_text(encoding="utf-8"), "numexpr")[2:]
    assert [line.split("|")[1].strip() for line in known] == [
        ", ".join(p.name.split(".")[:2]) for p in sorted(PROGRAMS.glob("*.stablehlo"))]


def test_counts_of_a_known_program() -> None:
    """a*b + c - d*2 over 1000 floats: four kernels of three arrays each without fusion, one of five with it."""
    module = dx.load(PROGRAMS / "axpy.small.stablehlo")
    kernels, moved, *_, results, peak = counts.counts(dx.compile(module, engine="numexpr"))
    assert (kernels, moved, results) == (4, 48_000, 4_000)
    assert peak >= 8_000
    assert counts.counts(dx.compile(dx.optimize(module), engine="numexpr")) == (1, 20_000, 0, 0, 4_000, 4_000)


def test_what_a_call_allocates_is_counted() -> None:
    assert counts.allocated(lambda: np.empty(1 << 20, np.uint8)) == 1 << 20
    assert counts.allocated(lambda: np.empty(1000, np.uint8)) == 0
