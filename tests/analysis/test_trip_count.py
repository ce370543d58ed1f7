"""How often loops iterate: the same before and after their operations become kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.structure import LOOP_END
from deepx_graph.ops import add, compare, convert, multiply, sine
from deepx_graph.ops.data.fusion import fused_body
from deepx_graph.types import F32, tensor


def counted(start: int, step: int, limit: int, direction: str) -> Module:
    """A loop whose counter is also computed with: what it becomes and what is made of it are one kernel."""
    b = Builder()
    x = b.param(0, tensor(F32, ()))

    def whole(v: Sequence[Node]) -> tuple[Node, Sequence[Node]]:
        after = b(add, v[0], b.like(step, v[0]))
        held = b(compare, v[0], b.like(limit, v[0]), direction=direction)
        return held, (after, b(sine, b(multiply, v[1], b(convert, after, dtype=F32))))

    return Module((Function("main", (x,), (b.loop((b.constant(np.int32(start)), x), whole)[1],)),), "main")


@pytest.mark.parametrize(("start", "step", "limit", "direction"),
                         [(0, 1, 10, "LT"), (3, 2, 9, "LE"), (10, -3, 0, "GT"), (5, 1, 5, "LT"), (0, 4, 12, "NE")])
def test_kernels_do_not_hide_a_counter(start: int, step: int, limit: int, direction: str) -> None:
    holds = {"LT": int.__lt__, "LE": int.__le__, "GT": int.__gt__, "NE": int.__ne__}[direction]
    at, want = start, 0
    while holds(at, limit):
        at, want = at + step, want + 1
    module = counted(start, step, limit, direction)
    fused = dx.optimize(module, "fuse")
    for made in (module, fused):
        assert [trip_count(n) for n in made.entry.nodes if n.op is LOOP_END] == [want]
    assert any(fused_body(n) for n in fused.entry.nodes)
