"""Tests of machine code, once more for every width of vectors that is narrower than those of this machine.

The tests of `MODULES` run with the widest vectors; of those for narrower ones a few run, and in `make conformance` all.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pytest

from deepx_graph.runtime.engines import has_native
from deepx_graph.runtime.native.llvm.width import WIDTHS

MODULES = (
    "native.test_native_engine", "native.test_microkernel", "native.test_convolution", "native.test_native_memory",
    "native.test_gemm", "native.test_transpose", "native.test_small_loops", "native.test_per_element_loops",
    "test_trampoline", "test_updates_in_place",
)
ONE_OF = 24
"""So many tests go to one that runs for a narrower width, too."""

CORE = ("test_every_elementwise_op_agrees_with_eval", "test_functions_stay_within_their_bounds")
ONE_OF_CORE = 4


def narrower() -> Sequence[int]:
    """The widths narrower than that of the process."""
    if not has_native():
        return ()
    from deepx_graph.runtime.native.llvm.target import this_machine

    return [bits for bits in WIDTHS if bits < 8 * this_machine().register_bytes]


def parametrize(metafunc: pytest.Metafunc) -> None:
    """A test of machine code for each width."""
    if metafunc.module.__name__.removeprefix("tests.runtime.") not in MODULES:
        return
    widths = [pytest.param(None, id="widest"), *(pytest.param(bits, id=f"{bits} bits") for bits in narrower())]
    metafunc.fixturenames.insert(0, "vector_bits")
    metafunc.parametrize("vector_bits", widths, indirect=True)


def leave_most(items: Sequence[pytest.Item]) -> None:
    """Marks what only `make conformance` runs."""
    for item in items:
        found = getattr(item, "callspec", None)
        if found is None or found.params.get("vector_bits") is None:
            continue
        name = getattr(item, "originalname", item.name)
        if zlib.crc32(item.nodeid.encode()) % (ONE_OF_CORE if name in CORE else ONE_OF):
            item.add_marker(pytest.mark.conformance)
