"""Machine code of loop programs, as programs call it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ops import add, compare, concatenate, convert, dynamic_update_slice, maximum, pad, reduce, reshape, select
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.types import F32, F64, I8, I32, DType, scalar, tensor
from tests.support.laws import alone, constants

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.runtime.native.loop_program.kernel import build

SIZES = [(1, 1), (0, 5), (5, 0), (3, 64), (65, 3), (17, 130), (200, 63), (129, 129)]


@pytest.mark.parametrize(("dtype", "values"), [("bf16", [1, -2.5, 0.5]), ("f16", [1, -2.5, 0.5])])
def test_a_narrow_result_has_its_dtype_in_every_call(dtype: str, values: list[float]) -> None:
    """The first call runs kernel by kernel, later ones do not."""
    module = dx.loads(f"""func.func @main(%x: tensor<3x{dtype}>) -> tensor<3x{dtype}> {{
      %0 = stablehlo.multiply %x, %x : tensor<3x{dtype}>
      %1 = stablehlo.add %0, %x : tensor<3x{dtype}>
      return %1 : tensor<3x{dtype}>
    }}""")
    function = dx.compile(dx.optimize(module), engine="native", threads=1)
    x = np.array(values).astype(function.inputs[0].type.dtype.np)  # type: ignore[union-attr]
    for _ in range(3):
        (got,) = function(x)
        assert got.dtype == x.dtype
        assert got.tolist() == [v * v + v for v in values]


def test_what_two_nests_need_is_computed_in_each() -> None:
    """They may become functions of their own: no variable of one is seen in another."""
    b = Builder()
    x, i = b.param(0, tensor(F32, (4,))), b.param(1, tensor(I32, ()))
    twice = b(add, i, i)
    update = b(dynamic_update_slice, x, b(reshape, b(convert, twice, dtype=F32), shape=(1,)), twice)
    function = Function("f", (x, i), (twice, update, b(add, twice, i)))
    found = build(function, 1)([np.arange(4, dtype="f4"), np.int32(1)])
    assert [np.asarray(a).tolist() for a in found] == [2, [0, 1, 2, 3], 3]


def check(op: Any, arrays: list[Any], **attrs: Any) -> None:
    """The kernel of one operation on two threads, against its `eval`."""
    b = Builder()
    node = b(op, *constants(b, arrays), **attrs)
    kernel = build(alone(node), 2)
    expected = node.op.eval(arrays, *node.attrs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for got, want in zip(kernel(arrays, [np.full_like(w, 77) for w in expected]), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def _first_greatest() -> Any:
    """The greatest number, and the least position where it is."""
    def body(x: Node, i: Node, y: Node, j: Node) -> list[Node]:
        b = Builder()
        keep = b(compare, x, y, direction="GE")
        return [b(select, keep, x, y), b(select, keep, i, j)]

    params = [(f"{name}{k}", scalar(d)) for k in range(2) for name, d in (("value", F32), ("position", I32))]
    return Builder().function("greatest", params, body, public=False)


@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [F32, F64, I8], ids=str)
def test_sums_and_greatest_elements_along_each_axis(shape: tuple[int, int], dtype: DType) -> None:
    x = np.random.default_rng(0).integers(1, 5, shape).astype(dtype.np)
    for axes in ((0,), (1,), (0, 1)):
        for op in (add, maximum):
            check(reduce, [x, np.zeros((), dtype.np)], dimensions=axes, body=monoid_body(op, dtype))


@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_positions_of_greatest_elements_along_each_axis(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).integers(0, 50, shape).astype("f4")
    for axis in (0, 1):
        positions = np.broadcast_to(np.arange(shape[axis], dtype="i4").reshape(-1, *([1] * (1 - axis))), shape)
        check(reduce, [x, np.array(positions), np.float32(-1), np.int32(0)], dimensions=(axis,), body=_first_greatest())


@pytest.mark.parametrize("size", [1, 63, 64, 4095, 4096, 4097, 9000])
def test_pads_and_concatenations(size: int) -> None:
    x = np.arange(size, dtype="f4")
    check(pad, [x, np.float32(-1)], edge_padding_low=(3,), edge_padding_high=(5,), interior_padding=(0,))
    check(concatenate, [x, x[: size // 2], x], dimension=0)
    y = np.arange(3 * size, dtype="f4").reshape(3, size)
    check(pad, [y, np.float32(-1)], edge_padding_low=(1, 2), edge_padding_high=(0, -1), interior_padding=(0, 1))
    check(concatenate, [y, y], dimension=1)


@pytest.mark.parametrize("rows", [4, 4000])
def test_code_is_generated_for_what_is_called_alone(rows: int) -> None:
    """The functions that can be called from outside are those that the kernel calls: nothing is compiled in vain."""
    from deepx_graph.runtime.native.llvm.target import this_machine
    from deepx_graph.runtime.native.loop_program.emit import module_text

    b = Builder()
    body = monoid_body(add, F32)
    function = b.function("f", [("x", tensor(F32, (rows, 300)))],
                          lambda x: [b(reduce, b(add, x, x), b.constant(0, F32), body=body, dimensions=(0,))])
    kernel = build(function, 2)
    text = module_text(kernel.program, kernel.shares, this_machine())
    exported = [line for line in text.splitlines() if line.startswith("define void @")]
    assert len(exported) == len(kernel.calls)
