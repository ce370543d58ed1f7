"""What is laid over a program: the error that each operation makes, and how values lie on a mesh."""

from __future__ import annotations

from pathlib import Path

import pytest

import deepx_graph as dx
from deepx_graph.cli import main as cli
from deepx_graph.errors import UsageError
from deepx_graph.session.session import Session
from deepx_graph.session.show.overlays import not_finite, rounded, split
from tests.support.paths import ROOT

BLOCK = ROOT / "examples" / "transformer_block.dx"
SPLIT = """
module @m attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["a"=2, "b"=2]>
  func.func public @main(%x: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>},
                         %w: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"b"}]>}) -> tensor<8x32xf32> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
    %1 = stablehlo.tanh %0 : tensor<8x32xf32>
    return %1 : tensor<8x32xf32>
  }
}
"""


def names(session: Session, query: str) -> list[str]:
    return [n.op.name for _, n in session.query(query)]


def test_the_operation_that_loses_digits_has_the_error() -> None:
    """1 + 2**-20 x loses most digits of x, which the subtraction lays bare: the rounding of the sum is the error."""
    text = """
    func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
      %small = stablehlo.constant dense<9.5367431640625e-07> : tensor<64xf32>
      %one = stablehlo.constant dense<1.0> : tensor<64xf32>
      %0 = stablehlo.multiply %x, %small : tensor<64xf32>
      %1 = stablehlo.add %0, %one : tensor<64xf32>
      %2 = stablehlo.subtract %1, %one : tensor<64xf32>
      return %2 : tensor<64xf32>
    }
    """
    session = rounded(dx.loads(text))
    errors = {n.op.name: e for n, e in session.errors.items()}
    assert max(errors, key=errors.__getitem__) == "add"
    assert errors["add"] > 0.99 * sum(errors.values())
    assert "add" in names(session, "error>0.001")


DIVISION = """
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.subtract %x, %x : tensor<8xf32>
  %1 = stablehlo.divide %x, %0 : tensor<8xf32>
  %2 = stablehlo.tanh %1 : tensor<8xf32>
  %3 = stablehlo.divide %0, %0 : tensor<8xf32>
  %4 = stablehlo.add %2, %3 : tensor<8xf32>
  return %4 : tensor<8xf32>
}
"""


def test_the_operation_that_makes_a_nan_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """x / 0 is infinite, its tanh is finite again; 0 / 0 makes the NaN that the output is."""
    session = not_finite(dx.loads(DIVISION))
    assert {n.op.name: count for n, count in session.nonfinite.items()} == {"divide": 8}
    ((_, node),) = session.query("nonfinite>0")
    assert node.inputs[0] is node.inputs[1]
    program, page = tmp_path / "x.mlir", tmp_path / "x.html"
    program.write_text(DIVISION)
    assert cli.main(["draw", str(program), "--explain-nan", "-o", str(page)]) == 0
    assert page.exists()
    with pytest.raises(UsageError, match="all outputs are finite"):
        not_finite(dx.load(BLOCK))


def test_shardings_are_those_of_the_plan() -> None:
    session = split(dx.loads(SPLIT), "stated")
    assert names(session, "sharding:~a not sharding:~b") == ["param"]
    assert names(session, "sharding:~a.*b") == ["dot_general", "tanh"]  # rows as of x, columns as of w


def test_one_thing_is_laid_over_a_program_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = str(tmp_path / "x.html")
    assert cli.main(["draw", str(BLOCK), "--explain-error", "--plan", "stated", "-o", page]) == 2
    assert cli.main(["draw", str(BLOCK), "--explain-error", "-o", str(tmp_path / "x.svg")]) == 2
    assert "one of --explain-error, --explain-nan and --plan" in capsys.readouterr().err
    with pytest.raises(UsageError):
        split(dx.load(BLOCK), "stated")
