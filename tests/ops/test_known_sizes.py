"""Vectors of sizes where some are symbols: followed through moves, conversions and products, and held against runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.ir import Builder, Node
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.ops.known import KnownValues
from deepx_graph.ops.known_sizes import MOST_NODES, known_array, known_sizes
from deepx_graph.types import F32, I64, TensorType, tensor


def sizes_of(b: Builder, x: Node) -> Node:
    """The shape of a value as a vector."""
    rank = len(x.type.dims or ()) if isinstance(x.type, TensorType) else 0
    one = [b(ops.reshape, b(ops.convert, b(ops.get_dimension_size, x, dimension=k), dtype=I64), shape=(1,)) for k in range(rank)]
    return b(ops.concatenate, *one, dimension=0)


def known(node: Node) -> Any:
    return known_sizes(node, KnownValues())


def test_symbols_go_where_their_elements_go() -> None:
    b = Builder()
    x = b.param(0, tensor(F32, ("n", 4, "m")))
    shape = sizes_of(b, x)
    assert known(shape) == ("n", 4, "m")
    assert known(b(ops.reverse, shape, dimensions=(0,))) == ("m", 4, "n")
    part = b(ops.slice_, shape, start_indices=(1,), limit_indices=(3,), strides=(1,))
    assert known(part) == (4, "m")
    assert known(b(ops.concatenate, part, b.constant(np.array([7])), dimension=0)) == (4, "m", 7)
    assert known(b(ops.multiply, part, b.constant(np.array([3, 2])))) == (12, "m*2")


def test_sizes_are_multiplied_along_axes_and_the_largest_of_equal_ones_is_each() -> None:
    """As exporters do for shapes that are broadcast, and for `einsum`."""
    b = Builder()
    shape = sizes_of(b, b.param(0, tensor(F32, ("n", 4, "m"))))
    assert known(reduction(b, ops.multiply, shape, (0,))) == ("m*n*4",)
    table = b(ops.reshape, b(ops.concatenate, shape, b.constant(np.array([2, 3, 5])), dimension=0), shape=(2, 3))
    assert known(reduction(b, ops.multiply, table, (0,))) == ("n*2", 12, "m*5")
    assert known(reduction(b, ops.multiply, table, (1,))) == ("m*n*4", 30)
    assert known(b(ops.maximum, shape, shape)) == ("n", 4, "m")
    assert known(b(ops.minimum, shape, b(ops.reverse, shape, dimensions=(0,)))) == (None, 4, None)
    assert known(reduction(b, ops.add, table, (1,))) == ("m+n+4", 10)
    assert known(b(ops.add, shape, b.constant(np.array([0, 1, -1])))) == ("n", 5, None)
    assert known(b(ops.subtract, shape, shape)) is None


def test_what_is_no_size_is_not_known_and_does_not_hide_what_is() -> None:
    b = Builder()
    x, given = b.param(0, tensor(F32, ("n", 4))), b.param(1, "i64[1]")
    both = b(ops.concatenate, given, sizes_of(b, x), dimension=0)
    assert known(both) == (None, "n", 4)
    assert known(b(ops.slice_, both, start_indices=(2,), limit_indices=(3,), strides=(1,))) == (4,)
    assert known(b(ops.torch_index_select, sizes_of(b, x), given, dim=0)) is None, "an index that is an input"
    assert known(given) is None
    assert known(x) is None


def test_numbers_among_symbols_are_computed_with() -> None:
    b = Builder()
    shape = sizes_of(b, b.param(0, tensor(F32, ("n", 12))))
    last = b(ops.slice_, shape, start_indices=(1,), limit_indices=(2,), strides=(1,))
    third = b(ops.divide, last, b.constant(np.array([3])))
    found = known_array(third, KnownValues())
    assert found is not None and found.tolist() == [4] and found.dtype == np.int64
    assert known_array(shape, KnownValues()) is None


def test_long_chains_end() -> None:
    b = Builder()
    x = sizes_of(b, b.param(0, tensor(F32, ("n",))))
    for _ in range(MOST_NODES):
        x = b(ops.multiply, x, b.constant(np.array([1])))
    assert known(x) is None
