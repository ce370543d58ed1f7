"""The cost model: by hand with made-up constants, and against the order that bytes and operations give."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.analysis.work import flops
from deepx_graph.errors import UsageError
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ops import add, dot_general, exponential, multiply, slice_
from deepx_graph.ops.contract.convolution import conv_attrs, convolution
from deepx_graph.ops.contract.linalg import fft
from deepx_graph.runtime.cost import file as cost_file
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.cost.calibrate import nanoseconds
from deepx_graph.runtime.cost.model import NAMES, SHIPPED, Constants, from_json
from deepx_graph.runtime.engines import has_native
from deepx_graph.runtime.kernels.execute import build
from deepx_graph.types import C64, F32, F64, DType, tensor

MADE_UP = Constants(
    cache_bytes=1000, cache_gbs=10, memory_gbs=4, memory_all_gbs=6, native_call_ns=100, native_share_ns=50, native_element_ns=2,
    native_op_ns=1, native_loop_ns=25, blocks_call_ns=300, block_ns=20, blocks_share_ns=500, ufunc_call_ns=30,
    ufunc_element_ns=3, ufunc_op_ns=0.5, vm_call_ns=70, vm_input_ns=5, vm_step_ns=2, vm_element_ns=4, product_call_ns=40,
    product_gflops=8, product_all_gflops=12, eval_call_ns=60, eval_gbs=2,
)  # fmt: skip


def test_memory_is_as_fast_as_where_it_lies() -> None:
    assert cost.memory_ns(MADE_UP, 1000, 1) == 1000 / 10
    assert cost.memory_ns(MADE_UP, 1000, 2) == 1000 / 20
    assert cost.memory_ns(MADE_UP, 2400, 1) == 2400 / 4
    assert cost.memory_ns(MADE_UP, 2400, 4) == 2400 / 6, "all threads share one memory"


def test_loops_and_machine_programs_by_hand() -> None:
    assert cost.ufunc_ns(MADE_UP, 10, 4) == 30 + 10 * (3 + 2)
    assert cost.vm_ns(MADE_UP, 6, 2, 10) == 70 + 2 * 5 + 6 * (2 + 40)
    whole = cost.blocks(MADE_UP, 800, 0, 100, 2)
    assert whole.nanoseconds == 300 + 800
    cut = cost.blocks(MADE_UP, 8000, 4, 100, 2)
    assert cut.nanoseconds == 300 + 4 * 20 / 2 + 500 + 4000


def test_nests_of_loops_by_hand() -> None:
    assert cost.nest_ns(MADE_UP, 10, 4) == 10 * (2 + 4)
    assert cost.nest_ns(MADE_UP, 10, 4, starts=3) == 10 * (2 + 4) + 3 * 25
    assert cost.nest_ns(MADE_UP, 10, 4, 2400) == 2400 / 4, "bytes are moved meanwhile"


@pytest.mark.skipif(not has_native(), reason="no llvmlite")
def test_loops_over_short_rows_are_started_often() -> None:
    """As many elements in rows of a twentieth: what is predicted beyond is what it takes to start the loops, two for each row."""
    from deepx_graph.runtime.cost.calibrate import row_deviations
    from deepx_graph.runtime.native.loop_program.kernel import build as build_native

    def predicted(constants: Constants, rows: int) -> float:
        with cost_file.using(constants):
            return build_native(row_deviations(rows, (1 << 17) // rows), 1).nanoseconds

    free = replace(SHIPPED, native_loop_ns=1e-6)
    for rows in (64, 1024):
        more = predicted(replace(SHIPPED, native_loop_ns=7.0), rows) - predicted(free, rows)
        assert more == pytest.approx(2 * 7 * rows, rel=1e-3)


@pytest.mark.skipif(not has_native(), reason="no llvmlite")
def test_running_sums_are_predicted_to_grow_with_their_length() -> None:
    """They could begin with another number than nothing, and then each is a sum of its own; that seldom is so."""
    from deepx_graph.runtime.native.loop_program.kernel import build as build_native

    def predicted(size: int) -> float:
        traced = dx.optimize(dx.trace(dx.xp.cumulative_sum, f"f32[{size}]"), "inline,clean")
        return build_native(traced.entry, 1).nanoseconds

    assert predicted(64_000) < 5 * predicted(16_000)


def test_matmuls_and_evals_by_hand() -> None:
    packing = 3 * 100 / MADE_UP.cache_gbs
    assert cost.product(MADE_UP, 1600, 100, 4, 1).nanoseconds == 40 + 1600 / 8 + packing
    assert cost.product(MADE_UP, 1600, 100, 4, 2).nanoseconds == 40 + 1600 / 12 + packing / 2, "all threads share one chip"
    assert cost.product(MADE_UP, 1600, 100, 8, 2).nanoseconds == 40 + 1600 / 6 + packing / 2, "doubles at half the rate"
    assert cost.evaluated(MADE_UP, 0, 100).nanoseconds == 60 + 50


def test_wide_elements_take_more() -> None:
    assert cost.lane_price("add", 4) == cost.lane_price("add", 2) == 1
    assert cost.lane_price("add", 8) == 2
    assert cost.lane_price("exp", 8) == 3 * cost.lane_price("exp", 4)


def test_operations_of_matmuls_are_counted() -> None:
    b = Builder()
    x, w = b.param(0, tensor(F32, (2, 3, 5, 5))), b.param(1, tensor(F32, (4, 3, 2, 2)))
    y = b(convolution, x, w, **conv_attrs(2))
    assert flops(y) == 2 * (2 * 4 * 4 * 4) * (3 * 2 * 2)
    m = b.param(2, tensor(F32, (3, 8)))
    assert flops(b(dot_general, m, m, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(1,))) == 2 * 9 * 8
    assert flops(b(fft, b.param(3, tensor(C64, (3, 8))), fft_type="FFT", fft_length=(8,))) == 5 * 24 * 3


# --- kernels


def _chain(size: int, length: int, *, dear: bool = False, dtype: DType = F32) -> Function:
    def body(x: Node, y: Node) -> Sequence[Node]:
        b, z = Builder(), x
        for k in range(length):
            z = b((add, multiply)[k % 2], b(exponential, z) if dear else z, y)
        return [z]

    return Builder().function("chain", [("x", tensor(dtype, (size,))), ("y", tensor(dtype, (size,)))], body)


def _predictions(kernels: Sequence[Function], native: bool) -> list[float]:
    if native:
        from deepx_graph.runtime.native.loop_program.kernel import build as build_native

        made = [build_native(f, 2) for f in kernels]
        return [k.predicted().nanoseconds for k in made if k is not None]
    return [k.predicted().nanoseconds for k in (build(f, 2) for f in kernels) if k is not None]


@pytest.mark.parametrize("native", [False, pytest.param(True, marks=pytest.mark.skipif(not has_native(), reason="no llvmlite"))])
def test_more_bytes_and_more_operations_take_longer(native: bool) -> None:
    """The order of predictions is that of size, of length (beyond what memory hides), of the price of operations and of the width
    of elements."""
    for kernels in (
        [_chain(n, 4) for n in (100, 10_000, 100_000, 1_000_000, 20_000_000)],
        [_chain(50_000, n) for n in (1, 12, 30, 90)],
        [_chain(50_000, 6), _chain(50_000, 6, dear=True)],
        [_chain(50_000, 6), _chain(50_000, 6, dtype=F64)],
    ):
        found = _predictions(kernels, native)
        assert len(found) == len(kernels) and found == sorted(found) and len(set(found)) == len(found)


@pytest.mark.skipif(not has_native(), reason="no llvmlite")
def test_sharing_follows_the_constants() -> None:
    from deepx_graph.runtime.native.loop_program.kernel import build as build_native

    def shares(constants: Constants) -> int:
        with cost_file.using(constants):
            kernel = build_native(_chain(100_000, 8), 2)
        return kernel.shares[0].chunks

    assert shares(replace(SHIPPED, native_share_ns=1e9)) == 0
    assert shares(replace(SHIPPED, native_share_ns=1)) > 8
    x = np.linspace(0, 1, 100_000, dtype=np.float32)
    with cost_file.using(replace(SHIPPED, native_share_ns=1)):
        cut = build_native(_chain(100_000, 8), 2)
    whole = build_native(_chain(100_000, 8), 2)
    np.testing.assert_array_equal(cut([x, x])[0], whole([x, x])[0])


# --- the file


def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    path = cost_file.store(MADE_UP, tmp_path / "folder" / "costs.json")
    found = cost_file.read(path)
    assert found == cost_file.KnownConstants(MADE_UP, path)
    assert str(path) in found.source


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda t: t[:40], "no JSON"),
        (lambda t: "[" * 100_000, "too large"),
        (lambda t: "[" * 50_000, "not used"),
        (lambda t: "[]", "another version"),
        (lambda t: t.replace(f'"version": {cost_file.VERSION}', '"version": 0'), "another version"),
        (lambda t: t.replace('"machine": "', '"machine": "not '), "another machine"),
        (lambda t: t.replace('"block_ns": 20', '"block_ns": "20"'), "block_ns"),
        (lambda t: t.replace('"block_ns": 20', '"block_ns": NaN'), "block_ns"),
        (lambda t: t.replace('"block_ns": 20', '"block_ns": -1'), "block_ns"),
        (lambda t: t.replace('"block_ns": 20', '"block_ms": 20'), "other constants"),
        (lambda t: b"\xff\xfe", "not used"),
    ],
)
def test_a_file_that_cannot_be_used_is_reported(tmp_path: Path, change, note: str) -> None:  # type: ignore[no-untyped-def]
    path = cost_file.store(MADE_UP, tmp_path / "costs.json")
    changed = change(path.read_text())
    path.write_bytes(changed if isinstance(changed, bytes) else changed.encode())
    found = cost_file.read(path)
    assert found.constants == SHIPPED and found.path is None
    assert note in found.note and str(path) in found.note


def test_no_file_is_nothing_to_tell_of(tmp_path: Path) -> None:
    assert cost_file.read(tmp_path / "none.json") == cost_file.read(None) == cost_file.KnownConstants(SHIPPED)


def test_the_location_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEEPX_GRAPH_COSTS", str(tmp_path / "a.json"))
    assert cost_file.location() == tmp_path / "a.json"
    monkeypatch.setenv("DEEPX_GRAPH_COSTS", "")
    assert cost_file.location() is None
    with pytest.raises(UsageError, match="no folder"):
        cost_file.store(SHIPPED)
    monkeypatch.delenv("DEEPX_GRAPH_COSTS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cost_file.location() == tmp_path / "deepx_graph" / "costs.json"
    cost_file.store(MADE_UP)
    assert cost_file.reset() == tmp_path / "deepx_graph" / "costs.json"
    assert cost_file.reset() is None


def test_constants_are_checked() -> None:
    assert from_json(MADE_UP.to_json()) == MADE_UP
    assert set(json.loads(cost_file.text(SHIPPED))["constants"]) == set(NAMES)
    with pytest.raises(ValueError, match="other constants"):
        from_json([1])
    with pytest.raises(ValueError, match="cache_gbs"):
        from_json(MADE_UP.to_json() | {"cache_gbs": True})


def test_processes_that_store_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    code = ("from deepx_graph.runtime.cost.file import store; from deepx_graph.runtime.cost.model import SHIPPED\n"
            "from dataclasses import replace; from pathlib import Path; import sys\n"
            "for k in range(30): store(replace(SHIPPED, block_ns=float(sys.argv[2])), Path(sys.argv[1]))")
    path, root = tmp_path / "costs.json", Path(cost_file.__file__).parents[3]
    running = [subprocess.Popen([sys.executable, "-c", code, str(path), str(k + 1)], cwd=root) for k in range(3)]
    assert [p.wait() for p in running] == [0, 0, 0]
    assert cost_file.read(path).constants.block_ns in (1.0, 2.0, 3.0)
    assert [p.name for p in tmp_path.iterdir()] == ["costs.json"]


def test_a_measurement_takes_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0, 10, 0, 10**9, 0, 500, 0, 70, 0, 90])  # one to size the batch by, then two rounds of one call
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(times))
    monkeypatch.setattr("deepx_graph.runtime.cost.calibrate.BATCH_SECONDS", 1e-8)
    assert nanoseconds(lambda: None, rounds=3) == 70


@pytest.mark.skipif(not has_native(), reason="no llvmlite")
def test_few_rows_picked_out_of_many_are_all_that_is_read() -> None:
    from deepx_graph.runtime.native.loop_program.kernel import build as build_native

    b = Builder()
    kernel = build_native(b.function("some", [("x", tensor(F32, (100_000, 8)))], lambda x: [
        b(slice_, x, start_indices=(0, 0), limit_indices=(100_000, 8), strides=(10_000, 1))]), 1)
    assert kernel.moved_bytes == 2 * 10 * 8 * 4
