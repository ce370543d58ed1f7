"""Copies of transposed arrays in machine code, against numpy's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

import deepx_graph as dx
from deepx_graph.runtime.cost.model import ForecastParts
from deepx_graph.runtime.native import transpose
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.prepared import Address, Base, PreparedKernel, PreparedStep
from deepx_graph.runtime.straightline import ArrayType
from tests.support.kernel_store import kernel_store


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with kernel_store(monkeypatch, tmp_path_factory.mktemp("kernels")):
        yield


@pytest.mark.parametrize("dtype", ["f4", "i4", "f8", "u8", "c8"])
@pytest.mark.parametrize("shape", [(16, 16), (17, 16), (31, 33), (64, 64), (65, 130), (200, 19), (16, 1000)])
def test_a_transposed_matrix_is_copied_element_for_element(shape: tuple[int, ...], dtype: str) -> None:
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    np.testing.assert_array_equal(copying(x.T)([x])[0], x.T)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(5, 4, 30, 17), (1, 70, 1, 3), (200, 6, 90, 5), (6,)], ids=str)
def test_copies_that_machine_code_calls(shape: tuple[int, ...], dtype: str) -> None:
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    for order in itertools.permutations(range(x.ndim)):
        view = x.transpose(order)
        np.testing.assert_array_equal(copying(view)([x])[0], view)


def copying(view: np.ndarray) -> PreparedKernel:
    """A kernel that puts the elements of an array in the order of this view of it."""
    table = transpose.copy_table(view, Address(Base.ELEMENTS, 0), Address(Base.ELEMENTS, 1))
    assert table is not None
    copied = machine_code.functions(transpose.text(view.itemsize), ["copied"])["copied"]
    return PreparedKernel((0,), [ArrayType(view.dtype, view.shape)], [PreparedStep(copied, table, 2)], scratch_bytes=0,
                          predicted=ForecastParts(), kept=None)


def test_every_order_of_four_axes_on_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transpose, "LEAST_SHARED", 1)
    monkeypatch.setattr(transpose, "LEAST_ROWS", 2)
    x = np.arange(17 * 19 * 3 * 20, dtype=np.float32).reshape(17, 19, 3, 20)
    for y in (x, x.reshape(17, -1)):
        for order in itertools.permutations(range(y.ndim)):
            np.testing.assert_array_equal(copying(y.transpose(order))([y])[0], y.transpose(order))


def test_elements_outside_the_array_are_not_touched() -> None:
    room, x = np.full(43 * 37 + 32, -1, np.float32), np.arange(37 * 43, dtype=np.float32).reshape(37, 43)
    target = room[16:-16].reshape(43, 37)
    copying(x.T)([x], [target])
    np.testing.assert_array_equal(target, x.T)
    assert (room[:16] == -1).all() and (room[-16:] == -1).all()


def test_a_kernel_reads_a_transposed_operand() -> None:
    text = """
HloModule m
ENTRY e {
  x = f32[300,200]{1,0} parameter(0)
  y = f32[200,300]{1,0} parameter(1)
  t = f32[200,300]{1,0} transpose(x), dimensions={1,0}
  m = f32[200,300]{1,0} multiply(t, y)
  ROOT a = f32[200,300]{1,0} add(m, y)
}
"""
    rng = np.random.default_rng(0)
    x, y = rng.random((300, 200), dtype=np.float32), rng.random((200, 300), dtype=np.float32)
    (got,) = dx.compile(dx.loads(text), engine="native")(x, y)
    np.testing.assert_allclose(got, x.T * y + y, rtol=1e-6)
