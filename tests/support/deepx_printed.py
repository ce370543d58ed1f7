"""What the tests of the deepx printer share: programs written in a dialect, read back, and compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deepx_graph.errors import Source
from deepx_graph.ir import Builder, Module
from deepx_graph.text import ReadOptions, deepx
from deepx_graph.types import F32, Type, tensor
from deepx_graph.verify import verify
from tests.support.paths import SHARED
from tests.support.reference import evaluate

DIALECTS = ("seed", "wire", "function")
X = tensor(F32, (2, 3))
CORPUS = SHARED / "corpus" / "deepx"


def module(body: Callable[..., Any], *types: Type, b: Builder | None = None, **fields: Any) -> Module:
    b = b or Builder()
    return Module((b.function("main", [(f"x{k}", t) for k, t in enumerate(types)], body, **fields),))


def again(m: Module, dialect: str) -> Module:
    back = deepx.read(Source(dialect, deepx.write(m, dialect)), ReadOptions()).module
    verify(back)
    f, g = m.entry, back.entry
    assert [p.type for p in g.params] == [p.type for p in f.params]
    assert len(g.results) == len(f.results)
    return back


def inputs_for(m: Module, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [
        np.asarray(rng.integers(-2, 3, p.type.shape) * (0.75 if p.type.dtype.is_float else 1)).astype(p.type.dtype.np)
        for p in m.entry.params
    ]  # type: ignore[attr-defined]


def assert_same(m: Module, dialect: str) -> None:
    """Written and read back, the module computes the same, bit for bit but for the sign of zero and the bits of NaN."""
    back = again(m, dialect)
    xs = inputs_for(m)
    with np.errstate(all="ignore"):
        for want, have in zip(evaluate(m, xs), evaluate(back, xs), strict=True):
            assert want.dtype == have.dtype
            np.testing.assert_array_equal(want, have)
