"""Shardy's own executable tests: programs with shardings, split here, written, read, and run on all devices by the tests' own main.

Each file has functions to be partitioned (part 1), and a main that runs them as devices and checks what they give (part 2).
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

import deepx_graph as dx
from deepx_graph.ir import Module
from deepx_graph.sharding.annotations import stated_plan
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.propagate import propagate
from tests.support.paths import SHARED

SUITE = SHARED / "suites" / "shardy" / "transforms"
TEXTS = sorted(SUITE.glob("*/test/executable_*/*.mlir"))

TWICE = {"sdy_all_gather.mlir": ("combined_gather", "per_dim_gather")}
"""Names under which a main runs one function that is partitioned in two ways."""


def written(module: Module, name: str) -> str:
    """The entry of a module as text, under a name, without the module."""
    text = re.sub(r"\A.*?^(?=\s*func\.func)", "", dx.dumps(module, "stablehlo"), flags=re.S | re.M)
    return text.rstrip().removesuffix("}").replace("@main(", f"@{name}(")


def partitioned(text: str, main: str, also: tuple[str, ...]) -> str:
    """Functions that state shardings as programs of one device; others, and twins that main wants, as they are."""
    whole, found = dx.loads(text, "stablehlo"), []
    names = re.findall(r"^\s*func\.func\s+(?:public |private )?@(\w+)\(", text, flags=re.M)
    for name in names:
        module = whole.with_entry(name)
        plain = module.with_functions([module.entry])
        plan = stated_plan(module)
        local = plain if plan is None else partition(module, propagate(plan)).module
        found += (written(local, each) for each in also or (name,))
        twin = name.replace("parallel_", "sequential_").replace("transformed_", "original_")
        if twin not in names and f"@{twin}" in main:
            found.append(written(plain, twin))
    return "\n".join(found)


def meshes(text: str, other: str) -> list[str]:
    """The meshes of a text that another one does not have."""
    return [line for line in text.splitlines() if line.startswith("sdy.mesh ") and line.partition(" =")[0] not in other]


@pytest.mark.skipif(not TEXTS, reason="Shardy's tests are not beside the checkout")
@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.stem)
def test_executable(path: Path) -> None:
    _, first, second = re.split(r"^//--- part\d\.mlir$", path.read_text(encoding="utf-8"), flags=re.M)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        functions = partitioned(first, second, TWICE.get(path.name, ()))
        module = dx.loads("\n".join((*meshes(first, second), functions, second)), "stablehlo").with_entry("main")
        dx.compile(module, engine="numpy", optimize=False)()
