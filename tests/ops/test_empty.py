"""Operands without elements: every operation takes them as it takes others, or says why not, and every engine gives the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph import ops
from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Op
from deepx_graph.runtime.engines import has_native
from tests.support.laws import LAWFUL, Sample, one_op, samples


def emptied(op: Op) -> Iterator[Sample]:
    """The samples of an op with one of their sizes made zero, in operands alone and in attributes too."""
    for arrays, attrs in samples(op):
        for size in sorted({n for a in arrays for n in a.shape} - {0}):
            empty = [np.zeros([0 if n == size else n for n in a.shape], a.dtype) if size in a.shape else a for a in arrays]
            yield empty, attrs
            yield empty, {name: _replaced(value, size) for name, value in attrs.items()}


def _replaced(value: Any, size: int) -> Any:
    if type(value) is tuple:
        return tuple(_replaced(v, size) for v in value)
    return 0 if type(value) is int and value == size else value


@pytest.mark.parametrize("op", LAWFUL, ids=lambda op: op.name)
def test_what_has_no_elements_is_refused_or_the_same_on_every_engine(op: Op) -> None:
    seen = set()
    for arrays, attrs in emptied(op):
        try:
            module = dx.Module((one_op(op, arrays, attrs),), "law")
        except (DeepxGraphError, TypeError):  # no such operation, or not one alone
            continue
        if (key := str(module)) in seen:
            continue
        seen.add(key)
        expected = dx.run(module, *arrays, engine="numpy")
        for engine in ("numexpr", *(["native"] if has_native() else [])):
            for got, want in zip(dx.run(module, *arrays, engine=engine), expected, strict=True):
                np.testing.assert_array_equal(got, want, err_msg=f"{engine}, {attrs}", strict=True)


def test_there_is_nothing_to_choose_along_an_axis_without_elements() -> None:
    b = dx.Builder()
    with pytest.raises(dx.VerifyError, match="axis 1 of the operand has no elements to choose from"):
        b.function("f", [("x", "f32[2,0]"), ("k", "i32[3]")], lambda x, k: [b(ops.torch_index_select, x, k, dim=1)])
