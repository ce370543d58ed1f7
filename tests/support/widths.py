"""Tests of machine code, once more for every width of vectors that is narrower than those of this machine.

The tests of `MODULES` run with the widest vectors; of those for narrower ones a few run, and in `make conformance` all.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import pytest

from deepx_graph.runtime.engines import has_native
from deepx_graph.runtime.native import WIDTHS

MODULES = (
    *(f"runtime.native.test_{name}" for name in (
        "native_engine", "microkernel", "convolution", "native_memory", "gemm", "canonical_gemm", "small_loops", "masked_loops",
        "outer_loop", "extremes", "row_widths")),
    "runtime.test_trampoline", "runtime.test_updates_in_place", "ops.test_accuracy",
)  # fmt: skip
ONE_OF = 24
"""So many tests go to one that runs for a narrower width, too."""

CORE = ("test_every_elementwise_op_agrees_with_eval", "test_functions_stay_within_their_bounds",
        "test_every_function_is_within_its_units_over_its_range")
ONE_OF_CORE = 4


def narrower() -> Sequence[int]:
    """The widths narrower than that of the process."""
    if not has_native():
        return ()
    from deepx_graph.runtime.native.llvm.target import this_machine

    return [bits for bits in WIDTHS if bits < 8 * this_machine().register_bytes]


def parametrize(metafunc: pytest.Metafunc) -> None:
    """A test of machine code for each width."""
    if metafunc.module.__name__.removeprefix("tests.") not in MODULES:
        return
    widths = [pytest.param(None, id="widest"), *(pytest.param(bits, id=f"{bits} bits") for bits in narrower())]
    metafunc.fixturenames.insert(0, "vector_bits")
    metafunc.parametrize("vector_bits", widths, indirect=True)


def leave_most(items: list[pytest.Item]) -> None:
    """Takes out the tests of engines without machine code; marks what only `make conformance` runs."""
    items[:] = [item for item in items if not (_bits(item) and _engine(item) != "native")]
    for item in items:
        if _bits(item) is None:
            continue
        name = getattr(item, "originalname", item.name)
        if zlib.crc32(item.nodeid.encode()) % (ONE_OF_CORE if name in CORE else ONE_OF):
            item.add_marker(pytest.mark.conformance)


def _bits(item: pytest.Item) -> int | None:
    """The narrower width that a test runs with."""
    bits: int | None = _params(item).get("vector_bits")
    return bits


def _engine(item: pytest.Item) -> Any:
    return _params(item).get("engine", "native")


def _params(item: pytest.Item) -> Any:
    found = getattr(item, "callspec", None)
    return found.params if found else {}
