"""`dx.distribute`: whole arrays in and out, whichever way the plan comes about."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from tests.support.sharded_programs import MLP, TRAINING, inputs, layers


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


def test_checkpoints_are_for_python_too(tmp_path: Path) -> None:
    """The second call goes on from what the first has saved, on another mesh; another input is refused."""
    module = dx.loads(TRAINING, "stablehlo")
    arrays = inputs(module)
    arrays[3] = np.int32(11)
    want = dx.compile(module, engine="numpy", optimize=False)(*arrays)
    for parts in (2, 4):
        f = dx.distribute(module, plan=f'mesh <["a"={parts}]>\nx: [{{"a"}}, {{}}]\n', engine="numpy", deterministic=True,
                          checkpoint=tmp_path / "saved", checkpoint_every=4)
        for got, whole in zip(f(*arrays), want, strict=True):
            np.testing.assert_allclose(got, whole, rtol=1e-4, atol=1e-5)
        newest = max((tmp_path / "saved").iterdir())
        assert newest.name == f"{8:012d}"
    with pytest.raises(dx.UsageError, match="of another input: x"):
        f(arrays[0] + 1, *arrays[1:])
    with pytest.raises(dx.UsageError, match="checkpoints need a folder"):
        dx.distribute(module, {"a": 2}, checkpoint_every=4)
    with pytest.raises(dx.UsageError, match="at least 1"):
        dx.distribute(module, {"a": 2}, checkpoint=tmp_path, checkpoint_every=0, engine="numpy")


def test_what_says_nothing_is_refused() -> None:
    module = dx.loads(layers(8, 4, 8, 1), "stablehlo")
    with pytest.raises(dx.UsageError, match="states no sharding"):
        dx.distribute(module)
    with pytest.raises(dx.UsageError, match="and not for"):
        dx.distribute(module, {"b": 2}, plan='mesh <["a"=2]>\nx: [{"a"}, {}]\n')
    with pytest.raises(dx.UsageError, match="no place"):
        dx.distribute(module, {"a": 2}, on="moon")
