"""Our engines as contestants of a peer benchmark: the whole path, from a StableHLO text through the default pipeline to calls.

`Native`, `Numexpr` and `Auto` have `prepare(workload, arguments)`, which gives a function that runs the workload once. The texts in
`programs/` are what `jax.jit(f).lower(...)` prints for the workloads, one for each size.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import deepx_graph as dx

PROGRAMS = Path(__file__).parent / "programs"
THREADS = int(os.environ.get("BENCH_THREADS", "2"))


def program(name: str, args: Sequence[Any]) -> dx.Module:
    """The optimised module of the workload's text whose inputs have the shapes of these arguments.

    Raises FileNotFoundError where no text has them.
    """
    for path in sorted(PROGRAMS.glob(f"{name}.*.stablehlo")):
        module = dx.load(path)
        shapes = [p.type.shape for p in module.entry.params]  # type: ignore[attr-defined]
        if shapes == [np.shape(a) for a in args]:
            return dx.optimize(module)
    raise FileNotFoundError(f"no text of {name} for these shapes")


class Contestant:
    """One engine."""

    engine = ""

    def prepare(self, w: Any, args: Sequence[Any]) -> Callable[[], Any]:
        """A function that runs the workload `w` (its `name`, and `inplace`: the arguments it may overwrite) on the arrays."""
        function = dx.compile(program(w.name, args), engine=self.engine, threads=THREADS)
        donated = [function.inputs[k].name for k in w.inplace]
        return lambda: function(*args, donate=donated)

    @staticmethod
    def outputs(results: Any) -> list[Any]:
        return [np.asarray(r) for r in results]


class Native(Contestant):
    engine = "native"


class Numexpr(Contestant):
    engine = "numexpr"


class Auto(Contestant):
    engine = "auto"
