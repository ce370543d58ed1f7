"""Shardy's own executable tests: programs with shardings, split here and run on all devices of their mesh."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Module
from deepx_graph.sharding.annotations import needed_plan
from deepx_graph.sharding.propagate import propagate
from deepx_graph.types import is_state
from tests.support.paths import SHARED
from tests.support.sharded_programs import on_devices

SUITE = SHARED / "suites" / "shardy" / "transforms"
TEXTS = sorted(SUITE.glob("*/test/executable_*/*.mlir"))

REFUSED = 15
"""Programs with Shardy's explicit collectives, with collectives of their own, on one device of a mesh, or of syntax not read."""


def programs(path: Path) -> list[tuple[str, str]]:
    """The text that is to be split, and the names of its functions."""
    text = path.read_text(encoding="utf-8").split("//--- part2.mlir")[0].split("//--- part1.mlir")[-1]
    names = re.findall(r"func\.func\s+(?:public |private )?@(\w+)\(", text)
    return [(text, name) for name in names if not name.startswith("seq")]


def arrays(module: Module) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [np.asarray(rng.integers(0, 3, p.type.shape)).astype(p.type.dtype.np) for p in module.entry.params]


@pytest.mark.skipif(not TEXTS, reason="Shardy's tests are not beside the checkout")
def test_executable_programs() -> None:
    found: Counter[str] = Counter()
    for path in TEXTS:
        for text, name in programs(path):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    module = dx.loads(text, "stablehlo").with_entry(name)
                if any(is_state(p.type) for p in module.entry.params):
                    found["refused"] += 1
                    continue
                plan, given = propagate(needed_plan(module)), arrays(module)
                whole = dx.compile(module, engine="numpy", optimize=False)(*given)
                got = on_devices(module, plan, given)
            except DeepxGraphError:
                found["refused"] += 1
                continue
            for a, b in zip(got, whole, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4, err_msg=f"{path.name}: {name}")
            found["right"] += 1
    assert found["refused"] <= REFUSED and found["right"] >= 22, found
