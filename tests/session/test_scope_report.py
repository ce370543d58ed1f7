"""`info --by scope`: what each module of a model holds and costs, counted by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.runtime.cost.file import constants
from deepx_graph.session.report.scopes import by_scope
from tests.support.cli_runner import Run

LAYERS = 12


def network() -> str:
    """Twelve layers `y = tanh(x) + w` on f32[4]; names as JAX writes them."""
    args = ", ".join(f"%w{k}: tensor<4xf32> loc(\"p['Net']['Layer_{k}']['w']\")" for k in range(LAYERS))
    lines = []
    for k in range(LAYERS):
        x = "%x" if k == 0 else f"%y{k - 1}"
        lines += [f'%t{k} = stablehlo.tanh {x} : tensor<4xf32> loc("jit(f)/Net/Layer_{k}/tanh")',
                  f'%y{k} = stablehlo.add %t{k}, %w{k} : tensor<4xf32> loc("jit(f)/Net/Layer_{k}/add")']  # fmt: skip
    body = "\n    ".join([*lines, f"return %y{LAYERS - 1} : tensor<4xf32>"])
    return f"module @m {{\n  func.func public @main(%x: tensor<4xf32>, {args}) -> tensor<4xf32> {{\n    {body}\n  }}\n}}\n"


def test_a_scope_counts_what_lies_in_it() -> None:
    root = by_scope(dx.loads(network()))
    net = root.inside["Net"]
    assert (net.cost.operations, net.cost.parameters, net.cost.parameter_bytes) == (2 * LAYERS, 4 * LAYERS, 16 * LAYERS)
    layer = net.inside["Layer_7"].cost
    assert (layer.operations, layer.parameters) == (2, 4)
    assert layer.bytes_moved == 2 * 16 + 3 * 16  # tanh reads and writes four floats, add reads eight
    assert net.cost.bytes_moved == LAYERS * layer.bytes_moved
    assert layer.least_ms == pytest.approx(layer.bytes_moved / constants().cache_gbs / 1e6)  # GB/s: bytes a nanosecond
    assert net.cost.least_ms == pytest.approx(LAYERS * layer.least_ms)
    assert list(net.inside) == [f"Layer_{k}" for k in range(LAYERS)]


def test_the_table_has_equal_siblings_in_one_line(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "net.mlir"
    path.write_text(network())
    done = run("info", str(path), "--by", "scope")
    assert [line.strip().split("  ")[0] for line in done.out.splitlines()] == ["scope", "Net", "Layer_0 to Layer_11 ×12, each"]
    assert run("info", str(path), "--by", "scope", "--depth", "0").out.count("\n") == 2


LOOP = """
HloModule m
body { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[8] tanh(x), metadata={op_name="jit(f)/Net/while/body/Cell_0/tanh"}
  ROOT r = (s32[], f32[8]) tuple(j, y) }
test { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY main { x = f32[8] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[8]) tuple(z, x)
  w = (s32[], f32[8]) while(t), condition=test, body=body
  ROOT out = f32[8] get-tuple-element(w), index=1 }
"""


def test_what_runs_in_a_loop_counts_as_often() -> None:
    tanh, counter, test = np.array([64, 8]), np.array([12, 1]), np.array([4 + 4 + 1, 1])  # bytes and operations
    for trips in (1, 5):
        whole = by_scope(dx.loads(LOOP.replace("(5)", f"({trips})")))
        cell = whole.inside["Net"].inside["Cell_0"].cost
        assert (cell.bytes_moved, cell.flops) == tuple(trips * tanh)
        assert cell.least_ms == pytest.approx(trips * 64 / constants().cache_gbs / 1e6)
        assert (whole.cost.bytes_moved, whole.cost.flops) == tuple(trips * (tanh + counter) + (trips + 1) * test)
