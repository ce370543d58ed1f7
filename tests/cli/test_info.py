"""What `info` says of a program: the entry first, few of many inputs, singular and plural, effects apart from data."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepx_graph.errors import an, counted
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops import add, print_, tanh
from deepx_graph.session.report.info import SHOWN_PORTS, module_info
from deepx_graph.text import sea
from deepx_graph.types import F32, STATE, tensor
from tests.support.cli_runner import Run

ROW = tensor(F32, (10,))


def wide(count: int) -> Module:
    """The sum of so many inputs; a helper stands before it in the text."""
    b = Builder()
    helper = b.function("helper", [("x", ROW)], lambda x: [b(tanh, x)], public=False)

    def body(*inputs: Node) -> list[Node]:
        total = inputs[0]
        for x in inputs[1:]:
            total = b(add, total, x)
        return [total]

    return Module((helper, b.function("main", [(f"w{k}", ROW) for k in range(count)], body)), "main")


def test_many_inputs_are_counted_not_listed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "wide.sea"
    path.write_text(sea.write(wide(40)))
    lines = run("info", str(path), "-p", "none").out.split("\n")
    assert lines[2] == "function main"
    assert sum(line.startswith("  in ") for line in lines) == SHOWN_PORTS  # and of the helper one line
    assert f"  and {40 - SHOWN_PORTS} more inputs (--all lists them)" in lines
    assert "  40 inputs, 1.56 KiB" in lines
    whole = run("info", str(path), "-p", "none", "--all").out
    assert whole.count("  in   w") == 40 and "more input" not in whole


def test_one_is_one(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "one.sea"
    path.write_text(sea.write(wide(2)))
    out = run("info", str(path), "-p", "none").out
    assert "1 node, 2 edges, 1 deep" in out and "1 kernel: 10 operations" in out
    assert "1 nodes" not in out and "1 kernels" not in out and "None thread" not in run("info", str(path), "--engine", "numpy").out


def test_a_state_is_no_input() -> None:
    b = Builder()
    body = b.function("main", [("x", ROW), ("s", STATE)], lambda x, s: [x, b(print_, s, x, format="")])
    (facts,) = module_info(Module((body,))).functions
    assert facts.inputs == (("x", "f32[10]"),) and facts.effects and facts.input_bytes == 40
    assert [type for _, type in facts.outputs] == ["f32[10]"]
    assert "1 input, 40 B; takes and gives the state of effects" in str(facts)


@pytest.mark.parametrize(("thing", "said"), [
    ("f32[5]", "an f32[5]"), ("i32", "an i32"), ("s8[2]", "an s8[2]"), ("u8[3]", "a u8[3]"), ("bool", "a bool"),
    ("bf16[2]", "a bf16[2]"), ("c64", "a c64"), ("tuple of 2", "a tuple of 2"), ("any[*]", "an any[*]"),
    ("(f32[2], f32[2])", "a (f32[2], f32[2])"),
    ("state", "a state"), ("f8e4m3fn[2]", "an f8e4m3fn[2]"), ("int", "an int"), ("float", "a float"),
])  # fmt: skip
def test_articles(thing: str, said: str) -> None:
    assert an(thing) == said


def test_plurals() -> None:
    assert [counted(n, "node") for n in (0, 1, 2000)] == ["0 nodes", "1 node", "2,000 nodes"]
