"""The page on engines: its example runs, and prints what it says."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from pathlib import Path
from typing import Any

from deepx_graph.runtime.engines import base as engine
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "adding-an-engine.md").read_text(encoding="utf-8")


def test_the_example_counts_and_delegates() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    said, names = io.StringIO(), dict[str, Any]()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "adding-an-engine.md", "exec"), names)
    (wanted,) = re.findall(r"It prints `(.*?)`", PAGE)
    assert said.getvalue().strip() == wanted
    assert isinstance(names["counting"], engine.Explains)
    assert names["counting"].lowering(None) == "counted, then by numpy"


def test_the_page_names_every_protocol() -> None:
    protocols = re.findall(r"^class (\w+)\(Protocol\)", Path(engine.__file__).read_text(encoding="utf-8"), re.MULTILINE)
    assert len(protocols) > 4
    for name in protocols:
        assert f"`{name}`" in PAGE
        methods = {m: f for m, f in vars(getattr(engine, name)).items() if not m.startswith("_") and callable(f)}
        calls = [f"`{m}({', '.join(list(inspect.signature(f).parameters)[1:])})`" for m, f in methods.items()]
        assert [c for c in calls if c not in PAGE] == [], name
