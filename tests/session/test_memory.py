"""Peak memory as reports tell it: values and scratch memory apart, those of the engine that runs, against sums by hand.

The program negates f32[16], 64 bytes, and sums it up: 4 bytes. The reference adds in double precision, which takes 8 bytes, and
rounds that to 4 before it adds the initial value.
"""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops import add, negate
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.runtime import engines
from deepx_graph.runtime.memory.assignment import in_words
from deepx_graph.session.instrumented import watch_run
from deepx_graph.session.report.figures import figures, reached_info
from deepx_graph.session.report.info import function_info, memory, module_info
from deepx_graph.session.report.kernels import kernels
from deepx_graph.types import F32, tensor

ROW = tensor(F32, (16,))
VALUES, SCRATCH = 64 + 4, 8 + 4
ENGINES = [name for name in engines.ENGINES if name not in ("native", "auto") or engines.has_native()]


def program() -> Module:
    """The sum of what is negated, in a function that the entry calls."""
    b = Builder()

    def body(x: Node) -> list[Node]:
        return [reduction(b, add, b(negate, x), (0,))]

    helper = b.function("helper", [("x", ROW)], body, public=False)
    return Module((helper, b.function("main", [("x", ROW)], lambda x: b.call(helper, x))), "main")


def test_facts_count_values_alone_those_of_called_functions_too() -> None:
    facts = {f.name: f for f in module_info(program()).functions}
    assert facts["helper"].peak_bytes == facts["main"].peak_bytes == VALUES
    assert "68 B of values at the peak" in str(facts["main"])
    assert figures(reached_info(program()))["peak_bytes"] == VALUES


def test_the_peak_of_a_lone_function_that_calls_is_not_known() -> None:
    helper, main = program().functions
    assert (function_info(helper).peak_bytes, function_info(main).peak_bytes) == (VALUES, None)


def test_the_reference_needs_scratch_memory() -> None:
    found = kernels(dx.optimize(program(), "inline"), "numpy")
    assert found is not None and (found.value_bytes, found.peak_bytes) == (VALUES, VALUES + SCRATCH)
    assert "memory on numpy: 80 B at the peak: 68 B of values, 12 B of scratch memory" in "\n".join(found.lines())


@pytest.mark.parametrize("engine", ENGINES)
def test_the_engine_that_runs_is_the_one_that_is_reported(engine: str) -> None:
    module = dx.optimize(program(), "inline")
    plan, watched = (dx.compile(module, engine=engine, optimize=False, profile=each).plan for each in (False, True))
    found, run = kernels(module, engine), watch_run(module, {"x": np.ones(16, "f4")}, engine=engine)
    assert found is not None and (found.value_bytes, found.peak_bytes) == (plan.value_bytes, plan.peak_bytes)
    assert (run.memory.value_bytes, run.memory.peak_bytes) == (watched.value_bytes, watched.peak_bytes)
    assert VALUES <= watched.value_bytes <= watched.peak_bytes


def test_memory_over_time_is_that_of_values_until_an_engine_is_chosen() -> None:
    entry = dx.optimize(program(), "inline").entry
    found = memory(entry)
    assert found is not None and (max(found.alive), found.value_bytes, found.peak_bytes) == (VALUES, VALUES, VALUES)
    run = watch_run(dx.optimize(program(), "inline"), {"x": np.ones(16, "f4")}, engine="numpy")
    assert max(run.memory.alive) == VALUES + SCRATCH


def test_words_add_up() -> None:
    assert in_words(3 << 20, 5 << 20) == "5 MiB at the peak: 3 MiB of values, 2 MiB of scratch memory"
