"""Costs of links and collectives: the formulas of rings, and texts that read back."""

from __future__ import annotations

import pytest

from deepx_graph.errors import ParseError, UsageError
from deepx_graph.sharding.network import PRESETS, AxisLink, link, preset, read_network


def test_a_ring_all_reduce_is_two_passes() -> None:
    """2(n-1) alpha + 2(n-1)/n B/beta."""
    x = link(1e-6, 1e9)
    assert x.collective("all_reduce", 8, 8e6) == pytest.approx(2 * 7 * 1e-6 + 2 * 7 / 8 * 8e6 / 1e9)
    assert x.collective("all_gather", 8, 8e6) == pytest.approx(x.collective("reduce_scatter", 8, 8e6))
    assert x.collective("all_reduce", 1, 8e6) == 0


def test_lines_between_points() -> None:
    x = AxisLink(((0, 1.0), (10, 2.0), (20, 4.0)))
    assert [x.message(b) for b in (0, 5, 10, 15, 30)] == pytest.approx([1, 1.5, 2, 3, 6])


@pytest.mark.parametrize("name", PRESETS)
def test_networks_read_back(name: str) -> None:
    assert str(read_network(str(preset(name)))) == str(preset(name))


def test_the_slowest_axis_decides() -> None:
    n = read_network("data: alpha=1e-5, beta=1e9, switch\n*: alpha=1e-6, beta=1e11  # the others\n")
    assert n.of(["model", "data"]) is n.links["data"] and n.of(["model"]) is n.default


@pytest.mark.parametrize("text", ["data", "data: alpha=1, beta=0", "data: 5=1, 2=1", "data: alpha=1, beta=1, mesh"])
def test_wrong_networks_are_pointed_at(text: str) -> None:
    with pytest.raises(ParseError, match="no link"):
        read_network("# a comment\n" + text)


def test_an_unknown_preset() -> None:
    with pytest.raises(UsageError, match="no network"):
        preset("smoke signals")
