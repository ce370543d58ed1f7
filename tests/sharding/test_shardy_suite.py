"""Shardy's own executable tests: programs with shardings, split here, written, read, and run on all devices by the tests' own main.

Each file has functions to be partitioned (part 1), and a main that runs them as devices and checks what they give (part 2).
"""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Module
from deepx_graph.session.cluster.sharded import Sharded
from deepx_graph.session.plans import planned
from deepx_graph.sharding.annotations import stated_plan
from deepx_graph.sharding.by_hand.opened import opened
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.propagate import propagate
from tests.support.mpi_ranks import needs_mpi, ranks
from tests.support.paths import SHARED
from tests.support.sharded_programs import inputs

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
        alone = whole.with_entry(name)
        module, plain = opened(alone), alone.with_functions([alone.entry])
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


RANK = """
import pickle, sys, warnings
import deepx_graph as dx
from deepx_graph.ir.collective import Grid
from deepx_graph.session.plans import planned
from deepx_graph.session.cluster.sharded import Sharded, mpi_transport
warnings.simplefilter("ignore")
transport, found = mpi_transport(Grid(1, int(sys.argv[3])), deterministic=True), []
for text, name, arrays in pickle.load(open(sys.argv[1], "rb")):
    found.append(Sharded(*planned(dx.loads(text, "stablehlo").with_entry(name)), transport=transport, engine="numpy")(*arrays))
if transport.device == 0:
    pickle.dump(found, open(sys.argv[2], "wb"))
"""
"""All functions in one rank."""


@needs_mpi
@pytest.mark.conformance
@pytest.mark.skipif(not TEXTS, reason="Shardy's tests are not beside the checkout")
@pytest.mark.parametrize("devices", [2, 4, 8])
@pytest.mark.filterwarnings("ignore")
def test_functions_have_the_bits_of_lock_step_on_ranks(tmp_path: Path, devices: int) -> None:
    cases, expected = [], []
    for path in TEXTS:
        text = re.split(r"^//--- part\d\.mlir$", path.read_text(encoding="utf-8"), flags=re.M)[1]
        for name in re.findall(r"^\s*func\.func\s+(?:public |private )?@(\w+)\(", text, flags=re.M):
            module = dx.loads(text, "stablehlo").with_entry(name)
            plan = stated_plan(opened(module))
            if plan is not None and plan.mesh.count == devices and not name.startswith("manual_"):
                cases.append((text, name, inputs(module)))
                expected.append(Sharded(*planned(module), engine="numpy")(*cases[-1][2]))
    assert len(cases) >= 3
    (tmp_path / "cases").write_bytes(pickle.dumps(cases))
    (tmp_path / "rank.py").write_text(RANK)
    done = ranks(devices, str(tmp_path / "rank.py"), str(tmp_path / "cases"), str(tmp_path / "found"), str(devices))
    assert done.returncode == 0, done.stderr
    for (_, name, _), found, want in zip(cases, pickle.loads((tmp_path / "found").read_bytes()), expected, strict=True):
        for a, b in zip(found, want, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)
