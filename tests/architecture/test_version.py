"""The version stands in one place; what cites it says the same."""

from __future__ import annotations

import re

import deepx_graph
from tests.support.paths import ROOT


def test_the_citation_is_of_this_version() -> None:
    (cited,) = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited == deepx_graph.__version__
