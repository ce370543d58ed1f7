"""Panels of an operand that does not lie along the result: all terms and columns are copied, whatever their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.runtime.native import vectors
from deepx_graph.runtime.native.gemm import plan as plans
from deepx_graph.runtime.native.gemm import shares
from deepx_graph.runtime.native.gemm.kernel import kernel_of
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.types import BF16, F16, F32, F64, I8, I16, I32, U8, U32, DType, TensorType

LAYOUTS = {"rows and columns": ((0,), (0,)), "terms": ((1,), (1,)), "terms of one": ((1,), (0,))}
"""Where the terms of operands are: at the front, or behind."""


@pytest.mark.parametrize("bits", [128, 256, None], ids=str)
@pytest.mark.parametrize("types", [(I8, I8, I32), (U8, I16, I32), (I8, U8, U32), (BF16, BF16, F32), (F16, F32, F32), (F32, I8, F32),
                                   (I16, I32, F64)], ids=lambda types: "-".join(map(str, types)))
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("rows", "columns", "terms"), [
    (8, 8, (64,)), (33, 19, (7,)), (40, 83, (33,)), (70, 300, (516,)), (37, 65, (1031,)), (16, 40, (2200,)), (20, 33, (3, 5)),
    (20, 33, (5, 8)),
], ids=str)
def test_panels_of_converted_operands_hold_every_term_and_column(
        bits: int | None, types: tuple[DType, DType, DType], layout: str, rows: int, columns: int, terms: tuple[int, ...],
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Small whole numbers, whose sums are exact: integers up to the ends of their ranges, whose sums wrap around."""
    for name, value in {"LEAST_CONVERTED": 0, "LEAST_PAIRS": 0, "LARGE_BYTES": -1}.items():
        monkeypatch.setattr(plans, name, value)
    rng, count = np.random.default_rng(0), len(terms)
    assert types[2].np is not None
    operands, axes = list[Any](), list[tuple[int, ...]]()
    for type, n, (front,) in zip(types, (rows, columns), LAYOUTS[layout], strict=False):
        ends = (np.iinfo(type.np).min, np.iinfo(type.np).max + 1) if type.is_integer and types[2].is_integer else (-9, 10)
        whole = rng.integers(*ends, (n, *terms)).astype(type.np)
        operands.append(whole if front else np.ascontiguousarray(np.moveaxis(whole, 0, -1)))
        axes.append(tuple(range(1, 1 + count)) if front else tuple(range(count)))
    x, y = (o.astype(np.int64) for o in operands)
    expected: Any = np.tensordot(x, y, axes).astype(types[2].np)
    with vectors(bits):
        given = [TensorType(type, o.shape) for type, o in zip(types, operands, strict=False)]
        plan = plans.converting_plan(types[2].np, given, ((), (), *axes))
        if bits == 128 and F16 in types:
            assert plan is None, "which has no instruction for it"
            return
        if plan is None:
            assert types[2].is_integer and not this_machine().triple.startswith("x86_64")
            return
        for parts in (1, 1e9):
            monkeypatch.setattr(shares, "SHARES_OF_CHUNK", parts)
            kernel = kernel_of.__wrapped__(plan, expected.shape, this_machine(), 2)
            assert np.array_equal(kernel(operands)[0], expected)


@pytest.mark.parametrize("types", [(I8, I8, I32), (I8, BF16, F32)], ids=lambda types: "-".join(map(str, types)))
@pytest.mark.parametrize(("left", "right", "batch", "sums"), [
    ((3, 40, 51), (3, 51, 65), ((0,), (0,)), ((2,), (1,))),
    ((40, 3, 51), (3, 65, 51), ((1,), (0,)), ((2,), (2,))),
    ((51, 40, 3), (65, 3, 51), ((2,), (1,)), ((0,), (2,))),
], ids=str)
def test_batches_of_converted_operands(types: tuple[DType, DType, DType], left: Any, right: Any, batch: Any, sums: Any,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LEAST_CONVERTED": 0, "LEAST_PAIRS": 0, "LARGE_BYTES": -1}.items():
        monkeypatch.setattr(plans, name, value)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-9, 10, shape).astype(type.np) for shape, type in zip((left, right), types, strict=False))
    plan = plans.converting_plan(types[2].np, [TensorType(t, o.shape) for t, o in zip(types, (x, y), strict=False)],
                                 (*batch, *sums))
    expected = dot_general.eval([x.astype("i4"), y.astype("i4")], *batch, *sums)  # type: ignore[misc]
    if plan is None:
        assert not this_machine().triple.startswith("x86_64")
        return
    kernel = kernel_of.__wrapped__(plan, expected.shape, this_machine(), 2)
    assert np.array_equal(kernel([x, y])[0], expected)


@pytest.mark.parametrize("bits", [128, None], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("columns", [8, 19, 64, 83])
@pytest.mark.parametrize("terms", [(1,), (4,), (7,), (64,), (515,), (516,), (1030,), (3, 5), (5, 8)], ids=str)
def test_panels_hold_every_term_and_column(bits: int | None, dtype: str, columns: int, terms: tuple[int, ...]) -> None:
    rng, axes = np.random.default_rng(0), tuple(range(1, 1 + len(terms)))
    x, y = (rng.integers(-4, 5, (n, *terms)).astype(dtype) for n in (40, columns))
    expected: Any = np.tensordot(x.astype(np.int64), y.astype(np.int64), (axes, axes))
    with vectors(bits):
        plan = plans.planned(np.dtype(dtype), x.shape, y.shape, (), (), axes, axes)
        kernel = kernel_of.__wrapped__(plan, expected.shape, this_machine(), 1)
        assert np.array_equal(kernel([x, y])[0], expected)
