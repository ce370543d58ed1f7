"""Recorded Relay programs, and the texts of TVM's own tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import deepx_graph as dx
from tests.support.paths import SHARED

CORPUS = SHARED / "corpus" / "relay"

SUITE = SHARED / "suites" / "relay_texts"


def corpus() -> list[str]:
    return sorted(p.name for p in CORPUS.glob("*.relay")) or ["absent"]


def suite() -> list[dict[str, str]]:
    index = SUITE / "index.json"
    return json.loads(index.read_text()) if index.exists() else []


def load(path: Path) -> dx.Module:
    if not path.exists():
        pytest.skip(f"{path.name} is not there")
    return dx.load(path)
