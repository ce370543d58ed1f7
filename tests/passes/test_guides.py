"""The guide to passes: its example runs, prints what it says, and keeps values, limits and what others use."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops import add
from deepx_graph.passes.pipeline import run_pipeline
from deepx_graph.types import F32, I32, scalar
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "adding-a-pass.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the example defines, and what it printed."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    said, found = io.StringIO(), {"__name__": "guide"}
    with contextlib.redirect_stdout(said):
        exec(compile(code, "adding-a-pass.md", "exec", dont_inherit=True), found)
    return {**found, "said": said.getvalue().strip()}


def chain(type: Any, both: bool = False) -> Module:
    """x0 + x1 + x2 + x3 + x4, from the left; with `both`, the sum of the first three is a result too."""
    b = Builder()

    def body(*xs: Node) -> list[Node]:
        totals = [xs[0]]
        for x in xs[1:]:
            totals.append(b(add, totals[-1], x))
        return [totals[-1], totals[2]] if both else [totals[-1]]

    return Module((b.function("main", [(f"x{k}", type) for k in range(5)], body),))


def test_the_example_prints_what_the_page_says(names: dict[str, Any]) -> None:
    (wanted,) = re.findall(r"It prints `(.*?)`", PAGE)
    assert names["said"] == wanted


def test_values_are_kept(names: dict[str, Any]) -> None:
    module = run_pipeline(chain(scalar(I32), both=True), [names["Balance"]()])
    assert [int(r) for r in dx.compile(module, optimize=False)(*map(np.int32, (1, 2, 3, 4, 5)))] == [15, 6]


def test_it_leaves_floats_short_sums_and_what_is_beyond_the_limit(names: dict[str, Any]) -> None:
    balance = names["Balance"]
    for module, pass_, limit in ((chain(scalar(F32)), balance(), None), (chain(scalar(I32)), balance(least=6), None),
                                 (chain(scalar(I32)), balance(), 0)):  # fmt: skip
        assert run_pipeline(module, [pass_], limit=limit).entry is module.entry
