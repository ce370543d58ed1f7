"""Meshes and shardings: numbers of parts, groups, sub-axes, and their text."""

from __future__ import annotations

import numpy as np
import pytest

from deepx_graph.errors import ParseError, UsageError
from deepx_graph.sharding.mesh import AxisRef, Mesh, local_shape, merged, split
from deepx_graph.sharding.notation import mesh_from_option, read_annotation, read_mesh, read_sharding, read_tiles
from deepx_graph.sharding.pieces import assembled, piece

MESH = Mesh((("a", 2), ("b", 4)))
A, B = MESH.axis("a"), MESH.axis("b")


def test_parts_are_numbered_row_by_row() -> None:
    assert [MESH.index(d, (B,)) for d in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert [MESH.index(d, (B, A)) for d in range(8)] == [0, 2, 4, 6, 1, 3, 5, 7]
    assert MESH.groups((A,)) == ((0, 4), (1, 5), (2, 6), (3, 7))


def test_sub_axes_of_the_documentation() -> None:
    """`"y":(2)2` of an axis of 8 is the second of three factors of 2."""
    mesh = Mesh((("x", 2), ("y", 8)))
    assert [mesh.index(d, (AxisRef("y", 2, 2),)) for d in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert mesh.atoms((mesh.axis("y"),)) == (AxisRef("y", 1, 2), AxisRef("y", 2, 2), AxisRef("y", 4, 2))
    assert merged(mesh.atoms((mesh.axis("y"),))) == (mesh.axis("y"),)


@pytest.mark.parametrize("size", [6, 12, 30])
def test_any_part_of_an_axis_is_a_product_of_atoms(size: int) -> None:
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    parts = [AxisRef("x", pre, post // pre) for pre in divisors for post in divisors if post > pre and post % pre == 0]
    for part in parts:
        mesh = Mesh((("x", size),)).with_parts([part])
        assert merged(mesh.atoms((part,))) == (part,)
        assert merged(mesh.atoms((mesh.axis("x"),))) == (mesh.axis("x"),)
        assert sorted(device for group in mesh.groups(mesh.atoms((part,))) for device in group) == list(range(size))
        assert all([mesh.index(d, (part,)) for d in group] == list(range(part.size)) for group in mesh.groups(mesh.atoms((part,))))


def test_parts_of_an_axis_that_no_order_of_factors_has() -> None:
    mesh = Mesh((("x", 6),)).with_parts([AxisRef("x", 1, 2)])
    with pytest.raises(UsageError, match="2 is no factor of 3"):
        mesh.with_parts([AxisRef("x", 3, 2)])


def test_devices_in_an_order_of_their_own() -> None:
    mesh = read_mesh('<["a"=2, "b"=2], device_ids=[0, 2, 1, 3]>')
    assert [mesh.index(d, (mesh.axis("a"),)) for d in range(4)] == [0, 1, 0, 1]


@pytest.mark.parametrize("text", ['[{"a"}, {"b", ?}]', '[{"b":(1)2}, {"b":(2)2}p1]', '[{}, {?}], replicated={"a"}',
                                  '[{}], unreduced={"a", "b"}', "[]"])  # fmt: skip
def test_shardings_read_back(text: str) -> None:
    assert read_sharding(text, MESH).text(MESH) == text


@pytest.mark.parametrize(("text", "message"), [
    ('[{"z"}]', "no axis 'z'"), ('[{"a"}, {"a"}]', "overlap"), ('[{"b":(1)3}]', "no part of an axis of 4"),
    ('[{"b":(1)2}, {"b"}]', "overlap"), ("[{a}]", "name of an axis"), ('[{"a"', "expected ','"), ("[] x", "goes on"),
])  # fmt: skip
def test_wrong_shardings_are_pointed_at(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message) as e:
        read_sharding(text, MESH)
    assert e.value.diagnostics[0].span is not None


def test_wrong_meshes() -> None:
    with pytest.raises(UsageError, match="at most"):
        Mesh((("a", 10**9),))
    with pytest.raises(ParseError, match="each number below 2 once"):
        read_mesh('<["a"=2], device_ids=[0, 0]>')
    with pytest.raises(UsageError, match="no axis of a mesh"):
        mesh_from_option("data")
    assert mesh_from_option("data=4,model=2").axes == (("data", 4), ("model", 2))


def test_annotations_of_several_values() -> None:
    found = read_annotation('<[<@m, [{"a", "b"}, {?}]>, <@m, []>]>', {"m": MESH})
    assert [s.axes for _, s in found] == [((A, B), ()), ()]


@pytest.mark.parametrize(("text", "rank", "wanted"), [
    ("{devices=[4,1,2]<=[8] last_tile_dim_replicate}", 2, lambda d: (d // 2, 0)),
    ("{devices=[4,2]<=[8]}", 2, lambda d: (d // 2, d % 2)),
    ("{devices=[2,4]<=[4,2]T(1,0)}", 2, lambda d: (d % 2, d // 2)),
    ("{devices=[1,2,4]<=[2,4]T(0,1) last_tile_dim_replicate}", 2, lambda d: (0, d // 4)),
])  # fmt: skip
def test_tiles_of_hlo(text: str, rank: int, wanted) -> None:
    """Device d has the tile at its place in the transposed iota, as XLA's `HloSharding` V2 says."""
    found = read_tiles(text, rank)
    assert found is not None
    mesh, sharding = found
    assert [tuple(mesh.index(d, axes) for axes in sharding.axes) for d in range(8)] == [wanted(d) for d in range(8)]
    assert read_tiles("{replicated}", 2) is None


def test_pieces_make_the_whole() -> None:
    x = np.arange(48).reshape(8, 6)
    for sharding in (split((B, A), ()), split((AxisRef("b", 2, 2),), (A,)), split((), ())):
        pieces = [piece(x, MESH, sharding, d) for d in range(8)]
        assert pieces[0].shape == local_shape(x.shape, sharding.axes)
        np.testing.assert_array_equal(assembled(pieces, x.shape, MESH, sharding), x)
