"""A gate on what kernels cost, in counts and not in time: kernels, bytes moved and peak memory of the measured programs.

The numbers are those of the optimiser and the plan at the time of writing; a change that raises one of them is a regression, and a
change that lowers one belongs here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.runtime.code import Run
from deepx_graph.runtime.flow import makes_memory
from deepx_graph.types import nbytes

PROGRAMS = Path(__file__).parents[1] / "bench" / "programs"

COUNTS = {
    "adam.medium": (1, 28.0, 12.0),
    "attention1.medium": (8, 23.1, 6.3),
    "attention8.medium": (7, 50.3, 22.0),
    "axpy.medium": (1, 20.0, 4.0),
    "blackscholes.medium": (1, 40.0, 16.0),
    "conv_bn_relu.medium": (3, 25.8, 12.8),
    "gelu.medium": (1, 8.0, 4.0),
    "layernorm.medium": (1, 8.2, 4.1),
    "mandelbrot.medium": (4, 40.0, 64.0),
    "mlp_fwd.medium": (4, 54.5, 10.5),
    "mlp_train.medium": (10, 232.8, 82.9),
    "reduce_axis.medium": (2, 8.2, 0.0),
    "reduce_full.medium": (1, 8.0, 0.0),
    "softmax.medium": (1, 8.2, 4.1),
    "trans.medium": (1, 16.0, 4.0),
    "xent.medium": (1, 12.0, 4.0),
}
"""Program to kernels, megabytes read and written by them, and megabytes at the peak (inputs not counted)."""


def _counts(name: str) -> tuple[int, float, float]:
    f = dx.compile(dx.optimize(dx.load(PROGRAMS / f"{name}.stablehlo")), engine="numexpr", threads=1)
    runs = [i for i in f.plan.code.instructions if isinstance(i, Run) and makes_memory(i.node) and not i.node.op.view]
    moved = sum(nbytes(n.type) for run in runs for n in (run.node, *run.node.inputs))
    return len(runs), round(moved / 1e6, 1), round(f.plan.peak_bytes / 1e6, 1)


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_no_program_needs_more_than_it_did(name: str) -> None:
    found = _counts(name)
    assert all(np.asarray(found) <= np.asarray(COUNTS[name])), f"{name}: {found}, and was {COUNTS[name]}"


def test_every_measured_program_is_held_to_its_counts() -> None:
    assert {p.name.removesuffix(".stablehlo") for p in PROGRAMS.glob("*.medium.stablehlo")} == set(COUNTS)
