"""The demonstration: its program of options means what it says, and what it says of speed is what it measured."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import numpy as np
import pytest
from scipy.special import ndtr

import deepx_graph as dx
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", EXAMPLES / "demo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_prices_of_options() -> None:
    rng = np.random.default_rng(0)
    spot, strike, years, volatility = (rng.uniform(a, b, 1_000_000) for a, b in ((50, 150), (50, 150), (0.1, 2), (0.1, 0.5)))
    spread = volatility * np.sqrt(years)
    d = (np.log(spot / strike) + (0.03 + volatility**2 / 2) * years) / spread
    owed = strike * np.exp(-0.03 * years)
    call, put = spot * ndtr(d) - owed * ndtr(d - spread), owed * ndtr(spread - d) - spot * ndtr(-d)
    f = dx.compile(dx.load(EXAMPLES / "black_scholes.mlir"))
    for found, wanted in zip(f(*(x.astype(np.float32) for x in (spot, strike, years, volatility))), (call, put), strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-4)


@pytest.mark.parametrize(("before", "after", "said"), [
    (3, 2, "1.5 times faster"), (2, 3, "1.5 times slower"), (100, 101, "about the same"), (101, 100, "about the same")])
def test_a_slowdown_is_not_called_faster(before: float, after: float, said: str, demo: ModuleType) -> None:
    assert demo.changed(before, after, "faster", "slower") == said


def test_the_engines_that_ran_are_named(demo: ModuleType, capsys: pytest.CaptureFixture[str],
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "SECONDS", 0)
    demo.options()
    said = capsys.readouterr().out
    assert dx.compile(dx.load(EXAMPLES / "black_scholes.mlir"), optimize=False).engine.name in demo.ENGINES
    assert all(f"ms   {name}: " in said for name in ("numexpr", *demo.ENGINES))
    assert said.count("(medians of 3)") == len(demo.ENGINES)
