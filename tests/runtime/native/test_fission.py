"""Kernels that make several values of next to nothing are taken apart where that saves memory, and values stay."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.structure import PARAM
from deepx_graph.ops import add, iota, multiply, sine
from deepx_graph.ops.contract.linear import matmul
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.types import F32, scalar, tensor

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.rewrite.late_results import with_late_results
from deepx_graph.runtime.engines.native_engine import NativeEngine

SIDE = 96
WHOLE = tensor(F32, (SIDE, SIDE))


def two_rounds(*, dear: bool, late: bool) -> Function:
    """Two matrices that one kernel makes of positions and two numbers; perhaps the second is read only after the first, and perhaps
    what they have in common is dear."""
    b = Builder()
    keys = tuple(b.param(k, scalar(F32)) for k in range(2))
    inner = tuple(b.param(k, scalar(F32)) for k in range(2))
    positions: Node = b(iota, dtype=F32, shape=(SIDE, SIDE), iota_dimension=1)
    common = b(sine, b(sine, positions)) if dear else positions
    body = Function("fusion", inner, (b(add, common, inner[0]), b(multiply, common, inner[1])), public=False)
    first, second = b.items(b(fusion, *keys, body=body))
    round = matmul(b, first, first) if late else matmul(b, first, second)
    return Function("main", keys, (matmul(b, round, second),))


def results(function: Function) -> list[int]:
    return [len(n.attr("body").results) for n in function.nodes if n.op is fusion]


def test_what_is_read_late_is_made_late() -> None:
    function = two_rounds(dear=False, late=True)
    apart = with_late_results(function, lambda body: True)
    assert results(function) == [2]
    assert results(apart) == [1, 1]
    made = [n for n in sorted(apart.nodes, key=lambda n: n.serial) if n.op is fusion or (n.inputs and n.op.name == "dot_general")]
    assert [n.op is fusion for n in made] == [True, False, True, False]


@pytest.mark.parametrize(("dear", "late"), [(True, True), (False, False)])
def test_kernels_stay_whole_where_nothing_is_won(dear: bool, late: bool) -> None:
    function = two_rounds(dear=dear, late=late)
    assert with_late_results(function, lambda body: True) is function


def test_a_kernel_stays_whole_without_machine_code_for_its_parts() -> None:
    function = two_rounds(dear=False, late=True)
    assert with_late_results(function, lambda body: False) is function


def test_a_round_has_no_memory_for_the_next_one() -> None:
    module = Module((two_rounds(dear=False, late=True),))
    f = dx.compile(module, engine="native", optimize=False)
    keys = np.float32(0.25), np.float32(0.5)
    expected = dx.compile(module, engine="numpy", optimize=False)(*keys)[0]
    np.testing.assert_allclose(f(*keys)[0], expected, rtol=1e-4)
    assert results(NativeEngine(1).arranged(module.entry)).count(2) == 0
    assert f.plan.peak_bytes < 3.5 * WHOLE.nbytes


def test_what_is_made_of_nothing_waits_for_its_reader() -> None:
    """Behind a product that does not need it, which then has its memory."""
    b = Builder()
    x = b.param(0, WHOLE)
    positions: Node = b(iota, dtype=F32, shape=(SIDE, SIDE), iota_dimension=1)
    function = Function("main", (x,), (matmul(b, matmul(b, x, x), positions),))
    made = [n.op.name for n in with_late_results(function, lambda body: True).nodes if n.op is not PARAM]
    assert made == ["dot_general", "iota", "dot_general"]
    read_at_once = Function("main", (x,), (matmul(b, positions, x),))
    assert with_late_results(read_at_once, lambda body: True) is read_at_once
