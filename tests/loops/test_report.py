"""The command `loops`: the loops of each kernel, with the lines of the text that they compute; and where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepx_graph.runtime.engines import has_native
from tests.support.cli_runner import Run

PROGRAM = """
HloModule m
ENTRY e {
  x = f32[6] parameter(0)
  i = s32[2,1] parameter(1)
  g = f32[2] gather(x, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}
  ROOT r = f32[2] reverse(g), dimensions={0}
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
GATHER = """\
    argument a0: f32[6]
    argument a1: i32[2,1]
    result r1: f32[2]
"""

pytestmark = pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "p.hlo"
    path.write_text(PROGRAM)
    return str(path)


def test_kernels_are_shown_as_loops_with_their_source(run: Run, program: str) -> None:
    out = run("loops", program, "g", "--engine", "native").out
    assert GATHER in out and "machine code of loops" in out
    assert f"  from {program}:6:3: g = f32[2] gather(x, i)" in out
    assert "    for %" in out or "    parallel %" in out
    assert run("loops", program, "--engine", "native").out.count(GATHER) == 1


def test_loops_as_json(run: Run, program: str) -> None:
    found = run("loops", program, "g", "--json").json["kernels"]
    assert all("g" in k["names"] for k in found)
    assert [k["program"].splitlines()[0] for k in found if k["program"]] == ["argument a0: f32[6]"]


def test_a_name_that_nothing_computes_is_refused(run: Run, program: str) -> None:
    done = run("loops", program, "gg")
    assert done.code == 2 and "no kernel computes 'gg'" in done.err and "g" in done.err.split("hint")[1]


def test_an_engine_without_loops_is_refused(run: Run, program: str) -> None:
    done = run("loops", program, "--engine", "numexpr")
    assert done.code == 2 and "the engine numexpr writes no loops" in done.err


def test_sizes_that_are_open_have_no_loops(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "open.sea"
    path.write_text(OPEN_SIZES)
    done = run("loops", str(path))
    assert done.code == 2 and "sizes are not known" in done.err
