"""Random bits split over devices: each draws its own part alone, and together they are the bits that are drawn whole."""

from __future__ import annotations

import math

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph import ops
from deepx_graph.sharding.mesh import Mesh, split
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.plan import Plan
from deepx_graph.types import F32, F64, U16, U32, U64
from tests.support.sharded_programs import on_devices, program

STATES = (("THREE_FRY", [7, 2**64 - 2]), ("PHILOX", [7, 2**64 - 2]), ("PHILOX", [7, 2**64 - 2, 5]), ("DEFAULT", [2**64 - 1, 3]))
SHAPES = ((8,), (5, 4), (6, 3), (7, 5), (3, 9), (1, 7, 2), (5, 7, 3))


@pytest.mark.parametrize(("algorithm", "state"), STATES)
def test_parts_are_those_of_the_whole(algorithm: str, state: list[int]) -> None:
    """The states are such that the counter overflows within the draw."""
    for shape in SHAPES:
        for dtype in (U16, U32, U64, F32):
            arrays = [np.array(state, np.uint64)]
            module = program(ops.rng_bit_generator, arrays, {"rng_algorithm": algorithm, "shape": shape, "dtype": dtype})
            whole = dx.compile(module, engine="numpy", optimize=False)(*arrays)
            dim = next(k for k, n in enumerate(shape) if n > 1)
            for count in (2, 3, 7):
                mesh = Mesh((("a", count),))
                plan = Plan(mesh, module.entry, {module.entry.results[1]: split(*((mesh.axis("a"),) * (k == dim)
                                                                                  for k in range(len(shape))))})
                for found, want in zip(on_devices(module, plan, arrays), whole, strict=True):
                    assert found.tobytes() == want.tobytes(), (shape, dtype, count)


def test_no_device_draws_all() -> None:
    arrays = [np.array([1, 2], np.uint64)]
    module = program(ops.rng_bit_generator, arrays, {"rng_algorithm": "PHILOX", "shape": (64, 32), "dtype": U32})
    mesh = Mesh((("a", 8),))
    local = partition(module, Plan(mesh, module.entry, {module.entry.results[1]: split((mesh.axis("a"),), ())}))
    (draw,) = (n for n in local.module.entry.nodes if n.op is ops.rng_bit_generator)
    assert math.prod(draw.attr("shape")) <= 64 * 32 // 8 + 3
    assert not local.meetings


@pytest.mark.parametrize("seed", [np.int64(42), np.int64(-5), np.int64(0), np.int32(-(2**31)), np.uint64(2**64 - 1),
                                  np.uint8(3), np.int64(2**31 - 1)])  # fmt: skip
def test_even_parts_are_those_of_the_whole(seed: np.generic) -> None:
    """Of seeds that the generator brings into its range, too; uneven parts, and devices that have none."""
    for shape in ((8,), (5, 4), (1, 7, 2), (3, 1)):
        for dtype in (F32, F64):
            arrays = [np.float64(-0.5), np.float32(1.5), np.asarray(seed)]
            module = program(ops.rng_uniform, arrays, {"shape": shape, "dtype": dtype})
            (whole,) = dx.compile(module, engine="numpy", optimize=False)(*arrays)
            dim = next(k for k, n in enumerate(shape) if n > 1)
            for count in (2, 3, 7):
                mesh = Mesh((("a", count),))
                plan = Plan(mesh, module.entry, {module.entry.results[0]: split(*((mesh.axis("a"),) * (k == dim)
                                                                                  for k in range(len(shape))))})
                (found,) = on_devices(module, plan, arrays)
                assert found.tobytes() == whole.tobytes(), (shape, dtype, count)
                (draw,) = (n for n in partition(module, plan).module.entry.nodes if n.op is ops.rng_uniform)
                assert draw.attr("shape")[dim] == -(-shape[dim] // count)
