"""What a collective takes beside its operands and results, as predictions of peaks have it, against what numpy allocates."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph import ops
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.collective import Grid
from deepx_graph.literal import Array
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.runtime.devices import Stop, value_at
from deepx_graph.runtime.transport.mpi import native_reduction, scratch_of_meeting
from deepx_graph.session.cluster.simulation import simulate
from deepx_graph.session.plans import planned
from deepx_graph.types import F32, tensor

ROWS, COLUMNS = 512, 1024
BYTES = 4 * ROWS * COLUMNS
BLOCKS = 1 << 19
"""Bytes of the blocks in which elements are combined, which are left out."""


class Alike:
    """A group whose members all bring the same as this one."""

    def __init__(self, size: int) -> None:
        self.size = size

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return np.empty(shape, dtype)

    def all_reduce(self, array: Array, body: Function) -> Array | None:
        return array * array.dtype.type(self.size) if native_reduction(body.reducer, array.dtype) else None

    def all_gather(self, array: Array) -> Array:
        return np.stack([array] * self.size)

    def all_to_all(self, parts: Array) -> Array:
        return parts.copy()


def _collective(kind: str, size: int, dim: int) -> Node:
    groups: dict[str, Any] = {"replica_groups": (tuple(range(size)),), "channel_id": 1}
    everyone = {**groups, "use_global_device_ids": True}
    b = Builder()
    x = b.param(0, tensor(F32, (ROWS, COLUMNS)))
    made: dict[str, Callable[[], Node]] = {
        "sum": lambda: b(ops.spmd_all_reduce, x, **everyone, computation=monoid_body(ops.add, F32)),
        "largest": lambda: b(ops.spmd_all_reduce, x, **everyone, computation=monoid_body(ops.maximum, F32)),
        "gather": lambda: b(ops.spmd_all_gather, x, **everyone, all_gather_dim=dim, shard_count=size),
        "scatter": lambda: b(ops.spmd_reduce_scatter, x, **everyone, scatter_dimension=dim, shard_count=size,
                             computation=monoid_body(ops.add, F32)),
        "swap": lambda: b(ops.spmd_all_to_all, x, **groups, split_dimension=dim, concat_dimension=1 - dim, split_count=size),
        "stay": lambda: b(ops.spmd_all_to_all, x, **groups, split_dimension=dim, concat_dimension=dim, split_count=size),
        "permute": lambda: b(ops.spmd_collective_permute, x, channel_id=1,
                             source_target_pairs=tuple((k, (k + 1) % size) for k in range(size))),
    }  # fmt: skip
    return made[kind]()


def _meet(node: Node, x: Array, size: int) -> Any:
    """The value of a collective as a transport between processes finds it."""
    network, exchange, stop = Alike(size), node.op.exchange, Stop(node, [x])
    assert exchange is not None
    results = exchange.network(network, [x], *node.attrs) if exchange.network is not None else None
    if results is not None:
        return value_at(stop, results, fresh=True)
    rows = [[part] for part in network.all_gather(x)]
    return value_at(stop, exchange.combine(Grid(1, size), tuple(range(size)), rows, *node.attrs)[0])


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", ["sum", "largest", "gather", "scatter", "swap", "stay", "permute"])
def test_scratch_is_what_is_allocated(kind: str, size: int, dim: int) -> None:
    """Never less, and at most half as much again, or a result of it."""
    node, x = _collective(kind, size, dim), np.ones((ROWS, COLUMNS), np.float32)
    _meet(node, x, size)
    tracemalloc.start()
    try:
        made = _meet(node, x, size)
        taken = tracemalloc.get_traced_memory()[1] - made.nbytes
    finally:
        tracemalloc.stop()
    said = scratch_of_meeting(node, Grid(1, size))
    assert taken - BLOCKS <= said <= max(1.5 * taken, made.nbytes)


def test_a_device_alone_takes_nothing() -> None:
    assert scratch_of_meeting(_collective("gather", 1, 1), Grid(1, 1)) == 0


def test_a_predicted_peak_has_what_a_gather_takes() -> None:
    """Columns are gathered: they come one device after the other, and are put beside each other in the result."""
    module = dx.loads(f"""func.func @main(%x: tensor<{ROWS}x{COLUMNS}xf32>) -> tensor<{ROWS}x{COLUMNS}xf32> {{
        %y = stablehlo.tanh %x : tensor<{ROWS}x{COLUMNS}xf32>
        return %y : tensor<{ROWS}x{COLUMNS}xf32> }}""", "stablehlo")
    peaks = {}
    for dims in ('{"d"}, {}', '{}, {"d"}'):
        plan = f'mesh <["d"=2]>\nx: [{dims}]\n-> 0: [{{}}, {{}}]\n'
        peaks[dims] = simulate(*planned(module, plan), "h100").peak_bytes
    rows, columns = peaks.values()
    assert columns - rows == BYTES
