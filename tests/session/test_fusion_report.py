"""The fusion report: kernels and what they hold, pairs left apart with the traffic that joining them would save."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import deepx_graph as dx
from deepx_graph.cli.main import main
from deepx_graph.passes.fusion.why import Kind
from deepx_graph.session.programs import optimise
from deepx_graph.session.report.fusion import FusionReport, fusion_report
from deepx_graph.session.show.explore import PageOptions, PageProgram, fused
from deepx_graph.viz.picture.overlay import MEASURES

PRODUCT = """HloModule m
ENTRY main {
  x = f32[8,16] parameter(0)
  w = f32[16,32] parameter(1)
  a = f32[8,16] exponential(x)
  b = f32[8,16] negate(a)
  d = f32[8,32] dot(b, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[8,32] tanh(d)
  ROOT t = (f32[8,32], f32[8,32]) tuple(d, e)
}"""

LOOP = """HloModule m
body { s = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[8,8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  r = f32[8,8] dot(v, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  w = f32[8,8] tanh(r)
  ROOT t = (s32[], f32[8,8]) tuple(j, w) }
test { s = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(10)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY main { x = f32[8,8] parameter(0)
  z = s32[] constant(0)
  s = (s32[], f32[8,8]) tuple(z, x)
  l = (s32[], f32[8,8]) while(s), condition=test, body=body
  ROOT o = f32[8,8] get-tuple-element(l), index=1 }"""


def report(text: str, engine: str = "numexpr") -> FusionReport:
    return fusion_report(optimise(dx.loads(text), "clean").module, engine)


def test_what_joining_a_pair_would_save() -> None:
    found = report(PRODUCT)
    saves = {(p.first, p.second): p.saves for p in found.declined}
    assert saves["b", "d"] == 2 * 8 * 16 * 4  # one store and one load of b, which only d reads
    assert saves["d", "e"] == 8 * 32 * 4  # d is a result: only the load of e
    assert {p.kind for p in found.declined} == {Kind.NOT_ELEMENTWISE.value}
    assert found.reasons == {"not-elementwise": (2, 2048)}
    assert sorted(a.bytes for a in found.apart.values()) == [1024, 1024]
    assert all(n in f.users for n in found.apart for f in found.module.functions)


def test_kernels_and_what_they_hold() -> None:
    held = sorted(tuple(k.operations.items()) for k in report(PRODUCT).kernels)
    assert held == [(("dot_general", 1),), (("exponential", 1), ("negate", 1)), (("tanh", 1),)]


def test_a_loop_counts_its_iterations() -> None:
    saves = {(p.first, p.second): p.saves for p in report(LOOP).declined}
    assert saves["r", "w"] == 10 * 2 * 8 * 8 * 4


@pytest.mark.parametrize("engine", ["numpy", "numexpr", "auto"])
def test_reasons_are_the_closed_list_and_shares_are_whole(engine: str) -> None:
    found = fusion_report(optimise(dx.load("examples/transformer_block.dx"), "clean").module, engine)
    assert {p.kind for p in found.declined} <= {k.value for k in Kind}
    assert [p.saves for p in found.declined] == sorted((p.saves for p in found.declined), reverse=True)
    assert all(abs(sum(k.scopes.values()) - 1) < 1e-9 for k in found.kernels)
    assert sum(n for n, _ in found.reasons.values()) == len(found.declined)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "examples/transformer_block.dx", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    pair = found["declined"][0]
    assert found["kernels"] and found["reasons"][pair["kind"]]["saves"] >= pair["saves"]
    assert main(["why", "examples/transformer_block.dx", pair["first"], pair["second"]]) == 0
    assert pair["message"] in capsys.readouterr().out
    assert main(["why", "examples/transformer_block.dx"]) == 0
    assert "pairs apart" in capsys.readouterr().out
    assert main(["why", "examples/transformer_block.dx", "weights"]) == 2


def test_pictures_have_it_as_an_overlay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = f"{tmp_path}/page.html"
    assert main(["draw", "examples/transformer_block.dx", "--fusion", "-o", page]) == 0
    details = PageProgram("", fused(dx.load("examples/transformer_block.dx")), PageOptions(collapse=True)).details().values()
    assert max(d.get("apart", 0) for d in details) == 2097152
    assert any(d.get("declined") == ("not-elementwise",) for d in details)
    assert main(["draw", "examples/transformer_block.dx", "--fusion", "-o", f"{tmp_path}/p.svg"]) == 0
    assert MEASURES["apart"].about in (tmp_path / "p.svg").read_text(encoding="utf-8")
