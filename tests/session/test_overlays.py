"""What is laid over a program: the error that each operation makes, and how values lie on a mesh."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.cli import main as cli
from deepx_graph.errors import UsageError
from deepx_graph.session.session import Session
from deepx_graph.session.show.explore import explore
from deepx_graph.session.show.overlays import not_finite, rounded, split
from deepx_graph.session.show.picture import picture
from deepx_graph.viz.picture.overlay import MEASURES
from tests.support.pages import data_of, nodes_of
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


def test_pages_and_pictures_show_amounts_of_any_size() -> None:
    """Errors of single precision, of which six decimals show nothing."""
    session = rounded(dx.loads("""
    func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
      %0 = stablehlo.multiply %x, %x : tensor<64xf32>
      return %0 : tensor<64xf32>
    }
    """))
    (error,) = session.errors.values()
    assert 0 < error < 2**-24
    page = data_of(explore([("", session)]).data)
    assert [n["error"] for n in nodes_of(page["graphs"][0]) if "error" in n] == [pytest.approx(error, rel=1e-5)]
    assert f"{error:.1e}" in picture(session, None, format="svg", overlay="error").data.decode()


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


def test_given_inputs_are_what_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, page = tmp_path / "x.mlir", tmp_path / "x.html"
    program.write_text(DIVISION.replace("subtract %x, %x", "add %x, %x"))
    np.savez(tmp_path / "zeros.npz", x=np.zeros(8, np.float32))
    np.savez(tmp_path / "other.npz", y=np.zeros(8, np.float32))
    explained = ["draw", str(program), "--explain-nan", "-o", str(page)]
    assert cli.main(explained) != 0, "generated numbers are no zeros"
    assert cli.main([*explained, "--inputs", str(tmp_path / "zeros.npz")]) == 0 and page.exists()
    assert cli.main([*explained, "--inputs", str(tmp_path / "other.npz")]) != 0 and "'y'" in capsys.readouterr().err
    assert cli.main(["draw", str(program), "-o", str(page), "--inputs", str(tmp_path / "zeros.npz")]) != 0


def test_shardings_are_those_of_the_plan() -> None:
    session = split(dx.loads(SPLIT), "stated")
    assert names(session, "sharding:~a not sharding:~b") == ["param"]
    assert names(session, "sharding:~a.*b") == ["dot_general", "tanh"]  # rows as of x, columns as of w


def test_one_thing_is_laid_over_a_program_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = str(tmp_path / "x.html")
    assert cli.main(["draw", str(BLOCK), "--explain-error", "--plan", "stated", "-o", page]) == 2
    assert "one of --explain-error, --explain-nan and --plan" in capsys.readouterr().err
    with pytest.raises(UsageError):
        split(dx.load(BLOCK), "stated")


def _tags(svg: str) -> list[tuple[float, str]]:
    """The share that each box says it has, and its fill."""
    boxes = re.findall(r'<g class="node">(.*?)</g>', svg, re.DOTALL)
    found = [(re.search(r"· ([\d.]+)%", box), re.findall(r'fill="(#\w+)" stroke', box)) for box in boxes]
    return [(float(share[1]), fills[-1]) for share, fills in found if share]


@pytest.mark.parametrize("name", ["bytes", "moved", "flops"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_boxes_of_an_svg_say_what_is_laid_over_them(name: str, theme: str) -> None:
    """Folded or not, the shares of all boxes are the whole, the same share has the same colour, and the legend has the highest."""
    for most in (None, 12):
        svg = picture(dx.load(BLOCK), format="svg", overlay=name, max_nodes=most, theme=theme).data.decode()
        tags = _tags(svg)
        assert sum(share for share, _ in tags) == pytest.approx(100, abs=0.05 * len(tags))
        assert MEASURES[name].about in svg
        top = max(tags)
        assert svg.count(top[1]) >= 2  # in the legend too


def test_what_a_picture_was_made_for_is_laid_over_it(tmp_path: Path) -> None:
    program = tmp_path / "x.mlir"
    for text, options, seen in ((SPLIT, ["--plan", "stated"], "{&quot;a&quot;}"), (DIVISION, ["--explain-nan"], "8 · 100.0%"),
                                (DIVISION, ["--profile"], "median time")):
        program.write_text(text)
        for form in ("svg", "dot"):
            assert cli.main(["draw", str(program), *options, "-o", str(tmp_path / f"x.{form}")]) == 0
            found = (tmp_path / f"x.{form}").read_text(encoding="utf-8")
            assert seen in found.replace('\\"', "&quot;").replace('{"a"}', "{&quot;a&quot;}"), (form, options)


def test_an_overlay_of_which_nothing_is_known_is_refused() -> None:
    for name, words in (("time", "nothing is known"), ("sharding", "not known"), ("bites", "no overlay")):
        with pytest.raises(UsageError, match=words):
            picture(dx.load(BLOCK), format="svg", overlay=name)
