"""Pointwise operations at the ends of their types: machine code gives what the reference gives, for every pair of such numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Module, Op
from deepx_graph.ops import zeta
from deepx_graph.runtime.engines import has_native
from deepx_graph.types import type_of_array
from tests.support.laws import LAWFUL

POINTWISE = [op for op in LAWFUL if op.elementwise and op.samples is None]


def ends(dtype: Any) -> np.ndarray[Any, Any]:
    info = np.finfo(dtype)
    sizes = [0, float(info.smallest_subnormal), float(info.tiny), 0.5, 1, 1.5, 2, 3, 300, 2.0**60, float(info.max), math.inf]
    return np.array([*sizes, *(-x for x in sizes), math.nan], dtype)


@pytest.mark.parametrize("engine", ["numexpr", *(["native"] if has_native() else [])])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", POINTWISE, ids=lambda op: op.name)
def test_every_engine_agrees_with_the_reference(op: Op, dtype: Any, engine: str) -> None:
    """To the sign of a zero, and beyond four decimal places, or one subnormal: how precise they are is told in test_accuracy."""
    arrays = [a.ravel() for a in np.meshgrid(*[ends(dtype)] * len(op.operands))]
    types = [type_of_array(a) for a in arrays]
    try:
        op.infer(types)
    except InferError:
        return  # not of floats
    b = Builder()
    module = Module((b.function("main", [(f"x{k}", t) for k, t in enumerate(types)], lambda *xs: [b(op, *xs)]),))
    found, want = (dx.compile(module, engine=e, optimize=False)(*arrays)[0] for e in (engine, "numpy"))
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=float(np.finfo(dtype).smallest_subnormal))
    zero = (found == 0) & (want == 0)
    for part in ("real", "imag"):
        np.testing.assert_array_equal(*(np.signbit(getattr(a[zero], part)) for a in (found, want)))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_zeta_function_at_infinity() -> None:
    """The limits: (q + k)^-s goes to 0 for what is above 1; scipy gives NaN for (inf, 2)."""
    pairs = [(math.inf, 2, 0), (math.inf, math.inf, 0), (2, math.inf, 0), (math.inf, 1, 1), (math.inf, 0.5, math.inf), (1e30, 2, 0)]
    s, q, want = np.array(pairs).T
    assert zeta.eval is not None
    np.testing.assert_array_equal(zeta.eval([s, q]), want)
