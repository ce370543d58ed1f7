"""What reports say of predictions: `info`, `why`, `run --profile`, `calibrate`. Predictions are those of the shipped constants."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import UsageError
from deepx_graph.ir import Builder, Module
from deepx_graph.ops import tanh
from deepx_graph.runtime.cost import file as cost_file
from deepx_graph.runtime.cost.model import SHIPPED, Constants
from deepx_graph.runtime.engines import get, has_native, whole_function
from deepx_graph.runtime.engines.base import canonicalized
from deepx_graph.runtime.native.llvm.target import Target
from deepx_graph.session import programs
from deepx_graph.session.report.calibration import Calibration
from deepx_graph.session.report.kernels import MOST, MOST_OPERATIONS, SHOWN, computes, kernels, row
from deepx_graph.session.report.placing import Placing
from deepx_graph.types import F32, tensor
from tests.support.cli_runner import Run

PROGRAM = """
HloModule m
ENTRY e {
  x = f32[200,300]{1,0} parameter(0)
  w = f32[300,100]{1,0} parameter(1)
  p = f32[200,100]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[200,100]{1,0} exponential(p)
  ROOT s = f32[200,100]{1,0} add(e, p)
}
"""
PRODUCT = 2.6 + 2 * 200 * 100 * 300 / 100_000 + 3 * 440 / 95  # us: the call, operations, three sweeps in cache
LOOPS = 2.8 + 2 * 0.5 + 20 * (2 * 0.078 + 36 * 0.0085)  # the kernel's call, two loops over 20 000 elements of prices 35 and 1
GOLDEN = """\
  kernels on numexpr, 1 thread, by shipped constants: 149.5 us for one run
  memory on numexpr: 234 KiB at the peak: 156 KiB of values, 78.1 KiB of scratch memory
  Python steps: 2 a call
    1 dot_general by BLAS: p (line 6)
    1 fusion by numpy loops: s (line 8)
  1 BLAS, 1 numpy loops
   share      runs   us per run     bytes     operations  kernel
   91.3%         1       136.49   430 KiB     12,000,000  dot_general p: f32[200,100] (line 6) [BLAS; arithmetic]
    8.7%         1        13.04   156 KiB         40,000  fusion s: f32[200,100] (line 8) [numpy loops; arithmetic]
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "p.hlo"
    path.write_text(PROGRAM)
    return str(path)


def test_info_has_a_table_of_kernels(run: Run, program: str) -> None:
    done = run("info", program, "--engine", "numexpr", "--threads", "1")
    assert done.code == 0, done.err
    assert done.out.endswith(GOLDEN)
    assert re.search(r"engines: numpy \S+, numexpr \S+, ", done.out)


def test_the_figures_of_a_kernel_are_those_of_the_model(run: Run, program: str) -> None:
    facts = run("info", program, "--engine", "numexpr", "--threads", "1", "--json").json["kernels"]
    assert [(r["lowering"], r["bytes"], r["flops"]) for r in facts["rows"]] == [
        ("BLAS", 4 * (200 * 300 + 300 * 100 + 200 * 100), 2 * 200 * 300 * 100), ("numpy loops", 2 * 80_000, 40_000),
    ]
    assert [r["predicted_us"] for r in facts["rows"]] == pytest.approx([PRODUCT, LOOPS])
    assert [r["share"] for r in facts["rows"]] == pytest.approx([PRODUCT / (PRODUCT + LOOPS), LOOPS / (PRODUCT + LOOPS)])
    assert set(facts["engines"]) >= {"numpy", "numexpr", "auto"}
    steps = (("dot_general by BLAS", "p (line 6)"), ("fusion by numpy loops", "s (line 8)"))
    assert facts["python_steps"] == [
        {"kind": kind, "count": 1, "count_known": True, "reason": "", "nodes": [node]} for kind, node in steps]


