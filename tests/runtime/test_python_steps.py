"""What Python does in a call of a compiled program: by declaration, and beside what the interpreter is seen to do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import RunError
from deepx_graph.lowering.bytecode import Instruction, Run
from deepx_graph.runtime.engines import has_native
from deepx_graph.runtime.python_steps import CONTROL, total
from deepx_graph.session.report.kernels import kernels

LOOP = """
HloModule m
test { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(ITERATIONS)
  ROOT t = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[4] sine(x)
  z = f32[4] multiply(y, x)
  ROOT r = (s32[], f32[4]) tuple(j, z) }
ENTRY e {
  x = f32[4] parameter(0)
  zero = s32[] constant(0)
  a = (s32[], f32[4]) tuple(zero, x)
  w = (s32[], f32[4]) while(a), condition=test, body=body
  ROOT r = f32[4] get-tuple-element(w), index=1
}
"""
OPEN = LOOP.replace("n = s32[] constant(ITERATIONS)", "y = f32[4] get-tuple-element(s), index=1\n  c = s32[4] convert(y)\n"
                    "  d = s32[1] slice(c), slice={[0:1]}\n  n = s32[] reshape(d)")
SPECTRUM = """
HloModule m
ENTRY e {
  x = f32[131073] parameter(0)
  y = f32[131073] negate(x)
  f = c64[65537] fft(y), fft_type=RFFT, fft_length={131073}
  ROOT r = f32[65537] real(f)
}
"""

OPEN_SIZES = """\
sea 1
entry @main
func public @main(%x: f32[?n]) -> (%y: f32[?n]) {
  %0 = tanh %x : f32[?n]
  return %0
}
"""
native = pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")


class Watched(tuple[Instruction, ...]):
    """Instructions that are counted when the interpreter fetches them."""

    fetched: Counter[Instruction | str]

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.fetched["run" if isinstance(found, Run) else CONTROL] += 1
        return found


def watched(f: Any, *arrays: Any) -> Counter[Any]:
    """What the interpreter fetches in one call."""
    unit = f._latest().unit
    unit.instructions = Watched(unit.instructions)
    unit.instructions.fetched = Counter()
    f(*arrays)
    return unit.instructions.fetched


@pytest.mark.parametrize("iterations", [0, 1, 20])
def test_steps_of_a_counted_loop_are_what_the_interpreter_does(iterations: int) -> None:
    f = dx.compile(dx.loads(LOOP.replace("ITERATIONS", str(iterations))), engine="numpy", optimize=False)
    found: Counter[str] = Counter()
    for step in f.python_steps:
        assert step.times.is_known and step.function == "e"
        found[CONTROL if step.node is None else "run"] += step.times.count
    assert +found == watched(f, np.ones(4, np.float32))


def test_of_a_loop_that_nobody_counted_one_iteration_is() -> None:
    steps = dx.compile(dx.loads(OPEN), engine="numpy", optimize=False).python_steps
    assert not total(steps).is_known
    inside = [s for s in steps if s.kind == "sine by eval"]
    assert [(s.times.count, s.times.is_known) for s in inside] == [(1, False)]


@native
def test_a_program_of_machine_code_takes_no_step() -> None:
    assert dx.compile(dx.loads(LOOP.replace("ITERATIONS", "20")), engine="native", optimize=False).python_steps == ()


@native
def test_a_step_says_why_it_is_no_machine_code() -> None:
    f = dx.compile(dx.loads(SPECTRUM), engine="native", optimize=False)
    kinds = {s.kind: s for s in f.python_steps}
    assert {"negate by machine code of loops", "fft by eval"} <= set(kinds)
    assert kinds["fft by eval"].reason == "Fourier transforms of 131073 points"
    assert "fft" in kinds["negate by machine code of loops"].reason, "it keeps the program from being one kernel"
    assert [n.op.name for n in f.lowered.entry.nodes if n is kinds["fft by eval"].node] == ["fft"]


@native
def test_info_says_why_a_kernel_is_no_machine_code() -> None:
    found = kernels(dx.loads(SPECTRUM), "native")
    assert found is not None
    ways = {r.kernel.split()[0]: r.lowering for r in found.rows}
    assert ways["fft"].startswith("eval: ")
    reference = kernels(dx.loads(SPECTRUM), "numpy")
    assert reference is not None and {r.lowering for r in reference.rows} == {"eval"}


def test_types_that_are_not_known_have_no_steps() -> None:
    f = dx.compile(dx.loads(OPEN_SIZES), optimize=False)
    with pytest.raises(RunError, match="only once it is called"):
        _ = f.python_steps
