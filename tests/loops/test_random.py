"""Random numbers by machine code are those of `eval`: to the bit, normal ones but for the last place of the logarithm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder, Op
from deepx_graph.loops.lower import lower
from deepx_graph.ops import rng_bit_generator, rng_normal, rng_uniform
from deepx_graph.types import BF16, F16, F32, F64, I8, I32, U16, U32, U64, DType
from tests.support.laws import alone, constants

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

Array = np.ndarray[Any, Any]
STATES = {2: np.array([7, 2**64 - 2], np.uint64), 3: np.array([2**63 + 5, 2**64 - 2, 2**64 - 1], np.uint64)}


def both(op: Op, arrays: list[Array], **attrs: Any) -> list[tuple[Array, Array]]:
    """Each result by machine code, and by `eval`."""
    from deepx_graph.runtime.native.loop_program.kernel import LoopKernel

    b = Builder()
    node = b(op, *constants(b, arrays), **attrs)
    function = alone(node)
    wanted = op.eval(arrays, *node.attrs)  # type: ignore[misc]
    got = LoopKernel(function, lower(function), 2)(arrays)
    return list(zip(got, wanted if isinstance(wanted, tuple) else (wanted,), strict=True))


@pytest.mark.parametrize("dtype", [U32, U64, U16, I8, F32, BF16], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (4096,), (5, 3), (3, 4, 5), (33, 2)], ids=str)
@pytest.mark.parametrize(("algorithm", "words"), [("THREE_FRY", 2), ("PHILOX", 2), ("PHILOX", 3), ("DEFAULT", 2)])
def test_bits(algorithm: str, words: int, shape: tuple[int, ...], dtype: DType) -> None:
    """Counters carry into their upper half, and wrap."""
    for got, want in both(rng_bit_generator, [STATES[words]], rng_algorithm=algorithm, shape=shape, dtype=dtype):
        assert got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()


@pytest.mark.parametrize("seed", [np.int64(42), np.int64(-3), np.int64(0), np.int64(2**31 - 1), np.uint64(2**64 - 1), np.int8(-7)])
@pytest.mark.parametrize(("shape", "dtype"), [((3, 5), F64), ((2048,), F32), ((7, 331), F64), ((), F16)])
def test_even_draws(seed: Any, shape: tuple[int, ...], dtype: DType) -> None:
    ((got, want),) = both(rng_uniform, [np.asarray(-1.5), np.asarray(2.0), np.asarray(seed)], shape=shape, dtype=dtype)
    assert got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()


def test_even_draws_of_integers() -> None:
    ((got, want),) = both(rng_uniform, [np.asarray(0.0), np.asarray(1000.0), np.asarray(5)], shape=(50,), dtype=I32)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 1001])
def test_normal_draws(size: int) -> None:
    ((got, want),) = both(rng_normal, [np.asarray(0.5), np.asarray(2.0), np.asarray(11)], shape=(size,), dtype=F64)
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-14)
