"""What collectives cost: the formulas of the literature, levels of links, and texts that read back."""

from __future__ import annotations

import pytest

from deepx_graph.errors import ParseError, UsageError
from deepx_graph.planning.cluster import PRESETS, preset, read_cluster
from deepx_graph.planning.links import COLLECTIVES, NetworkLink, uniform_link

ALPHA, BETA = 1e-6, 1e9
DEVICE = "device: flops=1e12, bandwidth=1e11, memory=1e9\n"


def test_a_large_all_reduce_is_bound_by_bytes_and_a_small_one_by_rounds() -> None:
    """2(n-1)/n B/beta of Rabenseifner's algorithm; log2(n) alpha of recursive doubling (Thakur et al., 2005)."""
    link = uniform_link(ALPHA, BETA)
    seconds, name = link.collective("all_reduce", 8, 8e8)
    assert (seconds, name) == (pytest.approx(2 * 7 / 8 * 8e8 / BETA, rel=1e-4), "halving and doubling")
    assert link.collective("all_reduce", 8, 8) == (pytest.approx(3 * ALPHA, rel=0.01), "recursive doubling")
    assert link.collective("all_gather", 8, 8e8)[0] == pytest.approx(link.collective("reduce_scatter", 8, 8e8)[0])
    assert link.collective("all_reduce", 1, 8e6) == (0, "alone")


def test_a_ring_uses_both_directions() -> None:
    """An all-gather on a ring takes half of its rounds one way, half the other: B / (2 beta) for many devices."""
    assert uniform_link(0, BETA, "ring").collective("all_gather", 64, 64e6)[0] == pytest.approx(32 * 1e6 / BETA)


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_more_bytes_never_take_less(kind: str) -> None:
    for topology in ("ring", "switch"):
        link = uniform_link(ALPHA, BETA, topology)
        found = [link.collective(kind, count, nbytes)[0] for count in (2, 3, 8, 12) for nbytes in (1, 1e3, 1e6, 1e9)]
        assert all(a <= b for k in range(0, 16, 4) for a, b in zip(found[k : k + 3], found[k + 1 : k + 4], strict=True))


def test_lines_between_points() -> None:
    link = NetworkLink(((0, 1.0), (10, 2.0), (20, 4.0)))
    assert [link.message(b) for b in (0, 5, 10, 15, 30)] == pytest.approx([1, 1.5, 2, 3, 6])


def test_links_between_machines_move_a_part_each() -> None:
    """Of 8 devices in each of 2 machines the slow link sees an eighth of the bytes; one machine does not see it at all."""
    cluster = read_cluster(DEVICE + "8: alpha=0, beta=1e12, switch\n*: alpha=0, beta=1e9, switch\n")
    everyone, inside = (tuple(range(16)),), (tuple(range(8)), tuple(range(8, 16)))
    seconds, how = cluster.collective("all_reduce", everyone, 8e8)
    assert how == "by levels" and seconds == pytest.approx(8e8 / 8 / 1e9, rel=0.02)
    assert cluster.collective("all_reduce", inside, 8e8)[0] == pytest.approx(2 * 7 / 8 * 8e8 / 1e12)
    across = tuple((k, k + 8) for k in range(8))
    assert cluster.collective("all_reduce", across, 8e8)[0] == pytest.approx(8e8 / 1e9)
    assert cluster.collective("collective_permute", ((0, 0), (3, 3)), 8e8) == (0, "alone")


def test_what_was_measured_counts() -> None:
    cluster = read_cluster(DEVICE + "*: 256=1e-6, 65536=1e-3, switch\n* all_reduce 2: 100=5.0, 200=7.0  # seconds\n")
    assert cluster.collective("all_reduce", ((0, 1),), 150) == (6.0, "measured")


@pytest.mark.parametrize("name", PRESETS)
def test_presets_read_back(name: str) -> None:
    assert read_cluster(str(preset(name))) == preset(name)


@pytest.mark.parametrize(("text", "message"), [
    ("8", "not a line"), ("device: flops=0, bandwidth=1, memory=1", "more than nothing"), ("device: flops=1", "not a line"),
    (DEVICE + "*: alpha=1, beta=0", "not a line"), (DEVICE + "*: 5=1, 2=1", "at least two points"),
    (DEVICE + "*: alpha=1, beta=1\n* gossip 2: 1=1, 2=2", "no collective 'gossip'"),
    ("*: alpha=1, beta=1", "a line for its device"), (DEVICE + "8: alpha=1, beta=1", "multiples of one another"),
    (DEVICE + "3: alpha=1, beta=1\n8: alpha=1, beta=1\n*: alpha=1, beta=1", "multiples of one another"),
])  # fmt: skip
def test_wrong_texts_are_pointed_at(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        read_cluster("# a comment\n" + text)


def test_an_unknown_preset_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="h100"):
        preset("h10")
