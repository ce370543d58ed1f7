"""`dx.distribute`: whole arrays in and out, whichever way the plan comes about."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from tests.support.sharded_programs import MLP, inputs, layers


@pytest.mark.parametrize(("text", "mesh", "plan"), [
    (MLP, None, None), (MLP, {"data": 4, "model": 2}, None), (MLP, {"other": 2}, None), (layers(8, 4, 8, 2), {"data": 4}, None),
    (layers(8, 4, 8, 2), None, 'mesh <["a"=2]>\nx: [{"a"}, {}]\n'),
], ids=["stated", "stated and asked", "chosen instead", "chosen", "given"])  # fmt: skip
def test_results_are_those_of_the_whole_program(text: str, mesh: dict[str, int] | None, plan: str | None) -> None:
    module = dx.loads(text, "stablehlo")
    arrays = inputs(module)
    f = dx.distribute(module, mesh, plan=plan, engine="numpy")
    assert mesh is None or dict(f.mesh.axes) == mesh
    for got, want in zip(f(*arrays), dx.compile(module, engine="numpy")(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_what_says_nothing_is_refused() -> None:
    module = dx.loads(layers(8, 4, 8, 1), "stablehlo")
    with pytest.raises(dx.UsageError, match="states no sharding"):
        dx.distribute(module)
    with pytest.raises(dx.UsageError, match="and not for"):
        dx.distribute(module, {"b": 2}, plan='mesh <["a"=2]>\nx: [{"a"}, {}]\n')
    with pytest.raises(dx.UsageError, match="no place"):
        dx.distribute(module, {"a": 2}, on="moon")
