"""Hessian-vector products through calls, closures and recursion, against differences of gradients."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.verify import verify
from tests.support.grad_calls import PROGRAMS
from tests.support.grad_programs import M, sampled


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_differences_of_gradients(name: str) -> None:
    m = PROGRAMS[name]()
    h = dx.hvp(m)
    verify(h)
    args, t, cts = sampled((M, M)), sampled((M, M), 2), sampled(m.entry.type.results, 1)
    g, step = dx.compile(dx.grad(m), optimize=False), 1e-6
    moved = [g(*[a + s * step * d for a, d in zip(args, t, strict=True)], *cts) for s in (1, -1)]
    for found, up, down in zip(dx.compile(h, optimize=False)(*args, *cts, *t), *moved, strict=True):
        np.testing.assert_allclose(found, (up - down) / (2 * step), rtol=1e-4, atol=1e-5)
