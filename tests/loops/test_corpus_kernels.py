"""The loop programs of the corpus: interpreted, where every subscript is checked, they give what machine code gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

import deepx_graph as dx
from deepx_graph.loops.interpret import interpret, reals
from deepx_graph.loops.program import LoopProgram
from deepx_graph.loops.weight import weighted
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines.native_engine import NativeEngine
from deepx_graph.runtime.native.loop_program.kernel import LoopKernel
from tests.support import jax_corpus

SAMPLE = ("argmax_argmin", "concatenate", "cumulative", "dynamic_slice", "gather_take", "model_layernorm", "pad_basic", "reverse",
          "scatter_add", "select_and_scatter", "sort_basic", "while_data_dependent")
"""A program of most kinds; all of the others are tried in `make conformance`."""

MOST_STATEMENTS = 15_000
"""Kernels that execute more are left out: interpreting takes microseconds for each."""


def kernels(engine: NativeEngine) -> Iterator[LoopKernel]:
    """The loop programs that an engine has compiled, each once."""
    return (k for k in dict.fromkeys(engine._built.values()) if isinstance(k, LoopKernel))


def arguments(program: LoopProgram) -> list[Any] | None:
    """Arrays in memory as the program has it; None for types that it has as others."""
    rng, found = np.random.default_rng(0), list[Any]()
    for buffer in program.arguments:
        if buffer.dtype.np is None or buffer.dtype.kind not in ("float", "int", "uint", "bool") or buffer.dtype.itemsize < 4:
            return None
        found.append((4 * rng.random(buffer.shape) + 1).astype(buffer.dtype.np))
    return found


def compared(name: str) -> int:
    """How many kernels of a program were compared, with vectors of the machine."""
    engine, count = NativeEngine(1), 0
    compile(dx.optimize(jax_corpus.load(f"{name}.stablehlo")), engine=engine).python_steps  # noqa: B018  it makes all kernels
    for kernel in kernels(engine):
        given = arguments(kernel.program)
        if given is None or sum(times for _, times in weighted(kernel.program.body)) > MOST_STATEMENTS:
            continue
        shapes = [r.shape for r in kernel.results]
        if [b.shape for b in kernel.program.results] != shapes:
            continue  # parts of complex numbers
        for got, want in zip(map(reals, kernel(given)), interpret(kernel.program, given), strict=True):
            np.testing.assert_allclose(got, want.reshape(got.shape), rtol=2e-5, atol=2e-5, err_msg=name)
        count += 1
    return count


@jax_corpus.needs_corpus
def test_machine_code_of_the_corpus_is_what_is_interpreted() -> None:
    assert sum(map(compared, SAMPLE)) > len(SAMPLE) // 2


@pytest.mark.conformance
@jax_corpus.needs_corpus
@pytest.mark.parametrize("name", [c["name"] for c in jax_corpus.cases() if c["name"] not in SAMPLE])
def test_machine_code_of_all_of_the_corpus_is_what_is_interpreted(name: str) -> None:
    compared(name)


LEFT_TO_PYTHON = {"collectives_one_device"}
"""Programs with other steps than one call of machine code: devices that meet."""


@jax_corpus.needs_corpus
@pytest.mark.parametrize("name", ["edge_zero_size", "hand_constants", "conv2d_same", "model_mlp_train_sgd"])
def test_nothing_of_a_corpus_program_is_left_to_python(name: str) -> None:
    assert compile(dx.optimize(jax_corpus.load(f"{name}.stablehlo")), engine="native").python_steps == ()


@pytest.mark.conformance
@jax_corpus.needs_corpus
def test_nothing_of_the_corpus_is_left_to_python_but_what_is_known() -> None:
    names = [c["name"] for c in jax_corpus.cases() if not c.get("custom_calls")]
    left = {n for n in names if compile(dx.optimize(jax_corpus.load(f"{n}.stablehlo")), engine="native").python_steps}
    assert left <= LEFT_TO_PYTHON
