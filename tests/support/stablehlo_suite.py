"""The test programs of StableHLO, section by section."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepx_graph.errors import Source
from deepx_graph.ops.host.host import Host
from deepx_graph.text import ReadOptions
from deepx_graph.text.stablehlo import read
from deepx_graph.types import STATE
from tests.support.paths import SHARED
from tests.support.reference import evaluate

SUITE = SHARED / "suites" / "stablehlo"


def sections(folder: str, step: int = 1) -> list[tuple[str, int]]:
    files = sorted((SUITE / folder).glob("*.mlir"))[::step]
    return [(f.name, k) for f in files for k, part in enumerate(f.read_text().split("// -----")) if part.strip()]


def run_section(folder: str, name: str, k: int) -> None:
    """Every function without arguments, or the entry; checks fail the test."""
    text = (SUITE / folder / name).read_text().split("// -----")[k]
    if "interpreter." in text:
        pytest.skip("several processes: run by test_devices")
    module = read(Source(name, text), ReadOptions()).module
    runnable = [f for f in module.functions if all(p.type == STATE for p in f.params)]
    for f in runnable if folder == "interpret" else [module.entry]:
        evaluate(module, [Host()] * len(f.params), f.name)

needs_suite = pytest.mark.skipif(not SUITE.is_dir(), reason="the suite ../shared/suites/stablehlo is not here")


def failing() -> set[str]:
    """Files that the suite itself disables (`RUN-DISABLED(inaccurate)`) and whose checks fail; listed so that a new one is seen."""
    listed = Path(__file__).with_name("stablehlo_failing.txt")
    return set(listed.read_text().split())

ADD = """module { func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
  %cst = stablehlo.constant dense<1.5> : tensor<2xf32>
  %0 = stablehlo.add %arg0, %cst : tensor<2xf32>
  return %0 : tensor<2xf32>
} }"""
