"""Index semantics equal `eval`: every element of every sample is where `place` says."""

from __future__ import annotations

import numpy as np
import pytest

from deepx_graph.ir import Op
from deepx_graph.ir.place import Integers, element
from deepx_graph.ops import OPS

PLACED = [op for op in OPS.values() if op.place is not None]


def test_every_operation_that_is_a_view_is_placed() -> None:
    assert {op.name for op in OPS.values() if op.view and op.operands} == {op.name for op in PLACED if op.view}


@pytest.mark.parametrize("op", PLACED, ids=lambda op: op.name)
def test_places_are_those_of_eval(op: Op) -> None:
    rng = np.random.default_rng(0)
    given = op.samples(rng) if op.samples else [((rng.random((2, 3)),), {})]
    for operands, attrs in given:
        arrays = [np.asarray(x) for x in operands]
        values = op.bind(attrs)
        want = np.asarray(op.eval(arrays, *values))  # type: ignore[misc]
        s, shapes = Integers(arrays), [a.shape for a in arrays]
        for at in np.ndindex(want.shape):
            found = element(op.place(s, shapes, values, at))  # type: ignore[misc]
            assert all(0 <= i < n for i, n in zip(found.index, shapes[found.operand], strict=True)), (attrs, at, found)
            assert arrays[found.operand][found.index] == want[at], (attrs, at, found)
