"""Budgets for CI and the table of figures: what is counted, what is exceeded, what is an error, in text, JSON and Markdown."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from deepx_graph.cli import main as cli
from deepx_graph.errors import UsageError
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops import add, dot_general, tanh
from deepx_graph.session.report.figures import parse_budget
from deepx_graph.text import sea
from deepx_graph.types import F32, tensor


@pytest.fixture
def program(tmp_path: Path) -> str:
    b = Builder()

    def body(x: Node, w: Node) -> list[Node]:
        d = b(dot_general, x, w, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))
        return [b(add, b(tanh, d), b(tanh, d))]

    main = b.function("main", [("x", tensor(F32, (8, 16))), ("w", tensor(F32, (16, 4)))], body, result_names=("y",))
    path = tmp_path / "p.sea"
    path.write_text(sea.write(Module((main,))))
    return str(path)


@pytest.fixture
def open_program(tmp_path: Path) -> str:
    b = Builder()
    main = b.function("main", [("x", tensor(F32, ("n", 4)))], lambda x: [b(tanh, x)], result_names=("y",))
    path = tmp_path / "open.sea"
    path.write_text(sea.write(Module((main,))))
    return str(path)


@pytest.mark.parametrize(("text", "bound"), [
    ("ops<=120", 120), ("peak_bytes <= 64M", 64 * 2**20), ("flops<2k", 2000), ("bytes_moved<=1GiB", 2**30), ("ops.tanh==2", 2),
    ("ops.dot_general<=1k", 1000),
])  # fmt: skip
def test_bounds(text: str, bound: int) -> None:
    assert parse_budget(text).bound == bound


@pytest.mark.parametrize(("text", "message"), [
    ("ops", "is no budget"), ("opps<=1", "did you mean 'ops'"), ("ops.tanhh<=1", "did you mean 'ops.tanh'"),
    ("ops<=-1", "is no budget"),
    ("ops<=1; rm", "is no budget"), ("<script><=1", "is no budget"),
])  # fmt: skip
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_budget(text)


def test_within_and_beyond(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    # 2 * 8 * 4 * 16 for the product, 8 * 4 for each tanh and for the sum
    assert cli.main(["check", program, "-p", "none", "--budget", "flops==1120", "--budget", "ops<=4"]) == 0
    assert "EXCEEDED" not in capsys.readouterr().out
    assert cli.main(["check", program, "-p", "none", "--budget", "ops<=3", "--budget", "ops.tanh<=2", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [b["holds"] for b in report["budgets"]] == [False, True]
    assert [b["value"] for b in report["budgets"]] == [4, 2]
    assert report["ok"] is False
    assert cli.main(["check", program, "-p", "cse", "--budget", "ops<=3", "--markdown"]) == 0
    assert "| `ops<=3` | 4 | 3 | ok |" in capsys.readouterr().out
    assert cli.main(["check", program]) == 2


def test_open_sizes_need_inputs(open_program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check = ["check", open_program, "--budget", "bytes_moved==1600"]
    assert cli.main(check) == 2
    assert "--input" in capsys.readouterr().err
    assert cli.main([*check, "--input", "x=f32[50,4]"]) == 0  # 50 * 4 * 4 in, as much out
    np.savez(tmp_path / "x.npz", x=np.zeros((51, 4), "f4"))
    assert cli.main([*check, "--inputs", str(tmp_path / "x.npz")]) == 1
    capsys.readouterr()
    assert cli.main([*check, "--input", "x=f32[50,5]"]) == 5
    assert cli.main([*check, "--input", "z=f32[50,4]"]) == 2


def test_info_compares(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", program, "-p", "cse"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["tanh", "2", "1", "-50%"] in rows
    assert ["ops", "4", "3", "-25%"] in rows
    assert ["add", "1", "1"] in rows
    assert cli.main(["info", program, "-p", "cse", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)["compared"]
    assert compared["ops"]["tanh"] == {"before": 2, "after": 1}
    assert cli.main(["info", program, "-p", "none", "--json"]) == 0
    assert "compared" not in json.loads(capsys.readouterr().out)