@pytest.mark.skipif(not has_native(), reason="llvmlite is not installed")
def test_info_says_that_narrow_floats_are_machine_code(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "half.hlo"
    path.write_text(PROGRAM.replace("f32", "f8e5m2"))
    out = run("info", str(path)).out
    assert "auto = native" in out and "[machine code of loops" in out


def test_info_of_unknown_sizes_has_no_kernels() -> None:
    module = Module((Builder().function("f", [("x", tensor(F32, ("?n",)))], lambda x: [Builder()(tanh, x)]),))
    assert kernels(module) is None


def test_why_says_what_the_kernels_should_take(run: Run, program: str) -> None:
    out = run("why", program, "e", "s", "--engine", "numexpr", "--threads", "1").out.split("\n")
    assert "run in one kernel" in out[0]
    assert out[1:] == [
        f"{name} is in fusion s: f32[200,100] [numpy loops], 156 KiB, 40,000 operations: predicted 13.04 us (arithmetic)"
        for name in "es"
    ] + [""]
    apart = run("why", program, "p", "s", "--engine", "numexpr", "--threads", "1", "--measure", "--json").json["kernels"]
    assert [(k["node"], k["kernel"]["lowering"]) for k in apart] == [("p", "BLAS"), ("s", "numpy loops")]
    assert all(k["measured_us"] > 0 for k in apart)


def test_nodes_have_kernels(program: str) -> None:
    module = dx.load(program)
    placing = Placing(module, "numpy")
    (found,) = placing.placed(["p"])
    assert (found.kernel.lowering, found.measured_us) == ("eval", None)
    assert placing.placed(["x"]) == []
    with pytest.raises(UsageError, match="no node 'q'"):
        placing.placed(["q"])
    whole = kernels(module, "numexpr", 1)
    assert whole is not None and [r.lowering for r in whole.rows] == ["BLAS", "numpy loops", "numpy loops"]


def test_a_profile_has_predictions_beside_times() -> None:
    f = dx.compile(dx.loads(PROGRAM), engine="numexpr", threads=1, profile=True)
    for _ in range(3):
        f(np.ones((200, 300), np.float32), np.zeros((300, 100), np.float32))
    assert f.profile is not None
    rows = {r.lowering: r for r in f.profile.rows()}
    assert rows["BLAS"].predicted == pytest.approx(PRODUCT / 1e6)
    assert rows["numpy loops"].predicted == pytest.approx(LOOPS / 1e6)
    said, head, *lines = str(f.profile).split("\n")
    assert said.startswith("times are medians of calls, the first left out;")
    assert all(r.roof and r.minimum <= r.median for r in rows.values())
    assert all(r.warm and r.calls == 3 for r in rows.values())
    assert head.split()[1:4] == ["ms/call", "least", "predicted"]
    assert any(f"{PRODUCT / 1e3:.3f}" in line for line in lines), "of one call"


def test_a_profile_of_one_call_says_so() -> None:
    f = dx.compile(dx.loads(PROGRAM), engine="numexpr", threads=1, profile=True)
    f(np.ones((200, 300), np.float32), np.zeros((300, 100), np.float32))
    assert str(f.profile).startswith("times are those of first calls")


def test_the_command_warms_up(run: Run, program: str) -> None:
    done = run("run", program, "--random-inputs", "--profile", "--json").json["profile"]
    assert {(r["calls"] > 1, r["warm"]) for r in done} == {(True, True)}


def test_every_engine_forecasts(program: str) -> None:
    module = dx.optimize(dx.load(program))
    for engine in ("numpy", "numexpr", "auto"):
        found = kernels(module, engine, 2)
        assert found is not None and all(r.predicted_us and r.predicted_us > 0 for r in found.rows)


# --- calibrate


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A place for constants, and measurements that take no time."""
    parts = (("one", lambda: {"block_ns": 77.0}), ("two", lambda: {"vm_step_ns": -5.0}))
    monkeypatch.setattr("deepx_graph.runtime.cost.calibrate.PARTS", parts)
    path = tmp_path / "costs.json"
    monkeypatch.setenv("DEEPX_GRAPH_COSTS", str(path))
    cost_file._read_once.cache_clear()
    yield path  # type: ignore[misc]
    cost_file._read_once.cache_clear()


def test_calibrate_stores_what_it_measured(run: Run, quick: Path) -> None:
    done = run("calibrate")
    assert done.code == 0 and "measuring one" in done.err and f"stored in {quick}" in done.err
    assert cost_file.constants().block_ns == 77 and cost_file.constants().vm_step_ns > 0, "never below nothing"
    shown = run("calibrate", "--show", "--json").json
    assert shown["path"] == str(quick) and shown["constants"]["block_ns"] == 77 and shown["shipped"]["block_ns"] == SHIPPED.block_ns
    assert re.search(r"block_ns +77 +600", run("calibrate", "--show").out)
    assert "removed" in run("calibrate", "--reset").err and not quick.exists()
    assert "nothing was stored" in run("calibrate", "--reset").err
    assert cost_file.constants() == SHIPPED


def test_calibrate_writes_elsewhere_on_request(run: Run, quick: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    assert run("calibrate", "-o", str(other), "--json").json["constants"]["block_ns"] == 77
    assert json.loads(other.read_text())["version"] == cost_file.VERSION
    assert not quick.exists()


def test_constants_that_cannot_be_used_are_reported(run: Run, quick: Path, program: str) -> None:
    quick.write_text("{")
    assert "it is no JSON" in run("calibrate", "--show").err
    assert "note: measured constants are not used" in run("info", program).out


@pytest.mark.conformance
def test_a_calibration_is_within_bounds() -> None:
    from deepx_graph.runtime.cost.calibrate import calibrated

    found = calibrated()
    assert isinstance(found, Constants) and found != SHIPPED
    assert found.memory_gbs <= found.memory_all_gbs and found.ufunc_element_ns < found.vm_element_ns
    assert Calibration(found, None).to_json()["constants"] == found.to_json()


@pytest.mark.skipif(not has_native(), reason="no llvmlite: no machine code")
def test_no_kernel_is_made_to_list_a_program_that_is_too_large_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    squared = PROGRAM.replace("ROOT s =", "s =").replace("\n}", """
  ROOT q = f32[200,200]{1,0} dot(s, s), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}""")
    engine, function = get("native", 1), dx.loads(squared).entry
    monkeypatch.setattr(engine, "entered", lambda node: pytest.fail(f"{node} is made"))
    monkeypatch.setattr(whole_function, "MOST_NODES", 2)
    found = engine.canonicalize(function, apart=True)  # type: ignore[attr-defined]
    assert found == engine.arranged(function)  # type: ignore[attr-defined]


def chains(count: int, length: int) -> Module:
    """So many results, each made by a kernel of its own of so many operations, no two of them equal."""
    lines = []
    for k in range(count):
        lines.append(f"  n{k}.0 = f32[{8 + k}] parameter({k})")
        lines += [f"  n{k}.{j} = f32[{8 + k}] {'tanh' if k >> j & 1 else 'cosine'}(n{k}.{j - 1})" for j in range(1, length + 1)]
    types, values = ", ".join(f"f32[{8 + k}]" for k in range(count)), ", ".join(f"n{k}.{length}" for k in range(count))
    return dx.loads("\n".join(["HloModule m", "ENTRY e {", *lines, f"  ROOT r = ({types}) tuple({values})", "}", ""]))


@pytest.mark.skipif(not has_native(), reason="no llvmlite: no machine code")
def test_listing_many_kernels_compiles_none(monkeypatch: pytest.MonkeyPatch) -> None:
    module = programs.optimise(chains(MOST + 20, 4)).module
    monkeypatch.setattr(Target, "compilation", lambda self, ir, **options: pytest.fail("code is compiled"))
    found = kernels(module, "native", 1)
    assert found is not None and (len(found.rows), found.left) == (MOST, 20)
    assert {r.lowering for r in found.rows} == {"machine code of loops"} and all(r.predicted_us for r in found.rows)


def test_of_large_kernels_that_differ_few_are_made() -> None:
    count, length = SHOWN + 20, 60
    found = kernels(programs.optimise(chains(count, length)).module, "numexpr", 1)
    made = MOST_OPERATIONS // (length + 1)  # and the parameter of each
    assert found is not None and (len(found.rows), found.left) == (made, count - made)


@pytest.mark.skipif(not has_native(), reason="no llvmlite: no machine code")
def test_kernels_that_are_described_are_those_that_run() -> None:
    module, engine = programs.optimise(dx.loads(PROGRAM)).module, get("native", 1)
    running = kernels(module, "native", 1)
    assert running is not None
    with engine.described():
        function = canonicalized(module, engine, apart=True).entry
        described = [row(engine, function, n) for n in function.nodes if computes(n)]
    assert sorted((r.kernel, r.lowering, r.predicted_us) for r in described) == sorted(
        (r.kernel, r.lowering, r.predicted_us) for r in running.rows)
