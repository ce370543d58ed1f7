"""Our engines as contestants: the whole path, from a StableHLO text through the default pipeline to calls.

Each has `prepare(workload, arguments)`, which gives a function that runs the workload once, and so fits other harnesses, too. The
texts in `programs/` are what `jax.jit(f).lower(...)` prints for the workloads, one for each size.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import deepx_graph as dx

PROGRAMS = Path(__file__).parent / "programs"


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
        """A function that runs the workload `w` on the arrays: `w.name`, and `w.inplace`, the arguments that are given away and
        whose new values are the results."""
        threads = int(os.environ.get("BENCH_THREADS", "2"))
        function = dx.compile(program(w.name, args), engine=self.engine, threads=threads, optimize=False)
        if not w.inplace:
            return lambda: function(*args)
        state, donated = list(args), [function.inputs[k].name for k in w.inplace]

        def call() -> Any:
            results = function(*state, donate=donated)
            for k, r in zip(w.inplace, results, strict=True):
                state[k] = r
            return results

        return call

    @staticmethod
    def outputs(results: Any) -> list[Any]:
        return [np.asarray(r) for r in results]


class Native(Contestant):
    engine = "native"


class Numexpr(Contestant):
    engine = "numexpr"


class Auto(Contestant):
    engine = "auto"
