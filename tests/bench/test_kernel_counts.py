"""A gate on what kernels cost, in counts and not in time: the table that `make counts` writes is what is counted now.

A number that rises is a regression. One that falls belongs into the table: `make counts`, and the difference is part of the change.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from bench.engines import counts
from bench.libraries.ours import PROGRAMS
from tests.support.widths import narrower


def rows(table: str) -> list[str]:
    return [line for line in table.splitlines() if line.startswith("|")]


def tables() -> list[Any]:
    """Those of vectors narrower than the widest are many kernels to compile."""
    long = {f"native, {bits} bits" for bits in narrower()}
    return [pytest.param(h, marks=pytest.mark.conformance) if h in long else h for h in counts.TABLES]


@pytest.mark.parametrize("heading", tables())
def test_every_measured_program_costs_what_is_written_down(heading: str) -> None:
    if heading.startswith("native"):
        pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")
    known, found = rows(counts.known(heading)), rows(counts.table(heading))
    changed = [f"was {a}\nis  {b}" for a, b in zip(known, found, strict=False) if a != b]
    assert known == found, "\n".join(["look at these; if they are meant, `make counts`:", known[0], *changed])


def test_every_program_is_in_the_table() -> None:
    for heading in counts.TABLES:
        known = rows(counts.known(heading))[2:]
        assert [line.split("|")[1].strip() for line in known] == [
            ", ".join(p.name.split(".")[:2]) for p in sorted(PROGRAMS.glob("*.stablehlo"))]


def test_counts_of_a_known_program() -> None:
    """a*b + c - d*2 over 1000 floats: four kernels of three arrays each without fusion, one of five and two of scratch with it."""
    module = dx.load(PROGRAMS / "axpy.small.stablehlo")
    kernels, moved, *_, results, peak = counts.counts(dx.compile(module, engine="numexpr", optimize=False))
    assert (kernels, moved, results) == (4, 48_000, 4_000)
    assert peak >= 8_000
    fused = dx.compile(module, engine="numexpr")
    assert counts.counts(fused) == (1, 20_000, 0, 4_000, 3 * 4_000)


def test_what_a_call_allocates_is_counted() -> None:
    assert counts.allocated(lambda: np.empty(1 << 20, np.uint8)) == 1 << 20
    assert counts.allocated(lambda: np.empty(1000, np.uint8)) == 0
