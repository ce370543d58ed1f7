"""A loop that writes a row an iteration writes it in place, and only where nobody else sees the array."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.runtime.engines import kernel_engine as updates
from deepx_graph.runtime.memory.pool import LEAST_BYTES

ROWS = """HloModule rows
%more {{ t = (s32[], f32[9,{n}], f32[{n}]) parameter(0)
 i = s32[] get-tuple-element(t), index=0
 n = s32[] constant(9)
 ROOT r = pred[] compare(i, n), direction=LT }}
%iteration {{ t = (s32[], f32[9,{n}], f32[{n}]) parameter(0)
 i = s32[] get-tuple-element(t), index=0
 a = f32[9,{n}] get-tuple-element(t), index=1
 x = f32[{n}] get-tuple-element(t), index=2
 one = s32[] constant(1)
 z = s32[] constant(0)
 j = s32[] add(i, one)
 y = f32[{n}] add(x, x)
 u = f32[1,{n}] reshape(y)
 d = f32[9,{n}] dynamic-update-slice(a, u, i, z)
 ROOT r = (s32[], f32[9,{n}], f32[{n}]) tuple(j, d, y) }}
ENTRY main {{ a = f32[9,{n}] parameter(0)
 x = f32[{n}] parameter(1)
 z = s32[] constant(0)
 t = (s32[], f32[9,{n}], f32[{n}]) tuple(z, a, x)
 w = (s32[], f32[9,{n}], f32[{n}]) while(t), condition=%more, body=%iteration
 ROOT r = f32[9,{n}] get-tuple-element(w), index=1 }}
"""


@pytest.mark.parametrize("n", [5, LEAST_BYTES // 4], ids=["small", "lent memory"])
def test_rows_are_written_in_place_after_the_first(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    alone: list[bool] = []
    told = updates.is_held_here_alone

    def listen(values: list[np.ndarray]) -> bool:
        alone.append(told(values))
        return alone[-1]

    f = dx.compile(dx.loads(ROWS.format(n=n)), optimize=False)
    a, x = np.full((9, n), 7, np.float32), np.ones(n, np.float32)
    wanted = np.repeat(2.0 ** np.arange(1, 10, dtype=np.float32), n).reshape(9, n)
    f(a, x)
    monkeypatch.setattr(updates, "is_held_here_alone", listen)
    (got,) = f(a, x)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(a, np.full((9, n), 7, np.float32))  # the caller's own array is as it was
    (again,) = f(a, x)
    assert again is not got and not np.shares_memory(again, got)
    np.testing.assert_array_equal(got, wanted)
    assert sum(alone) >= len(alone) - 4


def test_an_array_that_is_still_wanted_is_copied() -> None:
    text = """HloModule kept
ENTRY main { x = f32[4] parameter(0)
 i = s32[] parameter(1)
 a = f32[4] add(x, x)
 u = f32[1] slice(x), slice={[0:1]}
 d = f32[4] dynamic-update-slice(a, u, i)
 e = f32[4] dynamic-update-slice(d, u, i)
 ROOT r = (f32[4], f32[4], f32[4]) tuple(a, d, e) }
"""
    x = np.arange(1, 5, dtype=np.float32)
    a, d, e = dx.compile(dx.loads(text), optimize=False)(x, np.int32(2))
    np.testing.assert_array_equal(a, x + x)
    np.testing.assert_array_equal(d, [2, 4, 1, 8])
    np.testing.assert_array_equal(e, d)


def test_views_count_as_holders() -> None:
    array = np.arange(6.0)
    assert updates.is_held_here_alone([np.arange(6.0)])
    assert not updates.is_held_here_alone([array])
    view = np.arange(6.0)
    values = [view]
    part = view[2:]
    del view
    assert not updates.is_held_here_alone(values) and part.size == 4
