"""The beginning of a large program of a language that has no test of its own for it: deepx in both forms, ONNX."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import deepx_graph as dx
from deepx_graph.ir import Module
from deepx_graph.ir.structure import PARAM
from deepx_graph.session import programs

LINES = "newtensor@float32 2 3 -> x\n" + "".join(f"{'sin' if k % 2 else 'exp'}@float32 {'x' if not k else f'v{k - 1}'} -> v{k}\n"
                                                 for k in range(40))
FUNCTION = "func whole(x: tensor<2x3xf32>,\n    y: tensor<2x3xf32>) -> (v39: tensor<2x3xf32>) {\n" + "".join(
    f"  {'sin' if k % 2 else 'exp'}({'x' if not k else f'v{k - 1}'}) -> v{k}\n" for k in range(40)) + "}\n"


def operations(module: Module) -> list[str]:
    return [n.op.name for n in module.entry.nodes if n.op is not PARAM]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(programs, "LARGE", 100)
    monkeypatch.setattr(programs, "BEGINNING", 12)
    return 12


@pytest.mark.filterwarnings("ignore:.*was never created")
@pytest.mark.parametrize("text", [LINES, FUNCTION], ids=["lines", "function"])
def test_the_first_lines_of_deepx(text: str, small: int, tmp_path: Path) -> None:
    file = tmp_path / "x.dx"
    file.write_text(text)
    first, whole = programs.beginning(file), dx.load(file)
    assert first is not None
    found = operations(first)
    assert small - 1 <= len(found) <= small and found == operations(whole)[: len(found)]
    assert first.entry.params == () if text is LINES else [p.name for p in first.entry.params] == ["x", "y"]


def test_the_first_operators_of_onnx(small: int, tmp_path: Path) -> None:
    file = tmp_path / "x.onnx"
    file.write_bytes(programs.encoded(dx.loads(FUNCTION), "onnx"))
    first, whole = programs.beginning(file), dx.load(file)
    assert first is not None
    assert operations(first) == operations(whole)[: len(operations(first))]
    assert small <= len(operations(first)) < len(operations(whole))


@pytest.mark.parametrize("name", ["x.dx", "x.onnx"])
def test_small_programs_have_no_beginning(name: str, small: int, tmp_path: Path) -> None:
    few = FUNCTION.replace("v39", "v5").split("  exp(v5)")[0] + "}\n"
    file = tmp_path / name
    file.write_bytes(few.encode() if name == "x.dx" else programs.encoded(dx.loads(few), "onnx"))
    assert programs.beginning(file) is None


def test_what_is_wrong_is_left_to_the_reader_of_the_whole(small: int, tmp_path: Path) -> None:
    whole, rng = programs.encoded(dx.loads(FUNCTION), "onnx"), random.Random(0)
    for _ in range(200):
        at = rng.randrange(len(whole))
        (tmp_path / "y.onnx").write_bytes(whole[:at] + bytes([rng.randrange(256)]) + whole[at + rng.randrange(2):])
        programs.beginning(tmp_path / "y.onnx")  # raises nothing
