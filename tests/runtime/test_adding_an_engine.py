"""The page on engines: its example runs, and prints what it says."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from typing import Any

from deepx_graph.runtime.engines.base import Engine
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "adding-an-engine.md").read_text(encoding="utf-8")


def test_the_example_counts_and_delegates() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    said, names = io.StringIO(), dict[str, Any]()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "adding-an-engine.md", "exec"), names)
    (wanted,) = re.findall(r"It prints `(.*?)`", PAGE)
    assert said.getvalue().strip() == wanted
    assert names["counting"].lowering(None) == "counted, then by numpy"


def test_the_page_names_all_that_an_engine_says() -> None:
    methods = {m: f for m, f in vars(Engine).items() if not m.startswith("_") and callable(f)}
    calls = [f"`{m}({', '.join(list(inspect.signature(f).parameters)[1:])})`" for m, f in methods.items()]
    flags = [f"`{m}`" for m in vars(Engine) if isinstance(vars(Engine)[m], bool)]
    assert len(calls) > 10 and len(flags) == 2
    assert [said for said in calls + flags if said not in PAGE] == []
