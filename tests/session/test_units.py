"""Sizes and counts in few characters, against values worked out by hand."""

import json

import pytest

from deepx_graph.errors import BYTES, COUNTS, human, sized
from tests.support.paths import ROOT


@pytest.mark.parametrize(("number", "text"), [
    (None, "?"), (0, "0 B"), (1, "1 B"), (999, "999 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (10_000, "9.77 KiB"),
    (102_400, "100 KiB"), (1024**2 - 1, "1 MiB"), (24_000_000, "22.9 MiB"), (5 * 1024**3, "5 GiB"), (1024**5, "1024 TiB"),
])  # fmt: skip
def test_bytes_are_in_units_of_1024(number: int | None, text: str) -> None:
    assert sized(number) == text


@pytest.mark.parametrize(("number", "text"), [
    (None, "?"), (0, "0"), (999, "999"), (1000, "1K"), (1536, "1.54K"), (99_960, "100K"), (999_700, "1M"), (28_000_000, "28M"),
])  # fmt: skip
def test_counts_are_in_units_of_1000(number: int | None, text: str) -> None:
    assert human(number) == text


def test_pages_have_the_same_units() -> None:
    script = (ROOT / "viz" / "assets" / "graphs.js").read_text(encoding="utf-8")
    for base, units in ((1024, BYTES), (1000, COUNTS)):
        assert f"scaled(v, {base}, [{', '.join(json.dumps(u) for u in units)}])" in script
